/* Scores to weights in 16 lanes: exp2, what a row sees of a page, the running maximum, and for INT8
 * weights as bytes. One row over one page at a time. */
#ifndef AVO_DEVICE_CPU_LANES_ATTEND_WEIGH_H
#define AVO_DEVICE_CPU_LANES_ATTEND_WEIGH_H

#include "device/cpu/lanes/attend_product.h"

/* ---- exp2 ---- */

static inline vec16 lanes_exp2(vec16 x) {
    vec16 round = v_set(ATTEND_EXP2_ROUND);
    vec16 sum = v_add(x, round);
    vec16 r = v_sub(x, v_sub(sum, round));
    vec16 p = v_fma(v_set(ATTEND_EXP2_5), r, v_set(ATTEND_EXP2_4));
    p = v_fma(p, r, v_set(ATTEND_EXP2_3));
    p = v_fma(p, r, v_set(ATTEND_EXP2_2));
    p = v_fma(p, r, v_set(ATTEND_EXP2_1));
    p = v_fma(p, r, v_set(1.0f));
    vec16 result = v_mul(p, v_from_bits(iv_shift_left(v_bits(sum), 23)));
    return v_select(v_less(x, v_set(ATTEND_EXP2_LOW)), v_zero(), result);
}

static inline float lanes_exp2_one(float x) {
    float lane[LANES];
    v_store(lane, lanes_exp2(v_set(x)));
    return lane[0];
}

/* ---- What a row sees of a page ---- */

typedef struct slots {
    uint32_t begin, end;
} slots;

/* Of positions [begin, end), in the page that begins at `first`. */
static inline slots lanes_seen(uint32_t begin, uint32_t end, uint32_t first) {
    slots seen = {0, 0};
    if (begin < first + KV_PAGE_TOKENS && end > first) {
        seen.begin = begin > first ? begin - first : 0;
        seen.end = end - first < KV_PAGE_TOKENS ? end - first : KV_PAGE_TOKENS;
    }
    return seen;
}

/* x in the lanes of slots `from` … `from` + 15 that are not seen. */
static inline vec16 lanes_unseen(slots seen, uint32_t from, float x, vec16 numbers) {
    static const float index[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    vec16 slot = v_add(v_load(index), v_set((float)from));
    numbers = v_select(v_less(slot, v_set((float)seen.end)), numbers, v_set(x));
    return v_select(v_less(slot, v_set((float)seen.begin)), v_set(x), numbers);
}

/* ---- Weights ---- */

/* Parts of the scratch. */
typedef struct attend_room {
    float *keys, *values; /* tiles as floats */
    float *scores;        /* [rows][32], then weights */
    float *sums;          /* [rows][16] */
    float *largest;       /* [rows] */
    uint32_t *words;      /* [rows][16] weights as bytes */
} attend_room;

/* Where the scale of an INT8 query lies, and behind it the offset of its sums. */
static inline size_t lanes_query_tail(uint32_t head_size) {
    return attend_query_stride(head_size) - 64;
}

/* 16 scores as the product has left them: scales, soft cap. */
ALWAYS_INLINE vec16 lanes_score(const kv_type type, const attend_call *call, uint32_t row,
                                const float *key_scale, const float *scores) {
    vec16 s;
    if (type == KV_INT8) {
        float scale;
        memcpy(&scale,
               call->query + row * attend_query_stride(call->head_size) +
                   lanes_query_tail(call->head_size),
               sizeof(scale));
        s = v_mul(v_from_int(iv_load((const int32_t *)(const void *)scores)), v_set(scale));
    } else {
        s = v_load(scores);
    }
    if (kv_type_scaled(type))
        s = v_mul(s, v_load(key_scale));
    if (call->softcap > 0.0f) {
        vec16 one = v_set(1.0f);
        vec16 e = lanes_exp2(v_min(v_set(ATTEND_EXP2_MAX), s)); /* NaN stays */
        vec16 t = v_sub(one, v_div(v_set(2.0f), v_add(e, one)));
        s = v_mul(v_set(call->softcap * ATTEND_LOG2E), t);
    }
    return s;
}

/* A new maximum: what the row has so far counts less. */
static __attribute__((noinline)) void
lanes_rescale(const attend_call *call, const attend_room *room, uint32_t row, float largest) {
    vec16 factor = v_set(lanes_exp2_one(room->largest[row] - largest));
    float *acc = call->state + row * call->state_stride;
    float *sums = room->sums + row * LANES;
    for (size_t d = 0; d < kv_value_stride(call->head_size); d += LANES)
        v_store(acc + d, v_mul(v_load(acc + d), factor));
    v_store(sums, v_mul(v_load(sums), factor));
    room->largest[row] = largest;
}

/* Scores of one row to weights, in place; `border`: the row sees only a part of the page. */
ALWAYS_INLINE void lanes_weigh(const kv_type type, const bool border, const attend_call *call,
                               const attend_room *room, const float *key_scale,
                               const float *value_scale, uint32_t row, slots seen) {
    float *scores = room->scores + row * KV_PAGE_TOKENS;
    float *sums = room->sums + row * LANES;
    vec16 s0 = lanes_score(type, call, row, key_scale, scores);
    vec16 s1 = lanes_score(type, call, row, key_scale + LANES, scores + LANES);
    if (border) {
        s0 = lanes_unseen(seen, 0, -INFINITY, s0);
        s1 = lanes_unseen(seen, LANES, -INFINITY, s1);
    }
    vec16 limit = v_set(room->largest[row] + ATTEND_SLACK);
    if (v_any(v_less(limit, s0)) || v_any(v_less(limit, s1)))
        lanes_rescale(call, room, row, v_largest(v_max(s0, s1)));
    vec16 m = v_set(room->largest[row]);
    vec16 p0 = lanes_exp2(v_sub(s0, m));
    vec16 p1 = lanes_exp2(v_sub(s1, m));
    v_store(sums, v_add(v_add(v_load(sums), p0), p1));
    if (kv_type_scaled(type)) {
        p0 = v_mul(p0, v_load(value_scale));
        p1 = v_mul(p1, v_load(value_scale + LANES));
    }
    if (type == KV_INT8 && border) { /* the scale of a slot that is not seen can be anything */
        p0 = lanes_unseen(seen, 0, 0.0f, p0);
        p1 = lanes_unseen(seen, LANES, 0.0f, p1);
    }
    v_store(scores, p0);
    v_store(scores + LANES, p1);
}

/* Steps of finding the largest lanes of several vectors: lane i of the result is the larger of lane
 * i and its neighbour, of `even` where the bit is not set in i and of `odd` where it is. */
ALWAYS_INLINE ivec16 lanes_fold(const uint32_t bit, ivec16 even, ivec16 odd) {
    static const float index[LANES] = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
    static const float pair[LANES] = {0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1};
    vmask set = v_less(v_zero(), v_load(bit == 1 ? index : pair));
    vec16 own = v_select(set, v_from_bits(odd), v_from_bits(even));
    vec16 other = v_select(set, v_from_bits(even), v_from_bits(odd));
    return iv_max_unsigned(v_bits(own), v_bits(bit == 1 ? v_flip_1(other) : v_flip_2(other)));
}

#define WEIGH_ROWS 4 /* whose largest weights are found together */

ALWAYS_INLINE ivec16 lanes_larger(const float *weights) {
    return iv_max_unsigned(v_bits(v_load(weights)), v_bits(v_load(weights + LANES)));
}

/* The largest weight of each of up to 4 rows, in lane i that of row i; compared as bits, so that
 * NaN wins. Together they take half as many operations as one by one. */
ALWAYS_INLINE vec16 lanes_largest_weights(const float *weights, uint32_t rows) {
    const size_t row = KV_PAGE_TOKENS;
    ivec16 most = lanes_larger(weights);
    if (rows == 1) {
        most = lanes_fold(2, most, most);
        most = lanes_fold(1, most, most);
    } else if (rows == 2) {
        most = lanes_fold(1, most, lanes_larger(weights + row));
        most = lanes_fold(2, most, most);
    } else {
        const float *last = weights + (rows - 1) * row;
        most = lanes_fold(2, lanes_fold(1, most, lanes_larger(weights + row)),
                          lanes_fold(1, lanes_larger(weights + 2 * row), lanes_larger(last)));
    }
    most = iv_max_unsigned(most, v_bits(v_flip_4(v_from_bits(most))));
    return v_from_bits(iv_max_unsigned(most, v_bits(v_flip_8(v_from_bits(most)))));
}

/* Weights of rows [row, end) as bytes. `scale`: what brings the sums back, 0 where there is
 * nothing; room for up to three rows more. */
static inline void lanes_weights_to_bytes(const attend_room *room, uint32_t row, uint32_t end,
                                          float *scale) {
    float factor[LANES], back[LANES];
    for (; row < end; row += WEIGH_ROWS, scale += WEIGH_ROWS) {
        uint32_t rows = end - row < WEIGH_ROWS ? end - row : WEIGH_ROWS;
        vec16 largest = lanes_largest_weights(room->scores + row * KV_PAGE_TOKENS, rows);
        vmask none = v_less(largest, v_set(ATTEND_TINY));
        v_store(factor, v_select(none, v_zero(), v_div(v_set(ATTEND_WEIGHT_MAX), largest)));
        v_store(back, v_select(none, v_zero(), v_mul(largest, v_set(1.0f / ATTEND_WEIGHT_MAX))));
        memcpy(scale, back, WEIGH_ROWS * sizeof(float));
        for (uint32_t i = 0; i < rows; i++) {
            const float *weights = room->scores + (row + i) * KV_PAGE_TOKENS;
            uint8_t bytes[KV_PAGE_TOKENS];
            vec16 times = v_set(factor[i]);
            iv_store_bytes(bytes, v_to_int(v_mul(v_load(weights), times)));
            iv_store_bytes(bytes + LANES, v_to_int(v_mul(v_load(weights + LANES), times)));
            quad_weights(bytes, KV_PAGE_TOKENS / 4, room->words + (row + i) * LANES);
        }
    }
}

#endif
