/* Between the two files of JSON schemas. */
#ifndef AVO_EVAL_REWARD_SCHEMA_INT_H
#define AVO_EVAL_REWARD_SCHEMA_INT_H

#include "eval/reward_int.h"

#define SCHEMA_PATTERNS_MAX 64
#define SCHEMA_DEPTH_MAX    200
#define SCHEMA_STEPS_MAX    1000000 /* for one completion: some tens of milliseconds */
#define SCHEMA_TEXT_MAX     ((size_t)16 << 20)

/* Patterns are compiled when the schema is opened, and found by their place in its tree. */
typedef struct schema_pattern {
    const json_value *at;
    eval_pattern *pattern;
} schema_pattern;

struct reward_schema {
    const avo_allocator *allocator;
    const json_value *root;
    schema_pattern patterns[SCHEMA_PATTERNS_MAX];
    size_t pattern_count;
};

/* What "#" or "#/…" refers to; NULL: nothing. */
const json_value *reward_schema_resolve(const json_value *root, text_view reference);

#endif
