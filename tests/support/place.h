/* A fixture's model with an engine and a batch, all memory counted: where tests of sessions begin.
 */
#ifndef AVO_TESTS_PLACE_H
#define AVO_TESTS_PLACE_H

#include "support/support.h"

#define PLACE_VOCABULARY_MAX 128

typedef struct place {
    test_allocator counter;
    avo_model *model;
    avo_engine *engine;
    avo_batch *batch;
    avo_error error;
    uint32_t vocabulary; /* at most PLACE_VOCABULARY_MAX */
    uint32_t salts;      /* for tests that want a new one each time */
} place;

/* `model`: a fixture's path below tests/fixtures. */
void place_open(place *p, const char *model, avo_engine_options options);
/* Fails the test where something was left in memory. */
void place_close(place *p);

#endif
