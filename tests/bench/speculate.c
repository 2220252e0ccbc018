/* bench/speculate: lists of K, sources, controllers and policies become configurations. */
#include "support/support.h"

#include "bench/grid.h"
#include "bench/speculate.h"

#include <string.h>

static void lists_of_k_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t count, last;
    } good[] = {{"0", 1, 0}, {"5", 2, 5}, {"0..8", 9, 8}, {"0,3,7", 3, 7}, {"2..4,16", 5, 16}};
    uint32_t k[DRAFTS_MAX + 1], count;
    avo_error error = {0};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_ok_error(lab_parse_k(good[i].text, k, &count, &error), &error);
        assert_int_equal(count, good[i].count);
        assert_int_equal(k[0], 0);
        assert_int_equal(k[count - 1], good[i].last);
    }
    static const char *const bad[] = {
        "",    "17",   "0..17", "3..2",  "1,", ",1",  "x",
        "1..", "1 ,2", "-1",    "0...3", "+1", "0x1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_refused(lab_parse_k(bad[i], k, &count, &error), AVO_ERROR_ARGUMENT, &error,
                       "such as 0..8");
}

static void lists_are_combined(void **state) {
    (void)state;
    lab_config config[LAB_CONFIGS_MAX];
    uint32_t count;
    avo_error error = {0};
    char name[96];
    assert_ok_error(lab_configs("0,2,4", "auto,suffix+corpus", "cost,ema", "exact,top-k:3", config,
                                &count, &error),
                    &error);
    assert_int_equal(count, 1 + 2 * 2 * 2 * 2);
    assert_int_equal(config[0].k, 0);
    assert_string_equal(config[0].source, "off");
    for (uint32_t i = 1; i < count; i++)
        assert_int_equal(config[i].k, i % 2 == 1 ? 2 : 4);
    lab_config_name(&config[0], name, sizeof(name));
    assert_string_equal(name, "K 0");
    lab_config_name(&config[1], name, sizeof(name));
    assert_string_equal(name, "auto cost K 2");
    lab_config_name(&config[count - 1], name, sizeof(name));
    assert_string_equal(name, "suffix+corpus ema top-k:3 (lossy) K 4");
    assert_ok_error(lab_configs("0", "auto", "cost", "exact", config, &count, &error), &error);
    assert_int_equal(count, 1);
}

static void too_many_are_refused(void **state) {
    (void)state;
    lab_config config[LAB_CONFIGS_MAX];
    uint32_t count;
    avo_error error = {0};
    assert_ok_error(lab_configs("0..9", "auto,suffix,ngram,corpus,grammar,model,custom", "cost",
                                "exact", config, &count, &error),
                    &error);
    assert_int_equal(count, LAB_CONFIGS_MAX);
    assert_refused(lab_configs("0..10", "auto,suffix,ngram,corpus,grammar,model,custom", "cost",
                               "exact", config, &count, &error),
                   AVO_ERROR_LIMIT, &error, "more than 64 configurations");
    assert_refused(lab_configs("1", "auto,", "cost", "exact", config, &count, &error),
                   AVO_ERROR_ARGUMENT, &error, "source \"\"");
    assert_refused(lab_configs("1", "off", "cost", "exact", config, &count, &error),
                   AVO_ERROR_ARGUMENT, &error, "always included");
    assert_refused(lab_configs("1", "auto", "fast", "exact", config, &count, &error),
                   AVO_ERROR_ARGUMENT, &error, "controller is \"fast\"");
}

static void tables_are_aligned_by_characters(void **state) {
    (void)state;
    grid grid;
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    assert_ok(grid_open(&grid));
    grid_clear(&grid);
    grid_row(&grid);
    grid_cell(&grid, "name");
    grid_cell(&grid, "x");
    grid_row(&grid);
    grid_cell(&grid, "–");
    grid_cell(&grid, "1 ± 2");
    assert_ok(grid_write(&grid, 1, &out));
    assert_ok(buffer_terminate(&out));
    assert_string_equal(out.data, "name      x\n"
                                  "-----------\n"
                                  "–     1 ± 2\n");
    for (int i = 0; i < 200; i++) { /* more than fits */
        grid_row(&grid);
        for (int column = 0; column < 100; column++)
            grid_cell(&grid, "%0100d", column);
    }
    assert_int_equal(grid.rows, GRID_ROWS);
    assert_int_equal(grid.columns, GRID_COLUMNS);
    grid_close(&grid);
    buffer_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_k_are_read),
        cmocka_unit_test(lists_are_combined),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(tables_are_aligned_by_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
