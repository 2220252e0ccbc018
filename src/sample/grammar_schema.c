/* JSON schemas become rules for the texts of values that they accept. What is written may be fewer
 * texts than a validator would take (one order of properties, bounded white space), never more: a
 * keyword that is not understood is refused by name. docs/grammar.md lists them.
 */
#include "sample/grammar_schema_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const key_texts[] = {
#define SCHEMA_KEY_TEXT(name, text, types) text,
    SCHEMA_KEYWORDS(SCHEMA_KEY_TEXT)
#undef SCHEMA_KEY_TEXT
};
static const uint32_t key_types[] = {
#define SCHEMA_KEY_TYPES(name, text, types) types,
    SCHEMA_KEYWORDS(SCHEMA_KEY_TYPES)
#undef SCHEMA_KEY_TYPES
};

/* They say nothing about which values are valid. */
static const char *const annotations[] = {
    "title",     "description",      "default",         "examples",     "example",    "$schema",
    "$id",       "$comment",         "$defs",           "definitions",  "deprecated", "readOnly",
    "writeOnly", "contentMediaType", "contentEncoding", "discriminator"};

const char *schema_key_text(schema_key key) {
    return key_texts[key];
}

avo_status schema_refuse(const schema *s, const json_value *at, const char *format, ...) {
    char what[400];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    return status_fail(s->rules->error, AVO_ERROR_UNSUPPORTED, "schema, line %u: %s", at->line,
                       what);
}

/* ---- Keywords ---- */

static bool is_annotation(text_view key) {
    for (size_t i = 0; i < sizeof(annotations) / sizeof(annotations[0]); i++)
        if (text_is(key, annotations[i]))
            return true;
    return false;
}

/* Keywords that are understood only where they ask for nothing. */
static bool asks_nothing(const json_member *member) {
    const json_value *value = &member->value;
    return text_is(member->key, "uniqueItems") && value->kind == JSON_BOOLEAN && !value->boolean;
}

avo_status schema_keywords(const schema *s, const json_value *value, keywords *out) {
    *out = (keywords){.source = value};
    AVO_TRY(schema_work(s, (value->object.count + 1) * KEY_COUNT));
    for (size_t i = 0; i < value->object.count; i++) {
        const json_member *member = &value->object.members[i];
        uint32_t key = 0;
        while (key < KEY_COUNT && !text_is(member->key, key_texts[key]))
            key++;
        if (key < KEY_COUNT) {
            out->value[key] = &member->value;
            out->present |= KEY_BIT(key);
        } else if (!is_annotation(member->key) && !asks_nothing(member)) {
            return schema_refuse(s, &member->value, "keyword \"%.*s\" is not supported",
                                 TEXT_ARGUMENT(member->key));
        }
    }
    return AVO_OK;
}

avo_status schema_count(const schema *s, const keywords *k, schema_key key, uint32_t absent,
                        uint32_t *count) {
    const json_value *value = k->value[key];
    *count = absent;
    if (value == NULL)
        return AVO_OK;
    int64_t number = value->kind == JSON_INTEGER ? value->integer : -1;
    if (value->kind == JSON_NUMBER && value->number >= 0.0 && value->number < 1e9 &&
        value->number == (double)(int64_t)value->number)
        number = (int64_t)value->number;
    if (number < 0)
        return schema_refuse(s, value, "%s must be a non-negative integer", key_texts[key]);
    if (number > GRAMMAR_REPEAT_MAX)
        return status_fail(s->rules->error, AVO_ERROR_LIMIT,
                           "schema, line %u: %s must be at most %u", value->line, key_texts[key],
                           GRAMMAR_REPEAT_MAX);
    *count = (uint32_t)number;
    return AVO_OK;
}

/* ---- Types ---- */

static avo_status one_type(const schema *s, const json_value *name, uint32_t *types) {
    static const struct {
        const char *name;
        uint32_t type;
    } known[] = {{"null", TYPE_NULL},    {"boolean", TYPE_BOOLEAN}, {"object", TYPE_OBJECT},
                 {"array", TYPE_ARRAY},  {"string", TYPE_STRING},   {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMBER}};
    for (size_t i = 0; name->kind == JSON_STRING && i < sizeof(known) / sizeof(known[0]); i++)
        if (text_is(name->string, known[i].name)) {
            *types |= known[i].type;
            return AVO_OK;
        }
    return schema_refuse(s, name,
                         "unknown type; the types are null, boolean, object, array, string, "
                         "integer and number");
}

avo_status schema_types(const schema *s, const keywords *k, uint32_t *types) {
    const json_value *type = k->value[KEY_TYPE];
    *types = 0;
    if (type == NULL) {
        /* Keywords of a type mean that type: fewer values than without one, and all of them fit. */
        for (uint32_t key = 0; key < KEY_COUNT; key++)
            if (k->present & KEY_BIT(key))
                *types |= key_types[key];
        if (*types == 0)
            *types = TYPE_ANY;
        return AVO_OK;
    }
    if (type->kind != JSON_ARRAY)
        return one_type(s, type, types);
    for (size_t i = 0; i < type->array.count; i++)
        AVO_TRY(one_type(s, &type->array.items[i], types));
    if (*types == 0)
        return schema_refuse(s, type, "the list of types is empty");
    return AVO_OK;
}

/* ---- References ---- */

/* "~1" is '/', "~0" is '~', "%25" and the like as in addresses. */
static size_t unescape_step(text_view pointer, char *out, size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < pointer.size && count < capacity; i++) {
        char c = pointer.data[i];
        if (c == '~' && i + 1 < pointer.size) {
            c = pointer.data[++i] == '1' ? '/' : '~';
        } else if (c == '%' && i + 2 < pointer.size) {
            char digits[3] = {pointer.data[i + 1], pointer.data[i + 2], '\0'};
            char *end = digits;
            unsigned long value = strtoul(digits, &end, 16);
            if (end == digits + 2) {
                c = (char)value;
                i += 2;
            }
        }
        out[count++] = c;
    }
    return count;
}

static const json_value *step_into(const json_value *at, text_view key) {
    if (at->kind != JSON_ARRAY)
        return json_find_text(at, key);
    size_t index = 0;
    for (size_t i = 0; i < key.size; i++) {
        if (key.data[i] < '0' || key.data[i] > '9' || i > 6)
            return NULL;
        index = index * 10 + (size_t)(key.data[i] - '0');
    }
    return key.size == 0 ? NULL : json_item(at, index);
}

avo_status schema_resolve(const schema *s, const json_value *ref, const json_value **target) {
    if (ref->kind != JSON_STRING || ref->string.size == 0 || ref->string.data[0] != '#')
        return schema_refuse(s, ref, "$ref must point into this schema (\"#/$defs/…\")");
    text_view rest = {ref->string.data + 1, ref->string.size - 1};
    const json_value *at = &s->root;
    while (at != NULL && rest.size > 0) {
        char step[256];
        if (rest.data[0] != '/')
            return schema_refuse(s, ref, "$ref \"%.*s\": anchors are not supported",
                                 TEXT_ARGUMENT(ref->string));
        rest.data++;
        rest.size--;
        size_t length = 0;
        while (length < rest.size && rest.data[length] != '/')
            length++;
        AVO_TRY(schema_work(s, 1 + (at->kind == JSON_OBJECT ? at->object.count : 0)));
        size_t bytes = unescape_step((text_view){rest.data, length}, step, sizeof(step));
        at = step_into(at, (text_view){step, bytes});
        rest.data += length;
        rest.size -= length;
    }
    if (at == NULL)
        return schema_refuse(s, ref, "$ref \"%.*s\": no such schema", TEXT_ARGUMENT(ref->string));
    *target = at;
    return AVO_OK;
}

/* Each target is one rule, however often it is named, so that it may name itself. */
static avo_status read_ref(schema *s, const keywords *k, const expression **out) {
    const json_value *target = NULL;
    AVO_TRY(schema_resolve(s, k->value[KEY_REF], &target));
    uint32_t at = 0;
    while (at < s->ref_count && s->refs[at].target != target)
        at++;
    if (at == SCHEMA_REFS_MAX)
        return status_fail(s->rules->error, AVO_ERROR_LIMIT,
                           "schema: more than %u different $ref targets", SCHEMA_REFS_MAX);
    if (at == s->ref_count) {
        const expression *body = NULL;
        uint32_t rule = 0;
        AVO_TRY(grammar_rule_add(s->rules, k->value[KEY_REF]->string, &rule));
        s->refs[s->ref_count++] = (schema_ref){target, rule};
        AVO_TRY(schema_read(s, target, &body));
        s->rules->rules[rule].body = body;
    }
    *out = expression_rule(s->rules, s->refs[at].rule);
    return schema_made(s, *out);
}

/* ---- Values as they are ---- */

static uint32_t type_of(const json_value *value) {
    static const uint32_t types[] = {TYPE_NULL,   TYPE_BOOLEAN, TYPE_INTEGER | TYPE_NUMBER,
                                     TYPE_NUMBER, TYPE_STRING,  TYPE_ARRAY,
                                     TYPE_OBJECT};
    /* From 2^53 on every double is whole; more than an int64_t holds must not become one. */
    if (value->kind == JSON_NUMBER && (value->number >= 0x1p53 || value->number <= -0x1p53 ||
                                       value->number == (double)(int64_t)value->number))
        return TYPE_INTEGER | TYPE_NUMBER;
    return types[value->kind];
}

static avo_status read_value(schema *s, const json_value *value, const expression **out) {
    buffer text;
    buffer_init(&text, s->rules->arena->allocator, GRAMMAR_TEXT_MAX);
    avo_status status = json_write_value(&text, value);
    if (status != AVO_OK)
        status = status_no_memory(s->rules->error, "a schema", text.size);
    if (status == AVO_OK) {
        *out = expression_bytes(s->rules, buffer_text(&text));
        status = schema_made(s, *out);
    }
    buffer_free(&text);
    return status;
}

/* The values of enum, or the one of const, that have one of the types. */
static avo_status read_values(schema *s, const keywords *k, const expression **out) {
    const json_value *list = k->value[KEY_ENUM];
    uint32_t types = TYPE_ANY;
    uint32_t both = KEY_BIT(KEY_ENUM) | KEY_BIT(KEY_CONST);
    uint32_t others = k->present & ~(both | KEY_BIT(KEY_TYPE));
    if (others != 0 || (k->present & both) == both)
        return schema_refuse(s, k->source, "enum and const can be combined with type only");
    if (k->value[KEY_TYPE] != NULL)
        AVO_TRY(schema_types(s, k, &types));
    if (list == NULL) {
        if (!(type_of(k->value[KEY_CONST]) & types))
            return schema_refuse(s, k->source, "const does not have the type given by \"type\"");
        return read_value(s, k->value[KEY_CONST], out);
    }
    if (list->kind != JSON_ARRAY || list->array.count == 0)
        return schema_refuse(s, list, "enum must be a non-empty list");
    expression_items items = {NULL, 0, 0};
    for (size_t i = 0; i < list->array.count; i++) {
        const expression *item = NULL;
        if (!(type_of(&list->array.items[i]) & types))
            continue;
        AVO_TRY(read_value(s, &list->array.items[i], &item));
        AVO_TRY(expression_items_add(s->rules, &items, item));
    }
    if (items.count == 0)
        return schema_refuse(s, list, "no value of enum has the type given by \"type\"");
    *out = expression_list(s->rules, EXPRESSION_CHOICE, items.items, items.count);
    return schema_made(s, *out);
}

/* ---- Several schemas ---- */

static avo_status check_list(const schema *s, const json_value *list, schema_key key) {
    if (list->kind == JSON_ARRAY && list->array.count > 0)
        return AVO_OK;
    return schema_refuse(s, list, "%s must be a non-empty list", key_texts[key]);
}

/* The schema without one of its keywords. */
static avo_status without(schema *s, const json_value *value, schema_key key, json_value *rest) {
    *rest = (json_value){.kind = JSON_OBJECT, .line = value->line};
    rest->object.members =
        arena_take_array(s->rules->arena, value->object.count, sizeof(json_member));
    if (rest->object.members == NULL)
        return status_no_memory(s->rules->error, "a schema", value->object.count);
    for (size_t i = 0; i < value->object.count; i++)
        if (!text_is(value->object.members[i].key, key_texts[key]))
            rest->object.members[rest->object.count++] = value->object.members[i];
    return AVO_OK;
}

/* What a schema of a list is together with the keywords beside the list. */
static avo_status beside(schema *s, const json_value *rest, bool more, const json_value *item,
                         json_value *out) {
    if (more)
        return schema_merge(s, rest, item, out);
    *out = *item;
    return AVO_OK;
}

static avo_status check_one_of(schema *s, const json_value *list) {
    for (size_t i = 0; i < list->array.count; i++)
        for (size_t j = i + 1; j < list->array.count; j++) {
            bool disjoint = false;
            AVO_TRY(schema_disjoint(s, &list->array.items[i], &list->array.items[j], 0, &disjoint));
            if (!disjoint)
                return schema_refuse(s, list,
                                     "oneOf: schemas %zu and %zu may both accept a value; use "
                                     "anyOf, or a property with different constants",
                                     i + 1, j + 1);
        }
    return AVO_OK;
}

static avo_status read_choice(schema *s, const keywords *k, schema_key key,
                              const expression **out) {
    const json_value *list = k->value[key];
    AVO_TRY(check_list(s, list, key));
    if (key == KEY_ONE_OF)
        AVO_TRY(check_one_of(s, list));
    json_value rest;
    AVO_TRY(without(s, k->source, key, &rest));
    bool more = (k->present & ~KEY_BIT(key)) != 0;
    expression_items items = {NULL, 0, 0};
    for (size_t i = 0; i < list->array.count; i++) {
        const expression *item = NULL;
        json_value *merged = arena_take(s->rules->arena, sizeof(*merged));
        if (merged == NULL)
            return status_no_memory(s->rules->error, "a schema", sizeof(*merged));
        AVO_TRY(beside(s, &rest, more, &list->array.items[i], merged));
        AVO_TRY(schema_read(s, more ? merged : &list->array.items[i], &item));
        AVO_TRY(expression_items_add(s->rules, &items, item));
    }
    *out = expression_list(s->rules, EXPRESSION_CHOICE, items.items, items.count);
    return schema_made(s, *out);
}

static avo_status read_all_of(schema *s, const keywords *k, const expression **out) {
    const json_value *list = k->value[KEY_ALL_OF];
    AVO_TRY(check_list(s, list, KEY_ALL_OF));
    json_value *merged = arena_take(s->rules->arena, sizeof(*merged));
    if (merged == NULL)
        return status_no_memory(s->rules->error, "a schema", sizeof(*merged));
    if (k->present == KEY_BIT(KEY_ALL_OF) && list->array.count == 1)
        return schema_read(s, &list->array.items[0], out);
    AVO_TRY(without(s, k->source, KEY_ALL_OF, merged));
    for (size_t i = 0; i < list->array.count; i++) {
        json_value both;
        AVO_TRY(schema_merge(s, merged, &list->array.items[i], &both));
        *merged = both;
    }
    return schema_read(s, merged, out);
}

/* ---- One schema ---- */

static avo_status read_type(schema *s, const keywords *k, uint32_t type, const expression **out) {
    switch (type) {
    case TYPE_NULL:
        *out = expression_text(s->rules, "null");
        return schema_made(s, *out);
    case TYPE_BOOLEAN:
        *out = expression_choice(s->rules, expression_text(s->rules, "true"),
                                 expression_text(s->rules, "false"), NULL, NULL);
        return schema_made(s, *out);
    case TYPE_OBJECT:
        return schema_object(s, k, out);
    case TYPE_ARRAY:
        return schema_array(s, k, out);
    case TYPE_STRING:
        return schema_string(s, k, out);
    default:
        return schema_number(s, k, type == TYPE_INTEGER, out);
    }
}

static avo_status read_types(schema *s, const keywords *k, const expression **out) {
    uint32_t types = 0;
    AVO_TRY(schema_types(s, k, &types));
    if (types & TYPE_NUMBER)
        types &= ~(uint32_t)TYPE_INTEGER;
    expression_items items = {NULL, 0, 0};
    for (uint32_t type = 1; type < TYPE_ANY; type *= 2) {
        const expression *item = NULL;
        if (!(types & type))
            continue;
        AVO_TRY(read_type(s, k, type, &item));
        AVO_TRY(expression_items_add(s->rules, &items, item));
    }
    *out = expression_list(s->rules, EXPRESSION_CHOICE, items.items, items.count);
    return schema_made(s, *out);
}

static avo_status read_one(schema *s, const json_value *value, const expression **out) {
    keywords k;
    if (value->kind == JSON_BOOLEAN && value->boolean)
        return json_any(s, out);
    if (value->kind == JSON_BOOLEAN) {
        *out = expression_list(s->rules, EXPRESSION_CHOICE, NULL, 0); /* nothing fits */
        return schema_made(s, *out);
    }
    if (value->kind != JSON_OBJECT)
        return schema_refuse(s, value, "a schema must be an object, true or false");
    AVO_TRY(schema_keywords(s, value, &k));
    if (k.present == 0)
        return json_any(s, out);
    if (k.value[KEY_ALL_OF] != NULL ||
        (k.value[KEY_REF] != NULL && k.present != KEY_BIT(KEY_REF))) {
        if (k.value[KEY_ALL_OF] != NULL)
            return read_all_of(s, &k, out);
        json_value *merged = arena_take(s->rules->arena, 2 * sizeof(*merged));
        if (merged == NULL)
            return status_no_memory(s->rules->error, "a schema", sizeof(*merged));
        const json_value *target = NULL;
        AVO_TRY(schema_resolve(s, k.value[KEY_REF], &target));
        AVO_TRY(without(s, value, KEY_REF, &merged[0]));
        AVO_TRY(schema_merge(s, &merged[0], target, &merged[1]));
        return schema_read(s, &merged[1], out);
    }
    if (k.value[KEY_REF] != NULL)
        return read_ref(s, &k, out);
    if (k.value[KEY_ANY_OF] != NULL)
        return read_choice(s, &k, KEY_ANY_OF, out);
    if (k.value[KEY_ONE_OF] != NULL)
        return read_choice(s, &k, KEY_ONE_OF, out);
    if (k.value[KEY_ENUM] != NULL || k.value[KEY_CONST] != NULL)
        return read_values(s, &k, out);
    return read_types(s, &k, out);
}

avo_status schema_read(schema *s, const json_value *value, const expression **out) {
    if (++s->depth > SCHEMA_DEPTH_MAX)
        return status_fail(
            s->rules->error, AVO_ERROR_LIMIT,
            "schema, line %u: schemas are nested more than %u levels deep, references included",
            value->line, SCHEMA_DEPTH_MAX);
    AVO_TRY(read_one(s, value, out));
    s->depth--;
    return AVO_OK;
}

/* ---- The whole ---- */

static avo_status open(grammar_rules *rules, schema **out) {
    schema *s = arena_take(rules->arena, sizeof(*s));
    if (s == NULL)
        return status_no_memory(rules->error, "a schema", sizeof(*s));
    s->rules = rules;
    s->space = s->string = s->value = s->object = s->array = s->number = s->integer = UINT32_MAX;
    *out = s;
    return grammar_rule_add(rules, TEXT_LITERAL("the schema"), &rules->root);
}

avo_status grammar_read_schema(grammar_rules *rules, text_view text) {
    schema *s = NULL;
    const expression *body = NULL;
    AVO_TRY(open(rules, &s));
    avo_status status = json_parse(rules->arena, text, &s->root, rules->error);
    if (status != AVO_OK)
        return status_prefix(rules->error, status, "schema");
    s->refs[s->ref_count++] = (schema_ref){&s->root, rules->root};
    AVO_TRY(schema_read(s, &s->root, &body));
    rules->rules[rules->root].body = body;
    return AVO_OK;
}

avo_status grammar_read_json(grammar_rules *rules) {
    schema *s = NULL;
    const expression *body = NULL;
    AVO_TRY(open(rules, &s));
    AVO_TRY(json_any_object(s, &body));
    rules->rules[rules->root].body = body;
    return AVO_OK;
}
