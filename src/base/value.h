/* JSON trees that are shared by reference: what avo_value is inside. Immutable once made. */
#ifndef AVO_BASE_VALUE_H
#define AVO_BASE_VALUE_H

#include "base/json.h"

/* A copy of a tree, texts included, which then depends on nothing. Numbers are what they would be
 * after writing and reading them: 1.0 is the integer 1. At most `limit_bytes` are taken; *limit_hit
 * (may be NULL) says that this was not enough. */
AVO_MUST_USE avo_status value_copy(const json_value *tree, const avo_allocator *allocator,
                                   size_t limit_bytes, bool *limit_hit, avo_value **out,
                                   avo_error *error);
const json_value *value_tree(const avo_value *value);
/* Of its strings and keys together: about what it would be as text. */
size_t value_text_bytes(const avo_value *value);

#endif
