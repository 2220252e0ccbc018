/* Inside avx2/: the parts of which ops_avx2 fills the table. */
#ifndef AVO_DEVICE_CPU_AVX2_INT_H
#define AVO_DEVICE_CPU_AVX2_INT_H

#include "device/cpu/ops.h"

void avx2_quantise(const float *x, const activation_view *out, uint32_t row, uint8_t *scratch);

/* The products: linear_float.c, linear_word.c (8 bit and the codebook of IQ4), linear_block.c,
 * linear_k.c, linear_q4r.c, linear_q8r.c. */
linear_function avx2_linear_f32, avx2_linear_f16, avx2_linear_bf16, avx2_linear_f8c;
linear_function avx2_linear_q8, avx2_linear_q8c, avx2_linear_iq4_nl, avx2_linear_iq4_xs;
linear_function avx2_linear_q4_0, avx2_linear_q4_1, avx2_linear_q4b64, avx2_linear_q4m64;
linear_function avx2_linear_q5_0, avx2_linear_q5_1, avx2_linear_mxfp4;
linear_function avx2_linear_q2_k, avx2_linear_q3_k, avx2_linear_q4_k, avx2_linear_q5_k,
    avx2_linear_q6_k;
linear_function avx2_linear_q4r, avx2_linear_q8r;
/* The same with AVX-VNNI (vnni_*.c), and what puts them into a table. */
linear_function avx2_vnni_linear_q8, avx2_vnni_linear_q8c, avx2_vnni_linear_iq4_nl,
    avx2_vnni_linear_iq4_xs;
linear_function avx2_vnni_linear_q4_0, avx2_vnni_linear_q4_1, avx2_vnni_linear_q4b64,
    avx2_vnni_linear_q4m64;
linear_function avx2_vnni_linear_q5_0, avx2_vnni_linear_q5_1, avx2_vnni_linear_mxfp4;
linear_function avx2_vnni_linear_q2_k, avx2_vnni_linear_q3_k, avx2_vnni_linear_q4_k,
    avx2_vnni_linear_q5_k, avx2_vnni_linear_q6_k;
linear_function avx2_vnni_linear_q4r, avx2_vnni_linear_q8r;
void avx2_vnni(op_table *table);
void avx2_attention(op_table *table);

#endif
