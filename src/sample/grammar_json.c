/* JSON itself as rules: any value, object, array, string, number, and the white space between. What
 * could go on without end (white space, digits) is bounded; strings and lists are not. */
#include "sample/grammar_schema_int.h"

#define SPACE_INDENT_MAX 20u

static avo_status begin_rule(schema *s, uint32_t *rule, const char *name) {
    return grammar_rule_add(s->rules, text_from(name), rule);
}

static avo_status give(schema *s, uint32_t rule, const expression **out) {
    *out = expression_rule(s->rules, rule);
    return schema_made(s, *out);
}

static avo_status end_rule(schema *s, uint32_t rule, const expression *body,
                           const expression **out) {
    AVO_TRY(schema_made(s, body));
    s->rules->rules[rule].body = body;
    return give(s, rule, out);
}

avo_status json_space(schema *s, const expression **out) {
    grammar_rules *r = s->rules;
    if (s->space != UINT32_MAX)
        return give(s, s->space, out);
    AVO_TRY(begin_rule(s, &s->space, "white space"));
    code_range ranges[] = {{'\t', '\t'}, {' ', ' '}};
    code_set blanks = {ranges, 2, 2};
    const expression *indent =
        expression_repeat(r, expression_class(r, &blanks, false), 0, SPACE_INDENT_MAX);
    const expression *line = expression_sequence(r, expression_text(r, "\n"), indent, NULL, NULL);
    const expression *body =
        expression_choice(r, expression_text(r, ""), expression_text(r, " "), line, NULL);
    return end_rule(s, s->space, body, out);
}

avo_status json_comma(schema *s, const expression **out) {
    const expression *space = NULL;
    AVO_TRY(json_space(s, &space));
    *out = expression_sequence(s->rules, expression_text(s->rules, ","), space, NULL, NULL);
    return schema_made(s, *out);
}

avo_status json_frame(schema *s, const char *begin, const expression *inside, const char *end,
                      const expression **out) {
    grammar_rules *r = s->rules;
    const expression *space = NULL;
    AVO_TRY(json_space(s, &space));
    const expression *open = expression_sequence(r, expression_text(r, begin), space, NULL, NULL);
    const expression *close = expression_sequence(r, space, expression_text(r, end), NULL, NULL);
    *out = expression_sequence(r, open, inside, close, NULL);
    if (inside == NULL || close == NULL)
        *out = NULL;
    return schema_made(s, *out);
}

avo_status json_pair(schema *s, const expression *key, const expression *value,
                     const expression **out) {
    grammar_rules *r = s->rules;
    const expression *gap = expression_repeat(r, expression_text(r, " "), 0, 1);
    *out = value == NULL || gap == NULL
               ? NULL
               : expression_sequence(r, key, expression_text(r, ":"), gap, value);
    return schema_made(s, *out);
}

/* ---- Strings ---- */

static const expression *hex(grammar_rules *r, const char *ranges) {
    code_set set = {NULL, 0, 0};
    for (; ranges[0] != '\0'; ranges += 2)
        if (code_set_add(r, &set, (unsigned char)ranges[0], (unsigned char)ranges[1]) != AVO_OK)
            return NULL;
    return expression_class(r, &set, false);
}

/* \uHHHH: a character, or the two halves of one. */
static const expression *unicode_escape(grammar_rules *r) {
    const expression *digit = hex(r, "09afAF");
    const expression *two = expression_repeat(r, digit, 2, 2);
    const expression *three = expression_repeat(r, digit, 3, 3);
    const expression *below = expression_sequence(r, hex(r, "09acAC"), three, NULL, NULL);
    const expression *above = expression_sequence(r, hex(r, "efEF"), three, NULL, NULL);
    const expression *d = expression_sequence(r, hex(r, "ddDD"), hex(r, "07"), two, NULL);
    const expression *high = expression_sequence(r, hex(r, "ddDD"), hex(r, "89abAB"), two, NULL);
    const expression *low = expression_sequence(r, hex(r, "ddDD"), hex(r, "cfCF"), two, NULL);
    const expression *pair = expression_sequence(r, high, expression_text(r, "\\u"), low, NULL);
    if (d == NULL || above == NULL || below == NULL || low == NULL)
        return NULL;
    const expression *all = expression_choice(r, below, above, d, pair);
    return expression_sequence(r, expression_text(r, "u"), all, NULL, NULL);
}

avo_status json_any_string(schema *s, const expression **out) {
    grammar_rules *r = s->rules;
    if (s->string != UINT32_MAX)
        return give(s, s->string, out);
    AVO_TRY(begin_rule(s, &s->string, "string"));
    code_set plain = {NULL, 0, 0};
    AVO_TRY(code_set_add(r, &plain, 0, 0x1F));
    AVO_TRY(code_set_add(r, &plain, '"', '"'));
    AVO_TRY(code_set_add(r, &plain, '\\', '\\'));
    AVO_TRY(code_set_negate(r, &plain));
    const expression *letters = hex(r, "\"\"\\\\//bbffnnrrtt");
    const expression *escaped = expression_choice(r, letters, unicode_escape(r), NULL, NULL);
    const expression *escape =
        expression_sequence(r, expression_text(r, "\\"), escaped, NULL, NULL);
    const expression *character =
        expression_choice(r, expression_class(r, &plain, false), escape, NULL, NULL);
    const expression *characters = expression_repeat(r, character, 0, GRAMMAR_UNBOUNDED);
    const expression *body = expression_sequence(r, expression_text(r, "\""), characters,
                                                 expression_text(r, "\""), NULL);
    return end_rule(s, s->string, body, out);
}

/* ---- Numbers ---- */

avo_status json_any_number(schema *s, bool integer, const expression **out) {
    grammar_rules *r = s->rules;
    uint32_t *rule = integer ? &s->integer : &s->number;
    if (*rule != UINT32_MAX)
        return give(s, *rule, out);
    AVO_TRY(begin_rule(s, rule, integer ? "integer" : "number"));
    const expression *digit = expression_range(r, '0', '9');
    const expression *some = expression_repeat(r, digit, 1, SCHEMA_DIGITS);
    const expression *more = expression_repeat(r, digit, 0, SCHEMA_DIGITS);
    const expression *large =
        expression_sequence(r, expression_range(r, '1', '9'), more, NULL, NULL);
    const expression *whole = expression_choice(r, expression_text(r, "0"), large, NULL, NULL);
    const expression *minus = expression_repeat(r, expression_text(r, "-"), 0, 1);
    const expression *body = expression_sequence(r, minus, whole, NULL, NULL);
    if (!integer) {
        const expression *fraction =
            expression_sequence(r, expression_text(r, "."), some, NULL, NULL);
        const expression *sign = expression_repeat(r, hex(r, "++--"), 0, 1);
        const expression *exponent =
            expression_sequence(r, hex(r, "EEee"), sign, expression_repeat(r, digit, 1, 2), NULL);
        const expression *maybe_fraction = expression_repeat(r, fraction, 0, 1);
        const expression *maybe_exponent = expression_repeat(r, exponent, 0, 1);
        if (maybe_exponent == NULL)
            return schema_made(s, NULL);
        body = expression_sequence(r, body, maybe_fraction, maybe_exponent, NULL);
    }
    return end_rule(s, *rule, body, out);
}

/* ---- Objects, arrays, values ---- */

avo_status json_any_object(schema *s, const expression **out) {
    if (s->object != UINT32_MAX)
        return give(s, s->object, out);
    AVO_TRY(begin_rule(s, &s->object, "object"));
    const expression *key = NULL;
    const expression *value = NULL;
    const expression *pair = NULL;
    const expression *comma = NULL;
    const expression *body = NULL;
    AVO_TRY(json_any_string(s, &key));
    AVO_TRY(json_any(s, &value));
    AVO_TRY(json_pair(s, key, value, &pair));
    AVO_TRY(json_comma(s, &comma));
    AVO_TRY(json_frame(s, "{", expression_members(s->rules, NULL, 0, comma, pair), "}", &body));
    return end_rule(s, s->object, body, out);
}

avo_status json_any_array(schema *s, const expression **out) {
    if (s->array != UINT32_MAX)
        return give(s, s->array, out);
    AVO_TRY(begin_rule(s, &s->array, "array"));
    const expression *value = NULL;
    const expression *comma = NULL;
    const expression *body = NULL;
    AVO_TRY(json_any(s, &value));
    AVO_TRY(json_comma(s, &comma));
    AVO_TRY(json_frame(s, "[", expression_members(s->rules, NULL, 0, comma, value), "]", &body));
    return end_rule(s, s->array, body, out);
}

avo_status json_any(schema *s, const expression **out) {
    if (s->value != UINT32_MAX)
        return give(s, s->value, out);
    AVO_TRY(begin_rule(s, &s->value, "value"));
    grammar_rules *r = s->rules;
    const expression *items[7] = {expression_text(r, "true"), expression_text(r, "false"),
                                  expression_text(r, "null")};
    AVO_TRY(json_any_string(s, &items[3]));
    AVO_TRY(json_any_number(s, false, &items[4]));
    AVO_TRY(json_any_object(s, &items[5]));
    AVO_TRY(json_any_array(s, &items[6]));
    return end_rule(s, s->value, expression_list(r, EXPRESSION_CHOICE, items, 7), out);
}
