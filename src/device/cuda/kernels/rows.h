/* Kernels over rows: norms, and activations into the forms that products read. Formulas:
 * device/cpu/activation.h. */
#ifndef AVO_DEVICE_CUDA_KERNELS_ROWS_H
#define AVO_DEVICE_CUDA_KERNELS_ROWS_H

#include "device/cuda/kernels/calls.h"
#include "device/cuda/kernels/place.h"
#include "device/exact/math.h"

/* ---- Norms ---- */

/* Shared memory of a norm: sums of 16 lanes, twice. */
#define NORM_SHARED 32

#define NORM_TOGETHER 16 /* numbers of a lane that are loaded before they are added up */

typedef struct norm_numbers {
    float of[NORM_TOGETHER];
} norm_numbers;

/* Numbers of a lane in group `group` of 16 · NORM_TOGETHER. */
EXACT_INLINE void norm_load(const float *x, uint32_t lane, uint32_t group, norm_numbers *numbers) {
    const float *from = x + group * 16 * NORM_TOGETHER + lane;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t j = 0; j < NORM_TOGETHER; j++)
        numbers->of[j] = from[16 * j];
}

EXACT_INLINE float norm_add(const norm_numbers *numbers, bool squares, float mean, float sum) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t j = 0; j < NORM_TOGETHER; j++) {
        float y = numbers->of[j] - mean;
        sum = squares ? fmaf(y, y, sum) : sum + numbers->of[j];
    }
    return sum;
}

/* Of 16 threads: Σ x, or Σ (x − mean)², of every sixteenth number. A group is on its way while the
 * one in front is added up; two take turns, so that nothing is moved and no number has a condition:
 * the chain of sums is all that takes time. */
EXACT_INLINE void norm_lane(const float *x, uint32_t width, bool squares, float mean, uint32_t lane,
                            float *lanes) {
    float sum = 0.0f;
    uint32_t groups = width / (16 * NORM_TOGETHER), last = groups > 0 ? groups - 1 : 0;
    norm_numbers even, odd;
    if (groups > 0)
        norm_load(x, lane, 0, &even);
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t group = 0; group < groups; group += 2) {
        norm_load(x, lane, group + 1 < last ? group + 1 : last, &odd);
        sum = norm_add(&even, squares, mean, sum);
        if (group == last)
            break;
        norm_load(x, lane, group + 2 < last ? group + 2 : last, &even);
        sum = norm_add(&odd, squares, mean, sum);
    }
    for (uint32_t i = groups * 16 * NORM_TOGETHER + lane; i < width; i += 16)
        sum = squares ? fmaf(x[i] - mean, x[i] - mean, sum) : sum + x[i];
    lanes[lane] = sum;
}

EXACT_INLINE float norm_mean(const norm_call *norm, uint32_t width, const float *lanes) {
    return norm->kind == CALL_NORM_LAYER ? exact_sum16(lanes) / (float)width : 0.0f;
}

EXACT_INLINE float norm_scale(const norm_call *norm, uint32_t width, const float *lanes) {
    return 1.0f / sqrtf(exact_sum16(lanes + 16) / (float)width + norm->epsilon);
}

/* Weight and bias of number i as row `row` sees them. */
EXACT_INLINE float norm_apply(const norm_call *norm, uint32_t row, uint32_t i, float x, float mean,
                              float scale) {
    float weight = norm->weight[i], bias = norm->bias != NULL ? norm->bias[i] : 0.0f;
    bool biased = norm->bias != NULL;
    if (norm->rows != NULL) {
        const row_norms *own = &norm->rows[row];
        for (uint32_t a = 0; a < own->count; a++) {
            if (own->weight[a] != NULL)
                weight += own->factor[a] * own->weight[a][i];
            if (own->bias[a] != NULL)
                bias += own->factor[a] * own->bias[a][i];
            biased = biased || own->bias[a] != NULL;
        }
    }
    float y = (x - mean) * scale * weight;
    return biased ? y + bias : y;
}

/* By all threads. */
EXACT_INLINE void copy_row(const kernel_place *at, const float *from, uint32_t count, float *to) {
    for (uint32_t i = at->thread; i < count; i += at->threads)
        to[i] = from[i];
}

/* The sums of a row; two stages. */
#define NORM_STAGES(at, norm, x, width, lanes)                                                     \
    do {                                                                                           \
        if ((norm)->kind == CALL_NORM_LAYER)                                                       \
            CUDA_EACH(at, if ((at)->thread < 16)                                                   \
                              norm_lane(x, width, false, 0.0f, (at)->thread, lanes));              \
        CUDA_EACH(at,                                                                              \
                  if ((at)->thread < 16) norm_lane(x, width, true, norm_mean(norm, width, lanes),  \
                                                   (at)->thread, (lanes) + 16));                   \
    } while (0)

EXACT_INLINE void norm_write(const norm_rows_call *call, const kernel_place *at, const float *x,
                             float *out) {
    float mean = norm_mean(&call->norm, call->width, at->shared);
    float scale =
        call->norm.kind == CALL_NORM_NONE ? 0.0f : norm_scale(&call->norm, call->width, at->shared);
    for (uint32_t i = at->thread; i < call->width; i += at->threads) {
        float y = call->norm.kind == CALL_NORM_NONE
                      ? x[i]
                      : norm_apply(&call->norm, at->x, i, x[i], mean, scale);
        out[i] = call->add ? fmaf(y, call->add_scale, out[i]) : y;
    }
}

EXACT_INLINE void kernel_norm(const norm_rows_call *call, kernel_place *at) {
    const float *x =
        call->x + (uint64_t)(call->index != NULL ? call->index[at->x] : at->x) * call->width;
    if (call->norm.kind != CALL_NORM_NONE)
        NORM_STAGES(at, &call->norm, x, call->width, at->shared);
    CUDA_EACH(at, norm_write(call, at, x, call->out + (uint64_t)at->x * call->width));
}

/* ---- Forms ---- */

/* Shared memory of a block: sums of the norm, numbers twice, and what each 16 of them give. */
#define PREPARE_SHARED ((NORM_SHARED + 2 * PREPARE_K + 32) * 4)
/* Behind it a copy of the row, where it is that short: sixteen threads add it up, and wait less. */
#define PREPARE_STAGED 8192

EXACT_INLINE void prepare_load(const prepare_call *call, const kernel_place *at, const float *x,
                               const float *gate, float *numbers) {
    uint32_t i = at->x * PREPARE_K + at->thread;
    float y = 0.0f;
    if (i < call->k) {
        y = x[i];
        if (call->norm.kind != CALL_NORM_NONE)
            y = norm_apply(&call->norm, at->y, i, y, norm_mean(&call->norm, call->k, at->shared),
                           norm_scale(&call->norm, call->k, at->shared));
        if (call->activated)
            y = gate != NULL ? exact_activation(call->activation, gate[i]) * y
                             : exact_activation(call->activation, y);
        if (call->factor != NULL)
            y = y * call->factor[at->y];
    }
    numbers[at->thread] = y;
}

/* The rotation's block that number i of `count` belongs to: powers of two from 256 down to 16. */
EXACT_INLINE void rotate_block_of(uint32_t i, uint32_t count, uint32_t *begin, uint32_t *size) {
    uint32_t at = 0, block = PREPARE_K;
    for (;;) {
        while (block > count - at)
            block /= 2;
        if (i < at + block)
            break;
        at += block;
    }
    *begin = at;
    *size = block;
}

EXACT_INLINE float rotate_factor(uint32_t size) {
    return size == 16    ? 0.25f
           : size == 32  ? 0.17677669529663687f
           : size == 64  ? 0.125f
           : size == 128 ? 0.08838834764831845f
                         : 0.0625f;
}

/* One distance of the transform, from one array to another. */
EXACT_INLINE void rotate_number(uint32_t i, uint32_t count, uint32_t half, const float *from,
                                float *to) {
    uint32_t begin, size;
    if (i >= count)
        return;
    rotate_block_of(i, count, &begin, &size);
    float y = from[i];
    if (half < size)
        y = ((i - begin) & half) == 0 ? y + from[i + half] : from[i - half] - y;
    to[i] = half == PREPARE_K / 2 ? y * rotate_factor(size) : y;
}

/* Of 16 threads: the largest magnitude of 16 numbers, as bits. */
EXACT_INLINE void prepare_largest(const kernel_place *at, const float *numbers, uint32_t *largest) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t bits = exact_bits(numbers[16 * at->thread + i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    largest[at->thread] = most;
}

/* 16 bytes at once; they begin at a multiple of 16. */
EXACT_INLINE void write_words(const int32_t *number, int8_t *out) {
    exact_words all;
    for (int i = 0; i < 4; i++)
        all.word[i] = (uint32_t)(uint8_t)number[4 * i] | (uint32_t)(uint8_t)number[4 * i + 1] << 8 |
                      (uint32_t)(uint8_t)number[4 * i + 2] << 16 |
                      (uint32_t)(uint8_t)number[4 * i + 3] << 24;
    *(exact_words *)(void *)out = all;
}

/* Of 16 threads: 16 numbers into the form, and their sum. */
EXACT_INLINE void prepare_quantise(const prepare_call *call, const kernel_place *at,
                                   const float *numbers, const uint32_t *largest, int32_t *sums) {
    const form_call *out = &call->out;
    bool rotated = out->form == CALL_A8R;
    uint32_t t = at->thread, first = at->x * PREPARE_K + 16 * t, most = 0;
    uint32_t begin = rotated ? 0 : t / 2 * 2, end = rotated ? 16 : begin + 2;
    for (uint32_t i = begin; i < end; i++)
        most = largest[i] > most ? largest[i] : most;
    float limit = out->form == CALL_A16 ? 32512.0f : 127.0f, high = exact_float(most);
    float scale = 0.0f, inverse = 0.0f;
    if (!(high < 1e-30f)) {
        scale = high / limit;
        inverse = most < 0x7f800000u ? limit / high : 0.0f;
    }
    int32_t number[16], low[16], sum = 0;
    for (int i = 0; i < 16; i++) {
        int32_t n = inverse == 0.0f ? 0 : exact_nearest(numbers[16 * t + (uint32_t)i] * inverse);
        number[i] = n;
        low[i] = 0;
        if (out->form == CALL_A16) {
            number[i] = (n + (n < 0 ? -127 : 127)) / 255;
            low[i] = n - 255 * number[i];
        }
        sum += number[i];
    }
    uint64_t row = at->y;
    if (first < out->stride)
        write_words(number, out->number + row * out->stride + first);
    if (first < out->stride && out->form == CALL_A16)
        write_words(low, out->low + row * out->stride + first);
    uint32_t block = rotated ? at->x : first / 32;
    if (t == begin && first < call->k)
        out->scale[row * out->scale_stride + block] = scale;
    if (out->form != CALL_A16)
        out->integer_sum[row * out->sum_stride + first / 16] = sum;
    sums[t] = sum;
}

EXACT_INLINE void prepare_unit_sum(const prepare_call *call, const kernel_place *at,
                                   const int32_t *sums) {
    const form_call *out = &call->out;
    uint32_t block = at->x * (PREPARE_K / 32) + at->thread;
    if (block * 32 >= call->k)
        return;
    uint64_t place = (uint64_t)at->y * out->scale_stride + block;
    int32_t sum = sums[2 * at->thread] + sums[2 * at->thread + 1];
    out->sum[place] = out->scale[place] * (float)sum;
}

EXACT_INLINE void prepare_copy(const prepare_call *call, const kernel_place *at,
                               const float *numbers) {
    uint32_t i = at->x * PREPARE_K + at->thread;
    if (i < call->out.stride)
        call->out.x[(uint64_t)at->y * call->out.stride + i] = numbers[at->thread];
}

/* 256 k of a row: number at->x. */
EXACT_INLINE void prepare_part(const prepare_call *call, kernel_place *at, const float *x,
                               const float *gate) {
    float *numbers = at->shared + NORM_SHARED, *other = numbers + PREPARE_K;
    uint32_t *largest = (uint32_t *)(void *)(other + PREPARE_K);
    int32_t *sums = (int32_t *)(void *)(largest + 16);
    CUDA_EACH(at, prepare_load(call, at, x, gate, numbers));
    if (call->out.form == CALL_FLOAT) {
        CUDA_EACH(at, prepare_copy(call, at, numbers));
        return;
    }
    if (call->out.form == CALL_A8R) {
        uint32_t left = (call->k + 15) / 16 * 16 - at->x * PREPARE_K;
        uint32_t count = left < PREPARE_K ? left : PREPARE_K;
        for (uint32_t half = 1; half < PREPARE_K; half *= 2) {
            CUDA_EACH(at, rotate_number(at->thread, count, half, numbers, other));
            float *swap = numbers;
            numbers = other;
            other = swap;
        }
        CUDA_EACH(at, if (at->thread >= count) numbers[at->thread] = 0.0f);
    }
    CUDA_EACH(at, if (at->thread < 16) prepare_largest(at, numbers, largest));
    CUDA_EACH(at, if (at->thread < 16) prepare_quantise(call, at, numbers, largest, sums));
    if (call->out.form == CALL_A8)
        CUDA_EACH(at, if (at->thread < 8) prepare_unit_sum(call, at, sums));
}

/* Block (part, row): one of a row's parts, or, with fewer blocks, one behind the other, so that the
 * norm is added up once for all of them. */
EXACT_INLINE void kernel_prepare(const prepare_call *call, kernel_place *at) {
    uint64_t row = call->index != NULL ? call->index[at->y] : at->y;
    const float *x = call->x + row * call->stride;
    const float *gate = call->gate != NULL ? call->gate + row * call->stride : NULL;
    uint32_t first = at->x;
    if (call->norm.kind != CALL_NORM_NONE && call->staged) {
        float *row_copy = at->shared + PREPARE_SHARED / 4;
        CUDA_EACH(at, copy_row(at, x, call->k, row_copy));
        NORM_STAGES(at, &call->norm, row_copy, call->k, at->shared);
    } else if (call->norm.kind != CALL_NORM_NONE) {
        NORM_STAGES(at, &call->norm, x, call->k, at->shared);
    }
    for (; at->x * PREPARE_K < call->k; at->x += at->blocks)
        prepare_part(call, at, x, gate);
    at->x = first;
}

EXACT_INLINE void kernel_prepare_batch(const prepare_batch *call, kernel_place *at) {
    const prepare_call *own = &call->one[at->z];
    if (at->y < own->rows && at->x * PREPARE_K < own->k)
        kernel_prepare(own, at);
}

#endif
