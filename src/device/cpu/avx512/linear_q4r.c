/* Products with Q4R (A8R): 256 k are summed in integers before a float is touched. Four ways to
 * the same integers:
 *
 *   up to 4 rows   numbers 0…15 against x per sub-block of 16 k, then one vpdpwssd by the
 *                  multiplier: the fewest operations per byte of weights
 *
 *   up to 14 rows  multiplier · (number − 8) + 128 as bytes in registers; the multiplier costs
 *                  nothing per row
 *
 *   15 and 16      the same bytes by tables (q4r_wide.c)
 *
 *   more           the same bytes, unpacked once for all rows
 *
 * One core: 57 GB/s of weights for 1 row, 374 GOPS for 8, 436 for 16, 432 for 512 (93 % of
 * vpdpbusd).
 */
#include "device/cpu/avx512/q4r.h"

static void tile_few(size_t count, const uint8_t *panel, size_t k, const q4r_rows *rows,
                     __m512 *sum) {
    WITH_COUNT_4(count, constant, q4r_tile(constant, Q4R_FEW, panel, NULL, k, rows, sum))
}

static void tile_fused(int compiled, const uint8_t *panel, size_t k, const q4r_rows *rows,
                       __m512 *sum) {
    WITH_COUNT_OF_5(compiled, 6, 8, 10, 12, 14, count,
                    q4r_tile(count, Q4R_FUSED, panel, NULL, k, rows, sum))
}

static void tile_unpacked(int compiled, const uint8_t *panel, const uint8_t *unpacked, size_t k,
                          const q4r_rows *rows, __m512 *sum) {
    WITH_COUNT_OF_5(compiled, 8, 10, 12, 14, 16, count,
                    q4r_tile(count, Q4R_UNPACKED, panel, unpacked, k, rows, sum))
}

static void q4r_product_tile(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                             size_t row, size_t rows, __m512 *sum) {
    const activation_view *x = product->call->x;
    int compiled = tile_compiled(rows);
    q4r_rows tile;
    /* All of them: a last chunk of few rows runs in the smallest tile that is compiled. */
    for (size_t i = 0; i < TILE_ROWS_MAX; i++) {
        size_t source = row + tile_row(i, rows);
        tile.number[i] = x->number + source * x->stride;
        tile.scale[i] = x->scale + source * x->scale_stride;
        tile.begin[i] =
            (const int32_t *)product->table + (source - product->chunk) * product->table_stride;
    }
    if (product->call->x->rows <= Q4R_FEW_ROWS)
        tile_few(rows, panel, x->k, &tile, sum);
    else if (unpacked != NULL)
        tile_unpacked(compiled, panel, unpacked, x->k, &tile, sum);
    else
        tile_fused(compiled, panel, x->k, &tile, sum);
}

static void q4r_unpack(const product *product, const uint8_t *panel, uint8_t *out) {
    const __m512i low = _mm512_set1_epi16(15);
    size_t k = product->call->weight->k;
    for (size_t begin = 0; begin < k; begin += Q4R_SUPER) {
        size_t subs = q4r_subs(k, begin);
        const uint8_t *lines = panel + q4r_lines_at(subs);
        for (size_t sub = 0; sub < subs; sub++, lines += SUB_BYTES) {
            __m128i shift = _mm_cvtsi32_si128(sub % 2 != 0 ? 4 : 0);
            __m512i magnitude =
                _mm512_and_si512(_mm512_srl_epi16(q4r_magnitudes(panel, sub), shift), low);
            __m512i line[4];
            q4r_prefetch(lines, SUB_BYTES);
            q4r_read_sub(lines, magnitude, q4r_signs(panel, sub), line);
            for (int i = 0; i < 4; i++, out += PANEL_LINE_BYTES)
                _mm512_store_si512(out, line[i]);
        }
        panel = lines;
    }
}

static size_t q4r_unpacked_bytes(const product *product) {
    return ((size_t)product->call->weight->k + Q4R_SUB - 1) / Q4R_SUB * Q4R_SUB * QUANT_PANEL_ROWS;
}

static size_t q4r_table_stride(const product *product) {
    size_t k = product->call->weight->k;
    if (product->call->x->rows <= Q4R_FEW_ROWS)
        return activation_sum_stride(k);
    return (k + 16 * Q4R_SUPER - 1) / (16 * Q4R_SUPER) * 16;
}

static void q4r_fill(const product *product, size_t rows) {
    const activation_view *x = product->call->x;
    bool few = x->rows <= Q4R_FEW_ROWS;
    size_t count = ((size_t)x->k + Q4R_SUB - 1) / Q4R_SUB;
    for (size_t i = 0; i < rows; i++) {
        const int32_t *sums = x->integer_sum + (product->chunk + i) * x->sum_stride;
        int32_t *begin = (int32_t *)product->table + i * product->table_stride;
        for (size_t at = 0, index = 0; at < count; at += Q4R_SUBS, index++) {
            __m512i part = _mm512_maskz_loadu_epi32(lanes_left(count - at), sums + at);
            if (few)
                _mm512_storeu_si512(begin + at,
                                    _mm512_mullo_epi32(part, _mm512_set1_epi32(-NUMBER_ZERO)));
            else
                begin[index] = -BYTE_ZERO * _mm512_reduce_add_epi32(part);
        }
    }
}

static const product_kind kind_q4r = {
    .chunk_rows = 512,
    .table_stride = q4r_table_stride,
    .fill = q4r_fill,
    .unpacked_bytes = q4r_unpacked_bytes,
    .unpack = q4r_unpack,
    .tile = q4r_product_tile,
    .fused_rows = Q4R_WIDE_ROWS - 1,
};

void linear_avx512_q4r(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows >= Q4R_WIDE_ROWS && call->x->rows <= TILE_ROWS_MAX)
        q4r_wide_run(call, first, last, scratch);
    else
        product_run(&kind_q4r, call, first, last, scratch);
}
