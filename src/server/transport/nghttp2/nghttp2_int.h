/* Between the files that use nghttp2: the only ones that know its types.
 *
 *   session.c   frames of one connection: heads, bodies, floods; no I/O
 *   answer.c    answers: headers, bytes, trailers
 *   tls.c       TLS by OpenSSL between memory buffers; no I/O either
 *   loop.c      threads: sockets, what is to be sent, deadlines
 *   carrier.c   the driver
 *
 * A connection belongs to one loop's thread, which alone calls nghttp2. An exchange is answered by
 * any thread; it wakes the loop through `wake`. Locks: an exchange's, then a loop's.
 *
 * A stream has one exchange; one of a method that converses (server_call) has one after the other,
 * each for one message. What comes while an exchange is answered stays in `backlog`, within the
 * stream's window, which is opened again as messages are taken: a client that sends faster than it
 * is answered waits.
 *
 * Memory: a connection has one output buffer of H2_OUT_BYTES; while it holds unsent bytes nothing
 * is read. An answer waits in its exchange (at most unread_bytes_max) until the client's window and
 * that buffer have room. */
#ifndef AVO_SERVER_NGHTTP2_INT_H
#define AVO_SERVER_NGHTTP2_INT_H

#include "server/server_int.h"
#include "server/transport/grpc_frame.h"

#include <nghttp2/nghttp2.h>

#define H2_STREAMS_MAX      128u /* of a connection at once */
#define H2_HEAD_BYTES_MAX   ((size_t)16 << 10)
#define H2_WINDOW_BYTES     (256 << 10) /* of a stream: bytes on their way to us */
#define H2_CONNECTION_BYTES (1 << 20)   /* of a connection */
#define H2_READ_BYTES       ((size_t)16 << 10)
#define H2_OUT_BYTES        ((size_t)64 << 10) /* mem_send is asked for more below a half */
/* Frames that cost us and carry nothing: so many at once, and again so many a second. */
#define H2_RESETS_BURST  800u /* below nghttp2's own limit, which has no line in the log */
#define H2_RESETS_RATE   33u
#define H2_CONTROL_BURST 500u
#define H2_CONTROL_RATE  50u

typedef struct h2_loop h2_loop;
typedef struct h2_connection h2_connection;
typedef struct h2_stream h2_stream;
typedef struct h2_tls h2_tls; /* of one connection */
typedef struct h2_tls_settings h2_tls_settings;

typedef struct h2_exchange {
    carried http;      /* first: one is a pointer to the other */
    h2_stream *stream; /* NULL: over; with the rest under the exchange's lock */
    h2_loop *loop;
    struct h2_exchange *woken_next; /* under the loop's lock */
    bool woken;
    size_t whole_at; /* sent of a whole body */
} h2_exchange;

struct h2_stream {
    h2_connection *connection;
    h2_stream *previous, *next;
    int32_t id;
    arena texts;
    header_list headers;
    const char *method, *target, *authority;
    size_t head_bytes;
    bool head_too_large, no_memory;
    bool grpc;
    unsigned call;         /* server_call */
    h2_exchange *exchange; /* NULL: between two messages */
    bool handled;          /* the exchange has its message */
    bool discards;         /* answered before the request's end: what comes is thrown away */
    bool ended;            /* the client has said everything */
    bool begun, finished;  /* the answer: its headers, its end were submitted */
    bool reset;
    buffer backlog;
    uint64_t deadline_ns; /* of the request's arrival; UINT64_MAX: none */
    uint64_t moved_ns;    /* bytes of the answer were last taken by the client */
    uint64_t answered;    /* messages of a conversation that were answered */
};

typedef struct h2_budget {
    uint64_t left, since_ns;
} h2_budget;

struct h2_connection {
    server *server;
    h2_loop *loop;
    h2_connection *previous, *next;
    h2_connection *dirty_next;
    bool dirty;
    int descriptor;
    nghttp2_session *session;
    h2_tls *tls; /* NULL: plain */
    h2_stream *streams;
    uint32_t stream_count;
    buffer out;
    size_t out_at;
    bool wants_out; /* epoll waits until the socket takes more */
    bool broken;    /* closed at once */
    bool ends;      /* closed once everything is sent */
    bool notified;  /* of draining */
    uint64_t begun_ns, moved_ns;
    h2_budget resets, control;
};

/* ---- session.c ---- */
AVO_MUST_USE bool h2_session_open(h2_connection *connection);
/* Every exchange is over. */
void h2_session_close(h2_connection *connection);
/* Bytes of the client, as HTTP/2. False: the connection is at its end. */
AVO_MUST_USE bool h2_session_receive(h2_connection *connection, const char *bytes, size_t size);
/* A conversation's exchange has ended: the next message, where it has come. */
void h2_stream_next(h2_stream *stream);
void h2_stream_reset(h2_stream *stream, uint32_t code);
/* The exchange is no longer the stream's. */
void h2_stream_drop(h2_stream *stream);

/* ---- answer.c ---- */
/* Submits what the exchange has to say by now. */
void h2_answer(h2_stream *stream);

/* ---- loop.c ---- */
void h2_wake(carried *exchange);
void h2_dirty(h2_connection *connection);
/* There is a deadline: the loop looks at all of them then. */
void h2_expect_by(h2_loop *loop, uint64_t deadline_ns);
typedef struct h2_loops h2_loops;
AVO_MUST_USE avo_status h2_loops_open(server *server, uint32_t count, h2_loops **out,
                                      avo_error *error);
void h2_loops_close(h2_loops *loops);
AVO_MUST_USE bool h2_loops_add(h2_loops *loops, int descriptor);
void h2_loops_tell_all(h2_loops *loops, void (*tell)(carried *exchange));
void h2_loops_drain(h2_loops *loops);
/* A loop without a thread, for connections that are fed by hand (tests, fuzzing). */
AVO_MUST_USE h2_loop *h2_loop_alone(server *server);
void h2_loop_alone_close(h2_loop *loop);
/* What a thread does between two looks at sockets: exchanges that were woken. */
void h2_loop_work(h2_loop *loop);
/* A connection of that loop; NULL without memory. */
h2_connection *h2_connection_open(h2_loop *loop, int descriptor);
void h2_connection_close(h2_connection *connection);
/* The next bytes to send into `out`, as far as it has room. */
void h2_connection_fill(h2_connection *connection);

/* ---- tls.c ---- */
AVO_MUST_USE avo_status h2_tls_settings_open(const char *certificate, const char *key,
                                             h2_tls_settings **out, avo_error *error);
void h2_tls_settings_close(h2_tls_settings *settings);
h2_tls *h2_tls_open(h2_tls_settings *settings); /* NULL: no memory */
void h2_tls_close(h2_tls *tls);
/* Bytes of the socket; false: they are not TLS, or it cannot be agreed on h2. */
AVO_MUST_USE bool h2_tls_receive(h2_tls *tls, const char *bytes, size_t size);
/* Of what was received: the next plain bytes, 0 where more must come first; false: the end. */
AVO_MUST_USE bool h2_tls_read(h2_tls *tls, char *bytes, size_t capacity, size_t *got);
bool h2_tls_ready(const h2_tls *tls);
/* Encrypts. */
AVO_MUST_USE bool h2_tls_write(h2_tls *tls, const char *bytes, size_t size);
/* Encrypted bytes for the socket. */
size_t h2_tls_take(h2_tls *tls, char *bytes, size_t capacity);

#endif
