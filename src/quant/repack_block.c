/* Repack of GGUF's types with blocks of 32 (decode_block32.c, decode_codebook.c) into panels. Two
 * blocks are a group; scales, minima and numbers move, nothing is computed. */
#include "quant/repack_int.h"

#define LOW_NIBBLES 0x0f0f0f0fu

/* 16 bytes of nibbles, low ones k = 0…15, high ones 16…31, as the four words of a row. */
static inline void repack_nibbles(const uint8_t *nibbles, size_t row, uint8_t *lines) {
    for (size_t half = 0; half < 2; half++) {
        uint32_t first = load_u32(nibbles + 8 * half), second = load_u32(nibbles + 8 * half + 4);
        store_u32(line_word(lines, half, row),
                  join_nibbles(first & LOW_NIBBLES, second & LOW_NIBBLES));
        store_u32(line_word(lines, half + 2, row),
                  (first >> 4 & LOW_NIBBLES) | (second & ~LOW_NIBBLES));
    }
}

/* The same of four rows. */
static inline void repack_four_nibbles(const uint8_t *nibbles, size_t row_bytes, size_t row,
                                       uint8_t *lines) {
    words4 words[4];
    transpose_words(nibbles, row_bytes, words);
    for (size_t half = 0; half < 2; half++) {
        words4 first = words[2 * half], second = words[2 * half + 1];
        store_words((first & LOW_NIBBLES) | (second & LOW_NIBBLES) << 4, lines, half, row);
        store_words((first >> 4 & LOW_NIBBLES) | (second & ~LOW_NIBBLES), lines, half + 2, row);
    }
}

static inline void copy_four_halves(const uint8_t *source, size_t row_bytes, uint8_t *out) {
    for (size_t i = 0; i < 4; i++)
        copy_half(source + i * row_bytes, out + 2 * i);
}

void repack_four_q4_0(const uint8_t *source, size_t row_bytes, size_t blocks, size_t row,
                      uint8_t *group) {
    for (size_t block = 0; block < blocks; block++, source += 18) {
        copy_four_halves(source, row_bytes, group + block * 32 + 2 * row);
        repack_four_nibbles(source + 2, row_bytes, row, group + (1 + 4 * block) * PANEL_LINE_BYTES);
    }
}

void repack_four_q4_1(const uint8_t *source, size_t row_bytes, size_t blocks, size_t row,
                      uint8_t *group) {
    for (size_t block = 0; block < blocks; block++, source += 20) {
        uint8_t *scales = group + block * 32 + 2 * row;
        copy_four_halves(source, row_bytes, scales);
        copy_four_halves(source + 2, row_bytes, scales + PANEL_LINE_BYTES);
        repack_four_nibbles(source + 4, row_bytes, row, group + (2 + 4 * block) * PANEL_LINE_BYTES);
    }
}

void repack_four_q8_0(const uint8_t *source, size_t row_bytes, size_t blocks, size_t row,
                      uint8_t *group) {
    for (size_t block = 0; block < blocks; block++, source += 34) {
        uint8_t *unit = group + (1 + 8 * block) * PANEL_LINE_BYTES;
        copy_four_halves(source, row_bytes, group + block * 32 + 2 * row);
        for (size_t half = 0; half < 2; half++) {
            words4 words[4];
            transpose_words(source + 2 + 16 * half, row_bytes, words);
            for (size_t i = 0; i < 4; i++)
                store_words(words[i], unit, 4 * half + i, row);
        }
    }
}

void repack_q4_0(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    for (size_t block = 0; block < blocks; block++, source += 18) {
        copy_half(source, group + block * 32 + 2 * row);
        repack_nibbles(source + 2, row, group + (1 + 4 * block) * PANEL_LINE_BYTES);
    }
}

void repack_q4_1(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    for (size_t block = 0; block < blocks; block++, source += 20) {
        copy_half(source, group + block * 32 + 2 * row);
        copy_half(source + 2, group + PANEL_LINE_BYTES + block * 32 + 2 * row);
        repack_nibbles(source + 4, row, group + (2 + 4 * block) * PANEL_LINE_BYTES);
    }
}

void repack_q5_0(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    for (size_t block = 0; block < blocks; block++, source += 22) {
        uint8_t *unit = group + (1 + 5 * block) * PANEL_LINE_BYTES;
        copy_half(source, group + block * 32 + 2 * row);
        repack_nibbles(source + 6, row, unit);
        add_bit_line(load_u32(source + 2), row, unit + 4 * PANEL_LINE_BYTES);
    }
}

void repack_q5_1(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    for (size_t block = 0; block < blocks; block++, source += 24) {
        uint8_t *unit = group + (2 + 5 * block) * PANEL_LINE_BYTES;
        copy_half(source, group + block * 32 + 2 * row);
        copy_half(source + 2, group + PANEL_LINE_BYTES + block * 32 + 2 * row);
        repack_nibbles(source + 8, row, unit);
        add_bit_line(load_u32(source + 4), row, unit + 4 * PANEL_LINE_BYTES);
    }
}

void repack_q8_0(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    for (size_t block = 0; block < blocks; block++, source += 34) {
        uint8_t *unit = group + (1 + 8 * block) * PANEL_LINE_BYTES;
        copy_half(source, group + block * 32 + 2 * row);
        for (size_t i = 0; i < 8; i++)
            store_u32(line_word(unit, i, row), load_u32(source + 2 + 4 * i));
    }
}

/* The scale becomes a bf16, which holds every power of two that an E8M0 exponent halved can be, the
 * subnormal ones too. */
void repack_mxfp4(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    for (size_t block = 0; block < blocks; block++, source += 17) {
        uint16_t scale = (uint16_t)(source[0] < 2 ? 0x20u << source[0] : (source[0] - 1u) << 7);
        memcpy(group + block * 32 + 2 * row, &scale, sizeof(scale));
        repack_nibbles(source + 1, row, group + (1 + 4 * block) * PANEL_LINE_BYTES);
    }
}
