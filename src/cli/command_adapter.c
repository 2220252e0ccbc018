/* `avocet adapter inspect|pack|merge`: adapters on disk. */
#include "base/clock.h"
#include "cli/cli.h"
#include "pack/merge.h"

#include <stdlib.h>
#include <string.h>

extern const cli_command command_adapter;
extern const cli_command command_adapter_inspect;
extern const cli_command command_adapter_pack;
extern const cli_command command_adapter_merge;

#define TYPES_TEXT "q8|f16|f32"

/* ---- adapter inspect, adapter pack ---- */

static int print_json(const avo_adapter *adapter) {
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    avo_adapter_module module = AVO_ADAPTER_MODULE_INIT;
    avo_adapter_describe(adapter, &info);
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_string(w, "path", info.path);
    json_member_string(w, "method", info.method);
    json_member_string(w, "type", info.type);
    json_member_string(w, "digest", info.digest);
    json_member_u64(w, "modules_matched", info.modules_matched);
    json_member_u64(w, "modules_expected", info.modules_expected);
    json_member_u64(w, "rank_max", info.rank_max);
    json_member_u64(w, "bytes", info.bytes);
    json_member_u64(w, "memory_bytes", info.memory_bytes);
    json_member_array_begin(w, "modules");
    for (size_t i = 0; avo_adapter_module_at(adapter, i, &module); i++) {
        json_object_begin(w);
        json_member_string(w, "name", module.name);
        json_member_string(w, "kind", module.kind);
        json_member_u64(w, "rank", module.rank);
        json_member_number(w, "scale", module.scale);
        json_member_number(w, "norm", module.norm);
        json_end(w);
    }
    json_end(w);
    json_end(w);
    return cli_json_print(&json);
}

static void print_head(const avo_adapter *adapter) {
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    char bytes[16], memory[16];
    avo_adapter_describe(adapter, &info);
    cli_print_untrusted(stdout, text_from(info.path));
    printf("\n  %s as %s, rank up to %u, %u of %u modules applied\n", info.method, info.type,
           info.rank_max, info.modules_matched, info.modules_expected);
    printf("  digest %s\n", info.digest);
    printf("  a step with it reads %s; memory %s\n"
           "\n",
           cli_bytes_text(info.bytes, bytes), cli_bytes_text(info.memory_bytes, memory));
}

static void print_modules(const avo_adapter *adapter) {
    avo_adapter_module module = AVO_ADAPTER_MODULE_INIT;
    int width = 6;
    for (size_t i = 0; avo_adapter_module_at(adapter, i, &module); i++)
        width = (int)strlen(module.name) > width ? (int)strlen(module.name) : width;
    printf("%-*s %-9s %5s %10s %12s\n", width, "module", "kind", "rank", "scale", "norm");
    for (size_t i = 0; avo_adapter_module_at(adapter, i, &module); i++) {
        printf("%-*s %-9s ", width, module.name, module.kind);
        if (module.rank > 0)
            printf("%5u %10.4g", module.rank, module.scale);
        else
            printf("%5s %10s", "", "");
        printf(" %12.5g\n", module.norm);
    }
}

static void print_packed(const avo_adapter *adapter, const char *output) {
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    char bytes[16];
    avo_adapter_describe(adapter, &info);
    printf("%s: %s as %s, %u modules, %s, digest %s\n", output, info.method, info.type,
           info.modules_matched, cli_bytes_text(info.bytes, bytes), info.digest);
}

/* Opens ADAPTER for MODEL, packs it where that is the command, and says what it is. */
static int run_one(const cli_command *command, bool packs, int argc, char **argv) {
    bool json = false;
    const char *type = NULL, *output = NULL;
    const option_spec specs[] = {
        {"output", 'o', OPTION_TEXT, &output, "FILE.avoa", "file to write", 0, 0},
        {"type", 't', OPTION_CHOICE, &type, TYPES_TEXT,
         "how the adapter is stored for computing (default q8)", 0, 0},
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object", 0, 0},
        {0},
    };
    int words = 0;
    options_result parsed = options_parse(command, packs ? specs : specs + 1, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (words != 2)
        return cli_usage(command, "needs one ADAPTER and one MODEL, got %d arguments", words);
    if (packs && (output == NULL || output[0] == '\0'))
        return cli_usage(command, "missing output: give -o FILE.avoa");
    avo_error error = {0};
    avo_model *model = NULL;
    avo_adapter *adapter = NULL;
    avo_status status = cli_model_open(argv[2], &model, &error);
    AVO_THEN(status, cli_adapter_open(model, argv[1], type, &adapter, &error));
    if (status == AVO_OK && packs)
        status = avo_adapter_pack(adapter, output, &error);
    int exit_status = EXIT_GOOD;
    if (status != AVO_OK) {
        exit_status = cli_fail_status(status, &error);
    } else if (json) {
        exit_status = print_json(adapter);
    } else if (packs) {
        print_packed(adapter, output);
    } else {
        print_head(adapter);
        print_modules(adapter);
    }
    avo_adapter_close(adapter);
    avo_model_close(model);
    return exit_status;
}

static int run_inspect(int argc, char **argv) {
    return run_one(&command_adapter_inspect, false, argc, argv);
}

static int run_pack(int argc, char **argv) {
    return run_one(&command_adapter_pack, true, argc, argv);
}

const cli_command command_adapter_inspect = {
    .name = "adapter inspect",
    .summary = "show what an adapter changes in a model",
    .usage = "avocet adapter inspect ADAPTER MODEL [options]",
    .examples = "avocet adapter inspect ./my-lora smollm2\n"
                "avocet adapter inspect my-lora.gguf model.avo --json",
    .run = run_inspect,
};

const cli_command command_adapter_pack = {
    .name = "adapter pack",
    .summary = "write an adapter in the layout that kernels read; it then opens instantly",
    .usage = "avocet adapter pack ADAPTER MODEL -o FILE.avoa [options]",
    .examples = "avocet adapter pack ./my-lora smollm2 -o my-lora.avoa\n"
                "avocet adapter pack ./my-lora model.avo -o exact.avoa --type f16",
    .run = run_pack,
};

/* ---- adapter merge ---- */

static avo_status merge(const char *model_name, char **adapters, int count, const char *output,
                        pack_options *options, pack_report *report, avo_error *error) {
    avo_model *model = NULL;
    avo_adapter_options adapter_options = AVO_ADAPTER_OPTIONS_INIT;
    adapter_options.type = "f32"; /* exact, unless the adapter is packed */
    avo_adapter_use uses[AVO_ADAPTERS_MAX] = {{0}};
    AVO_TRY(cli_model_open(model_name, &model, error));
    avo_status status = AVO_OK;
    for (int i = 0; i < count && status == AVO_OK; i++) {
        char path[CLI_PATH_MAX];
        status = cli_adapter_path(adapters[i], path, sizeof(path), &uses[i].weight, error);
        AVO_THEN(status, avo_adapter_open(model, path, &adapter_options, &uses[i].adapter, error));
    }
    AVO_THEN(status, pack_merge(model, uses, (size_t)count, output, options, report, error));
    cli_progress_end();
    for (int i = 0; i < count; i++)
        avo_adapter_close(uses[i].adapter);
    avo_model_close(model);
    return status;
}

static int report_merge(const char *output, const pack_options *options, const pack_report *report,
                        int adapters, bool json, double seconds) {
    char size[16];
    if (!json) {
        bool kept = options->type == PACK_KEEP;
        printf("%s: %s, %d adapter%s merged, %u tensors %s%s; %.1f s\n", output,
               cli_bytes_text(report->file_bytes, size), adapters, adapters == 1 ? "" : "s",
               report->tensors, kept ? "in their own types" : "as ",
               kept ? "" : pack_type_name(options->type), seconds);
        return EXIT_GOOD;
    }
    cli_json text;
    json_writer *w = cli_json_begin(&text);
    json_object_begin(w);
    json_member_string(w, "file", output);
    json_member_string(w, "type", pack_type_name(options->type));
    json_member_u64(w, "bytes", report->file_bytes);
    json_member_u64(w, "tensors", report->tensors);
    json_member_i64(w, "adapters", adapters);
    json_member_fixed(w, "seconds", seconds, 3);
    json_end(w);
    return cli_json_print(&text);
}

/* What --format and --type ask for; false: they do not go together. */
static bool merge_type(const char *format, const char *type, pack_options *options) {
    options->folder = format != NULL && strcmp(format, "safetensors") == 0;
    if (type == NULL)
        type = options->folder ? "keep" : "f16";
    return pack_type_by_name(type, &options->type) &&
           (options->type != PACK_KEEP || options->folder);
}

static int run_merge(int argc, char **argv) {
    bool json = false;
    const char *format = NULL, *type = NULL, *output = NULL;
    pack_options options = {.effort = PACK_EFFORT_SEARCH, .progress = cli_progress};
    pack_report report = {0};
    const option_spec specs[] = {
        {"output", 'o', OPTION_TEXT, &output, "PATH", ".avo file or folder to write", 0, 0},
        {"format", 0, OPTION_CHOICE, &format, "avo|safetensors",
         "avo: one file for Avocet (default); safetensors: a folder for any tool that reads "
         "safetensors",
         0, 0},
        {"type", 't', OPTION_TEXT, &type, "TYPE",
         "avo: type of the matrices: f32, f16 (default), bf16, q8, q5_0, q4, …; safetensors: type "
         "of all tensors: f32, f16, bf16, keep (default: the model's own)",
         0, 0},
        {"threads", 0, OPTION_U32, &options.threads, "N",
         "worker threads (default: all that this process may use)", 1, 1024},
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object", 0, 0},
        {0},
    };
    int words = 0;
    options_result parsed = options_parse(&command_adapter_merge, specs, argc, argv, &words);
    if (parsed != OPTIONS_OK)
        return options_exit(parsed);
    if (words < 2)
        return cli_usage(&command_adapter_merge, "needs a MODEL and at least one ADAPTER");
    if (words - 1 > AVO_ADAPTERS_MAX)
        return cli_usage(&command_adapter_merge, "%d adapters given, must be at most %d", words - 1,
                         AVO_ADAPTERS_MAX);
    if (output == NULL || output[0] == '\0')
        return cli_usage(&command_adapter_merge,
                         "missing output: give -o FILE.avo, or --format safetensors -o FOLDER");
    if (!merge_type(format, type, &options))
        return cli_usage(&command_adapter_merge, "cannot merge into type \"%s\"", type);
    cli_interrupt_catch();
    avo_error error = {0};
    uint64_t begin = clock_now_ns();
    avo_status status = merge(argv[1], argv + 2, words - 1, output, &options, &report, &error);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    return report_merge(output, &options, &report, words - 1, json,
                        clock_seconds(begin, clock_now_ns()));
}

const cli_command command_adapter_merge = {
    .name = "adapter merge",
    .summary = "merge adapters into a new model",
    .usage = "avocet adapter merge MODEL ADAPTER[:WEIGHT]… -o PATH [options]",
    .examples = "avocet adapter merge smollm2 ./my-lora -o merged.avo\n"
                "avocet adapter merge smollm2 ./style:0.7 ./skill:0.5 -o both.avo --type q8\n"
                "avocet adapter merge merged.avo ./my-lora:-1 -o back.avo\n"
                "avocet adapter merge ./base ./my-lora --format safetensors -o merged",
    .run = run_merge,
};

/* ---- adapter ---- */

static const cli_command *const parts[] = {&command_adapter_inspect, &command_adapter_pack,
                                           &command_adapter_merge, NULL};

static int run_adapter(int argc, char **argv) {
    return cli_run_child(&command_adapter, argc, argv);
}

const cli_command command_adapter = {
    .name = "adapter",
    .summary = "inspect, pack and merge LoRA adapters",
    .usage = "avocet adapter inspect ADAPTER MODEL [options]\n"
             "       avocet adapter pack ADAPTER MODEL -o FILE.avoa [options]\n"
             "       avocet adapter merge MODEL ADAPTER[:WEIGHT]… -o PATH [options]\n\n"
             "Each subcommand has its own --help.",
    .examples = "avocet adapter inspect ./my-lora smollm2\n"
                "avocet adapter pack ./my-lora smollm2 -o my-lora.avoa\n"
                "avocet adapter merge smollm2 ./my-lora:0.8 -o merged.avo --type q8",
    .run = run_adapter,
    .children = parts,
};
