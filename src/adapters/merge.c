/* Folding adapters into weights: what kernels add to outputs, added to the matrices instead. */
#include "adapters/adapters.h"

#include "base/checked.h"

size_t adapter_merge_floats(uint32_t k) {
    size_t longest = size_max(k, ADAPTER_RANK_MAX);
    return (longest + ADAPTER_RANK_MAX) * QUANT_PANEL_ROWS;
}

void adapter_merge_gains(const adapter_delta *delta, float factor, uint32_t first, uint32_t rows,
                         float *total) {
    for (uint32_t i = 0; delta->gain != NULL && i < rows; i++)
        total[i] += factor * (delta->gain[first + i] - 1.0f);
}

/* weights[row][i] += factor · value[i][row]. */
static void add_lanes(const float *lanes, float factor, uint32_t rows, uint32_t k, float *weights) {
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < k; i++)
            weights[(size_t)row * k + i] += factor * lanes[(size_t)i * QUANT_PANEL_ROWS + row];
}

void adapter_merge_rows(const adapter_delta *delta, float factor, uint32_t first, uint32_t rows,
                        float *weights, float *scratch) {
    if (delta->up.data == NULL)
        return;
    if (delta->down.data == NULL) {
        weight_decode_panel(&delta->up, first / QUANT_PANEL_ROWS, scratch);
        add_lanes(scratch, factor, rows, delta->up.k, weights);
        return;
    }
    uint32_t k = delta->down.k, rank = delta->down.rows;
    float *up = scratch; /* [rank][16] */
    float *down = scratch + (size_t)ADAPTER_RANK_MAX * QUANT_PANEL_ROWS;
    weight_decode_panel(&delta->up, first / QUANT_PANEL_ROWS, up);
    for (size_t panel = 0; panel < weight_panels(&delta->down); panel++) {
        uint32_t begin = (uint32_t)(panel * QUANT_PANEL_ROWS);
        uint32_t count = rank - begin < QUANT_PANEL_ROWS ? rank - begin : QUANT_PANEL_ROWS;
        weight_decode_panel(&delta->down, panel, down);
        for (uint32_t row = 0; row < rows; row++) {
            float *to = weights + (size_t)row * k;
            for (uint32_t i = 0; i < k; i++) {
                float sum = 0.0f;
                for (uint32_t r = 0; r < count; r++)
                    sum += up[(begin + r) * QUANT_PANEL_ROWS + row] *
                           down[(size_t)i * QUANT_PANEL_ROWS + r];
                to[i] += factor * delta->scale * sum;
            }
        }
    }
}

void adapter_merge_bias(const adapter_delta *delta, float factor, uint32_t count, float *bias) {
    for (uint32_t i = 0; delta->offset != NULL && i < count; i++)
        bias[i] += factor * delta->offset[i];
}

void adapter_merge_embedding(const adapter_embedding *embedding, float factor, uint32_t first,
                             uint32_t rows, float *weights, float *scratch) {
    if (embedding->look.data == NULL)
        return;
    bool low_rank = embedding->up.data != NULL;
    uint32_t k = low_rank ? embedding->up.rows : embedding->look.k;
    float *look = scratch; /* [rank], or a whole row */
    float *up = scratch + size_max(embedding->look.k, ADAPTER_RANK_MAX); /* [rank][16] */
    for (uint32_t row = 0; row < rows; row++) {
        float *to = weights + (size_t)row * k;
        weight_decode_row(&embedding->look, first + row, look);
        for (uint32_t i = 0; !low_rank && i < k; i++)
            to[i] += factor * look[i];
        for (size_t panel = 0; low_rank && panel < weight_panels(&embedding->up); panel++) {
            weight_decode_panel(&embedding->up, panel, up);
            for (uint32_t lane = 0; lane < QUANT_PANEL_ROWS; lane++) {
                uint32_t i = (uint32_t)(panel * QUANT_PANEL_ROWS) + lane;
                float sum = 0.0f;
                for (uint32_t r = 0; r < embedding->up.k; r++)
                    sum += up[r * QUANT_PANEL_ROWS + lane] * look[r];
                if (i < k)
                    to[i] += factor * embedding->scale * sum;
            }
        }
    }
}
