/* Inside avx512/: the parts of which ops_avx512 fills the table. */
#ifndef AVO_DEVICE_CPU_AVX512_INT_H
#define AVO_DEVICE_CPU_AVX512_INT_H

#include "device/cpu/gemm/kernels.h"
#include "device/cpu/ops.h"

void avx512_quantise(const float *x, const activation_view *out, uint32_t row, uint8_t *scratch);
void avx512_attention(op_table *table);
/* For processors that have AVX512_BF16, which the caller has checked. */
void avx512_bf16_gemm(gemm_kernels *kernels);

#endif
