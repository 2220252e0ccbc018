/* Sixteen floats in one register: the vocabulary in which lanes/ is written, for AVX-512.
 * avx2/vec16.h says the same with two registers; both give the same bits. For files of this folder
 * alone. */
#ifndef AVO_DEVICE_CPU_AVX512_VEC16_H
#define AVO_DEVICE_CPU_AVX512_VEC16_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 16
/* Vectors of a long computation side by side: one alone waits for itself. */
#define LANES_TOGETHER 4

typedef __m512 vec16;
typedef __m512i ivec16;
typedef __mmask16 vmask;

/* ---- Memory. `_part` touches the first `count` (0…16) elements only; others read as zero. ---- */

static inline __mmask16 first_lanes(size_t count) {
    return (__mmask16)((1u << count) - 1u);
}
static inline vec16 v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline vec16 v_load_part(const float *p, size_t count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), p);
}
static inline void v_store(float *p, vec16 a) {
    _mm512_storeu_ps(p, a);
}
static inline void v_store_part(float *p, vec16 a, size_t count) {
    _mm512_mask_storeu_ps(p, first_lanes(count), a);
}
static inline vec16 v_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline vec16 v_load_bf16(const uint16_t *p) {
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
/* 16 numbers of E4M3 (none of them NaN). */
static inline vec16 v_load_fp8(const uint8_t *p) {
    __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m512i bits =
        _mm512_and_si512(_mm512_slli_epi32(wide, 20), _mm512_set1_epi32((int)0x87f00000u));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
}
static inline void v_store_f16(uint16_t *p, vec16 a) {
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline ivec16 iv_load(const int32_t *p) {
    return _mm512_loadu_si512(p);
}
static inline void iv_store(int32_t *p, ivec16 a) {
    _mm512_storeu_si512(p, a);
}
/* The last byte of every lane. */
static inline void iv_store_bytes(uint8_t *p, ivec16 a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(a));
}
/* The last two bytes of every lane. */
static inline void iv_store_halves(uint16_t *p, ivec16 a) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(a));
}

/* ---- Arithmetic ---- */

#define PAIRWISE(name, type, operation)                                                            \
    static inline type name(type a, type b) {                                                      \
        return operation(a, b);                                                                    \
    }

#define LANEWISE(name, result, type, operation)                                                    \
    static inline result name(type a) {                                                            \
        return operation(a);                                                                       \
    }

static inline vec16 v_set(float x) {
    return _mm512_set1_ps(x);
}
static inline vec16 v_zero(void) {
    return _mm512_setzero_ps();
}
PAIRWISE(v_add, vec16, _mm512_add_ps)
PAIRWISE(v_sub, vec16, _mm512_sub_ps)
PAIRWISE(v_mul, vec16, _mm512_mul_ps)
PAIRWISE(v_div, vec16, _mm512_div_ps)
/* a·b + c, rounded once */
static inline vec16 v_fma(vec16 a, vec16 b, vec16 c) {
    return _mm512_fmadd_ps(a, b, c);
}
/* c − a·b, rounded once */
static inline vec16 v_fnma(vec16 a, vec16 b, vec16 c) {
    return _mm512_fnmadd_ps(a, b, c);
}
/* a > b ? a : b, so b where either is NaN */
PAIRWISE(v_max, vec16, _mm512_max_ps)
PAIRWISE(v_min, vec16, _mm512_min_ps)
LANEWISE(v_abs, vec16, vec16, _mm512_abs_ps)
/* To the nearest integer, ties to even. */
LANEWISE(v_to_int, ivec16, vec16, _mm512_cvtps_epi32)
LANEWISE(v_from_int, vec16, ivec16, _mm512_cvtepi32_ps)
LANEWISE(v_bits, ivec16, vec16, _mm512_castps_si512)
LANEWISE(v_from_bits, vec16, ivec16, _mm512_castsi512_ps)
static inline ivec16 iv_set(int32_t x) {
    return _mm512_set1_epi32(x);
}
PAIRWISE(iv_add, ivec16, _mm512_add_epi32)
PAIRWISE(iv_sub, ivec16, _mm512_sub_epi32)
PAIRWISE(iv_max_unsigned, ivec16, _mm512_max_epu32)
PAIRWISE(iv_and, ivec16, _mm512_and_si512)
PAIRWISE(iv_or, ivec16, _mm512_or_si512)
#define iv_shift_left(a, bits)       _mm512_slli_epi32((a), (unsigned)(bits))
#define iv_shift_right(a, bits)      _mm512_srai_epi32((a), (unsigned)(bits))
#define iv_shift_right_zero(a, bits) _mm512_srli_epi32((a), (unsigned)(bits))

/* ---- Choice ---- */

/* False where either is NaN. */
static inline vmask v_less(vec16 a, vec16 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline vmask v_is_nan(vec16 a) {
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
static inline vec16 v_select(vmask mask, vec16 yes, vec16 no) {
    return _mm512_mask_blend_ps(mask, no, yes);
}
static inline ivec16 iv_select(vmask mask, ivec16 yes, ivec16 no) {
    return _mm512_mask_blend_epi32(mask, no, yes);
}
static inline bool v_any(vmask mask) {
    return mask != 0;
}

/* ---- Across lanes ---- */

/* Lane i gets lane i ^ 1, i ^ 2, i ^ 4, i ^ 8. */
static inline vec16 v_flip_1(vec16 a) {
    return _mm512_permute_ps(a, 0xb1);
}
static inline vec16 v_flip_2(vec16 a) {
    return _mm512_permute_ps(a, 0x4e);
}
static inline vec16 v_flip_4(vec16 a) {
    return _mm512_shuffle_f32x4(a, a, 0xb1);
}
static inline vec16 v_flip_8(vec16 a) {
    return _mm512_shuffle_f32x4(a, a, 0x4e);
}

/* 32 numbers in pairs: the first of each, the second of each. */
static inline void v_pairs_split(vec16 a, vec16 b, vec16 *first, vec16 *second) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *first = _mm512_permutex2var_ps(a, even, b);
    *second = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}
static inline void v_pairs_join(vec16 first, vec16 second, vec16 *a, vec16 *b) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *a = _mm512_permutex2var_ps(first, low, second);
    *b = _mm512_permutex2var_ps(first, _mm512_add_epi32(low, _mm512_set1_epi32(8)), second);
}

/* The tree of math_sum16. */
static inline float v_sum(vec16 a) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
/* Any order gives the same; no NaN. */
static inline float v_largest(vec16 a) {
    return _mm512_reduce_max_ps(a);
}
static inline uint32_t iv_largest_unsigned(ivec16 a) {
    return _mm512_reduce_max_epu32(a);
}

#endif
