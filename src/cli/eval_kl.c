/* `avocet eval kl`: how far a model is from a reference. */
#include "base/json.h"
#include "cli/eval_windows.h"
#include "cli/text_tokens.h"

#include <string.h>

extern const cli_command command_eval_kl;

/* The tokens of the text, which must be the same for both. A model without a tokenizer takes the
 * reference's word. */
static avo_status read_tokens(const avo_model *model, const avo_model *reference, const char *path,
                              buffer *ids, avo_error *error) {
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    AVO_TRY(cli_text_tokens(reference, path, ids, error));
    if (!info.has_tokenizer)
        return AVO_OK;
    buffer own;
    buffer_init(&own, NULL, SIZE_MAX);
    avo_status status = cli_text_tokens(model, path, &own, error);
    if (status == AVO_OK &&
        (own.size != ids->size || (own.size > 0 && memcmp(own.data, ids->data, own.size) != 0)))
        status = status_fail(error, AVO_ERROR_ARGUMENT,
                             "model and reference tokenize %s differently: they are not comparable",
                             path);
    buffer_free(&own);
    return status;
}

static avo_status measure(const char *name, const char *against, const char *path,
                          eval_options *options, kl_result *result, avo_error *error) {
    avo_model *model = NULL, *reference = NULL;
    buffer ids;
    buffer_init(&ids, NULL, SIZE_MAX);
    avo_status status = cli_model_open(name, &model, error);
    if (status == AVO_OK)
        status = cli_model_open(against, &reference, error);
    if (status == AVO_OK)
        status = read_tokens(model, reference, path, &ids, error);
    if (status == AVO_OK) {
        const int32_t *tokens = (const int32_t *)(const void *)ids.data;
        size_t count = ids.size / sizeof(int32_t);
        options->begin = cli_begin_token(reference, tokens, count);
        options->context = cli_window(reference, options->context);
        status = eval_kl(model, reference, tokens, count, options, result, error);
        cli_progress_end();
    }
    buffer_free(&ids);
    avo_model_close(reference);
    avo_model_close(model);
    return status;
}

static avo_status write_json(const kl_result *result, buffer *out) {
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"{\"kl\":", result->mean},
        {",\"kl_error\":", result->mean_error},
        {",\"median\":", result->median},
        {",\"p99\":", result->p99},
        {",\"max\":", result->max},
        {",\"top1\":", result->top1},
        {",\"top1_error\":", result->top1_error},
        {",\"perplexity\":", result->model.perplexity},
        {",\"perplexity_error\":", result->model.error},
        {",\"reference_perplexity\":", result->reference.perplexity},
        {",\"reference_perplexity_error\":", result->reference.error},
        {",\"ratio\":", result->ratio},
        {",\"ratio_error\":", result->ratio_error},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        AVO_TRY(buffer_append_text(out, numbers[i].key));
        AVO_TRY(json_write_number(out, numbers[i].value));
    }
    return buffer_format(out, ",\"tokens\":%llu,\"windows\":%llu}",
                         (unsigned long long)result->model.tokens,
                         (unsigned long long)result->model.windows);
}

static int finish(const kl_result *result, bool json) {
    if (!json) {
        printf("KL(reference || model) %.6f +/- %.6f; median %.6f, 99 %% %.6f, max %.4f\n",
               result->mean, result->mean_error, result->median, result->p99, result->max);
        printf("same favourite         %.3f +/- %.3f %%\n", 100 * result->top1,
               100 * result->top1_error);
        printf("perplexity             %.4f +/- %.4f; reference %.4f +/- %.4f; ratio %.5f +/- "
               "%.5f\n",
               result->model.perplexity, result->model.error, result->reference.perplexity,
               result->reference.error, result->ratio, result->ratio_error);
        printf("over %llu tokens in %llu windows\n", (unsigned long long)result->model.tokens,
               (unsigned long long)result->model.windows);
        return EXIT_GOOD;
    }
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = write_json(result, &out);
    if (status == AVO_OK)
        cli_print(buffer_text(&out));
    buffer_free(&out);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_text("%s", avo_status_text(status));
}

static int run(int argc, char **argv) {
    eval_options options = {.progress = cli_progress};
    const char *path = NULL, *against = NULL;
    bool json = false;
    option_spec specs[4 + EVAL_WINDOW_OPTIONS + 1] = {
        {"against", 'a', OPTION_TEXT, &against, "REFERENCE", "the model to compare with", 0, 0},
        {"file", 'f', OPTION_TEXT, &path, "TEXT", "the text to measure on", 0, 0},
        {"against-kv-type", 0, OPTION_CHOICE, &options.reference_kv_type, KV_TYPE_CHOICES,
         "type of keys and values of the reference (default: as --kv-type)", 0, 0},
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object", 0, 0},
    };
    eval_window_options(&options, specs + 4);
    int words = 0;
    options_result parsed = options_parse(&command_eval_kl, specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (words != 1)
        return cli_usage(&command_eval_kl, words == 0 ? "which MODEL?" : "one MODEL only");
    if (against == NULL)
        return cli_usage(&command_eval_kl, "compare with what? Give --against REFERENCE");
    if (path == NULL)
        return cli_usage(&command_eval_kl, "on which text? Give --file TEXT");
    int exit_status;
    if (!eval_windows_fit(&command_eval_kl, &options, &exit_status))
        return exit_status;
    cli_interrupt_catch();
    avo_error error = {0};
    kl_result result;
    avo_status status = measure(argv[1], against, path, &options, &result, &error);
    return status == AVO_OK ? finish(&result, json) : cli_fail_status(status, &error);
}

const cli_command command_eval_kl = {
    .name = "eval kl",
    .summary = "how far a model's predictions are from a reference's",
    .usage = "avocet eval kl MODEL --against REFERENCE --file TEXT [options]",
    .examples = "avocet eval kl small.avo --against ./original --file wiki.test.raw\n"
                "avocet eval kl small.avo --against ./original --file wiki.test.raw --ctx 256 "
                "--chunks 20 --json\n"
                "avocet eval kl smollm2 --against smollm2 --kv-type fp8 --against-kv-type f32 "
                "--file wiki.test.raw",
    .run = run,
};
