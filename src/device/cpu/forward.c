/* The forward pass, top to bottom. Every worker of the team walks through it. */
#include "device/cpu/backend.h"

#include <string.h>

/* Ends a phase; the wait time is only read where somebody counts. */
static void mark(phase_clock *clock, const step_view *step, span_kind phase, uint32_t layer) {
    if (clock->engine != NULL)
        phase_clock_note(clock, phase, layer, team_waited_ns(step->team, clock->worker));
}

/* Keeps the hidden states in front of `layer` where the stream taps them. The rows are complete and
 * do not change before a barrier that this worker passes, too. */
static void tap(const step_view *step, uint32_t layer, uint32_t worker, uint32_t workers) {
    size_t width = step->model->width;
    for (uint32_t i = 0; i < step->shape->taps; i++) {
        if (step->shape->tap[i] != layer)
            continue;
        size_t begin, end;
        team_share(step->batch->rows, worker, workers, &begin, &end);
        memcpy(step->scratch->tap + (i * (size_t)step->scratch->rows_max + begin) * width,
               step->scratch->hidden + begin * width, (end - begin) * width * sizeof(float));
    }
}

static void forward_worker(void *context, uint32_t worker, uint32_t workers) {
    const step_view *step = context;
    const backend *backend = step->backend;
    phase_clock clock;
    phase_clock_begin(&clock, step->telemetry, worker, step->tracing,
                      team_waited_ns(step->team, worker));
    backend->embed(step, worker);
    mark(&clock, step, SPAN_EMBED, 0);
    for (uint32_t layer = 0; layer < step->model->layers; layer++) {
        tap(step, layer, worker, workers);
        backend->attention_input(step, layer, worker);
        mark(&clock, step, SPAN_ATTENTION_INPUT, layer);
        backend->attention(step, layer, worker);
        mark(&clock, step, SPAN_ATTENTION, layer);
        backend->attention_output(step, layer, worker);
        mark(&clock, step, SPAN_ATTENTION_OUTPUT, layer);
        backend->feed_forward_input(step, layer, worker);
        mark(&clock, step, SPAN_FEED_FORWARD_INPUT, layer);
        backend->feed_forward_output(step, layer, worker);
        mark(&clock, step, SPAN_FEED_FORWARD_OUTPUT, layer);
    }
    tap(step, step->model->layers, worker, workers);
    backend->head(step, worker);
    mark(&clock, step, SPAN_HEAD, 0);
    phase_clock_end(&clock);
}

void cpu_forward(const step_view *step) {
    team_run(step->team, forward_worker, (void *)(uintptr_t)step);
}
