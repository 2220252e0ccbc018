/* Inside the laboratory of speculation: speculate.c asks one question at a time,
 * speculate_clients.c many through the scheduler. */
#ifndef AVO_BENCH_SPECULATE_INT_H
#define AVO_BENCH_SPECULATE_INT_H

#include "bench/speculate.h"

typedef struct lab_answer {
    int32_t *ids; /* [new_tokens] */
    uint32_t count;
    double logprob;
    buffer text;
} lab_answer;

typedef struct lab_question {
    int32_t *ids;
    size_t count;
    avo_grammar *grammar; /* NULL: any answer */
    uint32_t category;
    lab_answer reference; /* of K = 0 */
} lab_question;

typedef struct lab {
    const avo_model *model;
    const lab_options *options;
    lab_result *result;
    avo_engine *engine;
    lab_question *questions; /* [prompts] */
    size_t question_count;
    lab_answer answer; /* the one at hand */
    uint32_t config;   /* that runs now */
    bool counting;     /* steps belong to the measurement */
    avo_status failure;
    bool stopped; /* by the user */
    uint64_t begin_ns;
    double memory_next, memory_period;
    uint64_t done, total;
} lab;

/* One answer of a configuration to one question. */
typedef struct lab_taken {
    const lab_answer *answer;
    size_t number; /* of the question */
    uint32_t iteration;
    double seconds; /* of decoding */
    uint32_t tokens;
} lab_taken;
/* Compares it with that of K = 0, or keeps it as such; notes its rate and its quality. */
AVO_MUST_USE avo_status lab_take(lab *lab, const lab_taken *taken, avo_error *error);
/* The request for a question; the caller adds events and salt. */
void lab_request(const lab *lab, size_t number, avo_sampling *sampling, avo_request *request);
/* One iteration of one configuration by options->clients at a time. */
AVO_MUST_USE avo_status lab_run_clients(lab *lab, avo_error *error);

/* The sums of a configuration in one iteration. */
static inline lab_sample *lab_sample_at(const lab *lab, uint32_t category, uint32_t iteration) {
    return &lab->result->sample[((size_t)lab->config * lab->result->categories + category) *
                                    lab->options->iterations +
                                iteration];
}

#endif
