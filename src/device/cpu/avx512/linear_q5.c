/* Products with 5 bits in blocks of 32: Q5_0, Q5_1. */
#include "device/cpu/avx512/a8.h"
#include "device/cpu/avx512/nibbles.h"

#define UNIT_BYTES 320 /* 4 nibble lines, 1 bit line */

/* Head: two scales of 16 rows. */
AVX512_INLINE void read_q5_0(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles_bits(group + 64 + unit * UNIT_BYTES, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
}

/* Head: two scales, two minima. */
AVX512_INLINE void read_q5_1(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles_bits(group + 128 + unit * UNIT_BYTES, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
    out->minimum[0] = load_halves(group + 64 + 32 * unit);
}

/* ---- Q5_0 ---- */

static const a8_kind kind_q5_0 = {2, 64 + 2 * UNIT_BYTES, 16, false, false, read_q5_0};

static void tile_q5_0(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                      size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q5_0, product, panel, row, rows, sum);
}

static void unpack_q5_0(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q5_0, panel, units, out);
}

void linear_avx512_q5_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q5_0, tile_q5_0, unpack_q5_0, call, first, last, scratch);
}

/* ---- Q5_1 ---- */

static const a8_kind kind_q5_1 = {2, 128 + 2 * UNIT_BYTES, 0, false, true, read_q5_1};

static void tile_q5_1(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                      size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q5_1, product, panel, row, rows, sum);
}

static void unpack_q5_1(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q5_1, panel, units, out);
}

void linear_avx512_q5_1(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q5_1, tile_q5_1, unpack_q5_1, call, first, last, scratch);
}
