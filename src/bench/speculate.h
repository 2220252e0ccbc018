/* The laboratory of speculation: every configuration (draft sources, controller, policy, K) answers
 * the same prompts, in turn, so that all of them see the same drift of the machine's speed, and is
 * compared with K = 0, which drafts nothing.
 *
 * With `clients` a configuration answers all prompts, so many at a time, before the next one does:
 * then a sample counts all tokens and the time from the first request to the last answer, and there
 * is nothing about single steps.
 *
 * One engine serves all of them. Lossless configurations must give the bytes of K = 0. Earlier
 * answers (the source "corpus") are those of the same configuration and iteration: no answer is
 * drafted from itself. */
#ifndef AVO_BENCH_SPECULATE_H
#define AVO_BENCH_SPECULATE_H

#include "base/buffer.h"
#include "bench/prompts.h"
#include "engine/draft_policy.h"

#define LAB_CONFIGS_MAX    64
#define LAB_ITERATIONS_MAX 1000
#define LAB_CATEGORIES_MAX 32
#define LAB_ROWS_MAX       (DRAFTS_MAX + 1)
#define LAB_SOURCE_MAX     64
#define LAB_MEMORY_MAX     65536 /* points of the memory profile */

typedef struct lab_config {
    char source[LAB_SOURCE_MAX]; /* as avo_request.speculate; "off" for K = 0 */
    draft_controller controller;
    draft_policy policy;
    uint32_t k;
} lab_config;

typedef struct lab_options {
    const lab_config *config; /* [configs]; the first is K = 0 and the only such one */
    uint32_t configs;
    const bench_prompts *prompts;
    uint32_t iterations;
    uint32_t new_tokens; /* of an answer, at most */
    float temperature;   /* of prompts that name none */
    uint64_t seed;
    bool ignore_end;  /* answers have new_tokens tokens */
    bool raw;         /* without the chat template */
    uint32_t clients; /* answers at a time, through the scheduler; 0: one by one, without it */
    avo_engine_options engine;
    avo_progress_function progress; /* may be NULL; false ends it */
} lab_options;

/* Sums over the answers to one category of prompts, or to all, in one iteration. */
typedef struct lab_sample {
    /* From the first token of each answer to its end, and tokens in that time: without the first
     * one of each answer. With clients: of the whole iteration. */
    double seconds;
    uint64_t tokens;
    uint64_t drafted, accepted;
    uint64_t resident_bytes; /* of the process, mean over the answers */
    uint32_t answers, equal; /* to those of K = 0 */
} lab_sample;

typedef struct lab_spread {
    double mean, sd; /* NaN where there are too few values */
} lab_spread;

typedef struct lab_steps {
    uint64_t steps, draft_steps;      /* draft_steps: those that verified drafts */
    uint64_t drafted_at[DRAFTS_MAX];  /* drafts verified at each position … */
    uint64_t accepted_at[DRAFTS_MAX]; /* … and accepted */
    uint64_t length[LAB_ROWS_MAX];    /* steps with drafts that accepted so many */
    uint64_t kind_drafted[DRAFT_KINDS], kind_accepted[DRAFT_KINDS];
    double draft_seconds, verify_seconds, host_seconds;
} lab_steps;

/* What a policy costs in quality. */
typedef struct lab_quality {
    uint64_t tokens, different; /* positions of the answers; those whose token differs from K = 0 */
    double logprob;             /* sum over the answer's tokens, under the model itself */
    uint64_t logprob_tokens;
} lab_quality;

typedef struct lab_cost {
    uint64_t steps;
    double measured_ns, predicted_ns; /* means, predicted before the step was learned from */
    double learned_ns;                /* of the table at the end, without context */
} lab_cost;

typedef struct lab_memory {
    double seconds;
    uint64_t resident_bytes, kv_tokens; /* kv_tokens: that the pages in use hold */
} lab_memory;

typedef struct lab_result {
    char device[32];
    uint32_t threads;
    uint32_t categories;
    const char *category[LAB_CATEGORIES_MAX];
    double repetition[LAB_CATEGORIES_MAX]; /* share of the answers' runs of four tokens that came
                                              before in the same answer: lookups live off these */
    lab_sample *sample;                    /* [configs][categories][iterations] */
    /* Tokens per second of single answers, [configs][prompts][iterations], and the categories of
     * the prompts: for medians, which a busy machine hardly moves. */
    double *rate;
    uint32_t *prompt_category;       /* [prompts] */
    lab_steps *steps;                /* [configs] */
    lab_quality *quality;            /* [configs] */
    lab_cost cost[LAB_ROWS_MAX + 1]; /* by rows; 0 unused */
    lab_memory *memory;              /* [memory_count] */
    size_t memory_count;
    uint32_t different;        /* answers of lossless configurations that differ from K = 0 */
    char first_different[160]; /* which one, in words */
    double seconds;
    arena arena;
} lab_result;

/* "0..8", "0,3,7", "0..4,8": ascending, with 0, which is added where it is absent. */
AVO_MUST_USE avo_status lab_parse_k(const char *text, uint32_t k[DRAFTS_MAX + 1], uint32_t *count,
                                    avo_error *error);
/* Every combination of the lists, K = 0 once and first. Sources are separated by commas; one of
 * several kinds is written "suffix+corpus". */
AVO_MUST_USE avo_status lab_configs(const char *k, const char *sources, const char *controllers,
                                    const char *policies, lab_config config[LAB_CONFIGS_MAX],
                                    uint32_t *count, avo_error *error);

AVO_MUST_USE avo_status lab_run(const avo_model *model, const lab_options *options,
                                lab_result *result, avo_error *error);
void lab_free(lab_result *result);

/* ---- Figures ---- */

/* Of one category, or of all together: LAB_ALL. */
#define LAB_ALL UINT32_MAX
lab_sample lab_sample_of(const lab_options *options, const lab_result *result, uint32_t config,
                         uint32_t category, uint32_t iteration);
typedef enum lab_figure {
    LAB_TOKENS_PER_SECOND,
    LAB_SPEEDUP, /* over K = 0 in the same iteration */
    LAB_ACCEPTANCE,
    LAB_LATENCY_MS, /* per token */
    LAB_RESIDENT_MIB,
    LAB_FIGURES
} lab_figure;
lab_spread lab_spread_of(const lab_options *options, const lab_result *result, uint32_t config,
                         uint32_t category, lab_figure figure);
/* Median over prompts and iterations of an answer's rate over that of K = 0; NaN: there is none. */
double lab_median_of(const lab_options *options, const lab_result *result, uint32_t config,
                     uint32_t category);
/* Share of answers equal to those of K = 0. */
double lab_success(const lab_options *options, const lab_result *result, uint32_t config);
/* "suffix/cost/K 3"; with the policy where it is lossy. */
void lab_config_name(const lab_config *config, char *text, size_t capacity);

AVO_MUST_USE avo_status lab_write_text(const char *model, const lab_options *options,
                                       const lab_result *result, buffer *out);
AVO_MUST_USE avo_status lab_write_json(const char *model, const lab_options *options,
                                       const lab_result *result, buffer *out);
/* A line for each configuration, category and iteration. */
AVO_MUST_USE avo_status lab_write_csv(const lab_options *options, const lab_result *result,
                                      buffer *out);

#endif
