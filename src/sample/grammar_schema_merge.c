/* Two schemas at once (allOf, keywords beside anyOf or $ref), and two that exclude each other
 * (oneOf). */
#include "sample/grammar_schema_int.h"

static avo_status no_memory(const schema *s) {
    return status_no_memory(s->rules->error, "a schema", sizeof(json_value));
}

/* ---- Merging ---- */

static const json_member *find(const json_value *object, text_view key) {
    for (size_t i = 0; i < object->object.count; i++)
        if (text_equal(object->object.members[i].key, key))
            return &object->object.members[i];
    return NULL;
}

/* {"allOf": [a, b]}, to be merged when it is read. */
static avo_status both_of(schema *s, const json_value *a, const json_value *b, json_value *out) {
    json_member *member = arena_take(s->rules->arena, sizeof(*member));
    json_value *items = arena_take_array(s->rules->arena, 2, sizeof(*items));
    if (member == NULL || items == NULL)
        return no_memory(s);
    items[0] = *a;
    items[1] = *b;
    member->key = TEXT_LITERAL("allOf");
    member->value = (json_value){.kind = JSON_ARRAY, .line = a->line};
    member->value.array.items = items;
    member->value.array.count = 2;
    *out = (json_value){.kind = JSON_OBJECT, .line = a->line};
    out->object.members = member;
    out->object.count = 1;
    return AVO_OK;
}

static avo_status merge_properties(schema *s, const json_value *a, const json_value *b,
                                   json_value *out) {
    if (a->kind != JSON_OBJECT || b->kind != JSON_OBJECT)
        return schema_refuse(s, b, "properties must be an object");
    size_t most = a->object.count + b->object.count;
    AVO_TRY(schema_work(s, most + 2 * (uint64_t)a->object.count * b->object.count));
    *out = (json_value){.kind = JSON_OBJECT, .line = a->line};
    out->object.members = arena_take_array(s->rules->arena, most + 1, sizeof(json_member));
    if (out->object.members == NULL)
        return no_memory(s);
    for (size_t i = 0; i < a->object.count; i++) {
        json_member *member = &out->object.members[out->object.count++];
        const json_member *other = find(b, a->object.members[i].key);
        *member = a->object.members[i];
        if (other != NULL)
            AVO_TRY(both_of(s, &a->object.members[i].value, &other->value, &member->value));
    }
    for (size_t i = 0; i < b->object.count; i++)
        if (find(a, b->object.members[i].key) == NULL)
            out->object.members[out->object.count++] = b->object.members[i];
    return AVO_OK;
}

static avo_status merge_required(schema *s, const json_value *a, const json_value *b,
                                 json_value *out) {
    if (a->kind != JSON_ARRAY || b->kind != JSON_ARRAY)
        return schema_refuse(s, b, "required must be a list");
    size_t most = a->array.count + b->array.count;
    AVO_TRY(schema_work(s, most));
    *out = (json_value){.kind = JSON_ARRAY, .line = a->line};
    out->array.items = arena_take_array(s->rules->arena, most + 1, sizeof(json_value));
    if (out->array.items == NULL)
        return no_memory(s);
    memcpy(out->array.items, a->array.items, a->array.count * sizeof(json_value));
    out->array.count = a->array.count;
    for (size_t i = 0; i < b->array.count; i++)
        out->array.items[out->array.count++] = b->array.items[i];
    return AVO_OK;
}

static bool is_number(const json_value *value) {
    return value->kind == JSON_INTEGER || value->kind == JSON_NUMBER;
}

static double number_of(const json_value *value) {
    return value->kind == JSON_INTEGER ? (double)value->integer : value->number;
}

static avo_status same_value(schema *s, const json_value *a, const json_value *b, bool *same);

static avo_status same_members(schema *s, const json_value *a, const json_value *b, bool *same) {
    *same = a->object.count == b->object.count;
    for (size_t i = 0; i < a->object.count && *same; i++) {
        AVO_TRY(schema_work(s, b->object.count));
        const json_member *other = find(b, a->object.members[i].key);
        *same = other != NULL;
        if (other != NULL)
            AVO_TRY(same_value(s, &a->object.members[i].value, &other->value, same));
    }
    return AVO_OK;
}

/* 1 and 1.0 are the same, and so are objects whose members stand in another order. */
static avo_status same_value(schema *s, const json_value *a, const json_value *b, bool *same) {
    AVO_TRY(schema_work(s, 1));
    if (is_number(a) && is_number(b)) {
        bool whole = a->kind == JSON_INTEGER && b->kind == JSON_INTEGER;
        *same = whole ? a->integer == b->integer : number_of(a) == number_of(b);
        return AVO_OK;
    }
    *same = a->kind == b->kind;
    if (!*same)
        return AVO_OK;
    switch (a->kind) {
    case JSON_BOOLEAN:
        *same = a->boolean == b->boolean;
        return AVO_OK;
    case JSON_STRING:
        *same = text_equal(a->string, b->string);
        return schema_work(s, *same ? a->string.size / 16 : 0);
    case JSON_ARRAY:
        *same = a->array.count == b->array.count;
        for (size_t i = 0; i < a->array.count && *same; i++)
            AVO_TRY(same_value(s, &a->array.items[i], &b->array.items[i], same));
        return AVO_OK;
    case JSON_OBJECT:
        return same_members(s, a, b, same);
    default: /* null; numbers were above */
        return AVO_OK;
    }
}

/* The types that both lists have. */
static avo_status merge_types(schema *s, const json_value *a, const json_value *b,
                              json_value *out) {
    static const char *const names[] = {"null",   "boolean", "object", "array",
                                        "string", "integer", "number"};
    uint32_t types[2];
    const json_value *values[] = {a, b};
    for (int i = 0; i < 2; i++) {
        keywords k = {.present = KEY_BIT(KEY_TYPE)};
        k.value[KEY_TYPE] = values[i];
        AVO_TRY(schema_types(s, &k, &types[i]));
        if (types[i] & TYPE_NUMBER)
            types[i] |= TYPE_INTEGER;
    }
    uint32_t both = types[0] & types[1];
    *out = (json_value){.kind = JSON_ARRAY, .line = a->line};
    out->array.items = arena_take_array(s->rules->arena, 7, sizeof(json_value));
    if (out->array.items == NULL)
        return no_memory(s);
    for (size_t i = 0; i < 7; i++)
        if (both & 1u << i) {
            json_value *name = &out->array.items[out->array.count++];
            *name = (json_value){.kind = JSON_STRING, .line = a->line};
            name->string = text_from(names[i]);
        }
    if (both == 0)
        return schema_refuse(s, a, "allOf: no type satisfies all of them");
    return AVO_OK;
}

static avo_status merge_keyword(schema *s, const json_member *a, const json_member *b,
                                json_value *out) {
    if (text_is(a->key, "properties"))
        return merge_properties(s, &a->value, &b->value, out);
    if (text_is(a->key, "required"))
        return merge_required(s, &a->value, &b->value, out);
    if (text_is(a->key, "type"))
        return merge_types(s, &a->value, &b->value, out);
    bool same = false;
    *out = a->value;
    AVO_TRY(same_value(s, &a->value, &b->value, &same));
    if (same)
        return AVO_OK;
    return schema_refuse(s, &b->value, "\"%.*s\" has two different values, which cannot be merged",
                         TEXT_ARGUMENT(a->key));
}

/* Where one of both allows no other properties than its own, the other must not bring any. */
static avo_status check_closed(schema *s, const keywords *closed, const keywords *other) {
    const json_value *additional = closed->value[KEY_ADDITIONAL];
    const json_value *others = other->value[KEY_PROPERTIES];
    if (additional == NULL || (additional->kind == JSON_BOOLEAN && additional->boolean) ||
        others == NULL || others->kind != JSON_OBJECT)
        return AVO_OK;
    const json_value *own = closed->value[KEY_PROPERTIES];
    if (own != NULL && own->kind == JSON_OBJECT)
        AVO_TRY(schema_work(s, (uint64_t)own->object.count * others->object.count));
    for (size_t i = 0; i < others->object.count; i++)
        if (own == NULL || own->kind != JSON_OBJECT ||
            find(own, others->object.members[i].key) == NULL)
            return schema_refuse(
                s, additional,
                "additionalProperties cannot be merged with property \"%.*s\" of another schema",
                TEXT_ARGUMENT(others->object.members[i].key));
    return AVO_OK;
}

static bool is_boolean(const json_value *value, bool boolean) {
    return value->kind == JSON_BOOLEAN && value->boolean == boolean;
}

/* What both say of one item. */
static avo_status both_items(schema *s, const json_value *a, const json_value *b, json_value *out) {
    static const json_value anything = {.kind = JSON_BOOLEAN, .boolean = true};
    a = a == NULL ? &anything : a;
    b = b == NULL ? &anything : b;
    bool same = false;
    AVO_TRY(same_value(s, a, b, &same));
    if (is_boolean(b, true) || is_boolean(a, false) || same)
        *out = *a;
    else if (is_boolean(a, true) || is_boolean(b, false))
        *out = *b;
    else
        return both_of(s, a, b, out);
    return AVO_OK;
}

static const json_value *item_at(const keywords *k, size_t i) {
    const json_value *prefix = k->value[KEY_PREFIX_ITEMS];
    return prefix != NULL && i < prefix->array.count ? &prefix->array.items[i]
                                                     : k->value[KEY_ITEMS];
}

/* items speaks of those behind its own prefixItems, so the two are merged together: place by
 * place, then the rest. */
static avo_status merge_items(schema *s, keywords *a, keywords *b) {
    const uint32_t both = KEY_BIT(KEY_ITEMS) | KEY_BIT(KEY_PREFIX_ITEMS);
    size_t count = 0;
    keywords *sides[] = {a, b};
    if ((a->present & both) == 0 || (b->present & both) == 0)
        return AVO_OK;
    for (int i = 0; i < 2; i++) {
        const json_value *prefix = sides[i]->value[KEY_PREFIX_ITEMS];
        const json_value *items = sides[i]->value[KEY_ITEMS];
        if (prefix != NULL &&
            (prefix->kind != JSON_ARRAY || prefix->array.count > SCHEMA_PREFIX_MAX))
            return schema_refuse(s, prefix, "prefixItems must be a list of at most %u schemas",
                                 SCHEMA_PREFIX_MAX);
        if (items != NULL && items->kind != JSON_OBJECT && items->kind != JSON_BOOLEAN)
            return schema_refuse(s, items, "items must be a schema; use prefixItems for a list");
        if (prefix != NULL && prefix->array.count > count)
            count = prefix->array.count;
    }
    json_value *values = arena_take_array(s->rules->arena, count + 2, sizeof(*values));
    if (values == NULL)
        return no_memory(s);
    for (size_t i = 0; i < count; i++)
        AVO_TRY(both_items(s, item_at(a, i), item_at(b, i), &values[i]));
    json_value *prefix = &values[count];
    json_value *rest = &values[count + 1];
    *prefix = (json_value){.kind = JSON_ARRAY, .line = a->source->line};
    prefix->array.items = values;
    prefix->array.count = count;
    AVO_TRY(both_items(s, a->value[KEY_ITEMS], b->value[KEY_ITEMS], rest));
    a->value[KEY_PREFIX_ITEMS] = count > 0 ? prefix : NULL;
    a->value[KEY_ITEMS] = rest;
    b->value[KEY_PREFIX_ITEMS] = b->value[KEY_ITEMS] = NULL;
    return AVO_OK;
}

/* A schema that is only a reference stands for what it refers to. */
static avo_status follow(schema *s, const json_value **value, keywords *k) {
    for (uint32_t i = 0; i < SCHEMA_MERGE_DEPTH; i++) {
        if ((*value)->kind != JSON_OBJECT)
            return schema_refuse(s, *value, "true and false cannot be merged with other schemas");
        AVO_TRY(schema_keywords(s, *value, k));
        if (k->value[KEY_REF] == NULL)
            return AVO_OK;
        if (k->present != KEY_BIT(KEY_REF))
            return schema_refuse(s, *value, "$ref with other keywords cannot be merged");
        AVO_TRY(schema_resolve(s, k->value[KEY_REF], value));
    }
    return schema_refuse(s, *value, "circular chain of references");
}

avo_status schema_merge(schema *s, const json_value *a, const json_value *b, json_value *out) {
    keywords ka;
    keywords kb;
    if (++s->merges > SCHEMA_MERGES_MAX)
        return status_fail(s->rules->error, AVO_ERROR_LIMIT,
                           "schema: more than %u schemas to merge", SCHEMA_MERGES_MAX);
    AVO_TRY(follow(s, &a, &ka));
    AVO_TRY(follow(s, &b, &kb));
    AVO_TRY(check_closed(s, &ka, &kb));
    AVO_TRY(check_closed(s, &kb, &ka));
    AVO_TRY(merge_items(s, &ka, &kb));
    *out = (json_value){.kind = JSON_OBJECT, .line = b->line};
    size_t most = a->object.count + b->object.count + 1;
    out->object.members = arena_take_array(s->rules->arena, most, sizeof(json_member));
    if (out->object.members == NULL)
        return no_memory(s);
    for (uint32_t key = 0; key < KEY_COUNT; key++) {
        const json_value *first = ka.value[key];
        const json_value *second = kb.value[key];
        if (first == NULL && second == NULL)
            continue;
        json_member *member = &out->object.members[out->object.count++];
        text_view name = text_from(schema_key_text((schema_key)key));
        *member = (json_member){.key = name, .value = first != NULL ? *first : *second};
        if (first != NULL && second != NULL) {
            json_member one = {.key = name, .value = *first};
            json_member other = {.key = name, .value = *second};
            AVO_TRY(merge_keyword(s, &one, &other, &member->value));
        }
    }
    return AVO_OK;
}

/* ---- Excluding each other ---- */

static bool values_of(const keywords *k, const json_value **values, size_t *count) {
    const json_value *list = k->value[KEY_ENUM];
    *values = k->value[KEY_CONST];
    *count = 1;
    if (list != NULL && list->kind == JSON_ARRAY) {
        *values = list->array.items;
        *count = list->array.count;
    }
    return *values != NULL;
}

/* What cannot be looked at may be anything. Where the work was too much, the caller sees that. */
static bool look(schema *s, const json_value *value, keywords *k, uint32_t *types) {
    avo_error kept = *s->rules->error;
    bool fine = follow(s, &value, k) == AVO_OK && schema_types(s, k, types) == AVO_OK;
    if (s->rules->status == AVO_OK)
        *s->rules->error = kept;
    if (!fine ||
        (k->present & (KEY_BIT(KEY_ANY_OF) | KEY_BIT(KEY_ONE_OF) | KEY_BIT(KEY_ALL_OF))) != 0)
        return false;
    if (*types & TYPE_NUMBER)
        *types |= TYPE_INTEGER;
    const json_value *values;
    size_t count;
    if (k->value[KEY_TYPE] != NULL)
        return true;
    *types = TYPE_ANY; /* keywords of one type say nothing about values of others */
    if (!values_of(k, &values, &count))
        return true;
    static const uint32_t kinds[] = {TYPE_NULL,
                                     TYPE_BOOLEAN,
                                     TYPE_INTEGER | TYPE_NUMBER,
                                     TYPE_INTEGER | TYPE_NUMBER,
                                     TYPE_STRING,
                                     TYPE_ARRAY,
                                     TYPE_OBJECT};
    *types = 0;
    for (size_t i = 0; i < count; i++)
        *types |= kinds[values[i].kind];
    return true;
}

static size_t count_of(const json_value *value) {
    return value == NULL                ? 0
           : value->kind == JSON_OBJECT ? value->object.count
           : value->kind == JSON_ARRAY  ? value->array.count
                                        : 0;
}

static bool is_required(const keywords *k, text_view name) {
    const json_value *list = k->value[KEY_REQUIRED];
    for (size_t i = 0; list != NULL && list->kind == JSON_ARRAY && i < list->array.count; i++)
        if (list->array.items[i].kind == JSON_STRING &&
            text_equal(list->array.items[i].string, name))
            return true;
    return false;
}

static const json_value *property(const keywords *k, text_view name) {
    const json_value *properties = k->value[KEY_PROPERTIES];
    if (properties == NULL || properties->kind != JSON_OBJECT)
        return NULL;
    const json_member *member = find(properties, name);
    return member == NULL ? NULL : &member->value;
}

/* A property that `a` demands and `b` forbids, or, with `values`, one that both demand and that can
 * have no value that suits both. */
static avo_status objects_disjoint(schema *s, const keywords *a, const keywords *b, bool values,
                                   uint32_t depth, bool *disjoint) {
    const json_value *list = a->value[KEY_REQUIRED];
    const json_value *demanded = b->value[KEY_REQUIRED];
    const json_value *additional = b->value[KEY_ADDITIONAL];
    bool closed = additional != NULL && additional->kind == JSON_BOOLEAN && !additional->boolean;
    uint64_t names = 1 + count_of(a->value[KEY_PROPERTIES]) + count_of(b->value[KEY_PROPERTIES]) +
                     count_of(demanded);
    *disjoint = false;
    for (size_t i = 0; list != NULL && list->kind == JSON_ARRAY && i < list->array.count; i++) {
        if (list->array.items[i].kind != JSON_STRING)
            return AVO_OK;
        AVO_TRY(schema_work(s, names));
        text_view name = list->array.items[i].string;
        const json_value *own = property(a, name);
        const json_value *other = property(b, name);
        *disjoint = closed && other == NULL;
        if (!*disjoint && values && own != NULL && other != NULL && is_required(b, name))
            AVO_TRY(schema_disjoint(s, own, other, depth + 1, disjoint));
        if (*disjoint)
            return AVO_OK;
    }
    return AVO_OK;
}

static avo_status lists_disjoint(schema *s, const json_value *a, size_t count_a,
                                 const json_value *b, size_t count_b, bool *disjoint) {
    *disjoint = true;
    for (size_t i = 0; i < count_a && *disjoint; i++)
        for (size_t j = 0; j < count_b && *disjoint; j++) {
            bool same = false;
            AVO_TRY(same_value(s, &a[i], &b[j], &same));
            *disjoint = !same;
        }
    return AVO_OK;
}

static avo_status compare(schema *s, const json_value *a, const json_value *b, uint32_t depth,
                          bool *disjoint) {
    keywords ka;
    keywords kb;
    uint32_t types_a = 0;
    uint32_t types_b = 0;
    *disjoint = false;
    if (depth > 8 || !look(s, a, &ka, &types_a) || !look(s, b, &kb, &types_b))
        return s->rules->status;
    uint32_t both = types_a & types_b;
    *disjoint = both == 0;
    if (*disjoint)
        return AVO_OK;
    const json_value *values_a;
    const json_value *values_b;
    size_t count_a;
    size_t count_b;
    if (values_of(&ka, &values_a, &count_a) && values_of(&kb, &values_b, &count_b))
        return lists_disjoint(s, values_a, count_a, values_b, count_b, disjoint);
    if (both != TYPE_OBJECT)
        return AVO_OK;
    AVO_TRY(objects_disjoint(s, &ka, &kb, true, depth, disjoint));
    return *disjoint ? AVO_OK : objects_disjoint(s, &kb, &ka, false, depth, disjoint);
}

/* The slot of a pair, or the empty one where it would be; NULL without memory. */
static schema_pair *find_pair(schema *s, const json_value *a, const json_value *b, uint32_t depth) {
    if (s->pairs == NULL)
        s->pairs = arena_take_array(s->rules->arena, SCHEMA_PAIR_SLOTS, sizeof(*s->pairs));
    if (s->pairs == NULL)
        return NULL;
    uint64_t hash = ((uint64_t)(uintptr_t)a * 31 + (uint64_t)(uintptr_t)b) * 31 + depth;
    uint64_t at = hash * 0x9E3779B97F4A7C15ull >> 40;
    for (;; at++) {
        schema_pair *pair = &s->pairs[at % SCHEMA_PAIR_SLOTS];
        if (pair->a == NULL || (pair->a == a && pair->b == b && pair->depth == depth))
            return pair;
    }
}

avo_status schema_disjoint(schema *s, const json_value *a, const json_value *b, uint32_t depth,
                           bool *disjoint) {
    schema_pair *pair = find_pair(s, a, b, depth);
    if (pair == NULL)
        return no_memory(s);
    if (pair->a != NULL) {
        *disjoint = pair->disjoint;
        return schema_work(s, 1);
    }
    AVO_TRY(compare(s, a, b, depth, disjoint));
    pair = find_pair(s, a, b, depth); /* what was compared on the way may have come before it */
    if (pair->a == NULL && s->pair_count < SCHEMA_PAIRS_MAX) {
        *pair = (schema_pair){a, b, depth, *disjoint};
        s->pair_count++;
    }
    return AVO_OK;
}
