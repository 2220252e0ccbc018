/* The products of AVX-512 VNNI by type, for their own table and for amx/, which leaves few rows to
 * them. */
#ifndef AVO_DEVICE_CPU_AVX512_LINEAR_H
#define AVO_DEVICE_CPU_AVX512_LINEAR_H

#include "device/cpu/ops.h"

linear_function linear_avx512_f32, linear_avx512_f16, linear_avx512_bf16, linear_avx512_f8c;
linear_function linear_avx512_q8c, linear_avx512_q8_0, linear_avx512_q4_0, linear_avx512_q4_1;
linear_function linear_avx512_q4b64, linear_avx512_q4m64, linear_avx512_q5_0, linear_avx512_q5_1;
linear_function linear_avx512_iq4_nl, linear_avx512_mxfp4, linear_avx512_q2_k, linear_avx512_q3_k;
linear_function linear_avx512_q4_k, linear_avx512_q5_k, linear_avx512_q6_k, linear_avx512_iq4_xs;
linear_function linear_avx512_q8r, linear_avx512_q4r;

#endif
