/* Products with Q8R (A8R): the halves of adapters. 256 k are summed in integers before a float is
 * touched, and x is what the products of Q4R read: one vpdpbusd per line and row, where 8 bits with
 * A16 take two.
 *
 * The signed bytes become unsigned with zero point 128 by one exclusive or; sums begin at −128 ·
 * (sum of the row's 256 numbers).
 *
 *   A (long rows)   tiles of one panel and up to 16 rows, as everywhere. Calls of up to 3 rows have
 *                   two sums each: one waits four cycles for every line.
 *
 *   B (k up to 64)  a panel is a handful of lines, so that what stands around the sums weighs as
 *                   much as they: the lines stay in registers while all rows walk past them. Per
 *                   row and panel k / 4 vpdpbusd, two multiplications, and one more where the
 *                   outputs are not added as they are.
 */
#include "device/cpu/avx512/tile.h"

#define BYTE_ZERO   128
#define SUB_LINES   (Q4R_SUB / 4)
#define CHUNK_ROWS  512
#define SHORT_LINES 16
/* Read ahead: as linear_q8.c and, of short rows, of which a worker reads a part once, as far. */
#define AHEAD_BYTES 4096

AVX512_INLINE size_t lines_of(size_t k) {
    return (k + Q4R_SUB - 1) / Q4R_SUB * SUB_LINES;
}

AVX512_INLINE __m512i read_line(const uint8_t *at) {
    return _mm512_xor_si512(load_line(at), _mm512_set1_epi8((char)BYTE_ZERO));
}

/* −128 · (sum of 256 numbers), for every 256 of a row. */
static void begin_of(const activation_view *x, size_t row, int32_t *begin) {
    const int32_t *sums = x->integer_sum + row * x->sum_stride;
    size_t count = ((size_t)x->k + Q4R_SUB - 1) / Q4R_SUB;
    for (size_t at = 0; at < count; at += Q4R_SUBS) {
        __m512i part = _mm512_maskz_loadu_epi32(lanes_left(count - at), sums + at);
        *begin++ = -BYTE_ZERO * _mm512_reduce_add_epi32(part);
    }
}

/* ---- Long rows ---- */

typedef struct q8r_rows {
    const int8_t *number[TILE_ROWS_MAX];
    const float *scale[TILE_ROWS_MAX];
    const int32_t *begin[TILE_ROWS_MAX];
} q8r_rows;

/* Lines [0, lines) of a super-block; four at a time. */
AVX512_INLINE void add_super(const int count, const uint8_t *at, size_t lines, size_t begin,
                             const q8r_rows *rows, __m512i *total) {
    __m512i other[TILE_ROWS_MAX]; /* the second sum of few rows */
    const bool two = count <= 3;
    for (int row = 0; two && row < count; row++)
        other[row] = _mm512_setzero_si512();
    for (size_t line = 0; line < lines; line += SUB_LINES, at += SUB_LINES * PANEL_LINE_BYTES) {
        __m512i four[SUB_LINES];
#pragma GCC unroll 4
        for (int i = 0; i < SUB_LINES; i++) {
            fetch_ahead(at + i * PANEL_LINE_BYTES, count);
            four[i] = read_line(at + i * PANEL_LINE_BYTES);
        }
#pragma GCC unroll 16
        for (int row = 0; row < count; row++) {
            const int8_t *number = rows->number[row] + begin + 4 * line;
#pragma GCC unroll 4
            for (int i = 0; i < SUB_LINES; i++) {
                __m512i *sum = two && i % 2 != 0 ? &other[row] : &total[row];
                *sum = dot_four(*sum, four[i], number + 4 * i);
            }
        }
    }
    for (int row = 0; two && row < count; row++)
        total[row] = _mm512_add_epi32(total[row], other[row]);
}

AVX512_INLINE void q8r_tile(const int count, const uint8_t *panel, size_t k, const q8r_rows *rows,
                            __m512 *out) {
    size_t lines = lines_of(k);
    __m512 sum[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_setzero_ps();
    for (size_t first = 0, index = 0; first < lines; first += Q4R_SUPER / 4, index++) {
        size_t here = lines - first < Q4R_SUPER / 4 ? lines - first : Q4R_SUPER / 4;
        __m512i total[TILE_ROWS_MAX];
#pragma GCC unroll 16
        for (int row = 0; row < count; row++)
            total[row] = _mm512_set1_epi32(rows->begin[row][index]);
        add_super(count, panel + first * PANEL_LINE_BYTES, here, 4 * first, rows, total);
#pragma GCC unroll 16
        for (int row = 0; row < count; row++)
            sum[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[row]),
                                       _mm512_set1_ps(rows->scale[row][index]), sum[row]);
    }
    __m512 scale = _mm512_load_ps(panel + lines * PANEL_LINE_BYTES);
#pragma GCC unroll 16
    for (int row = 0; row < count; row++)
        out[row] = _mm512_mul_ps(sum[row], scale);
}

static void product_tile_q8r(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                             size_t row, size_t rows, __m512 *sum) {
    (void)unpacked;
    const activation_view *x = product->call->x;
    int compiled = tile_exact(rows);
    q8r_rows tile;
    for (size_t i = 0; i < (size_t)compiled; i++) {
        size_t source = row + tile_row(i, rows);
        tile.number[i] = x->number + source * x->stride;
        tile.scale[i] = x->scale + source * x->scale_stride;
        tile.begin[i] =
            (const int32_t *)product->table + (source - product->chunk) * product->table_stride;
    }
    WITH_COUNT_TILE(compiled, count, q8r_tile(count, panel, x->k, &tile, sum))
}

static size_t table_stride(const product *product) {
    size_t k = product->call->weight->k;
    return (k + 16 * Q4R_SUPER - 1) / (16 * Q4R_SUPER) * 16;
}

static void fill(const product *product, size_t rows) {
    for (size_t i = 0; i < rows; i++)
        begin_of(product->call->x, product->chunk + i,
                 (int32_t *)product->table + i * product->table_stride);
}

static const product_kind kind_q8r = {
    .chunk_rows = CHUNK_ROWS, .table_stride = table_stride, .fill = fill, .tile = product_tile_q8r};

/* ---- Short rows ---- */

typedef struct short_call {
    const linear_call *call;
    const int32_t *begin; /* [rows] */
    size_t row, rows;     /* of this chunk */
} short_call;

/* How the sums join the outputs: STORE, ADD, or ADD with a scale of 1. */
typedef enum short_end { SHORT_STORE, SHORT_SCALE, SHORT_ADD } short_end;

AVX512_INLINE void short_row(const int lines, const short_end end, const __m512i *line,
                             const short_call *own, size_t i, __m512 scale, __mmask16 lanes,
                             float *out) {
    const activation_view *x = own->call->x;
    const int8_t *number = x->number + (own->row + i) * x->stride;
    __m512i total = _mm512_set1_epi32(own->begin[i]);
#pragma GCC unroll 16
    for (int n = 0; n < lines; n++)
        total = dot_four(total, line[n], number + 4 * n);
    __m512 sum = _mm512_mul_ps(_mm512_cvtepi32_ps(total),
                               _mm512_set1_ps(x->scale[(own->row + i) * x->scale_stride]));
    __m512 y = _mm512_mul_ps(sum, scale);
    if (end == SHORT_ADD)
        y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(lanes, out));
    else if (end == SHORT_SCALE)
        y = _mm512_fmadd_ps(y, _mm512_set1_ps(own->call->add_scale),
                            _mm512_maskz_loadu_ps(lanes, out));
    _mm512_mask_storeu_ps(out, lanes, y);
}

AVX512_INLINE void short_panels(const int lines, const short_end end, const short_call *own,
                                size_t first, size_t last) {
    const linear_call *call = own->call;
    for (size_t panel = first; panel < last; panel++) {
        const uint8_t *at = call->weight->data + panel * (size_t)(lines + 1) * PANEL_LINE_BYTES;
        __m512i line[SHORT_LINES];
#pragma GCC unroll 16
        for (int i = 0; i < lines; i++)
            line[i] = read_line(at + i * PANEL_LINE_BYTES);
        for (int i = 0; i <= lines; i++)
            _mm_prefetch((const char *)at + AHEAD_BYTES + i * PANEL_LINE_BYTES, _MM_HINT_T0);
        __m512 scale = _mm512_load_ps(at + lines * PANEL_LINE_BYTES);
        __mmask16 lanes = lanes_left(call->weight->rows - panel * QUANT_PANEL_ROWS);
        float *out = call->out + own->row * call->out_stride + panel * QUANT_PANEL_ROWS;
        for (size_t i = 0; i < own->rows; i++, out += call->out_stride)
            short_row(lines, end, line, own, i, scale, lanes, out);
    }
}

AVX512_INLINE void short_ends(const int lines, const short_call *own, size_t first, size_t last) {
    if (own->call->end == LINEAR_STORE)
        short_panels(lines, SHORT_STORE, own, first, last);
    else if (own->call->add_scale == 1.0f)
        short_panels(lines, SHORT_ADD, own, first, last);
    else
        short_panels(lines, SHORT_SCALE, own, first, last);
}

static void run_short(const linear_call *call, size_t first, size_t last, int32_t *begin) {
    for (size_t row = 0; row < call->x->rows; row += CHUNK_ROWS) {
        size_t left = call->x->rows - row;
        short_call own = {call, begin, row, left < CHUNK_ROWS ? left : CHUNK_ROWS};
        for (size_t i = 0; i < own.rows; i++)
            begin_of(call->x, row + i, begin + i);
        WITH_COUNT_OF_4(lines_of(call->weight->k), 4, 8, 12, 16, count,
                        short_ends(count, &own, first, last))
    }
}

void linear_avx512_q8r(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (lines_of(call->weight->k) <= SHORT_LINES && call->bias == NULL)
        run_short(call, first, last, (int32_t *)(void *)scratch);
    else
        product_run(&kind_q8r, call, first, last, scratch);
}
