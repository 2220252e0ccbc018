/* Checks a JSON schema when a reward is opened. A keyword that the validator does not know is
 * refused by name: a schema that is accepted is kept as a whole. */
#include "eval/reward_schema_int.h"

#include <stdlib.h>
#include <string.h>

typedef enum keyword_kind {
    KEYWORD_NOTE, /* says nothing about values */
    KEYWORD_VALUE,
    KEYWORD_VALUES,
    KEYWORD_SCHEMA,
    KEYWORD_SCHEMAS,
    KEYWORD_NAMED, /* schemas by name */
    KEYWORD_COUNT,
    KEYWORD_NUMBER,
    KEYWORD_DIVISOR,
    KEYWORD_BOOLEAN,
    KEYWORD_NAMES,
    KEYWORD_TYPE,
    KEYWORD_PATTERN,
    KEYWORD_REFERENCE,
} keyword_kind;

static const struct {
    const char *name;
    keyword_kind kind;
} keywords[] = {
    {"type", KEYWORD_TYPE},
    {"enum", KEYWORD_VALUES},
    {"const", KEYWORD_VALUE},
    {"properties", KEYWORD_NAMED},
    {"required", KEYWORD_NAMES},
    {"additionalProperties", KEYWORD_SCHEMA},
    {"minProperties", KEYWORD_COUNT},
    {"maxProperties", KEYWORD_COUNT},
    {"items", KEYWORD_SCHEMA},
    {"prefixItems", KEYWORD_SCHEMAS},
    {"minItems", KEYWORD_COUNT},
    {"maxItems", KEYWORD_COUNT},
    {"uniqueItems", KEYWORD_BOOLEAN},
    {"minLength", KEYWORD_COUNT},
    {"maxLength", KEYWORD_COUNT},
    {"pattern", KEYWORD_PATTERN},
    {"minimum", KEYWORD_NUMBER},
    {"maximum", KEYWORD_NUMBER},
    {"exclusiveMinimum", KEYWORD_NUMBER},
    {"exclusiveMaximum", KEYWORD_NUMBER},
    {"multipleOf", KEYWORD_DIVISOR},
    {"anyOf", KEYWORD_SCHEMAS},
    {"oneOf", KEYWORD_SCHEMAS},
    {"allOf", KEYWORD_SCHEMAS},
    {"not", KEYWORD_SCHEMA},
    {"$ref", KEYWORD_REFERENCE},
    {"$defs", KEYWORD_NAMED},
    {"definitions", KEYWORD_NAMED},
    {"title", KEYWORD_NOTE},
    {"description", KEYWORD_NOTE},
    {"default", KEYWORD_NOTE},
    {"examples", KEYWORD_NOTE},
    {"example", KEYWORD_NOTE},
    {"$schema", KEYWORD_NOTE},
    {"$id", KEYWORD_NOTE},
    {"$comment", KEYWORD_NOTE},
    {"deprecated", KEYWORD_NOTE},
    {"readOnly", KEYWORD_NOTE},
    {"writeOnly", KEYWORD_NOTE},
};

static avo_status check_schema(reward_schema *schema, const json_value *node, unsigned depth,
                               avo_error *error);

static avo_status refuse(const json_value *at, const char *name, const char *wanted,
                         avo_error *error) {
    return status_fail(error, AVO_ERROR_ARGUMENT, "schema: line %u: %s must be %s", at->line, name,
                       wanted);
}

static avo_status check_each(reward_schema *schema, const json_value *value, unsigned depth,
                             avo_error *error) {
    if (value->kind == JSON_ARRAY)
        for (size_t i = 0; i < value->array.count; i++)
            AVO_TRY(check_schema(schema, &value->array.items[i], depth + 1, error));
    else
        for (size_t i = 0; i < value->object.count; i++)
            AVO_TRY(check_schema(schema, &value->object.members[i].value, depth + 1, error));
    return AVO_OK;
}

static bool is_type(const json_value *value) {
    static const char *const types[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    for (size_t i = 0; value->kind == JSON_STRING && i < sizeof(types) / sizeof(types[0]); i++)
        if (text_is(value->string, types[i]))
            return true;
    return false;
}

static bool is_types(const json_value *value) {
    if (value->kind != JSON_ARRAY)
        return is_type(value);
    for (size_t i = 0; i < value->array.count; i++)
        if (!is_type(&value->array.items[i]))
            return false;
    return value->array.count > 0;
}

static bool is_names(const json_value *value) {
    for (size_t i = 0; value->kind == JSON_ARRAY && i < value->array.count; i++)
        if (value->array.items[i].kind != JSON_STRING)
            return false;
    return value->kind == JSON_ARRAY;
}

static avo_status check_pattern(reward_schema *schema, const json_value *value, const char *name,
                                avo_error *error) {
    if (value->kind != JSON_STRING)
        return refuse(value, name, "a string", error);
    if (schema->pattern_count == SCHEMA_PATTERNS_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "schema: more than %d patterns",
                           SCHEMA_PATTERNS_MAX);
    schema_pattern *fresh = &schema->patterns[schema->pattern_count];
    pattern_options options = {.allocator = schema->allocator, .counts = true};
    avo_status status = pattern_open(value->string, &options, &fresh->pattern, error);
    if (status != AVO_OK)
        return status_prefix(error, status, "schema: line %u", value->line);
    fresh->at = value;
    schema->pattern_count++;
    return AVO_OK;
}

static avo_status check_keyword(reward_schema *schema, size_t index, const json_value *value,
                                unsigned depth, avo_error *error) {
    const char *name = keywords[index].name;
    bool number = value->kind == JSON_INTEGER || value->kind == JSON_NUMBER;
    switch (keywords[index].kind) {
    case KEYWORD_NOTE:
    case KEYWORD_VALUE:
        return AVO_OK;
    case KEYWORD_VALUES:
        return value->kind == JSON_ARRAY ? AVO_OK : refuse(value, name, "an array", error);
    case KEYWORD_SCHEMA:
        return check_schema(schema, value, depth + 1, error);
    case KEYWORD_SCHEMAS:
        if (value->kind != JSON_ARRAY || value->array.count == 0)
            return refuse(value, name, "an array of schemas", error);
        return check_each(schema, value, depth, error);
    case KEYWORD_NAMED:
        if (value->kind != JSON_OBJECT)
            return refuse(value, name, "an object", error);
        return check_each(schema, value, depth, error);
    case KEYWORD_COUNT:
        return value->kind == JSON_INTEGER && value->integer >= 0
                   ? AVO_OK
                   : refuse(value, name, "a whole number from 0", error);
    case KEYWORD_NUMBER:
        return number ? AVO_OK : refuse(value, name, "a number", error);
    case KEYWORD_DIVISOR:
        return number && (value->kind == JSON_INTEGER ? value->integer > 0 : value->number > 0)
                   ? AVO_OK
                   : refuse(value, name, "a number above 0", error);
    case KEYWORD_BOOLEAN:
        return value->kind == JSON_BOOLEAN ? AVO_OK : refuse(value, name, "true or false", error);
    case KEYWORD_NAMES:
        return is_names(value) ? AVO_OK : refuse(value, name, "an array of strings", error);
    case KEYWORD_TYPE:
        return is_types(value)
                   ? AVO_OK
                   : refuse(value, name, "a name of a type, or an array of them", error);
    case KEYWORD_PATTERN:
        return check_pattern(schema, value, name, error);
    case KEYWORD_REFERENCE:
        return value->kind == JSON_STRING &&
                       reward_schema_resolve(schema->root, value->string) != NULL
                   ? AVO_OK
                   : refuse(value, name, "# or #/… of a schema that is there", error);
    }
    return AVO_OK;
}

static avo_status check_schema(reward_schema *schema, const json_value *node, unsigned depth,
                               avo_error *error) {
    if (node->kind == JSON_BOOLEAN)
        return AVO_OK;
    if (node->kind != JSON_OBJECT)
        return refuse(node, "a schema", "an object, true or false", error);
    if (depth > SCHEMA_DEPTH_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "schema: nested deeper than %d",
                           SCHEMA_DEPTH_MAX);
    for (size_t i = 0; i < node->object.count; i++) {
        const json_member *member = &node->object.members[i];
        size_t index = 0, count = sizeof(keywords) / sizeof(keywords[0]);
        while (index < count && !text_is(member->key, keywords[index].name))
            index++;
        char shown[JSON_SHOWN_KEY_MAX];
        if (index == count)
            return status_fail(error, AVO_ERROR_UNSUPPORTED,
                               "schema: line %u: keyword \"%s\" is not supported",
                               member->value.line, json_shown_key(member->key, shown));
        AVO_TRY(check_keyword(schema, index, &member->value, depth, error));
    }
    return AVO_OK;
}

void reward_schema_close(reward_schema *schema) {
    if (schema == NULL)
        return;
    for (size_t i = 0; i < schema->pattern_count; i++)
        pattern_close(schema->patterns[i].pattern);
    allocator_give(schema->allocator, schema, sizeof(*schema));
}

avo_status reward_schema_open(const json_value *root, const avo_allocator *allocator,
                              reward_schema **out, avo_error *error) {
    *out = NULL;
    reward_schema *fresh = allocator_take_array(allocator, 1, sizeof(*fresh));
    if (fresh == NULL)
        return status_no_memory(error, "a schema", sizeof(*fresh));
    fresh->allocator = allocator;
    fresh->root = root;
    avo_status status = check_schema(fresh, root, 0, error);
    if (status != AVO_OK) {
        reward_schema_close(fresh);
        return status;
    }
    *out = fresh;
    return AVO_OK;
}
