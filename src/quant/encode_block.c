/* Encode to the PANELS types of 4 bit in plain blocks: Q4_0 and Q4_1 (32 k), Q4B64 and Q4M64
 * (64 k). search_block.c finds the numbers, here they are put in their places. */
#include "base/checked.h"
#include "quant/panels_int.h"
#include "quant/search_block.h"

/* Where 16 f16 scales and minima of block `block` lie behind the head of its group. */
static size_t scales_at(quant_type type, size_t block) {
    return type == QUANT_Q4M64 ? 0 : block % 2 * 32;
}

static size_t minima_at(quant_type type, size_t block) {
    return type == QUANT_Q4M64 ? 32 : PANEL_LINE_BYTES + block % 2 * 32;
}

/* Numbers of one row behind each other, k = 0 … count − 1 of the unit, into its nibble lines. */
static void write_numbers(const uint8_t *number, size_t count, size_t row, uint8_t *lines) {
    for (size_t i = 0; i < count; i++) {
        uint8_t *byte = lines + i / 8 * PANEL_LINE_BYTES + 4 * row + i % 4;
        *byte = (uint8_t)(*byte | number[i] << (i / 4 % 2 * 4));
    }
}

static void write_block(const panel_shape *shape, size_t block_k, size_t block, size_t row,
                        const block_found *found, size_t count, uint8_t *out) {
    size_t unit = block * block_k / PANEL_UNIT;
    uint8_t *head = out + panel_head_at(shape, unit);
    memcpy(head + scales_at(shape->type, block) + 2 * row, &found->scale, 2);
    if (shape->minimum)
        memcpy(head + minima_at(shape->type, block) + 2 * row, &found->minimum, 2);
    for (size_t begin = 0; begin < count; begin += PANEL_UNIT, unit++)
        write_numbers(found->number + begin, size_min(count - begin, PANEL_UNIT), row,
                      out + panel_unit_at(shape, unit));
}

void panels_block_encode(quant_type type, const float *source, const float *importance, size_t rows,
                         size_t k, uint8_t *out) {
    const panel_shape *shape = panel_shape_of(type);
    size_t block_k = type == QUANT_Q4B64 || type == QUANT_Q4M64 ? 64 : 32;
    uint64_t bytes = 0;
    (void)panels_group_bytes(shape, k, &bytes);
    memset(out, 0, (size_t)bytes);
    for (size_t row = 0; row < rows; row++)
        for (size_t begin = 0; begin < k; begin += block_k) {
            size_t count = size_min(k - begin, block_k);
            const float *from = source + row * k + begin;
            const float *weight = importance == NULL ? NULL : importance + begin;
            block_found found;
            if (shape->minimum)
                search_minimum(from, weight, count, &found);
            else
                search_symmetric(from, weight, count, &found);
            write_block(shape, block_k, begin / block_k, row, &found, count, out);
        }
}
