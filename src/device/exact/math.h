/* exp, sigmoid, tanh, exp2 and activations as all devices but ref compute them, for one number.
 * lanes/exp.h has the same in 16 lanes, to the bit; base/mathf.h, of the reference, has no fused
 * operations. */
#ifndef AVO_DEVICE_EXACT_MATH_H
#define AVO_DEVICE_EXACT_MATH_H

#include "device/exact/inline.h"

#define MATHD_INLINE EXACT_INLINE
#include "base/mathd_inline.h"

/* ---- e^x ---- */

EXACT_INLINE float fused_power_of_two(int32_t exponent) {
    return exact_float((uint32_t)(exponent + 127) << 23);
}

EXACT_INLINE float fused_exp(float x) {
    if (x != x)
        return x;
    if (x < -87.33654f)
        return 0.0f;
    if (x > 88.72283f)
        return INFINITY;
    int32_t exponent = exact_nearest(x * 1.44269504f);
    float n = (float)exponent;
    float r = fmaf(-n, 1.42860677e-6f, fmaf(-n, 0.693145752f, x));
    float p = 1.98412698e-4f;
    p = fmaf(p, r, 1.38888889e-3f);
    p = fmaf(p, r, 8.33333333e-3f);
    p = fmaf(p, r, 4.16666667e-2f);
    p = fmaf(p, r, 1.66666667e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    int32_t half = exponent >> 1;
    return p * fused_power_of_two(half) * fused_power_of_two(exponent - half);
}

EXACT_INLINE float fused_sigmoid(float x) {
    return 1.0f / (1.0f + fused_exp(0.0f - x));
}

EXACT_INLINE float fused_tanh(float x) {
    return 1.0f - 2.0f / (fused_exp(x + x) + 1.0f);
}

/* ---- Activations, numbered as activation_kind ---- */

#define EXACT_SILU      0
#define EXACT_GELU_TANH 1
#define EXACT_GELU_ERF  2
#define EXACT_RELU      3
#define EXACT_CLIPPED   4 /* the gate's part of gpt-oss's activation */

EXACT_INLINE float exact_activation(uint32_t kind, float x) {
    switch (kind) {
    case EXACT_SILU:
        return x * fused_sigmoid(x);
    case EXACT_GELU_TANH: {
        float inner = 0.797884561f * fmaf(0.044715f * x * x, x, x);
        return 0.5f * x * (1.0f + fused_tanh(inner));
    }
    case EXACT_GELU_ERF:
        return (float)(0.5 * (double)x * (1.0 + mathd_inline_erf((double)x * 0.70710678118654752)));
    case EXACT_CLIPPED: {
        float g = x < 7.0f ? x : 7.0f;
        return g * fused_sigmoid(1.702f * g);
    }
    default:
        return x > 0.0f ? x : 0.0f;
    }
}

/* ---- 2^x, of attention ---- */

/* Coefficients of r … r⁵; that of r⁰ is 1. */
#define ATTEND_EXP2_1 0.693147004f
#define ATTEND_EXP2_2 0.240222424f
#define ATTEND_EXP2_3 0.0555073358f
#define ATTEND_EXP2_4 0.00967151299f
#define ATTEND_EXP2_5 0.00132647273f
/* Added and taken away, it rounds to an integer n and leaves n + 127 in the last bits. */
#define ATTEND_EXP2_ROUND 12583039.0f
#define ATTEND_EXP2_LOW   (-126.0f)
#define ATTEND_EXP2_MAX   126.0f

EXACT_INLINE float exact_exp2(float x) {
    float sum = x + ATTEND_EXP2_ROUND;
    float r = x - (sum - ATTEND_EXP2_ROUND);
    float p = ATTEND_EXP2_5;
    p = fmaf(p, r, ATTEND_EXP2_4);
    p = fmaf(p, r, ATTEND_EXP2_3);
    p = fmaf(p, r, ATTEND_EXP2_2);
    p = fmaf(p, r, ATTEND_EXP2_1);
    p = fmaf(p, r, 1.0f);
    p *= exact_float(exact_bits(sum) << 23);
    return x < ATTEND_EXP2_LOW ? 0.0f : p; /* no branch */
}

/* ---- Sums ---- */

/* The sum of 16 lanes, always in this order, as math_sum16. */
EXACT_INLINE float exact_sum16(const float *lanes) {
    float quarter[4];
    for (int i = 0; i < 4; i++)
        quarter[i] = (lanes[i] + lanes[i + 8]) + (lanes[i + 4] + lanes[i + 12]);
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

#endif
