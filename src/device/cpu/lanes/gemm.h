/* Tiles of general matrix products (device/cpu/gemm/kernels.h), written once for vectors of 16
 * floats. An instruction set defines GEMM_ROWS and GEMM_STRIPS, the largest tile whose sums, a
 * row's strips and one number of A fit its registers.
 *
 * A lane is a column of C, so no sum crosses lanes. For each k a tile loads a vector per strip and
 * one number per row, which it multiplies with all strips. */
#ifndef AVO_DEVICE_CPU_LANES_GEMM_H
#define AVO_DEVICE_CPU_LANES_GEMM_H

#include "device/cpu/gemm/kernels.h"

#define GEMM_AHEAD 16 /* k that are asked for ahead: B may be rows of a matrix, far apart */

/* What a tile does with a number of A, a vector of B and a sum. */
#ifndef GEMM_MULTIPLY
#define GEMM_MULTIPLY(x, y, sum) v_fma((x), (y), (sum))
#endif

#define GEMM_INLINE static inline __attribute__((always_inline))

/* Sums into C. `part`: the last strip ends inside a vector. */
GEMM_INLINE void gemm_store(const int rows, const int strips, const bool add, const bool part,
                            const gemm_tile *t, const vec16 *sum) {
    const vec16 scale = v_set(t->scale);
    const size_t last = t->columns - (size_t)(strips - 1) * LANES;
    const size_t stride = t->c_stride;
    float *c = t->c;
#pragma GCC unroll 16
    for (int row = 0; row < rows; row++, c += stride)
#pragma GCC unroll 4
        for (int strip = 0; strip < strips; strip++) {
            vec16 x = sum[row * strips + strip];
            float *to = c + strip * LANES;
            if (part && strip == strips - 1) {
                x = add ? v_fma(scale, x, v_load_part(to, last)) : v_mul(scale, x);
                v_store_part(to, x, last);
            } else {
                v_store(to, add ? v_fma(scale, x, v_load(to)) : v_mul(scale, x));
            }
        }
}

GEMM_INLINE void gemm_lanes_tile(const int rows, const int strips, const gemm_tile *t) {
    vec16 sum[GEMM_ROWS * GEMM_STRIPS];
    const float *a = t->a, *b = t->b;
    const size_t step = t->b_step;
#pragma GCC unroll 64
    for (int i = 0; i < rows * strips; i++)
        sum[i] = v_zero();
    for (int row = 0; row < rows; row++)
        for (int strip = 0; strip < strips; strip++)
            __builtin_prefetch(t->c + (size_t)row * t->c_stride + strip * LANES, 1);
    for (size_t k = 0; k < t->k; k++, b += step) {
        vec16 column[GEMM_STRIPS];
#pragma GCC unroll 4
        for (int strip = 0; strip < strips; strip++) {
            column[strip] = v_load(b + (size_t)strip * t->strip_stride);
            __builtin_prefetch(b + (size_t)strip * t->strip_stride + GEMM_AHEAD * step);
        }
#pragma GCC unroll 16
        for (int row = 0; row < rows; row++) {
            vec16 x = v_set(a[(size_t)row * GEMM_A_STRIDE + k]);
#pragma GCC unroll 4
            for (int strip = 0; strip < strips; strip++) {
                vec16 *to = &sum[row * strips + strip];
                *to = GEMM_MULTIPLY(x, column[strip], *to);
            }
        }
    }
    if (t->columns == (uint32_t)strips * LANES && t->add)
        gemm_store(rows, strips, true, false, t, sum);
    else if (t->columns == (uint32_t)strips * LANES)
        gemm_store(rows, strips, false, false, t, sum);
    else if (t->add)
        gemm_store(rows, strips, true, true, t, sum);
    else
        gemm_store(rows, strips, false, true, t, sum);
}

#define GEMM_ROWS_CASE(count)                                                                      \
    case count:                                                                                    \
        if (GEMM_STRIPS == 1 || t->columns <= LANES)                                               \
            gemm_lanes_tile(count, 1, t);                                                          \
        else                                                                                       \
            gemm_lanes_tile(count, GEMM_STRIPS, t);                                                \
        return;

/* The tile with its rows and strips as constants. */
GEMM_INLINE void gemm_tile_of_6(const gemm_tile *t) {
    switch (t->rows) {
        GEMM_ROWS_CASE(1)
        GEMM_ROWS_CASE(2)
        GEMM_ROWS_CASE(3)
        GEMM_ROWS_CASE(4)
        GEMM_ROWS_CASE(5)
        GEMM_ROWS_CASE(6)
    }
}

#if GEMM_ROWS == 14
GEMM_INLINE void gemm_tile_of_14(const gemm_tile *t) {
    switch (t->rows) {
        GEMM_ROWS_CASE(7)
        GEMM_ROWS_CASE(8)
        GEMM_ROWS_CASE(9)
        GEMM_ROWS_CASE(10)
        GEMM_ROWS_CASE(11)
        GEMM_ROWS_CASE(12)
        GEMM_ROWS_CASE(13)
        GEMM_ROWS_CASE(14)
    }
    gemm_tile_of_6(t);
}
#endif

#endif
