/* sched/fleet: seeds hold, a run is a function of its seed, every router does what it says, and
 * faults are seen. */
#include "support/support.h"

#include "sched/fleet.h"

#include <stdlib.h>
#include <string.h>

static fleet_result result; /* with histograms: too large for a stack */

static fleet_options options_of(uint32_t replicas, fleet_router router) {
    fleet_options options = {.replicas = replicas, .router = router, .seed = 1, .check = true};
    step_cost cost = {.context_token = 100};
    step_cost_line(&cost, 6e6, 2e5, 2e5);
    options.sched = (sched_options){.running_max = 8,
                                    .rows_max = 256,
                                    .waiting_max = 32,
                                    .waiting_tokens_max = UINT64_MAX / 4,
                                    .pages = 512,
                                    .context_max = 2048,
                                    .target_ns = 50000000,
                                    .ageing_ns = 1000000000,
                                    .chunk_min = 16,
                                    .cost = cost};
    options.machine = (simulate_machine){.cost = cost, .cores = 1, .core_bandwidth = 1};
    options.load = (fleet_load){.requests = 400,
                                .seed = 3,
                                .rate = 4.0 * replicas,
                                .prompt_mean = 100,
                                .answer_mean = 16,
                                .turns = 1,
                                .tenants = 1,
                                .zipf = 1,
                                .prefixes = 1};
    options.load_gap = 4;
    options.match_min = 0.1;
    options.index_bytes = 1 << 18;
    return options;
}

static void run_good(const fleet_options *options) {
    avo_error error = {0};
    assert_ok_error(fleet_run(options, NULL, &result, &error), &error);
    if (result.wrong[0] != '\0')
        fail_msg("%s, seed %llu: %s", fleet_router_name(options->router),
                 (unsigned long long)options->seed, result.wrong);
}

/* Whatever can happen does. */
static void seeds_hold(void **state) {
    (void)state;
    uint64_t broken = 0, away = 0, resent = 0, homeless = 0, preempted = 0, starts = 0, stops = 0;
    uint64_t loads = 0, reused = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        fleet_options options;
        test_allocator allocator;
        test_allocator_init(&allocator);
        fleet_seed(seed, &options);
        avo_error error = {0};
        assert_ok_error(fleet_run(&options, &allocator.allocator, &result, &error), &error);
        if (result.wrong[0] != '\0')
            fail_msg("seed %llu: %s", (unsigned long long)seed, result.wrong);
        assert_int_equal(allocator.live, 0);
        assert_int_equal(result.requests, options.load.requests);
        assert_int_equal(result.finished + result.broken + result.refused + result.turned_away,
                         result.requests);
        broken += result.broken;
        away += result.turned_away;
        resent += result.resent;
        homeless += result.homeless;
        preempted += result.preemptions;
        starts += result.starts;
        stops += result.stops;
        loads += result.adapter_loads;
        reused += result.reused_tokens;
    }
    assert_true(broken > 0 && away > 0 && resent > 0 && homeless > 0 && preempted > 0);
    assert_true(starts > 0 && stops > 0 && loads > 0 && reused > 0);
}

static void a_run_is_a_function_of_its_seed(void **state) {
    (void)state;
    static fleet_result first;
    for (uint64_t seed = 5; seed < 8; seed++) {
        fleet_options options;
        fleet_seed(seed, &options);
        run_good(&options);
        first = result;
        run_good(&options);
        assert_memory_equal(&first, &result, sizeof(result));
        options.load.seed++;
        run_good(&options);
        assert_true(memcmp(&first, &result, sizeof(result)) != 0);
    }
}

/* Replicas that all fail all the time: no memory at any point is an error like any other. */
static void memory_that_is_not_there(void **state) {
    (void)state;
    fleet_options options = options_of(2, FLEET_PREFIX);
    options.check = false;
    options.load.requests = 20;
    options.mtbf_s = 1;
    options.restart_s = 0.5;
    for (size_t at = 1;; at++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = at;
        avo_error error = {0};
        avo_status status = fleet_run(&options, &allocator.allocator, &result, &error);
        assert_int_equal(allocator.live, 0);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
    }
    assert_string_equal(result.wrong, "");
}

/* ---- Routers ---- */

static double hits(void) {
    return (double)result.reused_tokens / (double)result.prompt_tokens;
}

/* System prompts that do not all fit one cache, and conversations. */
static void prefixes_are_found_again(void **state) {
    (void)state;
    double part[FLEET_ROUTERS];
    for (int router = 0; router < FLEET_ROUTERS; router++) {
        fleet_options options = options_of(6, (fleet_router)router);
        options.load.turns = 4;
        options.load.think_s = 1;
        options.load.prefixes = 16;
        options.load.prefix_tokens = 256;
        run_good(&options);
        assert_int_equal(result.finished, 400);
        part[router] = hits();
    }
    assert_true(part[FLEET_PREFIX] > part[FLEET_ROUND_ROBIN] + 0.1);
    assert_true(part[FLEET_EVENTS] > part[FLEET_ROUND_ROBIN] + 0.1);
    assert_true(part[FLEET_PREDICTED] > part[FLEET_ROUND_ROBIN] + 0.1);
}

static void adapters_stay_at_home(void **state) {
    (void)state;
    uint64_t loads[FLEET_ROUTERS];
    for (int router = 0; router < FLEET_ROUTERS; router++) {
        fleet_options options = options_of(6, (fleet_router)router);
        options.load.adapters = 30;
        options.resident = 6;
        options.adapter_load_ns = 100000000;
        run_good(&options);
        assert_int_equal(result.finished, 400);
        assert_int_equal(result.adapter_requests, 400);
        loads[router] = result.adapter_loads;
    }
    assert_true(2 * loads[FLEET_ADAPTER] < loads[FLEET_LEAST_LOADED]);
    assert_true(loads[FLEET_PREDICTED] < loads[FLEET_LEAST_LOADED]);
}

/* A replica that is three times as slow gets a full part of what comes in turn, and less of what
 * goes where least is open. */
static void a_slow_replica_gets_less(void **state) {
    (void)state;
    double first[2];
    for (int i = 0; i < 2; i++) {
        fleet_options options = options_of(3, i == 0 ? FLEET_ROUND_ROBIN : FLEET_LEAST_LOADED);
        options.slow = 1;
        options.slow_factor = 6;
        run_good(&options);
        first[i] = report_percentile(&result.metric[REPORT_FIRST], 0.9);
    }
    assert_true(first[1] < 0.7 * first[0]);
}

/* ---- Trouble ---- */

/* What had not begun to stream when its replica failed is served by another one. */
static void failures_lose_only_what_had_begun(void **state) {
    (void)state;
    fleet_options options = options_of(4, FLEET_LEAST_LOADED);
    options.load.rate = 30; /* so that some wait */
    options.mtbf_s = 3;
    options.restart_s = 1;
    options.sched.waiting_max = 400;
    run_good(&options);
    assert_true(result.failures > 3 && result.resent > 0 && result.broken > 0);
    assert_int_equal(result.finished + result.broken, 400);
}

static void the_autoscaler_follows_the_load(void **state) {
    (void)state;
    fleet_options options = options_of(8, FLEET_LEAST_LOADED);
    options.scale_min = 1;
    options.scale_target = 2;
    options.scale_s = 0.5;
    options.scale_down_s = 2;
    options.boot_s = 1;
    run_good(&options);
    assert_true(result.starts > 0 && result.replicas_peak > 1);
    assert_true(result.replica_s < 8 * result.seconds);
    double few = result.replica_s;
    options.scale_target = 0.5;
    run_good(&options);
    assert_true(result.replica_s > few);
}

/* Full queues turn clients away, unless these come again. */
static void full_queues_turn_away(void **state) {
    (void)state;
    fleet_options options = options_of(2, FLEET_TWO_CHOICES);
    options.load.rate = 200;
    options.sched.waiting_max = 4;
    run_good(&options);
    assert_true(result.turned_away > 0 && result.full > 0);
    assert_true(result.good == result.finished); /* without an SLO every answer is good */
    options.retry = true;
    options.slo_first_ns = 100000000;
    run_good(&options);
    assert_int_equal(result.finished, 400);
    assert_true(result.good < result.finished);
}

static void a_trace_is_repeated(void **state) {
    (void)state;
    simulate_item items[3] = {
        {.arrival_ns = 1, .prompt_tokens = 40, .new_tokens_max = 3},
        {.arrival_ns = 500000001, .prompt_tokens = 100, .new_tokens_max = 5},
        {.arrival_ns = 1000000001, .prompt_tokens = 5000, .new_tokens_max = 5}, /* fits nowhere */
    };
    fleet_options options = options_of(2, FLEET_ROUND_ROBIN);
    options.load.trace = items;
    options.load.trace_count = 3;
    options.load.requests = 12;
    run_good(&options);
    assert_int_equal(result.finished, 8);
    assert_int_equal(result.refused, 4);
    assert_int_equal(result.answer_tokens, 4 * (3 + 5));
    assert_in_range((uint64_t)(result.seconds * 1000), 5500, 5600); /* 4 × 1.5 s, less 0.5 s */
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    avo_error error = {0};
    fleet_options options = options_of(0, FLEET_RANDOM);
    assert_refused(fleet_run(&options, NULL, &result, &error), AVO_ERROR_ARGUMENT, &error,
                   "0 replicas");
    options = options_of(2, FLEET_RANDOM);
    options.scale_min = 3;
    assert_refused(fleet_run(&options, NULL, &result, &error), AVO_ERROR_ARGUMENT, &error,
                   "at most 2");
    options = options_of(2, FLEET_RANDOM);
    options.load.prefix_tokens = 1024;
    assert_refused(fleet_run(&options, NULL, &result, &error), AVO_ERROR_ARGUMENT, &error,
                   "shorter than half of the context");
    options = options_of(2, FLEET_RANDOM);
    options.load.rate = 1e-9;
    assert_refused(fleet_run(&options, NULL, &result, &error), AVO_ERROR_LIMIT, &error,
                   "lasts longer");
    options = options_of(2, FLEET_RANDOM);
    options.sched.rows_max = 1;
    assert_refused(fleet_run(&options, NULL, &result, &error), AVO_ERROR_ARGUMENT, &error,
                   "rows_max");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_hold),
        cmocka_unit_test(a_run_is_a_function_of_its_seed),
        cmocka_unit_test(memory_that_is_not_there),
        cmocka_unit_test(prefixes_are_found_again),
        cmocka_unit_test(adapters_stay_at_home),
        cmocka_unit_test(a_slow_replica_gets_less),
        cmocka_unit_test(failures_lose_only_what_had_begun),
        cmocka_unit_test(the_autoscaler_follows_the_load),
        cmocka_unit_test(full_queues_turn_away),
        cmocka_unit_test(a_trace_is_repeated),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests_name("sched/fleet", tests, NULL, NULL);
}
