/* How ranks exchange bytes: point to point, with a deadline. One call sends to and receives from
 * any of the other ranks at once, so that gathers, broadcasts and hand-overs are all the same.
 * local.c carries bytes over sockets of one machine, mpi.c over Open MPI.
 *
 * One thread uses a transport at a time. After a call that failed nothing else can be exchanged:
 * the ranks no longer agree on what comes next. */
#ifndef AVO_DEVICE_RANKS_TRANSPORT_H
#define AVO_DEVICE_RANKS_TRANSPORT_H

#include "base/allocator.h"
#include "base/status.h"
#include "device/cpu/group.h"

typedef struct transport transport;

typedef struct transport_operations {
    /* Starts to send send[r] to and to receive receive[r] from every other rank r. The arrays are
     * [ranks] and stay until the exchange is done. */
    avo_status (*begin)(transport *transport, const group_part *send, const group_part *receive,
                        avo_error *error);
    /* Goes on with it, without waiting. */
    avo_status (*proceed)(transport *transport, bool *done, avo_error *error);
    /* A rank that the exchange waits for. */
    uint32_t (*missing)(transport *transport);
    void (*close)(transport *transport);
} transport_operations;

struct transport {
    const transport_operations *operations;
    const avo_allocator *allocator;
    uint32_t rank, ranks;
};

#define TRANSPORT_FOREVER UINT64_MAX

/* AVO_ERROR_DEVICE: a rank has left, or has not answered for `timeout_ns`. */
AVO_MUST_USE avo_status transport_exchange(transport *transport, const group_part *send,
                                           const group_part *receive, uint64_t timeout_ns,
                                           avo_error *error);
/* Rank 0 sends the same to all others, who call this as well. */
AVO_MUST_USE avo_status transport_spread(transport *transport, void *data, size_t bytes,
                                         uint64_t timeout_ns, avo_error *error);
/* Every other rank sends so many bytes to rank 0, which has them at rank · bytes of `data`; the
 * others' `data` is what they send. */
AVO_MUST_USE avo_status transport_collect(transport *transport, void *data, size_t bytes,
                                          uint64_t timeout_ns, avo_error *error);
/* NULL is closed, too. */
void transport_close(transport *transport);

/* ---- Carriers ---- */

/* Transports of `ranks` ranks, connected with one another by sockets: for threads of this process,
 * or processes that are forked from it. */
AVO_MUST_USE avo_status transport_local(const avo_allocator *allocator, uint32_t ranks,
                                        transport **out, avo_error *error);

/* What mpirun has told this process about itself; `ranks` 0: it was not started by it. */
typedef struct mpi_launch {
    uint32_t rank, ranks;
    uint32_t here; /* ranks of this machine */
} mpi_launch;
mpi_launch mpi_launched(void);
/* The two folders where Open MPI keeps files of this job; NULL: mpirun did not start this process.
 * A sandbox must let it remove them in the end. */
const char *mpi_folder(uint32_t number);
/* Loads Open MPI and joins the others; all ranks come here before any goes on. Once a process.
 * Connections are made now: a sandbox may forbid that later. */
AVO_MUST_USE avo_status mpi_join(avo_error *error);
/* Whether it has joined, and not left. */
bool mpi_joined(void);
/* All ranks come here before any goes on. */
void mpi_leave(void);
AVO_MUST_USE avo_status transport_mpi(const avo_allocator *allocator, transport **out,
                                      avo_error *error);

#endif
