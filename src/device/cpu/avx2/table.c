/* What AVX2 (with FMA and F16C) overwrites in the op table. */
#include "device/cpu/avx2/avx2_int.h"

void ops_avx2(op_table *table) {
    table->name = "avx2";
    table->quantise = avx2_quantise;
    table->linear[PANEL_F32] = avx2_linear_f32;
    table->linear[PANEL_F16] = avx2_linear_f16;
    table->linear[PANEL_BF16] = avx2_linear_bf16;
    table->linear[PANEL_F8C] = avx2_linear_f8c;
    table->linear[PANEL_Q8C] = avx2_linear_q8c;
    table->linear[PANEL_Q8B] = avx2_linear_q8;
    table->linear[PANEL_Q8_0] = avx2_linear_q8;
    table->linear[PANEL_Q4_0] = avx2_linear_q4_0;
    table->linear[PANEL_Q4_1] = avx2_linear_q4_1;
    table->linear[PANEL_Q4B64] = avx2_linear_q4b64;
    table->linear[PANEL_Q4M64] = avx2_linear_q4m64;
    table->linear[PANEL_Q5_0] = avx2_linear_q5_0;
    table->linear[PANEL_Q5_1] = avx2_linear_q5_1;
    table->linear[PANEL_IQ4_NL] = avx2_linear_iq4_nl;
    table->linear[PANEL_MXFP4] = avx2_linear_mxfp4;
    table->linear[PANEL_Q2_K] = avx2_linear_q2_k;
    table->linear[PANEL_Q3_K] = avx2_linear_q3_k;
    table->linear[PANEL_Q4_K] = avx2_linear_q4_k;
    table->linear[PANEL_Q5_K] = avx2_linear_q5_k;
    table->linear[PANEL_Q6_K] = avx2_linear_q6_k;
    table->linear[PANEL_IQ4_XS] = avx2_linear_iq4_xs;
    table->linear[PANEL_Q4R] = avx2_linear_q4r;
    table->linear[PANEL_Q8R] = avx2_linear_q8r;
    avx2_elementwise(table);
    avx2_attention(table);
}
