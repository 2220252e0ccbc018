/* Template source to tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
 *
 * Text outside tags is data. In front of a block or comment tag, blanks from the line's start are
 * dropped unless the tag begins with '+'; behind one, a single newline is dropped unless it ends
 * with '+'; a '-' on either side drops all whitespace there. */
#include "base/number.h"
#include "base/utf8.h"
#include "tokenizer/template/tree_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

avo_status jinja_fail_at(avo_error *error, text_view source, size_t offset, avo_status status,
                         const char *format, ...) {
    size_t line = 1;
    size_t line_begin = 0;
    for (size_t i = 0; i < offset && i < source.size; i++) {
        if (source.data[i] == '\n') {
            line++;
            line_begin = i + 1;
        }
    }
    size_t column = jinja_count_characters(source.data + line_begin, offset - line_begin) + 1;
    char text[AVO_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return status_fail(error, status, "chat template line %zu, column %zu: %s", line, column, text);
}

static avo_status fail(jinja_lexer *lexer, size_t offset, const char *what) {
    return jinja_fail_at(lexer->error, lexer->source, offset, AVO_ERROR_TEMPLATE, "%s", what);
}

static avo_status no_memory(jinja_lexer *lexer) {
    return status_fail(lexer->error, AVO_ERROR_MEMORY, "out of memory for a chat template");
}

avo_status jinja_lexer_init(jinja_lexer *lexer, arena *arena, text_view source, avo_error *error) {
    *lexer = (jinja_lexer){.arena = arena, .line_starting = true, .error = error};
    if (source.size > TEMPLATE_SOURCE_MAX)
        return status_fail(error, AVO_ERROR_LIMIT,
                           "the chat template has %zu bytes, must have at most %zu", source.size,
                           TEMPLATE_SOURCE_MAX);
    char *text = arena_take(arena, source.size + 1);
    if (text == NULL)
        return no_memory(lexer);
    size_t size = 0;
    for (size_t i = 0; i < source.size; i++) {
        if (source.data[i] != '\r') {
            text[size++] = source.data[i];
            continue;
        }
        text[size++] = '\n';
        if (i + 1 < source.size && source.data[i + 1] == '\n')
            i++;
    }
    lexer->source = (text_view){text, size};
    size_t valid = utf8_valid_prefix(text, size);
    if (valid < size)
        return fail(lexer, valid, "invalid UTF-8");
    if (size > 0 && text[size - 1] == '\n')
        lexer->source.size--;
    return AVO_OK;
}

static int byte_at(const jinja_lexer *lexer, size_t at) {
    return at < lexer->source.size ? (unsigned char)lexer->source.data[at] : -1;
}

/* The bytes of the whitespace character at `at`, 0 when there is none. */
static size_t space_at(const jinja_lexer *lexer, size_t at) {
    if (at >= lexer->source.size)
        return 0;
    uint32_t code_point;
    size_t bytes = utf8_decode(lexer->source.data + at, lexer->source.size - at, &code_point);
    return jinja_is_space(code_point) ? bytes : 0;
}

static size_t skip_space(const jinja_lexer *lexer, size_t at) {
    size_t bytes;
    while ((bytes = space_at(lexer, at)) > 0)
        at += bytes;
    return at;
}

static bool has_text(const jinja_lexer *lexer, size_t at, const char *text) {
    return at <= lexer->source.size &&
           text_starts((text_view){lexer->source.data + at, lexer->source.size - at},
                       text_from(text));
}

/* The end of [begin, end) without whitespace at its end. */
static size_t strip_right(const jinja_lexer *lexer, size_t begin, size_t end) {
    while (end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)lexer->source.data[last] & 0xC0) == 0x80)
            last--;
        if (space_at(lexer, last) == 0)
            break;
        end = last;
    }
    return end;
}

/* What remains of the data [begin, end) in front of a tag with this sign. */
static size_t trim_data(const jinja_lexer *lexer, size_t begin, size_t end, int sign, bool print) {
    if (sign == '-')
        return strip_right(lexer, begin, end);
    if (sign == '+' || print)
        return end;
    size_t line = end;
    while (line > begin && lexer->source.data[line - 1] != '\n')
        line--;
    if (line == begin && !lexer->line_starting)
        return end;
    return strip_right(lexer, line, end) == line ? line : end;
}

static size_t sign_bytes(const jinja_lexer *lexer, size_t at) {
    int byte = byte_at(lexer, at);
    return byte == '-' || byte == '+' ? 1 : 0;
}

/* The end of a tag at `at` ("%}", "-%}", "+%}" with the whitespace they swallow); 0: none there. */
static size_t tag_end(const jinja_lexer *lexer, size_t at, const char *close, bool plus) {
    int byte = byte_at(lexer, at);
    if (byte == '-' && has_text(lexer, at + 1, close))
        return skip_space(lexer, at + 3);
    if (plus && byte == '+' && has_text(lexer, at + 1, close))
        return at + 3;
    if (!has_text(lexer, at, close))
        return 0;
    return plus && byte_at(lexer, at + 2) == '\n' ? at + 3 : at + 2;
}

static void matched_to(jinja_lexer *lexer, size_t end) {
    lexer->line_starting = end > 0 && lexer->source.data[end - 1] == '\n';
    lexer->at = end;
}

/* "{% raw %}" or "{% endraw %}" at `at`, whose sign is `sign_size` bytes: its end, or 0. */
static size_t raw_tag(const jinja_lexer *lexer, size_t at, const char *word, bool end_tag) {
    at += 2 + sign_bytes(lexer, at + 2);
    at = skip_space(lexer, at);
    if (!has_text(lexer, at, word))
        return 0;
    at = skip_space(lexer, at + strlen(word));
    if (end_tag)
        return tag_end(lexer, at, "%}", true);
    if (byte_at(lexer, at) == '-' && has_text(lexer, at + 1, "%}"))
        return skip_space(lexer, at + 3);
    return has_text(lexer, at, "%}") ? at + 2 : 0;
}

/* Behind "{% raw %}": the data up to "{% endraw %}". */
static avo_status take_raw(jinja_lexer *lexer, jinja_token *token) {
    size_t begin = lexer->at;
    for (size_t at = begin; at + 1 < lexer->source.size; at++) {
        if (!has_text(lexer, at, "{%"))
            continue;
        size_t end = raw_tag(lexer, at, "endraw", true);
        if (end == 0)
            continue;
        int sign = sign_bytes(lexer, at + 2) > 0 ? byte_at(lexer, at + 2) : 0;
        size_t data_end = trim_data(lexer, begin, at, sign, false);
        token->kind = TOKEN_DATA;
        token->offset = (uint32_t)begin;
        token->text = (text_view){lexer->source.data + begin, data_end - begin};
        matched_to(lexer, end);
        return AVO_OK;
    }
    return fail(lexer, begin, "missing {% endraw %}");
}

static avo_status skip_comment(jinja_lexer *lexer, size_t tag) {
    for (size_t at = tag + 2 + sign_bytes(lexer, tag + 2); at + 1 < lexer->source.size; at++) {
        size_t end = tag_end(lexer, at, "#}", true);
        if (end > 0) {
            matched_to(lexer, end);
            return AVO_OK;
        }
    }
    return fail(lexer, tag, "unterminated comment: missing #}");
}

/* One token outside of tags: data, or the begin of a tag. */
static avo_status root_token(jinja_lexer *lexer, jinja_token *token) {
    size_t begin = lexer->at;
    size_t at = begin;
    int second = 0;
    for (;; at++) {
        const char *brace = at < lexer->source.size
                                ? memchr(lexer->source.data + at, '{', lexer->source.size - at)
                                : NULL;
        if (brace == NULL) {
            at = lexer->source.size;
            break;
        }
        at = (size_t)(brace - lexer->source.data);
        second = byte_at(lexer, at + 1);
        if (second == '%' || second == '{' || second == '#')
            break;
    }
    token->kind = TOKEN_DATA;
    token->offset = (uint32_t)begin;
    if (at >= lexer->source.size) {
        token->text = (text_view){lexer->source.data + begin, at - begin};
        token->kind = at > begin ? TOKEN_DATA : TOKEN_END;
        lexer->at = at;
        return AVO_OK;
    }
    size_t sign_size = sign_bytes(lexer, at + 2);
    int sign = sign_size > 0 ? byte_at(lexer, at + 2) : 0;
    size_t data_end = trim_data(lexer, begin, at, sign, second == '{');
    token->text = (text_view){lexer->source.data + begin, data_end - begin};
    lexer->begin_pending = true;
    lexer->pending = (jinja_token){.offset = (uint32_t)at};
    size_t raw_end = second == '%' ? raw_tag(lexer, at, "raw", false) : 0;
    if (raw_end > 0) {
        matched_to(lexer, raw_end);
        return take_raw(lexer, &lexer->pending);
    }
    matched_to(lexer, at + 2 + sign_size);
    if (second == '#') {
        lexer->begin_pending = false;
        return skip_comment(lexer, at);
    }
    lexer->state = second == '%' ? LEXER_BLOCK : LEXER_PRINT;
    lexer->pending.kind = second == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN;
    return AVO_OK;
}

static bool digit_of(int byte, int base, int *digit) {
    if (byte >= '0' && byte <= '9')
        *digit = byte - '0';
    else if (byte >= 'a' && byte <= 'f')
        *digit = byte - 'a' + 10;
    else if (byte >= 'A' && byte <= 'F')
        *digit = byte - 'A' + 10;
    else
        return false;
    return *digit < base;
}

/* Digits with single underscores between; returns the end, `at` when there is none. */
static size_t digits_end(const jinja_lexer *lexer, size_t at, int base, bool underscore_first) {
    int digit;
    for (size_t end = at;;) {
        size_t next = end;
        if (byte_at(lexer, next) == '_' && (end > at || underscore_first))
            next++;
        if (!digit_of(byte_at(lexer, next), base, &digit))
            return end;
        end = next + 1;
    }
}

static size_t float_end(const jinja_lexer *lexer, size_t at) {
    if (at > 0 && byte_at(lexer, at - 1) == '.')
        return at;
    size_t end = digits_end(lexer, at, 10, false);
    if (end == at)
        return at;
    size_t fraction = end;
    if (byte_at(lexer, end) == '.') {
        fraction = digits_end(lexer, end + 1, 10, false);
        if (fraction == end + 1)
            fraction = end;
    }
    size_t exponent = fraction;
    if (byte_at(lexer, exponent) == 'e' || byte_at(lexer, exponent) == 'E') {
        exponent++;
        if (byte_at(lexer, exponent) == '+' || byte_at(lexer, exponent) == '-')
            exponent++;
        size_t exponent_end = digits_end(lexer, exponent, 10, false);
        if (exponent_end > exponent)
            return exponent_end;
    }
    return fraction > end ? fraction : at;
}

static avo_status take_float(jinja_lexer *lexer, size_t end, jinja_token *token) {
    char text[512];
    size_t size = 0;
    for (size_t i = lexer->at; i < end; i++) {
        if (lexer->source.data[i] == '_')
            continue;
        if (size + 1 >= sizeof(text))
            return fail(lexer, lexer->at, "number with too many digits");
        text[size++] = lexer->source.data[i];
    }
    text[size] = '\0';
    token->kind = TOKEN_NUMBER;
    token->number = number_from_text(text, NULL);
    lexer->at = end;
    return AVO_OK;
}

static avo_status take_integer(jinja_lexer *lexer, jinja_token *token) {
    size_t at = lexer->at;
    int second = byte_at(lexer, at + 1) | 0x20;
    int base = 10;
    size_t end = at;
    if (byte_at(lexer, at) == '0') {
        base = second == 'b' ? 2 : second == 'o' ? 8 : second == 'x' ? 16 : 10;
        if (base != 10) {
            end = digits_end(lexer, at + 2, base, true);
            if (end == at + 2)
                base = 10;
        }
        if (base == 10)
            end = digits_end(lexer, at, 1, false);
    } else {
        end = digits_end(lexer, at, 10, false);
    }
    int64_t integer = 0;
    for (size_t i = base == 10 ? at : at + 2; i < end; i++) {
        int digit;
        if (!digit_of(byte_at(lexer, i), base, &digit))
            continue;
        if (__builtin_mul_overflow(integer, (int64_t)base, &integer) ||
            __builtin_add_overflow(integer, (int64_t)digit, &integer))
            return fail(lexer, at, "an integer of more than 64 bits is not supported");
    }
    token->kind = TOKEN_INTEGER;
    token->integer = integer;
    lexer->at = end;
    return AVO_OK;
}

/* The escape behind a backslash at `*at`; writes its bytes. */
static avo_status take_escape(jinja_lexer *lexer, size_t *at, size_t end, char *out, size_t *size) {
    static const char from[] = "\\'\"abfnrtv";
    static const char to[] = "\\'\"\a\b\f\n\r\t\v";
    size_t begin = *at;
    int byte = *at < end ? byte_at(lexer, *at) : -1;
    const char *simple = byte > 0 ? strchr(from, byte) : NULL;
    (*at)++;
    if (simple != NULL) {
        out[(*size)++] = to[simple - from];
        return AVO_OK;
    }
    if (byte == '\n')
        return AVO_OK;
    if (byte == 'N')
        return fail(lexer, begin, "\\N{…} in a string is not supported");
    size_t digits = byte == 'x' ? 2 : byte == 'u' ? 4 : byte == 'U' ? 8 : 0;
    uint32_t code_point = 0;
    int digit;
    if (digits > 0) {
        for (size_t i = 0; i < digits; i++) {
            if (*at >= end || !digit_of(byte_at(lexer, *at), 16, &digit))
                return fail(lexer, begin, "invalid escape in a string");
            code_point = code_point << 4 | (uint32_t)digit;
            (*at)++;
        }
    } else if (digit_of(byte, 8, &digit)) {
        code_point = (uint32_t)digit;
        for (int i = 0; i < 2 && *at < end && digit_of(byte_at(lexer, *at), 8, &digit); i++) {
            code_point = code_point << 3 | (uint32_t)digit;
            (*at)++;
        }
    } else { /* no escape: the backslash stays, and what follows is read as usual */
        out[(*size)++] = '\\';
        *at = begin;
        return AVO_OK;
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000))
        return fail(lexer, begin, "an escape that is not a character is not supported");
    *size += utf8_encode(code_point, out + *size);
    return AVO_OK;
}

static avo_status take_string(jinja_lexer *lexer, jinja_token *token) {
    size_t begin = lexer->at + 1;
    int quote = byte_at(lexer, lexer->at);
    size_t end = begin;
    bool escaped = false;
    while (end < lexer->source.size && byte_at(lexer, end) != quote) {
        if (byte_at(lexer, end) == '\\') {
            escaped = true;
            end++;
        }
        end++;
    }
    if (end >= lexer->source.size)
        return fail(lexer, lexer->at, "unterminated string");
    token->kind = TOKEN_STRING;
    lexer->at = end + 1;
    token->text = (text_view){lexer->source.data + begin, end - begin};
    if (!escaped)
        return AVO_OK;
    char *text = arena_take(lexer->arena, end - begin + 1);
    if (text == NULL)
        return no_memory(lexer);
    size_t size = 0;
    for (size_t at = begin; at < end;) {
        if (byte_at(lexer, at) != '\\') {
            text[size++] = lexer->source.data[at++];
            continue;
        }
        at++;
        AVO_TRY(take_escape(lexer, &at, end, text, &size));
    }
    token->text = (text_view){text, size};
    return AVO_OK;
}

static avo_status open_bracket(jinja_lexer *lexer, char closing) {
    if (lexer->open_count == lexer->open_capacity) {
        size_t capacity = lexer->open_capacity == 0 ? 64 : lexer->open_capacity * 2;
        char *open = arena_take(lexer->arena, capacity);
        if (open == NULL)
            return no_memory(lexer);
        if (lexer->open_count > 0)
            memcpy(open, lexer->open, lexer->open_count);
        lexer->open = open;
        lexer->open_capacity = capacity;
    }
    lexer->open[lexer->open_count++] = closing;
    return AVO_OK;
}

static avo_status take_operator(jinja_lexer *lexer, jinja_token *token) {
    static const char *const twos[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < sizeof(twos) / sizeof(*twos); i++) {
        if (has_text(lexer, lexer->at, twos[i])) {
            token->kind = TOKEN_OPERATOR;
            token->operation = OPERATOR(twos[i][0], twos[i][1]);
            lexer->at += 2;
            return AVO_OK;
        }
    }
    int byte = byte_at(lexer, lexer->at);
    if (byte <= 0 || strchr("+-/*%~[](){}><=.:|,;", byte) == NULL)
        return fail(lexer, lexer->at, "unexpected character");
    if (byte == '(' || byte == '[' || byte == '{')
        AVO_TRY(open_bracket(lexer, byte == '(' ? ')' : byte == '[' ? ']' : '}'));
    if (byte == ')' || byte == ']' || byte == '}') {
        if (lexer->open_count == 0 || lexer->open[lexer->open_count - 1] != byte)
            return fail(lexer, lexer->at, "closing bracket without an opening one");
        lexer->open_count--;
    }
    token->kind = TOKEN_OPERATOR;
    token->operation = byte;
    lexer->at++;
    return AVO_OK;
}

static size_t name_end(const jinja_lexer *lexer, size_t at) {
    size_t begin = at;
    while (at < lexer->source.size) {
        int byte = byte_at(lexer, at);
        uint32_t code_point = (uint32_t)byte;
        size_t bytes = 1;
        if (byte >= 0x80)
            bytes = utf8_decode(lexer->source.data + at, lexer->source.size - at, &code_point);
        bool letter = byte == '_' || jinja_is_alphabetic(code_point);
        if (!letter && (at == begin || !jinja_is_decimal(code_point)))
            break;
        at += bytes;
    }
    return at;
}

static avo_status tag_token(jinja_lexer *lexer, jinja_token *token) {
    bool block = lexer->state == LEXER_BLOCK;
    lexer->at = skip_space(lexer, lexer->at);
    size_t at = lexer->at;
    token->offset = (uint32_t)at;
    size_t end = tag_end(lexer, at, block ? "%}" : "}}", block);
    if (end > 0 && lexer->open_count == 0) {
        token->kind = block ? TOKEN_BLOCK_END : TOKEN_PRINT_END;
        lexer->state = LEXER_ROOT;
        matched_to(lexer, end);
        return AVO_OK;
    }
    if (at >= lexer->source.size) {
        token->kind = TOKEN_END;
        return AVO_OK;
    }
    int byte = byte_at(lexer, at);
    if (byte >= '0' && byte <= '9') {
        end = float_end(lexer, at);
        return end > at ? take_float(lexer, end, token) : take_integer(lexer, token);
    }
    end = name_end(lexer, at);
    if (end > at) {
        token->kind = TOKEN_NAME;
        token->text = (text_view){lexer->source.data + at, end - at};
        lexer->at = end;
        return AVO_OK;
    }
    if (byte == '\'' || byte == '"')
        return take_string(lexer, token);
    return take_operator(lexer, token);
}

avo_status jinja_lexer_next(jinja_lexer *lexer, jinja_token *token) {
    for (;;) {
        *token = (jinja_token){.kind = TOKEN_END};
        if (lexer->begin_pending) {
            *token = lexer->pending;
            lexer->begin_pending = false;
        } else if (lexer->state != LEXER_ROOT) {
            return tag_token(lexer, token);
        } else {
            AVO_TRY(root_token(lexer, token));
        }
        if (token->kind != TOKEN_DATA || token->text.size > 0)
            return AVO_OK;
    }
}
