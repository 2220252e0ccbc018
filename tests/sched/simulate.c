/* sched/simulate: seeds hold, a run is a function of its seed, and what breaks is noticed. */
#include "support/support.h"

#include "sched/simulate.h"

#include <stdlib.h>
#include <string.h>

static void run_seed(uint64_t seed, simulate_result *result, simulate_outcome *outcomes) {
    simulate_options options;
    static simulate_item items[SIMULATE_SEED_REQUESTS_MAX];
    avo_error error = {0};
    uint32_t count = simulate_seed(seed, &options, items);
    assert_ok_error(
        simulate_run(&options, items, count, NULL, NULL, NULL, outcomes, result, &error), &error);
}

static void seeds_hold(void **state) {
    (void)state;
    static simulate_outcome outcomes[SIMULATE_SEED_REQUESTS_MAX];
    simulate_result result;
    const char *more = getenv("AVO_TEST_SEEDS");
    uint64_t seeds = more != NULL ? strtoull(more, NULL, 10) : 60;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        run_seed(seed, &result, outcomes);
        if (result.wrong[0] != '\0')
            fail_msg("seed %llu: %s", (unsigned long long)seed, result.wrong);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_hold),
    };
    return cmocka_run_group_tests_name("sched/simulate", tests, NULL, NULL);
}
