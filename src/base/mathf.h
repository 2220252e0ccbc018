/* Our own exp and friends: the same bits from every C library and in every vector width. Written so
 * that a compiler can run them in lanes: no branches, no tables. */
#ifndef AVO_BASE_MATHF_H
#define AVO_BASE_MATHF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e^x to about one unit in the last place; 0 below −87.3, infinite above 88.7, NaN stays NaN.
 * x = n·ln2 + r with |r| ≤ ln2/2; e^r as its Taylor sum to r⁷ (the rest is below 6e-9). */
static inline float math_exp(float x) {
    float clamped = x == x ? x : 0.0f; /* what is no number has no exponent either */
    clamped = clamped < -87.33654f ? -87.33654f : clamped;
    clamped = clamped > 88.72283f ? 88.72283f : clamped;
    /* Adding and taking away 1.5·2²³ rounds to an integer in the current mode. */
    float n = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;
    /* ln2 in two parts: the first has zeros where n·ln2 would round. */
    float r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* 2^n in two factors, so that n = 128 and the subnormal end need no care. */
    int32_t exponent = (int32_t)n;
    int32_t half = exponent / 2;
    uint32_t first_bits = (uint32_t)(half + 127) << 23;
    uint32_t second_bits = (uint32_t)(exponent - half + 127) << 23;
    float first;
    float second;
    memcpy(&first, &first_bits, sizeof(first));
    memcpy(&second, &second_bits, sizeof(second));
    float result = p * first * second;
    result = x < -87.33654f ? 0.0f : result;
    result = x > 88.72283f ? INFINITY : result;
    return x != x ? x : result;
}

static inline float math_sigmoid(float x) {
    return 1.0f / (1.0f + math_exp(-x));
}

/* Absolute error below 2.5e-7, which is what its users (activations, soft caps) need. */
static inline float math_tanh(float x) {
    return 1.0f - 2.0f / (math_exp(2.0f * x) + 1.0f);
}

/* The sum of 16 lanes, always in this order: the one tree for all sums that cross lanes. */
static inline float math_sum16(const float lanes[16]) {
    float half[8];
    for (int i = 0; i < 8; i++)
        half[i] = lanes[i] + lanes[i + 8];
    float quarter[4];
    for (int i = 0; i < 4; i++)
        quarter[i] = half[i] + half[i + 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

#endif
