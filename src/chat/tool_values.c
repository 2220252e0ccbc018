/* Values of arguments that a model wrote as plain text, by the schema of their function. */
#include "chat/tool_int.h"

#include <math.h>

#define SCHEMA_DEPTH_MAX 8

enum {
    TYPE_STRING = 1,
    TYPE_NUMBER = 2,
    TYPE_INTEGER = 4,
    TYPE_BOOLEAN = 8,
    TYPE_NULL = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64
};

static const json_value *function_named(const json_value *tools, text_view name) {
    for (size_t i = 0; tools != NULL && tools->kind == JSON_ARRAY && i < tools->array.count; i++) {
        const json_value *function = json_find(&tools->array.items[i], "function");
        const json_value *own = json_find(function, "name");
        if (own != NULL && own->kind == JSON_STRING && text_equal(own->string, name))
            return function;
    }
    return NULL;
}

bool tool_known(const json_value *tools, text_view name) {
    return function_named(tools, name) != NULL;
}

const json_value *tool_parameters(const json_value *tools, text_view name) {
    return json_find(function_named(tools, name), "parameters");
}

/* ---- Types ---- */

static unsigned type_named(text_view name) {
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"string", TYPE_STRING},   {"number", TYPE_NUMBER | TYPE_INTEGER},
                 {"integer", TYPE_INTEGER}, {"boolean", TYPE_BOOLEAN},
                 {"null", TYPE_NULL},       {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (text_is(name, names[i].name))
            return names[i].type;
    return 0;
}

static unsigned type_of(const json_value *value) {
    switch (value->kind) {
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    case JSON_NUMBER:
        return floor(value->number) == value->number ? TYPE_NUMBER | TYPE_INTEGER : TYPE_NUMBER;
    case JSON_BOOLEAN:
        return TYPE_BOOLEAN;
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    default:
        return TYPE_OBJECT;
    }
}

/* "#/$defs/name" inside of the parameters. */
static const json_value *resolve(const json_value *root, text_view path) {
    if (!text_take(&path, "#"))
        return NULL;
    while (root != NULL && text_take(&path, "/")) {
        const char *slash = path.size == 0 ? NULL : memchr(path.data, '/', path.size);
        size_t size = slash == NULL ? path.size : (size_t)(slash - path.data);
        root = json_find_text(root, (text_view){path.data, size});
        path.data += size;
        path.size -= size;
    }
    return root;
}

static unsigned types_of(const json_value *root, const json_value *schema, unsigned depth);

static unsigned types_among(const json_value *root, const json_value *list, unsigned depth) {
    unsigned types = 0;
    for (size_t i = 0; list != NULL && list->kind == JSON_ARRAY && i < list->array.count; i++)
        types |= types_of(root, &list->array.items[i], depth);
    return types;
}

/* All types that a value may have; 0: nothing is said. */
static unsigned types_of(const json_value *root, const json_value *schema, unsigned depth) {
    if (schema == NULL || schema->kind != JSON_OBJECT || depth > SCHEMA_DEPTH_MAX)
        return 0;
    const json_value *type = json_find(schema, "type"), *list = json_find(schema, "enum");
    const json_value *constant = json_find(schema, "const"), *to = json_find(schema, "$ref");
    unsigned types = 0;
    if (type != NULL && type->kind == JSON_STRING)
        return type_named(type->string);
    for (size_t i = 0; type != NULL && type->kind == JSON_ARRAY && i < type->array.count; i++)
        if (type->array.items[i].kind == JSON_STRING)
            types |= type_named(type->array.items[i].string);
    for (size_t i = 0; list != NULL && list->kind == JSON_ARRAY && i < list->array.count; i++)
        types |= type_of(&list->array.items[i]);
    if (constant != NULL)
        types |= type_of(constant);
    if (to != NULL && to->kind == JSON_STRING)
        types |= types_of(root, resolve(root, to->string), depth + 1);
    return types | types_among(root, json_find(schema, "anyOf"), depth + 1) |
           types_among(root, json_find(schema, "oneOf"), depth + 1) |
           types_among(root, json_find(schema, "allOf"), depth + 1);
}

/* ---- Values ---- */

/* Python's words for JSON's. */
static const char *word_of(text_view text, unsigned types) {
    static const struct {
        const char *text, *json;
        unsigned type;
    } words[] = {{"True", "true", TYPE_BOOLEAN},
                 {"False", "false", TYPE_BOOLEAN},
                 {"TRUE", "true", TYPE_BOOLEAN},
                 {"FALSE", "false", TYPE_BOOLEAN},
                 {"None", "null", TYPE_NULL}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (text_is(text, words[i].text) && (types & words[i].type) != 0)
            return words[i].json;
    return NULL;
}

avo_status tool_write_value(const json_value *parameters, text_view key, text_view text,
                            arena *arena, buffer *out) {
    const json_value *schema = json_find_text(json_find(parameters, "properties"), key);
    unsigned types = types_of(parameters, schema, 0);
    text_view bare = tool_trim(text);
    if (types == TYPE_STRING)
        return json_write_string(out, text);
    json_value value;
    avo_status status = json_parse(arena, bare, &value, NULL);
    if (status == AVO_ERROR_MEMORY)
        return status;
    if (status == AVO_OK) {
        unsigned type = type_of(&value);
        bool whole = value.kind == JSON_NUMBER && (types & TYPE_NUMBER) == 0 &&
                     (type & types & TYPE_INTEGER) != 0 && fabs(value.number) < 9e15;
        if (whole) /* 3.0 where 3 is meant */
            return buffer_format(out, "%lld", (long long)value.number);
        if ((types & type) != 0 || (types == 0 && type != TYPE_STRING))
            return json_write_value(out, &value);
    }
    const char *word = word_of(bare, types);
    return word != NULL ? buffer_append_text(out, word) : json_write_string(out, text);
}

bool tool_found_add(tool_found *found, text_view name, buffer *object, avo_status *status) {
    json_value value;
    if (*status == AVO_OK)
        *status = buffer_append_text(object, "}");
    if (*status != AVO_OK || name.size == 0 || found->count >= found->capacity)
        return false;
    /* A key that comes twice is refused here. */
    *status = json_parse(found->arena, buffer_text(object), &value, NULL);
    if (*status != AVO_OK) {
        *status = *status == AVO_ERROR_MEMORY ? AVO_ERROR_MEMORY : AVO_OK;
        return false;
    }
    tool_call *call = &found->calls[found->count];
    call->name.data = arena_copy_text(found->arena, name.data, name.size);
    call->name.size = name.size;
    call->arguments.data = arena_copy_text(found->arena, object->data, object->size);
    call->arguments.size = object->size;
    call->complete = true;
    if (call->name.data == NULL || call->arguments.data == NULL) {
        *status = AVO_ERROR_MEMORY;
        return false;
    }
    found->count++;
    return true;
}
