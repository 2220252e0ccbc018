/* Regular expressions from tokenizer files, by PCRE2. The files are written for Oniguruma: '^' and
 * '$' match at lines, classes are Unicode's. Compiled once, matched by any number of threads. */
#ifndef AVO_TOKENIZER_REGEX_INT_H
#define AVO_TOKENIZER_REGEX_INT_H

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

/* The first match at or behind `at` in valid UTF-8: *found, and its bytes [*begin, *end). */
AVO_MUST_USE avo_status regex_find(const regex *regex, regex_match *match, text_view text,
                                   size_t at, bool *found, size_t *begin, size_t *end,
                                   avo_error *error);

#endif
