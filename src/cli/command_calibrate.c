/* `avocet calibrate`: what a text puts into every matrix of a model, for `avocet pack`. */
#include "base/clock.h"
#include "base/team.h"
#include "cli/calibrate_text.h"
#include "cli/text_tokens.h"

#include <inttypes.h>

extern const cli_command command_calibrate;

avo_status cli_calibrate(const char *name, const char *text, const char *output,
                         calibrate_options *options, calibrate_report *report, avo_error *error) {
    avo_model *model = NULL;
    AVO_TRY(cli_spare_input(text, output, error));
    AVO_TRY(cli_model_open(name, &model, error));
    buffer ids;
    buffer_init(&ids, NULL, SIZE_MAX);
    avo_status status = cli_text_tokens(model, text, &ids, error);
    if (status == AVO_OK) {
        const int32_t *tokens = (const int32_t *)(const void *)ids.data;
        size_t count = ids.size / sizeof(int32_t);
        options->begin = cli_begin_token(model, tokens, count);
        options->context = cli_window(model, options->context);
        status = calibrate_model(model, tokens, count, options, output, report, error);
    }
    cli_progress_end();
    buffer_free(&ids);
    avo_model_close(model);
    return status;
}

static int print_json(const calibrate_report *report, double seconds) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_u64(w, "inputs", report->inputs);
    json_member_u64(w, "tokens", report->tokens);
    json_member_u64(w, "passes", report->passes);
    json_member_u64(w, "bytes", report->file_bytes);
    json_member_fixed(w, "seconds", seconds, 3);
    json_end(w);
    return cli_json_print(&json);
}

static int run(int argc, char **argv) {
    calibrate_options options = CALIBRATE_OPTIONS_DEFAULT;
    const char *path = NULL, *output = NULL;
    uint32_t memory = 1024;
    bool json = false;
    const option_spec specs[] = {
        {"file", 'f', OPTION_TEXT, &path, "TEXT", "text to run the model on", 0, 0},
        {"output", 'o', OPTION_TEXT, &output, "FILE", "file to write", 0, 0},
        {"tokens", 'n', OPTION_U32, &options.tokens, "N",
         "use at most N tokens of the text (default 8192; 0: all)", 0, 0},
        {"ctx", 'c', OPTION_U32, &options.context, "N",
         "tokens per window (default: 512, or the model's context if smaller)", 1, 16777216},
        {"memory", 0, OPTION_U32, &memory, "MIB",
         "memory for the statistics (default 1024); a model that needs more takes several passes",
         1, 16777216},
        {"threads", 't', OPTION_U32, &options.threads, "N",
         "worker threads (default: all that this process may use)", 0, TEAM_THREADS_MAX},
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object", 0, 0},
        {0},
    };
    int exit_status;
    if (!options_one_model(&command_calibrate, specs, argc, argv, &exit_status))
        return exit_status;
    if (path == NULL)
        return cli_usage(&command_calibrate, "missing text: give --file TEXT");
    if (output == NULL || output[0] == '\0')
        return cli_usage(&command_calibrate, "missing output: give -o FILE");
    options.memory = (uint64_t)memory << 20;
    cli_interrupt_catch();
    avo_error error = {0};
    calibrate_report report;
    uint64_t begin = clock_now_ns();
    avo_status status = cli_calibrate(argv[1], path, output, &options, &report, &error);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    double seconds = clock_seconds(begin, clock_now_ns());
    char size[16];
    if (json)
        return print_json(&report, seconds);
    printf("%s: %s, %u inputs over %" PRIu64 " tokens in %u passes; %.1f s\n", output,
           cli_bytes_text(report.file_bytes, size), report.inputs, report.tokens, report.passes,
           seconds);
    return EXIT_GOOD;
}

const cli_command command_calibrate = {
    .name = "calibrate",
    .summary =
        "gather input statistics of a model's matrices from a text, for pack (on device ref)",
    .usage = "avocet calibrate MODEL --file TEXT -o FILE [options]",
    .examples = "avocet calibrate ./Llama-3.2-1B --file text.txt -o llama.cal\n"
                "avocet pack ./Llama-3.2-1B -o llama.avo --type q4 --calibrate llama.cal",
    .run = run,
};
