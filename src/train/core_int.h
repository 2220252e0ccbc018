/* Inside the differentiable model: what is trained of each matrix, the rows of a call, and the
 * buffers of its passes. */
#ifndef AVO_TRAIN_CORE_INT_H
#define AVO_TRAIN_CORE_INT_H

#include "adapters/live.h"
#include "base/arena.h"
#include "base/region.h"
#include "base/team.h"
#include "device/cpu/gemm.h"
#include "device/gradients.h"
#include "engine/engine.h"
#include "model/model.h"
#include "train/core.h"

/* ---- Limits ---- */
#define TRAIN_ROWS_MAX       65536 /* of a call: what a step of the engine can have */
#define TRAIN_SEQUENCES_MAX  4096
#define TRAIN_HEAD_ROWS      128               /* whose logits are looked at together */
#define TRAIN_WEIGHTS_FLOATS ((size_t)4 << 20) /* attention weights that a layer keeps */
#define TRAIN_GROUP_MAX      3                 /* matrices that read the same input */

/* ---- What is trained ---- */

/* One matrix of the base, y = W·x + bias, and what is trained of it:
 *   LoRA   y = W·x + s·B·(A·x) + bias
 *   DoRA   y = gain ⊙ (W·x + s·B·(A·x)) + bias, gain = magnitude ÷ ‖W + s·B·A‖ by rows; the norm
 *          counts as a constant in the gradients, as in PEFT
 * Everything NULL: the matrix is frozen. */
typedef struct train_linear {
    const linear_view *base; /* in host memory; weight.data NULL: there is no such matrix */
    /* LoRA. `b` begins at this matrix's rows of a fused module's B, whose A all of them share. */
    const float *a, *b;    /* [rank][k], [rows][rank] in the base's order of rows */
    float *da, *db;        /* gradients, db in PEFT's order: row order[i] belongs to row i */
    const uint32_t *order; /* NULL: the same order */
    /* DoRA */
    const float *magnitude, *gain; /* [rows]; magnitudes in PEFT's order */
    float *dmagnitude;
    /* Full tuning: [rows][k], or [k][rows] where transposed, `stride` numbers apart. */
    float *dweight;
    size_t stride;
    bool transposed;
    float *dbias;
} train_linear;

typedef struct train_norm {
    const norm_view *base;
    float *dweight, *dbias; /* NULL: not trained */
} train_norm;

typedef struct train_layer {
    train_linear query, key, value, output, gate, up, down;
    train_norm attention_norm, feed_forward_norm, attention_post_norm, feed_forward_post_norm;
    train_norm query_norm, key_norm;
} train_layer;

typedef struct train_model {
    const model_view *view; /* weights in host memory; rotation tables for the engine's context */
    train_layer *layer;     /* [layers] */
    train_norm final_norm;
    train_linear head, head_project, embedding_project;
    float *dembedding, *dposition; /* NULL: not trained */
    uint32_t first;                /* lowest layer of which something is trained; layers: none */
    bool input;                    /* something before the first layer is trained */
    bool head_trained;             /* something behind the last layer is */
    bool tied;                     /* head and embedding are one matrix, which is trained */
} train_model;

/* ---- The rows of a call ---- */

/* Rows of one sequence: those of its tokens whose successors are wanted, and all before them. */
typedef struct train_span {
    const train_sequence *sequence;
    uint32_t first, rows; /* of the call's rows */
    size_t token;         /* where its tokens begin in what the caller gets */
} train_span;

/* A row whose next token's log-probability is wanted. */
typedef struct train_want {
    uint32_t row;
    int32_t next;
    size_t at;      /* in what the caller gets */
    uint32_t span;  /* of its sequence */
    float highest;  /* of the row's logits */
    double log_sum; /* log Σ e^(logit − highest) */
} train_want;

/* Rows that gradients are summed over together, one part after the other: those of a sequence. */
typedef struct train_part {
    uint32_t first, rows;
} train_part;

typedef struct train_call {
    train_span *span; /* [sequences_max] */
    train_part *part; /* [sequences_max] rows of the spans */
    uint32_t spans, rows;
    uint32_t *position; /* [rows_max] */
    int32_t *token;     /* [rows_max] */
    train_want *want;   /* [rows_max] */
    uint32_t wants;
    bool ready; /* a backward pass may follow */
} train_call;

/* ---- Buffers ---- */

/* For rows_max rows; shapes as in layer_view. */
typedef struct train_buffers {
    float *normed;               /* [rows][width] input of q, k, v; then of gate and up */
    float *query_raw, *key_raw;  /* as the projections give them */
    float *query, *key, *value;  /* behind norms and rotation */
    float *attended, *projected; /* [rows][query width], [rows][width] */
    float *joined;               /* [rows][width] the residual behind the attention */
    float *before;               /* [rows][width] the same in front of a norm behind it */
    float *normed_up;            /* [rows][width] input of gate and up */
    float *gate, *up, *active;   /* [rows][feed forward] */
    float *down;                 /* [rows][width] */
    float *after;                /* [rows][width] the layer's output in front of a norm behind it */
    float *low;                  /* [ADAPTER_MATRICES][rows][rank] A·x, group by group */
    float *dlow;                 /* [rows][TRAIN_GROUP_MAX][rank] */
    /* gradients */
    float *hidden, *width_a, *width_b; /* [rows][width] */
    float *dquery, *dkey, *dvalue, *dattended;
    float *dactive;                   /* [rows][feed forward] */
    float *cosine, *sine;             /* [rotary tables][rows][pairs] */
    float *scores, *dscores, *slopes; /* attention_floats each; slopes with a soft cap alone */
    float *logits;  /* [TRAIN_HEAD_ROWS][vocabulary] derivatives; shares memory with gate, up,
                       active and dactive, which nobody needs meanwhile */
    float *units;   /* [rows][width] of wants, where nothing behind the layers is trained */
    float *weights; /* [weights_floats] of the attention, where those of a layer fit */
    float *sums;    /* [longest] partial sums of one sequence */
    float *order_b; /* [rows of a matrix][rank] */
} train_buffers;

struct train_core {
    const avo_allocator *allocator;
    train_core_options options;
    arena arena; /* structures, names */
    const avo_model *model;
    avo_model *copy; /* full tuning: the model with weights in f32; NULL: LoRA */
    avo_engine *engine;
    avo_batch *batch;
    team *team;
    gemm *gemm;
    const gradient_loops *loops;
    gemm_precision precision;
    train_model net;
    model_view view; /* that net.view points at */
    train_parameters parameters;
    region values, gradients, buffer_memory;
    train_buffers buffers;
    size_t parameter_bytes; /* of all values; gradients take as much */
    size_t attention_floats, weights_floats;
    bool planning; /* sizes alone are wanted */
    uint32_t pairs_max, rank;
    float scale; /* of LoRA */
    avo_adapter *adapter;
    struct train_lora *lora;   /* lora.c; of the three, one is not NULL */
    struct train_full *full;   /* full.c */
    struct train_heads *heads; /* heads.c */
    train_call call;
    avo_session **session; /* [sequences_max] open ones of the call */
    uint32_t sessions;
};

/* ---- Set-up (core.c and the two methods) ---- */

/* Parameters of LoRA: modules, first values, the adapter. Before the engine is opened. */
AVO_MUST_USE avo_status train_lora_open(train_core *core, avo_error *error);
/* Ties parameters to the matrices of net.view, and makes what depends on the base's weights. */
AVO_MUST_USE avo_status train_lora_bind(train_core *core, avo_error *error);
/* Values into the adapter. */
AVO_MUST_USE avo_status train_lora_changed(train_core *core, avo_error *error);
void train_lora_close(train_core *core);

/* The place of a module's matrix in core->net. */
train_linear *train_matrix(train_core *core, const adapter_live_module *live, uint32_t index);

AVO_MUST_USE avo_status train_full_open(train_core *core, avo_error *error);
/* The model in f32, once the parameters have memory: core->copy. */
AVO_MUST_USE avo_status train_full_model(train_core *core, avo_error *error);
AVO_MUST_USE avo_status train_full_bind(train_core *core, avo_error *error);
AVO_MUST_USE avo_status train_full_changed(train_core *core, avo_error *error);
void train_full_close(train_core *core);

/* Draft heads: parameters; the layers that they read; what they need beside the buffers. */
AVO_MUST_USE avo_status train_heads_open(train_core *core, avo_error *error);
void train_heads_taps(const train_core *core, uint32_t *tap, uint32_t *taps);
AVO_MUST_USE avo_status train_heads_bind(train_core *core, avo_error *error);

/* Memory for values and gradients of parameters whose names, roles and shapes are set. */
AVO_MUST_USE avo_status train_parameters_take(train_core *core, avo_error *error);
/* Cuts the buffers out of `memory`, or with NULL only counts; the bytes. */
size_t train_buffers_cut(train_core *core, float *memory);
/* The same of draft heads. */
size_t train_heads_cut(train_core *core, float *memory);
typedef struct train_cutter {
    float *memory; /* NULL: only counts */
    size_t at;
} train_cutter;
float *train_cut(train_cutter *cutter, size_t rows, size_t width);

/* ---- Work for the team ---- */

/* Rows [begin, end) of `rows`, a few at a time, in any order. */
typedef void (*train_rows_task)(void *context, size_t begin, size_t end);
void train_each(train_core *core, size_t rows, size_t block, train_rows_task task, void *context);

/* ---- Products (linear.c) ---- */

/* A matrix in use. */
typedef struct train_use {
    const train_linear *linear;
    float *out;  /* [rows][linear rows] */
    float *dout; /* the same; changed by DoRA's gains */
} train_use;

/* Matrices that read the same x, [rows][k]. Where the As of all of them lie one behind the other
 * (train_parameters_take puts them so), products with them are one. */
typedef struct train_group {
    train_use use[TRAIN_GROUP_MAX];
    uint32_t count;
    const float *x;
    size_t rows;
    float *low; /* [rows][count][rank] A·x, kept between the passes; NULL: no LoRA */
} train_group;
void train_linears(train_core *core, const train_group *group);
/* A·x alone, for a backward pass that does not need the outputs. */
void train_low(train_core *core, const train_group *group);
/* Adds the gradients of everything that is trained of them, summed over the parts one
 * after the other; dx [rows][k]: the derivative by x, or added to it; NULL: not wanted. */
void train_linears_backward(train_core *core, const train_group *group, const train_part *parts,
                            size_t count, float *dx, bool add);

/* Products of floats, [m][k]·[k][n] with the strides' meaning of gemm.h. */
static inline gemm_operand train_floats(const float *data, size_t row_stride,
                                        size_t column_stride) {
    return (gemm_operand){.data = data, .row_stride = row_stride, .column_stride = column_stride};
}

/* ---- Norms over rows (rows.c) ---- */

typedef struct train_norm_rows {
    const train_norm *norm;
    const float *x; /* [rows][width] */
    size_t rows;
    uint32_t width;
} train_norm_rows;
void train_norms(train_core *core, const train_norm_rows *rows, float *out);
/* dx = or += the derivative; adds the gradients of the norm's weights, sequence by sequence.
 * `heads` rows of x belong to one row of the call. */
void train_norms_backward(train_core *core, const train_norm_rows *rows, const float *dy,
                          uint32_t heads, const train_part *parts, size_t count, bool add,
                          float *dx);

/* ---- Attention (attention.c) ---- */

void train_attention(train_core *core, const layer_view *layer);
/* From buffers.dattended to dquery, dkey, dvalue (behind norms and rotation). */
void train_attention_backward(train_core *core, const layer_view *layer);
/* Floats of one of the score buffers. */
size_t train_attention_floats(const model_view *view, uint32_t context_max);

void train_close_sessions(train_core *core);
/* Lays the rows of a call and computes them without an adapter, but for the head. */
AVO_MUST_USE avo_status train_compute(train_core *core, const train_sequence *sequences,
                                      size_t count, avo_error *error);

/* ---- The head (head.c) ---- */

/* What a walk over the head computes. Where head and embedding are one matrix, both of whose
 * gradients are summed sequence by sequence, the head's part waits for the embedding's. */
typedef enum train_head_pass { HEAD_ALL, HEAD_INPUT, HEAD_WEIGHT } train_head_pass;

/* Log-probabilities and, where not NULL, entropies of all wants. `keep`: a backward pass may
 * follow. */
AVO_MUST_USE avo_status train_head_score(train_core *core, bool keep, const train_scores *scores,
                                         avo_error *error);
/* From coefficients to the derivatives by the hidden states, in buffers.hidden, which is 0 before;
 * of wants [at, end) where something behind the layers is trained, else of all. */
AVO_MUST_USE avo_status train_head_backward(train_core *core, const float *coefficients,
                                            train_head_pass pass, uint32_t at, uint32_t end,
                                            avo_error *error);
void train_head_apply(train_core *core, const float *coefficients);

/* ---- Layers ---- */

/* Recomputes what happens in a layer from the hidden states before it. */
void train_layer_forward(train_core *core, uint32_t layer, const float *hidden);
/* From the derivative by the layer's output (buffers.hidden) to that by its input; `input`: it is
 * wanted. */
void train_layer_backward(train_core *core, uint32_t layer, const float *hidden, bool input);
/* Cosines and sines of the call's rows. */
void train_angles(train_core *core);
/* A head by the angles of its row, or back. */
void train_rotate(const rotary_table *table, const float *cosine, const float *sine, bool back,
                  float *head);
/* Norms per head and rotation of buffers.query and key from their raw ones, and back. */
void train_positions(train_core *core, const train_layer *layer, const layer_view *view);
void train_positions_backward(train_core *core, const train_layer *layer, const layer_view *view);

#endif
