/* Phi-3: Llama with q, k, v in one matrix and gate, up in another, and LongRoPE. */
#include "model/model_int.h"

const architecture architecture_phi3 = {
    .norm = NORM_RMS,
    .gated = true,
    .attention_bias = BIAS_NONE,
    .output_bias = BIAS_NONE,
};
