/* First weights of draft heads. Medusa heads begin as the model's own output: their states are 0.
 * An EAGLE layer begins as the model's last one where that has the same form, behind projections
 * that hand on the model's last state; a distilled draft as the model's first layers and its last.
 */
#include "train/heads_int.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

#define STREAM       0x4844 /* of base/random.h: "HD"; each parameter has its own behind it */
#define SMALL        0.02
#define LAYER_DAMPED 0.05 /* its input is of another size than in the model */

static void fill(const train_parameter *parameter, float value) {
    for (size_t i = 0; i < (size_t)parameter->rows * parameter->k; i++)
        parameter->value[i] = value;
}

/* Uniform numbers of this deviation. */
static void draw(const train_core *core, uint32_t number, double deviation) {
    const train_parameter *parameter = &core->parameters.item[number];
    for (size_t i = 0; i < (size_t)parameter->rows * parameter->k; i++) {
        double uniform = random_uniform_at(core->options.seed, STREAM + number, i);
        parameter->value[i] = (float)((2.0 * uniform - 1.0) * sqrt(3.0) * deviation);
    }
}

/* Adds 1 at (i, column + i). */
static void add_identity(const train_parameter *parameter, uint32_t column) {
    for (uint32_t i = 0; i < parameter->rows; i++)
        parameter->value[(size_t)i * parameter->k + column + i] += 1.0f;
}

/* Whether a layer of the model computes what a layer of draft heads does, with the same sizes. */
static bool has_form(const train_core *core, const layer_view *layer) {
    const model_view *view = core->net.view; /* has tables of rotation */
    const heads_config *c = &core->heads->config;
    const rotary_table *rotary = layer->rotary == ROTARY_NONE ? NULL : &view->rotary[layer->rotary];
    return layer->experts.count == 0 && !layer->norm_after && layer->gate.weight.data != NULL &&
           layer->activation == ACTIVATION_SILU && layer->attention_norm.kind == NORM_RMS &&
           layer->attention_norm.weight != NULL && layer->feed_forward_norm.kind == NORM_RMS &&
           layer->feed_forward_norm.weight != NULL && rotary != NULL &&
           rotary->pairs == layer->head_size / 2 && layer->heads == c->attention_heads &&
           layer->kv_heads == c->kv_heads && layer->head_size == c->head_size &&
           layer->feed_forward == c->feed_forward;
}

/* Rows of a matrix of the model, times a factor. Where it rotates neighbours, rows of a head change
 * places: here halves are rotated. */
static void copy_rows(const train_core *core, uint32_t number, const linear_view *from,
                      uint32_t swapped, float factor) {
    const train_parameter *to = &core->parameters.item[number];
    for (uint32_t row = 0; row < to->rows; row++) {
        uint32_t source = row;
        if (swapped > 0) {
            uint32_t in_head = row % swapped, half = swapped / 2;
            source = row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
        }
        float *out = to->value + (size_t)row * to->k;
        weight_decode_row(&from->weight, source, out);
        for (uint32_t i = 0; i < to->k && factor != 1.0f; i++)
            out[i] *= factor;
    }
}

static void copy_norm(const train_core *core, uint32_t number, const float *weight) {
    const train_parameter *to = &core->parameters.item[number];
    memcpy(to->value, weight, to->k * sizeof(float));
}

/* The layer whose parameters begin at `at`, as `layer` of the model. `damped`: a factor of what it
 * adds to its input. */
static void copy_layer(const train_core *core, uint32_t at, const layer_view *layer,
                       double damped) {
    const model_view *view = core->net.view;
    uint32_t swapped = view->rotary[layer->rotary].interleaved ? layer->head_size : 0;
    copy_rows(core, at + LAYER_QUERY, &layer->query, swapped, 1.0f);
    copy_rows(core, at + LAYER_KEY, &layer->key, swapped, 1.0f);
    copy_rows(core, at + LAYER_VALUE, &layer->value, 0, 1.0f);
    copy_rows(core, at + LAYER_OUTPUT, &layer->output, 0, (float)damped);
    copy_rows(core, at + LAYER_GATE, &layer->gate, 0, 1.0f);
    copy_rows(core, at + LAYER_UP, &layer->up, 0, 1.0f);
    copy_rows(core, at + LAYER_DOWN, &layer->down, 0, (float)damped);
    copy_norm(core, at + LAYER_ATTENTION_NORM, layer->attention_norm.weight);
    copy_norm(core, at + LAYER_FEED_FORWARD_NORM, layer->feed_forward_norm.weight);
}

static void draw_layer(const train_core *core, uint32_t at, double damped) {
    for (uint32_t number = LAYER_QUERY; number <= LAYER_DOWN; number++) {
        double deviation = 1.0 / sqrt((double)core->parameters.item[at + number].k);
        bool added = number == LAYER_OUTPUT || number == LAYER_DOWN;
        draw(core, at + number, deviation * (added ? damped : 1.0));
    }
    fill(&core->parameters.item[at + LAYER_ATTENTION_NORM], 1.0f);
    fill(&core->parameters.item[at + LAYER_FEED_FORWARD_NORM], 1.0f);
}

static void start_layer(const train_core *core, uint32_t at, uint32_t number, double damped) {
    const layer_view *layer = &core->model->view.layer[number];
    if (has_form(core, layer))
        copy_layer(core, at, layer, damped);
    else
        draw_layer(core, at, LAYER_DAMPED);
}

static void start_eagle(train_core *core) {
    const heads_config *c = &core->heads->config;
    const train_parameter *all = core->parameters.item;
    fill(&all[EAGLE_TAP_NORM], 1.0f);
    fill(&all[EAGLE_STATE_NORM], 1.0f);
    fill(&all[EAGLE_TOKEN_NORM], 1.0f);
    fill(&all[EAGLE_FUSE], 0.0f);
    add_identity(&all[EAGLE_FUSE], (c->taps - 1) * c->width);
    draw(core, EAGLE_INPUT, SMALL);
    add_identity(&all[EAGLE_INPUT], 0);
    copy_norm(core, EAGLE_OUTPUT_NORM, core->net.view->final_norm.weight);
    start_layer(core, EAGLE_LAYER, c->layers - 1, LAYER_DAMPED);
}

static void start_draft(train_core *core) {
    const heads_config *c = &core->heads->config;
    for (uint32_t layer = 0; layer < c->depth; layer++) {
        bool last = layer > 0 && layer + 1 == c->depth;
        uint32_t from = last || layer >= c->layers ? c->layers - 1 : layer;
        start_layer(core, layer * LAYER_PARAMETERS, from, 1.0);
    }
    copy_norm(core, c->depth * LAYER_PARAMETERS, core->net.view->final_norm.weight);
}

void heads_start(train_core *core) {
    if (core->heads->config.kind == HEADS_EAGLE) {
        start_eagle(core);
        return;
    }
    if (core->heads->config.kind == HEADS_LAYERS) {
        start_draft(core);
        return;
    }
    for (uint32_t k = 0; k < core->heads->drafts; k++) {
        uint32_t state = 2 * k;
        fill(&core->parameters.item[state], 0.0f);
        draw(core, state + 1, SMALL / sqrt((double)core->heads->config.width));
    }
}
