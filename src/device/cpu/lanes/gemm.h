/* Tiles of general matrix products (device/cpu/gemm/kernels.h), written once for vectors of 16
 * floats. An instruction set defines GEMM_ROWS and GEMM_STRIPS, the largest tile whose sums, a
 * row's strips and one number of A fit its registers.
 *
 * A lane is a column of C, so no sum crosses lanes. For each k a tile loads a vector per strip and
 * one number per row, which it multiplies with all strips. */
#ifndef AVO_DEVICE_CPU_LANES_GEMM_H
#define AVO_DEVICE_CPU_LANES_GEMM_H

#include "device/cpu/gemm/kernels.h"

#define GEMM_INLINE static inline __attribute__((always_inline))

GEMM_INLINE void gemm_store(const gemm_tile *t, vec16 sum, float *c, size_t columns) {
    vec16 scale = v_set(t->scale);
    if (columns >= LANES)
        v_store(c, t->add ? v_fma(scale, sum, v_load(c)) : v_mul(scale, sum));
    else
        v_store_part(c, t->add ? v_fma(scale, sum, v_load_part(c, columns)) : v_mul(scale, sum),
                     columns);
}

GEMM_INLINE void gemm_lanes_tile(const int rows, const int strips, const gemm_tile *t) {
    vec16 sum[GEMM_ROWS * GEMM_STRIPS];
    const float *a = t->a, *b = t->b;
#pragma GCC unroll 64
    for (int i = 0; i < rows * strips; i++)
        sum[i] = v_zero();
    for (int row = 0; row < rows; row++)
        __builtin_prefetch(t->c + (size_t)row * t->c_stride, 1);
    for (size_t k = 0; k < t->k; k++, b += LANES) {
        vec16 column[GEMM_STRIPS];
#pragma GCC unroll 4
        for (int strip = 0; strip < strips; strip++)
            column[strip] = v_load(b + (size_t)strip * t->strip_stride);
#pragma GCC unroll 16
        for (int row = 0; row < rows; row++) {
            vec16 x = v_set(a[(size_t)row * GEMM_A_STRIDE + k]);
#pragma GCC unroll 4
            for (int strip = 0; strip < strips; strip++)
                sum[row * strips + strip] = v_fma(x, column[strip], sum[row * strips + strip]);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int strip = 0; strip < strips; strip++)
            gemm_store(t, sum[row * strips + strip],
                       t->c + (size_t)row * t->c_stride + strip * LANES,
                       t->columns - (uint32_t)strip * LANES);
}

#endif
