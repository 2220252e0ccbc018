/* Activations in the forms that matrix products read, and the arithmetic that every back end but
 * ref/ computes, bit for bit. plain/ is this page in C; tests compare the fast ones with it.
 *
 * Quantising one row x[k], block by block: 32 k for A8 and A16; 256 k for A8R, whose x is first
 * padded with zeros to a multiple of 16 and rotated by quant_rotate. The last block may be shorter;
 * numbers and x behind it, up to the stride, are zero.
 *
 *   largest  the largest of |x| over the block, compared as the bits of the magnitudes, so that a
 *            NaN wins and shows in the result
 *
 *   A8, A8R  largest < ACTIVATION_TINY: scale 0, numbers 0. Otherwise scale = largest / 127 and
 *            number = x · (127 / largest) to the nearest integer, ties to even. Where largest is
 *            not finite the numbers are 0, and the scale makes every product NaN.
 *
 *   A16      the same with 32512 instead of 127; the integer n is kept as two bytes: high = n / 255
 *            to the nearest, low = n − 255 · high, both in −127 … 127
 *
 *   integer_sum (A8, A8R)  the sum of the numbers of 16 k, two for every 32 k that begin before k
 *   sum (A8)               scale · (float)(sum of the numbers of 32 k)
 *
 * Products. Accumulator f = 0, one per row and output, k ascending; integer sums I are exact;
 * fma(a, b, c) rounds once; F(I) is I as float, rounded to nearest:
 *   A8    per 32 k:  f = fma(F(I), weight scale · scale, f), for types with blocks of 16 twice,
 *                    first and second half; then, where the type has minima,
 *                    f = fma(minimum, sum, f), for blocks of 16 each right behind its half, with
 *                    scale · F(integer_sum) as its sum
 *   A16   per 32 k:  I = 255 · I_high + I_low;  Q8_0, Q8B: f = fma(F(I), weight scale · scale, f);
 *                    Q8C: f = fma(F(I), scale, f), and f · weight scale at the end
 *   A8R   per 256 k: Q4R: f = fma(F(I), weight scale · scale, f);
 *                    Q8R: f = fma(F(I), scale, f), and f · weight scale at the end
 *   FLOAT per k:     f = fma(weight, x, f); F8C: f · weight scale at the end
 * I is over numbers with zero point, codebook and multiplier applied (panel_unit). Then
 *   y = f, or f + bias;  STORE: out = y;  ADD: out = fma(y, add_scale, out).
 */
#ifndef AVO_DEVICE_CPU_ACTIVATION_H
#define AVO_DEVICE_CPU_ACTIVATION_H

#include "quant/panels.h"

#define ACTIVATION_TINY 1e-30f

/* Rows of activations in one form. Buffers belong to the engine's scratch; each row begins at a
 * multiple of 64 bytes in every array. */
typedef struct activation_view {
    product_form form;
    uint32_t rows;
    uint32_t k;
    size_t stride;        /* activation_stride(k): elements between rows of x, number and low */
    float *x;             /* FLOAT */
    int8_t *number;       /* A8, A8R; A16: the high bytes */
    int8_t *low;          /* A16 */
    float *scale;         /* [rows][scale_stride]: per 32 k, A8R: per 256 k */
    float *sum;           /* A8: [rows][scale_stride] */
    int32_t *integer_sum; /* A8, A8R: [rows][sum_stride]: per 16 k */
    size_t scale_stride;
    size_t sum_stride;
} activation_view;

/* k in whole lines, and an odd number of them: rows that kernels read side by side then fall into
 * different cache sets. */
static inline size_t activation_stride(size_t k) {
    size_t lines = (k + 63) / 64;
    return (lines + (lines % 2 == 0)) * 64;
}

static inline size_t activation_scale_stride(size_t k) {
    return ((k + 31) / 32 + 15) / 16 * 16;
}

static inline size_t activation_sum_stride(size_t k) {
    return ((k + 15) / 16 + 15) / 16 * 16;
}

/* Bytes of `rows` rows that can hold any form for rows of up to k. */
size_t activation_bytes(size_t rows, size_t k);
/* Lays a view of rows × k in `form` into a block of activation_bytes(rows, k) bytes. */
activation_view activation_lay(product_form form, uint32_t rows, uint32_t k, uint8_t *block);
/* The same view with its first row at `row` and its first column at `begin`, where a block of the
 * form begins. How many rows and columns it has from there on is left to the caller. */
activation_view activation_from(const activation_view *view, uint32_t row, size_t begin);
/* Copies row `from_row` of one view into row `to_row` of another of the same form and k. */
void activation_copy_row(const activation_view *from, uint32_t from_row, const activation_view *to,
                         uint32_t to_row);

#endif
