/* The choice, greedily: survival falls within a sequence, so taking the likeliest row next gives
 * the best set of every size. */
#include "spec/choose.h"

#define WORTH_MIN  0.02f /* survival below which a row is not looked at */
#define GAIN_LEAST 1.01  /* expected rate over that without drafts: estimates are not better */
#define SURE       0.97  /* survival of drafts that nearly always are right */
#define SURE_ROWS  48u   /* of a step that are looked at for them */

void choose_load(step_load *load, uint32_t context, uint32_t number) {
    load->draft_rows++;
    load->draft_tokens += (uint64_t)context + number + 1;
}

static bool in_time(const choose_limits *limits, double ns) {
    return limits->step_ns_max == 0 || ns <= limits->step_ns_max;
}

bool choose_may_pay(const choose_limits *limits, const step_cost *cost, const step_load *load) {
    step_load with = *load;
    double tokens = limits->tokens;
    double least = tokens / (step_cost_of(cost, load) - limits->other_ns) * GAIN_LEAST;
    for (uint32_t rows = 0; rows < limits->rows && rows < SURE_ROWS; rows++) {
        with.draft_rows++;
        tokens += SURE;
        double ns = step_cost_of(cost, &with);
        if (in_time(limits, ns) && tokens / (ns - limits->other_ns) > least)
            return true;
    }
    return false;
}

/* The item whose next row is likeliest; NULL: none is left. */
static choose_item *next_row(choose_item *items, uint32_t count, float *survival) {
    choose_item *best = NULL;
    *survival = WORTH_MIN;
    for (uint32_t i = 0; i < count; i++) {
        choose_item *item = &items[i];
        if (item->always || item->chosen == item->most || item->survival[item->chosen] <= *survival)
            continue;
        best = item;
        *survival = item->survival[item->chosen];
    }
    return best;
}

/* Rows that are taken however unlikely they are. */
static void take_always(choose_item *items, uint32_t count, const choose_limits *limits,
                        const step_cost *cost, step_load *load, uint32_t *rows, double *tokens) {
    for (uint32_t i = 0; i < count; i++) {
        choose_item *item = &items[i];
        step_load kept = *load;
        uint32_t most = item->most < limits->rows - *rows ? item->most : limits->rows - *rows;
        if (!item->always)
            continue;
        for (uint32_t number = 0; number < most; number++) {
            choose_load(load, item->context, number);
            if (!in_time(limits, step_cost_of(cost, load)))
                continue; /* fewer rows may take longer: a cost need not grow with them */
            kept = *load;
            item->chosen = number + 1;
        }
        *load = kept;
        *rows += item->chosen;
        for (uint32_t number = 0; number < item->chosen; number++)
            *tokens += (double)item->survival[number];
    }
}

/* Adds rows, likeliest first; returns how many of them give the best rate. */
static uint32_t best_size(choose_item *items, uint32_t count, const choose_limits *limits,
                          const step_cost *cost, step_load load, uint32_t rows, double tokens) {
    double best = tokens / (step_cost_of(cost, &load) - limits->other_ns) * GAIN_LEAST;
    uint32_t size = 0, best_rows = 0;
    float survival;
    for (choose_item *item; rows + size < limits->rows; size++) {
        item = next_row(items, count, &survival);
        if (item == NULL)
            break;
        choose_load(&load, item->context, item->chosen++);
        tokens += (double)survival;
        double ns = step_cost_of(cost, &load), own = ns - limits->other_ns;
        if (!in_time(limits, ns) || tokens / own <= best)
            continue;
        best = tokens / own;
        best_rows = size + 1;
    }
    return best_rows;
}

void choose_drafts(choose_item *items, uint32_t count, const choose_limits *limits,
                   const step_cost *cost, const step_load *load) {
    step_load with = *load;
    double tokens = limits->tokens;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < count; i++)
        items[i].chosen = 0;
    take_always(items, count, limits, cost, &with, &rows, &tokens);
    uint32_t size = best_size(items, count, limits, cost, with, rows, tokens);
    for (uint32_t i = 0; i < count; i++)
        items[i].chosen = items[i].always ? items[i].chosen : 0;
    float survival;
    while (size-- > 0)
        next_row(items, count, &survival)->chosen++;
}
