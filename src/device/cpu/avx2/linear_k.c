/* Super-blocks of 256 k: Q4_K, Q5_K (blocks of 32 with minima), Q6_K, Q3_K (blocks of 16), Q2_K
 * (blocks of 16 with minima). Layouts: panels.h; product: product_bytes.h. Depth: 8 for 4 bit, 4
 * for 5 bit; blocks of 16 have four lines: 2 for 6 bit (2 · 63 · 127 · 2 = 32004), 4 for 3 and 2.
 * Scales d · s and minima −(dmin · m) are rounded once, as panel_unit has them.
 *
 * Two Zen 4 cores, bench_linear avx2 q4_k,q6_k 5632 2048 1,2,4,8,16,512 2: one row 34 and 35 GB/s;
 * 512 rows 466 and 344 GOPS.
 */
#include "device/cpu/avx2/product_bytes.h"
#include "device/cpu/avx2/unpack_lines.h"

#define HEAD_LINES 5

typedef struct super_scales {
    __m256 d[2];
    __m256 dmin[2]; /* negative */
} super_scales;

ALWAYS_INLINE super_scales load_super(const uint8_t *head) {
    super_scales super;
    const __m128i *halves = (const __m128i *)(const void *)head;
    for (int i = 0; i < 2; i++) {
        super.d[i] = _mm256_cvtph_ps(_mm_load_si128(halves + i));
        super.dmin[i] = _mm256_cvtph_ps(_mm_load_si128(halves + 2 + i));
        super.dmin[i] = _mm256_xor_ps(super.dmin[i], _mm256_set1_ps(-0.0f));
    }
    return super;
}

/* 16 bytes, signed or not, times 16 floats. */
ALWAYS_INLINE void scale_bytes(__m128i bytes, const __m256 *by, const bool is_signed, float *out) {
    for (int i = 0; i < 2; i++) {
        __m256i numbers = is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
        _mm256_store_ps(out + 8 * i, _mm256_mul_ps(by[i], _mm256_cvtepi32_ps(numbers)));
        bytes = _mm_srli_si128(bytes, 8);
    }
}

ALWAYS_INLINE __m128i load16(const uint8_t *source) {
    return _mm_load_si128((const __m128i *)(const void *)source);
}

/* Blocks of 32 with scales and minima in bytes of their own. */
ALWAYS_INLINE void unpack_scales32(const uint8_t *head, size_t ahead, byte_piece *out) {
    super_scales super = load_super(head);
    fetch_lines(head, ahead, HEAD_LINES);
    for (size_t block = 0; block < PIECE_UNITS; block++) {
        const uint8_t *s = head + PANEL_LINE_BYTES + block * QUANT_PANEL_ROWS;
        scale_bytes(load16(s), super.d, false, out->scale[block]);
        scale_bytes(load16(s + 2 * PANEL_LINE_BYTES), super.dmin, false, out->minimum[block]);
    }
}

/* Blocks of 16 with signed scales. */
ALWAYS_INLINE void unpack_scales16(const uint8_t *head, size_t ahead, byte_piece *out) {
    super_scales super = load_super(head);
    fetch_lines(head, ahead, HEAD_LINES);
    for (size_t block = 0; block < 2 * PIECE_UNITS; block++)
        scale_bytes(load16(head + PANEL_LINE_BYTES + block * QUANT_PANEL_ROWS), super.d, true,
                    out->scale[block]);
}

static void unpack_q4_k(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    byte_piece *out = piece;
    (void)k; /* a multiple of 256 */
    unpack_scales32(source, ahead, out);
    source += HEAD_LINES * PANEL_LINE_BYTES;
    for (size_t unit = 0; unit < PIECE_UNITS; unit++, source += NIBBLE_UNIT_BYTES)
        unpack_nibbles(source, ahead, out->line[8 * unit]);
}

static void few_q4_k(const uint8_t *source, const void *x, size_t k, size_t ahead, void *piece,
                     float *sums, size_t rows) {
    unpack_scales32(source, ahead, piece);
    few_nibbles(source, x, k, ahead, piece, sums, rows, (nibble_layout){PIECE_UNITS, HEAD_LINES},
                (byte_shape){.minimum = true});
}

static void unpack_q5_k(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    byte_piece *out = piece;
    (void)k;
    unpack_scales32(source, ahead, out);
    source += HEAD_LINES * PANEL_LINE_BYTES;
    for (size_t unit = 0; unit < PIECE_UNITS; unit++, source += 5 * PANEL_LINE_BYTES) {
        unpack_nibbles(source, ahead, out->line[8 * unit]);
        unpack_bits(source + NIBBLE_UNIT_BYTES, ahead, 16, out->line[8 * unit]);
    }
}

static void unpack_q6_k(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    byte_piece *out = piece;
    (void)k;
    unpack_scales16(source, ahead, out);
    source += HEAD_LINES * PANEL_LINE_BYTES;
    for (size_t unit = 0; unit < PIECE_UNITS; unit++, source += 6 * PANEL_LINE_BYTES)
        unpack_sixes(source, ahead, out->line[8 * unit]);
}

static void unpack_q3_k(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    byte_piece *out = piece;
    (void)k;
    unpack_scales16(source, ahead, out);
    source += HEAD_LINES * PANEL_LINE_BYTES;
    for (size_t unit = 0; unit < PIECE_UNITS; unit++, source += 3 * PANEL_LINE_BYTES) {
        unpack_pairs(source, ahead, out->line[8 * unit]);
        unpack_bits(source + PAIR_UNIT_BYTES, ahead, 4, out->line[8 * unit]);
    }
}

static void unpack_q2_k(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    byte_piece *out = piece;
    (void)k;
    super_scales super = load_super(source);
    fetch_lines(source, ahead, HEAD_LINES);
    for (size_t block = 0; block < 2 * PIECE_UNITS; block++) {
        __m128i both = load16(source + PANEL_LINE_BYTES + block * QUANT_PANEL_ROWS);
        __m128i nibble = _mm_set1_epi8(15);
        scale_bytes(_mm_and_si128(both, nibble), super.d, false, out->scale[block]);
        scale_bytes(_mm_and_si128(_mm_srli_epi16(both, 4), nibble), super.dmin, false,
                    out->minimum[block]);
    }
    source += HEAD_LINES * PANEL_LINE_BYTES;
    for (size_t unit = 0; unit < PIECE_UNITS; unit++, source += PAIR_UNIT_BYTES)
        unpack_pairs(source, ahead, out->line[8 * unit]);
}

/* Blocks of 32 and minima: no zero point. */
static void prepare32(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_bytes(x, row, piece, record, true, 0);
}
static void prepare_q6_k(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_bytes(x, row, piece, record, false, 32);
}
static void prepare_q3_k(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_bytes(x, row, piece, record, false, 4);
}
static void prepare_q2_k(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_bytes(x, row, piece, record, false, 0);
}

static void product_q6_k(const void *w, const void *x, size_t k, float *sums, size_t rows) {
    product_bytes_tile(w, x, k, sums, rows,
                       (byte_shape){.block_lines = 4, .depth = 2, .zero = true});
}
static void product_q3_k(const void *w, const void *x, size_t k, float *sums, size_t rows) {
    product_bytes_tile(w, x, k, sums, rows,
                       (byte_shape){.block_lines = 4, .depth = 4, .zero = true});
}
static void product_q2_k(const void *w, const void *x, size_t k, float *sums, size_t rows) {
    product_bytes_tile(w, x, k, sums, rows,
                       (byte_shape){.block_lines = 4, .depth = 4, .minimum = true});
}

#define PACKED_BYTES(unit_lines) ((HEAD_LINES + PIECE_UNITS * (unit_lines)) * PANEL_LINE_BYTES)

LINEAR_ENTRY(q4_k, .packed_bytes = PACKED_BYTES(4), BYTE_RECORDS, .prepare = prepare32,
             .unpack = unpack_q4_k, .product = product_nibble_minimum, .few = few_q4_k,
             .few_rows = FEW_ROWS)
LINEAR_ENTRY(q5_k, .packed_bytes = PACKED_BYTES(5), BYTE_RECORDS, .prepare = prepare32,
             .unpack = unpack_q5_k, .product = product_five_minimum)
LINEAR_ENTRY(q6_k, .packed_bytes = PACKED_BYTES(6), BYTE_RECORDS, .prepare = prepare_q6_k,
             .unpack = unpack_q6_k, .product = product_q6_k)
LINEAR_ENTRY(q3_k, .packed_bytes = PACKED_BYTES(3), BYTE_RECORDS, .prepare = prepare_q3_k,
             .unpack = unpack_q3_k, .product = product_q3_k)
LINEAR_ENTRY(q2_k, .packed_bytes = PACKED_BYTES(2), BYTE_RECORDS, .prepare = prepare_q2_k,
             .unpack = unpack_q2_k, .product = product_q2_k)
