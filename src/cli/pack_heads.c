/* Converting draft heads of other projects. */
#include "cli/pack_heads.h"

#include "cli/cli.h"
#include "model/heads_import.h"

#include <stdio.h>
#include <string.h>

bool cli_pack_heads_type(const char *name, quant_type *type) {
    static const struct {
        const char *name;
        quant_type type;
    } types[] = {{"q8", QUANT_Q8_0}, {"q4", QUANT_Q4_1}, {"f32", QUANT_F32}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (name == NULL || strcmp(name, types[i].name) == 0) {
            *type = types[i].type;
            return true;
        }
    return false;
}

/* Converts, and opens the result, so that a file that was written can be used. */
static avo_status convert(const pack_heads_options *options, const avo_model *model, buffer *file,
                          heads_config *config, avo_error *error) {
    quant_type type = QUANT_Q8_0;
    avo_heads *heads;
    (void)cli_pack_heads_type(options->type, &type);
    AVO_TRY(heads_import(model, options->folder, type, file, error));
    bytes_view bytes = {(const uint8_t *)file->data, file->size};
    AVO_TRY(heads_open_memory(model, bytes, options->output, &heads, error));
    *config = heads->config;
    avo_heads_close(heads);
    return file_write(options->output, bytes.data, bytes.size, error);
}

static void report(const pack_heads_options *options, const heads_config *config, size_t bytes) {
    char size[16];
    if (config->kind == HEADS_MEDUSA)
        printf("%s: %s, %u Medusa heads, %u tokens\n", options->output, cli_bytes_text(bytes, size),
               config->heads, config->frequent);
    else
        printf("%s: %s, %s, %u layers, %u tokens\n", options->output, cli_bytes_text(bytes, size),
               config->form == HEADS_FORM_EAGLE3 ? "EAGLE-3" : "EAGLE", config->depth,
               config->frequent);
}

static int report_json(const pack_heads_options *options, const heads_config *config,
                       size_t bytes) {
    cli_json json;
    json_writer *w = cli_json_begin(&json);
    json_object_begin(w);
    json_member_string(w, "file", options->output);
    json_member_string(w, "kind", heads_kind_name(config->kind));
    json_member_string(w, "form", heads_form_name(config->form));
    json_member_u64(w, "bytes", bytes);
    json_member_u64(w, "tokens", config->frequent);
    json_end(w);
    return cli_json_print(&json);
}

int cli_pack_heads(const pack_heads_options *options) {
    avo_error error = {0};
    avo_model *model = NULL;
    heads_config config;
    buffer file;
    char path[CLI_PATH_MAX];
    buffer_init(&file, NULL, SIZE_MAX);
    avo_status status = cli_model_path(options->base, path, sizeof(path), &error);
    AVO_THEN(status, cli_model_open(path, &model, &error));
    AVO_THEN(status, convert(options, model, &file, &config, &error));
    size_t bytes = file.size;
    buffer_free(&file);
    cli_progress_end();
    avo_model_close(model);
    if (status != AVO_OK)
        return cli_fail_status(status, &error);
    if (options->json)
        return report_json(options, &config, bytes);
    report(options, &config, bytes);
    return EXIT_GOOD;
}
