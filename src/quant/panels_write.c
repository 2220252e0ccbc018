/* Numbers and scales of types with blocks of 32 or 64 into panels, one at a time: for encoders that
 * have already decided what each of them is. */
#include "quant/panels_int.h"

void panels_write_number(quant_type type, uint8_t *panel, size_t k, size_t lane, int number) {
    const panel_shape *shape = panel_shape_of(type);
    size_t i = k % PANEL_UNIT;
    uint8_t *unit = panel + panel_unit_at(shape, k / PANEL_UNIT);
    unsigned raw = (unsigned)(number + shape->zero);
    if (shape->lines == LINES_BYTE) {
        unit[i / 4 * PANEL_LINE_BYTES + 4 * lane + i % 4] = (uint8_t)raw;
        return;
    }
    unit[i / 8 * PANEL_LINE_BYTES + 4 * lane + i % 4] |= (uint8_t)((raw & 15) << (i / 4 % 2 * 4));
    if (shape->lines == LINES_NIBBLE_BIT)
        unit[4 * PANEL_LINE_BYTES + i / 4 * 8 + lane / 2] |=
            (uint8_t)((raw >> 4 & 1) << (lane % 2 * 4 + i % 4));
}

void panels_write_scale(quant_type type, uint8_t *panel, size_t block, size_t lane, uint16_t scale,
                        uint16_t minimum) {
    const panel_shape *shape = panel_shape_of(type);
    bool wide = type == QUANT_Q4B64 || type == QUANT_Q4M64;
    size_t in_group = shape->group / (wide ? 64u : 32u);
    uint8_t *head = panel + block / in_group * panel_group_bytes(shape);
    memcpy(head + block % in_group * 32 + 2 * lane, &scale, sizeof(scale));
    if (!shape->minimum)
        return;
    uint8_t *minima = type == QUANT_Q4M64 ? head + 32 : head + PANEL_LINE_BYTES;
    memcpy(minima + block % in_group * 32 + 2 * lane, &minimum, sizeof(minimum));
}
