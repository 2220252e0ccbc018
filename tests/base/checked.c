/* base/checked: every border of size arithmetic. */
#include "support/support.h"

#include "base/checked.h"

static void adds_up_to_the_border(void **state) {
    (void)state;
    size_t sum;
    assert_true(size_add(SIZE_MAX, 0, &sum) && sum == SIZE_MAX);
    assert_true(size_add(SIZE_MAX - 5, 5, &sum) && sum == SIZE_MAX);
    assert_false(size_add(SIZE_MAX, 1, &sum));
    assert_false(size_add(SIZE_MAX / 2 + 1, SIZE_MAX / 2 + 1, &sum));
    uint64_t wide;
    assert_true(u64_add(UINT64_MAX - 1, 1, &wide) && wide == UINT64_MAX);
    assert_false(u64_add(UINT64_MAX, UINT64_MAX, &wide));
}

static void multiplies_up_to_the_border(void **state) {
    (void)state;
    size_t product;
    assert_true(size_multiply(SIZE_MAX, 1, &product) && product == SIZE_MAX);
    assert_true(size_multiply(SIZE_MAX, 0, &product) && product == 0);
    assert_true(size_multiply((size_t)1 << 32, ((size_t)1 << 32) - 1, &product));
    assert_false(size_multiply((size_t)1 << 32, (size_t)1 << 32, &product));
    assert_false(size_multiply(SIZE_MAX, 2, &product));
    uint64_t wide;
    assert_true(u64_multiply(UINT64_MAX / 3, 3, &wide) && wide == UINT64_MAX);
    assert_false(u64_multiply(UINT64_MAX / 3 + 1, 3, &wide));
}

static void rounds_up(void **state) {
    (void)state;
    size_t rounded;
    for (size_t step = 1; step <= 4096; step *= 2)
        for (size_t value = 0; value < 300; value++) {
            assert_true(size_round_up(value, step, &rounded));
            assert_true(rounded >= value && rounded < value + step && rounded % step == 0);
        }
    assert_true(size_round_up(SIZE_MAX - 63, 64, &rounded) && rounded == SIZE_MAX - 63);
    assert_false(size_round_up(SIZE_MAX - 62, 64, &rounded));
    assert_false(size_round_up(SIZE_MAX, 2, &rounded));
}

static void smaller_and_larger(void **state) {
    (void)state;
    assert_int_equal(size_min(3, 7), 3);
    assert_int_equal(size_max(3, 7), 7);
    assert_true(size_max(SIZE_MAX, 0) == SIZE_MAX && size_min(SIZE_MAX, 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_up_to_the_border),
        cmocka_unit_test(multiplies_up_to_the_border),
        cmocka_unit_test(rounds_up),
        cmocka_unit_test(smaller_and_larger),
    };
    return cmocka_run_group_tests_name("base/checked", tests, NULL, NULL);
}
