/* Panels with 8 bits and a scale per block (quant/panels.h): groups of two units, a line of scales
 * before their lines. */
#ifndef AVO_DEVICE_CPU_AMX_LINEAR_Q8_H
#define AVO_DEVICE_CPU_AMX_LINEAR_Q8_H

#include "device/cpu/amx/amx_int.h"
#include "device/cpu/avx512/units.h"

#define Q8_GROUP_UNITS 2
#define Q8_UNIT_BYTES  512
#define Q8_GROUP_BYTES (64 + Q8_GROUP_UNITS * Q8_UNIT_BYTES)

AMX_INLINE const uint8_t *q8_unit_lines(const uint8_t *panel, size_t unit) {
    return panel + unit / Q8_GROUP_UNITS * Q8_GROUP_BYTES + 64 +
           unit % Q8_GROUP_UNITS * Q8_UNIT_BYTES;
}

/* 16 f16 */
AMX_INLINE const uint8_t *q8_unit_scale(const uint8_t *panel, size_t unit) {
    return panel + unit / Q8_GROUP_UNITS * Q8_GROUP_BYTES + unit % Q8_GROUP_UNITS * 32;
}

/* Asks for what comes later, a unit's share of a group. */
AMX_INLINE void q8_unit_fetch(const uint8_t *panel, size_t unit) {
    const size_t share = Q8_GROUP_BYTES / Q8_GROUP_UNITS;
    const uint8_t *at = panel + unit * share;
    for (size_t byte = 0; byte < share; byte += PANEL_LINE_BYTES)
        fetch_ahead(at + byte, TILE_ROWS_MAX);
}

/* From 4 rows on; AMX_ROWS_MIN_FEW_Q8. */
linear_function amx_few_q8;

#endif
