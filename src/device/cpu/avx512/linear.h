/* The products of AVX-512 VNNI by type, for their own table and for amx/, which leaves few rows to
 * them. */
#ifndef AVO_DEVICE_CPU_AVX512_LINEAR_H
#define AVO_DEVICE_CPU_AVX512_LINEAR_H

#include "device/cpu/ops.h"

void linear_avx512_f32(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_f16(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_bf16(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_f8c(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q8c(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q8_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q4_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q4_1(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q4b64(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q4m64(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q5_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q5_1(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_iq4_nl(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_mxfp4(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q2_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q3_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q4_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q5_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q6_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_iq4_xs(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q8r(const linear_call *call, size_t first, size_t last, uint8_t *scratch);
void linear_avx512_q4r(const linear_call *call, size_t first, size_t last, uint8_t *scratch);

#endif
