/* Gemma 3 text: embeddings scaled by √width, norms before and after each part and per head, GeGLU,
 * five windowed layers to one that sees everything, each kind with its own rotation base. */
#include "model/model_int.h"

#include <math.h>

static void adjust_model(const model_config *config, model_view *model) {
    if (config->embedding_scale == 0.0)
        model->embedding_scale = (float)sqrt((double)config->width);
}

const architecture architecture_gemma3 = {
    .norm = NORM_RMS,
    .gated = true,
    .head_norms = true,
    .post_norms = true,
    .attention_bias = BIAS_NONE,
    .output_bias = BIAS_NONE,
    .adjust_model = adjust_model,
};
