/* A place in a text that describes a grammar: what the readers of GBNF and of patterns share. */
#ifndef AVO_SAMPLE_GRAMMAR_READER_INT_H
#define AVO_SAMPLE_GRAMMAR_READER_INT_H

#include "sample/grammar_int.h"

typedef struct grammar_reader {
    grammar_rules *rules;
    text_view text;
    size_t at;
    uint32_t line; /* GBNF alone */
    uint32_t depth;
    bool whole; /* patterns alone: of a whole answer, not of what a JSON string has */
} grammar_reader;

/* The status behind a call that makes an expression. */
static inline avo_status made(const grammar_reader *r, const expression *e) {
    return e == NULL ? r->rules->error->status : AVO_OK;
}

/* The next byte; −1 at the end. */
static inline int peek(const grammar_reader *r) {
    return r->at < r->text.size ? (unsigned char)r->text.data[r->at] : -1;
}

static inline bool take(grammar_reader *r, const char *wanted) {
    text_view rest = {r->text.data + r->at, r->text.size - r->at};
    if (!text_take(&rest, wanted))
        return false;
    r->at = r->text.size - rest.size;
    return true;
}

/* −1: not a hexadecimal digit. */
static inline int hex_value(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

#endif
