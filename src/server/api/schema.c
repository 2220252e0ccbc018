/* Schemas as JSON. */
#include "server/api/schema.h"

#include <stdio.h>
#include <string.h>

static void write_word(json_writer *w, text_view word) {
    if (text_is(word, "null"))
        json_null(w);
    else
        json_text(w, word);
}

/* `word` writes each. */
static void each_word(json_writer *w, const char *words, void (*write)(json_writer *, text_view)) {
    while (*words != '\0') {
        size_t length = strcspn(words, ",");
        write(w, (text_view){words, length});
        words += length + (words[length] == ',');
    }
}

void schema_write_words(json_writer *w, const char *words) {
    each_word(w, words, json_text);
}

static void write_list(json_writer *w, const char *key, const char *words,
                       void (*write)(json_writer *, text_view)) {
    if (words == NULL)
        return;
    json_member_array_begin(w, key);
    each_word(w, words, write);
    json_end(w);
}

static void write_types(json_writer *w, const char *types) {
    if (types != NULL && strchr(types, ',') == NULL)
        json_member_string(w, "type", types);
    else
        write_list(w, "type", types, json_text);
}

static void write_text(json_writer *w, const char *key, const char *text) {
    if (text != NULL)
        json_member_string(w, key, text);
}

static void write_count(json_writer *w, const char *key, uint32_t count) {
    if (count > 0)
        json_member_u64(w, key, count);
}

static void write_limits(json_writer *w, const schema *schema) {
    if (schema->bounded || schema->bounded_below)
        json_member_i64(w, "minimum", schema->minimum);
    if (schema->bounded)
        json_member_i64(w, "maximum", schema->maximum);
    write_count(w, "minItems", schema->items_min);
    write_count(w, "maxItems", schema->items_max);
    write_count(w, "maxProperties", schema->members_max);
    write_count(w, "minLength", schema->length_min);
}

static void write_nested(json_writer *w, const char *key, const schema *schema) {
    if (schema == NULL)
        return;
    json_key(w, key);
    schema_write(w, schema);
}

static void write_members(json_writer *w, const schema_member *members) {
    if (members == NULL)
        return;
    json_member_object_begin(w, "properties");
    for (; members->name != NULL; members++)
        write_nested(w, members->name, members->schema);
    json_end(w);
}

void schema_write_keywords(json_writer *w, const schema *schema) {
    write_types(w, schema->types);
    write_text(w, "const", schema->value);
    if (schema->is_true)
        json_member_boolean(w, "const", true);
    write_list(w, "enum", schema->values, write_word);
    if (schema->component != NULL) {
        char path[64];
        snprintf(path, sizeof(path), "#/components/schemas/%s", schema->component);
        json_member_string(w, "$ref", path);
    }
    write_text(w, "description", schema->description);
    write_list(w, "required", schema->required, json_text);
    write_limits(w, schema);
    if (schema->name_pattern != NULL) {
        json_member_object_begin(w, "propertyNames");
        json_member_string(w, "pattern", schema->name_pattern);
        json_end(w);
    }
    write_members(w, schema->members);
    write_nested(w, "items", schema->items);
    write_nested(w, "additionalProperties", schema->others);
}

void schema_write(json_writer *w, const schema *schema) {
    json_object_begin(w);
    schema_write_keywords(w, schema);
    json_end(w);
}
