/* Values of a running template: Python's, as far as templates see them. All memory belongs to the
 * arena of one render; nothing is freed before its end. */
#ifndef AVO_TEMPLATE_VALUE_INT_H
#define AVO_TEMPLATE_VALUE_INT_H

#include "tokenizer/template/template.h"

typedef enum jinja_kind {
    JINJA_MISSING, /* no value: an argument that was not given, a name not yet assigned */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOLEAN,
    JINJA_INTEGER,
    JINJA_NUMBER,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    JINJA_VIEW, /* dict.keys(), dict.values(), dict.items() */
    JINJA_RANGE,
    JINJA_ITERATOR, /* a generator: can be walked once */
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNCTION
} jinja_kind;

typedef struct jinja_value jinja_value;
typedef struct jinja_text jinja_text;
typedef struct jinja_sequence jinja_sequence;
typedef struct jinja_dict jinja_dict;
typedef struct jinja_view jinja_view;
typedef struct jinja_range jinja_range;
typedef struct jinja_iterator jinja_iterator;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_macro jinja_macro;
typedef struct jinja_method jinja_method;
typedef struct jinja_undefined jinja_undefined;
typedef struct jinja_builder jinja_builder;
typedef struct jinja_render jinja_render;
typedef struct jinja_node jinja_node;

struct jinja_value {
    uint8_t kind;
    bool trusted; /* of none, booleans and numbers: whether their text may count as the template's
                     own. Strings know it byte by byte. */
    union {
        bool boolean;
        int64_t integer;
        double number;
        const jinja_text *text;
        jinja_sequence *sequence; /* lists and tuples */
        jinja_dict *dict;         /* dicts and namespaces */
        const jinja_view *view;
        const jinja_range *range;
        jinja_iterator *iterator;
        jinja_loop *loop;
        const jinja_macro *macro;
        const jinja_method *method;
        const jinja_undefined *undefined;
        int function; /* jinja_function */
    };
};

typedef enum jinja_origin { JINJA_UNTRUSTED, JINJA_TRUSTED, JINJA_MIXED } jinja_origin;

struct jinja_text {
    const char *data;
    size_t size;
    size_t length;  /* in characters; an invalid byte counts as one */
    uint8_t origin; /* jinja_origin */
    bool markup;    /* markupsafe's Markup: what is added to it gets escaped */
    /* Only when mixed: what the template wrote. Ascending, disjoint; a span may reach past `size`
     * (a longer string shares the array) and is then cut there. */
    const text_span *spans;
    size_t span_count;
    jinja_builder *store; /* where the bytes lie if more can be appended in place, else NULL */
};

struct jinja_sequence {
    jinja_value *items;
    size_t count;
    size_t capacity;
    bool grouped; /* a pair of groupby: has the attributes grouper and list */
};

typedef struct jinja_entry {
    jinja_value key;
    jinja_value value;
    uint64_t hash;
} jinja_entry;

struct jinja_dict {
    jinja_entry *entries; /* in order of insertion */
    size_t count;
    size_t capacity;
    uint32_t *index; /* open addressing: entry number + 1; NULL while small */
    size_t index_size;
};

typedef enum jinja_view_kind { JINJA_KEYS, JINJA_VALUES, JINJA_ITEMS } jinja_view_kind;
struct jinja_view {
    jinja_dict *dict;
    jinja_view_kind kind;
};

struct jinja_range {
    int64_t start, stop, step;
    size_t count;
};

struct jinja_undefined {
    text_view name;  /* what was looked up */
    const char *of;  /* the type it was looked up in; NULL for a variable */
    const char *why; /* instead of both, when there is a reason of its own */
};

struct jinja_method {
    jinja_value object;
    int method; /* jinja_method_name */
};

static inline bool jinja_is_string(jinja_value value) {
    return value.kind == JINJA_STRING;
}
static inline bool jinja_given(jinja_value value) {
    return value.kind != JINJA_MISSING;
}
static inline bool jinja_is_number(jinja_value value) {
    return value.kind == JINJA_BOOLEAN || value.kind == JINJA_INTEGER || value.kind == JINJA_NUMBER;
}
static inline bool jinja_is_integer(jinja_value value) {
    return value.kind == JINJA_BOOLEAN || value.kind == JINJA_INTEGER;
}
static inline int64_t jinja_integer_of(jinja_value value) {
    return value.kind == JINJA_BOOLEAN ? (int64_t)value.boolean : value.integer;
}
static inline double jinja_number_of(jinja_value value) {
    return value.kind == JINJA_NUMBER ? value.number : (double)jinja_integer_of(value);
}
static inline jinja_value jinja_boolean(bool boolean) {
    return (jinja_value){.kind = JINJA_BOOLEAN, .trusted = true, .boolean = boolean};
}
static inline jinja_value jinja_integer(int64_t integer) {
    return (jinja_value){.kind = JINJA_INTEGER, .trusted = true, .integer = integer};
}
static inline jinja_value jinja_number(double number) {
    return (jinja_value){.kind = JINJA_NUMBER, .trusted = true, .number = number};
}
static inline jinja_value jinja_none(void) {
    return (jinja_value){.kind = JINJA_NONE, .trusted = true};
}
static inline jinja_value jinja_string(const jinja_text *text) {
    return (jinja_value){.kind = JINJA_STRING, .text = text};
}

/* ---- value.c ---- */

/* Python's name of the type, for messages. */
const char *jinja_type_name(jinja_value value);
AVO_MUST_USE avo_status jinja_undefined_make(jinja_render *render, text_view name, const char *of,
                                             const char *why, jinja_value *out);
AVO_MUST_USE avo_status jinja_truth(jinja_render *render, jinja_value value, bool *truth);
/* Python's ==; never fails but for limits. */
AVO_MUST_USE avo_status jinja_equal(jinja_render *render, jinja_value a, jinja_value b,
                                    bool *equal);
/* −1, 0, 1; fails where Python's < does. *ordered is false when a NaN is compared. */
AVO_MUST_USE avo_status jinja_order(jinja_render *render, jinja_value a, jinja_value b, int *order,
                                    bool *ordered);
/* Python's `item in container`. */
AVO_MUST_USE avo_status jinja_contains(jinja_render *render, jinja_value container,
                                       jinja_value item, bool *contains);
/* Python's len(). */
AVO_MUST_USE avo_status jinja_length(jinja_render *render, jinja_value value, size_t *length);
bool jinja_same(jinja_value a, jinja_value b); /* Python's `is` */

/* ---- container.c ---- */

AVO_MUST_USE avo_status jinja_sequence_new(jinja_render *render, size_t capacity,
                                           jinja_sequence **out);
AVO_MUST_USE avo_status jinja_sequence_add(jinja_render *render, jinja_sequence *sequence,
                                           jinja_value item);
AVO_MUST_USE avo_status jinja_pair(jinja_render *render, jinja_value first, jinja_value second,
                                   jinja_value *out); /* a tuple of two */
AVO_MUST_USE avo_status jinja_dict_new(jinja_render *render, size_t capacity, jinja_dict **out);
/* Fails when the key cannot be one (a list, a dict). */
AVO_MUST_USE avo_status jinja_dict_set(jinja_render *render, jinja_dict *dict, jinja_value key,
                                       jinja_value value);
/* *out is NULL when there is no such key; a key that cannot be one fails. */
AVO_MUST_USE avo_status jinja_dict_find(jinja_render *render, const jinja_dict *dict,
                                        jinja_value key, jinja_entry **out);
bool jinja_hashable(jinja_value key);

/* ---- iterate.c ---- */

typedef enum jinja_walk {
    JINJA_WALK_ITEMS, /* items[at … count) */
    JINJA_WALK_BACK,  /* items from the end */
    JINJA_WALK_TEXT,  /* characters of a string */
    JINJA_WALK_DICT,  /* keys, values or pairs */
    JINJA_WALK_DICT_BACK,
    JINJA_WALK_RANGE,
    JINJA_WALK_MAP,    /* a filter or an attribute of each item of `source` */
    JINJA_WALK_SELECT, /* select, reject, selectattr, rejectattr */
    JINJA_WALK_BATCH,
    JINJA_WALK_SLICE,
    JINJA_WALK_UNIQUE
} jinja_walk;

typedef struct jinja_keyword {
    text_view name;
    jinja_value value;
} jinja_keyword;

/* What a call was given. */
typedef struct jinja_arguments {
    jinja_value *items;
    size_t count;
    jinja_keyword *keywords;
    size_t keyword_count;
} jinja_arguments;

struct jinja_iterator {
    jinja_walk walk;
    bool finished;
    const char *name; /* Python's type name */
    size_t at;
    size_t count;
    jinja_value *items;
    const jinja_text *text;
    jinja_dict *dict;
    jinja_view_kind view;
    const jinja_range *range;
    jinja_value subject; /* what a generator walks over: looked at when the first item is asked */
    jinja_iterator *source;
    /* MAP and SELECT: */
    jinja_value attribute; /* MISSING: none */
    jinja_value fallback;  /* map's default */
    int operation;         /* number of the filter or test, −1: none */
    text_view operation_name;
    jinja_arguments arguments;
    bool negate;
    bool bad_arguments; /* an error, once there is an item */
    jinja_dict *seen;   /* UNIQUE */
    bool case_sensitive;
    jinja_value fill; /* BATCH, SLICE */
    size_t width;
};

/* An iterator over any iterable; fails as Python's iter() does. An iterator gives itself. */
AVO_MUST_USE avo_status jinja_iterate(jinja_render *render, jinja_value value,
                                      jinja_iterator **out);
/* *more is false at the end. */
AVO_MUST_USE avo_status jinja_next(jinja_render *render, jinja_iterator *iterator,
                                   jinja_value *item, bool *more);
bool jinja_iterable(jinja_value value);
/* list(value) */
AVO_MUST_USE avo_status jinja_collect(jinja_render *render, jinja_value value,
                                      jinja_sequence **out);
AVO_MUST_USE avo_status jinja_iterator_new(jinja_render *render, jinja_walk walk, const char *name,
                                           jinja_iterator **out);

/* ---- text.c ---- */

struct jinja_builder {
    jinja_render *render;
    char *data;
    size_t size;
    size_t capacity;
    size_t length;
    text_span *spans; /* the trusted parts so far, neighbours merged */
    size_t span_count;
    size_t span_capacity;
};

void jinja_builder_init(jinja_builder *builder, jinja_render *render);
AVO_MUST_USE avo_status jinja_builder_bytes(jinja_builder *builder, const char *data, size_t size,
                                            bool trusted);
AVO_MUST_USE avo_status jinja_builder_text(jinja_builder *builder, const jinja_text *text);
/* The bytes [begin, end) of a text with their origin. */
AVO_MUST_USE avo_status jinja_builder_part(jinja_builder *builder, const jinja_text *text,
                                           size_t begin, size_t end);
AVO_MUST_USE avo_status jinja_builder_character(jinja_builder *builder, uint32_t code_point,
                                                bool trusted);
AVO_MUST_USE avo_status jinja_builder_fill(jinja_builder *builder, const char *data, size_t size,
                                           size_t times, bool trusted);
AVO_MUST_USE avo_status jinja_builder_finish(jinja_builder *builder, jinja_value *out);

/* Whether byte `at` is the template's own. */
bool jinja_text_trusted_at(const jinja_text *text, size_t at);
size_t jinja_count_characters(const char *data, size_t size);
/* Bytes of the character at `at`. */
size_t jinja_character_bytes(const jinja_text *text, size_t at);
/* Where character number `character` (≤ length) begins. */
AVO_MUST_USE avo_status jinja_text_offset(jinja_render *render, const jinja_text *text,
                                          size_t character, size_t *offset);
AVO_MUST_USE avo_status jinja_text_new(jinja_render *render, text_view bytes, jinja_origin origin,
                                       jinja_value *out);
AVO_MUST_USE avo_status jinja_text_part(jinja_render *render, const jinja_text *text, size_t begin,
                                        size_t end, jinja_value *out);
AVO_MUST_USE avo_status jinja_text_join(jinja_render *render, const jinja_text *a,
                                        const jinja_text *b, jinja_value *out);
/* The first place of `needle` at or behind `from`; SIZE_MAX: none. */
size_t jinja_text_find(const jinja_text *text, text_view needle, size_t from);
/* HTML escapes as markupsafe's; the result is Markup. */
AVO_MUST_USE avo_status jinja_text_escape(jinja_render *render, const jinja_text *text,
                                          jinja_value *out);
static inline text_view jinja_view_of(const jinja_text *text) {
    return (text_view){text->data, text->size};
}

/* ---- character.c: Python's classes of characters and its case mappings ---- */

bool jinja_is_space(uint32_t code_point);
bool jinja_is_line_break(uint32_t code_point);
bool jinja_is_printable(uint32_t code_point);
bool jinja_is_alphabetic(uint32_t code_point);
bool jinja_is_decimal(uint32_t code_point);
bool jinja_is_digit(uint32_t code_point);
bool jinja_is_numeric(uint32_t code_point);
bool jinja_is_cased(uint32_t code_point);
bool jinja_is_upper(uint32_t code_point);
bool jinja_is_lower(uint32_t code_point);
typedef enum jinja_case { JINJA_UPPER, JINJA_LOWER, JINJA_TITLE } jinja_case;
/* One character becomes 1…3. */
size_t jinja_map_case(uint32_t code_point, jinja_case to, uint32_t out[3]);
/* Reads the character at `at` (U+FFFD's number for an invalid byte; *valid says which). */
size_t jinja_read_character(const jinja_text *text, size_t at, uint32_t *code_point, bool *valid);

/* ---- print.c, tojson.c, format.c ---- */

/* Python's str() and repr(), appended. */
AVO_MUST_USE avo_status jinja_print(jinja_builder *builder, jinja_value value);
AVO_MUST_USE avo_status jinja_represent(jinja_builder *builder, jinja_value value);
/* str(value); strings come back as they are. */
AVO_MUST_USE avo_status jinja_to_text(jinja_render *render, jinja_value value, jinja_value *out);
#define JINJA_NUMBER_TEXT_MAX 40
/* repr() of a float into `text`; returns its bytes. */
size_t jinja_number_text(double number, char text[JINJA_NUMBER_TEXT_MAX]);

typedef struct jinja_json_style {
    bool ensure_ascii;
    bool sort_keys;
    bool indented;
    const jinja_text *indent; /* when indented */
    const jinja_text *item_separator;
    const jinja_text *key_separator;
} jinja_json_style;
AVO_MUST_USE avo_status jinja_to_json(jinja_builder *builder, jinja_value value,
                                      const jinja_json_style *style);

/* Python's `format % value` and `format.format(…)`. */
AVO_MUST_USE avo_status jinja_format_percent(jinja_render *render, const jinja_text *format,
                                             jinja_value values, jinja_value *out);
AVO_MUST_USE avo_status jinja_format_braces(jinja_render *render, const jinja_text *format,
                                            const jinja_arguments *arguments, jinja_value *out);
AVO_MUST_USE avo_status jinja_strftime(jinja_render *render, const jinja_text *format,
                                       jinja_value *out);

#endif
