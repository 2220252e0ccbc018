/* Products of bfloat16 by vdpbf16ps, for processors that have it: the tiles of gemm.c, with a pair
 * of numbers in each lane, so twice the k at every step.
 *
 * For every lane the instruction adds the product of the odd numbers to the sum, rounds, adds the
 * product of the even ones and rounds again, to nearest. Numbers below 2^-126, given or computed,
 * count as zero. (So Intel's manual has it, and 2 · 10^7 random triples on Zen 5 agreed.)
 *
 * One Zen 5 core (peak of f32 270 GFLOPS) with operands in its caches: 533 to 538 GFLOPS for 512 k.
 * Whole products: avocet bench --kernels --op gemm. */
#include "device/cpu/avx512/vec16.h"

#define GEMM_ROWS   14
#define GEMM_STRIPS 2
#define GEMM_MULTIPLY(x, y, sum)                                                                   \
    _mm512_dpbf16_ps((sum), (__m512bh)_mm512_castps_si512(x), (__m512bh)_mm512_castps_si512(y))
#include "device/cpu/avx512/avx512_int.h"
#include "device/cpu/lanes/gemm.h"

static void bf16_tile(const gemm_tile *t) {
    gemm_tile_of_14(t);
}

static void bf16_pairs_row(const float *from, size_t k, float *to) {
    for (; k >= 32; k -= 32, from += 32, to += 16)
        _mm512_storeu_si512(
            to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from)));
    if (k > 0) {
        vec16 low = v_load_part(from, k < 16 ? k : 16);
        vec16 high = k > 16 ? v_load_part(from + 16, k - 16) : v_zero();
        _mm512_mask_storeu_epi32(to, first_lanes((k + 1) / 2),
                                 (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}

static void bf16_pairs_strip(const float *from, size_t k, float *to) {
    const __m512i join =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (size_t i = 0; i < k; i += 2, from += 2 * LANES, to += LANES) {
        vec16 odd = i + 1 < k ? v_load(from + LANES) : v_zero();
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, v_load(from));
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(join, both));
    }
}

void avx512_bf16_gemm(gemm_kernels *kernels) {
    kernels->tile_bf16 = bf16_tile;
    kernels->pairs_row = bf16_pairs_row;
    kernels->pairs_strip = bf16_pairs_strip;
}
