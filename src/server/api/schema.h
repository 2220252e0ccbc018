/* JSON schemas of the OpenAPI document as tables: constants that a writer turns into JSON. */
#ifndef AVO_SERVER_API_SCHEMA_H
#define AVO_SERVER_API_SCHEMA_H

#include "base/json_writer.h"

typedef struct schema schema;

typedef struct schema_member {
    const char *name; /* NULL: the end */
    const schema *schema;
} schema_member;

/* Lists are comma separated. NULL and 0 leave the keyword out. */
struct schema {
    const char *types;        /* "string", "object,null" */
    const char *value;        /* const: the only text that it may be */
    const char *values;       /* enum: a list of texts; null among them is JSON's */
    const char *component;    /* $ref: another schema of the document */
    const char *required;     /* a list of members */
    const char *description;  /* for readers */
    const char *name_pattern; /* propertyNames: what members may be called */
    const schema_member *members;
    const schema *items, *others; /* of an array; of members that are not listed */
    bool is_true;                 /* const: true */
    bool bounded, bounded_below;  /* minimum and maximum count; the minimum alone */
    int64_t minimum, maximum;
    uint32_t items_min, items_max, members_max, length_min;
};

/* At file scope these are constants. */
#define SCHEMA(...)       (&(const schema){__VA_ARGS__})
#define SCHEMA_OF(types_) SCHEMA(.types = types_)
#define SCHEMA_IS(value_) SCHEMA(.value = value_)
#define SCHEMA_REF(name)  SCHEMA(.component = name)
#define SCHEMA_LIST(of)   SCHEMA(.types = "array", .items = of)
#define SCHEMA_MEMBERS(...)                                                                        \
    (const schema_member[]) {                                                                      \
        __VA_ARGS__, {                                                                             \
            NULL, NULL                                                                             \
        }                                                                                          \
    }

/* One value. */
void schema_write(json_writer *w, const schema *schema);
/* Its keywords, into the object that is open. */
void schema_write_keywords(json_writer *w, const schema *schema);
/* The items of a comma separated list, into the array that is open. */
void schema_write_words(json_writer *w, const char *words);

#endif
