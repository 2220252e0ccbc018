/* `avocet simulate`: the scheduler on a virtual clock. */
#include "cli/simulate_int.h"

#include "base/file.h"
#include "device/layer.h"
#include "sched/trace.h"

#include <string.h>

/* A TinyLlama-1.1B shape of 4 bits on two Zen 4 cores (docs/figures.md): 55 tokens a second alone,
 * 307 of sixteen, prefill 355. */
#define STEP_MS     18.0
#define ROW_MS      2.3 /* up to 16 */
#define MANY_ROW_MS 2.6
#define CONTEXT_US  0.6
#define ADAPTER_MS  0.4

typedef struct simulate_flags {
    uint64_t seeds, seed;
    uint32_t threads;
    const char *trace, *cost, *plot, *cores_mode;
    double zipf, rate, speed;
    uint32_t adapters, tenants, requests, prompt, answer;
    uint32_t running, rows, waiting, kv_tokens, context, chunk_min, adapters_max;
    double target_ms, ageing_s, noise;
    double step_ms, decode_ms, prefill_ms, context_us, adapter_ms;
    uint32_t cores, decode_cores;
    double core_bandwidth;
    bool retry, check, json, csv;
    fleet_flags fleet;
} simulate_flags;

/* ---- What comes ---- */

static avo_status take_items(uint32_t count, simulate_item **items, avo_error *error) {
    *items = allocator_take_array(NULL, count, sizeof(simulate_item));
    return *items != NULL ? AVO_OK
                          : status_no_memory(error, "requests", count * sizeof(simulate_item));
}

/* Adapters and tenants of a trace, which names none: as the flags say; and its speed. */
static avo_status spread(const simulate_flags *flags, simulate_item *items, uint32_t count,
                         avo_error *error) {
    simulate_zipf zipf = {flags->zipf, flags->adapters, flags->tenants, 1, 1,
                          1,           flags->context,  flags->seed};
    simulate_item *drawn = NULL;
    AVO_TRY(take_items(count, &drawn, error));
    avo_status status = simulate_zipf_fill(&zipf, drawn, count, error);
    for (uint32_t i = 0; i < count && status == AVO_OK; i++) {
        items[i].adapter = drawn[i].adapter;
        items[i].adapters = drawn[i].adapters;
        items[i].tenant = drawn[i].tenant;
        double time = 1 + (double)(items[i].arrival_ns - 1) / flags->speed;
        status = simulate_arrival(time, i, &items[i], error);
    }
    allocator_give(NULL, drawn, count * sizeof(simulate_item));
    return status;
}

static avo_status read_trace(const simulate_flags *flags, simulate_item **items, uint32_t *capacity,
                             uint32_t *count, avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(flags->trace, &map, error));
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    uint32_t lines = trace_lines(text);
    uint32_t most = flags->requests > 0 ? flags->requests : SIMULATE_REQUESTS_MAX;
    *capacity = lines < most ? lines : most;
    avo_status status = AVO_OK;
    if (*capacity == 0)
        *capacity = 1; /* so that the parser says what is wrong */
    status = take_items(*capacity, items, error);
    AVO_THEN(status, trace_parse(text, flags->trace, *items, *capacity, count, error));
    if (status == AVO_OK && *count == 0)
        status = status_fail(error, AVO_ERROR_FORMAT, "%s: no requests", flags->trace);
    file_map_close(&map);
    return status == AVO_OK ? spread(flags, *items, *count, error) : status;
}

static avo_status make_items(const simulate_flags *flags, simulate_item **items, uint32_t *capacity,
                             uint32_t *count, avo_error *error) {
    if (flags->trace != NULL)
        return read_trace(flags, items, capacity, count, error);
    *capacity = *count = flags->requests > 0 ? flags->requests : 1000;
    AVO_TRY(take_items(*count, items, error));
    simulate_zipf zipf = {flags->zipf,   flags->adapters, flags->tenants, flags->rate,
                          flags->prompt, flags->answer,   flags->context, flags->seed};
    return simulate_zipf_fill(&zipf, *items, *count, error);
}

/* ---- The machine ---- */

/* Flags over a file of measurements over our own numbers. */
static avo_status make_cost(const simulate_flags *flags, step_cost *cost, avo_error *error) {
    *cost = (step_cost){.context_token = 1e3 * CONTEXT_US, .adapter = 1e6 * ADAPTER_MS};
    step_cost_line(cost, 1e6 * STEP_MS, 1e6 * ROW_MS, 1e6 * MANY_ROW_MS);
    if (flags->cost != NULL)
        AVO_TRY(simulate_cost_read(flags->cost, cost, error));
    double step = cost->step[0];
    double row = (step_cost_step(cost, 16) - step) / 15;
    double many_row = (step_cost_step(cost, 512) - step_cost_step(cost, 16)) / 496;
    const struct {
        double given, unit, *number;
    } parts[] = {{flags->step_ms, 1e6, &step},
                 {flags->decode_ms, 1e6, &row},
                 {flags->prefill_ms, 1e6, &many_row},
                 {flags->context_us, 1e3, &cost->context_token},
                 {flags->adapter_ms, 1e6, &cost->adapter}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i].given >= 0)
            *parts[i].number = parts[i].given * parts[i].unit;
    if (flags->step_ms >= 0 || flags->decode_ms >= 0 || flags->prefill_ms >= 0)
        step_cost_line(cost, step, row, many_row);
    return AVO_OK;
}

static avo_status make_options(const simulate_flags *flags, simulate_options *options,
                               avo_error *error) {
    step_cost cost;
    AVO_TRY(make_cost(flags, &cost, error));
    uint32_t pages = flags->kv_tokens / KV_PAGE_TOKENS;
    *options = (simulate_options){.seed = flags->seed,
                                  .check = flags->check,
                                  .learn = true,
                                  .retry = flags->retry,
                                  .machine = {.cost = cost,
                                              .noise = flags->noise,
                                              .cores = flags->cores,
                                              .decode_cores = flags->decode_cores,
                                              .core_bandwidth = flags->core_bandwidth}};
    (void)cores_mode_named(flags->cores_mode, &options->machine.split); /* one of the choices */
    options->sched = (sched_options){.running_max = flags->running,
                                     .rows_max = flags->rows,
                                     .waiting_max = flags->waiting,
                                     .waiting_tokens_max = UINT64_MAX / 4,
                                     .pages = pages > 0 ? pages : 1,
                                     .context_max = flags->context,
                                     .target_ns = (uint64_t)(flags->target_ms * 1e6),
                                     .ageing_ns = (uint64_t)(flags->ageing_s * 1e9),
                                     .chunk_min = flags->chunk_min,
                                     .adapters_max = flags->adapters_max,
                                     .cost = cost};
    return AVO_OK;
}

/* ---- The run ---- */

static int print_report(const report *report, const simulate_flags *flags) {
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = flags->json  ? report_write_json(report, &out)
                        : flags->csv ? report_write_csv(report, &out)
                                     : report_write_markdown(report, &out);
    return cli_print_report(status, &out);
}

static avo_status run_items(const simulate_flags *flags, const simulate_item *items, uint32_t count,
                            arena *arena, report *report, simulate_result *result,
                            avo_error *error) {
    simulate_options options;
    AVO_TRY(make_options(flags, &options, error));
    simulate_outcome *outcomes = arena_take_array(arena, count, sizeof(simulate_outcome));
    if (outcomes == NULL)
        return status_no_memory(error, "outcomes", count * sizeof(simulate_outcome));
    AVO_TRY(report_open(report, arena, items, count, error));
    AVO_TRY(
        simulate_run(&options, items, count, NULL, report_gap, report, outcomes, result, error));
    report_conclude(report, outcomes, result);
    return AVO_OK;
}

static int simulate(const simulate_flags *flags) {
    avo_error error = {0};
    simulate_item *items = NULL;
    uint32_t capacity = 0, count = 0;
    simulate_result result = {0};
    static report report;
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    avo_status status = make_items(flags, &items, &capacity, &count, &error);
    AVO_THEN(status, run_items(flags, items, count, &arena, &report, &result, &error));
    int exit_status = EXIT_GOOD;
    if (status != AVO_OK)
        exit_status = cli_fail_status(status, &error);
    else if (result.wrong[0] != '\0')
        exit_status =
            cli_fail_text("%s (after %llu steps)", result.wrong, (unsigned long long)result.steps);
    else
        exit_status = print_report(&report, flags);
    if (exit_status == EXIT_GOOD && status == AVO_OK &&
        report.ends[SIMULATE_REFUSED] + report.ends[SIMULATE_NOT_TAKEN] == count)
        cli_warn("every request was refused: none fits in --kv-tokens %u or --ctx %u",
                 flags->kv_tokens, flags->context);
    if (exit_status == EXIT_GOOD && flags->plot != NULL)
        exit_status = simulate_plot(&report, flags->plot);
    arena_free(&arena);
    allocator_give(NULL, items, capacity * sizeof(simulate_item));
    return exit_status;
}

/* Many replicas: what comes is generated as it comes. */
static int simulate_replicas(const simulate_flags *flags) {
    avo_error error = {0};
    simulate_options one;
    simulate_item *trace = NULL;
    uint32_t capacity = 0, count = 0;
    avo_status status = make_options(flags, &one, &error);
    if (status == AVO_OK && flags->trace != NULL) {
        simulate_flags whole = *flags;
        whole.requests = 0;
        whole.fleet.replicas = NULL;
        status = read_trace(&whole, &trace, &capacity, &count, &error);
    }
    if (status != AVO_OK) {
        allocator_give(NULL, trace, capacity * sizeof(simulate_item));
        return cli_fail_status(status, &error);
    }
    uint32_t requests = flags->requests > 0 ? flags->requests : count > 0 ? count : 1000;
    fleet_options options = {.sched = one.sched,
                             .machine = one.machine,
                             .seed = one.seed,
                             .check = one.check,
                             .retry = one.retry,
                             .load = {.requests = requests,
                                      .seed = one.seed,
                                      .rate = flags->rate,
                                      .trace = trace,
                                      .trace_count = count,
                                      .prompt_mean = flags->prompt,
                                      .answer_mean = flags->answer,
                                      .tenants = flags->tenants,
                                      .adapters = flags->adapters,
                                      .zipf = flags->zipf}};
    fleet_output output = {flags->json, flags->csv, flags->plot,
                           flags->threads > 0 ? flags->threads : 1};
    int exit_status = simulate_fleet(&flags->fleet, &options, &output);
    allocator_give(NULL, trace, capacity * sizeof(simulate_item));
    return exit_status;
}

/* ---- The command ---- */

static void specs_what(simulate_flags *f, option_table *table) {
    const option_spec own[] = {
        {"seeds", 0, OPTION_U64, &f->seeds, "N",
         "run N small random scenarios and check every invariant at every step", 1, 1e12},
        {"seed", 0, OPTION_U64, &f->seed, "N", "first seed (default 1)", 0, 0},
        {"threads", 't', OPTION_U32, &f->threads, "N",
         "threads (with --seeds: default all; with --replicas: runs at a time, default 1)", 1, 256},
        {"trace", 0, OPTION_TEXT, &f->trace, "FILE",
         "replay a trace: CSV with TIMESTAMP,ContextTokens,GeneratedTokens", 0, 0},
        {"speed", 0, OPTION_NUMBER, &f->speed, "F",
         "(with --trace) requests arrive F times as fast (default 1)", 1e-6, 1e6},
        {"zipf", 0, OPTION_NUMBER, &f->zipf, "S",
         "generate requests; adapter k of N has weight 1/k^S (default 1)", 0, 10},
        {"adapters", 0, OPTION_U32, &f->adapters, "N", "adapters in use (default 0)", 0, 100000},
        {"tenants", 0, OPTION_U32, &f->tenants, "N", "tenants (default 1)", 1, 100000},
        {"requests", 0, OPTION_U32, &f->requests, "N",
         "number of requests (default: the whole trace, or 1000)", 1, FLEET_REQUESTS_MAX},
        {"rate", 0, OPTION_NUMBER, &f->rate, "R", "(with --zipf) requests per second (default 1)",
         1e-6, 1e6},
        {"prompt", 'p', OPTION_U32, &f->prompt, "N",
         "(with --zipf) mean prompt length in tokens (default 256)", 1, 1048576},
        {"generate", 'n', OPTION_U32, &f->answer, "N",
         "(with --zipf) mean answer length in tokens (default 64)", 1, 1048576},
        {0},
    };
    options_add(table, own);
}

static void specs_scheduler(simulate_flags *f, option_table *table) {
    const option_spec own[] = {
        {"running", 0, OPTION_U32, &f->running, "N", "sequences running at a time (default 8)", 1,
         SCHED_RUNNING_MAX},
        {"rows", 0, OPTION_U32, &f->rows, "N", "rows per step (default 512)", 1, 65536},
        {"waiting", 0, OPTION_U32, &f->waiting, "N",
         "requests that may wait (default 1024; of each replica 64)", 1, SCHED_REQUESTS_MAX},
        {"kv-tokens", 0, OPTION_U32, &f->kv_tokens, "N", "tokens in the KV pool (default 65536)",
         32, 1e9},
        {"ctx", 'c', OPTION_U32, &f->context, "N", "context in tokens (default 16384)", 2,
         16777216},
        {"chunk-min", 0, OPTION_U32, &f->chunk_min, "N",
         "minimum rows of a prefill chunk, unless fewer are left (default 16)", 1, 65536},
        {"adapters-max", 0, OPTION_U32, &f->adapters_max, "N",
         "distinct adapters per step (default 0: no limit)", 0, 4096},
        {"target-ms", 0, OPTION_NUMBER, &f->target_ms, "MS",
         "target time between tokens (default 200; 0: maximise throughput)", 0, 1e9},
        {"ageing", 0, OPTION_NUMBER, &f->ageing_s, "S",
         "seconds of waiting that raise a queue by one priority (default 2; 0: never)", 0, 1e6},
        {"retry", 0, OPTION_FLAG, &f->retry, NULL,
         "when the queue is full, clients retry after the time that it suggests", 0, 0},
        {"check", 0, OPTION_FLAG, &f->check, NULL, "check every invariant at every step (slow)", 0,
         0},
        {0},
    };
    options_add(table, own);
}

static void specs_machine(simulate_flags *f, option_table *table) {
    const option_spec own[] = {
        {"cost", 0, OPTION_TEXT, &f->cost, "FILE",
         "cost of steps, from the output of avocet bench --json", 0, 0},
        {"step-ms", 0, OPTION_NUMBER, &f->step_ms, "MS", "cost of reading the weights (default 18)",
         0, 1e9},
        {"decode-ms", 0, OPTION_NUMBER, &f->decode_ms, "MS",
         "cost of each row of a step after the first, up to 16 (default 2.3)", 0, 1e9},
        {"prefill-ms", 0, OPTION_NUMBER, &f->prefill_ms, "MS",
         "cost of each row of a step after 16 (default 2.6)", 0, 1e9},
        {"context-us", 0, OPTION_NUMBER, &f->context_us, "US",
         "cost of each position a row attends to (default 0.6)", 0, 1e9},
        {"adapter-ms", 0, OPTION_NUMBER, &f->adapter_ms, "MS",
         "cost of each distinct adapter per step (default 0.4)", 0, 1e9},
        {"noise", 0, OPTION_NUMBER, &f->noise, "F",
         "random variation: a step takes 1 − F to 1 + F of its cost (default 0.05)", 0, 0.99},
        {"cores-mode", 0, OPTION_CHOICE, &f->cores_mode, "mixed|static|adaptive",
         "decode and prefill in one step (mixed), on dedicated cores (static), or by load "
         "(adaptive)",
         0, 0},
        {"cores", 0, OPTION_U32, &f->cores, "N", "cores of the machine (default 2)", 1, 4096},
        {"decode-cores", 0, OPTION_U32, &f->decode_cores, "N",
         "(with --cores-mode static) cores that decode (default 1)", 1, 4095},
        {"core-bandwidth", 0, OPTION_NUMBER, &f->core_bandwidth, "F",
         "share of the memory bandwidth that one core reaches (default 0.65)", 0.001, 1},
        {"json", 0, OPTION_FLAG, &f->json, NULL, "print a JSON object", 0, 0},
        {"csv", 0, OPTION_FLAG, &f->csv, NULL, "print comma-separated values", 0, 0},
        {"plot", 0, OPTION_TEXT, &f->plot, "FILE.svg",
         "plot the distribution of latencies with gnuplot (.svg or .png)", 0, 0},
        {0},
    };
    options_add(table, own);
}

/* What is wrong with flags that each are right; NULL: nothing. */
static const char *check_flags(const simulate_flags *flags, int words) {
    bool seeds = flags->seeds > 0, zipf = flags->zipf >= 0;
    if (words > 0)
        return "takes options only; did you mean --trace FILE?";
    if (seeds + zipf + (flags->trace != NULL) == 0)
        return "missing workload: --seeds N, --trace FILE or --zipf S";
    if (seeds && (zipf || flags->trace != NULL))
        return "--seeds cannot be combined with other workloads";
    if (seeds && flags->fleet.replicas != NULL)
        return "--seeds cannot be combined with --replicas";
    if (flags->fleet.replicas == NULL && simulate_fleet_wanted(&flags->fleet))
        return "--router, --mtbf and --turns need --replicas";
    if (flags->fleet.replicas == NULL && flags->requests > SIMULATE_REQUESTS_MAX)
        return "--requests above 1000000 need --replicas";
    if (flags->fleet.replicas != NULL && strcmp(flags->cores_mode, "mixed") != 0)
        return "--replicas cannot be combined with --cores-mode";
    if (flags->json && flags->csv)
        return "give --json or --csv, not both";
    if (seeds && (flags->csv || flags->plot != NULL))
        return "--seeds cannot be combined with --csv or --plot";
    if (flags->rows < flags->running)
        return "--rows must be at least --running, one row for each sequence";
    if (flags->cores < 2 && strcmp(flags->cores_mode, "mixed") != 0)
        return "--cores-mode: dedicated cores need --cores 2 or more";
    if (flags->decode_cores >= flags->cores && strcmp(flags->cores_mode, "static") == 0)
        return "--decode-cores must leave at least one of --cores";
    if (flags->plot != NULL && !simulate_plot_named(flags->plot))
        return "--plot: the file name must end in .svg or .png";
    if (flags->plot != NULL && !simulate_plot_possible(flags->plot))
        return "--plot: the folder must exist and be writable, and the name must not contain "
               "quotes";
    return NULL;
}

static int run(int argc, char **argv) {
    simulate_flags flags = {.seed = 1,
                            .cores_mode = "mixed",
                            .zipf = -1,
                            .rate = 1,
                            .speed = 1,
                            .tenants = 1,
                            .prompt = 256,
                            .answer = 64,
                            .running = 8,
                            .rows = 512,
                            .kv_tokens = 65536,
                            .context = 16384,
                            .chunk_min = 16,
                            .target_ms = 200,
                            .ageing_s = 2,
                            .noise = 0.05,
                            .step_ms = -1,
                            .decode_ms = -1,
                            .prefill_ms = -1,
                            .context_us = -1,
                            .adapter_ms = -1,
                            .cores = 2,
                            .decode_cores = 1,
                            .core_bandwidth = 0.65};
    option_table table = {0};
    simulate_fleet_defaults(&flags.fleet);
    specs_what(&flags, &table);
    simulate_fleet_specs(&flags.fleet, &table);
    specs_scheduler(&flags, &table);
    specs_machine(&flags, &table);
    int words = 0;
    options_result parsed = options_parse(&command_simulate, table.specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    const char *wrong = check_flags(&flags, words);
    if (wrong != NULL)
        return cli_usage(&command_simulate, "%s", wrong);
    if (flags.seeds > 0)
        return simulate_seeds(flags.seed, flags.seeds, flags.threads, flags.json);
    if (flags.zipf < 0)
        flags.zipf = 1;
    bool fleet = flags.fleet.replicas != NULL;
    if (flags.waiting == 0)
        flags.waiting = fleet ? 64 : 1024;
    if (!fleet)
        return simulate(&flags);
    return simulate_fleet_parse(&flags.fleet) ? simulate_replicas(&flags) : EXIT_USAGE;
}

const cli_command command_simulate = {
    .name = "simulate",
    .summary = "run the scheduler on a virtual clock: invariants, traces, latencies",
    .usage = "avocet simulate --seeds N [--seed S]\n"
             "       avocet simulate --trace FILE [options]\n"
             "       avocet simulate --zipf S --adapters N [options]\n"
             "       avocet simulate --zipf S --replicas N,… --router NAME,… [options]",
    .examples =
        "avocet simulate --seeds 10000\n"
        "avocet simulate --seeds 1 --seed 4219\n"
        "avocet simulate --trace AzureLLMInferenceTrace_conv.csv --speed 0.05 --requests 2000\n"
        "avocet simulate --zipf 1.1 --adapters 64 --requests 2000 --rate 2 --plot zipf.svg\n"
        "avocet simulate --zipf 1 --adapters 8 --adapters-max 4 --check --json\n"
        "avocet simulate --zipf 1 --replicas 8,16 --router all --turns 4 --prefix-tokens 512\n"
        "avocet simulate --trace AzureLLMInferenceTrace_conv.csv --replicas 8,16 --plot fleet.svg\n"
        "avocet bench smollm2 -b 1,8,16 -d 0,4096 -p 512 --json > cost.json\n"
        "avocet simulate --zipf 1 --cost cost.json",
    .run = run,
};
