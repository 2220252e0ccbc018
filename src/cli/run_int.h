/* `avocet run`, between its files: what one request gave and how it is written down. */
#ifndef AVO_CLI_RUN_INT_H
#define AVO_CLI_RUN_INT_H

#include "cli/cli.h"

/* Everything about one request that JSON and telemetry want. */
typedef struct run_record {
    const char *model_name; /* as the user wrote it */
    const avo_model *model;
    text_view prompt;
    bool wants_logprobs;
    buffer text;       /* all of the answer */
    buffer ids;        /* int32_t each */
    buffer logprobs;   /* JSON array items, ready */
    buffer arrivals;   /* uint64_t each: when the token came, clock_now_ns */
    uint64_t begin_ns; /* of avo_generate */
    double load_seconds, tokenize_seconds;
    uint64_t prefilled; /* tokens of the prompt that were computed */
    avo_generate_result result;
} run_record;

void run_record_init(run_record *record);
void run_record_free(run_record *record);
/* Notes a token. */
AVO_MUST_USE avo_status run_record_token(run_record *record, const avo_token_event *event);

const char *run_finish_text(avo_finish finish);
/* Tokens per second, 0 where there was nothing to measure. */
double run_prefill_rate(const run_record *record);
double run_decode_rate(const run_record *record);

/* The object of `--json`, without a newline. */
AVO_MUST_USE avo_status run_write_json(const run_record *record, buffer *out);

/* ---- Telemetry: one CSV row per request ---- */

/* `path` may be "": standard error then. Made sure before the model is loaded: the file can be
 * written and has our header, which a new or empty one gets here. */
AVO_MUST_USE avo_status run_telemetry_check(const char *path, avo_error *error);
AVO_MUST_USE avo_status run_telemetry_write(const char *path, const run_record *record,
                                            avo_error *error);

#endif
