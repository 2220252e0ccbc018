/* Steps of the split device: the first layers, their hidden rows to the host, the other layers. */
#include "device/split/split_int.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

typedef struct split_stream {
    device_stream base;
    device_stream *inner[DEVICE_PARTS]; /* the first is NULL where all is the second's */
    uint32_t taps_first;                /* of the first device; the caller's, without our own */
    /* Of the step at hand. */
    batch_view batch[DEVICE_PARTS];
    device_step step[DEVICE_PARTS];
    device_kv kv;     /* of pages that are the second device's alone */
    adapter_run *run; /* [parts][runs_max], with each device's own adapters */
    size_t runs_max;
} split_stream;

static split_stream *of(device_stream *stream) {
    return (split_stream *)(void *)stream;
}

static const split_stream *of_const(const device_stream *stream) {
    return (const split_stream *)(const void *)stream;
}

device_stream *split_stream_part(device_stream *stream, uint32_t part) {
    return of(stream)->inner[part];
}

static size_t runs_of(const stream_shape *shape) {
    return (size_t)shape->rows_max * ADAPTERS_OF_ROW;
}

size_t split_stream_bytes(const stream_shape *shape) {
    return DEVICE_PARTS * runs_of(shape) * sizeof(adapter_run);
}

/* Which runs while this one does not: of a split device its part, else the stream itself. */
static device_stream *beside_of(const stream_shape *shape, uint32_t part) {
    device_stream *beside = shape->beside;
    bool split = beside != NULL && beside->device->operations->stream == &split_stream_operations;
    return split ? of(beside)->inner[part] : beside;
}

/* ---- Opening ---- */

static bool stream_bytes(const device *device, const stream_shape *shape, uint64_t *bytes) {
    const split_device *split = (const split_device *)(const void *)device;
    split_shapes shapes;
    stream_shape own = *shape;
    own.lender = NULL;
    if (split_divides(split, shape->model)) {
        if (!split_shape(shape, split->cut, &shapes))
            return false;
        own = shapes.part[SECOND];
    }
    return device_stream_bytes(split->inner[SECOND], &own, bytes);
}

static void stream_close(device_stream *base) {
    split_stream *stream = of(base);
    for (uint32_t i = 0; i < DEVICE_PARTS; i++)
        device_stream_close(stream->inner[i]);
    allocator_give(base->device->allocator, stream->run,
                   DEVICE_PARTS * stream->runs_max * sizeof(*stream->run));
}

static avo_status stream_open(device_stream *base, avo_error *error) {
    split_stream *stream = of(base);
    split_device *split = split_of(base->device);
    const stream_shape *shape = &base->shape;
    split_shapes shapes = {.part = {*shape, *shape}};
    bool divides = split_divides(split, shape->model);
    if (divides && !split_shape(shape, split->cut, &shapes))
        return status_fail(error, AVO_ERROR_LIMIT,
                           "%u taps are too many on device %s, must be fewer than %d", shape->taps,
                           base->device->info.name, DEVICE_TAPS_MAX);
    stream->runs_max = runs_of(shape);
    stream->run = allocator_take_array(base->device->allocator, DEVICE_PARTS * stream->runs_max,
                                       sizeof(*stream->run));
    if (stream->run == NULL)
        return status_no_memory(error, "a stream", split_stream_bytes(shape));
    for (uint32_t i = divides ? FIRST : SECOND; i < DEVICE_PARTS; i++) {
        shapes.part[i].beside = beside_of(shape, i);
        shapes.part[i].lender = NULL;
        AVO_TRY(device_stream_open(split->inner[i], &shapes.part[i], &stream->inner[i], error));
    }
    stream->taps_first = divides ? shapes.part[FIRST].taps - 1 : 0;
    return AVO_OK;
}

/* Its threads are those of the first part; a second part with threads of the host shares them. */
static void stream_resize(device_stream *stream, uint32_t threads) {
    for (uint32_t i = 0; i < DEVICE_PARTS; i++)
        if (of(stream)->inner[i] != NULL)
            device_stream_resize(of(stream)->inner[i], threads);
}

static const device_stream *leading(const device_stream *stream) {
    const split_stream *own = of_const(stream);
    return own->inner[FIRST] != NULL ? own->inner[FIRST] : own->inner[SECOND];
}

static uint32_t stream_workers(const device_stream *stream) {
    return device_stream_workers(leading(stream));
}

static void stream_figures_of(const device_stream *stream, stream_figures *figures) {
    *figures = device_stream_figures(leading(stream));
}

static void stream_report(device_stream *stream, telemetry_engine *telemetry) {
    device_stream *to = of(stream)->inner[of(stream)->inner[FIRST] != NULL ? FIRST : SECOND];
    device_stream_report(to, telemetry);
}

/* What a step reads of both, one after the other. */
static avo_status stream_measure(device_stream *base, double *bytes_per_second, avo_error *error) {
    const split_device *split = split_of(base->device);
    double bytes = 0.0, seconds = 0.0;
    for (uint32_t i = 0; i < DEVICE_PARTS; i++) {
        double rate, own = (double)split->step_bytes[i] + 1.0;
        if (of(base)->inner[i] == NULL)
            continue;
        AVO_TRY(device_stream_measure(of(base)->inner[i], &rate, error));
        bytes += own;
        seconds += own / (rate > 0.0 ? rate : 1.0);
    }
    *bytes_per_second = bytes / seconds;
    return AVO_OK;
}

/* ---- Steps ---- */

/* The step as one device is given it: its weights, pages and adapters. */
static void make_step(split_stream *stream, const device_step *given, uint32_t part) {
    const split_weights *weights = (const split_weights *)(const void *)given->weights;
    const split_block *block = given->kv->memory.owner;
    batch_view *batch = &stream->batch[part];
    device_step *step = &stream->step[part];
    *batch = *given->batch;
    *step = *given;
    step->batch = batch;
    step->weights = weights->inner[part];
    if (stream->inner[FIRST] != NULL) {
        step->kv = &block->kv[part];
    } else if (block != NULL) { /* one of the second device's own */
        stream->kv = *given->kv;
        stream->kv.memory = block->memory[SECOND];
        step->kv = &stream->kv;
    }
    assert(batch->runs <= stream->runs_max);
    adapter_run *run = stream->run + part * stream->runs_max;
    for (uint32_t i = 0; i < batch->runs; i++) {
        run[i] = given->batch->run[i];
        run[i].adapter = split_adapter_of(run[i].adapter)->inner[part].view;
    }
    batch->run = run;
}

static avo_status compute_first(split_stream *stream, const device_step *given, const float **rows,
                                avo_error *error) {
    device_stream *first = stream->inner[FIRST];
    make_step(stream, given, FIRST);
    batch_view *batch = &stream->batch[FIRST];
    batch->logit_rows = batch->top = 0;
    batch->logits_whole = false;
    batch->target = NULL;
    AVO_TRY(device_start(first, DEVICE_FORWARD, &stream->step[FIRST], error));
    AVO_TRY(device_wait(first, error));
    return device_read_tap(first, stream->taps_first, 0, batch->rows, rows, error);
}

static avo_status stream_start(device_stream *base, device_work work, const device_step *given,
                               avo_error *error) {
    split_stream *stream = of(base);
    const float *rows = NULL;
    if (stream->inner[FIRST] != NULL && work == DEVICE_FORWARD)
        AVO_TRY(compute_first(stream, given, &rows, error));
    make_step(stream, given, SECOND);
    if (stream->inner[FIRST] != NULL) {
        stream->batch[SECOND].input = rows;
        stream->batch[SECOND].attention_input = NULL;
    }
    return device_start(stream->inner[SECOND], work, &stream->step[SECOND], error);
}

static avo_status stream_wait(device_stream *stream, avo_error *error) {
    return device_wait(of(stream)->inner[SECOND], error);
}

/* ---- Results ---- */

static avo_status read_top(device_stream *stream, const logit_top **top, avo_error *error) {
    return device_read_top(of(stream)->inner[SECOND], top, error);
}

static avo_status read_logits(device_stream *stream, uint32_t row, const float **logits,
                              avo_error *error) {
    return device_read_logits(of(stream)->inner[SECOND], row, logits, error);
}

static avo_status read_chosen(device_stream *stream, uint32_t row, const int32_t *tokens,
                              uint32_t count, float *chosen, avo_error *error) {
    return device_read_chosen(of(stream)->inner[SECOND], row, tokens, count, chosen, error);
}

static avo_status read_normed(device_stream *stream, uint32_t count, const float **rows,
                              avo_error *error) {
    return device_read_normed(of(stream)->inner[SECOND], count, rows, error);
}

static avo_status read_tap(device_stream *base, uint32_t tap, uint32_t first, uint32_t count,
                           const float **rows, avo_error *error) {
    const split_stream *stream = of_const(base);
    bool behind = tap >= stream->taps_first;
    return device_read_tap(stream->inner[behind ? SECOND : FIRST],
                           behind ? tap - stream->taps_first : tap, first, count, rows, error);
}

const stream_operations split_stream_operations = {.size = sizeof(split_stream),
                                                   .bytes = stream_bytes,
                                                   .open = stream_open,
                                                   .close = stream_close,
                                                   .resize = stream_resize,
                                                   .workers = stream_workers,
                                                   .figures = stream_figures_of,
                                                   .report = stream_report,
                                                   .measure = stream_measure,
                                                   .start = stream_start,
                                                   .wait = stream_wait,
                                                   .read_top = read_top,
                                                   .read_logits = read_logits,
                                                   .read_chosen = read_chosen,
                                                   .read_normed = read_normed,
                                                   .read_tap = read_tap};
