/* device/limits: every peak that build and machine have runs and grows with its rounds; what bounds
 * a piece of work is the larger of reading and computing. No timings. AVO_TEST_THREADS */
#include "support/support.h"

#include "device/cpu/isa.h"

#include <math.h>
#include <string.h>

static void check_peak(const limit_peak *peak) {
    assert_non_null(peak->name);
    assert_true(peak->operations > 0);
    /* Tiles and 16-bit sums may wrap to the same number: calling is what is tested. */
    peak->run(0);
    peak->run(17);
}

static void check_table(const char *name) {
    limit_table table;
    assert_true(limits_of(name, &table));
    assert_string_equal(table.isa, name);
    check_peak(&table.integer);
    check_peak(&table.floating);
}

static void every_peak_runs(void **state) {
    (void)state;
    const instruction_set *set;
    check_table("ref");
    check_table("plain");
    for (size_t i = 0; (set = isa_at(i)) != NULL; i++)
        check_table(set->name);
}

static void sums_depend_on_rounds(void **state) {
    (void)state;
    limit_table table;
    assert_true(limits_of("plain", &table));
    assert_int_equal(table.floating.run(0), 0);
    /* 8 chains, each round adds a quarter to every lane */
    assert_int_equal(table.floating.run(4), 8);
    assert_int_equal(table.integer.run(1), 8 * 18);
}

static void unknown_names_are_refused(void **state) {
    (void)state;
    limit_table table;
    assert_false(limits_of("", &table));
    assert_false(limits_of("vmx", &table));
    assert_false(limits_of("avx", &table));
}

static void a_team_measures(void **state) {
    (void)state;
    limit_table table;
    assert_true(limits_of("plain", &table));
    static uint8_t memory[64 * 1024] __attribute__((aligned(64)));
    for (uint32_t threads = 1; threads <= 3; threads++) {
        team *team;
        avo_error error = {0};
        machine_limits limits;
        assert_ok_error(team_open(NULL, threads, &team, &error), &error);
        limits_touch(team, memory, sizeof(memory));
        limits_measure(&table, team, memory, sizeof(memory), &limits);
        team_close(team);
        assert_int_equal(limits.threads, threads);
        assert_true(isfinite(limits.read_bytes) && limits.read_bytes > 0);
        assert_true(isfinite(limits.integer_operations) && limits.integer_operations > 0);
        assert_true(isfinite(limits.floating_operations) && limits.floating_operations > 0);
    }
}

static void the_larger_time_bounds(void **state) {
    (void)state;
    machine_limits limits = {
        .read_bytes = 10, .integer_operations = 100, .floating_operations = 50};
    limit_times times = limits_times(&limits, &(limit_work){20, 100, 0});
    assert_true(times.reading == 2 && times.computing == 1);
    assert_int_equal(limits_bound(times), LIMIT_READ);
    times = limits_times(&limits, &(limit_work){10, 200, 50});
    assert_true(times.reading == 1 && times.computing == 3);
    assert_int_equal(limits_bound(times), LIMIT_ARITHMETIC);
    times = limits_times(&limits, &(limit_work){0});
    assert_true(times.reading == 0 && times.computing == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_peak_runs),           cmocka_unit_test(sums_depend_on_rounds),
        cmocka_unit_test(unknown_names_are_refused), cmocka_unit_test(a_team_measures),
        cmocka_unit_test(the_larger_time_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
