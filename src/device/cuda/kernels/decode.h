/* Attention of rows that are alone in their sessions, as decoding has them: one kernel from
 * queries, keys and values to what the output's product reads. Block (heads that share a KV head,
 * row, split): each prepares its queries, the new key and value, copies the split's pages into
 * shared memory, once for all of its heads, and computes their states. Pages are copied before the
 * kernel in front has ended: only the row's own position is new. Where a row has several splits,
 * the last block that is ready joins them in their order. Formulas: device/cpu/attention.h. */
#ifndef AVO_DEVICE_CUDA_KERNELS_DECODE_H
#define AVO_DEVICE_CUDA_KERNELS_DECODE_H

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/warp.h"

typedef struct decode_desk {
    attend_desk attend; /* of the first head */
    uint32_t head_words;
    uint8_t *tiles, *query;             /* query: [heads][query_bytes] */
    float *x, *other;                   /* [heads + 2][head_size up to 16]: then key, value */
    float *errors;                      /* [2][256] */
    float *lanes;                       /* [heads + 1][32] */
    float *scales;                      /* [heads + 2][4] */
    float *angles;                      /* [2][pairs]: cosines, sines */
    uint32_t table;                     /* where the row's pages begin */
    uint32_t *last;                     /* whether this block joins */
    uint32_t stride, kv_head, from, to; /* splits that the row sees */
    uint32_t first, heads;              /* of the block */
} decode_desk;

/* Blocks of a KV head, for all heads that share it. */
EXACT_INLINE uint32_t decode_parts(const decode_call *call) {
    uint32_t group = call->attend.heads / call->attend.kv_heads;
    return (group + DECODE_HEADS - 1) / DECODE_HEADS;
}

/* Words of a head: its state while it is computed. */
EXACT_INLINE uint32_t decode_head_words(uint32_t stride) {
    return 2 * stride + 2 * CALL_SPLIT + 4 * PAGES + 16 + 16;
}

EXACT_INLINE decode_desk decode_open(const decode_call *call, const kernel_place *at) {
    const kv_call *kv = &call->attend.kv;
    uint32_t group = call->attend.heads / call->attend.kv_heads, parts = decode_parts(call);
    decode_desk desk;
    desk.kv_head = at->x / parts;
    desk.first = at->x % parts * DECODE_HEADS;
    desk.heads = group - desk.first < DECODE_HEADS ? group - desk.first : DECODE_HEADS;
    desk.first += desk.kv_head * group;
    desk.stride = (kv->head_size + 15) / 16 * 16;
    desk.head_words = decode_head_words(desk.stride);
    desk.tiles = (uint8_t *)(void *)at->shared;
    float *words = at->shared + call->pages * kv->head_bytes / 4;
    desk.query = (uint8_t *)(void *)words;
    desk.x = words + DECODE_HEADS * call->attend.query_bytes / 4;
    desk.other = desk.x + (DECODE_HEADS + 2) * desk.stride;
    desk.errors = desk.other + (DECODE_HEADS + 2) * desk.stride;
    desk.lanes = desk.errors + 2 * 256;
    desk.scales = desk.lanes + (DECODE_HEADS + 1) * 32;
    desk.last = (uint32_t *)(void *)(desk.scales + (DECODE_HEADS + 2) * 4);
    desk.angles = desk.scales + (DECODE_HEADS + 3) * 4;
    kernel_place place = *at;
    place.shared = desk.angles + desk.stride;
    desk.attend = attend_open(&call->attend, &place);
    desk.attend.other = desk.attend.total + desk.stride;
    desk.attend.score = desk.attend.other + desk.stride;
    desk.attend.weight = desk.attend.score + CALL_SPLIT;
    desk.attend.page_largest = desk.attend.weight + CALL_SPLIT;
    desk.attend.page_factor = desk.attend.page_largest + PAGES;
    desk.attend.page_top = desk.attend.page_factor + PAGES;
    desk.attend.page_weight = desk.attend.page_top + PAGES;
    desk.attend.lanes = desk.attend.page_weight + PAGES;
    desk.attend.state = desk.attend.lanes + 16;
    desk.attend.tiles = desk.tiles;
    desk.attend.split = at->z;
    desk.table = kv->row_pages[at->y];
    desk.from = desk.attend.begin / CALL_SPLIT;
    desk.to = (desk.attend.end - 1) / CALL_SPLIT;
    return desk;
}

/* Bytes of a block's shared memory. */
static inline
#ifdef __CUDACC__
    __host__ __device__
#endif
        uint64_t
        decode_shared(const kv_call *kv, uint64_t query_bytes, uint32_t pages) {
    uint64_t stride = (kv->head_size + 15) / 16 * 16;
    uint64_t words = DECODE_HEADS * query_bytes / 4 + 2 * (DECODE_HEADS + 2) * stride + 512 +
                     (DECODE_HEADS + 1) * 32 + (DECODE_HEADS + 3) * 4 + stride +
                     DECODE_HEADS * (2 * stride + 2 * CALL_SPLIT + 4 * PAGES + 32);
    return pages * kv->head_bytes + 4 * words;
}

EXACT_INLINE attend_desk decode_head(const decode_desk *desk, uint32_t head) {
    attend_desk own = desk->attend;
    uint32_t words = head * desk->head_words;
    own.total += words;
    own.other += words;
    own.score += words;
    own.weight += words;
    own.page_largest += words;
    own.page_factor += words;
    own.page_top += words;
    own.page_weight += words;
    own.lanes += words;
    own.state += words;
    return own;
}

/* Keys, then values of the split's pages that the row sees. */
EXACT_INLINE void decode_copy(const decode_call *call, const kernel_place *at,
                              const decode_desk *desk) {
    const kv_call *kv = &call->attend.kv;
    uint32_t from, to, chunks = (uint32_t)(kv->head_bytes / 16);
    for (uint32_t page = 0; page < PAGES; page++) {
        if (!attend_sees(&desk->attend, page, &from, &to))
            continue;
        const uint8_t *source =
            kv_head_in(kv, desk->table, desk->attend.split * PAGES + page, desk->kv_head);
        uint8_t *tile = desk->tiles + page * kv->head_bytes;
        for (uint32_t i = at->thread; i < chunks; i += at->threads)
            copy_begin(at, tile + 16 * i, source + 16 * i);
    }
    copy_mark(at);
}

/* ---- The row's own queries, key and value ---- */

/* What the host sent with the step. */
EXACT_INLINE void decode_angles_load(const decode_call *call, const kernel_place *at,
                                     const decode_desk *desk) {
    const position_call *own = &call->position;
    if (own->cosine == NULL)
        return;
    const float *cosine = own->cosine + (uint64_t)at->y * own->pairs_max;
    const float *sine = own->sine + (uint64_t)at->y * own->pairs_max;
    for (uint32_t i = at->thread; i < 2 * own->pairs; i += at->threads)
        desk->angles[i] = i < own->pairs ? cosine[i] : sine[i - own->pairs];
}

/* Whole groups of four on their way, the others at once. */
EXACT_INLINE void decode_load(const decode_call *call, const kernel_place *at,
                              const decode_desk *desk) {
    const position_call *own = &call->position;
    uint64_t row = at->y;
    uint32_t size = own->kv.head_size, each = (size + 3) / 4;
    for (uint32_t j = at->thread; j < (desk->heads + 2) * each; j += at->threads) {
        uint32_t i = j / each, d = j % each * 4;
        const float *from = i < desk->heads
                                ? own->query + (row * own->heads + desk->first + i) * size
                                : (i == desk->heads ? own->key : own->value) +
                                      (row * own->kv_heads + desk->kv_head) * size;
        float *to = desk->x + i * desk->stride;
        if (size % 4 == 0) {
            copy_begin(at, to + d, from + d);
            continue;
        }
        for (uint32_t e = d; e < d + 4 && e < size; e++)
            to[e] = load_fresh(from + e);
    }
    copy_mark(at);
    COPY_WAIT(at, 0);
}

/* Of 16 threads of a warp for each query, and one for the key. */
EXACT_INLINE void decode_sums(const decode_call *call, const kernel_place *at,
                              const decode_desk *desk, bool squares) {
    uint32_t i = at->thread / WARP, lane = at->thread % WARP, size = call->position.kv.head_size;
    if (i > desk->heads || lane >= 16)
        return;
    const norm_call *norm = i < desk->heads ? &call->position.query_norm : &call->position.key_norm;
    float *lanes = desk->lanes + i * 32;
    if (norm->kind != CALL_NORM_NONE)
        norm_lane(desk->x + i * desk->stride, size, squares,
                  squares ? norm_mean(norm, size, lanes) : 0.0f, lane,
                  squares ? lanes + 16 : lanes);
}

EXACT_INLINE void decode_norms(const decode_call *call, const kernel_place *at,
                               const decode_desk *desk) {
    uint32_t size = call->position.kv.head_size;
    for (uint32_t i = 0; i <= desk->heads; i++) {
        const norm_call *norm =
            i < desk->heads ? &call->position.query_norm : &call->position.key_norm;
        if (norm->kind != CALL_NORM_NONE)
            position_norm(norm, at, size, desk->lanes + 32 * i, desk->x + i * desk->stride);
    }
}

EXACT_INLINE void decode_angles(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    const float *cosine = desk->angles, *sine = cosine + call->position.pairs;
    for (uint32_t i = 0; i <= desk->heads; i++)
        position_turn(&call->position, at, cosine, sine, desk->x + i * desk->stride);
}

EXACT_INLINE void decode_spread(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk, uint32_t half, const float *x,
                                float *other) {
    for (uint32_t i = 0; i < desk->heads + 2; i++)
        head_rotate(at, call->position.kv.head_size, half, x + i * desk->stride,
                    other + i * desk->stride);
}

/* Of one thread of each of some warps. */
EXACT_INLINE void decode_largest(const decode_call *call, const kernel_place *at,
                                 const decode_desk *desk) {
    uint32_t i = at->thread / WARP;
    if (i < desk->heads + 2 && at->thread % WARP == 0)
        position_largest(desk->x + i * desk->stride, call->position.kv.head_size,
                         desk->scales + 4 * i + 2);
}

EXACT_INLINE void decode_errors(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    for (uint32_t i = 0; i < 2; i++)
        position_error(at, desk->x + (desk->heads + i) * desk->stride, call->position.kv.head_size,
                       desk->scales[4 * (desk->heads + i) + 2], desk->errors + i * 256);
}

EXACT_INLINE void decode_scales(const decode_call *call, const kernel_place *at,
                                const decode_desk *desk) {
    uint32_t i = at->thread / WARP, type = call->position.kv.type;
    if (i >= desk->heads + 2 || at->thread % WARP != 0 || (i < desk->heads && type == CALL_KV_FP8))
        return;
    float *scales = desk->scales + 4 * i;
    position_scale(type, scales[2], desk->errors + (i > desk->heads ? 256 : 0), scales);
}

/* Where the row's own key and value go: the copy of their page and, of one block for all heads that
 * share them, the page. */
typedef struct decode_target {
    uint8_t *tile, *page;
    uint32_t slot;
    bool own, owner;
} decode_target;

EXACT_INLINE decode_target decode_target_of(const decode_call *call, const kernel_place *at,
                                            const decode_desk *desk) {
    const kv_call *kv = &call->position.kv;
    uint32_t position = desk->attend.end - 1;
    decode_target target = {
        .tile = desk->tiles + position % CALL_SPLIT / CALL_PAGE * kv->head_bytes,
        .page = kv_head_in(kv, desk->table, position / CALL_PAGE, desk->kv_head),
        .slot = position % CALL_PAGE,
        .own = desk->attend.split == desk->to,
        .owner = at->x % decode_parts(call) == 0};
    return target;
}

/* Queries in the form that scores read, the key and the value where they go. */
EXACT_INLINE void decode_put(const decode_call *call, const kernel_place *at,
                             const decode_desk *desk) {
    const kv_call *kv = &call->position.kv;
    decode_target target = decode_target_of(call, at, desk);
    for (uint32_t i = 0; i < desk->heads; i++)
        position_query(&call->position, at, desk->scales + 4 * i, desk->x + i * desk->stride,
                       desk->query + i * call->attend.query_bytes);
    for (uint32_t i = 0; i < 2 && target.own; i++) {
        const float *x = desk->x + (desk->heads + i) * desk->stride;
        const float *scales = desk->scales + 4 * (desk->heads + i);
        position_put(kv, at, target.tile, target.slot, i == 1, scales, x);
        if (target.owner)
            position_put(kv, at, target.page, target.slot, i == 1, scales, x);
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
    decode_target target = decode_target_of(call, at, desk);
    uint32_t i = at->thread / WARP, size = kv->head_size;
    const float *x = desk->x + i * desk->stride;
    bool value = i == desk->heads + 1;
    if (i < desk->heads) {
        float *query = (float *)(void *)(desk->query + i * call->attend.query_bytes);
        for (uint32_t d = at->thread % WARP; d < size; d += WARP)
            query[d] = decode_turned(call, desk, x, d) * call->position.query_factor;
        return;
    }
    if (i > desk->heads + 1 || !target.own)
        return;
    uint64_t begin = value ? kv->value_offset : 0;
    for (uint32_t d = at->thread % WARP; d < size; d += WARP) {
        float y = value ? x[d] : decode_turned(call, desk, x, d);
        uint64_t place = value ? value_place(kv->type, kv->value_stride, d, target.slot)
                               : key_place(kv->type, d, target.slot);
        tile_put(kv->type, target.tile + begin, place, y);
        if (target.owner)
            tile_put(kv->type, target.page + begin, place, y);
    }
}

EXACT_INLINE void decode_position(const decode_call *call, kernel_place *at, decode_desk *desk) {
    const position_call *own = &call->position;
    uint32_t size = own->kv.head_size, type = own->kv.type;
    bool normed = own->query_norm.kind != CALL_NORM_NONE || own->key_norm.kind != CALL_NORM_NONE;
    CUDA_EACH(at, decode_load(call, at, desk));
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
#pragma unroll 4
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
#pragma unroll 4
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

EXACT_INLINE void kernel_decode(const decode_call *call, kernel_place *at) {
    decode_desk desk = decode_open(call, at);
    uint32_t size = call->attend.kv.head_size;
    bool scaled = kv_scaled(call->attend.kv.type), turned = false;
    if (at->z < desk.from || at->z > desk.to)
        return;
    CUDA_EACH(at, decode_copy(call, at, &desk); decode_angles_load(call, at, &desk));
    place_wait();
    place_let_next();
    decode_position(call, at, &desk);
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

#endif
