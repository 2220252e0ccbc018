/* PANELS of Q4R: where the parts of a super-block lie, decode, and encode around the search of
 * search_q4r.c. */
#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"
#include "quant/search_q4r.h"

#define SIGNS_AT      32
#define MAGNITUDES_AT PANEL_LINE_BYTES

/* Sub-blocks of a super-block that has `left` k before the end of the row. */
static size_t sub_blocks(size_t left) {
    return (size_min(left, Q4R_SUPER) + Q4R_SUB - 1) / Q4R_SUB;
}

static size_t numbers_at(size_t subs) {
    return MAGNITUDES_AT + (subs <= Q4R_SUBS / 2 ? 1 : 2) * PANEL_LINE_BYTES;
}

static size_t super_bytes(size_t subs) {
    return numbers_at(subs) + subs * 2 * PANEL_LINE_BYTES;
}

bool panels_q4r_bytes(uint64_t k, uint64_t *bytes) {
    *bytes = k / Q4R_SUPER * super_bytes(Q4R_SUBS);
    if (k % Q4R_SUPER != 0)
        *bytes += super_bytes(sub_blocks((size_t)(k % Q4R_SUPER)));
    return true;
}

static inline int multiplier_at(const uint8_t *super, size_t sub, size_t row) {
    int magnitude = super[MAGNITUDES_AT + sub / 2 * QUANT_PANEL_ROWS + row] >> (sub % 2 * 4) & 15;
    return load_u16(super + SIGNS_AT + 2 * sub) >> row & 1 ? -magnitude : magnitude;
}

/* 16 k of 16 rows from two lines. multiplier · (number − 8) is exact, so there is one rounding. */
static inline void decode_sub(const uint8_t *lines, const float *scale, const float *multiplier,
                              float *out) {
    for (int line = 0; line < 2; line++) {
        uint32_t words[QUANT_PANEL_ROWS];
        memcpy(words, lines + line * PANEL_LINE_BYTES, sizeof(words));
        for (int i = 0; i < 8; i++, out += QUANT_PANEL_ROWS)
            for (int row = 0; row < QUANT_PANEL_ROWS; row++) {
                int number = (int)(words[row] >> (i % 4 * 8 + i / 4 * 4) & 15);
                out[row] = scale[row] * (multiplier[row] * (float)(number - 8));
            }
    }
}

void panels_q4r_decode(const uint8_t *panel, size_t k, size_t first, size_t columns, float *out) {
    panel += first / Q4R_SUPER * super_bytes(Q4R_SUBS);
    for (size_t begin = first; begin < first + columns; begin += Q4R_SUPER) {
        size_t subs = sub_blocks(k - begin);
        float scale[QUANT_PANEL_ROWS];
        float whole[Q4R_SUPER * QUANT_PANEL_ROWS]; /* the padding takes part in the rotation */
        decode_f16(panel, QUANT_PANEL_ROWS, scale);
        for (size_t sub = 0; sub < subs; sub++) {
            const uint8_t *lines = panel + numbers_at(subs) + sub * 2 * PANEL_LINE_BYTES;
            float multiplier[QUANT_PANEL_ROWS];
            for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
                multiplier[row] = (float)multiplier_at(panel, sub, row);
            decode_sub(lines, scale, multiplier, whole + sub * Q4R_SUB * QUANT_PANEL_ROWS);
        }
        quant_rotate(whole, subs * Q4R_SUB, QUANT_PANEL_ROWS);
        memcpy(out + (begin - first) * QUANT_PANEL_ROWS, whole,
               size_min(first + columns - begin, Q4R_SUPER) * QUANT_PANEL_ROWS * sizeof(float));
        panel += super_bytes(subs);
    }
}

/* The byte and the shift of number `i` of a sub-block. */
static inline size_t number_byte(size_t i, size_t row) {
    return i / 8 * PANEL_LINE_BYTES + 4 * row + i % 4;
}

static inline unsigned number_shift(size_t i) {
    return i % 8 < 4 ? 0 : 4;
}

void panels_q4r_decode_row(const uint8_t *panel, size_t k, size_t lane, float *out) {
    for (size_t begin = 0; begin < k; begin += Q4R_SUPER) {
        size_t subs = sub_blocks(k - begin);
        float scale = load_half(panel + 2 * lane);
        float whole[Q4R_SUPER];
        for (size_t sub = 0; sub < subs; sub++) {
            const uint8_t *lines = panel + numbers_at(subs) + sub * 2 * PANEL_LINE_BYTES;
            float multiplier = (float)multiplier_at(panel, sub, lane);
            for (size_t line = 0; line < 2; line++) {
                uint32_t word = load_u32(lines + line * PANEL_LINE_BYTES + 4 * lane);
                float *to = whole + sub * Q4R_SUB + line * Q4R_SUB / 2;
                for (size_t i = 0; i < 8; i++) {
                    int number = (int)(word >> (i % 4 * 8 + i / 4 * 4) & 15);
                    to[i] = scale * (multiplier * (float)(number - 8));
                }
            }
        }
        quant_rotate(whole, subs * Q4R_SUB, 1);
        memcpy(out + begin, whole, size_min(k - begin, Q4R_SUPER) * sizeof(float));
        panel += super_bytes(subs);
    }
}

void panels_q4r_unit(const uint8_t *panel, size_t k, size_t unit, panel_unit *out) {
    size_t begin = unit * PANEL_UNIT;
    const uint8_t *super = panel + begin / Q4R_SUPER * super_bytes(Q4R_SUBS);
    size_t subs = sub_blocks(k - begin / Q4R_SUPER * Q4R_SUPER);
    memset(out, 0, sizeof(*out));
    decode_f16(super, QUANT_PANEL_ROWS, out->scale[0]);
    memcpy(out->scale[1], out->scale[0], sizeof(out->scale[0]));
    for (size_t half = 0; half < 2; half++) {
        size_t sub = begin % Q4R_SUPER / Q4R_SUB + half;
        if (sub >= subs)
            return; /* the numbers stay zero */
        const uint8_t *lines = super + numbers_at(subs) + sub * 2 * PANEL_LINE_BYTES;
        for (size_t i = 0; i < Q4R_SUB; i++)
            for (size_t row = 0; row < QUANT_PANEL_ROWS; row++) {
                int number = (lines[number_byte(i, row)] >> number_shift(i) & 15) - 8;
                out->number[half * Q4R_SUB + i][row] =
                    (int16_t)(multiplier_at(super, sub, row) * number);
            }
    }
}

static void write_super(const q4r_super *found, size_t subs, size_t row, uint8_t *super) {
    memcpy(super + 2 * row, &found->scale, sizeof(found->scale));
    uint8_t *lines = super + numbers_at(subs);
    for (size_t sub = 0; sub < subs; sub++) {
        int multiplier = found->multiplier[sub];
        if (multiplier < 0)
            super[SIGNS_AT + 2 * sub + row / 8] |= (uint8_t)(1u << row % 8);
        super[MAGNITUDES_AT + sub / 2 * QUANT_PANEL_ROWS + row] |=
            (uint8_t)((multiplier < 0 ? -multiplier : multiplier) << (sub % 2 * 4));
        for (size_t i = 0; i < Q4R_SUB; i++)
            lines[sub * 2 * PANEL_LINE_BYTES + number_byte(i, row)] |=
                (uint8_t)((found->number[sub * Q4R_SUB + i] + 8) << number_shift(i));
    }
}

size_t panels_q4r_write_super(const q4r_super *found, size_t subs, uint8_t *super) {
    memset(super, 0, super_bytes(subs));
    for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
        write_super(&found[row], subs, row, super);
    return super_bytes(subs);
}
