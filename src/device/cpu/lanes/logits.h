/* The loops of device/logits.h, written so that a compiler runs them in the lanes of the folder
 * that includes this. Contraction is off everywhere (CMakeLists.txt), so that lanes change no bit.
 */
#ifndef AVO_DEVICE_CPU_LANES_LOGITS_H
#define AVO_DEVICE_CPU_LANES_LOGITS_H

#include "base/mathf.h"
#include "device/logits.h"

#define LOGITS_AT_ONCE 512 /* exponentials that are computed before they are added */

static inline double lanes_logits_sum(const float *logits, uint32_t count, float highest) {
    double lanes[8] = {0.0}, sum = 0.0;
    float e[LOGITS_AT_ONCE];
    for (uint32_t begin = 0; begin < count; begin += LOGITS_AT_ONCE) {
        uint32_t n = count - begin < LOGITS_AT_ONCE ? count - begin : LOGITS_AT_ONCE, i = 0;
        for (uint32_t j = 0; j < n; j++)
            e[j] = math_exp(logits[begin + j] - highest);
        for (; i + 8 <= n; i += 8)
            for (uint32_t lane = 0; lane < 8; lane++)
                lanes[lane] += (double)e[i + lane];
        for (uint32_t lane = 0; i < n; i++, lane++)
            lanes[lane] += (double)e[i];
    }
    for (uint32_t lane = 0; lane < 8; lane++)
        sum += lanes[lane];
    return sum;
}

static inline void lanes_logits_weigh(const float *scores, size_t count, float highest,
                                      float temperature, float *restrict weights) {
    const double top = (double)highest, divisor = (double)temperature;
    for (size_t i = 0; i < count; i++)
        weights[i] = math_exp((float)(((double)scores[i] - top) / divisor));
}

static inline bool lanes_logits_range(const float *logits, uint32_t count, float *highest,
                                      float *lowest) {
    float high[16], low[16];
    uint32_t broken[16] = {0}, wrong = 0, i = 0;
    for (uint32_t lane = 0; lane < 16; lane++) {
        high[lane] = -INFINITY;
        low[lane] = INFINITY;
    }
    for (; i + 16 <= count; i += 16)
        for (uint32_t lane = 0; lane < 16; lane++) {
            float x = logits[i + lane];
            broken[lane] |= x < INFINITY ? 0u : 1u; /* true for NaN too */
            high[lane] = x > high[lane] ? x : high[lane];
            low[lane] = x < low[lane] ? x : low[lane];
        }
    for (uint32_t lane = 0; i < count; i++, lane++) {
        broken[lane] |= logits[i] < INFINITY ? 0u : 1u;
        high[lane] = logits[i] > high[lane] ? logits[i] : high[lane];
        low[lane] = logits[i] < low[lane] ? logits[i] : low[lane];
    }
    *highest = high[0];
    *lowest = low[0];
    for (uint32_t lane = 0; lane < 16; lane++) {
        wrong |= broken[lane];
        *highest = high[lane] > *highest ? high[lane] : *highest;
        *lowest = low[lane] < *lowest ? low[lane] : *lowest;
    }
    return wrong == 0;
}

#define LANES_LOGITS                                                                               \
    { lanes_logits_sum, lanes_logits_weigh, lanes_logits_range }

#endif
