/* The sampling flags, the same for every command that generates text. */
#ifndef AVO_CLI_SAMPLING_OPTIONS_H
#define AVO_CLI_SAMPLING_OPTIONS_H

#include "cli/cli.h"

/* What the user gave; NAN or UINT32_MAX where nothing was given and the model decides. */
typedef struct sampling_flags {
    double temperature, top_p, min_p, typical_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k, loops;
    uint64_t seed;
    uint32_t logprobs;
    option_list bias; /* "ID=X" */
    option_list stop;
    option_list stop_token;
} sampling_flags;

void sampling_flags_init(sampling_flags *flags);

/* Adds the options; --logprobs, which needs --json, only with `logprobs`. */
void sampling_flags_specs(sampling_flags *flags, bool logprobs, option_table *table);

/* What an avo_sampling and a request point to. */
typedef struct sampling_values {
    avo_sampling sampling; /* of requests that say no more than the flags */
    avo_sampling named;    /* of those that name a temperature or a filter of their own */
    avo_logit_bias bias[OPTION_LIST_MAX];
    int32_t stop_tokens[OPTION_LIST_MAX];
} sampling_values;

/* Flags over the model's own generation defaults over ours. Reads the request's ignore_end, for the
 * guard against loops. False: a flag was wrong and it was printed. `values` must live as long as
 * the request. */
bool sampling_flags_apply(const cli_command *command, const sampling_flags *flags,
                          const avo_model *model, sampling_values *values, avo_request *request);

#endif
