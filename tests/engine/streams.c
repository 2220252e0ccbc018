/* AVO_TEST_THREADS: two streams of one engine compute at the same time, over one pool of pages,
 * with any share of the threads each, and every row has the bits that it has alone; a session goes
 * from one stream to the other as it is. */
#include "support/support.h"

#include "base/random.h"
#include "engine/engine.h"
#include "support/tiny_model.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS 6
#define TOKENS   90

typedef struct dice {
    uint64_t seed, at;
} dice;

static uint32_t roll(dice *dice, uint32_t sides) {
    return random_at(dice->seed, 5, dice->at++).words[0] % sides;
}

typedef struct line {
    int32_t ids[TOKENS];
    float *alone; /* [TOKENS][vocabulary] */
    avo_session *session;
    uint32_t stream; /* that computes it now; 2: none */
    uint32_t length;
} line;

typedef struct flight {
    avo_batch *batch;
    pthread_t thread;
} flight;

static avo_engine *open_engine(const avo_model *model, uint32_t threads, uint32_t streams) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_error error = {0};
    avo_engine *engine = NULL;
    options.threads = threads;
    options.streams = streams;
    options.sessions_max = SESSIONS;
    options.context_max = 128;
    options.rows_max = 128;
    options.logits_max = 128;
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    return engine;
}

static void compute_alone(const avo_model *model, line *lines) {
    avo_engine *engine = open_engine(model, 1, 1);
    avo_batch *batch = NULL;
    assert_ok(avo_batch_open(engine, &batch, NULL));
    for (int i = 0; i < SESSIONS; i++) {
        avo_session *session = NULL;
        assert_ok(avo_session_open(engine, NULL, &session, NULL));
        avo_batch_clear(batch);
        assert_ok(avo_batch_add_scored(batch, session, lines[i].ids, TOKENS, TOKENS));
        assert_ok(avo_step(engine, batch));
        lines[i].alone = malloc((size_t)TOKENS * TINY_VOCABULARY * sizeof(float));
        assert_non_null(lines[i].alone);
        for (size_t t = 0; t < TOKENS; t++)
            memcpy(lines[i].alone + t * TINY_VOCABULARY, avo_batch_logits(batch, session, t),
                   TINY_VOCABULARY * sizeof(float));
        avo_session_close(session);
    }
    avo_batch_close(batch);
    avo_engine_close(engine);
}

/* Some lines that are in no stream get rows in this one; false: none did. */
static bool fill(avo_batch *batch, line *lines, uint32_t stream, dice *dice) {
    bool any = false;
    avo_batch_clear(batch);
    for (int i = 0; i < SESSIONS; i++) {
        line *line = &lines[i];
        uint32_t left = TOKENS - line->length;
        if (line->stream != 2 || left == 0 || roll(dice, 2) == 0)
            continue;
        uint32_t rows = stream == 0 ? 1 : 1 + roll(dice, left < 20 ? left : 20);
        assert_ok(avo_batch_add_scored(batch, line->session, line->ids + line->length, rows, rows));
        line->stream = stream;
        any = true;
    }
    if (any)
        assert_ok(engine_step_begin(batch));
    return any;
}

static void land(avo_batch *batch, line *lines, uint32_t stream) {
    engine_step_end(batch);
    for (int i = 0; i < SESSIONS; i++) {
        line *line = &lines[i];
        if (line->stream != stream)
            continue;
        uint32_t length = avo_session_length(line->session);
        for (uint32_t t = line->length; t < length; t++)
            assert_memory_equal(avo_batch_logits(batch, line->session, t - line->length),
                                line->alone + (size_t)t * TINY_VOCABULARY,
                                TINY_VOCABULARY * sizeof(float));
        line->length = length;
        line->stream = 2;
    }
}

static void *fly(void *context) {
    assert_ok(engine_step_compute(context));
    return NULL;
}

/* The books are this thread's; stream 1 is computed by another one meanwhile. */
static void run_schedule(avo_engine *engine, line *lines, uint32_t threads, dice *dice) {
    avo_batch *near = NULL;
    flight far = {0};
    bool flying = false;
    assert_ok(engine_batch_open(engine, 0, &near, NULL));
    assert_ok(engine_batch_open(engine, 1, &far.batch, NULL));
    for (int i = 0; i < SESSIONS; i++) {
        assert_ok(avo_session_open(engine, NULL, &lines[i].session, NULL));
        lines[i].stream = 2;
        lines[i].length = 0;
    }
    uint32_t left = SESSIONS * TOKENS;
    while (left > 0) {
        if (!flying && fill(far.batch, lines, 1, dice)) {
            uint32_t workers = 1 + roll(dice, threads - 1);
            engine_stream_resize(engine, 0, threads - workers);
            engine_stream_resize(engine, 1, workers);
            assert_int_equal(pthread_create(&far.thread, NULL, fly, far.batch), 0);
            flying = true;
        }
        if (!flying)
            engine_stream_resize(engine, 0, threads);
        for (uint32_t steps = roll(dice, 4); steps > 0; steps--)
            if (fill(near, lines, 0, dice)) {
                assert_ok(engine_step_compute(near));
                land(near, lines, 0);
            }
        if (flying) {
            pthread_join(far.thread, NULL);
            land(far.batch, lines, 1);
            flying = false;
        }
        left = SESSIONS * TOKENS;
        for (int i = 0; i < SESSIONS; i++)
            left -= lines[i].length;
    }
    for (int i = 0; i < SESSIONS; i++)
        avo_session_close(lines[i].session);
    avo_batch_close(near);
    avo_batch_close(far.batch);
}

static void streams_compute_what_one_computes(void **state) {
    const avo_model *model = *state;
    static line lines[SESSIONS];
    dice dice = {.seed = 11};
    for (int i = 0; i < SESSIONS; i++)
        for (int t = 0; t < TOKENS; t++) /* some begin alike: pages are found again and shared */
            lines[i].ids[t] =
                (int32_t)(t < 40 && i % 3 > 0 ? 3 + t * 5
                                              : 3 + (int)roll(&dice, TINY_VOCABULARY - 3));
    compute_alone(model, lines);
    for (uint32_t threads = 2; threads <= 4; threads++) {
        avo_engine *engine = open_engine(model, threads, 2);
        for (int run = 0; run < 3; run++)
            run_schedule(engine, lines, threads, &dice);
        avo_engine_close(engine);
    }
    for (int i = 0; i < SESSIONS; i++)
        free(lines[i].alone);
}

/* A session of one stream is none of the other's business. */
static void a_session_is_in_one_stream(void **state) {
    avo_engine *engine = open_engine(*state, 2, 2);
    avo_batch *batch[2] = {NULL, NULL};
    avo_session *session = NULL, *fork = NULL;
    avo_error error = {0};
    int32_t token = 5;
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(engine_batch_open(engine, i, &batch[i], NULL));
    assert_ok(avo_session_open(engine, NULL, &session, NULL));
    assert_ok(avo_batch_add(batch[1], session, &token, 1));
    assert_int_equal(avo_batch_add(batch[0], session, &token, 1), AVO_ERROR_ARGUMENT);
    assert_refused(avo_session_fork(session, &fork, &error), AVO_ERROR_ARGUMENT, &error, "batch");
    assert_refused(avo_session_truncate(session, 0, &error), AVO_ERROR_ARGUMENT, &error, "batch");
    avo_session_close(session);
    avo_batch_close(batch[0]);
    avo_batch_close(batch[1]);
    avo_engine_close(engine);
}

static void the_plan_knows_the_second_stream(void **state) {
    const avo_model *model = *state;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_plan one = AVO_PLAN_INIT, two = AVO_PLAN_INIT;
    avo_error error = {0};
    options.threads = 2;
    options.context_max = 64;
    assert_ok(avo_engine_plan(model, &options, &one, NULL));
    options.streams = 2;
    assert_ok(avo_engine_plan(model, &options, &two, NULL));
    assert_int_equal(one.streams, 1);
    assert_int_equal(one.stream_bytes, 0);
    assert_int_equal(two.streams, 2);
    assert_true(two.stream_bytes > 0);
    assert_int_equal(two.scratch_bytes, one.scratch_bytes + two.stream_bytes);
    options.memory_max = one.kv_bytes + one.scratch_bytes + one.session_bytes + one.draft_bytes + 1;
    assert_int_equal(avo_engine_plan(model, &options, &two, &error), AVO_ERROR_MEMORY);
    options.memory_max = 0;
    options.threads = 1;
    assert_refused(avo_engine_plan(model, &options, &two, &error), AVO_ERROR_ARGUMENT, &error,
                   "2 streams need 2 threads");
    options.threads = 4;
    options.streams = 3;
    assert_refused(avo_engine_plan(model, &options, &two, &error), AVO_ERROR_ARGUMENT, &error,
                   "streams is 3, must be");
}

static int open_model(void **state) {
    avo_model *model = NULL;
    const char *path = tiny_model_write(test_scratch_folder(), 1);
    assert_ok(avo_model_open(path, NULL, &model, NULL));
    *state = model;
    return 0;
}

static int close_model(void **state) {
    avo_model_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_compute_what_one_computes),
        cmocka_unit_test(a_session_is_in_one_stream),
        cmocka_unit_test(the_plan_knows_the_second_stream),
    };
    return cmocka_run_group_tests_name("engine/streams", tests, open_model, close_model);
}
