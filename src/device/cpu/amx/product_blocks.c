/* The products of linear_blocks.h, one function a kind. */
#include "device/cpu/amx/linear_blocks.h"

#include <assert.h>

#define BLOCKS_AHEAD 2
#define BLOCKS_RING  4 /* stored C tiles: a power of two above BLOCKS_AHEAD */

/* What differs between the kinds; always a constant. */
typedef struct block_kind {
    bool minimum;
    bool planes;  /* A16 */
    bool channel; /* A16 with one weight scale per row, applied at the end */
} block_kind;

typedef struct block_scratch {
    block_piece piece;
    int32_t products[BLOCKS_RING][2][AMX_TILE_CELLS]; /* [plane] */
    float sums[AMX_BLOCK_ROWS * QUANT_PANEL_ROWS];
} block_scratch;
_Static_assert(sizeof(block_scratch) <= 131072, "what linear_scratch_bytes has at least");

/* Activations of one tile of rows, from the piece's first k on. */
typedef struct block_rows {
    const int8_t *number;
    const int8_t *low;
    size_t stride;
    const float *scale;
    const float *sum;
    size_t scale_stride;
} block_rows;

/* The C tiles of a block into the ring. `set`: which of two sets of registers. */
AMX_INLINE void multiply_block(const block_kind kind, const int set, const block_rows *x,
                               const block_scratch *scratch, size_t block,
                               int32_t (*out)[AMX_TILE_CELLS]) {
    const int c = 2 * set;
    const int b = 6 + set;
    const int a = kind.planes ? 4 : 4 + set;
    tile_zero(c);
    tile_load(b, scratch->piece.lines + block * PANEL_UNIT * QUANT_PANEL_ROWS, PANEL_LINE_BYTES);
    tile_load(a, x->number + block * PANEL_UNIT, x->stride);
    tile_product(c, a, b);
    if (kind.planes) {
        tile_zero(c + 1);
        tile_load(5, x->low + block * PANEL_UNIT, x->stride);
        tile_product(c + 1, 5, b);
    }
    tile_store(c, out[0], PANEL_LINE_BYTES);
    if (kind.planes)
        tile_store(c + 1, out[1], PANEL_LINE_BYTES);
}

/* The float work of one block and row. */
AMX_INLINE __m512 absorb_row(const block_kind kind, const block_rows *x, size_t block, size_t row,
                             const int32_t (*products)[AMX_TILE_CELLS], __m512 weight,
                             __m512 minimum, __m512 sum) {
    size_t unit = row * x->scale_stride + block;
    __m512 product = _mm512_cvtepi32_ps(_mm512_load_si512(products[0] + row * QUANT_PANEL_ROWS));
    __m512 scale = _mm512_set1_ps(x->scale[unit]);
    if (kind.planes)
        product = _mm512_fmadd_ps(
            product, _mm512_set1_ps(255.0f),
            _mm512_cvtepi32_ps(_mm512_load_si512(products[1] + row * QUANT_PANEL_ROWS)));
    sum = _mm512_fmadd_ps(product, kind.channel ? scale : _mm512_mul_ps(weight, scale), sum);
    if (kind.minimum)
        sum = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x->sum[unit]), sum);
    return sum;
}

/* A tile of rows against the piece, sums in registers. */
AMX_INLINE void multiply_tile(const block_kind kind, const block_rows *x, size_t blocks,
                              block_scratch *scratch, float *sums) {
    const block_piece *piece = &scratch->piece;
    __m512 sum[AMX_TILE_ROWS];
#pragma GCC unroll 16
    for (size_t row = 0; row < AMX_TILE_ROWS; row++)
        sum[row] = _mm512_load_ps(sums + row * QUANT_PANEL_ROWS);
    multiply_block(kind, 0, x, scratch, 0, scratch->products[0]);
    if (blocks > 1)
        multiply_block(kind, 1, x, scratch, 1, scratch->products[1]);
    for (size_t block = 0; block < blocks; block++) {
        size_t ahead = block + BLOCKS_AHEAD;
        if (ahead < blocks && ahead % 2 == 0)
            multiply_block(kind, 0, x, scratch, ahead, scratch->products[ahead % BLOCKS_RING]);
        else if (ahead < blocks)
            multiply_block(kind, 1, x, scratch, ahead, scratch->products[ahead % BLOCKS_RING]);
        const int32_t(*products)[AMX_TILE_CELLS] =
            (const int32_t(*)[AMX_TILE_CELLS])scratch->products[block % BLOCKS_RING];
        __m512 weight = _mm512_load_ps(piece->scale[block]);
        __m512 minimum = kind.minimum ? _mm512_load_ps(piece->minimum[block]) : weight;
#pragma GCC unroll 16
        for (size_t row = 0; row < AMX_TILE_ROWS; row++)
            sum[row] = absorb_row(kind, x, block, row, products, weight, minimum, sum[row]);
    }
#pragma GCC unroll 16
    for (size_t row = 0; row < AMX_TILE_ROWS; row++)
        _mm512_store_ps(sums + row * QUANT_PANEL_ROWS, sum[row]);
}

AMX_INLINE void multiply_piece(const block_kind kind, const activation_view *view,
                               const amx_rows *rows, size_t begin, size_t count,
                               block_scratch *scratch) {
    for (size_t tile = 0; tile < rows->tiles; tile++) {
        size_t row = amx_rows_begin(rows, tile);
        size_t scale = row * view->scale_stride + begin / PANEL_UNIT;
        block_rows x = {.number = view->number + row * view->stride + begin,
                        .low = kind.planes ? view->low + row * view->stride + begin : NULL,
                        .stride = view->stride,
                        .scale = view->scale + scale,
                        .sum = kind.minimum ? view->sum + scale : NULL,
                        .scale_stride = view->scale_stride};
        multiply_tile(kind, &x, count / PANEL_UNIT, scratch, scratch->sums + tile * AMX_TILE_CELLS);
    }
}

/* f · weight scale, for the types that have one per row. */
static inline void scale_channels(size_t rows, const float *weight, float *sums) {
    __m512 scale = _mm512_load_ps(weight);
    for (size_t i = 0; i < rows * QUANT_PANEL_ROWS; i += QUANT_PANEL_ROWS)
        _mm512_store_ps(sums + i, _mm512_mul_ps(_mm512_load_ps(sums + i), scale));
}

AMX_INLINE void multiply_panel(const block_kind kind, const block_job *job, size_t panel,
                               const amx_rows *rows, block_scratch *scratch) {
    const linear_call *call = job->call;
    size_t k = call->weight->k;
    size_t padded = (k + PANEL_UNIT - 1) / PANEL_UNIT * PANEL_UNIT;
    uint64_t panel_bytes = 0;
    bool known = panels_bytes(call->weight->type, k, &panel_bytes);
    (void)known;
    memset(scratch->sums, 0, rows->tiles * AMX_TILE_CELLS * sizeof(float));
    for (size_t begin = 0; begin < padded; begin += BLOCK_PIECE) {
        size_t count = padded - begin < BLOCK_PIECE ? padded - begin : BLOCK_PIECE;
        job->unpack(call->weight->data + panel * panel_bytes, k, begin, count, &scratch->piece);
        multiply_piece(kind, call->x, rows, begin, count, scratch);
    }
    if (kind.channel)
        scale_channels(rows->tiles * AMX_TILE_ROWS, scratch->piece.scale[0], scratch->sums);
    amx_finish(call, panel, 1, rows, scratch->sums, QUANT_PANEL_ROWS);
}

AMX_INLINE void multiply_all(const block_kind kind, const block_job *job) {
    block_scratch *scratch = (block_scratch *)(void *)job->scratch;
    size_t count = job->call->x->rows;
    assert(count >= AMX_TILE_ROWS);
    tile_configuration configuration = amx_configuration(AMX_TILE_ROWS, PANEL_UNIT, 6);
    tiles_configure(&configuration);
    /* Blocks of rows that differ by little, so that none has less than a tile. */
    size_t parts = (count + AMX_BLOCK_ROWS - 1) / AMX_BLOCK_ROWS;
    for (size_t part = 0; part < parts; part++) {
        size_t first = count * part / parts;
        amx_rows rows = amx_rows_cut(first, count * (part + 1) / parts - first);
        for (size_t panel = job->first; panel < job->last; panel++)
            multiply_panel(kind, job, panel, &rows, scratch);
    }
    tiles_release();
}

void block_linear_a8(const block_job *job) {
    multiply_all((block_kind){0}, job);
}

void block_linear_a8_minimum(const block_job *job) {
    multiply_all((block_kind){.minimum = true}, job);
}

void block_linear_a16(const block_job *job) {
    multiply_all((block_kind){.planes = true}, job);
}

void block_linear_a16_channel(const block_job *job) {
    multiply_all((block_kind){.planes = true, .channel = true}, job);
}
