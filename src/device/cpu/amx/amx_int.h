/* Inside amx/: how rows of activations become tiles, where sums wait, and the entries.
 *
 * A tile of activations is up to 16 rows of x as they lie; a tile of weights is 16 byte lines as
 * they lie in a panel (64 k), so C[row][output] is 16 rows × 16 outputs. With fewer than 16 rows
 * the tiles are that high; otherwise all have 16, and the last begins at rows − 16: its first rows
 * may be computed twice, but are written once. So nothing is read past the last row.
 */
#ifndef AVO_DEVICE_CPU_AMX_INT_H
#define AVO_DEVICE_CPU_AMX_INT_H

#include "device/cpu/avx512/linear.h"

#include <amx_tiles.h>
#include <immintrin.h>

#define AMX_INLINE static inline __attribute__((always_inline))

/* With fewer rows of x, AVX-512 is faster, from memory or from the caches: a tile then is mostly
 * empty, and what tiles save is less than what storing and reading them again costs. */
#define AMX_ROWS_MIN_Q4R    5
#define AMX_ROWS_MIN_BLOCKS 48
#define AMX_ROWS_MIN_Q8     32
#define AMX_ROWS_MIN_FEW_Q8 4 /* few_q8.c; from MIN_Q8 on with few panels linear_blocks.h */
#define AMX_ROWS_MIN_Q8R    16

/* Rows whose sums are kept at a time; more rows unpack the weights again, once per so many. */
#define AMX_BLOCK_ROWS 512
#define AMX_TILE_ROWS  16
#define AMX_TILE_CELLS (AMX_TILE_ROWS * QUANT_PANEL_ROWS)

/* Rows [first, first + rows) of x, cut into tiles. */
typedef struct amx_rows {
    size_t first;
    size_t rows;
    size_t height; /* of every tile */
    size_t tiles;
} amx_rows;

static inline amx_rows amx_rows_cut(size_t first, size_t rows) {
    size_t height = rows < AMX_TILE_ROWS ? rows : AMX_TILE_ROWS;
    return (amx_rows){first, rows, height, (rows + height - 1) / height};
}

/* The first row of a tile, counted from row 0 of x; of a tile behind the last, the last one's. */
static inline size_t amx_rows_begin(const amx_rows *rows, size_t tile) {
    size_t begin = tile * rows->height;
    size_t last = rows->rows - rows->height;
    return rows->first + (begin < last ? begin : last);
}

/* Tiles 0…3: C, of `height` rows; from 4 on activations, from `weights` on weights, `depth` k. */
tile_configuration amx_configuration(size_t height, size_t depth, int weights);

/* Writes the outputs of one panel or of two side by side from their sums,
 * sums[tile][16][stride]: bias, then store or add. */
void amx_finish(const linear_call *call, size_t panel, size_t panels, const amx_rows *rows,
                const float *sums, size_t stride);

linear_function amx_linear_q4_0, amx_linear_q4_1, amx_linear_q4b64, amx_linear_q4m64;
linear_function amx_linear_q5_0, amx_linear_q5_1, amx_linear_iq4_nl, amx_linear_mxfp4;
linear_function amx_linear_q4_k, amx_linear_q5_k, amx_linear_iq4_xs;
linear_function amx_linear_q8b, amx_linear_q8c, amx_linear_q8r;
linear_function amx_linear_q4r;

#endif
