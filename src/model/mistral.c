/* Mistral: Llama with a sliding window, which the configuration says. */
#include "model/model_int.h"

const architecture architecture_mistral = {
    .norm = NORM_RMS,
    .gated = true,
    .attention_bias = BIAS_NONE,
    .output_bias = BIAS_NONE,
};
