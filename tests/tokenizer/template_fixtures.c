/* Templates of our own against what Python's jinja2 made of them. With a file as argument (written
 * by tools/oracle/template_stress.py) the cases in it. */
#include "support/template_cases.h"

#include <stdio.h>
#include <string.h>

static void constructs_render_as_in_jinja2(void **state) {
    (void)state;
    size_t failed;
    size_t refused;
    const char *path = test_fixture_path("template/constructs.json");
    assert_true(cases_check_file(path, &failed, &refused) > 300);
    assert_int_equal(failed, 0);
    assert_int_equal(refused, 0);
}

static void random_expressions_render_as_in_jinja2(void **state) {
    (void)state;
    size_t failed;
    size_t refused;
    size_t count = cases_check_file(test_fixture_path("template/random.json"), &failed, &refused);
    assert_true(count > 400);
    assert_int_equal(failed, 0);
    assert_true(refused * 50 < count); /* what prints a generator, and the like */
}

int main(int argc, char **argv) {
    if (argc == 2) {
        size_t failed;
        size_t refused;
        size_t count = cases_check_file(argv[1], &failed, &refused);
        printf("%zu cases, %zu failed, %zu refused\n", count, failed, refused);
        return failed == 0 ? 0 : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructs_render_as_in_jinja2),
        cmocka_unit_test(random_expressions_render_as_in_jinja2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
