/* spec/cost: what the table says, and that it finds the numbers of a machine from timed steps. */
#include "support/support.h"

#include "base/random.h"
#include "spec/cost.h"

#include <math.h>

static void assert_near(double found, double wanted) {
    if (!(fabs(found - wanted) <= 1e-9 * wanted))
        fail_msg("%.9g instead of %.9g", found, wanted);
}

static void a_line_is_a_table(void **state) {
    (void)state;
    step_cost cost = {.context_token = 0.5, .draft_token = 0.25, .adapter = 7, .scored_row = 3};
    step_cost_line(&cost, 1000, 10, 20);
    assert_true(step_cost_of(&cost, &(step_load){.adapters = 3}) == 0);
    for (uint32_t rows = 1; rows <= 512; rows++)
        assert_near(step_cost_step(&cost, rows),
                    rows <= 16 ? 1000 + 10 * (rows - 1) : 1150 + 20 * (rows - 16));
    assert_near(step_cost_step(&cost, 2048), 4 * step_cost_step(&cost, 512));
    assert_near(step_cost_of(&cost, &(step_load){.decode_rows = 2,
                                                 .draft_rows = 3,
                                                 .prefill_rows = 15,
                                                 .adapters = 2,
                                                 .context_tokens = 100,
                                                 .draft_tokens = 40,
                                                 .scored_rows = 5}),
                1150 + 80 + 50 + 10 + 14 + 15);
}

/* Measured steps stay what they were, those between lie between. */
static void tables_go_through_measurements(void **state) {
    (void)state;
    const step_cost_point points[] = {{2, 90}, {4, 120}, {8, 200}, {100, 1120}};
    step_cost cost = {0};
    step_cost_fit(&cost, points, 4);
    assert_near(step_cost_step(&cost, 1), 90);
    for (size_t i = 0; i < 3; i++)
        assert_near(step_cost_step(&cost, points[i].rows), points[i].ns);
    assert_near(step_cost_step(&cost, 3), 105);
    assert_near(step_cost_step(&cost, 6), 160);
    assert_near(step_cost_step(&cost, 64), 760);
    assert_near(step_cost_step(&cost, 128), 1400);
    assert_near(step_cost_step(&cost, 512), 5240);
    step_cost_fit(&cost, points, 1);
    assert_near(step_cost_step(&cost, 1), 90);
    assert_near(step_cost_step(&cost, 512), 90);
    /* A prompt that was faster than the batch before it never makes a cost negative. */
    const step_cost_point falling[] = {{1, 100}, {16, 50}};
    step_cost_fit(&cost, falling, 2);
    assert_true(step_cost_step(&cost, 512) == 0);
}

/* The curve of a real machine: flat up to four rows, a jump behind them, then arithmetic. */
static step_cost bent(void) {
    const step_cost_point points[] = {{1, 18e6}, {4, 21e6}, {5, 30e6}, {16, 68e6}, {512, 900e6}};
    step_cost cost = {
        .context_token = 2500, .draft_token = 600, .adapter = 0.8e6, .scored_row = 0.4e6};
    step_cost_fit(&cost, points, 5);
    return cost;
}

static step_load roll_load(uint32_t i) {
    random_block r = random_at(3, 0, i), q = random_at(3, 2, i);
    step_load load = {.decode_rows = r.words[0] % 9,
                      .prefill_rows = r.words[1] % 3 == 0 ? r.words[1] % 200 : 0,
                      .adapters = r.words[2] % 6,
                      .context_tokens = r.words[3] % 4000};
    if (load.decode_rows > 0 && q.words[0] % 2 == 0) {
        load.draft_rows = q.words[1] % 6;
        load.draft_tokens = load.draft_rows * (uint64_t)(q.words[2] % 2000);
    }
    return load;
}

static void it_learns_what_steps_take(void **state) {
    (void)state;
    const step_cost machine = bent();
    step_cost cost = {
        .context_token = 20000, .draft_token = 20000, .adapter = 5e6, .scored_row = 5e6};
    step_cost_line(&cost, 5e6, 5e6, 0.2e6);
    double worst = 0;
    for (uint32_t i = 0; i < 12000; i++) {
        step_load load = roll_load(i);
        if (step_load_rows(&load) == 0)
            continue;
        double noise = 0.97 + 0.06 * random_uniform_at(3, 1, i);
        double taken = step_cost_of(&machine, &load);
        if (i > 6000)
            worst = fmax(worst, fabs(step_cost_of(&cost, &load) / taken - 1));
        step_cost_learn(&cost, &load, taken * noise);
    }
    assert_true(worst < 0.2);
    /* It has found the jump. */
    assert_true(step_cost_step(&cost, 5) > 1.25 * step_cost_step(&cost, 4));
    assert_true(step_cost_step(&cost, 4) < 1.25 * step_cost_step(&cost, 1));
}

/* A guess that is wrong by a factor is put right by steps of one kind alone, and what those have
 * taught is not lost when others come. */
static void untaught_points_follow(void **state) {
    (void)state;
    step_cost cost = {.context_token = 1}, machine = cost;
    step_cost_line(&machine, 1e6, 1e5, 2e5);
    step_cost_line(&cost, 1e7, 1e6, 2e6);
    step_load one = {.decode_rows = 1}, many = {.prefill_rows = 256};
    for (int i = 0; i < 100; i++)
        step_cost_learn(&cost, &one, step_cost_of(&machine, &one));
    for (size_t i = 0; i < STEP_COST_POINTS; i++)
        assert_true(fabs(cost.step[i] / machine.step[i] - 1) < 0.01);
    for (int i = 0; i < 100; i++)
        step_cost_learn(&cost, &many, 3 * step_cost_of(&machine, &many));
    assert_true(fabs(cost.step[0] / machine.step[0] - 1) < 0.01);
    assert_true(fabs(step_cost_step(&cost, 2) / step_cost_step(&machine, 2) - 1) < 0.01);
    assert_true(fabs(step_cost_step(&cost, 512) / step_cost_step(&machine, 512) - 3) < 0.05);
}

/* Mostly steps of one row, others now and then, and a machine whose speed changes: the table knows
 * what more rows cost in steps of one, which is what the choice of drafts depends on. */
static void shapes_survive_changes_of_speed(void **state) {
    (void)state;
    const step_cost_point points[] = {{1, 3e6}, {4, 3.4e6}, {5, 4.5e6}, {8, 6e6}, {16, 12e6}};
    step_cost machine = {.draft_token = 0}, cost;
    step_cost_fit(&machine, points, 5);
    cost = machine;
    step_cost_line(&cost, 1e6, 1e4, 1e5);
    double worst = 0, speed = 1;
    for (uint32_t i = 0; i < 20000; i++) {
        random_block r = random_at(5, 0, i);
        if (i % 1000 == 0)
            speed = i / 1000 % 2 == 0 ? 1 : 2.5;
        step_load load = {.decode_rows = 1, .draft_rows = r.words[0] % 8 > 0 ? 0 : r.words[1] % 9};
        double noise = 0.9 + 0.2 * random_uniform_at(5, 1, i);
        noise *= r.words[2] % 200 == 0 ? 8 : 1; /* taken off its processor */
        step_cost_learn(&cost, &load, speed * noise * step_cost_of(&machine, &load));
        step_cost_hope(&cost, step_load_rows(&load));
        if (i % 1000 > 100 && i > 2000)
            for (uint32_t rows = 2; rows <= 9; rows++) {
                double found = step_cost_step(&cost, rows) / step_cost_step(&cost, 1);
                double right = step_cost_step(&machine, rows) / step_cost_step(&machine, 1);
                worst = fmax(worst, fabs(found / right - 1));
            }
    }
    if (worst > 0.45)
        fail_msg("wrong by %.2f", worst);
}

/* Steps of a few rows, for hours: what is known of more rows stays known. */
static void what_is_not_tried_keeps_its_price(void **state) {
    (void)state;
    const step_cost_point points[] = {{1, 3e6}, {4, 3.4e6}, {5, 4.5e6}, {8, 6e6}, {16, 12e6}};
    step_cost machine = {.draft_token = 0}, cost;
    step_cost_fit(&machine, points, 5);
    cost = machine;
    for (uint32_t i = 0; i < 50000; i++) {
        random_block r = random_at(7, 0, i);
        step_load load = {.decode_rows = 1, .draft_rows = i < 1000 ? i % 16 : r.words[0] % 5};
        double noise = 0.9 + 0.2 * random_uniform_at(7, 1, i);
        step_cost_learn(&cost, &load, noise * step_cost_of(&machine, &load));
        step_cost_hope(&cost, step_load_rows(&load));
    }
    for (uint32_t rows = 1; rows <= 16; rows++) {
        double found = step_cost_step(&cost, rows) / step_cost_step(&machine, rows);
        if (found < 0.7 || found > 1.3)
            fail_msg("%u rows: wrong by %.2f", rows, found);
    }
}

static void nonsense_teaches_nothing(void **state) {
    (void)state;
    step_cost cost = {.context_token = 0.5, .adapter = 7, .scored_row = 3};
    step_cost_line(&cost, 1000, 10, 20);
    step_cost before = cost;
    step_load load = {.decode_rows = 3};
    step_cost_learn(&cost, &(step_load){0}, 100);
    step_cost_learn(&cost, &load, 0);
    step_cost_learn(&cost, &load, -5);
    step_cost_learn(&cost, &load, NAN);
    assert_memory_equal(&cost, &before, sizeof(cost));
    for (int i = 0; i < 1000; i++)
        step_cost_learn(&cost, &load, i % 2 ? 1e18 : 1);
    for (size_t i = 0; i < STEP_COST_POINTS; i++)
        assert_true(cost.step[i] > 0 && isfinite(cost.step[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_table),
        cmocka_unit_test(tables_go_through_measurements),
        cmocka_unit_test(it_learns_what_steps_take),
        cmocka_unit_test(untaught_points_follow),
        cmocka_unit_test(what_is_not_tried_keeps_its_price),
        cmocka_unit_test(shapes_survive_changes_of_speed),
        cmocka_unit_test(nonsense_teaches_nothing),
    };
    return cmocka_run_group_tests_name("spec/cost", tests, NULL, NULL);
}
