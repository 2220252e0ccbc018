/* The interface of device.h over a driver's table, with the checks that all drivers share. */
#include "device/driver.h"

#include "base/checked.h"
#include "device/pinned.h"

#include <assert.h>
#include <string.h>

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

avo_status device_pinned_take(device *device, size_t bytes, const char *what, device_pinned *out,
                              avo_error *error) {
    *out = (device_pinned){.bytes = bytes};
    if (device->operations->pinned_take != NULL)
        return device->operations->pinned_take(device, bytes, what, &out->data, error);
    out->data = allocator_take(device->allocator, bytes);
    return out->data != NULL ? AVO_OK : status_no_memory(error, what, bytes);
}

void device_pinned_give(device *device, device_pinned *pinned) {
    if (device->operations->pinned_give == NULL)
        allocator_give(device->allocator, pinned->data, pinned->bytes);
    else if (pinned->data != NULL)
        device->operations->pinned_give(device, pinned->data);
    *pinned = (device_pinned){0};
}

avo_status device_pages_take(device *device, const model_view *model, uint32_t pages, device_kv *kv,
                             avo_error *error) {
    kv->memory = (device_memory){0};
    if (device->operations->pages_take != NULL)
        return device->operations->pages_take(device, model, pages, kv, error);
    return device_memory_take(device, pages * kv->page_bytes, "the KV pool", &kv->memory, error);
}

avo_status device_divide(device *device, const device_division *division,
                         device_part part[DEVICE_PARTS], avo_error *error) {
    assert(device->info.divides && division->streams <= DEVICE_STREAMS_MAX);
    memset(part, 0, DEVICE_PARTS * sizeof(*part));
    return device->operations->divide(device, division, part, error);
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

static avo_status check_dense(const device *device, const weights_source *source,
                              avo_error *error) {
    for (uint32_t i = 0; i < source->model->layers && !device->info.experts; i++)
        if (source->model->layer[i].experts.count > 0)
            return status_fail(error, AVO_ERROR_UNSUPPORTED,
                               "%s: layer %u has %u experts, device %s computes dense layers only; "
                               "use a CPU device (--device cpu)",
                               source->path, i, source->model->layer[i].experts.count,
                               device->info.name);
    return AVO_OK;
}

avo_status device_weights_plan(const device *device, const weights_source *source,
                               weights_plan *plan, avo_error *error) {
    model_view stored;
    weights_source all = all_layers(source, &stored);
    *plan = (weights_plan){0};
    AVO_TRY(check_dense(device, &all, error));
    return device->operations->weights_plan(device, &all, plan, error);
}

void weights_plan_join(weights_plan *plan, const weights_group *other) {
    weights_group *group = plan->group;
    for (uint32_t i = 0; i < plan->groups; i++, group++)
        if (group->from == other->from && group->to == other->to &&
            group->layout == other->layout && group->repacked == other->repacked)
            break;
    if (group == plan->group + WEIGHTS_GROUPS_MAX)
        group--; /* more kinds than a file can reasonably have: the last one takes the rest */
    if (group == plan->group + plan->groups) {
        plan->groups++;
        *group = *other;
        return;
    }
    group->matrices += other->matrices;
    group->bytes += other->bytes;
}

void weights_plan_count(weights_plan *plan, const weight_view *from, quant_type to, bool repacked,
                        uint64_t bytes) {
    weights_group group = {from->type, to, from->layout, repacked, 1, bytes};
    weights_plan_join(plan, &group);
}

avo_status device_weights_open(device_stream *stream, const weights_source *source,
                               device_weights **out, avo_error *error) {
    model_view stored;
    weights_source all = all_layers(source, &stored);
    device *device = stream->device;
    size_t size = device->operations->weights_size;
    *out = NULL;
    device_weights *weights = allocator_take_array(device->allocator, 1, size);
    if (weights == NULL)
        return status_no_memory(error, "the model's weights", size);
    *weights = (device_weights){.device = device, .view = stored};
    avo_status status = device->operations->weights_open(stream, &all, weights, error);
    if (status != AVO_OK) {
        device_weights_close(weights);
        return status;
    }
    weights->view.layers = source->model->layers;
    *out = weights;
    return AVO_OK;
}

void device_weights_close(device_weights *weights) {
    if (weights == NULL)
        return;
    const device *device = weights->device;
    device->operations->weights_close(weights);
    allocator_give(device->allocator, weights, device->operations->weights_size);
}

const model_view *device_weights_view(const device_weights *weights) {
    return &weights->view;
}

bool device_adapters_in_place(const device *device) {
    return device->operations->adapter_open == NULL;
}

avo_status device_adapter_open(device *device, const adapter_view *view, const model_view *model,
                               device_adapter *out, avo_error *error) {
    *out = (device_adapter){.view = view};
    if (device_adapters_in_place(device))
        return AVO_OK;
    adapter_copy *copy = allocator_take_array(device->allocator, 1, sizeof(*copy));
    *out = (device_adapter){0};
    if (copy == NULL)
        return status_no_memory(error, "an adapter", sizeof(*copy));
    arena_init(&copy->arena, device->allocator, SIZE_MAX);
    avo_status status = device->operations->adapter_open(device, view, model, copy, error);
    *out = (device_adapter){.view = &copy->view, .bytes = copy->memory.bytes, .own = copy};
    if (status != AVO_OK)
        device_adapter_close(device, out);
    return status;
}

void device_adapter_close(device *device, device_adapter *adapter) {
    adapter_copy *copy = adapter->own;
    *adapter = (device_adapter){0};
    if (copy == NULL)
        return;
    device->operations->adapter_close(device, copy);
    arena_free(&copy->arena);
    allocator_give(device->allocator, copy, sizeof(*copy));
}

/* ---- Streams ---- */

bool device_stream_bytes(const device *device, const stream_shape *shape, uint64_t *bytes) {
    return device->operations->stream->bytes(device, shape, bytes);
}

avo_status device_stream_open(device *device, const stream_shape *shape, device_stream **out,
                              avo_error *error) {
    const stream_operations *operations = device->operations->stream;
    *out = NULL;
    assert(shape->index < DEVICE_STREAMS_MAX && shape->taps <= DEVICE_TAPS_MAX);
    device_stream *stream = allocator_take_array(device->allocator, 1, operations->size);
    if (stream == NULL)
        return status_no_memory(error, "a stream", operations->size);
    *stream = (device_stream){device, *shape, shape->model->width, shape->model->vocabulary};
    avo_status status = operations->open(stream, error);
    if (status != AVO_OK) {
        device_stream_close(stream);
        return status;
    }
    *out = stream;
    return AVO_OK;
}

static const stream_operations *operations_of(const device_stream *stream) {
    return stream->device->operations->stream;
}

void device_stream_close(device_stream *stream) {
    if (stream == NULL)
        return;
    const stream_operations *operations = operations_of(stream);
    const avo_allocator *allocator = stream->device->allocator;
    operations->close(stream);
    allocator_give(allocator, stream, operations->size);
}

void device_stream_resize(device_stream *stream, uint32_t threads) {
    if (operations_of(stream)->resize != NULL)
        operations_of(stream)->resize(stream, threads);
}

uint32_t device_stream_workers(const device_stream *stream) {
    return operations_of(stream)->workers == NULL ? 1 : operations_of(stream)->workers(stream);
}

stream_figures device_stream_figures(const device_stream *stream) {
    stream_figures figures = {0};
    if (operations_of(stream)->figures != NULL)
        operations_of(stream)->figures(stream, &figures);
    return figures;
}

void device_stream_report(device_stream *stream, telemetry_engine *telemetry) {
    if (operations_of(stream)->report != NULL)
        operations_of(stream)->report(stream, telemetry);
}

avo_status device_stream_measure(device_stream *stream, double *bytes_per_second,
                                 avo_error *error) {
    *bytes_per_second = 0.0;
    return operations_of(stream)->measure(stream, bytes_per_second, error);
}

avo_status stream_results_open(const device_stream *stream, stream_results *results,
                               avo_error *error) {
    const avo_allocator *allocator = stream->device->allocator;
    const stream_shape *shape = &stream->shape;
    size_t numbers;
    if (!size_multiply(shape->head_rows, sizeof(logit_top), &results->top_bytes) ||
        !size_multiply(shape->logits_max, stream->vocabulary, &numbers) ||
        !size_multiply(numbers, sizeof(float), &results->logits_bytes) ||
        !size_multiply(shape->rows_max, stream->width, &numbers) ||
        !size_multiply(numbers, sizeof(float), &results->rows_bytes))
        return status_fail(error, AVO_ERROR_LIMIT,
                           "results of %u rows are too large; use fewer rows", shape->rows_max);
    results->top = allocator_take(allocator, results->top_bytes);
    results->logits = allocator_take(allocator, results->logits_bytes);
    results->rows = allocator_take(allocator, results->rows_bytes);
    if (results->top == NULL || results->logits == NULL || results->rows == NULL)
        return status_no_memory(error, "results of a step", results->logits_bytes);
    return AVO_OK;
}

void stream_results_close(const device_stream *stream, stream_results *results) {
    const avo_allocator *allocator = stream->device->allocator;
    allocator_give(allocator, results->top, results->top_bytes);
    allocator_give(allocator, results->logits, results->logits_bytes);
    allocator_give(allocator, results->rows, results->rows_bytes);
}

/* ---- Steps ---- */

avo_status device_start(device_stream *stream, device_work work, const device_step *step,
                        avo_error *error) {
    assert(step->observer == NULL || stream->device->info.observes);
    return operations_of(stream)->start(stream, work, step, error);
}

avo_status device_wait(device_stream *stream, avo_error *error) {
    return operations_of(stream)->wait == NULL ? AVO_OK
                                               : operations_of(stream)->wait(stream, error);
}

avo_status device_read_top(device_stream *stream, const logit_top **top, avo_error *error) {
    *top = NULL;
    return operations_of(stream)->read_top(stream, top, error);
}

avo_status device_read_logits(device_stream *stream, uint32_t row, const float **logits,
                              avo_error *error) {
    *logits = NULL;
    return operations_of(stream)->read_logits(stream, row, logits, error);
}

avo_status device_read_chosen(device_stream *stream, uint32_t row, const int32_t *tokens,
                              uint32_t count, float *chosen, avo_error *error) {
    const stream_operations *operations = operations_of(stream);
    const float *logits;
    if (operations->read_chosen != NULL)
        return operations->read_chosen(stream, row, tokens, count, chosen, error);
    AVO_TRY(operations->read_logits(stream, row, &logits, error));
    for (uint32_t i = 0; i < count; i++)
        chosen[i] = logits[tokens[i]];
    return AVO_OK;
}

avo_status device_read_normed(device_stream *stream, uint32_t count, const float **rows,
                              avo_error *error) {
    *rows = NULL;
    return operations_of(stream)->read_normed(stream, count, rows, error);
}

avo_status device_read_tap(device_stream *stream, uint32_t tap, uint32_t first, uint32_t count,
                           const float **rows, avo_error *error) {
    *rows = NULL;
    return operations_of(stream)->read_tap(stream, tap, first, count, rows, error);
}
