/* What a device is given to compute: the model's description with the weights of every layer, and
 * the batch of a step. KV pages and scratch are the device's own. Devices see nothing of files,
 * names or architectures: model/ fills these structures once, engine/ fills the batch every step.
 */
#ifndef AVO_DEVICE_LAYER_H
#define AVO_DEVICE_LAYER_H

#include "device/adapter.h"
#include "quant/quant.h"

/* ---- The model ---- */

/* y = W·x + bias. `weight.data` NULL: there is no such projection. */
typedef struct linear_view {
    weight_view weight;
    const float *bias; /* [rows] or NULL */
} linear_view;

typedef enum norm_kind { NORM_NONE, NORM_RMS, NORM_LAYER } norm_kind;

typedef struct norm_view {
    norm_kind kind;
    float epsilon;
    const float *weight; /* [width]; Gemma's 1 + w is already added */
    const float *bias;   /* [width] or NULL */
} norm_view;

typedef enum activation_kind {
    ACTIVATION_SILU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_GELU_ERF,
    ACTIVATION_RELU,
    /* gpt-oss, gated only: with g = min(gate, 7) and u = up cut to −7 … 7,
     * g · sigmoid(1.702 g) · (u + 1) */
    ACTIVATION_SWIGLU_CLIPPED
} activation_kind;

/* How positions enter a layer: by rotation of q and k with table `rotary`, or not at all here
 * (learned positions are added in the embedding). */
#define ROTARY_NONE UINT32_MAX

/* One rotation table: angle(position, i) = position × frequency[i], cosine and sine multiplied by
 * `magnitude`. Angles are taken in double precision, so they are exact to any length. */
typedef struct rotary_table {
    uint32_t pairs;          /* half of the rotated dimensions */
    bool interleaved;        /* pairs are (2i, 2i+1), else (i, i + pairs) */
    const double *frequency; /* [pairs] */
    double magnitude;
    /* Dynamic NTK: past this many positions the base grows with the position; 0: off. */
    uint32_t dynamic_from;
    double dynamic_factor;
    double dynamic_base;
} rotary_table;

/* The feed-forward part of a mixture of experts: a router picks `used` of `count` experts for each
 * row and weighs their outputs. All experts of a layer have the same shapes and types. */
typedef struct expert_view {
    linear_view gate, up, down;
} expert_view;

typedef enum router_kind {
    ROUTER_SOFTMAX,    /* weights: softmax over all experts, then the highest are taken */
    ROUTER_TOP_SOFTMAX /* the highest logits are taken, weights: softmax over these */
} router_kind;

#define EXPERTS_MAX      1024
#define EXPERTS_USED_MAX 64

typedef struct experts_view {
    uint32_t count; /* 0: the layer is dense */
    uint32_t used;  /* for one row */
    router_kind router_kind;
    bool normalised; /* weights of the chosen experts are scaled to sum up to 1 */
    linear_view router;
    const expert_view *expert; /* [count] */
    expert_view shared;        /* for every row; up.weight.data NULL: none */
    linear_view shared_gate;   /* 1 row, its sigmoid weighs `shared`; absent: the weight is 1 */
} experts_view;

/* The most copies of a row that experts of one layer compute. */
static inline uint32_t experts_slots(const experts_view *experts) {
    return experts->used + (experts->shared.up.weight.data != NULL);
}

typedef struct layer_view {
    /* attention */
    norm_view attention_norm;
    linear_view query, key, value, output;
    norm_view query_norm, key_norm; /* per head, over head_size; NORM_NONE: absent */
    bool whole_norms;               /* OLMoE: these norms are over all heads of a row together */
    const float *sinks;             /* gpt-oss: [heads] a score beside those of the positions, that
                                       has no value; NULL: none */
    uint32_t heads, kv_heads, head_size;
    uint32_t window;               /* a row sees itself and window − 1 before; 0: all */
    uint32_t rotary;               /* index into model_view.rotary, or ROTARY_NONE */
    float attention_scale;         /* multiplies q·k */
    float attention_softcap;       /* cap × tanh(x / cap) on scores; 0: off */
    norm_view attention_post_norm; /* on the output, before the residual */
    /* feed-forward */
    norm_view feed_forward_norm;
    linear_view gate; /* absent: not gated, the activation is on `up` */
    linear_view up, down;
    uint32_t feed_forward;
    activation_kind activation;
    norm_view feed_forward_post_norm;
    experts_view experts; /* in the place of gate, up and down */
    bool norm_after; /* OPT-350m: attention_norm and feed_forward_norm stand behind the residual */
    float residual_scale; /* multiplies what is added to the residual; 1: off */
} layer_view;

typedef struct model_view {
    uint32_t width, vocabulary, layers;
    weight_view embedding;          /* [vocabulary][embedding width] */
    float embedding_scale;          /* 1: off */
    weight_view position_embedding; /* [positions][width]; data NULL: none */
    uint32_t position_offset;
    norm_view embedding_norm;      /* NORM_NONE: absent */
    linear_view embedding_project; /* OPT-350m: embedding width → width; data NULL: none */
    linear_view head_project;      /* and back before the head */
    const layer_view *layer;       /* [layers] */
    norm_view final_norm;
    linear_view head;    /* the embedding again where tied */
    float logit_scale;   /* 1: off */
    float logit_softcap; /* 0: off */
    const rotary_table *rotary;
    uint32_t rotary_tables;
    /* the largest of any layer, for scratch */
    uint32_t query_width_max, kv_width_max, feed_forward_max, k_max, experts_max;
} model_view;

/* ---- KV pages ---- */

#define KV_PAGE_TOKENS 32

/* How K and V are stored. INT8 and FP8 have one scale per position, and store heads rotated by
 * kv_rotate. Order is that of kv_type_name. */
typedef enum kv_type { KV_F32, KV_F16, KV_BF16, KV_INT8, KV_FP8, KV_TYPE_COUNT } kv_type;

/* ---- The batch ---- */

/* The rows of one session: [first, first + rows), in order of position. */
typedef struct batch_segment {
    uint32_t first;
    uint32_t rows;
    const uint32_t *pages; /* the session's page table */
} batch_segment;

typedef struct batch_view {
    uint32_t rows;
    const int32_t *token;         /* [rows] */
    const float *input;           /* [rows][embedding.k] in the place of the tokens' embeddings, for
                                     models without one (draft heads); NULL: tokens */
    const float *attention_input; /* [rows][query.weight.k] in the place of what the first layer's
                                     attention norm gives, where its queries, keys and values see
                                     more than the residual (EAGLE-3); NULL: that norm */
    const uint32_t *position;     /* [rows] */
    const uint32_t *row_segment;  /* [rows] */
    const batch_segment *segment;
    uint32_t segments;
    const uint32_t *logit_row; /* [logit_rows] rows that want logits, ascending */
    uint32_t logit_rows;
    bool logits_whole;      /* somebody reads all logits, not only the highest */
    uint32_t top;           /* highest logits wanted of each of these rows, 0…LOGIT_TOP_MAX */
    const int32_t *target;  /* [logit_rows] a token of each whose logit is wanted, too; needs `top`;
                               NULL: none */
    const adapter_run *run; /* [runs] sorted by first row, then by digest; none: the base alone */
    uint32_t runs;
    bool gains; /* an adapter of these has gains */
} batch_view;

/* The highest logits of one row, so that greedy and top-k drawing need not see the others. */
#define LOGIT_TOP_MAX 64
typedef struct logit_top {
    float logit[LOGIT_TOP_MAX]; /* [top], highest first, of equals the lowest token first */
    int32_t token[LOGIT_TOP_MAX];
    uint32_t count; /* less than `top` only where the vocabulary is smaller */
    double log_sum; /* log Σ e^(logit − highest) over all; NaN when one is NaN or +infinity */
    float target;   /* the logit of the batch's `target` */
} logit_top;

static inline const uint32_t *batch_pages(const batch_view *batch, size_t row) {
    return batch->segment[batch->row_segment[row]].pages;
}

#endif
