/* Products with 8 bits (A16: two planes of int8): Q8_0, Q8B, Q8C.
 *
 * The signed bytes become unsigned with zero point 128 by one exclusive or; both planes of a row
 * meet the same eight lines. I = 255 · I_high + I_low, and the zero point of both planes is taken
 * off where I_low begins. Per row and 32 k: 16 vpdpbusd, 1 vfmadd and, with scales per block, 1
 * vmulps, so 8/18 of the peak of vpdpbusd counted in products is the limit (206 GOPS a core;
 * measured 192, Q8C 202). One row reads 87 GB/s from the caches.
 */
#include "device/cpu/avx512/linear_q8.h"
#include "device/cpu/avx512/tile.h"

#define GROUP_UNITS 2
#define GROUP_BYTES (PANEL_LINE_BYTES * (1 + 8 * GROUP_UNITS))
#define UNIT_BYTES  (PANEL_LINE_BYTES * 8)
#define CHUNK_ROWS  512

/* Read ahead; twice as far as elsewhere, as the bytes of one row pass twice as fast: up to 5 %
 * where two cores have 60 GB/s, nothing where they have 34. */
#define AHEAD_BYTES (2 * PREFETCH_BYTES)

typedef struct a16_rows {
    const int8_t *high[TILE_ROWS_MAX];
    const int8_t *low[TILE_ROWS_MAX];
    const float *scale[TILE_ROWS_MAX];
    const int32_t *begin[TILE_ROWS_MAX];
} a16_rows;

/* Lines from `lines` on are not there (the last unit of Q8C): zeros. */
AVX512_INLINE void read_unit(const uint8_t *at, size_t lines, __m512i line[8]) {
    const __m512i flip = _mm512_set1_epi8((char)Q8_ZERO);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        line[i] = i < lines ? _mm512_xor_si512(load_line(at + i * PANEL_LINE_BYTES), flip) : flip;
}

/* F(I) of one row. */
AVX512_INLINE __m512 unit_sum(const __m512i line[8], const a16_rows *rows, int row, size_t unit) {
    const int8_t *high = rows->high[row] + unit * PANEL_UNIT;
    const int8_t *low = rows->low[row] + unit * PANEL_UNIT;
    __m512i sum_high = _mm512_setzero_si512();
    __m512i sum_low = _mm512_set1_epi32(rows->begin[row][unit]);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        sum_high = dot_four(sum_high, line[i], high + 4 * i);
        sum_low = dot_four(sum_low, line[i], low + 4 * i);
    }
    __m512i all =
        _mm512_add_epi32(_mm512_slli_epi32(sum_high, 8), _mm512_sub_epi32(sum_low, sum_high));
    return _mm512_cvtepi32_ps(all);
}

/* Scales per block. */
AVX512_INLINE void tile_blocks(const int count, const uint8_t *panel, size_t k,
                               const a16_rows *rows, __m512 *out) {
    size_t units = (k + PANEL_UNIT - 1) / PANEL_UNIT;
    __m512 sum[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_setzero_ps();
    const uint8_t *group = panel;
    for (size_t begin = 0; begin < units; begin += GROUP_UNITS, group += GROUP_BYTES)
        for (size_t i = 0; i < GROUP_UNITS && begin + i < units; i++) {
            const uint8_t *at = group + PANEL_LINE_BYTES + i * UNIT_BYTES;
            __m512 scale = load_halves(group + 32 * i);
            __m512i line[8];
            for (int ahead = i == 0 ? -PANEL_LINE_BYTES : 0; ahead < UNIT_BYTES;
                 ahead += PANEL_LINE_BYTES) /* the group's head, too */
                _mm_prefetch((const char *)at + AHEAD_BYTES + ahead, _MM_HINT_T0);
            read_unit(at, 8, line);
#pragma GCC unroll 16
            for (int row = 0; row < count; row++) {
                __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(rows->scale[row][begin + i]));
                sum[row] = _mm512_fmadd_ps(unit_sum(line, rows, row, begin + i), both, sum[row]);
            }
        }
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        out[row] = sum[row];
}

/* One scale per row of the weight, behind the lines. */
AVX512_INLINE void tile_channels(const int count, const uint8_t *panel, size_t k,
                                 const a16_rows *rows, __m512 *out) {
    size_t lines = (k + 3) / 4;
    __m512 sum[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_setzero_ps();
    for (size_t unit = 0; unit * 8 < lines; unit++) {
        const uint8_t *at = panel + unit * UNIT_BYTES;
        __m512i line[8];
        if (lines - unit * 8 >= 8) {
            for (int ahead = 0; ahead < UNIT_BYTES; ahead += PANEL_LINE_BYTES)
                _mm_prefetch((const char *)at + AHEAD_BYTES + ahead, _MM_HINT_T0);
            read_unit(at, 8, line);
        } else {
            read_unit(at, lines - unit * 8, line);
        }
#pragma GCC unroll 16
        for (int row = 0; row < count; row++)
            sum[row] = _mm512_fmadd_ps(unit_sum(line, rows, row, unit),
                                       _mm512_set1_ps(rows->scale[row][unit]), sum[row]);
    }
    __m512 scale = _mm512_load_ps(panel + lines * PANEL_LINE_BYTES);
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        out[row] = _mm512_mul_ps(sum[row], scale);
}

AVX512_INLINE void tile_either(const bool blocks, const int count, const uint8_t *panel, size_t k,
                               const a16_rows *rows, __m512 *sum) {
    if (blocks)
        tile_blocks(count, panel, k, rows, sum);
    else
        tile_channels(count, panel, k, rows, sum);
}

AVX512_INLINE void product_rows(const bool blocks, const product *product, const uint8_t *panel,
                                size_t row, size_t rows, __m512 *sum) {
    const activation_view *x = product->call->x;
    int compiled = tile_compiled(rows);
    a16_rows tile;
    for (size_t i = 0; i < (size_t)compiled; i++) {
        size_t source = row + tile_row(i, rows);
        tile.high[i] = x->number + source * x->stride;
        tile.low[i] = x->low + source * x->stride;
        tile.scale[i] = x->scale + source * x->scale_stride;
        tile.begin[i] =
            (const int32_t *)product->table + (source - product->chunk) * product->table_stride;
    }
    WITH_COUNT_TILE(compiled, count, tile_either(blocks, count, panel, x->k, &tile, sum))
}

static void product_blocks(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                           size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    product_rows(true, product, panel, row, rows, sum);
}

static void product_channels(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                             size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    product_rows(false, product, panel, row, rows, sum);
}

static size_t table_stride(const product *product) {
    return activation_scale_stride(product->call->weight->k);
}

static void fill(const product *product, size_t rows) {
    for (size_t i = 0; i < rows; i++)
        q8_begin(product->call->x, product->chunk + i,
                 (int32_t *)product->table + i * product->table_stride);
}

static const product_kind kind_blocks = {
    .chunk_rows = CHUNK_ROWS, .table_stride = table_stride, .fill = fill, .tile = product_blocks};
static const product_kind kind_channels = {
    .chunk_rows = CHUNK_ROWS, .table_stride = table_stride, .fill = fill, .tile = product_channels};

void linear_avx512_q8_0(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    product_run(&kind_blocks, call, first, last, scratch);
}

void linear_avx512_q8c(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->weight->k <= Q8C_SHORT_K && call->x->rows <= Q8C_SHORT_ROWS && call->bias == NULL)
        linear_avx512_q8c_short(call, first, last);
    else
        product_run(&kind_channels, call, first, last, scratch);
}
