/* `avocet run`, between its files: what one request gave and how it is written down. */
#ifndef AVO_CLI_RUN_INT_H
#define AVO_CLI_RUN_INT_H

#include "base/arena.h"
#include "cli/cli.h"
#include "cli/sampling_options.h"
#include "cli/trace.h"

/* ---- Adapters ---- */

typedef struct run_adapter {
    char name[256];
    avo_adapter *adapter;
    float scale;
} run_adapter;

typedef struct run_adapters {
    run_adapter item[OPTION_LIST_MAX];
    size_t count;
} run_adapters;

/* The first that is not of the form NAME=PATH or NAME=PATH:SCALE; NULL: all are. */
const char *run_adapters_malformed(const option_list *specs);
/* Opens every NAME=PATH[:SCALE]; what was opened is closed by run_adapters_close, also after a
 * failure. `type` may be NULL. */
AVO_MUST_USE avo_status run_adapters_open(const option_list *specs, const char *type,
                                          const avo_model *model, run_adapters *adapters,
                                          avo_error *error);
void run_adapters_close(run_adapters *adapters);
/* All of them together; `uses` has room for AVO_ADAPTERS_MAX. */
AVO_MUST_USE avo_status run_adapters_all(const run_adapters *adapters, avo_adapter_use *uses,
                                         size_t *count, avo_error *error);
/* The member "adapters": an array with what proves that they are applied. */
void run_adapters_write(json_writer *w, const run_adapters *adapters, const avo_adapter_use *uses,
                        size_t count);

/* Everything about one request that JSON and telemetry want. */
typedef struct run_record {
    const char *model_name; /* as the user wrote it */
    const avo_model *model;
    text_view prompt;
    bool wants_logprobs;
    avo_chat_parser *parser;           /* NULL: tool calls are not looked for */
    buffer text;                       /* all of the answer */
    buffer ids;                        /* int32_t each */
    buffer logprobs;                   /* JSON array items, ready */
    buffer prompt_logprobs, embedding; /* likewise */
    buffer arrivals;                   /* uint64_t each: when the token came, clock_now_ns */
    uint64_t begin_ns;                 /* of avo_generate */
    double load_seconds, tokenize_seconds;
    uint64_t prefilled; /* tokens of the prompt that were computed */
    avo_result result;
    const run_adapters *adapters; /* and which of them were applied */
    avo_adapter_use uses[AVO_ADAPTERS_MAX];
    size_t use_count;
} run_record;

void run_record_init(run_record *record);
void run_record_free(run_record *record);
/* Notes a token. */
AVO_MUST_USE avo_status run_record_token(run_record *record, const avo_token_event *event);
/* The answer has ended: what a parser held back. */
AVO_MUST_USE avo_status run_record_end(run_record *record);
/* Of the prompt: one of its tokens, and what it was pooled into. */
AVO_MUST_USE avo_status run_record_prompt(run_record *record, const avo_token_event *event);
AVO_MUST_USE avo_status run_record_embedding(run_record *record, const float *values,
                                             uint32_t count);

/* Tokens per second, 0 where there was nothing to measure. */
double run_prefill_rate(const run_record *record);
double run_decode_rate(const run_record *record);

/* The members "text", "ids", "logprobs", "finish_reason", "usage" of a record. */
void run_write_answer(json_writer *w, const run_record *record);

/* The object of `--json`. */
void run_write_json(json_writer *w, const run_record *record);

/* ---- Telemetry: one CSV row per request ---- */

/* `path` may be "": standard error then. Made sure before the model is loaded: the file can be
 * written and has our header, which a new or empty one gets here. */
AVO_MUST_USE avo_status run_telemetry_check(const char *path, avo_error *error);
AVO_MUST_USE avo_status run_telemetry_write(const char *path, const run_record *record,
                                            avo_error *error);

/* ---- Many prompts: `--prompts` ---- */

typedef struct run_flags {
    sampling_flags sampling;
    const char *system;
    const char *telemetry; /* NULL: none */
    const char *trace;     /* NULL: none */
    bool raw, special, ignore_end, json;
    uint32_t max_new_tokens;
    uint32_t context;
    avo_engine_options engine;
    option_list adapters;
    const char *adapter_type;
    const char *prompts; /* NULL: one prompt */
    bool stream;
    uint32_t batch;
    uint64_t kv_tokens;
    const char *json_schema, *grammar; /* NULL: none */
    bool json_object;
    avo_scheduler_options scheduler; /* cores and prefill_threads alone */
} run_flags;

/* ---- What answers may be ---- */

/* What is wrong with the flags about it; NULL: nothing. */
const char *run_grammar_wrong(const run_flags *flags);
/* NULL in *grammar: any answer. */
AVO_MUST_USE avo_status run_grammar_open(const run_flags *flags, const avo_model *model,
                                         avo_grammar **grammar, avo_error *error);

extern const cli_command command_run;

/* Answers every line of a file; the exit status. */
int run_prompts(const run_flags *flags, const char *model_name);

#endif
