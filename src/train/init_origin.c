/* origin.json: what a new model was made of, so that a run that goes on can tell whether its
 * configuration, data and seed are still those. Digests stand for the contents of other files. */
#include "base/file.h"
#include "base/hash.h"
#include "base/json_file.h"
#include "train/compare.h"
#include "train/data_int.h"
#include "train/init_int.h"

#include <inttypes.h>
#include <stdio.h>

#define ORIGIN_FILE "origin.json"

static void write_digest(json_writer *w, const char *key, const void *data, size_t bytes) {
    char text[24];
    snprintf(text, sizeof(text), "%016" PRIx64, hash_bytes(data, bytes));
    json_member_string(w, key, text);
}

static avo_status write_file(json_writer *w, const char *key, const char *path, avo_error *error) {
    file_map map;
    AVO_TRY(file_map_open(path, &map, error));
    write_digest(w, key, map.bytes.data, map.bytes.size);
    file_map_close(&map);
    return AVO_OK;
}

/* The data make the tokenizer where the configuration has none. */
static avo_status write_data(const init_state *state, json_writer *w, avo_error *error) {
    const train_init_options *options = state->options;
    char path[INIT_PATH_MAX], key[32];
    for (uint32_t i = 0; i < options->data_count; i++) {
        snprintf(key, sizeof(key), i == 0 ? "data" : "data %" PRIu32, i + 1);
        AVO_TRY(data_find_split(options->data[i], "train", path, sizeof(path), error));
        AVO_TRY(write_file(w, key, path, error));
    }
    return AVO_OK;
}

static avo_status write_origin(const init_state *state, json_writer *w, avo_error *error) {
    const init_config *c = &state->config;
    json_object_begin(w);
    json_key(w, "configuration");
    json_tree(w, &state->root);
    json_member_object_begin(w, "made_with");
    json_member_u64(w, "seed", state->options->seed);
    write_digest(w, "chat_template", c->chat_template.data, c->chat_template.size);
    avo_status status = c->tokenizer[0] != '\0' ? write_file(w, "tokenizer", c->tokenizer, error)
                                                : write_data(state, w, error);
    json_end(w);
    json_end(w);
    return status;
}

avo_status init_write_origin(init_state *state, avo_error *error) {
    char path[INIT_PATH_MAX];
    buffer out;
    AVO_TRY(file_join(path, sizeof(path), state->folder, ORIGIN_FILE, error));
    buffer_init(&out, state->options->allocator, COMPARE_BYTES_MAX);
    json_writer w = json_writer_indented(&out, 2);
    avo_status status = write_origin(state, &w, error);
    AVO_THEN(status, json_file_write(&w, path, error));
    buffer_free(&out);
    return status;
}

static avo_status compare(init_state *state, const json_value *root, avo_error *error) {
    json_value own;
    buffer out;
    buffer_init(&out, state->options->allocator, COMPARE_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    avo_status status = write_origin(state, &w, error);
    AVO_THEN(status, train_compare_parse(&w, &state->arena, &own, error));
    buffer_free(&out);
    AVO_TRY(status);
    train_compare c = {.allocator = state->options->allocator,
                       .path = state->folder,
                       .own = &own,
                       .root = root,
                       .error = error};
    AVO_TRY(train_compare_object(&c, "configuration"));
    return train_compare_object(&c, "made_with");
}

avo_status train_init_compare(const train_init_options *options, const char *folder,
                              avo_error *error) {
    char path[INIT_PATH_MAX];
    json_value root;
    init_state state = {.options = options, .folder = folder};
    AVO_TRY(file_join(path, sizeof(path), folder, ORIGIN_FILE, error));
    arena_init(&state.arena, options->allocator, (size_t)1 << 30);
    avo_status status = json_file_read(&state.arena, path, COMPARE_BYTES_MAX, &root, error);
    AVO_THEN(status, init_config_read(&state, error));
    AVO_THEN(status, compare(&state, &root, error));
    arena_free(&state.arena);
    return status;
}
