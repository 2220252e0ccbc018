/* The walk over the matrices of a model, and their bytes. */
#include "device/matrices.h"

#include <stddef.h>

static const size_t layer_linears[MATRICES_DENSE] = {
    offsetof(layer_view, query),  offsetof(layer_view, key),  offsetof(layer_view, value),
    offsetof(layer_view, output), offsetof(layer_view, gate), offsetof(layer_view, up),
    offsetof(layer_view, down)};
static const size_t experts_linears[] = {
    offsetof(layer_view, experts.router), offsetof(layer_view, experts.shared_gate),
    offsetof(layer_view, experts.shared.gate), offsetof(layer_view, experts.shared.up),
    offsetof(layer_view, experts.shared.down)};
#define EXPERTS_LINEARS (sizeof(experts_linears) / sizeof(experts_linears[0]))
static const size_t expert_linears[] = {offsetof(expert_view, gate), offsetof(expert_view, up),
                                        offsetof(expert_view, down)};
#define EXPERT_LINEARS (sizeof(expert_linears) / sizeof(expert_linears[0]))

size_t matrices_of_layer(const model_view *model) {
    size_t experts = EXPERTS_LINEARS + model->experts_max * EXPERT_LINEARS;
    return MATRICES_DENSE + (model->experts_max > 0 ? experts : 0);
}

size_t matrices_count(const model_view *model) {
    return 3 + (size_t)model->layers * matrices_of_layer(model);
}

/* NULL: the layer has no such expert. */
static const weight_view *expert_weight_at(const layer_view *layer, size_t place) {
    if (place < EXPERTS_LINEARS) {
        const void *linear = (const char *)layer + experts_linears[place];
        return &((const linear_view *)linear)->weight;
    }
    size_t expert = (place - EXPERTS_LINEARS) / EXPERT_LINEARS;
    if (expert >= layer->experts.count)
        return NULL;
    const void *linear = (const char *)&layer->experts.expert[expert] +
                         expert_linears[(place - EXPERTS_LINEARS) % EXPERT_LINEARS];
    return &((const linear_view *)linear)->weight;
}

const weight_view *matrices_at(const model_view *model, size_t index) {
    static const weight_view none = {0};
    size_t each = matrices_of_layer(model), layered = (size_t)model->layers * each;
    if (index == 0)
        return &model->embedding_project.weight;
    if (index == layered + 1)
        return &model->head_project.weight;
    if (index == layered + 2)
        return &model->head.weight;
    const layer_view *layer = &model->layer[(index - 1) / each];
    size_t place = (index - 1) % each;
    if (place >= MATRICES_DENSE) {
        const weight_view *weight = expert_weight_at(layer, place - MATRICES_DENSE);
        return weight != NULL ? weight : &none;
    }
    const void *linear = (const char *)layer + layer_linears[place];
    return &((const linear_view *)linear)->weight;
}

uint64_t matrices_bytes_of(const weight_view *weight) {
    uint64_t bytes = 0;
    bool known = weight->data != NULL &&
                 weight_bytes(weight->type, weight->layout, weight->rows, weight->k, &bytes);
    return known ? bytes : 0;
}

uint64_t matrices_bytes(const model_view *model) {
    uint64_t bytes =
        matrices_bytes_of(&model->embedding) + matrices_bytes_of(&model->position_embedding);
    for (size_t i = 0; i < matrices_count(model); i++)
        if (matrices_at(model, i)->data != model->embedding.data) /* tied */
            bytes += matrices_bytes_of(matrices_at(model, i));
    return bytes;
}
