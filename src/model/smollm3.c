/* SmolLM3: Llama without rotation in every fourth layer, which the configuration says. */
#include "model/model_int.h"

const architecture architecture_smollm3 = {
    .norm = NORM_RMS,
    .gated = true,
    .attention_bias = BIAS_OPTIONAL,
    .output_bias = BIAS_OPTIONAL,
};
