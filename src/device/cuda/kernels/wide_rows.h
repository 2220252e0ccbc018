/* Rows of x for wide.h: norm or activation, rotated, quantised, and written in the order that the
 * cores read, which wide.h describes. Formulas: device/cpu/activation.h. Called by
 * device/cuda/wide.c; cannot fail. */
#ifndef AVO_DEVICE_CUDA_KERNELS_WIDE_ROWS_H
#define AVO_DEVICE_CUDA_KERNELS_WIDE_ROWS_H

#include "device/cuda/kernels/wide.h"

/* The usual one in line. */
EXACT_INLINE float wide_activation(uint32_t kind, float x) {
    return kind == EXACT_SILU ? x * fused_sigmoid(x) : input_activation(kind, x);
}

/* Of a lane: 8 numbers from `lane · 8` on. */
EXACT_INLINE void wide_load(const prepare_call *call, const kernel_place *at, const float *x,
                            const float *gate, float mean, float scale, uint32_t begin,
                            lane_numbers *numbers) {
    EACH_LANE(at, own) {
        uint32_t first = begin + lane * LANE_K;
        float a[LANE_K], b[LANE_K];
        for (uint32_t j = 0; j < LANE_K; j++)
            a[j] = b[j] = 0.0f;
        if (first + LANE_K <= call->k && call->k % 4 == 0) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t half = 0; half < 2; half++) {
                exact_words w = exact_load_words(x + first + 4 * half), g = w;
                if (gate != NULL)
                    g = exact_load_words(gate + first + 4 * half);
                for (uint32_t j = 0; j < 4; j++) {
                    a[4 * half + j] = exact_float(w.word[j]);
                    b[4 * half + j] = exact_float(g.word[j]);
                }
            }
        } else {
            for (uint32_t j = 0; j < LANE_K; j++)
                if (first + j < call->k) {
                    a[j] = x[first + j];
                    b[j] = gate != NULL ? gate[first + j] : 0.0f;
                }
        }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t j = 0; j < LANE_K; j++) {
            float y = a[j];
            if (first + j < call->k) {
                if (call->norm.kind != CALL_NORM_NONE)
                    y = norm_apply(&call->norm, at->x, first + j, y, mean, scale);
                if (call->activated)
                    y = gate != NULL ? wide_activation(call->activation, b[j]) * y
                                     : wide_activation(call->activation, y);
            }
            numbers[own].y[j] = y;
        }
    }
}

/* A word of four numbers to where the cores read it: `word` of the super-block's 64. */
EXACT_INLINE void wide_put(uint8_t *group, uint32_t row, uint32_t word, uint32_t four) {
    uint32_t core = word / 8 * 2 + word % 2;
    *(uint32_t *)(void *)(group + core * WGMMA_CORE + row % 8 * 16 + word % 8 / 2 * 4) = four;
}

EXACT_INLINE void wide_quantise(const prepare_call *call, const kernel_place *at, uint32_t step,
                                const lane_numbers *numbers) {
    uint32_t most[OWN_LANES], padded = call->padded;
    uint8_t *group = (uint8_t *)call->out.number + ((uint64_t)step * padded + at->x / 8 * 8) * 256;
    EACH_LANE(at, own) {
        most[own] = 0;
        for (uint32_t j = 0; j < LANE_K; j++) {
            uint32_t bits = exact_bits(numbers[own].y[j]) & 0x7fffffffu;
            most[own] = bits > most[own] ? bits : most[own];
        }
    }
    warp_highest(at, most, 16);
    EACH_LANE(at, own) {
        float inverse, scale = lane_scale(most[own], 127.0f, &inverse);
        int32_t number[LANE_K];
        for (uint32_t j = 0; j < LANE_K; j++)
            number[j] = inverse == 0.0f ? 0 : exact_nearest(numbers[own].y[j] * inverse);
        wide_put(group, at->x, 2 * lane, four_bytes(number));
        wide_put(group, at->x, 2 * lane + 1, four_bytes(number + 4));
        if (lane == 0)
            call->out.scale[(uint64_t)step * padded + at->x] = scale;
    }
}

EXACT_INLINE void wide_x_row(const prepare_call *call, const kernel_place *at, const float *x,
                             const float *gate) {
    bool normed = call->norm.kind != CALL_NORM_NONE;
    float mean = normed ? norm_mean(&call->norm, call->k, at->shared) : 0.0f;
    float scale = normed ? norm_scale(&call->norm, call->k, at->shared) : 0.0f;
    for (uint32_t step = at->y * warps_of(at) + warp_of(at); step * INPUT_K < call->k;
         step += call->parts * warps_of(at)) {
        uint32_t left = (call->k + 15) / 16 * 16 - step * INPUT_K;
        lane_numbers numbers[OWN_LANES];
        wide_load(call, at, x, gate, mean, scale, step * INPUT_K, numbers);
        lane_rotate(at, left < INPUT_K ? left : INPUT_K, numbers);
        wide_quantise(call, at, step, numbers);
    }
}

/* Block (row, part of it). */
EXACT_INLINE void kernel_wide_x(const prepare_call *call, kernel_place *at) {
    uint64_t row = call->index != NULL ? call->index[at->x] : at->x;
    const float *x = call->x + row * call->stride;
    const float *gate = call->gate != NULL ? call->gate + row * call->stride : NULL;
    if (call->norm.kind != CALL_NORM_NONE && call->staged) {
        float *copy = at->shared + NORM_SHARED;
        CUDA_EACH(at, copy_row(at, x, call->k, copy));
        NORM_STAGES(at, &call->norm, copy, call->k, at->shared);
        x = copy;
    } else if (call->norm.kind != CALL_NORM_NONE) {
        NORM_STAGES(at, &call->norm, x, call->k, at->shared);
    }
    CUDA_WARPS(at, wide_x_row(call, at, x, gate));
}

#endif
