/* What lies beside the weights in a Hugging Face folder: config.json, generation_config.json, the
 * tokenizer's files, and the chat template in one of its three places. */
#include "formats/formats_int.h"

#include <float.h>
#include <math.h>

#define CONFIG_BYTES_MAX           ((size_t)1 << 20) /* real ones are below 100 KB */
#define TOKENIZER_CONFIG_BYTES_MAX ((size_t)16 << 20)

static avo_status check_bytes(const model_source *source, uint32_t file, size_t maximum,
                              avo_error *error) {
    size_t bytes = source_file_bytes(source, file).size;
    if (bytes <= maximum)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_LIMIT, "%s: the file has %zu bytes, must have at most %zu",
                       source->files[file].path, bytes, maximum);
}

/* ---- config.json, generation_config.json ---- */

static avo_status read_config(source_loader *loader, avo_error *error) {
    model_source *source = loader->source;
    uint32_t file;
    AVO_TRY(source_file_beside(loader, "config.json", &file, error));
    if (file == SOURCE_NO_FILE)
        return status_fail(error, AVO_ERROR_NOT_FOUND,
                           "%s: config.json is missing; it must be in %s with the weights",
                           source->path, loader->folder);
    const char *path = source->files[file].path;
    AVO_TRY(check_bytes(source, file, CONFIG_BYTES_MAX, error));
    void *root;
    AVO_TRY(source_take(source, 1, sizeof(json_value), "config.json", &root, error));
    /* The tree stays, so it goes into the source's own arena. */
    source->arena.limit_bytes = source->arena.used_bytes + SOURCE_CONFIG_TREE_MAX;
    avo_status status =
        source_json(&source->arena, source_file_bytes(source, file), path, root, error);
    source->arena.limit_bytes = SIZE_MAX;
    AVO_TRY(status);
    source->config_json = root;
    AVO_TRY(config_from_hf(source, root, path, error));
    const json_value *name = json_find(root, "_name_or_path");
    if (name != NULL && name->kind == JSON_STRING)
        source->name = name->string;
    return AVO_OK;
}

static avo_status read_numbers(const json_value *root, generation_defaults *defaults,
                               const char *path, avo_error *error) {
    static const struct {
        const char *key;
        generation_field field;
    } numbers[] = {
        {"temperature", GENERATION_TEMPERATURE},
        {"top_p", GENERATION_TOP_P},
        {"min_p", GENERATION_MIN_P},
        {"typical_p", GENERATION_TYPICAL_P},
        {"repetition_penalty", GENERATION_REPETITION_PENALTY},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const char *key = numbers[i].key;
        double number = NAN;
        avo_status status = json_get_number(root, key, -DBL_MAX, DBL_MAX, &number, error);
        if (status != AVO_OK)
            return status_prefix(error, status, "%s", path);
        if (!isnan(number))
            AVO_TRY(generation_number_set(defaults, numbers[i].field, number, path, key, error));
    }
    int64_t top_k = INT64_MIN;
    avo_status status = json_get_integer(root, "top_k", -1, INT64_MAX, &top_k, error);
    if (status != AVO_OK)
        return status_prefix(error, status, "%s", path);
    return top_k == INT64_MIN ? AVO_OK
                              : generation_top_k_set(defaults, top_k, path, "top_k", error);
}

/* do_sample, said outright: greedy, or sampled as the logits are. */
static avo_status read_do_sample(const json_value *root, generation_defaults *defaults,
                                 const char *path, avo_error *error) {
    bool sampled = true;
    avo_status status = json_get_boolean(root, "do_sample", &sampled, error);
    if (status != AVO_OK)
        return status_prefix(error, status, "%s", path);
    if (!sampled)
        defaults->temperature = 0;
    const json_value *said = json_find(root, "do_sample");
    if (sampled && said != NULL && said->kind == JSON_BOOLEAN && isnan(defaults->temperature))
        defaults->temperature = 1;
    return AVO_OK;
}

static avo_status apply_generation(model_source *source, const json_value *root, const char *path,
                                   avo_error *error) {
    if (root->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: expected an object, found %s", path,
                           json_kind_name(root->kind));
    const json_value *ends = json_find(root, "eos_token_id");
    if (ends != NULL && ends->kind != JSON_NULL)
        source->generation.stop_token_count = 0; /* this file's list replaces config.json's */
    bool ends_given;
    AVO_TRY(hf_token_ids(source, root, path, &ends_given, error));
    AVO_TRY(read_numbers(root, &source->generation, path, error));
    return read_do_sample(root, &source->generation, path, error);
}

/* Parses a file of at most `maximum` bytes and hands its tree to `apply`; it lives no longer. */
static avo_status apply_json(model_source *source, uint32_t file, size_t maximum,
                             avo_status (*apply)(model_source *source, const json_value *root,
                                                 const char *path, avo_error *error),
                             avo_error *error) {
    AVO_TRY(check_bytes(source, file, maximum, error));
    const char *path = source->files[file].path;
    arena tree;
    arena_init(&tree, source->arena.allocator, SOURCE_OTHER_TREE_MAX);
    json_value root;
    avo_status status = source_json(&tree, source_file_bytes(source, file), path, &root, error);
    AVO_THEN(status, apply(source, &root, path, error));
    arena_free(&tree);
    return status;
}

static avo_status read_generation(source_loader *loader, avo_error *error) {
    uint32_t file;
    AVO_TRY(source_file_beside(loader, "generation_config.json", &file, error));
    if (file == SOURCE_NO_FILE)
        return AVO_OK;
    return apply_json(loader->source, file, CONFIG_BYTES_MAX, apply_generation, error);
}

/* ---- Chat template ---- */

static avo_status keep_template(model_source *source, text_view text, const char *path,
                                avo_error *error) {
    if (text.size > SOURCE_TEMPLATE_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "%s: the chat template has %zu bytes, must have at most %zu", path,
                           text.size, SOURCE_TEMPLATE_MAX);
    const char *copy;
    AVO_TRY(source_copy_text(source, text, &copy, error));
    source->chat_template = (text_view){copy, text.size};
    return AVO_OK;
}

/* A string, or a list of {"name", "template"} of which "default" (or the only one) is taken. */
static avo_status template_from_json(model_source *source, const json_value *root, const char *path,
                                     avo_error *error) {
    const json_value *value = json_find(root, "chat_template");
    if (value == NULL || value->kind == JSON_NULL)
        return AVO_OK;
    if (value->kind == JSON_STRING)
        return keep_template(source, value->string, path, error);
    if (value->kind != JSON_ARRAY)
        return status_fail(error, AVO_ERROR_FORMAT,
                           "%s: chat_template (line %u) is not a string or a list", path,
                           value->line);
    for (size_t i = 0; i < value->array.count; i++) {
        const json_value *name = json_find(&value->array.items[i], "name");
        const json_value *text = json_find(&value->array.items[i], "template");
        if (name == NULL || name->kind != JSON_STRING || text == NULL || text->kind != JSON_STRING)
            return status_fail(error, AVO_ERROR_FORMAT,
                               "%s: chat_template[%zu] lacks a name or a template", path, i);
        if (text_is(name->string, "default") || value->array.count == 1)
            return keep_template(source, text->string, path, error);
    }
    return AVO_OK;
}

static avo_status template_from_file(model_source *source, uint32_t file, avo_error *error) {
    return apply_json(source, file, TOKENIZER_CONFIG_BYTES_MAX, template_from_json, error);
}

static avo_status read_template(source_loader *loader, uint32_t tokenizer_config,
                                avo_error *error) {
    model_source *source = loader->source;
    uint32_t file;
    AVO_TRY(source_file_beside(loader, "chat_template.jinja", &file, error));
    if (file != SOURCE_NO_FILE) {
        bytes_view bytes = source_file_bytes(source, file);
        return keep_template(source, (text_view){(const char *)bytes.data, bytes.size},
                             source->files[file].path, error);
    }
    if (tokenizer_config != SOURCE_NO_FILE)
        AVO_TRY(template_from_file(source, tokenizer_config, error));
    if (source->chat_template.size > 0)
        return AVO_OK;
    AVO_TRY(source_file_beside(loader, "chat_template.json", &file, error));
    return file == SOURCE_NO_FILE ? AVO_OK : template_from_file(source, file, error);
}

/* ---- Tokenizer ---- */

static avo_status read_tokenizer(source_loader *loader, avo_error *error) {
    static const struct {
        const char *name;
        tokenizer_source_kind kind;
    } names[] = {
        {"tokenizer.json", TOKENIZER_SOURCE_JSON},
        {"tokenizer.model", TOKENIZER_SOURCE_SENTENCEPIECE},
    };
    model_source *source = loader->source;
    tokenizer_source *tokenizer = &source->tokenizer;
    tokenizer->vocabulary = source->config.vocabulary;
    uint32_t file = SOURCE_NO_FILE;
    for (size_t i = 0; i < 2 && file == SOURCE_NO_FILE; i++) {
        AVO_TRY(source_file_beside(loader, names[i].name, &file, error));
        if (file == SOURCE_NO_FILE)
            continue;
        AVO_TRY(check_bytes(source, file, SOURCE_JSON_BYTES_MAX, error));
        tokenizer->kind = names[i].kind;
        tokenizer->data = source_file_bytes(source, file);
        tokenizer->name = source->files[file].path;
    }
    uint32_t config;
    AVO_TRY(source_file_beside(loader, "tokenizer_config.json", &config, error));
    if (config != SOURCE_NO_FILE)
        tokenizer->config = source_file_bytes(source, config);
    return read_template(loader, config, error);
}

avo_status hf_folder_read(source_loader *loader, avo_error *error) {
    AVO_TRY(read_config(loader, error));
    AVO_TRY(read_generation(loader, error));
    return read_tokenizer(loader, error);
}
