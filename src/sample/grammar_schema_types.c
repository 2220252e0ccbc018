/* Objects, arrays and strings of JSON schemas. */
#include "sample/grammar_schema_int.h"

#include "base/utf8.h"

/* ---- Objects ---- */

static bool required_has(const json_value *required, text_view name) {
    for (size_t i = 0; required != NULL && i < required->array.count; i++)
        if (text_equal(required->array.items[i].string, name))
            return true;
    return false;
}

static avo_status check_object(const schema *s, const keywords *k) {
    const json_value *properties = k->value[KEY_PROPERTIES];
    const json_value *required = k->value[KEY_REQUIRED];
    if (properties != NULL && properties->kind != JSON_OBJECT)
        return schema_refuse(s, properties, "properties must be an object");
    if (required == NULL)
        return AVO_OK;
    if (required->kind != JSON_ARRAY)
        return schema_refuse(s, required, "required must be a list");
    for (size_t i = 0; i < required->array.count; i++)
        if (required->array.items[i].kind != JSON_STRING)
            return schema_refuse(s, required, "required must be a list of names");
    return AVO_OK;
}

static avo_status key_text(schema *s, text_view name, const expression **out) {
    buffer text;
    buffer_init(&text, s->rules->arena->allocator, GRAMMAR_TEXT_MAX * 6);
    avo_status status = json_write_string(&text, name);
    if (status != AVO_OK)
        status = status_no_memory(s->rules->error, "a schema", name.size);
    if (status == AVO_OK) {
        *out = expression_bytes(s->rules, buffer_text(&text));
        status = schema_made(s, *out);
    }
    buffer_free(&text);
    return status;
}

static avo_status add_member(schema *s, text_view name, const json_value *value, bool required,
                             expression_member *member) {
    const expression *key = NULL;
    const expression *content = NULL;
    AVO_TRY(key_text(s, name, &key));
    AVO_TRY(value == NULL ? json_any(s, &content) : schema_read(s, value, &content));
    AVO_TRY(json_pair(s, key, content, &member->item));
    member->required = required;
    return AVO_OK;
}

/* A key that is none of these, each in the one form that strings have: what differs first decides.
 * `names` have the characters before `depth` in common. */
static avo_status other_key(schema *s, const text_view *names, size_t count, uint32_t depth,
                            const expression **out) {
    grammar_rules *r = s->rules;
    expression_items items = {NULL, 0, 0};
    code_set others = {NULL, 0, 0};
    code_set all = {NULL, 0, 0};
    bool ends = false;
    if (depth > SCHEMA_KEY_MAX)
        return status_fail(
            r->error, AVO_ERROR_LIMIT,
            "schema: with additional properties a name can have at most %u characters",
            SCHEMA_KEY_MAX);
    text_view *rest = arena_take_array(r->arena, count + 1, sizeof(*rest));
    if (rest == NULL)
        return status_no_memory(r->error, "a schema", count * sizeof(*rest));
    AVO_TRY(code_set_negate(r, &all));
    for (size_t i = 0; i < count; i++) {
        AVO_TRY(schema_work(s, 1 + count + others.count));
        uint32_t code = 0;
        size_t same = 0;
        size_t bytes = names[i].size == 0 ? 0 : utf8_decode(names[i].data, names[i].size, &code);
        ends = ends || bytes == 0;
        bool done = bytes == 0;
        for (uint32_t j = 0; j < others.count && !done; j++)
            done = others.ranges[j].first == code;
        for (size_t j = i; j < count && !done; j++)
            if (names[j].size >= bytes && memcmp(names[j].data, names[i].data, bytes) == 0)
                rest[same++] = (text_view){names[j].data + bytes, names[j].size - bytes};
        if (done)
            continue;
        const expression *behind = NULL;
        code_range range = {code, code};
        code_set one = {&range, 1, 1};
        AVO_TRY(other_key(s, rest, same, depth + 1, &behind));
        AVO_TRY(code_set_add(r, &others, code, code));
        AVO_TRY(expression_items_add(
            r, &items,
            expression_sequence(r, expression_class(r, &one, true), behind, NULL, NULL)));
    }
    AVO_TRY(code_set_negate(r, &others));
    const expression *anything =
        expression_repeat(r, expression_class(r, &all, true), 0, GRAMMAR_UNBOUNDED);
    AVO_TRY(expression_items_add(
        r, &items,
        expression_sequence(r, expression_class(r, &others, true), anything, NULL, NULL)));
    if (!ends)
        AVO_TRY(expression_items_add(r, &items, expression_text(r, "")));
    *out = expression_list(r, EXPRESSION_CHOICE, items.items, items.count);
    return schema_made(s, *out);
}

/* Properties that have no name here; NULL: none may be. */
static avo_status read_rest(schema *s, const keywords *k, const text_view *names, size_t count,
                            const expression **out) {
    const json_value *additional = k->value[KEY_ADDITIONAL];
    *out = NULL;
    if (additional == NULL ? count > 0 : additional->kind == JSON_BOOLEAN && !additional->boolean)
        return AVO_OK;
    const expression *key = NULL;
    const expression *value = NULL;
    AVO_TRY(additional == NULL ? json_any(s, &value) : schema_read(s, additional, &value));
    if (count == 0) {
        AVO_TRY(json_any_string(s, &key));
    } else {
        grammar_rules *r = s->rules;
        const expression *inside = NULL;
        AVO_TRY(other_key(s, names, count, 0, &inside));
        key = expression_sequence(r, expression_text(r, "\""), inside, expression_text(r, "\""),
                                  NULL);
        AVO_TRY(schema_made(s, key));
    }
    return json_pair(s, key, value, out);
}

avo_status schema_object(schema *s, const keywords *k, const expression **out) {
    const json_value *properties = k->value[KEY_PROPERTIES];
    const json_value *required = k->value[KEY_REQUIRED];
    if (!(k->present & (KEY_BIT(KEY_PROPERTIES) | KEY_BIT(KEY_REQUIRED) | KEY_BIT(KEY_ADDITIONAL))))
        return json_any_object(s, out);
    AVO_TRY(check_object(s, k));
    size_t named = properties == NULL ? 0 : properties->object.count;
    size_t most = named + (required == NULL ? 0 : required->array.count) + 1;
    if (required != NULL)
        AVO_TRY(schema_work(s, most * required->array.count));
    expression_member *members = arena_take_array(s->rules->arena, most, sizeof(*members));
    text_view *names = arena_take_array(s->rules->arena, most, sizeof(*names));
    if (members == NULL || names == NULL)
        return status_no_memory(s->rules->error, "a schema", most * sizeof(*members));
    uint32_t count = 0;
    for (size_t i = 0; i < named; i++, count++) {
        const json_member *member = &properties->object.members[i];
        names[count] = member->key;
        AVO_TRY(add_member(s, member->key, &member->value, required_has(required, member->key),
                           &members[count]));
    }
    /* Required without being described: whatever additional ones may be. */
    const json_value *additional = k->value[KEY_ADDITIONAL];
    for (size_t i = 0; required != NULL && i < required->array.count; i++) {
        text_view name = required->array.items[i].string;
        bool known = false;
        for (uint32_t j = 0; j < count && !known; j++)
            known = text_equal(names[j], name);
        if (known)
            continue;
        names[count] = name;
        AVO_TRY(add_member(s, name, additional, true, &members[count++]));
    }
    const expression *rest = NULL;
    const expression *comma = NULL;
    AVO_TRY(read_rest(s, k, names, count, &rest));
    AVO_TRY(json_comma(s, &comma));
    return json_frame(s, "{", expression_members(s->rules, members, count, comma, rest), "}", out);
}

/* ---- Arrays ---- */

/* Items behind the first `done`, of which there are at least `least` and at most `most` in all. */
static avo_status more_items(schema *s, const expression *item, uint32_t done, uint32_t least,
                             uint32_t most, const expression **out) {
    grammar_rules *r = s->rules;
    const expression *comma = NULL;
    AVO_TRY(json_comma(s, &comma));
    uint32_t low = least > done ? least - done : 0;
    uint32_t high = most == GRAMMAR_UNBOUNDED ? most : most > done ? most - done : 0;
    if (item == NULL || high == 0) {
        *out = low == 0 ? expression_text(r, "") : expression_list(r, EXPRESSION_CHOICE, NULL, 0);
        return schema_made(s, *out);
    }
    /* As a rule it is built once, however many there may be. */
    if (item->kind != EXPRESSION_RULE) {
        uint32_t rule = 0;
        AVO_TRY(grammar_rule_add(r, TEXT_LITERAL("items"), &rule));
        r->rules[rule].body = item;
        item = expression_rule(r, rule);
        AVO_TRY(schema_made(s, item));
    }
    const expression *next = expression_sequence(r, comma, item, NULL, NULL);
    if (done > 0) {
        *out = expression_repeat(r, next, low, high);
        return schema_made(s, *out);
    }
    uint32_t behind = high == GRAMMAR_UNBOUNDED ? high : high - 1;
    const expression *all = expression_sequence(
        r, item, expression_repeat(r, next, low > 0 ? low - 1 : 0, behind), NULL, NULL);
    *out = low > 0 ? all : expression_repeat(r, all, 0, 1);
    return schema_made(s, *out);
}

avo_status schema_array(schema *s, const keywords *k, const expression **out) {
    grammar_rules *r = s->rules;
    const json_value *prefix = k->value[KEY_PREFIX_ITEMS];
    const json_value *items = k->value[KEY_ITEMS];
    uint32_t least;
    uint32_t most;
    AVO_TRY(schema_count(s, k, KEY_MIN_ITEMS, 0, &least));
    AVO_TRY(schema_count(s, k, KEY_MAX_ITEMS, GRAMMAR_UNBOUNDED, &most));
    if (prefix != NULL && (prefix->kind != JSON_ARRAY || prefix->array.count > SCHEMA_PREFIX_MAX))
        return schema_refuse(s, prefix, "prefixItems must be a list of at most %u schemas",
                             SCHEMA_PREFIX_MAX);
    if (items != NULL && items->kind == JSON_ARRAY)
        return schema_refuse(s, items, "items must be a schema; use prefixItems for a list");
    if (!(k->present & (KEY_BIT(KEY_PREFIX_ITEMS) | KEY_BIT(KEY_ITEMS) | KEY_BIT(KEY_MIN_ITEMS) |
                        KEY_BIT(KEY_MAX_ITEMS))))
        return json_any_array(s, out);
    const expression *item = NULL;
    const expression *comma = NULL;
    const expression *inside = NULL;
    bool none = items != NULL && items->kind == JSON_BOOLEAN && !items->boolean;
    if (!none)
        AVO_TRY(items == NULL ? json_any(s, &item) : schema_read(s, items, &item));
    AVO_TRY(json_comma(s, &comma));
    uint32_t fixed = prefix == NULL ? 0 : (uint32_t)prefix->array.count;
    fixed = fixed < most ? fixed : most;
    AVO_TRY(more_items(s, item, fixed, least, most, &inside));
    for (uint32_t i = fixed; i-- > 0;) {
        const expression *here = NULL;
        AVO_TRY(schema_read(s, &prefix->array.items[i], &here));
        if (i > 0)
            here = expression_sequence(r, comma, here, NULL, NULL);
        inside = expression_sequence(r, here, inside, NULL, NULL);
        if (i >= least)
            inside = expression_repeat(r, inside, 0, 1);
        AVO_TRY(schema_made(s, inside));
    }
    return json_frame(s, "[", inside, "]", out);
}

/* ---- Strings ---- */

/* Dates exist on every calendar (no 29 February), times have no leap seconds. */
static const struct {
    const char *name, *pattern;
} formats[] = {
#define DATE                                                                                       \
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"  \
    "02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME                                                                                       \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"                                     \
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*"
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"},
    {"email", "^[a-zA-Z0-9_+-]+(\\.[a-zA-Z0-9_+-]+)*@" LABEL "(\\." LABEL ")*\\.[a-zA-Z]{2,}$"},
    {"ipv4", "^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}"
             "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])$"},
#undef DATE
#undef LABEL
#undef TIME
};

/* Characters that texts of an expression have at least and at most. */
static void length_of(const expression *e, uint64_t *least, uint64_t *most) {
    uint64_t low = 0;
    uint64_t high = 0;
    *least = *most = 0;
    switch (e->kind) {
    case EXPRESSION_CLASS:
        *least = *most = 1;
        break;
    case EXPRESSION_SEQUENCE:
        for (uint32_t i = 0; i < e->list.count; i++) {
            length_of(e->list.items[i], &low, &high);
            *least += low;
            *most = *most == UINT64_MAX || high == UINT64_MAX ? UINT64_MAX : *most + high;
        }
        break;
    case EXPRESSION_CHOICE:
        *least = e->list.count == 0 ? 0 : UINT64_MAX;
        for (uint32_t i = 0; i < e->list.count; i++) {
            length_of(e->list.items[i], &low, &high);
            *least = low < *least ? low : *least;
            *most = high > *most ? high : *most;
        }
        break;
    case EXPRESSION_REPEAT:
        length_of(e->repeat.item, &low, &high);
        *least = low * e->repeat.least;
        *most = high == 0 ? 0
                : high == UINT64_MAX || e->repeat.most == GRAMMAR_UNBOUNDED || high > UINT32_MAX
                    ? UINT64_MAX
                    : high * e->repeat.most;
        break;
    default: /* patterns have none of the others, but for the empty text */
        break;
    }
    if (*least > UINT32_MAX)
        *least = UINT32_MAX;
}

/* A pattern or a format; lengths beside it must follow from it. */
static avo_status matched(schema *s, const keywords *k, text_view pattern, uint32_t least,
                          uint32_t most, const expression **out) {
    uint64_t low;
    uint64_t high;
    avo_status status = grammar_read_pattern(s->rules, pattern, out);
    if (status != AVO_OK)
        return status_prefix(s->rules->error, status, "schema, line %u", k->source->line);
    length_of(*out, &low, &high);
    if (low < least || (most != GRAMMAR_UNBOUNDED && high > most))
        return schema_refuse(
            s, k->source, "minLength and maxLength cannot be enforced with this pattern or format");
    return AVO_OK;
}

static avo_status string_content(schema *s, const keywords *k, const expression **out) {
    uint32_t least;
    uint32_t most;
    AVO_TRY(schema_count(s, k, KEY_MIN_LENGTH, 0, &least));
    AVO_TRY(schema_count(s, k, KEY_MAX_LENGTH, GRAMMAR_UNBOUNDED, &most));
    const json_value *pattern = k->value[KEY_PATTERN];
    const json_value *format = k->value[KEY_FORMAT];
    if (pattern != NULL && format != NULL)
        return schema_refuse(s, pattern, "pattern and format cannot be combined");
    if (pattern != NULL && pattern->kind != JSON_STRING)
        return schema_refuse(s, pattern, "pattern must be a string");
    if (pattern != NULL)
        return matched(s, k, pattern->string, least, most, out);
    for (size_t i = 0; format != NULL && i < sizeof(formats) / sizeof(formats[0]); i++)
        if (format->kind == JSON_STRING && text_is(format->string, formats[i].name))
            return matched(s, k, text_from(formats[i].pattern), least, most, out);
    if (format != NULL)
        return schema_refuse(
            s, format,
            "this format is not supported; supported: date, time, date-time, uuid, email, ipv4");
    code_set all = {NULL, 0, 0};
    AVO_TRY(code_set_negate(s->rules, &all));
    *out = expression_repeat(s->rules, expression_class(s->rules, &all, true), least, most);
    if (most < least)
        *out = expression_list(s->rules, EXPRESSION_CHOICE, NULL, 0);
    return schema_made(s, *out);
}

avo_status schema_string(schema *s, const keywords *k, const expression **out) {
    grammar_rules *r = s->rules;
    const expression *content = NULL;
    if (!(k->present & (KEY_BIT(KEY_MIN_LENGTH) | KEY_BIT(KEY_MAX_LENGTH) | KEY_BIT(KEY_PATTERN) |
                        KEY_BIT(KEY_FORMAT))))
        return json_any_string(s, out);
    AVO_TRY(string_content(s, k, &content));
    *out =
        expression_sequence(r, expression_text(r, "\""), content, expression_text(r, "\""), NULL);
    return schema_made(s, *out);
}
