/* `avocet eval kl`: how far a model is from a reference. */
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
                             "model and reference tokenize %s differently; they cannot be compared",
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
    AVO_THEN(status, cli_model_open(against, &reference, error));
    AVO_THEN(status, read_tokens(model, reference, path, &ids, error));
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

static int print_json(const kl_result *result) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_number(w, "kl", result->mean);
    json_member_number(w, "kl_error", result->mean_error);
    json_member_number(w, "median", result->median);
    json_member_number(w, "p99", result->p99);
    json_member_number(w, "max", result->max);
    json_member_number(w, "top1", result->top1);
    json_member_number(w, "top1_error", result->top1_error);
    json_member_number(w, "perplexity", result->model.perplexity);
    json_member_number(w, "perplexity_error", result->model.error);
    json_member_number(w, "reference_perplexity", result->reference.perplexity);
    json_member_number(w, "reference_perplexity_error", result->reference.error);
    json_member_number(w, "ratio", result->ratio);
    json_member_number(w, "ratio_error", result->ratio_error);
    json_member_u64(w, "tokens", result->model.tokens);
    json_member_u64(w, "windows", result->model.windows);
    json_end(w);
    return cli_json_print(&json);
}

static int print_text(const kl_result *result) {
    printf("KL(reference || model) %.6f +/- %.6f; median %.6f, 99 %% %.6f, max %.4f\n",
           result->mean, result->mean_error, result->median, result->p99, result->max);
    printf("same top token         %.3f +/- %.3f %%\n", 100 * result->top1,
           100 * result->top1_error);
    printf("perplexity             %.4f +/- %.4f; reference %.4f +/- %.4f; ratio %.5f +/- %.5f\n",
           result->model.perplexity, result->model.error, result->reference.perplexity,
           result->reference.error, result->ratio, result->ratio_error);
    printf("over %llu tokens in %llu windows\n", (unsigned long long)result->model.tokens,
           (unsigned long long)result->model.windows);
    return EXIT_GOOD;
}

static int run(int argc, char **argv) {
    eval_options options = {.progress = cli_progress};
    const char *path = NULL, *against = NULL;
    bool json = false;
    const option_spec own[] = {
        {"against", 'a', OPTION_TEXT, &against, "REFERENCE", "model to compare with", 0, 0},
        {"file", 'f', OPTION_TEXT, &path, "TEXT", "text to measure with", 0, 0},
        {"against-kv-type", 0, OPTION_CHOICE, &options.reference_kv_type, KV_TYPE_CHOICES,
         "type of keys and values of the reference (default: --kv-type)", 0, 0},
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object", 0, 0},
        {0},
    };
    option_table table = {0};
    options_add(&table, own);
    eval_window_options(&options, &table);
    int exit_status;
    if (!options_one_model(&command_eval_kl, table.specs, argc, argv, &exit_status))
        return exit_status;
    if (against == NULL)
        return cli_usage(&command_eval_kl, "missing reference: give --against REFERENCE");
    if (path == NULL)
        return cli_usage(&command_eval_kl, "missing text: give --file TEXT");
    if (!eval_windows_fit(&command_eval_kl, &options, &exit_status))
        return exit_status;
    cli_interrupt_catch();
    avo_error error = {0};
    kl_result result;
    avo_status status = measure(argv[1], against, path, &options, &result, &error);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    return json ? print_json(&result) : print_text(&result);
}

const cli_command command_eval_kl = {
    .name = "eval kl",
    .summary = "measure how far a model's predictions are from a reference model's",
    .usage = "avocet eval kl MODEL --against REFERENCE --file TEXT [options]",
    .examples = "avocet eval kl small.avo --against ./original --file wiki.test.raw\n"
                "avocet eval kl small.avo --against ./original --file wiki.test.raw --ctx 256 "
                "--chunks 20 --json\n"
                "avocet eval kl smollm2 --against smollm2 --kv-type fp8 --against-kv-type f32 "
                "--file wiki.test.raw",
    .run = run,
};
