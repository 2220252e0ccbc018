/* Rows under adapters: where they stand, and what is done number by number. Multiplications and
 * additions are rounded one by one, so that every compiler and instruction set gives the same. */
#include "device/runs.h"

#include <string.h>

/* The first row that wants logits and is not before `row`. */
static uint32_t logits_from(const batch_view *batch, uint32_t row) {
    uint32_t begin = 0;
    uint32_t end = batch->logit_rows;
    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        if (batch->logit_row[middle] < row)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

run_rows run_rows_of(const batch_view *batch, const adapter_run *run, bool head) {
    if (!head)
        return (run_rows){run->first, run->rows};
    uint32_t first = logits_from(batch, run->first);
    return (run_rows){first, logits_from(batch, run->first + run->rows) - first};
}

uint32_t runs_until(const batch_view *batch, uint32_t row) {
    uint32_t begin = 0;
    uint32_t end = batch->runs;
    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        if (batch->run[middle].first <= row)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

uint32_t runs_of_row(const batch_view *batch, uint32_t row, uint32_t run[ADAPTERS_OF_ROW]) {
    uint32_t until = runs_until(batch, row);
    uint32_t count = 0;
    for (uint32_t i = until == 0 ? ADAPTER_RUN_NONE : until - 1; i != ADAPTER_RUN_NONE;
         i = batch->run[i].parent)
        count++;
    uint32_t at = count;
    for (uint32_t i = until - 1; at > 0; i = batch->run[i].parent)
        run[--at] = i;
    return count;
}

const linear_view *run_matrix(const model_view *model, uint32_t layer, adapter_matrix matrix) {
    if (matrix == ADAPTER_HEAD)
        return &model->head;
    const layer_view *own = &model->layer[layer];
    const linear_view *const matrices[] = {
        [ADAPTER_QUERY] = &own->query,   [ADAPTER_KEY] = &own->key,   [ADAPTER_VALUE] = &own->value,
        [ADAPTER_OUTPUT] = &own->output, [ADAPTER_GATE] = &own->gate, [ADAPTER_UP] = &own->up,
        [ADAPTER_DOWN] = &own->down,
    };
    return matrices[matrix];
}

/* ---- Norms ---- */

const adapter_norm *run_norm_of(const adapter_view *adapter, uint32_t layer,
                                adapter_norm_place place) {
    if (place == ADAPTER_FINAL_NORM)
        return &adapter->final_norm;
    const adapter_layer *own = &adapter->layer[layer];
    switch (place) {
    case ADAPTER_ATTENTION_NORM:
        return &own->attention_norm;
    case ADAPTER_FEED_FORWARD_NORM:
        return &own->feed_forward_norm;
    case ADAPTER_ATTENTION_POST_NORM:
        return &own->attention_post_norm;
    case ADAPTER_FEED_FORWARD_POST_NORM:
        return &own->feed_forward_post_norm;
    case ADAPTER_QUERY_NORM:
        return &own->query_norm;
    default:
        return &own->key_norm;
    }
}

/* sum += factor · addition, where there is one; `sum` begins as the base's, or as zeros. */
static const float *add_weights(const float *base, const float *sum_now, const float *addition,
                                float factor, uint32_t width, float *sum) {
    if (addition == NULL)
        return sum_now;
    if (sum_now != sum) {
        if (base != NULL)
            memcpy(sum, base, width * sizeof(float));
        else
            memset(sum, 0, width * sizeof(float));
    }
    for (uint32_t i = 0; i < width; i++)
        sum[i] += factor * addition[i];
    return sum;
}

norm_view run_norm(const batch_view *batch, uint32_t row, uint32_t layer, adapter_norm_place place,
                   const norm_view *base, uint32_t width, float *room) {
    norm_view norm = *base;
    if (base->kind == NORM_NONE)
        return norm;
    uint32_t own_runs[ADAPTERS_OF_ROW];
    uint32_t count = runs_of_row(batch, row, own_runs);
    for (uint32_t i = 0; i < count; i++) {
        const adapter_run *run = &batch->run[own_runs[i]];
        if (!run->adapter->norms)
            continue;
        const adapter_norm *own = run_norm_of(run->adapter, layer, place);
        float factor = run_factor(run, row);
        norm.weight = add_weights(base->weight, norm.weight, own->weight, factor, width, room);
        norm.bias = add_weights(base->bias, norm.bias, own->bias, factor, width, room + width);
    }
    return norm;
}

/* ---- Gains ---- */

bool run_gains(const batch_view *batch, uint32_t layer, adapter_matrix matrix) {
    for (uint32_t i = 0; i < batch->runs && batch->gains; i++)
        if (batch->run[i].adapter->gains &&
            adapter_delta_of(batch->run[i].adapter, layer, matrix)->gain != NULL)
            return true;
    return false;
}

#define GAIN_STRIP 64 /* outputs whose gains are summed up together */

bool run_apply_gains(const batch_view *batch, uint32_t row, uint32_t layer, adapter_matrix matrix,
                     size_t first, size_t count, float *y) {
    const float *gain[ADAPTERS_OF_ROW];
    float factor[ADAPTERS_OF_ROW];
    size_t gains = 0;
    uint32_t own[ADAPTERS_OF_ROW];
    uint32_t runs = batch->gains ? runs_of_row(batch, row, own) : 0;
    for (uint32_t i = 0; i < runs; i++) {
        const adapter_run *run = &batch->run[own[i]];
        if (!run->adapter->gains)
            continue;
        const adapter_delta *delta = adapter_delta_of(run->adapter, layer, matrix);
        if (delta->gain == NULL)
            continue;
        gain[gains] = delta->gain + first;
        factor[gains++] = run_factor(run, row);
    }
    for (size_t begin = 0; gains > 0 && begin < count; begin += GAIN_STRIP) {
        size_t strip = count - begin < GAIN_STRIP ? count - begin : GAIN_STRIP;
        float total[GAIN_STRIP];
        for (size_t i = 0; i < strip; i++)
            total[i] = 1.0f;
        for (size_t g = 0; g < gains; g++)
            for (size_t i = 0; i < strip; i++)
                total[i] += factor[g] * (gain[g][begin + i] - 1.0f);
        for (size_t i = 0; i < strip; i++)
            y[begin + i] *= total[i];
    }
    return gains > 0;
}
