/* Q4_0, Q4_1, Q4B64, Q4M64: 4 bit with f16 scales (and minima) per 32 or 64 k. Layouts: panels.h;
 * product: product_bytes.h with depth 8 (2 · 15 · 127 · 8 = 30480).
 */
#include "kernels/avx2/product_bytes.h"

#include "base/checked.h"

#define UNIT_BYTES (4 * PANEL_LINE_BYTES)

static const byte_shape shape_zero = {.block_lines = 8, .depth = 8, .zero = true};
static const byte_shape shape_minimum = {.block_lines = 8, .depth = 8, .minimum = true};

static void prepare(const activation_view *x, size_t row, size_t piece, void *record) {
    prepare_bytes(x, row, piece, record, true, 8);
}

/* Groups of `group_units` units behind a head of `head_lines` lines. Scale of unit u of a group: in
 * the head's 32-byte half `scale_half[u]`; minimum likewise (−1: none). */
typedef struct nibble_layout {
    size_t group_units;
    size_t head_lines;
    int8_t scale_half[4];
    int8_t minimum_half[4];
} nibble_layout;

ALWAYS_INLINE void unpack_groups(const uint8_t *source, size_t k, byte_piece *out,
                                 const nibble_layout layout) {
    size_t units = size_min((k + PANEL_UNIT - 1) / PANEL_UNIT, PIECE_UNITS);
    for (size_t begin = 0; begin < units; begin += layout.group_units) {
        const uint8_t *head = source;
        prefetch_packed(head);
        prefetch_packed(head + (layout.head_lines - 1) * PANEL_LINE_BYTES);
        source += layout.head_lines * PANEL_LINE_BYTES;
        for (size_t u = 0; u < layout.group_units && begin + u < units; u++) {
            size_t unit = begin + u;
            convert_halves(head + 32 * layout.scale_half[u], out->scale[unit]);
            if (layout.minimum_half[u] >= 0)
                convert_halves(head + 32 * layout.minimum_half[u], out->minimum[unit]);
            for (size_t line = 0; line < 4; line++)
                prefetch_packed(source + line * PANEL_LINE_BYTES);
            unpack_nibbles(source, out->line[8 * unit]);
            source += UNIT_BYTES;
        }
    }
}

static void unpack_q4_0(const uint8_t *source, size_t k, void *piece) {
    unpack_groups(source, k, piece, (nibble_layout){2, 1, {0, 1}, {-1, -1}});
}
static void unpack_q4_1(const uint8_t *source, size_t k, void *piece) {
    unpack_groups(source, k, piece, (nibble_layout){2, 2, {0, 1}, {2, 3}});
}
static void unpack_q4b64(const uint8_t *source, size_t k, void *piece) {
    unpack_groups(source, k, piece, (nibble_layout){4, 1, {0, 0, 1, 1}, {-1, -1, -1, -1}});
}
static void unpack_q4m64(const uint8_t *source, size_t k, void *piece) {
    unpack_groups(source, k, piece, (nibble_layout){2, 1, {0, 0}, {1, 1}});
}

static void zero1(const void *w, const void *x, size_t k, float *sums) {
    product_bytes(w, x, k, sums, 1, shape_zero);
}
static void zero2(const void *w, const void *x, size_t k, float *sums) {
    product_bytes(w, x, k, sums, 2, shape_zero);
}
static void zero3(const void *w, const void *x, size_t k, float *sums) {
    product_bytes(w, x, k, sums, 3, shape_zero);
}
static void zero4(const void *w, const void *x, size_t k, float *sums) {
    product_bytes(w, x, k, sums, 4, shape_zero);
}
static void minimum1(const void *w, const void *x, size_t k, float *sums) {
    product_bytes(w, x, k, sums, 1, shape_minimum);
}
static void minimum2(const void *w, const void *x, size_t k, float *sums) {
    product_bytes(w, x, k, sums, 2, shape_minimum);
}
static void minimum3(const void *w, const void *x, size_t k, float *sums) {
    product_bytes(w, x, k, sums, 3, shape_minimum);
}
static void minimum4(const void *w, const void *x, size_t k, float *sums) {
    product_bytes(w, x, k, sums, 4, shape_minimum);
}

void avx2_linear_q4_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    static const linear_family family = {.packed_bytes = 4 * PANEL_LINE_BYTES + 8 * UNIT_BYTES,
                                         .record_bytes = sizeof(byte_record),
                                         .chunk = BYTE_CHUNK,
                                         .prepare = prepare,
                                         .unpack = unpack_q4_0,
                                         .product = {zero1, zero2, zero3, zero4}};
    linear_pieces(&family, call, first, last, scratch);
}

void avx2_linear_q4_1(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    static const linear_family family = {.packed_bytes = 8 * PANEL_LINE_BYTES + 8 * UNIT_BYTES,
                                         .record_bytes = sizeof(byte_record),
                                         .chunk = BYTE_CHUNK,
                                         .prepare = prepare,
                                         .unpack = unpack_q4_1,
                                         .product = {minimum1, minimum2, minimum3, minimum4}};
    linear_pieces(&family, call, first, last, scratch);
}

void avx2_linear_q4b64(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    static const linear_family family = {.packed_bytes = 2 * PANEL_LINE_BYTES + 8 * UNIT_BYTES,
                                         .record_bytes = sizeof(byte_record),
                                         .chunk = BYTE_CHUNK,
                                         .prepare = prepare,
                                         .unpack = unpack_q4b64,
                                         .product = {zero1, zero2, zero3, zero4}};
    linear_pieces(&family, call, first, last, scratch);
}

void avx2_linear_q4m64(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    static const linear_family family = {.packed_bytes = 4 * PANEL_LINE_BYTES + 8 * UNIT_BYTES,
                                         .record_bytes = sizeof(byte_record),
                                         .chunk = BYTE_CHUNK,
                                         .prepare = prepare,
                                         .unpack = unpack_q4m64,
                                         .product = {minimum1, minimum2, minimum3, minimum4}};
    linear_pieces(&family, call, first, last, scratch);
}
