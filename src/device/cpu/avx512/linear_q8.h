/* What the products with 8 bits share. */
#ifndef AVO_DEVICE_CPU_AVX512_LINEAR_Q8_H
#define AVO_DEVICE_CPU_AVX512_LINEAR_Q8_H

#include "device/cpu/avx512/linear_int.h"

#define Q8_ZERO  128 /* what is added to the signed bytes */
#define Q8_RADIX 255

/* Longest k and most rows of linear_avx512_q8c_short. */
#define Q8C_SHORT_K    PANEL_UNIT
#define Q8C_SHORT_ROWS 16

/* −128 · (255 · sum of the high bytes + sum of the low ones) of 32 k. */
AVX512_INLINE int32_t q8_begin(__m256i high, __m256i low) {
    const __m256i ones = _mm256_set1_epi8(1);
    __m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), ones, high);
    sum = _mm256_mullo_epi32(sum, _mm256_set1_epi32(Q8_RADIX));
    sum = _mm256_dpbusd_epi32(sum, ones, low);
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return -Q8_ZERO * _mm_cvtsi128_si32(half);
}

void linear_avx512_q8c_short(const linear_call *call, size_t first, size_t last);

#endif
