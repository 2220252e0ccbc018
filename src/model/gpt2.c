/* GPT-2: layer norms, learned positions, biases everywhere, GELU without a gate. */
#include "model/model_int.h"

const architecture architecture_gpt2 = {
    .norm = NORM_LAYER,
    .norm_bias = true,
    .gated = false,
    .attention_bias = BIAS_REQUIRED,
    .output_bias = BIAS_REQUIRED,
};
