/* Between the files that read JSON schemas. */
#ifndef AVO_SAMPLE_GRAMMAR_SCHEMA_INT_H
#define AVO_SAMPLE_GRAMMAR_SCHEMA_INT_H

#include "base/json.h"
#include "sample/grammar_int.h"

#define SCHEMA_REFS_MAX    1024u
#define SCHEMA_PREFIX_MAX  64u  /* prefixItems */
#define SCHEMA_KEY_MAX     256u /* characters of a property beside which others are allowed */
#define SCHEMA_DIGITS      15u  /* of a number behind its first digit, and of its fraction */
#define SCHEMA_MERGE_DEPTH 32u  /* references that only refer */
#define SCHEMA_MERGES_MAX  4096u
#define SCHEMA_PAIR_SLOTS  8192u
#define SCHEMA_PAIRS_MAX   4096u /* kept; more are compared again each time */
#define SCHEMA_DEPTH_MAX   400u  /* schemas in schemas, references followed */

enum { /* sets of types */
       TYPE_NULL = 1,
       TYPE_BOOLEAN = 2,
       TYPE_OBJECT = 4,
       TYPE_ARRAY = 8,
       TYPE_STRING = 16,
       TYPE_INTEGER = 32,
       TYPE_NUMBER = 64, /* integers too */
       TYPE_ANY = 127
};

/* X(name, text, types it is about). Order and numbers are ours alone. */
#define SCHEMA_KEYWORDS(X)                                                                         \
    X(KEY_TYPE, "type", 0)                                                                         \
    X(KEY_ENUM, "enum", 0)                                                                         \
    X(KEY_CONST, "const", 0)                                                                       \
    X(KEY_REF, "$ref", 0)                                                                          \
    X(KEY_ANY_OF, "anyOf", 0)                                                                      \
    X(KEY_ONE_OF, "oneOf", 0)                                                                      \
    X(KEY_ALL_OF, "allOf", 0)                                                                      \
    X(KEY_PROPERTIES, "properties", TYPE_OBJECT)                                                   \
    X(KEY_REQUIRED, "required", TYPE_OBJECT)                                                       \
    X(KEY_ADDITIONAL, "additionalProperties", TYPE_OBJECT)                                         \
    X(KEY_ITEMS, "items", TYPE_ARRAY)                                                              \
    X(KEY_PREFIX_ITEMS, "prefixItems", TYPE_ARRAY)                                                 \
    X(KEY_MIN_ITEMS, "minItems", TYPE_ARRAY)                                                       \
    X(KEY_MAX_ITEMS, "maxItems", TYPE_ARRAY)                                                       \
    X(KEY_MIN_LENGTH, "minLength", TYPE_STRING)                                                    \
    X(KEY_MAX_LENGTH, "maxLength", TYPE_STRING)                                                    \
    X(KEY_PATTERN, "pattern", TYPE_STRING)                                                         \
    X(KEY_FORMAT, "format", TYPE_STRING)                                                           \
    X(KEY_MINIMUM, "minimum", TYPE_NUMBER)                                                         \
    X(KEY_MAXIMUM, "maximum", TYPE_NUMBER)                                                         \
    X(KEY_ABOVE, "exclusiveMinimum", TYPE_NUMBER)                                                  \
    X(KEY_BELOW, "exclusiveMaximum", TYPE_NUMBER)

typedef enum schema_key {
#define SCHEMA_KEY_ENUM(name, text, types) name,
    SCHEMA_KEYWORDS(SCHEMA_KEY_ENUM)
#undef SCHEMA_KEY_ENUM
        KEY_COUNT
} schema_key;

/* One schema object, its keywords sorted out. */
typedef struct keywords {
    const json_value *source;
    const json_value *value[KEY_COUNT]; /* NULL: absent */
    uint32_t present;                   /* bits of schema_key */
} keywords;
#define KEY_BIT(key) (1u << (key))

typedef struct schema_ref {
    const json_value *target;
    uint32_t rule;
} schema_ref;

typedef struct schema_pair {
    const json_value *a, *b; /* NULL: an empty slot */
    uint32_t depth;
    bool disjoint;
} schema_pair;

typedef struct schema {
    grammar_rules *rules;
    json_value root;
    schema_ref refs[SCHEMA_REFS_MAX];
    uint32_t ref_count;
    /* Rules that many schemas use; built when first asked for. */
    uint32_t space, string, value, object, array, number, integer;
    uint32_t merges; /* so far */
    /* Pairs of schemas that were compared, found again by their hash. Which pairs are kept depends
     * on their order alone, never on where they lie in memory. */
    schema_pair *pairs; /* [SCHEMA_PAIR_SLOTS], NULL until the first */
    uint32_t pair_count;
    uint32_t depth; /* of schemas that are being read */
} schema;

const char *schema_key_text(schema_key key);
AVO_MUST_USE avo_status schema_refuse(const schema *s, const json_value *at, const char *format,
                                      ...) __attribute__((format(printf, 3, 4)));
/* Of an expression that could not be made. */
static inline avo_status schema_made(const schema *s, const expression *e) {
    return e == NULL ? s->rules->error->status : AVO_OK;
}

/* Counts work of the compilation; see grammar_rules_work. Behind the limit nothing is looked at. */
static inline avo_status schema_work(const schema *s, uint64_t steps) {
    return grammar_rules_work(s->rules, steps);
}

/* Sorts a schema object's keywords; one that is unknown is refused. */
AVO_MUST_USE avo_status schema_keywords(const schema *s, const json_value *value, keywords *out);
/* Any schema. */
AVO_MUST_USE avo_status schema_read(schema *s, const json_value *value, const expression **out);
/* What a "$ref" means. */
AVO_MUST_USE avo_status schema_resolve(const schema *s, const json_value *ref,
                                       const json_value **target);
/* The types that a value of this schema can have. */
AVO_MUST_USE avo_status schema_types(const schema *s, const keywords *k, uint32_t *types);

/* One schema that asks for what both ask for; refused where that cannot be written down. */
AVO_MUST_USE avo_status schema_merge(schema *s, const json_value *a, const json_value *b,
                                     json_value *out);
/* Whether no value fits both, provably; `depth` is 0 but for itself. */
AVO_MUST_USE avo_status schema_disjoint(schema *s, const json_value *a, const json_value *b,
                                        uint32_t depth, bool *disjoint);

/* ---- One type each ---- */

AVO_MUST_USE avo_status schema_object(schema *s, const keywords *k, const expression **out);
AVO_MUST_USE avo_status schema_array(schema *s, const keywords *k, const expression **out);
AVO_MUST_USE avo_status schema_string(schema *s, const keywords *k, const expression **out);
AVO_MUST_USE avo_status schema_number(schema *s, const keywords *k, bool integer,
                                      const expression **out);
/* A count such as minLength. */
AVO_MUST_USE avo_status schema_count(const schema *s, const keywords *k, schema_key key,
                                     uint32_t absent, uint32_t *count);

/* ---- Parts of JSON ---- */

AVO_MUST_USE avo_status json_any(schema *s, const expression **out);
AVO_MUST_USE avo_status json_any_object(schema *s, const expression **out);
AVO_MUST_USE avo_status json_any_array(schema *s, const expression **out);
AVO_MUST_USE avo_status json_any_string(schema *s, const expression **out);
AVO_MUST_USE avo_status json_any_number(schema *s, bool integer, const expression **out);
/* Bounded: none, one space, or a line end and some indentation. */
AVO_MUST_USE avo_status json_space(schema *s, const expression **out);
/* ',' and the space behind it. */
AVO_MUST_USE avo_status json_comma(schema *s, const expression **out);
/* Begin and end with the spaces inside. */
AVO_MUST_USE avo_status json_frame(schema *s, const char *begin, const expression *inside,
                                   const char *end, const expression **out);
/* key ":" value. */
AVO_MUST_USE avo_status json_pair(schema *s, const expression *key, const expression *value,
                                  const expression **out);

#endif
