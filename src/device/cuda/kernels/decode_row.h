/* What a block of decode.h begins with: its shared memory, the copies of its pages, and the row's
 * own queries, key and value, rotated, where they are read. */
#ifndef AVO_DEVICE_CUDA_KERNELS_DECODE_ROW_H
#define AVO_DEVICE_CUDA_KERNELS_DECODE_ROW_H

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
    uint8_t *page;                      /* of the row's own position */
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
    desk.page = kv_head_in(kv, desk.table, (desk.attend.end - 1) / CALL_PAGE, desk.kv_head);
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
    decode_target target = {.tile =
                                desk->tiles + position % CALL_SPLIT / CALL_PAGE * kv->head_bytes,
                            .page = desk->page,
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

#endif
