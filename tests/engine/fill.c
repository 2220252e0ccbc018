/* engine/fill: a session of any length at once; its steps compute, wrong use is refused. */
#include "support/support.h"

#include "engine/engine.h"
#include "support/models.h"

#include <string.h>

static avo_session *session_with(avo_engine *engine, avo_batch *batch, uint32_t count) {
    avo_session *session;
    avo_error error = {0};
    int32_t tokens[64];
    for (int32_t i = 0; i < 64; i++)
        tokens[i] = i % 50;
    assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
    avo_batch_clear(batch);
    assert_ok(avo_batch_add(batch, session, tokens, count));
    assert_ok(avo_step(engine, batch));
    avo_batch_clear(batch);
    return session;
}

static void a_filled_session_goes_on(void **state) {
    (void)state;
    fixture_engine opened;
    fixture_engine_open(&opened, test_fixture_path("models/llama3.gguf"), "ref", 256, 1, 1);
    avo_batch *batch;
    avo_error error = {0};
    assert_ok_error(avo_batch_open(opened.engine, &batch, &error), &error);
    avo_session *session = session_with(opened.engine, batch, 64);
    assert_ok_error(engine_session_fill(session, 200, &error), &error);
    assert_int_equal(avo_session_length(session), 200);
    int32_t token = 3;
    assert_ok(avo_batch_add(batch, session, &token, 1));
    assert_ok(avo_step(opened.engine, batch));
    const float *logits = avo_batch_logits(batch, session, 0);
    assert_non_null(logits);
    assert_true(logits[0] == logits[0]);
    avo_batch_clear(batch);
    /* Pages past the first are copies of it: forgetting them changes nothing before. */
    assert_ok_error(avo_session_truncate(session, 64, &error), &error);
    assert_ok_error(engine_session_fill(session, 256, &error), &error);
    avo_session_close(session);
    avo_batch_close(batch);
    fixture_engine_close(&opened);
}

static void wrong_use_is_refused(void **state) {
    (void)state;
    fixture_engine opened;
    fixture_engine_open(&opened, test_fixture_path("models/llama3.gguf"), "ref", 256, 2, 1);
    avo_batch *batch;
    avo_error error = {0};
    assert_ok_error(avo_batch_open(opened.engine, &batch, &error), &error);
    avo_session *session = session_with(opened.engine, batch, 31);
    assert_refused(engine_session_fill(session, 200, &error), AVO_ERROR_ARGUMENT, &error, "31");
    avo_session_close(session);
    session = session_with(opened.engine, batch, 33);
    assert_refused(engine_session_fill(session, 200, &error), AVO_ERROR_ARGUMENT, &error, "33");
    avo_session_close(session);
    session = session_with(opened.engine, batch, 32);
    assert_refused(engine_session_fill(session, 32, &error), AVO_ERROR_ARGUMENT, &error, "32");
    assert_refused(engine_session_fill(session, 257, &error), AVO_ERROR_ARGUMENT, &error, "257");
    int32_t token = 3;
    assert_ok(avo_batch_add(batch, session, &token, 1));
    assert_refused(engine_session_fill(session, 64, &error), AVO_ERROR_ARGUMENT, &error,
                   "in a batch");
    assert_int_equal(avo_session_length(session), 32);
    avo_batch_clear(batch);
    avo_session_close(session);
    avo_batch_close(batch);
    fixture_engine_close(&opened);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filled_session_goes_on),
        cmocka_unit_test(wrong_use_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
