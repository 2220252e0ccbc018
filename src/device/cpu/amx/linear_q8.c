/* 8-bit types (A16: two planes of activations) on tiles: linear_blocks.h. The lines of the panels
 * are tiles as they lie; they are copied all the same, because lines of a piece side by side stay
 * in the first-level cache, and copying costs little beside the products. */
#include "device/cpu/amx/linear_q8.h"
#include "device/cpu/amx/linear_blocks.h"

static void unpack_q8_blocks(const uint8_t *panel, size_t k, size_t begin, size_t count,
                             block_piece *out) {
    (void)k;
    for (size_t i = 0; i < count / PANEL_UNIT; i++) {
        size_t unit = begin / PANEL_UNIT + i;
        q8_unit_fetch(panel, unit);
        memcpy(out->lines + i * Q8_UNIT_BYTES, q8_unit_lines(panel, unit), Q8_UNIT_BYTES);
        _mm512_store_ps(out->scale[i], load_halves(q8_unit_scale(panel, unit)));
    }
}

/* One scale per row, behind the lines, of which the last unit may have fewer than eight. */
static void unpack_q8c(const uint8_t *panel, size_t k, size_t begin, size_t count,
                       block_piece *out) {
    size_t bytes = (k + 3) / 4 * PANEL_LINE_BYTES;
    size_t from = begin / 4 * PANEL_LINE_BYTES;
    size_t wanted = count / 4 * PANEL_LINE_BYTES;
    size_t there = bytes - from < wanted ? bytes - from : wanted;
    memcpy(out->lines, panel + from, there);
    memset(out->lines + there, 0, wanted - there);
    memcpy(out->scale[0], panel + bytes, sizeof(out->scale[0]));
}

/* few_q8.c lays 16 rows out at a time, which this many panels repay with many rows as well: 1.1B in
 * Q8_0 takes a prompt of 512 in 17 % less time so. Calls of larger teams have fewer. */
#define PANELS_LONG 4

void amx_linear_q8b(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_FEW_Q8)
        linear_avx512_q8_0(call, first, last, scratch);
    else if (call->x->rows < AMX_ROWS_MIN_Q8 || last - first >= PANELS_LONG)
        amx_few_q8(call, first, last, scratch);
    else
        block_linear_a16(&(block_job){call, first, last, unpack_q8_blocks, scratch});
}

void amx_linear_q8c(const linear_call *call, size_t first, size_t last, uint8_t *scratch) {
    if (call->x->rows < AMX_ROWS_MIN_Q8)
        linear_avx512_q8c(call, first, last, scratch);
    else
        block_linear_a16_channel(&(block_job){call, first, last, unpack_q8c, scratch});
}
