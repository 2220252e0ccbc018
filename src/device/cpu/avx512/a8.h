/* Products with A8: per 32 k eight lines of weights against the numbers of every row of the tile,
 * an int32 sum per lane, one conversion, one fused multiply-add (two with minima; twice that for
 * blocks of 16). A type is an a8_kind (units.h). The functions are
 * always inline and get kind and rows as constants, so each type has its own loops. More than 16
 * rows go through a8_many.c, one loop for all types.
 *
 * Per row and 32 k the multiplying pipes see 8 vpdpbusd, 1 vmulps and 1 or 2 vfmadd: the limit is
 * 8/10 of the peak of vpdpbusd, 8/11 with minima; with blocks of 16 8/12 and 8/14. Conversions and
 * unpacking run on the other pipes. Measured at 16 rows, GOPS a core: Q4_0, IQ4_NL, MXFP4
 * 354…359 (limit 371), Q4_1 and Q4_K 320…326 (337), Q6_K 290 (309), Q2_K 255 (265).
 */
#ifndef AVO_DEVICE_CPU_AVX512_A8_H
#define AVO_DEVICE_CPU_AVX512_A8_H

#include "device/cpu/avx512/tile.h"
#include "device/cpu/avx512/units.h"

/* The rows of a tile. `begin` and `half_sum` are the call's table: where sums begin, −zero · (sum
 * of the block's numbers), or, for sub-blocks with minima, scale · (sum of 16 numbers). No type
 * needs both. */
typedef struct a8_rows {
    const int8_t *number[TILE_ROWS_MAX];
    const float *scale[TILE_ROWS_MAX];
    const float *sum[TILE_ROWS_MAX];
    const int32_t *begin[TILE_ROWS_MAX];
    const float *half_sum[TILE_ROWS_MAX];
} a8_rows;

/* One row's share of a unit without sub-blocks. */
AVX512_INLINE __m512 a8_row(const a8_kind *kind, const a8_unit *unit, const a8_rows *rows, int row,
                            size_t index, __m512 sum) {
    const int8_t *number = rows->number[row] + index * PANEL_UNIT;
    __m512i total =
        kind->zero != 0 ? _mm512_set1_epi32(rows->begin[row][index]) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int line = 0; line < 8; line++)
        total = dot_four(total, unit->line[line], number + 4 * line);
    __m512 scale = _mm512_mul_ps(unit->scale[0], _mm512_set1_ps(rows->scale[row][index]));
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), scale, sum);
    if (kind->minimum)
        sum = _mm512_fmadd_ps(unit->minimum[0], _mm512_set1_ps(rows->sum[row][index]), sum);
    return sum;
}

/* The same with two blocks of 16. */
AVX512_INLINE __m512 a8_row_halves(const a8_kind *kind, const a8_unit *unit, const a8_rows *rows,
                                   int row, size_t index, __m512 sum) {
    __m512 row_scale = _mm512_set1_ps(rows->scale[row][index]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const int8_t *number = rows->number[row] + index * PANEL_UNIT + 16 * half;
        size_t block = 2 * index + (size_t)half;
        __m512i total =
            kind->zero != 0 ? _mm512_set1_epi32(rows->begin[row][block]) : _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int line = 0; line < 4; line++)
            total = dot_four(total, unit->line[4 * half + line], number + 4 * line);
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total),
                              _mm512_mul_ps(unit->scale[half], row_scale), sum);
        if (kind->minimum)
            sum = _mm512_fmadd_ps(unit->minimum[half], _mm512_set1_ps(rows->half_sum[row][block]),
                                  sum);
    }
    return sum;
}

/* A unit's share of the group, so that requests come evenly: more than the core can keep open at
 * once would wait. */
AVX512_INLINE void a8_prefetch(const a8_kind *kind, const uint8_t *group, size_t unit) {
    const size_t share = kind->group_bytes / kind->group_units;
    const char *at = (const char *)group + PREFETCH_BYTES + unit * share;
#pragma GCC unroll 8
    for (size_t byte = 0; byte < share; byte += PANEL_LINE_BYTES)
        _mm_prefetch(at + byte, _MM_HINT_T0);
}

AVX512_INLINE void a8_tile(const a8_kind *kind, const int count, const uint8_t *panel, size_t units,
                           const a8_rows *rows, __m512 *out) {
    __m512 sum[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_setzero_ps();
    const uint8_t *group = panel;
    for (size_t begin = 0; begin < units; begin += kind->group_units, group += kind->group_bytes) {
        size_t here = units - begin < kind->group_units ? units - begin : kind->group_units;
        for (size_t unit = 0; unit < here; unit++) {
            a8_unit read;
            a8_prefetch(kind, group, unit);
            kind->read(group, unit, &read);
#pragma GCC unroll 16
            for (int row = 0; row < count; row++)
                sum[row] = kind->sub_blocks
                               ? a8_row_halves(kind, &read, rows, row, begin + unit, sum[row])
                               : a8_row(kind, &read, rows, row, begin + unit, sum[row]);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        out[row] = sum[row];
}

/* One panel times one tile. */
AVX512_INLINE void a8_run(const a8_kind *kind, int compiled, const uint8_t *panel, size_t units,
                          const a8_rows *rows, __m512 *sum){
    WITH_COUNT_TILE(compiled, count, a8_tile(kind, count, panel, units, rows, sum))}

/* ---- Parts of product_kind ---- */

/* One entry per 32 k or, with sub-blocks, per 16. */
size_t a8_table_stride(const product *product);
/* Sums of 16 numbers from number `at` on, 16 of them, zeros behind k. */
__m512i a8_sums_at(const int32_t *sums, size_t at, size_t k);
void a8_fill(const product *product, size_t rows);
/* The rows of a tile, `rows` of them and the last one again up to `compiled`. */
void a8_rows_of(const product *product, size_t row, size_t rows, int compiled, a8_rows *out);

AVX512_INLINE void a8_product_tile(const a8_kind *kind, const product *product,
                                   const uint8_t *panel, size_t row, size_t rows, __m512 *sum) {
    int compiled = tile_compiled(rows);
    size_t units = ((size_t)product->call->weight->k + PANEL_UNIT - 1) / PANEL_UNIT;
    a8_rows tile;
    a8_rows_of(product, row, rows, compiled, &tile);
    a8_run(kind, compiled, panel, units, &tile, sum);
}

/* ---- Many rows (a8_many.c) ---- */

typedef struct a8_many {
    int32_t zero;
    bool sub_blocks, minimum;
    void (*unpack)(const uint8_t *panel, size_t units, uint8_t *out);
} a8_many;
void a8_many_run(const a8_many *many, const linear_call *call, size_t first, size_t last,
                 uint8_t *scratch);

/* Every unit of a panel as a8_many.c reads it. */
AVX512_INLINE void a8_unpack(const a8_kind *kind, const uint8_t *panel, size_t units,
                             uint8_t *out) {
    const int halves = kind->sub_blocks ? 2 : 1;
    const uint8_t *group = panel;
    for (size_t begin = 0; begin < units; begin += kind->group_units, group += kind->group_bytes) {
        size_t here = units - begin < kind->group_units ? units - begin : kind->group_units;
        for (size_t unit = 0; unit < here; unit++) {
            a8_unit read;
            a8_prefetch(kind, group, unit);
            kind->read(group, unit, &read);
            for (int i = 0; i < 8; i++, out += PANEL_LINE_BYTES)
                _mm512_store_si512(out, read.line[i]);
            for (int i = 0; i < halves; i++, out += PANEL_LINE_BYTES)
                _mm512_store_ps(out, read.scale[i]);
            for (int i = 0; kind->minimum && i < halves; i++, out += PANEL_LINE_BYTES)
                _mm512_store_ps(out, read.minimum[i]);
        }
    }
}

/* The whole, with the type's own tile. */
AVX512_INLINE void a8_linear(const a8_kind *kind, product_tile tile,
                             void (*unpack)(const uint8_t *, size_t, uint8_t *),
                             const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows > TILE_ROWS_MAX) {
        a8_many many = {kind->zero, kind->sub_blocks, kind->minimum, unpack};
        a8_many_run(&many, call, first, last, scratch);
        return;
    }
    product_kind whole = {.chunk_rows = TILE_ROWS_MAX,
                          .zero = kind->zero,
                          .sub_blocks = kind->sub_blocks,
                          .table_stride = a8_table_stride,
                          .fill = a8_fill,
                          .tile = tile};
    product_run(&whole, call, first, last, scratch);
}

#endif
