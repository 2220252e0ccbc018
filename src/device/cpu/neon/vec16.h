/* Sixteen floats in four registers: the vocabulary in which lanes/ is written, for NEON.
 * avx2/vec16.h and avx512/vec16.h say the same for x86; all give the same bits. For files of this
 * folder alone. */
#ifndef AVO_DEVICE_CPU_NEON_VEC16_H
#define AVO_DEVICE_CPU_NEON_VEC16_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
/* Vectors of a long computation side by side: four registers hide one another's latency. */
#define LANES_TOGETHER 2
#define QUARTERS       4 /* registers of a vector */

typedef struct vec16 {
    float32x4_t q[QUARTERS];
} vec16;
typedef struct ivec16 {
    int32x4_t q[QUARTERS];
} ivec16;
typedef struct vmask { /* all bits of a lane set or none */
    uint32x4_t q[QUARTERS];
} vmask;

/* One instruction for each register; `e` reads register number `quarter`. */
#define EACH_QUARTER(type, e)                                                                      \
    ({                                                                                             \
        type each;                                                                                 \
        _Pragma("GCC unroll 4") for (int quarter = 0; quarter < QUARTERS; quarter++)               \
            each.q[quarter] = (e);                                                                 \
        each;                                                                                      \
    })

/* ---- Memory. `_part` touches the first `count` (0…16) elements only; others read as zero. ---- */

static inline vec16 v_load(const float *p) {
    return EACH_QUARTER(vec16, vld1q_f32(p + 4 * quarter));
}
static inline void v_store(float *p, vec16 a) {
#pragma GCC unroll 4
    for (int quarter = 0; quarter < QUARTERS; quarter++)
        vst1q_f32(p + 4 * quarter, a.q[quarter]);
}
static inline vec16 v_load_part(const float *p, size_t count) {
    if (count == LANES)
        return v_load(p);
    float whole[LANES] = {0};
    memcpy(whole, p, count * sizeof(float));
    return v_load(whole);
}
static inline void v_store_part(float *p, vec16 a, size_t count) {
    float whole[LANES];
    v_store(whole, a);
    memcpy(p, whole, count * sizeof(float));
}
static inline vec16 v_load_f16(const uint16_t *p) {
    return EACH_QUARTER(vec16, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * quarter))));
}
static inline vec16 v_load_bf16(const uint16_t *p) {
    return EACH_QUARTER(vec16, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * quarter), 16)));
}
static inline ivec16 iv_widen(int8x16_t bytes) {
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return (ivec16){{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                     vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}};
}
/* 16 numbers of E4M3 (none of them NaN). */
static inline vec16 v_load_fp8(const uint8_t *p) {
    ivec16 wide = iv_widen(vreinterpretq_s8_u8(vld1q_u8(p)));
    return EACH_QUARTER(
        vec16, vmulq_n_f32(vreinterpretq_f32_s32(vandq_s32(vshlq_n_s32(wide.q[quarter], 20),
                                                           vdupq_n_s32((int32_t)0x87f00000u))),
                           0x1p120f));
}
static inline void v_store_f16(uint16_t *p, vec16 a) {
#pragma GCC unroll 4
    for (int quarter = 0; quarter < QUARTERS; quarter++)
        vst1_u16(p + 4 * quarter, vreinterpret_u16_f16(vcvt_f16_f32(a.q[quarter])));
}
static inline ivec16 iv_load(const int32_t *p) {
    return EACH_QUARTER(ivec16, vld1q_s32(p + 4 * quarter));
}
static inline void iv_store(int32_t *p, ivec16 a) {
#pragma GCC unroll 4
    for (int quarter = 0; quarter < QUARTERS; quarter++)
        vst1q_s32(p + 4 * quarter, a.q[quarter]);
}
/* The last two bytes of every lane. */
static inline int16x8_t iv_halves(int32x4_t a, int32x4_t b) {
    return vmovn_high_s32(vmovn_s32(a), b);
}
static inline void iv_store_halves(uint16_t *p, ivec16 a) {
    vst1q_u16(p, vreinterpretq_u16_s16(iv_halves(a.q[0], a.q[1])));
    vst1q_u16(p + 8, vreinterpretq_u16_s16(iv_halves(a.q[2], a.q[3])));
}
/* The last byte of every lane. */
static inline void iv_store_bytes(uint8_t *p, ivec16 a) {
    int16x8_t low = iv_halves(a.q[0], a.q[1]), high = iv_halves(a.q[2], a.q[3]);
    vst1q_u8(p, vreinterpretq_u8_s8(vmovn_high_s16(vmovn_s16(low), high)));
}

/* ---- Arithmetic ---- */

#define PAIRWISE(name, type, operation)                                                            \
    static inline type name(type a, type b) {                                                      \
        return EACH_QUARTER(type, operation(a.q[quarter], b.q[quarter]));                          \
    }

#define LANEWISE(name, result, type, operation)                                                    \
    static inline result name(type a) {                                                            \
        return EACH_QUARTER(result, operation(a.q[quarter]));                                      \
    }

static inline vec16 v_set(float x) {
    return EACH_QUARTER(vec16, vdupq_n_f32(x));
}
static inline vec16 v_zero(void) {
    return v_set(0.0f);
}
PAIRWISE(v_add, vec16, vaddq_f32)
PAIRWISE(v_sub, vec16, vsubq_f32)
PAIRWISE(v_mul, vec16, vmulq_f32)
PAIRWISE(v_div, vec16, vdivq_f32)
/* a·b + c, rounded once */
static inline vec16 v_fma(vec16 a, vec16 b, vec16 c) {
    return EACH_QUARTER(vec16, vfmaq_f32(c.q[quarter], a.q[quarter], b.q[quarter]));
}
/* c − a·b, rounded once */
static inline vec16 v_fnma(vec16 a, vec16 b, vec16 c) {
    return EACH_QUARTER(vec16, vfmsq_f32(c.q[quarter], a.q[quarter], b.q[quarter]));
}
/* a > b ? a : b, so b where either is NaN, which vmaxq would not give */
static inline vec16 v_max(vec16 a, vec16 b) {
    return EACH_QUARTER(
        vec16, vbslq_f32(vcgtq_f32(a.q[quarter], b.q[quarter]), a.q[quarter], b.q[quarter]));
}
static inline vec16 v_min(vec16 a, vec16 b) {
    return EACH_QUARTER(
        vec16, vbslq_f32(vcltq_f32(a.q[quarter], b.q[quarter]), a.q[quarter], b.q[quarter]));
}
LANEWISE(v_abs, vec16, vec16, vabsq_f32)
/* To the nearest integer, ties to even; NaN becomes 0. */
LANEWISE(v_to_int, ivec16, vec16, vcvtnq_s32_f32)
LANEWISE(v_from_int, vec16, ivec16, vcvtq_f32_s32)
LANEWISE(v_bits, ivec16, vec16, vreinterpretq_s32_f32)
LANEWISE(v_from_bits, vec16, ivec16, vreinterpretq_f32_s32)
static inline ivec16 iv_set(int32_t x) {
    return EACH_QUARTER(ivec16, vdupq_n_s32(x));
}
PAIRWISE(iv_add, ivec16, vaddq_s32)
PAIRWISE(iv_sub, ivec16, vsubq_s32)
PAIRWISE(iv_and, ivec16, vandq_s32)
PAIRWISE(iv_or, ivec16, vorrq_s32)
static inline ivec16 iv_max_unsigned(ivec16 a, ivec16 b) {
    return EACH_QUARTER(ivec16,
                        vreinterpretq_s32_u32(vmaxq_u32(vreinterpretq_u32_s32(a.q[quarter]),
                                                        vreinterpretq_u32_s32(b.q[quarter]))));
}
/* Macros, because the instructions take constants. */
#define iv_shift_left(a, bits)                                                                     \
    ({                                                                                             \
        const ivec16 from = (a);                                                                   \
        EACH_QUARTER(ivec16, vshlq_n_s32(from.q[quarter], (bits)));                                \
    })
#define iv_shift_right(a, bits)                                                                    \
    ({                                                                                             \
        const ivec16 from = (a);                                                                   \
        EACH_QUARTER(ivec16, vshrq_n_s32(from.q[quarter], (bits)));                                \
    })
#define iv_shift_right_zero(a, bits)                                                               \
    ({                                                                                             \
        const ivec16 from = (a);                                                                   \
        EACH_QUARTER(ivec16, vreinterpretq_s32_u32(                                                \
                                 vshrq_n_u32(vreinterpretq_u32_s32(from.q[quarter]), (bits))));    \
    })

/* ---- Choice ---- */

/* False where either is NaN. */
static inline vmask v_less(vec16 a, vec16 b) {
    return EACH_QUARTER(vmask, vcltq_f32(a.q[quarter], b.q[quarter]));
}
static inline vmask v_is_nan(vec16 a) {
    return EACH_QUARTER(vmask, vmvnq_u32(vceqq_f32(a.q[quarter], a.q[quarter])));
}
static inline vec16 v_select(vmask mask, vec16 yes, vec16 no) {
    return EACH_QUARTER(vec16, vbslq_f32(mask.q[quarter], yes.q[quarter], no.q[quarter]));
}
static inline ivec16 iv_select(vmask mask, ivec16 yes, ivec16 no) {
    return EACH_QUARTER(ivec16, vbslq_s32(mask.q[quarter], yes.q[quarter], no.q[quarter]));
}
static inline bool v_any(vmask mask) {
    uint32x4_t all = vorrq_u32(vorrq_u32(mask.q[0], mask.q[1]), vorrq_u32(mask.q[2], mask.q[3]));
    return vmaxvq_u32(all) != 0;
}

/* ---- Across lanes ---- */

/* Lane i gets lane i ^ 1, i ^ 2, i ^ 4, i ^ 8. */
LANEWISE(v_flip_1, vec16, vec16, vrev64q_f32)
static inline vec16 v_flip_2(vec16 a) {
    return EACH_QUARTER(vec16, vextq_f32(a.q[quarter], a.q[quarter], 2));
}
static inline vec16 v_flip_4(vec16 a) {
    return EACH_QUARTER(vec16, a.q[quarter ^ 1]);
}
static inline vec16 v_flip_8(vec16 a) {
    return EACH_QUARTER(vec16, a.q[quarter ^ 2]);
}

/* 32 numbers in pairs: the first of each, the second of each. */
static inline void v_pairs_split(vec16 a, vec16 b, vec16 *first, vec16 *second) {
#pragma GCC unroll 2
    for (int quarter = 0; quarter < 2; quarter++) {
        first->q[quarter] = vuzp1q_f32(a.q[2 * quarter], a.q[2 * quarter + 1]);
        second->q[quarter] = vuzp2q_f32(a.q[2 * quarter], a.q[2 * quarter + 1]);
        first->q[2 + quarter] = vuzp1q_f32(b.q[2 * quarter], b.q[2 * quarter + 1]);
        second->q[2 + quarter] = vuzp2q_f32(b.q[2 * quarter], b.q[2 * quarter + 1]);
    }
}
static inline void v_pairs_join(vec16 first, vec16 second, vec16 *a, vec16 *b) {
#pragma GCC unroll 2
    for (int quarter = 0; quarter < 2; quarter++) {
        a->q[2 * quarter] = vzip1q_f32(first.q[quarter], second.q[quarter]);
        a->q[2 * quarter + 1] = vzip2q_f32(first.q[quarter], second.q[quarter]);
        b->q[2 * quarter] = vzip1q_f32(first.q[2 + quarter], second.q[2 + quarter]);
        b->q[2 * quarter + 1] = vzip2q_f32(first.q[2 + quarter], second.q[2 + quarter]);
    }
}

/* The tree of math_sum16. */
static inline float v_sum(vec16 a) {
    float32x4_t quarter = vaddq_f32(vaddq_f32(a.q[0], a.q[2]), vaddq_f32(a.q[1], a.q[3]));
    float32x2_t pair = vadd_f32(vget_low_f32(quarter), vget_high_f32(quarter));
    return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}
/* Any order gives the same; no NaN. */
static inline float v_largest(vec16 a) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.q[0], a.q[1]), vmaxq_f32(a.q[2], a.q[3])));
}
static inline uint32_t iv_largest_unsigned(ivec16 a) {
    ivec16 half = iv_max_unsigned(a, (ivec16){{a.q[2], a.q[3], a.q[0], a.q[1]}});
    return vmaxvq_u32(
        vmaxq_u32(vreinterpretq_u32_s32(half.q[0]), vreinterpretq_u32_s32(half.q[1])));
}
static inline int32_t iv_sum(ivec16 a) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(a.q[0], a.q[1]), vaddq_s32(a.q[2], a.q[3])));
}

#endif
