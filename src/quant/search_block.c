/* The search for 4-bit blocks. A grid of candidates (steps of either sign; steps and offsets) gives
 * numbers; for those the best scale (and minimum) is solved for, and the error that it leaves is
 * known without another look at the block. The best few are rounded to f16 and refined: numbers for
 * the rounded scale, a scale for those numbers. Inner loops run over candidates, so that they
 * become vector code and no sum crosses lanes. Nothing but the numbers themselves decides: packing
 * gives the same bytes anywhere.
 */
#include "quant/search_block.h"

#include "quant/decode_int.h"

#include <math.h>

#define ROUND_MAGIC  12582912.0f /* 1.5 · 2^23: adding it rounds to an integer, ties to even */
#define HALF_LARGEST 65504.0f
#define SMALLEST     0x1p-20f /* where an f16 scale has no digits left */
#define REFINEMENTS  4
#define FINALISTS    3

/* Steps of the symmetric grid, of an eighth of the largest magnitude, each with both signs. */
#define STEPS        24
#define STEP_FIRST   0.80f
#define STEP_SPACING 0.025f

/* Grid of the one with a minimum: steps, of a 15th of the range, and where the grid begins, as a
 * part of what range is left over. */
#define SPANS        12
#define SPAN_FIRST   0.70f
#define SPAN_SPACING 0.035f
#define OFFSETS      4

typedef struct block_search {
    float source[SEARCH_BLOCK_MAX];
    float weight[SEARCH_BLOCK_MAX];
    size_t count;
} block_search;

static void search_open(const float *source, const float *weight, size_t count,
                        block_search *search) {
    search->count = count;
    memcpy(search->source, source, count * sizeof(float));
    float total = 0;
    for (size_t i = 0; weight != NULL && i < count; i++)
        total += weight[i];
    for (size_t i = 0; i < count; i++) /* weights of mean 1: no sum can vanish */
        search->weight[i] = total > 0 ? weight[i] / total * (float)count : 1.0f;
}

static uint16_t half_of(float number) {
    number = number > HALF_LARGEST ? HALF_LARGEST : number;
    return quant_f32_to_f16(number < -HALF_LARGEST ? -HALF_LARGEST : number);
}

static inline float round_in(float number, float lowest, float highest) {
    number = number < lowest ? lowest : number;
    number = number > highest ? highest : number;
    return number + ROUND_MAGIC - ROUND_MAGIC;
}

/* ---- Symmetric ---- */

/* The numbers −8…7 for a scale, their error, and the scale that would be best for them. */
static float judge_symmetric(const block_search *search, float scale, float *better,
                             uint8_t *number) {
    float inverse = scale == 0 ? 0 : 1.0f / scale;
    float error = 0, product = 0, square = 0;
    for (size_t i = 0; i < search->count; i++) {
        float source = search->source[i], weight = search->weight[i];
        float level = round_in(source * inverse, -8.0f, 7.0f);
        float difference = source - scale * level;
        error += weight * difference * difference;
        product += weight * source * level;
        square += weight * level * level;
        number[i] = (uint8_t)(level + 8.0f);
    }
    *better = square > 0 ? product / square : scale;
    return error;
}

/* What a candidate leaves of the weighted sum of squares, less that sum; smaller is better. */
static void grid_symmetric(const block_search *search, float largest, float *scales,
                           float *scores) {
    float inverse[2 * STEPS], product[2 * STEPS] = {0}, square[2 * STEPS] = {0};
    for (int i = 0; i < 2 * STEPS; i++) {
        float step = largest / 8.0f * (STEP_FIRST + (float)(i / 2) * STEP_SPACING);
        inverse[i] = (i % 2 == 0 ? 1.0f : -1.0f) / step;
    }
    for (size_t element = 0; element < search->count; element++) {
        float source = search->source[element], weight = search->weight[element];
        for (int i = 0; i < 2 * STEPS; i++) {
            float level = round_in(source * inverse[i], -8.0f, 7.0f);
            product[i] += weight * source * level;
            square[i] += weight * level * level;
        }
    }
    for (int i = 0; i < 2 * STEPS; i++) {
        scales[i] = square[i] > 0 ? product[i] / square[i] : 0;
        scores[i] = square[i] > 0 ? -product[i] * scales[i] : 0;
    }
}

/* The index of the smallest score, which is then out of the race. */
static int take_best(float *scores, int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        best = scores[i] < scores[best] ? i : best;
    scores[best] = INFINITY;
    return best;
}

void search_symmetric(const float *source, const float *weight, size_t count, block_found *found) {
    block_search search;
    search_open(source, weight, count, &search);
    memset(found, 0, sizeof(*found));
    memset(found->number, 8, sizeof(found->number));
    float largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fabsf(source[i]) > largest ? fabsf(source[i]) : largest;
    if (largest < SMALLEST)
        return;
    float scales[2 * STEPS], scores[2 * STEPS], best = INFINITY;
    grid_symmetric(&search, largest, scales, scores);
    for (int finalist = 0; finalist < FINALISTS; finalist++) {
        float wanted = scales[take_best(scores, 2 * STEPS)];
        for (int i = 0; i < REFINEMENTS; i++) {
            uint8_t number[SEARCH_BLOCK_MAX];
            uint16_t half = half_of(wanted);
            float error = judge_symmetric(&search, half_to_float(half), &wanted, number);
            if (!(error < best))
                break;
            best = error;
            found->scale = half;
            memcpy(found->number, number, count);
        }
    }
}

/* ---- With a minimum ---- */

typedef struct fit {
    float scale, minimum;
} fit;

/* Sums of numbers q (weighted) for which a line is fitted. */
typedef struct fit_sums {
    float weight, source, number, square, product;
} fit_sums;

static inline fit solve(const fit_sums *sums) {
    float determinant = sums->weight * sums->square - sums->number * sums->number;
    fit best = {0, sums->source / sums->weight};
    if (determinant > 0) {
        best.scale = (sums->weight * sums->product - sums->number * sums->source) / determinant;
        best.minimum = (sums->source - best.scale * sums->number) / sums->weight;
    }
    return best;
}

/* The numbers 0…15 for a scale and minimum, their error, and what would be best for them. */
static float judge_minimum(const block_search *search, fit given, fit *better, uint8_t *number) {
    float inverse = given.scale > 0 ? 1.0f / given.scale : 0, error = 0;
    fit_sums sums = {0};
    for (size_t i = 0; i < search->count; i++) {
        float source = search->source[i], weight = search->weight[i];
        float level = round_in((source - given.minimum) * inverse, 0.0f, 15.0f);
        float difference = source - (given.scale * level + given.minimum);
        error += weight * difference * difference;
        sums.weight += weight;
        sums.source += weight * source;
        sums.number += weight * level;
        sums.square += weight * level * level;
        sums.product += weight * source * level;
        number[i] = (uint8_t)level;
    }
    *better = solve(&sums);
    return error;
}

#define GRID (SPANS * OFFSETS)

static void grid_minimum(const block_search *search, float lowest, float range, fit *fits,
                         float *scores) {
    float inverse[GRID], begin[GRID], number[GRID] = {0}, square[GRID] = {0}, product[GRID] = {0};
    for (int i = 0; i < GRID; i++) {
        float span = range * (SPAN_FIRST + (float)(i / OFFSETS) * SPAN_SPACING);
        begin[i] = lowest + (range - span) * (float)(i % OFFSETS) / (OFFSETS - 1);
        inverse[i] = 15.0f / span;
    }
    fit_sums sums = {0};
    for (size_t element = 0; element < search->count; element++) {
        float source = search->source[element], weight = search->weight[element];
        sums.weight += weight;
        sums.source += weight * source;
        for (int i = 0; i < GRID; i++) {
            float level = round_in((source - begin[i]) * inverse[i], 0.0f, 15.0f);
            number[i] += weight * level;
            square[i] += weight * level * level;
            product[i] += weight * source * level;
        }
    }
    for (int i = 0; i < GRID; i++) {
        sums.number = number[i];
        sums.square = square[i];
        sums.product = product[i];
        fits[i] = solve(&sums);
        scores[i] = -fits[i].scale * sums.product - fits[i].minimum * sums.source;
    }
}

void search_minimum(const float *source, const float *weight, size_t count, block_found *found) {
    block_search search;
    search_open(source, weight, count, &search);
    memset(found, 0, sizeof(*found));
    float lowest = source[0], highest = source[0];
    for (size_t i = 1; i < count; i++) {
        lowest = source[i] < lowest ? source[i] : lowest;
        highest = source[i] > highest ? source[i] : highest;
    }
    fit fits[GRID] = {{0, lowest + (highest - lowest) * 0.5f}}; /* all alike: the minimum alone */
    float scores[GRID] = {0}, best = INFINITY;
    bool alike = highest - lowest < SMALLEST;
    if (!alike)
        grid_minimum(&search, lowest, highest - lowest, fits, scores);
    for (int finalist = 0; finalist < (alike ? 1 : FINALISTS); finalist++) {
        fit wanted = fits[alike ? 0 : take_best(scores, GRID)];
        for (int i = 0; i < REFINEMENTS; i++) {
            uint8_t number[SEARCH_BLOCK_MAX];
            uint16_t scale = half_of(wanted.scale > 0 ? wanted.scale : 0);
            uint16_t minimum = half_of(wanted.minimum);
            fit rounded = {half_to_float(scale), half_to_float(minimum)};
            float error = judge_minimum(&search, rounded, &wanted, number);
            if (!(error < best))
                break;
            best = error;
            found->scale = scale;
            found->minimum = minimum;
            memcpy(found->number, number, count);
        }
    }
}
