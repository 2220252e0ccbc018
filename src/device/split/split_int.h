/* Inside device/split: the two devices, and what each has of a model, its pages and its steps. */
#ifndef AVO_DEVICE_SPLIT_SPLIT_INT_H
#define AVO_DEVICE_SPLIT_SPLIT_INT_H

#include "device/split/split.h"

/* The two devices, and what is of each: [0] the first layers', [1] the others'. */
#define FIRST  0
#define SECOND 1

typedef struct split_device {
    device base;
    device *inner[DEVICE_PARTS];
    /* The model that was divided, known by its layers; NULL: none yet, and all is the second's. */
    const layer_view *layer;
    uint32_t layers;                   /* that it computes */
    uint32_t cut;                      /* layers in front of this one are the first's */
    uint64_t step_bytes[DEVICE_PARTS]; /* of weights that a step reads of each */
} split_device;

static inline split_device *split_of(device *device) {
    return (split_device *)(void *)device;
}

/* Whether the model has layers on both devices. */
bool split_divides(const split_device *split, const model_view *model);

/* The parts of a model with `layers` layers. */
typedef struct split_models {
    model_view part[DEVICE_PARTS];
} split_models;
void split_model(const model_view *model, uint32_t cut, split_models *out);

/* Their streams' shapes, which point to `models`. The first device's last tap is the state that the
 * second begins with. */
typedef struct split_shapes {
    split_models models;
    stream_shape part[DEVICE_PARTS];
} split_shapes;
/* False: there are too many taps. */
bool split_shape(const stream_shape *shape, uint32_t cut, split_shapes *out);

/* ---- Memory ---- */

/* A block of device memory. That of KV pages has a page's first bytes on the first device and the
 * others on the second. */
typedef struct split_block {
    device_memory memory[DEVICE_PARTS]; /* {0}: nothing */
    size_t page_bytes[DEVICE_PARTS];    /* both 0: all of it is the second's */
    device_kv kv[DEVICE_PARTS];         /* of pages */
    size_t *offsets;                    /* of the second's layers */
    size_t offset_count;
} split_block;

/* ---- Weights and adapters ---- */

typedef struct split_weights {
    device_weights base;
    device_weights *inner[DEVICE_PARTS]; /* the first is NULL where all is the second's */
} split_weights;

typedef struct split_adapter {
    adapter_view view[DEVICE_PARTS];
    device_adapter inner[DEVICE_PARTS]; /* the first is {0} where all is the second's */
    device_memory memory[DEVICE_PARTS]; /* our copy, for a device that uses adapters in place */
} split_adapter;

/* Of an adapter that device_adapter_open has given. */
static inline const split_adapter *split_adapter_of(const adapter_view *view) {
    return ((const adapter_copy *)(const void *)view)->memory.owner;
}

/* ---- Streams ---- */

extern const stream_operations split_stream_operations;
/* The stream of one part; NULL: there is none. */
device_stream *split_stream_part(device_stream *stream, uint32_t part);
/* Memory of the host for one stream besides its parts'. */
size_t split_stream_bytes(const stream_shape *shape);

AVO_MUST_USE avo_status split_divide(device *device, const device_division *division,
                                     device_part part[DEVICE_PARTS], avo_error *error);

#endif
