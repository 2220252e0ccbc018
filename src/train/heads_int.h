/* Inside the training of draft heads. heads.c opens them, heads_loss.c compares outputs with
 * targets, heads_medusa.c and heads_eagle.c have the two networks, heads_attention.c the attention
 * of unrolled drafts, heads_start.c the first weights, heads_file.c the file. */
#ifndef AVO_TRAIN_HEADS_INT_H
#define AVO_TRAIN_HEADS_INT_H

#include "train/core_int.h"
#include "train/heads.h"

#define HEADS_EPSILON_LEAST 1e-12

/* Matrices and norms of an EAGLE layer, by their numbers among the parameters. */
typedef enum eagle_parameter {
    EAGLE_TAP_NORM,
    EAGLE_FUSE,
    EAGLE_STATE_NORM,
    EAGLE_TOKEN_NORM,
    EAGLE_INPUT,
    EAGLE_QUERY,
    EAGLE_KEY,
    EAGLE_VALUE,
    EAGLE_OUTPUT,
    EAGLE_GATE,
    EAGLE_UP,
    EAGLE_DOWN,
    EAGLE_ATTENTION_NORM,
    EAGLE_FEED_FORWARD_NORM,
    EAGLE_OUTPUT_NORM,
    EAGLE_PARAMETERS
} eagle_parameter;

/* What a draft of every row of one sequence was computed from; [rows][…] each. */
typedef struct eagle_step {
    float *state, *state_normed, *input; /* width */
    float *normed;                       /* width: input of q, k, v */
    float *query, *key, *value;          /* rotated */
    float *attended, *joined;            /* query width, width */
    float *normed_up, *gate, *up, *active;
    float *result; /* the layer's output */
    float *dkey, *dvalue;
} eagle_step;

typedef struct eagle_buffers {
    float *tap_normed[HEADS_TAPS_MAX];
    float *embedded, *token_normed; /* width */
    eagle_step step[HEADS_EAGLE_STEPS];
    float *cosine, *sine; /* [rows][pairs] */
    float *scores;        /* [kv heads][2][rows] */
    /* derivatives by what has the name */
    float *dresult, *dnext, *dinput, *djoined, *dnormed, *dstate;
    float *dquery, *dattended, *dactive, *dgate;
} eagle_buffers;

typedef struct medusa_buffers {
    float *normed, *token;          /* [rows][width] n and u */
    float *inner[HEADS_MEDUSA_MAX]; /* [rows][width] in front of SiLU; then derivatives */
} medusa_buffers;

struct train_heads {
    heads_config config;
    double teacher, state_scale;
    uint32_t drafts, window;
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
    eagle_buffers eagle;
};

/* One sequence of a pass. Rows are counted from `begin` on: row r has the state of position
 * begin + r and the token behind it. */
typedef struct heads_span {
    train_core *core;
    struct train_heads *heads;
    const train_heads_pass *pass;
    const train_span *span;
    const train_want *want; /* its targets, by token ascending */
    uint32_t wants;
    uint32_t begin, rows;
} heads_span;

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

/* ---- The two networks ---- */

/* `output` of all drafts and rows; then from `doutput` to gradients. */
void medusa_forward(const heads_span *span);
void medusa_backward(const heads_span *span);
void eagle_forward(const heads_span *span);
void eagle_backward(const heads_span *span);

/* Draft `step` of EAGLE: row r sees rows of true states up to r − step, then one row of each later
 * draft, `window` in all. Rows below `step` have none. */
void eagle_attention(const heads_span *span, uint32_t step);
/* From dattended to dquery; adds to dkey and dvalue of the drafts that were seen. */
void eagle_attention_back(const heads_span *span, uint32_t step);

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
