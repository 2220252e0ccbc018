/* Peaks of AVX-512: vpdpbusd (64 products and sums at once) and FMA. Sixteen chains; see
 * avx2/limits.c. */
#include "device/cpu/limits.h"

#include <immintrin.h>

#define CHAINS 16

static uint64_t first_word(__m512i x) {
    return (uint64_t)_mm_extract_epi64(_mm512_castsi512_si128(x), 0);
}

static uint64_t integer_peak(uint64_t rounds) {
    __m512i sum[CHAINS];
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm512_setzero_si512();
    for (uint64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum[i]) : "v"(a), "v"(b));
    }
    __m512i all = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        all = _mm512_add_epi32(all, sum[i]);
    return first_word(all);
}

static uint64_t floating_peak(uint64_t rounds) {
    __m512 sum[CHAINS];
    __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm512_setzero_ps();
    for (uint64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(sum[i]) : "v"(a), "v"(b));
    }
    __m512 all = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        all = _mm512_add_ps(all, sum[i]);
    return first_word(_mm512_castps_si512(all));
}

void limits_avx512(limit_table *table) {
    table->isa = "avx512";
    table->integer = (limit_peak){"vpdpbusd zmm", CHAINS * 128, integer_peak};
    table->floating = (limit_peak){"vfmadd231ps zmm", CHAINS * 32, floating_peak};
}
