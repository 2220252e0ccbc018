/* `avocet pack`: any model into one .avo file, converted on the way. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "base/team.h"
#include "cli/calibrate_text.h"
#include "cli/pack_heads.h"
#include "cli/text_tokens.h"
#include "eval/sensitivity.h"
#include "pack/calibration.h"
#include "pack/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const cli_command command_pack;

#define PACK_TYPES_TEXT                                                                            \
    "f32, f16, bf16, f8c, q8 (q8b), q8c, q5_0, q5_1, q4 (q4r), q4_0, q4_1, q4b64, q4m64, keep"

#define PACK_LOOK_UPS_TEXT "auto, shared, f32, f16, bf16, q8_0"

static int report_json(const char *path, const pack_options *options, const pack_report *report,
                       double seconds) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_string(w, "file", path);
    json_member_string(w, "type", options->bits > 0 ? "mixed" : pack_type_name(options->type));
    json_member_u64(w, "bytes", report->file_bytes);
    json_member_u64(w, "tensors", report->tensors);
    json_member_u64(w, "parameters", report->parameters);
    json_member_number(w, "bits_per_weight",
                       8.0 * (double)report->weight_bytes / (double)report->parameters);
    json_member_number(w, "bits_per_weight_read",
                       8.0 * (double)report->read_bytes / (double)report->read_parameters);
    json_member_array_begin(w, "groups");
    for (uint32_t i = 0; i < report->groups; i++) {
        const pack_group *group = &report->group[i];
        json_object_begin(w);
        json_member_string(w, "name", group->name);
        json_member_string(w, "type", quant_name(group->type));
        json_member_u64(w, "tensors", group->tensors);
        json_member_u64(w, "weights", group->weights);
        json_member_number(w, "bits", 8.0 * (double)group->bytes / (double)group->weights);
        json_member_number(w, "error", group->error / (double)group->weights);
        json_end(w);
    }
    json_end(w);
    json_member_number(w, "seconds", seconds);
    json_member_u64(w, "memory_peak_bytes", memory_peak_bytes());
    json_end(w);
    return cli_json_print(&json);
}

/* What matrices of each kind have become; one line where all have the same type. */
static void report_groups(const pack_report *report) {
    printf("%-20s %8s %8s %10s %7s %10s\n", "tensors", "type", "count", "weights M", "bits",
           "error");
    for (uint32_t i = 0; i < report->groups; i++) {
        const pack_group *group = &report->group[i];
        printf("%-20s %8s %8u %10.2f %7.3f ", group->name, quant_name(group->type), group->tensors,
               (double)group->weights * 1e-6, 8.0 * (double)group->bytes / (double)group->weights);
        if (group->error > 0)
            printf("%10.6f\n", group->error / (double)group->weights);
        else
            printf("%10s\n", "");
    }
}

static void report_text(const char *path, const pack_report *report, bool table, double seconds) {
    char size[16], peak[16];
    if (table)
        report_groups(report);
    double bits = 8.0 * (double)report->weight_bytes / (double)report->parameters;
    double read = 8.0 * (double)report->read_bytes / (double)report->read_parameters;
    printf("%s: %s, %u tensors, %.1f M parameters, %.2f bits per weight (%.2f where every token "
           "reads them); %.1f s, peak memory %s\n",
           path, cli_bytes_text(report->file_bytes, size), report->tensors,
           (double)report->parameters * 1e-6, bits, read, seconds,
           cli_bytes_text(memory_peak_bytes(), peak));
}

/* What was asked for, as text; NULL: not said. */
typedef struct pack_words {
    const char *model, *output, *type, *shape, *calibrate, *look_up, *sensitivity, *base;
    uint64_t seed;
} pack_words;

/* Numbers of 16 bits and more that were kept can be had in half of them. */
static void report_kept(const pack_words *given, const pack_report *report) {
    if (8.0 * (double)report->read_bytes < 15.5 * (double)report->read_parameters)
        return;
    printf("Numbers were kept as they are. For 8.5 bits per weight (perplexity within 0.3 %%): "
           "avocet pack %s -o %s --calibrate TEXT\n",
           given->model, given->output);
}

/* What docs/quantisation.md recommends: the fewest bits that keep the quality of f16. */
static void take_recommended(const pack_words *given, pack_options *options) {
    options->type = PACK_Q8;
    if (given->look_up == NULL)
        options->look_up = PACK_LOOK_UP_SHARED;
}

/* Whether --calibrate names a file of `avocet calibrate`; otherwise it is a text. */
static avo_status is_calibration(const char *path, bool *found, avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    size_t length = strlen(CALIBRATION_MAGIC);
    *found = map.bytes.size >= length && memcmp(map.bytes.data, CALIBRATION_MAGIC, length) == 0;
    file_map_close(&map);
    return AVO_OK;
}

static avo_status measure_sensitivity(const pack_words *given, const char *path,
                                      const pack_options *options, pack_sensitivity *found,
                                      avo_error *error) {
    char temporary[CLI_PATH_MAX + 32];
    snprintf(temporary, sizeof(temporary), "%s.%ld.sensitivity", given->output, (long)getpid());
    avo_model *model = NULL;
    AVO_TRY(cli_model_open(path, &model, error));
    buffer ids;
    buffer_init(&ids, NULL, SIZE_MAX);
    avo_status status = cli_text_tokens(model, given->sensitivity, &ids, error);
    if (status == AVO_OK) {
        const int32_t *tokens = (const int32_t *)(const void *)ids.data;
        size_t count = ids.size / sizeof(int32_t);
        int32_t begin = cli_begin_token(model, tokens, count);
        status =
            eval_sensitivity(path, model, tokens, count, begin, temporary, options, found, error);
    }
    cli_progress_end();
    buffer_free(&ids);
    avo_model_close(model);
    return status;
}

/* With the model's path and options that have their calibration. */
static avo_status pack_measured(const pack_words *given, const char *path, pack_options options,
                                pack_report *report, avo_error *error) {
    pack_sensitivity sensitivity;
    if (given->sensitivity != NULL) {
        AVO_TRY(measure_sensitivity(given, path, &options, &sensitivity, error));
        options.sensitivity = &sensitivity;
    }
    return pack_file(path, given->output, &options, report, error);
}

static avo_status pack_calibrated(const pack_words *given, const char *path, pack_options options,
                                  pack_report *report, avo_error *error) {
    bool ready = false;
    AVO_TRY(is_calibration(given->calibrate, &ready, error));
    options.calibration = given->calibrate;
    if (ready)
        return pack_measured(given, path, options, report, error);
    char temporary[CLI_PATH_MAX + 32];
    snprintf(temporary, sizeof(temporary), "%s.%ld.calibration", given->output, (long)getpid());
    calibrate_options calibration = CALIBRATE_OPTIONS_DEFAULT;
    calibration.threads = options.threads;
    calibrate_report calibrated;
    options.calibration = temporary;
    avo_status status =
        cli_calibrate(path, given->calibrate, temporary, &calibration, &calibrated, error);
    AVO_THEN(status, pack_measured(given, path, options, report, error));
    unlink(temporary);
    return status;
}

static avo_status pack(const pack_words *given, const pack_options *options, pack_report *report,
                       avo_error *error) {
    if (given->shape != NULL)
        return pack_random(given->shape, given->seed, given->output, options, report, error);
    AVO_TRY(cli_spare_input(given->calibrate, given->output, error));
    AVO_TRY(cli_spare_input(given->sensitivity, given->output, error));
    char path[CLI_PATH_MAX];
    AVO_TRY(cli_model_path(given->model, path, sizeof(path), error));
    if (given->calibrate != NULL)
        return pack_calibrated(given, path, *options, report, error);
    return pack_measured(given, path, *options, report, error);
}

/* EXIT_GOOD when the words go together; types go into the options. */
static int check_words(const pack_words *given, int words, pack_options *options) {
    if (given->output == NULL || given->output[0] == '\0')
        return cli_usage(&command_pack, "missing output: give -o FILE.avo");
    if (given->shape == NULL && words != 1)
        return cli_usage(&command_pack, "needs one MODEL, got %d", words);
    if (given->shape != NULL && words != 0)
        return cli_usage(&command_pack, "--random takes no MODEL, got \"%s\"", given->model);
    if (given->type != NULL && !pack_type_by_name(given->type, &options->type))
        return cli_usage(&command_pack, "unknown type \"%s\"; types: " PACK_TYPES_TEXT,
                         given->type);
    if (given->look_up != NULL && !pack_look_up_by_name(given->look_up, &options->look_up))
        return cli_usage(&command_pack, "unknown --look-up type \"%s\"; types: " PACK_LOOK_UPS_TEXT,
                         given->look_up);
    if (options->bits > 0 && given->type != NULL)
        return cli_usage(&command_pack, "--bits chooses the types; omit --type");
    if (given->sensitivity != NULL && options->bits == 0)
        return cli_usage(&command_pack, "--sensitivity needs --bits");
    if (given->shape != NULL && options->bits > 0)
        return cli_usage(&command_pack, "--random cannot be combined with --bits");
    if (given->shape != NULL && given->look_up != NULL)
        return cli_usage(&command_pack, "--random cannot be combined with --look-up");
    if (given->shape != NULL && given->calibrate != NULL)
        return cli_usage(&command_pack, "--random cannot be combined with --calibrate");
    if (given->calibrate != NULL && options->effort != PACK_EFFORT_FEEDBACK)
        return cli_usage(&command_pack, "--calibrate has an effect only with --effort %d",
                         (int)PACK_EFFORT_FEEDBACK);
    return EXIT_GOOD;
}

/* Draft heads take a type and nothing else. */
static int check_heads(const pack_words *given, int words, const pack_options *options) {
    quant_type type;
    if (given->output == NULL || given->output[0] == '\0')
        return cli_usage(&command_pack, "missing output: give -o FILE.safetensors");
    if (words != 1)
        return cli_usage(&command_pack, "needs one folder of draft heads, got %d", words);
    if (!cli_pack_heads_type(given->type, &type))
        return cli_usage(&command_pack, "unknown type \"%s\" of draft heads; types: q8, q4, f32",
                         given->type);
    if (given->shape != NULL || given->calibrate != NULL || given->look_up != NULL ||
        given->sensitivity != NULL || options->bits > 0 || options->tensors != NULL)
        return cli_usage(&command_pack, "--base (draft heads) can be combined with --type only");
    return EXIT_GOOD;
}

static int run_heads(const pack_words *given, int words, const pack_options *options, bool json) {
    int usage = check_heads(given, words, options);
    const pack_heads_options own = {given->model, given->base, given->output, given->type, json};
    return usage == EXIT_GOOD ? cli_pack_heads(&own) : usage;
}

/* Packs, with types for what was not said, and prints what came of it. */
static int run_model(const pack_words *given, pack_options *options, bool json) {
    bool chosen = given->type != NULL || options->bits > 0 || given->shape != NULL;
    if (options->bits > 0)
        options->type = PACK_Q4;
    if (given->shape != NULL && given->type == NULL)
        options->type = PACK_F32;
    if (!chosen && given->calibrate != NULL)
        take_recommended(given, options);
    cli_interrupt_catch();
    avo_error error = {0};
    pack_report report;
    uint64_t begin = clock_now_ns();
    avo_status status = pack(given, options, &report, &error);
    cli_progress_end();
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    double seconds = clock_seconds(begin, clock_now_ns());
    if (json)
        return report_json(given->output, options, &report, seconds);
    report_text(given->output, &report, given->calibrate != NULL || options->bits > 0, seconds);
    if (!chosen && given->calibrate == NULL && options->tensors == NULL)
        report_kept(given, &report);
    return EXIT_GOOD;
}

static int run(int argc, char **argv) {
    pack_words given = {.seed = 1};
    uint32_t effort = PACK_EFFORT_FEEDBACK;
    bool json = false;
    pack_options options = {.type = PACK_KEEP, .progress = cli_progress};
    const option_spec specs[] = {
        {"output", 'o', OPTION_TEXT, &given.output, "FILE", "file to write", 0, 0},
        {"type", 't', OPTION_TEXT, &given.type, "TYPE",
         "type of the matrices: " PACK_TYPES_TEXT
         " (default: keep; with --calibrate and without --bits the recommended q8)",
         0, 0},
        {"calibrate", 0, OPTION_TEXT, &given.calibrate, "FILE",
         "minimise the rounding error on a text: a text file, or a file written by avocet "
         "calibrate. Alone: 8.5 bits for every matrix and the embedding table, the cheapest "
         "setting that kept perplexity within 0.3 % of f16 on every model measured",
         0, 0},
        {"bits", 'b', OPTION_NUMBER, &options.bits, "N",
         "choose a type for each matrix by measured error; all weights together have at most N "
         "bits each",
         4, 32},
        {"sensitivity", 0, OPTION_TEXT, &given.sensitivity, "TEXT",
         "with --bits: measure on a text how much errors of each kind of matrix and layer cost; "
         "packs the model a dozen times into a temporary file next to the output",
         0, 0},
        {"tensors", 0, OPTION_TEXT, &options.tensors, "LIST",
         "types for matrices by a part of their names: ffn_down=q8,blk.0.=f16", 0, 0},
        {"look-up", 0, OPTION_TEXT, &given.look_up, "TYPE",
         "type of the embedding table: " PACK_LOOK_UPS_TEXT
         " (default auto: f16 for 8 bits; shared with --calibrate alone)",
         0, 0},
        {"effort", 0, OPTION_U32, &effort, "N",
         "0: round to nearest; 1: search for the best scales; 2 (default): also error feedback, "
         "with --calibrate",
         0, PACK_EFFORT_COUNT - 1},
        {"threads", 0, OPTION_U32, &options.threads, "N",
         "worker threads (default: all that this process may use)", 1, TEAM_THREADS_MAX},
        {"base", 0, OPTION_TEXT, &given.base, "MODEL",
         "convert a folder of Medusa or EAGLE heads into one file of draft heads for this model", 0,
         0},
        {"random", 0, OPTION_TEXT, &given.shape, "SHAPE", "pack random weights instead of a model",
         0, 0},
        {"seed", 0, OPTION_U64, &given.seed, "N", "(with --random) seed (default 1)", 0, 0},
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object", 0, 0},
        {0},
    };
    int words = 0;
    options_result result = options_parse(&command_pack, specs, argc, argv, &words);
    if (result != OPTIONS_OK)
        return options_exit(result);
    given.model = words > 0 ? argv[1] : NULL;
    options.effort = (pack_effort)effort;
    if (given.base != NULL)
        return run_heads(&given, words, &options, json);
    int usage = check_words(&given, words, &options);
    return usage == EXIT_GOOD ? run_model(&given, &options, json) : usage;
}

const cli_command command_pack = {
    .name = "pack",
    .summary = "convert a model to one .avo file, which opens instantly",
    .usage = "avocet pack MODEL -o FILE.avo [--type TYPE | --bits N] [--calibrate FILE]\n"
             "       avocet pack HEADS-FOLDER --base MODEL -o FILE.safetensors [--type q8|q4|f32]\n"
             "       avocet pack --random SHAPE -o FILE.avo [--type TYPE] [--seed N]",
    .examples = "avocet pack smollm2 -o smollm2.avo\n"
                "avocet pack ./Llama-3.2-1B -o llama.avo --calibrate text.txt\n"
                "avocet pack ./Llama-3.2-1B -o llama.avo --bits 4.5 --calibrate text.txt\n"
                "avocet pack ./Llama-3.2-1B -o llama.avo --type q4\n"
                "avocet pack --random tinyllama-1.1b -o random.avo --type q8",
    .run = run,
};
