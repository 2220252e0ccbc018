/* Ranks of one machine, connected by a pair of sockets for every two of them. */
#include "device/ranks/transport.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct local_transport {
    transport base;
    int peer[GROUP_RANKS_MAX];                                  /* -1: there is none */
    group_part send[GROUP_RANKS_MAX], receive[GROUP_RANKS_MAX]; /* what is left of them */
} local_transport;

static local_transport *of(transport *transport) {
    return (local_transport *)(void *)transport;
}

static avo_status begin(transport *base, const group_part *send, const group_part *receive,
                        avo_error *error) {
    local_transport *local = of(base);
    (void)error;
    for (uint32_t rank = 0; rank < base->ranks; rank++) {
        local->send[rank] = rank == base->rank ? (group_part){0} : send[rank];
        local->receive[rank] = rank == base->rank ? (group_part){0} : receive[rank];
    }
    return AVO_OK;
}

static avo_status check(ssize_t moved, uint32_t rank, bool receives, avo_error *error) {
    bool later = moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (moved > 0 || later)
        return AVO_OK;
    if (moved < 0 && errno != EPIPE && errno != ECONNRESET)
        return status_fail(error, AVO_ERROR_DEVICE, "rank %u: %s failed: %s", rank,
                           receives ? "receiving" : "sending", strerror(errno));
    return status_fail(error, AVO_ERROR_DEVICE, "rank %u has left", rank);
}

static void shorten(group_part *part, ssize_t moved) {
    if (moved <= 0)
        return;
    part->data += moved;
    part->bytes -= (size_t)moved;
}

static avo_status proceed(transport *base, bool *done, avo_error *error) {
    local_transport *local = of(base);
    *done = true;
    for (uint32_t rank = 0; rank < base->ranks; rank++) {
        group_part *out = &local->send[rank], *in = &local->receive[rank];
        if (out->bytes > 0) {
            ssize_t moved =
                send(local->peer[rank], out->data, out->bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
            AVO_TRY(check(moved, rank, false, error));
            shorten(out, moved);
        }
        if (in->bytes > 0) {
            ssize_t moved = recv(local->peer[rank], in->data, in->bytes, MSG_DONTWAIT);
            AVO_TRY(check(moved, rank, true, error));
            shorten(in, moved);
        }
        *done = *done && out->bytes == 0 && in->bytes == 0;
    }
    return AVO_OK;
}

static uint32_t missing(transport *base) {
    const local_transport *local = of(base);
    for (uint32_t rank = 0; rank < base->ranks; rank++)
        if (local->receive[rank].bytes > 0)
            return rank;
    for (uint32_t rank = 0; rank < base->ranks; rank++)
        if (local->send[rank].bytes > 0)
            return rank;
    return 0;
}

static void close_local(transport *base) {
    local_transport *local = of(base);
    for (uint32_t rank = 0; rank < base->ranks; rank++)
        if (local->peer[rank] >= 0)
            close(local->peer[rank]);
    allocator_give(base->allocator, local, sizeof(*local));
}

static const transport_operations operations = {
    .begin = begin, .proceed = proceed, .missing = missing, .close = close_local};

static avo_status connect_all(transport **ranks, uint32_t count, avo_error *error) {
    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = a + 1; b < count; b++) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
                return status_fail(error, AVO_ERROR_DEVICE, "no sockets for %u ranks: %s", count,
                                   strerror(errno));
            of(ranks[a])->peer[b] = ends[0];
            of(ranks[b])->peer[a] = ends[1];
        }
    return AVO_OK;
}

avo_status transport_local(const avo_allocator *allocator, uint32_t ranks, transport **out,
                           avo_error *error) {
    avo_status status = AVO_OK;
    memset(out, 0, ranks * sizeof(*out));
    for (uint32_t rank = 0; status == AVO_OK && rank < ranks; rank++) {
        local_transport *local = allocator_take_array(allocator, 1, sizeof(*local));
        if (local == NULL) {
            status = status_no_memory(error, "a rank's connections", sizeof(*local));
            break;
        }
        local->base = (transport){&operations, allocator, rank, ranks};
        memset(local->peer, -1, sizeof(local->peer));
        out[rank] = &local->base;
    }
    AVO_THEN(status, connect_all(out, ranks, error));
    for (uint32_t rank = 0; status != AVO_OK && rank < ranks; rank++) {
        transport_close(out[rank]);
        out[rank] = NULL;
    }
    return status;
}
