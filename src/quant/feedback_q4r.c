/* Error feedback for Q4R: the scale of a super-block by the search of search_q4r.c on what feedback
 * from the super-blocks before it has left; then sub-block after sub-block the multiplier, by
 * rounding with its neighbours of either sign and keeping the best. With a calibration the same is
 * done for scales around the one found: the search knows nothing of feedback inside the block. */
#include "quant/feedback_int.h"

#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"
#include "quant/search_q4r.h"

#include <math.h>

static void search_lanes(const feedback_panel *panel, size_t begin, size_t count,
                         q4r_super found[LANES]) {
    float numbers[Q4R_SUPER];
    const float *importance = panel->factor != NULL ? panel->factor->diagonal + begin : NULL;
    for (size_t lane = 0; lane < panel->rows; lane++) {
        for (size_t i = 0; i < count; i++)
            numbers[i] = panel->target[i * LANES + lane];
        if (panel->quick)
            search_q4r_quick(numbers, count, &found[lane]);
        else
            search_q4r(numbers, importance, count, &found[lane]);
    }
}

/* The candidate `offset` from what the search has found, of either sign; 0 stays 0. */
static int candidate(const q4r_super *found, size_t sub, int offset, bool negative) {
    int magnitude = found->multiplier[sub];
    magnitude = magnitude < 0 ? -magnitude : magnitude;
    magnitude += offset;
    magnitude = magnitude < 0 ? 0 : magnitude;
    magnitude = magnitude > Q4R_MAGNITUDE_MAX ? Q4R_MAGNITUDE_MAX : magnitude;
    return negative ? -magnitude : magnitude;
}

static void encode_sub(const feedback_panel *panel, size_t begin, size_t sub,
                       q4r_super found[LANES], float cost[LANES]) {
    size_t at = begin + sub * Q4R_SUB;
    float *target = panel->target + sub * Q4R_SUB * LANES;
    feedback_tile(panel, at, begin, at, target);
    feedback_group group;
    feedback_group_begin(&group, at, Q4R_SUB, target, -8.0f, 7.0f);
    float unit[LANES] = {0}, scale[LANES] = {0};
    for (size_t lane = 0; lane < panel->rows; lane++)
        unit[lane] = half_to_float(found[lane].scale);
    int reach = panel->quick ? 0 : panel->factor != NULL ? 2 : 1;
    for (int offset = -reach; offset <= reach; offset++)
        for (int negative = 0; negative < (panel->quick ? 1 : 2); negative++) {
            for (size_t lane = 0; lane < panel->rows; lane++)
                scale[lane] =
                    unit[lane] * (float)candidate(&found[lane], sub, offset, negative != 0);
            feedback_group_try(panel, &group, scale, NULL);
        }
    feedback_group_end(panel, &group);
    for (size_t lane = 0; lane < panel->rows; lane++) {
        cost[lane] += group.cost[lane];
        float multiplier = unit[lane] > 0.0f ? group.scale[lane] / unit[lane] : 0.0f;
        found[lane].multiplier[sub] = (int8_t)(multiplier + (multiplier < 0 ? -0.5f : 0.5f));
        for (size_t i = 0; i < Q4R_SUB; i++)
            found[lane].number[sub * Q4R_SUB + i] =
                found[lane].multiplier[sub] == 0 ? 0 : (int8_t)group.number[i][lane];
    }
}

typedef struct super_trial {
    q4r_super found[LANES];
    float left[Q4R_SUPER * LANES];
    float cost[LANES];
} super_trial;

/* The searched scale times `ratio`, and multipliers to match. */
static void scale_lanes(const q4r_super *searched, size_t rows, float ratio, q4r_super *out) {
    memcpy(out, searched, LANES * sizeof(*out));
    for (size_t lane = 0; ratio != 1.0f && lane < rows; lane++) {
        uint16_t half = quant_f32_to_f16(half_to_float(searched[lane].scale) * ratio);
        if (half == 0 || half >= 0x7c00)
            continue;
        out[lane].scale = half;
        for (size_t sub = 0; sub < Q4R_SUBS; sub++) {
            int multiplier = searched[lane].multiplier[sub];
            int magnitude =
                (int)((float)(multiplier < 0 ? -multiplier : multiplier) / ratio + 0.5f);
            magnitude = magnitude > Q4R_MAGNITUDE_MAX ? Q4R_MAGNITUDE_MAX : magnitude;
            out[lane].multiplier[sub] = (int8_t)(multiplier < 0 ? -magnitude : magnitude);
        }
    }
}

static void keep_better(const feedback_panel *panel, size_t begin, size_t count,
                        const q4r_super *found, const float *cost, super_trial *best) {
    for (size_t lane = 0; lane < panel->rows; lane++) {
        if (!(cost[lane] < best->cost[lane]))
            continue;
        best->cost[lane] = cost[lane];
        best->found[lane] = found[lane];
        for (size_t i = 0; i < count; i++)
            best->left[i * LANES + lane] = panel->left[(begin + i) * LANES + lane];
    }
}

static void encode_super(feedback_panel *panel, size_t begin, size_t count, super_trial *best) {
    static const float ratios[] = {1.0f, 0.95f, 1.05f, 0.90f, 1.11f};
    q4r_super searched[LANES], found[LANES];
    float target[Q4R_SUPER * LANES];
    memset(searched, 0, sizeof(searched));
    memset(best, 0, sizeof(*best));
    for (size_t lane = 0; lane < LANES; lane++)
        best->cost[lane] = INFINITY;
    feedback_target(panel, begin, count);
    memcpy(target, panel->target, count * LANES * sizeof(float));
    search_lanes(panel, begin, count, searched);
    size_t trials = panel->quick || panel->factor == NULL ? 1 : sizeof(ratios) / sizeof(ratios[0]);
    for (size_t trial = 0; trial < trials; trial++) {
        float cost[LANES] = {0};
        scale_lanes(searched, panel->rows, ratios[trial], found);
        memcpy(panel->target, target, count * LANES * sizeof(float));
        for (size_t sub = 0; sub < count / Q4R_SUB; sub++)
            encode_sub(panel, begin, sub, found, cost);
        keep_better(panel, begin, count, found, cost, best);
    }
}

void feedback_q4r(feedback_panel *panel, uint8_t *out) {
    for (size_t begin = 0; begin < panel->k; begin += Q4R_SUPER) {
        size_t count = size_min(panel->k - begin, Q4R_SUPER);
        super_trial best;
        encode_super(panel, begin, count, &best);
        memcpy(panel->left + begin * LANES, best.left, count * LANES * sizeof(float));
        for (size_t lane = 0; lane < panel->rows; lane++)
            panel->error += (double)best.cost[lane];
        out += panels_q4r_write_super(best.found, count / Q4R_SUB, out);
    }
}
