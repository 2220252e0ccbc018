/* Products of rows with 8 bits (A16) on tiles, up to 16 at a time. linear_blocks.h has those of
 * many rows with few panels.
 *
 * Tile    x of a unit (32 k) is the high bytes of up to 8 rows, then their low bytes: 16 rows of
 *         half the depth. So one product gives the sums of both planes, and weights are read as
 *         they lie in the panel. Above 8 rows there are two such tiles (groups) with the same
 *         weights. Rows are padded to a height that is compiled by repeating the last one.
 * Stages  a product, storing its sums FEW_LAG units later, and the float work of the unit stored
 *         before that run across the ends of panels: a store right behind its product waits for it,
 *         7.6 ns a unit instead of 4.8. Float sums stay in registers for a panel.
 * Sums    in the order of activation.h: 255 · high + low as floats is exact until its one rounding,
 *         as F(I) is.
 * Rates   one core of a Xeon with AMX (virtual, 3.8 GHz), k = 768, weights in the second cache, ns
 *         a unit of a panel, AVX-512 and tiles: 4 rows 14.8 and 11.6, 8 rows 26.1 and 14.2, 16 rows
 *         50.7 and 27.5 (596 GOPS).
 */
#include "device/cpu/amx/linear_q8.h"
#include "device/cpu/avx512/tile.h"

#define FEW_GROUP_MAX 8 /* rows of a group */
#define FEW_C_TILES   4 /* in turn; with two groups as two pairs */

typedef struct few_sums {
    int32_t cell[FEW_C_TILES][AMX_TILE_CELLS];
} few_sums;

typedef struct few_call {
    const linear_call *call;
    few_sums *sums;
    int8_t *numbers;  /* [units][groups]: tiles of x */
    float *scale;     /* [units][rows] */
    size_t row, rows; /* of the call */
    size_t units;
    size_t panel_bytes;
    size_t first, last; /* panels */
} few_call;

/* Where a stage is. */
typedef struct few_cursor {
    const uint8_t *data; /* of the panel */
    size_t unit;
} few_cursor;

AMX_INLINE void advance(const few_call *few, few_cursor *at) {
    if (++at->unit == few->units) {
        at->unit = 0;
        at->data += few->panel_bytes;
    }
}

/* ---- Stages ---- */

/* The number of a tile is a constant: `call` with the first C tile of a turn as `c`. */
#define WITH_C_TILE(groups, turn, c, call)                                                         \
    WITH_COUNT_OF_4((groups) == 1 ? (turn) % 4 : (turn) % 2 * 2, 0, 1, 2, 3, c, call)

/* Units from a product to storing it: at least two products lie between. */
#define FEW_LAG(groups) ((groups) == 1 ? 2u : 1u)

AMX_INLINE void multiply_tiles(const int c, const int groups, const int8_t *x, size_t bytes,
                               const uint8_t *lines) {
    tile_load(6, lines, PANEL_LINE_BYTES);
    tile_zero(c);
    tile_load(4, x, PANEL_UNIT);
    tile_product(c, 4, 6);
    if (groups > 1) {
        tile_zero(c | 1);
        tile_load(5, x + bytes, PANEL_UNIT);
        tile_product(c | 1, 5, 6);
    }
}

AMX_INLINE void multiply(const int groups, const int height, const few_call *few,
                         const few_cursor *at, size_t turn) {
    const size_t bytes = 2 * (size_t)height * PANEL_UNIT;
    const int8_t *x = few->numbers + at->unit * (size_t)groups * bytes;
    const uint8_t *lines = q8_unit_lines(at->data, at->unit);
    q8_unit_fetch(at->data, at->unit);
    WITH_C_TILE(groups, turn, c, multiply_tiles(c, groups, x, bytes, lines))
}

AMX_INLINE void store_tiles(const int c, const int groups, few_sums *to) {
    tile_store(c, to->cell[c], PANEL_LINE_BYTES);
    if (groups > 1)
        tile_store(c | 1, to->cell[c | 1], PANEL_LINE_BYTES);
}

AMX_INLINE void absorb(const int groups, const int height, const few_call *few,
                       const few_cursor *at, size_t turn, __m512 *sum) {
    const int rows = groups * height;
    const float *scales = few->scale + at->unit * (size_t)rows;
    const __m512 scale = load_halves(q8_unit_scale(at->data, at->unit));
    size_t tile = groups == 1 ? turn % 4 : turn % 2 * 2;
#pragma GCC unroll 16
    for (int row = 0; row < rows; row++) {
        const int32_t *high =
            few->sums->cell[tile + (size_t)(row / height)] + row % height * QUANT_PANEL_ROWS;
        const int32_t *low = high + height * QUANT_PANEL_ROWS;
        __m512 both =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(high)), _mm512_set1_ps(255.0f),
                            _mm512_cvtepi32_ps(_mm512_load_si512(low)));
        sum[row] =
            _mm512_fmadd_ps(both, _mm512_mul_ps(scale, _mm512_set1_ps(scales[row])), sum[row]);
    }
}

/* Writes a panel's outputs and begins anew. */
AMX_INLINE void finish(const few_call *few, size_t panel, const int rows, __m512 *sum) {
    __m512 out[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = 0; row < rows; row++) {
        out[row] = sum[row];
        sum[row] = _mm512_setzero_ps();
    }
    product_finish(few->call, panel, few->row, few->rows, out);
    if (panel + 1 < few->last)
        product_fetch_out(few->call, panel + 1, few->row, few->rows);
}

/* ---- All of it ---- */

AMX_INLINE void run(const int groups, const int height, const few_call *few) {
    const int rows = groups * height;
    const size_t lag = FEW_LAG(groups), turns = (few->last - few->first) * few->units;
    const uint8_t *data = few->call->weight->data + few->first * few->panel_bytes;
    few_cursor multiplied = {data, 0}, absorbed = {data, 0};
    size_t panel = few->first;
    __m512 sum[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = 0; row < rows; row++)
        sum[row] = _mm512_setzero_ps();
    for (size_t turn = 0; turn <= turns + lag; turn++) {
        if (turn < turns) {
            multiply(groups, height, few, &multiplied, turn);
            advance(few, &multiplied);
        }
        if (turn >= lag && turn < turns + lag)
            WITH_C_TILE(groups, turn - lag, c, store_tiles(c, groups, few->sums))
        if (turn <= lag)
            continue;
        absorb(groups, height, few, &absorbed, turn - lag - 1, sum);
        advance(few, &absorbed);
        if (absorbed.unit == 0)
            finish(few, panel++, rows, sum);
    }
}

/* Rows and their scales as the stages read them, in the order in which they are written: rows of a
 * unit are far apart where they come from, but few. */
static void lay_rows(const few_call *few, size_t groups, size_t height) {
    const activation_view *x = few->call->x;
    const size_t rows = groups * height, plane = height * PANEL_UNIT;
    size_t from[TILE_ROWS_MAX], scale[TILE_ROWS_MAX];
    for (size_t row = 0; row < rows; row++) {
        size_t source = few->row + tile_row(row, few->rows);
        from[row] = source * x->stride;
        scale[row] = source * x->scale_stride;
    }
    int8_t *to = few->numbers;
    float *scales = few->scale;
    for (size_t at = 0; at < few->units * PANEL_UNIT; at += PANEL_UNIT)
        for (size_t group = 0, row = 0; group < groups; group++, to += plane)
            for (size_t end = row + height; row < end; row++, to += PANEL_UNIT) {
                memcpy(to, x->number + from[row] + at, PANEL_UNIT);
                memcpy(to + plane, x->low + from[row] + at, PANEL_UNIT);
                *scales++ = x->scale[scale[row] + at / PANEL_UNIT];
            }
}

/* The heights of a group that are compiled. */
static size_t group_height(size_t rows, size_t groups) {
    size_t each = (rows + groups - 1) / groups;
    size_t least = groups == 1 ? 4 : 5;
    return each <= least ? least : each <= 6 ? 6 : 8;
}

/* Rows [row, row + rows) of the call, up to 16. */
static void few_rows(few_call *few, uint8_t *scratch) {
    size_t groups = few->rows > FEW_GROUP_MAX ? 2 : 1;
    size_t height = group_height(few->rows, groups);
    few->numbers = (int8_t *)scratch;
    few->scale = (float *)(void *)(few->numbers + few->units * groups * 2 * height * PANEL_UNIT);
    lay_rows(few, groups, height);
    tile_configuration configuration = amx_configuration(2 * height, PANEL_UNIT, 6);
    tiles_configure(&configuration);
    if (groups == 1)
        WITH_COUNT_OF_3(height, 4, 6, 8, h, run(1, h, few))
    else
        WITH_COUNT_OF_3(height, 5, 6, 8, h, run(2, h, few))
}

void amx_few_q8(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    few_call few = {
        .call = call, .sums = (few_sums *)(void *)scratch, .first = first, .last = last};
    uint64_t panel_bytes = 0;
    if (first >= last || !weight_panel_bytes(call->weight->type, call->weight->k, &panel_bytes))
        return;
    few.panel_bytes = panel_bytes;
    few.units = ((size_t)call->weight->k + PANEL_UNIT - 1) / PANEL_UNIT;
    for (; few.row < call->x->rows; few.row += few.rows) {
        few.rows = tile_rows(call->x->rows - few.row);
        few_rows(&few, scratch + sizeof(few_sums));
    }
    tiles_release();
}
