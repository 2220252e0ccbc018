/* OLMoE: 64 small experts, eight of which a row uses; q and k are normed, all heads together. */
#include "model/model_int.h"

const architecture architecture_olmoe = {
    .norm = NORM_RMS,
    .gated = true,
    .whole_norms = true,
    .attention_bias = BIAS_NONE,
    .output_bias = BIAS_NONE,
};
