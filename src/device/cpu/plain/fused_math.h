/* exp, sigmoid and tanh as the fast back ends compute them, for one number. lanes/exp.h has the
 * same in 16 lanes, to the bit; base/mathf.h, of the reference, has no fused operations. */
#ifndef AVO_DEVICE_CPU_PLAIN_FUSED_MATH_H
#define AVO_DEVICE_CPU_PLAIN_FUSED_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float fused_power_of_two(int32_t exponent) {
    uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float number;
    memcpy(&number, &bits, sizeof(number));
    return number;
}

static inline float fused_exp(float x) {
    if (x != x)
        return x;
    if (x < -87.33654f)
        return 0.0f;
    if (x > 88.72283f)
        return INFINITY;
    int32_t exponent = (int32_t)lrintf(x * 1.44269504f);
    float n = (float)exponent;
    float r = fmaf(-n, 1.42860677e-6f, fmaf(-n, 0.693145752f, x));
    static const float series[] = {
        1.38888889e-3f, 8.33333333e-3f, 4.16666667e-2f, 1.66666667e-1f, 0.5f, 1.0f, 1.0f};
    float p = 1.98412698e-4f;
    for (size_t i = 0; i < sizeof(series) / sizeof(series[0]); i++)
        p = fmaf(p, r, series[i]);
    int32_t half = exponent >> 1;
    return p * fused_power_of_two(half) * fused_power_of_two(exponent - half);
}

static inline float fused_sigmoid(float x) {
    return 1.0f / (1.0f + fused_exp(0.0f - x));
}

static inline float fused_tanh(float x) {
    return 1.0f - 2.0f / (fused_exp(x + x) + 1.0f);
}

#endif
