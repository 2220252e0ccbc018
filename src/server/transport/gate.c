/* The gate: a connection's first head is looked at, without taking it from the kernel, before
 * the carrier gets the connection. What is no request is refused here, at once, in the shape of
 * all other errors and with a line in the access log; a client that says nothing costs one entry of
 * a table. With TLS the first byte alone can be read: a plain request is told where it went. */
#include "server/server_int.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define TLS_HANDSHAKE 0x16

/* ---- Answers past the carrier ---- */

size_t gate_send(int descriptor, const gate_answer *answer, char *id) {
    if (answer->id != NULL)
        snprintf(id, EXCHANGE_ID_MAX + 1, "%s", answer->id);
    else
        carried_make_id(id);
    exchange_request asked = {.path = answer->path, .id = id};
    buffer body, out;
    buffer_init(&body, NULL, 4096);
    buffer_init(&out, NULL, 8192);
    bool written =
        exchange_write_error(&body, &asked, answer->status, NULL, answer->code, answer->text) ==
            AVO_OK &&
        buffer_format(&out,
                      "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n%s"
                      "Connection: close\r\nX-Request-Id: %s\r\n"
                      "X-Content-Type-Options: nosniff\r\nContent-Length: %zu\r\n\r\n",
                      answer->status, carrier_reason(answer->status),
                      answer->retry ? "Retry-After: 1\r\n" : "", id, body.size) == AVO_OK &&
        buffer_append(&out, body.data, body.size) == AVO_OK;
    size_t sent = 0;
    if (written &&
        send(descriptor, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)out.size)
        sent = body.size;
    buffer_free(&body);
    buffer_free(&out);
    return sent;
}

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

static void refuse(server *server, int descriptor, const head *seen) {
    char id[EXCHANGE_ID_MAX + 1], peer[64], path[32];
    text_view asked = path_of(seen->target);
    snprintf(path, sizeof(path), "%.*s", (int)(asked.size < 31 ? asked.size : 31),
             asked.size == 0 ? "" : asked.data);
    gate_answer answer = {seen->status, seen->code, seen->text, NULL, path, false};
    access_refusal line = {.id = id,
                           .peer = peer,
                           .method = seen->method,
                           .path = {asked.data, asked.size < 1024 ? asked.size : 1024},
                           .status = seen->status};
    leave(server, descriptor, peer, &line.begun_ns);
    line.bytes = gate_send(descriptor, &answer, id);
    access_log_refusal(server, &line);
    watch_take(server, descriptor);
}

/* ---- From here to the carrier ---- */

/* From now on hang-ups alone are news. Changing what is waited for brings one that came before. */
static void pass(server *server, int descriptor) {
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
    if (carrier_add(server->carrier, descriptor, (struct sockaddr *)&address, bytes))
        return;
    pthread_mutex_lock(&server->table_lock); /* the carrier has closed it */
    if (entry->state != CONNECTION_NONE)
        watch_leave(server, entry);
    pthread_mutex_unlock(&server->table_lock);
}

/* What has come so far, for a server that speaks TLS. */
static head check_tls(text_view bytes) {
    head seen = {.state = HEAD_GOOD};
    if (bytes.size > 0 && bytes.data[0] != TLS_HANDSHAKE)
        seen = (head){.state = HEAD_BAD,
                      .status = 400,
                      .code = "tls",
                      .text = "this port uses TLS; connect with https://"};
    return seen;
}

static head look(const server *server, text_view bytes) {
    if (server->options.certificate != NULL)
        return check_tls(bytes);
    head seen = head_check(bytes, server->options.header_bytes_max);
    /* Of a head that may be longer the kernel need not keep more. */
    if (seen.state == HEAD_PARTIAL && bytes.size == SERVER_GATE_BYTES)
        seen.state = HEAD_GOOD;
    return seen;
}

static ssize_t peek(const server *server, int descriptor) {
    ssize_t got;
    do
        got = recv(descriptor, server->gate_bytes, SERVER_GATE_BYTES, MSG_PEEK | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got;
}

void gate_read(server *server, int descriptor, bool ended) {
    ssize_t got = peek(server, descriptor);
    if (got < 0 && errno == EAGAIN && !ended)
        return;
    if (got <= 0) {
        gate_close(server, descriptor);
        return;
    }
    head seen = look(server, (text_view){server->gate_bytes, (size_t)got});
    if (seen.state == HEAD_PARTIAL && ended) {
        seen.state = HEAD_BAD;
        seen.status = 400;
        seen.code = "bad_request";
        seen.text = "the request ends before the end of its header";
    }
    if (seen.state == HEAD_BAD)
        refuse(server, descriptor, &seen);
    else if (seen.state == HEAD_GOOD)
        pass(server, descriptor);
}

void gate_late(server *server, int descriptor) {
    ssize_t got = peek(server, descriptor);
    if (got <= 0 || server->options.certificate != NULL) {
        gate_close(server, descriptor);
        return;
    }
    head seen = look(server, (text_view){server->gate_bytes, (size_t)got});
    seen.status = 408;
    seen.code = "too_slow";
    seen.text = "the request header arrived too slowly";
    refuse(server, descriptor, &seen);
}

void gate_enter(server *server, int descriptor, uint64_t key) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u64 = key};
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, descriptor, &event) != 0)
        gate_close(server, descriptor);
}
