/* Attention of rows that are alone in their sessions, as decoding has them: one kernel from
 * queries, keys and values to what the output's product reads. Block (heads that share a KV head,
 * row, split): each prepares its queries, the new key and value, copies the split's pages into
 * shared memory, once for all of its heads, and computes their states. Pages are copied before the
 * kernel in front has ended: only the row's own position is new. Where a row has several splits,
 * the last block that is ready joins them in their order. Formulas: device/cpu/attention.h. */
#ifndef AVO_DEVICE_CUDA_KERNELS_DECODE_H
#define AVO_DEVICE_CUDA_KERNELS_DECODE_H

#include "device/cuda/kernels/decode_row.h"

/* ---- The split ---- */

typedef struct decode_numbers {
    float of[DECODE_HEADS];
} decode_numbers;

/* Of one position and `heads` queries, a constant as the type may be: a key is read once, queries
 * four numbers at a time. */
EXACT_INLINE void decode_chains(uint32_t type, uint32_t heads, uint32_t size, const uint8_t *tile,
                                const uint8_t *query, uint64_t query_bytes, uint32_t slot,
                                decode_numbers *scores) {
    decode_numbers s;
    uint32_t whole = size / 4 * 4;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < heads; i++)
        s.of[i] = 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll 2
#endif
    for (uint32_t d = 0; d < whole; d += 4) {
        float k[4];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t j = 0; j < 4; j++)
            k[j] = tile_number(type, tile, key_place(type, d + j, slot));
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < heads; i++) {
            exact_words q = exact_load_words(query + i * query_bytes + 4 * d);
            for (uint32_t j = 0; j < 4; j++)
                s.of[i] = fmaf(k[j], exact_float(q.word[j]), s.of[i]);
        }
    }
    for (uint32_t d = whole; d < size; d++) {
        float k = tile_number(type, tile, key_place(type, d, slot));
        for (uint32_t i = 0; i < heads; i++)
            s.of[i] =
                fmaf(k, exact_float(exact_load_word(query + i * query_bytes + 4 * d)), s.of[i]);
    }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < heads; i++)
        scores->of[i] = s.of[i];
}

EXACT_INLINE void decode_chains_of(uint32_t type, uint32_t heads, uint32_t size,
                                   const uint8_t *tile, const uint8_t *query, uint64_t query_bytes,
                                   uint32_t slot, decode_numbers *scores) {
    switch (heads) {
    case 1:
        decode_chains(type, 1, size, tile, query, query_bytes, slot, scores);
        return;
    case 2:
        decode_chains(type, 2, size, tile, query, query_bytes, slot, scores);
        return;
    case 3:
        decode_chains(type, 3, size, tile, query, query_bytes, slot, scores);
        return;
    default:
        decode_chains(type, DECODE_HEADS, size, tile, query, query_bytes, slot, scores);
    }
}

EXACT_INLINE void decode_dots(const decode_call *call, const decode_desk *desk, const uint8_t *tile,
                              uint32_t slot, decode_numbers *scores) {
    const kv_call *kv = &call->attend.kv;
    uint64_t query_bytes = call->attend.query_bytes;
    if (kv->type == CALL_KV_INT8)
        for (uint32_t i = 0; i < DECODE_HEADS; i++) {
            if (i < desk->heads)
                scores->of[i] = attend_dot(kv, tile, desk->query + i * query_bytes, slot);
        }
    else if (kv->type == CALL_KV_F16)
        decode_chains_of(CALL_KV_F16, desk->heads, kv->head_size, tile, desk->query, query_bytes,
                         slot, scores);
    else
        for (uint32_t i = 0; i < DECODE_HEADS; i++)
            if (i < desk->heads)
                scores->of[i] = attend_dot(kv, tile, desk->query + i * query_bytes, slot);
}

/* Scores of the thread's position. */
EXACT_INLINE void decode_score(const decode_call *call, const decode_desk *desk, uint32_t thread,
                               decode_numbers *scores) {
    const kv_call *kv = &call->attend.kv;
    uint32_t page = thread / CALL_PAGE, slot = thread % CALL_PAGE, from, to;
    for (uint32_t i = 0; i < DECODE_HEADS; i++)
        scores->of[i] = -INFINITY;
    if (!attend_sees(&desk->attend, page, &from, &to) || slot < from || slot >= to)
        return;
    const uint8_t *tile = desk->tiles + page * kv->head_bytes;
    decode_dots(call, desk, tile, slot, scores);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < DECODE_HEADS; i++) {
        float s = scores->of[i];
        if (i >= desk->heads)
            continue;
        if (kv_scaled(kv->type))
            s *= exact_float(exact_load_word(tile + kv->key_bytes + 4 * slot));
        if (call->attend.softcap > 0.0f)
            s = (call->attend.softcap * 1.44269504f) *
                (1.0f - 2.0f / (exact_exp2(s > ATTEND_EXP2_MAX ? ATTEND_EXP2_MAX : s) + 1.0f));
        scores->of[i] = s;
    }
}

/* Scores, and the largest of the warp's page. */
EXACT_INLINE void decode_scores(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    decode_numbers scores[OWN_LANES];
    float largest[OWN_LANES], other[OWN_LANES];
    EACH_LANE(at, own) {
        decode_score(call, desk, warp_of(at) * WARP + lane, &scores[own]);
    }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < DECODE_HEADS; i++) {
        if (i >= desk->heads)
            continue;
        EACH_LANE(at, own) {
            float s = scores[own].of[i];
            desk->attend.score[i * desk->head_words + warp_of(at) * WARP + lane] = s;
            largest[own] = s > -INFINITY ? s : -INFINITY;
        }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t mask = 1; mask < WARP; mask *= 2) {
            exchange_floats(largest, mask, other);
            EACH_LANE(at, own) {
                largest[own] = other[own] > largest[own] ? other[own] : largest[own];
            }
        }
        EACH_LANE(at, own)
        if (lane == 0)
            desk->attend.page_largest[i * desk->head_words + warp_of(at)] = largest[own];
    }
}

/* s becomes p, w beside it. Every thread follows m from page to page by itself; a thread for each
 * page keeps its factor, one keeps m. Without branches between heads, so that they overlap. */
EXACT_INLINE void decode_weights(const decode_call *call, const kernel_place *at,
                                 const decode_desk *desk) {
    const attend_desk *first = &desk->attend;
    const kv_call *kv = &call->attend.kv;
    uint32_t page = at->thread / CALL_PAGE, slot = at->thread % CALL_PAGE, from, to;
    uint32_t base = desk->attend.split * CALL_SPLIT;
    uint32_t low = first->begin > base ? (first->begin - base) / CALL_PAGE : 0;
    uint32_t high = (first->end - 1 - base) / CALL_PAGE; /* pages that the row sees */
    bool sees = attend_sees(first, page, &from, &to), leads = slot == 0;
    float value_scale = 1.0f;
    if (sees && kv_scaled(kv->type) && slot >= from && slot < to)
        value_scale = exact_float(exact_load_word(desk->tiles + page * kv->head_bytes +
                                                  kv->value_offset + kv->value_bytes + 4 * slot));
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t head = 0; head < DECODE_HEADS; head++) {
        if (head >= desk->heads)
            continue;
        const float *largest = first->page_largest + head * desk->head_words;
        float *score = first->score + head * desk->head_words + at->thread;
        float m = -1e30f, before = m, top = m;
        bool higher = false;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < PAGES; i++) {
            bool rises = i >= low && i <= high && largest[i] > m + 8.0f;
            if (i == page) {
                higher = rises;
                before = m;
            }
            m = rises ? largest[i] : m;
            top = i == page ? m : top;
        }
        float p = sees ? exact_exp2(*score - top) : 0.0f;
        first->weight[head * desk->head_words + at->thread] = p * value_scale;
        *score = p;
        if (leads) /* a negative factor: nothing is multiplied */
            first->page_factor[head * desk->head_words + page] =
                higher ? exact_exp2(before - top) : -1.0f;
        if (at->thread == 0)
            first->state[head * desk->head_words] = m;
    }
}

/* INT8: weights as whole numbers. */
EXACT_INLINE void decode_page_weights(const kernel_place *at, const decode_desk *desk) {
    kernel_place mine = *at;
    attend_desk own = decode_head(desk, at->thread / PAGES);
    mine.thread = at->thread % PAGES;
    if (at->thread / PAGES < desk->heads)
        attend_page_weight(&mine, &own);
}

EXACT_INLINE void decode_round(const kernel_place *at, const decode_desk *desk) {
    for (uint32_t i = 0; i < desk->heads; i++) {
        attend_desk own = decode_head(desk, i);
        attend_round(at, &own);
    }
}

/* Of 16 threads for each head, the last ones, beside the values. */
EXACT_INLINE void decode_sums_of_weights(const kernel_place *at, const decode_desk *desk) {
    uint32_t back = at->threads - 1 - at->thread;
    kernel_place mine = *at;
    attend_desk own = decode_head(desk, back / 16);
    mine.thread = back % 16;
    if (back / 16 < desk->heads)
        attend_sums(&mine, &own);
}

/* Two heads with pages of f16: a value is read once, weights four at a time. Those of positions
 * that the row does not see are left out. */
EXACT_INLINE void decode_two(const kv_call *kv, const uint8_t *tile, const float *first,
                             const float *second, uint32_t d, uint32_t from, uint32_t to,
                             float *acc) {
    float a = acc[0], b = acc[1];
    uint32_t i = from;
    for (; i < to && i % 4 != 0; i++) {
        float v = tile_number(CALL_KV_F16, tile, value_place(CALL_KV_F16, kv->value_stride, d, i));
        a = fmaf(v, first[i], a);
        b = fmaf(v, second[i], b);
    }
#ifdef __CUDA_ARCH__
#pragma unroll 2
#endif
    for (; i + 4 <= to; i += 4) {
        exact_words w = exact_load_words(first + i), u = exact_load_words(second + i);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t j = 0; j < 4; j++) {
            float v = tile_number(CALL_KV_F16, tile,
                                  value_place(CALL_KV_F16, kv->value_stride, d, i + j));
            a = fmaf(v, exact_float(w.word[j]), a);
            b = fmaf(v, exact_float(u.word[j]), b);
        }
    }
    for (; i < to; i++) {
        float v = tile_number(CALL_KV_F16, tile, value_place(CALL_KV_F16, kv->value_stride, d, i));
        a = fmaf(v, first[i], a);
        b = fmaf(v, second[i], b);
    }
    acc[0] = a;
    acc[1] = b;
}

/* Of a number and two heads. */
EXACT_INLINE void decode_values(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    const kv_call *kv = &call->attend.kv;
    uint32_t size = kv->head_size, pairs = (desk->heads + 1) / 2, from, to;
    for (uint32_t j = at->thread; j < size * pairs; j += at->threads) {
        uint32_t d = j % size, head = j / size * 2;
        bool two = head + 1 < desk->heads;
        attend_desk first = decode_head(desk, head), second = decode_head(desk, head + two);
        float acc[2] = {0.0f, 0.0f};
        for (uint32_t page = 0; page < PAGES; page++) {
            if (!attend_sees(&first, page, &from, &to))
                continue;
            float factors[2] = {first.page_factor[page], second.page_factor[page]};
            for (uint32_t i = 0; i < 2; i++)
                acc[i] = factors[i] >= 0.0f ? acc[i] * factors[i] : acc[i];
            const uint8_t *tile = desk->tiles + page * kv->head_bytes + kv->value_offset;
            if (kv->type == CALL_KV_F16) {
                decode_two(kv, tile, first.weight + page * CALL_PAGE,
                           second.weight + page * CALL_PAGE, d, from, to, acc);
                continue;
            }
            acc[0] = attend_page_values(kv, &first, tile, page, d, from, to, acc[0]);
            if (two)
                acc[1] = attend_page_values(kv, &second, tile, page, d, from, to, acc[1]);
        }
        first.total[d] = acc[0];
        if (two)
            second.total[d] = acc[1];
    }
}

EXACT_INLINE void decode_split(const decode_call *call, kernel_place *at, decode_desk *desk) {
    CUDA_WARPS(at, decode_scores(call, at, desk));
    CUDA_EACH(at, decode_weights(call, at, desk));
    if (call->attend.kv.type == CALL_KV_INT8) {
        CUDA_EACH(at, decode_page_weights(at, desk));
        CUDA_EACH(at, decode_round(at, desk));
    }
    CUDA_EACH(at, decode_values(call, at, desk); decode_sums_of_weights(at, desk));
}

/* ---- Joining splits ---- */

EXACT_INLINE float *decode_part(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk, uint32_t head, uint32_t split) {
    uint64_t place = (uint64_t)at->y * call->attend.heads + desk->first + head;
    return call->part + (place * call->splits + split) * (desk->stride + 16);
}

EXACT_INLINE void decode_give(const decode_call *call, const kernel_place *at,
                              const decode_desk *desk) {
    for (uint32_t i = 0; i < desk->heads; i++) {
        float *part = decode_part(call, at, desk, i, desk->attend.split);
        attend_desk own = decode_head(desk, i);
        for (uint32_t d = at->thread; d < call->attend.kv.head_size; d += at->threads)
            part[16 + d] = own.total[d];
        if (at->thread < 2)
            part[at->thread] = at->thread == 0 ? own.state[0] : exact_sum16(own.lanes);
    }
#ifdef __CUDA_ARCH__
    __threadfence();
#endif
}

EXACT_INLINE void decode_arrive(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    uint32_t *counter = call->arrived + (uint64_t)at->y * call->attend.heads + desk->first;
    uint32_t before;
    if (at->thread != 0)
        return;
#ifdef __CUDA_ARCH__
    before = atomicAdd(counter, 1u);
    __threadfence();
#else
    before = (*counter)++;
#endif
    *desk->last = before == desk->to - desk->from;
    if (*desk->last)
        *counter = 0;
}

/* All splits in their order, into total and state. */
EXACT_INLINE void decode_join(const decode_call *call, const kernel_place *at,
                              const decode_desk *desk) {
    uint32_t size = call->attend.kv.head_size;
    for (uint32_t j = at->thread; j < desk->heads * size; j += at->threads) {
        uint32_t head = j / size, d = j % size;
        attend_desk own = decode_head(desk, head);
        float top = 0.0f, sum = 0.0f, total = 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll 4
#endif
        for (uint32_t split = desk->from; split <= desk->to; split++) {
            const float *part = decode_part(call, at, desk, head, split);
            float m = load_fresh(part), l = load_fresh(part + 1), acc = load_fresh(part + 16 + d);
            if (split == desk->from) {
                top = m;
                sum = l;
                total = acc;
                continue;
            }
            float largest = top > m ? top : m;
            float f = exact_exp2(top - largest), g = exact_exp2(m - largest);
            sum = fmaf(l, g, sum * f);
            total = fmaf(acc, g, total * f);
            top = largest;
        }
        own.total[d] = total;
        if (d == 0)
            own.state[1] = sum;
    }
}

/* ---- The outputs ---- */

/* The states' numbers divided by their sums; then where they go. */
EXACT_INLINE void decode_divide(const kernel_place *at, const decode_desk *desk, uint32_t size,
                                bool scaled, float *out) {
    for (uint32_t j = at->thread; j < desk->heads * size; j += at->threads) {
        attend_desk own = decode_head(desk, j / size);
        float sum = desk->to > desk->from ? own.state[1] : exact_sum16(own.lanes);
        float y = own.total[j % size] * (1.0f / sum);
        if (scaled)
            own.total[j % size] = y;
        else
            out[j] = y;
    }
}

EXACT_INLINE void decode_rotate(const kernel_place *at, const decode_desk *desk, uint32_t size,
                                uint32_t half, bool turned) {
    for (uint32_t i = 0; i < desk->heads; i++) {
        attend_desk own = decode_head(desk, i);
        head_rotate(at, size, half, turned ? own.other : own.total, turned ? own.total : own.other);
    }
}

EXACT_INLINE void decode_write(const kernel_place *at, const decode_desk *desk, uint32_t size,
                               bool turned, float *out) {
    for (uint32_t i = 0; i < desk->heads; i++) {
        attend_desk own = decode_head(desk, i);
        copy_row(at, turned ? own.other : own.total, size, out + i * size);
    }
}

EXACT_INLINE void decode_block(const decode_call *call, kernel_place *at) {
    decode_desk desk = decode_open(call, at);
    uint32_t size = call->attend.kv.head_size;
    bool scaled = kv_scaled(call->attend.kv.type), turned = false;
    if (at->z < desk.from || at->z > desk.to)
        return;
    CUDA_EACH(at, decode_copy(call, at, &desk); decode_angles_load(call, at, &desk));
    place_wait();
    decode_position(call, at, &desk);
    place_let_next();
    decode_split(call, at, &desk);
    if (desk.to > desk.from) {
        CUDA_EACH(at, decode_give(call, at, &desk));
        CUDA_EACH(at, decode_arrive(call, at, &desk));
        if (!*desk.last)
            return;
        CUDA_EACH(at, decode_join(call, at, &desk));
    }
    float *out = call->attend.out + ((uint64_t)at->y * call->attend.heads + desk.first) * size;
    CUDA_EACH(at, decode_divide(at, &desk, size, scaled, out));
    if (!scaled)
        return;
    for (uint32_t half = 1;; half = 2 * half < size ? 2 * half : 0) {
        CUDA_EACH(at, decode_rotate(at, &desk, size, half, turned));
        turned = !turned;
        if (half == 0)
            break;
    }
    CUDA_EACH(at, decode_write(at, &desk, size, turned, out));
}

/* F16 pages and heads without norms, which most models have, are compiled by themselves: a block
 * computes little, and every instruction that it has to fetch or leave out takes time. */
EXACT_INLINE void kernel_decode(const decode_call *call, kernel_place *at) {
    const position_call *position = &call->position;
    if (call->attend.kv.type != CALL_KV_F16 || position->query_norm.kind != CALL_NORM_NONE ||
        position->key_norm.kind != CALL_NORM_NONE) {
        decode_block(call, at);
        return;
    }
    decode_call own = *call;
    own.attend.kv.type = own.position.kv.type = CALL_KV_F16;
    own.position.query_norm.kind = own.position.key_norm.kind = CALL_NORM_NONE;
    decode_block(&own, at);
}

#endif
