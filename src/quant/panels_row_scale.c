/* PANELS of bytes with one f32 scale per row, in one line behind all byte lines: Q8C (int8) and F8C
 * (E4M3). */
#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"

bool panels_row_scale_bytes(uint64_t k, uint64_t *bytes) {
    *bytes = ((k + 3) / 4 + 1) * PANEL_LINE_BYTES;
    return true;
}

static const uint8_t *scale_line(const uint8_t *panel, size_t k) {
    return panel + (k + 3) / 4 * PANEL_LINE_BYTES;
}

/* One line: four k of 16 rows. One rounding each. */
static inline void decode_line(bool floats, const uint8_t *line, const float *scale, float *out) {
    uint32_t words[QUANT_PANEL_ROWS];
    memcpy(words, line, sizeof(words));
    for (unsigned i = 0; i < 4; i++)
        for (unsigned row = 0; row < QUANT_PANEL_ROWS; row++) {
            float number = floats ? e4m3_to_float((uint8_t)(words[row] >> 8 * i))
                                  : (float)((int32_t)(words[row] << (24 - 8 * i)) >> 24);
            out[i * QUANT_PANEL_ROWS + row] = scale[row] * number;
        }
}

void panels_row_scale_decode(quant_type type, const uint8_t *panel, size_t k, size_t begin,
                             size_t count, float *out) {
    float scale[QUANT_PANEL_ROWS], whole[4 * QUANT_PANEL_ROWS];
    memcpy(scale, scale_line(panel, k), sizeof(scale));
    panel += begin / 4 * PANEL_LINE_BYTES;
    for (size_t i = 0; i < count; i += 4) {
        const uint8_t *line = panel + i / 4 * PANEL_LINE_BYTES;
        if (type == QUANT_F8C)
            decode_line(true, line, scale, whole);
        else
            decode_line(false, line, scale, whole);
        memcpy(out + i * QUANT_PANEL_ROWS, whole,
               size_min(count - i, 4) * QUANT_PANEL_ROWS * sizeof(float));
    }
}

void panels_row_scale_decode_row(quant_type type, const uint8_t *panel, size_t k, size_t lane,
                                 float *out) {
    float scale = float_from_bits(load_u32(scale_line(panel, k) + 4 * lane));
    for (size_t i = 0; i < k; i++) {
        uint8_t byte = panel[i / 4 * PANEL_LINE_BYTES + 4 * lane + i % 4];
        out[i] = scale * (type == QUANT_F8C ? e4m3_to_float(byte) : (float)(int8_t)byte);
    }
}

/* Q8C; numbers behind the last line are zero. */
void panels_row_scale_unit(const uint8_t *panel, size_t k, size_t unit, panel_unit *out) {
    memset(out, 0, sizeof(*out));
    memcpy(out->scale[0], scale_line(panel, k), sizeof(out->scale[0]));
    memcpy(out->scale[1], out->scale[0], sizeof(out->scale[0]));
    size_t begin = unit * PANEL_UNIT;
    for (size_t i = 0; i < PANEL_UNIT && begin + i < k; i++)
        for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
            out->number[i][row] =
                (int8_t)panel[(begin + i) / 4 * PANEL_LINE_BYTES + 4 * row + i % 4];
}
