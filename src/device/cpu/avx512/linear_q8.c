/* Products with 8 bits (A16: two planes of int8): Q8_0, Q8B, Q8C.
 *
 * The signed bytes become unsigned with zero point 128 by one exclusive or; both planes of a row
 * meet the same eight lines. I = 255 · I_high + I_low, and the zero point of both planes is taken
 * off where I_low begins. Per row and 32 k: 16 vpdpbusd, 1 vfmadd and, with scales per block, 1
 * vmulps, so 8/18 of the peak of vpdpbusd counted in products is the limit of Zen 4 (206 GOPS a
 * core; 192 were measured while rows were read where they lay). On Intel two pipes do these, three
 * operations that join the planes, the conversion and what unpacks: Sapphire Rapids at 3.6 GHz has
 * 278 GOPS for 8 rows (limit 318), 282 for 16 and more. One row reads 91 GB/s from the caches.
 */
#include "device/cpu/avx512/linear_q8.h"
#include "device/cpu/avx512/tile.h"

#define GROUP_UNITS 2
#define GROUP_BYTES (PANEL_LINE_BYTES * (1 + 8 * GROUP_UNITS))
#define UNIT_BYTES  (PANEL_LINE_BYTES * 8)

/* ---- Rows ----
 *
 * The rows of a tile are laid beside one another, so that one address reaches all that 32 k of them
 * need: [count] × 32 high bytes, [count] × 32 low bytes, [count] scales, and [count] numbers at
 * which the sums of the low bytes begin. */

AVX512_INLINE size_t packed_bytes(size_t count) {
    return count * (2 * PANEL_UNIT + sizeof(float) + sizeof(int32_t));
}

/* `rows` rows from `row` on, the last one again up to `count`. */
static void pack(const activation_view *x, size_t row, size_t rows, size_t count, uint8_t *out) {
    for (size_t i = 0; i < count; i++) {
        size_t source = row + tile_row(i, rows);
        const int8_t *high = x->number + source * x->stride;
        const int8_t *low = x->low + source * x->stride;
        const float *scale = x->scale + source * x->scale_stride;
        uint8_t *to = out;
        for (size_t at = 0; at < x->k; at += PANEL_UNIT, to += packed_bytes(count)) {
            __m256i of_high = _mm256_load_si256((const __m256i *)(const void *)(high + at));
            __m256i of_low = _mm256_load_si256((const __m256i *)(const void *)(low + at));
            int32_t begin = q8_begin(of_high, of_low);
            _mm256_storeu_si256((__m256i *)(void *)(to + i * PANEL_UNIT), of_high);
            _mm256_storeu_si256((__m256i *)(void *)(to + (count + i) * PANEL_UNIT), of_low);
            memcpy(to + 2 * count * PANEL_UNIT + 4 * i, scale + at / PANEL_UNIT, sizeof(*scale));
            memcpy(to + 2 * count * PANEL_UNIT + 4 * (count + i), &begin, sizeof(begin));
        }
    }
}

/* ---- Tiles ---- */

/* Lines from `lines` on are not there (the last unit of Q8C): zeros. */
AVX512_INLINE void read_unit(const uint8_t *at, size_t lines, __m512i line[8]) {
    const __m512i flip = _mm512_set1_epi8((char)Q8_ZERO);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        line[i] = i < lines ? _mm512_xor_si512(load_line(at + i * PANEL_LINE_BYTES), flip) : flip;
}

/* Rows [from, to) of `count`. */
AVX512_INLINE void add_rows(const bool blocks, const bool shuffle, const int from, const int to,
                            const int count, const __m512i line[8], const uint8_t *packed,
                            __m512 scale, __m512 *sum) {
    const int8_t *high = (const int8_t *)packed, *low = high + count * PANEL_UNIT;
    const float *scales = (const float *)(const void *)(low + count * PANEL_UNIT);
    const int32_t *begin = (const int32_t *)(const void *)(scales + count);
    __m512i sum_high[TILE_ROWS_MAX], sum_low[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = from; row < to; row++) {
        sum_high[row] = _mm512_setzero_si512();
        sum_low[row] = _mm512_set1_epi32(begin[row]);
    }
    const int shuffled = shuffle ? 1 : 0;
#pragma GCC unroll 2
    for (int quad = 0; quad < 2; quad++) {
        dot_quad(from, to, shuffled, line + 4 * quad, high + 16 * quad, sum_high);
        dot_quad(from, to, shuffled, line + 4 * quad, low + 16 * quad, sum_low);
    }
#pragma GCC unroll 16
    for (int row = from; row < to; row++) {
        __m512i all = _mm512_add_epi32(_mm512_slli_epi32(sum_high[row], 8),
                                       _mm512_sub_epi32(sum_low[row], sum_high[row]));
        __m512 both = _mm512_set1_ps(scales[row]);
        if (blocks)
            both = _mm512_mul_ps(scale, both);
        sum[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), both, sum[row]);
    }
}

/* Four rows at a time, of which two sums each stay in registers beside the eight lines. */
AVX512_INLINE void add_unit(const bool blocks, const bool shuffle, const int count,
                            const __m512i line[8], const uint8_t *packed, __m512 scale,
                            __m512 *sum) {
#pragma GCC unroll 4
    for (int from = 0; from < count; from += 4)
        add_rows(blocks, shuffle, from, from + 4 < count ? from + 4 : count, count, line, packed,
                 scale, sum);
}

AVX512_INLINE void fetch_lines(const uint8_t *at, const size_t lines, const int rows) {
#pragma GCC unroll 16
    for (size_t i = 0; i < lines; i++)
        fetch_ahead(at + i * PANEL_LINE_BYTES, rows);
}

/* Unit `index` of a group, with the request for the group's head in the first. */
AVX512_INLINE void tile_block(const bool shuffle, const int count, const uint8_t *group,
                              const size_t index, const bool fetch, const uint8_t *packed,
                              __m512 *sum) {
    const uint8_t *at = group + PANEL_LINE_BYTES + index * UNIT_BYTES;
    __m512i line[8];
    if (fetch)
        fetch_lines(index == 0 ? group : at, index == 0 ? 9 : 8, count);
    read_unit(at, 8, line);
    add_unit(true, shuffle, count, line, packed, load_halves(group + 32 * index), sum);
}

/* Scales per block. */
AVX512_INLINE void tile_blocks(const bool shuffle, const int count, const uint8_t *panel, size_t k,
                               const uint8_t *packed, __m512 *sum) {
    const bool fetch = fetch_wanted(count, 1);
    const size_t unit_bytes = packed_bytes((size_t)count);
    size_t units = (k + PANEL_UNIT - 1) / PANEL_UNIT;
    for (; units >= GROUP_UNITS; units -= GROUP_UNITS, panel += GROUP_BYTES) {
        tile_block(shuffle, count, panel, 0, fetch, packed, sum);
        tile_block(shuffle, count, panel, 1, fetch, packed + unit_bytes, sum);
        packed += 2 * unit_bytes;
    }
    if (units > 0)
        tile_block(shuffle, count, panel, 0, fetch, packed, sum);
}

/* One scale per row of the weight, behind the lines. */
AVX512_INLINE void tile_channels(const bool shuffle, const int count, const uint8_t *panel,
                                 size_t k, const uint8_t *packed, __m512 *sum) {
    const bool fetch = fetch_wanted(count, 1);
    size_t lines = (k + 3) / 4;
    for (size_t unit = 0; unit * 8 < lines; unit++, packed += packed_bytes((size_t)count)) {
        const uint8_t *at = panel + unit * UNIT_BYTES;
        __m512i line[8];
        if (lines - unit * 8 >= 8) {
            if (fetch)
                fetch_lines(at, 8, count);
            read_unit(at, 8, line);
        } else {
            read_unit(at, lines - unit * 8, line);
        }
        add_unit(false, shuffle, count, line, packed, _mm512_setzero_ps(), sum);
    }
    __m512 scale = _mm512_load_ps(panel + lines * PANEL_LINE_BYTES);
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_mul_ps(sum[row], scale);
}

AVX512_INLINE void tile_either(const bool blocks, const bool shuffle, const int count,
                               const uint8_t *panel, size_t k, const uint8_t *packed, __m512 *out) {
    __m512 sum[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_setzero_ps();
    if (blocks)
        tile_blocks(shuffle, count, panel, k, packed, sum);
    else
        tile_channels(shuffle, count, panel, k, packed, sum);
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        out[row] = sum[row];
}

/* ---- All of it ---- */

/* Panels [first, last) times all rows, tile by tile. */
AVX512_INLINE void run_panels(const bool blocks, const linear_call *call, size_t panel_bytes,
                              size_t first, size_t last, uint8_t *packed) {
    const weight_view *weight = call->weight;
    for (size_t row = 0, here; row < call->x->rows; row += here) {
        here = tile_rows(call->x->rows - row);
        int compiled = tile_exact(here);
        pack(call->x, row, here, (size_t)compiled, packed);
        for (size_t panel = first; panel < last; panel++) {
            const uint8_t *data = weight->data + panel * panel_bytes;
            __m512 sum[TILE_ROWS_MAX];
            product_fetch_out(call, panel, row, here);
            if (shuffles_wanted(here))
                WITH_COUNT_3_TO_8(compiled, count,
                                  tile_either(blocks, true, count, data, weight->k, packed, sum))
            else
                WITH_COUNT_TILE(compiled, count,
                                tile_either(blocks, false, count, data, weight->k, packed, sum))
            product_finish(call, panel, row, here, sum);
        }
    }
}

AVX512_INLINE void run(const bool blocks, const linear_call *call, size_t first, size_t last,
                       uint8_t *scratch) {
    uint64_t panel_bytes = 0;
    if (!weight_panel_bytes(call->weight->type, call->weight->k, &panel_bytes))
        return; /* cannot be: the table has no entry for such a type */
    size_t together = tile_panels(call->x->rows, last - first, panel_bytes);
    for (; first < last; first += together)
        run_panels(blocks, call, panel_bytes, first,
                   last - first < together ? last : first + together, scratch);
}

void linear_avx512_q8_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    run(true, call, first, last, scratch);
}

void linear_avx512_q8c(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->weight->k <= Q8C_SHORT_K && call->x->rows <= Q8C_SHORT_ROWS && call->bias == NULL)
        linear_avx512_q8c_short(call, first, last);
    else
        run(false, call, first, last, scratch);
}
