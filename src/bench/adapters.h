/* What adapters cost: the same batch with and without, in turn, and beside it the floor: what has
 * to be read besides the base's bytes (decoding), or computed besides its products (a prompt). */
#ifndef AVO_BENCH_ADAPTERS_H
#define AVO_BENCH_ADAPTERS_H

#include "adapters/random.h"
#include "bench/bench.h"

typedef struct bench_targets {
    const char *name;
    uint32_t matrices; /* bit n: adapter_matrix n */
} bench_targets;
/* "qv", "qkvo", "all" (but the head); NULL: no such. */
const bench_targets *bench_targets_named(const char *name);

/* Random adapters of seeds first->seed, first->seed + 1, …: raises *made from what it is up to
 * `count`. The caller releases those, also after a failure. */
AVO_MUST_USE avo_status bench_adapters_random(const avo_model *model,
                                              const adapter_random_options *first, size_t count,
                                              avo_progress_function progress,
                                              avo_adapter **adapters, size_t *made,
                                              avo_error *error);

typedef struct bench_adapters_options {
    bench_list
        adapters;    /* distinct ones, dealt out to the sessions in turn; 0: none, for the noise */
    bench_list rank; /* 1…ADAPTER_RANK_MAX */
    const bench_targets *targets[BENCH_LIST_MAX];
    size_t targets_count;
    bench_list batch; /* sessions that decode together; at least as many as adapters, else left
                         out */
    uint32_t prompt;  /* tokens, shared out among as many sessions as there are adapters; 0: none */
    uint32_t generate; /* steps of one measurement; 0: none */
    uint32_t depth;    /* tokens that sessions hold before they decode */
    uint32_t threads;  /* 0: all */
    uint32_t repeats;
    const char *isa, *kv_type; /* NULL: the engine's choice */
    quant_type type;           /* of the adapters */
    avo_engine_options place;
    avo_progress_function progress;
} bench_adapters_options;

typedef struct bench_adapters_result {
    bench_kind kind;
    uint32_t adapters, rank;
    const char *targets;
    uint32_t batch, tokens;
    uint32_t threads, repeats;
    char backend[16];
    double base_tps, tps;       /* medians */
    double cost;                /* median of time with / time without − 1, each of one turn */
    double cost_low, cost_high; /* quartiles of these */
    double floor;               /* bytes (decoding) or products (a prompt) over the base's */
} bench_adapters_result;

/* Fills up to `capacity` results. */
AVO_MUST_USE avo_status bench_adapters(const avo_model *model,
                                       const bench_adapters_options *options,
                                       bench_adapters_result *results, size_t capacity,
                                       size_t *count, avo_error *error);

/* Tables of them. `machine` has the CPU's name; its results are not read. */
AVO_MUST_USE avo_status bench_adapters_markdown(const bench_report *machine, const char *model,
                                                const bench_adapters_result *results, size_t count,
                                                buffer *out);
AVO_MUST_USE avo_status bench_adapters_csv(const bench_report *machine, const char *model,
                                           const bench_adapters_result *results, size_t count,
                                           buffer *out);
AVO_MUST_USE avo_status bench_adapters_json(const bench_report *machine, const char *model,
                                            const bench_adapters_result *results, size_t count,
                                            buffer *out);

#endif
