/* Matrices in ROWS and COLUMNS as panels, exact in value: every type of GGUF's keeps its own scales
 * and numbers, which only move. It runs over whole models when they are opened, so it is quick:
 * one group of 16 rows at a time, whose lines stay in the first cache until they are complete.
 *
 * Rates: bench_quant prints them ("repack"). */
#include "quant/repack_int.h"

#include "base/checked.h"

#include <assert.h>

static repack_group repacker_of(quant_type type) {
    static const repack_group repackers[] = {
        [QUANT_IQ4_NL] = repack_q4_0, [QUANT_Q4_1] = repack_q4_1, [QUANT_Q5_0] = repack_q5_0,
        [QUANT_Q5_1] = repack_q5_1,   [QUANT_Q8_0] = repack_q8_0, [QUANT_MXFP4] = repack_mxfp4,
        [QUANT_Q2_K] = repack_q2_k,   [QUANT_Q3_K] = repack_q3_k, [QUANT_Q4_K] = repack_q4_k,
        [QUANT_Q5_K] = repack_q5_k,   [QUANT_Q6_K] = repack_q6_k, [QUANT_IQ4_XS] = repack_iq4_xs,
        [QUANT_Q4_0] = repack_q4_0,
    };
    return (size_t)type < sizeof(repackers) / sizeof(repackers[0]) ? repackers[type] : NULL;
}

/* Four rows at a time, of the types that small models mostly have; NULL: one at a time. */
static repack_four four_of(quant_type type) {
    switch ((int)type) {
    case QUANT_Q4_0:
    case QUANT_IQ4_NL:
        return repack_four_q4_0;
    case QUANT_Q4_1:
        return repack_four_q4_1;
    case QUANT_Q8_0:
        return repack_four_q8_0;
    default:
        return NULL;
    }
}

quant_type weight_repack_type(const weight_view *weight) {
    if (panels_known(weight->type))
        return weight->type;
    switch ((int)weight->type) {
    case QUANT_F8_E4M3:
        return QUANT_F8C;
    case QUANT_F8_E5M2:
    case QUANT_I8:
    case QUANT_U8:
    case QUANT_BOOL:
        return QUANT_F16;
    default:
        return QUANT_F32;
    }
}

static void repack_groups(const weight_view *weight, size_t first, size_t rows, uint8_t *out) {
    const panel_shape *shape = panel_shape_of(weight->type);
    const quant_info *info = quant_info_of(weight->type);
    repack_group repack = repacker_of(weight->type);
    repack_four four = four_of(weight->type);
    size_t blocks = weight->k / info->block_elements;
    size_t row_bytes = blocks * info->block_bytes;
    size_t group_blocks = shape->group / info->block_elements;
    const uint8_t *source = weight->data + first * row_bytes;
    for (size_t block = 0; block < blocks; block += group_blocks) {
        size_t count = size_min(blocks - block, group_blocks);
        size_t lines =
            shape->head_lines + count * info->block_elements / PANEL_UNIT * shape->unit_lines;
        const uint8_t *from = source + block * info->block_bytes;
        size_t row = 0;
        if (four == NULL || rows < QUANT_PANEL_ROWS || count < group_blocks)
            memset(out, 0, lines * PANEL_LINE_BYTES);
        for (; four != NULL && row + 4 <= rows; row += 4)
            four(from + row * row_bytes, row_bytes, count, row, out);
        for (; row < rows; row++)
            repack(from + row * row_bytes, count, row, out);
        out += panel_group_bytes(shape);
    }
}

void weight_repack_panel(const weight_view *weight, size_t panel, quant_type target, uint8_t *out) {
    size_t first = panel * QUANT_PANEL_ROWS;
    assert(first < weight->rows && target == weight_repack_type(weight));
    size_t rows = size_min(weight->rows - first, QUANT_PANEL_ROWS);
    uint64_t bytes = 0;
    bool known = panels_bytes(target, weight->k, &bytes);
    assert(known);
    (void)known;
    if (weight->layout == QUANT_LAYOUT_PANELS) {
        memcpy(out, weight->data + panel * (size_t)bytes, (size_t)bytes);
        return;
    }
    if (weight->layout == QUANT_LAYOUT_ROWS && repacker_of(weight->type) != NULL) {
        repack_groups(weight, first, rows, out);
        return;
    }
    if (rows < QUANT_PANEL_ROWS) /* those that are not there */
        memset(out, 0, (size_t)bytes);
    if (weight->layout == QUANT_LAYOUT_COLUMNS)
        repack_plain_columns(weight, first, rows, out);
    else
        repack_plain_rows(weight, first, rows, target, out);
}
