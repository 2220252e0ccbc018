/* `avocet pack`: any model into one .avo file, converted on the way. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/json.h"
#include "base/team.h"
#include "pack/pack.h"

#include <inttypes.h>
#include <string.h>

extern const cli_command command_pack;

static avo_status write_json(buffer *out, const char *path, const pack_options *options,
                             const pack_report *report, double seconds) {
    AVO_TRY(buffer_append_text(out, "{\"file\":"));
    AVO_TRY(json_write_string(out, text_from(path)));
    AVO_TRY(buffer_format(out,
                          ",\"type\":\"%s\",\"bytes\":%" PRIu64 ",\"tensors\":%u,\"parameters\":"
                          "%" PRIu64 ",\"bits_per_weight\":",
                          pack_type_name(options->type), report->file_bytes, report->tensors,
                          report->parameters));
    AVO_TRY(
        json_write_number(out, 8.0 * (double)report->weight_bytes / (double)report->parameters));
    AVO_TRY(buffer_append_text(out, ",\"seconds\":"));
    AVO_TRY(json_write_number(out, seconds));
    return buffer_format(out, ",\"memory_peak_bytes\":%" PRIu64 "}", memory_peak_bytes());
}

static int report_json(const char *path, const pack_options *options, const pack_report *report,
                       double seconds) {
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = write_json(&out, path, options, report, seconds);
    if (status == AVO_OK)
        cli_print(buffer_text(&out));
    buffer_free(&out);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_text("%s", avo_status_text(status));
}

static void report_text(const char *path, const pack_report *report, double seconds) {
    char size[16], peak[16];
    printf("%s: %s, %u tensors, %.1f M parameters, %.2f bits per weight; %.1f s, peak memory %s\n",
           path, cli_bytes_text(report->file_bytes, size), report->tensors,
           (double)report->parameters * 1e-6,
           8.0 * (double)report->weight_bytes / (double)report->parameters, seconds,
           cli_bytes_text(memory_peak_bytes(), peak));
}

static avo_status pack(const char *model, const char *shape, uint64_t seed, const char *output,
                       const pack_options *options, pack_report *report, avo_error *error) {
    if (shape != NULL)
        return pack_random(shape, seed, output, options, report, error);
    char path[CLI_PATH_MAX];
    AVO_TRY(cli_model_path(model, path, sizeof(path), error));
    return pack_file(path, output, options, report, error);
}

static int run(int argc, char **argv) {
    const char *output = NULL, *type = NULL, *shape = NULL;
    uint64_t seed = 1;
    bool json = false;
    pack_options options = {.type = PACK_KEEP, .progress = cli_progress};
    const option_spec specs[] = {
        {"output", 'o', OPTION_TEXT, &output, "FILE", "the file to write", 0, 0},
        {"type", 't', OPTION_TEXT, &type, "TYPE", "f32, f16, bf16, q8, q8c, q4 or keep (default)",
         0, 0},
        {"threads", 0, OPTION_U32, &options.threads, "N",
         "threads (default: what this process may use)", 1, TEAM_THREADS_MAX},
        {"random", 0, OPTION_TEXT, &shape, "SHAPE", "random weights instead of a model", 0, 0},
        {"seed", 0, OPTION_U64, &seed, "N", "of --random (default 1)", 0, 0},
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object", 0, 0},
        {0},
    };
    int words = 0;
    options_result result = options_parse(&command_pack, specs, argc, argv, &words);
    if (result != OPTIONS_OK)
        return options_exit(result);
    if (output == NULL)
        return cli_usage(&command_pack, "which file to write? give -o FILE.avo");
    if (shape == NULL && words != 1)
        return cli_usage(&command_pack, "takes one model, but got %d", words);
    if (shape != NULL && words != 0)
        return cli_usage(&command_pack, "--random takes no model, but got \"%s\"", argv[1]);
    if (type != NULL && !pack_type_by_name(type, &options.type))
        return cli_usage(&command_pack,
                         "no type \"%s\"; there are f32, f16, bf16, q8, q8c, q4, keep", type);
    if (shape != NULL && type == NULL)
        options.type = PACK_F32;
    cli_interrupt_catch();
    avo_error error = {0};
    pack_report report;
    uint64_t begin = clock_now_ns();
    avo_status status =
        pack(words > 0 ? argv[1] : NULL, shape, seed, output, &options, &report, &error);
    cli_progress_end();
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    double seconds = clock_seconds(begin, clock_now_ns());
    if (json)
        return report_json(output, &options, &report, seconds);
    report_text(output, &report, seconds);
    return EXIT_GOOD;
}

const cli_command command_pack = {
    .name = "pack",
    .summary = "convert a model into one .avo file, which opens at once",
    .usage = "avocet pack MODEL -o FILE.avo [--type f32|f16|bf16|q8|q8c|q4|keep]\n"
             "       avocet pack --random SHAPE -o FILE.avo [--type TYPE] [--seed N]",
    .examples = "avocet pack smollm2 -o smollm2.avo\n"
                "avocet pack ./Llama-3.2-1B -o llama.avo --type q4\n"
                "avocet pack --random tinyllama-1.1b -o random.avo --type q8",
    .run = run,
};
