/* The search for Q4R: least squares over scale, multipliers and numbers of a super-block.
 *
 * The error of a sub-block is a function of its step alone (scale · multiplier, of either sign,
 * since −8…7 is lopsided); the nearest numbers are optimal then. So
 *   1. the error of every sub-block is tabulated over steps from 0.8 to 1.5 of an eighth of its
 *      largest number, for the better sign;
 *   2. many scales are judged by the table: the best multiplier of each sub-block, summed;
 *   3. the few best scales, rounded to f16, are judged exactly, and the winner is refined: the
 * scale is solved for with multipliers and numbers held, and judged again. No step depends on
 * anything but the numbers themselves, so packing gives the same bytes anywhere.
 */
#include "quant/search_q4r.h"

#include "base/checked.h"
#include "quant/decode_int.h"

#include <math.h>

#define ROUND_MAGIC   12582912.0f /* 1.5 · 2^23: adding it rounds to an integer, ties to even */
#define TABLE_STEPS   20
#define TABLE_FIRST   0.8f
#define TABLE_SPACING 0.035f /* linear: the step at i is FIRST + i · SPACING */
#define TABLE_SIZE    44     /* from TABLE_STEPS on, errors grow as the square of the step */
#define TRUST         1.3f   /* how far above the best a table's word may be to be checked */
#define SCALES        32
#define SCALE_FIRST   0.80f /* of what the largest number needs with multiplier 15 */
#define SCALE_RATIO   1.026f
#define FINALISTS     4
#define REFINEMENTS   2
#define HALF_LARGEST  65504.0f
#define RATIO_LOWEST  0.86f /* multipliers whose step lies in between are tried */
#define RATIO_HIGHEST 1.24f

typedef struct q4r_search {
    float source[Q4R_SUPER];
    float importance[Q4R_SUPER];          /* 1 at most */
    float eighth[Q4R_SUBS];               /* of the largest magnitude in each sub-block */
    float energy[Q4R_SUBS];               /* the error with multiplier 0 */
    float table[Q4R_SUBS][2][TABLE_SIZE]; /* errors with a negative and a positive step */
    float better[Q4R_SUBS][TABLE_SIZE];   /* the smaller of the two */
    size_t subs;
} q4r_search;

static inline float nearest_number(float source, float inverse) {
    float scaled = source * inverse;
    scaled = scaled < -8.0f ? -8.0f : scaled;
    scaled = scaled > 7.0f ? 7.0f : scaled;
    return scaled + ROUND_MAGIC - ROUND_MAGIC;
}

/* Squared errors of a sub-block with each of several steps (of either sign, not 0). The inner loop
 * runs over steps, so that it becomes vector code and no sum crosses lanes. */
static void step_errors(const float *restrict source, const float *restrict importance,
                        const float *restrict steps, size_t count, float *restrict errors) {
    float inverse[2 * TABLE_STEPS];
    for (size_t i = 0; i < count; i++) {
        inverse[i] = 1.0f / steps[i];
        errors[i] = 0;
    }
    for (int element = 0; element < Q4R_SUB; element++) {
        float number = source[element], weight = importance[element];
        for (size_t i = 0; i < count; i++) {
            float difference = number - steps[i] * nearest_number(number, inverse[i]);
            errors[i] += weight * (difference * difference);
        }
    }
}

static void tabulate_sub(q4r_search *search, size_t sub) {
    const float *source = search->source + sub * Q4R_SUB;
    const float *importance = search->importance + sub * Q4R_SUB;
    float largest = 0, energy = 0;
    for (int i = 0; i < Q4R_SUB; i++) {
        largest = fabsf(source[i]) > largest ? fabsf(source[i]) : largest;
        energy += importance[i] * (source[i] * source[i]);
    }
    search->eighth[sub] = largest / 8.0f;
    search->energy[sub] = energy;
    if (energy == 0)
        return;
    float steps[2 * TABLE_STEPS], errors[2 * TABLE_STEPS];
    for (int i = 0; i < TABLE_STEPS; i++) {
        steps[TABLE_STEPS + i] = largest / 8.0f * (TABLE_FIRST + (float)i * TABLE_SPACING);
        steps[i] = -steps[TABLE_STEPS + i];
    }
    step_errors(source, importance, steps, 2 * TABLE_STEPS, errors);
    for (int sign = 0; sign < 2; sign++) {
        float *table = search->table[sub][sign];
        memcpy(table, errors + sign * TABLE_STEPS, TABLE_STEPS * sizeof(float));
        float last = steps[2 * TABLE_STEPS - 1] / search->eighth[sub];
        for (int i = TABLE_STEPS; i < TABLE_SIZE; i++) {
            float ratio = (TABLE_FIRST + (float)i * TABLE_SPACING) / last;
            table[i] = table[TABLE_STEPS - 1] * ratio * ratio;
        }
    }
    for (int i = 0; i < TABLE_SIZE; i++) {
        float minus = search->table[sub][0][i], plus = search->table[sub][1][i];
        search->better[sub][i] = plus < minus ? plus : minus;
    }
}

/* The multipliers worth trying for a sub-block, lowest ≤ highest in 1…15. */
static inline void multiplier_range(float eighth, float scale, int *lowest, int *highest) {
    float needed = eighth / scale;
    needed = needed < 1000.0f ? needed : 1000.0f;
    int low = (int)(needed * RATIO_LOWEST), high = (int)(needed * RATIO_HIGHEST) + 1;
    low = low < Q4R_MAGNITUDE_MAX ? low : Q4R_MAGNITUDE_MAX;
    *lowest = low > 1 ? low : 1;
    *highest = high < Q4R_MAGNITUDE_MAX ? high : Q4R_MAGNITUDE_MAX;
}

/* What a table says of a step of `ratio` eighths (below 100). */
static inline float look_up(const float *table, float ratio) {
    int at = (int)((ratio - TABLE_FIRST) * (1.0f / TABLE_SPACING) + 0.5f);
    at = at > 0 ? at : 0;
    return table[at < TABLE_SIZE ? at : TABLE_SIZE - 1];
}

/* The error of a scale by the tables alone; stops when the sum passes `bound`. */
static float estimate(const q4r_search *search, float scale, float bound) {
    float total = 0;
    for (size_t sub = 0; sub < search->subs && total < bound; sub++) {
        float best = search->energy[sub];
        if (best == 0)
            continue;
        int lowest, highest;
        multiplier_range(search->eighth[sub], scale, &lowest, &highest);
        float unit = scale / search->eighth[sub];
        unit = unit < 6.0f ? unit : 6.0f;
        for (int multiplier = lowest; multiplier <= highest; multiplier++) {
            float error = look_up(search->better[sub], unit * (float)multiplier);
            best = error < best ? error : best;
        }
        total += best;
    }
    return total;
}

/* The best multiplier of a sub-block for this scale, exactly: among those that the tables do not
 * rule out. Returns its error. */
static float best_multiplier(const q4r_search *search, size_t sub, float scale, int8_t *found) {
    float best = search->energy[sub];
    *found = 0;
    if (best == 0)
        return 0;
    int lowest, highest;
    multiplier_range(search->eighth[sub], scale, &lowest, &highest);
    float unit = scale / search->eighth[sub];
    unit = unit < 6.0f ? unit : 6.0f;
    float promised = INFINITY;
    for (int magnitude = lowest; magnitude <= highest; magnitude++) {
        float error = look_up(search->better[sub], unit * (float)magnitude);
        promised = error < promised ? error : promised;
    }
    float steps[2 * TABLE_STEPS] = {0}, errors[2 * TABLE_STEPS];
    int multipliers[2 * TABLE_STEPS];
    size_t count = 0;
    for (int magnitude = lowest; magnitude <= highest; magnitude++)
        for (int sign = 0; sign < 2; sign++)
            if (look_up(search->table[sub][sign], unit * (float)magnitude) <= TRUST * promised) {
                multipliers[count] = sign == 0 ? -magnitude : magnitude;
                steps[count] = scale * (float)multipliers[count];
                count++;
            }
    for (; count % 4 != 0; count++) { /* whole vectors */
        multipliers[count] = multipliers[count - 1];
        steps[count] = steps[count - 1];
    }
    step_errors(search->source + sub * Q4R_SUB, search->importance + sub * Q4R_SUB, steps, count,
                errors);
    for (size_t i = 0; i < count; i++)
        if (errors[i] < best) {
            best = errors[i];
            *found = (int8_t)multipliers[i];
        }
    return best;
}

/* All multipliers for a scale, exactly; stops when the sum passes `bound`. */
static float judge_exactly(const q4r_search *search, float scale, float bound, int8_t *multiplier) {
    float total = 0;
    for (size_t sub = 0; sub < search->subs && total < bound; sub++)
        total += best_multiplier(search, sub, scale, &multiplier[sub]);
    return total;
}

/* The scale that is best for these multipliers and the numbers they lead to. */
static float solve_scale(const q4r_search *search, float scale, const int8_t *multiplier) {
    double product = 0, square = 0;
    for (size_t sub = 0; sub < search->subs; sub++) {
        if (multiplier[sub] == 0)
            continue;
        float inverse = 1.0f / (scale * (float)multiplier[sub]);
        for (size_t i = 0; i < Q4R_SUB; i++) {
            float source = search->source[sub * Q4R_SUB + i];
            float level = (float)multiplier[sub] * nearest_number(source, inverse);
            double weight = search->importance[sub * Q4R_SUB + i];
            product += weight * source * level;
            square += weight * level * level;
        }
    }
    return square > 0 ? (float)(product / square) : scale;
}

static void consider(const q4r_search *search, float wanted, float *best, q4r_super *found) {
    uint16_t half = quant_f32_to_f16(wanted < HALF_LARGEST ? wanted : HALF_LARGEST);
    if (half == 0 || half >= 0x7c00 || half == found->scale)
        return;
    int8_t multiplier[Q4R_SUBS] = {0};
    float error = judge_exactly(search, half_to_float(half), *best, multiplier);
    if (error < *best) {
        *best = error;
        found->scale = half;
        memcpy(found->multiplier, multiplier, sizeof(multiplier));
    }
}

/* The finalists by the table, best first. */
static void choose_finalists(const q4r_search *search, float largest, float *finalists) {
    float errors[FINALISTS];
    for (int i = 0; i < FINALISTS; i++) {
        errors[i] = INFINITY;
        finalists[i] = 0;
    }
    float scale = largest / (8.0f * Q4R_MAGNITUDE_MAX) * SCALE_FIRST;
    for (int step = 0; step < SCALES; step++, scale *= SCALE_RATIO) {
        float error = estimate(search, scale, errors[FINALISTS - 1]);
        int at = FINALISTS;
        for (; at > 0 && error < errors[at - 1]; at--)
            if (at < FINALISTS) {
                errors[at] = errors[at - 1];
                finalists[at] = finalists[at - 1];
            }
        if (at < FINALISTS) {
            errors[at] = error;
            finalists[at] = scale;
        }
    }
}

/* Relative to the largest, so that no square is lost; all equal where nothing is important. */
static void weigh(const float *importance, size_t count, float *out) {
    float largest = 0;
    for (size_t i = 0; importance != NULL && i < count; i++)
        largest = importance[i] > largest ? importance[i] : largest;
    for (size_t i = 0; i < count; i++)
        out[i] = largest > 0 ? importance[i] / largest : 1.0f;
}

void search_q4r(const float *source, const float *importance, size_t count, q4r_super *found) {
    q4r_search search = {.subs = (count + Q4R_SUB - 1) / Q4R_SUB};
    memcpy(search.source, source, count * sizeof(float));
    weigh(importance, count, search.importance);
    memset(found, 0, sizeof(*found));
    float largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fabsf(source[i]) > largest ? fabsf(source[i]) : largest;
    /* Where the scale of f16 would be zero, or squares would, zeros are the answer. */
    if (largest < 0x1p-20f)
        return;
    for (size_t sub = 0; sub < search.subs; sub++)
        tabulate_sub(&search, sub);
    float finalists[FINALISTS], best = INFINITY;
    choose_finalists(&search, largest, finalists);
    for (int i = 0; i < FINALISTS; i++)
        consider(&search, finalists[i], &best, found);
    for (int i = 0; i < REFINEMENTS && found->scale != 0; i++)
        consider(&search, solve_scale(&search, half_to_float(found->scale), found->multiplier),
                 &best, found);
    for (size_t sub = 0; sub < search.subs; sub++) {
        if (found->multiplier[sub] == 0)
            continue;
        float inverse = 1.0f / (half_to_float(found->scale) * (float)found->multiplier[sub]);
        for (size_t i = sub * Q4R_SUB; i < (sub + 1) * Q4R_SUB; i++)
            found->number[i] = (int8_t)nearest_number(search.source[i], inverse);
    }
}

void search_q4r_quick(const float *source, size_t count, q4r_super *found) {
    float largest[Q4R_SUBS] = {0}, all = 0;
    memset(found, 0, sizeof(*found));
    for (size_t i = 0; i < count; i++) {
        float magnitude = fabsf(source[i]);
        largest[i / Q4R_SUB] = magnitude > largest[i / Q4R_SUB] ? magnitude : largest[i / Q4R_SUB];
        all = magnitude > all ? magnitude : all;
    }
    float wanted = all / (7.5f * Q4R_MAGNITUDE_MAX);
    found->scale = quant_f32_to_f16(wanted < HALF_LARGEST ? wanted : HALF_LARGEST);
    float scale = half_to_float(found->scale);
    for (size_t sub = 0; scale > 0 && sub < Q4R_SUBS; sub++) {
        float needed = largest[sub] / (7.5f * scale) + 0.5f;
        found->multiplier[sub] =
            (int8_t)(needed < Q4R_MAGNITUDE_MAX ? needed : (float)Q4R_MAGNITUDE_MAX);
    }
}
