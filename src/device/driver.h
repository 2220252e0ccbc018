/* For those who implement a device: what its structures begin with and the table of its
 * operations. The functions of device.h call through this table; what they promise there holds for
 * each entry. */
#ifndef AVO_DEVICE_DRIVER_H
#define AVO_DEVICE_DRIVER_H

#include "device/device.h"

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

    avo_status (*weights_plan)(const device *device, const weights_source *source,
                               weights_plan *plan, avo_error *error);
    avo_status (*weights_open)(device_stream *stream, const weights_source *source,
                               device_weights **out, avo_error *error);
    void (*weights_close)(device_weights *weights);
    /* NULL, both of them: adapters are used in place. */
    avo_status (*adapter_open)(device *device, const adapter_view *view, const model_view *model,
                               device_adapter *out, avo_error *error);
    void (*adapter_close)(device *device, device_adapter *adapter);

    bool (*stream_bytes)(const device *device, const stream_shape *shape, uint64_t *bytes);
    avo_status (*stream_open)(device *device, const stream_shape *shape, device_stream **out,
                              avo_error *error);
    void (*stream_close)(device_stream *stream);
    void (*stream_resize)(device_stream *stream, uint32_t threads);
    uint32_t (*stream_workers)(const device_stream *stream);
    void (*stream_figures)(const device_stream *stream, stream_figures *figures);
    void (*stream_report)(device_stream *stream, telemetry_engine *telemetry);
    avo_status (*stream_measure)(device_stream *stream, double *bytes_per_second, avo_error *error);

    avo_status (*start)(device_stream *stream, device_work work, const device_step *step,
                        avo_error *error);
    avo_status (*wait)(device_stream *stream, avo_error *error);
    avo_status (*read_top)(device_stream *stream, const logit_top **top, avo_error *error);
    avo_status (*read_logits)(device_stream *stream, uint32_t row, const float **logits,
                              avo_error *error);
    avo_status (*read_chosen)(device_stream *stream, uint32_t row, const int32_t *tokens,
                              uint32_t count, float *chosen, avo_error *error);
    avo_status (*read_normed)(device_stream *stream, uint32_t count, const float **rows,
                              avo_error *error);
    avo_status (*read_tap)(device_stream *stream, uint32_t tap, uint32_t first, uint32_t count,
                           const float **rows, avo_error *error);
} device_operations;

struct device {
    const device_operations *operations;
    const avo_allocator *allocator; /* of the host */
    device_info info;
};

struct device_stream {
    device *device;
};

struct device_weights {
    device *device;
    model_view view;
};

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
    /* `parameters`: what follows the colon in "NAME:PARAMETERS"; NULL: nothing does. */
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
