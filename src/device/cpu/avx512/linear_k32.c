/* Products with super-blocks of 256 k and blocks of 32: Q4_K, Q5_K. Head: a line with d and dmin,
 * 8 × 16 scales, 8 × 16 minima. */
#include "device/cpu/avx512/a8.h"
#include "device/cpu/avx512/nibbles.h"

#define HEAD_BYTES    320
#define UNIT_BYTES_4K 256 /* 4 nibble lines */
#define UNIT_BYTES_5K 320 /* and a bit line */

AVX512_INLINE void read_scale_minimum(const uint8_t *group, size_t unit, a8_unit *out) {
    out->scale[0] = _mm512_mul_ps(load_halves(group), load_bytes(group + 64 + 16 * unit));
    __m512 minimum = _mm512_mul_ps(load_halves(group + 32), load_bytes(group + 192 + 16 * unit));
    out->minimum[0] = _mm512_xor_ps(minimum, _mm512_set1_ps(-0.0f));
}

AVX512_INLINE void read_q4_k(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + HEAD_BYTES + unit * UNIT_BYTES_4K, out->line);
    read_scale_minimum(group, unit, out);
}

AVX512_INLINE void read_q5_k(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles_bits(group + HEAD_BYTES + unit * UNIT_BYTES_5K, out->line);
    read_scale_minimum(group, unit, out);
}

/* ---- Q4_K ---- */

static const a8_kind kind_q4_k = {8, HEAD_BYTES + 8 * UNIT_BYTES_4K, 0, false, true, read_q4_k};

static void tile_q4_k(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                      size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q4_k, product, panel, row, rows, sum);
}

static void unpack_q4_k(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q4_k, panel, units, out);
}

void linear_avx512_q4_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q4_k, tile_q4_k, unpack_q4_k, call, first, last, scratch);
}

/* ---- Q5_K ---- */

static const a8_kind kind_q5_k = {8, HEAD_BYTES + 8 * UNIT_BYTES_5K, 0, false, true, read_q5_k};

static void tile_q5_k(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                      size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q5_k, product, panel, row, rows, sum);
}

static void unpack_q5_k(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q5_k, panel, units, out);
}

void linear_avx512_q5_k(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q5_k, tile_q5_k, unpack_q5_k, call, first, last, scratch);
}
