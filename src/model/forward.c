/* The forward pass, top to bottom. Every worker of the team walks through it. */
#include "model/model.h"

static void forward_worker(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    const step_view *step = context;
    const backend *backend = step->backend;
    phase_clock clock;
    phase_clock_begin(&clock, step->telemetry, step->team, worker, step->tracing);
    backend->embed(step, worker);
    phase_mark(&clock, SPAN_EMBED, 0);
    for (uint32_t layer = 0; layer < step->model->layers; layer++) {
        backend->attention_input(step, layer, worker);
        phase_mark(&clock, SPAN_ATTENTION_INPUT, layer);
        backend->attention(step, layer, worker);
        phase_mark(&clock, SPAN_ATTENTION, layer);
        backend->attention_output(step, layer, worker);
        phase_mark(&clock, SPAN_ATTENTION_OUTPUT, layer);
        backend->feed_forward_input(step, layer, worker);
        phase_mark(&clock, SPAN_FEED_FORWARD_INPUT, layer);
        backend->feed_forward_output(step, layer, worker);
        phase_mark(&clock, SPAN_FEED_FORWARD_OUTPUT, layer);
    }
    backend->head(step, worker);
    phase_mark(&clock, SPAN_HEAD, 0);
    phase_clock_end(&clock);
}

void model_forward(const step_view *step) {
    team_run(step->team, forward_worker, (void *)(uintptr_t)step);
}
