/* The walk over the matrices of a model, and their bytes. */
#include "device/matrices.h"

#include <stddef.h>

static const size_t layer_linears[MATRICES_OF_LAYER] = {
    offsetof(layer_view, query),  offsetof(layer_view, key),  offsetof(layer_view, value),
    offsetof(layer_view, output), offsetof(layer_view, gate), offsetof(layer_view, up),
    offsetof(layer_view, down)};

size_t matrices_count(const model_view *model) {
    return 3 + (size_t)model->layers * MATRICES_OF_LAYER;
}

const weight_view *matrices_at(const model_view *model, size_t index) {
    size_t layered = (size_t)model->layers * MATRICES_OF_LAYER;
    if (index == 0)
        return &model->embedding_project.weight;
    if (index == layered + 1)
        return &model->head_project.weight;
    if (index == layered + 2)
        return &model->head.weight;
    const layer_view *layer = &model->layer[(index - 1) / MATRICES_OF_LAYER];
    const void *linear = (const char *)layer + layer_linears[(index - 1) % MATRICES_OF_LAYER];
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
