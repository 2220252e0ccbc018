/* What AVX2 (with FMA and F16C) overwrites in the op table. Norms, activations, residuals and
 * logits are those of lanes/, in two registers. */
#include "device/cpu/avx2/vec16.h"

#include "base/cpu.h"
#include "device/cpu/avx2/avx2_int.h"
#include "device/cpu/isa.h"
#include "device/cpu/lanes/elementwise.h"

static void ops_avx2_alone(op_table *table) {
    static const linear_op products[PANEL_INDEX_COUNT] = {
        [PANEL_F32] = avx2_linear_f32,       [PANEL_F16] = avx2_linear_f16,
        [PANEL_BF16] = avx2_linear_bf16,     [PANEL_F8C] = avx2_linear_f8c,
        [PANEL_Q8C] = avx2_linear_q8c,       [PANEL_Q8B] = avx2_linear_q8,
        [PANEL_Q8_0] = avx2_linear_q8,       [PANEL_Q4_0] = avx2_linear_q4_0,
        [PANEL_Q4_1] = avx2_linear_q4_1,     [PANEL_Q4B64] = avx2_linear_q4b64,
        [PANEL_Q4M64] = avx2_linear_q4m64,   [PANEL_Q5_0] = avx2_linear_q5_0,
        [PANEL_Q5_1] = avx2_linear_q5_1,     [PANEL_IQ4_NL] = avx2_linear_iq4_nl,
        [PANEL_MXFP4] = avx2_linear_mxfp4,   [PANEL_Q2_K] = avx2_linear_q2_k,
        [PANEL_Q3_K] = avx2_linear_q3_k,     [PANEL_Q4_K] = avx2_linear_q4_k,
        [PANEL_Q5_K] = avx2_linear_q5_k,     [PANEL_Q6_K] = avx2_linear_q6_k,
        [PANEL_IQ4_XS] = avx2_linear_iq4_xs, [PANEL_Q4R] = avx2_linear_q4r,
        [PANEL_Q8R] = avx2_linear_q8r,
    };
    table->name = "avx2 without AVX-VNNI";
    table->quantise = avx2_quantise;
    memcpy(table->linear, products, sizeof(products));
    lanes_elementwise(table);
    avx2_attention(table);
}

void ops_avx2(op_table *table) {
    ops_avx2_alone(table);
    table->name = "avx2";
    if (cpu_features_detect().avx_vnni)
        avx2_vnni(table);
}

const instruction_set isa_avx2 = {"avx2",
                                  "AVX2",
                                  offsetof(cpu_features, avx2),
                                  ops_avx2,
                                  limits_avx2,
                                  &avx2_logits,
                                  ops_avx2_alone,
                                  gemm_kernels_avx2,
                                  &avx2_gradients};
