/* Qwen 2 and 2.5: Llama with biases on q, k and v. Qwen 3: no biases, q and k normed per head. */
#include "model/model_int.h"

const architecture architecture_qwen2 = {
    .norm = NORM_RMS,
    .gated = true,
    .attention_bias = BIAS_REQUIRED,
    .output_bias = BIAS_NONE,
};

const architecture architecture_qwen3 = {
    .norm = NORM_RMS,
    .gated = true,
    .head_norms = true,
    .attention_bias = BIAS_OPTIONAL,
    .output_bias = BIAS_NONE,
};
