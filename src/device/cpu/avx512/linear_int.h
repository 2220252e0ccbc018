/* Matrix products with AVX-512 VNNI: what their files share. Bits are those of activation.h.
 *
 * One shape for all types: a tile is one panel times up to 16 rows of x with the sums in registers,
 * lane = row of the weight. The numbers of 32 k are unpacked into registers once per tile (a few
 * operations on pipes that the products leave idle) and multiplied with every row, whose four k are
 * broadcast from memory. vpdpbusd takes unsigned × signed bytes: weights stay unsigned, and the sum
 * begins at −zero point · (sum of the row's numbers), which a small table per call holds.
 *
 * Rates in the heads of these files are of one Zen 4 core (vpdpbusd alone 464 GOPS, FP32 FMA 116
 * GFLOPS) with k = 2048 and weights in its caches; bench_linear measures from memory, beside the
 * machine's limits: bench_linear avx512 all 5632 2048 1,4,8,16,512 2.
 */
#ifndef AVO_DEVICE_CPU_AVX512_LINEAR_INT_H
#define AVO_DEVICE_CPU_AVX512_LINEAR_INT_H

#include "device/cpu/avx512/linear.h"

#include <immintrin.h>

#define AVX512_INLINE static inline __attribute__((always_inline))

/* The first `left` lanes, all of them from 16 on. */
AVX512_INLINE __mmask16 lanes_left(size_t left) {
    return (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1u);
}

/* Rows of x in one tile at most: 16 sums, 8 lines of weights, temporaries. */
#define TILE_ROWS_MAX 16

/* Weights that are used only a few times each are prefetched this far ahead. Intel and Zen 4 get
 * them first into the L2 cache, then into L1: L1 has few open requests (16), and a kernel that
 * computes long enough between its requests leaves memory idle. With eight rows of Q8_0, a core of
 * Sapphire Rapids reads 40 % more by both than by L1 requests alone. Zen 5 does best with one
 * request for L1, far ahead: decoding SmolLM2's shape on two threads was 21 % (Q4R), 0 to 9 %
 * (Q4_1) and 12 % (8 bits) faster 8,192 bytes ahead than 2,048, and 6 to 12 % faster than 16,384.
 * One row gains another 0 to 3 % at 6,144 (8 bits 3 to 4 %), two to four rows lose about 2 %. */
#define PREFETCH_BYTES    2048
#define PREFETCH_FAR      8192
#define PREFETCH_ZEN5_ONE 6144 /* one row */

AVX512_INLINE bool is_zen5(void) { /* or later; Zen 4 is family 19h */
    return __builtin_cpu_is("amd") && !__builtin_cpu_is("amdfam19h");
}

/* `rows`: that the line is multiplied with. */
AVX512_INLINE void fetch_ahead(const void *line, const int rows) {
    if (is_zen5()) {
        const int ahead = rows == 1 ? PREFETCH_ZEN5_ONE : PREFETCH_FAR;
        _mm_prefetch((const char *)line + ahead, _MM_HINT_T0);
    } else {
        _mm_prefetch((const char *)line + PREFETCH_FAR, _MM_HINT_T1);
        _mm_prefetch((const char *)line + PREFETCH_BYTES, _MM_HINT_T0);
    }
}

/* Whether products of `rows` rows prefetch weights at all. Zen 4 (family 19h) does better with its
 * own prefetchers where rows compute little, up to `enough` rows: one thread reads 22 to 24 GB/s
 * without requests and 18 with them (one row of Q4_1 or Q4R). Zen 5 reads 27 % more with them
 * (Q4R, one thread), and Sapphire Rapids gains, too. */
AVX512_INLINE bool fetch_wanted(const int rows, const int enough) {
    return rows > enough || !__builtin_cpu_is("amdfam19h");
}

AVX512_INLINE __m512i load_line(const void *at) {
    return _mm512_load_si512(at);
}

/* sum + Σ line · (four numbers of a row of x, the same for all lanes). The compilers do not put the
 * broadcast into the instruction by themselves, and two are slower by 4 %. */
AVX512_INLINE __m512i dot_four(__m512i sum, __m512i line, const int8_t *four) {
    typedef int32_t any_int32 __attribute__((may_alias, aligned(1)));
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(line), "m"(*(const any_int32 *)(const void *)four));
    return sum;
}

/* Zen 5 does two loads a cycle, as many as products, and every dot_four is one of either, so that
 * scales, sums and lines come on top. Shuffles run beside both: the last rows of a tile are loaded
 * 16 numbers at a time and each four spread by a shuffle. Of eight rows of Q4_0 that left 42 of 44
 * cycles per 32 k in a loop of these instructions; more rows by shuffles are slower again. On Intel
 * shuffles would take the place of products. */
#define SHUFFLE_ROWS_MAX 8 /* larger tiles have registers for nothing else */

AVX512_INLINE bool shuffles_wanted(size_t rows) {
    return rows >= 3 && rows <= SHUFFLE_ROWS_MAX && is_zen5();
}

/* Of `rows` rows, how many by shuffles. */
AVX512_INLINE int shuffled_rows(const bool shuffle, const int rows) {
    return !shuffle || rows < 3 ? 0 : rows < 5 ? 1 : 2;
}

/* Number `index` of four times four, in all lanes of 32 bits. */
AVX512_INLINE __m512i spread_four(__m512i sixteen, const int index) {
    switch (index) {
    case 0:
        return _mm512_shuffle_epi32(sixteen, 0x00);
    case 1:
        return _mm512_shuffle_epi32(sixteen, 0x55);
    case 2:
        return _mm512_shuffle_epi32(sixteen, 0xaa);
    default:
        return _mm512_shuffle_epi32(sixteen, 0xff);
    }
}

/* Four lines, 16 k, against rows [from, to), the last `shuffled` by shuffles. `number`: of row 0,
 * rows are PANEL_UNIT apart. Line after line, so that no product waits for the one before it. */
AVX512_INLINE void dot_quad(const int from, const int to, const int shuffled, const __m512i *line,
                            const int8_t *number, __m512i *total) {
    __m512i sixteen[2];
    for (int row = 0; row < shuffled; row++) {
        const int8_t *at = number + (to - shuffled + row) * PANEL_UNIT;
        sixteen[row] = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)at));
        __asm__("" : "+v"(sixteen[row])); /* gcc would load every four by itself */
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
#pragma GCC unroll 16
        for (int row = from; row < to - shuffled; row++)
            total[row] = dot_four(total[row], line[i], number + row * PANEL_UNIT + 4 * i);
        for (int row = 0; row < shuffled; row++) {
            __m512i *sum = &total[to - shuffled + row];
            *sum = _mm512_dpbusd_epi32(*sum, line[i], spread_four(sixteen[row], i));
        }
    }
}

/* 16 f16 as floats. */
AVX512_INLINE __m512 load_halves(const uint8_t *at) {
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)at));
}

/* 16 unsigned bytes as floats. */
AVX512_INLINE __m512 load_bytes(const uint8_t *at) {
    __m128i bytes = _mm_load_si128((const __m128i *)(const void *)at);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
}

#endif
