/* `avocet bench --kernels`: single operations instead of a model. */
#include "cli/bench_int.h"

#include "base/cpu.h"
#include "base/file.h"
#include "cli/tokenizer_open.h"
#include "device/device.h"
#include "device/kv_tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES ((size_t)1 << 20) /* of our own, where none is given */

/* ---- Flags ---- */

static bool has_operations(const kernel_bench *kernels) {
    const bench_operation_options *o = &kernels->operations;
    return o->linear || o->between || o->attention || o->gemm;
}

static bool parse_shapes(const char *text, bench_operation_options *options) {
    bench_words words;
    if (!bench_parse_words("shape", text, &words))
        return false;
    for (size_t i = 0; i < words.count; i++) {
        uint32_t sizes[2];
        if (!bench_parse_sizes(words.item[i], sizes, 2) || sizes[1] % 16 != 0 ||
            sizes[1] > 1 << 18) {
            cli_usage(&command_bench,
                      "--shape: \"%.40s\" must be OUTPUTSxINPUTS (inputs a multiple of 16, at most "
                      "262144)",
                      words.item[i]);
            return false;
        }
        options->shape[options->shapes++] = (bench_shape){sizes[0], sizes[1]};
    }
    return true;
}

static bool parse_heads(const char *text, bench_operation_options *options) {
    bench_words words;
    if (!bench_parse_words("heads", text, &words))
        return false;
    for (size_t i = 0; i < words.count; i++) {
        uint32_t sizes[3];
        if (!bench_parse_sizes(words.item[i], sizes, 3) || sizes[0] % sizes[1] != 0 ||
            sizes[0] > 4096 || sizes[2] > BENCH_HEAD_SIZE_MAX || sizes[2] % 2 != 0) {
            cli_usage(&command_bench,
                      "--heads: \"%.40s\" must be HEADSxKVHEADSxSIZE (heads a multiple of KV "
                      "heads, size even and at most %d)",
                      words.item[i], BENCH_HEAD_SIZE_MAX);
            return false;
        }
        options->heads[options->heads_count++] = (bench_heads){sizes[0], sizes[1], sizes[2]};
    }
    return true;
}

static bool parse_types(const char *text, bench_operation_options *options) {
    bench_words words;
    if (!bench_parse_words("type", text, &words))
        return false;
    for (size_t i = 0; i < words.count; i++) {
        bool found = false;
        for (uint32_t type = 0; type < 256 && !found; type++)
            if (strcmp(quant_name(type), words.item[i]) == 0 &&
                panel_index_of((quant_type)type) != PANEL_INDEX_COUNT) {
                options->type[options->types++] = (quant_type)type;
                found = true;
            }
        if (!found) {
            cli_usage(&command_bench,
                      "--type: \"%.20s\" has no panel layout; use q4r, q8b, q4_0, …",
                      words.item[i]);
            return false;
        }
    }
    return true;
}

static bool parse_kv_types(const bench_engine_options *engine, bench_operation_options *options) {
    if (engine->kv_type[0] == NULL) {
        options->kv_type[options->kv_types++] = KV_F16;
        options->kv_type[options->kv_types++] = KV_INT8;
        return true;
    }
    for (size_t i = 0; i < engine->kv_types; i++) {
        kv_type type = kv_type_named(engine->kv_type[i]);
        if (options->kv_types == KV_TYPE_COUNT) {
            cli_usage(&command_bench, "--kv-type: a type is given twice");
            return false;
        }
        options->kv_type[options->kv_types++] = type;
    }
    return true;
}

static bool parse_operations(const kernel_flags *flags, kernel_bench *out) {
    const struct {
        const char *name;
        bool *wanted;
    } known[] = {{"linear", &out->operations.linear},
                 {"rows", &out->operations.between},
                 {"attention", &out->operations.attention},
                 {"tokenizer", &out->tokenizer},
                 {"gemm", &out->operations.gemm}};
    const size_t count = sizeof(known) / sizeof(known[0]);
    bench_words words;
    const char *all =
        flags->tokenizer != NULL ? "linear,rows,attention,tokenizer" : "linear,rows,attention";
    if (!bench_parse_words("op", flags->operations != NULL ? flags->operations : all, &words))
        return false;
    for (size_t i = 0; i < words.count; i++) {
        size_t at = 0;
        while (at < count && strcmp(known[at].name, words.item[i]) != 0)
            at++;
        if (at == count) {
            cli_usage(&command_bench,
                      "--op: \"%.20s\" must be linear, rows, attention, gemm or tokenizer",
                      words.item[i]);
            return false;
        }
        *known[at].wanted = true;
    }
    const char *wrong = NULL;
    if (out->tokenizer && flags->tokenizer == NULL)
        wrong = "--op tokenizer needs a MODEL or a tokenizer file";
    else if (!out->tokenizer && flags->tokenizer != NULL)
        wrong = "with a MODEL, --kernels measures its tokenizer, but --op excludes it";
    else if (!out->tokenizer && flags->text != NULL)
        wrong = "--text needs a MODEL or a tokenizer file";
    if (wrong != NULL)
        cli_usage(&command_bench, "%s", wrong);
    return wrong == NULL;
}

/* The devices of this machine that have kernels to measure: "avx2, avx512". */
static void kernel_devices(char *text, size_t capacity) {
    char names[128], name[16];
    size_t used = 0, length;
    text[0] = '\0';
    device_names(names, sizeof(names));
    for (const char *at = names; *at != '\0'; at += length + (at[length] == ' ')) {
        limit_table table;
        length = strcspn(at, " ");
        snprintf(name, sizeof(name), "%.*s", (int)(length < 15 ? length : 15), at);
        if (strcmp(name, "ref") == 0 || !limits_of(name, &table) || length + 3 > capacity - used)
            continue;
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", used > 0 ? ", " : "", name);
    }
}

/* Kernels are those of CPU devices; the reference computes whole phases. */
static bool operations_there(const kernel_bench *kernels) {
    for (size_t i = 0; has_operations(kernels) && i < kernels->isas_count; i++) {
        const char *from, *found;
        char names[128];
        limit_table table;
        avo_error unknown; /* ignored: measuring reports the same error */
        if (device_find(device_asked(kernels->isas[i], &from), &found, &unknown) != AVO_OK)
            continue;
        if (strcmp(found, "ref") == 0) {
            cli_usage(&command_bench, "--device: ref has no single operations to measure");
            return false;
        }
        if (limits_of(found, &table))
            continue;
        kernel_devices(names, sizeof(names));
        cli_usage(&command_bench,
                  "--device: %s has no kernels of its own to measure; --kernels measures CPU "
                  "devices only: %s",
                  found, names);
        return false;
    }
    return true;
}

bool bench_kernels_parse(const kernel_flags *flags, const bench_engine_options *engine,
                         size_t walk_bytes, kernel_bench *out) {
    *out = (kernel_bench){.tokenizer_name = flags->tokenizer,
                          .text = flags->text,
                          .isas = engine->isa,
                          .isas_count = engine->isas};
    bench_operation_options *o = &out->operations;
    o->rows = engine->batch;
    o->depth = engine->depth;
    o->prompt = engine->prompt;
    o->threads = engine->threads;
    o->repeats = engine->repeats;
    o->progress = engine->progress;
    o->walk_bytes = walk_bytes;
    for (size_t i = 0; i < o->threads.count; i++)
        if (o->threads.item[i] == 0)
            o->threads.item[i] = cpu_usable_threads();
    return parse_operations(flags, out) &&
           parse_types(flags->types != NULL ? flags->types : "q4r,q4_0,q4_k,q8b,f16", o) &&
           parse_shapes(flags->shapes != NULL ? flags->shapes : "5632x2048", o) &&
           parse_heads(flags->heads != NULL ? flags->heads : "32x4x64", o) &&
           parse_kv_types(engine, o) && operations_there(out);
}

/* ---- Measuring ---- */

static avo_status measure_text(const kernel_bench *kernels, const tokenizer *tokenizer,
                               text_view text, bench_machine *machine, bench_results *results,
                               avo_error *error) {
    char name[48];
    cli_short_name(kernels->tokenizer_name, name, sizeof(name));
    bench_tokenizer_options options = {.tokenizer = tokenizer,
                                       .name = name,
                                       .text = text,
                                       .repeats = kernels->operations.repeats,
                                       .progress = kernels->operations.progress};
    return bench_tokenizer(&options, machine, results, error);
}

static avo_status measure_own_text(const kernel_bench *kernels, const tokenizer *tokenizer,
                                   bench_machine *machine, bench_results *results,
                                   avo_error *error) {
    buffer text;
    buffer_init(&text, NULL, 2 * TEXT_BYTES);
    avo_status status = bench_text(TEXT_BYTES, &text);
    if (status != AVO_OK)
        status = status_no_memory(error, "a text", TEXT_BYTES);
    else
        status = measure_text(kernels, tokenizer, buffer_text(&text), machine, results, error);
    buffer_free(&text);
    return status;
}

static avo_status measure_tokenizer(const kernel_bench *kernels, bench_machine *machine,
                                    bench_results *results, avo_error *error) {
    cli_tokenizer opened;
    AVO_TRY(cli_tokenizer_open(kernels->tokenizer_name, &opened, error));
    avo_status status;
    if (kernels->text == NULL) {
        status = measure_own_text(kernels, opened.tokenizer, machine, results, error);
    } else {
        file_map map;
        status = file_map_open(kernels->text, &map, error);
        if (status == AVO_OK) {
            text_view text = {(const char *)map.bytes.data, map.bytes.size};
            status = measure_text(kernels, opened.tokenizer, text, machine, results, error);
            file_map_close(&map);
        }
    }
    cli_tokenizer_close(&opened);
    return status;
}

uint64_t bench_kernels_cases(const kernel_bench *kernels) {
    uint64_t each = has_operations(kernels) ? bench_operation_cases(&kernels->operations) : 0;
    return kernels->isas_count * each + (kernels->tokenizer ? BENCH_TOKENIZER_CASES : 0);
}

avo_status bench_kernels(const kernel_bench *kernels, bench_machine *machine,
                         bench_results *results, avo_error *error) {
    bench_operation_options options = kernels->operations;
    bool table = has_operations(kernels);
    avo_status status = AVO_OK;
    for (size_t i = 0; table && i < kernels->isas_count && status == AVO_OK; i++) {
        const char *from;
        status = device_find(device_asked(kernels->isas[i], &from), &options.isa, error);
        AVO_THEN(status, bench_operations(&options, machine, results, error));
    }
    cli_progress_end();
    if (status == AVO_OK && kernels->tokenizer)
        status = measure_tokenizer(kernels, machine, results, error);
    cli_progress_end();
    return status;
}
