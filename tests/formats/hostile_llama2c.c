/* llama2.c files that lie. There is no magic: the header's seven numbers against the size. */
#include "support/support.h"

#include "formats/hostile.h"

static uint8_t file[28 + 4 * 1200];

static memory_file whole(void) {
    static const int32_t header[7] = {8, 12, 2, 2, 1, 5, 6};
    size_t floats = 5 * 8 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 96 + 96 + 96) + 8 + 2 * 6 * 2;
    memcpy(file, header, sizeof(header));
    return (memory_file){"tiny.bin", {file, 28 + 4 * floats}};
}

static void test_truncated(void **state) {
    (void)state;
    memory_file files[] = {whole()};
    hostile_counts counts = {0};
    judge(files, 1, &counts);
    assert_int_equal(counts.opened, 1);
    judge_truncations(files, 1, &counts);
    assert_int_equal(counts.opened, 1);
}

static void test_changed(void **state) {
    (void)state;
    memory_file files[] = {whole()};
    hostile_counts counts = {0};
    judge_flips(files, 1, 28, &counts);
    for (size_t i = 0; i < 7; i++)
        judge_extremes(files, 1, 4 * i, 4, &counts);
    assert_true(counts.refused > 300);
}

static void test_allocations(void **state) {
    (void)state;
    memory_file files[] = {whole(), {"tok5.bin", {(const uint8_t *)"x", 1}}};
    judge_allocations(files, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
