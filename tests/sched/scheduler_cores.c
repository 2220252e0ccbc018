/* AVO_TEST_THREADS: sched/scheduler with cores apart. Whatever is computed beside whatever, by
 * however many threads, every request gives the bytes that avo_generate gives for it alone. */
#include "sched/serving.h"

#include "support/adapters.h"

static const char *const modes[] = {"static", "adaptive"};

typedef struct course {
    const char *cores;
    uint32_t threads, prefill_threads;
    uint64_t kv_tokens;
    uint32_t rows;
    double token_seconds;
    bool adapters, cancels, waves;
} course;

/* What came before the end is what comes alone. */
static void begins_like(const seen *a, const seen *alone) {
    assert_int_equal(atomic_load(&a->ended), 1);
    assert_int_equal(a->error.status, AVO_OK);
    if (a->finish != AVO_FINISH_CANCELLED) {
        same_answer(a, alone);
        return;
    }
    assert_true(a->count <= alone->count);
    same_events(a, alone, a->count);
}

static void take_adapters(world *w, exam *e, avo_adapter *adapter[3]) {
    for (uint64_t i = 0; i < 3; i++)
        adapter[i] =
            test_adapter_make(w->model, &(adapter_random_options){i + 1, 4, TEST_MATRICES_LINEAR, 0,
                                                                  QUANT_F32, 0.5f});
    for (size_t i = 0; i < e->count; i++) {
        question *q = &e->q[i];
        q->use_count = i % 3;
        for (size_t n = 0; n < q->use_count; n++)
            q->uses[n] = (avo_adapter_use){adapter[(i / 3 + n) % 3], n == 0 ? 1.0f : -0.5f};
    }
}

static void cancel_some(world *w, const exam *e, uint64_t seed) {
    dice dice = {seed, 1000};
    for (size_t n = 0; n < e->count / 2; n++) {
        (void)avo_scheduler_cancel(w->scheduler, e->number[roll(&dice, (uint32_t)e->count)]);
        if (n % 4 == 0)
            pause_ms(1);
    }
}

static avo_scheduler_info run_course(const course *c, size_t count, uint64_t seed) {
    world w;
    world_options options = WORLD_OPTIONS;
    options.threads = c->threads;
    options.kv_tokens = c->kv_tokens;
    options.rows = c->rows > 0 ? c->rows : 64;
    options.sessions = 8;
    options.scheduler.cores = c->cores;
    options.scheduler.prefill_threads = c->prefill_threads;
    options.scheduler.token_seconds = c->token_seconds;
    world_open(&w, &options);
    exam e = exam_make(&w, count, seed);
    avo_adapter *adapter[3] = {NULL, NULL, NULL};
    if (c->adapters)
        take_adapters(&w, &e, adapter);
    exam_alone(&w, &e);
    for (size_t i = 0; i < count; i++) {
        avo_request request = request_of(&e.q[i], &e.seen[i]);
        assert_ok_error(avo_scheduler_submit(w.scheduler, &request, &e.number[i], NULL, &w.error),
                        &w.error);
        if (c->waves && i % 8 == 7)
            pause_ms(5); /* prompts arrive while others decode */
    }
    if (c->cancels)
        cancel_some(&w, &e, seed);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < count; i++)
        begins_like(&e.seen[i], &e.alone[i]);
    avo_scheduler_info info = info_of(&w);
    assert_int_equal(info.finished + info.cancelled, count);
    assert_int_equal(info.waiting + info.running + info.pages_used, 0);
    for (int i = 0; i < 3; i++)
        adapter_release(adapter[i]);
    exam_free(&e);
    world_close(&w);
    return info;
}

static void the_same_bytes_on_any_cores(void **state) {
    (void)state;
    uint64_t reused = 0; /* by some: which prompts meet their prefix depends on when they come */
    for (int mode = 0; mode < 2; mode++)
        for (uint32_t threads = 2; threads <= 4; threads++)
            for (uint32_t prompts = 1; prompts < threads; prompts += 2) {
                course course = {.cores = modes[mode],
                                 .threads = threads,
                                 .prefill_threads = prompts,
                                 .rows = threads == 3 ? 16 : 0,
                                 .token_seconds = threads == 4 ? -1.0 : 0.002,
                                 .waves = true};
                avo_scheduler_info info = run_course(&course, FEWER(40), 20 * threads + prompts);
                if (mode == 0) {
                    assert_true(info.prefill_steps > 0 && info.prefill_seconds > 0.0);
                    assert_int_equal(info.prefill_threads, prompts);
                }
                reused += info.reused_tokens;
            }
    assert_true(reused > 0);
}

/* Prompts really fly beside decoding, also where nobody says how many threads. */
static void adaptive_lets_prompts_fly(void **state) {
    (void)state;
    uint64_t flights = 0;
    for (uint64_t seed = 0; flights == 0; seed++) {
        course course = {.cores = "adaptive", .threads = 3, .waves = true};
        flights = run_course(&course, FEWER(60), 200 + seed).prefill_steps;
    }
}

static void adapters_and_cancellation_on_both_sides(void **state) {
    (void)state;
    uint64_t cancelled = 0;
    for (int mode = 0; mode < 2; mode++)
        for (uint64_t seed = 0; seed < 3 || cancelled == 0; seed++) {
            course course = {.cores = modes[mode],
                             .threads = 2 + (uint32_t)(seed % 3),
                             .kv_tokens = 4 * TINY_CONTEXT,
                             .rows = 24,
                             .adapters = true,
                             .cancels = seed != 0};
            cancelled += run_course(&course, FEWER(36), 300 + seed).cancelled;
        }
}

/* Pages of one that flies are not taken away under it. */
static void pool_four_times_oversubscribed(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        uint64_t preemptions = 0;
        for (uint64_t seed = 0; seed < 2 || preemptions == 0; seed++) {
            course course = {.cores = modes[mode],
                             .threads = 2 + (uint32_t)(seed % 2),
                             .kv_tokens = TINY_CONTEXT,
                             .rows = 16,
                             .cancels = seed == 1};
            preemptions += run_course(&course, FEWER(60), 400 + seed).preemptions;
        }
    }
}

/* Closed in the middle of everything. */
static void closing_waits_for_what_flies(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++)
        for (long ms = 0; ms < 6; ms++) {
            world w;
            world_options options = WORLD_OPTIONS;
            options.scheduler.cores = modes[mode];
            world_open(&w, &options);
            exam e = exam_make(&w, 20, 500 + (uint64_t)ms);
            exam_submit(&w, &e);
            pause_ms(ms);
            avo_scheduler_close(w.scheduler);
            w.scheduler = NULL;
            for (size_t i = 0; i < e.count; i++)
                assert_int_equal(atomic_load(&e.seen[i].ended), 1);
            /* The engine is as before: all its threads, no session. */
            avo_session *session = NULL;
            assert_ok(avo_session_open(w.engine, NULL, &session, NULL));
            avo_session_close(session);
            exam_free(&e);
            world_close(&w);
        }
}

/* A long prompt is computed in many flights beside one that decodes: nothing is allocated. */
static void flights_allocate_nothing(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.rows = 8;
    options.scheduler.tokenizer_threads = 1; /* another might begin late, and allocates then */
    options.scheduler.cores = "static";
    world_open(&w, &options);
    frugal f = {.world = &w}, other = {.world = &w};
    question q = {.token_count = 90, .max_new_tokens = 90, .stop_token = -1, .ignore_end = true};
    for (size_t i = 0; i < q.token_count; i++)
        q.tokens[i] = (int32_t)(5 + i);
    q.sampling = (avo_sampling)AVO_SAMPLING_INIT;
    q.sampling.temperature = 1.0f;
    avo_request request = request_of(&q, NULL);
    request.on_event = on_frugal_event;
    request.on_event_context = &f;
    uint64_t before = info_of(&w).prefill_steps;
    assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error), &w.error);
    request.on_event_context = &other;
    for (size_t i = 0; i < q.token_count; i++)
        q.tokens[i] = (int32_t)(7 + i);
    assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error), &w.error);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_true(info_of(&w).prefill_steps - before >= 180 / 8);
    assert_int_equal(f.tokens, 90);
    assert_int_equal(other.last, other.second);
    world_close(&w);
}

/* ---- What cannot be is said ---- */

static void refuse(const world *w, avo_engine *engine, const char *cores, uint32_t prompts,
                   const char *part) {
    avo_scheduler_options options = AVO_SCHEDULER_OPTIONS_INIT;
    avo_scheduler *scheduler = NULL;
    avo_error error = {0};
    (void)w;
    options.cores = cores;
    options.prefill_threads = prompts;
    assert_refused(avo_scheduler_open(engine, &options, &scheduler, &error), AVO_ERROR_ARGUMENT,
                   &error, part);
    assert_null(scheduler);
}

/* A scheduler has the engine to itself. */
static void nobody_else_uses_the_engine(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    avo_session *session = NULL;
    avo_batch *batch = NULL;
    assert_refused(avo_session_open(w.engine, NULL, &session, &w.error), AVO_ERROR_ARGUMENT,
                   &w.error, "a scheduler uses the engine");
    assert_refused(avo_batch_open(w.engine, &batch, &w.error), AVO_ERROR_ARGUMENT, &w.error,
                   "a scheduler uses the engine");
    double rate = 1.0;
    assert_refused(avo_engine_measure(w.engine, &rate, &w.error), AVO_ERROR_ARGUMENT, &w.error,
                   "a scheduler uses the engine");
    refuse(&w, w.engine, NULL, 0, "a scheduler uses the engine"); /* nor does a second one */
    assert_refused(avo_session_open(w.engine, NULL, &session, &w.error), AVO_ERROR_ARGUMENT,
                   &w.error, "a scheduler uses the engine"); /* and the first one has it still */
    avo_scheduler_close(w.scheduler);
    w.scheduler = NULL;
    assert_ok(avo_batch_open(w.engine, &batch, NULL));
    refuse(&w, w.engine, NULL, 0, "1 batches of the engine are open");
    avo_batch_close(batch);
    assert_ok(avo_scheduler_open(w.engine, NULL, &w.scheduler, NULL));
    world_close(&w);
}

/* What was found again after preemption is said apart: prompts are reused by others only. */
static void own_tokens_are_not_reused_ones(void **state) {
    (void)state;
    uint64_t preemptions = 0, resumed = 0;
    for (uint64_t seed = 0; preemptions == 0 || resumed == 0; seed++) {
        world w;
        world_options options = WORLD_OPTIONS;
        options.sessions = 8;
        options.kv_tokens = TINY_CONTEXT;
        options.crowded = true;
        world_open(&w, &options);
        exam e = exam_make(&w, 30, 600 + seed);
        for (size_t i = 0; i < e.count; i++) /* nobody begins like another */
            e.q[i].tokens[0] = (int32_t)(3 + i);
        exam_submit(&w, &e);
        assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
        avo_scheduler_info info = info_of(&w);
        assert_int_equal(info.reused_tokens, 0);
        preemptions += info.preemptions;
        resumed += info.resumed_tokens;
        exam_free(&e);
        world_close(&w);
    }
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    refuse(&w, w.alone, "static", 0, "at least two threads");
    refuse(&w, w.alone, "adaptive", 0, "at least two threads");
    avo_scheduler_close(w.scheduler);
    w.scheduler = NULL;
    refuse(&w, w.engine, "static", 0, "the engine has one stream");
    refuse(&w, w.engine, "many", 0, "cores is \"many\"");
    refuse(&w, w.engine, NULL, 1, "prefill_threads is 1");
    refuse(&w, w.engine, "mixed", 1, "prefill_threads is 1");
    refuse(&w, w.engine, "static", 2, "prefill_threads is 2 of 2");
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bytes_on_any_cores),
                                       cmocka_unit_test(adaptive_lets_prompts_fly),
                                       cmocka_unit_test(adapters_and_cancellation_on_both_sides),
                                       cmocka_unit_test(pool_four_times_oversubscribed),
                                       cmocka_unit_test(closing_waits_for_what_flies),
                                       cmocka_unit_test(flights_allocate_nothing),
                                       cmocka_unit_test(nobody_else_uses_the_engine),
                                       cmocka_unit_test(own_tokens_are_not_reused_ones),
                                       cmocka_unit_test(what_cannot_be_is_refused)};
    return cmocka_run_group_tests_name("sched/scheduler_cores", tests, NULL, NULL);
}
