/* Units (32 k of 16 outputs) of the integer types, taken out of their panels (quant/panels.h) into
 * the form that products read: byte lines of signed numbers, and scales and minima as floats. */
#ifndef AVO_DEVICE_CPU_NEON_UNITS_H
#define AVO_DEVICE_CPU_NEON_UNITS_H

#include "quant/panels.h"

#define UNIT_LINES (PANEL_UNIT / 4)

typedef struct neon_unit {
    int8_t line[UNIT_LINES][PANEL_LINE_BYTES]; /* zero point, codebook, multiplier applied */
    float scale[2][QUANT_PANEL_ROWS];          /* of the first and the second 16 k; [0] alone
                                                  without sub-blocks */
    float minimum[2][QUANT_PANEL_ROWS];        /* likewise, where the type has minima */
} neon_unit;

/* All units of a panel; of those that k does not fill, numbers behind it are 0. */
void neon_units_read(quant_type type, const uint8_t *panel, size_t k, neon_unit *units);

#endif
