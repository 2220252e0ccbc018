/* Validates a completion against a JSON schema. The grammar engine (sample/) writes texts that a
 * schema allows, in its own order of properties and with few forms of white space, so it would
 * refuse texts that are valid; this is a validator of parsed values. */
#include "eval/reward_schema_int.h"

#include "base/utf8.h"

#include <math.h>
#include <string.h>

typedef struct validation {
    const reward_schema *schema;
    uint32_t steps_left, pattern_steps_left;
    unsigned depth;
    avo_status status; /* the first failure; then everything is invalid */
    avo_error *error;
} validation;

/* One member of a JSON pointer: ~1 is '/', ~0 is '~'. */
static bool is_key(text_view part, text_view key) {
    size_t at = 0;
    for (size_t i = 0; i < part.size; i++, at++) {
        char c = part.data[i];
        if (c == '~' && i + 1 < part.size && (part.data[i + 1] == '0' || part.data[i + 1] == '1'))
            c = part.data[++i] == '0' ? '~' : '/';
        if (at >= key.size || key.data[at] != c)
            return false;
    }
    return at == key.size;
}

const json_value *reward_schema_resolve(const json_value *root, text_view reference) {
    const json_value *at = root;
    if (!text_take(&reference, "#"))
        return NULL;
    while (reference.size > 0) {
        if (!text_take(&reference, "/") || at->kind != JSON_OBJECT)
            return NULL;
        const char *slash =
            reference.size == 0 ? NULL : memchr(reference.data, '/', reference.size);
        text_view part = {reference.data,
                          slash == NULL ? reference.size : (size_t)(slash - reference.data)};
        reference.data += part.size;
        reference.size -= part.size;
        const json_value *next = NULL;
        for (size_t i = 0; i < at->object.count && next == NULL; i++)
            if (is_key(part, at->object.members[i].key))
                next = &at->object.members[i].value;
        if (next == NULL)
            return NULL;
        at = next;
    }
    return at->kind == JSON_OBJECT || at->kind == JSON_BOOLEAN ? at : NULL;
}

static bool take_step(validation *v) {
    if (v->status != AVO_OK)
        return false;
    if (v->steps_left-- > 0)
        return true;
    v->status =
        status_fail(v->error, AVO_ERROR_LIMIT,
                    "the schema takes more than %d steps on a completion", SCHEMA_STEPS_MAX);
    return false;
}

/* ---- Values ---- */

static bool is_number(const json_value *value) {
    return value->kind == JSON_INTEGER || value->kind == JSON_NUMBER;
}

static double number_of(const json_value *value) {
    return value->kind == JSON_INTEGER ? (double)value->integer : value->number;
}

static bool is_equal(validation *v, const json_value *a, const json_value *b) {
    if (!take_step(v))
        return false;
    if (is_number(a) && is_number(b))
        return a->kind == JSON_INTEGER && b->kind == JSON_INTEGER ? a->integer == b->integer
                                                                  : number_of(a) == number_of(b);
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case JSON_BOOLEAN:
        return a->boolean == b->boolean;
    case JSON_STRING:
        return text_equal(a->string, b->string);
    case JSON_ARRAY:
        if (a->array.count != b->array.count)
            return false;
        for (size_t i = 0; i < a->array.count; i++)
            if (!is_equal(v, &a->array.items[i], &b->array.items[i]))
                return false;
        return true;
    case JSON_OBJECT:
        if (a->object.count != b->object.count)
            return false;
        for (size_t i = 0; i < a->object.count; i++) {
            const json_value *other = json_find_text(b, a->object.members[i].key);
            if (other == NULL || !is_equal(v, &a->object.members[i].value, other))
                return false;
        }
        return true;
    default:
        return true;
    }
}

static bool has_type(const json_value *type, const json_value *value) {
    switch (value->kind) {
    case JSON_NULL:
        return text_is(type->string, "null");
    case JSON_BOOLEAN:
        return text_is(type->string, "boolean");
    case JSON_INTEGER:
        return text_is(type->string, "integer") || text_is(type->string, "number");
    case JSON_NUMBER: /* 1.0 is an integer */
        return text_is(type->string, "number") ||
               (text_is(type->string, "integer") && value->number == floor(value->number));
    case JSON_STRING:
        return text_is(type->string, "string");
    case JSON_ARRAY:
        return text_is(type->string, "array");
    case JSON_OBJECT:
        return text_is(type->string, "object");
    }
    return false;
}

static bool is_of_types(const json_value *types, const json_value *value) {
    if (types->kind != JSON_ARRAY)
        return has_type(types, value);
    for (size_t i = 0; i < types->array.count; i++)
        if (has_type(&types->array.items[i], value))
            return true;
    return false;
}

/* ---- Keywords ---- */

static bool is_valid(validation *v, const json_value *schema, const json_value *value);

static bool count_fits(const json_value *schema, const char *least, const char *most,
                       uint64_t count) {
    const json_value *low = json_find(schema, least), *high = json_find(schema, most);
    return (low == NULL || count >= (uint64_t)low->integer) &&
           (high == NULL || count <= (uint64_t)high->integer);
}

static bool number_fits(const json_value *schema, const json_value *value) {
    double number = number_of(value);
    const json_value *bound;
    if ((bound = json_find(schema, "minimum")) != NULL && number < number_of(bound))
        return false;
    if ((bound = json_find(schema, "maximum")) != NULL && number > number_of(bound))
        return false;
    if ((bound = json_find(schema, "exclusiveMinimum")) != NULL && number <= number_of(bound))
        return false;
    if ((bound = json_find(schema, "exclusiveMaximum")) != NULL && number >= number_of(bound))
        return false;
    if ((bound = json_find(schema, "multipleOf")) == NULL)
        return true;
    if (bound->kind == JSON_INTEGER && value->kind == JSON_INTEGER)
        return value->integer % bound->integer == 0;
    double quotient = number / number_of(bound); /* 0.3 is a multiple of 0.1 */
    return fabs(quotient - nearbyint(quotient)) <= 1e-9 * fmax(1.0, fabs(quotient));
}

static bool string_fits(validation *v, const json_value *schema, text_view text) {
    uint64_t characters = 0;
    for (size_t i = 0; i < text.size; i++)
        characters += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    if (!count_fits(schema, "minLength", "maxLength", characters))
        return false;
    const json_value *pattern = json_find(schema, "pattern");
    for (size_t i = 0; pattern != NULL && i < v->schema->pattern_count; i++) {
        const schema_pattern *known = &v->schema->patterns[i];
        if (known->at != pattern)
            continue;
        bool found = false;
        v->status = pattern_test(known->pattern, text, &v->pattern_steps_left, &found, v->error);
        return v->status == AVO_OK && found;
    }
    return true;
}

static bool array_fits(validation *v, const json_value *schema, const json_value *value) {
    const json_value *prefix = json_find(schema, "prefixItems"),
                     *items = json_find(schema, "items");
    const json_value *unique = json_find(schema, "uniqueItems");
    size_t count = value->array.count;
    if (!count_fits(schema, "minItems", "maxItems", count))
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_value *wanted = json_item(prefix, i);
        if (wanted == NULL)
            wanted = items;
        if (wanted != NULL && !is_valid(v, wanted, &value->array.items[i]))
            return false;
    }
    if (unique != NULL && unique->boolean)
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < i; j++)
                if (is_equal(v, &value->array.items[i], &value->array.items[j]) ||
                    v->status != AVO_OK)
                    return false;
    return true;
}

static bool object_fits(validation *v, const json_value *schema, const json_value *value) {
    const json_value *properties = json_find(schema, "properties");
    const json_value *others = json_find(schema, "additionalProperties");
    const json_value *required = json_find(schema, "required");
    if (!count_fits(schema, "minProperties", "maxProperties", value->object.count))
        return false;
    for (size_t i = 0; required != NULL && i < required->array.count; i++)
        if (!take_step(v) || json_find_text(value, required->array.items[i].string) == NULL)
            return false;
    for (size_t i = 0; i < value->object.count; i++) {
        const json_member *member = &value->object.members[i];
        const json_value *wanted = json_find_text(properties, member->key);
        if (wanted == NULL)
            wanted = others;
        if (wanted != NULL && !is_valid(v, wanted, &member->value))
            return false;
    }
    return true;
}

static bool fits_choices(validation *v, const json_value *schema, const json_value *value) {
    const json_value *all = json_find(schema, "allOf"), *any = json_find(schema, "anyOf");
    const json_value *one = json_find(schema, "oneOf"), *none = json_find(schema, "not");
    for (size_t i = 0; all != NULL && i < all->array.count; i++)
        if (!is_valid(v, &all->array.items[i], value))
            return false;
    bool found = any == NULL;
    for (size_t i = 0; !found && i < any->array.count; i++)
        found = is_valid(v, &any->array.items[i], value);
    if (!found || (none != NULL && is_valid(v, none, value)))
        return false;
    size_t valid = one == NULL;
    for (size_t i = 0; one != NULL && i < one->array.count; i++)
        valid += is_valid(v, &one->array.items[i], value);
    return valid == 1 && v->status == AVO_OK;
}

static bool is_listed(validation *v, const json_value *schema, const json_value *value) {
    const json_value *only = json_find(schema, "const"), *list = json_find(schema, "enum");
    if (only != NULL && !is_equal(v, only, value))
        return false;
    for (size_t i = 0; list != NULL && i < list->array.count; i++)
        if (is_equal(v, &list->array.items[i], value))
            return true;
    return list == NULL;
}

static bool fits(validation *v, const json_value *schema, const json_value *value) {
    const json_value *types = json_find(schema, "type"), *other = json_find(schema, "$ref");
    if ((types != NULL && !is_of_types(types, value)) || !is_listed(v, schema, value))
        return false;
    if (other != NULL && !is_valid(v, reward_schema_resolve(v->schema->root, other->string), value))
        return false;
    if (is_number(value) && !number_fits(schema, value))
        return false;
    if (value->kind == JSON_STRING && !string_fits(v, schema, value->string))
        return false;
    if (value->kind == JSON_ARRAY && !array_fits(v, schema, value))
        return false;
    if (value->kind == JSON_OBJECT && !object_fits(v, schema, value))
        return false;
    return fits_choices(v, schema, value);
}

static bool is_valid(validation *v, const json_value *schema, const json_value *value) {
    if (!take_step(v))
        return false;
    if (schema->kind == JSON_BOOLEAN)
        return schema->boolean;
    if (v->depth == SCHEMA_DEPTH_MAX) {
        v->status = status_fail(v->error, AVO_ERROR_LIMIT,
                                "the schema nests deeper than %d on a completion; does a $ref lead "
                                "to itself?",
                                SCHEMA_DEPTH_MAX);
        return false;
    }
    v->depth++;
    bool valid = fits(v, schema, value);
    v->depth--;
    return valid && v->status == AVO_OK;
}

avo_status reward_schema_check(const reward_schema *schema, text_view text, bool *valid,
                               avo_error *error) {
    arena arena;
    json_value value;
    *valid = false;
    arena_init(&arena, schema->allocator, 64 * SCHEMA_TEXT_MAX);
    avo_status status =
        text.size > SCHEMA_TEXT_MAX ? AVO_ERROR_FORMAT : json_parse(&arena, text, &value, NULL);
    validation v = {.schema = schema,
                    .steps_left = SCHEMA_STEPS_MAX,
                    .pattern_steps_left = REWARD_PATTERN_STEPS,
                    .error = error};
    if (status == AVO_OK)
        *valid = is_valid(&v, schema->root, &value);
    arena_free(&arena);
    if (status == AVO_ERROR_MEMORY)
        return status_no_memory(error, "a completion's JSON", text.size);
    return v.status;
}
