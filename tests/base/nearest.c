/* base/nearest.h. */
#include "support/support.h"

#include "base/nearest.h"

#include <string.h>

static void distances_count_edits(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        size_t distance;
    } cases[] = {{"", "", 0},
                 {"a", "", 1},
                 {"", "abc", 3},
                 {"run", "run", 0},
                 {"rnu", "run", 1},
                 {"kitten", "sitting", 3},
                 {"ca", "abc", 3},
                 {"temprature", "temperature", 1},
                 {"tokneize", "tokenize", 1},
                 {"pakc", "pack", 1},
                 {"abcd", "badc", 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(nearest_distance(cases[i].a, cases[i].b), cases[i].distance);
        assert_int_equal(nearest_distance(cases[i].b, cases[i].a), cases[i].distance);
    }
    char endless[100];
    memset(endless, 'a', 99);
    endless[99] = '\0';
    assert_true(nearest_distance(endless, "a") == SIZE_MAX);
}

static const char *suggest(const char *wanted) {
    static const char *const known[] = {"temperature", "top-k", "top-p",
                                        "typical-p",   "raw",   "seed"};
    nearest near = {.wanted = wanted};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        nearest_consider(&near, known[i]);
    return near.best == NULL ? "" : near.best;
}

static void suggests_only_what_is_near(void **state) {
    (void)state;
    assert_string_equal(suggest("temprature"), "temperature");
    assert_string_equal(suggest("temp"), "temperature");
    assert_string_equal(suggest("topk"), "top-k");
    assert_string_equal(suggest("sede"), "seed");
    assert_string_equal(suggest("banana"), "");
    assert_string_equal(suggest("x"), "");
    assert_string_equal(suggest(""), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_count_edits),
        cmocka_unit_test(suggests_only_what_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
