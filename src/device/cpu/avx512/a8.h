/* Products with A8: per 32 k eight lines of weights against the numbers of every row of the tile,
 * an int32 sum per lane, one conversion, one fused multiply-add (two with minima; twice that for
 * blocks of 16). A type is an a8_kind (units.h). The functions are always inline and get kind and
 * rows as constants, so each type has its own loops. One row is read where it lies; others are
 * laid beside one another first; more than 64 go through a8_many.c, one loop for all types.
 *
 * Per row and 32 k the multiplying pipes see 8 vpdpbusd, 1 vmulps and 1 or 2 vfmadd: the limit is
 * 8/10 of the peak of vpdpbusd, 8/11 with minima; with blocks of 16 8/12 and 8/14. Conversions and
 * unpacking run on the other pipes, where there are any (Zen 4): there 16 rows read where they lay
 * had, in GOPS a core, Q4_0 354 (limit 371), Q4_1 and Q4_K 320…326 (337), Q6_K 290 (309). On Intel
 * two pipes do everything: per row 11 or 12 operations, and 14 to unpack a unit of Q4_0. Sapphire
 * Rapids, 3.6 GHz, 910 GOPS of vpdpbusd: Q4_0 488 GOPS for 8 rows (limit 578), 541 for 16 (622).
 */
#ifndef AVO_DEVICE_CPU_AVX512_A8_H
#define AVO_DEVICE_CPU_AVX512_A8_H

#include "device/cpu/avx512/tile.h"
#include "device/cpu/avx512/units.h"

/* ---- One row, read where it lies ---- */

/* `begin` and `half_sum` are the call's table: where sums begin, −zero · (sum of the block's
 * numbers), or, for sub-blocks with minima, scale · (sum of 16 numbers). No type needs both. */
typedef struct a8_one {
    const int8_t *number;
    const float *scale;
    const float *sum;
    const int32_t *begin;
    const float *half_sum;
} a8_one;

/* A unit without sub-blocks. */
AVX512_INLINE __m512 a8_one_unit(const a8_kind *kind, const a8_unit *unit, const a8_one *row,
                                 size_t index, __m512 sum) {
    const int8_t *number = row->number + index * PANEL_UNIT;
    __m512i total = kind->zero != 0 ? _mm512_set1_epi32(row->begin[index]) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int line = 0; line < 8; line++)
        total = dot_four(total, unit->line[line], number + 4 * line);
    __m512 scale = _mm512_mul_ps(unit->scale[0], _mm512_set1_ps(row->scale[index]));
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), scale, sum);
    if (kind->minimum)
        sum = _mm512_fmadd_ps(unit->minimum[0], _mm512_set1_ps(row->sum[index]), sum);
    return sum;
}

/* The same with two blocks of 16. */
AVX512_INLINE __m512 a8_one_halves(const a8_kind *kind, const a8_unit *unit, const a8_one *row,
                                   size_t index, __m512 sum) {
    __m512 row_scale = _mm512_set1_ps(row->scale[index]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const int8_t *number = row->number + index * PANEL_UNIT + 16 * half;
        size_t block = 2 * index + (size_t)half;
        __m512i total =
            kind->zero != 0 ? _mm512_set1_epi32(row->begin[block]) : _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int line = 0; line < 4; line++)
            total = dot_four(total, unit->line[4 * half + line], number + 4 * line);
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total),
                              _mm512_mul_ps(unit->scale[half], row_scale), sum);
        if (kind->minimum)
            sum = _mm512_fmadd_ps(unit->minimum[half], _mm512_set1_ps(row->half_sum[block]), sum);
    }
    return sum;
}

/* One entry per 32 k or, with sub-blocks, per 16. */
size_t a8_table_stride(const product *product);
/* Sums of 16 numbers from number `at` on, 16 of them, zeros behind k. */
__m512i a8_sums_at(const int32_t *sums, size_t at, size_t k);
void a8_fill(const product *product, size_t rows);
/* Row `row` of the call. */
a8_one a8_one_of(const product *product, size_t row);

/* One panel times one row: a product_tile. */
AVX512_INLINE void a8_tile_one(const a8_kind *kind, const product *product, const uint8_t *panel,
                               size_t row, __m512 *out) {
    const a8_one one = a8_one_of(product, row);
    size_t units = ((size_t)product->call->weight->k + PANEL_UNIT - 1) / PANEL_UNIT;
    const bool fetch = fetch_wanted(1, 1);
    __m512 sum = _mm512_setzero_ps();
    const uint8_t *group = panel;
    for (size_t begin = 0; begin < units; begin += kind->group_units, group += kind->group_bytes) {
        size_t here = units - begin < kind->group_units ? units - begin : kind->group_units;
        for (size_t unit = 0; unit < here; unit++) {
            a8_unit read;
            if (fetch)
                a8_prefetch(kind, group, unit, 1);
            kind->read(group, unit, &read);
            sum = kind->sub_blocks ? a8_one_halves(kind, &read, &one, begin + unit, sum)
                                   : a8_one_unit(kind, &read, &one, begin + unit, sum);
        }
    }
    *out = sum;
}

/* ---- Rows beside one another ----
 *
 * Two rows and more are laid out so that one address reaches all that 32 k of them need: [count] ×
 * 32 numbers, [count] scales, [count] sums (or where sums begin), with sub-blocks twice. Otherwise
 * a tile of 8 rows has 24 addresses, which take turns in the few registers there are. */

typedef struct a8_shape {
    bool sub_blocks, minimum, zero;
} a8_shape;

AVX512_INLINE size_t a8_halves(a8_shape shape) {
    return shape.sub_blocks ? 2 : 1;
}

AVX512_INLINE size_t a8_packed_bytes(a8_shape shape, size_t count) {
    return count * (PANEL_UNIT + (1 + a8_halves(shape)) * sizeof(float));
}

/* Rows [from, to) of `laid`. */
AVX512_INLINE void a8_block_rows(const a8_shape shape, const int from, const int to, const int laid,
                                 const bool shuffle, const __m512i *line, const uint8_t *packed,
                                 const int half, __m512 scale, __m512 minimum, __m512 *sum) {
    const int quads = shape.sub_blocks ? 1 : 2;
    const int8_t *number = (const int8_t *)packed + 16 * half;
    const float *scales = (const float *)(const void *)(packed + laid * PANEL_UNIT);
    const float *sums = scales + laid * (1 + half);
    __m512i total[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = from; row < to; row++)
        total[row] = shape.zero ? _mm512_set1_epi32(((const int32_t *)(const void *)sums)[row])
                                : _mm512_setzero_si512();
#pragma GCC unroll 2
    for (int quad = 0; quad < quads; quad++)
        dot_quad(from, to, shuffled_rows(shuffle, to - from), line + 4 * quad, number + 16 * quad,
                 total);
#pragma GCC unroll 16
    for (int row = from; row < to; row++) {
        __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(scales[row]));
        sum[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[row]), both, sum[row]);
        if (shape.minimum)
            sum[row] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(sums[row]), sum[row]);
    }
}

/* One block, a unit or with sub-blocks either half, of `count` rows of `laid`. */
AVX512_INLINE void a8_block(const a8_shape shape, const int count, const int laid,
                            const bool shuffle, const __m512i *line, const uint8_t *packed,
                            const int half, __m512 scale, __m512 minimum, __m512 *sum) {
    const int first = count <= 10 ? count : count / 2; /* integer sums need registers, too */
    a8_block_rows(shape, 0, first, laid, shuffle, line, packed, half, scale, minimum, sum);
    if (first < count)
        a8_block_rows(shape, first, count, laid, shuffle, line, packed, half, scale, minimum, sum);
}

/* One panel times one tile. */
AVX512_INLINE void a8_tile_packed(const a8_kind *kind, const int count, const bool shuffle,
                                  const uint8_t *panel, size_t units, const uint8_t *packed,
                                  __m512 *out) {
    const a8_shape shape = {kind->sub_blocks, kind->minimum, kind->zero != 0};
    const int halves = shape.sub_blocks ? 2 : 1;
    __m512 sum[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_setzero_ps();
    const uint8_t *group = panel;
    for (size_t begin = 0; begin < units; begin += kind->group_units, group += kind->group_bytes) {
        size_t here = units - begin < kind->group_units ? units - begin : kind->group_units;
        for (size_t unit = 0; unit < here;
             unit++, packed += a8_packed_bytes(shape, (size_t)count)) {
            a8_unit read;
            a8_prefetch(kind, group, unit, count);
            kind->read(group, unit, &read);
#pragma GCC unroll 2
            for (int half = 0; half < halves; half++)
                a8_block(shape, count, count, shuffle, read.line + 4 * half, packed, half,
                         read.scale[half], read.minimum[half], sum);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        out[row] = sum[row];
}

typedef void (*a8_packed_tile)(const uint8_t *panel, size_t units, const uint8_t *packed, int count,
                               __m512 *sum);

/* ---- Many rows (a8_many.c) ---- */

typedef struct a8_many {
    int32_t zero;
    bool sub_blocks, minimum;
    void (*unpack)(const uint8_t *panel, size_t units, uint8_t *out);
} a8_many;
void a8_many_run(const a8_many *many, const linear_call *call, size_t first, size_t last,
                 uint8_t *scratch);
/* Calls of up to A8_TILES_ROWS: every tile unpacks for itself, which takes less than writing to the
 * second cache and reading again, and lets memory be asked for evenly. */
#define A8_TILES_ROWS 64
void a8_tile_run(const a8_many *many, a8_packed_tile tile, const linear_call *call, size_t first,
                 size_t last, uint8_t *scratch);

/* Every unit of a panel as a8_many.c reads it. */
AVX512_INLINE void a8_unpack(const a8_kind *kind, const uint8_t *panel, size_t units,
                             uint8_t *out) {
    const int halves = kind->sub_blocks ? 2 : 1;
    const uint8_t *group = panel;
    for (size_t begin = 0; begin < units; begin += kind->group_units, group += kind->group_bytes) {
        size_t here = units - begin < kind->group_units ? units - begin : kind->group_units;
        for (size_t unit = 0; unit < here; unit++) {
            a8_unit read;
            a8_prefetch(kind, group, unit, TILE_ROWS_MAX);
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

/* The whole, with the type's own tiles. */
AVX512_INLINE void a8_linear(const a8_kind *kind, product_tile one, a8_packed_tile tile,
                             void (*unpack)(const uint8_t *, size_t, uint8_t *),
                             const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    a8_many many = {kind->zero, kind->sub_blocks, kind->minimum, unpack};
    if (call->x->rows > A8_TILES_ROWS) {
        a8_many_run(&many, call, first, last, scratch);
        return;
    }
    if (call->x->rows > 1) {
        a8_tile_run(&many, tile, call, first, last, scratch);
        return;
    }
    product_kind whole = {.chunk_rows = 1,
                          .zero = kind->zero,
                          .sub_blocks = kind->sub_blocks,
                          .table_stride = a8_table_stride,
                          .fill = a8_fill,
                          .tile = one};
    product_run(&whole, call, first, last, scratch);
}

#endif
