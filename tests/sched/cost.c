/* sched/cost: what the model says, and that it finds the numbers of a machine from timed steps. */
#include "support/support.h"

#include "base/random.h"
#include "sched/core.h"

#include <math.h>

static void the_model_is_linear(void **state) {
    (void)state;
    sched_cost cost = {1000, 10, 20, 0.5, 7, 3};
    assert_true(sched_cost_of(&cost, &(sched_load){0}) == 0);
    assert_true(sched_cost_of(&cost, &(sched_load){.decode_rows = 1}) == 1000);
    assert_true(sched_cost_of(&cost, &(sched_load){.decode_rows = 16}) == 1150);
    assert_true(sched_cost_of(&cost, &(sched_load){.decode_rows = 20}) == 1150 + 80);
    assert_true(sched_cost_of(&cost, &(sched_load){.prefill_rows = 3}) == 1060);
    assert_true(sched_cost_of(&cost, &(sched_load){2, 3, 2, 100, 0}) == 1000 + 10 + 60 + 50 + 14);
}

static void it_learns_what_steps_take(void **state) {
    (void)state;
    const sched_cost machine = {18e6, 0.9e6, 1.6e6, 2500, 0.8e6, 0.4e6};
    sched_cost cost = {5e6, 5e6, 0.2e6, 20000, 5e6, 5e6};
    double worst = 0;
    for (uint32_t i = 0; i < 6000; i++) {
        random_block r = random_at(3, 0, i);
        sched_load load = {.decode_rows = r.words[0] % 20,
                           .prefill_rows = r.words[1] % 3 == 0 ? 0 : r.words[1] % 200,
                           .adapters = r.words[2] % 6,
                           .context_tokens = r.words[3] % 40000};
        if (load.decode_rows + load.prefill_rows == 0)
            continue;
        double noise = 0.97 + 0.06 * random_uniform_at(3, 1, i);
        double taken = sched_cost_of(&machine, &load);
        if (i > 3000)
            worst = fmax(worst, fabs(sched_cost_of(&cost, &load) / taken - 1));
        sched_cost_learn(&cost, &load, taken * noise);
    }
    assert_true(worst < 0.15);
    assert_true(fabs(cost.prefill_row / machine.prefill_row - 1) < 0.1);
    assert_true(fabs(cost.step / machine.step - 1) < 0.3);
}

static void nonsense_teaches_nothing(void **state) {
    (void)state;
    sched_cost cost = {1000, 10, 20, 0.5, 7, 3}, before = cost;
    sched_load load = {.decode_rows = 3};
    sched_cost_learn(&cost, &(sched_load){0}, 100);
    sched_cost_learn(&cost, &load, 0);
    sched_cost_learn(&cost, &load, -5);
    sched_cost_learn(&cost, &load, NAN);
    assert_memory_equal(&cost, &before, sizeof(cost));
    for (int i = 0; i < 1000; i++)
        sched_cost_learn(&cost, &load, i % 2 ? 1e18 : 1);
    assert_true(cost.step > 0 && isfinite(cost.step));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_is_linear),
        cmocka_unit_test(it_learns_what_steps_take),
        cmocka_unit_test(nonsense_teaches_nothing),
    };
    return cmocka_run_group_tests_name("sched/cost", tests, NULL, NULL);
}
