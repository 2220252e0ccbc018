/* Sums of outer products, which calibration and the factor of its moments are made of. */
#ifndef AVO_PACK_OUTER_H
#define AVO_PACK_OUTER_H

#include <stddef.h>
#include <string.h>

#define OUTER_TILE 16

typedef float outer_quad __attribute__((vector_size(16), aligned(4), may_alias));

/* result[a][b] = Σ_row x[row][i + a] · x[row][j + b], rows in order. Stride in floats. */
static inline void outer_four(const float *x, size_t stride, size_t rows, size_t i, size_t j,
                              float result[4][OUTER_TILE]) {
    outer_quad acc[4][OUTER_TILE / 4] = {0};
    for (size_t row = 0; row < rows; row++) {
        const float *at = x + row * stride;
        const outer_quad *right = (const outer_quad *)(at + j);
        for (int a = 0; a < 4; a++)
            for (int q = 0; q < OUTER_TILE / 4; q++)
                acc[a][q] += right[q] * at[i + (size_t)a];
    }
    memcpy(result, acc, sizeof(acc));
}

/* A tile of 16 × 16 at (i, j), of which what lies above the diagonal is left alone:
 * out[i + a][j + b] += sign · the sum. */
static inline void outer_add(const float *x, size_t stride, size_t rows, size_t i, size_t j,
                             float sign, float *out, size_t out_stride) {
    for (size_t a = 0; a < OUTER_TILE; a += 4) {
        float result[4][OUTER_TILE];
        outer_four(x, stride, rows, i + a, j, result);
        for (size_t row = i + a; row < i + a + 4; row++) {
            size_t end = row + 1 - j < OUTER_TILE ? row + 1 - j : OUTER_TILE;
            for (size_t b = 0; b < end; b++)
                out[row * out_stride + j + b] += sign * result[row - i - a][b];
        }
    }
}

#endif
