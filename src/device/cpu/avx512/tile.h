/* What all products do around their sums: rows cut into tiles, panels unpacked where many rows
 * share them, and the sums written out. */
#ifndef AVO_DEVICE_CPU_AVX512_TILE_H
#define AVO_DEVICE_CPU_AVX512_TILE_H

#include "device/cpu/avx512/linear_int.h"
#include "device/cpu/with_count.h"

typedef struct product_kind product_kind;

/* One call of one type. */
typedef struct product {
    const product_kind *kind;
    const linear_call *call;
    size_t panel_bytes;
    size_t chunk;        /* the first row that `table` is about */
    size_t table_stride; /* numbers of 4 bytes per row */
    void *table;         /* [rows of a chunk][table_stride], what the type wants to know of rows */
    uint8_t *unpacked;   /* PANELS_TOGETHER panels at most */
} product;

/* Sums of one panel and `rows` rows from `row` on. `unpacked` NULL: unpacks in registers. */
typedef void (*product_tile)(const product *product, const uint8_t *panel, const uint8_t *unpacked,
                             size_t row, size_t rows, __m512 *sum);
typedef void (*product_unpack)(const product *product, const uint8_t *panel, uint8_t *out);

struct product_kind {
    size_t chunk_rows;
    int32_t zero; /* subtracted from every number */
    bool sub_blocks;
    size_t (*table_stride)(const product *product); /* a multiple of 16; NULL: no table */
    /* Fills `table` for rows [chunk, chunk + rows). */
    void (*fill)(const product *product, size_t rows);
    /* Bytes of an unpacked panel, a multiple of 64. */
    size_t (*unpacked_bytes)(const product *product);
    product_unpack unpack;
    product_tile tile;
    size_t fused_rows; /* calls of more rows than these unpack first, where there is `unpack` */
};

#define TILE_PANELS_BYTES 524288

/* Panels unpacked together: a tile's rows of x then stay in the first cache for all of them. */
#define PANELS_TOGETHER 4

/* All of it: what the op table's entries do. */
void product_run(const product_kind *kind, const linear_call *call, size_t first, size_t last,
                 uint8_t *scratch);

/* Bias, then STORE or ADD, for the sums of rows [row, row + rows). */
void product_finish(const linear_call *call, size_t panel, size_t row, size_t rows,
                    const __m512 *sum);

/* Fetches the lines of `out` that a tile is about to write while its sums are taken: they lie far
 * apart, and stores that wait for memory stop everything. */
void product_fetch_out(const linear_call *call, size_t panel, size_t row, size_t rows);

/* Rows in the next tile of `left` rows: tiles of one call differ by little, so that none is left
 * with so few rows that its weights cost more than its products. */
AVX512_INLINE size_t tile_rows(size_t left) {
    size_t tiles = (left + TILE_ROWS_MAX - 1) / TILE_ROWS_MAX;
    return (left + tiles - 1) / tiles;
}

/* Of `panels` panels, how many each tile of rows meets before the next one does: all of them where
 * there is one tile, else what the second cache keeps. */
AVX512_INLINE size_t tile_panels(size_t rows, size_t panels, size_t panel_bytes) {
    size_t kept = TILE_PANELS_BYTES / (panel_bytes > 0 ? panel_bytes : 1) + 1;
    return rows > TILE_ROWS_MAX && panels > kept ? kept : panels;
}

/* The sizes that are compiled: a tile of 5 rows runs as 6, the last row twice. */
AVX512_INLINE int tile_compiled(size_t rows) {
    static const uint8_t compiled[TILE_ROWS_MAX + 1] = {0,  1,  2,  3,  4,  6,  6,  8, 8,
                                                        10, 10, 12, 12, 14, 14, 16, 16};
    return compiled[rows];
}

/* The same where all tiles of up to 8 rows are compiled. */
AVX512_INLINE int tile_exact(size_t rows) {
    return rows <= 8 ? (int)rows : tile_compiled(rows);
}

/* Row `i` of a tile that has `rows`. */
AVX512_INLINE size_t tile_row(size_t i, size_t rows) {
    return i < rows ? i : rows - 1;
}

#endif
