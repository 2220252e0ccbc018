/* Packing: floats in any strides and blocks of weights become rows of A and strips of B. */
#include "device/cpu/gemm/pack.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

/* ---- A ---- */

static void rows_of_floats(const gemm_kernels *kernels, const gemm_operand *a, size_t first,
                           size_t rows, size_t begin, size_t count, float *out) {
    const float *from = a->data + first * a->row_stride + begin * a->column_stride;
    if (a->column_stride == 1) {
        for (size_t row = 0; row < rows; row++)
            memcpy(out + row * GEMM_A_STRIDE, from + row * a->row_stride, count * sizeof(float));
        return;
    }
    if (a->row_stride == 1) {
        kernels->transpose(from, a->column_stride, count, rows, out, GEMM_A_STRIDE);
        return;
    }
    for (size_t row = 0; row < rows; row++)
        for (size_t k = 0; k < count; k++)
            out[row * GEMM_A_STRIDE + k] = from[row * a->row_stride + k * a->column_stride];
}

/* Panels are rows of A. */
static void rows_of_weight(const gemm_kernels *kernels, const weight_view *weight, size_t first,
                           size_t rows, size_t begin, size_t count, gemm_room *room, float *out) {
    for (size_t row = 0; row < rows; row += QUANT_PANEL_ROWS) {
        kernels->decode(weight, (first + row) / QUANT_PANEL_ROWS, begin, count, room->panel);
        kernels->transpose(room->panel, QUANT_PANEL_ROWS, count,
                           size_min(rows - row, QUANT_PANEL_ROWS), out + row * GEMM_A_STRIDE,
                           GEMM_A_STRIDE);
    }
}

/* Panels are 16 consecutive k, their columns are rows of A. What a panel has past the last k lands
 * in the gap between rows. */
static void rows_of_transposed(const gemm_kernels *kernels, const weight_view *weight, size_t first,
                               size_t rows, size_t begin, size_t count, gemm_room *room,
                               float *out) {
    for (size_t k = 0; k < count; k += QUANT_PANEL_ROWS)
        for (size_t block = first / GEMM_BLOCK_K * GEMM_BLOCK_K; block < first + rows;
             block += GEMM_BLOCK_K) {
            size_t columns = size_min(weight->k - block, GEMM_BLOCK_K);
            kernels->decode(weight, (begin + k) / QUANT_PANEL_ROWS, block, columns, room->panel);
            size_t from = size_max(first, block), to = size_min(first + rows, block + columns);
            for (size_t row = from; row < to; row++)
                memcpy(out + (row - first) * GEMM_A_STRIDE + k,
                       room->panel + (row - block) * QUANT_PANEL_ROWS,
                       QUANT_PANEL_ROWS * sizeof(float));
        }
}

/* Numbers 2i and 2i + 1 change places; an odd one out is joined by a zero. */
static void exchange(float *numbers, size_t count, size_t width) {
    float kept[GEMM_STRIP];
    if (count % 2 != 0)
        memset(numbers + count * width, 0, width * sizeof(float));
    for (size_t k = 0; k < count; k += 2) {
        float *even = numbers + k * width, *odd = even + width;
        memcpy(kept, even, width * sizeof(float));
        memcpy(even, odd, width * sizeof(float));
        memcpy(odd, kept, width * sizeof(float));
    }
}

void gemm_pack_rows(const gemm_kernels *kernels, const gemm_call *call, gemm_form form,
                    size_t first, size_t rows, size_t begin, size_t count, gemm_room *room) {
    const gemm_operand *a = &call->a;
    if (form == GEMM_FORM_PAIRS && a->weight == NULL && a->column_stride == 1) {
        for (size_t row = 0; row < rows; row++)
            kernels->pairs_row(a->data + (first + row) * a->row_stride + begin, count,
                               room->a + row * GEMM_A_STRIDE);
        return;
    }
    assert(rows <= GEMM_PACK_ROWS && count <= GEMM_BLOCK_MAX && begin % GEMM_BLOCK_K == 0);
    for (size_t k = 0; k < count; k += GEMM_BLOCK_K) {
        size_t part = size_min(count - k, GEMM_BLOCK_K);
        if (a->weight == NULL)
            rows_of_floats(kernels, a, first, rows, begin + k, part, room->a + k);
        else if (a->transposed)
            rows_of_transposed(kernels, a->weight, first, rows, begin + k, part, room, room->a + k);
        else
            rows_of_weight(kernels, a->weight, first, rows, begin + k, part, room, room->a + k);
    }
    for (size_t row = 0; form != GEMM_FORM_FLOATS && row < rows; row++) {
        float *numbers = room->a + row * GEMM_A_STRIDE;
        if (form == GEMM_FORM_PAIRS) {
            kernels->pairs_row(numbers, count, numbers);
        } else {
            kernels->round(numbers, count);
            exchange(numbers, count, 1);
        }
    }
}

/* ---- B ---- */

static void strips_of_floats(const gemm_kernels *kernels, const gemm_call *call,
                             const gemm_part *part, float *out, size_t strip_stride) {
    const gemm_operand *b = &call->b;
    size_t first = part->strip * GEMM_STRIP;
    const float *from = b->data + part->begin * b->row_stride + first * b->column_stride;
    size_t columns = size_min(call->n - first, part->strips * GEMM_STRIP);
    if (columns < part->strips * GEMM_STRIP)
        memset(out + (part->strips - 1) * strip_stride, 0,
               part->count * GEMM_STRIP * sizeof(float));
    if (b->row_stride == 1 && b->column_stride != 1) {
        for (size_t j = 0; j < columns; j += GEMM_STRIP)
            kernels->transpose(from + j * b->column_stride, b->column_stride,
                               size_min(columns - j, GEMM_STRIP), part->count,
                               out + j / GEMM_STRIP * strip_stride, GEMM_STRIP);
        return;
    }
    for (size_t k = 0; k < part->count; k++, from += b->row_stride, out += GEMM_STRIP) {
        size_t j = 0;
        for (; b->column_stride == 1 && j + GEMM_STRIP <= columns; j += GEMM_STRIP)
            memcpy(out + j / GEMM_STRIP * strip_stride, from + j, GEMM_STRIP * sizeof(float));
        for (; j < columns; j++)
            out[j / GEMM_STRIP * strip_stride + j % GEMM_STRIP] = from[j * b->column_stride];
    }
}

/* A panel is 16 consecutive k of B; 16 of its columns are a strip's. */
static void strips_of_weight(const gemm_kernels *kernels, const weight_view *weight,
                             const gemm_part *part, float *out, size_t strip_stride,
                             gemm_room *room) {
    size_t first = part->strip * GEMM_STRIP;
    size_t columns = size_min(weight->k - first, part->strips * GEMM_STRIP);
    assert(first % GEMM_BLOCK_K == 0 && part->strips <= GEMM_PACK_STRIPS);
    for (size_t k = 0; k < part->count; k += QUANT_PANEL_ROWS) {
        kernels->decode(weight, (part->begin + k) / QUANT_PANEL_ROWS, first, columns, room->panel);
        for (size_t j = 0; j < columns; j += GEMM_STRIP)
            kernels->transpose(room->panel + j * QUANT_PANEL_ROWS, QUANT_PANEL_ROWS,
                               size_min(columns - j, GEMM_STRIP),
                               size_min(part->count - k, QUANT_PANEL_ROWS),
                               out + j / GEMM_STRIP * strip_stride + k * GEMM_STRIP, GEMM_STRIP);
    }
}

bool gemm_pack_by_k(const gemm_operand *b) {
    return b->weight != NULL ? !b->transposed : b->column_stride == 1;
}

void gemm_pack_strips(const gemm_kernels *kernels, const gemm_call *call, gemm_form form,
                      const gemm_part *part, float *out, size_t strip_stride, gemm_room *room) {
    const gemm_operand *b = &call->b;
    float *to = out;
    size_t stride = strip_stride;
    assert(part->strips * part->count <= GEMM_PACK_AREA && part->begin % GEMM_STRIP == 0);
    if (form == GEMM_FORM_PAIRS) {
        to = room->strips;
        stride = part->count * GEMM_STRIP;
    }
    if (b->weight == NULL)
        strips_of_floats(kernels, call, part, to, stride);
    else if (b->transposed)
        for (size_t i = 0; i < part->strips; i++)
            kernels->decode(b->weight, part->strip + i, part->begin, part->count, to + i * stride);
    else
        strips_of_weight(kernels, b->weight, part, to, stride, room);
    for (size_t i = 0; form != GEMM_FORM_FLOATS && i < part->strips; i++) {
        if (form == GEMM_FORM_PAIRS) {
            kernels->pairs_strip(to + i * stride, part->count, out + i * strip_stride);
        } else {
            kernels->round(to + i * stride, part->count * GEMM_STRIP);
            exchange(to + i * stride, part->count, GEMM_STRIP);
        }
    }
}
