/* Numbers of 8 and 16 bits as floats, and back. On a graphics card the conversions of halves are
 * its own instructions; of a NaN only that it is one is the same there. */
#ifndef AVO_DEVICE_EXACT_NUMBER_H
#define AVO_DEVICE_EXACT_NUMBER_H

#include "device/exact/inline.h"

EXACT_INLINE float exact_from_half(uint16_t half) {
#ifdef __CUDA_ARCH__
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(half));
    return number;
#else
    /* A subnormal half gets the exponent of 2^-14 and loses that 2^-14 again. */
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    uint32_t exponent = magnitude & 0x0f800000u;
    uint32_t bits = magnitude + 0x38000000u + (exponent == 0x0f800000u ? 0x38000000u : 0u);
    if (exponent == 0)
        bits = exact_bits(exact_float(magnitude + 0x38800000u) - 0x1p-14f);
    return exact_float(bits | (uint32_t)(half & 0x8000) << 16);
#endif
}

EXACT_INLINE uint16_t exact_to_half(float number) {
#ifdef __CUDA_ARCH__
    uint16_t half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(number));
    return half;
#else
    uint32_t bits = exact_bits(number);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* from 65,520 on: infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* below 2^-14: the sum has a spacing of 2^-24, and rounds */
        return (uint16_t)(sign | (exact_bits(exact_float(magnitude) + 0.5f) - 0x3f000000u));
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (magnitude - 0x38000000u) >> 13);
#endif
}

EXACT_INLINE float exact_from_brain(uint16_t half) {
    return exact_float((uint32_t)half << 16);
}

EXACT_INLINE uint16_t exact_to_brain(float number) {
    uint32_t bits = exact_bits(number);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* E4M3. */
EXACT_INLINE float exact_from_e4m3(uint8_t byte) {
    uint32_t magnitude = (uint32_t)(byte & 0x7f) << 20;
    uint32_t bits = magnitude + 0x3c000000u;
    if ((magnitude & 0x07800000u) == 0)
        bits = exact_bits(exact_float(magnitude + 0x3c800000u) - 0x1p-6f);
    bits = magnitude == 0x07f00000u ? 0x7ff00000u : bits;
    return exact_float(bits | (uint32_t)(byte & 0x80) << 24);
}

/* To nearest even; at most ±448. */
EXACT_INLINE uint8_t exact_to_e4m3(float x) {
    uint32_t sign = exact_bits(x) >> 24 & 0x80u;
    float magnitude = exact_float(exact_bits(x) & 0x7fffffffu);
    if (!(magnitude < 448.0f))
        magnitude = 448.0f;
    uint32_t bits = exact_bits(magnitude);
    if (magnitude < 0x1p-6f) /* subnormal: multiples of 2^-9; the sum's last bits count them */
        return (uint8_t)(sign | (exact_bits(magnitude + 0x1p14f) & 0xfu));
    bits += 0x7ffffu + (bits >> 20 & 1u); /* three bits of fraction stay */
    return (uint8_t)(sign | ((bits >> 20) - (120u << 3)));
}

#endif
