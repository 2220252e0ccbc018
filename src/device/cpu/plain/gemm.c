/* General matrix products in plain C: the order of sums that gemm.h promises, one element after the
 * other. */
#include "base/checked.h"
#include "device/cpu/gemm/kernels.h"

#include <math.h>
#include <string.h>

static void plain_tile(const gemm_tile *t) {
    for (uint32_t row = 0; row < t->rows; row++)
        for (uint32_t column = 0; column < t->columns; column++) {
            const float *a = t->a + (size_t)row * GEMM_A_STRIDE;
            const float *b = t->b + column / GEMM_STRIP * t->strip_stride + column % GEMM_STRIP;
            float *c = t->c + row * t->c_stride + column, sum = 0.0f;
            for (size_t k = 0; k < t->k; k++)
                sum = fmaf(a[k], b[k * t->b_step], sum);
            *c = t->add ? fmaf(t->scale, sum, *c) : t->scale * sum;
        }
}

static void plain_transpose(const float *from, size_t from_stride, size_t rows, size_t columns,
                            float *to, size_t to_stride) {
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            to[j * to_stride + i] = from[i * from_stride + j];
}

static void plain_round(float *numbers, size_t count) {
    for (size_t i = 0; i < count; i++)
        numbers[i] = quant_bf16_to_f32(quant_f32_to_bf16(numbers[i]));
}

void gemm_kernels_plain(gemm_kernels *kernels) {
    *kernels = (gemm_kernels){.name = "plain",
                              .rows = 4,
                              .strips = 1,
                              .tile = plain_tile,
                              .transpose = plain_transpose,
                              .decode = weight_decode_block,
                              .round = plain_round};
}
