/* The integer peak of AMX: tiles only, no loads, four chains of 16 × 16 sums with 64 bytes of k
 * each.
 *
 * The configuration is written to memory, made visible, loaded and given back here, because gcc 12
 * tells its optimiser about 8 of the 64 bytes that ldtilecfg reads. Assembly for the rest too, so
 * that the loop is exactly what its name says.
 */
#include "device/cpu/limits.h"

#include <string.h>

#define CHAINS 4

typedef struct tile_shape {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shape;
_Static_assert(sizeof(tile_shape) == 64, "what ldtilecfg reads");

static void tiles_begin(void) {
    tile_shape shape;
    memset(&shape, 0, sizeof(shape));
    shape.palette = 1;
    for (int tile = 0; tile < 8; tile++) {
        shape.row_bytes[tile] = 64;
        shape.rows[tile] = 16;
    }
    __asm__ volatile("ldtilecfg %0\n\t"
                     "tilezero %%tmm0\n\t"
                     "tilezero %%tmm1\n\t"
                     "tilezero %%tmm2\n\t"
                     "tilezero %%tmm3\n\t"
                     "tilezero %%tmm4\n\t"
                     "tilezero %%tmm5\n\t"
                     "tilezero %%tmm6\n\t"
                     "tilezero %%tmm7"
                     :
                     : "m"(shape));
}

static uint64_t tiles_end(void) {
    uint8_t rows[16][64];
    uint64_t first;
    /* tilestored with a register stride: base, index */
    __asm__ volatile("tilestored %%tmm0, (%1,%2,1)\n\ttilerelease"
                     : "=m"(rows)
                     : "r"(&rows[0][0]), "r"((uint64_t)64)
                     : "memory");
    memcpy(&first, rows, sizeof(first));
    return first;
}

static uint64_t integer_peak(uint64_t rounds) {
    tiles_begin();
    for (uint64_t round = 0; round < rounds; round++)
        __asm__ volatile("tdpbssd %tmm6, %tmm4, %tmm0\n\t"
                         "tdpbssd %tmm7, %tmm4, %tmm1\n\t"
                         "tdpbssd %tmm6, %tmm5, %tmm2\n\t"
                         "tdpbssd %tmm7, %tmm5, %tmm3");
    return tiles_end();
}

void limits_amx(limit_table *table) {
    table->isa = "amx";
    table->integer = (limit_peak){"tdpbssd", CHAINS * 2 * 16 * 16 * 64, integer_peak};
}
