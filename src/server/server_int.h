/* Inside the HTTP half: the server, its table of connections, and the exchange.
 *
 * Threads:
 *   watcher   accepts connections, looks at their first head (http_gate.c), sees clients that have
 *             gone, ends those that take too long, and lingers on refused ones until they have read
 *             why (http_watch.c)
 *   HTTP      libmicrohttpd's own: parse, call the endpoint, send (http_request.c, exchange.c)
 *   pulse     asks the scheduler now and then whether its loop still moves (http_pulse.c)
 *   log       writes the access log (log.c)
 * and whoever answers: the scheduler's delivery thread writes into exchanges.
 *
 * libmicrohttpd does not look at connections that are suspended, and an answer that waits for
 * tokens is; that is why every client's socket is in an epoll set of our own as well, for hang-ups
 * alone (edge-triggered: one event in a connection's life, no system call per request).
 *
 * Locks: `table_lock` for the table of connections, one in every exchange; never both at once.
 */
#ifndef AVO_SERVER_INT_H
#define AVO_SERVER_INT_H

#include "base/arena.h"
#include "base/buffer.h"
#include "server/api.h"
#include "server/exchange.h"
#include "server/head.h"
#include "server/keys.h"
#include "server/limits.h"
#include "server/log.h"
#include "server/server.h"

#include <microhttpd.h>
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
#define EXCHANGE_ID_MAX        128
#define EXCHANGE_PROMPT_MAX    ((size_t)16 << 10)

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
    bool local;         /* from this machine */
    exchange *exchange; /* being answered */
    uint64_t begun_ns, deadline_ns;
    uint64_t body_bytes; /* received of the body; or thrown away while lingering */
} connection;

struct server {
    server_options options;
    uint64_t begun_ns;
    struct MHD_Daemon *daemon;
    api *api;
    access_log *log;
    char url[160];
    uint16_t port;
    char *certificate, *certificate_key; /* contents */

    pthread_mutex_t keys_lock;
    server_keys *keys;

    pthread_mutex_t table_lock;
    connection *connections; /* [connection_count], by descriptor */
    uint32_t connection_count;
    uint32_t connected, lingering;
    address_table *addresses;

    int epoll, wake, spare;
    char *gate_bytes; /* a head being looked at; the watcher's */
    pthread_t watcher, pulse;
    bool watcher_runs, pulse_runs;

    pthread_mutex_t pulse_lock;
    pthread_cond_t pulse_cond;
    atomic_ullong pulse_checked_ns, pulse_moved_ns;
    atomic_uint pulse_running, pulse_waiting; /* as the scheduler last said */
    atomic_ullong pulse_steps;

    atomic_bool draining;
    atomic_bool closing;        /* nothing is suspended any more */
    atomic_uint open_exchanges; /* given to the endpoints and not sent to the end */
    atomic_ullong body_bytes;   /* of all requests together */
    pthread_mutex_t live_lock;
    pthread_cond_t live_cond;
    uint32_t live_exchanges; /* not released */
};

/* ---- http_listen.c ---- */
AVO_MUST_USE avo_status listen_begin(server *server, avo_error *error);
void listen_describe(server *server);
/* "192.0.2.1:5000", "unix:uid=1000". */
void listen_peer(int descriptor, const struct sockaddr *address, char *text, size_t capacity);

/* ---- http_gate.c ---- */
/* A connection that was accepted: it stays here until its first head has come. */
void gate_enter(server *server, int descriptor, uint64_t key);
/* Something has come, or nothing more will (`ended`). */
void gate_read(server *server, int descriptor, bool ended);
/* Its time is over. */
void gate_late(server *server, int descriptor);
/* Ends it without a word. */
void gate_close(server *server, int descriptor);
/* An answer in one breath, written past libmicrohttpd: JSON, X-Request-Id, Connection: close. Never
 * into a connection that has begun to speak TLS. */
typedef struct gate_answer {
    unsigned status;
    const char *code, *text;
    const char *id;   /* NULL: one is made */
    const char *path; /* decides the error's shape */
    bool retry;       /* Retry-After */
} gate_answer;
/* `id` has room for EXCHANGE_ID_MAX + 1; the bytes of the body. */
size_t gate_send(int descriptor, const gate_answer *answer, char *id);

/* ---- http_watch.c ---- */
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
bool watch_exchange(server *server, int descriptor, exchange *exchange);
bool watch_hung_up(server *server, int descriptor);
/* When libmicrohttpd ends this connection, what the client still sends is read and thrown away for
 * a while: an unread byte would make the kernel reset the connection before the answer is read. */
void watch_linger(server *server, int descriptor);
/* Called by libmicrohttpd before it closes the socket. */
void watch_closed(server *server, int descriptor);
/* Calls exchange_lose, or another such function, for all. */
void watch_tell_all(server *server, void (*tell)(exchange *exchange));

/* ---- http_pulse.c ---- */
void pulse_init(server *server);
AVO_MUST_USE avo_status pulse_begin(server *server, avo_error *error);
/* After pulse_init, whether or not it began. */
void pulse_end(server *server);

/* ---- http_host.c ---- */
/* Answers 403 where the request's Host is no name of this server. */
void host_check(exchange *exchange);

/* ---- http_request.c ---- */
/* Its body counts no longer. */
void exchange_give_back_body(exchange *exchange);
/* A request's first line has come. */
void *request_named(void *context, const char *uri, struct MHD_Connection *connection);
enum MHD_Result request_handle(void *context, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **own);
void request_completed(void *context, struct MHD_Connection *connection, void **own,
                       enum MHD_RequestTerminationCode code);

/* ---- exchange.c ---- */

typedef struct exchange_header_list {
    struct exchange_header_item *first, *last;
} exchange_header_list;
typedef struct exchange_header_item {
    const char *name, *value;
    struct exchange_header_item *next;
} exchange_header_item;

typedef enum exchange_phase {
    EXCHANGE_WAITING,   /* for the endpoint */
    EXCHANGE_STREAMING, /* begun */
    EXCHANGE_DONE       /* the endpoint has said everything */
} exchange_phase;

struct exchange {
    atomic_uint references;
    server *server;
    server_keys *keys; /* the reading that asked.key is of */
    arena arena;       /* texts of the request and the answer's headers; the HTTP thread's, then the
                          endpoint's */
    exchange_request asked;
    exchange_header_list headers, queries;
    char id[EXCHANGE_ID_MAX + 1];
    char peer[64];
    bool local, keep_head; /* HEAD: answered as GET, without the body */
    bool begun;            /* its head is complete */
    bool taken;            /* it is complete, and the HTTP thread knows; then `handled` */
    bool hides;            /* its path goes on behind a zero byte, where nobody sees it */
    bool discarding;       /* answered already; the rest of the body is thrown away */
    bool counted;          /* in open_exchanges */
    uint64_t begun_ns;
    buffer body;
    uint64_t body_counted; /* in the server's body_bytes, and with `payer` */
    address_key payer;     /* whose share its body is of: its key's, or else its address's */
    bool pays;             /* it has one */
    uint64_t discarded;    /* bytes of the body, while discarding */

    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool handled; /* all of it has come, or it was answered before */
    exchange_phase phase;
    struct MHD_Connection *connection; /* NULL: over */
    int descriptor;
    bool suspended;
    bool queued;  /* libmicrohttpd has the response */
    bool gone;    /* the client, or the server is closing */
    bool cut;     /* it read too slowly */
    bool late;    /* it asked too slowly */
    bool refused; /* by libmicrohttpd */
    bool failed;  /* a stream that ended with an error */
    struct MHD_Response *response;
    unsigned status;
    exchange_header_list answer_headers;
    buffer pending; /* of a stream, from pending_at on */
    size_t pending_at;
    size_t pending_largest; /* of the writes since nothing of them was unread */
    uint64_t sent_bytes;
    void (*on_gone)(void *context);
    void *on_gone_context;
    bool gone_running;
    pthread_t gone_thread;

    exchange_usage usage;
    bool has_usage;
    buffer prompt;
};

/* With one reference, for the target of a first line; NULL without memory. */
exchange *exchange_open(server *server, struct MHD_Connection *connection, const char *target);
/* Its head is complete. */
AVO_MUST_USE bool exchange_begin(exchange *exchange, const char *url, const char *method);
void exchange_make_id(char id[static 25]);
/* All of it has come: no deadline ends it from now on. False: one has, and the client was told. */
AVO_MUST_USE bool exchange_take(exchange *exchange);
/* The deadline of its head or body has passed. Nothing, where it was taken before. */
void exchange_expire(exchange *exchange);
/* Hands the answer to libmicrohttpd, or suspends the connection until there is one. */
enum MHD_Result exchange_queue(exchange *exchange);
/* The client is gone: whoever answers is told, and the connection ended. */
void exchange_lose(exchange *exchange);
/* Whoever answers is told to come to an end, while the client can still hear of it. */
void exchange_call_off(exchange *exchange);
/* Nothing of it is with libmicrohttpd any more. */
void exchange_over(exchange *exchange);
bool exchange_answered(exchange *exchange);
void exchange_add(exchange *exchange, exchange_header_list *list, const char *name,
                  const char *value);
const char *exchange_list_find(const exchange_header_list *list, const char *name);

/* ---- exchange_log.c ---- */
void exchange_log(exchange *exchange);
/* The same for what never became one. */
typedef struct refusal_line {
    const char *id, *peer;
    text_view method, path;
    unsigned status;
    size_t bytes;
    uint64_t begun_ns;
} refusal_line;
void refusal_log(const server *server, const refusal_line *line);

#endif
