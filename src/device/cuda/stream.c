/* Streams of the CUDA device: memory on the card and pinned memory of the host for one step, and
 * results that are copied out when they are asked for. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/float_mode.h"
#include "base/mathd.h"
#include "device/cuda/cuda.h"

#include <math.h>
#include <string.h>

#define READ_BYTES  ((size_t)256 << 20)
#define READ_PASSES 8

#define HOST_WORKERS 16 /* at most */

/* ---- Opening ---- */

static bool stream_bytes(const device *device, const stream_shape *shape, uint64_t *bytes) {
    cuda_scratch scratch;
    cuda_input input;
    size_t size;
    bool fast = ((const cuda_device *)(const void *)device)->fast;
    return cuda_scratch_lay(shape, fast, NULL, &scratch, &input, &size) &&
           device_memory_round(device, size, bytes);
}

static void stream_close(device_stream *base) {
    cuda_stream *stream = cuda_stream_of(base);
    cuda_port *port = cuda_of(base->device)->port;
    const avo_allocator *allocator = base->device->allocator;
    for (uint32_t i = 0; i < CUDA_GRAPHS; i++)
        if (stream->recording[i].graph != NULL)
            port->operations->graph_close(port, stream->recording[i].graph);
    if (stream->memory != NULL)
        port->operations->give(port, stream->memory);
    if (stream->host_input != NULL)
        port->operations->host_give(port, stream->host_input);
    if (stream->host_output != NULL)
        port->operations->host_give(port, stream->host_output);
    if (stream->team != NULL)
        team_close(stream->team);
    allocator_give(allocator, stream->host_scratch, stream->host_scratch_bytes);
    stream_results_close(base, &stream->results);
}

static avo_status too_large(const stream_shape *shape, avo_error *error) {
    return status_fail(error, AVO_ERROR_LIMIT,
                       "scratch for %u rows is too large; use fewer rows or a shorter context",
                       shape->rows_max);
}

/* Rooms for the host's part: what reference_embed reads and writes. Hidden states and angles lie
 * in the input itself. */
static avo_status take_host(cuda_stream *stream, avo_error *error) {
    const stream_shape *shape = &stream->base.shape;
    const model_view *model = shape->model;
    scratch_shape own = {.model = model,
                         .rows_max = shape->rows_max,
                         .logits_max = shape->head_rows,
                         .workers = stream->workers,
                         .context_max = shape->context_max,
                         .adapter_rank_max = shape->adapter_rank_max};
    size_t rows = shape->rows_max, worker, ignored, total = 0, at[4], bytes[4];
    if (!backend_reference()->scratch_bytes(&own, &worker, &ignored))
        return too_large(shape, error);
    if (!size_multiply(worker, stream->workers, &bytes[0]))
        return too_large(shape, error);
    bytes[1] = rows * size_max(model->width, model->embedding.k) * sizeof(float);
    bytes[2] = rows * adapter_row_room(shape->adapter_rank_max) * sizeof(float);
    bytes[3] = rows * ADAPTERS_OF_ROW * sizeof(run_place);
    for (int i = 0; i < 4; i++) {
        at[i] = total;
        if (!size_add(total, bytes[i], &total) || !size_round_up(total, 64, &total))
            return too_large(shape, error);
    }
    uint8_t *block = allocator_take(stream->base.device->allocator, total);
    if (block == NULL)
        return status_no_memory(error, "the host's scratch", total);
    stream->host_scratch = block;
    stream->host_scratch_bytes = total;
    stream->host =
        (scratch_view){.hidden = (float *)(void *)(stream->host_input + stream->input.hidden),
                       .cosine = (float *)(void *)(stream->host_input + stream->input.cosine),
                       .sine = (float *)(void *)(stream->host_input + stream->input.sine),
                       .worker = block + at[0],
                       .worker_bytes = worker,
                       .normed = (float *)(void *)(block + at[1]),
                       .adapted = (float *)(void *)(block + at[2]),
                       .place = (run_place *)(void *)(block + at[3]),
                       .pairs_max = shape->pairs_max,
                       .rows_max = shape->rows_max,
                       .logits_max = shape->head_rows,
                       .context_max = shape->context_max,
                       .adapter_rank_max = shape->adapter_rank_max};
    return AVO_OK;
}

static avo_status stream_open(device_stream *base, avo_error *error) {
    cuda_stream *stream = cuda_stream_of(base);
    cuda_port *port = cuda_of(base->device)->port;
    const stream_shape *shape = &base->shape;
    cuda_scratch sizes;
    stream->chunks = (base->vocabulary + HEAD_CHUNK_K - 1) / HEAD_CHUNK_K;
    size_t output = shape->head_rows * (sizeof(head_top) + stream->chunks * sizeof(head_sum));
    bool fast = cuda_of(base->device)->fast;
    if (!cuda_scratch_lay(shape, fast, NULL, &sizes, &stream->input, &stream->memory_bytes))
        return too_large(shape, error);
    /* Steps of many rows share out embeddings and angles; with few the caller's thread does them.
     */
    stream->workers = cpu_usable_threads();
    if (stream->workers > HOST_WORKERS)
        stream->workers = HOST_WORKERS;
    AVO_TRY(team_open(base->device->allocator, stream->workers, &stream->team, error));
    AVO_TRY(stream_results_open(base, &stream->results, error));
    AVO_TRY(cuda_status(port, port->operations->take(port, stream->memory_bytes, &stream->memory),
                        "taking scratch", error));
    AVO_TRY(cuda_status(port,
                        port->operations->host_take(port, stream->input.bytes,
                                                    (void **)(void *)&stream->host_input),
                        "taking pinned memory", error));
    AVO_TRY(cuda_status(port,
                        port->operations->host_take(port, size_max(output, 64),
                                                    (void **)(void *)&stream->host_output),
                        "taking pinned memory", error));
    (void)cuda_scratch_lay(shape, fast, stream->memory, &stream->scratch, &stream->input,
                           &stream->memory_bytes);
    /* Counters of attention begin at zero, and are left so. */
    cu_result result = port->operations->zero(
        port, CUDA_QUEUE_STEPS, (uint8_t *)stream->scratch.arrived,
        (size_t)((uint8_t *)stream->scratch.query_form - (uint8_t *)stream->scratch.arrived));
    AVO_TRY(cuda_status(port, result, "clearing scratch", error));
    return take_host(stream, error);
}

static avo_status stream_measure(device_stream *stream, double *bytes_per_second,
                                 avo_error *error) {
    cuda_port *port = cuda_of(stream->device)->port;
    uint64_t left, total;
    AVO_TRY(cuda_status(port, port->operations->memory_info(port, &left, &total),
                        "asking for free memory", error));
    size_t bytes = left / 4 < READ_BYTES ? (size_t)(left / 4) / 4096 * 4096 : READ_BYTES;
    uint8_t *memory;
    if (bytes == 0)
        return status_no_memory(error, "memory to read", 4096);
    AVO_TRY(cuda_status(port, port->operations->take(port, bytes + 256, &memory), "memory to read",
                        error));
    read_call call = {.from = (const uint32_t *)(const void *)memory,
                      .groups = bytes / 16,
                      .sum = (uint32_t *)(void *)(memory + bytes)};
    cuda_launch launch = {CUDA_KERNEL_read, READ_BLOCKS, 1, 1, READ_THREADS, 0, CUDA_BEHIND};
    cu_result result = port->operations->zero(port, CUDA_QUEUE_STEPS, memory, bytes + 256);
    uint64_t begin = 0;
    for (int pass = 0; pass <= READ_PASSES && result == 0; pass++) {
        if (pass == 1) { /* behind the first */
            result = port->operations->wait(port, CUDA_QUEUE_STEPS);
            begin = clock_now_ns();
        }
        if (result == 0)
            result = port->operations->launch(port, &launch, &call);
    }
    if (result == 0)
        result = port->operations->wait(port, CUDA_QUEUE_STEPS);
    uint64_t nanoseconds = clock_now_ns() - begin;
    port->operations->give(port, memory);
    AVO_TRY(cuda_status(port, result, "measuring", error));
    *bytes_per_second = (double)bytes * READ_PASSES * 1e9 / (double)(nanoseconds + 1);
    return AVO_OK;
}

/* ---- Results ---- */

/* What came back of one row, and the sum of its chunks in double precision, chunk by chunk. */
static void take_top(const cuda_stream *stream, uint32_t row, logit_top *out) {
    const head_top *found = (const head_top *)(const void *)stream->host_output + row;
    const head_sum *sums =
        (const head_sum *)(const void *)(stream->host_output +
                                         stream->base.shape.head_rows * sizeof(head_top)) +
        (size_t)row * stream->chunks;
    memcpy(out->logit, found->logit, sizeof(out->logit));
    memcpy(out->token, found->token, sizeof(out->token));
    out->count = found->count;
    out->target = found->target;
    double highest = out->count > 0 ? (double)out->logit[0] : 0.0;
    double sum = 0.0;
    for (size_t chunk = 0; chunk < stream->chunks; chunk++)
        sum += sums[chunk].highest == -INFINITY && sums[chunk].sum == sums[chunk].sum
                   ? 0.0
                   : (double)sums[chunk].sum * mathd_exp((double)sums[chunk].highest - highest);
    out->log_sum = mathd_log(sum);
}

static avo_status stream_wait(device_stream *base, avo_error *error) {
    cuda_stream *stream = cuda_stream_of(base);
    cuda_port *port = cuda_of(base->device)->port;
    AVO_TRY(cuda_status(port, port->operations->wait(port, CUDA_QUEUE_STEPS), "a step", error));
    float_mode mode;
    float_mode_enter(&mode);
    for (uint32_t row = 0; row < stream->top_rows; row++)
        take_top(stream, row, &stream->results.top[row]);
    float_mode_leave(&mode);
    return AVO_OK;
}

static avo_status read_top(device_stream *stream, const logit_top **top, avo_error *error) {
    (void)error;
    *top = cuda_stream_of(stream)->results.top;
    return AVO_OK;
}

static avo_status read_logits(device_stream *base, uint32_t row, const float **logits,
                              avo_error *error) {
    cuda_stream *stream = cuda_stream_of(base);
    size_t at = (size_t)row * stream->base.vocabulary;
    AVO_TRY(cuda_copy_out(cuda_of(base->device), stream->results.logits + at,
                          (const uint8_t *)(stream->scratch.logits + at),
                          stream->base.vocabulary * sizeof(float), error));
    *logits = stream->results.logits + at;
    return AVO_OK;
}

static avo_status read_rows(cuda_stream *stream, const float *from, uint32_t count,
                            const float **rows, avo_error *error) {
    AVO_TRY(cuda_copy_out(cuda_of(stream->base.device), stream->results.rows, (const uint8_t *)from,
                          (size_t)count * stream->base.width * sizeof(float), error));
    *rows = stream->results.rows;
    return AVO_OK;
}

static avo_status read_normed(device_stream *base, uint32_t count, const float **rows,
                              avo_error *error) {
    cuda_stream *stream = cuda_stream_of(base);
    return read_rows(stream, stream->scratch.normed, count, rows, error);
}

static avo_status read_tap(device_stream *base, uint32_t tap, uint32_t first, uint32_t count,
                           const float **rows, avo_error *error) {
    cuda_stream *stream = cuda_stream_of(base);
    const float *from = stream->scratch.tap + ((size_t)tap * stream->base.shape.rows_max + first) *
                                                  (size_t)stream->base.width;
    return read_rows(stream, from, count, rows, error);
}

const stream_operations cuda_stream_operations = {.size = sizeof(cuda_stream),
                                                  .bytes = stream_bytes,
                                                  .open = stream_open,
                                                  .close = stream_close,
                                                  .measure = stream_measure,
                                                  .start = cuda_start,
                                                  .wait = stream_wait,
                                                  .read_top = read_top,
                                                  .read_logits = read_logits,
                                                  .read_normed = read_normed,
                                                  .read_tap = read_tap};
