/* The search for Q4S: least squares over scale, multipliers and numbers of a super-block.
 *
 * For a given scale the best multiplier of a sub-block is found by trying those that put its
 * largest number between 6.5 and 9 steps from zero, with both signs, since −8…7 is lopsided; the
 * numbers are then the nearest ones, which is optimal. Scales are tried on a grid relative to what
 * the largest sub-block needs with multiplier 15; the best one is refined by solving for the scale
 * with multipliers and numbers held, and searching again. All scales are rounded to f16 before
 * they are judged.
 */
#include "quant/search_q4s.h"

#include "base/checked.h"
#include "quant/decode_int.h"

#include <math.h>

#define ROUND_MAGIC  12582912.0f /* 1.5 · 2^23: adding it rounds to an integer, ties to even */
#define SCALE_STEPS  20
#define SCALE_FIRST  0.82f
#define SCALE_RATIO  1.035f
#define REFINEMENTS  2
#define HALF_LARGEST 65504.0f

typedef struct q4s_search {
    float source[Q4S_SUPER];
    float largest[Q4S_SUBS]; /* magnitude in each sub-block */
    size_t subs;
} q4s_search;

static inline float nearest_number(float source, float inverse) {
    float scaled = source * inverse;
    scaled = scaled < -8.0f ? -8.0f : scaled;
    scaled = scaled > 7.0f ? 7.0f : scaled;
    return scaled + ROUND_MAGIC - ROUND_MAGIC;
}

/* Squared error of a sub-block with step `step` (of either sign, not 0). */
static inline float sub_error(const float *source, float step) {
    float inverse = 1.0f / step;
    float sums[4] = {0};
    for (int i = 0; i < Q4S_SUB; i += 4)
        for (int lane = 0; lane < 4; lane++) {
            float number = nearest_number(source[i + lane], inverse);
            float difference = source[i + lane] - step * number;
            sums[lane] += difference * difference;
        }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static float sub_energy(const float *source) {
    float sum = 0;
    for (int i = 0; i < Q4S_SUB; i++)
        sum += source[i] * source[i];
    return sum;
}

/* The best multiplier of a sub-block for this scale; its error is returned. */
static float best_multiplier(const float *source, float largest, float scale, int8_t *multiplier) {
    float best = sub_energy(source);
    *multiplier = 0;
    int lowest = (int)(largest / (9.0f * scale));
    int highest = (int)ceilf(largest / (6.5f * scale));
    lowest = lowest < 1 ? 1 : lowest;
    if (lowest > Q4S_MAGNITUDE_MAX)
        lowest = Q4S_MAGNITUDE_MAX;
    highest = highest > Q4S_MAGNITUDE_MAX ? Q4S_MAGNITUDE_MAX : highest;
    for (int magnitude = lowest; magnitude <= highest; magnitude++)
        for (int sign = -1; sign <= 1; sign += 2) {
            float error = sub_error(source, scale * (float)(sign * magnitude));
            if (error < best) {
                best = error;
                *multiplier = (int8_t)(sign * magnitude);
            }
        }
    return best;
}

/* All multipliers for a scale; stops when the sum passes `bound`. */
static double try_scale(const q4s_search *search, float scale, double bound, int8_t *multiplier) {
    double error = 0;
    for (size_t sub = 0; sub < search->subs; sub++) {
        error += (double)best_multiplier(search->source + sub * Q4S_SUB, search->largest[sub],
                                         scale, &multiplier[sub]);
        if (error >= bound)
            break;
    }
    return error;
}

/* The scale that is best for these multipliers and the numbers they lead to. */
static float solve_scale(const q4s_search *search, float scale, const int8_t *multiplier) {
    double product = 0, square = 0;
    for (size_t sub = 0; sub < search->subs; sub++) {
        if (multiplier[sub] == 0)
            continue;
        float inverse = 1.0f / (scale * (float)multiplier[sub]);
        for (int i = 0; i < Q4S_SUB; i++) {
            float source = search->source[sub * Q4S_SUB + i];
            float level = (float)multiplier[sub] * nearest_number(source, inverse);
            product += (double)source * level;
            square += (double)level * level;
        }
    }
    return square > 0 ? (float)(product / square) : scale;
}

static void judge(const q4s_search *search, float wanted, double *best, q4s_super *found) {
    uint16_t half = quant_f32_to_f16(wanted < HALF_LARGEST ? wanted : HALF_LARGEST);
    if (half == 0 || half >= 0x7c00 || half == found->scale)
        return;
    int8_t multiplier[Q4S_SUBS] = {0};
    double error = try_scale(search, half_to_float(half), *best, multiplier);
    if (error < *best) {
        *best = error;
        found->scale = half;
        memcpy(found->multiplier, multiplier, sizeof(multiplier));
    }
}

void search_q4s(const float *source, size_t count, q4s_super *found) {
    q4s_search search = {.subs = (count + Q4S_SUB - 1) / Q4S_SUB};
    memcpy(search.source, source, count * sizeof(float));
    memset(found, 0, sizeof(*found));
    float largest = 0;
    for (size_t i = 0; i < count; i++) {
        float *sub = &search.largest[i / Q4S_SUB];
        *sub = fabsf(source[i]) > *sub ? fabsf(source[i]) : *sub;
        largest = *sub > largest ? *sub : largest;
    }
    double best = INFINITY;
    float scale = largest / (8.0f * Q4S_MAGNITUDE_MAX) * SCALE_FIRST;
    for (int step = 0; step < SCALE_STEPS; step++, scale *= SCALE_RATIO)
        judge(&search, scale, &best, found);
    for (int i = 0; i < REFINEMENTS && found->scale != 0; i++)
        judge(&search, solve_scale(&search, half_to_float(found->scale), found->multiplier), &best,
              found);
    for (size_t sub = 0; sub < search.subs; sub++) {
        if (found->multiplier[sub] == 0)
            continue;
        float inverse = 1.0f / (half_to_float(found->scale) * (float)found->multiplier[sub]);
        for (size_t i = sub * Q4S_SUB; i < (sub + 1) * Q4S_SUB; i++)
            found->number[i] = (int8_t)nearest_number(search.source[i], inverse);
    }
}
