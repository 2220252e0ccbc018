/* `avocet plan`: what memory a model will take, before anything is loaded. */
#include "cli/cli.h"

#include "base/json.h"

extern const cli_command command_plan;

static avo_status write_json(const avo_plan *plan, bool fits, buffer *out) {
    AVO_TRY(buffer_format(
        out,
        "{\"weight_bytes\":%llu,\"repack_bytes\":%llu,\"kv_bytes\":%llu,\"scratch_bytes\":%llu,"
        "\"total_bytes\":%llu,\"available_bytes\":%llu,\"limit\":",
        (unsigned long long)plan->weight_bytes, (unsigned long long)plan->repack_bytes,
        (unsigned long long)plan->kv_bytes, (unsigned long long)plan->scratch_bytes,
        (unsigned long long)(plan->weight_bytes + plan->repack_bytes + plan->kv_bytes +
                             plan->scratch_bytes),
        (unsigned long long)plan->available_bytes));
    AVO_TRY(json_write_string(out, text_from(plan->limit)));
    return buffer_format(out,
                         ",\"fits\":%s,\"threads\":%u,\"context\":%u,\"kv_pages\":%u,"
                         "\"kv_page_tokens\":%u,\"kv_type\":\"%s\"}",
                         fits ? "true" : "false", plan->threads, plan->context_max, plan->kv_pages,
                         plan->kv_page_tokens, plan->kv_type);
}

static void print_row(const char *what, uint64_t bytes, const char *note) {
    char text[16];
    printf("%-10s %12s%s%s\n", what, cli_bytes_text(bytes, text), *note != '\0' ? "  " : "", note);
}

static void print_table(const avo_plan *plan, bool fits) {
    char note[96];
    print_row("weights", plan->weight_bytes, "mapped from the file");
    print_row("repacked", plan->repack_bytes, "copied at load");
    snprintf(note, sizeof(note), "%s, %u pages of %u tokens, context of %u tokens", plan->kv_type,
             plan->kv_pages, plan->kv_page_tokens, plan->context_max);
    print_row("KV", plan->kv_bytes, note);
    snprintf(note, sizeof(note), "for %u threads", plan->threads);
    print_row("scratch", plan->scratch_bytes, note);
    print_row("total",
              plan->weight_bytes + plan->repack_bytes + plan->kv_bytes + plan->scratch_bytes, "");
    snprintf(note, sizeof(note), "limit from: %s%s", plan->limit,
             fits ? "" : "; weights will be read from the file again and again");
    print_row("available", plan->available_bytes, note);
}

static avo_status make_plan(const char *name, const avo_engine_options *options, avo_plan *plan,
                            avo_error *error) {
    avo_model *model = NULL;
    AVO_TRY(cli_model_open(name, &model, error));
    avo_status status = avo_engine_plan(model, options, plan, error);
    avo_model_close(model);
    return status;
}

static int run(int argc, char **argv) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    bool json = false;
    uint64_t memory_mib = 0;
    const option_spec specs[] = {
        {"ctx", 'c', OPTION_U32, &options.context_max, "N",
         "tokens of context (default: the model's own, fitted to memory)", 0, 16777216},
        {"sessions", 0, OPTION_U32, &options.sessions_max, "N",
         "conversations at the same time (default 1)", 0, 65536},
        {"rows", 0, OPTION_U32, &options.rows_max, "N", "tokens of one step (default 512)", 0,
         65536},
        {"threads", 't', OPTION_U32, &options.threads, "N",
         "threads to compute with (default: all that this process may use)", 0, 4096},
        {"kv-type", 0, OPTION_TEXT, &options.kv_type, "TYPE",
         "how keys and values are stored: f32, f16, bf16, int8, fp8 (default: f16; the reference: "
         "f32)",
         0, 0},
        {"memory", 0, OPTION_U64, &memory_mib, "MIB",
         "memory that may be allocated (default: what the system has free)", 0, 1e9},
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object, in bytes", 0, 0},
        {0},
    };
    int words = 0;
    options_result parsed = options_parse(&command_plan, specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (words != 1)
        return cli_usage(&command_plan, words == 0 ? "which MODEL?" : "one MODEL only");
    options.memory_max = memory_mib << 20;
    avo_error error = {0};
    avo_plan plan = AVO_PLAN_INIT;
    avo_status status = make_plan(argv[1], &options, &plan, &error);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    bool fits = plan.weight_bytes + plan.repack_bytes + plan.kv_bytes + plan.scratch_bytes <=
                plan.available_bytes;
    if (!json) {
        print_table(&plan, fits);
        return EXIT_GOOD;
    }
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    status = write_json(&plan, fits, &out);
    if (status == AVO_OK)
        cli_print(buffer_text(&out));
    buffer_free(&out);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_text("%s", avo_status_text(status));
}

const cli_command command_plan = {
    .name = "plan",
    .summary = "what memory a model will take",
    .usage = "avocet plan MODEL [options]",
    .examples = "avocet plan smollm2\n"
                "avocet plan smollm2 --ctx 8192 --sessions 4\n"
                "avocet plan model.gguf --memory 4096 --json",
    .run = run,
};
