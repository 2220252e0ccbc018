/* Peaks of NEON: sdot makes 16 products of bytes and adds them up, fmla four of floats. Sixteen
 * chains hide the latency of either. Written as assembly, because a compiler would see that the
 * same product is made sixteen times. */
#include "device/cpu/limits.h"

#include <arm_neon.h>

#define CHAINS 16

static uint64_t integer_peak(uint64_t rounds) {
    int32x4_t sum[CHAINS];
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(1);
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        sum[i] = vdupq_n_s32(0);
    for (uint64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum[i]) : "w"(a), "w"(b));
    }
    int32x4_t all = vdupq_n_s32(0);
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        all = vaddq_s32(all, sum[i]);
    return (uint64_t)(uint32_t)vgetq_lane_s32(all, 0);
}

static uint64_t floating_peak(uint64_t rounds) {
    float32x4_t sum[CHAINS];
    float32x4_t a = vdupq_n_f32(0.5f), b = vdupq_n_f32(0.25f);
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        sum[i] = vdupq_n_f32(0.0f);
    for (uint64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum[i]) : "w"(a), "w"(b));
    }
    float32x4_t all = vdupq_n_f32(0.0f);
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        all = vaddq_f32(all, sum[i]);
    return (uint64_t)vgetq_lane_f32(all, 0);
}

void limits_neon(limit_table *table) {
    table->isa = "neon";
    table->integer = (limit_peak){"sdot v.4s", CHAINS * 32, integer_peak};
    table->floating = (limit_peak){"fmla v.4s", CHAINS * 8, floating_peak};
}
