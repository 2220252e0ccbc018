/* Error feedback for Q4R: the scale of a super-block by the search of search_q4r.c on what feedback
 * from the super-blocks before it has left; then sub-block after sub-block the multiplier, by
 * rounding with its neighbours of either sign and keeping the best. */
#include "quant/feedback_int.h"

#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"
#include "quant/search_q4r.h"

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

static void encode_sub(feedback_panel *panel, size_t begin, size_t sub, q4r_super found[LANES]) {
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
        float multiplier = unit[lane] > 0.0f ? group.scale[lane] / unit[lane] : 0.0f;
        found[lane].multiplier[sub] = (int8_t)(multiplier + (multiplier < 0 ? -0.5f : 0.5f));
        for (size_t i = 0; i < Q4R_SUB; i++)
            found[lane].number[sub * Q4R_SUB + i] =
                found[lane].multiplier[sub] == 0 ? 0 : (int8_t)group.number[i][lane];
    }
}

void feedback_q4r(feedback_panel *panel, uint8_t *out) {
    for (size_t begin = 0; begin < panel->k; begin += Q4R_SUPER) {
        size_t count = size_min(panel->k - begin, Q4R_SUPER);
        q4r_super found[LANES];
        memset(found, 0, sizeof(found));
        feedback_target(panel, begin, count);
        search_lanes(panel, begin, count, found);
        for (size_t sub = 0; sub < count / Q4R_SUB; sub++)
            encode_sub(panel, begin, sub, found);
        out += panels_q4r_write_super(found, count / Q4R_SUB, out);
    }
}
