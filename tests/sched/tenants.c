/* A tenant who floods, under the virtual clock: how much later another's answers come, against
 * bounds that follow from the machine alone. docs/scheduler.md states them. Nothing here depends on
 * the speed of this machine: the same numbers come out everywhere. */
#include "support/support.h"

#include "sched/simulate.h"

#include "memory/kv.h"

#include <stdlib.h>
#include <string.h>

#define MS           UINT64_C(1000000)
#define VISITS       150 /* of the tenant who minds */
#define FLOOD        500 /* requests that are all there from the beginning */
#define VISIT_PROMPT 200u
#define VISIT_ANSWER 40u
#define FLOOD_PROMPT 500u
#define SHORT_ANSWER 200u
#define LONG_ANSWER  1500u
#define RUNNING      16u
#define TARGET       (50 * MS)
#define VISIT_EACH   (250 * MS)

typedef struct world {
    uint32_t flood_answer; /* tokens; 0: no flood */
    uint32_t budget;       /* of the flooder, pages; 0: none */
} world;

typedef struct latencies {
    uint64_t first_p50, first_p99, between_p99, whole_p99; /* nanoseconds */
    uint32_t finished;
} latencies;

static simulate_options options_of(void) {
    simulate_options options = {.seed = 1};
    step_cost cost = {.context_token = 0.1e3};
    step_cost_line(&cost, 6.5e6, 0.18e6, 0.224e6); /* the machine of docs/scheduler.md */
    options.sched = (sched_options){.running_max = RUNNING,
                                    .rows_max = 512,
                                    .waiting_max = 1024,
                                    .waiting_tokens_max = 1 << 30,
                                    .pages = 65536 / KV_PAGE_TOKENS,
                                    .context_max = 4096,
                                    .target_ns = TARGET,
                                    .ageing_ns = 2000 * MS,
                                    .chunk_min = 16,
                                    .cost = cost};
    options.machine = (simulate_machine){.cost = cost, .cores = 16};
    options.check = true;
    return options;
}

static uint32_t fill(const world *world, simulate_item *items) {
    uint32_t count = 0;
    uint32_t flood = world->flood_answer == 0              ? 0
                     : world->flood_answer == SHORT_ANSWER ? FLOOD
                                                           : FLOOD / 5;
    for (uint32_t i = 0; i < flood; i++)
        items[count++] = (simulate_item){.arrival_ns = 1,
                                         .tenant = 1,
                                         .priority = 8,
                                         .weight = 1,
                                         .budget = world->budget,
                                         .prompt_tokens = FLOOD_PROMPT,
                                         .new_tokens_max = world->flood_answer,
                                         .answer_tokens = UINT32_MAX};
    for (uint32_t i = 0; i < VISITS; i++)
        items[count++] = (simulate_item){.arrival_ns = 1000 * MS + i * VISIT_EACH,
                                         .tenant = 2,
                                         .priority = 8,
                                         .weight = 1,
                                         .prompt_tokens = VISIT_PROMPT,
                                         .new_tokens_max = VISIT_ANSWER,
                                         .answer_tokens = UINT32_MAX};
    return count;
}

static int by_size(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static uint64_t quantile(uint64_t *numbers, uint32_t count, double part) {
    qsort(numbers, count, sizeof(*numbers), by_size);
    uint32_t at = (uint32_t)(part * count);
    return numbers[at < count ? at : count - 1];
}

static latencies run(world world) {
    static simulate_item items[FLOOD + VISITS];
    static simulate_outcome outcomes[FLOOD + VISITS];
    uint64_t first[VISITS], whole[VISITS], between[VISITS];
    simulate_options options = options_of();
    simulate_result result;
    avo_error error = {0};
    uint32_t count = fill(&world, items), seen = 0;
    assert_ok_error(
        simulate_run(&options, items, count, NULL, NULL, NULL, outcomes, &result, &error), &error);
    if (result.wrong[0] != '\0')
        fail_msg("%s", result.wrong);
    latencies told = {0};
    for (uint32_t i = 0; i < count; i++) {
        told.finished += outcomes[i].end == SIMULATE_FINISHED;
        if (items[i].tenant != 2)
            continue;
        first[seen] = outcomes[i].first_ns - items[i].arrival_ns;
        whole[seen] = outcomes[i].end_ns - items[i].arrival_ns;
        between[seen++] = outcomes[i].gap_ns_max;
    }
    assert_int_equal(seen, VISITS);
    assert_int_equal(told.finished, count);
    told.first_p50 = quantile(first, seen, 0.5);
    told.first_p99 = quantile(first, seen, 0.99);
    told.whole_p99 = quantile(whole, seen, 0.99);
    told.between_p99 = quantile(between, seen, 0.99);
    print_message("first token p50 %.0f p99 %.0f ms, between tokens p99 %.0f ms, whole p99 %.0f "
                  "ms\n",
                  (double)told.first_p50 / 1e6, (double)told.first_p99 / 1e6,
                  (double)told.between_p99 / 1e6, (double)told.whole_p99 / 1e6);
    return told;
}

/* Rows of a prompt of this machine in a step of TARGET, where all others decode. */
static uint32_t rows_of_step(void) {
    simulate_options options = options_of();
    uint32_t rows = 0;
    for (;; rows++) {
        step_load load = {.decode_rows = RUNNING,
                          .prefill_rows = rows + 1,
                          .context_tokens = (uint64_t)RUNNING * (FLOOD_PROMPT + LONG_ANSWER) +
                                            (uint64_t)(rows + 1) * FLOOD_PROMPT};
        if (step_cost_of(&options.sched.cost, &load) > (double)TARGET)
            return rows;
    }
}

/* What a first token waits for, where a sequence is free: the prompts of the flood that have begun
 * (one is being computed, another had what was left of a step), a prompt of its own tenant that
 * came before, and its own; no step takes longer than TARGET. */
static uint64_t first_bound(void) {
    uint32_t rows = rows_of_step(), all = 2 * FLOOD_PROMPT + 2 * VISIT_PROMPT;
    return (all + rows - 1) / rows * TARGET;
}

static uint32_t budget_of(uint32_t answer) {
    return kv_pages_for(FLOOD_PROMPT + answer) * (RUNNING - 6);
}

/* Whatever the flood's answers are, as long as it cannot have all sequences. */
static void with_a_budget_the_other_waits_for_prompts_alone(void **state) {
    (void)state;
    static const uint32_t answers[] = {SHORT_ANSWER, LONG_ANSWER};
    latencies alone = run((world){0});
    print_message("bound: %.0f ms for a first token\n", (double)first_bound() / 1e6);
    for (size_t i = 0; i < 2; i++) {
        latencies flooded = run((world){answers[i], budget_of(answers[i])});
        assert_true(flooded.between_p99 <= TARGET);
        assert_true(flooded.first_p99 <= alone.first_p99 + first_bound());
        assert_true(flooded.whole_p99 <= alone.whole_p99 + first_bound() + VISIT_ANSWER * TARGET);
    }
}

/* Without one all sequences may be the flooder's: one of them must end first. */
static void without_one_a_sequence_must_end(void **state) {
    (void)state;
    latencies alone = run((world){0});
    latencies flooded = run((world){LONG_ANSWER, 0});
    assert_true(flooded.between_p99 <= TARGET);
    assert_true(flooded.first_p99 <= alone.first_p99 + first_bound() + LONG_ANSWER * TARGET);
    assert_true(flooded.first_p99 > 5 * (alone.first_p99 + first_bound())); /* why budgets exist */
}

/* Shares by weight: of two floods, one of weight 3 gets three times the tokens. */
static void weights_divide_the_machine(void **state) {
    (void)state;
    enum { EACH = 250 };
    static simulate_item items[2 * EACH];
    static simulate_outcome outcomes[2 * EACH];
    simulate_options options = options_of();
    simulate_result result;
    avo_error error = {0};
    for (uint32_t i = 0; i < 2 * EACH; i++)
        items[i] = (simulate_item){.arrival_ns = 1,
                                   .tenant = 1 + i % 2,
                                   .priority = 8,
                                   .weight = i % 2 == 0 ? 3 : 1,
                                   .prompt_tokens = 100,
                                   .new_tokens_max = 50,
                                   .answer_tokens = UINT32_MAX};
    assert_ok_error(
        simulate_run(&options, items, 2 * EACH, NULL, NULL, NULL, outcomes, &result, &error),
        &error);
    assert_string_equal(result.wrong, "");
    uint64_t heavy_end = 0;
    for (uint32_t i = 0; i < 2 * EACH; i += 2)
        heavy_end = outcomes[i].end_ns > heavy_end ? outcomes[i].end_ns : heavy_end;
    uint32_t light_done = 0;
    for (uint32_t i = 1; i < 2 * EACH; i += 2)
        light_done += outcomes[i].end_ns <= heavy_end;
    assert_true(light_done > EACH / 3 - 20 && light_done < EACH / 3 + 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_a_budget_the_other_waits_for_prompts_alone),
        cmocka_unit_test(without_one_a_sequence_must_end),
        cmocka_unit_test(weights_divide_the_machine)};
    return cmocka_run_group_tests_name("sched/tenants", tests, NULL, NULL);
}
