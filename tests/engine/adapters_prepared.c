/* Adapters on a device that copies them: one upload for as long as there is room, none to look into
 * the prefix cache, and a bounded number of idle ones. AVO_TEST_THREADS */
#include "support/support.h"

#include "device/test/remote.h"
#include "engine/engine_int.h"
#include "support/adapters.h"

#include <stdio.h>
#include <string.h>

#define ADAPTERS (ENGINE_ADAPTERS_IDLE + 2)

typedef struct world {
    avo_model *model;
    avo_engine *engine;
    avo_adapter *adapter[ADAPTERS];
} world;

static void world_open(world *w, const char *device) {
    avo_error error = {0};
    assert_ok_error(
        avo_model_open(test_fixture_path("models/llama3.gguf"), NULL, &w->model, &error), &error);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.threads = 1;
    options.context_max = 64;
    options.sessions_max = 2;
    options.rows_max = 48;
    assert_ok_error(avo_engine_open(w->model, &options, &w->engine, &error), &error);
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        adapter_random_options random = {i + 1, 4, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.1f};
        w->adapter[i] = test_adapter_make(w->model, &random);
    }
}

static void world_close(world *w) {
    avo_engine_close(w->engine);
    for (uint32_t i = 0; i < ADAPTERS; i++)
        avo_adapter_close(w->adapter[i]);
    avo_model_close(w->model);
}

static avo_status use(world *w, uint32_t number, avo_session **session, avo_error *error) {
    avo_adapter_use one = {w->adapter[number], 1.0f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = &one;
    options.adapter_count = 1;
    return avo_session_open(w->engine, &options, session, error);
}

/* One session after the other. */
static void use_once(world *w, uint32_t number) {
    avo_session *session;
    avo_error error = {0};
    assert_ok_error(use(w, number, &session, &error), &error);
    avo_session_close(session);
}

static uint64_t uploads(const world *w) {
    return remote_uploads(w->engine->device);
}

static void one_upload_for_many_sessions(void **state) {
    (void)state;
    world w;
    avo_session *first, *second, *fork;
    avo_error error = {0};
    world_open(&w, "remote");
    for (int i = 0; i < 5; i++)
        use_once(&w, 0);
    assert_int_equal(uploads(&w), 1);
    assert_ok(use(&w, 0, &first, &error));
    assert_ok(avo_session_fork(first, &second, &error));
    assert_int_equal(avo_session_fork(first, &fork, &error), AVO_ERROR_FULL);
    avo_session_close(first);
    avo_session_close(second);
    assert_int_equal(uploads(&w), 1);
    /* The contents count: another adapter with the same ones finds them prepared. */
    avo_adapter_close(w.adapter[0]);
    adapter_random_options random = {1, 4, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.1f};
    w.adapter[0] = test_adapter_make(w.model, &random);
    use_once(&w, 0);
    assert_int_equal(uploads(&w), 1);
    use_once(&w, 1);
    assert_int_equal(uploads(&w), 2);
    world_close(&w);
}

static void a_peek_uploads_nothing(void **state) {
    (void)state;
    world w;
    avo_session *session;
    avo_batch *batch;
    avo_error error = {0};
    int32_t tokens[40];
    for (int32_t i = 0; i < 40; i++)
        tokens[i] = i;
    world_open(&w, "remote");
    avo_adapter_use one = {w.adapter[0], 1.0f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = &one;
    options.adapter_count = 1;
    assert_int_equal(engine_prefix_peek(w.engine, &options, tokens, 40), 0);
    assert_int_equal(uploads(&w), 0);
    assert_ok(use(&w, 0, &session, &error));
    assert_ok(avo_batch_open(w.engine, &batch, &error));
    assert_ok(avo_batch_add(batch, session, tokens, 40));
    assert_ok(avo_step(w.engine, batch));
    avo_batch_close(batch);
    avo_session_close(session);
    assert_int_equal(uploads(&w), 1);
    assert_int_equal(engine_prefix_peek(w.engine, &options, tokens, 40), KV_PAGE_TOKENS);
    one.adapter = w.adapter[1]; /* another root */
    assert_int_equal(engine_prefix_peek(w.engine, &options, tokens, 40), 0);
    avo_adapter_use twice[2] = {one, one}; /* what no session may have */
    options.adapters = twice;
    options.adapter_count = 2;
    assert_int_equal(engine_prefix_peek(w.engine, &options, tokens, 40), 0);
    assert_int_equal(uploads(&w), 1);
    world_close(&w);
}

static void the_longest_unused_goes_first(void **state) {
    (void)state;
    world w;
    world_open(&w, "remote");
    for (uint32_t i = 0; i < ENGINE_ADAPTERS_IDLE; i++)
        use_once(&w, i);
    use_once(&w, 0);
    assert_int_equal(uploads(&w), ENGINE_ADAPTERS_IDLE);
    use_once(&w, ENGINE_ADAPTERS_IDLE); /* number 1 makes room */
    assert_int_equal(uploads(&w), ENGINE_ADAPTERS_IDLE + 1);
    use_once(&w, 0);
    use_once(&w, 2);
    assert_int_equal(uploads(&w), ENGINE_ADAPTERS_IDLE + 1);
    use_once(&w, 1);
    assert_int_equal(uploads(&w), ENGINE_ADAPTERS_IDLE + 2);
    world_close(&w);
}

/* Idle ones are within the plan's bytes; those in use may exceed them. */
static void bytes_are_bounded(void **state) {
    (void)state;
    world w;
    avo_session *first, *second;
    avo_error error = {0};
    world_open(&w, "remote");
    use_once(&w, 0);
    uint64_t one = 0;
    for (uint32_t i = 0; i < w.engine->adapters_max; i++)
        one += w.engine->adapters[i].prepared.bytes;
    assert_true(one > 0 && one <= w.engine->plan.adapter_bytes);
    w.engine->plan.adapter_bytes = one + one / 2;
    use_once(&w, 1); /* number 0 makes room */
    assert_int_equal(uploads(&w), 2);
    use_once(&w, 1);
    assert_int_equal(uploads(&w), 2);
    assert_ok(use(&w, 0, &first, &error));
    assert_ok(use(&w, 1, &second, &error));
    assert_int_equal(uploads(&w), 4);
    avo_session_close(first); /* one of them has to go */
    avo_session_close(second);
    use_once(&w, 1);
    assert_int_equal(uploads(&w), 4);
    w.engine->plan.adapter_bytes = one - 1; /* nothing idle fits */
    use_once(&w, 1);
    use_once(&w, 1);
    assert_int_equal(uploads(&w), 5);
    world_close(&w);
}

/* An upload that fails fails its session; what is prepared stays. */
static void a_failed_upload_leaves_the_rest(void **state) {
    (void)state;
    for (unsigned n = 4; n < 6; n++) { /* behind the three calls of opening: the uploads */
        world w;
        avo_error error = {0};
        avo_session *session;
        char name[32];
        unsigned failed = 0;
        snprintf(name, sizeof(name), "remote:fail=%u", n);
        world_open(&w, name);
        for (uint32_t i = 0; i < 8; i++) {
            avo_status status = use(&w, i % 2, &session, &error);
            if (status != AVO_OK) {
                assert_int_equal(status, AVO_ERROR_DEVICE);
                failed++;
                continue;
            }
            avo_session_close(session);
        }
        assert_int_equal(failed, 1);
        assert_int_equal(uploads(&w), 2);
        world_close(&w);
    }
}

static void nothing_is_copied_in_place(void **state) {
    (void)state;
    world w;
    avo_session *session;
    avo_error error = {0};
    world_open(&w, "ref");
    assert_true(device_adapters_in_place(w.engine->device));
    assert_int_equal(w.engine->plan.adapter_bytes, 0);
    assert_null(w.engine->adapters);
    assert_ok(use(&w, 0, &session, &error));
    assert_ptr_equal(session->adapters[0].view, &w.adapter[0]->view);
    avo_session_close(session);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_upload_for_many_sessions),
        cmocka_unit_test(a_peek_uploads_nothing),
        cmocka_unit_test(the_longest_unused_goes_first),
        cmocka_unit_test(bytes_are_bounded),
        cmocka_unit_test(a_failed_upload_leaves_the_rest),
        cmocka_unit_test(nothing_is_copied_in_place),
    };
    return cmocka_run_group_tests_name("engine/adapters_prepared", tests, NULL, NULL);
}
