/* JSON as a tree in an arena.
 *
 * Own code rather than Jansson: its allocator and its hash seed are global state, which the library
 * must not have; its trees cost a malloc per value (a tokenizer.json has 400,000), and its errors
 * lose the byte offset. Strict RFC 8259: UTF-8 checked, no trailing commas, depth limited, a
 * duplicate key is refused. \u0000 is kept; a lone surrogate escape is refused.
 */
#ifndef AVO_BASE_JSON_H
#define AVO_BASE_JSON_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/cursor.h"
#include "base/name_index.h"
#include "base/number.h"

#define JSON_DEPTH_MAX 128

typedef enum json_kind {
    JSON_NULL,
    JSON_BOOLEAN,
    JSON_INTEGER, /* fits int64 and was written without '.', 'e' */
    JSON_NUMBER,  /* any other number, as the nearest double */
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} json_kind;

typedef struct json_value json_value;
typedef struct json_member json_member;

struct json_value {
    json_kind kind;
    uint32_t line; /* where it began, 1-based; for messages */
    union {
        bool boolean;
        int64_t integer;
        double number;
        text_view string;
        struct {
            json_value *items;
            size_t count;
        } array;
        struct {
            json_member *members; /* in file order */
            size_t count;
            name_index index; /* of json_find; empty for small objects */
        } object;
    };
};

struct json_member {
    text_view key;
    json_value value;
};

/* Strings without escapes point into `text`, which must outlive the tree; everything else lies in
 * the arena. The error names the line and what was expected. */
AVO_MUST_USE avo_status json_parse(arena *arena, text_view text, json_value *root,
                                   avo_error *error);

/* The same; where the text is no JSON inside the value of a member of the outermost object, *member
 * is that member's name, else empty. */
AVO_MUST_USE avo_status json_parse_named(arena *arena, text_view text, json_value *root,
                                         text_view *member, avo_error *error);

/* NULL when `object` is NULL, is no object or has no such key. O(1). */
const json_value *json_find(const json_value *object, const char *key);
const json_value *json_find_text(const json_value *object, text_view key);
/* NULL when out of range or no array. */
const json_value *json_item(const json_value *array, size_t index);

const char *json_kind_name(json_kind kind);

#define JSON_SHOWN_KEY_MAX 72
/* A key as errors name it: cut after about 64 bytes, control characters (zero among them, which
 * would end the text) as \u00XX. Returns `text`. */
const char *json_shown_key(text_view key, char text[static JSON_SHOWN_KEY_MAX]);

/* Typed reads of optional members: absent or null leaves *value as it is and succeeds; a wrong
 * type or a value out of [minimum, maximum] fails with a text that names `key`. */
AVO_MUST_USE avo_status json_get_integer(const json_value *object, const char *key, int64_t minimum,
                                         int64_t maximum, int64_t *value, avo_error *error);
AVO_MUST_USE avo_status json_get_number(const json_value *object, const char *key, double minimum,
                                        double maximum, double *value, avo_error *error);
AVO_MUST_USE avo_status json_get_boolean(const json_value *object, const char *key, bool *value,
                                         avo_error *error);
AVO_MUST_USE avo_status json_get_string(const json_value *object, const char *key, text_view *value,
                                        avo_error *error);

/* Writers: `text` quoted and escaped (invalid UTF-8 becomes U+FFFD); numbers that read back the
 * same (NaN and infinities as null). */
AVO_MUST_USE avo_status json_write_string(buffer *out, text_view text);
AVO_MUST_USE avo_status json_write_number(buffer *out, double number);
/* A finite number as that writes it: the shortest text of 6 to 17 digits that reads back the same.
 */
void json_number_text(double number, char text[static NUMBER_TEXT_MAX]);
/* The whole tree, compact. */
AVO_MUST_USE avo_status json_write_value(buffer *out, const json_value *value);

#endif
