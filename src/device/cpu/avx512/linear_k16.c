/* Products with super-blocks of 256 k and blocks of 16: Q2_K, Q3_K, Q6_K. Head: a line with d (and
 * dmin), 16 × 16 scales. */
#include "device/cpu/avx512/a8.h"
#include "device/cpu/avx512/nibbles.h"

#define HEAD_BYTES    320
#define UNIT_BYTES_2K 128 /* 2 two-bit lines */
#define UNIT_BYTES_3K 192 /* 2 two-bit lines, a bit line */
#define UNIT_BYTES_6K 384 /* 4 nibble lines, 2 two-bit lines */

AVX512_INLINE void read_signed_scales(const uint8_t *group, size_t unit, a8_unit *out) {
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *at = group + 64 + 16 * (2 * unit + half);
        __m128i scales = _mm_load_si128((const __m128i *)(const void *)at);
        out->scale[half] =
            _mm512_mul_ps(load_halves(group), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales)));
    }
}

/* Scale in the low nibble, minimum in the high one. */
AVX512_INLINE void read_q2_k(const uint8_t *group, size_t unit, a8_unit *out) {
    const uint8_t *lines = group + HEAD_BYTES + unit * UNIT_BYTES_2K;
    read_pair_line(lines, out->line);
    read_pair_line(lines + PANEL_LINE_BYTES, out->line + 4);
    __m512 d = load_halves(group), dmin = load_halves(group + 32);
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *at = group + 64 + 16 * (2 * unit + half);
        __m512i both = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)at));
        __m512i scale = _mm512_and_si512(both, _mm512_set1_epi32(15));
        out->scale[half] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(scale));
        __m512 minimum = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4)));
        out->minimum[half] = _mm512_xor_ps(minimum, _mm512_set1_ps(-0.0f));
    }
}

AVX512_INLINE void read_q3_k(const uint8_t *group, size_t unit, a8_unit *out) {
    const uint8_t *at = group + HEAD_BYTES + unit * UNIT_BYTES_3K;
    read_pair_line(at, out->line);
    read_pair_line(at + PANEL_LINE_BYTES, out->line + 4);
    add_bits(at + 2 * PANEL_LINE_BYTES, 4, out->line);
    read_signed_scales(group, unit, out);
}

AVX512_INLINE void read_q6_k(const uint8_t *group, size_t unit, a8_unit *out) {
    const uint8_t *at = group + HEAD_BYTES + unit * UNIT_BYTES_6K;
    read_nibbles(at, out->line);
    add_pair_line(at + 4 * PANEL_LINE_BYTES, out->line);
    add_pair_line(at + 5 * PANEL_LINE_BYTES, out->line + 4);
    read_signed_scales(group, unit, out);
}

/* ---- Q2_K ---- */

static const a8_kind kind_q2_k = {8, HEAD_BYTES + 8 * UNIT_BYTES_2K, 0, true, true, read_q2_k};

static void tile_q2_k(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                      size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q2_k, product, panel, row, rows, sum);
}

static void unpack_q2_k(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q2_k, panel, units, out);
}

void linear_avx512_q2_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q2_k, tile_q2_k, unpack_q2_k, call, first, last, scratch);
}

/* ---- Q3_K ---- */

static const a8_kind kind_q3_k = {8, HEAD_BYTES + 8 * UNIT_BYTES_3K, 4, true, false, read_q3_k};

static void tile_q3_k(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                      size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q3_k, product, panel, row, rows, sum);
}

static void unpack_q3_k(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q3_k, panel, units, out);
}

void linear_avx512_q3_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q3_k, tile_q3_k, unpack_q3_k, call, first, last, scratch);
}

/* ---- Q6_K ---- */

static const a8_kind kind_q6_k = {8, HEAD_BYTES + 8 * UNIT_BYTES_6K, 32, true, false, read_q6_k};

static void tile_q6_k(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                      size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q6_k, product, panel, row, rows, sum);
}

static void unpack_q6_k(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q6_k, panel, units, out);
}

void linear_avx512_q6_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q6_k, tile_q6_k, unpack_q6_k, call, first, last, scratch);
}
