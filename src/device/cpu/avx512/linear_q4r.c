/* Products with Q4R (A8R): 256 k are summed in integers before a float is touched. Four ways to
 * the same integers:
 *
 *   up to 8 rows   numbers 0…15 against x per sub-block of 16 k, then one vpdpwssd by the
 *                  multiplier: the fewest operations per byte of weights. Zen 5: up to 6, since
 *                  bytes take 5 % less time of eight there, beginnings of sums being loads
 *
 *   up to 14 rows  multiplier · (number − 8) + 128 as bytes in registers; the multiplier costs
 *                  nothing per row
 *
 *   15 and 16      the same bytes by tables (q4r_wide.c)
 *
 *   up to 28       two of the tiles above
 *
 *   more           the same bytes, unpacked once for all rows
 *
 * The rows of a tile are laid beside one another, so that one address reaches all of them, and
 * products go line after line, so that none waits for the one before it. Sapphire Rapids, one core
 * at 3.6 GHz (910 GOPS of vpdpbusd), k = 2048: 56 GB/s of weights for 1 row, 494 GOPS for 8 (limit
 * of its two pipes 580), 565 for 14, 657 for 64. Of 7 and 8 rows, bytes took 5 % longer there; at
 * 16 rows they took 12 % less than tables, which Zen 4 computes on pipes of their own.
 */
#include "device/cpu/avx512/q4r.h"

#include "device/cpu/avx512/transpose.h"

#define FUSED_ROWS (Q4R_WIDE_ROWS - 1) /* of a tile */

/* ---- Rows ---- */

static size_t supers_of(size_t k) {
    return (k + Q4R_SUPER - 1) / Q4R_SUPER;
}

/* Bytes of the numbers of a tile; scales and begins of sums follow. */
static size_t number_bytes(size_t k, size_t count) {
    return supers_of(k) * Q4R_SUPER * count;
}

static size_t packed_bytes(size_t k, size_t count) {
    size_t words = supers_of(k) * count * (1 + Q4R_SUBS);
    return (number_bytes(k, count) + words * sizeof(float) + 63) / 64 * 64;
}

/* What 256 k of `rows` rows from `row` on, the last one again up to `count`, sum up to. */
static void pack_sums(const activation_view *x, size_t super, size_t row, size_t rows, size_t count,
                      const bool few, int32_t *begin) {
    const size_t subs = ((size_t)x->k + Q4R_SUB - 1) / Q4R_SUB, at = super * Q4R_SUBS;
    block16 block;
    for (size_t i = 0; i < TILE_ROWS_MAX; i++) {
        size_t source = row + tile_row(i < count ? i : 0, rows);
        const int32_t *sums = x->integer_sum + source * x->sum_stride + at;
        block[i] = _mm512_maskz_loadu_epi32(lanes_left(subs - at), sums);
        if (!few && i < count)
            begin[i] = -BYTE_ZERO * _mm512_reduce_add_epi32(block[i]);
    }
    if (!few)
        return;
    transpose(block);
    for (size_t i = 0; i < Q4R_SUBS; i++)
        _mm512_mask_storeu_epi32(begin + i * count, lanes_left(count),
                                 _mm512_mullo_epi32(block[i], _mm512_set1_epi32(-NUMBER_ZERO)));
}

static void pack_numbers(const activation_view *x, size_t row, size_t rows, size_t count,
                         uint8_t *out) {
    for (size_t i = 0; i < count; i++) {
        const int8_t *number = x->number + (row + tile_row(i, rows)) * x->stride;
        uint8_t *to = out + i * PANEL_UNIT;
        for (size_t at = 0; at < x->k; at += PANEL_UNIT, to += count * PANEL_UNIT)
            _mm256_store_si256((__m256i *)(void *)to,
                               _mm256_load_si256((const __m256i *)(const void *)(number + at)));
    }
}

static q4r_rows pack(const activation_view *x, size_t row, size_t rows, size_t count,
                     const bool few, uint8_t *out) {
    float *scale = (float *)(void *)(out + number_bytes(x->k, count));
    int32_t *begin = (int32_t *)(void *)(scale + supers_of(x->k) * count);
    pack_numbers(x, row, rows, count, out);
    for (size_t super = 0; super < supers_of(x->k); super++) {
        for (size_t i = 0; i < count; i++)
            scale[super * count + i] =
                x->scale[(row + tile_row(i, rows)) * x->scale_stride + super];
        pack_sums(x, super, row, rows, count, few, begin + super * count * (few ? Q4R_SUBS : 1));
    }
    return (q4r_rows){(const int8_t *)out, scale, begin};
}

/* One row is read where it lies but for the begins of its sums. */
static q4r_rows one_row(const activation_view *x, int32_t *begin) {
    size_t subs = ((size_t)x->k + Q4R_SUB - 1) / Q4R_SUB;
    for (size_t at = 0; at < subs; at += Q4R_SUBS) {
        __m512i sums = _mm512_maskz_loadu_epi32(lanes_left(subs - at), x->integer_sum + at);
        _mm512_storeu_si512(begin + at, _mm512_mullo_epi32(sums, _mm512_set1_epi32(-NUMBER_ZERO)));
    }
    return (q4r_rows){x->number, x->scale, begin};
}

/* ---- One tile of rows ---- */

static void tile_few(int compiled, const uint8_t *panel, size_t k, const q4r_rows *rows,
                     __m512 *sum) {
    if (shuffles_wanted((size_t)compiled))
        WITH_COUNT_OF_4(compiled, 3, 4, 5, 6, count,
                        q4r_tile(count, count, Q4R_FEW, true, panel, NULL, k, rows, sum))
    else
        WITH_COUNT_8(compiled, count,
                     q4r_tile(count, count, Q4R_FEW, false, panel, NULL, k, rows, sum))
}

static void tile_fused(int compiled, const uint8_t *panel, size_t k, const q4r_rows *rows,
                       __m512 *sum) {
    switch (compiled) {
        COUNT_CASE(case 7, 7, count,
                   q4r_tile(count, count, Q4R_FUSED, true, panel, NULL, k, rows, sum))
        COUNT_CASE(case 8, 8, count,
                   q4r_tile(count, count, Q4R_FUSED, true, panel, NULL, k, rows, sum))
        COUNT_CASE(case 10, 10, count,
                   q4r_tile(count, count, Q4R_FUSED, false, panel, NULL, k, rows, sum))
        COUNT_CASE(case 12, 12, count,
                   q4r_tile(count, count, Q4R_FUSED, false, panel, NULL, k, rows, sum))
        COUNT_CASE(default, 14, count,
                   q4r_tile(count, count, Q4R_FUSED, false, panel, NULL, k, rows, sum))
    }
}

/* Rows [row, row + count) times panels [first, last). */
static void run_tile(const linear_call *call, size_t row, size_t count, size_t panel_bytes,
                     size_t first, size_t last, uint8_t *scratch) {
    const activation_view *x = call->x;
    bool few = count <= (is_zen5() ? Q4R_FEW_ROWS_ZEN5 : Q4R_FEW_ROWS);
    int compiled = tile_exact(count);
    q4r_rows rows = x->rows == 1 ? one_row(x, (int32_t *)(void *)scratch)
                                 : pack(x, row, count, (size_t)compiled, few, scratch);
    for (size_t panel = first; panel < last; panel++) {
        const uint8_t *data = call->weight->data + panel * panel_bytes;
        __m512 sum[TILE_ROWS_MAX];
        product_fetch_out(call, panel, row, count);
        if (few)
            tile_few(compiled, data, x->k, &rows, sum);
        else
            tile_fused(compiled, data, x->k, &rows, sum);
        product_finish(call, panel, row, count, sum);
    }
}

static void run_tiles(const linear_call *call, size_t panel_bytes, size_t first, size_t last,
                      uint8_t *scratch) {
    size_t rows = call->x->rows, half = rows <= FUSED_ROWS ? rows : (rows + 1) / 2;
    size_t together = tile_panels(rows, last - first, panel_bytes);
    for (size_t end; first < last; first = end) {
        end = last - first < together ? last : first + together;
        for (size_t row = 0; row < rows; row += half)
            run_tile(call, row, rows - row < half ? rows - row : half, panel_bytes, first, end,
                     scratch);
    }
}

/* ---- Many rows: a few panels are unpacked into the second cache for all of them ---- */

static void unpack(size_t k, const uint8_t *panel, uint8_t *out) {
    const __m512i low = _mm512_set1_epi16(15);
    for (size_t begin = 0; begin < k; begin += Q4R_SUPER) {
        size_t subs = q4r_subs(k, begin);
        const uint8_t *lines = panel + q4r_lines_at(subs);
        for (size_t sub = 0; sub < subs; sub++, lines += SUB_BYTES) {
            __m128i shift = _mm_cvtsi32_si128(sub % 2 != 0 ? 4 : 0);
            __m512i magnitude =
                _mm512_and_si512(_mm512_srl_epi16(q4r_magnitudes(panel, sub), shift), low);
            __m512i line[4];
            q4r_prefetch(lines, SUB_BYTES, TILE_ROWS_MAX);
            q4r_read_sub(lines, magnitude, q4r_signs(panel, sub), line);
            for (int i = 0; i < 4; i++, out += PANEL_LINE_BYTES)
                _mm512_store_si512(out, line[i]);
        }
        panel = lines;
    }
}

static void tile_unpacked(int compiled, const uint8_t *panel, const uint8_t *unpacked, size_t k,
                          const q4r_rows *rows, __m512 *sum) {
    WITH_COUNT_OF_4(
        compiled, 10, 12, 14, 16, count,
        q4r_tile(count, TILE_ROWS_MAX, Q4R_UNPACKED, false, panel, unpacked, k, rows, sum))
}

static void run_panels(const linear_call *call, size_t panel_bytes, size_t first, size_t last,
                       uint8_t *scratch) {
    const activation_view *x = call->x;
    size_t unpacked_bytes = ((size_t)x->k + Q4R_SUB - 1) / Q4R_SUB * Q4R_SUB * QUANT_PANEL_ROWS;
    const uint8_t *data = call->weight->data + first * panel_bytes;
    uint8_t *unpacked = scratch + packed_bytes(x->k, TILE_ROWS_MAX);
    for (size_t i = 0; i < last - first; i++)
        unpack(x->k, data + i * panel_bytes, unpacked + i * unpacked_bytes);
    for (size_t row = 0, here; row < x->rows; row += here) {
        here = tile_rows(x->rows - row);
        q4r_rows rows = pack(x, row, here, TILE_ROWS_MAX, false, scratch);
        for (size_t i = 0; i < last - first; i++) {
            __m512 sum[TILE_ROWS_MAX];
            product_fetch_out(call, first + i, row, here);
            tile_unpacked(tile_compiled(here), data + i * panel_bytes,
                          unpacked + i * unpacked_bytes, x->k, &rows, sum);
            product_finish(call, first + i, row, here, sum);
        }
    }
}

static void run_many(const linear_call *call, size_t panel_bytes, size_t first, size_t last,
                     uint8_t *scratch) {
    size_t k = call->weight->k;
    size_t left = linear_scratch_bytes(k) - packed_bytes(k, TILE_ROWS_MAX);
    size_t fitting = left / ((k + Q4R_SUB - 1) / Q4R_SUB * Q4R_SUB * QUANT_PANEL_ROWS);
    for (size_t groups = (last - first + fitting - 1) / fitting; groups > 0; groups--) {
        size_t panels = (last - first + groups - 1) / groups;
        run_panels(call, panel_bytes, first, first + panels, scratch);
        first += panels;
    }
}

void linear_avx512_q4r(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    uint64_t panel_bytes = 0;
    if (!weight_panel_bytes(call->weight->type, call->weight->k, &panel_bytes))
        return; /* cannot be: the table has no entry for such a type */
    if (call->x->rows > 2 * FUSED_ROWS)
        run_many(call, panel_bytes, first, last, scratch);
    else if (call->x->rows >= Q4R_WIDE_ROWS && call->x->rows <= TILE_ROWS_MAX)
        q4r_wide_run(call, first, last, scratch);
    else if (call->x->rows > 0)
        run_tiles(call, panel_bytes, first, last, scratch);
}
