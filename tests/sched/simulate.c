/* sched/simulate and sched/report: seeds hold, a run is a function of its seed, tables say what
 * was. */
#include "support/support.h"

#include "sched/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t run_seed(uint64_t seed, const avo_allocator *allocator, simulate_result *result,
                         simulate_outcome *outcomes) {
    simulate_options options;
    static simulate_item items[SIMULATE_SEED_REQUESTS_MAX];
    avo_error error = {0};
    uint32_t count = simulate_seed(seed, &options, items);
    assert_ok_error(
        simulate_run(&options, items, count, allocator, NULL, NULL, outcomes, result, &error),
        &error);
    return count;
}

/* `avocet simulate --seeds` runs thousands. */
static void seeds_hold(void **state) {
    (void)state;
    static simulate_outcome outcomes[SIMULATE_SEED_REQUESTS_MAX];
    simulate_result result;
    uint32_t ends[SIMULATE_PENDING + 1] = {0};
    uint64_t preemptions = 0, reused = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        uint32_t count = run_seed(seed, &allocator.allocator, &result, outcomes);
        if (result.wrong[0] != '\0')
            fail_msg("seed %llu: %s", (unsigned long long)seed, result.wrong);
        assert_int_equal(allocator.live, 0);
        for (uint32_t i = 0; i < count; i++)
            ends[outcomes[i].end]++;
        preemptions += result.counts.preemptions;
        reused += result.counts.reused_tokens;
    }
    for (uint32_t end = 0; end < SIMULATE_PENDING; end++)
        assert_true(ends[end] > 0); /* everything that can happen does */
    assert_int_equal(ends[SIMULATE_PENDING], 0);
    assert_true(preemptions > 0 && reused > 0);
}

static void a_run_is_a_function_of_its_seed(void **state) {
    (void)state;
    static simulate_outcome first[SIMULATE_SEED_REQUESTS_MAX], second[SIMULATE_SEED_REQUESTS_MAX];
    simulate_result one, two;
    memset(first, 0, sizeof(first));
    memset(second, 0, sizeof(second));
    uint32_t count = run_seed(7, NULL, &one, first);
    assert_int_equal(run_seed(7, NULL, &two, second), count);
    assert_memory_equal(first, second, sizeof(first));
    assert_int_equal(one.steps, two.steps);
    run_seed(8, NULL, &two, second);
    assert_true(memcmp(first, second, sizeof(first)) != 0);
}

static simulate_options plain_options(void) {
    simulate_options options = {.seed = 1, .check = true};
    step_cost cost = {.adapter = 1e5};
    step_cost_line(&cost, 1e6, 1e5, 2e5);
    options.sched = (sched_options){.running_max = 4,
                                    .rows_max = 64,
                                    .waiting_max = 4096,
                                    .waiting_tokens_max = 1u << 30,
                                    .pages = 200,
                                    .context_max = 1024,
                                    .target_ns = 20000000,
                                    .ageing_ns = 1000000000,
                                    .chunk_min = 8,
                                    .cost = cost};
    options.machine.cost = options.sched.cost;
    options.machine.cores = 2;
    options.machine.decode_cores = 1;
    options.machine.core_bandwidth = 0.65;
    return options;
}

/* Without noise and neighbours every time can be told in advance: 64 rows, 36 rows, then tokens. */
static void times_are_those_of_the_cost_model(void **state) {
    (void)state;
    simulate_options options = plain_options();
    options.sched.target_ns = 0;
    simulate_item item = {.arrival_ns = 5,
                          .weight = 1,
                          .prompt_tokens = 100,
                          .new_tokens_max = 3,
                          .answer_tokens = UINT32_MAX};
    simulate_outcome outcome;
    simulate_result result;
    avo_error error = {0};
    assert_ok_error(simulate_run(&options, &item, 1, NULL, NULL, NULL, &outcome, &result, &error),
                    &error);
    assert_string_equal(result.wrong, "");
    assert_int_equal(result.steps, 4);
    assert_int_equal(outcome.begin_ns, 5);
    assert_int_equal(outcome.first_ns, 5 + 2 * 2500000 + (64 + 36 - 2 * 16) * 200000 + 2);
    assert_int_equal(outcome.end_ns, outcome.first_ns + 2 * 1000000 + 2);
    assert_int_equal(outcome.gap_ns_max, 1000001);
    assert_int_equal(outcome.tokens, 3);
}

/* Side by side cannot be faster than memory and arithmetic allow. */
static void splitting_cores_keeps_what_is_there(void **state) {
    (void)state;
    static simulate_item items[300];
    static simulate_outcome outcomes[300];
    simulate_zipf zipf = {1, 4, 2, 60, 60, 20, 1024, 3};
    assert_ok(simulate_zipf_fill(&zipf, items, 300, NULL));
    double seconds[3];
    for (int mode = CORES_MIXED; mode <= CORES_ADAPTIVE; mode++) {
        simulate_options options = plain_options();
        simulate_result result;
        avo_error error = {0};
        options.machine.split = (cores_mode)mode;
        assert_ok_error(
            simulate_run(&options, items, 300, NULL, NULL, NULL, outcomes, &result, &error),
            &error);
        assert_string_equal(result.wrong, "");
        assert_int_equal(result.counts.finished, 300);
        seconds[mode] = (double)result.busy_ns;
    }
    assert_true(seconds[CORES_ADAPTIVE] <= seconds[CORES_MIXED] * 1.5);
    assert_true(seconds[CORES_ADAPTIVE] > 0.5 * seconds[CORES_MIXED]);
    assert_true(seconds[CORES_STATIC] > 0.5 * seconds[CORES_MIXED]);
}

static void zipf_is_skewed_and_repeatable(void **state) {
    (void)state;
    static simulate_item items[20000], again[20000];
    simulate_zipf zipf = {1, 10, 3, 5, 200, 50, 2048, 11};
    assert_ok(simulate_zipf_fill(&zipf, items, 20000, NULL));
    assert_ok(simulate_zipf_fill(&zipf, again, 20000, NULL));
    assert_memory_equal(items, again, sizeof(items));
    uint32_t of[11] = {0};
    double prompt = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        assert_in_range(items[i].adapter, 1, 10);
        assert_in_range(items[i].prompt_tokens + items[i].new_tokens_max, 2, 2048);
        of[items[i].adapter]++;
        prompt += items[i].prompt_tokens;
    }
    assert_in_range(of[1], 6500, 7150); /* 20000 / H(10) = 6828 */
    assert_in_range(of[10], 580, 790);
    assert_true(fabs(prompt / 20000 - 200) < 12);
    assert_true(fabs((double)items[19999].arrival_ns * 1e-9 - 4000) < 120); /* 5 a second */
}

/* A clock of 64 bits ends: what would come later is refused, what comes just before it is served.
 */
static void arrivals_are_bounded(void **state) {
    (void)state;
    static simulate_item items[20000];
    static simulate_outcome outcomes[100];
    avo_error error = {0};
    simulate_zipf zipf = {1, 0, 1, 1e-6, 4, 2, 2048, 1};
    assert_refused(simulate_zipf_fill(&zipf, items, 20000, &error), AVO_ERROR_LIMIT, &error,
                   "must be within 1e+09");
    simulate_item item = {0};
    assert_refused(simulate_arrival(NAN, 6, &item, &error), AVO_ERROR_LIMIT, &error, "request 7");
    assert_refused(simulate_arrival(1e300, 6, &item, &error), AVO_ERROR_LIMIT, &error, "request 7");
    zipf.rate = 1.5e-7; /* a hundred of them last 0.67e9 seconds */
    assert_ok_error(simulate_zipf_fill(&zipf, items, 100, &error), &error);
    assert_true(items[99].arrival_ns > SIMULATE_ARRIVAL_NS_MAX / 2);
    items[99].arrival_ns = SIMULATE_ARRIVAL_NS_MAX;
    simulate_options options = plain_options();
    options.check = true;
    options.sched.ageing_ns = 1000000;
    simulate_result result;
    assert_ok_error(simulate_run(&options, items, 100, NULL, NULL, NULL, outcomes, &result, &error),
                    &error);
    assert_string_equal(result.wrong, "");
    assert_int_equal(result.counts.finished, 100);
    /* Nor does the work last longer than the clock, be it many steps or one. */
    for (uint32_t i = 0; i < 2; i++) {
        step_cost_line(&options.machine.cost, i == 0 ? 1e17 : 1e30, 1e5, 2e5);
        assert_refused(
            simulate_run(&options, items, 100, NULL, NULL, NULL, outcomes, &result, &error),
            AVO_ERROR_LIMIT, &error, "use less work");
    }
}

static void percentiles_are_right(void **state) {
    (void)state;
    static report_histogram histogram;
    assert_true(report_percentile(&histogram, 0.5) == 0);
    for (uint32_t i = 1; i <= 1000; i++)
        report_add(&histogram, i * 1000000ull);
    report_add(&histogram, 0);
    assert_true(fabs(report_percentile(&histogram, 0.5) / 0.5 - 1) < 0.012);
    assert_true(fabs(report_percentile(&histogram, 0.99) / 0.99 - 1) < 0.012);
    assert_true(report_percentile(&histogram, 1) <= 1.0);
    report_add(&histogram, UINT64_MAX); /* the last bucket holds what is beyond */
    assert_int_equal(histogram.count, 1002);
}

static void nothing_and_too_much_are_refused(void **state) {
    (void)state;
    simulate_options options = plain_options();
    simulate_item item = {.weight = 1, .prompt_tokens = 1, .new_tokens_max = 1};
    simulate_outcome outcome;
    simulate_result result;
    avo_error error = {0};
    assert_refused(simulate_run(&options, &item, 0, NULL, NULL, NULL, &outcome, &result, &error),
                   AVO_ERROR_ARGUMENT, &error, "0 requests");
    options.sched.rows_max = 1;
    assert_refused(simulate_run(&options, &item, 1, NULL, NULL, NULL, &outcome, &result, &error),
                   AVO_ERROR_ARGUMENT, &error, "rows_max");
}

/* A scheduler that thinks the machine twenty times as slow as it is refuses what is easy, and the
 * simulation says so: at once, or while it waits. */
static void needless_refusals_are_seen(void **state) {
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        simulate_options options = plain_options();
        simulate_item items[2] = {
            {.prompt_tokens = 64, .new_tokens_max = 400, .answer_tokens = 400, .weight = 1}};
        items[1] = items[0];
        items[1].tenant = 1;
        items[1].arrival_ns = 1;
        options.sched.running_max = 1;
        double needed = step_cost_step(&options.machine.cost, 64);
        items[1].first_deadline_ns = (uint64_t)(needed * (waits == 0 ? 11 : 21));
        simulate_outcome outcomes[2];
        simulate_result result;
        avo_error error = {0};
        for (int slow = 0; slow < 2; slow++) {
            if (slow == 1) {
                step_cost_scale(&options.sched.cost, 20);
            }
            assert_ok_error(
                simulate_run(&options, items, 2, NULL, NULL, NULL, outcomes, &result, &error),
                &error);
            if (slow == 0)
                assert_string_equal(result.wrong, "");
            else
                assert_non_null(
                    strstr(result.wrong, waits == 0 ? "without need" : "request 1 ends as 3"));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_hold),
        cmocka_unit_test(a_run_is_a_function_of_its_seed),
        cmocka_unit_test(needless_refusals_are_seen),
        cmocka_unit_test(times_are_those_of_the_cost_model),
        cmocka_unit_test(splitting_cores_keeps_what_is_there),
        cmocka_unit_test(zipf_is_skewed_and_repeatable),
        cmocka_unit_test(arrivals_are_bounded),
        cmocka_unit_test(percentiles_are_right),
        cmocka_unit_test(nothing_and_too_much_are_refused),
    };
    return cmocka_run_group_tests_name("sched/simulate", tests, NULL, NULL);
}
