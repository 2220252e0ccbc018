/* Requests on the real engine: many adapters whose popularity falls off by Zipf's law, tenants,
 * arrivals by a rate or so many at a time; what each request saw of it, and, on demand, whether it
 * is the same bytes as the request alone. Everything comes from a seed. */
#ifndef AVO_BENCH_SERVING_H
#define AVO_BENCH_SERVING_H

#include "base/arena.h"
#include "bench/bench.h"

#include <avocet.h>

typedef struct serving_options {
    uint64_t seed;
    uint32_t requests;
    double zipf;               /* exponent; 0: all adapters are equally popular */
    avo_adapter **adapters;    /* [adapter_count]; NULL among them: the base alone */
    size_t adapter_count;      /* 0: the base alone */
    uint32_t tenants;          /* at least 1 */
    uint32_t concurrency;      /* requests in flight, where `rate` is 0 */
    double rate;               /* requests a second, at random times */
    uint32_t prompt, generate; /* tokens, on average: half of it to one and a half times as many */
    uint32_t shared;           /* tokens that prompts of one adapter begin with */
    bool check;                /* every request once more, alone */
    avo_engine_options engine;
    avo_scheduler_options scheduler;
    avo_progress_function progress; /* may be NULL */
} serving_options;

/* Percentiles of one figure, in seconds. */
typedef struct serving_spread {
    double mean, p50, p90, p95, p99, max;
    size_t count;
} serving_spread;

/* Sorts the values. */
serving_spread serving_spread_of(double *values, size_t count);

typedef struct serving_result {
    uint32_t requests, finished, failed, different; /* different: of those checked */
    bool checked;
    size_t adapters, adapters_used;
    uint32_t tenants;
    double seconds; /* from the first submission to the last event */
    double check_seconds;
    serving_spread first, between, whole, queue;
    /* Jain's index of the time that a token took, between tenants and between adapters that had
     * three requests at least: 1 is all alike, 1/n all for one. */
    double tenant_fairness, adapter_fairness;
    uint64_t found_tokens, prompt_tokens; /* of finished requests when they began: what is found
                                             again after a preemption does not count */
    avo_scheduler_info info;
    /* [first_count], … ascending: for pictures */
    double *first_seconds, *between_seconds, *whole_seconds;
    size_t first_count, between_count, whole_count;
    arena arena; /* they lie here */
} serving_result;

AVO_MUST_USE avo_status bench_serving(const avo_model *model, const serving_options *options,
                                      serving_result *result, avo_error *error);
void bench_serving_free(serving_result *result);

AVO_MUST_USE avo_status bench_serving_markdown(const char *model, const serving_options *options,
                                               const serving_result *result, buffer *out);
AVO_MUST_USE avo_status bench_serving_csv(const char *model, const serving_options *options,
                                          const serving_result *result, buffer *out);
AVO_MUST_USE avo_status bench_serving_json(const char *model, const serving_options *options,
                                           const serving_result *result, buffer *out);

#endif
