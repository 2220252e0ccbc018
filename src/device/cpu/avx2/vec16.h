/* Sixteen floats in two registers: the vocabulary in which lanes/ is written, for AVX2 with FMA and
 * F16C. avx512/vec16.h says the same with one register; both give the same bits. For files of this
 * folder alone. */
#ifndef AVO_DEVICE_CPU_AVX2_VEC16_H
#define AVO_DEVICE_CPU_AVX2_VEC16_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 16
/* Vectors of a long computation side by side: one alone waits for itself. */
#define LANES_TOGETHER 2

typedef struct vec16 {
    __m256 low, high;
} vec16;
typedef struct ivec16 {
    __m256i low, high;
} ivec16;
typedef vec16 vmask; /* all bits of a lane set or none */

/* ---- Memory. `_part` touches the first `count` (0…16) elements only; others read as zero. ---- */

static inline __m256i first_lanes(size_t count) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), index);
}
static inline size_t lanes_above(size_t count) {
    return count > 8 ? count - 8 : 0;
}
static inline vec16 v_load(const float *p) {
    return (vec16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline vec16 v_load_part(const float *p, size_t count) {
    return (vec16){_mm256_maskload_ps(p, first_lanes(count)),
                   _mm256_maskload_ps(p + 8, first_lanes(lanes_above(count)))};
}
static inline void v_store(float *p, vec16 a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}
static inline void v_store_part(float *p, vec16 a, size_t count) {
    _mm256_maskstore_ps(p, first_lanes(count), a.low);
    _mm256_maskstore_ps(p + 8, first_lanes(lanes_above(count)), a.high);
}
static inline vec16 v_load_f16(const uint16_t *p) {
    return (vec16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}
static inline __m256 bf16_half(const uint16_t *p) {
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
static inline vec16 v_load_bf16(const uint16_t *p) {
    return (vec16){bf16_half(p), bf16_half(p + 8)};
}
static inline __m256 fp8_half(__m128i bytes) {
    __m256i wide = _mm256_cvtepi8_epi32(bytes);
    __m256i bits =
        _mm256_and_si256(_mm256_slli_epi32(wide, 20), _mm256_set1_epi32((int)0x87f00000u));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
}
/* 16 numbers of E4M3 (none of them NaN). */
static inline vec16 v_load_fp8(const uint8_t *p) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vec16){fp8_half(bytes), fp8_half(_mm_srli_si128(bytes, 8))};
}
static inline void v_store_f16(uint16_t *p, vec16 a) {
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(void *)(p + 8),
                     _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline ivec16 iv_load(const int32_t *p) {
    return (ivec16){_mm256_loadu_si256((const __m256i *)(const void *)p),
                    _mm256_loadu_si256((const __m256i *)(const void *)(p + 8))};
}
static inline void iv_store(int32_t *p, ivec16 a) {
    _mm256_storeu_si256((__m256i *)(void *)p, a.low);
    _mm256_storeu_si256((__m256i *)(void *)(p + 8), a.high);
}
/* The last two bytes of every lane. */
static inline void iv_store_halves(uint16_t *p, ivec16 a) {
    const __m256i last = _mm256_set1_epi32(0xffff);
    __m256i halves =
        _mm256_packus_epi32(_mm256_and_si256(a.low, last), _mm256_and_si256(a.high, last));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(halves, 0xd8));
}
/* The last byte of every lane. */
static inline void iv_store_bytes(uint8_t *p, ivec16 a) {
    const __m256i last = _mm256_set1_epi32(0xff);
    __m256i halves =
        _mm256_packus_epi32(_mm256_and_si256(a.low, last), _mm256_and_si256(a.high, last));
    halves = _mm256_permute4x64_epi64(halves, 0xd8);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packus_epi16(_mm256_castsi256_si128(halves),
                                                            _mm256_extracti128_si256(halves, 1)));
}

/* ---- Arithmetic ---- */

#define PAIRWISE(name, type, operation)                                                            \
    static inline type name(type a, type b) {                                                      \
        return (type){operation(a.low, b.low), operation(a.high, b.high)};                         \
    }

#define LANEWISE(name, result, type, operation)                                                    \
    static inline result name(type a) {                                                            \
        return (result){operation(a.low), operation(a.high)};                                      \
    }

static inline vec16 v_set(float x) {
    return (vec16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline vec16 v_zero(void) {
    return (vec16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
PAIRWISE(v_add, vec16, _mm256_add_ps)
PAIRWISE(v_sub, vec16, _mm256_sub_ps)
PAIRWISE(v_mul, vec16, _mm256_mul_ps)
PAIRWISE(v_div, vec16, _mm256_div_ps)
/* a·b + c, rounded once */
static inline vec16 v_fma(vec16 a, vec16 b, vec16 c) {
    return (vec16){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
/* c − a·b, rounded once */
static inline vec16 v_fnma(vec16 a, vec16 b, vec16 c) {
    return (vec16){_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
/* a > b ? a : b, so b where either is NaN */
PAIRWISE(v_max, vec16, _mm256_max_ps)
PAIRWISE(v_min, vec16, _mm256_min_ps)
static inline vec16 v_abs(vec16 a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (vec16){_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
/* To the nearest integer, ties to even. */
LANEWISE(v_to_int, ivec16, vec16, _mm256_cvtps_epi32)
LANEWISE(v_from_int, vec16, ivec16, _mm256_cvtepi32_ps)
LANEWISE(v_bits, ivec16, vec16, _mm256_castps_si256)
LANEWISE(v_from_bits, vec16, ivec16, _mm256_castsi256_ps)
static inline ivec16 iv_set(int32_t x) {
    return (ivec16){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
PAIRWISE(iv_add, ivec16, _mm256_add_epi32)
PAIRWISE(iv_sub, ivec16, _mm256_sub_epi32)
PAIRWISE(iv_max_unsigned, ivec16, _mm256_max_epu32)
PAIRWISE(iv_and, ivec16, _mm256_and_si256)
PAIRWISE(iv_or, ivec16, _mm256_or_si256)
#define iv_shift_left(a, bits)                                                                     \
    ((ivec16){_mm256_slli_epi32((a).low, (bits)), _mm256_slli_epi32((a).high, (bits))})
#define iv_shift_right(a, bits)                                                                    \
    ((ivec16){_mm256_srai_epi32((a).low, (bits)), _mm256_srai_epi32((a).high, (bits))})
#define iv_shift_right_zero(a, bits)                                                               \
    ((ivec16){_mm256_srli_epi32((a).low, (bits)), _mm256_srli_epi32((a).high, (bits))})

/* ---- Choice ---- */

/* False where either is NaN. */
static inline vmask v_less(vec16 a, vec16 b) {
    return (vmask){_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ),
                   _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
static inline vmask v_is_nan(vec16 a) {
    return (vmask){_mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q),
                   _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q)};
}
static inline vec16 v_select(vmask mask, vec16 yes, vec16 no) {
    return (vec16){_mm256_blendv_ps(no.low, yes.low, mask.low),
                   _mm256_blendv_ps(no.high, yes.high, mask.high)};
}
static inline ivec16 iv_select(vmask mask, ivec16 yes, ivec16 no) {
    return v_bits(v_select(mask, v_from_bits(yes), v_from_bits(no)));
}
static inline bool v_any(vmask mask) {
    return _mm256_movemask_ps(_mm256_or_ps(mask.low, mask.high)) != 0;
}

/* ---- Across lanes ---- */

/* Lane i gets lane i ^ 1, i ^ 2, i ^ 4, i ^ 8. */
static inline vec16 v_flip_1(vec16 a) {
    return (vec16){_mm256_permute_ps(a.low, 0xb1), _mm256_permute_ps(a.high, 0xb1)};
}
static inline vec16 v_flip_2(vec16 a) {
    return (vec16){_mm256_permute_ps(a.low, 0x4e), _mm256_permute_ps(a.high, 0x4e)};
}
static inline vec16 v_flip_4(vec16 a) {
    return (vec16){_mm256_permute2f128_ps(a.low, a.low, 1),
                   _mm256_permute2f128_ps(a.high, a.high, 1)};
}
static inline vec16 v_flip_8(vec16 a) {
    return (vec16){a.high, a.low};
}

/* 32 numbers in pairs: the first of each, the second of each. */
static inline __m256 pairs_half(__m256 mixed) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
}
static inline void v_pairs_split(vec16 a, vec16 b, vec16 *first, vec16 *second) {
    *first = (vec16){pairs_half(_mm256_shuffle_ps(a.low, a.high, 0x88)),
                     pairs_half(_mm256_shuffle_ps(b.low, b.high, 0x88))};
    *second = (vec16){pairs_half(_mm256_shuffle_ps(a.low, a.high, 0xdd)),
                      pairs_half(_mm256_shuffle_ps(b.low, b.high, 0xdd))};
}
static inline vec16 pairs_joined(__m256 first, __m256 second) {
    __m256 low = _mm256_unpacklo_ps(first, second), high = _mm256_unpackhi_ps(first, second);
    return (vec16){_mm256_permute2f128_ps(low, high, 0x20),
                   _mm256_permute2f128_ps(low, high, 0x31)};
}
static inline void v_pairs_join(vec16 first, vec16 second, vec16 *a, vec16 *b) {
    *a = pairs_joined(first.low, second.low);
    *b = pairs_joined(first.high, second.high);
}

/* The tree of math_sum16. */
static inline float v_sum(vec16 a) {
    __m256 half = _mm256_add_ps(a.low, a.high);
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
/* Any order gives the same; no NaN. */
static inline float v_largest(vec16 a) {
    __m256 half = _mm256_max_ps(a.low, a.high);
    __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}
static inline uint32_t iv_largest_unsigned(ivec16 a) {
    __m256i half = _mm256_max_epu32(a.low, a.high);
    __m128i quarter =
        _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    __m128i pair = _mm_max_epu32(quarter, _mm_unpackhi_epi64(quarter, quarter));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(pair, _mm_srli_epi64(pair, 32)));
}

#endif
