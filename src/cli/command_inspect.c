/* `avocet inspect`: what a file of a model or of draft heads holds, and with --verify whether it
 * holds it whole. */
#include "cli/cli.h"

#include "cli/inspect_int.h"
#include "formats/avo.h"

#include <math.h>

extern const cli_command command_inspect;

/* ---- Names ---- */

const char *inspect_activation_name(source_activation activation) {
    static const char *const names[] = {"silu", "gelu_tanh", "gelu_erf", "relu", "clipped swiglu"};
    return names[activation];
}

const char *inspect_rope_name(rope_scaling_kind kind) {
    static const char *const names[] = {"none",   "linear",   "dynamic",          "yarn",
                                        "llama3", "longrope", "frequency factors"};
    return names[kind];
}

const char *inspect_tokenizer_name(tokenizer_source_kind kind) {
    static const char *const names[] = {"none",          "tokenizer.json", "tokenizer.model",
                                        "GGUF metadata", "tokenizer.bin",  "image"};
    return names[kind];
}

text_view inspect_exact(const gguf_value *value, uint64_t index,
                        char scratch[INSPECT_EXACT_BYTES]) {
    bool boolean;
    int64_t integer;
    uint64_t large = 0;
    if (gguf_boolean(value, index, &boolean))
        return boolean ? TEXT_LITERAL("true") : TEXT_LITERAL("false");
    if (gguf_integer(value, index, &integer)) {
        snprintf(scratch, INSPECT_EXACT_BYTES, "%lld", (long long)integer);
    } else if (value->item_type == GGUF_U64) { /* past int64 */
        memcpy(&large, value->data.data + 8 * index, sizeof(large));
        snprintf(scratch, INSPECT_EXACT_BYTES, "%llu", (unsigned long long)large);
    } else {
        return TEXT_LITERAL("");
    }
    return text_from(scratch);
}

/* ---- Facts ---- */

static void add_total(inspect_facts *facts, const source_tensor *tensor) {
    uint64_t elements = source_tensor_elements(tensor);
    facts->elements += elements;
    facts->bytes += tensor->bytes;
    inspect_total *total = facts->totals;
    while (total < facts->totals + facts->total_count &&
           (total->type != tensor->type || total->layout != tensor->layout))
        total++;
    if (total == facts->totals + facts->total_count) {
        if (facts->total_count == INSPECT_TYPES_MAX)
            return; /* cannot be: there are fewer types */
        *total = (inspect_total){.type = tensor->type, .layout = tensor->layout};
        facts->total_count++;
    }
    total->tensors++;
    total->elements += elements;
    total->bytes += tensor->bytes;
}

/* A tokenizer that cannot be read is a fact too, not a failure of this command. */
static void look_at_tokenizer(inspect_facts *facts) {
    if (facts->source->tokenizer.kind == TOKENIZER_SOURCE_NONE)
        return;
    tokenizer *opened;
    if (tokenizer_open(&facts->source->tokenizer, NULL, &opened, &facts->tokenizer_error) != AVO_OK)
        return;
    facts->tokenizer_opened = true;
    facts->tokenizer = tokenizer_describe(opened);
    tokenizer_close(opened);
}

static void gather(inspect_facts *facts) {
    for (uint32_t i = 0; i < facts->source->file_count; i++)
        facts->file_bytes += facts->source->files[i].map.bytes.size;
    for (uint32_t i = 0; i < facts->source->tensor_count; i++)
        add_total(facts, &facts->source->tensors[i]);
    look_at_tokenizer(facts);
}

/* ---- Verify ---- */

#define VERIFY_ELEMENTS 8192 /* a multiple of every block */

static void verify_tensor(const source_tensor *tensor, float *numbers, inspect_verdict *verdict) {
    uint64_t left = source_tensor_elements(tensor);
    const uint8_t *data = tensor->data;
    uint64_t bad = 0;
    verdict->elements += left;
    while (left > 0) {
        uint64_t count = left < VERIFY_ELEMENTS ? left : VERIFY_ELEMENTS;
        uint64_t bytes = 0;
        if (!quant_run_bytes(tensor->type, count, &bytes))
            return; /* cannot be: the reader checked the size */
        quant_decode(tensor->type, data, (size_t)count, numbers);
        for (uint64_t i = 0; i < count; i++) {
            verdict->not_a_number += isnan(numbers[i]) != 0;
            verdict->infinite += isinf(numbers[i]) != 0;
            bad += isfinite(numbers[i]) ? 0 : 1;
        }
        data += bytes;
        left -= count;
    }
    if (bad > 0) {
        verdict->bad_tensors++;
        if (verdict->first_bad == NULL)
            verdict->first_bad = tensor;
    }
}

static avo_status verify_numbers(inspect_facts *facts, avo_error *error) {
    float *numbers = allocator_take(NULL, VERIFY_ELEMENTS * sizeof(float));
    if (numbers == NULL)
        return status_no_memory(error, "decoding", VERIFY_ELEMENTS * sizeof(float));
    avo_status status = AVO_OK;
    uint64_t done = 0;
    for (uint32_t i = 0; i < facts->source->tensor_count && status == AVO_OK; i++) {
        const source_tensor *tensor = &facts->source->tensors[i];
        verify_tensor(tensor, numbers, &facts->verdict);
        done += tensor->bytes;
        if (!cli_progress(NULL, "verify", done, facts->bytes))
            status = status_fail(error, AVO_ERROR_CANCELLED, "interrupted");
    }
    cli_progress_end();
    allocator_give(NULL, numbers, VERIFY_ELEMENTS * sizeof(float));
    return status;
}

static avo_status verify(inspect_facts *facts, avo_error *error) {
    facts->verdict.done = true;
    if (facts->source->format != SOURCE_AVO)
        return verify_numbers(facts, error);
    facts->verdict.sums = true;
    avo_status status = avo_source_verify(facts->source, cli_progress, NULL, error);
    cli_progress_end();
    return status;
}

/* ---- The command ---- */

static int show_text(const inspect_facts *facts) {
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    avo_status status = inspect_write_text(&out, facts);
    if (status == AVO_OK)
        cli_print_untrusted(stdout, buffer_text(&out));
    buffer_free(&out);
    return status == AVO_OK ? EXIT_GOOD : cli_fail_text("%s", avo_status_text(status));
}

static int show_json(const inspect_facts *facts) {
    cli_json json;
    inspect_write_json(cli_json_begin(&json), facts);
    return cli_json_print(&json);
}

static int show(const inspect_facts *facts, bool json) {
    int exit_status = json ? show_json(facts) : show_text(facts);
    if (exit_status != EXIT_GOOD)
        return exit_status;
    if (facts->verdict.bad_tensors > 0)
        return cli_fail_text("%s: %u tensors contain NaN or Inf, the first is %.*s",
                             facts->source->path, facts->verdict.bad_tensors,
                             TEXT_ARGUMENT(facts->verdict.first_bad->name));
    return EXIT_GOOD;
}

/* A file, opened. */
typedef struct opened {
    model_source *source;
    file_map map;       /* of heads */
    heads_config heads; /* of a file that says it has some: */
    bool is_heads;
} opened;

/* Weights of a model are such files, too; what cannot be read is left to the model's reader. */
static avo_status open_heads(const char *path, opened *out, avo_error *error) {
    avo_error ignored;
    if (!text_ends(text_from(path), TEXT_LITERAL(".safetensors")) ||
        file_map_open(path, &out->map, &ignored) != AVO_OK)
        return AVO_OK;
    if (source_open_tensors(out->map.bytes, path, NULL, &out->source, &ignored) == AVO_OK)
        out->is_heads = out->source->heads.size > 0;
    if (out->is_heads)
        return heads_config_read(path, NULL, &out->heads, error);
    source_close(out->source);
    out->source = NULL;
    file_map_close(&out->map);
    out->map = (file_map){0};
    return AVO_OK;
}

static void close_all(opened *file) {
    source_close(file->source);
    if (file->is_heads)
        file_map_close(&file->map);
}

static int inspect(const char *name, bool json, bool tensors, bool verified) {
    char path[CLI_PATH_MAX];
    avo_error error = {0};
    opened file = {0};
    avo_status status = cli_model_path(name, path, sizeof(path), &error);
    AVO_THEN(status, open_heads(path, &file, &error));
    if (!file.is_heads)
        AVO_THEN(status, source_open(path, NULL, &file.source, &error));
    if (status != AVO_OK) {
        close_all(&file);
        return cli_fail(&error);
    }
    inspect_facts facts = {.source = file.source, .list_tensors = tensors};
    facts.heads = file.is_heads ? &file.heads : NULL;
    gather(&facts);
    if (verified) {
        cli_interrupt_catch();
        status = verify(&facts, &error);
    }
    int result = status == AVO_OK ? show(&facts, json) : cli_fail_status(status, &error);
    close_all(&file);
    return result;
}

static int run(int argc, char **argv) {
    bool json = false;
    bool tensors = false;
    bool verified = false;
    const option_spec specs[] = {
        {"json", 0, OPTION_FLAG, &json, NULL, "print a JSON object", 0, 0},
        {"tensors", 0, OPTION_FLAG, &tensors, NULL, "list every tensor", 0, 0},
        {"verify", 0, OPTION_FLAG, &verified, NULL,
         "read the whole file: check the checksums of an .avo file, or decode every tensor and "
         "count NaN and Inf",
         0, 0},
        {0},
    };
    int words = 0;
    options_result result = options_parse(&command_inspect, specs, argc, argv, &words);
    if (result != OPTIONS_OK)
        return options_exit(result);
    if (words == 0)
        return cli_usage(&command_inspect, "missing MODEL: give a file, a folder or a name");
    if (words > 1)
        return cli_usage(&command_inspect, "needs one MODEL, also got \"%s\"", argv[2]);
    return inspect(argv[1], json, tensors, verified);
}

const cli_command command_inspect = {
    .name = "inspect",
    .summary = "show the contents of a model file or of draft heads",
    .usage = "avocet inspect MODEL [--tensors] [--verify] [--json]",
    .examples = "avocet inspect smollm2\n"
                "avocet inspect model.gguf --tensors\n"
                "avocet inspect model.avo --verify\n"
                "avocet inspect folder --json\n"
                "avocet inspect heads.safetensors",
    .run = run,
};
