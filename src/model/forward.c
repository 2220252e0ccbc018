/* The forward pass, top to bottom. Every worker of the team walks through it. */
#include "model/model.h"

static void forward_worker(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    const step_view *step = context;
    const backend *backend = step->backend;
    backend->embed(step, worker);
    for (uint32_t layer = 0; layer < step->model->layers; layer++) {
        backend->attention_input(step, layer, worker);
        backend->attention(step, layer, worker);
        backend->attention_output(step, layer, worker);
        backend->feed_forward_input(step, layer, worker);
        backend->feed_forward_output(step, layer, worker);
    }
    backend->head(step, worker);
}

void model_forward(const step_view *step) {
    team_run(step->team, forward_worker, (void *)(uintptr_t)step);
}
