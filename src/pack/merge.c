/* Which part of an adapter changes which tensor of the file. */
#include "pack/merge.h"

#include "adapters/adapters.h"
#include "formats/names.h"

#include <stddef.h>

typedef struct merger {
    const avo_model *model;
    const avo_adapter_use *uses;
    size_t count;
} merger;

/* ---- Places ---- */

typedef struct delta_place {
    const char *name; /* without ".weight" or ".bias" */
    size_t at;        /* in adapter_layer */
} delta_place;

static const delta_place matrices[] = {
    {"attn_q", offsetof(adapter_layer, query)},  {"attn_k", offsetof(adapter_layer, key)},
    {"attn_v", offsetof(adapter_layer, value)},  {"attn_output", offsetof(adapter_layer, output)},
    {"ffn_gate", offsetof(adapter_layer, gate)}, {"ffn_up", offsetof(adapter_layer, up)},
    {"ffn_down", offsetof(adapter_layer, down)},
};

static const delta_place norms[] = {
    {"attn_norm", offsetof(adapter_layer, attention_norm)},
    {"attn_q_norm", offsetof(adapter_layer, query_norm)},
    {"attn_k_norm", offsetof(adapter_layer, key_norm)},
    {"post_attention_norm", offsetof(adapter_layer, attention_post_norm)},
    {"ffn_norm", offsetof(adapter_layer, feed_forward_norm)},
    {"post_ffw_norm", offsetof(adapter_layer, feed_forward_post_norm)},
};

/* What an adapter has for a tensor; all NULL: nothing. */
typedef struct change {
    const adapter_delta *delta;
    const adapter_norm *norm;
    const adapter_embedding *embedding;
    bool bias;
} change;

static const void *layer_part(const delta_place *places, size_t count, text_view name,
                              const adapter_layer *layer) {
    for (size_t i = 0; i < count; i++)
        if (text_is(name, places[i].name))
            return (const char *)layer + places[i].at;
    return NULL;
}

static change change_of(const adapter_view *view, uint32_t layers, const char *tensor) {
    change found = {0};
    text_view name = text_from(tensor);
    uint32_t number;
    text_view rest;
    found.bias = text_ends(name, TEXT_LITERAL(".bias"));
    name.size -= found.bias ? 5 : text_ends(name, TEXT_LITERAL(".weight")) ? 7 : 0;
    if (names_split_layer(name, &number, &rest)) {
        if (number >= layers)
            return found;
        const adapter_layer *layer = &view->layer[number];
        found.delta = layer_part(matrices, sizeof(matrices) / sizeof(matrices[0]), rest, layer);
        found.norm = layer_part(norms, sizeof(norms) / sizeof(norms[0]), rest, layer);
    } else if (text_is(name, "output")) {
        found.delta = &view->head;
    } else if (text_is(name, "output_norm")) {
        found.norm = &view->final_norm;
    } else if (text_is(name, "token_embd") && !found.bias) {
        found.embedding = &view->embedding;
    }
    return found;
}

static bool is_change(const change *c) {
    if (c->delta != NULL)
        return c->bias ? c->delta->gain != NULL || c->delta->offset != NULL
                       : c->delta->up.data != NULL || c->delta->gain != NULL;
    if (c->norm != NULL)
        return c->bias ? c->norm->bias != NULL : c->norm->weight != NULL;
    return c->embedding != NULL && c->embedding->look.data != NULL;
}

/* ---- For pack/ ---- */

static bool changes(const void *context, const char *name) {
    const merger *m = context;
    for (size_t i = 0; i < m->count; i++) {
        change c = change_of(&m->uses[i].adapter->view, m->model->view.layers, name);
        if (is_change(&c))
            return true;
    }
    return false;
}

static void apply_gains(const merger *m, const char *name, uint32_t first, uint32_t rows,
                        uint32_t k, bool bias, float *numbers) {
    uint32_t count = bias ? k : rows;
    for (uint32_t begin = 0; begin < count; begin += QUANT_PANEL_ROWS) {
        float total[QUANT_PANEL_ROWS];
        uint32_t some = count - begin < QUANT_PANEL_ROWS ? count - begin : QUANT_PANEL_ROWS;
        for (uint32_t i = 0; i < some; i++)
            total[i] = 1.0f;
        for (size_t u = 0; u < m->count; u++) {
            change c = change_of(&m->uses[u].adapter->view, m->model->view.layers, name);
            if (c.delta != NULL)
                adapter_merge_gains(c.delta, m->uses[u].weight, first + begin, some, total);
        }
        for (uint32_t i = 0; i < some; i++)
            for (uint32_t j = 0; j < (bias ? 1 : k); j++)
                numbers[bias ? begin + i : (size_t)(begin + i) * k + j] *= total[i];
    }
}

static void apply(const void *context, const char *name, uint32_t first, uint32_t rows, uint32_t k,
                  float *numbers, float *scratch) {
    const merger *m = context;
    change any = change_of(&m->uses[0].adapter->view, m->model->view.layers, name);
    if (any.delta != NULL)
        apply_gains(m, name, any.bias ? 0 : first, rows, k, any.bias, numbers);
    for (size_t u = 0; u < m->count; u++) {
        change c = change_of(&m->uses[u].adapter->view, m->model->view.layers, name);
        float weight = m->uses[u].weight;
        if (c.delta != NULL && c.bias)
            adapter_merge_bias(c.delta, weight, k, numbers);
        else if (c.delta != NULL)
            adapter_merge_rows(c.delta, weight, first, rows, numbers, scratch);
        else if (c.embedding != NULL)
            adapter_merge_embedding(c.embedding, weight, first, rows, numbers, scratch);
        const float *norm = c.norm == NULL ? NULL : c.bias ? c.norm->bias : c.norm->weight;
        for (uint32_t i = 0; norm != NULL && i < k; i++)
            numbers[i] += weight * norm[i];
    }
}

/* ---- What cannot be ---- */

static avo_status check_bias(const adapter_delta *delta, const linear_view *linear, uint32_t layer,
                             const char *name, const avo_adapter *adapter, avo_error *error) {
    if (delta->offset == NULL || linear->bias != NULL)
        return AVO_OK;
    return status_fail(
        error, AVO_ERROR_UNSUPPORTED,
        "%s: cannot merge: the adapter adds a bias to %s of layer %u, where the model has none",
        adapter->path, name, layer);
}

static avo_status check_adapter(const avo_model *model, const avo_adapter *adapter,
                                avo_error *error) {
    if (adapter->config != &model->source->config)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: the adapter was opened for another model", adapter->path);
    for (uint32_t i = 0; i < model->view.layers; i++) {
        const adapter_layer *a = &adapter->view.layer[i];
        const layer_view *l = &model->view.layer[i];
        AVO_TRY(check_bias(&a->query, &l->query, i, "attn_q", adapter, error));
        AVO_TRY(check_bias(&a->key, &l->key, i, "attn_k", adapter, error));
        AVO_TRY(check_bias(&a->value, &l->value, i, "attn_v", adapter, error));
        AVO_TRY(check_bias(&a->output, &l->output, i, "attn_output", adapter, error));
        AVO_TRY(check_bias(&a->gate, &l->gate, i, "ffn_gate", adapter, error));
        AVO_TRY(check_bias(&a->up, &l->up, i, "ffn_up", adapter, error));
        AVO_TRY(check_bias(&a->down, &l->down, i, "ffn_down", adapter, error));
    }
    return check_bias(&adapter->view.head, &model->view.head, 0, "output", adapter, error);
}

avo_status pack_merge(const avo_model *model, const avo_adapter_use *uses, size_t count,
                      const char *path, const pack_options *options, pack_report *report,
                      avo_error *error) {
    if (count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "merging needs at least one adapter");
    if ((options->type == PACK_KEEP && !options->folder) || options->bits > 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "merging into an .avo file rounds all matrices to one type; choose a "
                           "type, not keep or bits");
    for (size_t i = 0; i < count; i++)
        AVO_TRY(check_adapter(model, uses[i].adapter, error));
    for (size_t i = 1; i < count; i++)
        for (size_t other = 0; other < i; other++)
            if (memcmp(uses[i].adapter->view.digest, uses[other].adapter->view.digest,
                       sizeof(uses[i].adapter->view.digest)) == 0)
                return status_fail(error, AVO_ERROR_ARGUMENT, "adapter %s is given twice",
                                   uses[i].adapter->path);
    merger m = {model, uses, count};
    pack_change change = {.context = &m, .changes = changes, .apply = apply};
    pack_options own = *options;
    own.change = &change;
    /* Tied no more where the table or the head changes, and not both are one. */
    if (model->source->config.tied_head && own.look_up <= PACK_LOOK_UP_SHARED &&
        (changes(&m, "token_embd.weight") || changes(&m, "output.weight")))
        own.look_up = own.type == PACK_F32 ? PACK_LOOK_UP_F32 : PACK_LOOK_UP_F16;
    return pack_source(model->source, path, &own, report, error);
}
