/* config.json again, and copies of the files beside it. */
#include "pack/beside.h"

#include "base/json_writer.h"

#include <math.h>
#include <string.h>

#define CONFIG_TEXT_MAX  ((size_t)16 << 20)
#define CONFIG_DEPTH_MAX 8 /* deeper values are written as the JSON module has them */

/* The value of config.json again. Numbers keep their fraction ("0.0"), because readers in Python
 * tell integers and floats apart. */
static void write_value(const json_value *value, unsigned depth, json_writer *w) {
    bool whole = value->kind == JSON_NUMBER && fabs(value->number) < 1e15 &&
                 value->number == nearbyint(value->number);
    if (whole) {
        json_fixed(w, value->number, 1);
    } else if (value->kind == JSON_OBJECT && depth < CONFIG_DEPTH_MAX) {
        json_object_begin(w);
        for (size_t i = 0; i < value->object.count; i++) {
            json_key_text(w, value->object.members[i].key);
            write_value(&value->object.members[i].value, depth + 1, w);
        }
        json_end(w);
    } else if (value->kind == JSON_ARRAY && depth < CONFIG_DEPTH_MAX) {
        json_array_begin(w);
        for (size_t i = 0; i < value->array.count; i++)
            write_value(&value->array.items[i], depth + 1, w);
        json_end(w);
    } else {
        json_tree(w, value);
    }
}

/* config.json, or its text_config, with what is no longer true replaced; the rest in its order. */
static void write_keys(const pack_beside *b, const json_value *object, bool outer, json_writer *w) {
    json_object_begin(w);
    for (size_t i = 0; i < object->object.count; i++) {
        const json_member *member = &object->object.members[i];
        json_key_text(w, member->key);
        if (b->dtype != NULL &&
            (text_is(member->key, "torch_dtype") || text_is(member->key, "dtype")))
            json_string(w, b->dtype);
        else if (b->untied && text_is(member->key, "tie_word_embeddings"))
            json_boolean(w, false);
        else if (outer && text_is(member->key, "text_config") && member->value.kind == JSON_OBJECT)
            write_keys(b, &member->value, false, w);
        else
            write_value(&member->value, 0, w);
    }
    if (outer && b->untied && json_find(object, "tie_word_embeddings") == NULL)
        json_member_boolean(w, "tie_word_embeddings", false);
    json_end(w);
}

static avo_status write_config(const pack_beside *b, const char *folder, avo_error *error) {
    char path[4200];
    buffer text;
    AVO_TRY(file_join(path, sizeof(path), folder, "config.json", error));
    buffer_init(&text, b->allocator, CONFIG_TEXT_MAX);
    json_writer w = json_writer_indented(&text, 1);
    write_keys(b, b->source->config_json, true, &w);
    avo_status status = json_writer_status(&w);
    AVO_THEN(status, buffer_append_text(&text, "\n"));
    if (status != AVO_OK)
        status = status_fail(error, status, "%s: %s", path, avo_status_text(status));
    else
        status = file_write(path, text.data, text.size, error);
    buffer_free(&text);
    return status;
}

static avo_status copy_file(const char *from, const char *folder, const char *name,
                            avo_error *error) {
    char to[4200];
    file_map map;
    AVO_TRY(file_join(to, sizeof(to), folder, name, error));
    AVO_TRY(file_map_open(from, &map, error));
    avo_status status = file_write(to, map.bytes.data, map.bytes.size, error);
    file_map_close(&map);
    return status;
}

/* Files that a reader of the source may want, ours or another. */
avo_status pack_write_beside(const pack_beside *b, const char *output, avo_error *error) {
    static const char *const names[] = {
        "config.json", /* unless it changes */
        "generation_config.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
        "preprocessor_config.json",
        "processor_config.json",
        "LICENSE",
        "NOTICE",
    };
    char path[4096], folder[4096] = "";
    for (uint32_t i = 0; i < b->source->file_count; i++) {
        text_view file = text_from(b->source->files[i].path), config = TEXT_LITERAL("/config.json");
        if (text_ends(file, config) && file.size - config.size < sizeof(folder))
            memcpy(folder, file.data, file.size - config.size + 1); /* "folder/" */
    }
    bool changes = b->dtype != NULL || b->untied;
    if (changes)
        AVO_TRY(write_config(b, output, error));
    for (size_t i = changes ? 1 : 0; i < sizeof(names) / sizeof(names[0]); i++) {
        AVO_TRY(file_join(path, sizeof(path), folder, names[i], error));
        if (file_kind_of(path) == FILE_REGULAR)
            AVO_TRY(copy_file(path, output, names[i], error));
    }
    return AVO_OK;
}
