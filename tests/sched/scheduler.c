/* sched/scheduler on a tiny model: whatever the scheduler does, every request gives the bytes that
 * avo_generate gives for it alone. AVO_TEST_THREADS */
#include "sched/serving.h"

#include "support/adapters.h"

/* All of them through one world; the same seeds give the same questions. */
static void same_in(const world_options *options, size_t count, uint64_t seed,
                    avo_scheduler_info *info) {
    world w;
    world_open(&w, options);
    exam e = exam_make(&w, count, seed);
    exam_alone(&w, &e);
    exam_submit(&w, &e);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < count; i++)
        same_answer(&e.seen[i], &e.alone[i]);
    *info = info_of(&w);
    assert_int_equal(info->finished, count);
    assert_int_equal(info->submitted, count);
    assert_int_equal(info->waiting, 0);
    assert_int_equal(info->waiting_tokens, 0);
    exam_free(&e);
    world_close(&w);
}

static void the_same_bytes_as_alone(void **state) {
    (void)state;
    avo_scheduler_info info;
    world_options options = WORLD_OPTIONS;
    same_in(&options, FEWER(120), 1, &info);
    assert_int_equal(info.preemptions, 0);
    assert_true(info.steps > 0 && info.step_seconds > 0.0 && info.new_tokens > 0);
}

/* Chunks of any size, with and without cached prefixes, few and many rows. */
static void however_steps_are_cut(void **state) {
    (void)state;
    const double targets[] = {-1.0, 1e-7, 0.001};
    uint64_t reused = 0; /* by some: which prompts meet their prefix depends on the machine */
    for (size_t i = 0; i < 3; i++)
        for (int cached = 0; cached < 2; cached++) {
            avo_scheduler_info info;
            world_options options = WORLD_OPTIONS;
            options.rows = i == 0 ? 200 : 9;
            options.threads = 1 + (uint32_t)i;
            options.scheduler.token_seconds = targets[i];
            options.scheduler.no_prefix_cache = cached == 0;
            same_in(&options, FEWER(45), 10 + i, &info);
            if (cached == 0)
                assert_int_equal(info.reused_tokens, 0);
            reused += info.reused_tokens;
        }
    assert_true(reused > 0);
}

/* Six sequences that would like four times as many pages as there are. */
static void pool_four_times_oversubscribed(void **state) {
    (void)state;
    uint64_t preemptions = 0;
    /* Who meets whom depends on the machine: three exams, and more until one was crowded. */
    for (uint64_t seed = 30; seed < 33 || (preemptions == 0 && seed < 60); seed++) {
        avo_scheduler_info info;
        world_options options = WORLD_OPTIONS;
        options.sessions = 8;
        options.kv_tokens = 2 * TINY_CONTEXT;
        options.scheduler.no_prefix_cache = seed == 31;
        options.crowded = true;
        same_in(&options, FEWER(60), seed, &info);
        preemptions += info.preemptions;
        if (info.preemptions > 0 && seed == 31)
            assert_true(info.recomputed_tokens > 0);
    }
    assert_true(preemptions > 0);
}

static void adapters_of_requests(const char *isa) {
    world_options options = WORLD_OPTIONS;
    options.isa = isa;
    options.kv_tokens = 4 * TINY_CONTEXT;
    world w;
    world_open(&w, &options);
    avo_adapter *adapter[3];
    for (uint64_t i = 0; i < 3; i++)
        adapter[i] = test_adapter_make(
            w.model, &(adapter_random_options){i + 1, 4, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.5f});
    exam e = exam_make(&w, FEWER(45), 50);
    for (size_t i = 0; i < e.count; i++) {
        question *q = &e.q[i];
        q->use_count = i % 3;
        for (size_t n = 0; n < q->use_count; n++)
            q->uses[n] = (avo_adapter_use){adapter[(i / 3 + n) % 3], n == 0 ? 1.0f : -0.5f};
    }
    exam_alone(&w, &e);
    exam_submit(&w, &e);
    for (uint64_t i = 0; i < 3; i++)
        adapter_release(adapter[i]); /* requests have their own references */
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    size_t different = 0;
    for (size_t i = 0; i < e.count; i++) {
        same_answer(&e.seen[i], &e.alone[i]);
        question plain = e.q[i];
        plain.use_count = 0;
        seen base = {0};
        generate_alone(&w, &plain, &base);
        different += e.q[i].use_count > 0 &&
                     memcmp(&base.event[0], &e.seen[i].event[0], sizeof(seen_token)) != 0;
    }
    assert_true(different > e.count / 3);
    exam_free(&e);
    world_close(&w);
}

static void adapters_are_the_requests_own(void **state) {
    (void)state;
    adapters_of_requests("ref");
    adapters_of_requests(NULL);
}

/* ---- Memory ---- */

/* From its second token to its last a request allocates nothing, on any thread. */
static void steps_allocate_nothing(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.tokenizer_threads = 1; /* another might begin late, and allocates then */
    world_open(&w, &options);
    frugal f = {.world = &w};
    question q = {.token_count = 20, .max_new_tokens = 120, .stop_token = -1, .ignore_end = true};
    for (size_t i = 0; i < q.token_count; i++)
        q.tokens[i] = (int32_t)(5 + i);
    q.sampling = (avo_sampling)AVO_SAMPLING_INIT;
    q.sampling.temperature = 1.0f;
    q.sampling.frequency_penalty = 0.5f;
    q.stop[0] = "never there";
    q.stop_count = 1;
    avo_request request = request_of(&q, NULL);
    request.on_event = on_frugal_event;
    request.on_event_context = &f;
    assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error), &w.error);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(f.tokens, 120);
    assert_int_equal(f.last, f.second);
    world_close(&w);
}

/* ---- Text and conversations ---- */

static void texts_are_tokenised(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.tokenizer_threads = 3;
    world_open(&w, &options);
    enum { TEXTS = 12 };
    seen *seen_text = calloc(TEXTS, sizeof(seen)), *alone = calloc(TEXTS, sizeof(seen));
    assert_true(seen_text != NULL && alone != NULL);
    for (size_t i = 0; i < TEXTS; i++) {
        char text[128];
        snprintf(text, sizeof(text),
                 "once upon a time there is the part of it that comes again %zu", i / 2);
        question q = {.max_new_tokens = 12, .stop_token = -1, .sampling = AVO_SAMPLING_INIT};
        q.sampling.temperature = 1.0f;
        assert_ok(avo_tokenize(w.model, text, strlen(text), AVO_TOKENIZE_BEGIN, q.tokens,
                               PROMPT_MAX, &q.token_count, &w.error));
        generate_alone(&w, &q, &alone[i]);
        avo_request request = request_of(&q, &seen_text[i]);
        request.tokens = NULL;
        request.token_count = 0;
        request.text = text;
        request.text_flags = AVO_TOKENIZE_BEGIN;
        assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error),
                        &w.error);
    }
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < TEXTS; i++)
        same_answer(&seen_text[i], &alone[i]);
    free(seen_text);
    free(alone);
    world_close(&w);
}

/* ---- Batches ---- */

typedef struct batch_listener {
    exam *exam;
    size_t first;
} batch_listener;

static bool on_batch_event(void *context, const avo_event *event) {
    batch_listener *listener = context;
    return on_event(&listener->exam->seen[listener->first + event->index], event);
}

typedef struct batch_caller {
    world *world;
    exam *exam;
    size_t first, count;
} batch_caller;

static void *call_batch(void *context) {
    batch_caller *caller = context;
    avo_error error = {0};
    avo_request requests[16];
    batch_listener listener = {caller->exam, caller->first};
    for (size_t i = 0; i < caller->count; i++)
        requests[i] = request_of(&caller->exam->q[caller->first + i], NULL);
    avo_status status = avo_scheduler_batch(caller->world->scheduler, requests, caller->count, NULL,
                                            on_batch_event, &listener, &error);
    for (size_t i = 0; i < caller->count; i++) /* ended when it returns */
        if (atomic_load(&caller->exam->seen[caller->first + i].ended) != 1)
            status = AVO_ERROR_ARGUMENT;
    return status == AVO_OK ? caller : NULL;
}

/* Several callers, each with more requests than may wait. */
static void batches_from_many_threads(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.waiting_max = 3;
    options.scheduler.running_max = 3;
    world_open(&w, &options);
    enum { CALLERS = 4, EACH = 12 };
    exam e = exam_make(&w, CALLERS * EACH, 70);
    exam_alone(&w, &e);
    pthread_t thread[CALLERS];
    batch_caller caller[CALLERS];
    for (size_t i = 0; i < CALLERS; i++) {
        caller[i] = (batch_caller){&w, &e, i * EACH, EACH};
        assert_int_equal(pthread_create(&thread[i], NULL, call_batch, &caller[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        void *result = NULL;
        pthread_join(thread[i], &result);
        assert_ptr_equal(result, &caller[i]);
    }
    for (size_t i = 0; i < e.count; i++)
        same_answer(&e.seen[i], &e.alone[i]);
    exam_free(&e);
    world_close(&w);
}

/* A shared sampling configuration for those without one; a bad one among good ones. */
static void a_bad_request_of_a_batch_fails_alone(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    exam e = exam_make(&w, 5, 80);
    avo_sampling shared = AVO_SAMPLING_INIT;
    shared.temperature = 1.1f;
    shared.seed = 5;
    avo_request requests[5];
    for (size_t i = 0; i < 5; i++) {
        if (i % 2 == 0)
            e.q[i].sampling = shared;
        generate_alone(&w, &e.q[i], &e.alone[i]);
        requests[i] = request_of(&e.q[i], NULL);
        if (i % 2 == 0)
            requests[i].sampling = NULL;
    }
    int32_t wrong = TINY_VOCABULARY;
    requests[2].tokens = &wrong;
    requests[2].token_count = 1;
    batch_listener listener = {&e, 0};
    assert_ok_error(
        avo_scheduler_batch(w.scheduler, requests, 5, &shared, on_batch_event, &listener, &w.error),
        &w.error);
    for (size_t i = 0; i < 5; i++)
        if (i != 2)
            same_answer(&e.seen[i], &e.alone[i]);
    assert_int_equal(atomic_load(&e.seen[2].ended), 1);
    assert_int_equal(e.seen[2].error.status, AVO_ERROR_ARGUMENT);
    assert_non_null(strstr(e.seen[2].error.text, "id is 364"));
    exam_free(&e);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bytes_as_alone),
                                       cmocka_unit_test(however_steps_are_cut),
                                       cmocka_unit_test(pool_four_times_oversubscribed),
                                       cmocka_unit_test(adapters_are_the_requests_own),
                                       cmocka_unit_test(steps_allocate_nothing),
                                       cmocka_unit_test(texts_are_tokenised),
                                       cmocka_unit_test(batches_from_many_threads),
                                       cmocka_unit_test(a_bad_request_of_a_batch_fails_alone)};
    return cmocka_run_group_tests_name("sched/scheduler", tests, NULL, NULL);
}
