/* The loops of device/logits.h, written so that a compiler runs them in the lanes of the folder
 * that includes this. Contraction is off everywhere (CMakeLists.txt), so that lanes change no bit.
 */
#ifndef AVO_DEVICE_CPU_LANES_LOGITS_H
#define AVO_DEVICE_CPU_LANES_LOGITS_H

#include "base/mathf.h"
#include "device/logits.h"

#define LOGITS_AT_ONCE 512 /* exponentials that are computed before they are added */

/* Registers by name: with arrays of lanes, the compiler stores sums after each addition. A set with
 * narrower registers takes several of them for one of these. */
typedef float logit_lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t logit_mask __attribute__((vector_size(64), may_alias));
typedef float logit_half __attribute__((vector_size(32), aligned(4), may_alias));
typedef double logit_sums __attribute__((vector_size(64)));

/* Adds value i to sum i % 8. */
static inline void lanes_logits_add(const float *values, uint32_t count, double lanes[8]) {
    logit_sums sums;
    uint32_t i = 0;
    memcpy(&sums, lanes, sizeof(sums));
    for (; i + 8 <= count; i += 8)
        sums +=
            __builtin_convertvector(*(const logit_half *)(const void *)(values + i), logit_sums);
    memcpy(lanes, &sums, sizeof(sums));
    for (uint32_t lane = 0; i < count; i++, lane++)
        lanes[lane] += (double)values[i];
}

static inline double lanes_logits_join(const double lanes[8]) {
    double sum = 0.0;
    for (uint32_t lane = 0; lane < 8; lane++)
        sum += lanes[lane];
    return sum;
}

static inline double lanes_logits_sum(const float *logits, uint32_t count, float highest) {
    double lanes[8] = {0.0};
    float e[LOGITS_AT_ONCE];
    for (uint32_t begin = 0; begin < count; begin += LOGITS_AT_ONCE) {
        uint32_t n = count - begin < LOGITS_AT_ONCE ? count - begin : LOGITS_AT_ONCE;
        const float *from = logits + begin; /* with begin + j, which may wrap, no loads in lanes */
        for (uint32_t j = 0; j < n; j++)
            e[j] = math_exp(from[j] - highest);
        lanes_logits_add(e, n, lanes);
    }
    return lanes_logits_join(lanes);
}

static inline void lanes_logits_weigh(const float *scores, size_t count, float highest,
                                      float temperature, float *restrict weights) {
    const double top = (double)highest, divisor = (double)temperature;
    for (size_t i = 0; i < count; i++)
        weights[i] = math_exp((float)(((double)scores[i] - top) / divisor));
}

static inline double lanes_logits_total(const float *weights, uint32_t count) {
    double lanes[8] = {0.0};
    lanes_logits_add(weights, count, lanes);
    return lanes_logits_join(lanes);
}

static inline bool lanes_logits_range(const float *logits, uint32_t count, float *highest,
                                      float *lowest) {
    const logit_lanes above = (logit_lanes){0} + INFINITY;
    logit_lanes high = -above, low = above;
    logit_mask good = (logit_mask){0} == 0;
    bool right = true;
    uint32_t i = 0;
    for (; i + 16 <= count; i += 16) {
        logit_lanes x = *(const logit_lanes *)(const void *)(logits + i);
        logit_mask higher = x > high, lower = x < low;
        good &= x < above; /* false for NaN too */
        high = (logit_lanes)(((logit_mask)x & higher) | ((logit_mask)high & ~higher));
        low = (logit_lanes)(((logit_mask)x & lower) | ((logit_mask)low & ~lower));
    }
    *highest = -INFINITY;
    *lowest = INFINITY;
    for (; i < count; i++) {
        right = right && logits[i] < INFINITY;
        *highest = logits[i] > *highest ? logits[i] : *highest;
        *lowest = logits[i] < *lowest ? logits[i] : *lowest;
    }
    for (uint32_t lane = 0; lane < 16; lane++) {
        right = right && good[lane] != 0;
        *highest = high[lane] > *highest ? high[lane] : *highest;
        *lowest = low[lane] < *lowest ? low[lane] : *lowest;
    }
    return right;
}

#define LANES_LOGITS                                                                               \
    { lanes_logits_sum, lanes_logits_weigh, lanes_logits_total, lanes_logits_range }

#endif
