/* The plain operations of which the reference back end composes its phases. Each is
 * called by the thread that leads the step, shares its work out to the team and returns when all
 * rows are done. Loops are written lane by
 * lane (16 at a time), so that every output element is summed in one fixed order whatever the rows,
 * chunks and threads. */
#ifndef AVO_DEVICE_CPU_REF_INT_H
#define AVO_DEVICE_CPU_REF_INT_H

#include "device/cpu/ref/ref.h"
#include "device/runs.h"

/* out[row][i] = Σ_k weight[i][k] · x[row][k] + bias[i]; strides in floats. */
void reference_linear(const step_view *step, const linear_view *linear, const float *x,
                      size_t x_stride, uint32_t rows, float *out, size_t out_stride);

/* Rows that a run's adapter changes: out += factor · scale · weight · x. `x` and `out` begin at the
 * first of them. */
typedef struct reference_addition {
    const adapter_run *run;
    run_rows rows;
    bool head;
    float scale;
} reference_addition;
void reference_linear_add(const step_view *step, const weight_view *weight, const float *x,
                          size_t x_stride, const reference_addition *add, float *out,
                          size_t out_stride);

/* What adapters add to the outputs of one matrix. */
typedef struct reference_site {
    uint32_t layer;
    adapter_matrix matrix;
    const float *x; /* what the matrix was given: of all rows */
    size_t x_stride;
    float *out;
    size_t out_stride;
    uint32_t rows, outputs;
} reference_site;
void reference_adapt(const step_view *step, const reference_site *site);
/* The same for token embeddings: `out` has all rows of the batch. */
void reference_adapt_embedding(const step_view *step, float *out, size_t out_stride);

/* One vector of `width`; `out` may be `x`. */
void reference_norm_vector(const norm_view *norm, const float *x, uint32_t width, float *out);
/* The norm at `place` of a layer for all rows of the batch, with what their adapters add to it.
 * NORM_NONE copies. */
typedef struct reference_norm_site {
    const norm_view *norm;
    uint32_t layer;
    adapter_norm_place place;
} reference_norm_site;
void reference_norm(const step_view *step, const reference_norm_site *site, const float *x,
                    float *out);
/* One row of it, `row` of the batch; uses the worker's scratch. */
void reference_norm_row(const step_view *step, uint32_t worker, const reference_norm_site *site,
                        uint32_t row, const float *x, uint32_t width, float *out);

/* Rotates one head in place. */
void reference_rotate(const rotary_table *table, const float *cosine, const float *sine,
                      float *head);

/* Per-head norms, rotation and the write of K and V into their pages. */
void reference_position(const step_view *step, uint32_t layer);
void reference_attention(const step_view *step, uint32_t layer);

float reference_activate(activation_kind kind, float x);
/* activation(gate) · up, or what the kind has in its place. */
float reference_gated(activation_kind kind, float gate, float up);

/* The experts of a layer: `projected` becomes their weighed sum for `normed`. */
void reference_experts(const step_view *step, uint32_t layer);
/* Bytes of their shared scratch; false when they wrap. */
bool reference_experts_bytes(const model_view *model, size_t rows, size_t *bytes);

/* Runs a task in as many shares as the team has workers. `worker` is then the number of a share,
 * whoever computes it: its scratch is that share's own. */
void reference_run(const step_view *step, team_task task, void *context);
/* The same for a task that shares out rows of the batch: a few are not worth waking anybody. */
void reference_run_rows(const step_view *step, team_task task, void *context);

/* Shows x to the observer, if there is one. */
void reference_show(const step_view *step, uint32_t layer, observed_input input, const float *x,
                    size_t stride, uint32_t rows, uint32_t k);

static inline float *reference_worker_scratch(const step_view *step, uint32_t worker) {
    return (float *)(void *)(step->scratch->worker + worker * step->scratch->worker_bytes);
}

#endif
