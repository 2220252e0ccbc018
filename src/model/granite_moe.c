/* Granite MoE: Llama with experts, and multipliers on embeddings, attention, residuals and logits,
 * which the configuration has. */
#include "model/model_int.h"

const architecture architecture_granite_moe = {
    .norm = NORM_RMS,
    .gated = true,
    .attention_bias = BIAS_OPTIONAL,
    .output_bias = BIAS_OPTIONAL,
};
