/* Products on tiles for types whose scale changes every 32 k or every 16 (A8) and for 8-bit ones
 * (A16): the body, inlined into one function per kind by linear_blocks.c.
 *
 * Layout  one panel (16 outputs); BLOCK_PIECE k of it are unpacked to byte lines and float scales
 *         that stay in the first-level cache while all rows of x stream past.
 * Tile    16 rows × 16 outputs; the 16 float sums of each row stay in registers over the piece.
 *         A block of `depth` k (32 or 16) is one product of tiles of that depth: half or a quarter
 *         of what the tile unit could do, but the float work that must follow each block (one
 *         conversion, product and fma per row; one more fma for minima) is the limit anyway. The
 *         products of block b + 2 are issued before the float work of block b.
 * A16     two products a block, of the high and of the low bytes. 255 · high + low as float is one
 *         fma of the two as floats: both are exact, and it rounds once, as F(I) does.
 * Tails   fewer than 16 rows: lower tiles, sums in memory; k up to whole units with zeros.
 * Sums    f[row][output], in the order of activation.h.
 */
#ifndef AVO_KERNELS_AMX_LINEAR_BLOCKS_H
#define AVO_KERNELS_AMX_LINEAR_BLOCKS_H

#include "kernels/amx/unpack.h"

#define BLOCK_PIECE  512 /* k: 8 KB of lines */
#define BLOCKS_MAX   (BLOCK_PIECE / 16)
#define BLOCK_ROWS   8
#define BLOCK_PANELS (16 / BLOCK_ROWS)
#define BLOCKS_AHEAD 2
#define BLOCKS_RING  4 /* stored C tiles: a power of two above BLOCKS_AHEAD */

/* A piece of a panel as a product reads it. */
typedef struct block_piece {
    int8_t lines[BLOCK_PIECE * QUANT_PANEL_ROWS];
    float scale[BLOCKS_MAX][QUANT_PANEL_ROWS];   /* per block */
    float minimum[BLOCKS_MAX][QUANT_PANEL_ROWS]; /* where the kind has minima */
} block_piece;

/* Unpacks [begin, begin + count) of k; begin is a multiple of BLOCK_PIECE, count of 32 (what lies
 * behind k is zero). */
typedef void (*block_unpack)(const uint8_t *panel, size_t k, size_t begin, size_t count,
                             block_piece *out);

/* What differs between the kinds; always a constant where the body is inlined. */
typedef struct block_kind {
    size_t depth; /* k per block: 32 or 16 */
    bool minimum;
    bool planes;  /* A16 */
    bool channel; /* A16 with one weight scale per row, applied at the end */
} block_kind;

AMX_INLINE block_kind block_kind_of(const unit_kind *kind) {
    return (block_kind){kind->sub_blocks ? 16 : 32, kind->minimum, false, false};
}

/* Units of a type, numbers with their zero point applied. */
AMX_INLINE void block_unpack_units(const unit_kind *kind, const uint8_t *panel, size_t begin,
                                   size_t count, block_piece *out) {
    const __m512i zero = _mm512_set1_epi8((char)kind->zero);
    const size_t halves = kind->sub_blocks ? 2 : 1;
    for (size_t i = 0; i < count / PANEL_UNIT; i++) {
        size_t unit = begin / PANEL_UNIT + i;
        const uint8_t *group = panel + unit / kind->group_units * kind->group_bytes;
        unit_lines read;
        kind->read(group, unit % kind->group_units, &read);
        int8_t *lines = out->lines + i * PANEL_UNIT * QUANT_PANEL_ROWS;
#pragma GCC unroll 8
        for (int line = 0; line < 8; line++)
            _mm512_store_si512(lines + line * PANEL_LINE_BYTES,
                               _mm512_sub_epi8(read.line[line], zero));
        for (size_t half = 0; half < halves; half++) {
            _mm512_store_ps(out->scale[i * halves + half], read.scale[half]);
            if (kind->minimum)
                _mm512_store_ps(out->minimum[i * halves + half], read.minimum[half]);
        }
    }
}

/* The C tiles of a block: [panel][plane]. */
typedef struct block_products {
    int32_t tile[2][2][AMX_TILE_CELLS];
} block_products;

typedef struct block_scratch {
    block_piece piece[2];
    block_products products[BLOCKS_RING];
    float sums[AMX_BLOCK_ROWS * 2 * QUANT_PANEL_ROWS];
} block_scratch;

/* One tile of rows against the piece. */
typedef struct block_rows {
    const int8_t *number; /* at the tile's first row and the piece's first k, as all below */
    const int8_t *low;
    size_t stride;
    const float *scale;
    const float *sum;
    size_t scale_stride;
    const int32_t *integer_sum;
    size_t sum_stride;
    size_t height;
} block_rows;

/* The C tiles of a block into the ring. `set`: which of two sets of registers. */
AMX_INLINE void block_issue(const block_kind kind, const int panels, const int set,
                            const block_rows *x, const block_piece *piece, size_t block,
                            block_products *out) {
    const int c = kind.planes ? 0 : 2 * set;
    const int a = kind.planes ? 4 : 4 + set;
    size_t line = block * kind.depth * QUANT_PANEL_ROWS;
    tile_zero(c);
    tile_load(6, piece[0].lines + line, PANEL_LINE_BYTES);
    tile_load(a, x->number + block * kind.depth, x->stride);
    tile_product(c, a, 6);
    if (panels == 2) {
        tile_zero(c + 1);
        tile_load(7, piece[1].lines + line, PANEL_LINE_BYTES);
        tile_product(c + 1, a, 7);
    }
    if (kind.planes) {
        tile_zero(2);
        tile_load(5, x->low + block * kind.depth, x->stride);
        tile_product(2, 5, 6);
        if (panels == 2) {
            tile_zero(3);
            tile_product(3, 5, 7);
        }
    }
    tile_store(c, out->tile[0][0], PANEL_LINE_BYTES);
    if (panels == 2)
        tile_store(c + 1, out->tile[1][0], PANEL_LINE_BYTES);
    if (kind.planes)
        tile_store(2, out->tile[0][1], PANEL_LINE_BYTES);
    if (kind.planes && panels == 2)
        tile_store(3, out->tile[1][1], PANEL_LINE_BYTES);
}

/* The float work of one block for one row and `panels` panels. */
AMX_INLINE void block_absorb_row(const block_kind kind, const int panels, const block_rows *x,
                                 size_t block, size_t row, const block_products *products,
                                 const __m512 *weight, const __m512 *minimum, __m512 *sum) {
    size_t unit = kind.depth == 32 ? block : block / 2;
    __m512 scale = _mm512_set1_ps(x->scale[row * x->scale_stride + unit]);
    __m512 times = scale;
    if (kind.minimum && kind.depth == 32)
        times = _mm512_set1_ps(x->sum[row * x->scale_stride + unit]);
    if (kind.minimum && kind.depth == 16)
        times = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_set1_epi32(
                                         x->integer_sum[row * x->sum_stride + block])));
    for (int panel = 0; panel < panels; panel++) {
        const int32_t *at = products->tile[panel][0] + row * QUANT_PANEL_ROWS;
        __m512 product = _mm512_cvtepi32_ps(_mm512_load_si512(at));
        if (kind.planes)
            product = _mm512_fmadd_ps(product, _mm512_set1_ps(255.0f),
                                      _mm512_cvtepi32_ps(_mm512_load_si512(at + AMX_TILE_CELLS)));
        __m512 both = kind.channel ? scale : _mm512_mul_ps(weight[panel], scale);
        sum[panel] = _mm512_fmadd_ps(product, both, sum[panel]);
        if (kind.minimum)
            sum[panel] = _mm512_fmadd_ps(minimum[panel], times, sum[panel]);
    }
}

AMX_INLINE void block_weights(const block_kind kind, const int panels, const block_piece *piece,
                              size_t block, __m512 *weight, __m512 *minimum) {
    for (int panel = 0; panel < panels; panel++) {
        weight[panel] = _mm512_load_ps(piece[panel].scale[block]);
        if (kind.minimum)
            minimum[panel] = _mm512_load_ps(piece[panel].minimum[block]);
    }
}

/* BLOCK_ROWS rows, sums in registers. */
AMX_INLINE void block_tile_full(const block_kind kind, const int panels, const block_rows *x,
                                size_t blocks, block_scratch *scratch, float *sums) {
    const block_piece *piece = scratch->piece;
    block_products *ring = scratch->products;
    __m512 sum[BLOCK_ROWS][2];
    for (int row = 0; row < BLOCK_ROWS; row++)
        for (int panel = 0; panel < panels; panel++)
            sum[row][panel] = _mm512_load_ps(sums + (row * panels + panel) * QUANT_PANEL_ROWS);
    block_issue(kind, panels, 0, x, piece, 0, &ring[0]);
    if (blocks > 1)
        block_issue(kind, panels, 1, x, piece, 1, &ring[1]);
    for (size_t block = 0; block < blocks; block++) {
        size_t ahead = block + BLOCKS_AHEAD;
        if (ahead < blocks && ahead % 2 == 0)
            block_issue(kind, panels, 0, x, piece, ahead, &ring[ahead % BLOCKS_RING]);
        else if (ahead < blocks)
            block_issue(kind, panels, 1, x, piece, ahead, &ring[ahead % BLOCKS_RING]);
        __m512 weight[2], minimum[2];
        block_weights(kind, panels, piece, block, weight, minimum);
#pragma GCC unroll 16
        for (size_t row = 0; row < BLOCK_ROWS; row++)
            block_absorb_row(kind, panels, x, block, row, &ring[block % BLOCKS_RING], weight,
                             minimum, sum[row]);
    }
    for (int row = 0; row < BLOCK_ROWS; row++)
        for (int panel = 0; panel < panels; panel++)
            _mm512_store_ps(sums + (row * panels + panel) * QUANT_PANEL_ROWS, sum[row][panel]);
}

/* Fewer rows, sums in memory. */
AMX_INLINE void block_tile_low(const block_kind kind, const int panels, const block_rows *x,
                               size_t blocks, block_scratch *scratch, float *sums) {
    const block_piece *piece = scratch->piece;
    block_products *ring = scratch->products;
    block_issue(kind, panels, 0, x, piece, 0, &ring[0]);
    for (size_t block = 0; block < blocks; block++) {
        if (block + 1 < blocks)
            block_issue(kind, panels, 0, x, piece, block + 1, &ring[(block + 1) % BLOCKS_RING]);
        __m512 weight[2], minimum[2];
        block_weights(kind, panels, piece, block, weight, minimum);
        for (size_t row = 0; row < x->height; row++) {
            float *at = sums + row * (size_t)panels * QUANT_PANEL_ROWS;
            __m512 sum[2];
            for (int panel = 0; panel < panels; panel++)
                sum[panel] = _mm512_load_ps(at + panel * QUANT_PANEL_ROWS);
            block_absorb_row(kind, panels, x, block, row, &ring[block % BLOCKS_RING], weight,
                             minimum, sum);
            for (int panel = 0; panel < panels; panel++)
                _mm512_store_ps(at + panel * QUANT_PANEL_ROWS, sum[panel]);
        }
    }
}

AMX_INLINE void block_piece_rows(const block_kind kind, const int panels,
                                 const activation_view *view, const amx_rows *rows, size_t begin,
                                 size_t count, block_scratch *scratch) {
    size_t blocks = count / kind.depth;
    for (size_t tile = 0; tile < rows->tiles; tile++) {
        size_t row = amx_rows_begin(rows, tile);
        size_t scale_at = row * view->scale_stride + begin / 32;
        block_rows x = {.number = view->number + row * view->stride + begin,
                        .low = kind.planes ? view->low + row * view->stride + begin : NULL,
                        .stride = view->stride,
                        .scale = view->scale + scale_at,
                        .sum = kind.minimum ? view->sum + scale_at : NULL,
                        .scale_stride = view->scale_stride,
                        .integer_sum = kind.minimum
                                           ? view->integer_sum + row * view->sum_stride + begin / 16
                                           : NULL,
                        .sum_stride = view->sum_stride,
                        .height = rows->height};
        float *sums = scratch->sums + tile * BLOCK_ROWS * (size_t)panels * QUANT_PANEL_ROWS;
        if (rows->height == BLOCK_ROWS)
            block_tile_full(kind, panels, &x, blocks, scratch, sums);
        else
            block_tile_low(kind, panels, &x, blocks, scratch, sums);
    }
}

/* f · weight scale, for the types that have one per row; sums [cells][stride]. */
static inline void block_channel_scale(size_t cells, size_t stride, const float *weight,
                                       float *sums) {
    __m512 scale = _mm512_loadu_ps(weight);
    for (size_t i = 0; i < cells; i++)
        _mm512_store_ps(sums + i * stride, _mm512_mul_ps(_mm512_load_ps(sums + i * stride), scale));
}

/* One panel or two with the rows of a block. */
AMX_INLINE void block_panels(const block_kind kind, const int panels, block_unpack unpack,
                             const linear_call *call, size_t panel, const amx_rows *rows,
                             block_scratch *scratch) {
    size_t k = call->weight->k;
    size_t padded = (k + PANEL_UNIT - 1) / PANEL_UNIT * PANEL_UNIT;
    size_t stride = (size_t)panels * QUANT_PANEL_ROWS;
    uint64_t panel_bytes = 0;
    bool known = panels_bytes(call->weight->type, k, &panel_bytes);
    (void)known;
    const uint8_t *from = call->weight->data + panel * panel_bytes;
    memset(scratch->sums, 0, rows->tiles * BLOCK_ROWS * stride * sizeof(float));
    for (size_t begin = 0; begin < padded; begin += BLOCK_PIECE) {
        size_t count = padded - begin < BLOCK_PIECE ? padded - begin : BLOCK_PIECE;
        for (int i = 0; i < panels; i++)
            unpack(from + (size_t)i * panel_bytes, k, begin, count, &scratch->piece[i]);
        block_piece_rows(kind, panels, call->x, rows, begin, count, scratch);
    }
    for (int i = 0; i < panels; i++) {
        float *sums = scratch->sums + i * QUANT_PANEL_ROWS;
        if (kind.channel)
            block_channel_scale(rows->tiles * BLOCK_ROWS, stride, scratch->piece[i].scale[0], sums);
        amx_finish(call, panel + (size_t)i, rows, sums, stride);
    }
}

AMX_INLINE void block_linear(const block_kind kind, block_unpack unpack, const linear_call *call,
                             size_t first, size_t last, uint8_t *memory) {
    block_scratch *scratch = (block_scratch *)(void *)memory;
    for (size_t row = 0; row < call->x->rows; row += AMX_BLOCK_ROWS) {
        size_t left = call->x->rows - row;
        amx_rows rows =
            amx_rows_cut(row, left < AMX_BLOCK_ROWS ? left : AMX_BLOCK_ROWS, BLOCK_ROWS);
        tile_configuration configuration = amx_configuration(rows.height, kind.depth);
        tiles_configure(&configuration);
        size_t panel = first;
        for (; panel + BLOCK_PANELS <= last; panel += BLOCK_PANELS)
            block_panels(kind, BLOCK_PANELS, unpack, call, panel, &rows, scratch);
        if (panel < last)
            block_panels(kind, 1, unpack, call, panel, &rows, scratch);
    }
    tiles_release();
}

#endif
