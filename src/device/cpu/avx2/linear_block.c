/* Blocks of 32 or 64 k with f16 scales (and minima): Q4_0, Q4_1, Q4B64, Q4M64, Q5_0, Q5_1, and
 * MXFP4. Layouts: panels.h; product: product_bytes.h. Depth: 8 for 4 bit, 4 for 5 bit (2 · 31 ·
 * 127 · 4 = 31496) and for MXFP4, whose whole numbers −12 … 12 become 0 … 24 with zero point 12.
 *
 * Two Zen 4 cores, bench_linear avx2 q4_0,q4_1 5632 2048 1,2,4,8,16,512 2: one row 32 GB/s; 2, 4,
 * 8, 16 rows in 1.11, 1.28, 2.26, 4.04 (Q4_0) and 1.10, 1.27, 2.13, 3.70 (Q4_1) times its time; 512
 * rows 482 and 470 GOPS.
 */
#include "device/cpu/avx2/product_bytes.h"
#include "device/cpu/avx2/unpack_lines.h"

#define MXFP4_ZERO 12

typedef enum unit_kind { UNIT_NIBBLE, UNIT_FIVE, UNIT_MXFP4 } unit_kind;

/* Groups of `group_units` units behind a head of `head_lines` lines. The scales of unit u are the
 * head's 32 bytes number u >> shift, its minima (if any) lie `minimum_at` bytes behind. */
typedef struct block_layout {
    unit_kind kind;
    size_t group_units;
    size_t head_lines;
    size_t shift;
    size_t minimum_at;
} block_layout;

/* 16 bf16 as floats. */
ALWAYS_INLINE void convert_brains(const uint8_t *source, float *out) {
    for (int i = 0; i < 2; i++) {
        __m128i half = _mm_load_si128((const __m128i *)(const void *)source + i);
        store_bytes(out + 8 * i, _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    }
}

ALWAYS_INLINE size_t unit_bytes(unit_kind kind) {
    return kind == UNIT_FIVE ? 5 * PANEL_LINE_BYTES : NIBBLE_UNIT_BYTES;
}

ALWAYS_INLINE void unpack_unit(const uint8_t *source, size_t ahead, const unit_kind kind,
                               uint8_t *out) {
    if (kind == UNIT_MXFP4) {
        __m256i table = _mm256_add_epi8(table_of(codebook_mxfp4), _mm256_set1_epi8(MXFP4_ZERO));
        unpack_codes(source, ahead, table, out);
        return;
    }
    unpack_nibbles(source, ahead, out);
    if (kind == UNIT_FIVE)
        unpack_bits(source + NIBBLE_UNIT_BYTES, ahead, 16, out);
}

/* Scales and minima of a piece. */
ALWAYS_INLINE void unpack_heads(const uint8_t *source, size_t k, size_t ahead, byte_piece *out,
                                const block_layout layout) {
    size_t units = piece_units(k);
    for (size_t begin = 0; begin < units; begin += layout.group_units) {
        fetch_lines(source, ahead, layout.head_lines);
        for (size_t u = 0; u < layout.group_units && begin + u < units; u++) {
            const uint8_t *halves = source + 32 * (u >> layout.shift);
            if (layout.kind == UNIT_MXFP4)
                convert_brains(halves, out->scale[begin + u]);
            else
                convert_halves(halves, out->scale[begin + u]);
            if (layout.minimum_at != 0)
                convert_halves(halves + layout.minimum_at, out->minimum[begin + u]);
        }
        source +=
            layout.head_lines * PANEL_LINE_BYTES + layout.group_units * unit_bytes(layout.kind);
    }
}

ALWAYS_INLINE void unpack_groups(const uint8_t *source, size_t k, size_t ahead, byte_piece *out,
                                 const block_layout layout) {
    size_t units = piece_units(k);
    unpack_heads(source, k, ahead, out, layout);
    for (size_t unit = 0; unit < units; unit++, source += unit_bytes(layout.kind)) {
        if (unit % layout.group_units == 0)
            source += layout.head_lines * PANEL_LINE_BYTES;
        unpack_unit(source, ahead, layout.kind, out->line[8 * unit]);
    }
}

ALWAYS_INLINE void few_groups(const uint8_t *source, const void *x, size_t k, size_t ahead,
                              byte_piece *piece, float *sums, size_t rows,
                              const block_layout layout) {
    const bool minimum = layout.minimum_at != 0;
    unpack_heads(source, k, ahead, piece, layout);
    few_nibbles(source, x, k, ahead, piece, sums, rows,
                (nibble_layout){layout.group_units, layout.head_lines},
                (byte_shape){.zero = !minimum, .minimum = minimum});
}

/* Functions of a type, in which its layout is a constant. */
#define UNPACK(type, ...)                                                                          \
    static const block_layout layout_##type = {__VA_ARGS__};                                       \
    static void unpack_##type(const uint8_t *source, size_t k, size_t ahead, void *piece) {        \
        unpack_groups(source, k, ahead, piece, layout_##type);                                     \
    }
#define FEW(type)                                                                                  \
    static void few_##type(const uint8_t *source, const void *x, size_t k, size_t ahead,           \
                           void *piece, float *sums, size_t rows) {                                \
        few_groups(source, x, k, ahead, piece, sums, rows, layout_##type);                         \
    }

UNPACK(q4_0, UNIT_NIBBLE, 2, 1, 0, 0)
UNPACK(q4_1, UNIT_NIBBLE, 2, 2, 0, 64)
UNPACK(q4b64, UNIT_NIBBLE, 4, 1, 1, 0)
UNPACK(q4m64, UNIT_NIBBLE, 2, 1, 1, 32)
UNPACK(q5_0, UNIT_FIVE, 2, 1, 0, 0)
UNPACK(q5_1, UNIT_FIVE, 2, 2, 0, 64)
UNPACK(mxfp4, UNIT_MXFP4, 2, 1, 0, 0)
FEW(q4_0)
FEW(q4_1)
FEW(q4b64)
FEW(q4m64)

static void prepare_eight(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_bytes(x, row, piece, record, true, 8);
}
static void prepare_minimum(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_bytes(x, row, piece, record, true, 0);
}
static void prepare_sixteen(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_bytes(x, row, piece, record, true, 16);
}
static void prepare_mxfp4(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_bytes(x, row, piece, record, true, MXFP4_ZERO);
}

static void product_nibble_zero(const void *w, const void *x, size_t k, float *sums, size_t rows) {
    product_bytes_tile(w, x, k, sums, rows,
                       (byte_shape){.block_lines = 8, .depth = 8, .zero = true});
}
static void product_five_zero(const void *w, const void *x, size_t k, float *sums, size_t rows) {
    product_bytes_tile(w, x, k, sums, rows,
                       (byte_shape){.block_lines = 8, .depth = 4, .zero = true});
}

/* Lines of 256 k: heads of its groups, and its units. */
#define PACKED_BYTES(groups, head_lines, unit_lines)                                               \
    (((groups) * (head_lines) + PIECE_UNITS * (unit_lines)) * PANEL_LINE_BYTES)

LINEAR_ENTRY(q4_0, .packed_bytes = PACKED_BYTES(4, 1, 4), BYTE_RECORDS, .prepare = prepare_eight,
             .unpack = unpack_q4_0, .product = product_nibble_zero, .few = few_q4_0,
             .few_rows = FEW_ROWS)
LINEAR_ENTRY(q4_1, .packed_bytes = PACKED_BYTES(4, 2, 4), BYTE_RECORDS, .prepare = prepare_minimum,
             .unpack = unpack_q4_1, .product = product_nibble_minimum, .few = few_q4_1,
             .few_rows = FEW_ROWS)
LINEAR_ENTRY(q4b64, .packed_bytes = PACKED_BYTES(2, 1, 4), BYTE_RECORDS, .prepare = prepare_eight,
             .unpack = unpack_q4b64, .product = product_nibble_zero, .few = few_q4b64,
             .few_rows = FEW_ROWS)
LINEAR_ENTRY(q4m64, .packed_bytes = PACKED_BYTES(4, 1, 4), BYTE_RECORDS, .prepare = prepare_minimum,
             .unpack = unpack_q4m64, .product = product_nibble_minimum, .few = few_q4m64,
             .few_rows = FEW_ROWS)
LINEAR_ENTRY(q5_0, .packed_bytes = PACKED_BYTES(4, 1, 5), BYTE_RECORDS, .prepare = prepare_sixteen,
             .unpack = unpack_q5_0, .product = product_five_zero)
LINEAR_ENTRY(q5_1, .packed_bytes = PACKED_BYTES(4, 2, 5), BYTE_RECORDS, .prepare = prepare_minimum,
             .unpack = unpack_q5_1, .product = product_five_minimum)
LINEAR_ENTRY(mxfp4, .packed_bytes = PACKED_BYTES(4, 1, 4), BYTE_RECORDS, .prepare = prepare_mxfp4,
             .unpack = unpack_mxfp4, .product = product_five_zero)
