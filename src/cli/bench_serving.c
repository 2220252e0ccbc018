/* `avocet bench MODEL --zipf`: requests on the real engine. */
#include "cli/bench_int.h"

#include "base/file.h"
#include "bench/adapters.h"
#include "bench/serving.h"
#include "cli/engine_flags.h"
#include "model/adapters.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define ADAPTERS_MAX    4096u
#define ROWS_MAX        512u
#define SHARED_TOKENS   32u
#define CONTEXT_SLACK   8u
#define RANDOM_STRENGTH 0.1f

void serving_flags_specs(serving_flags *flags, option_table *table) {
    const option_spec own[] = {
        {"zipf", 0, OPTION_NUMBER, &flags->zipf, "S",
         "measure a stream of requests instead of a fixed batch; the popularity of --adapters "
         "falls with exponent S (0: uniform)",
         0, 10},
        {"requests", 0, OPTION_U32, &flags->requests, "N",
         "(with --zipf, --http) number of requests (default 200; with --clients 8 per "
         "client, at least 16)",
         1, 1000000},
        {"rate", 0, OPTION_NUMBER, &flags->rate, "X",
         "(with --zipf, --http) requests per second at random times, instead of --concurrency or "
         "--clients",
         0, 1e6},
        {"concurrency", 0, OPTION_U32, &flags->concurrency, "N",
         "(with --zipf) requests in flight (default: twice the batch)", 1, 65536},
        {"tenants", 0, OPTION_U32, &flags->tenants, "N",
         "(with --zipf) number of tenants (default 1)", 1, 65536},
        {"seed", 0, OPTION_U64, &flags->seed, "N", "(with --zipf, --http) random seed (default 1)",
         0, 0},
        {"kv-tokens", 0, OPTION_U64, &flags->kv_tokens, "N",
         "(with --zipf) tokens in the KV pool (default: enough for the batch)", 0, 0},
        {"token-ms", 0, OPTION_NUMBER, &flags->token_ms, "X",
         "(with --zipf) target time between tokens during prefill (default 200; negative: maximise "
         "throughput)",
         -1, 1e6},
        {"no-prefix-cache", 0, OPTION_FLAG, &flags->no_prefix_cache, NULL,
         "(with --zipf) do not use the prefix cache", 0, 0},
        {"adapter-root", 0, OPTION_TEXT, &flags->adapter_root, "FOLDER",
         "(with --zipf) use the adapters in this folder instead of random ones", 0, 0},
        {"check", 0, OPTION_FLAG, &flags->check, NULL,
         "(with --zipf) repeat every request alone and compare the bytes", 0, 0},
        {0},
    };
    flags->zipf = -1.0;
    options_add(table, own);
    flags->scheduler = (avo_scheduler_options)AVO_SCHEDULER_OPTIONS_INIT;
    cores_flags_specs(&flags->scheduler, table);
}

bool serving_flags_given(const serving_flags *flags) {
    return flags->requests > 0 || flags->rate > 0.0 || flags->concurrency > 0 ||
           flags->tenants > 0 || flags->seed > 0 || flags->kv_tokens > 0 ||
           flags->token_ms != 0.0 || flags->no_prefix_cache || flags->adapter_root != NULL ||
           flags->check || flags->scheduler.cores != NULL || flags->scheduler.prefill_threads > 0;
}

/* ---- Adapters ---- */

static avo_status random_adapters(const avo_model *model, const adapter_flags *flags, uint64_t seed,
                                  size_t count, avo_adapter **adapters, avo_error *error) {
    uint64_t rank = 16;
    const char *fault =
        flags->rank == NULL ? NULL : number_parse_u64(flags->rank, 1, ADAPTER_RANK_MAX, &rank);
    if (fault != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT, "--rank: \"%s\" %s", flags->rank, fault);
    const bench_targets *targets =
        bench_targets_named(flags->targets != NULL ? flags->targets : "all");
    if (targets == NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--targets must be qv, qkvo or all (one of them, with --zipf)");
    adapter_random_options first = {.seed = seed * 1000003,
                                    .rank = (uint32_t)rank,
                                    .matrices = targets->matrices,
                                    .strength = RANDOM_STRENGTH};
    AVO_TRY(model_adapter_type(flags->type, &first.type, error));
    size_t made = 0;
    return bench_adapters_random(model, &first, count, cli_progress, adapters, &made, error);
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* A file, or a folder with a configuration: whether that is right is seen when it is opened. */
static bool may_be_adapter(const char *path) {
    char config[CLI_PATH_MAX];
    return file_kind_of(path) != FILE_FOLDER ||
           file_join(config, sizeof(config), path, "adapter_config.json", NULL) != AVO_OK ||
           file_kind_of(config) != FILE_MISSING;
}

static avo_status folder_adapters(const avo_model *model, const char *folder, const char *type,
                                  avo_adapter **adapters, size_t wanted, size_t *count,
                                  avo_error *error) {
    struct dirent **entries = NULL;
    int found = scandir(folder, &entries, is_visible, by_name);
    if (found < 0)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot list the folder", folder);
    avo_status status = AVO_OK;
    for (int i = 0; i < found && *count < wanted && status == AVO_OK; i++) {
        char path[CLI_PATH_MAX];
        snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        if (!may_be_adapter(path)) {
            cli_warn("%s: skipped, a folder without adapter_config.json is not an adapter", path);
            continue;
        }
        status = cli_adapter_open(model, path, type, &adapters[*count], error);
        *count += status == AVO_OK;
    }
    for (int i = 0; i < found; i++)
        free(entries[i]);
    free(entries);
    if (status == AVO_OK && *count == 0)
        return status_fail(error, AVO_ERROR_NOT_FOUND, "%s: no adapters in this folder", folder);
    return status;
}

/* ---- Pictures ---- */

static void write_steps(FILE *file, const char *name, const double *values, size_t count) {
    fprintf(file, "\"%s\"\n", name);
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%.6g %.6g\n", values[i] * 1e3, 100.0 * (double)(i + 1) / (double)count);
    fputs("\n\n", file);
}

static void write_latencies(FILE *file, const void *context) {
    const serving_result *result = context;
    write_steps(file, "time to first token", result->first_seconds, result->first_count);
    write_steps(file, "between two tokens", result->between_seconds, result->between_count);
    write_steps(file, "whole request", result->whole_seconds, result->whole_count);
}

static void write_script(FILE *file, const void *context) {
    (void)context;
    fputs("set terminal svg size 900,560 font 'sans-serif,13' background 'white'\n"
          "set output 'latency.svg'\n"
          "set logscale x\n"
          "set xlabel 'milliseconds'\n"
          "set ylabel 'share of requests or tokens within it, %'\n"
          "set yrange [0:100]\n"
          "set key bottom right\n"
          "set grid\n"
          "plot for [i=0:2] 'latency.dat' index i using 1:2 with lines lw 2 "
          "title columnheader(1)\n",
          file);
}

/* ---- The whole ---- */

static avo_status open_adapters(const avo_model *model, const serving_flags *flags,
                                const adapter_flags *adapter, serving_options *options,
                                avo_error *error) {
    uint64_t wanted = 0;
    const char *fault = adapter->adapters == NULL
                            ? NULL
                            : number_parse_u64(adapter->adapters, 0, ADAPTERS_MAX, &wanted);
    if (fault != NULL)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--adapters: \"%s\" %s; --zipf takes one number", adapter->adapters,
                           fault);
    options->adapters = calloc(ADAPTERS_MAX, sizeof(*options->adapters));
    if (options->adapters == NULL)
        return status_no_memory(error, "adapters", ADAPTERS_MAX * sizeof(*options->adapters));
    if (flags->adapter_root != NULL)
        return folder_adapters(model, flags->adapter_root, adapter->type, options->adapters,
                               wanted > 0 ? wanted : ADAPTERS_MAX, &options->adapter_count, error);
    options->adapter_count = wanted;
    return random_adapters(model, adapter, options->seed, wanted, options->adapters, error);
}

static serving_options plan_options(const serving_flags *flags,
                                    const bench_engine_options *engine) {
    serving_options options = {.seed = flags->seed > 0 ? flags->seed : 1,
                               .requests = flags->requests > 0 ? flags->requests : 200,
                               .zipf = flags->zipf,
                               .tenants = flags->tenants > 0 ? flags->tenants : 1,
                               .rate = flags->rate,
                               .prompt = engine->prompt.item[0] > 0 ? engine->prompt.item[0] : 1,
                               .generate =
                                   engine->generate.item[0] > 0 ? engine->generate.item[0] : 1,
                               .shared = SHARED_TOKENS,
                               .check = flags->check,
                               .engine = engine->place,
                               .scheduler = flags->scheduler,
                               .progress = cli_progress};
    avo_engine_options *own = &options.engine;
    own->size = sizeof(*own);
    own->sessions_max = engine->batch.item[0] > 1 ? engine->batch.item[0] : 16;
    own->rows_max = own->sessions_max > ROWS_MAX ? own->sessions_max : ROWS_MAX;
    own->context_max = options.shared + 2 * (options.prompt + options.generate) + CONTEXT_SLACK;
    own->kv_tokens = flags->kv_tokens;
    cores_flags_apply(&flags->scheduler, own);
    own->threads = engine->threads.item[0];
    own->device = engine->isa[0];
    own->kv_type = engine->kv_type[0];
    options.concurrency = flags->concurrency > 0 ? flags->concurrency : 2 * own->sessions_max;
    options.scheduler.token_seconds = flags->token_ms / 1e3;
    options.scheduler.no_prefix_cache = flags->no_prefix_cache;
    return options;
}

static int print(const char *name, const serving_options *options, const serving_result *result,
                 bool json, bool csv) {
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = json  ? bench_serving_json(name, options, result, &out)
                        : csv ? bench_serving_csv(name, options, result, &out)
                              : bench_serving_markdown(name, options, result, &out);
    return cli_print_report(status, &out);
}

static int report(const char *name, const serving_options *options, const serving_result *result,
                  const char *plot, bool json, bool csv) {
    int exit_status = print(name, options, result, json, csv);
    if (exit_status == EXIT_GOOD && plot != NULL)
        exit_status = bench_draw(plot, "latency.dat", write_latencies, "latency.gnuplot",
                                 write_script, "latency.svg", result);
    if (exit_status == EXIT_GOOD && result->different > 0)
        return cli_fail_text("%u of %u answers differ from those of the requests run alone",
                             result->different, result->finished);
    return exit_status;
}

int bench_serving_run(const char *model_name, const serving_flags *flags,
                      const adapter_flags *adapter, const bench_engine_options *engine,
                      const char *plot, bool json, bool csv) {
    if (engine->prompt.count > 1 || engine->generate.count > 1 || engine->batch.count > 1 ||
        engine->threads.count > 1 || engine->isas > 1 || engine->kv_types > 1)
        return cli_usage(&command_bench,
                         "--zipf accepts one value of -p, -n, -b, -t, --device and --kv-type");
    if (flags->rate > 0.0 && flags->concurrency > 0)
        return cli_usage(&command_bench, "give --rate or --concurrency, not both");
    char name[64];
    avo_error error = {0};
    avo_model *model = NULL;
    serving_result result = {0};
    serving_options options = plan_options(flags, engine);
    cli_short_name(model_name, name, sizeof(name));
    avo_status status = cli_model_open(model_name, &model, &error);
    AVO_THEN(status, open_adapters(model, flags, adapter, &options, &error));
    AVO_THEN(status, bench_serving(model, &options, &result, &error));
    cli_progress_end();
    int exit_status = EXIT_GOOD;
    if (status == AVO_OK)
        exit_status = report(name, &options, &result, plot, json, csv);
    bench_serving_free(&result);
    for (size_t i = 0; options.adapters != NULL && i < ADAPTERS_MAX; i++)
        avo_adapter_close(options.adapters[i]);
    free(options.adapters);
    avo_model_close(model);
    return status == AVO_OK ? exit_status : cli_fail_status(status, &error);
}
