/* The load generator: requests to a server that speaks OpenAI's completions API, ours or another's,
 * and the latencies its clients see. The same figures as `avocet bench --zipf`, from outside.
 *
 * Closed loop: a number of clients, each sends its next request when it has its answer. Open loop:
 * requests at random times with a given mean rate, whether or not the server keeps up. One thread,
 * over libcurl, so that TLS, chunks and kept connections are those of real clients.
 */
#ifndef AVO_LOAD_H
#define AVO_LOAD_H

#include "base/buffer.h"
#include "bench/serving.h"

#define LOAD_CLIENTS_MAX 4096u

typedef struct load_options {
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
} load_options;

typedef struct load_result {
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
} load_result;

/* AVO_ERROR_NETWORK where the server cannot be asked at all. */
AVO_MUST_USE avo_status load_run(const load_options *options, load_result *result,
                                 avo_error *error);
void load_free(load_result *result);

/* ---- Tables ---- */

/* One line of a table. */
typedef struct load_case {
    load_options options;
    load_result result;
} load_case;

/* Reports of the cases against one server; at least one. */
typedef struct load_table {
    const char *url;
    load_case item[BENCH_LIST_MAX];
    size_t count;
} load_table;

AVO_MUST_USE avo_status load_write_markdown(const load_table *table, buffer *out);
AVO_MUST_USE avo_status load_write_csv(const load_table *table, buffer *out);
AVO_MUST_USE avo_status load_write_json(const load_table *table, buffer *out);

#endif
