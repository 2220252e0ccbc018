/* General matrix products for training: C = scale · A · B, or C += scale · A · B, where A and B are
 * floats in any strides or weight matrices of any type, which are dequantised while they are
 * packed. The steps of an engine do not use this: their products quantise activations (ops.h).
 *
 * A `gemm` owns the scratch that products need: GEMM_SHARED_BYTES for packed operands and
 * GEMM_WORKER_BYTES for each worker, whatever the sizes. Only gemm_open can fail.
 *
 * Order of sums. k is cut into blocks of GEMM_BLOCK_K, of twice that with GEMM_BF16. Inside a block
 * an element's sum begins with 0 and adds its products in ascending order of k, by fma. The blocks
 * are added to C in ascending order: C = scale · sum of the first (fma(scale, sum, C) where `add`),
 * then C = fma(scale, sum, C). So the bits of an element do not depend on threads, on m and n, or
 * on which other rows and columns are computed with it. With GEMM_F32 all instruction sets give the
 * same bits, GEMM_BF16 is described at gemm_precision. */
#ifndef AVO_DEVICE_CPU_GEMM_H
#define AVO_DEVICE_CPU_GEMM_H

#include "base/team.h"
#include "quant/quant.h"

#define GEMM_BLOCK_K      256
#define GEMM_SHARED_BYTES ((size_t)8 << 20)
#define GEMM_WORKER_BYTES ((size_t)1 << 20)

typedef struct gemm gemm;

typedef enum gemm_precision {
    GEMM_F32,
    /* Operands are rounded to bfloat16 (nearest, ties to even), sums are f32. Of every two k (even,
     * odd) the odd one is added first: so does vdpbf16ps, and without it floats are added in that
     * order. All instruction sets give the same bits (checked on Zen 5; Intel documents the same
     * order) unless an operand, a product or a sum is below 2^-126, which vdpbf16ps takes for 0. */
    GEMM_BF16
} gemm_precision;

/* A matrix, elements (i, j). Exactly one of `data` and `weight` is given.
 * Floats: data[i · row_stride + j · column_stride]; a transposed matrix has its strides exchanged.
 * Weights: in any type and layout; element (i, j) is row i, column j of the weight, or row j,
 * column i where `transposed`. */
typedef struct gemm_operand {
    const float *data;
    size_t row_stride, column_stride;
    const weight_view *weight;
    bool transposed;
} gemm_operand;

typedef struct gemm_call {
    size_t m, n, k;  /* any of them may be 0 */
    gemm_operand a;  /* m × k */
    gemm_operand b;  /* k × n */
    float *c;        /* m × n, rows c_stride apart; overlaps no operand */
    size_t c_stride; /* at least n */
    float scale;
    bool add; /* to what C holds; otherwise C is not read */
    gemm_precision precision;
} gemm_call;

/* `isa`: an instruction set ("plain", "avx2", "avx512", …), NULL or "" for the best one here; the
 * reference device's name means "plain". Fails for an unknown one, for one that this machine lacks,
 * and without memory. The team is the caller's and outlives the gemm; it may be resized later, but
 * not beyond the size that it has now. */
AVO_MUST_USE avo_status gemm_open(const avo_allocator *allocator, const char *isa, team *team,
                                  gemm **out, avo_error *error);
void gemm_close(gemm *gemm);

/* Computes all calls and returns when they are done, by the thread that runs the team's programs.
 * Calls are independent of each other: no operand or C of one overlaps the C of another. Several
 * small calls are faster together than one after the other. */
void gemm_run(gemm *gemm, const gemm_call *calls, size_t count);

/* Whether GEMM_BF16 is faster than GEMM_F32 here: the processor multiplies bfloat16. */
bool gemm_has_bf16(const gemm *gemm);
/* "plain", "avx2", "avx512": whose kernels compute. */
const char *gemm_isa(const gemm *gemm);

/* Operands in the usual layouts. */
static inline gemm_operand gemm_rows(const float *data, size_t row_stride) {
    return (gemm_operand){.data = data, .row_stride = row_stride, .column_stride = 1};
}
/* The transpose of what gemm_rows describes. */
static inline gemm_operand gemm_columns(const float *data, size_t row_stride) {
    return (gemm_operand){.data = data, .row_stride = 1, .column_stride = row_stride};
}
static inline gemm_operand gemm_weight(const weight_view *weight, bool transposed) {
    return (gemm_operand){.weight = weight, .transposed = transposed};
}

#endif
