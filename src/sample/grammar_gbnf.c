/* GBNF, llama.cpp's dialect:
 *
 *   root   ::= item ("," " "? item)*      # alternatives |, groups ( ), ? * + {m} {m,} {m,n}
 *   item   ::= [a-zA-Z_] [^\n"]{0,20} | "\"" . "\u00e9\x21"
 *
 * A rule ends with its line, unless inside of a group or where the next line begins with '|'.
 * Rules may be named before they are defined. Everything else is refused with its line.
 */
#include "sample/grammar_reader_int.h"

#include "base/utf8.h"

static avo_status fail(const grammar_reader *g, const char *what) {
    return status_fail(g->rules->error, AVO_ERROR_FORMAT, "grammar, line %u: %s", g->line, what);
}

/* White space and comments; line ends only where `lines`. */
static void skip(grammar_reader *g, bool lines) {
    for (; g->at < g->text.size; g->at++) {
        char c = g->text.data[g->at];
        if (c == '#') {
            while (g->at < g->text.size && g->text.data[g->at] != '\n')
                g->at++;
            if (g->at == g->text.size)
                return;
            c = '\n';
        }
        if (c == '\n' && !lines)
            return;
        if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
            return;
        g->line += c == '\n';
    }
}

static bool is_name(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static text_view take_name(grammar_reader *g) {
    size_t begin = g->at;
    while (is_name(peek(g)))
        g->at++;
    return (text_view){g->text.data + begin, g->at - begin};
}

/* ---- Characters ---- */

static avo_status take_hex(grammar_reader *g, uint32_t digits, uint32_t *code) {
    *code = 0;
    for (uint32_t i = 0; i < digits; i++) {
        int value = hex_value(peek(g));
        if (value < 0)
            return fail(g, "an escape lacks hexadecimal digits");
        *code = *code * 16 + (uint32_t)value;
        g->at++;
    }
    if (*code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF))
        return fail(g, "an escape is not a Unicode character");
    return AVO_OK;
}

static avo_status take_escape(grammar_reader *g, uint32_t *code) {
    int c = peek(g);
    g->at += c >= 0;
    switch (c) {
    case 'n':
        *code = '\n';
        return AVO_OK;
    case 'r':
        *code = '\r';
        return AVO_OK;
    case 't':
        *code = '\t';
        return AVO_OK;
    case 'x':
        return take_hex(g, 2, code);
    case 'u':
        return take_hex(g, 4, code);
    case 'U':
        return take_hex(g, 8, code);
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
        *code = (uint32_t)c;
        return AVO_OK;
    default:
        return fail(
            g,
            "unknown escape; use \\n \\r \\t \\xHH \\uHHHH \\UHHHHHHHH \\\\ \\\" \\[ \\] \\- \\^");
    }
}

static avo_status take_character(grammar_reader *g, uint32_t *code) {
    if (take(g, "\\"))
        return take_escape(g, code);
    size_t bytes = utf8_decode(g->text.data + g->at, g->text.size - g->at, code);
    if (bytes == 0)
        return fail(g, "invalid UTF-8");
    g->line += *code == '\n';
    g->at += bytes;
    return AVO_OK;
}

static avo_status take_literal(grammar_reader *g, const expression **out) {
    buffer text;
    buffer_init(&text, g->rules->arena->allocator, GRAMMAR_TEXT_MAX);
    avo_status status = AVO_OK;
    while (status == AVO_OK && !take(g, "\"")) {
        uint32_t code = 0;
        char bytes[4];
        if (g->at == g->text.size) {
            status = fail(g, "a literal is not closed");
            break;
        }
        status = take_character(g, &code);
        if (status == AVO_OK && buffer_append(&text, bytes, utf8_encode(code, bytes)) != AVO_OK)
            status = status_no_memory(g->rules->error, "a grammar", text.size);
    }
    if (status == AVO_OK) {
        *out = expression_bytes(g->rules, buffer_text(&text));
        status = made(g, *out);
    }
    buffer_free(&text);
    return status;
}

static avo_status take_class(grammar_reader *g, const expression **out) {
    code_set set = {NULL, 0, 0};
    bool negated = take(g, "^");
    while (!take(g, "]")) {
        uint32_t first = 0;
        if (g->at == g->text.size)
            return fail(g, "a character class is not closed");
        AVO_TRY(take_character(g, &first));
        uint32_t last = first;
        if (peek(g) == '-' && g->at + 1 < g->text.size && g->text.data[g->at + 1] != ']') {
            g->at++;
            AVO_TRY(take_character(g, &last));
        }
        if (last < first)
            return fail(g, "a character range is reversed");
        AVO_TRY(code_set_add(g->rules, &set, first, last));
    }
    if (negated)
        AVO_TRY(code_set_negate(g->rules, &set));
    *out = expression_class(g->rules, &set, false);
    return made(g, *out);
}

/* ---- Rules ---- */

static avo_status find_rule(grammar_reader *g, text_view name, uint32_t *index) {
    for (uint32_t i = 0; i < g->rules->count; i++)
        if (text_equal(g->rules->rules[i].name, name)) {
            *index = i;
            return AVO_OK;
        }
    return grammar_rule_add(g->rules, name, index);
}

static avo_status take_number(grammar_reader *g, uint32_t *number) {
    uint64_t value = 0;
    if (peek(g) < '0' || peek(g) > '9')
        return fail(g, "a repetition lacks its count: {m}, {m,} or {m,n}");
    for (; peek(g) >= '0' && peek(g) <= '9'; g->at++)
        value = value * 10 + (uint64_t)(peek(g) - '0') > GRAMMAR_REPEAT_MAX
                    ? GRAMMAR_REPEAT_MAX + 1
                    : value * 10 + (uint64_t)(peek(g) - '0');
    if (value > GRAMMAR_REPEAT_MAX)
        return status_fail(g->rules->error, AVO_ERROR_LIMIT,
                           "grammar, line %u: a repetition can be at most %u times", g->line,
                           GRAMMAR_REPEAT_MAX);
    *number = (uint32_t)value;
    return AVO_OK;
}

static avo_status take_braces(grammar_reader *g, uint32_t *least, uint32_t *most) {
    skip(g, false);
    AVO_TRY(take_number(g, least));
    *most = *least;
    skip(g, false);
    if (take(g, ",")) {
        skip(g, false);
        *most = GRAMMAR_UNBOUNDED;
        if (peek(g) != '}')
            AVO_TRY(take_number(g, most));
        skip(g, false);
    }
    if (!take(g, "}"))
        return fail(g, "a repetition lacks its '}'");
    if (*most < *least)
        return fail(g, "a repetition range is reversed");
    return AVO_OK;
}

static avo_status take_repetition(grammar_reader *g, const expression **item, bool *found) {
    uint32_t least = 0;
    uint32_t most = GRAMMAR_UNBOUNDED;
    *found = true;
    if (take(g, "+"))
        least = 1;
    else if (take(g, "?"))
        most = 1;
    else if (take(g, "{"))
        AVO_TRY(take_braces(g, &least, &most));
    else if (!take(g, "*"))
        *found = false;
    if (!*found)
        return AVO_OK;
    *item = expression_repeat(g->rules, *item, least, most);
    return made(g, *item);
}

static avo_status take_choice(grammar_reader *g, bool nested, const expression **out);

static avo_status take_group(grammar_reader *g, const expression **out) {
    if (++g->depth > GRAMMAR_NESTING_MAX)
        return status_fail(g->rules->error, AVO_ERROR_LIMIT,
                           "grammar, line %u: groups are nested more than %u levels deep", g->line,
                           GRAMMAR_NESTING_MAX);
    skip(g, true);
    AVO_TRY(take_choice(g, true, out));
    g->depth--;
    return take(g, ")") ? AVO_OK : fail(g, "a group lacks its ')'");
}

static avo_status take_any(grammar_reader *g, const expression **out) {
    code_set all = {NULL, 0, 0};
    AVO_TRY(code_set_add(g->rules, &all, 0, 0x10FFFF));
    *out = expression_class(g->rules, &all, false);
    return made(g, *out);
}

/* NULL in *out: nothing that belongs to a sequence stands here. */
static avo_status take_item(grammar_reader *g, const expression **out) {
    *out = NULL;
    if (take(g, "\""))
        return take_literal(g, out);
    if (take(g, "["))
        return take_class(g, out);
    if (take(g, "("))
        return take_group(g, out);
    if (take(g, "."))
        return take_any(g, out);
    if (!is_name(peek(g)))
        return AVO_OK;
    size_t begin = g->at;
    uint32_t line = g->line;
    text_view name = take_name(g);
    size_t behind = g->at;
    skip(g, false);
    bool defines = g->text.size - g->at >= 3 && memcmp(g->text.data + g->at, "::=", 3) == 0;
    g->at = defines ? begin : behind;
    g->line = line;
    if (defines)
        return AVO_OK; /* of the next rule */
    uint32_t rule = 0;
    AVO_TRY(find_rule(g, name, &rule));
    *out = expression_rule(g->rules, rule);
    return made(g, *out);
}

static avo_status take_sequence(grammar_reader *g, bool nested, const expression **out) {
    expression_items items = {NULL, 0, 0};
    for (;;) {
        const expression *item = NULL;
        AVO_TRY(take_item(g, &item));
        if (item == NULL)
            break;
        for (bool found = true; found;) {
            skip(g, nested);
            AVO_TRY(take_repetition(g, &item, &found));
        }
        AVO_TRY(expression_items_add(g->rules, &items, item));
    }
    *out = items.count == 0
               ? expression_text(g->rules, "")
               : expression_list(g->rules, EXPRESSION_SEQUENCE, items.items, items.count);
    return made(g, *out);
}

/* The next line goes on with this rule where it begins with '|'. */
static bool goes_on(grammar_reader *g) {
    size_t at = g->at;
    uint32_t line = g->line;
    skip(g, true);
    if (peek(g) == '|')
        return true;
    g->at = at;
    g->line = line;
    return false;
}

static avo_status take_choice(grammar_reader *g, bool nested, const expression **out) {
    expression_items items = {NULL, 0, 0};
    do {
        const expression *sequence = NULL;
        skip(g, true);
        AVO_TRY(take_sequence(g, nested, &sequence));
        AVO_TRY(expression_items_add(g->rules, &items, sequence));
        skip(g, nested);
    } while (take(g, "|") || (goes_on(g) && take(g, "|")));
    *out = expression_list(g->rules, EXPRESSION_CHOICE, items.items, items.count);
    return made(g, *out);
}

static avo_status take_rule(grammar_reader *g) {
    text_view name = take_name(g);
    uint32_t line = g->line;
    if (name.size == 0)
        return fail(g, "a rule must begin with its name");
    skip(g, false);
    if (!take(g, "::="))
        return fail(g, "\"::=\" is missing after the name of a rule");
    uint32_t rule = 0;
    const expression *body = NULL;
    AVO_TRY(find_rule(g, name, &rule));
    if (g->rules->rules[rule].body != NULL)
        return status_fail(g->rules->error, AVO_ERROR_FORMAT,
                           "grammar, line %u: rule %.*s is defined twice", line,
                           TEXT_ARGUMENT(name));
    AVO_TRY(take_choice(g, false, &body));
    g->rules->rules[rule].body = body;
    int c = peek(g);
    if (c >= 0 && c != '\n' && !is_name(c))
        return status_fail(g->rules->error, AVO_ERROR_FORMAT,
                           "grammar, line %u: unexpected '%c' in rule %.*s", g->line,
                           c < 0x20 || c > 0x7E ? '?' : c, TEXT_ARGUMENT(name));
    return AVO_OK;
}

avo_status grammar_read_gbnf(grammar_rules *rules, text_view text) {
    grammar_reader g = {.rules = rules, .text = text, .line = 1};
    if (utf8_valid_prefix(text.data, text.size) != text.size)
        return status_fail(rules->error, AVO_ERROR_FORMAT, "the grammar is not valid UTF-8");
    for (skip(&g, true); g.at < text.size; skip(&g, true))
        AVO_TRY(take_rule(&g));
    for (uint32_t i = 0; i < rules->count; i++)
        if (text_is(rules->rules[i].name, "root") && rules->rules[i].body != NULL) {
            rules->root = i;
            return AVO_OK;
        }
    return status_fail(rules->error, AVO_ERROR_FORMAT, "the grammar has no rule \"root\"");
}
