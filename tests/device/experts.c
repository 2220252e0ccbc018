/* device/cpu/experts: which experts a row uses, what they weigh, and how rows are grouped. */
#include "support/support.h"

#include "base/random.h"
#include "device/cpu/experts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect(const experts_view *experts, const float *logits, const uint32_t *wanted,
                   const double *weights) {
    uint32_t expert[EXPERTS_USED_MAX];
    float weight[EXPERTS_USED_MAX];
    experts_choose(experts, logits, expert, weight);
    for (uint32_t i = 0; i < experts->used; i++) {
        assert_int_equal(expert[i], wanted[i]);
        if (weights != NULL && !(fabs((double)weight[i] - weights[i]) < 1e-7))
            fail_msg("expert %u weighs %.9g, expected %.9g", expert[i], (double)weight[i],
                     weights[i]);
    }
}

/* Logits are logarithms of 1, 4, 2 and 1. */
static void weights_are_those_of_the_rule(void **state) {
    (void)state;
    const float logits[] = {0.0f, logf(4.0f), logf(2.0f), 0.0f};
    experts_view experts = {.count = 4, .used = 2};
    expect(&experts, logits, (uint32_t[]){1, 2}, (double[]){0.5, 0.25});
    experts.normalised = true;
    expect(&experts, logits, (uint32_t[]){1, 2}, (double[]){2 / 3.0, 1 / 3.0});
    experts.normalised = false;
    experts.router_kind = ROUTER_TOP_SOFTMAX;
    expect(&experts, logits, (uint32_t[]){1, 2}, (double[]){2 / 3.0, 1 / 3.0});
    experts.used = 4;
    expect(&experts, logits, (uint32_t[]){0, 1, 2, 3}, (double[]){0.125, 0.5, 0.25, 0.125});
}

static void the_first_of_equals_is_taken(void **state) {
    (void)state;
    const float logits[] = {1.0f, 3.0f, 1.0f, 3.0f, 1.0f};
    experts_view experts = {.count = 5, .used = 3, .normalised = true};
    expect(&experts, logits, (uint32_t[]){0, 1, 3}, NULL);
    experts.used = 1;
    expect(&experts, logits, (uint32_t[]){1}, (double[]){1.0});
}

/* NaN comes last; a row of NaN has experts all the same, and infinite logits break nothing. */
static void numbers_that_are_none(void **state) {
    (void)state;
    experts_view experts = {.count = 4, .used = 2, .normalised = true};
    expect(&experts, (float[]){NAN, 1.0f, NAN, -INFINITY}, (uint32_t[]){1, 3},
           (double[]){1.0, 0.0});
    expect(&experts, (float[]){NAN, NAN, NAN, NAN}, (uint32_t[]){0, 1}, NULL);
    expect(&experts, (float[]){INFINITY, 0.0f, INFINITY, 0.0f}, (uint32_t[]){0, 2}, NULL);
    expect(&experts, (float[]){-1e30f, 0.0f, 1e30f, 0.0f}, (uint32_t[]){1, 2},
           (double[]){0.0, 1.0});
}

/* Every use has one slot, slots of an expert lie side by side in order of rows, and groups cover
 * them all. */
static void groups_cover_all_uses(void **state) {
    (void)state;
    static const uint32_t counts[][3] = {{1, 1, 1}, {8, 3, 1}, {8, 3, 37}, {64, 8, 5}, {5, 5, 9}};
    const float byte = 0;
    for (size_t c = 0; c < 2 * sizeof(counts) / sizeof(counts[0]); c++) {
        const uint32_t *of = counts[c / 2];
        uint32_t rows = of[2];
        experts_view experts = {.count = of[0], .used = of[1]};
        if (c % 2 == 1)
            experts.shared.up.weight.data = (const uint8_t *)&byte;
        experts_shape shape = {.count = of[0], .used = of[1]};
        size_t bytes;
        assert_true(experts_choice_bytes(&shape, rows, &bytes));
        uint8_t *block = malloc(bytes);
        assert_non_null(block);
        experts_choice choice = experts_choice_lay(&shape, rows, block);
        for (uint32_t row = 0; row < rows; row++) {
            float logits[64], weight[8];
            for (uint32_t i = 0; i < of[0]; i++)
                logits[i] = (float)(random_at(c, row, i).words[0] % 7);
            experts_choose(&experts, logits, choice.chosen + row * of[1], weight);
        }
        experts_group_rows(&experts, rows, &choice);
        assert_true(*choice.groups <= experts_groups_max(&experts, rows));
        uint32_t at = 0, last = 0;
        for (uint32_t g = 0; g < *choice.groups; g++) {
            const expert_group *group = &choice.group[g];
            if (group->expert == experts.count) {
                assert_int_equal(g, 0);
                assert_int_equal(group->first, rows * of[1]);
                assert_int_equal(group->rows, rows);
                continue;
            }
            assert_true(at == 0 || group->expert > last);
            last = group->expert;
            assert_int_equal(group->first, at);
            for (uint32_t i = 0; i < group->rows; i++, at++) {
                uint32_t row = choice.row[at], use = row * of[1];
                assert_true(i == 0 || choice.row[at - 1] < row);
                while (choice.chosen[use] != group->expert)
                    use++;
                assert_true(use < (row + 1) * of[1]);
                assert_int_equal(choice.slot[use], at);
            }
        }
        assert_int_equal(at, rows * of[1]);
        free(block);
    }
}

static void sizes_that_wrap_are_refused(void **state) {
    (void)state;
    size_t bytes;
    experts_shape shape = {.count = 8, .used = 2};
    assert_false(experts_choice_bytes(&shape, SIZE_MAX / 4, &bytes));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_the_rule),
        cmocka_unit_test(the_first_of_equals_is_taken),
        cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(groups_cover_all_uses),
        cmocka_unit_test(sizes_that_wrap_are_refused),
    };
    return cmocka_run_group_tests_name("device/experts", tests, NULL, NULL);
}
