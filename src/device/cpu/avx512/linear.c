/* The products of this folder in the op table. */
#include "device/cpu/avx512/linear_int.h"

#include "device/cpu/avx512/avx512_int.h"

void avx512_linear(op_table *table) {
    table->linear[PANEL_F32] = linear_avx512_f32;
    table->linear[PANEL_F16] = linear_avx512_f16;
    table->linear[PANEL_BF16] = linear_avx512_bf16;
    table->linear[PANEL_F8C] = linear_avx512_f8c;
    table->linear[PANEL_Q8C] = linear_avx512_q8c;
    table->linear[PANEL_Q8B] = linear_avx512_q8_0;
    table->linear[PANEL_Q8_0] = linear_avx512_q8_0;
    table->linear[PANEL_Q4_0] = linear_avx512_q4_0;
    table->linear[PANEL_Q4_1] = linear_avx512_q4_1;
    table->linear[PANEL_Q4B64] = linear_avx512_q4b64;
    table->linear[PANEL_Q4M64] = linear_avx512_q4m64;
    table->linear[PANEL_Q5_0] = linear_avx512_q5_0;
    table->linear[PANEL_Q5_1] = linear_avx512_q5_1;
    table->linear[PANEL_IQ4_NL] = linear_avx512_iq4_nl;
    table->linear[PANEL_MXFP4] = linear_avx512_mxfp4;
    table->linear[PANEL_Q2_K] = linear_avx512_q2_k;
    table->linear[PANEL_Q3_K] = linear_avx512_q3_k;
    table->linear[PANEL_Q4_K] = linear_avx512_q4_k;
    table->linear[PANEL_Q5_K] = linear_avx512_q5_k;
    table->linear[PANEL_Q6_K] = linear_avx512_q6_k;
    table->linear[PANEL_IQ4_XS] = linear_avx512_iq4_xs;
    table->linear[PANEL_Q4R] = linear_avx512_q4r;
    table->linear[PANEL_Q8R] = linear_avx512_q8r;
}
