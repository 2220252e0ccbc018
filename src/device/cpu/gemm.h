/* Matrix products for training: c = scale · a · b, or c += scale · a · b. */
#ifndef AVO_DEVICE_CPU_GEMM_H
#define AVO_DEVICE_CPU_GEMM_H

#include "base/team.h"
#include "quant/quant.h"

/* Element (i, j) is data[i * row_stride + j * column_stride], or of `weight` row i, column j
 * (transposed: row j, column i). */
typedef struct gemm_operand {
    const float *data;
    size_t row_stride, column_stride;
    const weight_view *weight;
    bool transposed;
} gemm_operand;
typedef enum gemm_precision { GEMM_F32, GEMM_BF16 } gemm_precision;
typedef struct gemm_call {
    size_t m, n, k;
    gemm_operand a; /* m × k */
    gemm_operand b; /* k × n */
    float *c;
    size_t c_stride;
    float scale;
    bool add;
    gemm_precision precision;
} gemm_call;
typedef struct gemm gemm;
AVO_MUST_USE avo_status gemm_open(const avo_allocator *allocator, const char *isa, team *team,
                                  gemm **out, avo_error *error);
void gemm_close(gemm *gemm);
void gemm_run(gemm *gemm, const gemm_call *calls, size_t count);
bool gemm_has_bf16(const gemm *gemm);

#endif
