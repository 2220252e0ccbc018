/* The interface of device.h over a driver's table, with the checks that all drivers share. */
#include "device/driver.h"

#include <assert.h>

/* ---- Memory ---- */

bool device_memory_round(const device *device, size_t bytes, uint64_t *rounded) {
    return device->operations->memory_round(device, bytes, rounded);
}

avo_status device_memory_take(device *device, size_t bytes, const char *what, device_memory *out,
                              avo_error *error) {
    *out = (device_memory){0};
    return device->operations->memory_take(device, bytes, what, out, error);
}

void device_memory_give(device *device, device_memory *memory) {
    if (memory->address != NULL)
        device->operations->memory_give(device, memory);
    *memory = (device_memory){0};
}

/* Callers compute offsets from plans that were checked: one that is wrong is a fault of ours. */
static void check_range(const device_memory *memory, size_t offset, size_t bytes) {
    assert(offset <= memory->bytes && bytes <= memory->bytes - offset);
    (void)memory;
    (void)offset;
    (void)bytes;
}

avo_status device_copy_in(device *device, const device_memory *to, size_t offset, const void *from,
                          size_t bytes, avo_error *error) {
    check_range(to, offset, bytes);
    return device->operations->copy_in(device, to, offset, from, bytes, error);
}

avo_status device_copy_out(device *device, void *to, const device_memory *from, size_t offset,
                           size_t bytes, avo_error *error) {
    check_range(from, offset, bytes);
    return device->operations->copy_out(device, to, from, offset, bytes, error);
}

avo_status device_copy_across(device *device, const device_memory *to, size_t to_offset,
                              const device_memory *from, size_t from_offset, size_t bytes,
                              avo_error *error) {
    check_range(to, to_offset, bytes);
    check_range(from, from_offset, bytes);
    return device->operations->copy_across(device, to, to_offset, from, from_offset, bytes, error);
}

avo_status device_zero(device *device, const device_memory *memory, size_t offset, size_t bytes,
                       avo_error *error) {
    check_range(memory, offset, bytes);
    return device->operations->zero(device, memory, offset, bytes, error);
}

/* ---- Weights and adapters ---- */

/* The same weights with every layer that is stored, whose view is `stored`. */
static weights_source all_layers(const weights_source *source, model_view *stored) {
    weights_source all = *source;
    *stored = *source->model;
    if (source->layers_stored > 0)
        stored->layers = source->layers_stored;
    all.model = stored;
    all.layers_stored = 0;
    return all;
}

avo_status device_weights_plan(const device *device, const weights_source *source,
                               weights_plan *plan, avo_error *error) {
    model_view stored;
    weights_source all = all_layers(source, &stored);
    return device->operations->weights_plan(device, &all, plan, error);
}

avo_status device_weights_open(device_stream *stream, const weights_source *source,
                               device_weights **out, avo_error *error) {
    model_view stored;
    weights_source all = all_layers(source, &stored);
    *out = NULL;
    AVO_TRY(stream->device->operations->weights_open(stream, &all, out, error));
    (*out)->view.layers = source->model->layers;
    return AVO_OK;
}

void device_weights_close(device_weights *weights) {
    if (weights != NULL)
        weights->device->operations->weights_close(weights);
}

const model_view *device_weights_view(const device_weights *weights) {
    return &weights->view;
}

bool device_adapters_in_place(const device *device) {
    return device->operations->adapter_open == NULL;
}

avo_status device_adapter_open(device *device, const adapter_view *view, const model_view *model,
                               device_adapter *out, avo_error *error) {
    *out = (device_adapter){0};
    if (!device_adapters_in_place(device))
        return device->operations->adapter_open(device, view, model, out, error);
    out->view = view;
    return AVO_OK;
}

void device_adapter_close(device *device, device_adapter *adapter) {
    if (adapter->view != NULL && !device_adapters_in_place(device))
        device->operations->adapter_close(device, adapter);
    *adapter = (device_adapter){0};
}

/* ---- Streams ---- */

bool device_stream_bytes(const device *device, const stream_shape *shape, uint64_t *bytes) {
    return device->operations->stream_bytes(device, shape, bytes);
}

avo_status device_stream_open(device *device, const stream_shape *shape, device_stream **out,
                              avo_error *error) {
    *out = NULL;
    assert(shape->index < DEVICE_STREAMS_MAX && shape->taps <= DEVICE_TAPS_MAX);
    return device->operations->stream_open(device, shape, out, error);
}

void device_stream_close(device_stream *stream) {
    if (stream != NULL)
        stream->device->operations->stream_close(stream);
}

void device_stream_resize(device_stream *stream, uint32_t threads) {
    stream->device->operations->stream_resize(stream, threads);
}

uint32_t device_stream_workers(const device_stream *stream) {
    return stream->device->operations->stream_workers(stream);
}

stream_figures device_stream_figures(const device_stream *stream) {
    stream_figures figures = {0};
    stream->device->operations->stream_figures(stream, &figures);
    return figures;
}

void device_stream_report(device_stream *stream, telemetry_engine *telemetry) {
    stream->device->operations->stream_report(stream, telemetry);
}

avo_status device_stream_measure(device_stream *stream, double *bytes_per_second,
                                 avo_error *error) {
    *bytes_per_second = 0.0;
    return stream->device->operations->stream_measure(stream, bytes_per_second, error);
}

/* ---- Steps ---- */

avo_status device_start(device_stream *stream, device_work work, const device_step *step,
                        avo_error *error) {
    assert(step->observer == NULL || stream->device->info.observes);
    return stream->device->operations->start(stream, work, step, error);
}

avo_status device_wait(device_stream *stream, avo_error *error) {
    return stream->device->operations->wait(stream, error);
}

avo_status device_read_top(device_stream *stream, const logit_top **top, avo_error *error) {
    *top = NULL;
    return stream->device->operations->read_top(stream, top, error);
}

avo_status device_read_logits(device_stream *stream, uint32_t row, const float **logits,
                              avo_error *error) {
    *logits = NULL;
    return stream->device->operations->read_logits(stream, row, logits, error);
}

avo_status device_read_chosen(device_stream *stream, uint32_t row, const int32_t *tokens,
                              uint32_t count, float *chosen, avo_error *error) {
    return stream->device->operations->read_chosen(stream, row, tokens, count, chosen, error);
}

avo_status device_read_normed(device_stream *stream, uint32_t count, const float **rows,
                              avo_error *error) {
    *rows = NULL;
    return stream->device->operations->read_normed(stream, count, rows, error);
}

avo_status device_read_tap(device_stream *stream, uint32_t tap, uint32_t first, uint32_t count,
                           const float **rows, avo_error *error) {
    *rows = NULL;
    return stream->device->operations->read_tap(stream, tap, first, count, rows, error);
}
