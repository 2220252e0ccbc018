/* spec/choose: rows go where they pay, within all limits, and the choice is the best there is. */
#include "support/support.h"

#include "base/random.h"
#include "spec/choose.h"

/* 1 ms a step, `row` ns more with each row. */
static step_cost line(double row) {
    step_cost cost = {.context_token = 0};
    step_cost_line(&cost, 1e6, row, row);
    return cost;
}

static double rate_of(const choose_item *items, uint32_t count, const choose_limits *limits,
                      const step_cost *cost, step_load load) {
    double tokens = limits->tokens;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < items[i].chosen; j++) {
            choose_load(&load, items[i].context, j);
            tokens += (double)items[i].survival[j];
        }
    return tokens / step_cost_of(cost, &load);
}

static void likely_drafts_are_taken_and_unlikely_ones_are_not(void **state) {
    (void)state;
    const float sure[4] = {.9f, .8f, .7f, .6f}, hopeless[4] = {.04f, .03f, .02f, .01f};
    const step_load load = {.decode_rows = 1};
    const choose_limits limits = {.rows = 16, .tokens = 1};
    step_cost cost = line(1e5);
    choose_item item = {.survival = sure, .most = 4};
    choose_drafts(&item, 1, &limits, &cost, &load);
    assert_int_equal(item.chosen, 4);
    item.survival = hopeless;
    choose_drafts(&item, 1, &limits, &cost, &load);
    assert_int_equal(item.chosen, 0);
    item.always = true;
    choose_drafts(&item, 1, &limits, &cost, &load);
    assert_int_equal(item.chosen, 4);
}

static void an_expensive_row_before_cheap_ones_is_not_the_end(void **state) {
    (void)state;
    /* Two rows cost as much as six. */
    const step_cost_point points[] = {{1, 1e6}, {2, 1.9e6}, {6, 1.9e6}, {16, 4e6}};
    const float survival[5] = {.6f, .6f, .6f, .6f, .6f};
    step_cost cost = {.adapter = 0};
    step_cost_fit(&cost, points, 4);
    choose_item item = {.survival = survival, .most = 5};
    const step_load load = {.decode_rows = 1};
    choose_drafts(&item, 1, &(choose_limits){.rows = 5, .tokens = 1}, &cost, &load);
    assert_int_equal(item.chosen, 5);
    choose_drafts(&item, 1, &(choose_limits){.rows = 1, .tokens = 1}, &cost, &load);
    assert_int_equal(item.chosen, 0);
}

static void time_counts(void **state) {
    (void)state;
    const float survival[3] = {.5f, .4f, .3f};
    const step_load load = {.decode_rows = 1};
    step_cost cost = line(1e5);
    choose_item item = {.survival = survival, .most = 3};
    choose_drafts(&item, 1, &(choose_limits){.rows = 3, .tokens = 1, .step_ns_max = 1.1e6}, &cost,
                  &load);
    assert_int_equal(item.chosen, 1);
    item.always = true;
    choose_drafts(&item, 1, &(choose_limits){.rows = 3, .tokens = 1, .step_ns_max = 1.2e6}, &cost,
                  &load);
    assert_int_equal(item.chosen, 2);
}

/* Against every possible choice of up to three sequences. */
static void no_other_choice_is_better(void **state) {
    (void)state;
    uint32_t drafted = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        float survival[3][4];
        choose_item items[3];
        random_block r = random_at(seed, 1, 0);
        uint32_t count = 1 + r.words[0] % 3;
        step_cost_point points[4] = {{1, 1e6}, {4, 1e6}, {8, 1e6}, {16, 1e6}};
        for (uint32_t i = 1; i < 4; i++)
            points[i].ns = points[i - 1].ns + (double)(random_at(seed, 2, i).words[0] % 500000);
        step_cost cost = {.draft_token = 100};
        step_cost_fit(&cost, points, 4);
        for (uint32_t i = 0; i < count; i++) {
            double rate = 1;
            for (uint32_t j = 0; j < 4; j++) {
                rate *= (double)(random_at(seed, 3 + i, j).words[0] % 1000) / 1000;
                survival[i][j] = (float)rate;
            }
            items[i] =
                (choose_item){.survival = survival[i], .most = random_at(seed, 7, i).words[0] % 5};
        }
        choose_limits limits = {.rows = r.words[1] % 13, .tokens = count};
        step_load load = {.decode_rows = count};
        choose_drafts(items, count, &limits, &cost, &load);
        double best = rate_of(items, count, &limits, &cost, load);
        uint32_t chosen = 0;
        for (uint32_t i = 0; i < count; i++) {
            assert_true(items[i].chosen <= items[i].most);
            chosen += items[i].chosen;
        }
        assert_true(chosen <= limits.rows);
        drafted += chosen;
        for (uint32_t code = 0; code < 125; code++) {
            uint32_t rest = code, rows = 0;
            choose_item other[3];
            bool fits = true;
            for (uint32_t i = 0; i < count; i++, rest /= 5) {
                other[i] = items[i];
                other[i].chosen = rest % 5;
                rows += other[i].chosen;
                fits = fits && other[i].chosen <= items[i].most;
            }
            /* A gain below one per cent is left out, and so is a row of less than .02. */
            if (fits && rows <= limits.rows &&
                rate_of(other, count, &limits, &cost, load) > best * 1.03)
                fail_msg("seed %u: %.4g tokens a second instead of %.4g", (unsigned)seed,
                         best * 1e9, rate_of(other, count, &limits, &cost, load) * 1e9);
        }
    }
    assert_true(drafted > 1000);
}

/* Prompts in the step take time, but not for the tokens that drafts compete with: with or without
 * them, a row is worth the same. */
static void prompts_do_not_make_drafts_cheap(void **state) {
    (void)state;
    const float likely[2] = {.9f, .8f}, unlikely[2] = {.4f, .3f};
    step_cost cost = line(5e4); /* 16 rows: 1.75 ms, 0.11 ms a token; a row is half of that */
    step_load load = {.decode_rows = 16, .prefill_rows = 200};
    choose_item item = {.survival = unlikely, .most = 2};
    choose_limits limits = {.rows = 8, .tokens = 16};
    choose_drafts(&item, 1, &limits, &cost, &load);
    assert_int_equal(item.chosen, 2); /* as if a token cost 0.7 ms */
    limits.other_ns = 200 * 5e4;
    choose_drafts(&item, 1, &limits, &cost, &load);
    assert_int_equal(item.chosen, 0);
    item.survival = likely;
    choose_drafts(&item, 1, &limits, &cost, &load);
    assert_int_equal(item.chosen, 2);
    assert_true(choose_may_pay(&limits, &cost, &load));
    cost = line(1e6); /* a row costs what a token does */
    limits.other_ns = 0;
    assert_true(choose_may_pay(&limits, &cost, &load));
    limits.other_ns = 200 * 1e6;
    assert_false(choose_may_pay(&limits, &cost, &load));
}

/* Where even sure drafts would not pay, the choice takes none; where they would, it takes some. */
static void hopeless_costs_are_seen_before_anybody_drafts(void **state) {
    (void)state;
    float sure[12];
    uint32_t hopeless = 0;
    for (uint32_t j = 0; j < 12; j++)
        sure[j] = .97f;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        uint32_t decoding = 1 + random_at(seed, 9, 0).words[0] % 16, last = 1;
        step_cost_point points[5] = {{1, 1e6}, {4, 1e6}, {16, 1e6}, {20, 1e6}, {48, 1e6}};
        for (uint32_t i = 1; i < 5; last = points[i++].rows)
            points[i].ns = points[i - 1].ns +
                           (points[i].rows - last) *
                               (double)(random_at(seed, 2, i).words[0] % (i < 2 ? 150000 : 600000));
        step_cost cost = {.adapter = 0};
        step_cost_fit(&cost, points, 5);
        const step_load load = {.decode_rows = decoding};
        choose_limits limits = {.rows = 12, .tokens = decoding};
        if (seed % 3 == 0)
            limits.step_ns_max = step_cost_of(&cost, &load) + 4e5;
        choose_item item = {.survival = sure, .most = 12};
        choose_drafts(&item, 1, &limits, &cost, &load);
        bool may = choose_may_pay(&limits, &cost, &load);
        assert_int_equal(may, item.chosen > 0);
        hopeless += !may;
    }
    assert_in_range(hopeless, 300, 2700);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(likely_drafts_are_taken_and_unlikely_ones_are_not),
        cmocka_unit_test(an_expensive_row_before_cheap_ones_is_not_the_end),
        cmocka_unit_test(time_counts),
        cmocka_unit_test(no_other_choice_is_better),
        cmocka_unit_test(prompts_do_not_make_drafts_cheap),
        cmocka_unit_test(hopeless_costs_are_seen_before_anybody_drafts),
    };
    return cmocka_run_group_tests_name("spec/choose", tests, NULL, NULL);
}
