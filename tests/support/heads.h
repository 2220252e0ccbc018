/* Random draft heads for any model, in memory. */
#ifndef AVO_TESTS_SUPPORT_HEADS_H
#define AVO_TESTS_SUPPORT_HEADS_H

#include "model/heads.h"

/* F32 matrices; two layers with a window of five where the kind has layers. */
avo_heads *test_heads_make(const avo_model *model, heads_kind kind, uint64_t seed);

#endif
