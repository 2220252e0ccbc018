/* PANELS of Q4S: where the parts of a super-block lie, decode, and encode around the search of
 * search_q4s.c. */
#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"
#include "quant/search_q4s.h"

#define SIGNS_AT      32
#define MAGNITUDES_AT PANEL_LINE_BYTES

/* Sub-blocks of a super-block that has `left` k before the end of the row. */
static size_t sub_blocks(size_t left) {
    return (size_min(left, Q4S_SUPER) + Q4S_SUB - 1) / Q4S_SUB;
}

static size_t numbers_at(size_t subs) {
    return MAGNITUDES_AT + (subs <= Q4S_SUBS / 2 ? 1 : 2) * PANEL_LINE_BYTES;
}

static size_t super_bytes(size_t subs) {
    return numbers_at(subs) + subs * 2 * PANEL_LINE_BYTES;
}

bool panels_q4s_bytes(uint64_t k, uint64_t *bytes) {
    *bytes = k / Q4S_SUPER * super_bytes(Q4S_SUBS);
    if (k % Q4S_SUPER != 0)
        *bytes += super_bytes(sub_blocks((size_t)(k % Q4S_SUPER)));
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

void panels_q4s_decode(const uint8_t *panel, size_t k, float *out) {
    for (size_t begin = 0; begin < k; begin += Q4S_SUPER) {
        size_t subs = sub_blocks(k - begin);
        float scale[QUANT_PANEL_ROWS];
        decode_f16(panel, QUANT_PANEL_ROWS, scale);
        for (size_t sub = 0; sub < subs; sub++) {
            size_t at = begin + sub * Q4S_SUB;
            const uint8_t *lines = panel + numbers_at(subs) + sub * 2 * PANEL_LINE_BYTES;
            float multiplier[QUANT_PANEL_ROWS];
            for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
                multiplier[row] = (float)multiplier_at(panel, sub, row);
            if (k - at >= Q4S_SUB) {
                decode_sub(lines, scale, multiplier, out + at * QUANT_PANEL_ROWS);
            } else {
                float whole[Q4S_SUB * QUANT_PANEL_ROWS];
                decode_sub(lines, scale, multiplier, whole);
                memcpy(out + at * QUANT_PANEL_ROWS, whole,
                       (k - at) * QUANT_PANEL_ROWS * sizeof(float));
            }
        }
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

void panels_q4s_decode_row(const uint8_t *panel, size_t k, size_t lane, float *out) {
    for (size_t begin = 0; begin < k; begin += Q4S_SUPER) {
        size_t subs = sub_blocks(k - begin);
        float scale = load_half(panel + 2 * lane);
        for (size_t sub = 0; sub < subs; sub++) {
            const uint8_t *lines = panel + numbers_at(subs) + sub * 2 * PANEL_LINE_BYTES;
            float multiplier = (float)multiplier_at(panel, sub, lane);
            size_t at = begin + sub * Q4S_SUB;
            for (size_t i = 0; i < size_min(k - at, Q4S_SUB); i++) {
                int number = lines[number_byte(i, lane)] >> number_shift(i) & 15;
                out[at + i] = scale * (multiplier * (float)(number - 8));
            }
        }
        panel += super_bytes(subs);
    }
}

static void write_super(const q4s_super *found, size_t subs, size_t row, uint8_t *super) {
    memcpy(super + 2 * row, &found->scale, sizeof(found->scale));
    uint8_t *lines = super + numbers_at(subs);
    for (size_t sub = 0; sub < subs; sub++) {
        int multiplier = found->multiplier[sub];
        if (multiplier < 0)
            super[SIGNS_AT + 2 * sub + row / 8] |= (uint8_t)(1u << row % 8);
        super[MAGNITUDES_AT + sub / 2 * QUANT_PANEL_ROWS + row] |=
            (uint8_t)((multiplier < 0 ? -multiplier : multiplier) << (sub % 2 * 4));
        for (size_t i = 0; i < Q4S_SUB; i++)
            lines[sub * 2 * PANEL_LINE_BYTES + number_byte(i, row)] |=
                (uint8_t)((found->number[sub * Q4S_SUB + i] + 8) << number_shift(i));
    }
}

void panels_q4s_encode(const float *source, size_t rows, size_t k, uint8_t *out) {
    for (size_t begin = 0; begin < k; begin += Q4S_SUPER) {
        size_t subs = sub_blocks(k - begin);
        size_t count = size_min(k - begin, Q4S_SUPER);
        memset(out, 0, super_bytes(subs));
        for (size_t row = 0; row < QUANT_PANEL_ROWS; row++) {
            q4s_super found = {0}; /* rows that are not there: zeros */
            if (row < rows)
                search_q4s(source + row * k + begin, count, &found);
            write_super(&found, subs, row, out);
        }
        out += super_bytes(subs);
    }
}
