/* Attention: positions into queries and pages, then one block for each head of each row, which
 * walks the row's splits of 256 positions and joins them in order. Formulas:
 * device/cpu/attention.h; tiles: device/kv_tile.h. */
#ifndef AVO_DEVICE_CUDA_KERNELS_ATTENTION_H
#define AVO_DEVICE_CUDA_KERNELS_ATTENTION_H

#include "device/cuda/kernels/rows.h"

#define PAGES (CALL_SPLIT / CALL_PAGE) /* of a split */

/* ---- Places and numbers ---- */

EXACT_INLINE uint64_t key_place(uint32_t type, uint32_t d, uint32_t slot) {
    return type == CALL_KV_INT8 ? (uint64_t)(d / 4 * CALL_PAGE + slot) * 4 + d % 4
                                : (uint64_t)d * CALL_PAGE + slot;
}

EXACT_INLINE uint64_t value_place(uint32_t type, uint32_t stride, uint32_t d, uint32_t slot) {
    return type == CALL_KV_INT8 ? (uint64_t)(slot / 4 * stride + d) * 4 + slot % 4
                                : (uint64_t)slot * stride + d;
}

EXACT_INLINE float tile_number(uint32_t type, const uint8_t *tile, uint64_t place) {
    switch (type) {
    case CALL_KV_F32:
        return exact_float(exact_load_word(tile + place * 4));
    case CALL_KV_F16:
        return exact_from_half(exact_load_half(tile + place * 2));
    case CALL_KV_BF16:
        return exact_from_brain(exact_load_half(tile + place * 2));
    case CALL_KV_INT8:
        return (float)(int8_t)tile[place];
    default:
        return exact_from_e4m3(tile[place]);
    }
}

EXACT_INLINE void tile_put(uint32_t type, uint8_t *tile, uint64_t place, float x) {
    switch (type) {
    case CALL_KV_F32:
        *(float *)(void *)(tile + place * 4) = x;
        return;
    case CALL_KV_F16:
        x = x > 65504.0f ? 65504.0f : x;
        x = x < -65504.0f ? -65504.0f : x;
        *(uint16_t *)(void *)(tile + place * 2) = exact_to_half(x);
        return;
    case CALL_KV_BF16:
        *(uint16_t *)(void *)(tile + place * 2) = exact_to_brain(x);
        return;
    case CALL_KV_INT8:
        tile[place] = (uint8_t)(int8_t)(x == x ? exact_nearest(x) : 0);
        return;
    default:
        tile[place] = exact_to_e4m3(x);
    }
}

EXACT_INLINE bool kv_scaled(uint32_t type) {
    return type == CALL_KV_INT8 || type == CALL_KV_FP8;
}

EXACT_INLINE uint8_t *kv_head_in(const kv_call *kv, uint32_t table, uint32_t page, uint32_t head) {
    return kv->pool + kv->pages[table + page] * kv->page_bytes + head * kv->head_bytes;
}

EXACT_INLINE uint8_t *kv_head_of(const kv_call *kv, uint32_t row, uint32_t page, uint32_t head) {
    return kv_head_in(kv, kv->row_pages[row], page, head);
}

/* ---- Hadamard transform of a head ---- */

/* The block that begins where `rest` dimensions are left. */
EXACT_INLINE uint32_t head_block(uint32_t rest) {
    uint32_t block = 1;
    while (2 * block <= rest)
        block *= 2;
    return block;
}

EXACT_INLINE float head_factor(uint32_t block) {
    const float odd = block == 2     ? 0.70710678118654752f
                      : block == 8   ? 0.35355339059327376f
                      : block == 32  ? 0.17677669529663688f
                      : block == 128 ? 0.08838834764831845f
                                     : 0.04419417382415922f;
    return block == 1      ? 1.0f
           : block == 4    ? 0.5f
           : block == 16   ? 0.25f
           : block == 64   ? 0.125f
           : block == 256  ? 0.0625f
           : block == 1024 ? 0.03125f
                           : odd;
}

/* One distance, or, `half` 0, the factor at the end. */
EXACT_INLINE void head_rotate(const kernel_place *at, uint32_t size, uint32_t half,
                              const float *from, float *to) {
    for (uint32_t i = at->thread; i < size; i += at->threads) {
        uint32_t begin = 0, block = head_block(size);
        while (i >= begin + block) {
            begin += block;
            block = head_block(size - begin);
        }
        float y = from[i];
        if (half == 0)
            y *= head_factor(block);
        else if (half < block)
            y = ((i - begin) & half) == 0 ? y + from[i + half] : from[i - half] - y;
        to[i] = y;
    }
}

/* *x and *other: the numbers, and as much room. */
#define HEAD_ROTATE_STAGES(at, size, x, other)                                                     \
    do {                                                                                           \
        for (uint32_t half_ = 1;; half_ = 2 * half_ < (size) ? 2 * half_ : 0) {                    \
            CUDA_EACH(at, head_rotate(at, size, half_, x, other));                                 \
            float *swap_ = x;                                                                      \
            (x) = other;                                                                           \
            (other) = swap_;                                                                       \
            if (half_ == 0)                                                                        \
                break;                                                                             \
        }                                                                                          \
    } while (0)

/* ---- Positions ---- */

EXACT_INLINE void position_turn(const position_call *call, const kernel_place *at,
                                const float *cosine, const float *sine, float *x) {
    for (uint32_t i = at->thread; i < call->pairs; i += at->threads) {
        float *a = call->interleaved ? x + 2 * i : x + i;
        float *b = call->interleaved ? x + 2 * i + 1 : x + i + call->pairs;
        float first = *a, second = *b;
        *a = fmaf(-second, sine[i], first * cosine[i]);
        *b = fmaf(first, sine[i], second * cosine[i]);
    }
}

EXACT_INLINE void position_rotate(const position_call *call, const kernel_place *at, float *x) {
    uint64_t row = (uint64_t)at->y * call->pairs_max;
    position_turn(call, at, call->cosine + row, call->sine + row, x);
}

EXACT_INLINE void position_norm(const norm_call *norm, const kernel_place *at, uint32_t size,
                                const float *lanes, float *x) {
    float mean = norm_mean(norm, size, lanes), scale = norm_scale(norm, size, lanes);
    for (uint32_t i = at->thread; i < size; i += at->threads)
        x[i] = norm_apply(norm, at->y, i, x[i], mean, scale);
}

/* The largest magnitude of a head, by one thread. */
EXACT_INLINE void position_largest(const float *x, uint32_t size, float *out) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t bits = exact_bits(x[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    *out = exact_float(largest);
}

/* 2^(j / 16) and 2^(−j / 16). */
EXACT_TABLE float fp8_up[16] = {1.000000000f, 1.044273782f, 1.090507733f, 1.138788635f,
                                1.189207115f, 1.241857812f, 1.296839555f, 1.354255547f,
                                1.414213562f, 1.476826146f, 1.542210825f, 1.610490332f,
                                1.681792831f, 1.756252160f, 1.834008086f, 1.915206561f};
EXACT_TABLE float fp8_down[16] = {1.000000000f, 0.957603281f, 0.917004043f, 0.878126080f,
                                  0.840896415f, 0.805245166f, 0.771105413f, 0.738413073f,
                                  0.707106781f, 0.677127773f, 0.648419777f, 0.620928906f,
                                  0.594603558f, 0.569394317f, 0.545253866f, 0.522136891f};

/* Of 256 threads: the squared error of scale j in one lane. */
EXACT_INLINE void position_error(const kernel_place *at, const float *x, uint32_t size,
                                 float largest, float *errors) {
    uint32_t j = at->thread / 16, lane = at->thread % 16;
    float factor = 448.0f / largest * fp8_down[j];
    float sum = 0.0f;
    for (uint32_t i = lane; i < size; i += 16) {
        float y = exact_float(exact_bits(x[i] * factor) & 0x7fffffffu);
        y = y < 448.0f ? y : 448.0f;
        float difference = y - exact_from_e4m3(exact_to_e4m3(y));
        sum = fmaf(difference, difference, sum);
    }
    errors[j * 16 + lane] = sum;
}

/* By one thread: what numbers are multiplied with (out[0]), and what brings them back (out[1]). */
EXACT_INLINE void position_scale(uint32_t type, float largest, const float *errors, float *out) {
    float limit = type == CALL_KV_INT8 ? 127.0f : 448.0f;
    if (largest < 1e-30f) {
        out[0] = out[1] = 0.0f;
        return;
    }
    out[1] = largest / limit;
    out[0] = limit / largest;
    if (type == CALL_KV_INT8)
        return;
    float least = exact_sum16(errors);
    uint32_t best = 0;
    for (uint32_t j = 1; j < 16; j++) {
        float error = exact_sum16(errors + j * 16);
        error = error * (fp8_up[j] * fp8_up[j]);
        if (error < least) {
            least = error;
            best = j;
        }
    }
    out[1] *= fp8_up[best];
    out[0] = out[0] * fp8_down[best];
}

/* Into a page: `tile` is the head's. */
EXACT_INLINE void position_put(const kv_call *kv, const kernel_place *at, uint8_t *tile,
                               uint32_t slot, bool value, const float *scales, const float *x) {
    uint8_t *scale_at = tile + kv->key_bytes;
    if (value) {
        tile += kv->value_offset;
        scale_at = tile + kv->value_bytes;
    }
    if (kv_scaled(kv->type) && at->thread == 0)
        *(float *)(void *)(scale_at + 4 * slot) = scales[1];
    float factor = kv_scaled(kv->type) ? scales[0] : 1.0f;
    for (uint32_t d = at->thread; d < kv->head_size; d += at->threads)
        tile_put(kv->type, tile,
                 value ? value_place(kv->type, kv->value_stride, d, slot)
                       : key_place(kv->type, d, slot),
                 x[d] * factor);
}

/* Into the page of the row's position. */
EXACT_INLINE void position_write(const position_call *call, const kernel_place *at, uint32_t head,
                                 bool value, const float *scales, const float *x) {
    const kv_call *kv = &call->kv;
    uint32_t position = kv->position[at->y];
    position_put(kv, at, kv_head_of(kv, at->y, position / CALL_PAGE, head), position % CALL_PAGE,
                 value, scales, x);
}

/* Floats; INT8: bytes up to a multiple of 64, then the scale. */
EXACT_INLINE void position_query(const position_call *call, const kernel_place *at,
                                 const float *scales, const float *x, uint8_t *out) {
    uint32_t size = call->kv.head_size;
    if (call->kv.type != CALL_KV_INT8) {
        for (uint32_t d = at->thread; d < size; d += at->threads)
            ((float *)(void *)out)[d] = x[d] * call->query_factor;
        return;
    }
    uint32_t whole = (size + 63) / 64 * 64;
    for (uint32_t d = at->thread; d < whole; d += at->threads) {
        float y = d < size ? x[d] * scales[0] : 0.0f;
        out[d] = (uint8_t)(int8_t)(y == y ? exact_nearest(y) : 0);
    }
    if (at->thread == 0)
        *(float *)(void *)(out + whole) = scales[1] * call->query_factor;
}

EXACT_INLINE const float *position_source(const position_call *call, const kernel_place *at) {
    uint64_t row = at->y;
    uint32_t head = at->x, size = call->kv.head_size;
    if (head < call->heads)
        return call->query + (row * call->heads + head) * size;
    head -= call->heads;
    if (head < call->kv_heads)
        return call->key + (row * call->kv_heads + head) * size;
    return call->value + (row * call->kv_heads + head - call->kv_heads) * size;
}

EXACT_INLINE void kernel_position(const position_call *call, kernel_place *at) {
    uint32_t size = call->kv.head_size, type = call->kv.type;
    bool query = at->x < call->heads, value = at->x >= call->heads + call->kv_heads;
    float *x = at->shared, *other = x + CALL_HEAD_MAX;
    float *errors = other + CALL_HEAD_MAX, *lanes = errors + 256, *scales = lanes + 32;
    CUDA_EACH(at, copy_row(at, position_source(call, at), size, x));
    const norm_call *norm = query ? &call->query_norm : &call->key_norm;
    if (!value && norm->kind != CALL_NORM_NONE) {
        NORM_STAGES(at, norm, x, size, lanes);
        CUDA_EACH(at, position_norm(norm, at, size, lanes, x));
    }
    if (!value && call->cosine != NULL)
        CUDA_EACH(at, position_rotate(call, at, x));
    if (kv_scaled(type))
        HEAD_ROTATE_STAGES(at, size, x, other);
    bool scaled = type == CALL_KV_INT8 || (type == CALL_KV_FP8 && !query);
    if (scaled) {
        CUDA_EACH(at, if (at->thread == 0) position_largest(x, size, scales + 2));
        if (type == CALL_KV_FP8)
            CUDA_EACH(at, position_error(at, x, size, scales[2], errors));
        CUDA_EACH(at, if (at->thread == 0) position_scale(type, scales[2], errors, scales));
    }
    if (query)
        CUDA_EACH(at, position_query(call, at, scales, x,
                                     call->query_out + ((uint64_t)at->y * call->heads + at->x) *
                                                           call->query_bytes));
    else
        CUDA_EACH(
            at, position_write(call, at, (at->x - call->heads) % call->kv_heads, value, scales, x));
}

/* ---- Attention of one row and head ---- */

/* Shared memory. */
typedef struct attend_desk {
    float *total, *other;              /* [head_size] */
    float *score, *weight;             /* [256] s, then p; w, INT8: numbers */
    float *page_largest, *page_factor; /* [8] */
    float *page_top;                   /* m behind the page */
    float *page_weight;                /* INT8: W */
    float *lanes;                      /* l[16] */
    float *state;        /* m and l of all, then the factors of this join: f, g; m of the part */
    uint32_t begin, end; /* positions that the row sees */
    uint32_t split;
    bool first;
    const uint8_t *tiles; /* copies of the split's pages; NULL: none */
} attend_desk;

EXACT_INLINE const uint8_t *attend_tile(const kv_call *kv, const kernel_place *at,
                                        const attend_desk *desk, uint32_t page, uint32_t kv_head) {
    return desk->tiles != NULL ? desk->tiles + page * kv->head_bytes
                               : kv_head_of(kv, at->y, desk->split * PAGES + page, kv_head);
}

EXACT_INLINE attend_desk attend_open(const attend_rows_call *call, const kernel_place *at) {
    attend_desk desk;
    desk.total = at->shared;
    desk.other = desk.total + CALL_HEAD_MAX;
    desk.score = desk.other + CALL_HEAD_MAX;
    desk.weight = desk.score + CALL_SPLIT;
    desk.page_largest = desk.weight + CALL_SPLIT;
    desk.page_factor = desk.page_largest + PAGES;
    desk.page_top = desk.page_factor + PAGES;
    desk.page_weight = desk.page_top + PAGES;
    desk.lanes = desk.page_weight + PAGES;
    desk.state = desk.lanes + 16;
    desk.end = call->kv.position[at->y] + 1;
    desk.begin = call->window > 0 && desk.end > call->window ? desk.end - call->window : 0;
    desk.split = 0;
    desk.first = true;
    desk.tiles = NULL;
    return desk;
}

/* Slots [*from, *to) of a page that the row sees; false: none. */
EXACT_INLINE bool attend_sees(const attend_desk *desk, uint32_t page, uint32_t *from,
                              uint32_t *to) {
    uint32_t first = (desk->split * PAGES + page) * CALL_PAGE;
    if (desk->begin >= first + CALL_PAGE || desk->end <= first)
        return false;
    *from = desk->begin > first ? desk->begin - first : 0;
    *to = desk->end - first < CALL_PAGE ? desk->end - first : CALL_PAGE;
    return true;
}

/* A constant `type` is compiled by itself: many loads are then under way at once. */
EXACT_INLINE float attend_chain(uint32_t type, uint32_t size, const uint8_t *tile, const float *q,
                                uint32_t slot) {
    float s = 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll 16
#endif
    for (uint32_t d = 0; d < size; d++)
        s = fmaf(tile_number(type, tile, key_place(type, d, slot)), q[d], s);
    return s;
}

EXACT_INLINE float attend_dot(const kv_call *kv, const uint8_t *tile, const uint8_t *query,
                              uint32_t slot) {
    if (kv->type == CALL_KV_INT8) {
        int32_t sum = 0;
        for (uint32_t d = 0; d < kv->head_size; d += 4)
            sum = exact_dot4(exact_load_word(tile + (d / 4 * CALL_PAGE + slot) * 4),
                             exact_load_word(query + d), sum);
        float scale = exact_float(exact_load_word(query + (kv->head_size + 63) / 64 * 64));
        return (float)sum * scale;
    }
    const float *q = (const float *)(const void *)query;
    return kv->type == CALL_KV_F16 ? attend_chain(CALL_KV_F16, kv->head_size, tile, q, slot)
                                   : attend_chain(kv->type, kv->head_size, tile, q, slot);
}

EXACT_INLINE void attend_score(const attend_rows_call *call, const kernel_place *at,
                               const attend_desk *desk, const uint8_t *query, uint32_t kv_head) {
    const kv_call *kv = &call->kv;
    uint32_t page = at->thread / CALL_PAGE, slot = at->thread % CALL_PAGE, from, to;
    float s = -INFINITY;
    if (attend_sees(desk, page, &from, &to) && slot >= from && slot < to) {
        const uint8_t *tile = attend_tile(kv, at, desk, page, kv_head);
        s = attend_dot(kv, tile, query, slot);
        if (kv_scaled(kv->type))
            s *= exact_float(exact_load_word(tile + kv->key_bytes + 4 * slot));
        if (call->softcap > 0.0f)
            s = (call->softcap * 1.44269504f) *
                (1.0f - 2.0f / (exact_exp2(s > ATTEND_EXP2_MAX ? ATTEND_EXP2_MAX : s) + 1.0f));
    }
    desk->score[at->thread] = s;
}

/* Of 8 threads. */
EXACT_INLINE void attend_page_largest(const kernel_place *at, const attend_desk *desk) {
    float largest = -INFINITY;
    for (uint32_t i = 0; i < CALL_PAGE; i++) {
        float s = desk->score[at->thread * CALL_PAGE + i];
        largest = s > largest ? s : largest;
    }
    desk->page_largest[at->thread] = largest;
}

/* By one thread: m from page to page, and how this split joins the others. */
EXACT_INLINE void attend_tops(const attend_desk *desk) {
    float m = -1e30f;
    uint32_t from, to;
    for (uint32_t page = 0; page < PAGES; page++) {
        desk->page_factor[page] = -1.0f; /* nothing is multiplied */
        if (attend_sees(desk, page, &from, &to) && desk->page_largest[page] > m + 8.0f) {
            desk->page_factor[page] = exact_exp2(m - desk->page_largest[page]);
            m = desk->page_largest[page];
        }
        desk->page_top[page] = m;
    }
    float total = desk->first ? m : desk->state[0], largest = total > m ? total : m;
    desk->state[2] = exact_exp2(total - largest);
    desk->state[3] = exact_exp2(m - largest);
    desk->state[0] = largest;
}

/* s becomes p; w beside it. */
EXACT_INLINE void attend_weigh(const attend_rows_call *call, const kernel_place *at,
                               const attend_desk *desk, uint32_t kv_head) {
    const kv_call *kv = &call->kv;
    uint32_t page = at->thread / CALL_PAGE, slot = at->thread % CALL_PAGE, from, to;
    float p = 0.0f, w = 0.0f;
    if (attend_sees(desk, page, &from, &to)) {
        p = w = exact_exp2(desk->score[at->thread] - desk->page_top[page]);
        if (kv_scaled(kv->type) && slot >= from && slot < to) {
            const uint8_t *tile = attend_tile(kv, at, desk, page, kv_head);
            tile += kv->value_offset + kv->value_bytes;
            w *= exact_float(exact_load_word(tile + 4 * slot));
        }
    }
    desk->score[at->thread] = p;
    desk->weight[at->thread] = w;
}

/* Of 16 threads. */
EXACT_INLINE void attend_sums(const kernel_place *at, const attend_desk *desk) {
    float l = 0.0f;
    uint32_t from, to;
    for (uint32_t page = 0; page < PAGES; page++) {
        if (!attend_sees(desk, page, &from, &to))
            continue;
        if (desk->page_factor[page] >= 0.0f)
            l *= desk->page_factor[page];
        const float *p = desk->score + page * CALL_PAGE + at->thread;
        l = (l + p[0]) + p[16];
    }
    desk->lanes[at->thread] = l;
}

/* INT8, of 8 threads: W of each page. */
EXACT_INLINE void attend_page_weight(const kernel_place *at, const attend_desk *desk) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < CALL_PAGE; i++) {
        uint32_t bits = exact_bits(desk->weight[at->thread * CALL_PAGE + i]);
        largest = bits > largest ? bits : largest;
    }
    desk->page_weight[at->thread] = exact_float(largest);
}

/* INT8: weights as whole numbers. */
EXACT_INLINE void attend_round(const kernel_place *at, const attend_desk *desk) {
    float largest = desk->page_weight[at->thread / CALL_PAGE];
    float u = desk->weight[at->thread] * (255.0f / largest);
    desk->weight[at->thread] = largest < 1e-30f || u != u ? 0.0f : (float)exact_nearest(u);
}

EXACT_INLINE float attend_add(uint32_t type, uint32_t stride, const uint8_t *tile,
                              const float *weight, uint32_t d, uint32_t from, uint32_t to,
                              float acc) {
#ifdef __CUDA_ARCH__
#pragma unroll 16
#endif
    for (uint32_t i = from; i < to; i++)
        acc = fmaf(tile_number(type, tile, value_place(type, stride, d, i)), weight[i], acc);
    return acc;
}

/* acc behind one page, of one dimension. */
EXACT_INLINE float attend_page_values(const kv_call *kv, const attend_desk *desk,
                                      const uint8_t *tile, uint32_t page, uint32_t d, uint32_t from,
                                      uint32_t to, float acc) {
    const float *weight = desk->weight + page * CALL_PAGE;
    if (kv->type == CALL_KV_F16)
        return attend_add(CALL_KV_F16, kv->value_stride, tile, weight, d, from, to, acc);
    if (kv->type != CALL_KV_INT8)
        return attend_add(kv->type, kv->value_stride, tile, weight, d, from, to, acc);
    float largest = desk->page_weight[page];
    if (largest < 1e-30f)
        return acc;
    int32_t sum = 0;
    for (uint32_t i = 0; i < CALL_PAGE; i++)
        sum += (int8_t)tile[value_place(CALL_KV_INT8, kv->value_stride, d, i)] * (int32_t)weight[i];
    return fmaf((float)sum, largest * (1.0f / 255.0f), acc);
}

EXACT_INLINE void attend_values(const attend_rows_call *call, const kernel_place *at,
                                const attend_desk *desk, uint32_t kv_head) {
    const kv_call *kv = &call->kv;
    uint32_t from, to;
    for (uint32_t d = at->thread; d < kv->head_size; d += at->threads) {
        float acc = 0.0f;
        for (uint32_t page = 0; page < PAGES; page++) {
            if (!attend_sees(desk, page, &from, &to))
                continue;
            if (desk->page_factor[page] >= 0.0f)
                acc *= desk->page_factor[page];
            const uint8_t *tile = attend_tile(kv, at, desk, page, kv_head);
            acc = attend_page_values(kv, desk, tile + kv->value_offset, page, d, from, to, acc);
        }
        desk->total[d] =
            desk->first ? acc : fmaf(acc, desk->state[3], desk->total[d] * desk->state[2]);
    }
    if (at->thread == 0) {
        float l = exact_sum16(desk->lanes);
        desk->state[1] = desk->first ? l : fmaf(l, desk->state[3], desk->state[1] * desk->state[2]);
    }
}

EXACT_INLINE void attend_divide(const kernel_place *at, const attend_desk *desk, uint32_t size) {
    float factor = 1.0f / desk->state[1];
    for (uint32_t d = at->thread; d < size; d += at->threads)
        desk->total[d] *= factor;
}

EXACT_INLINE void kernel_attend(const attend_rows_call *call, kernel_place *at) {
    attend_desk desk = attend_open(call, at);
    uint32_t size = call->kv.head_size, kv_head = at->x / (call->heads / call->kv_heads);
    uint64_t place = (uint64_t)at->y * call->heads + at->x;
    const uint8_t *query = call->query + place * call->query_bytes;
    for (desk.split = desk.begin / CALL_SPLIT; desk.split <= (desk.end - 1) / CALL_SPLIT;
         desk.split++) {
        CUDA_EACH(at, attend_score(call, at, &desk, query, kv_head));
        CUDA_EACH(at, if (at->thread < PAGES) attend_page_largest(at, &desk));
        CUDA_EACH(at, if (at->thread == 0) attend_tops(&desk));
        CUDA_EACH(at, attend_weigh(call, at, &desk, kv_head));
        CUDA_EACH(at, if (at->thread < 16) attend_sums(at, &desk));
        if (call->kv.type == CALL_KV_INT8) {
            CUDA_EACH(at, if (at->thread < PAGES) attend_page_weight(at, &desk));
            CUDA_EACH(at, attend_round(at, &desk));
        }
        CUDA_EACH(at, attend_values(call, at, &desk, kv_head));
        desk.first = false;
    }
    CUDA_EACH(at, attend_divide(at, &desk, size));
    if (kv_scaled(call->kv.type))
        HEAD_ROTATE_STAGES(at, size, desk.total, desk.other);
    CUDA_EACH(at, copy_row(at, desk.total, size, call->out + place * size));
}

#endif
