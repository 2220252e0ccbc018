/* The gate: a connection's first bytes are looked at, without taking them from the kernel, before
 * a carrier gets the connection. What no carrier takes is refused here, at once, in the shape of
 * all other errors and with a line in the access log; a client that says nothing costs one entry of
 * a table. */
#include "server/server_int.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Ends ---- */

/* The connection is the table's no longer; its peer and beginning for the log. */
static void leave(server *server, int descriptor, char peer[64], uint64_t *begun_ns) {
    pthread_mutex_lock(&server->table_lock);
    connection *entry = &server->connections[descriptor];
    memcpy(peer, entry->peer, sizeof(entry->peer));
    *begun_ns = entry->begun_ns;
    watch_leave(server, entry);
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, descriptor, NULL);
    pthread_mutex_unlock(&server->table_lock);
}

void gate_close(server *server, int descriptor) {
    char peer[64];
    uint64_t begun_ns;
    leave(server, descriptor, peer, &begun_ns);
    close(descriptor);
}

/* The path of a target, for the log and the error's shape. */
static text_view path_of(text_view target) {
    const char *query = target.size == 0 ? NULL : memchr(target.data, '?', target.size);
    return (text_view){target.data, query == NULL ? target.size : (size_t)(query - target.data)};
}

static void refuse(server *server, const carrier *carrier, int descriptor, const head *seen) {
    char id[EXCHANGE_ID_MAX + 1], peer[64], path[32];
    text_view asked = path_of(seen->target);
    snprintf(path, sizeof(path), "%.*s", (int)(asked.size < 31 ? asked.size : 31),
             asked.size == 0 ? "" : asked.data);
    carrier_refusal answer = {seen->status, seen->code, seen->text, NULL, path, false};
    access_refusal line = {.id = id,
                           .peer = peer,
                           .method = seen->method,
                           .path = {asked.data, asked.size < 1024 ? asked.size : 1024},
                           .status = seen->status};
    leave(server, descriptor, peer, &line.begun_ns);
    line.bytes = carrier->driver->turn_away(descriptor, &answer, id);
    access_log_refusal(server, &line);
    watch_take(server, descriptor);
}

/* ---- From here to the carrier ---- */

/* From now on hang-ups alone are news. Changing what is waited for brings one that came before. */
static void pass(server *server, carrier *carrier, int descriptor) {
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof(address);
    connection *entry = &server->connections[descriptor];
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET,
                                .data.u64 =
                                    (uint64_t)entry->generation << 32 | (uint32_t)descriptor};
    if (getpeername(descriptor, (struct sockaddr *)&address, &bytes) != 0 ||
        epoll_ctl(server->epoll, EPOLL_CTL_MOD, descriptor, &event) != 0) {
        gate_close(server, descriptor);
        return;
    }
    pthread_mutex_lock(&server->table_lock);
    entry->state = CONNECTION_HEAD;
    pthread_mutex_unlock(&server->table_lock);
    if (carrier->driver->add(carrier, descriptor, (struct sockaddr *)&address, bytes))
        return;
    pthread_mutex_lock(&server->table_lock); /* the carrier has closed it */
    if (entry->state != CONNECTION_NONE)
        watch_leave(server, entry);
    pthread_mutex_unlock(&server->table_lock);
}

static ssize_t peek(const server *server, int descriptor) {
    ssize_t got;
    do
        got = recv(descriptor, server->gate_bytes, SERVER_GATE_BYTES, MSG_PEEK | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Whether a carrier may have connections of this port: one of gRPC's own is HTTP/2's alone, and the
 * other one speaks HTTP/2 only where gRPC has none. */
static bool serves(const server *server, const carrier *carrier, bool http2_port) {
    if (carrier->driver == &carrier_http1)
        return !http2_port;
    return http2_port || server->options.grpc_listen == 0;
}

/* The first carrier that takes what has come so far; where none does, the last one refuses it. */
static carrier *choose(const server *server, int descriptor, text_view bytes, head *seen) {
    bool http2_port = server->connections[descriptor].http2;
    carrier *chosen = NULL;
    for (size_t i = 0; i < server->carrier_count; i++) {
        if (!serves(server, server->carriers[i], http2_port))
            continue;
        chosen = server->carriers[i];
        *seen = chosen->driver->look(server, bytes);
        if (seen->state != HEAD_BAD)
            break;
    }
    return chosen;
}

void gate_read(server *server, int descriptor, bool ended) {
    ssize_t got = peek(server, descriptor);
    if (got < 0 && errno == EAGAIN && !ended)
        return;
    if (got <= 0) {
        gate_close(server, descriptor);
        return;
    }
    head seen = {.state = HEAD_BAD};
    carrier *chosen =
        choose(server, descriptor, (text_view){server->gate_bytes, (size_t)got}, &seen);
    if (seen.state == HEAD_PARTIAL && ended) {
        seen.state = HEAD_BAD;
        seen.status = 400;
        seen.code = "bad_request";
        seen.text = "the request ends before the end of its header";
    }
    if (seen.state == HEAD_BAD)
        refuse(server, chosen, descriptor, &seen);
    else if (seen.state == HEAD_GOOD)
        pass(server, chosen, descriptor);
}

void gate_late(server *server, int descriptor) {
    ssize_t got = peek(server, descriptor);
    if (got <= 0 || server->options.certificate != NULL) {
        gate_close(server, descriptor);
        return;
    }
    head seen = {.state = HEAD_BAD};
    carrier *chosen =
        choose(server, descriptor, (text_view){server->gate_bytes, (size_t)got}, &seen);
    seen.status = 408;
    seen.code = "too_slow";
    seen.text = "the request header arrived too slowly";
    refuse(server, chosen, descriptor, &seen);
}

void gate_enter(server *server, int descriptor, uint64_t key) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u64 = key};
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, descriptor, &event) != 0)
        gate_close(server, descriptor);
}
