/* What a step costs: a linear model, and how it learns from steps that were timed. */
#include "sched/core.h"

#define SMALL_ROWS 16  /* rows that one pass over the weights serves */
#define RATE       0.3 /* of an error that one step corrects */
#define ERROR_MIN  (-0.5)
#define ERROR_MAX  2.0 /* a step that was interrupted says little */

/* Decode rows past the sixteenth are arithmetic like rows of a prompt. */
static void rows_of(const sched_load *load, double *decode, double *prefill) {
    uint32_t rows = load->decode_rows;
    *decode = rows == 0 ? 0 : rows <= SMALL_ROWS ? rows - 1 : SMALL_ROWS - 1;
    *prefill = (double)load->prefill_rows + (rows > SMALL_ROWS ? rows - SMALL_ROWS : 0);
}

double sched_cost_of(const sched_cost *cost, const sched_load *load) {
    double decode, prefill;
    if (load->decode_rows == 0 && load->prefill_rows == 0)
        return 0;
    rows_of(load, &decode, &prefill);
    return cost->step + cost->decode_row * decode + cost->prefill_row * prefill +
           cost->context_token * (double)load->context_tokens + cost->adapter * load->adapters +
           cost->scored_row * load->scored_rows;
}

/* Every number is multiplied, the more the larger its part in this step is: what a step hardly
 * shows, it hardly changes, and nothing becomes negative. */
void sched_cost_learn(sched_cost *cost, const sched_load *load, double nanoseconds) {
    double decode, prefill;
    double predicted = sched_cost_of(cost, load);
    if (!(predicted > 0) || !(nanoseconds > 0))
        return;
    rows_of(load, &decode, &prefill);
    double error = (nanoseconds - predicted) / predicted;
    error = error < ERROR_MIN ? ERROR_MIN : error > ERROR_MAX ? ERROR_MAX : error;
    struct {
        double *number, times;
    } part[] = {{&cost->step, 1},
                {&cost->decode_row, decode},
                {&cost->prefill_row, prefill},
                {&cost->context_token, (double)load->context_tokens},
                {&cost->adapter, load->adapters},
                {&cost->scored_row, load->scored_rows}};
    double squares = 0;
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        double share = *part[i].number * part[i].times / predicted;
        squares += share * share;
    }
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        double share = *part[i].number * part[i].times / predicted;
        double factor = 1 + RATE * error * share / squares;
        *part[i].number *= factor < 0.1 ? 0.1 : factor;
    }
}
