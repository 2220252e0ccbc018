/* The patterns of GPT-2, Llama 3 and Qwen 2 as scanners. */
#include "tokenizer/scan_int.h"

#include "tokenizer/unicode_int.h"

#include <stdbool.h>

enum { LETTER = UNICODE_LETTER, NUMBER = UNICODE_NUMBER, SPACE = UNICODE_SPACE };

/* The classes of ASCII, to spare the table for most text. */
static const uint8_t ascii_class[128] = {
    ['\t'] = SPACE,         ['\n'] = SPACE,         ['\v'] = SPACE,
    ['\f'] = SPACE,         ['\r'] = SPACE,         [' '] = SPACE,
    ['0' ... '9'] = NUMBER, ['A' ... 'Z'] = LETTER, ['a' ... 'z'] = LETTER,
};

/* The class (LETTER, NUMBER, SPACE or none) of the character at `at`, and its bytes. */
static inline uint32_t class_at(const char *text, uint32_t *bytes) {
    uint8_t first = (uint8_t)*text;
    if (first < 0x80) {
        *bytes = 1;
        return ascii_class[first];
    }
    uint32_t code_point;
    *bytes = unicode_take(text, &code_point);
    return unicode_class(code_point) & (LETTER | NUMBER | SPACE);
}

/* Where the run of characters of exactly this class ends. */
static size_t run_end(const char *text, size_t at, size_t size, uint32_t wanted) {
    uint32_t bytes;
    while (at < size && class_at(text + at, &bytes) == wanted)
        at += bytes;
    return at;
}

static bool is_line_end(char c) {
    return c == '\n' || c == '\r';
}

/* \s+(?!\S)|\s+ from the beginning of white space: all of it, save the last character when
 * something else follows and there is more than one. */
static size_t space_run(const char *text, size_t size) {
    size_t at = 0;
    size_t last = 0;
    uint32_t bytes;
    while (at < size && class_at(text + at, &bytes) == SPACE) {
        last = at;
        at += bytes;
    }
    return at < size && last > 0 ? last : at;
}

/* 's|'t|'re|'ve|'m|'ll|'d at an apostrophe; 0: none. */
static size_t contraction(const char *text, size_t size) {
    if (size < 2)
        return 0;
    char a = text[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (size < 3)
        return 0;
    char b = text[2];
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* The same for either case; U+017F is an s to Unicode's case folding. */
static size_t contraction_any_case(const char *text, size_t size) {
    if (size < 2)
        return 0;
    char a = (char)(text[1] | 0x20);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (size < 3)
        return 0;
    if (text[1] == '\xC5' && text[2] == '\xBF')
        return 3;
    char b = (char)(text[2] | 0x20);
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static size_t scan_gpt2(const char *text, size_t size) {
    if (*text == '\'') {
        size_t length = contraction(text, size);
        if (length > 0)
            return length;
    }
    uint32_t bytes;
    uint32_t class = class_at(text, &bytes);
    size_t at = bytes;
    if (*text == ' ' && size > 1) {
        uint32_t next = class_at(text + 1, &bytes);
        if (next != SPACE)
            return run_end(text, 1 + bytes, size, next);
    }
    return class == SPACE ? space_run(text, size) : run_end(text, at, size, class);
}

/* \s*[\r\n]+ at white space: up to the last line end of the run; 0: no line end in it. */
static size_t lines_end(const char *text, size_t size) {
    size_t at = 0;
    size_t end = 0;
    uint32_t bytes;
    while (at < size && class_at(text + at, &bytes) == SPACE) {
        if (is_line_end(text[at]))
            end = at + 1;
        at += bytes;
    }
    return end;
}

static inline size_t scan_modern(const char *text, size_t size, uint32_t digits) {
    if (*text == '\'') {
        size_t length = contraction_any_case(text, size);
        if (length > 0)
            return length;
    }
    uint32_t bytes;
    uint32_t class = class_at(text, &bytes);
    size_t at = bytes;
    if (class == LETTER)
        return run_end(text, at, size, LETTER);
    if (class == NUMBER) {
        for (uint32_t i = 1; i < digits && at < size; i++) {
            if (class_at(text + at, &bytes) != NUMBER)
                break;
            at += bytes;
        }
        return at;
    }
    uint32_t next = at < size ? class_at(text + at, &bytes) : SPACE;
    if (next == LETTER && !is_line_end(*text))
        return run_end(text, at + bytes, size, LETTER);
    if (class != SPACE || (*text == ' ' && next == 0 && at < size)) {
        at = run_end(text, at, size, 0);
        while (at < size && is_line_end(text[at]))
            at++;
        return at;
    }
    size_t lines = lines_end(text, size);
    return lines > 0 ? lines : space_run(text, size);
}

static size_t scan_llama3(const char *text, size_t size) {
    return scan_modern(text, size, 3);
}

static size_t scan_qwen2(const char *text, size_t size) {
    return scan_modern(text, size, 1);
}

#define MODERN(numbers)                                                                            \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers                          \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern;
    scan_function function;
} scanners[SCANNER_COUNT] = {
    [SCANNER_GPT2] = {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                      "\\s+(?!\\S)|\\s+",
                      scan_gpt2},
    [SCANNER_LLAMA3] = {MODERN("\\p{N}{1,3}"), scan_llama3},
    [SCANNER_QWEN2] = {MODERN("\\p{N}"), scan_qwen2},
};

const char *scanner_pattern(scanner scanner) {
    return scanners[scanner].pattern;
}

scan_function scanner_function(scanner scanner) {
    return scanners[scanner].function;
}

scanner scanner_find(text_view pattern) {
    uint32_t at = 0;
    while (at < SCANNER_COUNT && !text_is(pattern, scanners[at].pattern))
        at++;
    return (scanner)at;
}
