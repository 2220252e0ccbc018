/* Widths are counted in characters, not in bytes. */
#include "bench/grid.h"

#include "base/allocator.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BYTES ((size_t)GRID_ROWS * GRID_COLUMNS * GRID_CELL)

avo_status grid_open(grid *grid) {
    *grid = (struct grid){.cell = allocator_take_array(NULL, 1, BYTES)};
    return grid->cell != NULL ? AVO_OK : AVO_ERROR_MEMORY;
}

void grid_close(grid *grid) {
    allocator_give(NULL, grid->cell, BYTES);
    grid->cell = NULL;
}

void grid_clear(grid *grid) {
    memset(grid->cell, 0, BYTES);
    grid->rows = grid->columns = grid->column = 0;
}

void grid_row(grid *grid) {
    grid->rows += grid->rows < GRID_ROWS;
    grid->column = 0;
}

void grid_cell(grid *grid, const char *format, ...) {
    if (grid->rows == 0 || grid->column == GRID_COLUMNS)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(grid->cell[grid->rows - 1][grid->column++], GRID_CELL, format, arguments);
    va_end(arguments);
    grid->columns = grid->column > grid->columns ? grid->column : grid->columns;
}

static uint32_t width_of(const char *text) {
    uint32_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static avo_status write_row(const grid *grid, uint32_t row, uint32_t left, const uint32_t *widths,
                            buffer *out) {
    for (uint32_t i = 0; i < grid->columns; i++) {
        const char *text = grid->cell[row][i];
        int space = (int)(widths[i] - width_of(text));
        bool last = i + 1 == grid->columns;
        AVO_TRY(buffer_format(out, "%s%*s%s%*s", i > 0 ? "  " : "", i < left ? 0 : space, "", text,
                              i < left && !last ? space : 0, ""));
    }
    return buffer_append_text(out, "\n");
}

avo_status grid_write(const grid *grid, uint32_t left, buffer *out) {
    uint32_t widths[GRID_COLUMNS] = {0}, whole = 0;
    for (uint32_t row = 0; row < grid->rows; row++)
        for (uint32_t i = 0; i < grid->columns; i++) {
            uint32_t width = width_of(grid->cell[row][i]);
            widths[i] = width > widths[i] ? width : widths[i];
        }
    for (uint32_t i = 0; i < grid->columns; i++)
        whole += widths[i] + (i > 0 ? 2 : 0);
    for (uint32_t row = 0; row < grid->rows; row++) {
        AVO_TRY(write_row(grid, row, left, widths, out));
        for (uint32_t i = 0; row == 0 && i < whole; i++)
            AVO_TRY(buffer_append_text(out, "-"));
        AVO_TRY(buffer_append_text(out, row == 0 ? "\n" : ""));
    }
    return AVO_OK;
}
