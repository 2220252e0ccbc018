/* What a step costs: a table over its rows, and how it learns from steps that were timed. */
#include "sched/core.h"

#define SMALL_ROWS  16  /* rows that one pass over the weights serves */
#define RATE        0.3 /* of an error that one step corrects */
#define ERROR_MIN   (-0.5)
#define ERROR_MAX   2.0  /* a step that was interrupted says little */
#define SHARE_TELLS 0.25 /* part of a step's time with which it teaches a point */

/* Every count up to six, where the curve bends, then coarser. */
const uint32_t sched_cost_rows[SCHED_COST_POINTS] = {1,  2,  3,  4,  5,   6,   8,
                                                     12, 16, 32, 64, 128, 256, 512};
#define LAST (SCHED_COST_POINTS - 1)

/* A step of `rows` rows is weight[0] × step[at] + weight[1] × step[at + 1]. */
typedef struct spot {
    uint32_t at;
    double weight[2];
} spot;

static spot spot_of(uint32_t rows) {
    if (rows >= sched_cost_rows[LAST])
        return (spot){LAST - 1, {0, (double)rows / sched_cost_rows[LAST]}};
    uint32_t at = 0;
    while (sched_cost_rows[at + 1] <= rows)
        at++;
    double width = sched_cost_rows[at + 1] - sched_cost_rows[at];
    double part = (rows - sched_cost_rows[at]) / width;
    return (spot){at, {1 - part, part}};
}

double sched_cost_step(const sched_cost *cost, uint32_t rows) {
    if (rows == 0)
        return 0;
    spot spot = spot_of(rows);
    return spot.weight[0] * cost->step[spot.at] + spot.weight[1] * cost->step[spot.at + 1];
}

double sched_cost_of(const sched_cost *cost, const sched_load *load) {
    uint32_t rows = sched_load_rows(load);
    if (rows == 0)
        return 0;
    return sched_cost_step(cost, rows) + cost->context_token * (double)load->context_tokens +
           cost->draft_token * (double)load->draft_tokens + cost->adapter * load->adapters +
           cost->scored_row * load->scored_rows;
}

/* ---- Learning ---- */

/* The taught point that is nearest to one that is not. */
static uint32_t nearest_learned(const sched_cost *cost, uint32_t point) {
    for (uint32_t away = 1; away < SCHED_COST_POINTS; away++) {
        if (away <= point && (cost->learned >> (point - away) & 1) != 0)
            return point - away;
        if (point + away <= LAST && (cost->learned >> (point + away) & 1) != 0)
            return point + away;
    }
    return point;
}

/* What no step has taught moves with its nearest neighbour: a first guess that is wrong by some
 * factor is wrong by it everywhere. */
static void follow(sched_cost *cost, const double factor[SCHED_COST_POINTS]) {
    for (uint32_t i = 0; i < SCHED_COST_POINTS; i++)
        if ((cost->learned >> i & 1) == 0)
            cost->step[i] *= factor[nearest_learned(cost, i)];
}

/* Every number is multiplied, the more the larger its part in this step is: what a step hardly
 * shows, it hardly changes, and nothing becomes negative. */
void sched_cost_learn(sched_cost *cost, const sched_load *load, double nanoseconds) {
    double predicted = sched_cost_of(cost, load);
    if (!(predicted > 0) || !(nanoseconds > 0))
        return;
    double error = (nanoseconds - predicted) / predicted;
    error = error < ERROR_MIN ? ERROR_MIN : error > ERROR_MAX ? ERROR_MAX : error;
    spot spot = spot_of(sched_load_rows(load));
    struct {
        double *number, times;
    } part[] = {{&cost->step[spot.at], spot.weight[0]},
                {&cost->step[spot.at + 1], spot.weight[1]},
                {&cost->context_token, (double)load->context_tokens},
                {&cost->draft_token, (double)load->draft_tokens},
                {&cost->adapter, load->adapters},
                {&cost->scored_row, load->scored_rows}};
    double squares = 0, factors[SCHED_COST_POINTS];
    for (size_t i = 0; i < SCHED_COST_POINTS; i++)
        factors[i] = 1;
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        double share = *part[i].number * part[i].times / predicted;
        squares += share * share;
    }
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        double share = *part[i].number * part[i].times / predicted;
        double factor = 1 + RATE * error * share / squares;
        factor = factor < 0.1 ? 0.1 : factor;
        *part[i].number *= factor;
        if (i < 2 && share >= SHARE_TELLS) {
            factors[spot.at + i] = factor;
            cost->learned |= 1u << (spot.at + i);
        }
    }
    follow(cost, factors);
}

/* ---- Tables ---- */

void sched_cost_fit(sched_cost *cost, const sched_cost_point *points, size_t count) {
    size_t at = 0; /* the last point not behind the row, but one that has another behind it */
    for (uint32_t i = 0; i < SCHED_COST_POINTS; i++) {
        uint32_t rows = sched_cost_rows[i];
        while (at + 2 < count && points[at + 1].rows <= rows)
            at++;
        cost->step[i] = points[at].ns;
        if (count < 2 || rows <= points[0].rows)
            continue;
        double slope =
            (points[at + 1].ns - points[at].ns) / ((double)points[at + 1].rows - points[at].rows);
        double ns = points[at].ns + slope * ((double)rows - points[at].rows);
        cost->step[i] = ns > 0 ? ns : 0;
    }
}

void sched_cost_line(sched_cost *cost, double step, double row, double many_row) {
    double small = step + row * (SMALL_ROWS - 1);
    uint32_t most = sched_cost_rows[LAST];
    const sched_cost_point points[] = {
        {1, step}, {SMALL_ROWS, small}, {most, small + many_row * (most - SMALL_ROWS)}};
    sched_cost_fit(cost, points, 3);
}

void sched_cost_scale(sched_cost *cost, double factor) {
    for (uint32_t i = 0; i < SCHED_COST_POINTS; i++)
        cost->step[i] *= factor;
    cost->context_token *= factor;
    cost->draft_token *= factor;
    cost->adapter *= factor;
    cost->scored_row *= factor;
}
