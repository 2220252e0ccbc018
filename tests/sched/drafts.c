/* sched/plan: draft tokens. They get what nothing else wants, and a step may accept any number of
 * them. */
#include "sched/world.h"

/* A request of one prompt token that has drawn its first token, with `drafts` to verify. */
static void open_decoding(world *world, const sched_options *options, uint32_t tokens,
                          uint32_t drafts) {
    world_open(world, options);
    world_add(world, world_request(1, 4, tokens));
    world_step(world);
    world->drafts = drafts;
}

static sched_options draft_options(void) {
    sched_options options = world_options();
    options.drafts_max = 5;
    return options;
}

static void a_step_accepts_some_of_them(void **state) {
    (void)state;
    world world;
    sched_options options = draft_options();
    open_decoding(&world, &options, 100, 3);
    uint32_t first = 4, tokens = 1;
    for (uint32_t accepted = 1; accepted <= 4; accepted++) {
        world_plan(&world);
        const sched_entry *entry = world_entry(&world, 1);
        assert_int_equal(entry->first, first);
        assert_int_equal(entry->rows, 4);
        assert_int_equal(entry->drafts, 3);
        assert_true(entry->draws);
        assert_int_equal(world.plan.load.decode_rows, 1);
        assert_int_equal(world.plan.load.draft_rows, 3);
        assert_int_equal(world.plan.load.context_tokens, first + 1);
        assert_int_equal(world.plan.load.draft_tokens, 3 * first + 2 + 3 + 4);
        world_results(&world, &(sched_result){.accepted = accepted});
        first += accepted;
        tokens += accepted;
        sched_counts counts = sched_count(world.sched);
        assert_int_equal(counts.new_tokens, tokens);
        assert_int_equal(counts.draft_tokens, 3 * accepted);
        assert_int_equal(counts.accepted_drafts, accepted * (accepted - 1) / 2);
        assert_int_equal(counts.recomputed_tokens, 0);
    }
    world_plan(&world);
    world_results(&world, &(sched_result){.accepted = 2, .finished = true});
    assert_int_equal(world.end_count, 1);
    assert_int_equal(world.ends[0].outcome, SCHED_FINISHED);
    assert_true(sched_idle(world.sched));
    world_close(&world);
}

/* Tokens that were accepted before a failure count. */
static void a_failure_keeps_what_was_accepted(void **state) {
    (void)state;
    world world;
    sched_options options = draft_options();
    open_decoding(&world, &options, 100, 3);
    world_plan(&world);
    world_results(&world, &(sched_result){.accepted = 2, .failed = true});
    assert_int_equal(world.ends[0].outcome, SCHED_FAILED);
    assert_int_equal(sched_count(world.sched).new_tokens, 3);
    world_close(&world);
}

/* One place is left for the token that is drawn behind the last draft. */
static void no_more_than_the_answer_can_have(void **state) {
    (void)state;
    world world;
    sched_options options = draft_options();
    open_decoding(&world, &options, 4, 5);
    world_plan(&world);
    assert_int_equal(world_entry(&world, 1)->drafts, 2);
    world_results(&world, &(sched_result){.accepted = 3});
    assert_int_equal(world.end_count, 1);
    assert_int_equal(world.ends[0].outcome, SCHED_FINISHED);
    world_close(&world);
    open_decoding(&world, &options, 2, 5);
    world_plan(&world);
    assert_int_equal(world_entry(&world, 1)->drafts, 0);
    assert_int_equal(world.draft_asks, 0);
    world_done(&world, UINT32_MAX);
    assert_true(sched_idle(world.sched));
    world_close(&world);
}

static void rows_and_logits_bound_them(void **state) {
    (void)state;
    world world;
    sched_options options = draft_options();
    options.running_max = 3;
    options.rows_max = 9;
    options.logits_max = 8;
    world_open(&world, &options);
    for (uint64_t id = 1; id <= 3; id++)
        world_add(&world, world_request(id, 2, 50));
    world_step(&world);
    world.drafts = 5;
    world_plan(&world);
    assert_int_equal(world.plan.entry_count, 3);
    assert_int_equal(world.plan.load.draft_rows, 5);     /* 8 logits, 3 of them for decoding */
    assert_int_equal(world_entry(&world, 1)->drafts, 5); /* by rank */
    world_done(&world, UINT32_MAX);
    world_close(&world);
    options.logits_max = 0;
    world_open(&world, &options);
    for (uint64_t id = 1; id <= 3; id++)
        world_add(&world, world_request(id, 2, 50));
    world_step(&world);
    world.drafts = 5;
    world_plan(&world);
    assert_int_equal(world.plan.load.draft_rows, 6);
    world_done(&world, UINT32_MAX);
    world_close(&world);
    options.logits_max = 2;
    avo_error error = {0};
    sched_memory memory = world_memory(&world);
    sched *sched = NULL;
    assert_refused(sched_open(&options, &memory, NULL, &sched, &error), AVO_ERROR_ARGUMENT, &error,
                   "logits_max");
}

/* 1 ms and 0.1 ms a row: in 1.25 ms there is time for two. */
static void time_bounds_them(void **state) {
    (void)state;
    world world;
    sched_options options = draft_options();
    options.target_ns = MS + MS / 4;
    open_decoding(&world, &options, 100, 5);
    world_plan(&world);
    assert_int_equal(world_entry(&world, 1)->drafts, 2);
    assert_true(world.plan.predicted_ns <= (double)options.target_ns);
    world_done(&world, UINT32_MAX);
    world_close(&world);
    options.target_ns = MS / 2; /* less than a step takes: it decodes all the same */
    open_decoding(&world, &options, 100, 5);
    world_plan(&world);
    assert_int_equal(world_entry(&world, 1)->rows, 1);
    assert_int_equal(world.draft_asks, 0);
    world_done(&world, UINT32_MAX);
    world_close(&world);
    /* Verify rows have a price of their own. */
    options.target_ns = 2 * MS;
    options.cost.draft_token = 50000;
    open_decoding(&world, &options, 100, 5);
    world_plan(&world);
    assert_int_equal(world_entry(&world, 1)->drafts, 2); /* at 4: 0.1 + 0.3, 0.1 + 0.35, … */
    world_done(&world, UINT32_MAX);
    world_close(&world);
}

/* Prompts come first: a chunk as large as without drafts, and whoever waits begins as ever. */
static void prompts_come_first(void **state) {
    (void)state;
    for (uint32_t drafts = 0; drafts <= 5; drafts += 5) {
        world world;
        sched_options options = draft_options();
        options.target_ns = 10 * MS;
        open_decoding(&world, &options, 100, drafts);
        world_add(&world, world_request(2, 90, 5));
        world_plan(&world);
        assert_int_equal(world_entry(&world, 2)->rows, 52);
        assert_int_equal(world_entry(&world, 1)->drafts, 0);
        world_done(&world, UINT32_MAX);
        world_plan(&world); /* 38 rows are left of the prompt, and time for drafts */
        assert_int_equal(world_entry(&world, 2)->rows, 38);
        assert_int_equal(world_entry(&world, 1)->drafts, drafts);
        assert_int_equal(world_entry(&world, 2)->drafts, 0);
        world_done(&world, UINT32_MAX);
        world_close(&world);
    }
}

/* Pages are taken where they are free, and from nobody. */
static void they_preempt_nobody(void **state) {
    (void)state;
    world world;
    sched_options options = draft_options();
    options.pages = 3;
    options.running_max = 2;
    world_open(&world, &options);
    world_add(&world, world_request(1, WORLD_PAGE - 3, 20));
    world_step(&world);
    world_add(&world, world_request(2, 5, 8));
    world_step(&world);
    world.pages = 2; /* none is left */
    world.drafts = 5;
    world_plan(&world);
    /* 13 tokens and one that was drawn are in the page: two more fit. */
    assert_int_equal(world.plan.preempted_count, 0);
    assert_int_equal(world_entry(&world, 1)->first, WORLD_PAGE - 2);
    assert_int_equal(world_entry(&world, 1)->drafts, 1);
    assert_int_equal(world_entry(&world, 2)->drafts, 5);
    world_done(&world, UINT32_MAX);
    world.pages = 3;
    world_plan(&world);
    assert_int_equal(world_entry(&world, 1)->drafts, 5);
    world_done(&world, UINT32_MAX);
    world_close(&world);
}

/* A pair pays for what it gets: a request whose drafts are right is as far ahead as one that drew
 * as many tokens one by one. */
static void fairness_counts_accepted_tokens(void **state) {
    (void)state;
    for (uint32_t right = 0; right < 2; right++) {
        world world;
        sched_options options = draft_options();
        options.running_max = 2;
        world_open(&world, &options);
        for (uint64_t id = 1; id <= 4; id++) { /* 1 and 2 run; 3 and 4 wait, of these tenants */
            sched_request request = world_request(id, 2, id <= 2 ? 7 : 3);
            request.tenant = 1 + (id - 1) % 2;
            request.adapter = 1 + (id - 1) % 2;
            request.adapters = 1;
            world_add(&world, request);
        }
        world_step(&world);
        world.drafts = 5;
        world_plan(&world);
        assert_int_equal(world.plan.load.draft_rows, 10);
        sched_result results[2] = {{0}};
        for (uint32_t i = 0; i < 2; i++) /* the one ends; the other was given more, or nothing */
            results[i] = world.plan.entries[i].request == 1
                             ? (sched_result){.accepted = right ? 6 : 1}
                             : (sched_result){.accepted = right ? 1 : 6};
        world_results(&world, results);
        assert_int_equal(world.end_count, 1);
        assert_int_equal(world.ends[0].request, right ? 1 : 2);
        world_plan(&world); /* whoever was given less begins first */
        assert_non_null(world_entry(&world, right ? 4 : 3));
        assert_null(world_entry(&world, right ? 3 : 4));
        world_done(&world, UINT32_MAX);
        world_close(&world);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_accepts_some_of_them),
        cmocka_unit_test(a_failure_keeps_what_was_accepted),
        cmocka_unit_test(no_more_than_the_answer_can_have),
        cmocka_unit_test(rows_and_logits_bound_them),
        cmocka_unit_test(time_bounds_them),
        cmocka_unit_test(prompts_come_first),
        cmocka_unit_test(they_preempt_nobody),
        cmocka_unit_test(fairness_counts_accepted_tokens),
    };
    return cmocka_run_group_tests_name("sched/drafts", tests, NULL, NULL);
}
