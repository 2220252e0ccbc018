/* engine/: an early exit computes the first layers of its target, shares its weights, and is
 * refused where it means nothing. */
#include "support/support.h"

#include "model/model.h"
#include "support/models.h"
#include "support/tiny_model.h"

#include <math.h>

enum { TOKENS = 7, EXIT = 1 };

typedef struct pair {
    test_allocator counter;
    avo_model *model, *exit;
    avo_error error;
} pair;

static avo_status open_exit(pair *f, const char *path, avo_model **out) {
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.allocator = &f->counter.allocator;
    options.draft_of = f->model;
    return avo_model_open(path, &options, out, &f->error);
}

static void pair_open(pair *f) {
    *f = (pair){0};
    test_allocator_init(&f->counter);
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.allocator = &f->counter.allocator;
    const char *path = tiny_model_write(test_scratch_folder(), 3);
    assert_ok_error(avo_model_open(path, &options, &f->model, &f->error), &f->error);
    assert_ok_error(open_exit(f, "exit:1", &f->exit), &f->error);
}

/* The target may go first: the exit owns nothing of it. */
static void pair_close(pair *f) {
    avo_model_close(f->model);
    avo_model_close(f->exit);
    assert_int_equal(f->counter.live, 0);
}

/* Logits behind the tokens; where `tap` is not NULL, also the state in front of layer EXIT. */
static void compute(pair *f, const avo_model *model, float *logits, float *tap) {
    static const int32_t tokens[TOKENS] = {1, 30, 200, 17, 42, 300, 9};
    const uint32_t taps[] = {EXIT};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_max = 64;
    options.device = test_device(NULL);
    options.taps = taps;
    options.tap_count = tap != NULL;
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    assert_ok_error(avo_engine_open(model, &options, &engine, &f->error), &f->error);
    assert_ok_error(avo_session_open(engine, NULL, &session, &f->error), &f->error);
    assert_ok_error(avo_batch_open(engine, &batch, &f->error), &f->error);
    assert_ok(avo_batch_add(batch, session, tokens, TOKENS));
    assert_ok_error(avo_step(engine, batch), avo_batch_error(batch));
    memcpy(logits, avo_batch_logits(batch, session, 0), TINY_VOCABULARY * sizeof(float));
    if (tap != NULL)
        memcpy(tap, avo_batch_tap(batch, session, EXIT, TOKENS - 1, 1),
               model->view.width * sizeof(float));
    avo_batch_close(batch);
    avo_session_close(session);
    avo_engine_close(engine);
}

/* Final norm (all weights are 1) and output head, plainly. */
static void finish(const avo_model *model, const float *state, float *logits) {
    const float *head = (const float *)(const void *)model->view.head.weight.data;
    uint32_t width = model->view.width;
    double squares = 0;
    for (uint32_t i = 0; i < width; i++)
        squares += (double)state[i] * (double)state[i];
    double scale = 1.0 / sqrt(squares / width + (double)model->view.final_norm.epsilon);
    for (uint32_t row = 0; row < TINY_VOCABULARY; row++) {
        double sum = 0;
        for (uint32_t i = 0; i < width; i++)
            sum += (double)head[(size_t)row * width + i] * (double)state[i] * scale;
        logits[row] = (float)sum;
    }
}

static void it_computes_the_first_layers(void **state) {
    (void)state;
    static float whole[TINY_VOCABULARY], exit[TINY_VOCABULARY], plain[TINY_VOCABULARY], tap[64];
    pair f;
    pair_open(&f);
    compute(&f, f.exit, exit, NULL); /* prepares the weights of all layers */
    compute(&f, f.model, whole, tap);
    finish(f.model, tap, plain);
    double apart = 0, away = 0;
    for (uint32_t i = 0; i < TINY_VOCABULARY; i++) {
        apart = fmax(apart, fabs((double)exit[i] - (double)plain[i]));
        away = fmax(away, fabs((double)exit[i] - (double)whole[i]));
    }
    assert_true(apart < 0.02); /* the head's inputs are rounded to 16 bits on some devices */
    assert_true(away > 0.2);
    pair_close(&f);
}

static void it_takes_no_memory_for_weights(void **state) {
    (void)state;
    pair f;
    pair_open(&f);
    avo_model_info whole = AVO_MODEL_INFO_INIT, exit = AVO_MODEL_INFO_INIT;
    avo_model_describe(f.model, &whole);
    avo_model_describe(f.exit, &exit);
    assert_int_equal(exit.layers, EXIT);
    assert_true(exit.parameters < whole.parameters && exit.weight_bytes < whole.weight_bytes);
    /* The draft engine's own part of the plan is far below another copy of the weights. */
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_plan self = AVO_PLAN_INIT, early = AVO_PLAN_INIT;
    options.context_max = 32;
    options.rows_max = 8;
    options.device = "cpu";
    options.draft_model = f.model;
    assert_ok_error(avo_engine_plan(f.model, &options, &self, &f.error), &f.error);
    options.draft_model = f.exit;
    assert_ok_error(avo_engine_plan(f.model, &options, &early, &f.error), &f.error);
    assert_true(early.draft_bytes < self.draft_bytes);
    assert_true(self.draft_bytes <= early.draft_bytes + self.kv_bytes);
    pair_close(&f);
}

static void what_is_no_exit_is_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"exit:",   "exit:0",  "exit:2",         "exit:-1",
                                        "exit:1x", "exit: 1", "exit:4294967297"};
    pair f;
    pair_open(&f);
    avo_model *none;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_refused(open_exit(&f, wrong[i], &none), AVO_ERROR_ARGUMENT, &f.error,
                       "N from 1 to 1");
        assert_null(none);
    }
    assert_refused(avo_model_open("exit:1", NULL, &none, &f.error), AVO_ERROR_ARGUMENT, &f.error,
                   "draft model of that model");
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.draft_of = f.exit;
    assert_refused(avo_model_open("exit:1", &options, &none, &f.error), AVO_ERROR_ARGUMENT,
                   &f.error, "draft model of that model");
    pair_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_computes_the_first_layers),
                                       cmocka_unit_test(it_takes_no_memory_for_weights),
                                       cmocka_unit_test(what_is_no_exit_is_refused)};
    return cmocka_run_group_tests_name("engine/draft_exit", tests, NULL, NULL);
}
