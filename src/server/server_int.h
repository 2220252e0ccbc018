/* The server between its files: shared state, and the table of connections.
 *
 * Threads:
 *   watcher   accepts connections, looks at their first head (transport/gate.c), sees clients that
 *             have gone, ends those that take too long, and lingers on refused ones until they have
 *             read why (transport/watch.c)
 *   HTTP      the carriers' own: parse, call the handler, send (transport/microhttpd/,
 *             transport/nghttp2/)
 *   pulse     asks the scheduler now and then whether its loop still moves, while there are
 *             requests (pulse.c)
 *   log       writes the access log (log.c)
 *   KV events sends what the prefix cache learns and forgets (kv_publish.c)
 * and whoever answers: the scheduler's delivery thread writes into exchanges.
 *
 * libmicrohttpd does not look at connections that are suspended, and an answer that waits for
 * tokens is; that is why every client's socket is in an epoll set of our own as well, for hang-ups
 * alone (edge-triggered: one event in a connection's life, no system call per request).
 *
 * Without work every thread sleeps: no timer runs but the deadlines of open connections.
 *
 * Locks: `table_lock` for the table of connections, one in every exchange; never both at once.
 */
#ifndef AVO_SERVER_INT_H
#define AVO_SERVER_INT_H

#include "base/arena.h"
#include "base/buffer.h"
#include "server/api/api.h"
#include "server/audit.h"
#include "server/keys.h"
#include "server/kv_publish.h"
#include "server/log.h"
#include "server/otlp.h"
#include "server/server.h"
#include "server/transport/addresses.h"
#include "server/transport/carried.h"
#include "server/transport/carrier.h"
#include "server/transport/head.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- Defaults ---- */
#define SERVER_THREADS         2u
#define SERVER_CONNECTIONS     4096u
#define SERVER_PER_ADDRESS     256u /* addresses of this machine are not counted */
#define SERVER_BODY_BYTES      ((uint64_t)16 << 20)
#define SERVER_HEADER_BYTES    ((uint32_t)32 << 10)
#define SERVER_IDLE_SECONDS    75.0
#define SERVER_HEADER_SECONDS  15.0
#define SERVER_STALL_SECONDS   60.0
#define SERVER_DRAIN_SECONDS   30.0
#define SERVER_UNREAD_BYTES    ((uint64_t)1 << 20)
#define SERVER_CHOICES         16u
#define SERVER_METRIC_KEYS     16u
#define SERVER_STATE_BYTES     ((uint64_t)1 << 30)
#define SERVER_BATCH_LINES     4u
#define SERVER_BODY_SHARE      16u   /* bodies of all requests together: so many of the largest */
#define SERVER_BODY_OWN        4u    /* of one key or address, once half of all is taken */
#define SERVER_BODY_RATE       8192u /* bytes a second that a body must come with */
#define SERVER_DISCARD_BYTES   ((uint64_t)256 << 10) /* of a refused body, to keep a connection */
#define SERVER_GATE_BYTES      ((size_t)32 << 10)    /* of a first head that are looked at */
#define SERVER_LINGER_SECONDS  2.0
#define SERVER_LINGER_BYTES    ((uint64_t)4 << 20)
#define SERVER_LINGERING_MAX   1024u
#define SERVER_DESCRIPTORS_MAX 65536u
#define SERVER_STACK_BYTES     ((size_t)1 << 20)

/* ---- Connections ---- */

typedef enum connection_state {
    CONNECTION_NONE,
    CONNECTION_GATE,  /* the watcher's alone: its first head is awaited, and nobody else knows it */
    CONNECTION_HEAD,  /* a request's head is awaited: must be there by the deadline */
    CONNECTION_BODY,  /* then its body: faster than SERVER_BODY_RATE */
    CONNECTION_BUSY,  /* answered; no deadline of ours */
    CONNECTION_LINGER /* ours alone: refused, what still comes is thrown away */
} connection_state;

typedef struct connection {
    connection_state state;
    uint32_t generation; /* of this descriptor number: events of an older one are ignored */
    bool hung_up;        /* the client has closed its side */
    bool linger;         /* ends with unread input: keep the socket until the client has read */
    bool counted;        /* in the table of addresses */
    address_key address;
    char peer[64];
    bool local;        /* from this machine */
    bool http2;        /* came to the port of gRPC: HTTP/2 alone is spoken */
    carried *exchange; /* being answered */
    uint64_t begun_ns, deadline_ns;
    uint64_t body_bytes; /* received of the body; or thrown away while lingering */
} connection;

struct server {
    server_options options;
    server_handler handler;
    api *api; /* NULL: the handler is another one */
    carrier *carriers[CARRIERS_MAX];
    size_t carrier_count;
    access_log *log;
    audit *audit;   /* NULL: none */
    otlp *otlp;     /* NULL: none */
    kv_publish *kv; /* events of the prefix cache; NULL: none */
    ledger *ledger; /* NULL: no keys */
    int state_lock; /* of the folder --state; −1: none */
    char url[SERVER_URL_MAX];
    uint16_t port, grpc_port; /* 0: none */

    pthread_mutex_t keys_lock;
    server_keys *keys;

    pthread_mutex_t table_lock;
    connection *connections; /* [connection_count], by descriptor */
    uint32_t connection_count;
    uint32_t connected, lingering;
    uint64_t watch_due_ns; /* no deadline is earlier; UINT64_MAX: there is none */
    bool watch_sleeps;     /* the watcher, until watch_due_ns as it was */
    address_table *addresses;

    int epoll, wake, spare;
    char *gate_bytes; /* a head being looked at; the watcher's */
    pthread_t watcher, pulse;
    bool watcher_runs, pulse_runs;

    pthread_mutex_t pulse_lock;
    pthread_cond_t pulse_cond;
    atomic_bool pulse_idle; /* the thread sleeps until the next exchange */
    atomic_ullong pulse_checked_ns, pulse_moved_ns;
    atomic_uint pulse_running, pulse_waiting; /* as the scheduler last said */
    atomic_ullong pulse_steps;
    atomic_bool pulse_failed; /* the device failed the last requests */

    atomic_bool draining;
    atomic_bool closing;        /* nothing is suspended any more */
    atomic_uint open_exchanges; /* given to the endpoints and not sent to the end */
    atomic_ullong body_bytes;   /* of all requests together */
    pthread_mutex_t live_lock;
    pthread_cond_t live_cond;
    uint32_t live_exchanges; /* not released */
};

/* ---- server.c ---- */
/* What server_handler.changed is for has happened. */
void server_changed(server *server);

/* ---- transport/listen.c ---- */
/* A socket of an address; `option` is for the error. Does not listen yet. */
AVO_MUST_USE avo_status listen_bind(const char *option, const char *address, uint16_t port,
                                    int *out, avo_error *error);
/* Of a bound socket; 0: it has none. */
uint16_t listen_port(int descriptor);
AVO_MUST_USE avo_status listen_begin(server *server, avo_error *error);
void listen_describe(server *server);
/* "192.0.2.1:5000", "unix:uid=1000". */
void listen_peer(int descriptor, const struct sockaddr *address, char *text, size_t capacity);

/* ---- transport/gate.c ---- */
/* A connection that was accepted: it stays here until its first head has come. */
void gate_enter(server *server, int descriptor, uint64_t key);
/* Something has come, or nothing more will (`ended`). */
void gate_read(server *server, int descriptor, bool ended);
/* Its time is over. */
void gate_late(server *server, int descriptor);
/* Ends it without a word. */
void gate_close(server *server, int descriptor);

/* ---- transport/watch.c ---- */
/* The table's entry is free again; the lock is held. */
void watch_leave(server *server, connection *entry);
/* Takes the socket: what comes is thrown away until the client closes, or has had its time. */
void watch_take(server *server, int descriptor);
AVO_MUST_USE avo_status watch_begin(server *server, avo_error *error);
void watch_end(server *server);
/* The state and deadline of a client's connection. */
void watch_state(server *server, int descriptor, connection_state state);
void watch_body(server *server, int descriptor, size_t bytes);
/* Its request is being answered by `exchange`, NULL: no longer. True: the client has hung up. */
bool watch_exchange(server *server, int descriptor, carried *exchange);
bool watch_hung_up(server *server, int descriptor);
/* Who asks, for an exchange of a connection that has several at once and sees hang-ups itself. */
void watch_introduce(server *server, int descriptor, carried *exchange);
/* When the carrier ends this connection, what the client still sends is read and thrown away for
 * a while: an unread byte would make the kernel reset the connection before the answer is read. */
void watch_linger(server *server, int descriptor);
/* Called by the carrier before it closes the socket. */
void watch_closed(server *server, int descriptor);
/* Calls carried_lose, or another such function, for all but those that carriers know themselves
 * (tell_all). */
void watch_tell_all(server *server, void (*tell)(carried *exchange));

/* ---- pulse.c ---- */
void pulse_init(server *server);
AVO_MUST_USE avo_status pulse_begin(server *server, avo_error *error);
/* After open_exchanges was raised from 0: the scheduler may get work. */
void pulse_wake(server *server);
/* After pulse_init, whether or not it began. */
void pulse_end(server *server);

#endif
