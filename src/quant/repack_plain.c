/* Repack of plain numbers. F32, F16, BF16 and E4M3 move in words of four bytes: a line takes one
 * word from each of 16 rows. What has no panels of its own becomes F16 or F32, through floats. */
#include "base/checked.h"
#include "quant/repack_int.h"

#include <assert.h>

#define PIECE_WORDS 64 /* of a row that are moved before the next row: 16 KB of lines */

/* 4 rows × 4 words. */
static inline void move_four_by_four(const uint8_t *source, size_t row_bytes, uint8_t *out,
                                     size_t line, size_t row) {
    words4 words[4];
    transpose_words(source, row_bytes, words);
    for (size_t i = 0; i < 4; i++)
        store_words(words[i], out, line + i, row);
}

/* Rows of any number of bytes as lines; the last word is padded with zeros. */
static void move_rows(const uint8_t *source, size_t row_bytes, size_t rows, uint8_t *out) {
    size_t words = row_bytes / 4, rest = row_bytes % 4;
    for (size_t begin = 0; begin < words; begin += PIECE_WORDS) {
        size_t end = size_min(begin + PIECE_WORDS, words), row = 0;
        for (; row + 4 <= rows; row += 4) {
            const uint8_t *from = source + row * row_bytes;
            size_t i = begin;
            for (; i + 4 <= end; i += 4)
                move_four_by_four(from + 4 * i, row_bytes, out, i, row);
            for (; i < end; i++)
                for (size_t j = 0; j < 4; j++)
                    store_u32(line_word(out, i, row + j), load_u32(from + j * row_bytes + 4 * i));
        }
        for (; row < rows; row++)
            for (size_t i = begin; i < end; i++)
                store_u32(line_word(out, i, row), load_u32(source + row * row_bytes + 4 * i));
    }
    for (size_t row = 0; rest != 0 && row < rows; row++) {
        uint32_t last = 0;
        memcpy(&last, source + row * row_bytes + 4 * words, rest);
        store_u32(line_word(out, words, row), last);
    }
}

/* E5M2 is the upper half of an F16. */
static void widen_rows(const uint8_t *source, size_t k, size_t rows, uint8_t *out) {
    for (size_t begin = 0; begin < k; begin += 2 * PIECE_WORDS)
        for (size_t row = 0; row < rows; row++) {
            const uint8_t *from = source + row * k;
            for (size_t i = begin; i < size_min(k, begin + 2 * PIECE_WORDS); i += 2) {
                uint32_t second = i + 1 < k ? from[i + 1] : 0;
                store_u32(line_word(out, i / 2, row), (uint32_t)from[i] << 8 | second << 24);
            }
        }
}

/* A piece of a row, numbers of a type without panels: exact in F16 or, as decoded, in F32. */
static void write_piece(const float *piece, size_t count, size_t begin, size_t row,
                        quant_type target, uint8_t *out) {
    if (target == QUANT_F32) {
        for (size_t i = 0; i < count; i++)
            memcpy(line_word(out, begin + i, row), &piece[i], sizeof(float));
        return;
    }
    for (size_t i = 0; i < count; i += 2) {
        uint32_t second = i + 1 < count ? quant_f32_to_f16(piece[i + 1]) : 0;
        store_u32(line_word(out, (begin + i) / 2, row), quant_f32_to_f16(piece[i]) | second << 16);
    }
}

static void convert_rows(const weight_view *weight, const uint8_t *source, size_t row_bytes,
                         size_t rows, quant_type target, uint8_t *out) {
    float piece[QUANT_BLOCK_MAX];
    size_t element = quant_info_of(weight->type)->block_bytes;
    for (size_t begin = 0; begin < weight->k; begin += QUANT_BLOCK_MAX) {
        size_t count = size_min(weight->k - begin, QUANT_BLOCK_MAX);
        for (size_t row = 0; row < rows; row++) {
            quant_decode(weight->type, source + row * row_bytes + begin * element, count, piece);
            write_piece(piece, count, begin, row, target, out);
        }
    }
}

void repack_plain_rows(const weight_view *weight, size_t first, size_t rows, quant_type target,
                       uint8_t *out) {
    size_t row_bytes = (size_t)weight->k * quant_info_of(weight->type)->block_bytes;
    const uint8_t *source = weight->data + first * row_bytes;
    if (weight->type == QUANT_F8_E5M2) {
        widen_rows(source, weight->k, rows, out);
        return;
    }
    if (weight->type != target && target != QUANT_F8C) {
        convert_rows(weight, source, row_bytes, rows, target, out);
        return;
    }
    move_rows(source, row_bytes, rows, out);
    const float one = 1.0f;
    for (size_t row = 0; target == QUANT_F8C && row < rows; row++)
        memcpy(line_word(out, (weight->k + 3) / 4, row), &one, sizeof(one));
}

void repack_plain_columns(const weight_view *weight, size_t first, size_t rows, uint8_t *out) {
    size_t element = quant_info_of(weight->type)->block_bytes;
    size_t stride = (size_t)(weight->rows_whole != 0 ? weight->rows_whole : weight->rows) * element;
    const uint8_t *source = weight->data + first * element;
    if (element == 4) {
        for (size_t i = 0; i < weight->k; i++)
            memcpy(out + i * PANEL_LINE_BYTES, source + i * stride, rows * element);
        return;
    }
    assert(element == 2);
    static const uint8_t none[2 * QUANT_PANEL_ROWS] = {0}; /* behind an odd k */
    for (size_t i = 0; i < weight->k; i += 2) {
        const uint8_t *even = source + i * stride;
        const uint8_t *odd = i + 1 < weight->k ? even + stride : none;
        uint8_t *line = out + i / 2 * PANEL_LINE_BYTES;
        for (size_t row = 0; row < rows; row++)
            store_u32(line + 4 * row, load_u16(even + 2 * row) | (uint32_t)load_u16(odd + 2 * row)
                                                                     << 16);
    }
}
