/* `bench --http --modes`: the same prompts in turn against one server, with and without
 * speculation, the answers compared byte by byte. One client: what speculation gains for one
 * sequence. Servers choose it by the field "speculation" of the request; that one ignores the field
 * shows in its usage, which then counts no drafts. */
#ifndef AVO_LOAD_MODES_H
#define AVO_LOAD_MODES_H

#include "bench/speculate.h"

#define MODES_MAX 8

typedef struct modes_options {
    const char *url;   /* of the server, with or without /v1 */
    const char *model; /* NULL: the first that /v1/models names */
    const char *key;   /* NULL: none */
    const char *modes; /* "plain,speculative": the first is the base. Others: sources of drafts */
    bool chat;         /* /v1/chat/completions */
    bool any_length;   /* answers may end early: without ignore_eos */
    const bench_prompts *prompts;
    uint32_t iterations, new_tokens;
    float temperature;
    uint64_t seed;
    double timeout_seconds;
    avo_progress_function progress; /* may be NULL; false ends it */
} modes_options;

typedef struct modes_result {
    char model[128];
    char name[MODES_MAX][LAB_SOURCE_MAX];
    lab_config config[MODES_MAX];    /* .source: the field "speculation"; .k: number of the mode */
    lab_options figures;             /* for lab_spread_of and lab_sample_of … */
    lab_result measured;             /* … with these, `sample` and `category` alone */
    double first_seconds[MODES_MAX]; /* to the first token, mean */
    uint32_t requests, failed;
    uint32_t different;      /* answers that are not those of the first mode */
    char failure[256];       /* the first that failed, in words */
    bool counted[MODES_MAX]; /* the server has reported drafts */
} modes_result;

AVO_MUST_USE avo_status modes_run(const modes_options *options, modes_result *result,
                                  avo_error *error);
void modes_free(modes_result *result);
/* The list alone: AVO_ERROR_ARGUMENT says what is wrong with it. */
AVO_MUST_USE avo_status modes_parse(const char *modes, modes_result *result, uint32_t *count,
                                    avo_error *error);

AVO_MUST_USE avo_status modes_write_text(const modes_options *options, const modes_result *result,
                                         buffer *out);
AVO_MUST_USE avo_status modes_write_json(const modes_options *options, const modes_result *result,
                                         buffer *out);
AVO_MUST_USE avo_status modes_write_csv(const modes_result *result, buffer *out);

#endif
