/* Inside the remote device: remote.c has the device and its memory, remote_stream.c the streams. */
#ifndef AVO_DEVICE_REMOTE_INT_H
#define AVO_DEVICE_REMOTE_INT_H

#include "base/arena.h"
#include "device/test/remote.h"
#include "device/test/wall.h"

#include <stdatomic.h>

typedef struct remote_device {
    device base;
    device *inner; /* the CPU device; its data is behind the wall */
    wall wall;
    uint32_t delay_us;
    uint64_t fail, every, lost;
    _Atomic uint64_t calls, uploads;
    /* Open now. What was opened last must be closed first. */
    _Atomic uint32_t streams, weights, blocks, adapters;
} remote_device;

static inline remote_device *remote_of(device *device) {
    return (remote_device *)(void *)device;
}

typedef struct remote_weights {
    device_weights base;
    device_memory memory; /* the file's weights, uploaded */
    arena arena;          /* views of them */
    device_weights *inner;
} remote_weights;

/* Counts a call that may fail; AVO_ERROR_DEVICE where this one shall. */
AVO_MUST_USE avo_status remote_call(device *device, const char *what, avo_error *error);

bool remote_stream_bytes(const device *device, const stream_shape *shape, uint64_t *bytes);
AVO_MUST_USE avo_status remote_stream_open(device *device, const stream_shape *shape,
                                           device_stream **out, avo_error *error);
void remote_stream_close(device_stream *stream);
void remote_stream_resize(device_stream *stream, uint32_t threads);
uint32_t remote_stream_workers(const device_stream *stream);
void remote_stream_figures(const device_stream *stream, stream_figures *figures);
void remote_stream_report(device_stream *stream, telemetry_engine *telemetry);
AVO_MUST_USE avo_status remote_stream_measure(device_stream *stream, double *bytes_per_second,
                                              avo_error *error);
/* The stream of the CPU device behind it. */
device_stream *remote_stream_inner(device_stream *stream);
AVO_MUST_USE avo_status remote_start(device_stream *stream, device_work work,
                                     const device_step *step, avo_error *error);
AVO_MUST_USE avo_status remote_wait(device_stream *stream, avo_error *error);
AVO_MUST_USE avo_status remote_read_top(device_stream *stream, const logit_top **top,
                                        avo_error *error);
AVO_MUST_USE avo_status remote_read_logits(device_stream *stream, uint32_t row,
                                           const float **logits, avo_error *error);
AVO_MUST_USE avo_status remote_read_chosen(device_stream *stream, uint32_t row,
                                           const int32_t *tokens, uint32_t count, float *chosen,
                                           avo_error *error);
AVO_MUST_USE avo_status remote_read_normed(device_stream *stream, uint32_t count,
                                           const float **rows, avo_error *error);
AVO_MUST_USE avo_status remote_read_tap(device_stream *stream, uint32_t tap, uint32_t first,
                                        uint32_t count, const float **rows, avo_error *error);

#endif
