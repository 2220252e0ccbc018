/* Scales and minima of the PANELS types with blocks of 32 and 64: in the head of a group lie lines
 * of 2 × 16 f16, one set of 16 for each of two blocks (Q4M64: scales, then minima, of one). */
#include "quant/decode_int.h"
#include "quant/panels_int.h"

/* 16 f16, the same for both halves of the unit. */
static void spread_halves(const uint8_t *halves, float (*out)[QUANT_PANEL_ROWS]) {
    decode_f16(halves, QUANT_PANEL_ROWS, out[0]);
    memcpy(out[1], out[0], sizeof(out[0]));
}

void scales_block(const uint8_t *head, size_t unit, panel_unit *out) {
    spread_halves(head + unit * 32, out->scale);
}

void scales_block_minimum(const uint8_t *head, size_t unit, panel_unit *out) {
    spread_halves(head + unit * 32, out->scale);
    spread_halves(head + PANEL_LINE_BYTES + unit * 32, out->minimum);
}

void scales_block_brain(const uint8_t *head, size_t unit, panel_unit *out) {
    decode_bf16(head + unit * 32, QUANT_PANEL_ROWS, out->scale[0]);
    memcpy(out->scale[1], out->scale[0], sizeof(out->scale[0]));
}

void scales_block64(const uint8_t *head, size_t unit, panel_unit *out) {
    spread_halves(head + unit / 2 * 32, out->scale);
}

void scales_block64_minimum(const uint8_t *head, size_t unit, panel_unit *out) {
    (void)unit; /* one block in a group */
    spread_halves(head, out->scale);
    spread_halves(head + 32, out->minimum);
}
