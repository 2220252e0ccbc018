/* HTTP/2: the driver. */
#include "server/transport/client_hello.h"
#include "server/transport/nghttp2/nghttp2_int.h"

#include <stdlib.h>
#include <unistd.h>

#define TLS_HANDSHAKE 0x16

typedef struct h2_carrier {
    carrier base; /* first: one is a pointer to the other */
    server *server;
    h2_loops *loops;
} h2_carrier;

static h2_carrier *carrier_of(carrier *carrier) {
    return (h2_carrier *)(void *)carrier;
}

static avo_status open_carrier(server *server, carrier **out, avo_error *error) {
    h2_carrier *own = calloc(1, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "the HTTP/2 threads", sizeof(*own));
    own->base.driver = &carrier_http2;
    own->server = server;
    avo_status status = h2_loops_open(server, server->options.threads, &own->loops, error);
    if (status != AVO_OK) {
        free(own);
        return status;
    }
    *out = &own->base;
    return AVO_OK;
}

static void close_carrier(carrier *closed) {
    h2_loops_close(carrier_of(closed)->loops);
    free(closed);
}

/* On a port that HTTP/1.1 shares: whether a client of TLS offers h2. */
static bool is_for_others(text_view bytes, head *seen) {
    bytes_view hello = {(const uint8_t *)bytes.data, bytes.size};
    hello_answer answer = hello_offers(hello, "h2");
    if (answer == HELLO_PARTIAL && bytes.size < SERVER_GATE_BYTES)
        seen->state = HEAD_PARTIAL;
    return answer == HELLO_LACKS || bytes.size >= SERVER_GATE_BYTES;
}

/* The bytes that every connection of HTTP/2 begins with (RFC 9113, 3.4), or a handshake. */
static head look_at(const server *server, text_view bytes) {
    const text_view magic = TEXT_LITERAL(NGHTTP2_CLIENT_MAGIC);
    head seen = {.state = HEAD_GOOD};
    bool tls = server->options.certificate != NULL;
    bool shared = server->options.grpc_listen == 0;
    size_t size = bytes.size < magic.size ? bytes.size : magic.size;
    if (tls && shared && is_for_others(bytes, &seen))
        seen.state = HEAD_BAD; /* the next carrier says what is wrong with it, if anything is */
    else if (tls && (bytes.size == 0 || bytes.data[0] != TLS_HANDSHAKE))
        seen = (head){.state = HEAD_BAD,
                      .status = 400,
                      .code = "tls",
                      .text = "this port speaks gRPC over TLS; connect with https://"};
    else if (!tls && memcmp(bytes.data, magic.data, size) != 0)
        seen = (head){.state = HEAD_BAD,
                      .status = 400,
                      .code = "http_version",
                      .text = "this port speaks gRPC (HTTP/2); the HTTP/1.1 API is on --port"};
    else if (!tls && size < magic.size)
        seen.state = HEAD_PARTIAL;
    return seen;
}

static bool add_connection(carrier *carrier, int descriptor, const struct sockaddr *address,
                           socklen_t bytes) {
    (void)address;
    (void)bytes;
    h2_carrier *own = carrier_of(carrier);
    watch_state(own->server, descriptor,
                CONNECTION_BUSY); /* deadlines are the loop's from now on */
    if (h2_loops_add(own->loops, descriptor))
        return true;
    close(descriptor);
    return false;
}

/* In the words of HTTP/1.1, which clients show their users even where they expected another. */
static size_t turn_away(int descriptor, const carrier_refusal *refusal, char *id) {
    return carrier_http1.turn_away(descriptor, refusal, id);
}

/* The stream is reset instead (answer.c). */
static size_t refuse(carried *exchange, unsigned status, const char *code, const char *text) {
    (void)exchange;
    (void)status;
    (void)code;
    (void)text;
    return 0;
}

static void tell_all(carrier *carrier, void (*tell)(carried *exchange)) {
    h2_loops_tell_all(carrier_of(carrier)->loops, tell);
}

static void drain(carrier *carrier) {
    h2_loops_drain(carrier_of(carrier)->loops);
}

static void free_exchange(carried *exchange) {
    free(exchange);
}

const carrier_driver carrier_http2 = {.open = open_carrier,
                                      .close = close_carrier,
                                      .look = look_at,
                                      .add = add_connection,
                                      .turn_away = turn_away,
                                      .tell_all = tell_all,
                                      .drain = drain,
                                      .refuse = refuse,
                                      .wake = h2_wake,
                                      .cut = h2_wake,
                                      .free = free_exchange};
