/* sched/core: steps, deadlines, cancellation, memory, backpressure, and what is refused. Who comes
 * first is in order.c. */
#include "sched/world.h"

/* ---- Steps ---- */

static void a_prompt_goes_in_chunks_and_then_decodes(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    world_open(&world, &options);
    world_add(&world, world_request(7, 100, 3));
    world_plan(&world);
    assert_int_equal(world.plan.entry_count, 1);
    assert_int_equal(world.plan.entries[0].request, 7);
    assert_int_equal(world.plan.entries[0].first, 0);
    assert_int_equal(world.plan.entries[0].rows, 64);
    assert_false(world.plan.entries[0].draws);
    world_done(&world, UINT32_MAX);
    world_plan(&world);
    assert_int_equal(world.plan.entries[0].first, 64);
    assert_int_equal(world.plan.entries[0].rows, 36);
    assert_true(world.plan.entries[0].draws);
    world_done(&world, UINT32_MAX);
    for (uint32_t token = 1; token < 3; token++) {
        world_plan(&world);
        assert_int_equal(world.plan.entries[0].first, 99 + token);
        assert_int_equal(world.plan.entries[0].rows, 1);
        assert_true(world.plan.entries[0].draws);
        world_done(&world, UINT32_MAX);
    }
    assert_int_equal(world.end_count, 1);
    assert_int_equal(world.ends[0].outcome, SCHED_FINISHED);
    sched_counts counts = sched_count(world.sched);
    assert_int_equal(counts.prompt_tokens, 100);
    assert_int_equal(counts.new_tokens, 3);
    assert_int_equal(counts.finished, 1);
    assert_true(sched_idle(world.sched));
    world_close(&world);
}

static void decode_comes_before_prefill(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    world_open(&world, &options);
    world_add(&world, world_request(1, 10, 50));
    world_step(&world);
    world_add(&world, world_request(2, 500, 5));
    for (int i = 0; i < 5; i++) {
        world_plan(&world);
        assert_int_equal(world_entry(&world, 1)->rows, 1);
        assert_int_equal(world_entry(&world, 2)->rows, 63);
        world_done(&world, UINT32_MAX);
    }
    world_drain(&world, 200);
    world_close(&world);
}

/* 2.5 ms for 16 rows, 0.2 ms for each beyond: 53 fit into 10 ms, one of which decodes. */
static void prefill_keeps_the_target_between_tokens(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.target_ns = 10 * MS;
    world_open(&world, &options);
    world_add(&world, world_request(1, 10, 100));
    world_step(&world);
    world_add(&world, world_request(2, 500, 5));
    for (int i = 0; i < 9; i++) {
        world_plan(&world);
        assert_int_equal(world_entry(&world, 2)->rows, 52);
        assert_true(world.plan.predicted_ns <= (double)options.target_ns);
        world_done(&world, UINT32_MAX);
    }
    world_drain(&world, 200);
    world_close(&world);
}

/* Attention makes rows dearer the further they stand behind. */
static void chunks_shrink_with_the_context(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.target_ns = 10 * MS;
    options.cost.context_token = 500;
    world_open(&world, &options);
    world_add(&world, world_request(1, 4, 1000));
    world_step(&world);
    world_add(&world, world_request(2, 2000, 5));
    uint32_t last = UINT32_MAX;
    for (int i = 0; i < 30; i++) {
        world_plan(&world);
        const sched_entry *entry = world_entry(&world, 2);
        assert_true(entry->rows <= last);
        assert_true(world.plan.predicted_ns <= (double)options.target_ns);
        assert_true(world.plan.predicted_ns >
                    (double)options.target_ns - 3e5 - 500.0 * entry->first);
        last = entry->rows;
        world_done(&world, UINT32_MAX);
    }
    assert_true(last < 20);
    world_close(&world);
}

/* Where decoding leaves no room, a smallest chunk comes every PREFILL_SKIPS_MAX + 1 steps. */
static void prefill_is_not_starved_by_decoding(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.target_ns = MS / 2; /* less than any step takes */
    world_open(&world, &options);
    world_add(&world, world_request(1, 4, 100));
    world_step(&world);
    world_add(&world, world_request(2, 12, 2));
    uint32_t chunks = 0;
    for (int i = 0; i < 3 * (PREFILL_SKIPS_MAX + 1); i++) {
        world_plan(&world);
        assert_non_null(world_entry(&world, 1));
        const sched_entry *entry = world_entry(&world, 2);
        if (entry != NULL) {
            assert_int_equal(entry->rows, 4);
            chunks++;
        }
        world_done(&world, UINT32_MAX);
    }
    assert_int_equal(chunks, 3);
    world_close(&world);
}

static void a_stop_ends_and_a_failure_fails(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    world_open(&world, &options);
    world_add(&world, world_request(1, 4, 100));
    world_add(&world, world_request(2, 4, 100));
    world_plan(&world);
    assert_int_equal(world.plan.entry_count, 2);
    sched_result results[2] = {{.accepted = 1}, {.accepted = 1}};
    uint32_t broken = world.plan.entries[0].request == 1 ? 0 : 1;
    results[broken] = (sched_result){.failed = true};
    results[1 - broken].finished = true;
    sched_step_done(world.sched, &world.plan, results, 1, &world.ends, &world.end_count);
    world_check(&world);
    assert_int_equal(world.end_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(world.ends[i].outcome,
                         world.ends[i].request == 1 ? SCHED_FAILED : SCHED_FINISHED);
    assert_true(sched_idle(world.sched));
    world_close(&world);
}

static void reused_tokens_are_not_computed(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    world_open(&world, &options);
    world.reused = 48;
    world_add(&world, world_request(1, 50, 4));
    world_plan(&world);
    assert_int_equal(world.plan.entries[0].first, 48);
    assert_int_equal(world.plan.entries[0].rows, 2);
    assert_true(world.plan.entries[0].draws);
    world_done(&world, UINT32_MAX);
    world.reused = 1000; /* a memory that claims too much */
    world_add(&world, world_request(2, 20, 1));
    world_plan(&world);
    assert_int_equal(world_entry(&world, 2)->first, 19);
    world_done(&world, UINT32_MAX);
    world_drain(&world, 10);
    world_close(&world);
}

/* ---- Deadlines ---- */

static void a_deadline_that_cannot_be_met_is_refused_at_once(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    avo_error error = {0};
    world_open(&world, &options);
    sched_request request = world_request(1, 1000, 4); /* 15 steps of 64 rows, one of 40: 189 ms */
    request.first_deadline_ns = 188 * MS;
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_DEADLINE, &error,
                   "0.189 s, the deadline is in 0.188 s");
    request.reusable_tokens = 100;
    world_add(&world, request);
    request = world_request(2, 1000, 4);
    request.deadline_ns = 300 * MS; /* alone it can be met, and who is before it may be cancelled */
    world_add(&world, request);
    assert_true(sched_cancel(world.sched, 1));
    for (int step = 0; step < 20 && world.now <= 300 * MS; step++) {
        world_step(&world);
        if (world_entry(&world, 2) != NULL && world_entry(&world, 2)->draws)
            break;
    }
    assert_true(world_entry(&world, 2) != NULL && world_entry(&world, 2)->draws);
    assert_true(world.now <= 300 * MS);
    world.now = 400 * MS;
    request = world_request(3, 4, 4);
    request.deadline_ns = 300 * MS;
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_DEADLINE, &error,
                   "0.000 s");
    world_close(&world);
}

/* A model that has seen nothing refuses nothing, and a wrong one does not refuse for ever. */
static void a_guess_refuses_nothing(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    avo_error error = {0};
    options.trust_steps = 3;
    world_open(&world, &options);
    sched_request request = world_request(1, 64, 3);
    request.first_deadline_ns = 5 * MS; /* 12 ms are predicted */
    world_add(&world, request);
    world_step(&world);
    assert_int_equal(world.plan.end_count, 0);
    assert_int_equal(world.plan.entry_count, 1);
    world_drain(&world, 3);
    uint64_t id = 2;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < REFUSALS_MAX; i++) {
            request = world_request(id++, 64, 1);
            request.first_deadline_ns = world.now + 5 * MS;
            assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_DEADLINE, &error,
                           "0.012 s");
        }
        request.id = id++;
        world_add(&world, request); /* let us see */
        request = world_request(id++, 64, 1);
        request.first_deadline_ns = world.now; /* nothing helps this one */
        assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_DEADLINE, &error,
                       "0.000 s");
        world_plan(&world);
        assert_int_equal(world.plan.entry_count, 1);
        world_done(&world, UINT32_MAX);
        assert_int_equal(world.end_count, 1);
    }
    world_close(&world);
}

static sched_outcome outcome_of(const world *world, uint64_t id) {
    for (uint32_t i = 0; i < world->plan.end_count; i++)
        if (world->plan.ends[i].request == id)
            return world->plan.ends[i].outcome;
    fail_msg("%llu has not ended", (unsigned long long)id);
    return SCHED_FAILED;
}

static void what_waits_too_long_is_refused_what_runs_too_long_expires(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.running_max = 1;
    world_open(&world, &options);
    sched_request running = world_request(1, 10, 1000);
    running.deadline_ns = 500 * MS;
    running.first_deadline_ns = 100 * MS;
    world_add(&world, running);
    world_step(&world);
    sched_request waiting = world_request(2, 100, 5); /* needs 18.6 ms */
    waiting.first_deadline_ns = 200 * MS;
    world_add(&world, waiting);
    waiting.id = 3;
    waiting.first_deadline_ns = 0;
    waiting.deadline_ns = 300 * MS;
    world_add(&world, waiting);
    world.now = 181 * MS;
    world_step(&world);
    assert_int_equal(world.plan.end_count, 0); /* the first token of 1 came in time */
    world.now = 182 * MS;
    world_step(&world);
    assert_int_equal(outcome_of(&world, 2), SCHED_REFUSED);
    world.now = 301 * MS;
    world_step(&world);
    assert_int_equal(outcome_of(&world, 3), SCHED_EXPIRED);
    world.now = 499 * MS;
    world_step(&world);
    assert_int_equal(world.plan.end_count, 0);
    world.now = 500 * MS;
    world_step(&world);
    assert_int_equal(outcome_of(&world, 1), SCHED_EXPIRED);
    assert_int_equal(world.plan.entry_count, 0);
    assert_int_equal(world.used, 0);
    sched_counts counts = sched_count(world.sched);
    assert_int_equal(counts.expired, 2);
    assert_int_equal(counts.refused, 1);
    world_close(&world);
}

/* ---- Cancellation ---- */

static void cancelling_frees_within_one_step(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.running_max = 2;
    world_open(&world, &options);
    world_add(&world, world_request(1, 10, 100)); /* decodes */
    world_step(&world);
    world_add(&world, world_request(2, 1000, 100)); /* in prefill */
    world_add(&world, world_request(3, 10, 100));   /* waits */
    world_plan(&world);
    assert_true(sched_cancel(world.sched, 2)); /* while the step runs */
    assert_false(sched_cancel(world.sched, 2));
    assert_true(sched_cancel(world.sched, 3));
    assert_false(sched_cancel(world.sched, 4));
    world_check(&world);
    world_done(&world, UINT32_MAX);
    assert_int_equal(world.end_count, 0);
    assert_true(sched_cancel(world.sched, 1));
    world_plan(&world);
    assert_int_equal(world.plan.end_count, 3);
    for (uint64_t id = 1; id <= 3; id++)
        assert_int_equal(outcome_of(&world, id), SCHED_CANCELLED);
    assert_int_equal(world.plan.entry_count, 0);
    assert_int_equal(world.used, 0);
    assert_true(sched_idle(world.sched));
    world_close(&world);
}

static void one_that_finishes_while_it_is_cancelled_ends_once(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    world_open(&world, &options);
    world_add(&world, world_request(1, 10, 1));
    world_plan(&world);
    assert_true(sched_cancel(world.sched, 1));
    world_done(&world, UINT32_MAX);
    assert_int_equal(world.end_count, 1);
    assert_int_equal(world.ends[0].outcome, SCHED_FINISHED);
    world_plan(&world);
    assert_int_equal(world.plan.end_count, 0);
    assert_true(sched_idle(world.sched));
    world_close(&world);
}

/* ---- Memory ---- */

/* Four requests that need four times what there is: all finish, the lowest rank is thrown out. */
static void preemption_takes_the_lowest_rank_and_all_finish(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.pages = 12;
    world_open(&world, &options);
    for (uint64_t id = 1; id <= 4; id++) {
        sched_request request = world_request(id, 20, 150); /* 11 pages each */
        request.priority = id == 2 ? 0 : 8;
        world_add(&world, request);
        world.now++;
    }
    uint64_t next[5] = {0};
    uint32_t tokens[5] = {0}, ended[5] = {0}, place = 0;
    for (int step = 0; step < 5000 && !sched_idle(world.sched); step++) {
        world_plan(&world);
        for (uint32_t i = 0; i < world.plan.preempted_count; i++) {
            uint64_t id = world.plan.preempted[i];
            assert_int_not_equal(id, 2); /* the highest rank is never thrown out */
            next[id] = 0;
        }
        assert_true(world.plan.entry_count > 0); /* progress */
        for (uint32_t i = 0; i < world.plan.entry_count; i++) {
            const sched_entry *entry = &world.plan.entries[i];
            assert_int_equal(entry->first, next[entry->request]); /* without a gap, none twice */
            next[entry->request] += entry->rows;
            if (entry->draws)
                assert_int_equal(next[entry->request], 20 + tokens[entry->request]++);
        }
        world_done(&world, UINT32_MAX);
        for (uint32_t i = 0; i < world.end_count; i++)
            ended[world.ends[i].request] = ++place;
    }
    for (uint64_t id = 1; id <= 4; id++)
        assert_int_equal(tokens[id], 150);
    assert_int_equal(ended[2], 1);
    assert_int_equal(ended[4], 4);
    sched_counts counts = sched_count(world.sched);
    assert_true(counts.preemptions > 0 && counts.preemptions < 20);
    assert_true(counts.recomputed_tokens > 0);
    assert_int_equal(counts.new_tokens, 600);
    assert_int_equal(counts.prompt_tokens, 80);
    world_close(&world);
}

/* Pages that somebody else holds: nothing begins, nothing breaks, and it begins when they are back.
 */
static void without_pages_nothing_begins(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.pages = 10;
    world_open(&world, &options);
    world.used = 9;
    world_add(&world, world_request(1, 40, 4));
    world_plan(&world);
    assert_int_equal(world.plan.entry_count, 0);
    assert_false(sched_idle(world.sched));
    world.used = 0;
    world_drain(&world, 20);
    world_close(&world);
}

/* A head that does not fit is not asked for again and again, and nobody smaller passes it. */
static void a_blocked_head_waits_without_work(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.pages = 10;
    world_open(&world, &options);
    world_add(&world, world_request(1, 64, 60));
    world_step(&world);
    world_add(&world, world_request(2, 120, 4));
    world_add(&world, world_request(3, 4, 4));
    world_step(&world);
    uint32_t begins = world.begins;
    for (int i = 0; i < 20; i++)
        world_step(&world);
    assert_int_equal(world.begins, begins);
    assert_null(world_entry(&world, 3));
    world_drain(&world, 100);
    world_close(&world);
}

/* ---- Backpressure ---- */

static void a_full_queue_says_when_to_come_again(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    avo_error error = {0};
    uint64_t retry = 0;
    options.waiting_max = 4;
    options.running_max = 1;
    options.waiting_tokens_max = 1000;
    world_open(&world, &options);
    for (uint64_t id = 1; id <= 4; id++)
        world_add(&world, world_request(id, 10, 10));
    assert_refused(world_submit(&world, world_request(5, 10, 10), &retry, &error), AVO_ERROR_FULL,
                   &error, "4 requests with 80 tokens wait");
    assert_in_range(retry, 10 * MS, 30 * MS); /* by the cost model: 3 ms and 10 steps */
    world_drain(&world, 100);
    /* By the pace that was seen: 13 ms each. */
    for (uint64_t id = 10; id < 14; id++)
        world_add(&world, world_request(id, 10, 10));
    for (int i = 0; i < 15; i++)
        world_step(&world);
    for (uint64_t id = 20; sched_count(world.sched).waiting < 4; id++)
        world_add(&world, world_request(id, 10, 10));
    assert_int_equal(world_submit(&world, world_request(5, 10, 10), &retry, &error),
                     AVO_ERROR_FULL);
    assert_in_range(retry, 8 * MS, 20 * MS);
    world_drain(&world, 1000);
    /* Hours in which nobody waited say nothing about the pace. */
    for (int hour = 0; hour < 3; hour++) {
        world.now += 3600000 * MS;
        for (uint64_t id = 40; id < 44; id++)
            world_add(&world, world_request(id, 10, 10));
        assert_int_equal(world_submit(&world, world_request(5, 10, 10), &retry, &error),
                         AVO_ERROR_FULL);
        assert_in_range(retry, 8 * MS, 20 * MS);
        world_drain(&world, 1000);
        world_add(&world, world_request(50, 10, 10)); /* one alone, and one that gives up */
        world_step(&world);
        world_add(&world, world_request(51, 10, 10));
        assert_true(sched_cancel(world.sched, 51));
        world_drain(&world, 1000);
    }
    /* Tokens bind, too, and a request that takes more of them waits longer. */
    world_add(&world, world_request(30, 500, 400));
    assert_refused(world_submit(&world, world_request(31, 50, 100), &retry, &error), AVO_ERROR_FULL,
                   &error, "and 1000)");
    uint64_t longer = 0;
    assert_int_equal(world_submit(&world, world_request(31, 500, 400), &longer, &error),
                     AVO_ERROR_FULL);
    assert_true(longer > retry);
    world_drain(&world, 1000);
    world_close(&world);
}

static void cancelled_requests_do_not_overflow(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    avo_error error = {0};
    options.waiting_max = 4;
    options.running_max = 2;
    world_open(&world, &options);
    uint32_t taken = 0;
    for (uint64_t id = 0; id < 20; id++) /* all between two plans */
        if (world_submit(&world, world_request(id, 4, 4), NULL, &error) == AVO_OK) {
            taken++;
            assert_true(sched_cancel(world.sched, id));
            world_check(&world);
        }
    assert_int_equal(taken, 6);
    world_plan(&world);
    assert_int_equal(world.plan.end_count, 6);
    assert_true(sched_idle(world.sched));
    world_close(&world);
}

/* ---- Refusals ---- */

static void wrong_requests_are_refused(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    avo_error error = {0};
    options.adapters_max = 2;
    options.waiting_tokens_max = 3000;
    options.pages = 220; /* 3520 tokens */
    world_open(&world, &options);
    sched_request request = world_request(1, 0, 1);
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_ARGUMENT, &error, "0");
    request = world_request(1, 1, 0);
    assert_int_equal(world_submit(&world, request, NULL, &error), AVO_ERROR_ARGUMENT);
    request = world_request(1, 1, 1);
    request.priority = 16;
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_ARGUMENT, &error, "16");
    request = world_request(1, 1, 1);
    request.weight = 0;
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_ARGUMENT, &error,
                   "weight");
    request.weight = -0.0f / 0.0f;
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_ARGUMENT, &error,
                   "weight");
    request = world_request(1, 10, 1);
    request.reusable_tokens = 10;
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_ARGUMENT, &error,
                   "reusable");
    request = world_request(1, 4000, 97);
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_CONTEXT, &error, "4096");
    request = world_request(1, 3500, 21);
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_CONTEXT, &error, "3520");
    request = world_request(1, 3000, 21);
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_LIMIT, &error, "3000");
    request = world_request(1, UINT32_MAX, UINT32_MAX);
    assert_int_equal(world_submit(&world, request, NULL, &error), AVO_ERROR_CONTEXT);
    request = world_request(1, 1, 1);
    request.adapters = 3;
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_LIMIT, &error,
                   "3 adapters");
    world_add(&world, world_request(1, 1, 1));
    assert_refused(world_submit(&world, world_request(1, 1, 1), NULL, &error), AVO_ERROR_ARGUMENT,
                   &error, "request 1 already exists");
    world_drain(&world, 10);
    world_add(&world, world_request(1, 1, 1)); /* it is over: the id is free */
    world_drain(&world, 10);
    assert_int_equal(sched_count(world.sched).submitted, 2);
    world_close(&world);
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t offset;
        uint32_t value;
        const char *part;
    } wrong[] = {{offsetof(sched_options, running_max), 0, "running_max"},
                 {offsetof(sched_options, running_max), SCHED_RUNNING_MAX + 1, "running_max"},
                 {offsetof(sched_options, rows_max), 7, "rows_max is 7"},
                 {offsetof(sched_options, waiting_max), 0, "waiting_max"},
                 {offsetof(sched_options, waiting_max), SCHED_REQUESTS_MAX + 1, "waiting_max"},
                 {offsetof(sched_options, pages), 0, "pages"},
                 {offsetof(sched_options, context_max), 0, "context_max"},
                 {offsetof(sched_options, chunk_min), 0, "chunk_min"}};
    world world = {0};
    sched_memory memory = world_memory(&world);
    avo_error error = {0};
    sched *sched = NULL;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        sched_options options = world_options();
        memcpy((char *)&options + wrong[i].offset, &wrong[i].value, sizeof(uint32_t));
        assert_refused(sched_open(&options, &memory, NULL, &sched, &error), AVO_ERROR_ARGUMENT,
                       &error, wrong[i].part);
        assert_null(sched);
    }
    sched_options options = world_options();
    options.cost.step[3] = -1;
    assert_refused(sched_open(&options, &memory, NULL, &sched, &error), AVO_ERROR_ARGUMENT, &error,
                   "cost");
    options = world_options();
    options.ageing_ns = UINT64_MAX;
    assert_refused(sched_open(&options, &memory, NULL, &sched, &error), AVO_ERROR_ARGUMENT, &error,
                   "ageing");
}

static void nothing_is_allocated_after_opening(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.pages = 30;
    world_open(&world, &options);
    size_t opened = world.allocator.allocations;
    for (uint64_t id = 0; id < 500; id++) {
        avo_error error;
        sched_request request = world_request(id, (uint32_t)(1 + id * 37 % 200), 20);
        request.tenant = id % 7;
        request.adapter = id % 5;
        request.priority = id % 16;
        if (world_submit(&world, request, NULL, &error) == AVO_OK && id % 11 == 0)
            sched_cancel(world.sched, id);
        world_step(&world);
    }
    world_drain(&world, 10000);
    assert_int_equal(world.allocator.allocations, opened);
    world_close(&world);
}

static void every_failed_allocation_is_reported(void **state) {
    (void)state;
    sched_options options = world_options();
    for (size_t fail_at = 1;; fail_at++) {
        world world = {0};
        avo_error error = {0};
        test_allocator_init(&world.allocator);
        world.allocator.fail_at = fail_at;
        sched_memory memory = world_memory(&world);
        avo_status status =
            sched_open(&options, &memory, &world.allocator.allocator, &world.sched, &error);
        if (status == AVO_OK) {
            assert_true(fail_at > 2);
            world_close(&world);
            return;
        }
        assert_int_equal(status, AVO_ERROR_MEMORY);
        assert_int_equal(world.allocator.live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_goes_in_chunks_and_then_decodes),
        cmocka_unit_test(decode_comes_before_prefill),
        cmocka_unit_test(prefill_keeps_the_target_between_tokens),
        cmocka_unit_test(chunks_shrink_with_the_context),
        cmocka_unit_test(prefill_is_not_starved_by_decoding),
        cmocka_unit_test(a_stop_ends_and_a_failure_fails),
        cmocka_unit_test(reused_tokens_are_not_computed),
        cmocka_unit_test(a_deadline_that_cannot_be_met_is_refused_at_once),
        cmocka_unit_test(a_guess_refuses_nothing),
        cmocka_unit_test(what_waits_too_long_is_refused_what_runs_too_long_expires),
        cmocka_unit_test(cancelling_frees_within_one_step),
        cmocka_unit_test(one_that_finishes_while_it_is_cancelled_ends_once),
        cmocka_unit_test(preemption_takes_the_lowest_rank_and_all_finish),
        cmocka_unit_test(without_pages_nothing_begins),
        cmocka_unit_test(a_blocked_head_waits_without_work),
        cmocka_unit_test(a_full_queue_says_when_to_come_again),
        cmocka_unit_test(cancelled_requests_do_not_overflow),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(nothing_is_allocated_after_opening),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests_name("sched/core", tests, NULL, NULL);
}
