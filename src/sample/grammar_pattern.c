/* Regular expressions: of JSON schemas ("pattern"), as ECMA 262 reads them, found anywhere in the
 * string unless anchored; and of whole answers, which must match from end to end. A subset, the
 * rest is refused by name: characters, '.', classes, \d \w \s and their opposites, escapes, groups
 * (capturing or not, their names ignored), alternatives, ? * + {m} {m,} {m,n} (lazy or not: the
 * texts are the same), ^ and $ at the ends of the pattern or of one of its outermost alternatives.
 * No look-around, references, word borders, properties.
 *
 * Of a schema the result is what stands between the quotes of a JSON string, in one form for each
 * character: escaped where it must be, and nowhere else. Of an answer it is the text itself.
 */
#include "sample/grammar_reader_int.h"

#include "base/utf8.h"

static avo_status refuse(const grammar_reader *p, const char *what) {
    return status_fail(p->rules->error, AVO_ERROR_UNSUPPORTED, "pattern \"%.*s\", byte %zu: %s",
                       TEXT_ARGUMENT(p->text), p->at, what);
}

/* ---- Characters ---- */

static avo_status take_hex(grammar_reader *p, uint32_t digits, uint32_t *code) {
    *code = 0;
    for (uint32_t i = 0; i < digits; i++, p->at++) {
        int value = hex_value(peek(p));
        if (value < 0)
            return refuse(p, "an escape lacks hexadecimal digits");
        *code = *code * 16 + (uint32_t)value;
    }
    return AVO_OK;
}

/* \d, \w, \s and their opposites: `set` is filled and *found is true. */
static avo_status take_shorthand(grammar_reader *p, code_set *set, bool *found) {
    static const code_range digits[] = {{'0', '9'}};
    static const code_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const code_range spaces[] = {
        {9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    int letter = peek(p) | 0x20;
    const code_range *ranges = letter == 'd' ? digits : letter == 'w' ? words : spaces;
    size_t count = letter == 'd' ? 1 : letter == 'w' ? 4 : sizeof(spaces) / sizeof(spaces[0]);
    *found = peek(p) >= 'A' && (letter == 'd' || letter == 'w' || letter == 's');
    if (!*found)
        return AVO_OK;
    code_set own = {NULL, 0, 0};
    for (size_t i = 0; i < count; i++)
        AVO_TRY(code_set_add(p->rules, &own, ranges[i].first, ranges[i].last));
    if (peek(p) != letter)
        AVO_TRY(code_set_negate(p->rules, &own));
    for (uint32_t i = 0; i < own.count; i++)
        AVO_TRY(code_set_add(p->rules, set, own.ranges[i].first, own.ranges[i].last));
    p->at++;
    return AVO_OK;
}

static avo_status take_escape(grammar_reader *p, uint32_t *code) {
    static const char letters[] = "nrtfv0";
    static const char values[] = "\n\r\t\f\v";
    int c = peek(p);
    if (c < 0)
        return refuse(p, "the pattern ends with a backslash");
    p->at++;
    const char *letter = memchr(letters, c, sizeof(letters) - 1);
    if (letter != NULL) {
        *code = (uint32_t)values[letter - letters];
        if (c == '0' && peek(p) >= '0' && peek(p) <= '9')
            return refuse(p, "octal escapes are not supported");
        return AVO_OK;
    }
    if (c == 'x')
        return take_hex(p, 2, code);
    if (c == 'u') {
        AVO_TRY(take_hex(p, 4, code));
        if (*code >= 0xD800 && *code <= 0xDFFF)
            return refuse(p, "escapes of surrogates are not supported");
        return AVO_OK;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return refuse(p, "this escape is not supported (back references, \\b, \\p, \\k, \\c)");
    *code = (uint32_t)c;
    if (c >= 0x80)
        return refuse(p, "escapes of non-ASCII characters are not supported");
    return AVO_OK;
}

static avo_status take_plain(grammar_reader *p, uint32_t *code) {
    size_t bytes = utf8_decode(p->text.data + p->at, p->text.size - p->at, code);
    if (bytes == 0)
        return refuse(p, "invalid UTF-8");
    p->at += bytes;
    return AVO_OK;
}

/* One end of a range in a class; *whole: a shorthand, which is in the set already. */
static avo_status take_class_item(grammar_reader *p, code_set *set, uint32_t *code, bool *whole) {
    *whole = false;
    if (!take(p, "\\"))
        return take_plain(p, code);
    AVO_TRY(take_shorthand(p, set, whole));
    if (*whole)
        return AVO_OK;
    if (take(p, "b")) {
        *code = 8;
        return AVO_OK;
    }
    return take_escape(p, code);
}

static avo_status take_class(grammar_reader *p, const expression **out) {
    code_set set = {NULL, 0, 0};
    bool negated = take(p, "^");
    while (!take(p, "]")) {
        uint32_t first = 0;
        uint32_t last = 0;
        bool whole = false;
        if (p->at == p->text.size)
            return refuse(p, "a character class is not closed");
        AVO_TRY(take_class_item(p, &set, &first, &whole));
        if (whole)
            continue;
        last = first;
        if (peek(p) == '-' && p->at + 1 < p->text.size && p->text.data[p->at + 1] != ']') {
            p->at++;
            AVO_TRY(take_class_item(p, &set, &last, &whole));
            if (whole || last < first)
                return refuse(p, "invalid character range");
        }
        AVO_TRY(code_set_add(p->rules, &set, first, last));
    }
    if (negated)
        AVO_TRY(code_set_negate(p->rules, &set));
    *out = expression_class(p->rules, &set, !p->whole);
    return made(p, *out);
}

static avo_status one_character(grammar_reader *p, uint32_t code, const expression **out) {
    code_range range = {code, code};
    code_set set = {&range, 1, 1};
    *out = expression_class(p->rules, &set, !p->whole);
    return made(p, *out);
}

/* Any but line ends, or any at all. */
static avo_status any_character(grammar_reader *p, bool lines, const expression **out) {
    code_set set = {NULL, 0, 0};
    if (!lines) {
        AVO_TRY(code_set_add(p->rules, &set, '\n', '\n'));
        AVO_TRY(code_set_add(p->rules, &set, '\r', '\r'));
        AVO_TRY(code_set_add(p->rules, &set, 0x2028, 0x2029));
    }
    AVO_TRY(code_set_negate(p->rules, &set));
    *out = expression_class(p->rules, &set, !p->whole);
    return made(p, *out);
}

/* ---- Structure ---- */

static avo_status take_choice(grammar_reader *p, const expression **out);

static avo_status take_group(grammar_reader *p, const expression **out) {
    if (++p->depth > GRAMMAR_NESTING_MAX)
        return refuse(p, "groups are nested too deep");
    if (take(p, "?")) {
        if (take(p, "<") && peek(p) != '=' && peek(p) != '!') {
            while (peek(p) >= 0 && peek(p) != '>')
                p->at++;
            if (!take(p, ">"))
                return refuse(p, "a group name is not closed");
        } else if (!take(p, ":")) {
            return refuse(p, "look-around and flags are not supported");
        }
    }
    AVO_TRY(take_choice(p, out));
    p->depth--;
    return take(p, ")") ? AVO_OK : refuse(p, "a group lacks its ')'");
}

static avo_status take_atom(grammar_reader *p, const expression **out) {
    uint32_t code = 0;
    switch (peek(p)) {
    case '(':
        p->at++;
        return take_group(p, out);
    case '[':
        p->at++;
        return take_class(p, out);
    case '.':
        p->at++;
        return any_character(p, false, out);
    case '\\': {
        code_set set = {NULL, 0, 0};
        bool found = false;
        p->at++;
        AVO_TRY(take_shorthand(p, &set, &found));
        if (found) {
            code_set_tidy(&set);
            *out = expression_class(p->rules, &set, !p->whole);
            return made(p, *out);
        }
        AVO_TRY(take_escape(p, &code));
        return one_character(p, code, out);
    }
    case '^':
    case '$':
        return refuse(p, "^ and $ are supported at the ends of the pattern only");
    case '*':
    case '+':
    case '?':
    case '{':
        return refuse(p, "nothing to repeat");
    default:
        AVO_TRY(take_plain(p, &code));
        return one_character(p, code, out);
    }
}

static bool take_number(grammar_reader *p, uint32_t *number) {
    bool any = false;
    *number = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++, any = true)
        *number = *number > GRAMMAR_REPEAT_MAX ? *number : *number * 10 + (uint32_t)(peek(p) - '0');
    return any;
}

static avo_status take_braces(grammar_reader *p, uint32_t *least, uint32_t *most) {
    if (!take_number(p, least))
        return refuse(p, "a repetition lacks its count");
    *most = *least;
    if (take(p, ",") && !take_number(p, most))
        *most = GRAMMAR_UNBOUNDED;
    if (!take(p, "}"))
        return refuse(p, "a repetition lacks its '}'");
    if (*least > GRAMMAR_REPEAT_MAX || (*most > GRAMMAR_REPEAT_MAX && *most != GRAMMAR_UNBOUNDED))
        return status_fail(p->rules->error, AVO_ERROR_LIMIT,
                           "pattern \"%.*s\": a repetition can be at most %u times",
                           TEXT_ARGUMENT(p->text), GRAMMAR_REPEAT_MAX);
    return *most < *least ? refuse(p, "a repetition range is reversed") : AVO_OK;
}

static avo_status take_repeated(grammar_reader *p, const expression **out) {
    AVO_TRY(take_atom(p, out));
    uint32_t least = 0;
    uint32_t most = GRAMMAR_UNBOUNDED;
    if (take(p, "+"))
        least = 1;
    else if (take(p, "?"))
        most = 1;
    else if (take(p, "{"))
        AVO_TRY(take_braces(p, &least, &most));
    else if (!take(p, "*"))
        return AVO_OK;
    (void)take(p, "?");
    *out = expression_repeat(p->rules, *out, least, most);
    return made(p, *out);
}

/* Up to '|', ')' or a '$' that ends the outermost alternative. */
static avo_status take_sequence(grammar_reader *p, expression_items *items) {
    while (peek(p) >= 0 && peek(p) != '|' && peek(p) != ')') {
        const expression *item = NULL;
        if (peek(p) == '$' && p->depth == 0 &&
            (p->at + 1 == p->text.size || p->text.data[p->at + 1] == '|'))
            return AVO_OK;
        AVO_TRY(take_repeated(p, &item));
        AVO_TRY(expression_items_add(p->rules, items, item));
    }
    return AVO_OK;
}

static avo_status add_anything(grammar_reader *p, expression_items *items) {
    const expression *any = NULL;
    AVO_TRY(any_character(p, true, &any));
    return expression_items_add(p->rules, items,
                                expression_repeat(p->rules, any, 0, GRAMMAR_UNBOUNDED));
}

static avo_status take_branch(grammar_reader *p, const expression **out) {
    expression_items items = {NULL, 0, 0};
    bool outermost = p->depth == 0;
    if (outermost && !take(p, "^") && !p->whole)
        AVO_TRY(add_anything(p, &items));
    AVO_TRY(take_sequence(p, &items));
    if (outermost && !take(p, "$") && !p->whole)
        AVO_TRY(add_anything(p, &items));
    *out = items.count == 0
               ? expression_text(p->rules, "")
               : expression_list(p->rules, EXPRESSION_SEQUENCE, items.items, items.count);
    return made(p, *out);
}

static avo_status take_choice(grammar_reader *p, const expression **out) {
    expression_items items = {NULL, 0, 0};
    do {
        const expression *branch = NULL;
        AVO_TRY(take_branch(p, &branch));
        AVO_TRY(expression_items_add(p->rules, &items, branch));
    } while (take(p, "|"));
    *out = expression_list(p->rules, EXPRESSION_CHOICE, items.items, items.count);
    return made(p, *out);
}

static avo_status read_pattern(grammar_reader *p, const expression **out) {
    AVO_TRY(take_choice(p, out));
    return p->at == p->text.size ? AVO_OK : refuse(p, "a ')' has no matching '('");
}

avo_status grammar_read_pattern(grammar_rules *rules, text_view text, const expression **out) {
    grammar_reader p = {.rules = rules, .text = text};
    return read_pattern(&p, out);
}

avo_status grammar_read_regex(grammar_rules *rules, text_view text) {
    grammar_reader p = {.rules = rules, .text = text, .whole = true};
    const expression *body = NULL;
    AVO_TRY(grammar_rule_add(rules, TEXT_LITERAL("the pattern"), &rules->root));
    AVO_TRY(read_pattern(&p, &body));
    rules->rules[rules->root].body = body;
    return AVO_OK;
}
