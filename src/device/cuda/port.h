/* What the CUDA device needs of a card: memory, copies, and kernels in queues. The card itself is
 * reached through the driver library; tests have a port that computes the same kernels on the
 * processor (device/test/cuda_emulated.h). */
#ifndef AVO_DEVICE_CUDA_PORT_H
#define AVO_DEVICE_CUDA_PORT_H

#include "base/allocator.h"
#include "device/cuda/kernels/calls.h"
#include "device/cuda/library.h"

typedef struct cuda_port cuda_port;

/* Work in a queue is done in order; queues do not wait for each other. */
typedef enum cuda_queue { CUDA_QUEUE_STEPS, CUDA_QUEUE_COPIES, CUDA_QUEUES } cuda_queue;

typedef enum cuda_beginning {
    CUDA_BEHIND, /* when the kernel in front has ended */
    CUDA_EARLY   /* before it has, where the card can */
} cuda_beginning;

typedef struct cuda_launch {
    cuda_kernel kernel;
    uint32_t x, y, z;         /* blocks */
    uint32_t threads, shared; /* of a block; bytes */
    cuda_beginning begin;
} cuda_launch;

/* Launches and copies of the queue of steps that were recorded, to be done again together. */
typedef struct cuda_graph cuda_graph;

typedef struct cuda_limits {
    uint32_t multiprocessors;
    uint32_t shared;  /* bytes of a block */
    bool early;       /* the card can begin a kernel before the one in front has ended */
    bool groups;      /* its tensor cores have products of warpgroups (9.0 alone) */
    uint32_t compute; /* capability: 90 for 9.0 */
} cuda_limits;

typedef struct cuda_port_operations {
    void (*close)(cuda_port *port);
    cu_result (*memory_info)(cuda_port *port, uint64_t *left, uint64_t *total);
    cu_result (*take)(cuda_port *port, size_t bytes, uint8_t **address);
    void (*give)(cuda_port *port, uint8_t *address);
    /* Host memory that copies need not stage. */
    cu_result (*host_take)(cuda_port *port, size_t bytes, void **memory);
    void (*host_give)(cuda_port *port, void *memory);
    /* The host's side may be used again when the queue was waited for. */
    cu_result (*copy_in)(cuda_port *port, cuda_queue queue, uint8_t *to, const void *from,
                         size_t bytes);
    cu_result (*copy_out)(cuda_port *port, cuda_queue queue, void *to, const uint8_t *from,
                          size_t bytes);
    cu_result (*copy_across)(cuda_port *port, cuda_queue queue, uint8_t *to, const uint8_t *from,
                             size_t bytes);
    cu_result (*zero)(cuda_port *port, cuda_queue queue, uint8_t *to, size_t bytes);
    /* In the queue of steps; `call` is the kernel's structure, copied at once. */
    cu_result (*launch)(cuda_port *port, const cuda_launch *launch, const void *call);
    /* Between the two nothing of the queue of steps is done, only noted. record_end gives the graph
     * also where a call in between failed: NULL then. */
    cu_result (*record_begin)(cuda_port *port);
    cu_result (*record_end)(cuda_port *port, cuda_graph **out);
    cu_result (*graph_start)(cuda_port *port, cuda_graph *graph);
    void (*graph_close)(cuda_port *port, cuda_graph *graph);
    cu_result (*wait)(cuda_port *port, cuda_queue queue);
    const char *(*error_name)(cuda_port *port, cu_result result);
} cuda_port_operations;

struct cuda_port {
    const cuda_port_operations *operations;
    cuda_limits limits;
};

/* "CUDA_ERROR_…", and what it means for whoever reads it; AVO_OK for 0. */
AVO_MUST_USE avo_status cuda_status(cuda_port *port, cu_result result, const char *what,
                                    avo_error *error);

/* Whether this build has kernels; AVO_ERROR_UNSUPPORTED: nvcc was not found when it was made. */
AVO_MUST_USE avo_status cuda_image_check(avo_error *error);
/* Of one part of the kernels' table. */
const void *cuda_image(uint32_t unit);

/* Whether card 0 could be opened; the error's text says what the build or the machine lacks. */
AVO_MUST_USE avo_status cuda_available(avo_error *error);

/* Card number `index` of the library, which the port then owns, whether this succeeds or not. */
AVO_MUST_USE avo_status cuda_port_open(const avo_allocator *allocator, cuda_library *library,
                                       const void *const image[CUDA_UNITS], int index,
                                       cuda_port **out, avo_error *error);
/* Whether it could be opened: library, driver's version, number of cards. */
AVO_MUST_USE avo_status cuda_library_check(const cuda_library *library, int index,
                                           avo_error *error);

#endif
