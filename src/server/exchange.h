/* One HTTP request and its answer, as endpoints see them: no sockets, no threads, no library.
 *
 * The HTTP side (server/http*.c, on libmicrohttpd) owns the connection, reads the whole body
 * (within its limit), checks keys and limits, and calls the endpoint once, on one of its few
 * threads. The endpoint answers at once, or keeps a reference and answers later, from any thread:
 * events of the scheduler arrive on its delivery thread. Exactly one answer: exchange_send, or
 * exchange_stream followed by writes and one end.
 *
 * Nobody waits for a client: what is written goes into a buffer with a maximum, and a reader too
 * slow for it is cut off. When the client has gone, `on_gone` is called once, as soon as that is
 * seen; writes then say false.
 */
#ifndef AVO_SERVER_EXCHANGE_H
#define AVO_SERVER_EXCHANGE_H

#include "base/buffer.h"
#include "base/cursor.h"

typedef struct exchange exchange;
typedef struct server server;
typedef struct server_key server_key; /* server/keys.h */

typedef struct exchange_request {
    const char *method, *path; /* the path without the query */
    text_view body;
    const char *id;        /* of the request: the client's X-Request-Id, or our own */
    const server_key *key; /* who asks; NULL where the server has no keys */
    const char *peer;      /* address, for the log */
    uint64_t arrived_ns;   /* when all of it had come */
} exchange_request;

const exchange_request *exchange_asked(const exchange *exchange);
server *exchange_server(exchange *exchange);
/* The state of the endpoints (server/api.h). */
struct api *exchange_api(exchange *exchange);
/* Whether this client may load and unload adapters: it has an admin key; or, where there are no
 * keys, it asks from this machine and the server was told to allow it. */
bool exchange_may_administer(const exchange *exchange);
/* NULL where absent; lives as long as the exchange. */
const char *exchange_header(exchange *exchange, const char *name);
const char *exchange_query(exchange *exchange, const char *name);

/* References: whoever answers later holds one. */
exchange *exchange_share(exchange *exchange);
void exchange_release(exchange *exchange);

/* The whole answer; the body is copied. */
void exchange_send(exchange *exchange, unsigned status, const char *content_type, text_view body);
/* Another header of the answer; before it begins. */
void exchange_set_header(exchange *exchange, const char *name, const char *value);

/* An answer that comes in pieces, sent as they come. */
void exchange_stream(exchange *exchange, unsigned status, const char *content_type);
/* False: the client has gone, or reads too slowly; nothing more needs to be written. */
bool exchange_write(exchange *exchange, text_view bytes);
void exchange_end(exchange *exchange);

/* Called by any thread, once if the client goes before the answer has ended, at once where it has
 * gone already; and, with the client still there (exchange_gone says false), whenever the server
 * wants the answer to end now. Never called after exchange_end. NULL takes it back. */
void exchange_on_gone(exchange *exchange, void (*gone)(void *context), void *context);
bool exchange_gone(exchange *exchange);

/* What the access log says besides: tokens and timings of this request. Its tokens count against
 * the key's quota. The last call counts; before the last release. */
typedef struct exchange_usage {
    const char *model; /* base or adapter as asked for; copied */
    uint32_t prompt_tokens, reused_tokens, new_tokens;
    double queue_seconds, first_token_seconds;
} exchange_usage;
void exchange_set_usage(exchange *exchange, const exchange_usage *usage);
/* The stream ends with an error in its place: the access log says so, the status was sent. */
void exchange_set_failed(exchange *exchange);
/* The prompt's text for the access log; ignored unless the server was told to log prompts. */
void exchange_set_prompt(exchange *exchange, text_view prompt);

/* ---- Errors, in OpenAI's shape ---- */

/* {"error":{"message","type","param","code"}}; `param` and `code` may be NULL. The type follows
 * from the status: 401 authentication_error, 403 permission_error, 404 not_found_error, 429
 * rate_limit_error, 5xx server_error, else invalid_request_error. Paths under /v1/messages get
 * Anthropic's shape. */
/* The type that a status has in that shape. */
const char *exchange_error_type(unsigned status);
void exchange_fail(exchange *exchange, unsigned status, const char *param, const char *code,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));
/* That body alone. */
AVO_MUST_USE avo_status exchange_write_error(buffer *out, const exchange_request *asked,
                                             unsigned status, const char *param, const char *code,
                                             const char *text);
/* The same with Retry-After, in whole seconds, at least 1. */
void exchange_refuse(exchange *exchange, unsigned status, double retry_seconds, const char *text);

#endif
