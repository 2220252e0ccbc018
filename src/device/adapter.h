/* Adapters as kernels see them: what is added to the base model's matrices for some rows of a
 * batch. Everything that an adapter can change is an addition, weighted by the request's factor:
 *
 *   y = gain ⊙ (base y) + factor · (offset + scale · up · (down · x))
 *
 * LoRA has down (A) and up (B). A matrix trained as a whole (`modules_to_save`) has only `up`: the
 * difference to the base's, applied to x itself. DoRA has a gain; what it makes of the base's bias
 * is in `offset`, and the gain of B is folded into `up`. With a factor other than 1 the gain is
 * 1 + factor · (gain − 1).
 *
 * Rows are grouped into runs: rows [first, first + rows) of the batch under one adapter. A row with
 * several adapters lies in several runs. Runs are sorted by first row, then by digest, and a row's
 * own by digest: what is added to it comes in an order that depends on its own request alone. Rows
 * outside of all runs stand before all others and are computed as if there were no adapters, bit
 * for bit. A row's last run is the last that begins at or before it, its others are that one's
 * parents.
 *
 * Exchange form, which adapters/ makes and device_adapter_open is given: structures and numbers lie
 * in host memory, a mapped file's among them. `down` and `up` are in PANELS of any type that has
 * panels (quant/panels.h), [rank][k] and [rows][rank], padded to whole panels with zeros; `look` is
 * in ROWS; gains, offsets and norms are F32. Shapes are those of the base's matrices, and were
 * checked against them. Matrices that read the same x may share one `down`: equal data pointers say
 * so. A device that reads another form converts when the adapter is opened, never in a step.
 */
#ifndef AVO_DEVICE_ADAPTER_H
#define AVO_DEVICE_ADAPTER_H

#include "quant/quant.h"

/* ---- Limits ---- */
#define ADAPTER_RANK_MAX 256 /* of one matrix */
#define ADAPTERS_OF_ROW  8   /* adapters of one request */

/* To one matrix of the base. `up.data` NULL and no gain, no offset: nothing. */
typedef struct adapter_delta {
    weight_view
        down;       /* [rank][k] in PANELS; data NULL: `up` reads x itself. Matrices that read the
                       same x may share one: then their `data` is equal, and A·x is computed once */
    weight_view up; /* [rows][rank] in PANELS, or [rows][k]; data NULL: none */
    float scale;    /* α / r or α / √r */
    const float *gain;   /* [rows]; NULL: 1 */
    const float *offset; /* [rows]; NULL: 0. Includes the difference of a trained bias */
} adapter_delta;

/* To the weights (and bias) of a norm; NULL: nothing. [width] each. */
typedef struct adapter_norm {
    const float *weight;
    const float *bias;
} adapter_norm;

typedef struct adapter_layer {
    adapter_delta query, key, value, output, gate, up, down;
    adapter_norm attention_norm, feed_forward_norm, attention_post_norm, feed_forward_post_norm;
    adapter_norm query_norm, key_norm;
} adapter_layer;

/* hidden += factor · scale · embedding scale · up · look[token], or without `up` directly. */
typedef struct adapter_embedding {
    weight_view look; /* [vocabulary][rank], or [vocabulary][width] where there is no `up`; ROWS */
    weight_view up;   /* [width][rank] in PANELS; data NULL: none */
    float scale;
} adapter_embedding;

typedef struct adapter_view {
    uint64_t digest[2];         /* of everything that changes a result */
    const adapter_layer *layer; /* [layers] */
    adapter_embedding embedding;
    adapter_delta head;
    adapter_norm final_norm;
    /* What to be prepared for. */
    bool gains, norms; /* some delta has a gain; some norm changes */
    uint32_t rank;     /* adapter_rank */
} adapter_view;

typedef struct adapter_run {
    const adapter_view *adapter;
    uint32_t first, rows; /* of the batch */
    const float *factor;  /* [rows] the requests' weight of this adapter */
    uint32_t parent; /* the run of the adapter before this one of the same rows, which holds all
                        of them; ADAPTER_RUN_NONE: it is their first */
} adapter_run;
#define ADAPTER_RUN_NONE UINT32_MAX

/* ---- Matrices by number ---- */

typedef enum adapter_matrix {
    ADAPTER_QUERY,
    ADAPTER_KEY,
    ADAPTER_VALUE,
    ADAPTER_OUTPUT,
    ADAPTER_GATE,
    ADAPTER_UP,
    ADAPTER_DOWN,
    ADAPTER_HEAD, /* `layer` does not matter */
    ADAPTER_MATRICES
} adapter_matrix;

static inline const adapter_delta *adapter_delta_of(const adapter_view *adapter, uint32_t layer,
                                                    adapter_matrix matrix) {
    if (matrix == ADAPTER_HEAD)
        return &adapter->head;
    const adapter_layer *own = &adapter->layer[layer];
    switch (matrix) {
    case ADAPTER_QUERY:
        return &own->query;
    case ADAPTER_KEY:
        return &own->key;
    case ADAPTER_VALUE:
        return &own->value;
    case ADAPTER_OUTPUT:
        return &own->output;
    case ADAPTER_GATE:
        return &own->gate;
    case ADAPTER_UP:
        return &own->up;
    default:
        return &own->down;
    }
}

static inline bool adapter_delta_empty(const adapter_delta *delta) {
    return delta->up.data == NULL && delta->gain == NULL && delta->offset == NULL;
}

/* Rank of what is added to one matrix; 0 where there is no low rank. */
static inline uint32_t adapter_delta_rank(const adapter_delta *delta) {
    return delta->up.data == NULL || delta->down.data == NULL ? 0 : delta->down.rows;
}

/* Largest rank of any matrix, the embedding among them. */
uint32_t adapter_rank(const adapter_view *adapter, uint32_t layers);

#endif
