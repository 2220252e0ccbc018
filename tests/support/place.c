/* A fixture's model with an engine and a batch. */
#include "support/place.h"

#include <string.h>

void place_open(place *p, const char *model, avo_engine_options options) {
    memset(p, 0, sizeof(*p));
    test_allocator_init(&p->counter);
    avo_model_options model_options = AVO_MODEL_OPTIONS_INIT;
    model_options.allocator = &p->counter.allocator;
    assert_ok_error(avo_model_open(test_fixture_path(model), &model_options, &p->model, &p->error),
                    &p->error);
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(p->model, &info);
    p->vocabulary = info.vocabulary;
    assert_true(p->vocabulary <= PLACE_VOCABULARY_MAX);
    assert_ok_error(avo_engine_open(p->model, &options, &p->engine, &p->error), &p->error);
    assert_ok_error(avo_batch_open(p->engine, &p->batch, &p->error), &p->error);
}

void place_close(place *p) {
    avo_batch_close(p->batch);
    avo_engine_close(p->engine);
    avo_model_close(p->model);
    assert_int_equal(p->counter.live, 0);
}
