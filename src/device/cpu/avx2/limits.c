/* Peaks of AVX2.
 *
 * Integers: vpmaddubsw makes 32 products and 16 sums, and what comes out must be added to
 * something: a kernel cannot do with less than vpmaddubsw and vpaddw, so that pair is the limit.
 * FMA: as it is. Twelve chains hide the latency of any of them. Written as assembly, because a
 * compiler would see that the same product is made twelve times.
 */
#include "device/cpu/limits.h"

#include <immintrin.h>

#define CHAINS 12

static uint64_t integer_peak(uint64_t rounds) {
    __m256i sum[CHAINS];
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(1);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm256_setzero_si256();
    for (uint64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) {
            __m256i product;
            __asm__ volatile("vpmaddubsw %2, %1, %0" : "=x"(product) : "x"(a), "x"(b));
            __asm__ volatile("vpaddw %1, %0, %0" : "+x"(sum[i]) : "x"(product));
        }
    }
    __m256i all = _mm256_setzero_si256();
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        all = _mm256_add_epi16(all, sum[i]);
    return (uint64_t)_mm256_extract_epi64(all, 0);
}

static uint64_t floating_peak(uint64_t rounds) {
    __m256 sum[CHAINS];
    __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm256_setzero_ps();
    for (uint64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(sum[i]) : "x"(a), "x"(b));
    }
    __m256 all = _mm256_setzero_ps();
#pragma GCC unroll 12
    for (int i = 0; i < CHAINS; i++)
        all = _mm256_add_ps(all, sum[i]);
    return (uint64_t)_mm256_extract_epi64(_mm256_castps_si256(all), 0);
}

void limits_avx2(limit_table *table) {
    table->isa = "avx2";
    table->integer = (limit_peak){"vpmaddubsw + vpaddw ymm", CHAINS * 64, integer_peak};
    table->floating = (limit_peak){"vfmadd231ps ymm", CHAINS * 16, floating_peak};
}
