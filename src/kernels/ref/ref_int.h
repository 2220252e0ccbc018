/* The plain operations of which the reference back end composes its phases. Each is
 * called by every worker of the team and returns when all rows are done. Loops are written lane by
 * lane (16 at a time), so that every output element is summed in one fixed order whatever the rows,
 * chunks and threads. */
#ifndef AVO_KERNELS_REF_INT_H
#define AVO_KERNELS_REF_INT_H

#include "kernels/backend.h"

/* out[row][i] = Σ_k weight[i][k] · x[row][k] + bias[i]; strides in floats. */
void reference_linear(const step_view *step, uint32_t worker, const linear_view *linear,
                      const float *x, size_t x_stride, uint32_t rows, float *out,
                      size_t out_stride);

/* One vector of `width`; `out` may be `x`. */
void reference_norm_vector(const norm_view *norm, const float *x, uint32_t width, float *out);
/* Many rows. NORM_NONE copies. */
void reference_norm(const step_view *step, uint32_t worker, const norm_view *norm, const float *x,
                    size_t x_stride, uint32_t rows, uint32_t width, float *out, size_t out_stride);

/* cosine and sine of every row for every table of the model. */
void reference_angles(const step_view *step, uint32_t worker);
/* Rotates one head in place. */
void reference_rotate(const rotary_table *table, const float *cosine, const float *sine,
                      float *head);

/* Per-head norms, rotation and the write of K and V into their pages. */
void reference_position(const step_view *step, uint32_t layer, uint32_t worker);
void reference_attention(const step_view *step, uint32_t layer, uint32_t worker);

float reference_activate(activation_kind kind, float x);

/* This worker's share of a task, and the wait until all have done theirs. */
static inline void reference_run(const step_view *step, uint32_t worker, team_task task,
                                 void *context) {
    task(context, worker, team_size(step->team));
    team_barrier(step->team, worker);
}

/* Shows x to the observer, if there is one. Stands in front of the product that reads x: the
 * barrier behind that one keeps x as it is until all have looked. */
static inline void reference_show(const step_view *step, uint32_t worker, uint32_t layer,
                                  observed_input input, const float *x, size_t stride,
                                  uint32_t rows, uint32_t k) {
    if (step->observer != NULL)
        step->observer->see(step->observer->context, worker, layer, input, x, stride, rows, k);
}

static inline float *reference_worker_scratch(const step_view *step, uint32_t worker) {
    return (float *)(void *)(step->scratch->worker + worker * step->scratch->worker_bytes);
}

#endif
