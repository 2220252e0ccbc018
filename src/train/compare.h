/* What an earlier run wrote about itself against what this one would write. A difference is refused
 * with both values: "OUT/checkpoint-5 was made with lr 0.01, this run has 0.02". */
#ifndef AVO_TRAIN_COMPARE_H
#define AVO_TRAIN_COMPARE_H

#include "base/json_writer.h"

#define COMPARE_BYTES_MAX ((size_t)16 << 20)

typedef struct train_compare {
    const avo_allocator *allocator;
    const char *path;       /* of what was made, for the message */
    const json_value *own;  /* what this run writes */
    const json_value *root; /* what is there */
    avo_error *error;
} train_compare;

/* Two values as JSON texts; NULL is null. `what` names them. */
AVO_MUST_USE avo_status train_compare_values(const train_compare *compare, const char *what,
                                             const json_value *there, const json_value *here);
/* The member `key` of both documents. */
AVO_MUST_USE avo_status train_compare_member(const train_compare *compare, const char *key);
/* All members of the object `key` of both documents. */
AVO_MUST_USE avo_status train_compare_object(const train_compare *compare, const char *key);
/* Parses what was written, into the arena. */
AVO_MUST_USE avo_status train_compare_parse(const json_writer *w, arena *arena, json_value *root,
                                            avo_error *error);

#endif
