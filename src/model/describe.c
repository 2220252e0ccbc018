/* From the configuration to the description that kernels read; what all architectures share. */
#include "model/model_int.h"

#include <math.h>
#include <string.h>

const architecture *architecture_of(source_architecture id) {
    static const architecture *const all[ARCHITECTURE_COUNT] = {
        [ARCHITECTURE_LLAMA] = &architecture_llama,
        [ARCHITECTURE_MISTRAL] = &architecture_mistral,
        [ARCHITECTURE_QWEN2] = &architecture_qwen2,
        [ARCHITECTURE_QWEN3] = &architecture_qwen3,
        [ARCHITECTURE_SMOLLM3] = &architecture_smollm3,
        [ARCHITECTURE_GEMMA3] = &architecture_gemma3,
        [ARCHITECTURE_PHI3] = &architecture_phi3,
        [ARCHITECTURE_GPT2] = &architecture_gpt2,
        [ARCHITECTURE_OPT] = &architecture_opt,
        [ARCHITECTURE_MIXTRAL] = &architecture_mixtral,
        [ARCHITECTURE_QWEN2_MOE] = &architecture_qwen2_moe,
        [ARCHITECTURE_QWEN3_MOE] = &architecture_qwen3_moe,
        [ARCHITECTURE_OLMOE] = &architecture_olmoe,
        [ARCHITECTURE_GRANITE_MOE] = &architecture_granite_moe,
        [ARCHITECTURE_GPT_OSS] = &architecture_gpt_oss,
    };
    return id < ARCHITECTURE_COUNT ? all[id] : NULL;
}

static activation_kind activation_of(source_activation activation) {
    switch (activation) {
    case SOURCE_ACTIVATION_SILU:
        return ACTIVATION_SILU;
    case SOURCE_ACTIVATION_GELU_TANH:
        return ACTIVATION_GELU_TANH;
    case SOURCE_ACTIVATION_GELU_ERF:
        return ACTIVATION_GELU_ERF;
    case SOURCE_ACTIVATION_RELU:
        return ACTIVATION_RELU;
    case SOURCE_ACTIVATION_SWIGLU_CLIPPED:
        return ACTIVATION_SWIGLU_CLIPPED;
    }
    return ACTIVATION_SILU;
}

static float or_default(double given, double otherwise) {
    return (float)(given == 0.0 ? otherwise : given);
}

/* Which rotation table a layer uses: none, the common one, or that of windowed layers. */
static uint32_t layer_rotary(const model_config *config, uint32_t number, bool windowed) {
    bool rotated = config->layer_rotary == NULL || config->layer_rotary[number] != 0;
    if (config->rotary_dims == 0 || !rotated)
        return ROTARY_NONE;
    return windowed && config->rope_base_local > 0.0 ? 1 : 0;
}

void describe_layer(const model_config *config, uint32_t number, layer_view *layer) {
    bool windowed =
        config->window > 0 && config->layer_windowed != NULL && config->layer_windowed[number] != 0;
    layer->heads = config->heads;
    layer->kv_heads = config->kv_heads;
    layer->head_size = config->head_size;
    layer->window = windowed ? config->window : 0;
    layer->rotary = layer_rotary(config, number, windowed);
    layer->attention_scale =
        or_default(config->attention_scale, 1.0 / sqrt((double)config->head_size));
    layer->attention_softcap = (float)config->attention_softcap;
    layer->feed_forward = config->feed_forward;
    layer->activation = activation_of(config->activation);
    if (config->layer_experts != NULL && config->layer_experts[number] != 0)
        layer->experts = (experts_view){.count = config->experts,
                                        .used = config->experts_used,
                                        .router_kind = config->router == SOURCE_ROUTER_TOP_SOFTMAX
                                                           ? ROUTER_TOP_SOFTMAX
                                                           : ROUTER_SOFTMAX,
                                        .normalised = config->router_normalised};
    layer->norm_after = config->norm_after;
    layer->residual_scale = or_default(config->residual_scale, 1.0);
}

void describe_model(const model_config *config, model_view *model) {
    model->width = config->width;
    model->vocabulary = config->vocabulary;
    model->layers = config->layers;
    model->embedding_scale = or_default(config->embedding_scale, 1.0);
    model->position_offset = config->position_offset;
    model->logit_scale = or_default(config->logit_scale, 1.0);
    model->logit_softcap = (float)config->logit_softcap;
    model->query_width_max = config->heads * config->head_size;
    model->kv_width_max = config->kv_heads * config->head_size;
    model->experts_max = config->experts;
    /* Only dense layers need that. */
    bool dense =
        config->layer_experts == NULL || memchr(config->layer_experts, 0, config->layers) != NULL;
    model->feed_forward_max = dense ? config->feed_forward : 0;
}
