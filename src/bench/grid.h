/* A table of short texts, written with aligned columns. */
#ifndef AVO_BENCH_GRID_H
#define AVO_BENCH_GRID_H

#include "base/buffer.h"

#define GRID_ROWS    72
#define GRID_COLUMNS 40
#define GRID_CELL    72

typedef struct grid {
    char (*cell)[GRID_COLUMNS][GRID_CELL]; /* [GRID_ROWS] */
    uint32_t rows, columns;                /* columns of the row that has most */
    uint32_t column;                       /* of the next cell */
} grid;

AVO_MUST_USE avo_status grid_open(grid *grid);
void grid_close(grid *grid);
/* Empty again. */
void grid_clear(grid *grid);
void grid_row(grid *grid);
/* Into the newest row. What does not fit is left out. */
void grid_cell(grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first `left` columns to the left, the others to the right; a line under the first row. */
AVO_MUST_USE avo_status grid_write(const grid *grid, uint32_t left, buffer *out);

#endif
