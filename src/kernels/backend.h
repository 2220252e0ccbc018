/* A back end is a table of phases. Each takes the whole step and a layer number, runs on the team
 * and returns when all rows are done; so each back end may fuse inside a phase as its hardware
 * likes. `ref/` is the truth that all others are tested against.
 */
#ifndef AVO_KERNELS_BACKEND_H
#define AVO_KERNELS_BACKEND_H

#include "base/team.h"
#include "kernels/layer.h"

typedef struct step_view {
    const model_view *model;
    const batch_view *batch;
    const kv_view *kv;
    const scratch_view *scratch;
    team *team;
} step_view;

typedef struct backend {
    const char *name;
    /* token (and position) embedding into hidden; rotation angles of every row */
    void (*embed)(const step_view *step);
    /* norm, q/k/v, per-head norms, rotation, KV write */
    void (*attention_input)(const step_view *step, uint32_t layer);
    /* attended = softmax(q·K)·V over the row's own timeline */
    void (*attention)(const step_view *step, uint32_t layer);
    /* output projection, post norm, residual */
    void (*attention_output)(const step_view *step, uint32_t layer);
    /* norm, gate and up, activation */
    void (*feed_forward_input)(const step_view *step, uint32_t layer);
    /* down projection, post norm, residual */
    void (*feed_forward_output)(const step_view *step, uint32_t layer);
    /* final norm and logits of the rows that want them */
    void (*head)(const step_view *step);
} backend;

const backend *backend_reference(void);

/* Floats of worker scratch that a back end needs for this model and context. */
size_t backend_worker_floats(const model_view *model, uint32_t context_max);

#endif
