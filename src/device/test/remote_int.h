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
    bool late;
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

/* The stream of the CPU device behind it. */
device_stream *remote_stream_inner(device_stream *stream);

extern const stream_operations remote_stream_operations;

#endif
