/* The configuration of a new model, read and written. */
#include "base/json_writer.h"
#include "formats/source.h"
#include "train/init_int.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

bool train_init_is_config(const char *path) {
    return text_ends(text_from(path), TEXT_LITERAL(".json")) && file_kind_of(path) == FILE_REGULAR;
}

avo_status init_read_file(init_state *state, const char *path, text_view *text, avo_error *error) {
    return file_read_text(&state->arena, path, INIT_JSON_MAX, text, error);
}

avo_status init_write_file(init_state *state, const char *name, text_view text, avo_error *error) {
    char path[INIT_PATH_MAX];
    AVO_TRY(file_join(path, sizeof(path), state->folder, name, error));
    return file_write(path, text.data, text.size, error);
}

/* A path that a configuration gives, from its own folder on. */
static avo_status path_beside(const init_state *state, text_view name, char path[INIT_PATH_MAX],
                              avo_error *error) {
    const char *config = state->options->config;
    const char *slash = strrchr(config, '/');
    int folder = slash == NULL || name.data[0] == '/' ? 0 : (int)(slash - config + 1);
    int bytes =
        snprintf(path, INIT_PATH_MAX, "%.*s%.*s", folder, config, (int)name.size, name.data);
    return bytes >= 0 && bytes < INIT_PATH_MAX
               ? AVO_OK
               : status_fail(error, AVO_ERROR_LIMIT, "the path \"%.*s\" is too long",
                             TEXT_ARGUMENT(name));
}

/* ---- Reading ---- */

static avo_status check_keys(const json_value *object, const char *const *known, size_t count,
                             avo_error *error) {
    for (size_t i = 0; i < object->object.count; i++) {
        char shown[JSON_SHOWN_KEY_MAX];
        bool found = false;
        for (size_t k = 0; k < count; k++)
            found = found || text_is(object->object.members[i].key, known[k]);
        if (!found)
            return status_fail(error, AVO_ERROR_ARGUMENT, "line %u: unknown key \"%s\"",
                               object->object.members[i].value.line,
                               json_shown_key(object->object.members[i].key, shown));
    }
    return AVO_OK;
}

static avo_status read_number(const json_value *root, const char *key, uint32_t minimum,
                              uint32_t maximum, uint32_t missing, uint32_t *out, avo_error *error) {
    int64_t value = missing;
    AVO_TRY(json_get_integer(root, key, minimum, maximum, &value, error));
    if (value == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "%s is missing", key);
    *out = (uint32_t)value;
    return AVO_OK;
}

static avo_status read_shape(const json_value *root, init_config *c, avo_error *error) {
    AVO_TRY(read_number(root, "hidden_size", 1, SOURCE_WIDTH_MAX, 0, &c->width, error));
    AVO_TRY(read_number(root, "intermediate_size", 1, SOURCE_FEED_FORWARD_MAX, 0, &c->feed_forward,
                        error));
    AVO_TRY(read_number(root, "num_hidden_layers", 1, SOURCE_LAYERS_MAX, 0, &c->layers, error));
    AVO_TRY(read_number(root, "num_attention_heads", 1, SOURCE_HEADS_MAX, 0, &c->heads, error));
    AVO_TRY(read_number(root, "num_key_value_heads", 1, c->heads, c->heads, &c->kv_heads, error));
    AVO_TRY(read_number(root, "head_dim", 2, SOURCE_HEAD_SIZE_MAX, c->width / c->heads,
                        &c->head_size, error));
    AVO_TRY(read_number(root, "vocab_size", 256, TRAIN_BPE_VOCABULARY_MAX, 1024, &c->vocabulary,
                        error));
    AVO_TRY(read_number(root, "max_position_embeddings", 2, SOURCE_CONTEXT_MAX, 512, &c->context,
                        error));
    if (c->heads % c->kv_heads != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "num_key_value_heads is %u, must divide num_attention_heads (%u)",
                           c->kv_heads, c->heads);
    if (c->head_size % 2 != 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "head_dim is %u, must be even", c->head_size);
    AVO_TRY(json_get_number(root, "rope_theta", 1.0, 1e12, &c->rope_base, error));
    AVO_TRY(json_get_number(root, "rms_norm_eps", 0.0, 1.0, &c->norm_epsilon, error));
    AVO_TRY(json_get_number(root, "initializer_range", 0.0, 1.0, &c->deviation, error));
    return json_get_boolean(root, "tie_word_embeddings", &c->tied, error);
}

static avo_status read_types(const json_value *root, init_config *c, avo_error *error) {
    text_view type = TEXT_LITERAL("llama"), dtype = TEXT_LITERAL("float32");
    AVO_TRY(json_get_string(root, "model_type", &type, error));
    AVO_TRY(json_get_string(root, "torch_dtype", &dtype, error));
    if (!text_is(type, "llama"))
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "model_type is \"%.*s\", must be llama",
                           TEXT_ARGUMENT(type));
    c->bfloat16 = text_is(dtype, "bfloat16");
    if (!c->bfloat16 && !text_is(dtype, "float32"))
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "torch_dtype is \"%.*s\", must be float32 or bfloat16",
                           TEXT_ARGUMENT(dtype));
    return AVO_OK;
}

static avo_status read_special(init_state *state, const json_value *tokenizer, avo_error *error) {
    init_config *c = &state->config;
    const json_value *list = json_find(tokenizer, "special");
    size_t count = list == NULL || list->kind != JSON_ARRAY ? 0 : list->array.count;
    if (list != NULL && (list->kind != JSON_ARRAY || count > TRAIN_BPE_SPECIAL_MAX))
        return status_fail(error, AVO_ERROR_ARGUMENT, "special must be a list of at most %d texts",
                           TRAIN_BPE_SPECIAL_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_value *item = &list->array.items[i];
        if (item->kind != JSON_STRING || memchr(item->string.data, 0, item->string.size) != NULL)
            return status_fail(error, AVO_ERROR_ARGUMENT, "special[%zu] is not a text", i);
        c->special[i] = arena_copy_text(&state->arena, item->string.data, item->string.size);
        if (c->special[i] == NULL)
            return status_no_memory(error, "special tokens", item->string.size);
    }
    c->special_count = count;
    return AVO_OK;
}

static avo_status read_tokenizer(init_state *state, const json_value *root, avo_error *error) {
    static const char *const known[] = {"pattern", "special", "begin", "end", "padding"};
    init_config *c = &state->config;
    const json_value *tokenizer = json_find(root, "tokenizer");
    if (tokenizer != NULL && tokenizer->kind == JSON_STRING && tokenizer->string.size > 0) {
        AVO_TRY(path_beside(state, tokenizer->string, c->tokenizer, error));
        char inside[INIT_PATH_MAX];
        if (file_kind_of(c->tokenizer) == FILE_FOLDER) {
            AVO_TRY(file_join(inside, sizeof(inside), c->tokenizer, "tokenizer.json", error));
            memcpy(c->tokenizer, inside, sizeof(inside));
        }
        return AVO_OK;
    }
    if (tokenizer == NULL || tokenizer->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "tokenizer must be an object (pattern, special, end) or a path");
    text_view pattern = TEXT_LITERAL("gpt2");
    AVO_TRY(check_keys(tokenizer, known, sizeof(known) / sizeof(known[0]), error));
    AVO_TRY(json_get_string(tokenizer, "pattern", &pattern, error));
    uint32_t found = 0;
    while (found < WORD_PATTERN_COUNT && !text_is(pattern, word_pattern_name((word_pattern)found)))
        found++;
    if (found == WORD_PATTERN_COUNT)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "pattern is \"%.*s\", must be gpt2, llama3 or qwen2",
                           TEXT_ARGUMENT(pattern));
    c->pattern = (word_pattern)found;
    AVO_TRY(json_get_string(tokenizer, "begin", &c->begin, error));
    AVO_TRY(json_get_string(tokenizer, "end", &c->end, error));
    AVO_TRY(json_get_string(tokenizer, "padding", &c->padding, error));
    return read_special(state, tokenizer, error);
}

static avo_status read_template(init_state *state, const json_value *root, avo_error *error) {
    text_view file = {"", 0};
    AVO_TRY(json_get_string(root, "chat_template", &state->config.chat_template, error));
    AVO_TRY(json_get_string(root, "chat_template_file", &file, error));
    if (file.size == 0)
        return AVO_OK;
    char path[INIT_PATH_MAX];
    AVO_TRY(path_beside(state, file, path, error));
    return init_read_file(state, path, &state->config.chat_template, error);
}

static avo_status read_all(init_state *state, avo_error *error) {
    static const char *const known[] = {"model_type",
                                        "hidden_size",
                                        "intermediate_size",
                                        "num_hidden_layers",
                                        "num_attention_heads",
                                        "vocab_size",
                                        "num_key_value_heads",
                                        "head_dim",
                                        "rope_theta",
                                        "rms_norm_eps",
                                        "max_position_embeddings",
                                        "tie_word_embeddings",
                                        "initializer_range",
                                        "torch_dtype",
                                        "tokenizer",
                                        "chat_template",
                                        "chat_template_file",
                                        "generation",
                                        "architectures",
                                        "hidden_act"};
    init_config *c = &state->config;
    *c = (init_config){.rope_base = 10000.0, .norm_epsilon = 1e-5, .deviation = 0.02, .tied = true};
    text_view text;
    AVO_TRY(init_read_file(state, state->options->config, &text, error));
    AVO_TRY(json_parse(&state->arena, text, &state->root, error));
    if (state->root.kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_FORMAT, "expected an object, found %s",
                           json_kind_name(state->root.kind));
    AVO_TRY(check_keys(&state->root, known, sizeof(known) / sizeof(known[0]), error));
    AVO_TRY(read_shape(&state->root, c, error));
    AVO_TRY(read_types(&state->root, c, error));
    AVO_TRY(read_tokenizer(state, &state->root, error));
    AVO_TRY(read_template(state, &state->root, error));
    const json_value *generation = json_find(&state->root, "generation");
    if (generation != NULL && generation->kind != JSON_OBJECT)
        return status_fail(error, AVO_ERROR_ARGUMENT, "generation is %s, must be an object",
                           json_kind_name(generation->kind));
    c->generation = generation;
    return AVO_OK;
}

avo_status init_config_read(init_state *state, avo_error *error) {
    avo_status status = read_all(state, error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", state->options->config);
}

/* ---- Writing ---- */

static void write_id(json_writer *w, const char *key, int32_t id) {
    json_key(w, key);
    if (id < 0)
        json_null(w);
    else
        json_i64(w, id);
}

static void write_config(json_writer *w, const init_state *state) {
    const init_config *c = &state->config;
    json_object_begin(w);
    json_member_array_begin(w, "architectures");
    json_string(w, "LlamaForCausalLM");
    json_end(w);
    json_member_string(w, "model_type", "llama");
    json_member_string(w, "hidden_act", "silu");
    json_member_u64(w, "hidden_size", c->width);
    json_member_u64(w, "intermediate_size", c->feed_forward);
    json_member_u64(w, "num_hidden_layers", c->layers);
    json_member_u64(w, "num_attention_heads", c->heads);
    json_member_u64(w, "num_key_value_heads", c->kv_heads);
    json_member_u64(w, "head_dim", c->head_size);
    json_member_u64(w, "vocab_size", state->info.vocabulary);
    json_member_u64(w, "max_position_embeddings", c->context);
    json_member_number(w, "rope_theta", c->rope_base);
    json_member_null(w, "rope_scaling");
    json_member_number(w, "rms_norm_eps", c->norm_epsilon);
    json_member_number(w, "initializer_range", c->deviation);
    json_member_boolean(w, "tie_word_embeddings", c->tied);
    json_member_boolean(w, "attention_bias", false);
    json_member_boolean(w, "mlp_bias", false);
    json_member_string(w, "torch_dtype", c->bfloat16 ? "bfloat16" : "float32");
    write_id(w, "bos_token_id", state->begin_id);
    write_id(w, "eos_token_id", state->end_id);
    write_id(w, "pad_token_id", state->padding_id);
    json_end(w);
}

static void write_generation(json_writer *w, const init_state *state) {
    const json_value *generation = state->config.generation;
    json_object_begin(w);
    write_id(w, "bos_token_id", state->begin_id);
    write_id(w, "eos_token_id", state->end_id);
    write_id(w, "pad_token_id", state->padding_id);
    for (size_t i = 0; generation != NULL && i < generation->object.count; i++) {
        json_key_text(w, generation->object.members[i].key);
        json_tree(w, &generation->object.members[i].value);
    }
    json_end(w);
}

avo_status init_write_config(init_state *state, avo_error *error) {
    static void (*const write[])(json_writer *, const init_state *) = {write_config,
                                                                       write_generation};
    static const char *const names[] = {"config.json", "generation_config.json"};
    buffer out;
    buffer_init(&out, state->options->allocator, INIT_JSON_MAX);
    avo_status status = AVO_OK;
    for (size_t i = 0; i < 2 && status == AVO_OK; i++) {
        out.size = 0;
        json_writer w = json_writer_indented(&out, 1);
        write[i](&w, state);
        AVO_THEN(status, json_writer_status(&w));
        AVO_THEN(status, buffer_append(&out, "\n", 1));
        if (status != AVO_OK)
            status = status_fail(error, status, "%s could not be written", names[i]);
        AVO_THEN(status, init_write_file(state, names[i], buffer_text(&out), error));
    }
    buffer_free(&out);
    return status;
}
