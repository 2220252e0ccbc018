/* sched/core: who comes first: adapters in turn, priorities, ageing, shares of tenants. */
#include "sched/world.h"

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
    for (uint64_t id = 1; id < 2000; id++) { /* far more pairs than are kept */
        sched_request request = world_request(id, 2, 1);
        request.tenant = id;
        request.adapter = id * 7;
        world_add(&world, request);
        world_check(&world);
        world_step(&world);
    }
    assert_true(sched_idle(world.sched));
    world_close(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests_name("sched/order", tests, NULL, NULL);
}
