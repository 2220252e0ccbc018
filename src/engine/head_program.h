/* One network of draft heads on a device: a stream, weights and, for layers, K and V. Rows are
 * given by the host. Nothing is allocated behind opening. */
#ifndef AVO_ENGINE_HEAD_PROGRAM_H
#define AVO_ENGINE_HEAD_PROGRAM_H

#include "engine/engine_int.h"

typedef struct head_program_options {
    const avo_allocator *allocator;
    const avo_engine_options *engine; /* of the target: device, threads and placement */
    const model_view *view;           /* outlives the program */
    const char *path;                 /* of the heads, for errors */
    uint32_t rows_max, logits_max, context_max;
    uint32_t pages; /* of K and V; 0: no layers */
    device_stream *beside;
    const stream_shape *lender; /* as in stream_shape */
} head_program_options;

typedef struct head_program {
    device *device;
    device_stream *stream;
    device_weights *weights;
    kv_pool *kv; /* NULL: no layers */
    uint32_t rows_max, layers;
} head_program;

/* What it takes on such a device; 0 where that cannot be told, and opening will say why. */
uint64_t head_program_bytes(const device *device, const head_program_options *options);
AVO_MUST_USE avo_status head_program_open(const head_program_options *options, head_program *out,
                                          avo_error *error);
/* A program of {0} is closed, too. */
void head_program_close(head_program *program);

/* Computes a step. False: the device failed, and nothing can be read. */
bool head_program_run(const head_program *program, const batch_view *batch);
/* Forgets K and V of these pages, so that nothing that was never written is read as NaN. */
bool head_program_clear(const head_program *program, uint32_t first_page, uint32_t pages);

#endif
