/* Weight matrices in their layouts: size, slices, and decode by panel and by row. The reference
 * back end decodes every weight once per step through weight_decode_panel, so that one is quick: a
 * piece of k is decoded for all rows into a tile that stays in the first cache, and transposed
 * there. */
#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"

#include <assert.h>

/* k elements decoded at a time for each of 16 rows: at least the longest block. */
#define TILE_ELEMENTS QUANT_BLOCK_MAX

bool weight_panel_bytes(quant_type type, uint64_t k, uint64_t *bytes) {
    return panels_bytes(type, k, bytes);
}

bool weight_bytes(quant_type type, quant_layout layout, uint64_t rows, uint64_t k,
                  uint64_t *bytes) {
    switch (layout) {
    case QUANT_LAYOUT_ROWS: {
        uint64_t row_bytes;
        return quant_run_bytes(type, k, &row_bytes) && u64_multiply(row_bytes, rows, bytes);
    }
    case QUANT_LAYOUT_COLUMNS: {
        uint64_t elements;
        return (type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16) &&
               u64_multiply(rows, k, &elements) && quant_run_bytes(type, elements, bytes);
    }
    case QUANT_LAYOUT_PANELS: {
        uint64_t panel_bytes, padded;
        return panels_bytes(type, k, &panel_bytes) &&
               u64_add(rows, QUANT_PANEL_ROWS - 1, &padded) &&
               u64_multiply(panel_bytes, padded / QUANT_PANEL_ROWS, bytes);
    }
    }
    return false;
}

/* Bytes from one row of a ROWS matrix, or one panel of a PANELS matrix, to the next. */
static size_t unit_bytes(const weight_view *weight) {
    uint64_t bytes = 0;
    bool known = weight->layout == QUANT_LAYOUT_PANELS
                     ? panels_bytes(weight->type, weight->k, &bytes)
                     : quant_run_bytes(weight->type, weight->k, &bytes);
    assert(known);
    (void)known;
    return (size_t)bytes;
}

/* Rows of the matrix that this is a range of. */
static uint32_t whole_of(const weight_view *weight) {
    return weight->rows_whole != 0 ? weight->rows_whole : weight->rows;
}

weight_view weight_slice(const weight_view *weight, uint32_t first, uint32_t rows) {
    assert(first <= weight->rows && rows <= weight->rows - first);
    weight_view slice = *weight;
    slice.rows = rows;
    slice.row_first = weight->row_first + first;
    slice.rows_whole = whole_of(weight);
    switch (weight->layout) {
    case QUANT_LAYOUT_ROWS:
        slice.data += first * unit_bytes(weight);
        break;
    case QUANT_LAYOUT_COLUMNS:
        slice.data += (size_t)first * quant_info_of(weight->type)->block_bytes;
        break;
    case QUANT_LAYOUT_PANELS:
        assert(first % QUANT_PANEL_ROWS == 0);
        slice.data += first / QUANT_PANEL_ROWS * unit_bytes(weight);
        break;
    }
    return slice;
}

typedef float lanes4 __attribute__((vector_size(16), aligned(4)));

/* out[k][16] lanes `row` … `row` + 3 from four rows of a tile. */
static inline void transpose_four_rows(const float *tile, size_t elements, float *out) {
    size_t i = 0;
    for (; i + 4 <= elements; i += 4) {
        lanes4 a = *(const lanes4 *)(tile + i);
        lanes4 b = *(const lanes4 *)(tile + i + TILE_ELEMENTS);
        lanes4 c = *(const lanes4 *)(tile + i + 2 * TILE_ELEMENTS);
        lanes4 d = *(const lanes4 *)(tile + i + 3 * TILE_ELEMENTS);
        lanes4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        lanes4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        lanes4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        lanes4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        float *to = out + i * QUANT_PANEL_ROWS;
        *(lanes4 *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
        *(lanes4 *)(to + 16) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
        *(lanes4 *)(to + 32) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
        *(lanes4 *)(to + 48) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
    }
    for (; i < elements; i++)
        for (size_t row = 0; row < 4; row++)
            out[i * QUANT_PANEL_ROWS + row] = tile[row * TILE_ELEMENTS + i];
}

static void decode_block_rows(const weight_view *weight, size_t first, size_t rows, size_t start,
                              size_t count, float *out) {
    quant_decoder decoder = quant_decoder_of(weight->type);
    const quant_info *info = quant_info_of(weight->type);
    size_t row_bytes = unit_bytes(weight);
    const uint8_t *data = weight->data + first * row_bytes;
    float tile[QUANT_PANEL_ROWS * TILE_ELEMENTS];
    if (rows < QUANT_PANEL_ROWS)
        memset(tile, 0, sizeof(tile));
    for (size_t begin = start; begin < start + count; begin += TILE_ELEMENTS) {
        /* Whole blocks of a type that has them; what is behind `count` is not copied. */
        size_t elements = size_min(weight->k - begin, TILE_ELEMENTS);
        size_t wanted = size_min(start + count - begin, elements);
        size_t offset = begin / info->block_elements * info->block_bytes;
        for (size_t row = 0; row < rows; row++)
            decoder(data + row * row_bytes + offset, elements, tile + row * TILE_ELEMENTS);
        for (size_t row = 0; row < QUANT_PANEL_ROWS; row += 4)
            transpose_four_rows(tile + row * TILE_ELEMENTS, wanted,
                                out + (begin - start) * QUANT_PANEL_ROWS + row);
    }
}

static void decode_block_columns(const weight_view *weight, size_t first, size_t rows, size_t begin,
                                 size_t count, float *out) {
    quant_decoder decoder = quant_decoder_of(weight->type);
    size_t element_bytes = quant_info_of(weight->type)->block_bytes;
    size_t stride = whole_of(weight);
    for (size_t i = 0; i < count; i++) {
        float *to = out + i * QUANT_PANEL_ROWS;
        decoder(weight->data + ((begin + i) * stride + first) * element_bytes, rows, to);
        for (size_t row = rows; row < QUANT_PANEL_ROWS; row++)
            to[row] = 0.0f;
    }
}

void weight_decode_panel(const weight_view *weight, size_t panel, float *out) {
    weight_decode_block(weight, panel, 0, weight->k, out);
}

void weight_decode_block(const weight_view *weight, size_t panel, size_t begin, size_t count,
                         float *out) {
    size_t first = panel * QUANT_PANEL_ROWS;
    assert(first < weight->rows && begin % QUANT_BLOCK_MAX == 0);
    assert(begin <= weight->k && count <= weight->k - begin);
    size_t rows = size_min(weight->rows - first, QUANT_PANEL_ROWS);
    switch (weight->layout) {
    case QUANT_LAYOUT_ROWS:
        decode_block_rows(weight, first, rows, begin, count, out);
        return;
    case QUANT_LAYOUT_COLUMNS:
        decode_block_columns(weight, first, rows, begin, count, out);
        return;
    case QUANT_LAYOUT_PANELS:
        panels_decode(weight->type, weight->data + panel * unit_bytes(weight), weight->k, begin,
                      count, out);
        /* A slice may end inside a panel, and a file may hold anything in its padding. */
        if (rows < QUANT_PANEL_ROWS)
            for (size_t i = 0; i < count; i++)
                for (size_t row = rows; row < QUANT_PANEL_ROWS; row++)
                    out[i * QUANT_PANEL_ROWS + row] = 0.0f;
        return;
    }
}

void weight_decode_row(const weight_view *weight, size_t row, float *out) {
    assert(row < weight->rows);
    switch (weight->layout) {
    case QUANT_LAYOUT_ROWS:
        quant_decode(weight->type, weight->data + row * unit_bytes(weight), weight->k, out);
        return;
    case QUANT_LAYOUT_COLUMNS: {
        size_t element_bytes = quant_info_of(weight->type)->block_bytes;
        size_t stride = whole_of(weight);
        quant_decoder decoder = quant_decoder_of(weight->type);
        for (size_t i = 0; i < weight->k; i++)
            decoder(weight->data + (i * stride + row) * element_bytes, 1, out + i);
        return;
    }
    case QUANT_LAYOUT_PANELS:
        panels_decode_row(weight->type, weight->data + row / QUANT_PANEL_ROWS * unit_bytes(weight),
                          weight->k, row % QUANT_PANEL_ROWS, out);
        return;
    }
}
