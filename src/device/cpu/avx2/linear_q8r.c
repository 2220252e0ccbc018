/* Q8R: 8 bit, rotated, one scale per row: the halves of adapters. x is what Q4R reads (A8R), one
 * float operation per 256 k.
 *
 * Numbers of both sides need all of int8, so they are multiplied as words (vpmaddwd, exact; 256 k ·
 * 127 · 127 = 4.1e6): unpacked pieces for many rows, in registers for up to four, as linear_word.c.
 * Signs moved to x (vpsignb) and bytes multiplied take as many operations.
 *
 * Few rows of short k (B of an adapter: k is the rank) go without the walk of linear.c, whose parts
 * cost more there than the products: a panel is read once, its sums go to the outputs directly.
 */
#include "device/cpu/avx2/words.h"

#define SHORT_K     64
#define SHORT_ROWS  8
#define SHORT_AHEAD 4096

/* ---- x ---- */

static void prepare(const activation_view *x, size_t row, size_t piece, void *record) {
    word_record *out = record;
    const int8_t *number = x->number + row * x->stride + piece * PIECE_K;
    size_t units = piece_units(x->k - piece * PIECE_K);
    for (size_t i = 0; i < units * PANEL_UNIT; i += 16)
        store_bytes(out->number + i, word_order(widen(number + i)));
    out->scale[0] = x->scale[row * x->scale_stride + piece];
}

/* ---- Weights ---- */

/* Lines of a piece that has `k` left. */
ALWAYS_INLINE size_t piece_lines(size_t k) {
    return k >= PIECE_K ? PIECE_K / 4 : (k + Q4R_SUB - 1) / Q4R_SUB * (Q4R_SUB / 4);
}

static void unpack(const uint8_t *source, size_t k, size_t ahead, void *piece) {
    word_piece *out = piece;
    size_t lines = piece_lines(k);
    for (size_t i = 0; i < lines; i += 4)
        unpack_byte_lines(source + i * PANEL_LINE_BYTES, ahead, 4, &out->line[2 * i]);
}

/* ---- Products ---- */

ALWAYS_INLINE void add_sums(const word_sums *wide, const word_record *x, float *sums,
                            const int rows) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            float *f = sums + r * QUANT_PANEL_ROWS + 8 * h;
            _mm256_store_ps(f, _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide->half[r][h]),
                                               _mm256_set1_ps(x[r].scale[0]), _mm256_load_ps(f)));
        }
}

ALWAYS_INLINE void product_rows(const word_piece *w, const word_record *x, size_t k, float *sums,
                                const int rows) {
    size_t lines = piece_lines(k);
    word_sums wide;
    for (int r = 0; r < rows; r++)
        wide.half[r][0] = wide.half[r][1] = _mm256_setzero_si256();
    for (size_t begin = 0; begin < 2 * lines; begin += 8)
#pragma GCC unroll 8
        for (size_t i = begin; i < begin + 8; i++) {
            __m256i low = load_bytes(w->line[i]);
            __m256i high = load_bytes(w->line[i] + 16);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                __m256i two = broadcast4(x[r].number + 2 * i);
                __m256i *sum = wide.half[r];
                sum[0] = add_words(sum[0], low, two);
                sum[1] = add_words(sum[1], high, two);
            }
        }
    add_sums(&wide, x, sums, rows);
}

static void product(const void *w, const void *x, size_t k, float *sums,
                    size_t rows){WITH_COUNT_4(rows, count, product_rows(w, x, k, sums, count))}

/* Up to four rows: words stay in registers. */
ALWAYS_INLINE void sum_lines(const uint8_t *source, size_t lines, size_t ahead,
                             const word_record *x, word_sums *wide, const int rows) {
    for (int r = 0; r < rows; r++)
        wide->half[r][0] = wide->half[r][1] = _mm256_setzero_si256();
    for (size_t begin = 0; begin < lines; begin += 4) {
        fetch_lines(source + begin * PANEL_LINE_BYTES, ahead, 4);
#pragma GCC unroll 4
        for (size_t i = begin; i < begin + 4; i++)
            few_line(source + i * PANEL_LINE_BYTES, x, 4 * i, wide, rows);
    }
}

ALWAYS_INLINE void few_rows(const uint8_t *source, const word_record *x, size_t k, size_t ahead,
                            float *sums, const int rows) {
    word_sums wide;
    sum_lines(source, piece_lines(k), ahead, x, &wide, rows);
    add_sums(&wide, x, sums, rows);
}

static void few(const uint8_t *source, const void *x, size_t k, size_t ahead, void *piece,
                float *sums, size_t rows) {
    (void)piece;
    WITH_COUNT_4(rows, count, few_rows(source, x, k, ahead, sums, count))
}

/* ---- Short k ---- */

ALWAYS_INLINE void short_end(const linear_call *call, __m256 y, float *out) {
    if (call->end == LINEAR_ADD)
        y = _mm256_fmadd_ps(y, _mm256_set1_ps(call->add_scale), _mm256_loadu_ps(out));
    _mm256_storeu_ps(out, y);
}

/* A whole panel and up to four rows; records are of 256 k, of which the first `lines` lines are
 * there. */
ALWAYS_INLINE void short_panel(const linear_call *call, const uint8_t *panel, size_t lines,
                               const word_record *x, float *out, const int rows) {
    word_sums wide;
    sum_lines(panel, lines, SHORT_AHEAD, x, &wide, rows);
    const float *scale = (const float *)(const void *)(panel + lines * PANEL_LINE_BYTES);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 f =
                _mm256_mul_ps(_mm256_cvtepi32_ps(wide.half[r][h]), _mm256_set1_ps(x[r].scale[0]));
            short_end(call, _mm256_mul_ps(f, _mm256_load_ps(scale + 8 * h)),
                      out + (size_t)r * call->out_stride + 8 * h);
        }
}

static void run_short(const linear_call *call, size_t first, size_t last) {
    size_t lines = piece_lines(call->weight->k), rows = call->x->rows;
    word_record x[SHORT_ROWS];
    for (size_t row = 0; row < rows; row++)
        prepare(call->x, row, 0, &x[row]);
    for (size_t panel = first; panel < last; panel++) {
        const uint8_t *data = call->weight->data + panel * (lines + 1) * PANEL_LINE_BYTES;
        float *out = call->out + panel * QUANT_PANEL_ROWS;
        size_t row = 0;
        for (; row + TILE_ROWS <= rows; row += TILE_ROWS)
            short_panel(call, data, lines, x + row, out + row * call->out_stride, TILE_ROWS);
        for (; row < rows; row++)
            short_panel(call, data, lines, x + row, out + row * call->out_stride, 1);
    }
}

void LINEAR_NAME(q8r)(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    static const linear_family family = {.packed_bytes = 64 * PANEL_LINE_BYTES,
                                         .record_bytes = sizeof(word_record),
                                         .chunk = WORD_CHUNK,
                                         .row_scales = true,
                                         .prepare = prepare,
                                         .unpack = unpack,
                                         .product = product,
                                         .few = few,
                                         .few_rows = TILE_ROWS};
    size_t whole =
        call->weight->rows / QUANT_PANEL_ROWS; /* panels without rows that are not there */
    if (call->weight->k > SHORT_K || call->x->rows > SHORT_ROWS || call->bias != NULL) {
        linear_pieces(&family, call, first, last, scratch);
        return;
    }
    run_short(call, first, last < whole ? last : whole);
    if (last > whole)
        linear_pieces(&family, call, first > whole ? first : whole, last, scratch);
}
