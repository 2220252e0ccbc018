/* The forward pass, top to bottom. */
#include "model/model.h"

void model_forward(const backend *backend, const step_view *step) {
    backend->embed(step);
    for (uint32_t layer = 0; layer < step->model->layers; layer++) {
        backend->attention_input(step, layer);
        backend->attention(step, layer);
        backend->attention_output(step, layer);
        backend->feed_forward_input(step, layer);
        backend->feed_forward_output(step, layer);
    }
    backend->head(step);
}
