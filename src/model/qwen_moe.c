/* Qwen's mixtures of experts. Qwen 2 MoE: Qwen 2 and an expert that every row uses, weighed by a
 * gate of its own. Qwen 3 MoE: Qwen 3 with experts. Layers of both may be dense. */
#include "model/model_int.h"

const architecture architecture_qwen2_moe = {
    .norm = NORM_RMS,
    .gated = true,
    .attention_bias = BIAS_OPTIONAL, /* qkv_bias of config.json */
    .output_bias = BIAS_NONE,
    .shared_gate = true,
};

const architecture architecture_qwen3_moe = {
    .norm = NORM_RMS,
    .gated = true,
    .head_norms = true,
    .attention_bias = BIAS_OPTIONAL,
    .output_bias = BIAS_NONE,
};
