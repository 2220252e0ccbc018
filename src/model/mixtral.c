/* Mixtral: Llama whose feed-forward part is two of eight experts, weighed by a softmax over these.
 */
#include "model/model_int.h"

const architecture architecture_mixtral = {
    .norm = NORM_RMS,
    .gated = true,
    .attention_bias = BIAS_NONE,
    .output_bias = BIAS_NONE,
};
