/* Where the arrays of an activation_view lie in their block. */
#include "device/cpu/activation.h"

#include <string.h>

static size_t form_bytes(product_form form, size_t rows, size_t k) {
    size_t numbers = activation_stride(k);
    size_t scales = activation_scale_stride(k) * sizeof(float);
    size_t sums = activation_sum_stride(k) * sizeof(int32_t);
    switch (form) {
    case PRODUCT_A8:
        return rows * (numbers + 2 * scales + sums);
    case PRODUCT_A16:
        return rows * (2 * numbers + scales);
    case PRODUCT_A8R:
        return rows * (numbers + scales + sums);
    default:
        return rows * numbers * sizeof(float);
    }
}

size_t activation_bytes(size_t rows, size_t k) {
    size_t most = 0;
    for (int form = 0; form < PRODUCT_FORMS; form++) {
        size_t bytes = form_bytes((product_form)form, rows, k);
        most = bytes > most ? bytes : most;
    }
    return most;
}

activation_view activation_lay(product_form form, uint32_t rows, uint32_t k, uint8_t *block) {
    activation_view view = {.form = form,
                            .rows = rows,
                            .k = k,
                            .stride = activation_stride(k),
                            .scale_stride = activation_scale_stride(k),
                            .sum_stride = activation_sum_stride(k)};
    if (form == PRODUCT_FLOAT) {
        view.x = (float *)(void *)block;
        return view;
    }
    view.number = (int8_t *)block;
    block += rows * view.stride;
    if (form == PRODUCT_A16) {
        view.low = (int8_t *)block;
        block += rows * view.stride;
    }
    view.scale = (float *)(void *)block;
    block += rows * view.scale_stride * sizeof(float);
    if (form == PRODUCT_A8) {
        view.sum = (float *)(void *)block;
        block += rows * view.scale_stride * sizeof(float);
    }
    if (form != PRODUCT_A16)
        view.integer_sum = (int32_t *)(void *)block;
    return view;
}

activation_view activation_from(const activation_view *view, uint32_t row, size_t begin) {
    size_t block = view->form == PRODUCT_A8R ? Q4R_SUPER : PANEL_UNIT;
    size_t number = row * view->stride + begin;
    size_t scale = row * view->scale_stride + begin / block;
    activation_view from = *view;
    if (view->x != NULL)
        from.x += number;
    if (view->number != NULL)
        from.number += number;
    if (view->low != NULL)
        from.low += number;
    if (view->scale != NULL)
        from.scale += scale;
    if (view->sum != NULL)
        from.sum += scale;
    if (view->integer_sum != NULL)
        from.integer_sum += row * view->sum_stride + begin / Q4R_SUB;
    return from;
}

static void copy_part(const void *from, size_t from_row, void *to, size_t to_row, size_t bytes) {
    if (from != NULL)
        memcpy((uint8_t *)to + to_row * bytes, (const uint8_t *)from + from_row * bytes, bytes);
}

void activation_copy_row(const activation_view *from, uint32_t from_row, const activation_view *to,
                         uint32_t to_row) {
    size_t scales = from->scale_stride * sizeof(float);
    copy_part(from->x, from_row, to->x, to_row, from->stride * sizeof(float));
    copy_part(from->number, from_row, to->number, to_row, from->stride);
    copy_part(from->low, from_row, to->low, to_row, from->stride);
    copy_part(from->scale, from_row, to->scale, to_row, scales);
    copy_part(from->sum, from_row, to->sum, to_row, scales);
    copy_part(from->integer_sum, from_row, to->integer_sum, to_row,
              from->sum_stride * sizeof(int32_t));
}
