/* Rank 0's streams: a step is told to the other ranks, then all compute their parts of it. */
#include "device/ranks/ranks_int.h"

#include <assert.h>
#include <stdio.h>

#define STEP_BYTES ((size_t)256 << 10) /* of a message, to begin with */

static ranks_stream *of(device_stream *stream) {
    return (ranks_stream *)(void *)stream;
}

static device_stream *inner_of(const device_stream *stream) {
    return ((const ranks_stream *)(const void *)stream)->inner;
}

/* ---- Opening ---- */

static bool stream_bytes(const device *device, const stream_shape *shape, uint64_t *bytes) {
    const ranks_device *ranks = (const ranks_device *)(const void *)device;
    return device_stream_bytes(ranks->inner, shape, bytes);
}

static avo_status stream_open(device_stream *base, avo_error *error) {
    ranks_device *ranks = ranks_of(base->device);
    stream_shape shape = base->shape;
    if (shape.beside != NULL && shape.beside->device->operations == base->device->operations)
        shape.beside = inner_of(shape.beside);
    /* A step allocates nothing, unless it has more pages than fit there. */
    avo_status status = buffer_reserve(&ranks->message.bytes, STEP_BYTES);
    if (status != AVO_OK)
        return status_no_memory(error, "messages to the other ranks", STEP_BYTES);
    return device_stream_open(ranks->inner, &shape, &of(base)->inner, error);
}

static void stream_close(device_stream *base) {
    device_stream_close(of(base)->inner);
}

static void stream_resize(device_stream *stream, uint32_t threads) {
    device_stream_resize(inner_of(stream), threads);
}

static uint32_t stream_workers(const device_stream *stream) {
    return device_stream_workers(inner_of(stream));
}

static void stream_figures_of(const device_stream *stream, stream_figures *figures) {
    *figures = device_stream_figures(inner_of(stream));
}

static void stream_report(device_stream *stream, telemetry_engine *telemetry) {
    device_stream_report(inner_of(stream), telemetry);
}

static avo_status stream_measure(device_stream *stream, double *bytes_per_second,
                                 avo_error *error) {
    return device_stream_measure(inner_of(stream), bytes_per_second, error);
}

/* ---- Steps ---- */

/* Whether the other ranks take part: rank 0 has whole hidden states, and by layers the head. */
static bool concerns_others(const ranks_device *ranks, device_work work) {
    return work == DEVICE_FORWARD || (work == DEVICE_HEAD && !ranks->group.by_layers);
}

static avo_status tell_step(ranks_device *ranks, device_work work, const device_step *given,
                            avo_error *error) {
    const batch_view *batch = given->batch;
    const ranks_weights *weights = (const ranks_weights *)(const void *)given->weights;
    assert(batch->input == NULL && batch->attention_input == NULL); /* of draft heads alone */
    message_step step = {.weights = number_of(weights),
                         .memory = number_of(given->kv->memory.owner),
                         .page_bytes = given->kv->page_bytes,
                         .work = work,
                         .kv_type = given->kv->type,
                         .layers = given->weights->view.layers,
                         .rows = batch->rows,
                         .segments = batch->segments,
                         .logit_rows = batch->logit_rows,
                         .top = batch->top,
                         .runs = batch->runs,
                         .logits_whole = batch->logits_whole,
                         .gains = batch->gains,
                         .targets = batch->target != NULL ? batch->logit_rows : 0};
    message_begin(&ranks->message, MESSAGE_STEP);
    message_add_step(&ranks->message, &step, batch, given->kv->layer_offset);
    return ranks_send(ranks, error);
}

static avo_status stream_start(device_stream *base, device_work work, const device_step *given,
                               avo_error *error) {
    ranks_device *ranks = ranks_of(base->device);
    const ranks_weights *weights = (const ranks_weights *)(const void *)given->weights;
    device_step step = *given;
    avo_error own = {0};
    if (weights->inner->view.layers != weights->base.view.layers) /* of an early exit, once */
        weights->inner->view.layers = weights->base.view.layers;
    step.weights = weights->inner;
    if (!weights->spread || !concerns_others(ranks, work))
        return device_start(inner_of(base), work, &step, error);
    ranks->kv_memory = number_of(given->kv->memory.owner);
    ranks->kv_type = given->kv->type;
    ranks->page_bytes = given->kv->page_bytes;
    ranks->layer_offset = given->kv->layer_offset;
    ranks->kv_weights = weights;
    AVO_TRY(tell_step(ranks, work, given, error));
    avo_status status = device_start(inner_of(base), work, &step, &own);
    if (status == AVO_OK)
        return AVO_OK;
    if (error != NULL)
        *error = own;
    return ranks_lose(ranks, status, &own);
}

/* ---- Results ---- */

static avo_status read_top(device_stream *stream, const logit_top **top, avo_error *error) {
    return device_read_top(inner_of(stream), top, error);
}

static avo_status read_logits(device_stream *stream, uint32_t row, const float **logits,
                              avo_error *error) {
    return device_read_logits(inner_of(stream), row, logits, error);
}

static avo_status read_normed(device_stream *stream, uint32_t count, const float **rows,
                              avo_error *error) {
    return device_read_normed(inner_of(stream), count, rows, error);
}

static avo_status read_tap(device_stream *stream, uint32_t tap, uint32_t first, uint32_t count,
                           const float **rows, avo_error *error) {
    return device_read_tap(inner_of(stream), tap, first, count, rows, error);
}

const stream_operations ranks_stream_operations = {.size = sizeof(ranks_stream),
                                                   .bytes = stream_bytes,
                                                   .open = stream_open,
                                                   .close = stream_close,
                                                   .resize = stream_resize,
                                                   .workers = stream_workers,
                                                   .figures = stream_figures_of,
                                                   .report = stream_report,
                                                   .measure = stream_measure,
                                                   .start = stream_start,
                                                   .read_top = read_top,
                                                   .read_logits = read_logits,
                                                   .read_normed = read_normed,
                                                   .read_tap = read_tap};
