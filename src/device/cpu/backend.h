/* A back end is a table of phases, not of single operations, so that each may fuse as its hardware
 * likes. All workers of the team walk through the phases together: every worker calls every phase
 * of the step with its own number, does its share and waits at team_barrier wherever it reads what
 * others wrote. A phase returns with its results visible to all workers, unless it says otherwise.
 * `ref/` is the truth that all others are tested against.
 */
#ifndef AVO_DEVICE_CPU_BACKEND_H
#define AVO_DEVICE_CPU_BACKEND_H

#include "device/cpu/ops.h"
#include "device/cpu/team.h"
#include "device/layer.h"
#include "telemetry/telemetry.h"

typedef struct backend backend;

/* Somebody who looks at what matrices are given: calibration. Only the reference back end shows it.
 * Every worker calls `see` with the same x, which does not change while it looks; what each does
 * with it is the observer's own business. */
typedef enum observed_input {
    OBSERVED_ATTENTION,    /* of query, key and value */
    OBSERVED_OUTPUT,       /* of the attention's output projection */
    OBSERVED_FEED_FORWARD, /* of gate and up */
    OBSERVED_DOWN,
    OBSERVED_HEAD, /* layer 0, as those behind it; rows that want logits */
    OBSERVED_PROJECT_IN,
    OBSERVED_PROJECT_OUT,
    OBSERVED_INPUTS
} observed_input;

typedef struct step_observer {
    void (*see)(void *context, uint32_t worker, uint32_t layer, observed_input input,
                const float *x, size_t stride, uint32_t rows, uint32_t k);
    void *context;
} step_observer;

typedef struct step_view {
    const model_view *model;
    const batch_view *batch;
    const kv_view *kv;
    const scratch_view *scratch;
    const backend *backend;
    team *team;
    const step_observer *observer; /* NULL: nobody looks */
    telemetry_engine *telemetry;   /* NULL: nobody counts */
    bool tracing;                  /* spans of the phases are wanted, too */
} step_view;

/* What scratch depends on. */
typedef struct scratch_shape {
    const model_view *model;
    uint32_t rows_max, logits_max, workers, context_max;
    uint32_t adapter_rank_max;
} scratch_shape;

struct backend {
    const char *name;
    kv_type kv_default;  /* what K and V are stored as where nobody asks for a type */
    const op_table *ops; /* NULL: none needed */
    bool panels;         /* weights of linear_views must lie in PANELS */
    /* Bytes of scratch for each worker and for all together, multiples of 64; false when they
     * wrap. */
    bool (*scratch_bytes)(const scratch_shape *shape, size_t *worker, size_t *shared);
    /* token (and position) embedding into hidden; rotation angles of every row */
    void (*embed)(const step_view *step, uint32_t worker);
    /* norm, q/k/v, per-head norms, rotation, KV write. In fast/ queries stay as the product has
     * left them: whoever attends with one norms and rotates it in `attention`. K and V are visible
     * to all, but for plans that are "fused" (fast/attention_int.h): then only to the worker that
     * wrote them, the only one that attends with them in this step. */
    void (*attention_input)(const step_view *step, uint32_t layer, uint32_t worker);
    /* attended = softmax(q·K)·V over the row's own timeline */
    void (*attention)(const step_view *step, uint32_t layer, uint32_t worker);
    /* output projection, post norm, residual */
    void (*attention_output)(const step_view *step, uint32_t layer, uint32_t worker);
    /* norm, gate and up, activation */
    void (*feed_forward_input)(const step_view *step, uint32_t layer, uint32_t worker);
    /* down projection, post norm, residual */
    void (*feed_forward_output)(const step_view *step, uint32_t layer, uint32_t worker);
    /* final norm and logits of the rows that want them */
    void (*head)(const step_view *step, uint32_t worker);
    /* The final norm alone, of the rows that `logit_row` names, any number of them: into `normed`,
     * [logit_rows][width]. Not part of a step; what it left in `hidden` must still be there. */
    void (*hidden)(const step_view *step, uint32_t worker);
};

const backend *backend_reference(void);

/* One step: embed, every layer's phases, head. */
void cpu_forward(const step_view *step);

/* ---- The choice ---- */

/* A back end and its table, owned by whoever asked. Not to be copied: one points at the other. */
typedef struct backend_choice {
    backend backend;
    op_table ops;
} backend_choice;

/* "ref", "avx2", "avx512", "amx", or NULL for the best that CPU and operating system allow. One
 * that they do not is an error that lists those they do. */
AVO_MUST_USE avo_status backend_choose(const char *name, backend_choice *out, avo_error *error);
/* "ref avx2 avx512", best last; always terminated. */
void backend_names(char *text, size_t capacity);

#endif
