/* Carriers: what parses requests on connections that the watcher has accepted, and sends answers.
 * Each speaks one version of HTTP and has threads of its own. A connection belongs to the first
 * that takes its first bytes (gate.c); an exchange keeps the driver that brought it. There are two:
 * HTTP/1.1 by libmicrohttpd, whose types stay in transport/microhttpd/, and HTTP/2 by nghttp2
 * (transport/nghttp2/), for gRPC; that one is opened only where it was asked for. */
#ifndef AVO_SERVER_CARRIER_H
#define AVO_SERVER_CARRIER_H

#include "base/status.h"
#include "server/transport/head.h"

#include <sys/socket.h>

#define CARRIERS_MAX 2

typedef struct carried carried;
typedef struct carrier carrier;
typedef struct server server;

/* An error in the shape of all others, in one breath: nothing else is said on the connection. */
typedef struct carrier_refusal {
    unsigned status;
    const char *code, *text;
    const char *id;   /* NULL: one is made */
    const char *path; /* decides the error's shape */
    bool retry;       /* Retry-After */
} carrier_refusal;

typedef struct carrier_driver {
    /* ---- Connections ---- */
    avo_status (*open)(server *server, carrier **out, avo_error *error);
    /* Ends all connections. No exchange is suspended any more. */
    void (*close)(carrier *carrier);
    /* Whether a connection that begins with these bytes is one for `add`. */
    head (*look)(const server *server, text_view bytes);
    /* Takes a client's socket; false: it could not, and has closed it. */
    bool (*add)(carrier *carrier, int descriptor, const struct sockaddr *address, socklen_t bytes);
    /* Refuses a connection that no carrier has, and that has not begun to speak TLS. `id` has room
     * for EXCHANGE_ID_MAX + 1; the bytes of the body that were sent. */
    size_t (*turn_away)(int descriptor, const carrier_refusal *refusal, char *id);

    /* `tell` is called for every exchange that is being answered, by a thread of the carrier, soon.
     * NULL: the table of connections knows them (watch_tell_all). */
    void (*tell_all)(carrier *carrier, void (*tell)(carried *exchange));
    /* The server drains: clients are told to take their next requests elsewhere. NULL: answers say
     * so. */
    void (*drain)(carrier *carrier);

    /* ---- Exchanges; but for `free` their lock is held ---- */
    /* Refuses one whose request has not come to its end, as far as that can be told now, past
     * whatever else is to be sent; `cut` follows. The bytes of the body that were sent. */
    size_t (*refuse)(carried *exchange, unsigned status, const char *code, const char *text);
    /* There is more to send, or nothing more will come. */
    void (*wake)(carried *exchange);
    /* The connection, or what of it is this exchange's, ends now. */
    void (*cut)(carried *exchange);
    /* The last reference has gone; the memory is the carrier's. */
    void (*free)(carried *exchange);
} carrier_driver;

struct carrier {
    const carrier_driver *driver;
};

/* transport/microhttpd/ */
extern const carrier_driver carrier_http1;
#ifdef AVO_HTTP2
/* transport/nghttp2/ */
extern const carrier_driver carrier_http2;
#endif

#endif
