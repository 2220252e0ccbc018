/* sched/core: one test for each rule, and what is refused. */
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

/* 1 ms + 0.2 ms a row: 45 rows fit into 10 ms beside one that decodes. */
static void prefill_keeps_the_target_between_tokens(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.target_ns = 10 * MS;
    world_open(&world, &options);
    world_add(&world, world_request(1, 10, 100));
    world_step(&world);
    world_add(&world, world_request(2, 500, 5));
    for (int i = 0; i < 11; i++) {
        world_plan(&world);
        assert_int_equal(world_entry(&world, 2)->rows, 45);
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
    bool failed[2] = {false}, finished[2] = {false};
    uint32_t broken = world.plan.entries[0].request == 1 ? 0 : 1;
    failed[broken] = finished[1 - broken] = true;
    sched_step_done(world.sched, &world.plan, finished, failed, 1, &world.ends, &world.end_count);
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

/* ---- Adapters ---- */

static void adapters_take_turns_and_stand_together(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.adapters_max = 2;
    world_open(&world, &options);
    for (uint64_t id = 0; id < 8; id++) {
        sched_request request = world_request(id, 4, 50);
        request.adapter = id % 4; /* 0: none, which needs no place */
        request.adapters = id % 4 == 0 ? 0 : 1;
        world_add(&world, request);
    }
    uint64_t served[8] = {0};
    for (uint64_t step = 1; step < 60; step++) {
        world_plan(&world);
        assert_true(world.plan.load.adapters <= 2);
        uint64_t seen = 0, last = 99;
        for (uint32_t i = 0; i < world.plan.entry_count; i++) {
            uint64_t adapter = world.plan.entries[i].request % 4;
            if (adapter != last)
                assert_false(seen >> adapter & 1); /* they stand together */
            seen |= 1ull << adapter;
            last = adapter;
            served[world.plan.entries[i].request] = step;
        }
        for (uint64_t id = 0; id < 8 && step > 4 && step < 40; id++)
            assert_true(step - served[id] <= (id % 4 == 0 ? 0 : 2)); /* three share two places */
        world_done(&world, UINT32_MAX);
        if (sched_idle(world.sched))
            break;
    }
    world_drain(&world, 200);
    world_close(&world);
}

/* One that needs both places gets them though single ones keep coming. */
static void a_wide_set_of_adapters_is_not_passed_for_ever(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.adapters_max = 2;
    world_open(&world, &options);
    for (uint64_t id = 0; id < 4; id++) {
        sched_request request = world_request(id, 4, 40);
        request.adapter = id + 1;
        request.adapters = id == 3 ? 2 : 1;
        world_add(&world, request);
    }
    uint32_t wide = 0;
    for (int i = 0; i < 40; i++) {
        world_plan(&world);
        assert_true(world.plan.load.adapters <= 2);
        wide += world_entry(&world, 3) != NULL;
        world_done(&world, UINT32_MAX);
    }
    assert_true(wide >= 10);
    world_close(&world);
}

/* ---- Precedence ---- */

/* With one slot: the order in which requests begin. */
static void order_of(world *world, uint64_t *order, uint32_t count) {
    uint32_t found = 0;
    for (uint32_t step = 0; step < 10000 && found < count; step++) {
        world_plan(world);
        for (uint32_t i = 0; i < world->plan.entry_count; i++)
            if (found == 0 || order[found - 1] != world->plan.entries[i].request)
                order[found++] = world->plan.entries[i].request;
        world_done(world, UINT32_MAX);
    }
    assert_int_equal(found, count);
}

static void smaller_priority_is_served_first(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.running_max = 1;
    world_open(&world, &options);
    for (uint64_t id = 0; id < 6; id++) {
        sched_request request = world_request(id, 4, 2);
        request.priority = (uint32_t)(15 - id);
        world_add(&world, request);
    }
    uint64_t order[6];
    order_of(&world, order, 6);
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(order[i], 5 - i);
    world_close(&world);
}

/* Class 0 has work without end; class 3 rises by one class a second and then competes by counter.
 */
static void ageing_raises_what_waits(void **state) {
    (void)state;
    for (int ageing = 0; ageing < 2; ageing++) {
        world world;
        sched_options options = world_options();
        options.running_max = 1;
        options.ageing_ns = ageing ? 1000 * MS : 0;
        world_open(&world, &options);
        sched_request low = world_request(1, 4, 1);
        low.priority = 3;
        low.tenant = 1;
        world_add(&world, low);
        uint64_t begun = 0;
        for (uint64_t id = 10; id < 10000 && begun == 0; id++) {
            sched_request high = world_request(id, 50, 1);
            high.priority = 0;
            world_add(&world, high);
            world_add(&world, (id++, high.id++, high));
            for (int step = 0; step < 2; step++) {
                world_plan(&world);
                if (world_entry(&world, 1) != NULL)
                    begun = world.now;
                world_done(&world, UINT32_MAX);
            }
            if (world.now > 20000 * MS)
                break;
        }
        if (ageing)
            assert_in_range(begun, 3000 * MS, 3100 * MS);
        else
            assert_int_equal(begun, 0);
        world_close(&world);
    }
}

/* ---- Fairness ---- */

typedef struct shares {
    uint64_t tokens[3]; /* computed for tenants 1 and 2 */
} shares;

/* Two tenants with more than they can get; weights, and how many requests each keeps waiting. */
static shares compete(float weight_one, float weight_two, uint32_t backlog_one,
                      uint32_t backlog_two, uint32_t adapters_two, uint64_t until) {
    world world;
    sched_options options = world_options();
    options.running_max = 2;
    world_open(&world, &options);
    shares shares = {0};
    uint64_t next = 1;
    uint32_t live[3] = {0};
    uint64_t tenant_of[4096] = {0};
    while (shares.tokens[1] + shares.tokens[2] < until) {
        for (uint64_t tenant = 1; tenant <= 2; tenant++)
            while (live[tenant] < (tenant == 1 ? backlog_one : backlog_two)) {
                sched_request request = world_request(next, 20, 12);
                request.tenant = tenant;
                request.weight = tenant == 1 ? weight_one : weight_two;
                request.adapter = tenant == 2 ? next % adapters_two : 0;
                tenant_of[next++ % 4096] = tenant;
                live[tenant]++;
                world_add(&world, request);
            }
        world_plan(&world);
        for (uint32_t i = 0; i < world.plan.entry_count; i++)
            shares.tokens[tenant_of[world.plan.entries[i].request % 4096]] +=
                world.plan.entries[i].rows;
        world_done(&world, UINT32_MAX);
        for (uint32_t i = 0; i < world.end_count; i++)
            live[tenant_of[world.ends[i].request % 4096]]--;
    }
    world_close(&world);
    return shares;
}

/* Nobody may be ahead by more than what two running requests hold: 2 × 32 tokens; over a window
 * twice that. */
static void tenants_share_equally_however_much_they_send(void **state) {
    (void)state;
    shares shares = compete(1, 1, 40, 4, 1, 20000);
    int64_t difference = (int64_t)(shares.tokens[1] - shares.tokens[2]);
    assert_in_range(difference + 128, 0, 256);
}

static void weights_are_shares(void **state) {
    (void)state;
    shares shares = compete(3, 1, 20, 20, 1, 20000);
    double ratio = (double)shares.tokens[1] / (double)shares.tokens[2];
    assert_true(ratio > 2.9 && ratio < 3.1);
}

static void more_adapters_are_no_more_share(void **state) {
    (void)state;
    shares shares = compete(1, 1, 20, 20, 5, 20000);
    double ratio = (double)shares.tokens[1] / (double)shares.tokens[2];
    assert_true(ratio > 0.9 && ratio < 1.1);
}

/* Alone, a tenant gets everything; and what it had then is not held against it. */
static void fairness_is_work_conserving(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.running_max = 1;
    world_open(&world, &options);
    for (uint64_t id = 0; id < 20; id++) {
        sched_request request = world_request(id, 30, 2);
        request.tenant = 1;
        world_add(&world, request);
    }
    while (sched_count(world.sched).finished < 15) {
        world_plan(&world);
        assert_int_equal(world.plan.entry_count, 1);
        world_done(&world, UINT32_MAX);
    }
    for (uint64_t id = 100; id < 105; id++) {
        sched_request request = world_request(id, 30, 2);
        request.tenant = 2;
        world_add(&world, request);
    }
    uint32_t ended[2] = {0};
    while (ended[0] + ended[1] < 6) {
        world_step(&world);
        for (uint32_t i = 0; i < world.end_count; i++)
            ended[world.ends[i].request >= 100]++;
        world.end_count = 0;
    }
    assert_in_range(ended[0], 2, 4); /* they alternate */
    world_drain(&world, 1000);
    world_close(&world);
}

/* New tenants without end, each with one request, all of them at the smallest counter: one that has
 * had a large request must still come to its turn. */
static void newcomers_starve_nobody(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    options.running_max = 1;
    options.context_max = 600;
    world_open(&world, &options);
    sched_request request = world_request(1, 500, 2);
    request.tenant = 1;
    world_add(&world, request);
    request.id = 2;
    request.prompt_tokens = 10;
    world_add(&world, request);
    uint64_t begun = 0;
    for (uint64_t id = 10; id < 2000 && begun == 0; id++) {
        sched_request small = world_request(id, 10, 1);
        small.tenant = id;
        world_add(&world, small);
        if (id == 10)
            world_add(&world, (id++, small.id++, small.tenant++, small)); /* always one waits */
        world_step(&world);
        if (world_entry(&world, 2) != NULL)
            begun = id;
    }
    assert_in_range(begun, 12, 400);
    world_close(&world);
}

static void an_idle_tenant_is_remembered_and_forgotten(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    world_open(&world, &options);
    for (uint64_t id = 1; id < 5000; id++) { /* far more pairs than are kept */
        sched_request request = world_request(id, 2, 1);
        request.tenant = id;
        request.adapter = id * 7;
        world_add(&world, request);
        sched_set_weight(world.sched, id, 2.0f);
        sched_set_weight(world.sched, id, -1.0f); /* refused */
        sched_set_weight(world.sched, id + 1000000, 2.0f);
        world_check(&world);
        world_step(&world);
    }
    assert_true(sched_idle(world.sched));
    world_close(&world);
}

/* ---- Deadlines ---- */

static void a_deadline_that_cannot_be_met_is_refused_at_once(void **state) {
    (void)state;
    world world;
    sched_options options = world_options();
    avo_error error = {0};
    world_open(&world, &options);
    sched_request request = world_request(1, 1000, 4); /* 16 steps and 1000 rows: 216 ms */
    request.first_deadline_ns = 215 * MS;
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_LIMIT, &error,
                   "0.216 s, and there are 0.215 s");
    request.reusable_tokens = 100;
    world_add(&world, request);
    request = world_request(2, 1000, 4);
    request.deadline_ns = 300 * MS; /* its own queue takes 200 ms more */
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_LIMIT, &error, "0.416");
    request.tenant = 2;
    world_add(&world, request);
    world.now = 400 * MS;
    request = world_request(3, 4, 4);
    request.deadline_ns = 300 * MS;
    assert_refused(world_submit(&world, request, NULL, &error), AVO_ERROR_LIMIT, &error, "0.000 s");
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
    sched_request waiting = world_request(2, 100, 5); /* needs 22 ms */
    waiting.first_deadline_ns = 200 * MS;
    world_add(&world, waiting);
    waiting.id = 3;
    waiting.first_deadline_ns = 0;
    waiting.deadline_ns = 300 * MS;
    world_add(&world, waiting);
    world.now = 177 * MS;
    world_step(&world);
    assert_int_equal(world.plan.end_count, 0); /* the first token of 1 came in time */
    world.now = 178 * MS;
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
    /* Tokens bind, too, and a request that takes more of them waits longer. */
    world_add(&world, world_request(30, 500, 400));
    assert_refused(world_submit(&world, world_request(31, 50, 100), &retry, &error), AVO_ERROR_FULL,
                   &error, "1000 are the most");
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
                   &error, "request 1 is here already");
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
    options.cost.prefill_row = -1;
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
        cmocka_unit_test(adapters_take_turns_and_stand_together),
        cmocka_unit_test(a_wide_set_of_adapters_is_not_passed_for_ever),
        cmocka_unit_test(smaller_priority_is_served_first),
        cmocka_unit_test(ageing_raises_what_waits),
        cmocka_unit_test(tenants_share_equally_however_much_they_send),
        cmocka_unit_test(weights_are_shares),
        cmocka_unit_test(more_adapters_are_no_more_share),
        cmocka_unit_test(fairness_is_work_conserving),
        cmocka_unit_test(newcomers_starve_nobody),
        cmocka_unit_test(an_idle_tenant_is_remembered_and_forgotten),
        cmocka_unit_test(a_deadline_that_cannot_be_met_is_refused_at_once),
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
