/* Streams of the remote device: a thread that works behind the wall (with "late", the thread that
 * waits), and results that are copied out when they are asked for. */
#include "base/checked.h"
#include "device/test/remote_int.h"

#include <assert.h>
#include <string.h>
#include <time.h>

typedef enum stream_state { STREAM_IDLE, STREAM_STARTED, STREAM_DONE, STREAM_ENDS } stream_state;

typedef struct remote_stream {
    device_stream base;
    device_stream *inner;
    pthread_t thread;
    bool running; /* the thread */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    stream_state state;
    device_work work;
    device_step step; /* of the inner device */
    uint32_t logit_rows;
    /* Results that can be read: all others are NaN, whatever the inner device still has. */
    bool has_top, has_logits, has_normed, has_taps;
    avo_status status; /* of the work */
    avo_error error;
    stream_results results;
} remote_stream;

static remote_stream *of(device_stream *stream) {
    return (remote_stream *)(void *)stream;
}

static remote_device *device_of(device_stream *stream) {
    return remote_of(stream->device);
}

device_stream *remote_stream_inner(device_stream *stream) {
    return of(stream)->inner;
}

/* ---- The thread ---- */

static void work_now(remote_stream *stream) {
    remote_device *remote = device_of(&stream->base);
    if (remote->delay_us > 0) {
        struct timespec wait = {.tv_sec = remote->delay_us / 1000000,
                                .tv_nsec = remote->delay_us % 1000000 * 1000};
        nanosleep(&wait, NULL);
    }
    wall_open(&remote->wall);
    avo_status status = device_start(stream->inner, stream->work, &stream->step, &stream->error);
    if (status == AVO_OK)
        status = device_wait(stream->inner, &stream->error);
    wall_close(&remote->wall);
    stream->status = status;
}

static void *stream_main(void *context) {
    remote_stream *stream = context;
    pthread_mutex_lock(&stream->mutex);
    while (stream->state != STREAM_ENDS) {
        if (stream->state != STREAM_STARTED) {
            pthread_cond_wait(&stream->changed, &stream->mutex);
            continue;
        }
        pthread_mutex_unlock(&stream->mutex);
        work_now(stream);
        pthread_mutex_lock(&stream->mutex);
        stream->state = STREAM_DONE;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->mutex);
    return NULL;
}

static void set_state(remote_stream *stream, stream_state state) {
    pthread_mutex_lock(&stream->mutex);
    stream->state = state;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->mutex);
}

/* ---- Opening ---- */

static bool stream_bytes(const device *device, const stream_shape *shape, uint64_t *bytes) {
    const remote_device *remote = (const remote_device *)(const void *)device;
    return device_stream_bytes(remote->inner, shape, bytes);
}

static void stream_close(device_stream *base) {
    remote_stream *stream = of(base);
    remote_device *remote = device_of(base);
    assert(remote->weights == 0 && stream->base.shape.index == remote->streams - 1);
    remote->streams--;
    if (stream->running) {
        set_state(stream, STREAM_ENDS);
        pthread_join(stream->thread, NULL);
    }
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->mutex);
    device_stream_close(stream->inner);
    stream_results_close(base, &stream->results);
}

static avo_status stream_open(device_stream *base, avo_error *error) {
    remote_stream *stream = of(base);
    remote_device *remote = device_of(base);
    remote->streams++;
    pthread_mutex_init(&stream->mutex, NULL);
    pthread_cond_init(&stream->changed, NULL);
    AVO_TRY(remote_call(base->device, "opening a stream", error));
    AVO_TRY(stream_results_open(base, &stream->results, error));
    AVO_TRY(device_stream_open(remote->inner, &base->shape, &stream->inner, error));
    if (remote->late)
        return AVO_OK;
    if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0)
        return status_fail(error, AVO_ERROR_MEMORY, "the remote device cannot start a thread");
    stream->running = true;
    return AVO_OK;
}

static void stream_resize(device_stream *stream, uint32_t threads) {
    if (stream->device->info.cpu.threads > 0)
        device_stream_resize(of(stream)->inner, threads);
}

static uint32_t stream_workers(const device_stream *stream) {
    return device_stream_workers(((const remote_stream *)(const void *)stream)->inner);
}

static void stream_figures_of(const device_stream *stream, stream_figures *figures) {
    *figures = device_stream_figures(((const remote_stream *)(const void *)stream)->inner);
}

static void stream_report(device_stream *stream, telemetry_engine *telemetry) {
    device_stream_report(of(stream)->inner, telemetry);
}

static avo_status stream_measure(device_stream *stream, double *bytes_per_second,
                                 avo_error *error) {
    AVO_TRY(remote_call(stream->device, "measuring", error));
    return device_stream_measure(of(stream)->inner, bytes_per_second, error);
}

/* ---- Steps ---- */

static avo_status stream_start(device_stream *base, device_work work, const device_step *step,
                               avo_error *error) {
    remote_stream *stream = of(base);
    AVO_TRY(remote_call(base->device, "starting work", error));
    const remote_weights *weights = (const remote_weights *)(const void *)step->weights;
    stream->work = work;
    stream->step = *step;
    if (weights->inner->view.layers != weights->base.view.layers) /* of an early exit, once */
        weights->inner->view.layers = weights->base.view.layers;
    stream->step.weights = weights->inner;
    if (work != DEVICE_NORM)
        stream->logit_rows = step->batch->logit_rows;
    stream->has_normed = false;
    if (work != DEVICE_NORM)
        stream->has_top = stream->has_logits = false;
    if (work == DEVICE_FORWARD)
        stream->has_taps = false;
    /* Results that somebody reads too early are NaN. */
    memset(stream->results.top, 0xff, stream->results.top_bytes);
    memset(stream->results.logits, 0xff, stream->results.logits_bytes);
    memset(stream->results.rows, 0xff, stream->results.rows_bytes);
    if (device_of(base)->late)
        stream->state = STREAM_STARTED;
    else
        set_state(stream, STREAM_STARTED);
    return AVO_OK;
}

static avo_status stream_wait(device_stream *base, avo_error *error) {
    remote_stream *stream = of(base);
    if (device_of(base)->late && stream->state == STREAM_STARTED)
        work_now(stream);
    pthread_mutex_lock(&stream->mutex);
    while (stream->running && stream->state == STREAM_STARTED)
        pthread_cond_wait(&stream->changed, &stream->mutex);
    stream->state = STREAM_IDLE;
    avo_status status = stream->status;
    pthread_mutex_unlock(&stream->mutex);
    AVO_TRY(remote_call(base->device, "work", error));
    if (status != AVO_OK) {
        if (error != NULL)
            *error = stream->error;
        return status;
    }
    const batch_view *batch = stream->step.batch;
    if (stream->work == DEVICE_NORM) {
        stream->has_normed = true;
        return AVO_OK;
    }
    stream->has_top = batch->top > 0;
    stream->has_logits = batch->logits_whole;
    stream->has_taps = stream->has_taps || stream->work == DEVICE_FORWARD;
    return AVO_OK;
}

/* ---- Results ---- */

static avo_status read_top(device_stream *base, const logit_top **top, avo_error *error) {
    remote_stream *stream = of(base);
    AVO_TRY(remote_call(base->device, "reading the highest logits", error));
    wall_open(&device_of(base)->wall);
    const logit_top *inner;
    avo_status status = device_read_top(stream->inner, &inner, error);
    memset(stream->results.top, 0xff, stream->results.top_bytes);
    if (status == AVO_OK && stream->has_top)
        memcpy(stream->results.top, inner, stream->logit_rows * sizeof(logit_top));
    wall_close(&device_of(base)->wall);
    *top = stream->results.top;
    return status;
}

static avo_status read_logits(device_stream *base, uint32_t row, const float **logits,
                              avo_error *error) {
    remote_stream *stream = of(base);
    AVO_TRY(remote_call(base->device, "reading logits", error));
    float *own = stream->results.logits + (size_t)row * stream->base.vocabulary;
    wall_open(&device_of(base)->wall);
    const float *inner;
    avo_status status = device_read_logits(stream->inner, row, &inner, error);
    memset(own, 0xff, stream->base.vocabulary * sizeof(float));
    if (status == AVO_OK && stream->has_logits && row < stream->logit_rows)
        memcpy(own, inner, stream->base.vocabulary * sizeof(float));
    wall_close(&device_of(base)->wall);
    *logits = own;
    return status;
}

static avo_status read_chosen(device_stream *base, uint32_t row, const int32_t *tokens,
                              uint32_t count, float *chosen, avo_error *error) {
    remote_stream *stream = of(base);
    AVO_TRY(remote_call(base->device, "reading chosen logits", error));
    wall_open(&device_of(base)->wall);
    avo_status status = device_read_chosen(stream->inner, row, tokens, count, chosen, error);
    if (status == AVO_OK && !(stream->has_logits && row < stream->logit_rows))
        memset(chosen, 0xff, count * sizeof(*chosen));
    wall_close(&device_of(base)->wall);
    return status;
}

static const float *read_rows(remote_stream *stream, const float *inner, uint32_t count,
                              bool there) {
    memset(stream->results.rows, 0xff, stream->results.rows_bytes);
    if (there)
        memcpy(stream->results.rows, inner, (size_t)count * stream->base.width * sizeof(float));
    return stream->results.rows;
}

static avo_status read_normed(device_stream *base, uint32_t count, const float **rows,
                              avo_error *error) {
    AVO_TRY(remote_call(base->device, "reading hidden states", error));
    wall_open(&device_of(base)->wall);
    const float *inner;
    avo_status status = device_read_normed(of(base)->inner, count, &inner, error);
    if (status == AVO_OK)
        *rows = read_rows(of(base), inner, count, of(base)->has_normed);
    wall_close(&device_of(base)->wall);
    return status;
}

static avo_status read_tap(device_stream *base, uint32_t tap, uint32_t first, uint32_t count,
                           const float **rows, avo_error *error) {
    AVO_TRY(remote_call(base->device, "reading hidden states", error));
    wall_open(&device_of(base)->wall);
    const float *inner;
    avo_status status = device_read_tap(of(base)->inner, tap, first, count, &inner, error);
    if (status == AVO_OK)
        *rows = read_rows(of(base), inner, count, of(base)->has_taps);
    wall_close(&device_of(base)->wall);
    return status;
}

const stream_operations remote_stream_operations = {.size = sizeof(remote_stream),
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
