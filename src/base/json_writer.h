/* Writes JSON into a buffer, member by member.
 *
 * The writer owns commas, quotes, escapes and nesting; the first failure of the buffer is kept and
 * nothing is written after it, so callers write straight-line code and check once:
 *
 *     json_writer w = json_writer_of(out);
 *     json_object_begin(&w);
 *     json_member_string(&w, "model", name);
 *     json_member_object_begin(&w, "usage");
 *     json_member_u64(&w, "total_tokens", tokens);
 *     json_end(&w);
 *     json_end(&w);
 *     return json_writer_status(&w);
 *
 * It allocates nothing itself and never reads the buffer back: a caller may flush and empty the
 * buffer between two calls. A member without a key, a key without a value, a missing or additional
 * json_end and too deep a nesting are programmer errors and assert.
 */
#ifndef AVO_BASE_JSON_WRITER_H
#define AVO_BASE_JSON_WRITER_H

#include "base/json.h"

#define JSON_WRITER_DEPTH_MAX 31

typedef struct json_writer {
    buffer *out;
    avo_status status;  /* the first failure; callers in the middle of a document may read it */
    uint32_t objects;   /* bit d: the container at depth d is an object, not an array */
    uint32_t filled;    /* bit d: something has been written at depth d */
    uint8_t depth;      /* open containers */
    uint8_t line_depth; /* see json_writer_indented */
    bool has_key;       /* a key waits for its value */
    uint8_t line_break; /* 0: none pending, else its spaces + 1 */
} json_writer;

/* Without any whitespace. */
json_writer json_writer_of(buffer *out);
/* For files that people read: every item of the outermost `levels` containers starts a line,
 * indented by two spaces a level; deeper containers stay on one line, with a space after ':' and
 * ','. An empty container is always [] or {}. */
json_writer json_writer_indented(buffer *out, unsigned levels);

/* The first failure, or AVO_OK. The document must be complete: every container closed. */
AVO_MUST_USE avo_status json_writer_status(const json_writer *w);
/* Keeps `status` if it is the first failure: for a step between two members that may fail. */
void json_writer_note(json_writer *w, avo_status status);

/* ---- Containers and keys ---- */

void json_object_begin(json_writer *w);
void json_array_begin(json_writer *w);
/* Closes the innermost container. */
void json_end(json_writer *w);
/* The key of the value that the next call writes. */
void json_key(json_writer *w, const char *key);
void json_key_text(json_writer *w, text_view key);

/* The next key, item or end starts a line, indented by `spaces`: for long documents that are one
 * record a line. */
void json_line_break(json_writer *w, unsigned spaces);

/* ---- Values: the document, an array's item, or what follows a key ---- */

void json_null(json_writer *w);
void json_boolean(json_writer *w, bool value);
void json_u64(json_writer *w, uint64_t value);
void json_i64(json_writer *w, int64_t value);
/* The shortest decimals (6 to 17 digits) that read back as the same double. In these four, a number
 * that is not finite is null. */
void json_number(json_writer *w, double value);
/* The shortest decimals (6 to 9 digits) that read back as the same float. */
void json_float(json_writer *w, float value);
/* As "%.*f" and "%.*g" in the C locale. */
void json_fixed(json_writer *w, double value, int decimals);
void json_significant(json_writer *w, double value, int digits);
/* Escaped; NULL is null. */
void json_string(json_writer *w, const char *value);
void json_text(json_writer *w, text_view value);
void json_tree(json_writer *w, const json_value *value);
/* One value that is JSON already. */
void json_raw(json_writer *w, text_view json);
void json_raw_format(json_writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Any number of an array's items, or of an object's members, with commas between them; may be
 * empty. */
void json_raw_items(json_writer *w, text_view json);

/* ---- Members: a key and its value ---- */

static inline void json_member_object_begin(json_writer *w, const char *key) {
    json_key(w, key);
    json_object_begin(w);
}

static inline void json_member_array_begin(json_writer *w, const char *key) {
    json_key(w, key);
    json_array_begin(w);
}

static inline void json_member_null(json_writer *w, const char *key) {
    json_key(w, key);
    json_null(w);
}

static inline void json_member_boolean(json_writer *w, const char *key, bool value) {
    json_key(w, key);
    json_boolean(w, value);
}

static inline void json_member_u64(json_writer *w, const char *key, uint64_t value) {
    json_key(w, key);
    json_u64(w, value);
}

static inline void json_member_i64(json_writer *w, const char *key, int64_t value) {
    json_key(w, key);
    json_i64(w, value);
}

static inline void json_member_number(json_writer *w, const char *key, double value) {
    json_key(w, key);
    json_number(w, value);
}

static inline void json_member_float(json_writer *w, const char *key, float value) {
    json_key(w, key);
    json_float(w, value);
}

static inline void json_member_fixed(json_writer *w, const char *key, double value, int decimals) {
    json_key(w, key);
    json_fixed(w, value, decimals);
}

static inline void json_member_significant(json_writer *w, const char *key, double value,
                                           int digits) {
    json_key(w, key);
    json_significant(w, value, digits);
}

static inline void json_member_string(json_writer *w, const char *key, const char *value) {
    json_key(w, key);
    json_string(w, value);
}

static inline void json_member_text(json_writer *w, const char *key, text_view value) {
    json_key(w, key);
    json_text(w, value);
}

static inline void json_member_tree(json_writer *w, const char *key, const json_value *value) {
    json_key(w, key);
    json_tree(w, value);
}

static inline void json_member_raw(json_writer *w, const char *key, text_view json) {
    json_key(w, key);
    json_raw(w, json);
}

#endif
