/* The tokenizer on one thread. */
#include "bench/bench.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

typedef struct text_bench {
    const bench_tokenizer_options *options;
    bench_machine *machine;
    bench_results *results;
    id_list ids; /* of the whole text, once encode_whole has run */
    size_t tokens;
} text_bench;

typedef avo_status (*text_task)(text_bench *bench, avo_error *error);

/* ---- What is measured ---- */

static avo_status encode_each(text_bench *bench, encoder *encoder, avo_error *error) {
    text_view text = bench->options->text;
    encode_options options = {0};
    for (size_t at = 0; at < text.size;) {
        const char *end = memchr(text.data + at, '\n', text.size - at);
        size_t size = end == NULL ? text.size - at : (size_t)(end - text.data) - at + 1;
        bench->ids.count = 0;
        AVO_TRY(
            encoder_run(encoder, (text_view){text.data + at, size}, &options, &bench->ids, error));
        bench->tokens += bench->ids.count;
        at += size;
    }
    return AVO_OK;
}

/* An encoder of its own, so that no word is known from the time before. */
static avo_status encode_lines(text_bench *bench, avo_error *error) {
    encoder *encoder;
    bench->tokens = 0;
    AVO_TRY(encoder_open(bench->options->tokenizer, &encoder, error));
    avo_status status = encode_each(bench, encoder, error);
    encoder_close(encoder);
    return status;
}

static avo_status encode_whole(text_bench *bench, avo_error *error) {
    encode_options options = {0};
    bench->ids.count = 0;
    AVO_TRY(tokenizer_encode(bench->options->tokenizer, bench->options->text, &options, &bench->ids,
                             error));
    bench->tokens = bench->ids.count;
    return AVO_OK;
}

static avo_status decode_whole(text_bench *bench, avo_error *error) {
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = tokenizer_decode(bench->options->tokenizer, bench->ids.ids,
                                         bench->ids.count, true, &out, error);
    buffer_free(&out);
    bench->tokens = bench->ids.count;
    return status;
}

/* ---- Time ---- */

static avo_status measure(text_bench *bench, const char *what, text_task task, uint32_t done,
                          uint32_t total, avo_error *error) {
    const bench_tokenizer_options *o = bench->options;
    bench_sample samples[BENCH_REPEATS_MAX];
    AVO_TRY(task(bench, error)); /* once for nothing */
    for (uint32_t i = 0; i < o->repeats; i++) {
        if (o->progress != NULL && !o->progress(NULL, "bench", done + i, total))
            return status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
        AVO_TRY(bench_machine_measure(bench->machine, "plain", 1, &samples[i].limits, error));
        uint64_t begin = clock_thread_ns();
        AVO_TRY(task(bench, error));
        uint64_t end = clock_thread_ns();
        samples[i].seconds = clock_seconds(begin, end > begin ? end : begin + 1);
    }
    bench_result *result;
    AVO_TRY(bench_results_next(bench->results, &result, error));
    *result = (bench_result){.kind = BENCH_OPERATION,
                             .backend = "plain",
                             .tokens = (uint32_t)bench->tokens,
                             .batch = 1,
                             .threads = 1};
    snprintf(result->model, sizeof(result->model), "%s, %s", what, o->name);
    limit_work work = {.bytes = (double)o->text.size};
    bench_conclude(samples, o->repeats, (double)bench->tokens, &work, result);
    return AVO_OK;
}

avo_status bench_tokenizer(const bench_tokenizer_options *options, bench_machine *machine,
                           bench_results *results, avo_error *error) {
    static const struct {
        const char *name;
        text_task task;
    } tasks[] = {
        {"encode lines", encode_lines}, {"encode whole", encode_whole}, {"decode", decode_whole}};
    if (options->text.size == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the text is empty");
    text_bench bench = {.options = options, .machine = machine, .results = results};
    id_list_init(&bench.ids, NULL);
    avo_status status = AVO_OK;
    uint32_t total = BENCH_TOKENIZER_CASES * options->repeats;
    for (uint32_t i = 0; i < BENCH_TOKENIZER_CASES && status == AVO_OK; i++)
        status = measure(&bench, tasks[i].name, tasks[i].task, i * options->repeats, total, error);
    id_list_free(&bench.ids);
    return status;
}
