/* From Oniguruma's dialect, for which tokenizer files are written, to PCRE2's:
 *
 *   \w \b      what Oniguruma calls a word: marks too, and no unassigned differences
 *   \h         a hexadecimal digit; [[:punct:]] has symbols in it
 *   \uHHHH     a code point
 *   (?m)       "." matches line ends: PCRE2's (?s)
 *   x{1,3}+    (?:x{1,3})+, not possessive
 *
 * What has no counterpart (classes inside classes, &&, \W in a class) is refused. */
#include "tokenizer/regex_int.h"

#include <stdio.h>

#define GROUP_DEPTH_MAX 100

/* Oniguruma's \w in a class lacks six superscripts and fractions that it has outside. */
#define WORD_IN_CLASS                                                                              \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}"                                         \
    "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"
#define WORD        WORD_IN_CLASS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
#define HEXADECIMAL "0-9A-Fa-f"

typedef struct translator {
    text_view pattern;
    size_t at;
    buffer *out;
    size_t atom; /* where the last atom begins in `out` */
    size_t groups[GROUP_DEPTH_MAX];
    uint32_t depth;
    avo_error *error;
} translator;

static avo_status refuse(const translator *t, const char *what) {
    return status_fail(t->error, AVO_ERROR_UNSUPPORTED, "pattern \"%.*s\": %s is not supported",
                       TEXT_ARGUMENT(t->pattern), what);
}

static avo_status put(translator *t, const char *text) {
    return buffer_append_text(t->out, text);
}

static char peek(const translator *t, size_t ahead) {
    size_t at = t->at + ahead;
    return at < t->pattern.size ? t->pattern.data[at] : '\0';
}

static avo_status copy(translator *t, size_t bytes) {
    AVO_TRY(buffer_append(t->out, t->pattern.data + t->at, bytes));
    t->at += bytes;
    return AVO_OK;
}

/* \p{Han} is the script alone; PCRE2 means script extensions unless told otherwise. */
static bool put_script(translator *t, avo_status *status) {
    static const char *const scripts[] = {"Han",   "Hiragana", "Katakana",   "Hangul",  "Latin",
                                          "Greek", "Cyrillic", "Arabic",     "Hebrew",  "Thai",
                                          "Tamil", "Armenian", "Devanagari", "Bengali", "Georgian"};
    text_view left = {t->pattern.data + t->at, t->pattern.size - t->at};
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        char name[32];
        int bytes = snprintf(name, sizeof(name), "\\%c{%s}", peek(t, 1), scripts[i]);
        if (!text_starts(left, (text_view){name, (size_t)bytes}))
            continue;
        *status = buffer_format(t->out, "\\%c{sc:%s}", peek(t, 1), scripts[i]);
        t->at += (size_t)bytes;
        return true;
    }
    return false;
}

/* \p{…}, \x{…}, \k<…> and the like: the letter and what stands in its braces. */
static avo_status copy_escape(translator *t) {
    size_t bytes = 2;
    avo_status status;
    if ((peek(t, 1) == 'p' || peek(t, 1) == 'P') && put_script(t, &status))
        return status;
    char open = peek(t, 2);
    char close = open == '{' ? '}' : open == '<' ? '>' : '\0';
    bool takes = strchr("pPxkgoN", peek(t, 1)) != NULL;
    if (takes && close != '\0') {
        const char *begin = t->pattern.data + t->at;
        const char *end = memchr(begin, close, t->pattern.size - t->at);
        if (end != NULL)
            bytes = (size_t)(end - begin) + 1;
    }
    return copy(t, bytes);
}

static avo_status translate_escape(translator *t, bool in_class) {
    char c = peek(t, 1);
    if (t->at + 1 >= t->pattern.size)
        return refuse(t, "a backslash at the end");
    if (!in_class)
        t->atom = t->out->size;
    if (c == 'u' && t->pattern.size - t->at >= 6) {
        char text[16];
        snprintf(text, sizeof(text), "\\x{%.4s}", t->pattern.data + t->at + 2);
        t->at += 6;
        return put(t, text);
    }
    if (c == '\0' || strchr("wWhHbB", c) == NULL || (in_class && c == 'b'))
        return copy_escape(t);
    if (in_class && (c == 'W' || c == 'H' || c == 'B'))
        return refuse(t, "\\W, \\H or \\B in a class");
    t->at += 2;
    switch (c) {
    case 'w':
        return put(t, in_class ? WORD_IN_CLASS : "[" WORD "]");
    case 'W':
        return put(t, "[^" WORD "]");
    case 'h':
        return put(t, in_class ? HEXADECIMAL : "[" HEXADECIMAL "]");
    case 'H':
        return put(t, "[^" HEXADECIMAL "]");
    case 'b':
        return put(t, "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))");
    default:
        return put(t, "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))");
    }
}

/* [:name:] in a class: those on which both agree, and punctuation. */
static avo_status translate_posix(translator *t) {
    static const char *const same[] = {"[:digit:]", "[:space:]", "[:xdigit:]",
                                       "[:cntrl:]", "[:ascii:]", "[:blank:]"};
    text_view left = {t->pattern.data + t->at, t->pattern.size - t->at};
    if (text_starts(left, TEXT_LITERAL("[:punct:]"))) {
        t->at += 9;
        return put(t, "\\p{P}\\p{S}");
    }
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
        if (text_starts(left, text_from(same[i])))
            return copy(t, strlen(same[i]));
    return refuse(t, "a class inside a class, or this class of POSIX,");
}

static avo_status translate_class(translator *t) {
    t->atom = t->out->size;
    AVO_TRY(copy(t, peek(t, 1) == '^' ? 2 : 1));
    if (peek(t, 0) == ']') { /* literal, as the first one */
        AVO_TRY(put(t, "\\]"));
        t->at++;
    }
    while (t->at < t->pattern.size && peek(t, 0) != ']') {
        char c = peek(t, 0);
        if (c == '\\')
            AVO_TRY(translate_escape(t, true));
        else if (c == '[')
            AVO_TRY(translate_posix(t));
        else if (c == '&' && peek(t, 1) == '&')
            return refuse(t, "&& in a class");
        else
            AVO_TRY(copy(t, 1));
    }
    return t->at < t->pattern.size ? copy(t, 1) : refuse(t, "a class without an end");
}

/* "(", with what follows a question mark: flags of which m means s. */
static avo_status translate_group(translator *t) {
    if (t->depth == GROUP_DEPTH_MAX)
        return refuse(t, "such deep nesting");
    t->groups[t->depth++] = t->out->size;
    AVO_TRY(copy(t, 1));
    if (peek(t, 0) != '?')
        return AVO_OK;
    AVO_TRY(copy(t, 1));
    while (t->at < t->pattern.size && strchr("imx-", peek(t, 0)) != NULL) {
        char flag[2] = {peek(t, 0) == 'm' ? 's' : peek(t, 0), '\0'};
        AVO_TRY(put(t, flag));
        t->at++;
    }
    return AVO_OK;
}

/* The bytes of {n}, {n,}, {,m} or {n,m} here; 0: it is none. */
static size_t interval_bytes(const translator *t) {
    size_t bytes = 1;
    bool digits = false;
    while ((peek(t, bytes) >= '0' && peek(t, bytes) <= '9') || peek(t, bytes) == ',') {
        digits = digits || peek(t, bytes) != ',';
        bytes++;
    }
    return digits && peek(t, bytes) == '}' ? bytes + 1 : 0;
}

static avo_status translate_interval(translator *t) {
    size_t bytes = interval_bytes(t);
    if (bytes == 0) {
        t->atom = t->out->size;
        return copy(t, 1);
    }
    AVO_TRY(copy(t, bytes));
    if (peek(t, 0) != '+')
        return AVO_OK;
    AVO_TRY(put(t, "???")); /* room */
    char *atom = t->out->data + t->atom;
    memmove(atom + 3, atom, t->out->size - t->atom - 3);
    memcpy(atom, "(?:", 3);
    return put(t, ")"); /* the plus follows */
}

avo_status regex_translate(text_view pattern, buffer *out, avo_error *error) {
    translator t = {.pattern = pattern, .out = out, .error = error};
    while (t.at < pattern.size) {
        char c = peek(&t, 0);
        if (c == '\\') {
            AVO_TRY(translate_escape(&t, false));
        } else if (c == '[') {
            AVO_TRY(translate_class(&t));
        } else if (c == '(') {
            AVO_TRY(translate_group(&t));
        } else if (c == ')') {
            t.atom = t.depth > 0 ? t.groups[--t.depth] : t.out->size;
            AVO_TRY(copy(&t, 1));
        } else if (c == '{') {
            AVO_TRY(translate_interval(&t));
        } else {
            /* A character of several bytes is one atom. */
            if (strchr("*+?|^$", c) == NULL && ((uint8_t)c & 0xC0) != 0x80)
                t.atom = t.out->size;
            AVO_TRY(copy(&t, 1));
        }
    }
    return AVO_OK;
}
