/* The grammar that tool_choice and strict tools ask for: a JSON schema of the calls. */
#include "chat/tool_int.h"

#include "base/json_writer.h"

#include <stdio.h>

static bool wanted(const json_value *function, const tool_choice *choice) {
    const json_value *name = json_find(function, "name");
    return name != NULL && name->kind == JSON_STRING &&
           (choice->function.data == NULL || text_equal(name->string, choice->function));
}

static bool is_strict(const json_value *function) {
    const json_value *strict = json_find(function, "strict");
    return strict != NULL && strict->kind == JSON_BOOLEAN && strict->boolean;
}

static bool any_strict(const json_value *tools) {
    for (size_t i = 0; i < tools->array.count; i++)
        if (is_strict(json_find(&tools->array.items[i], "function")))
            return true;
    return false;
}

/* ---- Schemas inside of others ---- */

static bool is_one_of(text_view key, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (text_is(key, names[i]))
            return true;
    return false;
}

/* What a member of a schema holds. */
typedef enum schema_part {
    PART_SCHEMA, /* or a list of them */
    PART_NAMED,  /* schemas by names, which may be those of keywords */
    PART_VALUE   /* not a schema, whatever it looks like */
} schema_part;

static schema_part part_of(text_view key) {
    static const char *const values[] = {"const", "enum", "default", "examples", "example"};
    static const char *const named[] = {"properties", "$defs", "definitions", "patternProperties",
                                        "dependentSchemas"};
    if (is_one_of(key, values, sizeof(values) / sizeof(values[0])))
        return PART_VALUE;
    return is_one_of(key, named, sizeof(named) / sizeof(named[0])) ? PART_NAMED : PART_SCHEMA;
}

/* "#/…" from the root of the schema that `path` leads to. */
static avo_status move_reference(text_view reference, const char *path, arena *arena,
                                 text_view *out) {
    size_t before = strlen(path), bytes = before + reference.size - 1;
    char *moved = arena_take(arena, bytes);
    if (moved == NULL)
        return AVO_ERROR_MEMORY;
    memcpy(moved, path, before);
    memcpy(moved + before, reference.data + 1, reference.size - 1);
    *out = (text_view){moved, bytes};
    return AVO_OK;
}

static avo_status move_schema(schema_part part, const char *path, arena *arena, json_value *value);

static avo_status move_members(schema_part part, const char *path, arena *arena,
                               json_value *object) {
    size_t count = object->object.count;
    json_member *members = arena_take_array(arena, count, sizeof(*members));
    if (members == NULL)
        return AVO_ERROR_MEMORY;
    memcpy(members, object->object.members, count * sizeof(*members));
    object->object.members = members;
    for (size_t i = 0; i < count; i++) {
        json_value *value = &members[i].value;
        bool reference = part == PART_SCHEMA && text_is(members[i].key, "$ref") &&
                         value->kind == JSON_STRING && value->string.size > 0 &&
                         value->string.data[0] == '#';
        if (reference)
            AVO_TRY(move_reference(value->string, path, arena, &value->string));
        else
            AVO_TRY(move_schema(part == PART_SCHEMA ? part_of(members[i].key) : PART_SCHEMA, path,
                                arena, value));
    }
    return AVO_OK;
}

/* A schema that is put inside of another at `path`: its references begin at its own root. Depth is
 * bounded by the parser (JSON_DEPTH_MAX). */
static avo_status move_schema(schema_part part, const char *path, arena *arena, json_value *value) {
    if (part == PART_VALUE)
        return AVO_OK;
    if (value->kind == JSON_OBJECT && value->object.count > 0)
        return move_members(part, path, arena, value);
    if (value->kind != JSON_ARRAY || value->array.count == 0)
        return AVO_OK;
    json_value *items = arena_take_array(arena, value->array.count, sizeof(*items));
    if (items == NULL)
        return AVO_ERROR_MEMORY;
    memcpy(items, value->array.items, value->array.count * sizeof(*items));
    value->array.items = items;
    for (size_t i = 0; i < value->array.count; i++)
        AVO_TRY(move_schema(PART_SCHEMA, path, arena, &items[i]));
    return AVO_OK;
}

/* ---- Calls ---- */

/* A call of one function. Arguments are any object where nothing was promised of them. */
static void write_call(json_writer *w, const char *key, const json_value *function, bool promised,
                       const char *path, arena *arena) {
    const json_value *parameters = promised ? json_find(function, "parameters") : NULL;
    json_object_begin(w);
    json_member_string(w, "type", "object");
    json_member_object_begin(w, "properties");
    json_member_object_begin(w, "name");
    json_member_text(w, "const", json_find(function, "name")->string);
    json_end(w);
    if (parameters != NULL && parameters->kind == JSON_OBJECT) {
        json_value moved = *parameters;
        json_writer_note(w, move_schema(PART_SCHEMA, path, arena, &moved));
        json_member_tree(w, key, &moved);
    } else {
        json_member_object_begin(w, key);
        json_member_string(w, "type", "object");
        json_end(w);
    }
    json_end(w);
    json_member_array_begin(w, "required");
    json_string(w, "name");
    json_string(w, key);
    json_end(w);
    json_member_boolean(w, "additionalProperties", false);
    json_end(w);
}

/* A call of any of the wanted functions; how many there are. */
static size_t write_calls(json_writer *w, const char *key, const json_value *tools,
                          const tool_choice *choice, const char *path, arena *arena) {
    size_t written = 0;
    json_object_begin(w);
    json_member_array_begin(w, "anyOf");
    for (size_t i = 0; i < tools->array.count; i++) {
        const json_value *function = json_find(&tools->array.items[i], "function");
        char inside[96];
        if (!wanted(function, choice))
            continue;
        snprintf(inside, sizeof(inside), "#%s/anyOf/%zu/properties/%s", path, written++, key);
        write_call(w, key, function, choice->required || is_strict(function), inside, arena);
    }
    json_end(w);
    json_end(w);
    return written;
}

/* One call, or with `array` a list of them. */
static avo_status write_schema(const char *key, const json_value *tools, const tool_choice *choice,
                               bool array, arena *arena, buffer *out, size_t *written) {
    json_writer w = json_writer_of(out);
    if (array) {
        json_object_begin(&w);
        json_member_string(&w, "type", "array");
        json_member_u64(&w, "minItems", 1);
        if (!choice->parallel)
            json_member_u64(&w, "maxItems", 1);
        json_key(&w, "items");
    }
    *written = write_calls(&w, key, tools, choice, array ? "/items" : "", arena);
    if (array)
        json_end(&w);
    return json_writer_status(&w);
}

avo_status tool_grammar_write(const chat_format *format, const json_value *tools,
                              const tool_choice *choice, arena *arena, chat_constraint *out,
                              avo_error *error) {
    const tool_form *form = format->form;
    *out = (chat_constraint){.kind = AVO_GRAMMAR_JSON_SCHEMA, .param = "tools"};
    if (tools->kind != JSON_ARRAY || tools->array.count == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "there are no tools");
    if (!choice->required && !any_strict(tools))
        return status_fail(error, AVO_ERROR_UNSUPPORTED, "calls are not constrained");
    if (!choice->required && !form->bare && !form->python)
        out->trigger = form->openers[0].text;
    out->json_or_text = !choice->required && out->trigger == NULL;
    buffer text;
    size_t written = 0;
    buffer_init(&text, arena->allocator, CHAT_CALL_BYTES_MAX);
    avo_status status = write_schema(form->key == NULL ? "arguments" : form->key, tools, choice,
                                     form->array && out->trigger != NULL, arena, &text, &written);
    if (status == AVO_OK && written == 0)
        status = status_fail(error, AVO_ERROR_ARGUMENT, "no tool is named %.*s",
                             TEXT_ARGUMENT(choice->function));
    else if (status == AVO_ERROR_LIMIT)
        status = status_fail(error, status, "the schemas of the tools have more than %zu bytes",
                             CHAT_CALL_BYTES_MAX);
    if (status == AVO_OK && (out->text = arena_copy_text(arena, text.data, text.size)) == NULL)
        status = AVO_ERROR_MEMORY;
    buffer_free(&text);
    return status == AVO_ERROR_MEMORY ? status_no_memory(error, "a grammar of calls", 0) : status;
}
