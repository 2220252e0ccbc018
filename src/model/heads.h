/* Draft heads: small networks that guess the tokens behind those that a model has computed
 * (docs/heads.md has the file and the formulas). This opens a file for a model: every field, name,
 * type and shape is checked, matrices are laid out in panels, and the rows of the model's output
 * matrix that the heads draft from are gathered. The result is a handful of model_views that a
 * device computes with rows given by the host (batch_view.input); engine/draft_heads.c runs them.
 *
 * Immutable once it is open, but for rows that are gathered later (heads_open_later); any number of
 * engines of the model share it. */
#ifndef AVO_MODEL_HEADS_H
#define AVO_MODEL_HEADS_H

#include "model/model.h"

#include <stdatomic.h>

/* ---- Limits ---- */
#define HEADS_MEDUSA_MAX 8
#define HEADS_DEPTH_MAX  4
#define HEADS_BLOCKS_MAX 4
#define HEADS_TAPS_MAX   8
#define HEADS_WINDOW_MAX 65536

/* HEADS_LAYERS: a distilled draft. */
typedef enum heads_kind { HEADS_MEDUSA, HEADS_EAGLE, HEADS_LAYERS, HEADS_KINDS } heads_kind;
/* "medusa", "eagle", "layers" */
const char *heads_kind_name(heads_kind kind);

/* What an EAGLE layer reads, and where norms are: ours, as published first (EAGLE, EAGLE-2), and
 * EAGLE-3. */
typedef enum heads_form { HEADS_FORM_AVOCET, HEADS_FORM_EAGLE, HEADS_FORM_EAGLE3 } heads_form;
#define HEADS_FORMS 3
const char *heads_form_name(heads_form form);

/* The fields of avocet.heads. */
typedef struct heads_config {
    heads_kind kind;
    uint32_t width, layers, vocabulary; /* of the base model */
    uint32_t frequent;                  /* tokens that the heads can draft */
    double norm_epsilon;
    char base_sha256[65]; /* empty: not said */
    char base_digest[17]; /* source_digest of the base model in hexadecimal; empty: not said */
    uint32_t taps;        /* Medusa: one, the last; layers: none */
    uint32_t tap[HEADS_TAPS_MAX];
    uint32_t heads, blocks; /* Medusa; residual blocks of each head */
    bool token;
    bool output;            /* rows of an output matrix of their own; Medusa: of every head */
    bool bias;              /* Medusa: of the blocks; EAGLE: of `input` */
    heads_form form;        /* EAGLE */
    bool norm_residual;     /* EAGLE-3: the first layer's residual is the normed state */
    bool attention_bias;    /* of queries, keys and values */
    uint32_t depth, window; /* EAGLE, layers: rows that a row sees; 0: all */
    uint32_t attention_heads, kv_heads, head_size, feed_forward;
    double rope_base;
} heads_config;

/* Rows of the model's output matrix that were not gathered yet (heads_open_later). */
typedef struct heads_rest {
    const avo_model *model;
    weight_view out; /* its panels are written */
    uint8_t *buffer; /* a panel's rows, then one decoded row */
    size_t buffer_bytes;
    atomic_uint next; /* row; out.rows: all are there */
    atomic_flag busy;
} heads_rest;

struct avo_heads {
    const avo_allocator *allocator;
    arena arena;
    const char *path;
    heads_config config;
    uint64_t file_bytes;
    uint8_t *rest_panels; /* of these rows */
    size_t rest_bytes;
    heads_rest *rest;        /* NULL: all rows were gathered when it was opened */
    const int32_t *frequent; /* [config.frequent] token of each column of the logits */
    /* Medusa: [state; token] of all heads as one product of heads · width outputs, and the rows of
     * the output matrix, for one row of each head. */
    model_view medusa_states, medusa_head;
    const float *state_bias;                    /* [blocks][heads · width] or NULL */
    model_view medusa_block[HEADS_BLOCKS_MAX];  /* from the second on: as medusa_states */
    model_view medusa_output[HEADS_MEDUSA_MAX]; /* of each head, in the place of medusa_head */
    /* EAGLE. Norms are NULL where the form has none. */
    const float *tap_norm;                /* [taps][width] */
    const float *state_norm, *token_norm; /* [width] */
    const float *input_bias;              /* [width] or NULL */
    model_view fuse;                      /* [taps · width] → width; EAGLE: none */
    model_view input;                     /* [2 · width] → width; EAGLE-3: none */
    model_view layers;                    /* width → logits; of a distilled draft, too */
};

/* The fields alone, of a file of any base model: for descriptions and for finding heads. */
AVO_MUST_USE avo_status heads_config_read(const char *path, const avo_allocator *allocator,
                                          heads_config *config, avo_error *error);
/* Whether heads were trained on this very model, or on the one that a .avo was packed from: by its
 * digest (formats/source.h), which costs a few kilobytes of every tensor, and not by base_sha256,
 * for which all of its file would be read.
 * Heads of another model of the same shape can be used, too; they only guess worse. */
bool heads_made_for(const heads_config *config, const avo_model *model);

/* avo_heads_open without gathering rows of the output matrix, most of its time. heads_gather_more
 * does that, some rows at a time, and allocates nothing; true: all are there. The model must live
 * until then. Any thread may call it. */
AVO_MUST_USE avo_status heads_open_later(const avo_model *model, const char *path, avo_heads **out,
                                         avo_error *error);
bool heads_gather_more(const avo_heads *heads, uint32_t rows);

/* avo_heads_open of a file that lies in memory; `path` is for messages. */
AVO_MUST_USE avo_status heads_open_memory(const avo_model *model, bytes_view bytes,
                                          const char *path, avo_heads **out, avo_error *error);

#endif
