/* What AVX-VNNI overwrites in the table of AVX2, where the processor has it: vpdpbusd and vpdpwssd
 * in 256 bits add products to int32 at once, where AVX2 alone takes two or three instructions.
 * Client processors of Intel have it without AVX-512 (from Alder Lake on). Integers are exact
 * either way, so that the bits are the same. */
#include "device/cpu/avx2/avx2_int.h"

void avx2_vnni(op_table *table) {
    table->linear[PANEL_Q8C] = avx2_vnni_linear_q8c;
    table->linear[PANEL_Q8B] = table->linear[PANEL_Q8_0] = avx2_vnni_linear_q8;
    table->linear[PANEL_Q4_0] = avx2_vnni_linear_q4_0;
    table->linear[PANEL_Q4_1] = avx2_vnni_linear_q4_1;
    table->linear[PANEL_Q4B64] = avx2_vnni_linear_q4b64;
    table->linear[PANEL_Q4M64] = avx2_vnni_linear_q4m64;
    table->linear[PANEL_Q5_0] = avx2_vnni_linear_q5_0;
    table->linear[PANEL_Q5_1] = avx2_vnni_linear_q5_1;
    table->linear[PANEL_IQ4_NL] = avx2_vnni_linear_iq4_nl;
    table->linear[PANEL_MXFP4] = avx2_vnni_linear_mxfp4;
    table->linear[PANEL_Q2_K] = avx2_vnni_linear_q2_k;
    table->linear[PANEL_Q3_K] = avx2_vnni_linear_q3_k;
    table->linear[PANEL_Q4_K] = avx2_vnni_linear_q4_k;
    table->linear[PANEL_Q5_K] = avx2_vnni_linear_q5_k;
    table->linear[PANEL_Q6_K] = avx2_vnni_linear_q6_k;
    table->linear[PANEL_IQ4_XS] = avx2_vnni_linear_iq4_xs;
    table->linear[PANEL_Q4R] = avx2_vnni_linear_q4r;
    table->linear[PANEL_Q8R] = avx2_vnni_linear_q8r;
}
