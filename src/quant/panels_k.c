/* Scales and minima of the PANELS types with super-blocks of 256: a line with 16 f16 d and 16 f16
 * dmin, then a byte for each block and row. Products are rounded as in decode_k.c. */
#include "quant/decode_int.h"
#include "quant/panels_int.h"

#define BLOCKS_AT PANEL_LINE_BYTES

static void load_d(const uint8_t *head, float *d) {
    decode_f16(head, QUANT_PANEL_ROWS, d);
}

static void load_dmin(const uint8_t *head, float *dmin) {
    decode_f16(head + 32, QUANT_PANEL_ROWS, dmin);
}

/* Blocks of 32, signed: IQ4_XS. */
void scales_k32(const uint8_t *head, size_t unit, panel_unit *out) {
    const int8_t *s = (const int8_t *)head + BLOCKS_AT + unit * QUANT_PANEL_ROWS;
    float d[QUANT_PANEL_ROWS];
    load_d(head, d);
    for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
        out->scale[1][row] = out->scale[0][row] = d[row] * (float)s[row];
}

/* Blocks of 32, unsigned, scales in two lines and minima in two: Q4_K, Q5_K. */
void scales_k32_minimum(const uint8_t *head, size_t unit, panel_unit *out) {
    const uint8_t *s = head + BLOCKS_AT + unit * QUANT_PANEL_ROWS;
    const uint8_t *m = s + 2 * PANEL_LINE_BYTES;
    float d[QUANT_PANEL_ROWS], dmin[QUANT_PANEL_ROWS];
    load_d(head, d);
    load_dmin(head, dmin);
    for (size_t row = 0; row < QUANT_PANEL_ROWS; row++) {
        out->scale[1][row] = out->scale[0][row] = d[row] * (float)s[row];
        out->minimum[1][row] = out->minimum[0][row] = -(dmin[row] * (float)m[row]);
    }
}

/* Blocks of 16, signed: Q6_K, Q3_K. */
void scales_k16(const uint8_t *head, size_t unit, panel_unit *out) {
    const int8_t *s = (const int8_t *)head + BLOCKS_AT + unit * 2 * QUANT_PANEL_ROWS;
    float d[QUANT_PANEL_ROWS];
    load_d(head, d);
    for (size_t half = 0; half < 2; half++, s += QUANT_PANEL_ROWS)
        for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
            out->scale[half][row] = d[row] * (float)s[row];
}

/* Blocks of 16, scale and minimum in one byte: Q2_K. */
void scales_k16_minimum(const uint8_t *head, size_t unit, panel_unit *out) {
    const uint8_t *both = head + BLOCKS_AT + unit * 2 * QUANT_PANEL_ROWS;
    float d[QUANT_PANEL_ROWS], dmin[QUANT_PANEL_ROWS];
    load_d(head, d);
    load_dmin(head, dmin);
    for (size_t half = 0; half < 2; half++, both += QUANT_PANEL_ROWS)
        for (size_t row = 0; row < QUANT_PANEL_ROWS; row++) {
            out->scale[half][row] = d[row] * (float)(both[row] & 15);
            out->minimum[half][row] = -(dmin[row] * (float)(both[row] >> 4));
        }
}
