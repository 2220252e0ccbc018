/* Matrices, activations and calls for the tests of the op tables. All memory ends at a page without
 * access, every array on its own. */
#ifndef AVO_TESTS_OPS_CASES_H
#define AVO_TESTS_OPS_CASES_H

#include "support/support.h"

#include "base/random.h"
#include "device/cpu/ops.h"
#include "support/encode.h"
#include "support/guard.h"

#include <math.h>
#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const quant_type all_types[] = {
#define TYPE_OF(name) QUANT_##name,
    PANEL_TYPE_TABLE(TYPE_OF)
#undef TYPE_OF
};

static inline void fill_bytes(uint64_t stream, uint64_t counter, void *out, size_t bytes) {
    for (size_t i = 0; i < bytes; i += sizeof(random_block)) {
        random_block block = random_at(29, stream, counter++);
        size_t left = bytes - i;
        memcpy((uint8_t *)out + i, &block, left < sizeof(block) ? left : sizeof(block));
    }
}

/* Triangular in −1 … 1. */
static inline void fill_noise(uint64_t stream, float *out, size_t count) {
    for (size_t i = 0; i < count; i += 4) {
        random_block block = random_at(23, stream, i);
        for (size_t j = 0; j < 4 && i + j < count; j++)
            out[i + j] = (float)((int32_t)(block.words[j] & 0xffff) +
                                 (int32_t)(block.words[j] >> 16) - 0xffff) *
                         0x1p-16f;
    }
}

/* ---- Weights ---- */

/* Where the 16-bit floats of a GGUF block lie; −1: none. */
typedef struct block_halves {
    quant_type type;
    int at[2];
} block_halves;

static inline const block_halves *halves_of(quant_type type) {
    static const block_halves table[] = {
        {QUANT_Q8_0, {0, -1}},  {QUANT_Q4_0, {0, -1}},   {QUANT_Q4_1, {0, 2}},
        {QUANT_Q5_0, {0, -1}},  {QUANT_Q5_1, {0, 2}},    {QUANT_IQ4_NL, {0, -1}},
        {QUANT_Q2_K, {80, 82}}, {QUANT_Q3_K, {108, -1}}, {QUANT_Q4_K, {0, 2}},
        {QUANT_Q5_K, {0, 2}},   {QUANT_Q6_K, {208, -1}}, {QUANT_IQ4_XS, {0, -1}},
        {QUANT_MXFP4, {-1, -1}}};
    for (size_t i = 0; i < COUNT(table); i++)
        if (table[i].type == type)
            return &table[i];
    return NULL;
}

/* A block of random numbers; its scales are small normal ones of either sign, or any bits at all
 * where `wild`. */
static inline void fill_block(const quant_info *info, uint64_t stream, uint64_t index, bool wild,
                              uint8_t *block) {
    fill_bytes(stream, index * 16, block, info->block_bytes);
    if (wild)
        return;
    if (info->type == QUANT_MXFP4)
        block[0] = (uint8_t)(118 + block[0] % 8);
    const block_halves *halves = halves_of(info->type);
    for (int i = 0; i < 2 && halves->at[i] >= 0; i++) {
        uint16_t half;
        memcpy(&half, block + halves->at[i], sizeof(half));
        half = (uint16_t)((half & 0x8fff) + 0x1c00); /* 2^-8 … 2^-4 */
        memcpy(block + halves->at[i], &half, sizeof(half));
    }
}

/* PANELS of a type without blocks, or with other k than whole blocks, by the encoder. */
static inline void fill_encoded(const weight_view *weight, uint64_t stream, uint8_t *data,
                                size_t panel_bytes) {
    float *rows = malloc(QUANT_PANEL_ROWS * (size_t)weight->k * sizeof(float));
    for (size_t p = 0; p < weight_panels(weight); p++) {
        size_t count = weight->rows - p * QUANT_PANEL_ROWS;
        count = count < QUANT_PANEL_ROWS ? count : QUANT_PANEL_ROWS;
        fill_noise(stream + p, rows, count * weight->k);
        encode_panel(weight->type, rows, count, weight->k, true, data + p * panel_bytes);
    }
    free(rows);
}

/* GGUF's types from random blocks, repacked. Where k is no multiple of the block, the numbers
 * behind it are random too: kernels must not care. */
static inline void fill_repacked(const weight_view *weight, uint64_t stream, bool wild,
                                 uint8_t *data, size_t panel_bytes) {
    const quant_info *info = quant_info_of(weight->type);
    uint32_t padded = (weight->k + info->block_elements - 1) / info->block_elements;
    uint64_t row_blocks = padded;
    padded *= info->block_elements;
    uint8_t *blocks = malloc(row_blocks * weight->rows * info->block_bytes);
    for (uint64_t i = 0; i < row_blocks * weight->rows; i++)
        fill_block(info, stream, i, wild, blocks + i * info->block_bytes);
    weight_view rows = {.type = weight->type,
                        .layout = QUANT_LAYOUT_ROWS,
                        .rows = weight->rows,
                        .k = padded,
                        .data = blocks};
    for (size_t p = 0; p < weight_panels(weight); p++)
        weight_repack_panel(&rows, p, weight->type, data + p * panel_bytes);
    free(blocks);
}

static inline size_t weight_size(const weight_view *weight) {
    uint64_t bytes;
    assert_true(weight_bytes(weight->type, weight->layout, weight->rows, weight->k, &bytes));
    return (size_t)bytes;
}

static inline weight_view weight_take(quant_type type, uint32_t rows, uint32_t k, uint64_t stream,
                                      bool wild) {
    weight_view weight = {
        .type = type, .layout = QUANT_LAYOUT_PANELS, .rows = rows, .k = k, .data = NULL};
    uint64_t panel_bytes;
    assert_true(weight_panel_bytes(type, k, &panel_bytes));
    uint8_t *data = guard_take(weight_size(&weight));
    weight.data = data;
    if (halves_of(type) != NULL)
        fill_repacked(&weight, stream, wild, data, (size_t)panel_bytes);
    else
        fill_encoded(&weight, stream, data, (size_t)panel_bytes);
    return weight;
}

static inline void weight_give(const weight_view *weight) {
    guard_give((void *)(uintptr_t)weight->data, weight_size(weight));
}

/* ---- Activations ---- */

/* As activation_lay, but each array ends at its own guard. */
static inline activation_view activations_take(product_form form, uint32_t rows, uint32_t k) {
    activation_view view = {.form = form,
                            .rows = rows,
                            .k = k,
                            .stride = activation_stride(k),
                            .scale_stride = activation_scale_stride(k),
                            .sum_stride = activation_sum_stride(k)};
    if (form == PRODUCT_FLOAT) {
        view.x = guard_take(rows * view.stride * sizeof(float));
        return view;
    }
    view.number = guard_take(rows * view.stride);
    view.low = form == PRODUCT_A16 ? guard_take(rows * view.stride) : NULL;
    view.scale = guard_take(rows * view.scale_stride * sizeof(float));
    view.sum = form == PRODUCT_A8 ? guard_take(rows * view.scale_stride * sizeof(float)) : NULL;
    if (form != PRODUCT_A16)
        view.integer_sum = guard_take(rows * view.sum_stride * sizeof(int32_t));
    return view;
}

static inline void give_array(void *array, size_t bytes) {
    if (array != NULL)
        guard_give(array, bytes);
}

static inline void activations_give(const activation_view *view) {
    give_array(view->x, view->rows * view->stride * sizeof(float));
    give_array(view->number, view->rows * view->stride);
    give_array(view->low, view->rows * view->stride);
    give_array(view->scale, view->rows * view->scale_stride * sizeof(float));
    give_array(view->sum, view->rows * view->scale_stride * sizeof(float));
    give_array(view->integer_sum, view->rows * view->sum_stride * sizeof(int32_t));
}

static inline uint8_t *scratch_take(size_t k) {
    return guard_take(linear_scratch_bytes(k));
}

static inline void scratch_give(uint8_t *scratch, size_t k) {
    guard_give(scratch, linear_scratch_bytes(k));
}

/* ---- Comparison ---- */

/* Bits, or both NaN. */
static inline bool same_float(float a, float b) {
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

#endif
