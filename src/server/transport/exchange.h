/* One request and its answer, as endpoints see them: no sockets, no threads, no library.
 *
 * A transport (server/transport/) owns the connection, reads the whole body within its limit,
 * checks keys and limits, and calls the handler once, on one of its few threads. The handler
 * answers at once, or keeps a reference and answers later, from any thread: events of the scheduler
 * arrive on its delivery thread. Exactly one answer: exchange_send, or exchange_stream followed by
 * writes and one end.
 *
 * Nobody waits for a client: what is written goes into a buffer with a maximum, and a reader too
 * slow for it is cut off. When the client has gone, `on_gone` is called once, as soon as that is
 * seen; writes then say false.
 *
 * Endpoints call the functions below; a transport implements exchange_methods. HTTP/1.1 does so by
 * libmicrohttpd, HTTP/2 by nghttp2, and tests have exchanges that only keep what they are given.
 */
#ifndef AVO_SERVER_EXCHANGE_H
#define AVO_SERVER_EXCHANGE_H

#include "base/buffer.h"
#include "base/cursor.h"

typedef struct exchange exchange;
typedef struct server_key server_key; /* server/keys.h */

typedef struct exchange_request {
    const char *method, *path; /* the path without the query */
    text_view body;
    const char *id;        /* of the request: the client's X-Request-Id, or our own */
    const server_key *key; /* who asks; NULL where the server has no keys */
    const char *peer;      /* address, for the log */
    uint64_t arrived_ns;   /* when all of it had come */
    /* The client may load and unload adapters: it has an admin key; or, where there are no keys, it
     * asks from this machine and the server was told to allow it. */
    bool may_administer;
    /* The client speaks gRPC: an error is a status and a text in the trailers, without a body. The
     * statuses that endpoints give are HTTP's; the carrier translates them. */
    bool grpc;
    bool background; /* of a batch: in the lowest class */
} exchange_request;

/* What the access log says besides: tokens and timings of this request. Its tokens count against
 * the key's quota. The last call counts; before the last release. */
typedef struct exchange_usage {
    const char *model; /* base or adapter as asked for; copied */
    uint32_t prompt_tokens, reused_tokens, new_tokens;
    double queue_seconds, first_token_seconds;
} exchange_usage;

/* Called by any thread; see exchange_on_gone. */
typedef void (*exchange_gone_function)(void *context);

/* What a transport implements; the functions of the same names below say what each does. */
typedef struct exchange_methods {
    const char *(*header)(exchange *exchange, const char *name);
    const char *(*query)(exchange *exchange, const char *name);
    void (*share)(exchange *exchange);
    void (*release)(exchange *exchange);
    void (*set_header)(exchange *exchange, const char *name, const char *value);
    void (*send)(exchange *exchange, unsigned status, const char *content_type, text_view body);
    void (*stream)(exchange *exchange, unsigned status, const char *content_type);
    bool (*write)(exchange *exchange, text_view bytes);
    void (*end)(exchange *exchange);
    void (*on_gone)(exchange *exchange, exchange_gone_function gone, void *context);
    bool (*gone)(exchange *exchange);
    void (*set_usage)(exchange *exchange, const exchange_usage *usage);
    void (*set_failed)(exchange *exchange, unsigned status, const char *text);
    void (*set_prompt)(exchange *exchange, text_view prompt);
} exchange_methods;

/* What the exchanges of every transport begin with. */
struct exchange {
    const exchange_methods *methods;
    exchange_request asked;
};

static inline const exchange_request *exchange_asked(const exchange *exchange) {
    return &exchange->asked;
}

/* NULL where absent; lives as long as the exchange. */
static inline const char *exchange_header(exchange *exchange, const char *name) {
    return exchange->methods->header(exchange, name);
}
static inline const char *exchange_query(exchange *exchange, const char *name) {
    return exchange->methods->query(exchange, name);
}

/* References: whoever answers later holds one. */
static inline exchange *exchange_share(exchange *exchange) {
    exchange->methods->share(exchange);
    return exchange;
}
static inline void exchange_release(exchange *exchange) {
    exchange->methods->release(exchange);
}

/* Another header of the answer; before it begins. */
static inline void exchange_set_header(exchange *exchange, const char *name, const char *value) {
    exchange->methods->set_header(exchange, name, value);
}
/* The whole answer; the body is copied. */
static inline void exchange_send(exchange *exchange, unsigned status, const char *content_type,
                                 text_view body) {
    exchange->methods->send(exchange, status, content_type, body);
}
/* An answer that comes in pieces, sent as they come. `content_type` is static. */
static inline void exchange_stream(exchange *exchange, unsigned status, const char *content_type) {
    exchange->methods->stream(exchange, status, content_type);
}
/* False: the client has gone, or reads too slowly; nothing more needs to be written. */
static inline bool exchange_write(exchange *exchange, text_view bytes) {
    return exchange->methods->write(exchange, bytes);
}
static inline void exchange_end(exchange *exchange) {
    exchange->methods->end(exchange);
}

/* Called once if the client goes before the answer has ended, at once where it has gone already;
 * and, with the client still there (exchange_gone says false), whenever the server wants the answer
 * to end now. Never called after exchange_end. NULL unregisters the function. */
static inline void exchange_on_gone(exchange *exchange, exchange_gone_function gone,
                                    void *context) {
    exchange->methods->on_gone(exchange, gone, context);
}
static inline bool exchange_gone(exchange *exchange) {
    return exchange->methods->gone(exchange);
}

static inline void exchange_set_usage(exchange *exchange, const exchange_usage *usage) {
    exchange->methods->set_usage(exchange, usage);
}
/* The stream ends with an error in its place: the access log says so, the status was sent. `status`
 * and `text` (copied) are what a carrier with trailers tells. */
static inline void exchange_set_failed(exchange *exchange, unsigned status, const char *text) {
    exchange->methods->set_failed(exchange, status, text);
}
/* The prompt's text for the access log; ignored unless the server was told to log prompts. */
static inline void exchange_set_prompt(exchange *exchange, text_view prompt) {
    exchange->methods->set_prompt(exchange, prompt);
}

/* ---- Errors, in OpenAI's shape ---- */

/* The type that a status has in that shape: 401 authentication_error, 403 permission_error, 404
 * not_found_error, 429 rate_limit_error, 5xx server_error, else invalid_request_error. */
const char *exchange_error_type(unsigned status);
/* {"error":{"message","type","param","code"}}; `param` and `code` may be NULL. Paths under
 * /v1/messages get Anthropic's shape. */
void exchange_fail(exchange *exchange, unsigned status, const char *param, const char *code,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));
/* That body alone. */
AVO_MUST_USE avo_status exchange_write_error(buffer *out, const exchange_request *asked,
                                             unsigned status, const char *param, const char *code,
                                             const char *text);
/* The same with Retry-After, in whole seconds, at least 1. */
void exchange_refuse(exchange *exchange, unsigned status, double retry_seconds, const char *text);

#endif
