/* The input of products in the same kernel as they are: rows of floats are staged in shared memory,
 * get their norm or activation, are rotated and quantised, a warp for 256 k. Every block does all
 * of it: that costs less than a kernel of its own and its wait. Formulas:
 * device/cpu/activation.h. */
#ifndef AVO_DEVICE_CUDA_KERNELS_INPUT_H
#define AVO_DEVICE_CUDA_KERNELS_INPUT_H

#include "device/cuda/kernels/rows.h"
#include "device/cuda/kernels/warp.h"

#define INPUT_K 256 /* of a warp */
#define LANE_K  8   /* of a lane: numbers 8 · lane … */

#define NORM_WORDS    36 /* 16 sums, 16 of squares, mean, scale */
#define INPUT_PAD_A8R 64 /* bytes behind a column of numbers: others begin in other banks */
#define INPUT_PAD_A16 32

/* Shared memory of a product's block. */
typedef struct few_desk {
    float *stage;   /* [together][k up to 256], dead when slots are used; FLOAT: x itself */
    float *weight;  /* the norm's */
    float *lanes;   /* [rows][NORM_WORDS] sums of norms, then mean and scale */
    int8_t *number; /* [columns][stride] */
    float *scale;   /* [k / 32 or k / 256][scale_rows] */
    int32_t *sums;  /* A8R: [k / 256][8] -128 times a row's sum */
    float *slots;
    uint32_t k;      /* up to 256 */
    uint32_t stride; /* bytes of a column: a row, or A16: a row's high, then its low numbers */
    uint32_t scale_rows;
} few_desk;

EXACT_INLINE uint32_t input_stage_words(const few_input *input) {
    uint32_t k = (input->k + INPUT_K - 1) / INPUT_K * INPUT_K;
    return input->direct ? 0 : (input->form != CALL_FLOAT ? input->together : input->rows) * k;
}

/* In words, without the slots and, of integers, the stage, which lies where they will. With base
 * NULL it counts. */
EXACT_INLINE uint32_t few_desk_lay(const few_input *input, float *base, few_desk *desk) {
    uint32_t k = (input->k + INPUT_K - 1) / INPUT_K * INPUT_K, rows = input->rows, at = 0;
    bool quantised = input->form != CALL_FLOAT, planes = input->form == CALL_A16;
    desk->k = k;
    desk->stride = k + (planes ? INPUT_PAD_A16 : INPUT_PAD_A8R);
    desk->scale_rows = planes && rows <= 4 ? 4 : 8;
    desk->stage = base;
    if (!quantised)
        at += input_stage_words(input);
    desk->weight = base + at;
    at += input->norm.kind != CALL_NORM_NONE ? k : 0;
    desk->lanes = base + at;
    at += rows * NORM_WORDS;
    desk->number = (int8_t *)(void *)(base + at);
    at += quantised ? (planes ? 2 : 1) * rows * desk->stride / 4 : 0;
    desk->sums = (int32_t *)(void *)(base + at);
    at += input->form == CALL_A8R ? k / INPUT_K * 8 : 0;
    desk->scale = base + at;
    at += quantised ? k / (planes ? 32 : INPUT_K) * desk->scale_rows : 0;
    desk->slots = base + at;
    if (quantised)
        desk->stage = desk->slots;
    return at;
}

/* ---- Stages ---- */

/* Not in line: most of it is an error function that few models have. */
static
#ifdef __CUDACC__
    __device__ __noinline__
#endif
    float
    input_activation(uint32_t kind, float x) {
    return exact_activation(kind, x);
}

EXACT_INLINE float input_number(const few_input *input, const float *x, const float *gate,
                                uint32_t i) {
    float y = load_fresh(x + i);
    return gate != NULL ? input_activation(input->activation, load_fresh(gate + i)) * y
                        : input_activation(input->activation, y);
}

/* By all threads, without passing through registers: whole groups of four are on their way when it
 * returns, until COPY_WAIT. */
EXACT_INLINE void input_copy(const kernel_place *at, const float *from, uint32_t count,
                             bool aligned, float *to) {
    uint32_t whole = aligned ? count / 4 : 0;
    for (uint32_t j = at->thread; j < whole; j += at->threads)
        copy_begin(at, to + 4 * j, from + 4 * j);
    for (uint32_t j = 4 * whole + at->thread; j < count; j += at->threads)
        to[j] = load_fresh(from + j);
}

/* Rows [first, first + together) as floats, zeros behind k. */
EXACT_INLINE void input_stage(const few_input *input, const kernel_place *at, const few_desk *desk,
                              uint32_t first) {
    for (uint32_t i = 0; i < input->together && first + i < input->rows; i++) {
        uint32_t row = input->index != NULL ? input->index[first + i] : first + i;
        const float *x = input->x + row * input->stride;
        const float *gate = input->gate != NULL ? input->gate + row * input->stride : NULL;
        float *to = desk->stage + i * desk->k;
        if (!input->activated)
            input_copy(at, x, input->k, input->stride % 4 == 0, to);
        else
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
            for (uint32_t j = at->thread; j < input->k; j += at->threads)
                to[j] = input_number(input, x, gate, j);
        for (uint32_t j = input->k + at->thread; j < desk->k; j += at->threads)
            to[j] = 0.0f;
    }
    copy_mark(at); /* only groups are waited for */
    COPY_WAIT(at, 0);
}

/* Of 16 lanes of the warp of each staged row; then one has its mean and scale. */
EXACT_INLINE void input_sums(const few_input *input, const kernel_place *at, const few_desk *desk,
                             uint32_t first, bool squares) {
    uint32_t i = warp_of(at);
    if (i >= input->together || first + i >= input->rows)
        return;
    float *lanes = desk->lanes + (first + i) * NORM_WORDS;
    EACH_LANE(at, own) if (lane < 16) {
        float mean = squares ? norm_mean(&input->norm, input->k, lanes) : 0.0f;
        norm_lane(desk->stage + i * desk->k, input->k, squares, mean, lane,
                  squares ? lanes + 16 : lanes);
    }
#ifdef __CUDA_ARCH__
    __syncwarp();
#endif
    EACH_LANE(at, own) if (lane == 0 && squares) {
        lanes[32] = norm_mean(&input->norm, input->k, lanes);
        lanes[33] = norm_scale(&input->norm, input->k, lanes);
    }
}

/* ---- 256 numbers of a warp ---- */

typedef struct lane_numbers {
    float y[LANE_K];
} lane_numbers;

EXACT_INLINE void lane_load(const few_input *input, const kernel_place *at, const few_desk *desk,
                            const float *stage, uint32_t row, uint32_t begin,
                            lane_numbers *numbers) {
    bool normed = input->norm.kind != CALL_NORM_NONE;
    const float *lanes = desk->lanes + row * NORM_WORDS, *bias = input->norm.bias;
    float mean = normed ? lanes[32] : 0.0f, scale = normed ? lanes[33] : 0.0f;
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 0; half < LANE_K / 4; half++) {
            uint32_t first = begin + lane * LANE_K + 4 * half;
            exact_words x = exact_load_words(stage + first), w = x;
            if (normed)
                w = exact_load_words(desk->weight + first);
            for (uint32_t j = 0; j < 4; j++) {
                float y = exact_float(x.word[j]);
                if (normed && first + j < input->k) {
                    y = (y - mean) * scale * exact_float(w.word[j]);
                    y = bias != NULL ? y + bias[first + j] : y;
                }
                numbers[own].y[4 * half + j] = y;
            }
        }
    }
}

/* The same from where the row is, without an activation; zeros behind k. */
EXACT_INLINE void lane_fetch(const few_input *input, const kernel_place *at, uint32_t first,
                             uint32_t begin, lane_numbers *numbers) {
    uint32_t row = input->index != NULL ? input->index[first] : first;
    const float *x = input->x + row * input->stride;
    bool aligned = input->stride % 4 == 0;
    EACH_LANE(at, own) {
        uint32_t i = begin + lane * LANE_K;
        if (aligned && i + LANE_K <= input->k) {
            exact_words low = load_fresh_words(x + i), high = load_fresh_words(x + i + 4);
            for (uint32_t j = 0; j < 4; j++) {
                numbers[own].y[j] = exact_float(low.word[j]);
                numbers[own].y[4 + j] = exact_float(high.word[j]);
            }
            continue;
        }
        for (uint32_t j = 0; j < LANE_K; j++)
            numbers[own].y[j] = i + j >= input->k ? 0.0f : load_fresh(x + i + j);
    }
}

EXACT_INLINE void lane_exchange(const kernel_place *at, uint32_t mask, const uint32_t *size,
                                lane_numbers *numbers) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t j = 0; j < LANE_K; j++) {
        float mine[OWN_LANES], other[OWN_LANES];
        EACH_LANE(at, own) {
            mine[own] = numbers[own].y[j];
        }
        exchange_floats(mine, mask, other);
        EACH_LANE(at, own)
        if (size == NULL || mask * LANE_K < size[own])
            numbers[own].y[j] = fmaf(mine[own], (lane & mask) == 0 ? 1.0f : -1.0f, other[own]);
    }
}

/* The Hadamard transform of `count` numbers in blocks that are powers of two. */
EXACT_INLINE void lane_rotate(const kernel_place *at, uint32_t count, lane_numbers *numbers) {
    uint32_t size[OWN_LANES];
    EACH_LANE(at, own) {
        uint32_t begin;
        size[own] = PREPARE_K;
        if (count < PREPARE_K && lane * LANE_K < count)
            rotate_block_of(lane * LANE_K, count, &begin, &size[own]);
        float *y = numbers[own].y;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 1; half < LANE_K; half *= 2)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t j = 0; j < LANE_K; j++)
                if ((j & half) == 0) {
                    float low = y[j], high = y[j + half];
                    y[j] = low + high;
                    y[j + half] = low - high;
                }
    }
    if (count == PREPARE_K)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t mask = 1; mask < WARP; mask *= 2)
            lane_exchange(at, mask, NULL, numbers);
    else
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
        for (uint32_t mask = 1; mask < WARP; mask *= 2)
            lane_exchange(at, mask, size, numbers);
    EACH_LANE(at, own) {
        float factor = lane * LANE_K < count ? rotate_factor(size[own]) : 0.0f;
        for (uint32_t j = 0; j < LANE_K; j++) /* behind them they may be anything */
            numbers[own].y[j] = lane * LANE_K < count ? numbers[own].y[j] * factor : 0.0f;
    }
}

/* Scale and its inverse from the largest magnitude. */
EXACT_INLINE float lane_scale(uint32_t most, float limit, float *inverse) {
    float high = exact_float(most), scale = 0.0f;
    *inverse = 0.0f;
    if (!(high < 1e-30f)) {
        scale = high / limit;
        *inverse = most < 0x7f800000u ? limit / high : 0.0f;
    }
    return scale;
}

EXACT_INLINE uint32_t four_bytes(const int32_t *number) {
    return (uint32_t)(uint8_t)number[0] | (uint32_t)(uint8_t)number[1] << 8 |
           (uint32_t)(uint8_t)number[2] << 16 | (uint32_t)(uint8_t)number[3] << 24;
}

/* Eight numbers; `turned`: the second four first. */
EXACT_INLINE void lane_put(int8_t *to, const int32_t *number, bool turned) {
    uint32_t low = four_bytes(number), high = four_bytes(number + 4);
    uint32_t *words = (uint32_t *)(void *)to;
    words[0] = turned ? high : low;
    words[1] = turned ? low : high;
}

/* Numbers lie in the order in which lanes of few.h read lines of weights: A8R, the halves of every
 * other 16 are exchanged; A16, those of every other 8. */
EXACT_INLINE void lane_quantise(const few_input *input, const kernel_place *at,
                                const few_desk *desk, uint32_t row, uint32_t begin,
                                const lane_numbers *numbers) {
    bool rotated = input->form == CALL_A8R;
    uint32_t most[OWN_LANES], sum[OWN_LANES];
    EACH_LANE(at, own) {
        most[own] = 0;
        for (uint32_t j = 0; j < LANE_K; j++) {
            uint32_t bits = exact_bits(numbers[own].y[j]) & 0x7fffffffu;
            most[own] = bits > most[own] ? bits : most[own];
        }
    }
    warp_highest(at, most, rotated ? 16 : 2);
    EACH_LANE(at, own) {
        uint32_t i = begin + lane * LANE_K;
        float inverse, scale = lane_scale(most[own], rotated ? 127.0f : 32512.0f, &inverse);
        int32_t number[LANE_K], low[LANE_K], all = 0;
        for (uint32_t j = 0; j < LANE_K; j++) {
            int32_t n = inverse == 0.0f ? 0 : exact_nearest(numbers[own].y[j] * inverse);
            number[j] = rotated ? n : (n + (n < 0 ? -127 : 127)) / 255;
            low[j] = n - 255 * number[j];
            all += number[j];
        }
        sum[own] = (uint32_t)all;
        if (rotated) {
            lane_put(desk->number + row * desk->stride + (i ^ (i >> 1 & 8)), number, false);
        } else {
            int8_t *to = desk->number + 2 * row * desk->stride + i;
            lane_put(to, number, lane % 2 == 1);
            lane_put(to + desk->stride, low, lane % 2 == 1);
        }
        if (lane % (rotated ? 32 : 4) == 0)
            desk->scale[i / (rotated ? INPUT_K : 32) * desk->scale_rows + row] = scale;
    }
    if (!rotated)
        return;
    warp_add(at, sum);
    EACH_LANE(at, own)
    if (lane == 0)
        desk->sums[begin / INPUT_K * 8 + row] = -128 * (int32_t)sum[own];
}

/* Rotates and quantises 256 k of a row. */
EXACT_INLINE void lane_finish(const few_input *input, const kernel_place *at, const few_desk *desk,
                              uint32_t row, uint32_t begin, lane_numbers *numbers) {
    if (input->form == CALL_A8R) {
        uint32_t left = (input->k + 15) / 16 * 16 - begin;
        lane_rotate(at, left < INPUT_K ? left : INPUT_K, numbers);
    }
    lane_quantise(input, at, desk, row, begin, numbers);
}

/* Staged rows, or all that are not staged, 256 k of a row at a time. */
EXACT_INLINE void input_warp(const few_input *input, const kernel_place *at, const few_desk *desk,
                             uint32_t first) {
    uint32_t blocks = desk->k / INPUT_K, rows = input->rows - first;
    rows = rows < input->together || input->direct ? rows : input->together;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t u = warp_of(at); u < rows * blocks; u += warps_of(at)) {
        uint32_t i = rows == 1 ? 0 : u / blocks, begin = (u - i * blocks) * INPUT_K;
        lane_numbers numbers[OWN_LANES];
        float *stage = desk->stage + i * desk->k;
        if (input->direct)
            lane_fetch(input, at, i, begin, numbers);
        else
            lane_load(input, at, desk, stage, first + i, begin, numbers);
        if (input->form != CALL_FLOAT) {
            lane_finish(input, at, desk, first + i, begin, numbers);
            continue;
        }
        EACH_LANE(at, own) {
            for (uint32_t j = 0; j < LANE_K; j++)
                stage[begin + lane * LANE_K + j] = numbers[own].y[j];
        }
    }
}

/* What does not depend on the kernel in front. */
EXACT_INLINE void input_early(const few_input *input, const kernel_place *at,
                              const few_desk *desk) {
    if (input->norm.kind != CALL_NORM_NONE)
        input_copy(at, input->norm.weight, input->k, true, desk->weight);
}

/* What a kernel of its own has made (kernel_ready). */
EXACT_INLINE void input_take(const few_input *input, const kernel_place *at, const few_desk *desk) {
    uint8_t *to = (uint8_t *)desk->number;
    uint32_t bytes = (uint32_t)((uint8_t *)desk->slots - to);
    for (uint32_t i = 16 * at->thread; i < bytes; i += 16 * at->threads)
        copy_begin(at, to + i, input->ready + i);
    copy_mark(at);
    COPY_WAIT(at, 0);
}

EXACT_INLINE void input_make(const few_input *input, kernel_place *at, const few_desk *desk) {
    if (input->ready != NULL) {
        CUDA_EACH(at, input_take(input, at, desk));
        return;
    }
    uint32_t together = input->direct ? input->rows : input->together;
    for (uint32_t first = 0; first < input->rows; first += together) {
        if (!input->direct)
            CUDA_EACH(at, input_stage(input, at, desk, first));
        if (input->norm.kind == CALL_NORM_LAYER)
            CUDA_WARPS(at, input_sums(input, at, desk, first, false));
        if (input->norm.kind != CALL_NORM_NONE)
            CUDA_WARPS(at, input_sums(input, at, desk, first, true));
        CUDA_WARPS(at, input_warp(input, at, desk, first));
    }
}

/* ---- A kernel of its own, where a block would have much to do: block (16 · 256 k, row) ---- */

EXACT_INLINE void ready_warp(const ready_call *call, const kernel_place *at, const few_desk *own,
                             const few_desk *out) {
    const few_input *input = &call->input;
    uint32_t begin = (at->x * warps_of(at) + warp_of(at)) * INPUT_K;
    lane_numbers numbers[OWN_LANES];
    if (begin >= own->k)
        return;
    if (input->direct)
        lane_fetch(input, at, at->y, begin, numbers);
    else
        lane_load(input, at, own, own->stage, at->y, begin, numbers);
    lane_finish(input, at, out, at->y, begin, numbers);
}

EXACT_INLINE void kernel_ready(const ready_call *call, kernel_place *at) {
    const few_input *input = &call->input;
    few_desk own, out;
    few_input bare = *input; /* what products take has neither stage nor norm */
    bare.norm.kind = CALL_NORM_NONE;
    few_desk_lay(&bare, (float *)(void *)call->out - input->rows * NORM_WORDS, &out);
    own = out;
    own.weight = at->shared;
    own.lanes = own.weight + (input->norm.kind != CALL_NORM_NONE ? own.k : 0);
    own.stage = own.lanes + input->rows * NORM_WORDS;
    CUDA_EACH(at, input_early(input, at, &own));
    place_wait();
    place_let_next();
    if (!input->direct) {
        CUDA_EACH(at, input_stage(input, at, &own, at->y));
        if (input->norm.kind == CALL_NORM_LAYER)
            CUDA_WARPS(at, input_sums(input, at, &own, at->y, false));
        if (input->norm.kind != CALL_NORM_NONE)
            CUDA_WARPS(at, input_sums(input, at, &own, at->y, true));
    }
    CUDA_WARPS(at, ready_warp(call, at, &own, &out));
}

#endif
