/* `avocet bench`: what an engine does on this machine, beside what the machine could do. */
#include "cli/bench_int.h"

#include "base/cpu.h"
#include "cli/engine_flags.h"

#include <stdlib.h>
#include <string.h>

typedef struct bench_flags {
    const char *prompt, *generate, *batch, *depth, *threads; /* lists as written */
    const char *kv_type, *isa;
    bench_words kv_types, isas;
    const char *plot, *rung, *rung_shape;
    bool kernels;
    kernel_flags kernel;
    adapter_flags adapter;
    serving_flags serving;
    http_flags http;
    uint32_t limits_mib;
    bool json, csv;
    bench_engine_options engine;
} bench_flags;

static bool parse_lists(bench_flags *flags) {
    bench_engine_options *engine = &flags->engine;
    bool kernels = flags->kernels;
    bool http = flags->http.url != NULL;
    const char *prompt = flags->prompt != NULL ? flags->prompt
                         : kernels             ? KERNEL_PROMPT
                         : http                ? "64"
                                               : "128";
    const char *generate = flags->generate != NULL ? flags->generate : http ? "64" : "32";
    const char *batch = flags->batch != NULL ? flags->batch : kernels ? KERNEL_ROWS : "1";
    const char *depth = flags->depth != NULL ? flags->depth : kernels ? KERNEL_DEPTHS : "0";
    return bench_parse_list("prompt", prompt, 0, 1048576, &engine->prompt) &&
           bench_parse_list("generate", generate, 0, 1048576, &engine->generate) &&
           bench_parse_list("batch", batch, 1, 4096, &engine->batch) &&
           bench_parse_list("depth", depth, 0, 1048576, &engine->depth) &&
           bench_parse_list("threads", flags->threads, 0, TEAM_THREADS_MAX, &engine->threads);
}

static bool names_known(const bench_words *words, const char *name, const char *choices) {
    for (size_t i = 0; i < words->count; i++)
        if (words->item[i] != NULL && !option_choice(&command_bench, name, choices, words->item[i]))
            return false;
    return true;
}

/* That the machine has them all is known before any is measured. */
static bool devices_known(const bench_words *devices) {
    for (size_t i = 0; i < devices->count; i++)
        if (devices->item[i] != NULL && !option_device(&command_bench, "device", devices->item[i]))
            return false;
    return true;
}

static bool parse_names(bench_flags *flags) {
    bench_engine_options *engine = &flags->engine;
    if (!bench_parse_words("kv-type", flags->kv_type, &flags->kv_types) ||
        !bench_parse_words("device", flags->isa, &flags->isas) ||
        !names_known(&flags->kv_types, "kv-type", KV_TYPE_CHOICES) || !devices_known(&flags->isas))
        return false;
    memcpy(engine->kv_type, flags->kv_types.item, sizeof(engine->kv_type));
    engine->kv_types = flags->kv_types.count;
    memcpy(engine->isa, flags->isas.item, sizeof(engine->isa));
    engine->isas = flags->isas.count;
    return true;
}

/* Speed past a model's own context is a fair question, sense is not. */
static void warn_of_length(const avo_model *model, const char *name,
                           const bench_engine_options *options) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    uint32_t prompt = bench_largest(&options->prompt),
             generated = bench_largest(&options->generate);
    uint32_t longest = bench_largest(&options->depth) + (prompt > generated ? prompt : generated);
    if (longest > info.context)
        cli_warn("%s was trained for a context of %u tokens, this run uses %u; only the speed is "
                 "meaningful",
                 name, info.context, longest);
}

static avo_status measure_model(const char *model_name, const bench_flags *flags,
                                bench_machine *machine, bench_results *results, avo_error *error) {
    avo_model *model = NULL;
    AVO_TRY(cli_model_open(model_name, &model, error));
    char name[64];
    cli_short_name(model_name, name, sizeof(name));
    avo_status status = bench_engine(model, name, &flags->engine, machine, results, error);
    cli_progress_end();
    if (status == AVO_OK)
        warn_of_length(model, name, &flags->engine);
    avo_model_close(model);
    return status;
}

bench_report bench_report_of(const bench_results *results, machine_text *room) {
    cpu_features found = cpu_features_detect();
    cpu_name(room->cpu, sizeof(room->cpu));
    cpu_features_text(&found, room->features, sizeof(room->features));
    return (bench_report){room->cpu, room->features, cpu_usable_threads(), results};
}

static int print(const bench_results *results, bool json, bool csv) {
    machine_text room;
    bench_report report = bench_report_of(results, &room);
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = json  ? bench_write_json(&report, &out)
                        : csv ? bench_write_csv(&report, &out)
                              : bench_write_markdown(&report, &out);
    return cli_print_report(status, &out);
}

/* ---- The command ---- */

static int measure(int models, char **names, const bench_flags *flags,
                   const kernel_bench *kernels) {
    avo_error error = {0};
    static bench_result room[BENCH_RESULTS_MAX];
    bench_results results = {room, 0, BENCH_RESULTS_MAX};
    bench_machine *machine = NULL;
    avo_status status = bench_machine_open((size_t)flags->limits_mib << 20, &machine, &error);
    if (flags->kernels && status == AVO_OK)
        status = bench_kernels(kernels, machine, &results, &error);
    if (flags->rung != NULL && status == AVO_OK) {
        uint32_t threads = flags->engine.threads.item[0];
        rung_options rungs = {flags->rung, flags->rung_shape != NULL ? flags->rung_shape : "ladder",
                              threads > 0 ? threads : cpu_usable_threads(), flags->engine.repeats,
                              &flags->engine.place};
        status = bench_rungs(&rungs, machine, &results, &error);
    }
    for (int i = 0; !flags->kernels && i < models && status == AVO_OK; i++)
        status = measure_model(names[i], flags, machine, &results, &error);
    bench_machine_close(machine);
    cli_progress_end();
    int exit_status = EXIT_GOOD;
    if (status == AVO_OK || results.count > 0) /* what was measured is not lost with the rest */
        exit_status = print(&results, flags->json, flags->csv);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    if (exit_status == EXIT_GOOD && flags->plot != NULL)
        exit_status = bench_plot(&results, flags->plot);
    return exit_status;
}

/* Flags that a rung or an operation has no use for; NULL: none of them was given. */
static const char *useless_flag(const bench_flags *flags) {
    bool rung = flags->rung != NULL;
    if (flags->generate != NULL)
        return "-n (--generate)";
    if (flags->engine.compute_depth)
        return "--compute-depth";
    if (rung && flags->prompt != NULL)
        return "-p (--prompt)";
    if (rung && flags->batch != NULL)
        return "-b (--batch)";
    if (rung && flags->depth != NULL)
        return "-d (--depth)";
    if (rung && flags->isa != NULL)
        return "--device";
    if (rung && flags->kv_type != NULL)
        return "--kv-type";
    if (rung && flags->engine.threads.count > 1)
        return "several values of -t (--threads)";
    return NULL;
}

/* Counted before hours are spent on what does not fit the table. */
static bool check_cases(const bench_flags *flags, const kernel_bench *kernels, int models) {
    uint64_t cases = 0;
    if (flags->kernels)
        cases = bench_kernels_cases(kernels);
    else if (flags->rung == NULL)
        cases = (uint64_t)models * bench_engine_cases(&flags->engine);
    if (cases <= BENCH_RESULTS_MAX)
        return true;
    cli_usage(&command_bench, "these lists give %llu measurements, must be at most %d",
              (unsigned long long)cases, BENCH_RESULTS_MAX);
    return false;
}

/* Flags that mean nothing to a server somewhere else; NULL: none. */
static const char *wrong_with_http(const bench_flags *flags, int words) {
    const serving_flags *serving = &flags->serving;
    if (words > 0 || flags->kernels || flags->rung != NULL || flags->adapter.adapters != NULL ||
        serving->zipf >= 0.0)
        return "--http cannot be combined with a MODEL, --kernels, --rung, --adapters or --zipf";
    if (serving->concurrency > 0 || serving->tenants > 0 || serving->kv_tokens > 0 ||
        serving->token_ms != 0.0 || serving->no_prefix_cache || serving->adapter_root != NULL ||
        serving->check)
        return "--http accepts only --clients, --requests, --rate, --seed, -p and -n";
    if (serving->rate > 0.0 && flags->http.clients != NULL)
        return "give --rate (open loop) or --clients (closed loop), not both";
    return modes_flags_wrong(&flags->http, serving, flags->plot);
}

/* What is wrong with flags that each are right; false after an error was printed. */
static bool check_flags(const bench_flags *flags, int words) {
    uint32_t sum = 0;
    for (size_t i = 0; i < flags->engine.prompt.count; i++)
        sum |= flags->engine.prompt.item[i];
    for (size_t i = 0; i < flags->engine.generate.count; i++)
        sum |= flags->engine.generate.item[i];
    const kernel_flags *kernel = &flags->kernel;
    const avo_engine_options *place = &flags->engine.place;
    const char *wrong = NULL;
    if (flags->json && flags->csv)
        wrong = "give --json or --csv, not both";
    else if (words == 0 && !flags->kernels && flags->rung == NULL && flags->http.url == NULL)
        wrong = "missing MODEL (or --kernels, --rung, --http)";
    else if (flags->kernels && flags->rung != NULL)
        wrong = "give --kernels or --rung, not both";
    else if (words > 0 && flags->rung != NULL)
        wrong = "--rung needs no MODEL";
    else if (words > 1 && flags->kernels)
        wrong = "--kernels accepts at most one MODEL, for its tokenizer";
    else if (flags->rung != NULL && !bench_rung_known(flags->rung))
        wrong = "--rung: no such rung; --rung list shows them";
    else if (!flags->kernels &&
             (kernel->types != NULL || kernel->shapes != NULL || kernel->heads != NULL ||
              kernel->operations != NULL || kernel->text != NULL))
        wrong = "--op, --type, --shape, --heads and --text need --kernels";
    else if (flags->kernels && (place->huge_pages != NULL || place->numa != NULL ||
                                place->pin != NULL || place->lock))
        wrong = "--huge-pages, --numa, --pin and --lock need a MODEL, not --kernels";
    else if (sum == 0 && !flags->kernels && flags->rung == NULL)
        wrong = "-p 0 -n 0 leaves nothing to measure";
    else if (flags->rung_shape != NULL && flags->rung == NULL)
        wrong = "--rung-shape needs --rung";
    const adapter_flags *adapter = &flags->adapter;
    bool serving = flags->serving.zipf >= 0.0;
    if (wrong == NULL && flags->http.url != NULL)
        wrong = wrong_with_http(flags, words);
    else if (wrong == NULL && http_flags_given(&flags->http))
        wrong =
            "--clients, --model, --key, --chat, --whole, --any-length, --timeout, --modes, --set, "
            "--prompts, --limit and --temperature need --http";
    else if (wrong == NULL && !serving && serving_flags_given(&flags->serving))
        wrong = "--requests, --rate, --concurrency, --tenants, --seed, --kv-tokens, --token-ms, "
                "--no-prefix-cache, --adapter-root, --check and --cores need --zipf";
    else if (wrong == NULL && serving && (flags->kernels || flags->rung != NULL || words != 1))
        wrong = "--zipf needs one MODEL and cannot be combined with --kernels or --rung";
    else if (wrong == NULL && adapter->adapters == NULL &&
             (adapter->rank != NULL || adapter->targets != NULL || adapter->type != NULL))
        wrong = "--rank, --targets and --adapter-type need --adapters";
    else if (wrong == NULL && adapter->adapters != NULL && !serving &&
             (flags->kernels || flags->rung != NULL || words != 1 || flags->plot != NULL))
        wrong =
            "--adapters needs one MODEL and cannot be combined with --kernels, --rung or --plot";
    if (wrong != NULL) {
        cli_usage(&command_bench, "%s", wrong);
        return false;
    }
    const char *useless = flags->kernels || flags->rung != NULL ? useless_flag(flags) : NULL;
    if (useless != NULL)
        cli_usage(&command_bench, "--%s cannot be combined with %s",
                  flags->kernels ? "kernels" : "rung", useless);
    return useless == NULL;
}

static void make_specs(bench_flags *flags, option_table *table) {
    const option_spec own[] = {
        {"prompt", 'p', OPTION_TEXT, &flags->prompt, "N,…",
         "prompt tokens (default 128; 0: no prefill); with --kernels: rows per attention call "
         "(default " KERNEL_PROMPT ")",
         0, 0},
        {"generate", 'n', OPTION_TEXT, &flags->generate, "N,…",
         "tokens that every session generates after its prompt (default 32; 0: none)", 0, 0},
        {"batch", 'b', OPTION_TEXT, &flags->batch, "N,…",
         "sessions that decode together (default 1); with --kernels: number of rows "
         "(default " KERNEL_ROWS ")",
         0, 0},
        {"depth", 'd', OPTION_TEXT, &flags->depth, "N,…",
         "tokens already in each session (default 0; with --kernels: " KERNEL_DEPTHS ")", 0, 0},
        {"threads", 't', OPTION_TEXT, &flags->threads, "N,…",
         "worker threads (default auto: as many as steps are fastest with)", 0, 0},
        {"device", 0, OPTION_TEXT, &flags->isa, "NAME,…",
         DEVICE_NAMES " (default: AVO_DEVICE, else auto: the fastest available)", 0, 0},
        {"isa", 0, OPTION_TEXT, &flags->isa, "NAME,…", "older name of --device", 0, 0},
        {"kv-type", 0, OPTION_TEXT, &flags->kv_type, "TYPE,…",
         "type of keys and values: f32, f16, bf16, int8, fp8 (default: f16; ref: f32; with "
         "--kernels: f16,int8)",
         0, 0},
        {"repeat", 'r', OPTION_U32, &flags->engine.repeats, "N",
         "repetitions; the median is reported (default 5)", 1, BENCH_REPEATS_MAX},
        {"compute-depth", 0, OPTION_FLAG, &flags->engine.compute_depth, NULL,
         "compute the --depth tokens instead of copying a computed page", 0, 0},
        {"kernels", 0, OPTION_FLAG, &flags->kernels, NULL,
         "measure single operations instead of a model; with a MODEL also its tokenizer", 0, 0},
        {"op", 0, OPTION_TEXT, &flags->kernel.operations, "OP,…",
         "(with --kernels) linear, rows (norm, quantise, activation), attention, tokenizer "
         "(default: all of these), gemm (matrix products of training)",
         0, 0},
        {"type", 0, OPTION_TEXT, &flags->kernel.types, "TYPE,…",
         "(with --kernels) types of the matrices (default q4r,q4_0,q4_k,q8b,f16)", 0, 0},
        {"shape", 0, OPTION_TEXT, &flags->kernel.shapes, "NxK,…",
         "(with --kernels) outputs and inputs of the matrices (default 5632x2048)", 0, 0},
        {"heads", 0, OPTION_TEXT, &flags->kernel.heads, "HxKVxSIZE,…",
         "(with --kernels) heads, KV heads and head size (default 32x4x64)", 0, 0},
        {"text", 0, OPTION_TEXT, &flags->kernel.text, "FILE",
         "(with --kernels MODEL) text to tokenize (default: 1 MiB of built-in text)", 0, 0},
        {"rung", 0, OPTION_TEXT, &flags->rung, "NAME",
         "measure one optimisation level, from plain loops to tiles; or all, or list", 0, 0},
        {"rung-shape", 0, OPTION_TEXT, &flags->rung_shape, "SHAPE",
         "(with --rung) shape of the random model (default ladder; see avocet pack --random)", 0,
         0},
        {"adapters", 0, OPTION_TEXT, &flags->adapter.adapters, "N,…",
         "measure the cost of N random adapters against the same batch without them", 0, 0},
        {"rank", 0, OPTION_TEXT, &flags->adapter.rank, "N,…", "(with --adapters) rank (default 32)",
         0, 0},
        {"targets", 0, OPTION_TEXT, &flags->adapter.targets, "NAME,…",
         "(with --adapters) matrices: qv, qkvo, all (default qv,all)", 0, 0},
        {"adapter-type", 0, OPTION_CHOICE, &flags->adapter.type, "q8|f16|f32",
         "(with --adapters) type (default q8)", 0, 0},
        {"limits-mib", 0, OPTION_U32, &flags->limits_mib, "MIB",
         "memory read to measure the memory bandwidth (default 512, larger than any cache); "
         "--kernels uses half of it",
         1, 65536},
        {"json", 0, OPTION_FLAG, &flags->json, NULL, "print a JSON object", 0, 0},
        {"csv", 0, OPTION_FLAG, &flags->csv, NULL, "print comma-separated values", 0, 0},
        {"plot", 0, OPTION_TEXT, &flags->plot, "FOLDER", "write plots to this folder, with gnuplot",
         0, 0},
        {0},
    };
    options_add(table, own);
    serving_flags_specs(&flags->serving, table);
    http_flags_specs(&flags->http, table);
    place_flags_specs(&flags->engine.place, table);
}

static int run(int argc, char **argv) {
    static bench_flags flags = {.threads = "0",
                                .limits_mib = LIMITS_READ_BYTES >> 20,
                                .engine = {.repeats = 5, .progress = cli_progress}};
    option_table table = {0};
    make_specs(&flags, &table);
    int words = 0;
    kernel_bench kernels = {0};
    options_result parsed = options_parse(&command_bench, table.specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (!parse_lists(&flags) || !parse_names(&flags) || !check_flags(&flags, words))
        return EXIT_USAGE;
    flags.kernel.tokenizer = words > 0 ? argv[1] : NULL;
    size_t walk_bytes = (size_t)flags.limits_mib << 19; /* half of what is read */
    if (flags.kernels && !bench_kernels_parse(&flags.kernel, &flags.engine, walk_bytes, &kernels))
        return EXIT_USAGE;
    if (!check_cases(&flags, &kernels, words))
        return EXIT_USAGE;
    if (flags.rung != NULL && strcmp(flags.rung, "list") == 0) {
        bench_rung_list();
        return EXIT_GOOD;
    }
    /* Before minutes are spent on figures that cannot be drawn. */
    if (flags.plot != NULL && bench_plot_folder(flags.plot) != EXIT_GOOD)
        return EXIT_FAILED;
    cli_interrupt_catch();
    if (flags.http.modes != NULL)
        return bench_modes_run(&flags.http, &flags.serving, &flags.engine, flags.json, flags.csv);
    if (flags.http.url != NULL)
        return bench_http_run(&flags.http, &flags.serving, &flags.engine, flags.plot, flags.json,
                              flags.csv);
    if (flags.serving.zipf >= 0.0)
        return bench_serving_run(argv[1], &flags.serving, &flags.adapter, &flags.engine, flags.plot,
                                 flags.json, flags.csv);
    if (flags.adapter.adapters != NULL)
        return bench_adapters_run(argv[1], &flags.adapter, &flags.engine, flags.json, flags.csv);
    return measure(words, argv + 1, &flags, &kernels);
}

const cli_command command_bench = {
    .name = "bench",
    .summary = "measure speed and compare it with the limits of the machine",
    .usage =
        "avocet bench MODEL… [options]\n"
        "       avocet bench --kernels [MODEL] [--op OP,…] [options]\n"
        "       avocet bench MODEL --adapters N,… [--rank N,…] [--targets qv,qkvo,all]\n"
        "       avocet bench MODEL --zipf S [--adapters N] [--requests N] [--rate X] [--check]\n"
        "       avocet bench --http URL [--clients N,…|--rate X] [--requests N] [-p N] [-n N]\n"
        "       avocet bench --http URL --modes plain,speculative [--set SET,…|--prompts FILE]\n"
        "       avocet bench --rung NAME|all|list",
    .examples =
        "avocet bench smollm2\n"
        "avocet bench smollm2 -p 512 -n 64 -b 1,8 -d 0,8192 -t 2 -r 5 --json\n"
        "avocet bench a.avo b.gguf --device avx2,avx512 --csv --plot pictures\n"
        "avocet bench --kernels --op linear --type q4r --shape 5632x2048 -b 1,8,512\n"
        "avocet bench --kernels --op attention --heads 9x3x64 -d 8192,32768 --kv-type int8\n"
        "avocet bench --kernels --op gemm --type f32,q4_1 --shape 1536x576 -b 256,1024\n"
        "avocet bench --kernels smollm2 --op tokenizer --text wiki.test.raw\n"
        "avocet bench smollm2 --adapters 1,4 --rank 32 --targets qv,all -b 1,4,8 -p 512 -n 8\n"
        "avocet bench smollm2 --zipf 1 --adapters 64 --requests 200 --tenants 4 --check\n"
        "avocet bench --http http://127.0.0.1:8080 --clients 1,4,8,16 -p 64 -n 64\n"
        "avocet bench --http http://127.0.0.1:8080 --chat --modes plain,speculative -n 128",
    .run = run,
};
