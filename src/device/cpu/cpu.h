/* CPU devices: one for the reference and one for each instruction set. A stream is a team of
 * threads and the scratch of a step; memory is the host's own, so weights, adapters and KV pages
 * are used in place wherever their layout allows it. */
#ifndef AVO_DEVICE_CPU_CPU_H
#define AVO_DEVICE_CPU_CPU_H

#include "base/region.h"
#include "device/cpu/backend.h"
#include "device/cpu/phases/program.h"
#include "device/cpu/tuner.h"
#include "device/driver.h"
#include "device/store.h"

/* Those of the instruction sets that this build has exist. */
extern const device_driver cpu_driver_reference, cpu_driver_avx2, cpu_driver_avx512, cpu_driver_amx,
    cpu_driver_neon;

/* Opens one with the names of `driver`. `data`: where scratch, KV pages and repacked weights come
 * from, NULL: the allocator of the options. Threads touch everything else at any time, but data
 * only during calls and steps. */
AVO_MUST_USE avo_status cpu_open_with_data(const device_driver *driver,
                                           const device_options *options, const avo_allocator *data,
                                           device **out, avo_error *error);
/* Opens a rank's: models whose weights can be split are (group.h). `group` lives as long as the
 * device. Not of the reference, which has no phases to exchange between. */
AVO_MUST_USE avo_status cpu_open_in_group(const device_driver *driver,
                                          const device_options *options, const cpu_group *group,
                                          device **out, avo_error *error);

typedef struct cpu_device {
    device base;
    const avo_allocator *data;
    backend_choice choice;
    region_options region; /* of every block: huge pages, locking, NUMA nodes */
    bool copy_mapped;      /* panels of the file are copied into huge pages, too */
    team_pin pin;
    const cpu_group *group; /* NULL: this device computes alone */
} cpu_device;

static inline cpu_device *cpu_of(device *device) {
    return (cpu_device *)(void *)device;
}

/* ---- Placement ---- */

/* Sets region, pin and what device_info says about them. */
AVO_MUST_USE avo_status cpu_place(const device_options *options, cpu_device *cpu, avo_error *error);

/* ---- Scratch ---- */

/* Bytes of the parts of one stream's scratch, in the order in which they lie in one block. */
#define SCRATCH_PARTS 19
typedef struct scratch_sizes {
    size_t part[SCRATCH_PARTS];
    size_t total;
    size_t worker_bytes;
} scratch_sizes;

/* False when the product wraps. */
bool cpu_scratch_measure(const stream_shape *shape, uint32_t workers, const backend *backend,
                         const cpu_group *group, scratch_sizes *sizes);
/* Takes out what another stream's scratch has room for: parts that nothing outlives a step in.
 * False: it has not enough, and nothing is taken out. */
bool cpu_scratch_borrow(scratch_sizes *sizes, const scratch_sizes *lender);
/* Cuts `block` into the buffers. */
void cpu_scratch_cut(const scratch_sizes *sizes, const stream_shape *shape, uint8_t *block,
                     scratch_view *scratch);

/* ---- Streams ---- */

typedef struct cpu_stream {
    device_stream base;
    scratch_sizes sizes; /* of its own scratch */
    team *team;
    bool shares_team;  /* it is another stream's */
    phase_list phases; /* room for the program of a step */
    void *phases_memory;
    size_t phases_bytes;
    region region;
    scratch_view scratch;
    telemetry_engine *telemetry; /* NULL: nobody counts */
    uint32_t workers_max;        /* of a step: all, or what was asked for since */
    tuner tuner;                 /* where the device chooses how many of them compute */
    group_stream group;
} cpu_stream;

static inline cpu_stream *cpu_stream_of(device_stream *stream) {
    return (cpu_stream *)(void *)stream;
}

extern const stream_operations cpu_stream_operations;

/* ---- Weights ---- */

typedef struct cpu_weights {
    device_weights base;
    weights_store *store;
    weights_entry *panels; /* NULL: the file is used in place */
    bool split;            /* these are a rank's part */
    uint32_t layers_stored;
} cpu_weights;

AVO_MUST_USE avo_status cpu_weights_plan(const device *device, const weights_source *source,
                                         weights_plan *plan, avo_error *error);
AVO_MUST_USE avo_status cpu_weights_open(device_stream *stream, const weights_source *source,
                                         device_weights *weights, avo_error *error);
void cpu_weights_close(device_weights *weights);
/* The region of repacked weights in a model's store, for those who show it; NULL while nothing was
 * repacked. */
const region *cpu_weights_region(weights_store *store);

#endif
