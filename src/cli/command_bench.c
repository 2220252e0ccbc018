/* `avocet bench`: what an engine does on this machine, beside what the machine could do. */
#include "cli/bench_int.h"

#include "base/cpu.h"

#include <stdlib.h>
#include <string.h>

extern const cli_command command_bench;

/* A list, cut into words. */
typedef struct bench_words {
    char text[256];
    const char *item[BENCH_LIST_MAX];
    size_t count;
} bench_words;

typedef struct bench_flags {
    const char *prompt, *generate, *batch, *depth, *threads; /* lists as written */
    const char *kv_type, *isa, *type, *shape;
    bench_words kv_types, isas, types;
    const char *plot, *rung, *rung_shape;
    bool kernels;
    uint32_t limits_mib;
    bool json, csv;
    bench_engine_options engine;
} bench_flags;

/* "1,8,16": numbers in [minimum, maximum]; false after an error was printed. */
static bool parse_list(const char *name, const char *text, uint32_t minimum, uint32_t maximum,
                       bench_list *list) {
    list->count = 0;
    for (;;) {
        size_t length = strcspn(text, ",");
        char number[16];
        uint64_t value = 0;
        const char *wrong = "is too long for a number";
        if (length < sizeof(number)) {
            memcpy(number, text, length);
            number[length] = 0;
            wrong = number_parse_u64(number, minimum, maximum, &value);
        }
        if (wrong == NULL && list->count == BENCH_LIST_MAX)
            wrong = "makes the list too long";
        if (wrong != NULL) {
            cli_usage(&command_bench, "--%s: \"%.*s\" %s", name, (int)length, text, wrong);
            return false;
        }
        list->item[list->count++] = (uint32_t)value;
        if (text[length] == 0)
            return true;
        text += length + 1;
    }
}

static bool parse_lists(bench_flags *flags) {
    bench_engine_options *engine = &flags->engine;
    return parse_list("prompt", flags->prompt, 0, 1048576, &engine->prompt) &&
           parse_list("generate", flags->generate, 0, 1048576, &engine->generate) &&
           parse_list("batch", flags->batch, 1, 4096, &engine->batch) &&
           parse_list("depth", flags->depth, 0, 1048576, &engine->depth) &&
           parse_list("threads", flags->threads, 0, TEAM_THREADS_MAX, &engine->threads);
}

/* "f16,int8" into words; whether there are such types, the engine says. */
static bool parse_words(const char *name, const char *text, bench_words *words) {
    words->count = 1; /* NULL: the engine's own choice */
    words->item[0] = NULL;
    if (text == NULL)
        return true;
    if (strlen(text) >= sizeof(words->text)) {
        cli_usage(&command_bench, "--%s: the list is too long", name);
        return false;
    }
    memcpy(words->text, text, strlen(text) + 1);
    words->item[0] = words->text;
    for (char *at = words->text; *at != 0; at++)
        if (*at == ',' && words->count < BENCH_LIST_MAX) {
            *at = 0;
            words->item[words->count++] = at + 1;
        }
    return true;
}

static bool parse_names(bench_flags *flags) {
    bench_engine_options *engine = &flags->engine;
    if (!parse_words("kv-type", flags->kv_type, &flags->kv_types) ||
        !parse_words("isa", flags->isa, &flags->isas))
        return false;
    memcpy(engine->kv_type, flags->kv_types.item, sizeof(engine->kv_type));
    engine->kv_types = flags->kv_types.count;
    memcpy(engine->isa, flags->isas.item, sizeof(engine->isa));
    engine->isas = flags->isas.count;
    return true;
}

/* The last part of a path, without what every model file ends with. */
static void short_name(const char *name, char *out, size_t capacity) {
    size_t length = strlen(name);
    while (length > 1 && name[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && name[begin - 1] != '/')
        begin--;
    length -= begin;
    snprintf(out, capacity, "%.*s", (int)length, name + begin);
    char *dot = strrchr(out, '.');
    if (dot != NULL && dot != out &&
        (strcmp(dot, ".gguf") == 0 || strcmp(dot, ".avo") == 0 || strcmp(dot, ".bin") == 0))
        *dot = 0;
}

static avo_status measure_model(const char *model_name, const bench_flags *flags,
                                bench_machine *machine, bench_results *results, avo_error *error) {
    avo_model *model = NULL;
    AVO_TRY(cli_model_open(model_name, &model, error));
    char name[64];
    short_name(model_name, name, sizeof(name));
    avo_status status = bench_engine(model, name, &flags->engine, machine, results, error);
    cli_progress_end();
    avo_model_close(model);
    return status;
}

int bench_print(const bench_results *results, bool json, bool csv) {
    char cpu[128], features[256];
    cpu_features found = cpu_features_detect();
    cpu_name(cpu, sizeof(cpu));
    cpu_features_text(&found, features, sizeof(features));
    bench_report report = {cpu, features, cpu_usable_threads(), results};
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = json  ? bench_write_json(&report, &out)
                        : csv ? bench_write_csv(&report, &out)
                              : bench_write_markdown(&report, &out);
    if (status == AVO_OK) {
        if (out.size > 0 && out.data[out.size - 1] == '\n')
            out.size--;
        cli_print(buffer_text(&out));
    }
    buffer_free(&out);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_text("%s", avo_status_text(status));
}

/* ---- Single operations ---- */

/* "5632x2048" */
static bool parse_shape(const char *text, bench_operation_options *options) {
    char first[16];
    size_t length = strcspn(text, "x");
    uint64_t outputs, k;
    if (length < sizeof(first) && text[length] == 'x') {
        memcpy(first, text, length);
        first[length] = 0;
        if (number_parse_u64(first, 1, 1 << 20, &outputs) == NULL &&
            number_parse_u64(text + length + 1, 16, 1 << 18, &k) == NULL && k % 16 == 0) {
            options->outputs = (uint32_t)outputs;
            options->k = (uint32_t)k;
            return true;
        }
    }
    cli_usage(&command_bench, "--shape: \"%.40s\" is no OUTPUTSxINPUTS (inputs a multiple of 16)",
              text);
    return false;
}

static bool parse_types(const bench_words *words, bench_operation_options *options) {
    for (size_t i = 0; i < words->count; i++) {
        bool found = false;
        for (uint32_t type = 0; type < 256 && !found; type++)
            if (strcmp(quant_name(type), words->item[i]) == 0 &&
                panel_index_of((quant_type)type) != PANEL_INDEX_COUNT) {
                options->type[options->types++] = (quant_type)type;
                found = true;
            }
        if (!found) {
            cli_usage(&command_bench, "--type: no panels of \"%.20s\"; there are q4r, q8b, q4_0, …",
                      words->item[i]);
            return false;
        }
    }
    return true;
}

static avo_status measure_kernels(const bench_flags *flags, bench_operation_options *options,
                                  bench_machine *machine, bench_results *results,
                                  avo_error *error) {
    options->rows = flags->engine.batch;
    options->depth = flags->engine.depth;
    options->threads = flags->engine.threads;
    options->repeats = flags->engine.repeats;
    options->between = true;
    for (size_t i = 0; i < options->threads.count; i++)
        if (options->threads.item[i] == 0)
            options->threads.item[i] = cpu_usable_threads();
    for (size_t i = 0; i < flags->isas.count; i++) {
        options->isa = flags->isas.item[i];
        AVO_TRY(bench_operations(options, machine, results, error));
    }
    return AVO_OK;
}

/* ---- The command ---- */

static int measure(int models, char **names, const bench_flags *flags,
                   bench_operation_options *operations) {
    avo_error error = {0};
    static bench_result room[BENCH_RESULTS_MAX];
    bench_results results = {room, 0, BENCH_RESULTS_MAX};
    bench_machine *machine = NULL;
    avo_status status = bench_machine_open((size_t)flags->limits_mib << 20, &machine, &error);
    if (flags->kernels && status == AVO_OK)
        status = measure_kernels(flags, operations, machine, &results, &error);
    if (flags->rung != NULL && status == AVO_OK) {
        uint32_t threads = flags->engine.threads.item[0];
        rung_options rungs = {flags->rung, flags->rung_shape,
                              threads > 0 ? threads : cpu_usable_threads(), flags->engine.repeats};
        status = bench_rungs(&rungs, machine, &results, &error);
    }
    for (int i = 0; i < models && status == AVO_OK; i++)
        status = measure_model(names[i], flags, machine, &results, &error);
    bench_machine_close(machine);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    int exit_status = bench_print(&results, flags->json, flags->csv);
    if (exit_status == EXIT_GOOD && flags->plot != NULL)
        exit_status = bench_plot(&results, flags->plot);
    return exit_status;
}

/* What is wrong with flags that each are right; false after an error was printed. */
static bool check_flags(const bench_flags *flags, int words) {
    uint32_t sum = 0;
    for (size_t i = 0; i < flags->engine.prompt.count; i++)
        sum |= flags->engine.prompt.item[i];
    for (size_t i = 0; i < flags->engine.generate.count; i++)
        sum |= flags->engine.generate.item[i];
    const char *wrong = NULL;
    if (flags->json && flags->csv)
        wrong = "--json or --csv, not both";
    else if (words == 0 && !flags->kernels && flags->rung == NULL)
        wrong = "which MODEL? or --kernels, or --rung";
    else if (words > 0 && (flags->kernels || flags->rung != NULL))
        wrong = "--kernels and --rung take no MODEL";
    else if (flags->rung != NULL && !bench_rung_known(flags->rung))
        wrong = "--rung: there is none of that name; see --rung list";
    else if (!flags->kernels && (flags->type != NULL || flags->shape != NULL))
        wrong = "--type and --shape go with --kernels";
    else if (sum == 0)
        wrong = "-p 0 -n 0 leaves nothing to measure";
    if (wrong != NULL)
        cli_usage(&command_bench, "%s", wrong);
    return wrong == NULL;
}

static int run(int argc, char **argv) {
    static bench_flags flags = {.prompt = "128",
                                .generate = "32",
                                .depth = "0",
                                .threads = "0",
                                .rung_shape = "ladder",
                                .limits_mib = LIMITS_READ_BYTES >> 20,
                                .engine = {.repeats = 5, .progress = cli_progress}};
    bench_operation_options operations = {0};
    const option_spec specs[] = {
        {"prompt", 'p', OPTION_TEXT, &flags.prompt, "N,…",
         "tokens of prompt (default 128; 0: none)", 0, 0},
        {"generate", 'n', OPTION_TEXT, &flags.generate, "N,…",
         "tokens that every session then generates (default 32; 0: none)", 0, 0},
        {"batch", 'b', OPTION_TEXT, &flags.batch, "N,…",
         "sessions that decode together (default 1); of --kernels: rows (default 1,4,8,16,512)", 0,
         0},
        {"depth", 'd', OPTION_TEXT, &flags.depth, "N,…",
         "tokens that a session already holds (default 0)", 0, 0},
        {"threads", 't', OPTION_TEXT, &flags.threads, "N,…",
         "threads to compute with (default 0: all that this process may use)", 0, 0},
        {"isa", 0, OPTION_TEXT, &flags.isa, "ISA,…",
         "ref, avx2, avx512, amx (default: AVO_ISA, or the best there is)", 0, 0},
        {"kv-type", 0, OPTION_TEXT, &flags.kv_type, "TYPE,…",
         "how keys and values are stored: f32, f16, bf16, int8, fp8 (default: f16; the reference: "
         "f32)",
         0, 0},
        {"repeat", 'r', OPTION_U32, &flags.engine.repeats, "N",
         "measurements, of which the median counts (default 5)", 1, BENCH_REPEATS_MAX},
        {"compute-depth", 0, OPTION_FLAG, &flags.engine.compute_depth, NULL,
         "really compute what a session holds, instead of copies of its first page", 0, 0},
        {"kernels", 0, OPTION_FLAG, &flags.kernels, NULL, "single operations instead of a model", 0,
         0},
        {"type", 0, OPTION_TEXT, &flags.type, "TYPE,…",
         "of --kernels: types of the matrices (default q4r,q4_0,q4_k,q8b,f16)", 0, 0},
        {"shape", 0, OPTION_TEXT, &flags.shape, "NxK",
         "of --kernels: outputs and inputs of the matrices (default 5632x2048)", 0, 0},
        {"rung", 0, OPTION_TEXT, &flags.rung, "NAME",
         "a rung of the ladder from plain loops to tiles, or all, or list", 0, 0},
        {"rung-shape", 0, OPTION_TEXT, &flags.rung_shape, "SHAPE",
         "of --rung: the random model (default ladder; see avocet pack --random)", 0, 0},
        {"limits-mib", 0, OPTION_U32, &flags.limits_mib, "MIB",
         "memory that is read to measure the machine (default 512: past every cache)", 1, 65536},
        {"json", 0, OPTION_FLAG, &flags.json, NULL, "print a JSON object", 0, 0},
        {"csv", 0, OPTION_FLAG, &flags.csv, NULL, "print comma-separated values", 0, 0},
        {"plot", 0, OPTION_TEXT, &flags.plot, "FOLDER", "draw pictures there, with gnuplot", 0, 0},
        {0},
    };
    int words = 0;
    options_result parsed = options_parse(&command_bench, specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (flags.batch == NULL)
        flags.batch = flags.kernels ? "1,4,8,16,512" : "1";
    if (!parse_lists(&flags) || !parse_names(&flags) || !check_flags(&flags, words) ||
        !parse_shape(flags.shape != NULL ? flags.shape : "5632x2048", &operations) ||
        !parse_words("type", flags.type != NULL ? flags.type : "q4r,q4_0,q4_k,q8b,f16",
                     &flags.types) ||
        !parse_types(&flags.types, &operations))
        return EXIT_USAGE;
    if (flags.rung != NULL && strcmp(flags.rung, "list") == 0) {
        bench_rung_list();
        return EXIT_GOOD;
    }
    cli_interrupt_catch();
    return measure(words, argv + 1, &flags, &operations);
}

const cli_command command_bench = {
    .name = "bench",
    .summary = "measure speed, beside what the machine could do",
    .usage = "avocet bench MODEL… [options]\n"
             "       avocet bench --kernels [--type TYPE,…] [--shape NxK] [-b ROWS,…] [options]\n"
             "       avocet bench --rung NAME|all|list",
    .examples = "avocet bench smollm2\n"
                "avocet bench smollm2 -p 512 -n 64 -b 1,8 -d 0,8192 -t 2 -r 5 --json\n"
                "avocet bench a.avo b.gguf --isa avx2,avx512 --csv --plot pictures\n"
                "avocet bench --kernels --type q4r --shape 5632x2048 -b 1,8,512",
    .run = run,
};
