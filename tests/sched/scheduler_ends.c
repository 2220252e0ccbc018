/* sched/scheduler, how requests end that do not finish: cancelled, refused, late, failed, cut off
 * by closing; and that nobody else is harmed by it. AVO_TEST_THREADS */
#include "sched/serving.h"

/* What came before the end is what comes alone. */
static void begins_like(const seen *a, const seen *alone) {
    assert_int_equal(atomic_load(&a->ended), 1);
    assert_int_equal(a->error.status, AVO_OK);
    if (a->finish != AVO_FINISH_CANCELLED && a->finish != AVO_FINISH_DEADLINE) {
        same_answer(a, alone);
        return;
    }
    size_t count = a->count;
    while (a->finish == AVO_FINISH_DEADLINE && count > 0 && a->event[count - 1].token < 0)
        count--; /* text that was held back is released earlier here */
    assert_true(count <= alone->count);
    same_events(a, alone, count);
    assert_int_equal(a->new_tokens, a->tokens);
}

/* ---- Cancellation ---- */

static void cancelled_at_any_time(void **state) {
    (void)state;
    uint64_t cancelled = 0;
    for (uint64_t seed = 100; seed < 100 + FEWER(9) || cancelled == 0; seed++) {
        world w;
        world_options options = WORLD_OPTIONS;
        options.kv_tokens = 3 * TINY_CONTEXT;
        world_open(&w, &options);
        exam e = exam_make(&w, 40, seed);
        exam_alone(&w, &e);
        dice dice = {seed, 1000};
        bool lived[40] = {false};
        exam_submit(&w, &e);
        for (size_t n = 0; n < 20; n++) {
            size_t i = roll(&dice, 40);
            bool over = atomic_load(&e.seen[i].ended) == 1;
            bool lives = avo_scheduler_cancel(w.scheduler, e.number[i]);
            assert_false(over && lives);
            lived[i] = lived[i] || lives;
            if (n % 4 == 0)
                pause_ms(1);
        }
        assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
        for (size_t i = 0; i < e.count; i++) {
            begins_like(&e.seen[i], &e.alone[i]);
            if (!lived[i]) /* nobody else is cancelled */
                assert_int_equal(e.seen[i].finish, e.alone[i].finish);
        }
        cancelled += info_of(&w).cancelled;
        assert_false(avo_scheduler_cancel(w.scheduler, e.number[0]));
        assert_false(avo_scheduler_cancel(w.scheduler, 123456));
        exam_free(&e);
        world_close(&w);
    }
}

/* A listener that says no with its n-th token sees no further one; the end is the one that
 * avo_generate gives for it. */
static void the_listener_may_say_no(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    exam e = exam_make(&w, FEWER(60), 120);
    dice dice = {120, 5000};
    for (size_t i = 0; i < e.count; i++)
        e.seen[i].refuse_after = e.alone[i].refuse_after = roll(&dice, 12);
    exam_alone(&w, &e);
    exam_submit(&w, &e);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    size_t cancelled = 0;
    for (size_t i = 0; i < e.count; i++) {
        same_answer(&e.seen[i], &e.alone[i]);
        cancelled += e.seen[i].finish == AVO_FINISH_CANCELLED;
    }
    assert_true(cancelled > e.count / 4);
    exam_free(&e);
    world_close(&w);
}

/* ---- Requests that are wrong ---- */

static void refuse(world *w, const avo_request *request, avo_status status, const char *part) {
    uint64_t number = 0;
    assert_refused(avo_scheduler_submit(w->scheduler, request, &number, NULL, &w->error), status,
                   &w->error, part);
}

static void wrong_requests_are_refused_at_once(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    seen seen_it = {0};
    exam e = exam_make(&w, 1, 130);
    avo_request good = request_of(&e.q[0], &seen_it), bad = good;
    bad.token_count = 0;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "give one of tokens");
    bad = good;
    bad.text = "both";
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "give one of tokens, messages");
    int32_t many[TINY_CONTEXT] = {5};
    bad = good;
    bad.tokens = many;
    bad.token_count = TINY_CONTEXT;
    refuse(&w, &bad, AVO_ERROR_CONTEXT, "the context is 192");
    bad = good;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.top_p = 7.0f;
    bad.sampling = &sampling;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "top_p");
    bad = good;
    bad.priority = 16;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "priority is 16");
    bad = good;
    bad.deadline = -1.0;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "deadline");
    bad = good;
    const char *empty = "";
    bad.stop = &empty;
    bad.stop_count = 1;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "stop string 1 is empty");
    bad = good;
    avo_named_adapter named = {"style", 1.0f};
    bad.named_adapters = &named;
    bad.named_adapter_count = 1;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "registry");
    bad = good;
    bad.adapter_count = 9;
    avo_adapter_use uses[9] = {{NULL, 1.0f}};
    bad.adapters = uses;
    refuse(&w, &bad, AVO_ERROR_LIMIT, "9 adapters");
    bad.adapters = NULL;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "adapters is NULL, but its count is 9");
    bad = good;
    bad.tokens = NULL;
    bad.text = "a text";
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "tokens is NULL, but");
    bad = good;
    bad.size = 3;
    refuse(&w, &bad, AVO_ERROR_ARGUMENT, "avo_request");
    assert_int_equal(info_of(&w).submitted, 0);
    exam_free(&e);
    world_close(&w);
}

/* What only a tokenizer thread can see. */
static void wrong_texts_fail_by_event(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    char *longer = malloc(2000);
    assert_non_null(longer);
    memset(longer, 'q', 1999);
    longer[1999] = '\0';
    seen late = {0}, chat = {0}, empty = {0};
    avo_request request = AVO_REQUEST_INIT;
    request.on_event = on_event;
    request.text = longer;
    request.on_event_context = &late;
    assert_ok(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error));
    request.text = "";
    request.on_event_context = &empty;
    assert_ok(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error));
    avo_message message = {"user", "hello"};
    request.text = NULL;
    request.messages = &message;
    request.message_count = 1;
    request.on_event_context = &chat;
    assert_ok(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error));
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    assert_int_equal(late.error.status, AVO_ERROR_CONTEXT);
    assert_int_equal(chat.error.status, AVO_ERROR_NOT_FOUND);
    assert_int_equal(empty.error.status, AVO_ERROR_ARGUMENT);
    assert_int_equal(info_of(&w).failed, 3);
    free(longer);
    world_close(&w);
}

/* ---- Limits of all kinds ---- */

/* How many of some requests found no room. */
static size_t fill_queue(void) {
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.running_max = 1;
    options.scheduler.waiting_max = 2;
    world_open(&w, &options);
    exam e = exam_make(&w, 50, 140);
    exam_alone(&w, &e);
    size_t taken = 0, refused = 0;
    bool *in = calloc(e.count, sizeof(bool));
    assert_non_null(in);
    for (size_t i = 0; i < e.count; i++) {
        avo_request request = request_of(&e.q[i], &e.seen[i]);
        double retry = -1.0;
        avo_status status =
            avo_scheduler_submit(w.scheduler, &request, &e.number[i], &retry, &w.error);
        in[i] = status == AVO_OK;
        taken += in[i];
        if (in[i])
            continue;
        assert_int_equal(status, AVO_ERROR_FULL);
        assert_true(retry > 0.0 && retry <= 600.0);
        assert_non_null(strstr(w.error.text, "try again"));
        refused++;
        if (i % 7 == 0)
            pause_ms(2);
    }
    assert_true(taken >= 2);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < e.count; i++) {
        if (in[i])
            same_answer(&e.seen[i], &e.alone[i]);
        else
            assert_int_equal(atomic_load(&e.seen[i].ended), 0);
    }
    assert_int_equal(info_of(&w).refused, refused);
    avo_request request = request_of(&e.q[0], &e.seen[0]);
    refuse(&w, &request, AVO_ERROR_FULL, "accepts no requests");
    free(in);
    exam_free(&e);
    world_close(&w);
    return refused;
}

static void a_full_queue_says_when_to_come_again(void **state) {
    (void)state;
    while (fill_queue() == 0)
        continue; /* the engine was faster than this thread */
}

/* Tokens count too, but a request that nobody waits before is always taken. */
static void a_queue_of_few_tokens(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.waiting_tokens_max = 10;
    world_open(&w, &options);
    exam e = exam_make(&w, 1, 150);
    exam_alone(&w, &e);
    exam_submit(&w, &e);
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    same_answer(&e.seen[0], &e.alone[0]);
    exam_free(&e);
    world_close(&w);
}

static void deadlines(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    options.scheduler.running_max = 2;
    world_open(&w, &options);
    exam e = exam_make(&w, 30, 160);
    exam_alone(&w, &e);
    for (size_t i = 0; i < e.count; i++) {
        avo_request request = request_of(&e.q[i], &e.seen[i]);
        if (i % 3 == 0)
            request.deadline = i % 2 == 0 ? 600.0 : 0.0; /* generous: as good as none */
        if (i % 3 == 1)
            request.first_token_deadline = 1e-9;
        if (i % 3 == 2)
            request.deadline = 0.0005 * (double)i;
        assert_ok_error(avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error),
                        &w.error);
    }
    assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
    for (size_t i = 0; i < e.count; i++) {
        if (i % 3 == 0) {
            same_answer(&e.seen[i], &e.alone[i]);
        } else if (i % 3 == 2 && e.seen[i].error.status != AVO_OK) {
            assert_int_equal(atomic_load(&e.seen[i].ended), 1);
            assert_int_equal(e.seen[i].error.status, AVO_ERROR_DEADLINE);
        } else {
            begins_like(&e.seen[i], &e.alone[i]);
            if (i % 3 == 1)
                assert_int_equal(e.seen[i].finish, AVO_FINISH_DEADLINE);
        }
    }
    avo_scheduler_info info = info_of(&w);
    assert_true(info.expired + info.refused >= 10);
    assert_int_equal(info.finished + info.expired + info.refused, e.count);
    exam_free(&e);
    world_close(&w);
}

/* ---- Closing ---- */

static void closed_under_load(void **state) {
    (void)state;
    for (int when = 0; when < 6; when++) {
        world w;
        world_options options = WORLD_OPTIONS;
        options.kv_tokens = 2 * TINY_CONTEXT;
        world_open(&w, &options);
        exam e = exam_make(&w, 40, 170);
        exam_alone(&w, &e);
        exam_submit(&w, &e);
        pause_ms(when);
        avo_scheduler_close(w.scheduler);
        w.scheduler = NULL;
        for (size_t i = 0; i < e.count; i++)
            begins_like(&e.seen[i], &e.alone[i]);
        exam_free(&e);
        world_close(&w);
    }
    avo_scheduler_close(NULL);
}

static void options_that_cannot_be(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    avo_scheduler_close(w.scheduler);
    w.scheduler = NULL;
    avo_scheduler *scheduler;
    avo_scheduler_options bad = AVO_SCHEDULER_OPTIONS_INIT;
    bad.running_max = 7;
    assert_refused(avo_scheduler_open(w.engine, &bad, &scheduler, &w.error), AVO_ERROR_ARGUMENT,
                   &w.error, "running_max");
    bad = (avo_scheduler_options)AVO_SCHEDULER_OPTIONS_INIT;
    bad.tokenizer_threads = 1000;
    assert_refused(avo_scheduler_open(w.engine, &bad, &scheduler, &w.error), AVO_ERROR_ARGUMENT,
                   &w.error, "tokenizer_threads");
    assert_null(scheduler);
    world_close(&w);
}

/* ---- Memory that is not there ---- */

/* One world and many schedulers, each with the n-th allocation failing: whatever comes of it, no
 * crash, no leak, one end for each request that was taken, and the next answer is right. */
static void any_allocation_may_fail(void **state) {
    (void)state;
    world w;
    world_options options = WORLD_OPTIONS;
    world_open(&w, &options);
    avo_scheduler_close(w.scheduler);
    exam e = exam_make(&w, 4, 180);
    exam_alone(&w, &e);
    size_t live = w.counting.counter.live;
    size_t failures = 0, good = 0;
    const size_t step = FEWER(3) < 3 ? 9 : 3;
    for (size_t n = 1; good < 3; n += step) { /* until there are no more to fail */
        memset(e.seen, 0, e.count * sizeof(seen));
        pthread_mutex_lock(&w.counting.lock);
        w.counting.counter.fail_at = w.counting.counter.allocations + n;
        pthread_mutex_unlock(&w.counting.lock);
        bool taken[4] = {false};
        avo_status status =
            avo_scheduler_open(w.engine, &options.scheduler, &w.scheduler, &w.error);
        for (size_t i = 0; i < e.count && status == AVO_OK; i++) {
            avo_request request = request_of(&e.q[i], &e.seen[i]);
            avo_status sent = avo_scheduler_submit(w.scheduler, &request, NULL, NULL, &w.error);
            taken[i] = sent == AVO_OK;
            assert_true(taken[i] || sent == AVO_ERROR_MEMORY);
        }
        if (status == AVO_OK)
            assert_true(avo_scheduler_drain(w.scheduler, PATIENCE));
        else
            assert_int_equal(status, AVO_ERROR_MEMORY);
        bool failed = status != AVO_OK;
        for (size_t i = 0; i < e.count; i++) {
            assert_int_equal(atomic_load(&e.seen[i].ended), taken[i] ? 1 : 0);
            failed = failed || !taken[i] || e.seen[i].error.status == AVO_ERROR_MEMORY;
            if (taken[i] && e.seen[i].error.status == AVO_OK)
                same_answer(&e.seen[i], &e.alone[i]);
            else if (taken[i])
                assert_int_equal(e.seen[i].error.status, AVO_ERROR_MEMORY);
        }
        failures += failed;
        good = failed ? 0 : good + 1;
        avo_scheduler_close(w.scheduler);
        w.scheduler = NULL;
        assert_int_equal(w.counting.counter.live, live);
    }
    assert_true(failures > 30 / step);
    w.counting.counter.fail_at = 0;
    exam_free(&e);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cancelled_at_any_time),
                                       cmocka_unit_test(the_listener_may_say_no),
                                       cmocka_unit_test(wrong_requests_are_refused_at_once),
                                       cmocka_unit_test(wrong_texts_fail_by_event),
                                       cmocka_unit_test(a_full_queue_says_when_to_come_again),
                                       cmocka_unit_test(a_queue_of_few_tokens),
                                       cmocka_unit_test(deadlines),
                                       cmocka_unit_test(closed_under_load),
                                       cmocka_unit_test(options_that_cannot_be),
                                       cmocka_unit_test(any_allocation_may_fail)};
    int failed = cmocka_run_group_tests_name("sched/scheduler_ends", tests, NULL, NULL);
    world_cores = "static";
    failed += cmocka_run_group_tests_name("sched/scheduler_ends, cores apart", tests, NULL, NULL);
    return failed;
}
