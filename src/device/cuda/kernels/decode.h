/* Attention of rows that are alone in their sessions, as decoding has them: one kernel from
 * queries, keys and values to what the output's product reads. Block (head, row, split): each
 * prepares its query, the new key and value, copies the split's pages into shared memory, and
 * computes the split's state. Pages are copied before the kernel in front has ended: only the row's
 * own position is new. Where a row has several splits, the last block that is ready joins them in
 * their order. Formulas: device/cpu/attention.h. */
#ifndef AVO_DEVICE_CUDA_KERNELS_DECODE_H
#define AVO_DEVICE_CUDA_KERNELS_DECODE_H

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/warp.h"

#define HEADS_AT_ONCE 3 /* of the row: query, key, value */

typedef struct decode_desk {
    attend_desk attend;
    kernel_place place; /* of attend's shared memory */
    uint8_t *tiles, *query;
    float *x, *other;                   /* [3][head_size up to 16] */
    float *errors;                      /* [2][256] */
    float *lanes;                       /* [2][32] */
    float *scales;                      /* [3][4] */
    float *angles;                      /* [2][pairs]: cosines, sines */
    uint32_t table;                     /* where the row's pages begin */
    uint32_t *last;                     /* whether this block joins */
    uint32_t stride, kv_head, from, to; /* splits that the row sees */
} decode_desk;

EXACT_INLINE decode_desk decode_open(const decode_call *call, const kernel_place *at) {
    const kv_call *kv = &call->attend.kv;
    decode_desk desk;
    desk.stride = (kv->head_size + 15) / 16 * 16;
    desk.tiles = (uint8_t *)(void *)at->shared;
    float *words = at->shared + call->pages * kv->head_bytes / 4;
    desk.query = (uint8_t *)(void *)words;
    desk.x = words + call->attend.query_bytes / 4;
    desk.other = desk.x + HEADS_AT_ONCE * desk.stride;
    desk.errors = desk.other + HEADS_AT_ONCE * desk.stride;
    desk.lanes = desk.errors + 2 * 256;
    desk.scales = desk.lanes + 2 * 32;
    desk.last = (uint32_t *)(void *)(desk.scales + 12);
    desk.place = *at;
    desk.angles = desk.scales + 16;
    desk.place.shared = desk.angles + desk.stride;
    desk.table = kv->row_pages[at->y];
    desk.attend = attend_open(&call->attend, &desk.place);
    desk.attend.tiles = desk.tiles;
    desk.attend.split = at->z;
    desk.kv_head = at->x / (call->attend.heads / call->attend.kv_heads);
    desk.from = desk.attend.begin / CALL_SPLIT;
    desk.to = (desk.attend.end - 1) / CALL_SPLIT;
    return desk;
}

/* Keys, then values of the split's pages that the row sees. */
EXACT_INLINE void decode_copy(const decode_call *call, const kernel_place *at,
                              const decode_desk *desk, bool values) {
    const kv_call *kv = &call->attend.kv;
    uint64_t begin = values ? kv->value_offset : 0,
             end = values ? kv->head_bytes : kv->value_offset;
    uint32_t from, to, chunks = (uint32_t)((end - begin) / 16);
    for (uint32_t page = 0; page < PAGES; page++) {
        if (!attend_sees(&desk->attend, page, &from, &to))
            continue;
        const uint8_t *source =
            kv_head_in(kv, desk->table, desk->attend.split * PAGES + page, desk->kv_head) + begin;
        uint8_t *tile = desk->tiles + page * kv->head_bytes + begin;
        for (uint32_t i = at->thread; i < chunks; i += at->threads)
            copy_begin(at, tile + 16 * i, source + 16 * i);
    }
    copy_mark(at);
}

/* ---- The row's own query, key and value ---- */

EXACT_INLINE void decode_load(const decode_call *call, const kernel_place *at,
                              const decode_desk *desk) {
    const position_call *own = &call->position;
    uint64_t row = at->y;
    uint32_t size = own->kv.head_size;
    const float *query = own->query + (row * own->heads + at->x) * size;
    const float *key = own->key + (row * own->kv_heads + desk->kv_head) * size;
    const float *value = own->value + (row * own->kv_heads + desk->kv_head) * size;
    for (uint32_t i = at->thread; i < size; i += at->threads) {
        float q = load_fresh(query + i), k = load_fresh(key + i), v = load_fresh(value + i);
        desk->x[i] = q;
        desk->x[desk->stride + i] = k;
        desk->x[2 * desk->stride + i] = v;
    }
    if (own->cosine == NULL)
        return;
    const float *cosine = own->cosine + row * own->pairs_max;
    const float *sine = own->sine + row * own->pairs_max;
    for (uint32_t i = at->thread; i < own->pairs; i += at->threads) {
        float c = cosine[i], s = sine[i];
        desk->angles[i] = c;
        desk->angles[own->pairs + i] = s;
    }
}

/* Of 16 threads of the first and of the second warp: query and key. */
EXACT_INLINE void decode_sums(const decode_call *call, const kernel_place *at,
                              const decode_desk *desk, bool squares) {
    uint32_t i = at->thread / WARP, lane = at->thread % WARP, size = call->position.kv.head_size;
    if (i > 1 || lane >= 16)
        return;
    const norm_call *norm = i == 0 ? &call->position.query_norm : &call->position.key_norm;
    float *lanes = desk->lanes + i * 32;
    if (norm->kind != CALL_NORM_NONE)
        norm_lane(desk->x + i * desk->stride, size, squares,
                  squares ? norm_mean(norm, size, lanes) : 0.0f, lane,
                  squares ? lanes + 16 : lanes);
}

EXACT_INLINE void decode_norms(const decode_call *call, const kernel_place *at,
                               const decode_desk *desk) {
    uint32_t size = call->position.kv.head_size;
    if (call->position.query_norm.kind != CALL_NORM_NONE)
        position_norm(&call->position.query_norm, at, size, desk->lanes, desk->x);
    if (call->position.key_norm.kind != CALL_NORM_NONE)
        position_norm(&call->position.key_norm, at, size, desk->lanes + 32, desk->x + desk->stride);
}

EXACT_INLINE void decode_angles(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    const float *cosine = desk->angles, *sine = cosine + call->position.pairs;
    position_turn(&call->position, at, cosine, sine, desk->x);
    position_turn(&call->position, at, cosine, sine, desk->x + desk->stride);
}

EXACT_INLINE void decode_spread(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk, uint32_t half, const float *x,
                                float *other) {
    for (uint32_t i = 0; i < HEADS_AT_ONCE; i++)
        head_rotate(at, call->position.kv.head_size, half, x + i * desk->stride,
                    other + i * desk->stride);
}

/* Of one thread of each of three warps. */
EXACT_INLINE void decode_largest(const decode_call *call, const kernel_place *at,
                                 const decode_desk *desk) {
    uint32_t i = at->thread / WARP;
    if (i < HEADS_AT_ONCE && at->thread % WARP == 0)
        position_largest(desk->x + i * desk->stride, call->position.kv.head_size,
                         desk->scales + 4 * i + 2);
}

EXACT_INLINE void decode_errors(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    for (uint32_t i = 1; i < HEADS_AT_ONCE; i++)
        position_error(at, desk->x + i * desk->stride, call->position.kv.head_size,
                       desk->scales[4 * i + 2], desk->errors + (i - 1) * 256);
}

EXACT_INLINE void decode_scales(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    uint32_t i = at->thread / WARP, type = call->position.kv.type;
    if (i >= HEADS_AT_ONCE || at->thread % WARP != 0 || (i == 0 && type == CALL_KV_FP8))
        return;
    float *scales = desk->scales + 4 * i;
    position_scale(type, scales[2], desk->errors + (i > 0 ? i - 1 : 0) * 256, scales);
}

/* The query in the form that scores read, the key and the value into the copy of their page and, of
 * one head for all that share them, into the page. */
EXACT_INLINE void decode_put(const decode_call *call, const kernel_place *at,
                             const decode_desk *desk) {
    const kv_call *kv = &call->position.kv;
    uint32_t position = desk->attend.end - 1, slot = position % CALL_PAGE;
    position_query(&call->position, at, desk->scales, desk->x, desk->query);
    if (desk->attend.split != desk->to)
        return;
    uint8_t *tile = desk->tiles + position % CALL_SPLIT / CALL_PAGE * kv->head_bytes;
    uint8_t *page = kv_head_in(kv, desk->table, position / CALL_PAGE, desk->kv_head);
    bool owner = at->x % (call->attend.heads / call->attend.kv_heads) == 0;
    for (uint32_t i = 1; i < HEADS_AT_ONCE; i++) {
        const float *x = desk->x + i * desk->stride, *scales = desk->scales + 4 * i;
        position_put(kv, at, tile, slot, i == 2, scales, x);
        if (owner)
            position_put(kv, at, page, slot, i == 2, scales, x);
    }
}

/* Number d of a query or key behind the rotation to its position. */
EXACT_INLINE float decode_turned(const decode_call *call, const decode_desk *desk, const float *x,
                                 uint32_t d) {
    const position_call *own = &call->position;
    if (own->cosine == NULL || d >= 2 * own->pairs)
        return x[d];
    bool second = own->interleaved ? d % 2 == 1 : d >= own->pairs;
    uint32_t pair = own->interleaved ? d / 2 : second ? d - own->pairs : d;
    uint32_t other = own->interleaved ? d ^ 1u : second ? pair : d + own->pairs;
    float sine = desk->angles[own->pairs + pair];
    return fmaf(second ? x[other] : -x[other], sine, x[d] * desk->angles[pair]);
}

/* All of that in one stage, for pages of floats and heads without norms. */
EXACT_INLINE void decode_put_plain(const decode_call *call, const kernel_place *at,
                                   const decode_desk *desk) {
    const kv_call *kv = &call->position.kv;
    uint32_t position = desk->attend.end - 1, slot = position % CALL_PAGE, size = kv->head_size;
    uint8_t *tile = desk->tiles + position % CALL_SPLIT / CALL_PAGE * kv->head_bytes;
    uint8_t *page = kv_head_in(kv, desk->table, position / CALL_PAGE, desk->kv_head);
    bool owner = at->x % (call->attend.heads / call->attend.kv_heads) == 0;
    uint32_t all = desk->attend.split == desk->to ? HEADS_AT_ONCE * size : size;
    for (uint32_t j = at->thread; j < all; j += at->threads) {
        uint32_t which = j < size ? 0 : j < 2 * size ? 1 : 2, d = j - which * size;
        const float *x = desk->x + which * desk->stride;
        float y = which == 2 ? x[d] : decode_turned(call, desk, x, d);
        if (which == 0) {
            ((float *)(void *)desk->query)[d] = y * call->position.query_factor;
            continue;
        }
        uint64_t begin = which == 2 ? kv->value_offset : 0;
        uint64_t place = which == 2 ? value_place(kv->type, kv->value_stride, d, slot)
                                    : key_place(kv->type, d, slot);
        tile_put(kv->type, tile + begin, place, y);
        if (owner)
            tile_put(kv->type, page + begin, place, y);
    }
}

EXACT_INLINE void decode_position(const decode_call *call, kernel_place *at, decode_desk *desk) {
    const position_call *own = &call->position;
    uint32_t size = own->kv.head_size, type = own->kv.type;
    bool normed = own->query_norm.kind != CALL_NORM_NONE || own->key_norm.kind != CALL_NORM_NONE;
    CUDA_EACH(at, decode_load(call, at, desk); COPY_WAIT(at, 0));
    if (!normed && !kv_scaled(type)) {
        CUDA_EACH(at, decode_put_plain(call, at, desk));
        return;
    }
    if (own->query_norm.kind == CALL_NORM_LAYER || own->key_norm.kind == CALL_NORM_LAYER)
        CUDA_EACH(at, decode_sums(call, at, desk, false));
    if (normed) {
        CUDA_EACH(at, decode_sums(call, at, desk, true));
        CUDA_EACH(at, decode_norms(call, at, desk));
    }
    if (own->cosine != NULL)
        CUDA_EACH(at, decode_angles(call, at, desk));
    if (kv_scaled(type)) {
        for (uint32_t half = 1;; half = 2 * half < size ? 2 * half : 0) {
            CUDA_EACH(at, decode_spread(call, at, desk, half, desk->x, desk->other));
            float *swap = desk->x;
            desk->x = desk->other;
            desk->other = swap;
            if (half == 0)
                break;
        }
        CUDA_EACH(at, decode_largest(call, at, desk));
        if (type == CALL_KV_FP8)
            CUDA_EACH(at, decode_errors(call, at, desk));
        CUDA_EACH(at, decode_scales(call, at, desk));
    }
    CUDA_EACH(at, decode_put(call, at, desk));
}

/* ---- The split ---- */

/* Scores, and the largest of the warp's page. */
EXACT_INLINE void decode_score(const decode_call *call, const kernel_place *at,
                               const decode_desk *desk) {
    float largest[OWN_LANES], other[OWN_LANES];
    EACH_LANE(at, own) {
        kernel_place mine = *at;
        mine.thread = warp_of(at) * WARP + lane;
        attend_score(&call->attend, &mine, &desk->attend, desk->query, desk->kv_head);
        float s = desk->attend.score[mine.thread];
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
    EACH_LANE(at, own) if (lane == 0) desk->attend.page_largest[warp_of(at)] = largest[own];
}

/* s becomes p, w beside it. Every thread follows m from page to page by itself; a thread for each
 * page keeps its factor, one keeps m. */
EXACT_INLINE void decode_weigh(const decode_call *call, const kernel_place *at,
                               const decode_desk *desk) {
    const attend_desk *attend = &desk->attend;
    uint32_t from, to;
    float m = -1e30f;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < PAGES; i++) {
        float largest = attend->page_largest[i], before = m;
        bool higher = attend_sees(attend, i, &from, &to) && largest > m + 8.0f;
        m = higher ? largest : m;
        if (at->thread == i * CALL_PAGE) /* nothing is multiplied where it is negative */
            attend->page_factor[i] = higher ? exact_exp2(before - largest) : -1.0f;
        if (at->thread == i * CALL_PAGE)
            attend->page_top[i] = m;
    }
    if (at->thread == 0)
        attend->state[0] = m;
#ifdef __CUDA_ARCH__
    __syncwarp();
#endif
    attend_weigh(&call->attend, at, attend, desk->kv_head);
}

/* Of 16 threads of the last warp, beside the values. */
EXACT_INLINE void decode_sums_of_weights(const kernel_place *at, const attend_desk *attend) {
    uint32_t first = at->threads - WARP;
    if (at->thread < first || at->thread >= first + 16)
        return;
    kernel_place mine = *at;
    mine.thread = at->thread - first;
    attend_sums(&mine, attend);
}

EXACT_INLINE void decode_values(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    const attend_desk *attend = &desk->attend;
    const kv_call *kv = &call->attend.kv;
    uint32_t from, to;
    for (uint32_t d = at->thread; d < kv->head_size; d += at->threads) {
        float acc = 0.0f;
        for (uint32_t page = 0; page < PAGES; page++) {
            if (!attend_sees(attend, page, &from, &to))
                continue;
            if (attend->page_factor[page] >= 0.0f)
                acc *= attend->page_factor[page];
            const uint8_t *tile = attend->tiles + page * kv->head_bytes + kv->value_offset;
            acc = attend_page_values(kv, attend, tile, page, d, from, to, acc);
        }
        attend->total[d] = acc;
    }
}

EXACT_INLINE float *decode_part(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk, uint32_t split) {
    uint64_t place = ((uint64_t)at->y * call->attend.heads + at->x) * call->splits + split;
    return call->part + place * (desk->stride + 16);
}

EXACT_INLINE void decode_give(const decode_call *call, const kernel_place *at,
                              const decode_desk *desk) {
    float *part = decode_part(call, at, desk, desk->attend.split);
    for (uint32_t d = at->thread; d < call->attend.kv.head_size; d += at->threads)
        part[16 + d] = desk->attend.total[d];
    if (at->thread < 2)
        part[at->thread] =
            at->thread == 0 ? desk->attend.state[0] : exact_sum16(desk->attend.lanes);
#ifdef __CUDA_ARCH__
    __threadfence();
#endif
}

EXACT_INLINE void decode_arrive(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    uint32_t *counter = call->arrived + (uint64_t)at->y * call->attend.heads + at->x;
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
    for (uint32_t d = at->thread; d < call->attend.kv.head_size; d += at->threads) {
        float top = 0.0f, sum = 0.0f, total = 0.0f;
        for (uint32_t split = desk->from; split <= desk->to; split++) {
            const float *part = decode_part(call, at, desk, split);
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
        desk->attend.total[d] = total;
        if (d == 0)
            desk->attend.state[1] = sum;
    }
}

EXACT_INLINE void decode_split(const decode_call *call, kernel_place *at, decode_desk *desk) {
    attend_desk *attend = &desk->attend;
    CUDA_WARPS(at, decode_score(call, at, desk));
    CUDA_EACH(at, decode_weigh(call, at, desk));
    if (call->attend.kv.type == CALL_KV_INT8) {
        CUDA_EACH(at, if (at->thread < PAGES) attend_page_weight(at, attend));
        CUDA_EACH(at, attend_round(at, attend));
    }
    CUDA_EACH(at, decode_sums_of_weights(at, attend); decode_values(call, at, desk));
}

/* The state's numbers divided by its sum; then into `out`. */
EXACT_INLINE void decode_divide(const kernel_place *at, const decode_desk *desk, uint32_t size,
                                bool joined, float *out) {
    const attend_desk *attend = &desk->attend;
    float factor = 1.0f / (joined ? attend->state[1] : exact_sum16(attend->lanes));
    for (uint32_t d = at->thread; d < size; d += at->threads)
        out[d] = attend->total[d] * factor;
}

EXACT_INLINE void kernel_decode(const decode_call *call, kernel_place *at) {
    decode_desk desk = decode_open(call, at);
    uint32_t size = call->attend.kv.head_size;
    place_let_next();
    if (at->z < desk.from || at->z > desk.to)
        return;
    CUDA_EACH(at, decode_copy(call, at, &desk, false); decode_copy(call, at, &desk, true));
    place_wait();
    decode_position(call, at, &desk);
    decode_split(call, at, &desk);
    if (desk.to > desk.from) {
        CUDA_EACH(at, decode_give(call, at, &desk));
        CUDA_EACH(at, decode_arrive(call, at, &desk));
        if (!*desk.last)
            return;
        CUDA_EACH(at, decode_join(call, at, &desk));
    }
    float *out = call->attend.out + ((uint64_t)at->y * call->attend.heads + at->x) * size;
    bool scaled = kv_scaled(call->attend.kv.type);
    CUDA_EACH(
        at, decode_divide(at, &desk, size, desk.to > desk.from, scaled ? desk.attend.total : out));
    if (!scaled)
        return;
    HEAD_ROTATE_STAGES(at, size, desk.attend.total, desk.attend.other);
    CUDA_EACH(at, copy_row(at, desk.attend.total, size, out));
}

#endif
