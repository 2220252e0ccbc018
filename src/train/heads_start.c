/* First weights of draft heads. Medusa heads begin as the model's own output: their states are 0.
 * An EAGLE layer begins as the model's last one where that has the same form, behind projections
 * that hand on the model's last state. */
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

/* Whether the model's last layer computes what an EAGLE layer does. */
static bool has_form(const model_view *view, const layer_view *layer) {
    const rotary_table *rotary = layer->rotary == ROTARY_NONE ? NULL : &view->rotary[layer->rotary];
    return layer->experts.count == 0 && !layer->norm_after && layer->gate.weight.data != NULL &&
           layer->activation == ACTIVATION_SILU && layer->attention_norm.kind == NORM_RMS &&
           layer->attention_norm.weight != NULL && layer->feed_forward_norm.kind == NORM_RMS &&
           layer->feed_forward_norm.weight != NULL && rotary != NULL &&
           rotary->pairs == layer->head_size / 2;
}

/* Rows of a matrix of the model, times a factor. Where it rotates neighbours, rows of a head change
 * places: here halves are rotated. */
static void copy_rows(const train_core *core, eagle_parameter number, const linear_view *from,
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

static void copy_norm(const train_core *core, eagle_parameter number, const float *weight) {
    const train_parameter *to = &core->parameters.item[number];
    memcpy(to->value, weight, to->k * sizeof(float));
}

static void copy_layer(const train_core *core, const model_view *view, const layer_view *layer) {
    uint32_t swapped = view->rotary[layer->rotary].interleaved ? layer->head_size : 0;
    copy_rows(core, EAGLE_QUERY, &layer->query, swapped, 1.0f);
    copy_rows(core, EAGLE_KEY, &layer->key, swapped, 1.0f);
    copy_rows(core, EAGLE_VALUE, &layer->value, 0, 1.0f);
    copy_rows(core, EAGLE_OUTPUT, &layer->output, 0, (float)LAYER_DAMPED);
    copy_rows(core, EAGLE_GATE, &layer->gate, 0, 1.0f);
    copy_rows(core, EAGLE_UP, &layer->up, 0, 1.0f);
    copy_rows(core, EAGLE_DOWN, &layer->down, 0, (float)LAYER_DAMPED);
    copy_norm(core, EAGLE_ATTENTION_NORM, layer->attention_norm.weight);
    copy_norm(core, EAGLE_FEED_FORWARD_NORM, layer->feed_forward_norm.weight);
}

static void draw_layer(const train_core *core) {
    for (uint32_t number = EAGLE_QUERY; number <= EAGLE_DOWN; number++) {
        double deviation = 1.0 / sqrt((double)core->parameters.item[number].k);
        bool added = number == EAGLE_OUTPUT || number == EAGLE_DOWN;
        draw(core, number, deviation * (added ? LAYER_DAMPED : 1.0));
    }
    fill(&core->parameters.item[EAGLE_ATTENTION_NORM], 1.0f);
    fill(&core->parameters.item[EAGLE_FEED_FORWARD_NORM], 1.0f);
}

static void start_eagle(train_core *core) {
    const heads_config *c = &core->heads->config;
    const train_parameter *all = core->parameters.item;
    const model_view *view = core->net.view; /* has tables of rotation */
    const layer_view *layer = &core->model->view.layer[view->layers - 1];
    fill(&all[EAGLE_TAP_NORM], 1.0f);
    fill(&all[EAGLE_STATE_NORM], 1.0f);
    fill(&all[EAGLE_TOKEN_NORM], 1.0f);
    fill(&all[EAGLE_FUSE], 0.0f);
    add_identity(&all[EAGLE_FUSE], (c->taps - 1) * c->width);
    draw(core, EAGLE_INPUT, SMALL);
    add_identity(&all[EAGLE_INPUT], 0);
    copy_norm(core, EAGLE_OUTPUT_NORM, view->final_norm.weight);
    if (has_form(view, layer))
        copy_layer(core, view, layer);
    else
        draw_layer(core);
}

void heads_start(train_core *core) {
    if (core->heads->config.kind == HEADS_EAGLE) {
        start_eagle(core);
        return;
    }
    for (uint32_t k = 0; k < core->heads->drafts; k++) {
        uint32_t state = 2 * k;
        fill(&core->parameters.item[state], 0.0f);
        draw(core, state + 1, SMALL / sqrt((double)core->heads->config.width));
    }
}
