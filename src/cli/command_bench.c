/* `avocet bench`: tokens per second of prefill and decode, by the clock, median of repetitions.
 * The tokens are pseudo-random, so that nothing is easier than it would be in earnest. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/random.h"

#include <stdlib.h>

extern const cli_command command_bench;

#define REPETITIONS_MAX 100

typedef struct bench_flags {
    uint32_t prompt, generate, threads, repetitions;
    const char *kv_type;
    bool json;
} bench_flags;

typedef struct bench_figures {
    double prefill[REPETITIONS_MAX]; /* tokens per second */
    double decode[REPETITIONS_MAX];
    double load_seconds;
    uint32_t threads;
    uint64_t weight_bytes;
} bench_figures;

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, uint32_t count) {
    qsort(values, count, sizeof(*values), ascending);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2.0;
}

typedef struct bench_parts {
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    uint32_t vocabulary;
} bench_parts;

static avo_status step(bench_parts *parts, const int32_t *tokens, size_t count, avo_error *error) {
    avo_batch_clear(parts->batch);
    avo_status status = avo_batch_add(parts->batch, parts->session, tokens, count);
    if (status == AVO_OK)
        status = avo_step(parts->engine, parts->batch);
    if (status != AVO_OK)
        return status_fail(error, status, "%s", avo_batch_error(parts->batch)->text);
    return AVO_OK;
}

static int32_t token_at(const bench_parts *parts, uint64_t index) {
    return (int32_t)(random_at(1, 0, index).words[0] % parts->vocabulary);
}

/* One pass: the prompt in steps of 512 at most, then token by token. */
static avo_status measure_once(bench_parts *parts, const bench_flags *flags, double *prefill,
                               double *decode, avo_error *error) {
    int32_t tokens[512];
    avo_batch_clear(parts->batch);
    AVO_TRY(avo_session_truncate(parts->session, 0, error));
    uint64_t begin = clock_now_ns();
    for (uint32_t done = 0; done < flags->prompt;) {
        uint32_t count = flags->prompt - done < 512 ? flags->prompt - done : 512;
        for (uint32_t i = 0; i < count; i++)
            tokens[i] = token_at(parts, done + i);
        AVO_TRY(step(parts, tokens, count, error));
        done += count;
    }
    uint64_t middle = clock_now_ns();
    for (uint32_t i = 0; i < flags->generate; i++) {
        int32_t token = token_at(parts, flags->prompt + i);
        AVO_TRY(step(parts, &token, 1, error));
    }
    uint64_t end = clock_now_ns();
    *prefill = flags->prompt > 0 ? (double)flags->prompt / clock_seconds(begin, middle) : 0.0;
    *decode = flags->generate > 0 ? (double)flags->generate / clock_seconds(middle, end) : 0.0;
    return AVO_OK;
}

static avo_status measure_all(bench_parts *parts, const bench_flags *flags, bench_figures *figures,
                              avo_error *error) {
    double ignored;
    /* Once for nothing: files are mapped and caches are warm afterwards. */
    AVO_TRY(measure_once(parts, flags, &ignored, &ignored, error));
    for (uint32_t i = 0; i < flags->repetitions; i++) {
        if (!cli_progress(NULL, "bench", i, flags->repetitions))
            return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
        AVO_TRY(measure_once(parts, flags, &figures->prefill[i], &figures->decode[i], error));
    }
    cli_progress_end();
    return AVO_OK;
}

static avo_status bench(const char *name, const bench_flags *flags, bench_figures *figures,
                        avo_error *error) {
    uint64_t begin = clock_now_ns();
    avo_model *model = NULL;
    bench_parts parts = {0};
    AVO_TRY(cli_model_open(name, &model, error));
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = flags->threads;
    options.kv_type = flags->kv_type;
    options.context_max = flags->prompt + flags->generate;
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    parts.vocabulary = info.vocabulary;
    figures->weight_bytes = info.weight_bytes;
    avo_plan plan = AVO_PLAN_INIT;
    avo_status status = avo_engine_plan(model, &options, &plan, error);
    figures->threads = plan.threads;
    if (status == AVO_OK)
        status = avo_engine_open(model, &options, &parts.engine, error);
    if (status == AVO_OK)
        status = avo_session_open(parts.engine, NULL, &parts.session, error);
    if (status == AVO_OK)
        status = avo_batch_open(parts.engine, &parts.batch, error);
    figures->load_seconds = clock_seconds(begin, clock_now_ns());
    if (status == AVO_OK)
        status = measure_all(&parts, flags, figures, error);
    avo_batch_close(parts.batch);
    avo_session_close(parts.session);
    avo_engine_close(parts.engine);
    avo_model_close(model);
    return status;
}

static avo_status write_json(const char *name, const bench_flags *flags,
                             const bench_figures *figures, double prefill, double decode,
                             buffer *out) {
    AVO_TRY(buffer_append_text(out, "{\"model\":"));
    AVO_TRY(json_write_string(out, text_from(name)));
    return buffer_format(out,
                         ",\"threads\":%u,\"repetitions\":%u,\"prompt_tokens\":%u,"
                         "\"new_tokens\":%u,\"load_ms\":%.3f,\"prefill_tps\":%.3f,"
                         "\"decode_tps\":%.3f,\"weight_bytes\":%llu,\"peak_memory_bytes\":%llu}",
                         figures->threads, flags->repetitions, flags->prompt, flags->generate,
                         figures->load_seconds * 1e3, prefill, decode,
                         (unsigned long long)figures->weight_bytes,
                         (unsigned long long)memory_peak_bytes());
}

static int print_figures(const char *name, const bench_flags *flags, bench_figures *figures) {
    double prefill = median(figures->prefill, flags->repetitions);
    double decode = median(figures->decode, flags->repetitions);
    if (!flags->json) {
        printf("%-10s %10s %8s %14s %14s\n", "what", "tokens", "threads", "median tok/s",
               "best tok/s");
        if (flags->prompt > 0)
            printf("%-10s %10u %8u %14.2f %14.2f\n", "prefill", flags->prompt, figures->threads,
                   prefill, figures->prefill[flags->repetitions - 1]);
        if (flags->generate > 0)
            printf("%-10s %10u %8u %14.2f %14.2f\n", "decode", flags->generate, figures->threads,
                   decode, figures->decode[flags->repetitions - 1]);
        return EXIT_GOOD;
    }
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = write_json(name, flags, figures, prefill, decode, &out);
    if (status == AVO_OK)
        cli_print(buffer_text(&out));
    buffer_free(&out);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_text("%s", avo_status_text(status));
}

static int run(int argc, char **argv) {
    bench_flags flags = {.prompt = 128, .generate = 32, .repetitions = 5};
    const option_spec specs[] = {
        {"prompt", 'p', OPTION_U32, &flags.prompt, "N", "tokens of prompt (default 128)", 0,
         1048576},
        {"generate", 'n', OPTION_U32, &flags.generate, "N", "tokens after it (default 32)", 0,
         1048576},
        {"kv-type", 0, OPTION_TEXT, &flags.kv_type, "TYPE",
         "how keys and values are stored: f32, f16, bf16, int8, fp8 (default: f16; the reference: "
         "f32)",
         0, 0},
        {"threads", 't', OPTION_U32, &flags.threads, "N",
         "threads to compute with (default: all that this process may use)", 0, 4096},
        {"repeat", 'r', OPTION_U32, &flags.repetitions, "N",
         "measurements, of which the median counts (default 5)", 1, REPETITIONS_MAX},
        {"json", 0, OPTION_FLAG, &flags.json, NULL, "print a JSON object", 0, 0},
        {0},
    };
    int words = 0;
    options_result parsed = options_parse(&command_bench, specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (words != 1)
        return cli_usage(&command_bench, words == 0 ? "which MODEL?" : "one MODEL only");
    if (flags.prompt + flags.generate == 0)
        return cli_usage(&command_bench, "-p 0 -n 0 leaves nothing to measure");
    cli_interrupt_catch();
    avo_error error = {0};
    static bench_figures figures;
    avo_status status = bench(argv[1], &flags, &figures, &error);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    return print_figures(argv[1], &flags, &figures);
}

const cli_command command_bench = {
    .name = "bench",
    .summary = "measure tokens per second",
    .usage = "avocet bench MODEL [options]",
    .examples = "avocet bench smollm2\n"
                "avocet bench smollm2 -p 512 -n 64 -t 8 -r 10\n"
                "avocet bench model.gguf --json",
    .run = run,
};
