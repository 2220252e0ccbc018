/* Regular expressions from tokenizer files, by PCRE2. The files are written for Oniguruma: patterns
 * are translated, and characters that PCRE2 is too old for are matched as older ones of their
 * kind. Compiled once, matched by any number of threads. */
#ifndef AVO_TOKENIZER_REGEX_INT_H
#define AVO_TOKENIZER_REGEX_INT_H

#include "base/buffer.h"
#include "base/cursor.h"
#include "base/status.h"

#define REGEX_PATTERN_MAX 65536u

typedef struct regex regex;

AVO_MUST_USE avo_status regex_compile(text_view pattern, const avo_allocator *allocator,
                                      regex **out, avo_error *error);
void regex_free(regex *regex);

/* What one thread needs for matching; zeroed at first, made when needed. */
typedef struct regex_match {
    void *context; /* pcre2_match_context */
    void *data;    /* pcre2_match_data */
    void *stack;   /* pcre2_jit_stack */
} regex_match;
void regex_match_free(regex_match *match);

/* A pattern in PCRE2's dialect; what has no counterpart is refused. */
AVO_MUST_USE avo_status regex_translate(text_view pattern, buffer *out, avo_error *error);

/* Characters PCRE2 does not know, and what they are matched as; ascending. */
typedef struct regex_stand_in {
    uint32_t begin, end;
    uint32_t other; /* as long in UTF-8 */
} regex_stand_in;
extern const regex_stand_in regex_stand_ins[];
extern const uint32_t regex_stand_in_count;

/* The text to match instead of `text`, which is valid UTF-8: the same, or in `copy` where there are
 * such characters. Positions are the same in both. */
AVO_MUST_USE avo_status regex_subject(text_view text, buffer *copy, text_view *subject);

/* The first match at or behind `at` in valid UTF-8: *found, and its bytes [*begin, *end). */
AVO_MUST_USE avo_status regex_find(const regex *regex, regex_match *match, text_view text,
                                   size_t at, bool *found, size_t *begin, size_t *end,
                                   avo_error *error);

#endif
