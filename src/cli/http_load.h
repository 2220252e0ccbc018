/* Load for a server that speaks OpenAI's completions, ours or another's, and what its clients see:
 * the same figures that `avocet bench --zipf` gives from inside, from outside.
 *
 * Closed loop: so many clients, each asking again as soon as it was answered. Open loop: requests
 * at random times, so many a second on average, whether or not the server keeps up. One thread,
 * over libcurl, so that TLS, chunks and kept connections are those of real clients.
 */
#ifndef AVO_CLI_HTTP_LOAD_H
#define AVO_CLI_HTTP_LOAD_H

#include "base/buffer.h"
#include "bench/serving.h"

#define HTTP_LOAD_CLIENTS_MAX  4096u
#define HTTP_LOAD_REQUESTS_MAX 1000000u

typedef struct http_load_options {
    const char *url;   /* of the server, with or without /v1 */
    const char *model; /* NULL: the first that /v1/models names */
    const char *key;   /* NULL: none */
    bool chat;         /* /v1/chat/completions */
    bool whole;        /* answers at once instead of streams */
    bool any_length;   /* answers may end early: without ignore_eos */
    uint32_t clients;  /* closed loop; of the open one, at most so many at a time */
    double rate;       /* open loop: requests a second; 0: closed */
    uint32_t requests;
    uint32_t prompt, generate; /* tokens, the prompt's roughly: so many common words */
    uint64_t seed;
    double timeout_seconds;         /* of one request */
    avo_progress_function progress; /* may be NULL; false ends it */
} http_load_options;

typedef struct http_load_result {
    char model[128];
    uint32_t requests, finished, refused, failed; /* refused: 429 and 503 */
    uint64_t new_tokens, prompt_tokens;
    double seconds;
    serving_spread first, between, whole; /* of finished ones */
    serving_spread refusal;               /* how soon refused ones were told */
    uint32_t connections;                 /* that were opened */
    char failure[256];                    /* the first that failed, in words; "" */
    double *first_seconds, *between_seconds, *whole_seconds; /* ascending: for pictures */
    arena arena;
} http_load_result;

/* AVO_ERROR_NETWORK where the server cannot be asked at all. */
AVO_MUST_USE avo_status http_load_run(const http_load_options *options, http_load_result *result,
                                      avo_error *error);
void http_load_free(http_load_result *result);

#endif
