/* What a step costs: a table over its rows, and how it learns from steps that were timed. */
#include "spec/cost.h"

#include <math.h>

#define SMALL_ROWS  16  /* rows that one pass over the weights serves */
#define RATE        0.3 /* of an error that one step corrects */
#define COUPLING    0.7 /* part of a correction, as a power, that other points of few rows share */
#define ERROR_MIN   (-0.5)
#define ERROR_MAX   2.0  /* a step that was interrupted says little, */
#define ERROR_KNOWN 0.3  /* and least where others have taught the same points before */
#define SHARE_TELLS 0.25 /* part of a step's time with which it teaches a point */
#define HOPE        5e-4 /* by which what was not tried becomes cheaper with each step … */
#define HOPE_MOST   0.15 /* … up to this part of what is known */

/* Every count up to six, where the curve bends, then coarser, but for the jump behind the rows that
 * one pass over the weights serves. */
const uint32_t step_cost_rows[STEP_COST_POINTS] = {1,  2,  3,  4,  5,  6,   8,   12, 16,
                                                   17, 20, 24, 32, 64, 128, 256, 512};
#define LAST (STEP_COST_POINTS - 1)

/* A step of `rows` rows is weight[0] × step[at] + weight[1] × step[at + 1]. */
typedef struct spot {
    uint32_t at;
    double weight[2];
} spot;

static spot spot_of(uint32_t rows) {
    if (rows >= step_cost_rows[LAST])
        return (spot){LAST - 1, {0, (double)rows / step_cost_rows[LAST]}};
    uint32_t at = 0;
    while (step_cost_rows[at + 1] <= rows)
        at++;
    double width = step_cost_rows[at + 1] - step_cost_rows[at];
    double part = (rows - step_cost_rows[at]) / width;
    return (spot){at, {1 - part, part}};
}

/* What a point is taken to cost. */
static double hoped(const step_cost *cost, uint32_t point) {
    return cost->step[point] * (1 - cost->hope[point]);
}

double step_cost_step(const step_cost *cost, uint32_t rows) {
    if (rows == 0)
        return 0;
    spot spot = spot_of(rows);
    return spot.weight[0] * hoped(cost, spot.at) + spot.weight[1] * hoped(cost, spot.at + 1);
}

/* The rest, which depends on what the rows are. */
static double beside_rows(const step_cost *cost, const step_load *load) {
    return cost->context_token * (double)load->context_tokens +
           cost->draft_token * (double)load->draft_tokens + cost->adapter * load->adapters +
           cost->scored_row * load->scored_rows;
}

double step_cost_of(const step_cost *cost, const step_load *load) {
    uint32_t rows = step_load_rows(load);
    return rows == 0 ? 0 : step_cost_step(cost, rows) + beside_rows(cost, load);
}

/* The same without hope: corrections of hope are not the machine's, and would be shared with points
 * that nobody tries, without end. */
static double known(const step_cost *cost, const step_load *load) {
    uint32_t rows = step_load_rows(load);
    spot spot = spot_of(rows);
    double step = spot.weight[0] * cost->step[spot.at] + spot.weight[1] * cost->step[spot.at + 1];
    return rows == 0 ? 0 : step + beside_rows(cost, load);
}

/* ---- Learning ---- */

/* The taught point that is nearest to one that is not. */
static uint32_t nearest_learned(const step_cost *cost, uint32_t point) {
    for (uint32_t away = 1; away < STEP_COST_POINTS; away++) {
        if (away <= point && (cost->learned >> (point - away) & 1) != 0)
            return point - away;
        if (point + away <= LAST && (cost->learned >> (point + away) & 1) != 0)
            return point + away;
    }
    return point;
}

/* What no step has taught moves with its nearest neighbour: a first guess that is wrong by some
 * factor is wrong by it everywhere. */
static void follow(step_cost *cost, const double factor[STEP_COST_POINTS]) {
    for (uint32_t i = 0; i < STEP_COST_POINTS; i++)
        if ((cost->learned >> i & 1) == 0)
            cost->step[i] *= factor[nearest_learned(cost, i)];
}

/* Steps of few rows share what memory gives: a machine that became slower did so for all of them,
 * but a single step may have been slow by chance. So those that this one has not taught move a part
 * of the way, and choices among them stay as they were. */
static void share(step_cost *cost, const double factor[STEP_COST_POINTS]) {
    double moved = 1;
    for (uint32_t i = 0; step_cost_rows[i] <= SMALL_ROWS; i++)
        moved = factor[i] != 1 ? factor[i] : moved;
    moved = pow(moved, COUPLING);
    for (uint32_t i = 0; step_cost_rows[i] <= SMALL_ROWS; i++)
        if (factor[i] == 1 && (cost->learned >> i & 1) != 0)
            cost->step[i] *= moved;
}

/* Every number is multiplied, the more the larger its part in this step is: what a step hardly
 * shows, it hardly changes, and nothing becomes negative. */
void step_cost_learn(step_cost *cost, const step_load *load, double nanoseconds) {
    double predicted = known(cost, load);
    if (!(predicted > 0) || !(nanoseconds > 0))
        return;
    double error = (nanoseconds - predicted) / predicted;
    spot spot = spot_of(step_load_rows(load));
    double most = (cost->learned >> spot.at & 3) == 3 ? ERROR_KNOWN : ERROR_MAX;
    double least = most == ERROR_KNOWN ? -ERROR_KNOWN : ERROR_MIN;
    error = error < least ? least : error > most ? most : error;
    struct {
        double *number, times;
    } part[] = {{&cost->step[spot.at], spot.weight[0]},
                {&cost->step[spot.at + 1], spot.weight[1]},
                {&cost->context_token, (double)load->context_tokens},
                {&cost->draft_token, (double)load->draft_tokens},
                {&cost->adapter, load->adapters},
                {&cost->scored_row, load->scored_rows}};
    double squares = 0, factors[STEP_COST_POINTS];
    for (size_t i = 0; i < STEP_COST_POINTS; i++)
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
            cost->hope[spot.at + i] = 0;
        }
    }
    follow(cost, factors);
    share(cost, factors);
}

void step_cost_hope(step_cost *cost, uint32_t rows) {
    for (uint32_t i = 1; i < STEP_COST_POINTS && step_cost_rows[i] <= SMALL_ROWS; i++) {
        double hope = cost->hope[i] + HOPE;
        if (step_cost_rows[i] > rows && hope <= HOPE_MOST &&
            cost->step[i] * (1 - hope) > hoped(cost, i - 1))
            cost->hope[i] = hope;
    }
}

/* ---- Tables ---- */

void step_cost_fit(step_cost *cost, const step_cost_point *points, size_t count) {
    size_t at = 0; /* the last point not behind the row, but one that has another behind it */
    for (uint32_t i = 0; i < STEP_COST_POINTS; i++) {
        uint32_t rows = step_cost_rows[i];
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

void step_cost_line(step_cost *cost, double step, double row, double many_row) {
    double small = step + row * (SMALL_ROWS - 1);
    uint32_t most = step_cost_rows[LAST];
    const step_cost_point points[] = {
        {1, step}, {SMALL_ROWS, small}, {most, small + many_row * (most - SMALL_ROWS)}};
    step_cost_fit(cost, points, 3);
}

void step_cost_scale(step_cost *cost, double factor) {
    for (uint32_t i = 0; i < STEP_COST_POINTS; i++)
        cost->step[i] *= factor;
    cost->context_token *= factor;
    cost->draft_token *= factor;
    cost->adapter *= factor;
    cost->scored_row *= factor;
}
