/* Llama 2, 3, 3.1, 3.2, TinyLlama, SmolLM2 and everything else with their shape:
 *   h += O · attention(rotate(Q·norm(h)), rotate(K·norm(h)), V·norm(h))
 *   h += down · (silu(gate·norm(h)) ⊙ up·norm(h)) */
#include "model/model_int.h"

const architecture architecture_llama = {
    .norm = NORM_RMS,
    .gated = true,
    .attention_bias = BIAS_OPTIONAL, /* attention_bias, mlp_bias of config.json */
    .output_bias = BIAS_OPTIONAL,
};
