/* PANELS of types made of groups: the table of their shapes, and decode, all through one unit. The
 * fast kernels have their own readers; this one serves the reference back end, look-ups of single
 * rows and whatever is checked against it. */
#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"

#include <assert.h>

const int8_t codebook_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
const int8_t codebook_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* type, group, head lines, unit lines, lines, zero, codebook, sub-blocks, minimum, whole, scales */
static const panel_shape shapes[] = {
    {QUANT_Q8_0, 64, 1, 8, LINES_BYTE, 0, NULL, false, false, false, scales_block},
    {QUANT_Q8B, 64, 1, 8, LINES_BYTE, 0, NULL, false, false, false, scales_block},
    {QUANT_Q4_0, 64, 1, 4, LINES_NIBBLE, 8, NULL, false, false, false, scales_block},
    {QUANT_Q4_1, 64, 2, 4, LINES_NIBBLE, 0, NULL, false, true, false, scales_block_minimum},
    {QUANT_Q4B64, 128, 1, 4, LINES_NIBBLE, 8, NULL, false, false, false, scales_block64},
    {QUANT_Q4M64, 64, 1, 4, LINES_NIBBLE, 0, NULL, false, true, false, scales_block64_minimum},
    {QUANT_Q5_0, 64, 1, 5, LINES_NIBBLE_BIT, 16, NULL, false, false, false, scales_block},
    {QUANT_Q5_1, 64, 2, 5, LINES_NIBBLE_BIT, 0, NULL, false, true, false, scales_block_minimum},
    {QUANT_IQ4_NL, 64, 1, 4, LINES_NIBBLE, 0, codebook_iq4, false, false, false, scales_block},
    {QUANT_MXFP4, 64, 1, 4, LINES_NIBBLE, 0, codebook_mxfp4, false, false, false,
     scales_block_brain},
    {QUANT_Q4_K, 256, 5, 4, LINES_NIBBLE, 0, NULL, false, true, true, scales_k32_minimum},
    {QUANT_Q5_K, 256, 5, 5, LINES_NIBBLE_BIT, 0, NULL, false, true, true, scales_k32_minimum},
    {QUANT_Q6_K, 256, 5, 6, LINES_NIBBLE_PAIR, 32, NULL, true, false, true, scales_k16},
    {QUANT_Q3_K, 256, 5, 3, LINES_PAIR_BIT, 4, NULL, true, false, true, scales_k16},
    {QUANT_Q2_K, 256, 5, 2, LINES_PAIR, 0, NULL, true, true, true, scales_k16_minimum},
    {QUANT_IQ4_XS, 256, 3, 4, LINES_NIBBLE, 0, codebook_iq4, false, false, true, scales_k32},
};

const panel_shape *panel_shape_of(quant_type type) {
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (shapes[i].type == type)
            return &shapes[i];
    return NULL;
}

bool panels_group_bytes(const panel_shape *shape, uint64_t k, uint64_t *bytes) {
    if (shape->whole && k % shape->group != 0)
        return false;
    uint64_t units = (k + PANEL_UNIT - 1) / PANEL_UNIT;
    uint64_t groups = (k + shape->group - 1) / shape->group;
    *bytes = (groups * shape->head_lines + units * shape->unit_lines) * PANEL_LINE_BYTES;
    return true;
}

/* ---- Numbers of all lanes ---- */

typedef int16_t unit_numbers[PANEL_UNIT][QUANT_PANEL_ROWS];

static inline void load_line(const uint8_t *line, uint32_t *words) {
    memcpy(words, line, PANEL_LINE_BYTES);
}

static void read_bytes(const uint8_t *lines, unit_numbers number) {
    uint32_t words[QUANT_PANEL_ROWS];
    for (unsigned i = 0; i < PANEL_UNIT; i++) {
        load_line(lines + i / 4 * PANEL_LINE_BYTES, words);
        for (unsigned row = 0; row < QUANT_PANEL_ROWS; row++)
            number[i][row] = (int8_t)(words[row] >> (i % 4 * 8));
    }
}

static void read_nibbles(const uint8_t *lines, unit_numbers number) {
    uint32_t words[QUANT_PANEL_ROWS];
    for (unsigned i = 0; i < PANEL_UNIT; i++) {
        load_line(lines + i / 8 * PANEL_LINE_BYTES, words);
        unsigned shift = i % 4 * 8 + i / 4 % 2 * 4;
        for (unsigned row = 0; row < QUANT_PANEL_ROWS; row++)
            number[i][row] = (int16_t)(words[row] >> shift & 15);
    }
}

static void add_pairs(const uint8_t *lines, unsigned at, unit_numbers number) {
    uint32_t words[QUANT_PANEL_ROWS];
    for (unsigned i = 0; i < PANEL_UNIT; i++) {
        load_line(lines + i / 16 * PANEL_LINE_BYTES, words);
        unsigned shift = i % 4 * 8 + i / 4 % 4 * 2;
        for (unsigned row = 0; row < QUANT_PANEL_ROWS; row++)
            number[i][row] = (int16_t)(number[i][row] | (int)(words[row] >> shift & 3) << at);
    }
}

static void add_bits(const uint8_t *line, unsigned at, unit_numbers number) {
    uint64_t masks[8];
    memcpy(masks, line, sizeof(masks));
    for (unsigned i = 0; i < PANEL_UNIT; i++)
        for (unsigned row = 0; row < QUANT_PANEL_ROWS; row++)
            number[i][row] =
                (int16_t)(number[i][row] | (int)(masks[i / 4] >> (4 * row + i % 4) & 1) << at);
}

static void read_numbers(panel_lines kind, const uint8_t *lines, unit_numbers number) {
    switch (kind) {
    case LINES_BYTE:
        read_bytes(lines, number);
        return;
    case LINES_NIBBLE:
        read_nibbles(lines, number);
        return;
    case LINES_NIBBLE_BIT:
        read_nibbles(lines, number);
        add_bits(lines + 4 * PANEL_LINE_BYTES, 4, number);
        return;
    case LINES_NIBBLE_PAIR:
        read_nibbles(lines, number);
        add_pairs(lines + 4 * PANEL_LINE_BYTES, 4, number);
        return;
    case LINES_PAIR:
    case LINES_PAIR_BIT:
        memset(number, 0, sizeof(unit_numbers));
        add_pairs(lines, 0, number);
        if (kind == LINES_PAIR_BIT)
            add_bits(lines + 2 * PANEL_LINE_BYTES, 2, number);
        return;
    }
}

void panels_group_unit(const panel_shape *shape, const uint8_t *panel, size_t unit,
                       panel_unit *out) {
    memset(out->minimum, 0, sizeof(out->minimum));
    shape->scales(panel + panel_head_at(shape, unit), unit % (shape->group / PANEL_UNIT), out);
    read_numbers(shape->lines, panel + panel_unit_at(shape, unit), out->number);
    if (shape->codebook == NULL && shape->zero == 0)
        return;
    for (size_t i = 0; i < PANEL_UNIT; i++)
        for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
            out->number[i][row] =
                (int16_t)(shape->codebook != NULL ? shape->codebook[out->number[i][row]]
                                                  : out->number[i][row] - shape->zero);
}

void panels_group_decode(const panel_shape *shape, const uint8_t *panel, size_t first,
                         size_t columns, float *out) {
    panel_unit unit;
    for (size_t begin = first; begin < first + columns; begin += PANEL_UNIT) {
        panels_group_unit(shape, panel, begin / PANEL_UNIT, &unit);
        size_t count = size_min(first + columns - begin, PANEL_UNIT);
        for (size_t i = 0; i < count; i++, out += QUANT_PANEL_ROWS) {
            const float *scale = unit.scale[i / 16], *minimum = unit.minimum[i / 16];
            for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
                out[row] = scale[row] * (float)unit.number[i][row];
            if (shape->minimum) /* adding 0 would lose the sign of −0 */
                for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
                    out[row] += minimum[row];
        }
    }
}

/* ---- One lane ---- */

static inline int lane_nibble(const uint8_t *lines, size_t i, size_t lane) {
    return lines[i / 8 * PANEL_LINE_BYTES + 4 * lane + i % 4] >> (i / 4 % 2 * 4) & 15;
}

static inline int lane_pair(const uint8_t *lines, size_t i, size_t lane) {
    return lines[i / 16 * PANEL_LINE_BYTES + 4 * lane + i % 4] >> (i / 4 % 4 * 2) & 3;
}

static inline int lane_bit(const uint8_t *line, size_t i, size_t lane) {
    return line[i / 4 * 8 + lane / 2] >> (lane % 2 * 4 + i % 4) & 1;
}

static inline int lane_number(panel_lines kind, const uint8_t *lines, size_t i, size_t lane) {
    switch (kind) {
    case LINES_BYTE:
        return (int8_t)lines[i / 4 * PANEL_LINE_BYTES + 4 * lane + i % 4];
    case LINES_NIBBLE:
        return lane_nibble(lines, i, lane);
    case LINES_NIBBLE_BIT:
        return lane_nibble(lines, i, lane) | lane_bit(lines + 4 * PANEL_LINE_BYTES, i, lane) << 4;
    case LINES_NIBBLE_PAIR:
        return lane_nibble(lines, i, lane) | lane_pair(lines + 4 * PANEL_LINE_BYTES, i, lane) << 4;
    case LINES_PAIR:
        return lane_pair(lines, i, lane);
    case LINES_PAIR_BIT:
        return lane_pair(lines, i, lane) | lane_bit(lines + 2 * PANEL_LINE_BYTES, i, lane) << 2;
    }
    return 0;
}

void panels_group_decode_row(const panel_shape *shape, const uint8_t *panel, size_t k, size_t lane,
                             float *out) {
    panel_unit scales;
    for (size_t i = 0; i < k; i++) {
        size_t unit = i / PANEL_UNIT, inside = i % PANEL_UNIT;
        if (inside == 0)
            shape->scales(panel + panel_head_at(shape, unit), unit % (shape->group / PANEL_UNIT),
                          &scales);
        int number = lane_number(shape->lines, panel + panel_unit_at(shape, unit), inside, lane);
        number = shape->codebook != NULL ? shape->codebook[number] : number - shape->zero;
        out[i] = scales.scale[inside / 16][lane] * (float)number;
        if (shape->minimum)
            out[i] += scales.minimum[inside / 16][lane];
    }
}
