/* PANELS of Q8R: Q8C of a matrix that was rotated along k, so that its products read what those of
 * Q4R read (A8R). The padding up to 16 k takes part in the rotation. */
#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"

static size_t padded(size_t k) {
    return (k + Q4R_SUB - 1) / Q4R_SUB * Q4R_SUB;
}

bool panels_q8r_bytes(uint64_t k, uint64_t *bytes) {
    return panels_row_scale_bytes((k + Q4R_SUB - 1) / Q4R_SUB * Q4R_SUB, bytes);
}

void panels_q8r_decode(const uint8_t *panel, size_t k, size_t first, size_t columns, float *out) {
    const uint8_t *scale_at = panel + padded(k) / 4 * PANEL_LINE_BYTES;
    float scale[QUANT_PANEL_ROWS];
    memcpy(scale, scale_at, sizeof(scale));
    for (size_t begin = first; begin < first + columns; begin += Q4R_SUPER) {
        size_t count = size_min(padded(k) - begin, Q4R_SUPER);
        float whole[Q4R_SUPER * QUANT_PANEL_ROWS];
        for (size_t i = 0; i < count; i++) {
            const uint8_t *line = panel + (begin + i) / 4 * PANEL_LINE_BYTES + i % 4;
            for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
                whole[i * QUANT_PANEL_ROWS + row] = scale[row] * (float)(int8_t)line[4 * row];
        }
        quant_rotate(whole, count, QUANT_PANEL_ROWS);
        memcpy(out + (begin - first) * QUANT_PANEL_ROWS, whole,
               size_min(first + columns - begin, count) * QUANT_PANEL_ROWS * sizeof(float));
    }
}

void panels_q8r_decode_row(const uint8_t *panel, size_t k, size_t lane, float *out) {
    const uint8_t *scale_at = panel + padded(k) / 4 * PANEL_LINE_BYTES;
    float scale = float_from_bits(load_u32(scale_at + 4 * lane));
    for (size_t begin = 0; begin < k; begin += Q4R_SUPER) {
        size_t count = size_min(padded(k) - begin, Q4R_SUPER);
        float whole[Q4R_SUPER];
        for (size_t i = 0; i < count; i++)
            whole[i] =
                scale * (float)(int8_t)panel[(begin + i) / 4 * PANEL_LINE_BYTES + 4 * lane + i % 4];
        quant_rotate(whole, count, 1);
        memcpy(out + begin, whole, size_min(k - begin, count) * sizeof(float));
    }
}

/* Rotated: as products see it. */
void panels_q8r_unit(const uint8_t *panel, size_t k, size_t unit, panel_unit *out) {
    panels_row_scale_unit(panel, padded(k), unit, out);
}
