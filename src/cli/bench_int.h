/* Inside cli/: the parts of `avocet bench`. */
#ifndef AVO_CLI_BENCH_INT_H
#define AVO_CLI_BENCH_INT_H

#include "bench/bench.h"
#include "cli/cli.h"
#include "cli/plot.h"

extern const cli_command command_bench;

/* ---- Lists as users write them ---- */

/* A list, cut into words. */
typedef struct bench_words {
    char text[256];
    const char *item[BENCH_LIST_MAX];
    size_t count;
} bench_words;

/* "1,8,16": numbers in [minimum, maximum]; false after an error was printed. */
bool bench_parse_list(const char *name, const char *text, uint32_t minimum, uint32_t maximum,
                      bench_list *list);
/* "f16,int8"; whether there are such things, somebody else says. NULL: one word, NULL. */
bool bench_parse_words(const char *name, const char *text, bench_words *words);
/* "5632x2048" into `count` numbers. */
bool bench_parse_sizes(const char *text, uint32_t *sizes, size_t count);

/* ---- Results ---- */

/* What a report says of the machine; the texts live in `room`. */
typedef struct machine_text {
    char cpu[128], features[256];
} machine_text;
bench_report bench_report_of(const bench_results *results, machine_text *room);
/* Makes the folder where it is not there; the exit status. */
int bench_plot_folder(const char *folder);
/* Writes the figures and gnuplot scripts into `folder` and runs gnuplot where there is one; says
 * on stderr what it drew, or what to do. The exit status. */
int bench_plot(const bench_results *results, const char *folder);
/* One picture of anything: writes `data` and `script` into the folder and has it drawn. */
int bench_draw(const char *folder, const char *data, plot_writer write_data, const char *script,
               plot_writer write_script, const char *picture, const void *context);

/* ---- Single operations ---- */

#define KERNEL_ROWS   "1,4,8,16,512"
#define KERNEL_DEPTHS "0,8192,32768"
#define KERNEL_PROMPT "512"

/* As written; NULL: the default. */
typedef struct kernel_flags {
    const char *operations, *types, *shapes, *heads, *text;
    const char *tokenizer; /* MODEL, or a tokenizer file; NULL: none */
} kernel_flags;

/* What is measured, read from flags; `isas` one after the other. */
typedef struct kernel_bench {
    bench_operation_options operations;
    bool tokenizer;
    const char *tokenizer_name, *text;
    const char *const *isas;
    size_t isas_count;
} kernel_bench;

/* `engine` has the lists that operations share with models. False after an error was printed. */
bool bench_kernels_parse(const kernel_flags *flags, const bench_engine_options *engine,
                         size_t walk_bytes, kernel_bench *out);
/* Lines that bench_kernels will add. */
uint64_t bench_kernels_cases(const kernel_bench *kernels);
AVO_MUST_USE avo_status bench_kernels(const kernel_bench *kernels, bench_machine *machine,
                                      bench_results *results, avo_error *error);

/* ---- Adapters ---- */

/* As written; NULL: the default. */
typedef struct adapter_flags {
    const char *adapters; /* NULL: none of this is asked for */
    const char *rank, *targets, *type;
} adapter_flags;
/* Measures and prints; the exit status. */
int bench_adapters_run(const char *model, const adapter_flags *flags,
                       const bench_engine_options *engine, bool json, bool csv);

/* ---- Requests ---- */

/* As written; 0 or NULL: the default. */
typedef struct serving_flags {
    double zipf; /* negative: none of this is asked for */
    uint32_t requests, concurrency, tenants;
    double rate, token_ms;
    uint64_t seed, kv_tokens;
    const char *adapter_root;
    bool no_prefix_cache, check;
    avo_scheduler_options scheduler; /* cores and prefill_threads alone */
} serving_flags;
void serving_flags_specs(serving_flags *flags, option_table *table);
/* Some of them besides --zipf were given. */
bool serving_flags_given(const serving_flags *flags);
/* Measures and prints; the exit status. */
int bench_serving_run(const char *model, const serving_flags *flags, const adapter_flags *adapter,
                      const bench_engine_options *engine, const char *plot, bool json, bool csv);

/* ---- A server ---- */

/* As written; 0 or NULL: the default. */
typedef struct http_flags {
    const char *url; /* NULL: none of this is asked for */
    const char *clients, *model, *key;
    double timeout;
    bool chat, whole, any_length;
    const char *modes; /* NULL: load, not a comparison */
    const char *prompts, *sets;
    uint32_t limit;
    double temperature;
} http_flags;
void http_flags_specs(http_flags *flags, option_table *table);
/* Some of them besides --http were given. */
bool http_flags_given(const http_flags *flags);
/* Measures and prints; the exit status. `serving` has requests, rate and seed. */
int bench_http_run(const http_flags *flags, const serving_flags *serving,
                   const bench_engine_options *engine, const char *plot, bool json, bool csv);

/* The same with --modes: with and without speculation. */
int bench_modes_run(const http_flags *flags, const serving_flags *serving,
                    const bench_engine_options *engine, bool json, bool csv);
void modes_flags_specs(http_flags *flags, option_table *table);
/* What is wrong with flags that each are right; NULL: nothing. */
const char *modes_flags_wrong(const http_flags *flags, const serving_flags *serving,
                              const char *plot);

/* ---- The ladder ---- */

typedef struct rung_options {
    const char *name; /* of a rung, or "all" */
    const char *shape;
    uint32_t threads; /* at least 1 */
    uint32_t repeats;
    const avo_engine_options *place; /* where things lie */
} rung_options;

bool bench_rung_known(const char *name);
void bench_rung_list(void);
AVO_MUST_USE avo_status bench_rungs(const rung_options *options, bench_machine *machine,
                                    bench_results *results, avo_error *error);

#endif
