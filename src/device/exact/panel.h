/* One lane (output row) of a panel, unit by unit: what panel_unit_read gives for all 16 lanes, as
 * words of four signed bytes that exact_dot4 multiplies. quant/panels.h has the layouts. */
#ifndef AVO_DEVICE_EXACT_PANEL_H
#define AVO_DEVICE_EXACT_PANEL_H

#include "device/exact/number.h"

#define EXACT_LINE 64

typedef enum exact_lines {
    EXACT_LINES_BYTE,        /* 8 byte lines, signed */
    EXACT_LINES_NIBBLE,      /* 4 nibble lines */
    EXACT_LINES_NIBBLE_BIT,  /* 4 nibble lines, 1 bit line */
    EXACT_LINES_NIBBLE_PAIR, /* 4 nibble lines, 2 two-bit lines */
    EXACT_LINES_PAIR,        /* 2 two-bit lines */
    EXACT_LINES_PAIR_BIT     /* 2 two-bit lines, 1 bit line */
} exact_lines;

typedef enum exact_scales {
    EXACT_SCALES_BLOCK,           /* f16 per 32 k */
    EXACT_SCALES_BLOCK_BRAIN,     /* bf16 per 32 k */
    EXACT_SCALES_BLOCK_MINIMUM,   /* f16 scale and minimum per 32 k */
    EXACT_SCALES_BLOCK64,         /* f16 per 64 k */
    EXACT_SCALES_BLOCK64_MINIMUM, /* f16 scale and minimum per 64 k */
    EXACT_SCALES_K32,             /* d times a signed byte per 32 k */
    EXACT_SCALES_K32_MINIMUM,     /* d times a byte, dmin times a byte, per 32 k */
    EXACT_SCALES_K16,             /* d times a signed byte per 16 k */
    EXACT_SCALES_K16_MINIMUM,     /* nibbles of one byte per 16 k */
    EXACT_SCALES_ROW              /* one f32 behind all lines */
} exact_scales;

typedef enum exact_codebook { EXACT_LINEAR, EXACT_IQ4, EXACT_MXFP4 } exact_codebook;

/* Layout of an integer type. Q8C and Q8R are one endless group of byte lines without a head. */
typedef struct exact_shape {
    uint8_t group_units; /* 32 k each, behind one head; 0: no heads */
    uint8_t head_lines, unit_lines;
    uint8_t lines;    /* exact_lines */
    uint8_t zero;     /* is subtracted from the numbers */
    uint8_t codebook; /* exact_codebook */
    uint8_t scales;   /* exact_scales */
    bool halves;      /* scales change inside a unit */
    bool minimum;
} exact_shape;

typedef struct exact_unit {
    uint32_t word[8]; /* numbers of k = 4i … 4i + 3 */
    float scale[2];   /* of the first and the second 16 k */
    float minimum[2];
} exact_unit;

EXACT_INLINE uint32_t exact_load_word(const uint8_t *at) {
    return *(const uint32_t *)(const void *)at; /* lines are aligned */
}

EXACT_INLINE uint16_t exact_load_half(const uint8_t *at) {
    return *(const uint16_t *)(const void *)at;
}

/* ---- Numbers ---- */

EXACT_INLINE void exact_nibbles(const uint8_t *lines, uint32_t lane, uint32_t *word) {
    for (int n = 0; n < 4; n++) {
        uint32_t both = exact_load_word(lines + n * EXACT_LINE + 4 * lane);
        word[2 * n] = both & 0x0f0f0f0fu;
        word[2 * n + 1] = both >> 4 & 0x0f0f0f0fu;
    }
}

EXACT_INLINE void exact_add_pairs(const uint8_t *lines, uint32_t lane, int at, uint32_t *word) {
    for (int h = 0; h < 2; h++) {
        uint32_t four = exact_load_word(lines + h * EXACT_LINE + 4 * lane);
        for (int i = 0; i < 4; i++)
            word[4 * h + i] |= (four >> 2 * i & 0x03030303u) << at;
    }
}

EXACT_INLINE void exact_add_bits(const uint8_t *line, uint32_t lane, int at, uint32_t *word) {
    for (int i = 0; i < 8; i++) {
        uint32_t n = (uint32_t)line[8 * (uint32_t)i + lane / 2] >> (lane % 2 * 4) & 15u;
        word[i] |= ((n & 1u) | (n & 2u) << 7 | (n & 4u) << 14 | (n & 8u) << 21) << at;
    }
}

EXACT_INLINE uint32_t exact_look_up(uint32_t codebook, uint32_t indices) {
    /* Entries 0 … 7 and 8 … 15, a byte each. */
    const uint64_t low = codebook == EXACT_IQ4 ? 0xf6eaddcfbfad9881u : 0x0c08060403020100u;
    const uint64_t high = codebook == EXACT_IQ4 ? 0x7159453526190d01u : 0xf4f8fafcfdfeff00u;
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t index = indices >> 8 * i & 15u;
        uint64_t half = index < 8 ? low : high;
        word |= (uint32_t)(half >> 8 * (index & 7u) & 0xffu) << 8 * i;
    }
    return word;
}

EXACT_INLINE void exact_numbers(const exact_shape *shape, const uint8_t *lines, uint32_t lane,
                                uint32_t *word) {
    switch (shape->lines) {
    case EXACT_LINES_BYTE:
        for (int n = 0; n < 8; n++)
            word[n] = exact_load_word(lines + n * EXACT_LINE + 4 * lane);
        break;
    case EXACT_LINES_PAIR:
    case EXACT_LINES_PAIR_BIT:
        for (int n = 0; n < 8; n++)
            word[n] = 0;
        exact_add_pairs(lines, lane, 0, word);
        if (shape->lines == EXACT_LINES_PAIR_BIT)
            exact_add_bits(lines + 2 * EXACT_LINE, lane, 2, word);
        break;
    default:
        exact_nibbles(lines, lane, word);
        if (shape->lines == EXACT_LINES_NIBBLE_BIT)
            exact_add_bits(lines + 4 * EXACT_LINE, lane, 4, word);
        if (shape->lines == EXACT_LINES_NIBBLE_PAIR)
            exact_add_pairs(lines + 4 * EXACT_LINE, lane, 4, word);
    }
    if (shape->codebook != EXACT_LINEAR)
        for (int n = 0; n < 8; n++)
            word[n] = exact_look_up(shape->codebook, word[n]);
    else if (shape->zero != 0) /* byte by byte: bit 7 keeps borrows inside */
        for (int n = 0; n < 8; n++)
            word[n] = ((word[n] | 0x80808080u) - shape->zero * 0x01010101u) ^ 0x80808080u;
}

/* ---- Scales ---- */

EXACT_INLINE void exact_scales_k(uint32_t kind, const uint8_t *head, uint32_t unit, uint32_t lane,
                                 exact_unit *out) {
    float d = exact_from_half(exact_load_half(head + 2 * lane));
    float dmin = exact_from_half(exact_load_half(head + 32 + 2 * lane));
    const uint8_t *at = head + EXACT_LINE + lane;
    for (uint32_t half = 0; half < 2; half++) {
        uint8_t s32 = at[unit * 16], s16 = at[unit * 32 + half * 16];
        out->minimum[half] = 0.0f;
        if (kind == EXACT_SCALES_K32) {
            out->scale[half] = d * (float)(int8_t)s32;
        } else if (kind == EXACT_SCALES_K32_MINIMUM) {
            out->scale[half] = d * (float)s32;
            out->minimum[half] = -(dmin * (float)at[2 * EXACT_LINE + unit * 16]);
        } else if (kind == EXACT_SCALES_K16) {
            out->scale[half] = d * (float)(int8_t)s16;
        } else {
            out->scale[half] = d * (float)(s16 & 15);
            out->minimum[half] = -(dmin * (float)(s16 >> 4));
        }
    }
}

/* `unit` of the group behind `head`. */
EXACT_INLINE void exact_unit_scales(uint32_t kind, const uint8_t *head, uint32_t unit,
                                    uint32_t lane, exact_unit *out) {
    const uint8_t *at = head + unit * 32 + 2 * lane;
    if (kind >= EXACT_SCALES_K32) {
        exact_scales_k(kind, head, unit, lane, out);
        return;
    }
    out->minimum[0] = 0.0f;
    switch (kind) {
    case EXACT_SCALES_BLOCK_BRAIN:
        out->scale[0] = exact_from_brain(exact_load_half(at));
        break;
    case EXACT_SCALES_BLOCK_MINIMUM:
        out->minimum[0] = exact_from_half(exact_load_half(at + EXACT_LINE));
        out->scale[0] = exact_from_half(exact_load_half(at));
        break;
    case EXACT_SCALES_BLOCK64:
        out->scale[0] = exact_from_half(exact_load_half(head + unit / 2 * 32 + 2 * lane));
        break;
    case EXACT_SCALES_BLOCK64_MINIMUM:
        out->minimum[0] = exact_from_half(exact_load_half(head + 32 + 2 * lane));
        out->scale[0] = exact_from_half(exact_load_half(head + 2 * lane));
        break;
    default:
        out->scale[0] = exact_from_half(exact_load_half(at));
    }
    out->scale[1] = out->scale[0];
    out->minimum[1] = out->minimum[0];
}

/* Unit `unit` of a panel with k in whole lines of bytes (`lines_k`: their number, for types with
 * one scale per row). */
EXACT_INLINE void exact_unit_read(const exact_shape *shape, const uint8_t *panel, uint32_t lines_k,
                                  uint32_t unit, uint32_t lane, exact_unit *out) {
    if (shape->scales == EXACT_SCALES_ROW) {
        const uint8_t *line = panel + lines_k * EXACT_LINE + 4 * lane;
        out->scale[0] = out->scale[1] = exact_float(exact_load_word(line));
        out->minimum[0] = out->minimum[1] = 0.0f;
        for (uint32_t n = 0; n < 8; n++) /* numbers behind the last line are zero */
            out->word[n] = 8 * unit + n < lines_k
                               ? exact_load_word(panel + (8 * unit + n) * EXACT_LINE + 4 * lane)
                               : 0;
        return;
    }
    uint32_t inside = unit % shape->group_units;
    uint32_t lines = shape->head_lines + (uint32_t)shape->group_units * shape->unit_lines;
    const uint8_t *head = panel + (size_t)(unit / shape->group_units) * lines * EXACT_LINE;
    exact_unit_scales(shape->scales, head, inside, lane, out);
    exact_numbers(shape, head + (shape->head_lines + inside * shape->unit_lines) * EXACT_LINE, lane,
                  out->word);
}

/* ---- Q4R ---- */

#define EXACT_Q4R_SUPER_LINES 35 /* of a whole super-block: head, magnitudes, 32 nibble lines */

/* 16 bytes that are loaded at once. */
typedef struct exact_words {
    uint32_t word[4];
} __attribute__((aligned(16))) exact_words;

EXACT_INLINE exact_words exact_load_words(const void *at) {
    return *(const exact_words *)at;
}

/* multiplier · Σ (number − 8) · x over one sub-block; `lines` at the lane's own word. */
EXACT_INLINE int32_t exact_q4r_sub(const uint8_t *lines, exact_words x, int32_t x_sum,
                                   int32_t magnitude, uint32_t negative) {
    uint32_t first = exact_load_word(lines), second = exact_load_word(lines + EXACT_LINE);
    int32_t sum = exact_dot4(first & 0x0f0f0f0fu, x.word[0], -8 * x_sum);
    sum = exact_dot4(first >> 4 & 0x0f0f0f0fu, x.word[1], sum);
    sum = exact_dot4(second & 0x0f0f0f0fu, x.word[2], sum);
    sum = exact_dot4(second >> 4 & 0x0f0f0f0fu, x.word[3], sum);
    return (negative ? -magnitude : magnitude) * sum;
}

/* Σ over one super-block of `subs` sub-blocks of multiplier · (number − 8) · x. x and its sums per
 * 16 k begin at the super-block, at multiples of 16 bytes; sums go on to a multiple of four. */
EXACT_INLINE int32_t exact_q4r_sum(const uint8_t *super, uint32_t subs, uint32_t lane,
                                   const int8_t *x, const int32_t *sums) {
    const uint8_t *magnitudes = super + EXACT_LINE + lane;
    const uint8_t *lines = super + (subs <= 8 ? 2 : 3) * EXACT_LINE + 4 * lane;
    int32_t total = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t four = 0; four < subs; four += 4) {
        exact_words x_sums = exact_load_words(sums + four);
        const uint32_t *signs = (const uint32_t *)(const void *)(super + 32 + 2 * four);
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t sub = four + j;
            if (sub >= subs)
                break;
            total += exact_q4r_sub(lines + sub * 2 * EXACT_LINE, exact_load_words(x + sub * 16),
                                   (int32_t)x_sums.word[j],
                                   magnitudes[sub / 2 * 16] >> (sub % 2 * 4) & 15,
                                   signs[j / 2] >> (j % 2 * 16 + lane) & 1u);
        }
    }
    return total;
}

#endif
