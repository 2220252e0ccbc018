/* gpt-oss: experts in MXFP4 with biases and a clipped activation; each head has a sink, a score
 * without a value; every other layer sees a window. */
#include "model/model_int.h"

const architecture architecture_gpt_oss = {
    .norm = NORM_RMS,
    .gated = true,
    .sinks = true,
    .attention_bias = BIAS_REQUIRED,
    .output_bias = BIAS_REQUIRED,
    .router_bias = BIAS_REQUIRED,
    .alternating_experts = true,
};
