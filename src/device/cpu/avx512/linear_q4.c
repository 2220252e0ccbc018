/* Products with 4 bits in blocks of 32 and 64: Q4_0, Q4_1, Q4B64, Q4M64. */
#include "device/cpu/avx512/a8.h"
#include "device/cpu/avx512/nibbles.h"

#define UNIT_BYTES 256 /* 4 nibble lines */

/* Head: two scales of 16 rows. */
AVX512_INLINE void read_q4_0(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + 64 + unit * UNIT_BYTES, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
}

/* Head: two scales, two minima. */
AVX512_INLINE void read_q4_1(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + 128 + unit * UNIT_BYTES, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
    out->minimum[0] = load_halves(group + 64 + 32 * unit);
}

/* Head: two scales of 64 k each. */
AVX512_INLINE void read_q4b64(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + 64 + unit * UNIT_BYTES, out->line);
    out->scale[0] = load_halves(group + 32 * (unit / 2));
}

/* Head: scale and minimum of 64 k. */
AVX512_INLINE void read_q4m64(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + 64 + unit * UNIT_BYTES, out->line);
    out->scale[0] = load_halves(group);
    out->minimum[0] = load_halves(group + 32);
}

/* ---- Q4_0 ---- */

static const a8_kind kind_q4_0 = {2, 64 + 2 * UNIT_BYTES, 8, false, false, read_q4_0};

static void tile_q4_0(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                      size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q4_0, product, panel, row, rows, sum);
}

static void unpack_q4_0(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q4_0, panel, units, out);
}

void linear_avx512_q4_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q4_0, tile_q4_0, unpack_q4_0, call, first, last, scratch);
}

/* ---- Q4_1 ---- */

static const a8_kind kind_q4_1 = {2, 128 + 2 * UNIT_BYTES, 0, false, true, read_q4_1};

static void tile_q4_1(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                      size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q4_1, product, panel, row, rows, sum);
}

static void unpack_q4_1(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q4_1, panel, units, out);
}

void linear_avx512_q4_1(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q4_1, tile_q4_1, unpack_q4_1, call, first, last, scratch);
}

/* ---- Q4B64 ---- */

static const a8_kind kind_q4b64 = {4, 64 + 4 * UNIT_BYTES, 8, false, false, read_q4b64};

static void tile_q4b64(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                       size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q4b64, product, panel, row, rows, sum);
}

static void unpack_q4b64(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q4b64, panel, units, out);
}

void linear_avx512_q4b64(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q4b64, tile_q4b64, unpack_q4b64, call, first, last, scratch);
}

/* ---- Q4M64 ---- */

static const a8_kind kind_q4m64 = {2, 64 + 2 * UNIT_BYTES, 0, false, true, read_q4m64};

static void tile_q4m64(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                       size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    a8_product_tile(&kind_q4m64, product, panel, row, rows, sum);
}

static void unpack_q4m64(const uint8_t *panel, size_t units, uint8_t *out) {
    a8_unpack(&kind_q4m64, panel, units, out);
}

void linear_avx512_q4m64(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_linear(&kind_q4m64, tile_q4m64, unpack_q4m64, call, first, last, scratch);
}
