/* Repack of GGUF's super-blocks of 256 (decode_k.c, decode_codebook.c says how they lie) into
 * panels. A super-block is a group; `blocks` is always 1. */
#include "quant/repack_int.h"

#define LOW_NIBBLES 0x0f0f0f0fu
#define LOW_PAIRS   0x03030303u
#define LOW_BITS    0x0101010101010101u
#define BLOCKS_AT   PANEL_LINE_BYTES

/* 32 bytes whose nibbles at `shift` are the numbers of one unit. */
static inline void repack_unit_nibbles(const uint8_t *bytes, int shift, size_t row,
                                       uint8_t *lines) {
    for (size_t line = 0; line < 4; line++) {
        uint32_t first = load_u32(bytes + 8 * line) >> shift & LOW_NIBBLES;
        uint32_t second = load_u32(bytes + 8 * line + 4) >> shift & LOW_NIBBLES;
        store_u32(line_word(lines, line, row), join_nibbles(first, second));
    }
}

/* 32 bytes whose pairs of bits at `shift` are those of one unit. */
static inline void repack_unit_pairs(const uint8_t *bytes, int shift, size_t row, uint8_t *lines) {
    for (size_t line = 0; line < 2; line++) {
        uint32_t word = 0;
        for (size_t i = 0; i < 4; i++)
            word |= (load_u32(bytes + 16 * line + 4 * i) >> shift & LOW_PAIRS) << 2 * i;
        store_u32(line_word(lines, line, row), word);
    }
}

/* Bit `at` of 32 bytes, bit i from byte i. The multiplication gathers the lowest bits of eight
 * bytes in the uppermost byte. */
static inline uint32_t gather_bits(const uint8_t *bytes, size_t at) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; i++) {
        uint64_t eight = load_u64(bytes + 8 * i) >> at & LOW_BITS;
        bits |= (uint32_t)(eight * 0x0102040810204080u >> 56) << 8 * i;
    }
    return bits;
}

static inline void repack_d(const uint8_t *d, size_t row, uint8_t *group) {
    copy_half(d, group + 2 * row);
}

static inline void repack_dmin(const uint8_t *dmin, size_t row, uint8_t *group) {
    copy_half(dmin, group + 32 + 2 * row);
}

void repack_q2_k(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    (void)blocks;
    repack_d(source + 80, row, group);
    repack_dmin(source + 82, row, group);
    for (size_t block = 0; block < 16; block++)
        group[BLOCKS_AT + block * QUANT_PANEL_ROWS + row] = source[block];
    for (size_t unit = 0; unit < 8; unit++)
        repack_unit_pairs(source + 16 + unit / 4 * 32, (int)(unit % 4 * 2), row,
                          group + (5 + 2 * unit) * PANEL_LINE_BYTES);
}

void repack_q3_k(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    (void)blocks;
    repack_d(source + 108, row, group);
    const uint8_t *packed = source + 96;
    for (size_t block = 0; block < 16; block++) {
        int low = packed[block % 8] >> (block / 8 * 4) & 15;
        int high = packed[8 + block % 4] >> (block / 4 * 2) & 3;
        group[BLOCKS_AT + block * QUANT_PANEL_ROWS + row] = (uint8_t)((low | high << 4) - 32);
    }
    for (size_t unit = 0; unit < 8; unit++) {
        uint8_t *lines = group + (5 + 3 * unit) * PANEL_LINE_BYTES;
        repack_unit_pairs(source + 32 + unit / 4 * 32, (int)(unit % 4 * 2), row, lines);
        add_bit_line(gather_bits(source, unit), row, lines + 2 * PANEL_LINE_BYTES);
    }
}

/* The 8 scales and 8 minima of Q4_K and Q5_K, six bits each in 12 bytes: four bytes at a time. */
static void repack_six_bits(const uint8_t *packed, size_t row, uint8_t *group) {
    uint32_t a = load_u32(packed), b = load_u32(packed + 4), c = load_u32(packed + 8);
    uint32_t words[4] = {a & 0x3f3f3f3fu, (c & LOW_NIBBLES) | (a >> 2 & 0x30303030u),
                         b & 0x3f3f3f3fu, (c >> 4 & LOW_NIBBLES) | (b >> 2 & 0x30303030u)};
    for (size_t block = 0; block < 16; block++) /* 8 scales, 8 minima */
        group[BLOCKS_AT + block * QUANT_PANEL_ROWS + row] =
            (uint8_t)(words[block / 4] >> (block % 4 * 8));
}

void repack_q4_k(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    (void)blocks;
    repack_d(source, row, group);
    repack_dmin(source + 2, row, group);
    repack_six_bits(source + 4, row, group);
    for (size_t unit = 0; unit < 8; unit++)
        repack_unit_nibbles(source + 16 + unit / 2 * 32, (int)(unit % 2 * 4), row,
                            group + (5 + 4 * unit) * PANEL_LINE_BYTES);
}

void repack_q5_k(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    (void)blocks;
    repack_d(source, row, group);
    repack_dmin(source + 2, row, group);
    repack_six_bits(source + 4, row, group);
    for (size_t unit = 0; unit < 8; unit++) {
        uint8_t *lines = group + (5 + 5 * unit) * PANEL_LINE_BYTES;
        repack_unit_nibbles(source + 48 + unit / 2 * 32, (int)(unit % 2 * 4), row, lines);
        add_bit_line(gather_bits(source + 16, unit), row, lines + 4 * PANEL_LINE_BYTES);
    }
}

void repack_q6_k(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    (void)blocks;
    repack_d(source + 208, row, group);
    for (size_t block = 0; block < 16; block++)
        group[BLOCKS_AT + block * QUANT_PANEL_ROWS + row] = source[192 + block];
    for (size_t unit = 0; unit < 8; unit++) {
        uint8_t *lines = group + (5 + 6 * unit) * PANEL_LINE_BYTES;
        repack_unit_nibbles(source + unit / 4 * 64 + unit % 2 * 32, (int)(unit % 4 / 2 * 4), row,
                            lines);
        repack_unit_pairs(source + 128 + unit / 4 * 32, (int)(unit % 4 * 2), row,
                          lines + 4 * PANEL_LINE_BYTES);
    }
}

void repack_iq4_xs(const uint8_t *source, size_t blocks, size_t row, uint8_t *group) {
    (void)blocks;
    repack_d(source, row, group);
    unsigned high = load_u16(source + 2);
    for (size_t block = 0; block < 8; block++) {
        int low = source[4 + block / 2] >> (block % 2 * 4) & 15;
        int scale = (low | (int)(high >> (2 * block) & 3) << 4) - 32;
        group[BLOCKS_AT + block * QUANT_PANEL_ROWS + row] = (uint8_t)scale;
        /* low nibbles are k = 0…15 of the block, high ones 16…31 */
        const uint8_t *nibbles = source + 8 + 16 * block;
        uint8_t *lines = group + (3 + 4 * block) * PANEL_LINE_BYTES;
        for (size_t half = 0; half < 2; half++) {
            uint32_t first = load_u32(nibbles + 8 * half);
            uint32_t second = load_u32(nibbles + 8 * half + 4);
            store_u32(line_word(lines, half, row),
                      join_nibbles(first & LOW_NIBBLES, second & LOW_NIBBLES));
            store_u32(line_word(lines, half + 2, row),
                      (first >> 4 & LOW_NIBBLES) | (second & ~LOW_NIBBLES));
        }
    }
}
