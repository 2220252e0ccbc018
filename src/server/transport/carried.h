/* Exchanges over HTTP, whatever version carries them: state, waiting, clients that go, accounting.
 *
 * A carrier (transport/microhttpd/ for HTTP/1.1, transport/nghttp2/ for HTTP/2) parses requests and
 * sends answers. It makes a `carried` for each request, fills in the head, and is woken when there
 * is something to send; it then takes status, headers and bytes from here.
 */
#ifndef AVO_SERVER_CARRIED_H
#define AVO_SERVER_CARRIED_H

#include "base/arena.h"
#include "base/buffer.h"
#include "server/keys.h"
#include "server/transport/addresses.h"
#include "server/transport/carrier.h"
#include "server/transport/exchange.h"

#include <pthread.h>
#include <stdatomic.h>

#define EXCHANGE_ID_MAX     128
#define EXCHANGE_PROMPT_MAX ((size_t)16 << 10)

typedef struct header_item {
    const char *name, *value;
    struct header_item *next;
} header_item;
typedef struct header_list {
    header_item *first, *last;
} header_list;

typedef enum carried_phase {
    CARRIED_WAITING,   /* for the endpoint */
    CARRIED_STREAMING, /* the answer has begun */
    CARRIED_DONE       /* the endpoint has said everything */
} carried_phase;

struct carried {
    exchange base; /* first: an exchange * of this transport is a carried * */
    const carrier_driver *carrier;
    atomic_uint references;
    server *server;
    server_keys *keys; /* the reading that asked.key is of */
    arena arena; /* texts of the request and the answer's headers; the carrier's thread's, then
                    the endpoint's */
    header_list headers, queries;
    char id[EXCHANGE_ID_MAX + 1];
    char peer[64];
    bool local;     /* from this machine */
    bool is_open;   /* of gRPC: needs no key */
    bool keep_head; /* HEAD: answered as GET, without the body */
    bool counted;   /* in open_exchanges */
    bool watches;   /* answered until the client or the server goes: never in open_exchanges */
    bool entered;   /* counted as a request of its key */
    uint64_t begun_ns;
    buffer body;
    uint64_t body_counted; /* in the server's body_bytes, and with `payer` */
    address_key payer;     /* whose share its body is of: its key's, or else its address's */
    bool pays;             /* it has one */

    pthread_mutex_t lock;
    pthread_cond_t cond;
    int descriptor; /* of the client's socket; −1: it is over */
    bool handled;   /* all of it has come, or it was answered before */
    carried_phase phase;
    bool gone;              /* the client, or the server is closing */
    bool cut;               /* it read too slowly */
    bool late;              /* it asked too slowly */
    bool refused;           /* by the carrier's own parser */
    bool failed;            /* a stream that ended with an error */
    unsigned failed_status; /* and which one, for trailers; 0: none */
    const char *failed_text;
    bool broken; /* no memory for the answer: the connection is closed */
    unsigned status;
    const char *content_type; /* NULL: none */
    bool streams;             /* its length is not known when it begins */
    header_list answer_headers;
    buffer whole;   /* the answer's body, where it does not stream */
    buffer pending; /* of a stream: to be sent, from pending_at on */
    size_t pending_at;
    size_t pending_largest; /* of the writes since nothing of them was unread */
    uint64_t sent_bytes;
    exchange_gone_function on_gone;
    void *on_gone_context;
    bool gone_running;
    pthread_t gone_thread;

    exchange_usage usage;
    bool has_usage;
    buffer prompt;
};

static inline carried *carried_of(exchange *exchange) {
    return (carried *)(void *)exchange;
}

/* ---- For carriers ---- */

/* Zeroed memory becomes an exchange with one reference, for the target of a first line. False
 * without memory: nothing is kept. */
AVO_MUST_USE bool carried_open(carried *exchange, const carrier_driver *carrier, server *server,
                               const char *target);
void carried_make_id(char id[static 25]);
void headers_add(carried *exchange, header_list *list, const char *name, const char *value);
const char *headers_find(const header_list *list, const char *name);
/* The head is complete: headers and queries were added. */
AVO_MUST_USE bool carried_begin(carried *exchange, const char *url, const char *method);
bool carried_answered(carried *exchange);
/* All of it has come: no deadline ends it from now on. False: one has, and the client was told. */
AVO_MUST_USE bool carried_take(carried *exchange);
/* The carrier has nothing of it any more. */
void carried_over(carried *exchange);

/* The headers that every answer has, besides those that the endpoint has set. What concerns the
 * connection is the carrier's to add. */
typedef void (*header_function)(void *context, const char *name, const char *value);
void carried_each_header(const carried *exchange, header_function see, void *context);

/* Bytes to send, with the lock held: how many, 0 where none are there yet. */
typedef enum carried_more { CARRIED_MORE, CARRIED_LATER, CARRIED_END, CARRIED_ERROR } carried_more;
carried_more carried_read(carried *exchange, char *bytes, size_t maximum, size_t *got);

/* ---- For the watcher ---- */

/* The deadline of its head or body has passed. Nothing, where it was taken before. */
void carried_expire(carried *exchange);
/* The client is gone: whoever answers is told, and the connection ended. */
void carried_lose(carried *exchange);
/* Whoever answers is told to come to an end, while the client can still hear of it. */
void carried_call_off(carried *exchange);

/* ---- admission.c: may this request be answered? Answers it itself where not. ---- */

/* By its head: host, method, origin, key, rate, encoding, announced length (UINT64_MAX: in chunks).
 */
void admission_check(carried *exchange, uint64_t announced_bytes);
/* The headers x-ratelimit-*, as OpenAI has them, of a key that has limits. */
void rates_tell(exchange *exchange, const ledger_limits *limits, const ledger_headroom *left);
/* A 413. */
void admission_refuse_body(carried *exchange);
/* host.c: 403 where the request's Host is no name of this server. */
void host_check(carried *exchange);

/* ---- body.c ---- */

/* More of the body. False: it was refused, and the rest is thrown away. */
bool body_take(carried *exchange, const char *bytes, size_t size);
/* It counts no longer, and is kept no longer. */
void body_discard(carried *exchange);
/* It counts no longer. */
void body_give_back(carried *exchange);
/* All of it is there: the handler answers. */
void body_complete(carried *exchange);

/* ---- access.c: lines of the access log ---- */

void access_log_exchange(carried *exchange);
/* The same as a span, where traces are exported. */
void access_trace(const carried *exchange);
/* The same for what never became one. */
typedef struct access_refusal {
    const char *id, *peer;
    text_view method, path;
    unsigned status;
    size_t bytes;
    uint64_t begun_ns;
} access_refusal;
void access_log_refusal(const server *server, const access_refusal *line);

#endif
