/* For those who implement a device: what its structures begin with and the tables of its
 * operations. The functions of device.h call through these tables; what they promise there holds
 * for each entry. Where an `open` fails, device.c closes what it has opened so far: structures are
 * zeroed before it, and each `close` takes one that is opened in part. */
#ifndef AVO_DEVICE_DRIVER_H
#define AVO_DEVICE_DRIVER_H

#include "base/arena.h"
#include "device/device.h"

/* A device's copy of an adapter. */
typedef struct adapter_copy {
    adapter_view view; /* what its data points at is the device's */
    arena arena;       /* of the host, for the view's own arrays */
    device_memory memory;
} adapter_copy;

typedef struct stream_operations {
    size_t size; /* of the driver's structure, which begins with a device_stream */
    bool (*bytes)(const device *device, const stream_shape *shape, uint64_t *bytes);
    /* The device_stream is filled in. */
    avo_status (*open)(device_stream *stream, avo_error *error);
    void (*close)(device_stream *stream);
    void (*resize)(device_stream *stream, uint32_t threads); /* NULL: there are no threads */
    uint32_t (*workers)(const device_stream *stream);        /* NULL: one */
    void (*figures)(const device_stream *stream, stream_figures *figures); /* NULL: unknown */
    void (*report)(device_stream *stream, telemetry_engine *telemetry);    /* NULL: it has none */
    avo_status (*measure)(device_stream *stream, double *bytes_per_second, avo_error *error);

    avo_status (*start)(device_stream *stream, device_work work, const device_step *step,
                        avo_error *error);
    avo_status (*wait)(device_stream *stream, avo_error *error); /* NULL: a start has computed */
    avo_status (*read_top)(device_stream *stream, const logit_top **top, avo_error *error);
    avo_status (*read_logits)(device_stream *stream, uint32_t row, const float **logits,
                              avo_error *error);
    /* NULL: chosen from all logits. */
    avo_status (*read_chosen)(device_stream *stream, uint32_t row, const int32_t *tokens,
                              uint32_t count, float *chosen, avo_error *error);
    avo_status (*read_normed)(device_stream *stream, uint32_t count, const float **rows,
                              avo_error *error);
    avo_status (*read_tap)(device_stream *stream, uint32_t tap, uint32_t first, uint32_t count,
                           const float **rows, avo_error *error);
} stream_operations;

typedef struct device_operations {
    void (*close)(device *device);
    bool (*memory_round)(const device *device, size_t bytes, uint64_t *rounded);
    avo_status (*memory_take)(device *device, size_t bytes, const char *what, device_memory *out,
                              avo_error *error);
    void (*memory_give)(device *device, device_memory *memory);
    /* Offsets and lengths lie within the blocks: the caller has checked them. */
    avo_status (*copy_in)(device *device, const device_memory *to, size_t offset, const void *from,
                          size_t bytes, avo_error *error);
    avo_status (*copy_out)(device *device, void *to, const device_memory *from, size_t offset,
                           size_t bytes, avo_error *error);
    avo_status (*copy_across)(device *device, const device_memory *to, size_t to_offset,
                              const device_memory *from, size_t from_offset, size_t bytes,
                              avo_error *error);
    avo_status (*zero)(device *device, const device_memory *memory, size_t offset, size_t bytes,
                       avo_error *error);
    /* Of the host, for copies (pinned.h). NULL, both of them: from the allocator. */
    avo_status (*pinned_take)(device *device, size_t bytes, const char *what, uint8_t **data,
                              avo_error *error);
    void (*pinned_give)(device *device, uint8_t *data);
    /* NULL: one block, as from memory_take. */
    avo_status (*pages_take)(device *device, const model_view *model, uint32_t pages, device_kv *kv,
                             avo_error *error);
    /* NULL: the device computes whole models. */
    avo_status (*divide)(device *device, const device_division *division,
                         device_part part[DEVICE_PARTS], avo_error *error);

    avo_status (*weights_plan)(const device *device, const weights_source *source,
                               weights_plan *plan, avo_error *error);
    size_t weights_size; /* of the driver's structure, which begins with a device_weights */
    /* device_weights has the device and the view of the source. */
    avo_status (*weights_open)(device_stream *stream, const weights_source *source,
                               device_weights *weights, avo_error *error);
    void (*weights_close)(device_weights *weights);
    /* NULL, both of them: adapters are used in place. Closing gives `memory` back. */
    avo_status (*adapter_open)(device *device, const adapter_view *view, const model_view *model,
                               adapter_copy *copy, avo_error *error);
    void (*adapter_close)(device *device, adapter_copy *copy);

    const stream_operations *stream;
} device_operations;

struct device {
    const device_operations *operations;
    const avo_allocator *allocator; /* of the host */
    device_info info;
};

struct device_stream {
    device *device;
    stream_shape shape;         /* its model is the caller's and not read again */
    uint32_t width, vocabulary; /* of that model */
};

struct device_weights {
    device *device;
    model_view view;
};

/* ---- What drivers share ---- */

/* Counts a matrix in its group of a plan. */
void weights_plan_count(weights_plan *plan, const weight_view *from, quant_type to, bool repacked,
                        uint64_t bytes);

/* Host memory for the results of one stream's steps, where they are copied out of the device. */
typedef struct stream_results {
    logit_top *top; /* [head_rows] */
    float *logits;  /* [logits_max][vocabulary] */
    float *rows;    /* [rows_max][width], normed or tapped */
    size_t top_bytes, logits_bytes, rows_bytes;
} stream_results;
AVO_MUST_USE avo_status stream_results_open(const device_stream *stream, stream_results *results,
                                            avo_error *error);
void stream_results_close(const device_stream *stream, stream_results *results);

/* ---- Drivers ---- */

struct device_driver {
    const char *name;
    const char *kind; /* "cpu": may be asked for by that name, too */
    /* "auto" and kinds try drivers from the highest priority down; below 0: only by name. */
    int priority;
    /* Whether `parameters` (as in open) could be opened here, found out without opening anything.
     * AVO_ERROR_UNSUPPORTED: this machine lacks what the error's text names, AVO_ERROR_ARGUMENT:
     * the parameters are wrong. */
    avo_status (*probe)(const device_driver *driver, const char *parameters, avo_error *error);
    /* `parameters`: what follows the colon in "NAME:PARAMETERS"; NULL: nothing does. What *out is
     * after a failure is closed. */
    avo_status (*open)(const device_driver *driver, const device_options *options,
                       const char *parameters, device **out, avo_error *error);
};

/* All of this build, in no particular order; NULL ends them. */
const device_driver *const *device_drivers(void);
#define DEVICE_DRIVERS_MAX 16
/* device_open and device_find among these: tests have drivers of their own. */
AVO_MUST_USE avo_status device_open_among(const device_driver *const *drivers,
                                          const device_options *options, device **out,
                                          avo_error *error);
AVO_MUST_USE avo_status device_find_among(const device_driver *const *drivers, const char *name,
                                          const device_driver **found, avo_error *error);

#endif
