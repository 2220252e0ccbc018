/* Inside quant/: repack by family. A repacker takes the blocks of one row that make up one group
 * of the panel (panels.h), and writes that row's part of the group. */
#ifndef AVO_QUANT_REPACK_INT_H
#define AVO_QUANT_REPACK_INT_H

#include "quant/decode_int.h"
#include "quant/panels_int.h"

/* `blocks` blocks at `source` (fewer than a group has in the last one) into the group at `group`,
 * whose lines of row `row` are zero so far. */
typedef void repack_function(const uint8_t *source, size_t blocks, size_t row, uint8_t *group);
typedef repack_function *repack_group;

static inline void store_u32(uint8_t *out, uint32_t word) {
    memcpy(out, &word, sizeof(word));
}

static inline uint64_t load_u64(const uint8_t *source) {
    uint64_t value;
    memcpy(&value, source, sizeof(value));
    return value;
}

/* Copies one f16 (or other 16 bits). */
static inline void copy_half(const uint8_t *source, uint8_t *out) {
    memcpy(out, source, 2);
}

/* The four bytes of row `row` in line `line`. */
static inline uint8_t *line_word(uint8_t *lines, size_t line, size_t row) {
    return lines + line * PANEL_LINE_BYTES + 4 * row;
}

/* A nibble line's word from the bytes of 4 k and of the next 4, whose upper nibbles are cleared. */
static inline uint32_t join_nibbles(uint32_t first, uint32_t second) {
    return first | second << 4;
}

/* Adds the 32 bits of a unit, bit i for k = i, to the bit line at `line`. */
static inline void add_bit_line(uint32_t bits, size_t row, uint8_t *line) {
    for (size_t i = 0; i < 8; i++)
        line[i * 8 + row / 2] |= (uint8_t)((bits >> 4 * i & 15) << (row % 2 * 4));
}

/* The same for rows `row` … `row` + 3, `row_bytes` apart; lines need not be zero. */
typedef void repack_four_function(const uint8_t *source, size_t row_bytes, size_t blocks,
                                  size_t row, uint8_t *group);
typedef repack_four_function *repack_four;

typedef uint32_t words4 __attribute__((vector_size(16), aligned(1), may_alias));

/* Four words of four rows, transposed in registers: out[i] has word i of each row. */
static inline void transpose_words(const uint8_t *source, size_t row_bytes, words4 out[4]) {
    words4 a = *(const words4 *)(const void *)source;
    words4 b = *(const words4 *)(const void *)(source + row_bytes);
    words4 c = *(const words4 *)(const void *)(source + 2 * row_bytes);
    words4 d = *(const words4 *)(const void *)(source + 3 * row_bytes);
    words4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    words4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    words4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    words4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    out[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    out[1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    out[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    out[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/* Of four rows in line `line`. */
static inline void store_words(words4 words, uint8_t *lines, size_t line, size_t row) {
    *(words4 *)(void *)line_word(lines, line, row) = words;
}

/* repack_block.c */
repack_four_function repack_four_q4_0, repack_four_q4_1, repack_four_q8_0;
repack_function repack_q4_0, repack_q4_1, repack_q5_0, repack_q5_1, repack_q8_0, repack_mxfp4;
/* repack_k.c */
repack_function repack_q2_k, repack_q3_k, repack_q4_k, repack_q5_k, repack_q6_k, repack_iq4_xs;
/* repack_plain.c: whole panels of lines, from ROWS and from COLUMNS */
void repack_plain_rows(const weight_view *weight, size_t first, size_t rows, quant_type target,
                       uint8_t *out);
void repack_plain_columns(const weight_view *weight, size_t first, size_t rows, uint8_t *out);

#endif
