/* Products with 4-bit codebooks: IQ4_NL, IQ4_XS, MXFP4. The codebook, with its zero point added so
 * that its bytes are unsigned, is one vpshufb. */
#include "device/cpu/avx512/a8.h"
#include "device/cpu/avx512/nibbles.h"

#define UNIT_BYTES 256 /* 4 nibble lines */
#define ZERO       128

AVX512_INLINE void read_codes(const uint8_t *at, const int8_t codebook[16], __m512i out[8]) {
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)codebook);
    __m512i table = _mm512_broadcast_i32x4(_mm_xor_si128(codes, _mm_set1_epi8((char)ZERO)));
    read_nibbles(at, out);
#pragma GCC unroll 8
    for (int line = 0; line < 8; line++)
        out[line] = _mm512_shuffle_epi8(table, out[line]);
}

/* Head: two scales of 16 rows. */
AVX512_INLINE void read_iq4_nl(const uint8_t *group, size_t unit, a8_unit *out) {
    read_codes(group + 64 + unit * UNIT_BYTES, codebook_iq4, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
}

/* Head: two scales as bf16. */
AVX512_INLINE void read_mxfp4(const uint8_t *group, size_t unit, a8_unit *out) {
    read_codes(group + 64 + unit * UNIT_BYTES, codebook_mxfp4, out->line);
    __m256i brain = _mm256_load_si256((const __m256i *)(const void *)(group + 32 * unit));
    out->scale[0] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(brain), 16));
}

/* Super-blocks. Head: a line with d, then 8 × 16 signed scales. */
AVX512_INLINE void read_iq4_xs(const uint8_t *group, size_t unit, a8_unit *out) {
    read_codes(group + 192 + unit * UNIT_BYTES, codebook_iq4, out->line);
    __m128i scales = _mm_load_si128((const __m128i *)(const void *)(group + 64 + 16 * unit));
    out->scale[0] =
        _mm512_mul_ps(load_halves(group), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales)));
}

/* ---- IQ4_NL ---- */

static const a8_kind kind_iq4_nl = {2, 64 + 2 * UNIT_BYTES, ZERO, false, false, read_iq4_nl};

static void tile_iq4_nl(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                        size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_iq4_nl, product, panel, row, rows, sum);
}

static void unpack_iq4_nl(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_iq4_nl, panel, units, out);
}

void linear_avx512_iq4_nl(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_iq4_nl, tile_iq4_nl, unpack_iq4_nl, call, first, last, scratch);
}

/* ---- MXFP4 ---- */

static const a8_kind kind_mxfp4 = {2, 64 + 2 * UNIT_BYTES, ZERO, false, false, read_mxfp4};

static void tile_mxfp4(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                       size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_mxfp4, product, panel, row, rows, sum);
}

static void unpack_mxfp4(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_mxfp4, panel, units, out);
}

void linear_avx512_mxfp4(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_mxfp4, tile_mxfp4, unpack_mxfp4, call, first, last, scratch);
}

/* ---- IQ4_XS ---- */

static const a8_kind kind_iq4_xs = {8, 192 + 8 * UNIT_BYTES, ZERO, false, false, read_iq4_xs};

static void tile_iq4_xs(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                        size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_iq4_xs, product, panel, row, rows, sum);
}

static void unpack_iq4_xs(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_iq4_xs, panel, units, out);
}

void linear_avx512_iq4_xs(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_iq4_xs, tile_iq4_xs, unpack_iq4_xs, call, first, last, scratch);
}
