/* Traces of requests for an OpenTelemetry collector: OTLP over HTTP, as JSON.
 *
 * Every request that ends is a server span with its queueing, prefill and decoding as children. A
 * thread sends them in batches; nobody waits for it: spans that find the queue full, and batches
 * that the collector does not take, are dropped and counted. One connection for each batch, to one
 * address that is given as a number, so that a confined process needs no names and no other target.
 */
#ifndef AVO_SERVER_OTLP_H
#define AVO_SERVER_OTLP_H

#include "base/cursor.h"
#include "base/status.h"

#include <sys/socket.h>

#define OTLP_SPANS_MAX 1024 /* requests that wait to be sent */
#define OTLP_BATCH_MAX 256
#define OTLP_TEXT_MAX  128 /* longer texts are cut */
#define OTLP_PATH_MAX  256

typedef struct otlp otlp;

typedef struct otlp_target {
    struct sockaddr_storage address;
    socklen_t address_bytes;
    uint16_t port;
    char host[80], path[OTLP_PATH_MAX];
} otlp_target;

/* "http://ADDRESS:PORT/PATH"; ADDRESS is numeric ("[::1]") or localhost; PORT 4318 and PATH
 * /v1/traces where they are left out. */
AVO_MUST_USE avo_status otlp_target_read(const char *url, otlp_target *target, avo_error *error);

/* The W3C header traceparent; false: there is none, or it is none. */
typedef struct otlp_parent {
    uint8_t trace[16], span[8];
    bool sampled;
} otlp_parent;
bool otlp_parent_read(text_view header, otlp_parent *parent);

typedef struct otlp_request {
    otlp_parent parent; /* of the client; without one all zero, and sampled */
    const char *method, *path, *id, *key, *model; /* key, model: NULL where there is none */
    unsigned status;
    bool failed;                               /* a stream that ended with an error */
    uint64_t begin_ns, end_ns;                 /* Unix time */
    double queue_seconds, first_token_seconds; /* since the beginning; 0: nothing was computed */
    uint32_t prompt_tokens, cached_tokens, new_tokens;
} otlp_request;

typedef struct otlp_say {
    void (*say)(const void *context, const char *line); /* to the operator */
    const void *context;
} otlp_say;

AVO_MUST_USE avo_status otlp_open(const char *url, const char *service, otlp_say say, otlp **out,
                                  avo_error *error);
/* Sends what waits, within some seconds. NULL is ignored. */
void otlp_close(otlp *otlp);
/* Copies what it needs. */
void otlp_add(otlp *otlp, const otlp_request *request);

#endif
