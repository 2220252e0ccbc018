/* What AVX-512 (F, BW, DQ, VL and VNNI) overwrites in the op table. Norms, activations, residuals
 * and logits are those of lanes/, in one register. */
#include "device/cpu/avx512/vec16.h"

#include "device/cpu/avx512/avx512_int.h"
#include "device/cpu/avx512/linear.h"
#include "device/cpu/isa.h"
#include "device/cpu/lanes/elementwise.h"

void ops_avx512(op_table *table) {
    static const linear_op products[PANEL_INDEX_COUNT] = {
        [PANEL_F32] = linear_avx512_f32,       [PANEL_F16] = linear_avx512_f16,
        [PANEL_BF16] = linear_avx512_bf16,     [PANEL_F8C] = linear_avx512_f8c,
        [PANEL_Q8C] = linear_avx512_q8c,       [PANEL_Q8B] = linear_avx512_q8_0,
        [PANEL_Q8_0] = linear_avx512_q8_0,     [PANEL_Q4_0] = linear_avx512_q4_0,
        [PANEL_Q4_1] = linear_avx512_q4_1,     [PANEL_Q4B64] = linear_avx512_q4b64,
        [PANEL_Q4M64] = linear_avx512_q4m64,   [PANEL_Q5_0] = linear_avx512_q5_0,
        [PANEL_Q5_1] = linear_avx512_q5_1,     [PANEL_IQ4_NL] = linear_avx512_iq4_nl,
        [PANEL_MXFP4] = linear_avx512_mxfp4,   [PANEL_Q2_K] = linear_avx512_q2_k,
        [PANEL_Q3_K] = linear_avx512_q3_k,     [PANEL_Q4_K] = linear_avx512_q4_k,
        [PANEL_Q5_K] = linear_avx512_q5_k,     [PANEL_Q6_K] = linear_avx512_q6_k,
        [PANEL_IQ4_XS] = linear_avx512_iq4_xs, [PANEL_Q4R] = linear_avx512_q4r,
        [PANEL_Q8R] = linear_avx512_q8r,
    };
    table->name = "avx512";
    table->quantise = avx512_quantise;
    memcpy(table->linear, products, sizeof(products));
    lanes_elementwise(table);
    avx512_attention(table);
}

const instruction_set isa_avx512 = {
    "avx512",   "AVX-512 with VNNI", offsetof(cpu_features, avx512_vnni),
    ops_avx512, limits_avx512,       &avx512_logits,
    NULL,       gemm_kernels_avx512, &avx512_gradients};
