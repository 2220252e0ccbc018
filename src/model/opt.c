/* OPT: GPT-2's shape with ReLU and positions counted from 2; the 350m model norms behind the
 * residual and has narrower embeddings, both of which the configuration says. */
#include "model/model_int.h"

const architecture architecture_opt = {
    .norm = NORM_LAYER,
    .norm_bias = true,
    .gated = false,
    .attention_bias = BIAS_OPTIONAL, /* enable_bias of config.json */
    .output_bias = BIAS_OPTIONAL,
};
