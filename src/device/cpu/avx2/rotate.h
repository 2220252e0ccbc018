/* quant_rotate of one row, for this folder: the same additions in the same order, eight at a time.
 * Strides 1, 2 and 4 inside a register; 8, 16 and 32 among eight registers; then two strides at a
 * time through memory.
 */
#ifndef AVO_DEVICE_CPU_AVX2_ROTATE_H
#define AVO_DEVICE_CPU_AVX2_ROTATE_H

#include "quant/quant.h"

#include <immintrin.h>

/* a + b in the lower place of each pair and a − b in the upper: x with its pairs swapped, plus x
 * with the upper ones negated. A product with ±1 is exact, so that fma rounds as an addition. */
static inline __m256 rotate_inside(__m256 x) {
    const __m256 odd = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
    const __m256 second = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
    const __m256 upper = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
    x = _mm256_fmadd_ps(x, odd, _mm256_permute_ps(x, 0xb1));
    x = _mm256_fmadd_ps(x, second, _mm256_permute_ps(x, 0x4e));
    return _mm256_fmadd_ps(x, upper, _mm256_permute2f128_ps(x, x, 1));
}

static inline void rotate_pair(__m256 *a, __m256 *b) {
    __m256 sum = _mm256_add_ps(*a, *b);
    *b = _mm256_sub_ps(*a, *b);
    *a = sum;
}

/* Strides 1 … 4 · registers of 8 · registers numbers; registers is 2, 4 or 8. */
static inline __attribute__((always_inline)) void rotate_registers(const float *from, float *x,
                                                                   const int registers) {
    __m256 v[8];
    for (int i = 0; i < registers; i++)
        v[i] = rotate_inside(_mm256_loadu_ps(from + 8 * i));
    for (int half = 1; half < registers; half *= 2)
        for (int i = 0; i < registers; i++)
            if ((i & half) == 0)
                rotate_pair(&v[i], &v[i + half]);
    for (int i = 0; i < registers; i++)
        _mm256_storeu_ps(x + 8 * i, v[i]);
}

/* One stride of at least 64. */
static inline void rotate_stride(float *x, size_t count, size_t half) {
    for (size_t i = 0; i < count; i += 2 * half)
        for (size_t j = i; j < i + half; j += 8) {
            __m256 a = _mm256_loadu_ps(x + j);
            __m256 b = _mm256_loadu_ps(x + j + half);
            rotate_pair(&a, &b);
            _mm256_storeu_ps(x + j, a);
            _mm256_storeu_ps(x + j + half, b);
        }
}

static inline void rotate_block(float *x, size_t count) {
    if (count == 16)
        rotate_registers(x, x, 2);
    else if (count == 32)
        rotate_registers(x, x, 4);
    else
        for (size_t i = 0; i < count; i += 64)
            rotate_registers(x + i, x + i, 8);
    for (size_t half = 64; half < count; half *= 2)
        rotate_stride(x, count, half);
    __m256 scale = _mm256_set1_ps(quant_rotate_scale(count));
    for (size_t i = 0; i < count; i += 8)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), scale));
}

/* 256 numbers of x into `out`; the bits of the largest magnitudes in each lane. */
static inline __m256i rotate_super(const float *x, float *out) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    const __m256 scale = _mm256_set1_ps(quant_rotate_scale(256));
    __m256i largest = _mm256_setzero_si256();
    for (size_t i = 0; i < 256; i += 64)
        rotate_registers(x + i, out + i, 8);
    for (size_t i = 0; i < 64; i += 8) {
        __m256 v[4];
        for (size_t j = 0; j < 4; j++)
            v[j] = _mm256_loadu_ps(out + i + 64 * j);
        rotate_pair(&v[0], &v[1]);
        rotate_pair(&v[2], &v[3]);
        rotate_pair(&v[0], &v[2]);
        rotate_pair(&v[1], &v[3]);
        for (size_t j = 0; j < 4; j++) {
            v[j] = _mm256_mul_ps(v[j], scale);
            largest =
                _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(v[j]), magnitude));
            _mm256_storeu_ps(out + i + 64 * j, v[j]);
        }
    }
    return largest;
}

/* k is a multiple of 16. */
static inline void rotate_row(float *x, size_t k) {
    while (k > 0) {
        size_t count = 256;
        while (count > k)
            count /= 2;
        rotate_block(x, count);
        x += count;
        k -= count;
    }
}

#endif
