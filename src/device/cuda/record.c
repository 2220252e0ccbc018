/* Steps of few rows are recorded once and then started as a whole: a launch costs the card a
 * fraction of what it costs in a queue. What changes from step to step lies in the card's memory,
 * everything else is the shape that a recording is found by. */
#include "device/cuda/step_int.h"

static cuda_recording shape_of(const cuda_step *step, device_work work, const void *weights) {
    const batch_view *batch = step->batch;
    return (cuda_recording){.weights = weights,
                            .pool = step->kv == NULL ? NULL : step->kv->memory.address,
                            .work = work,
                            .rows = batch->rows,
                            .logit_rows = batch->logit_rows,
                            .top = batch->top,
                            .splits = step->splits,
                            .pages = step->pages,
                            .target = batch->target != NULL,
                            .alone = step->alone};
}

static cuda_recording *find_recording(cuda_stream *stream, const cuda_recording *wanted) {
    for (uint32_t i = 0; i < CUDA_GRAPHS; i++) {
        cuda_recording *own = &stream->recording[i];
        if (own->graph != NULL && own->weights == wanted->weights && own->pool == wanted->pool &&
            own->work == wanted->work && own->rows == wanted->rows &&
            own->logit_rows == wanted->logit_rows && own->top == wanted->top &&
            own->splits == wanted->splits && own->pages == wanted->pages &&
            own->target == wanted->target && own->alone == wanted->alone)
            return own;
    }
    return NULL;
}

static cuda_recording *record(cuda_step *step, const cuda_recording *wanted) {
    cuda_stream *stream = step->stream;
    const cuda_port_operations *port = step->port->operations;
    cuda_recording *own = &stream->recording[stream->next_recording++ % CUDA_GRAPHS];
    if (own->graph != NULL)
        port->graph_close(step->port, own->graph);
    own->graph = NULL;
    step->result = port->record_begin(step->port);
    if (step->result != 0)
        return own;
    step_compute(step, wanted->work);
    cuda_graph *graph = NULL;
    cu_result result = port->record_end(step->port, &graph);
    if (step->result == 0)
        step->result = result;
    if (step->result != 0 && graph != NULL)
        port->graph_close(step->port, graph);
    *own = *wanted;
    own->graph = step->result == 0 ? graph : NULL;
    return own;
}

void step_recorded(cuda_step *step, device_work work, const void *weights) {
    const batch_view *batch = step->batch;
    if (step->tuning->rung < 2 || step->tuning->graph == 0 || batch->runs > 0 ||
        batch->rows > RECORD_ROWS || batch->logit_rows > RECORD_ROWS || work == DEVICE_NORM) {
        step_compute(step, work);
        return;
    }
    cuda_recording wanted = shape_of(step, work, weights);
    cuda_recording *own = find_recording(step->stream, &wanted);
    if (own == NULL)
        own = record(step, &wanted);
    step->stream->top_rows = batch->top > 0 ? batch->logit_rows : 0;
    if (step->result == 0)
        step->result = step->port->operations->graph_start(step->port, own->graph);
}
