/* Error feedback: the walk over a panel's columns, and the types whose blocks have one scale. */
#include "quant/feedback_int.h"

#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"

#include <assert.h>
#include <math.h>

#define ROUND_MAGIC 12582912.0f /* 1.5 · 2^23: adding it rounds to an integer, ties to even */
#define HALF_MAX    65504.0f

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
#define QUADS (LANES / 4)

/* ---- Feedback from columns that are done ---- */

void feedback_tile(const feedback_panel *panel, size_t column, size_t from, size_t to,
                   float *target) {
    const feedback_factor *factor = panel->factor;
    if (factor == NULL)
        return;
    const float *upper = factor->upper + feedback_upper_at(column / FEEDBACK_TILE);
    for (size_t i = 0; i < FEEDBACK_TILE; i += 2) { /* two columns fill the registers */
        quad first[QUADS] = {0}, second[QUADS] = {0};
        for (size_t j = from; j < to; j++) {
            const quad *left = (const quad *)(panel->left + j * LANES);
            float a = upper[j * FEEDBACK_TILE + i], b = upper[j * FEEDBACK_TILE + i + 1];
            for (int q = 0; q < QUADS; q++) {
                first[q] += left[q] * a;
                second[q] += left[q] * b;
            }
        }
        quad *out = (quad *)(target + i * LANES);
        for (int q = 0; q < QUADS; q++) {
            out[q] += first[q];
            out[q + QUADS] += second[q];
        }
    }
}

void feedback_target(feedback_panel *panel, size_t begin, size_t count) {
    memcpy(panel->target, panel->weight + begin * LANES, count * LANES * sizeof(float));
    for (size_t at = 0; at < count; at += FEEDBACK_TILE)
        feedback_tile(panel, begin + at, 0, begin, panel->target + at * LANES);
}

/* ---- One block ---- */

void feedback_group_begin(feedback_group *group, size_t begin, size_t count, const float *target,
                          float lowest, float highest) {
    /* zeros where no candidate's cost is finite */
    *group = (feedback_group){
        .begin = begin, .count = count, .target = target, .lowest = lowest, .highest = highest};
    for (size_t lane = 0; lane < LANES; lane++)
        group->cost[lane] = INFINITY;
}

/* U between two columns of one group. */
static inline float upper_at(const feedback_factor *factor, size_t j, size_t i) {
    return factor
        ->upper[feedback_upper_at(i / FEEDBACK_TILE) + j * FEEDBACK_TILE + i % FEEDBACK_TILE];
}

typedef struct trial {
    float number[FEEDBACK_GROUP_MAX][LANES];
    float left[FEEDBACK_GROUP_MAX][LANES];
    float cost[LANES];
} trial;

static void round_column(const feedback_group *group, const float *target, const float *weight,
                         const float *scale, const float *inverse, const float *minimum,
                         float importance, float *number, float *left, float *cost) {
    for (size_t lane = 0; lane < LANES; lane++) {
        float scaled = (target[lane] - minimum[lane]) * inverse[lane];
        scaled = scaled < group->lowest ? group->lowest : scaled;
        scaled = scaled > group->highest ? group->highest : scaled;
        float rounded = scaled + ROUND_MAGIC - ROUND_MAGIC;
        float value = scale[lane] * rounded + minimum[lane];
        float difference = target[lane] - value;
        number[lane] = rounded;
        left[lane] = weight[lane] - value;
        cost[lane] += importance * difference * difference;
    }
}

static void keep_better(feedback_group *group, const trial *trial, const float *scale,
                        const float *minimum) {
    for (size_t lane = 0; lane < LANES; lane++) {
        if (!(trial->cost[lane] < group->cost[lane]))
            continue;
        group->cost[lane] = trial->cost[lane];
        group->scale[lane] = scale[lane];
        group->minimum[lane] = minimum[lane];
        for (size_t i = 0; i < group->count; i++) {
            group->number[i][lane] = trial->number[i][lane];
            group->left[i][lane] = trial->left[i][lane];
        }
    }
}

void feedback_group_try(const feedback_panel *panel, feedback_group *group, const float *scale,
                        const float *minimum) {
    static const float none[LANES] = {0};
    trial trial = {.cost = {0}};
    float inverse[LANES];
    minimum = minimum != NULL ? minimum : none;
    for (size_t lane = 0; lane < LANES; lane++)
        inverse[lane] = scale[lane] != 0.0f ? 1.0f / scale[lane] : 0.0f;
    for (size_t i = 0; i < group->count; i++) {
        float target[LANES];
        float importance = 1.0f;
        memcpy(target, group->target + i * LANES, sizeof(target));
        if (panel->factor != NULL) {
            importance = panel->factor->diagonal[group->begin + i];
            for (size_t j = 0; j < i; j++) {
                float u = upper_at(panel->factor, group->begin + j, group->begin + i);
                for (size_t lane = 0; lane < LANES; lane++)
                    target[lane] += trial.left[j][lane] * u;
            }
        }
        round_column(group, target, panel->weight + (group->begin + i) * LANES, scale, inverse,
                     minimum, importance, trial.number[i], trial.left[i], trial.cost);
    }
    keep_better(group, &trial, scale, minimum);
}

void feedback_group_end(const feedback_panel *panel, const feedback_group *group) {
    for (size_t i = 0; i < group->count; i++)
        memcpy(panel->left + (group->begin + i) * LANES, group->left[i], sizeof(group->left[i]));
}

/* ---- Types made of blocks ---- */

typedef struct block_rule {
    quant_type type;
    uint8_t block; /* columns that share a scale */
    int16_t lowest, highest;
    bool minimum;
} block_rule;

static const block_rule rules[] = {
    {QUANT_Q8B, 32, -127, 127, false}, {QUANT_Q8_0, 32, -127, 127, false},
    {QUANT_Q4_0, 32, -8, 7, false},    {QUANT_Q5_0, 32, -16, 15, false},
    {QUANT_Q4B64, 64, -8, 7, false},   {QUANT_Q4_1, 32, 0, 15, true},
    {QUANT_Q5_1, 32, 0, 31, true},     {QUANT_Q4M64, 64, 0, 15, true},
};

static const block_rule *rule_of(quant_type type) {
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (rules[i].type == type)
            return &rules[i];
    return NULL;
}

static float to_half(float number) {
    number = number > HALF_MAX ? HALF_MAX : number < -HALF_MAX ? -HALF_MAX : number;
    return half_to_float(quant_f32_to_f16(number));
}

/* Scales to try, of what brings the largest magnitude (the range, with minima) to the end. The
 * first is that itself: numbers that lay on a grid of this type stay as they are.
 *
 * Four and five bits gain by clipping. Eight bits do not: there every scale rounds all 32 numbers
 * anew, and of many about as good one happens to suit them: a third of the error less for nothing
 * (stories15M, calibrated: KL 4.6e-4 with one scale, 4.1e-4 with 8, 3.0e-4 with 64). */
#define SCALES_FOUR  14
#define SCALES_EIGHT 64
#define FITS         3
static float scale_ratio(bool eight, size_t trial) {
    if (!eight)
        return 1.0f - 0.02f * (float)trial;
    return 1.0f + (trial < 4 ? -(float)trial : (float)(trial - 3)) / 512.0f;
}

static void try_symmetric(const feedback_panel *panel, feedback_group *group,
                          const block_rule *rule) {
    float largest[LANES] = {0}, scale[LANES];
    for (size_t i = 0; i < group->count; i++)
        for (size_t lane = 0; lane < LANES; lane++) {
            float magnitude = fabsf(group->target[i * LANES + lane]);
            largest[lane] = magnitude > largest[lane] ? magnitude : largest[lane];
        }
    bool eight = rule->highest == 127;
    size_t count = eight ? SCALES_EIGHT : SCALES_FOUR;
    for (size_t i = 0; i < count; i++)
        for (int sign = 0; sign < (eight ? 1 : 2); sign++) { /* −8…7 is lopsided */
            for (size_t lane = 0; lane < LANES; lane++) {
                float wanted = largest[lane] * scale_ratio(eight, i) / (float)-rule->lowest;
                scale[lane] = to_half(sign == 0 ? wanted : -wanted);
            }
            feedback_group_try(panel, group, scale, NULL);
            if (panel->quick)
                return;
        }
}

/* The line that is best for the numbers found so far, lane by lane: without feedback the targets
 * are those that were rounded, so that only its rounding to f16 can make it worse. */
static void fit_minimum(const feedback_group *group, float *scale, float *minimum) {
    double n = (double)group->count;
    for (size_t lane = 0; lane < LANES; lane++) {
        double source = 0, number = 0, square = 0, product = 0;
        for (size_t i = 0; i < group->count; i++) {
            double t = group->target[i * LANES + lane], q = group->number[i][lane];
            source += t;
            number += q;
            square += q * q;
            product += t * q;
        }
        double determinant = n * square - number * number;
        double slope = determinant > 0 ? (n * product - number * source) / determinant : 0;
        scale[lane] = to_half((float)slope);
        minimum[lane] = to_half((float)((source - slope * number) / n));
    }
}

static void try_minimum(const feedback_panel *panel, feedback_group *group,
                        const block_rule *rule) {
    float low[LANES], high[LANES], scale[LANES], minimum[LANES];
    for (size_t lane = 0; lane < LANES; lane++)
        low[lane] = high[lane] = group->target[lane];
    for (size_t i = 1; i < group->count; i++)
        for (size_t lane = 0; lane < LANES; lane++) {
            float number = group->target[i * LANES + lane];
            low[lane] = number < low[lane] ? number : low[lane];
            high[lane] = number > high[lane] ? number : high[lane];
        }
    /* Both ends, parts of the range. With feedback the first eight do. */
    static const float cut[][2] = {{0, 0},       {.03f, .03f}, {.06f, .06f},   {.06f, 0},
                                   {0, .06f},    {.1f, .04f},  {.04f, .1f},    {.1f, .1f},
                                   {.03f, 0},    {0, .03f},    {.045f, .045f}, {.015f, .015f},
                                   {.06f, .03f}, {.03f, .06f}, {.015f, .045f}, {.045f, .015f}};
    size_t cuts = panel->factor != NULL ? 8 : sizeof(cut) / sizeof(cut[0]);
    for (size_t i = 0; i < cuts; i++) {
        for (size_t lane = 0; lane < LANES; lane++) {
            float range = high[lane] - low[lane];
            minimum[lane] = to_half(low[lane] + cut[i][0] * range);
            scale[lane] =
                to_half((high[lane] - cut[i][1] * range - minimum[lane]) / (float)rule->highest);
        }
        feedback_group_try(panel, group, scale, minimum);
        if (panel->quick)
            return;
    }
    for (int i = 0; i < FITS && panel->factor == NULL; i++) {
        fit_minimum(group, scale, minimum);
        feedback_group_try(panel, group, scale, minimum);
    }
}

static void encode_blocks(feedback_panel *panel, const block_rule *rule, uint8_t *out) {
    for (size_t begin = 0; begin < panel->k; begin += rule->block) {
        size_t count = size_min(panel->k - begin, rule->block);
        feedback_group group;
        feedback_target(panel, begin, count);
        feedback_group_begin(&group, begin, count, panel->target, rule->lowest, rule->highest);
        if (rule->minimum)
            try_minimum(panel, &group, rule);
        else
            try_symmetric(panel, &group, rule);
        feedback_group_end(panel, &group);
        for (size_t lane = 0; lane < panel->rows; lane++) {
            panel->error += (double)group.cost[lane];
            panels_write_scale(rule->type, out, begin / rule->block, lane,
                               quant_f32_to_f16(group.scale[lane]),
                               quant_f32_to_f16(group.minimum[lane]));
            for (size_t i = 0; i < count; i++)
                panels_write_number(rule->type, out, begin + i, lane, (int)group.number[i][lane]);
        }
    }
}

/* ---- The panel ---- */

bool feedback_known(quant_type type) {
    return type == QUANT_Q4R || rule_of(type) != NULL;
}

size_t feedback_k(quant_type type, size_t k) {
    size_t step = type == QUANT_Q4R ? Q4R_SUB : PANEL_UNIT;
    return (k + step - 1) / step * step;
}

size_t feedback_scratch_floats(size_t k) {
    return (2 * (k + PANEL_UNIT) + Q4R_SUPER) * LANES;
}

static feedback_panel panel_begin(quant_type type, const float *source, size_t rows, size_t k,
                                  const feedback_factor *factor, float *scratch) {
    assert(feedback_known(type) && rows >= 1 && rows <= LANES);
    size_t padded = feedback_k(type, k);
    feedback_panel panel = {.factor = factor != NULL && factor->k != 0 ? factor : NULL,
                            .k = padded,
                            .rows = rows,
                            .weight = scratch,
                            .left = scratch + padded * LANES,
                            .target = scratch + 2 * padded * LANES};
    assert(panel.factor == NULL || panel.factor->k == padded);
    memset(panel.weight, 0, padded * LANES * sizeof(float));
    memset(panel.left, 0, padded * LANES * sizeof(float));
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < k; i++)
            panel.weight[i * LANES + row] = source[row * k + i];
    if (type == QUANT_Q4R)
        quant_rotate(panel.weight, padded, LANES);
    return panel;
}

void feedback_encode_panel(quant_type type, const float *source, size_t rows, size_t k,
                           const feedback_factor *factor, bool quick, float *scratch, uint8_t *out,
                           double *error) {
    feedback_panel panel = panel_begin(type, source, rows, k, factor, scratch);
    panel.quick = quick;
    panels_clear(type, k, out);
    if (type == QUANT_Q4R)
        feedback_q4r(&panel, out);
    else
        encode_blocks(&panel, rule_of(type), out);
    if (error != NULL)
        *error += panel.error;
}

double feedback_energy(quant_type type, const float *source, size_t rows, size_t k,
                       const feedback_factor *factor, float *scratch) {
    feedback_panel panel = panel_begin(type, source, rows, k, factor, scratch);
    memcpy(panel.left, panel.weight, panel.k * LANES * sizeof(float));
    double energy = 0;
    for (size_t begin = 0; begin < panel.k; begin += FEEDBACK_TILE) {
        size_t end = begin + FEEDBACK_TILE; /* U is zero on and below the diagonal */
        memcpy(panel.target, panel.weight + begin * LANES, FEEDBACK_TILE * LANES * sizeof(float));
        feedback_tile(&panel, begin, 0, end, panel.target);
        for (size_t i = 0; i < FEEDBACK_TILE; i++)
            for (size_t lane = 0; lane < rows; lane++) {
                double t = (double)panel.target[i * LANES + lane];
                energy +=
                    t * t * (panel.factor != NULL ? (double)panel.factor->diagonal[begin + i] : 1);
            }
    }
    return energy;
}
