/* Inside the training of draft heads. heads.c opens them, heads_loss.c compares outputs with
 * targets; heads_medusa.c, heads_eagle.c and heads_draft.c have the three networks, heads_layer.c
 * and heads_attention.c the layer that the last two are made of; heads_start.c the first weights,
 * heads_file.c the file. */
#ifndef AVO_TRAIN_HEADS_INT_H
#define AVO_TRAIN_HEADS_INT_H

#include "train/core_int.h"
#include "train/heads.h"

#define HEADS_EPSILON_LEAST 1e-12
/* Drafts of EAGLE in a row, layers of a distilled draft. */
#define HEADS_RUNS_MAX (HEADS_EAGLE_STEPS > HEADS_DEPTH_MAX ? HEADS_EAGLE_STEPS : HEADS_DEPTH_MAX)

/* ---- Numbers of parameters ---- */

/* Matrices and norms of a layer, behind the number of its first one. */
typedef enum heads_layer_parameter {
    LAYER_QUERY,
    LAYER_KEY,
    LAYER_VALUE,
    LAYER_OUTPUT,
    LAYER_GATE,
    LAYER_UP,
    LAYER_DOWN,
    LAYER_ATTENTION_NORM,
    LAYER_FEED_FORWARD_NORM,
    LAYER_PARAMETERS
} heads_layer_parameter;

/* EAGLE. A distilled draft has its layers one after the other, then the output norm. */
typedef enum eagle_parameter {
    EAGLE_TAP_NORM,
    EAGLE_FUSE,
    EAGLE_STATE_NORM,
    EAGLE_TOKEN_NORM,
    EAGLE_INPUT,
    EAGLE_LAYER,
    EAGLE_OUTPUT_NORM = EAGLE_LAYER + LAYER_PARAMETERS,
    EAGLE_PARAMETERS
} eagle_parameter;

/* ---- Buffers ---- */

/* What one run of a layer over the rows of a sequence was computed from; [rows][…] each. */
typedef struct heads_layer_run {
    float *input, *normed;      /* width; normed: input of q, k, v */
    float *query, *key, *value; /* rotated */
    float *attended, *joined;   /* query width, width */
    float *normed_up, *gate, *up, *active;
    float *result; /* the layer's output */
    float *dkey, *dvalue;
    float *state, *state_normed; /* EAGLE: width */
} heads_layer_run;

typedef struct heads_layer_buffers {
    float *embedded;                     /* width */
    heads_layer_run run[HEADS_RUNS_MAX]; /* EAGLE: of each draft; distilled draft: of each layer */
    float *cosine, *sine;                /* [rows][pairs] */
    float *scores;                       /* [kv heads][2][rows] */
    /* derivatives by what has the name */
    float *dresult, *dinput, *djoined, *dnormed;
    float *dquery, *dattended, *dactive, *dgate;
    /* EAGLE */
    float *tap_normed[HEADS_TAPS_MAX];
    float *token_normed, *dnext, *dstate;
} heads_layer_buffers;

typedef struct medusa_buffers {
    float *normed, *token;          /* [rows][width] n and u */
    float *inner[HEADS_MEDUSA_MAX]; /* [rows][width] in front of SiLU; then derivatives */
} medusa_buffers;

struct train_heads {
    heads_config config;
    double teacher, state_scale;
    uint32_t drafts;  /* in a row, whose targets are counted */
    uint32_t outputs; /* that have a loss: a distilled draft's rows are all alike */
    uint32_t window;
    int32_t *token;   /* [config.frequent] */
    uint32_t *column; /* [vocabulary] of a token's logit; UINT32_MAX: it cannot be drafted */
    float *head;      /* [frequent][width] the model's output rows */
    float *ones;      /* [width] */
    norm_view unit;   /* by which embeddings are normed */
    rotary_table rotary;
    /* of a pass */
    float *tap[HEADS_TAPS_MAX];       /* [rows_max][width] */
    float *output[HEADS_DRAFTS_MAX];  /* [context_max][width] of each draft */
    float *doutput[HEADS_DRAFTS_MAX]; /* the same; 0 where there is no target */
    uint8_t *right[HEADS_DRAFTS_MAX]; /* [context_max] by token: the likeliest is the token */
    float *gathered, *dgathered;      /* [TRAIN_HEAD_ROWS][width] */
    float *logits, *wanted;           /* [TRAIN_HEAD_ROWS][frequent] */
    float *states;                    /* [TRAIN_HEAD_ROWS][width] the model's, normed */
    medusa_buffers medusa;
    heads_layer_buffers layer;
};

/* One sequence of a pass. Rows are counted from `begin` on: row r has the state of position
 * begin + r and the token behind it. In a distilled draft it has the token at that position. */
typedef struct heads_span {
    train_core *core;
    struct train_heads *heads;
    const train_heads_pass *pass;
    const train_span *span;
    const train_want *want; /* its targets, by token ascending */
    uint32_t wants;
    uint32_t begin, rows;
} heads_span;

/* From the row of a first draft to the token that it guesses, less `begin`: rows of a distilled
 * draft have that token's predecessor, others the state in front of it. */
static inline uint32_t heads_row_distance(const struct train_heads *heads) {
    return heads->config.kind == HEADS_LAYERS ? 1 : 2;
}

/* ---- Matrices ---- */

/* y (+)= x · Wᵀ of columns [first, first + columns) of a parameter. */
typedef struct heads_product {
    const train_parameter *parameter;
    uint32_t first, columns;
    const float *x; /* [rows][columns] */
    float *y;       /* [rows][parameter rows] */
    size_t rows;
} heads_product;
void heads_multiply(train_core *core, const heads_product *product, bool add);
/* Adds the gradient of the parameter; dx (NULL: not wanted) = or += the derivative by x. */
void heads_multiply_back(train_core *core, const heads_product *product, const float *dy, float *dx,
                         bool add);

/* ---- Norms with a weight that is trained ---- */

typedef struct heads_norm {
    const train_parameter *parameter;
    uint32_t row; /* of the parameter */
    const float *x;
    size_t rows;
} heads_norm;
void heads_norm_rows(train_core *core, const heads_norm *norm, float *out);
/* dx NULL: the weight's gradient alone. */
void heads_norm_back(train_core *core, const heads_norm *norm, const float *dy, bool add,
                     float *dx);

/* ---- A layer ---- */

/* One run of a layer over the rows [first, span->rows) of a sequence. */
typedef struct heads_layer_pass {
    const heads_span *span;
    train_core *core;
    heads_layer_buffers *b;
    heads_layer_run *own;
    /* Where rows see keys of other runs: `own` is runs[step], EAGLE's draft `step`. */
    const heads_layer_run *runs;
    uint32_t step;
    uint32_t parameter; /* the layer's first */
    const heads_config *config;
    size_t first, rows, width, query, kv;
} heads_layer_pass;

heads_layer_pass heads_layer_pass_of(const heads_span *span, uint32_t parameter,
                                     heads_layer_run *runs, uint32_t step);
/* Embeddings of the tokens `behind` places behind the rows' positions, and the rows' angles. */
void heads_layer_begin(const heads_span *span, uint32_t behind);
/* From own->input to own->result. */
void heads_layer_forward(const heads_layer_pass *pass);
/* From b->dresult to b->dinput. own->dkey and dvalue are complete: those of runs that see them were
 * added before. */
void heads_layer_backward(const heads_layer_pass *pass);

/* dkey and dvalue of the first `runs` runs are 0. */
void heads_layer_clear_keys(const heads_span *span, uint32_t runs);

/* Of the pass's rows, columns [part · columns, …) of a parameter: products, norms, copies. */
void heads_layer_multiply(const heads_layer_pass *pass, uint32_t parameter, uint32_t part,
                          size_t columns, const float *x, float *y, bool add);
void heads_layer_multiply_back(const heads_layer_pass *pass, uint32_t parameter, uint32_t part,
                               size_t columns, const float *x, const float *dy, float *dx,
                               bool add);
heads_norm heads_layer_norm_of(const heads_layer_pass *pass, uint32_t parameter, const float *x);
void heads_layer_norm(const heads_layer_pass *pass, uint32_t parameter, const float *x, float *out);
void heads_layer_norm_back(const heads_layer_pass *pass, uint32_t parameter, const float *x,
                           const float *dy, bool add, float *dx);
void heads_layer_copy(const heads_layer_pass *pass, const float *from, float *to);

/* A row of EAGLE's draft `step` sees rows of true states up to row − step, then one row of each
 * later draft; of a distilled draft (step 0) all rows before it; `window` rows in all. */
void heads_layer_attention(const heads_layer_pass *pass);
/* From dattended to dquery; adds to dkey and dvalue of the rows that were seen. */
void heads_layer_attention_back(const heads_layer_pass *pass);

/* ---- The networks ---- */

/* `output` of all drafts and rows; then from `doutput` to gradients. */
void medusa_forward(const heads_span *span);
void medusa_backward(const heads_span *span);
void eagle_forward(const heads_span *span);
void eagle_backward(const heads_span *span);
void draft_forward(const heads_span *span);
void draft_backward(const heads_span *span);

/* First weights. */
void heads_start(train_core *core);

/* ---- Targets ---- */

/* Compares `output` with the targets: sums, `doutput`, `right`. */
AVO_MUST_USE avo_status heads_compare(const heads_span *span, train_heads_sums *sums,
                                      avo_error *error);

/* ---- Set-up ---- */

/* The embedding of a token. */
void heads_embed(const train_core *core, int32_t token, float *out);

#endif
