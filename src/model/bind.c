/* From named tensors to views: every shape is checked here, nothing later checks again. */
#include "model/bind_int.h"

#include "base/checked.h"

#include <string.h>

/* ---- Finding ---- */

const source_tensor *bind_take(binder *b, uint32_t layer, layer_role role) {
    size_t at = (size_t)layer * LAYER_ROLE_COUNT + role;
    b->slots.layer_used[at] = 1;
    return b->slots.layer[at];
}

static const source_tensor *take_top(binder *b, model_role role) {
    b->slots.top_used[role] = 1;
    return b->slots.top[role];
}

avo_status bind_missing(binder *b, const char *what, uint32_t layer) {
    return status_fail(b->error, AVO_ERROR_FORMAT, "%s: layer %u lacks %s", b->model->source->path,
                       layer, what);
}

avo_status bind_bad_shape(binder *b, const source_tensor *tensor, uint64_t rows, uint64_t k) {
    return status_fail(b->error, AVO_ERROR_FORMAT,
                       "%s: tensor %.*s has shape [%llu, %llu], must have [%llu, %llu]",
                       b->model->source->path, TEXT_ARGUMENT(tensor->name),
                       (unsigned long long)tensor->shape[0], (unsigned long long)tensor->shape[1],
                       (unsigned long long)rows, (unsigned long long)k);
}

/* ---- Vectors: norms and biases as f32 ---- */

void bind_count(binder *b, const source_tensor *tensor) {
    b->model->parameters += source_tensor_elements(tensor);
    b->model->weight_bytes += tensor->bytes;
}

avo_status bind_vector(binder *b, const source_tensor *tensor, uint64_t width, bool plus_one,
                       const float **out) {
    if (source_tensor_elements(tensor) != width)
        return bind_bad_shape(b, tensor, width, 1);
    bind_count(b, tensor);
    bool aligned = (uintptr_t)tensor->data % sizeof(float) == 0;
    if (tensor->type == QUANT_F32 && tensor->layout == QUANT_LAYOUT_ROWS && aligned && !plus_one) {
        *out = (const float *)(const void *)tensor->data;
        return AVO_OK;
    }
    uint64_t bytes;
    if (tensor->layout != QUANT_LAYOUT_ROWS || !quant_run_bytes(tensor->type, width, &bytes))
        return status_fail(b->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor %.*s: a vector cannot have type %s", b->model->source->path,
                           TEXT_ARGUMENT(tensor->name), quant_name(tensor->type));
    float *copy = arena_take_array(&b->model->arena, (size_t)width, sizeof(float));
    if (copy == NULL)
        return status_no_memory(b->error, "a norm", (size_t)width * sizeof(float));
    quant_decode(tensor->type, tensor->data, (size_t)width, copy);
    for (uint64_t i = 0; plus_one && i < width; i++)
        copy[i] = 1.0f + copy[i];
    b->model->repack_bytes += width * sizeof(float);
    *out = copy;
    return AVO_OK;
}

static avo_status bind_norm(binder *b, const source_tensor *weight, const source_tensor *bias,
                            uint32_t width, norm_view *out) {
    out->kind = b->architecture->norm;
    out->epsilon = (float)b->config->norm_epsilon;
    AVO_TRY(bind_vector(b, weight, width, b->config->norm_plus_one, &out->weight));
    if (bias != NULL)
        AVO_TRY(bind_vector(b, bias, width, false, &out->bias));
    return AVO_OK;
}

static avo_status bind_layer_norm(binder *b, uint32_t layer, layer_role role, layer_role bias_role,
                                  bool wants_bias, uint32_t width, const char *what,
                                  norm_view *out) {
    const source_tensor *weight = bind_take(b, layer, role);
    const source_tensor *bias = wants_bias ? bind_take(b, layer, bias_role) : NULL;
    if (weight == NULL || (wants_bias && bias == NULL))
        return bind_missing(b, what, layer);
    return bind_norm(b, weight, bias, width, out);
}

/* ---- Matrices ---- */

/* A matrix of `rows` outputs and `k` inputs where it lies. */
avo_status bind_matrix(binder *b, const source_tensor *tensor, uint64_t rows, uint64_t k,
                       bool transposed, weight_view *out) {
    bool fits = transposed ? tensor->shape[0] == k && tensor->shape[1] == rows
                           : tensor->shape[0] == rows && tensor->shape[1] == k;
    if (tensor->rank != 2 || !fits)
        return bind_bad_shape(b, tensor, transposed ? k : rows, transposed ? rows : k);
    quant_layout layout = transposed ? QUANT_LAYOUT_COLUMNS : tensor->layout;
    uint64_t bytes;
    if (!weight_bytes(tensor->type, layout, rows, k, &bytes) || bytes != tensor->bytes)
        return status_fail(
            b->error, AVO_ERROR_UNSUPPORTED,
            "%s: tensor %.*s: %llu bytes of type %s do not match a %llu × %llu matrix",
            b->model->source->path, TEXT_ARGUMENT(tensor->name), (unsigned long long)tensor->bytes,
            quant_name(tensor->type), (unsigned long long)rows, (unsigned long long)k);
    bind_count(b, tensor);
    *out = (weight_view){.type = tensor->type,
                         .layout = layout,
                         .rows = (uint32_t)rows,
                         .k = (uint32_t)k,
                         .rows_whole = (uint32_t)rows,
                         .data = tensor->data};
    if (k > b->model->view.k_max)
        b->model->view.k_max = (uint32_t)k;
    return AVO_OK;
}

avo_status bind_linear(binder *b, uint32_t layer, layer_role role, layer_role bias_role,
                       bias_rule rule, uint64_t rows, uint64_t k, const char *what,
                       linear_view *out) {
    const source_tensor *weight = bind_take(b, layer, role);
    const source_tensor *bias = rule == BIAS_NONE ? NULL : bind_take(b, layer, bias_role);
    if (weight == NULL || (rule == BIAS_REQUIRED && bias == NULL))
        return bind_missing(b, what, layer);
    AVO_TRY(bind_matrix(b, weight, rows, k, b->config->transposed, &out->weight));
    if (bias != NULL)
        AVO_TRY(bind_vector(b, bias, rows, false, &out->bias));
    return AVO_OK;
}

/* A part of a fused projection: rows [first, first + rows). */
static avo_status slice_linear(binder *b, const linear_view *fused, uint32_t first, uint32_t rows,
                               uint32_t layer, linear_view *out) {
    if (fused->weight.layout == QUANT_LAYOUT_PANELS && first % QUANT_PANEL_ROWS != 0)
        return status_fail(b->error, AVO_ERROR_UNSUPPORTED,
                           "%s: layer %u: a fused matrix in panels must be split at row %u, which "
                           "is not a multiple of %u",
                           b->model->source->path, layer, first, (unsigned)QUANT_PANEL_ROWS);
    out->weight = weight_slice(&fused->weight, first, rows);
    out->bias = fused->bias == NULL ? NULL : fused->bias + first;
    return AVO_OK;
}

static bool has_layer(const binder *b, uint32_t layer, layer_role role) {
    return b->slots.layer[(size_t)layer * LAYER_ROLE_COUNT + role] != NULL;
}

static avo_status bind_qkv(binder *b, uint32_t number, layer_view *layer) {
    uint32_t width = b->config->width;
    uint32_t query = layer->heads * layer->head_size;
    uint32_t kv = layer->kv_heads * layer->head_size;
    bias_rule rule = b->architecture->attention_bias;
    if (has_layer(b, number, ROLE_QKV)) {
        linear_view fused = {0};
        AVO_TRY(bind_linear(b, number, ROLE_QKV, ROLE_QKV_BIAS, rule, (uint64_t)query + 2u * kv,
                            width, "attn_qkv", &fused));
        AVO_TRY(slice_linear(b, &fused, 0, query, number, &layer->query));
        AVO_TRY(slice_linear(b, &fused, query, kv, number, &layer->key));
        return slice_linear(b, &fused, query + kv, kv, number, &layer->value);
    }
    AVO_TRY(bind_linear(b, number, ROLE_QUERY, ROLE_QUERY_BIAS, rule, query, width, "attn_q",
                        &layer->query));
    AVO_TRY(
        bind_linear(b, number, ROLE_KEY, ROLE_KEY_BIAS, rule, kv, width, "attn_k", &layer->key));
    return bind_linear(b, number, ROLE_VALUE, ROLE_VALUE_BIAS, rule, kv, width, "attn_v",
                       &layer->value);
}

/* Phi-3 keeps gate and up in one matrix called "up": gate first. */
static bool gate_is_fused(const binder *b, uint32_t number) {
    return b->architecture->gated && !has_layer(b, number, ROLE_GATE);
}

static avo_status bind_feed_forward(binder *b, uint32_t number, layer_view *layer) {
    uint32_t width = b->config->width;
    uint32_t inner = layer->feed_forward;
    bias_rule rule = b->architecture->output_bias;
    if (gate_is_fused(b, number)) {
        linear_view fused = {0};
        AVO_TRY(bind_linear(b, number, ROLE_UP, ROLE_UP_BIAS, rule, 2u * (uint64_t)inner, width,
                            "ffn_gate or fused ffn_up", &fused));
        AVO_TRY(slice_linear(b, &fused, 0, inner, number, &layer->gate));
        AVO_TRY(slice_linear(b, &fused, inner, inner, number, &layer->up));
    } else {
        if (b->architecture->gated)
            AVO_TRY(bind_linear(b, number, ROLE_GATE, ROLE_GATE_BIAS, rule, inner, width,
                                "ffn_gate", &layer->gate));
        AVO_TRY(bind_linear(b, number, ROLE_UP, ROLE_UP_BIAS, rule, inner, width, "ffn_up",
                            &layer->up));
    }
    return bind_linear(b, number, ROLE_DOWN, ROLE_DOWN_BIAS, rule, width, inner, "ffn_down",
                       &layer->down);
}

/* ---- A layer, the model ---- */

/* Norms of q and k, per head or of all heads together, and sinks. */
static avo_status bind_head_norms(binder *b, uint32_t number, layer_view *layer) {
    const architecture *a = b->architecture;
    layer->whole_norms = a->whole_norms;
    if (a->sinks) {
        const source_tensor *sinks = bind_take(b, number, ROLE_SINKS);
        if (sinks == NULL)
            return bind_missing(b, "attn_sinks", number);
        AVO_TRY(bind_vector(b, sinks, layer->heads, false, &layer->sinks));
    }
    if (!a->head_norms && !a->whole_norms)
        return AVO_OK;
    uint32_t size = layer->head_size;
    uint32_t query = a->whole_norms ? layer->heads * size : size;
    uint32_t key = a->whole_norms ? layer->kv_heads * size : size;
    AVO_TRY(bind_layer_norm(b, number, ROLE_QUERY_NORM, ROLE_QUERY_NORM, false, query,
                            "attn_q_norm", &layer->query_norm));
    return bind_layer_norm(b, number, ROLE_KEY_NORM, ROLE_KEY_NORM, false, key, "attn_k_norm",
                           &layer->key_norm);
}

static avo_status bind_layer(binder *b, uint32_t number, layer_view *layer) {
    const architecture *a = b->architecture;
    uint32_t width = b->config->width;
    describe_layer(b->config, number, layer);
    if (a->adjust_layer != NULL)
        a->adjust_layer(b->config, number, layer);
    AVO_TRY(bind_layer_norm(b, number, ROLE_ATTENTION_NORM, ROLE_ATTENTION_NORM_BIAS, a->norm_bias,
                            width, "attn_norm", &layer->attention_norm));
    AVO_TRY(bind_qkv(b, number, layer));
    AVO_TRY(bind_linear(b, number, ROLE_OUTPUT, ROLE_OUTPUT_BIAS, a->output_bias, width,
                        (uint64_t)layer->heads * layer->head_size, "attn_output", &layer->output));
    AVO_TRY(bind_head_norms(b, number, layer));
    /* gpt-oss in GGUF calls it by the name that is Gemma's other norm. */
    bool other = !a->post_norms && !has_layer(b, number, ROLE_FEED_FORWARD_NORM);
    layer_role norm = other ? ROLE_ATTENTION_POST_NORM : ROLE_FEED_FORWARD_NORM;
    AVO_TRY(bind_layer_norm(b, number, norm, ROLE_FEED_FORWARD_NORM_BIAS, a->norm_bias, width,
                            "ffn_norm", &layer->feed_forward_norm));
    if (a->post_norms) {
        AVO_TRY(bind_layer_norm(b, number, ROLE_ATTENTION_POST_NORM, ROLE_ATTENTION_POST_NORM,
                                false, width, "post_attention_norm", &layer->attention_post_norm));
        AVO_TRY(bind_layer_norm(b, number, ROLE_FEED_FORWARD_POST_NORM, ROLE_FEED_FORWARD_POST_NORM,
                                false, width, "post_ffw_norm", &layer->feed_forward_post_norm));
    }
    if (layer->experts.count > 0)
        return bind_experts(b, number, layer);
    return bind_feed_forward(b, number, layer);
}

static avo_status require(binder *b, const source_tensor *tensor, const char *name) {
    if (tensor != NULL)
        return AVO_OK;
    return status_fail(b->error, AVO_ERROR_FORMAT, "%s: tensor %s is missing",
                       b->model->source->path, name);
}

static avo_status bind_embeddings(binder *b, model_view *view) {
    const model_config *config = b->config;
    uint32_t embedding_width =
        config->embedding_width == 0 ? config->width : config->embedding_width;
    const source_tensor *embedding = take_top(b, ROLE_EMBEDDING);
    AVO_TRY(require(b, embedding, "token_embd.weight"));
    AVO_TRY(
        bind_matrix(b, embedding, config->vocabulary, embedding_width, false, &view->embedding));
    if (config->positions > 0) {
        const source_tensor *position = take_top(b, ROLE_POSITION);
        AVO_TRY(require(b, position, "position_embd.weight"));
        AVO_TRY(bind_matrix(b, position, config->positions, config->width, false,
                            &view->position_embedding));
    }
    if (embedding_width != config->width) {
        const source_tensor *in = take_top(b, ROLE_PROJECT_IN);
        const source_tensor *out = take_top(b, ROLE_PROJECT_OUT);
        AVO_TRY(require(b, in, "project_in.weight"));
        AVO_TRY(require(b, out, "project_out.weight"));
        AVO_TRY(bind_matrix(b, in, config->width, embedding_width, false,
                            &view->embedding_project.weight));
        AVO_TRY(
            bind_matrix(b, out, embedding_width, config->width, false, &view->head_project.weight));
    }
    return AVO_OK;
}

static avo_status bind_head(binder *b, model_view *view) {
    const model_config *config = b->config;
    if (!config->no_final_norm) {
        const source_tensor *norm = take_top(b, ROLE_FINAL_NORM);
        const source_tensor *bias =
            b->architecture->norm_bias ? take_top(b, ROLE_FINAL_NORM_BIAS) : NULL;
        AVO_TRY(require(b, norm, "output_norm.weight"));
        if (b->architecture->norm_bias)
            AVO_TRY(require(b, bias, "output_norm.bias"));
        AVO_TRY(bind_norm(b, norm, bias, config->width, &view->final_norm));
    }
    /* A tied model may carry a copy of its embedding as head: it is the same matrix. */
    const source_tensor *head = take_top(b, ROLE_HEAD);
    if (config->tied_head) {
        view->head.weight = view->embedding;
        return AVO_OK;
    }
    AVO_TRY(require(b, head, "output.weight"));
    AVO_TRY(bind_matrix(b, head, config->vocabulary, view->embedding.k, false, &view->head.weight));
    const source_tensor *bias = take_top(b, ROLE_HEAD_BIAS);
    if (bias != NULL)
        AVO_TRY(bind_vector(b, bias, config->vocabulary, false, &view->head.bias));
    return AVO_OK;
}

avo_status model_bind(avo_model *model, avo_error *error) {
    const model_config *config = &model->source->config;
    binder b = {.model = model,
                .config = config,
                .architecture = architecture_of(config->architecture),
                .error = error};
    if (b.architecture == NULL)
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "%s: architecture %u is not supported",
                           model->source->path, (unsigned)config->architecture);
    AVO_TRY(slots_fill(model->source, &model->arena, &b.slots, error));
    model_view *view = &model->view;
    describe_model(config, view);
    if (b.architecture->adjust_model != NULL)
        b.architecture->adjust_model(config, view);
    AVO_TRY(bind_embeddings(&b, view));
    layer_view *layers = arena_take_array(&model->arena, config->layers, sizeof(*layers));
    if (layers == NULL)
        return status_no_memory(error, "layers", config->layers * sizeof(*layers));
    view->layer = layers;
    for (uint32_t i = 0; i < config->layers; i++) {
        AVO_TRY(bind_layer(&b, i, &layers[i]));
        if (model->progress != NULL &&
            !model->progress(model->progress_context, "layers", i + 1, config->layers))
            return status_fail(error, AVO_ERROR_CANCELLED,
                               "opening was cancelled at layer %u of %u", i + 1, config->layers);
    }
    AVO_TRY(bind_head(&b, view));
    /* Factors of GGUF files: formats/ has read them into the configuration. */
    (void)take_top(&b, ROLE_ROPE_FACTORS);
    (void)take_top(&b, ROLE_ROPE_LONG);
    (void)take_top(&b, ROLE_ROPE_SHORT);
    return slots_check_used(model->source, &b.slots, error);
}
