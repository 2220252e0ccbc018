/* Weights that are prepared while the tokenizer is compiled: the engine that opens afterwards finds
 * them and computes the same; where they do not fit, or preparing is cancelled, the engine says
 * what it would have said without. AVO_TEST_THREADS */
#include "support/support.h"

#include "engine/engine.h"
#include "model/model.h"
#include "support/models.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <string.h>

#define CONTEXT 32

/* A model in f32, whose tokenizer must be compiled. */
static const char *path;

static int write_model(void **state) {
    (void)state;
    path = tiny_model_write(test_scratch_folder(), 5);
    return 0;
}

static avo_engine_options options_of(void) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 2;
    options.context_max = CONTEXT;
    options.rows_max = CONTEXT;
    options.device = test_device(NULL);
    return options;
}

typedef struct preparation {
    avo_engine_options options;
    avo_status status;
    avo_error error;
    uint32_t calls;
} preparation;

static void prepare(const avo_model *model, void *context) {
    preparation *p = context;
    p->calls++;
    p->status = engine_prepare(model, &p->options, &p->error);
}

static avo_model *open_prepared(preparation *p, const avo_model_options *options) {
    avo_model *model;
    avo_error error = {0};
    assert_ok_error(model_open_beside(path, options, prepare, p, &model, &error), &error);
    assert_int_equal(p->calls, 1);
    return model;
}

static uint64_t missing_bytes(const avo_model *model) {
    avo_engine_options options = options_of();
    avo_plan plan = AVO_PLAN_INIT;
    engine_plan_details details;
    avo_error error = {0};
    assert_ok_error(engine_plan_describe(model, &options, &plan, &details, &error), &error);
    return details.weights.missing_bytes;
}

static void compute(avo_model *model, float *logits) {
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};
    fixture_engine opened = {.model = model};
    avo_engine_options options = options_of();
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_error error = {0};
    options.logits_max = 8;
    avo_model_describe(model, &info);
    assert_ok_error(avo_engine_open(model, &options, &opened.engine, &error), &error);
    fixture_compute(&opened, ids, 8, info.vocabulary, logits);
    avo_engine_close(opened.engine);
}

static void test_engine_finds_weights(void **state) {
    (void)state;
    preparation p = {.options = options_of()};
    avo_error error = {0};
    avo_model *plain;
    avo_model *prepared = open_prepared(&p, NULL);
    assert_ok_error(p.status, &p.error);
    assert_ok_error(avo_model_open(path, NULL, &plain, &error), &error);
    bool remote = test_device_is_remote(); /* its memory goes with the device */
    assert_true(missing_bytes(plain) > 0);
    assert_int_equal(missing_bytes(prepared), remote ? missing_bytes(plain) : 0);
    static float logits[2][8 * 4096];
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(plain, &info);
    assert_true(info.vocabulary <= 4096);
    compute(plain, logits[0]);
    compute(prepared, logits[1]);
    assert_memory_equal(logits[0], logits[1], 8 * info.vocabulary * sizeof(float));
    /* The tokenizer is there, and the same. */
    bytes_view a = tokenizer_image(plain->tokenizer);
    bytes_view b = tokenizer_image(prepared->tokenizer);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    avo_model_close(plain);
    avo_model_close(prepared);
}

static void test_what_does_not_fit(void **state) {
    (void)state;
    preparation p = {.options = options_of()};
    p.options.memory_max = 1024;
    avo_error error = {0}, wanted = {0};
    avo_model *plain;
    avo_engine *engine;
    avo_model *prepared = open_prepared(&p, NULL);
    assert_int_equal(p.status, AVO_ERROR_MEMORY);
    assert_int_not_equal(missing_bytes(prepared), 0);
    assert_ok_error(avo_model_open(path, NULL, &plain, &error), &error);
    assert_int_equal(avo_engine_open(plain, &p.options, &engine, &wanted), AVO_ERROR_MEMORY);
    assert_int_equal(avo_engine_open(prepared, &p.options, &engine, &error), AVO_ERROR_MEMORY);
    assert_string_equal(error.text, wanted.text);
    avo_model_close(plain);
    avo_model_close(prepared);
}

/* Refuses to go on while repacking. */
static bool refuse(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)done;
    (void)total;
    return *(bool *)context || strcmp(what, "repack") != 0;
}

static void test_cancelled(void **state) {
    (void)state;
    if (test_device_is_remote())
        skip();
    bool go_on = false;
    preparation p = {.options = options_of()};
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.progress = refuse;
    options.progress_context = &go_on;
    avo_model *model = open_prepared(&p, &options);
    assert_int_equal(p.status, AVO_ERROR_CANCELLED);
    assert_int_not_equal(missing_bytes(model), 0);
    go_on = true;
    static float logits[8 * 4096];
    compute(model, logits);
    avo_model_close(model);
}

/* Where the tokenizer cannot be read the model opens, and says why when it is asked for text. */
static void test_bad_tokenizer(void **state) {
    (void)state;
    char tokenizer[4200];
    snprintf(tokenizer, sizeof(tokenizer), "%s/tokenizer.bin", test_scratch_folder());
    FILE *file = fopen(tokenizer, "we");
    assert_non_null(file);
    fputs("no tokenizer", file);
    fclose(file);
    preparation p = {.options = options_of()};
    avo_model *plain;
    avo_error error = {0};
    avo_model *prepared = open_prepared(&p, NULL);
    assert_ok_error(p.status, &p.error);
    assert_ok_error(avo_model_open(path, NULL, &plain, &error), &error);
    assert_null(prepared->tokenizer);
    assert_true(strlen(plain->tokenizer_error.text) > 0);
    assert_string_equal(prepared->tokenizer_error.text, plain->tokenizer_error.text);
    avo_model_close(plain);
    avo_model_close(prepared);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_finds_weights),
        cmocka_unit_test(test_what_does_not_fit),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_bad_tokenizer),
    };
    return cmocka_run_group_tests(tests, write_model, NULL);
}
