/* A back end computes whole steps, so that each may fuse as its hardware likes. It is called by the
 * thread that leads the step, which is worker 0 of the team, and shares the work out in phases.
 * `ref/` is the truth that all others are tested against.
 */
#ifndef AVO_DEVICE_CPU_BACKEND_H
#define AVO_DEVICE_CPU_BACKEND_H

#include "base/team.h"
#include "device/cpu/group.h"
#include "device/cpu/ops.h"
#include "device/device.h"

#include <stdatomic.h>

typedef struct backend backend;

/* ---- Scratch ---- */

/* What one row takes of scratch_view.adapted under an adapter whose largest rank is `rank`: the
 * products of A with one input, of up to ADAPTER_INPUT_MATRICES matrices, in whole panels. */
#define ADAPTER_INPUT_MATRICES 3
static inline size_t adapter_rank_room(uint32_t rank) {
    return ((size_t)rank + QUANT_PANEL_ROWS - 1) / QUANT_PANEL_ROWS * QUANT_PANEL_ROWS;
}
static inline size_t adapter_room(uint32_t rank) {
    return (size_t)ADAPTER_INPUT_MATRICES * adapter_rank_room(rank);
}
/* At most of all adapters of a row, whose ranks sum up to `rank_sum`. */
static inline size_t adapter_row_room(uint32_t rank_sum) {
    return (size_t)ADAPTER_INPUT_MATRICES *
           adapter_rank_room(rank_sum + ADAPTERS_OF_ROW * (QUANT_PANEL_ROWS - 1));
}

/* Where a run's products lie in scratch_view.adapted, in numbers. */
typedef struct run_place {
    size_t first; /* behind those of the runs before it */
    size_t row;   /* adapter_room of its adapter: what each of its rows takes */
} run_place;

/* Buffers of a step, allocated with the engine for rows_max rows. */
typedef struct scratch_view {
    float *hidden;    /* [rows][width] the residual stream */
    float *normed;    /* [rows][max(width, …)] */
    float *query;     /* [rows][query width] */
    float *key;       /* [rows][kv width] */
    float *value;     /* [rows][kv width] */
    float *attended;  /* [rows][query width] */
    float *gated;     /* [rows][feed forward], for back ends without panels */
    float *up;        /* [rows][feed forward] */
    float *projected; /* [rows][width] a projection before it joins the residual */
    float *adapted;   /* A·x of the batch's runs, each at its place; a run's
                         matrices behind one another, each [rows][rank in whole panels] */
    run_place *place; /* [rows_max · ADAPTERS_OF_ROW] of the batch's runs */
    float *cosine;    /* [rotary tables][rows][pairs] */
    float *sine;
    float *logits;   /* [logit rows][vocabulary]; of this step only where logits_whole */
    logit_top *top;  /* [logit rows] */
    uint8_t *worker; /* [workers][worker_bytes]: what one worker needs for itself */
    size_t worker_bytes;
    uint8_t *shared;          /* what the back end keeps for all workers */
    float *tap;               /* [taps][rows_max][width] hidden states kept for the caller */
    uint8_t *sent, *received; /* of a group: fast_exchange_bytes */
    uint32_t pairs_max;
    uint32_t rows_max, logits_max, context_max;
    uint32_t adapter_rank_max; /* largest sum of the ranks of one row's adapters */
} scratch_view;

/* A stream's part in a group: what its steps exchange with the other ranks. */
typedef struct group_stream {
    const cpu_group *group;
    uint32_t layers_stored; /* of the model that is split; a step may compute fewer */
    atomic_bool failed;     /* the phases behind a failed exchange compute nothing */
    avo_status status;      /* of the step */
    avo_error error;
    uint64_t steps, exchanges, sent_bytes, waited_ns; /* so far */
} group_stream;

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
    const stream_shape *shape;     /* which layers' hidden states are kept */
    struct phase_list *phases;     /* room for the step's program; NULL: the back end has none */
    group_stream *group;           /* NULL: the device computes the whole model */
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
    /* The most phases of a step's program; 0: it has none. */
    uint32_t (*phases_max)(const model_view *model);
    /* A step, from the embeddings to the logits of the rows that want them. */
    void (*forward)(const step_view *step);
    /* Positions and attention of layers [0, layers) alone, of the q, k and v that lie in scratch.
     */
    void (*attention)(const step_view *step, uint32_t layers);
    /* The head alone, of the rows that `logit_row` names; what the step left in `hidden` must still
     * be there. */
    void (*head)(const step_view *step);
    /* The final norm alone, of the same rows, any number of them: into `normed`,
     * [logit_rows][width]. */
    void (*hidden)(const step_view *step);
};

/* Bytes of what a stream's steps send and receive at a time. */
bool fast_exchange_bytes(const cpu_group *group, const scratch_shape *shape, size_t *sent,
                         size_t *received);

static inline const run_place *run_place_of(const step_view *step, const adapter_run *run) {
    return &step->scratch->place[run - step->batch->run];
}

const backend *backend_reference(void);

/* ---- The choice ---- */

/* A back end and its table, owned by whoever asked. Not to be copied: one points at the other. */
typedef struct backend_choice {
    backend backend;
    op_table ops;
} backend_choice;

/* Of "ref" or an instruction set of this build, NULL: the best that works; an error where CPU or
 * operating system lack it. */
AVO_MUST_USE avo_status backend_choose(const char *name, backend_choice *out, avo_error *error);
/* What one of these names needs and CPU or operating system lack; NULL: nothing. */
const char *backend_lacks(const char *name);

#endif
