/* The walk over a model's and an adapter's arrays. */
#include "device/upload.h"

#include "device/runs.h"

#include <string.h>

#define RECENT 32 /* arrays of one layer, and the embedding: what a later view may share */

typedef struct walk {
    upload_function upload;
    void *context;
    avo_error *error;
    struct {
        const void *from;
        size_t bytes;
        const uint8_t *to;
    } recent[RECENT];
    uint32_t next; /* entry 0 is the embedding and stays */
} walk;

/* ---- Arrays ---- */

static avo_status take_array(walk *w, const void *data, size_t bytes, const uint8_t **to) {
    *to = NULL;
    if (data == NULL || bytes == 0)
        return AVO_OK;
    for (uint32_t i = 0; i < RECENT; i++)
        if (w->recent[i].from == data && w->recent[i].bytes == bytes) {
            *to = w->recent[i].to;
            return AVO_OK;
        }
    AVO_TRY(w->upload(w->context, data, bytes, to, w->error));
    w->recent[w->next].from = data;
    w->recent[w->next].bytes = bytes;
    w->recent[w->next].to = *to;
    w->next = w->next + 1 < RECENT ? w->next + 1 : 1;
    return AVO_OK;
}

static avo_status take_floats(walk *w, const float **floats, size_t count) {
    const uint8_t *to;
    AVO_TRY(take_array(w, *floats, count * sizeof(float), &to));
    *floats = (const float *)(const void *)to;
    return AVO_OK;
}

/* Bytes from a view's first number to its last: columns of a range are apart. */
static bool span_of(const weight_view *weight, uint64_t *bytes) {
    if (weight->layout != QUANT_LAYOUT_COLUMNS || weight->rows_whole == 0)
        return weight_bytes(weight->type, weight->layout, weight->rows, weight->k, bytes);
    uint64_t number = quant_info_of(weight->type)->block_bytes;
    *bytes = ((uint64_t)(weight->k - 1) * weight->rows_whole + weight->rows) * number;
    return true;
}

static avo_status take_weight(walk *w, weight_view *weight) {
    uint64_t bytes;
    if (weight->data == NULL)
        return AVO_OK;
    if (!span_of(weight, &bytes) || bytes > SIZE_MAX)
        return status_fail(w->error, AVO_ERROR_LIMIT, "a matrix of %u × %u is too large",
                           weight->rows, weight->k);
    return take_array(w, weight->data, (size_t)bytes, &weight->data);
}

static avo_status take_linear(walk *w, linear_view *linear) {
    AVO_TRY(take_weight(w, &linear->weight));
    return take_floats(w, &linear->bias, linear->weight.rows);
}

static avo_status take_norm(walk *w, norm_view *norm, size_t width) {
    AVO_TRY(take_floats(w, &norm->weight, width));
    return take_floats(w, &norm->bias, width);
}

/* ---- A model ---- */

static avo_status take_expert(walk *w, expert_view *expert) {
    AVO_TRY(take_linear(w, &expert->gate));
    AVO_TRY(take_linear(w, &expert->up));
    return take_linear(w, &expert->down);
}

static avo_status take_experts(walk *w, experts_view *experts, arena *arena) {
    if (experts->count == 0)
        return AVO_OK;
    size_t count = experts->count;
    expert_view *list = arena_take_array(arena, count, sizeof(*list));
    if (list == NULL)
        return status_no_memory(w->error, "experts", count * sizeof(*list));
    AVO_TRY(take_linear(w, &experts->router));
    for (size_t i = 0; i < count; i++) {
        list[i] = experts->expert[i];
        AVO_TRY(take_expert(w, &list[i]));
    }
    experts->expert = list;
    AVO_TRY(take_linear(w, &experts->shared_gate));
    return take_expert(w, &experts->shared);
}

static avo_status take_layer(walk *w, layer_view *layer, uint32_t width, arena *arena) {
    AVO_TRY(take_norm(w, &layer->attention_norm, width));
    AVO_TRY(take_linear(w, &layer->query));
    AVO_TRY(take_linear(w, &layer->key));
    AVO_TRY(take_linear(w, &layer->value));
    uint32_t norms = layer->whole_norms ? layer->heads : 1;
    AVO_TRY(take_norm(w, &layer->query_norm, (size_t)norms * layer->head_size));
    norms = layer->whole_norms ? layer->kv_heads : 1;
    AVO_TRY(take_norm(w, &layer->key_norm, (size_t)norms * layer->head_size));
    AVO_TRY(take_floats(w, &layer->sinks, layer->heads));
    AVO_TRY(take_linear(w, &layer->output));
    AVO_TRY(take_norm(w, &layer->attention_post_norm, width));
    AVO_TRY(take_norm(w, &layer->feed_forward_norm, width));
    AVO_TRY(take_linear(w, &layer->gate));
    AVO_TRY(take_linear(w, &layer->up));
    AVO_TRY(take_linear(w, &layer->down));
    AVO_TRY(take_experts(w, &layer->experts, arena));
    return take_norm(w, &layer->feed_forward_post_norm, width);
}

static avo_status take_rotary(walk *w, const rotary_table *from, uint32_t count, arena *arena,
                              const rotary_table **to) {
    rotary_table *tables = arena_take_array(arena, count > 0 ? count : 1, sizeof(*tables));
    if (tables == NULL)
        return status_no_memory(w->error, "RoPE tables", count * sizeof(*tables));
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *address;
        tables[i] = from[i];
        AVO_TRY(take_array(w, from[i].frequency, from[i].pairs * sizeof(double), &address));
        tables[i].frequency = (const double *)(const void *)address;
    }
    *to = tables;
    return AVO_OK;
}

avo_status upload_model(const model_view *from, upload_function upload, void *context, arena *arena,
                        model_view *to, avo_error *error) {
    walk w = {.upload = upload, .context = context, .error = error};
    layer_view *layers = arena_take_array(arena, from->layers, sizeof(*layers));
    if (from->layers > 0 && layers == NULL)
        return status_no_memory(error, "layers", from->layers * sizeof(*layers));
    *to = *from;
    to->layer = layers;
    AVO_TRY(take_weight(&w, &to->embedding));
    AVO_TRY(take_weight(&w, &to->position_embedding));
    AVO_TRY(take_norm(&w, &to->embedding_norm, from->width));
    AVO_TRY(take_linear(&w, &to->embedding_project));
    AVO_TRY(take_rotary(&w, from->rotary, from->rotary_tables, arena, &to->rotary));
    for (uint32_t i = 0; i < from->layers; i++) {
        layers[i] = from->layer[i];
        AVO_TRY(take_layer(&w, &layers[i], from->width, arena));
    }
    AVO_TRY(take_norm(&w, &to->final_norm, from->width));
    AVO_TRY(take_linear(&w, &to->head_project));
    return take_linear(&w, &to->head);
}

/* ---- An adapter ---- */

static avo_status take_delta(walk *w, const model_view *model, uint32_t layer,
                             adapter_matrix matrix, adapter_delta *delta) {
    size_t rows = run_matrix(model, layer, matrix)->weight.rows;
    AVO_TRY(take_weight(w, &delta->down));
    AVO_TRY(take_weight(w, &delta->up));
    AVO_TRY(take_floats(w, &delta->gain, rows));
    return take_floats(w, &delta->offset, rows);
}

static avo_status take_adapter_norm(walk *w, adapter_norm *norm, size_t width) {
    AVO_TRY(take_floats(w, &norm->weight, width));
    return take_floats(w, &norm->bias, width);
}

static avo_status take_adapter_layer(walk *w, const model_view *model, uint32_t number,
                                     adapter_layer *layer) {
    uint32_t width = model->width, head_size = model->layer[number].head_size;
    AVO_TRY(take_delta(w, model, number, ADAPTER_QUERY, &layer->query));
    AVO_TRY(take_delta(w, model, number, ADAPTER_KEY, &layer->key));
    AVO_TRY(take_delta(w, model, number, ADAPTER_VALUE, &layer->value));
    AVO_TRY(take_delta(w, model, number, ADAPTER_OUTPUT, &layer->output));
    AVO_TRY(take_delta(w, model, number, ADAPTER_GATE, &layer->gate));
    AVO_TRY(take_delta(w, model, number, ADAPTER_UP, &layer->up));
    AVO_TRY(take_delta(w, model, number, ADAPTER_DOWN, &layer->down));
    AVO_TRY(take_adapter_norm(w, &layer->attention_norm, width));
    AVO_TRY(take_adapter_norm(w, &layer->feed_forward_norm, width));
    AVO_TRY(take_adapter_norm(w, &layer->attention_post_norm, width));
    AVO_TRY(take_adapter_norm(w, &layer->feed_forward_post_norm, width));
    AVO_TRY(take_adapter_norm(w, &layer->query_norm, head_size));
    return take_adapter_norm(w, &layer->key_norm, head_size);
}

avo_status upload_adapter(const adapter_view *from, const model_view *model, upload_function upload,
                          void *context, arena *arena, adapter_view *to, avo_error *error) {
    walk w = {.upload = upload, .context = context, .error = error};
    adapter_layer *layers = arena_take_array(arena, model->layers, sizeof(*layers));
    if (layers == NULL)
        return status_no_memory(error, "an adapter's layers", model->layers * sizeof(*layers));
    *to = *from;
    to->layer = layers;
    AVO_TRY(take_weight(&w, &to->embedding.look));
    AVO_TRY(take_weight(&w, &to->embedding.up));
    for (uint32_t i = 0; i < model->layers; i++) {
        layers[i] = from->layer[i];
        AVO_TRY(take_adapter_layer(&w, model, i, &layers[i]));
    }
    AVO_TRY(take_adapter_norm(&w, &to->final_norm, model->width));
    return take_delta(&w, model, 0, ADAPTER_HEAD, &to->head);
}
