/* Rows under adapters, as the phases of all back ends ask for them. */
#ifndef AVO_DEVICE_RUNS_H
#define AVO_DEVICE_RUNS_H

#include "device/layer.h"

/* What a phase computes with: rows of the batch, or in the head the rows that want logits. */
typedef struct run_rows {
    uint32_t first, rows; /* of what the phase computes with */
} run_rows;

/* Where the run's rows stand in a phase. */
run_rows run_rows_of(const batch_view *batch, const adapter_run *run, bool head);

/* Which row of the batch row `row` of a phase is. */
static inline uint32_t run_batch_row(const batch_view *batch, uint32_t row, bool head) {
    return head ? batch->logit_row[row] : row;
}

/* The request's weight of the run's adapter; `row` is one of the run's, of the batch. */
static inline float run_factor(const adapter_run *run, uint32_t row) {
    return run->factor[row - run->first];
}

/* Runs that begin at or before a row of the batch. */
uint32_t runs_until(const batch_view *batch, uint32_t row);
/* The numbers of a row's own runs, in order; how many there are. */
uint32_t runs_of_row(const batch_view *batch, uint32_t row, uint32_t run[ADAPTERS_OF_ROW]);

/* The base's matrix that an adapter's delta belongs to. */
const linear_view *run_matrix(const model_view *model, uint32_t layer, adapter_matrix matrix);

/* ---- Norms ---- */

typedef enum adapter_norm_place {
    ADAPTER_ATTENTION_NORM,
    ADAPTER_FEED_FORWARD_NORM,
    ADAPTER_ATTENTION_POST_NORM,
    ADAPTER_FEED_FORWARD_POST_NORM,
    ADAPTER_QUERY_NORM,
    ADAPTER_KEY_NORM,
    ADAPTER_FINAL_NORM /* `layer` does not matter */
} adapter_norm_place;

/* What an adapter adds to the norm at a place. */
const adapter_norm *run_norm_of(const adapter_view *adapter, uint32_t layer,
                                adapter_norm_place place);
/* The base's norm as a row of the batch sees it: with what the row's adapters add to it, written
 * into `room` (2 · width floats) where that is anything. */
norm_view run_norm(const batch_view *batch, uint32_t row, uint32_t layer, adapter_norm_place place,
                   const norm_view *base, uint32_t width, float *room);

/* ---- Gains ---- */

/* Whether an adapter of the batch has a gain on the matrix. */
bool run_gains(const batch_view *batch, uint32_t layer, adapter_matrix matrix);
/* Multiplies outputs [first, first + count) of one row (of the batch) with 1 + Σ factor · (gain −
 * 1) over its adapters; `y` points at output `first`. False where none has a gain. */
bool run_apply_gains(const batch_view *batch, uint32_t row, uint32_t layer, adapter_matrix matrix,
                     size_t first, size_t count, float *y);

#endif
