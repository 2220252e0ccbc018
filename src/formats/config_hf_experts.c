/* What configurations of mixtures of experts say about them: how many there are, how the router
 * chooses, which layers are dense, and Granite's multipliers. */
#include "formats/config_hf_int.h"

typedef struct experts_family {
    source_architecture architecture;
    const char *width_key; /* of one expert; NULL: the family's feed-forward width */
    uint32_t count, used, width, shared;
    source_router router;
    bool normalised;   /* where there is no key for it */
    bool says_whether; /* norm_topk_prob, default false */
} experts_family;

static const experts_family families[] = {
    {ARCHITECTURE_MIXTRAL, NULL, 8, 2, 0, 0, SOURCE_ROUTER_SOFTMAX, true, false},
    {ARCHITECTURE_QWEN2_MOE, "moe_intermediate_size", 60, 4, 1408, 5632, SOURCE_ROUTER_SOFTMAX,
     false, true},
    {ARCHITECTURE_QWEN3_MOE, "moe_intermediate_size", 128, 8, 768, 0, SOURCE_ROUTER_SOFTMAX, false,
     true},
    {ARCHITECTURE_OLMOE, NULL, 64, 8, 0, 0, SOURCE_ROUTER_SOFTMAX, false, true},
    {ARCHITECTURE_GRANITE_MOE, NULL, 8, 2, 0, 0, SOURCE_ROUTER_TOP_SOFTMAX, true, false},
    {ARCHITECTURE_GPT_OSS, NULL, 128, 4, 0, 0, SOURCE_ROUTER_TOP_SOFTMAX, true, false},
};

static const experts_family *family_of(source_architecture architecture) {
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (families[i].architecture == architecture)
            return &families[i];
    return NULL;
}

bool hf_has_experts(source_architecture architecture) {
    return family_of(architecture) != NULL;
}

/* Qwen: layers of `mlp_only_layers` are dense, and all but every n-th. */
static avo_status read_dense_layers(const hf_reader *reader, uint8_t *sparse) {
    uint32_t layers = reader->config->layers, every = 1;
    AVO_TRY(hf_u32(reader, reader->root, "decoder_sparse_step", 1, SOURCE_LAYERS_MAX, &every));
    for (uint32_t i = 0; i < layers; i++)
        sparse[i] = (i + 1) % every == 0;
    const json_value *list = hf_find(reader->root, "mlp_only_layers");
    if (list == NULL)
        return AVO_OK;
    if (list->kind != JSON_ARRAY)
        return status_fail(reader->error, AVO_ERROR_FORMAT,
                           "%s: mlp_only_layers (line %u) must be an array", reader->file,
                           list->line);
    for (size_t i = 0; i < list->array.count; i++) {
        const json_value *item = &list->array.items[i];
        if (item->kind != JSON_INTEGER || item->integer < 0 || item->integer >= layers)
            return status_fail(reader->error, AVO_ERROR_FORMAT,
                               "%s: mlp_only_layers[%zu] must be a layer, 0 to %u", reader->file, i,
                               layers - 1);
        sparse[item->integer] = 0;
    }
    return AVO_OK;
}

/* Layers of which all are experts or none are written as the configuration of a dense model is. */
static avo_status read_layers(const hf_reader *reader) {
    model_config *c = reader->config;
    void *sparse;
    AVO_TRY(source_take(reader->source, c->layers, 1, "layers", &sparse, reader->error));
    memset(sparse, 1, c->layers);
    if (c->architecture == ARCHITECTURE_QWEN2_MOE || c->architecture == ARCHITECTURE_QWEN3_MOE)
        AVO_TRY(read_dense_layers(reader, sparse));
    c->layer_experts = sparse;
    return AVO_OK;
}

static avo_status read_granite(const hf_reader *reader) {
    model_config *c = reader->config;
    double logits = 1;
    c->embedding_scale = c->attention_scale = c->residual_scale = 1;
    const struct {
        const char *key;
        double *number;
    } numbers[] = {{"embedding_multiplier", &c->embedding_scale},
                   {"attention_multiplier", &c->attention_scale},
                   {"residual_multiplier", &c->residual_scale},
                   {"logits_scaling", &logits}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        AVO_TRY(hf_number(reader, reader->root, numbers[i].key, 1e-6, 1e6, numbers[i].number));
    c->logit_scale = 1 / logits;
    return AVO_OK;
}

/* Its numbers are part of the activation. */
static avo_status check_clipping(const hf_reader *reader) {
    double limit = 7, alpha = 1.702;
    AVO_TRY(hf_number(reader, reader->root, "swiglu_limit", 0, 1e6, &limit));
    AVO_TRY(hf_number(reader, reader->root, "swiglu_alpha", 0, 1e6, &alpha));
    if (limit == 7 && alpha == 1.702)
        return AVO_OK;
    return status_fail(reader->error, AVO_ERROR_UNSUPPORTED,
                       "%s: swiglu_limit is %g and swiglu_alpha %g, must be 7 and 1.702",
                       reader->file, limit, alpha);
}

avo_status hf_experts(const hf_reader *reader) {
    model_config *c = reader->config;
    const experts_family *family = family_of(c->architecture);
    if (family == NULL)
        return AVO_OK;
    c->experts = family->count;
    c->experts_used = family->used;
    c->router = family->router;
    c->router_normalised = family->normalised;
    c->expert_feed_forward = family->width_key != NULL ? family->width : c->feed_forward;
    c->shared_feed_forward = family->shared;
    AVO_TRY(hf_u32(reader, reader->root, "num_local_experts", 1, SOURCE_EXPERTS_MAX, &c->experts));
    AVO_TRY(hf_u32(reader, reader->root, "num_experts", 1, SOURCE_EXPERTS_MAX, &c->experts));
    AVO_TRY(hf_u32(reader, reader->root, "num_experts_per_tok", 1, SOURCE_EXPERTS_USED_MAX,
                   &c->experts_used));
    if (family->width_key != NULL)
        AVO_TRY(hf_u32(reader, reader->root, family->width_key, 1, SOURCE_FEED_FORWARD_MAX,
                       &c->expert_feed_forward));
    if (family->shared > 0)
        AVO_TRY(hf_u32(reader, reader->root, "shared_expert_intermediate_size", 1,
                       SOURCE_FEED_FORWARD_MAX, &c->shared_feed_forward));
    if (family->says_whether)
        AVO_TRY(hf_boolean(reader, "norm_topk_prob", &c->router_normalised));
    if (c->architecture == ARCHITECTURE_GRANITE_MOE)
        AVO_TRY(read_granite(reader));
    if (c->architecture == ARCHITECTURE_GPT_OSS)
        AVO_TRY(check_clipping(reader));
    return read_layers(reader);
}
