/* One model split over several processes, its ranks: device "mpi". Rank 0 is an ordinary device to
 * the engine; the others run ranks_serve, which opens the same model and computes what rank 0 tells
 * it to. All ranks compute with a CPU device; device/cpu/group.h says who computes what, and why
 * the bits are those of one process.
 *
 * When a rank dies or does not answer in time, the call at hand fails with AVO_ERROR_DEVICE, and so
 * does every later one: the ranks no longer agree on what comes next. Nothing waits for ever. */
#ifndef AVO_DEVICE_RANKS_RANKS_H
#define AVO_DEVICE_RANKS_RANKS_H

#include "device/device.h"
#include "device/ranks/transport.h"

extern const device_driver device_mpi;

/* ---- The other ranks ---- */

typedef struct ranks_host {
    const avo_allocator *allocator;
    /* The model at a path that rank 0 has opened; it stays open until the loop ends. */
    avo_status (*open_model)(void *context, const char *path, weights_source *out,
                             avo_error *error);
    void *context;
    uint32_t here; /* ranks that share this machine's processors */
} ranks_host;

/* Does what rank 0 says until that tells it to end (AVO_OK), or is gone. */
AVO_MUST_USE avo_status ranks_serve(transport *transport, const ranks_host *host, avo_error *error);
/* Rank 0: tells the others to end. False: not all have answered, so that they must not be waited
 * for. */
bool ranks_dismiss(transport *transport, uint64_t timeout_ns);

/* ---- For drivers ---- */

/* What a rank does wrong, for tests: at its step number `step` it leaves, or sleeps, or it has no
 * memory for its weights. */
typedef struct ranks_trouble {
    uint32_t rank; /* 0: none does */
    uint32_t kind; /* ranks_trouble_kind */
    uint64_t step;
} ranks_trouble;
typedef enum ranks_trouble_kind {
    RANKS_LEAVES,
    RANKS_SLEEPS,
    RANKS_LACKS_MEMORY
} ranks_trouble_kind;

/* How a driver reaches the other ranks. */
typedef struct ranks_carrier {
    /* How many there are: of a device that is asked for `wanted` (0: any number). */
    avo_status (*count)(uint32_t wanted, uint32_t *ranks, uint32_t *here, avo_error *error);
    avo_status (*join)(const avo_allocator *allocator, uint32_t ranks, void **world,
                       transport **out, avo_error *error);
    /* Before weights are opened by all ranks: for those of the same process. NULL: nothing. */
    void (*offer)(void *world, const weights_source *source);
    void (*leave)(void *world, transport *transport); /* closes the transport */
} ranks_carrier;

AVO_MUST_USE avo_status ranks_probe(const device_driver *driver, const ranks_carrier *carrier,
                                    const char *parameters, avo_error *error);
AVO_MUST_USE avo_status ranks_open(const device_driver *driver, const ranks_carrier *carrier,
                                   const device_options *options, const char *parameters,
                                   device **out, avo_error *error);

#endif
