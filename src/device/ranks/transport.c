/* Waiting for an exchange, and the exchanges that are made of it. */
#include "device/ranks/transport.h"

#include "base/clock.h"
#include "base/cpu.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* A wait inside a step ends within microseconds; between steps it may last for hours, and must not
 * keep a processor busy. */
#define SPINS    256     /* looks before the processor is offered to others */
#define AWAKE_NS 2000000 /* from then on the thread sleeps between two looks */
#define IDLE_NS  500000000
#define NAP_NS   50000
#define SLEEP_NS 1000000

static void rest(uint64_t looks, uint64_t waited_ns) {
    if (looks < SPINS) {
        cpu_pause();
    } else if (waited_ns < AWAKE_NS) {
        sched_yield();
    } else {
        struct timespec nap = {.tv_nsec = waited_ns < IDLE_NS ? NAP_NS : SLEEP_NS};
        nanosleep(&nap, NULL);
    }
}

avo_status transport_exchange(transport *transport, const group_part *send,
                              const group_part *receive, uint64_t timeout_ns, avo_error *error) {
    AVO_TRY(transport->operations->begin(transport, send, receive, error));
    uint64_t begin = clock_now_ns(), waited = 0;
    bool done = false;
    for (uint64_t looks = 0;; looks++) {
        AVO_TRY(transport->operations->proceed(transport, &done, error));
        if (done)
            return AVO_OK;
        waited = clock_now_ns() - begin;
        if (waited > timeout_ns)
            return status_fail(error, AVO_ERROR_DEVICE,
                               "rank %u has not answered for %.1f s: it is dead, or too slow "
                               "(`timeout=` of the device says how long to wait)",
                               transport->operations->missing(transport),
                               (double)timeout_ns * 1e-9);
        rest(looks, waited);
    }
}

avo_status transport_spread(transport *transport, void *data, size_t bytes, uint64_t timeout_ns,
                            avo_error *error) {
    group_part send[GROUP_RANKS_MAX] = {{0}}, receive[GROUP_RANKS_MAX] = {{0}};
    group_part all = {data, bytes};
    if (transport->rank > 0)
        receive[0] = all;
    for (uint32_t rank = 1; transport->rank == 0 && rank < transport->ranks; rank++)
        send[rank] = all;
    return transport_exchange(transport, send, receive, timeout_ns, error);
}

avo_status transport_collect(transport *transport, void *data, size_t bytes, uint64_t timeout_ns,
                             avo_error *error) {
    group_part send[GROUP_RANKS_MAX] = {{0}}, receive[GROUP_RANKS_MAX] = {{0}};
    if (transport->rank > 0)
        send[0] = (group_part){data, bytes};
    for (uint32_t rank = 1; transport->rank == 0 && rank < transport->ranks; rank++)
        receive[rank] = (group_part){(uint8_t *)data + rank * bytes, bytes};
    return transport_exchange(transport, send, receive, timeout_ns, error);
}

void transport_close(transport *transport) {
    if (transport != NULL)
        transport->operations->close(transport);
}
