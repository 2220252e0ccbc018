/* `avocet eval WHAT MODEL`: measurements of a model. */
#include "cli/eval_files.h"
#include "cli/eval_windows.h"
#include "cli/text_tokens.h"

#include <string.h>

extern const cli_command command_eval;
extern const cli_command command_eval_perplexity;
extern const cli_command command_eval_logits;
extern const cli_command command_eval_kl;
extern const cli_command command_eval_task;
extern const cli_command command_eval_tasks;

/* ---- Tokens ---- */

/* "1,2,3"; blanks may stand around the commas. */
static avo_status parse_ids(const char *text, buffer *ids, avo_error *error) {
    const char *at = text;
    for (;;) {
        at += strspn(at, " \n");
        size_t length = strcspn(at, ", \n");
        uint64_t id = 0;
        const char *fault = number_parse_part((text_view){at, length}, 0, INT32_MAX, &id);
        if (fault != NULL)
            return status_fail(error, AVO_ERROR_ARGUMENT, "--ids: \"%.*s\" %s; write 1,2,3",
                               (int)(length < 24 ? length : 24), at, fault);
        int32_t token = (int32_t)id;
        if (buffer_append(ids, &token, sizeof(token)) != AVO_OK)
            return status_no_memory(error, "the ids", ids->size + sizeof(token));
        at += length;
        at += strspn(at, " \n");
        if (*at == '\0')
            return AVO_OK;
        if (*at++ != ',')
            return status_fail(error, AVO_ERROR_ARGUMENT, "--ids: separate the ids with commas");
    }
}

/* ---- eval perplexity ---- */

static avo_status measure_perplexity(const char *name, const char *path, eval_options *options,
                                     buffer *ids, perplexity_result *result, avo_error *error) {
    avo_model *model = NULL;
    AVO_TRY(cli_model_open(name, &model, error));
    avo_status status = cli_text_tokens(model, path, ids, error);
    if (status == AVO_OK) {
        const int32_t *tokens = (const int32_t *)(const void *)ids->data;
        size_t count = ids->size / sizeof(int32_t);
        options->begin = cli_begin_token(model, tokens, count);
        options->context = cli_window(model, options->context);
        status = eval_perplexity(model, tokens, count, options, result, error);
        cli_progress_end();
    }
    avo_model_close(model);
    return status;
}

static int print_perplexity(const perplexity_result *result, bool as_json) {
    if (!as_json) {
        printf("perplexity %.4f +/- %.5f over %llu tokens in %llu windows\n", result->perplexity,
               result->error, (unsigned long long)result->tokens,
               (unsigned long long)result->windows);
        return EXIT_GOOD;
    }
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_number(w, "perplexity", result->perplexity);
    json_member_number(w, "error", result->error);
    json_member_u64(w, "tokens", result->tokens);
    json_end(w);
    return cli_json_print(&json);
}

static int run_perplexity(int argc, char **argv) {
    eval_options options = {.progress = cli_progress};
    const char *path = NULL;
    bool json = false;
    const option_spec own[] = {
        {"file", 'f', OPTION_TEXT, &path, "TEXT", "text to measure with", 0, 0},
        {"json", 0, OPTION_FLAG, &json, NULL, "print {\"perplexity\",\"error\",\"tokens\"}", 0, 0},
        {0},
    };
    option_table table = {0};
    options_add(&table, own);
    eval_window_options(&options, &table);
    int exit_status;
    if (!options_one_model(&command_eval_perplexity, table.specs, argc, argv, &exit_status))
        return exit_status;
    if (path == NULL)
        return cli_usage(&command_eval_perplexity, "missing text: give --file TEXT");
    if (!eval_windows_fit(&command_eval_perplexity, &options, &exit_status))
        return exit_status;
    cli_interrupt_catch();
    avo_error error = {0};
    perplexity_result result;
    buffer ids;
    buffer_init(&ids, NULL, SIZE_MAX);
    avo_status status = measure_perplexity(argv[1], path, &options, &ids, &result, &error);
    buffer_free(&ids);
    return status == AVO_OK ? print_perplexity(&result, json) : cli_fail_status(status, &error);
}

const cli_command command_eval_perplexity = {
    .name = "eval perplexity",
    .summary = "measure how well a model predicts a text",
    .usage = "avocet eval perplexity MODEL --file TEXT [options]",
    .examples = "avocet eval perplexity smollm2 --file wiki.test.raw\n"
                "avocet eval perplexity smollm2 --file wiki.test.raw --ctx 512 --chunks 20 --json\n"
                "avocet eval perplexity smollm2 --file wiki.test.raw --ctx 1024 --stride 512",
    .run = run_perplexity,
};

/* ---- eval logits ---- */

/* A value of --ids, not a failure of the work. */
static avo_status check_ids(const buffer *ids, uint32_t vocabulary, bool *wrong, avo_error *error) {
    for (size_t at = 0; at < ids->size; at += sizeof(int32_t)) {
        int32_t id;
        memcpy(&id, ids->data + at, sizeof(id));
        *wrong = (uint32_t)id >= vocabulary;
        if (*wrong)
            return status_fail(error, AVO_ERROR_ARGUMENT, "--ids: token id is %d, must be 0 to %u",
                               id, vocabulary - 1);
    }
    return AVO_OK;
}

/* `ids` holds those of --ids; with a `path` those of the text come there. */
static avo_status write_logits(const char *name, const char *path, const char *out_path,
                               const eval_options *options, buffer *ids, uint32_t *vocabulary,
                               bool *wrong, avo_error *error) {
    avo_model *model = NULL;
    AVO_TRY(cli_model_open(name, &model, error));
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    *vocabulary = info.vocabulary;
    avo_status status = path != NULL ? cli_text_tokens(model, path, ids, error)
                                     : check_ids(ids, info.vocabulary, wrong, error);
    AVO_THEN(status, eval_logits_npy(model, (const int32_t *)(const void *)ids->data,
                                     ids->size / sizeof(int32_t), options, out_path, error));
    cli_progress_end();
    avo_model_close(model);
    return status;
}

static int run_logits(int argc, char **argv) {
    eval_options options = {.progress = cli_progress};
    const char *ids_text = NULL;
    const char *path = NULL;
    const char *out_path = NULL;
    const option_spec own[] = {
        {"ids", 0, OPTION_TEXT, &ids_text, "1,2,3", "token ids", 0, 0},
        {"file", 'f', OPTION_TEXT, &path, "TEXT",
         "text instead of ids; tokenized with a BOS token if the model uses one", 0, 0},
        {"out", 'o', OPTION_TEXT, &out_path, "FILE.npy",
         "NumPy file to write: float32, positions x vocabulary", 0, 0},
        {"ctx", 'c', OPTION_U32, &options.context, "N",
         "context in tokens (default: the number of tokens given)", 0, 16777216},
        {"chunk", 0, OPTION_U32, &options.chunk, "N",
         "rows per step (default 256); changes speed, not results", 0, 65536},
        {0},
    };
    option_table table = {0};
    options_add(&table, own);
    engine_flags_specs(&options.engine, &table);
    int exit_status;
    if (!options_one_model(&command_eval_logits, table.specs, argc, argv, &exit_status))
        return exit_status;
    if ((ids_text == NULL) == (path == NULL))
        return cli_usage(&command_eval_logits, "give either --ids 1,2,3 or --file TEXT");
    if (out_path == NULL)
        return cli_usage(&command_eval_logits, "missing output: give -o FILE.npy");
    cli_interrupt_catch();
    avo_error error = {0};
    buffer ids;
    buffer_init(&ids, NULL, SIZE_MAX);
    uint32_t vocabulary = 0;
    avo_status status = ids_text != NULL ? parse_ids(ids_text, &ids, &error) : AVO_OK;
    bool wrong = status == AVO_ERROR_ARGUMENT;
    AVO_THEN(status,
             write_logits(argv[1], path, out_path, &options, &ids, &vocabulary, &wrong, &error));
    size_t count = ids.size / sizeof(int32_t);
    buffer_free(&ids);
    if (wrong)
        return cli_usage(&command_eval_logits, "%s", error.text);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    fprintf(stderr, "%s: %zu x %u logits\n", out_path, count, vocabulary);
    return EXIT_GOOD;
}

const cli_command command_eval_logits = {
    .name = "eval logits",
    .summary = "write the logits of every position to a NumPy file",
    .usage = "avocet eval logits MODEL (--ids 1,2,3 | --file TEXT) -o FILE.npy [options]",
    .examples = "avocet eval logits model.gguf --ids 1,15043,3186 -o logits.npy\n"
                "avocet eval logits smollm2 --file page.txt --ctx 2048 -o logits.npy",
    .run = run_logits,
};

/* ---- eval ---- */

static const cli_command *const subcommands[] = {&command_eval_perplexity, &command_eval_kl,
                                                 &command_eval_logits,     &command_eval_task,
                                                 &command_eval_tasks,      NULL};

static int unknown_task(const char *name) {
    char tasks[512] = "";
    for (size_t i = 0; i < eval_builtin_count; i++) {
        size_t used = strlen(tasks);
        snprintf(tasks + used, sizeof(tasks) - used, "%s%s", i == 0 ? "" : ", ",
                 eval_builtins[i].name);
    }
    return cli_usage(
        &command_eval,
        "unknown task \"%.80s\"; tasks: %s, or a file that ends in .json; measurements: "
        "perplexity, kl, logits",
        name, tasks);
}

static int run(int argc, char **argv) {
    bool child = false;
    for (size_t i = 0; argc > 1 && subcommands[i] != NULL; i++)
        child = child || strcmp(argv[1], cli_child_name(subcommands[i])) == 0;
    if (argc > 1 && !child && eval_names_task(argv[1]))
        return command_eval_task.run(argc, argv);
    nearest near = {.wanted = argc > 1 ? argv[1] : ""};
    for (size_t i = 0; subcommands[i] != NULL; i++)
        nearest_consider(&near, cli_child_name(subcommands[i]));
    if (argc > 1 && argv[1][0] != '-' && !child && near.best == NULL)
        return unknown_task(argv[1]);
    return cli_run_child(&command_eval, argc, argv);
}

const cli_command command_eval = {
    .name = "eval",
    .summary = "measure quality: tasks, perplexity, divergence from another model, logits",
    .usage = "avocet eval TASK[,TASK…] MODEL --data PATH [options]\n"
             "       avocet eval perplexity MODEL --file TEXT [options]\n"
             "       avocet eval kl MODEL --against REFERENCE --file TEXT [options]\n"
             "       avocet eval logits MODEL (--ids 1,2,3 | --file TEXT) -o FILE.npy [options]\n"
             "       avocet eval tasks [--json]\n\n"
             "Each subcommand has its own --help; that of tasks is `avocet eval task --help`.",
    .examples = "avocet eval arc_easy smollm2 --data evals\n"
                "avocet eval gsm8k smollm2 --data evals --samples gsm8k.jsonl --resume\n"
                "avocet eval humaneval smollm2 --data HumanEval.jsonl.gz\n"
                "avocet eval arc_easy,piqa,lambada small.avo --against ./original --data evals\n"
                "avocet eval perplexity smollm2 --file wiki.test.raw --chunks 20\n"
                "avocet eval kl small.avo --against ./original --file wiki.test.raw\n"
                "avocet eval logits model.gguf --ids 1,15043,3186 -o logits.npy",
    .run = run,
    .children = subcommands,
};
