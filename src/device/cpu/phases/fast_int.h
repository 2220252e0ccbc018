/* Inside fast/: the phases that all vector back ends share, over their op table. */
#ifndef AVO_DEVICE_CPU_PHASES_FAST_INT_H
#define AVO_DEVICE_CPU_PHASES_FAST_INT_H

#include "device/cpu/phases/fast.h"
#include "device/runs.h"

/* Where an architecture has no norm. */
static const norm_view fast_no_norm = {.kind = NORM_NONE};

/* ---- Scratch ---- */

/* Few enough numbers that every worker prepares them for itself: cheaper than a barrier. */
#define ALONE_NUMBERS 8192
#define ALONE_ROWS    8

/* What one worker has for itself, in this order in scratch_view.worker. */
typedef struct fast_worker {
    uint32_t index;
    uint8_t *linear;    /* linear_scratch_bytes(k_max) */
    float *row;         /* one row of floats */
    uint8_t *alone;     /* activations of a few rows, one block per form */
    size_t alone_bytes; /* of one form */
    float *logits;      /* [logits_max][HEAD_CHUNK] where nobody wants them whole */
    float *gate;        /* [FAST_PART_NUMBERS]: what a part of the gate gives */
    float *norm;        /* a norm's weight and bias as a row with adapters sees them */
    uint8_t *adapted;   /* FAST_ADAPTED_ALONE: products with A, as B reads them */
    uint8_t *attention; /* fast_attention_worker_bytes */
} fast_worker;

bool fast_scratch_bytes(const scratch_shape *shape, size_t *worker, size_t *shared);
/* Shared: activations of all rows in one form, and those of the gated product; the head's part; the
 * attention's part. */
size_t fast_form_bytes(const model_view *model, uint32_t rows_max);
uint8_t *fast_shared_form(const step_view *step, product_form form);
uint8_t *fast_shared_gated(const step_view *step);
uint8_t *fast_shared_head(const step_view *step);
uint8_t *fast_shared_attention(const step_view *step);
uint8_t *fast_shared_adapted(const step_view *step);
fast_worker fast_worker_of(const step_view *step, uint32_t worker);

/* ---- Rows into the forms that products read ---- */

/* Matrices of a phase that read the same input: where adapters join it. */
typedef struct fast_site {
    uint32_t layer;
    uint32_t count;
    adapter_matrix matrix[ADAPTER_INPUT_MATRICES];
} fast_site;

/* Where the rows of a product's input come from. */
typedef struct fast_rows {
    const float *x;
    size_t stride;
    const uint32_t *index; /* rows of x, or NULL: 0, 1, 2, … */
    uint32_t rows;
    uint32_t k;
    const norm_view *norm; /* applied first; NULL or NORM_NONE: none */
    uint32_t layer;        /* of the norm */
    adapter_norm_place place;
    const fast_site *site; /* what the input is for; NULL: nothing that adapters change */
    bool logits;           /* rows are those that want logits, not all of the batch */
} fast_rows;

/* Activations in every form that somebody asked for; the others have rows 0. */
typedef struct fast_input {
    activation_view form[PRODUCT_FORMS];
    const fast_site *site; /* NULL: no adapter of the batch changes anything there */
    uint8_t *adapted;      /* A·x of every run and matrix, in the forms that B reads */
    bool awaited;          /* adapters: the others' part of A·x may not be there yet */
} fast_input;

/* Bit of the form that a matrix reads; 0 for an absent one. */
unsigned fast_form_of(const linear_view *linear);

/* Norms and quantises into the forms of `forms` (bits). Ends with a barrier unless the rows are so
 * few that every worker does all of them. */
fast_input fast_prepare(const step_view *step, uint32_t worker, const fast_rows *rows,
                        unsigned forms);

/* ---- Products ---- */

typedef struct fast_product {
    const linear_view *linear;
    float *out;
    size_t out_stride;
    linear_end end;
    float add_scale;
    uint32_t slot;      /* of the input's site: which of its matrices this is */
    size_t first_panel; /* of that matrix: where `linear` begins */
    float *aside;       /* LINEAR_ADD: like `out`, for what must not join it as it is */
} fast_product;

/* Rows [begin, end) of a batch times a range of panels: at most so many outputs, which stay in the
 * cache until the activation reads them. */
#define FAST_PART_NUMBERS 65536
typedef struct fast_part {
    uint32_t row_begin, row_end;
    size_t first, last;
} fast_part;

/* How the products of one phase are cut: blocks of rows that stay in a core's own cache while
 * panels stream past, and within each, chunks of panels. Workers take parts as team_work has it;
 * an output's sum never depends on the cut. */
typedef struct fast_cut {
    team_work work;
    uint32_t rows;
    uint32_t block; /* rows */
    size_t panels;
    size_t chunk;  /* panels */
    size_t chunks; /* per block */
    size_t items;  /* all parts */
} fast_cut;

/* `panels` panels in all, of matrices like `weight`; chunks begin at multiples of `granule`. */
typedef struct fast_panels {
    const weight_view *weight;
    size_t panels;
    size_t granule;
} fast_panels;

void fast_cut_begin(const step_view *step, uint32_t worker, uint32_t rows, const fast_panels *of,
                    fast_cut *out);
/* Whether the parts share out evenly among the workers. */
bool fast_cut_even(const step_view *step, uint32_t rows, const fast_panels *of);
bool fast_cut_next(fast_cut *cut, fast_part *part);

/* The outputs of several matrices that read the same input, shared by the workers. No barrier. */
void fast_products(const step_view *step, uint32_t worker, fast_input *input,
                   const fast_product *products, size_t count);
/* One part of one; row row_begin of the outputs goes to `out`. */
void fast_product_part(const step_view *step, const fast_worker *own, fast_input *input,
                       const fast_product *product, const fast_part *part, float *out);

/* ---- Adapters ---- */

/* Bytes of a worker's own products with A, and of one number in them: at most, in any form. */
#define FAST_ADAPTED_ALONE  131072
#define FAST_ADAPTED_NUMBER 16

/* Whether an adapter of the batch changes anything at the site; in which forms they read x. */
bool fast_site_adapted(const step_view *step, const fast_site *site, unsigned *forms);
/* In which forms the adapters of one row (of the batch) read x. */
unsigned fast_row_forms(const step_view *step, const fast_site *site, uint32_t row);
/* Begins to read this worker's share of the A's. */
void fast_adapt_ahead(const step_view *step, uint32_t worker, const fast_site *site);
/* A·x of everything that adapters change at `input->site`: this worker's part of it. The rows that
 * need it are in `input` in the adapters' forms. The first part of a product waits for the others,
 * behind the base's own product. */
void fast_adapt_input(const step_view *step, uint32_t worker, fast_input *input);
/* What adapters make of a part of a product. `base`: the outputs of the base, STOREd; where the
 * product's end is ADD and `base` is not `out`, they have not joined `out` yet. */
void fast_adapt_part(const step_view *step, const fast_worker *own, fast_input *input,
                     const fast_product *product, const fast_part *part, float *base, float *out);

/* ---- Phases in files of their own ---- */

void fast_position(const step_view *step, uint32_t layer, uint32_t worker);
void fast_attention(const step_view *step, uint32_t layer, uint32_t worker);
size_t fast_attention_worker_bytes(const scratch_shape *shape);
size_t fast_attention_shared_bytes(const scratch_shape *shape);
void fast_feed_forward_input(const step_view *step, uint32_t layer, uint32_t worker);
/* What the phase before made, in the form that down reads, and what adapters make of it. */
fast_input fast_gated_input(const step_view *step, uint32_t layer, uint32_t worker,
                            const fast_site *site);
void fast_head(const step_view *step, uint32_t worker);
void fast_hidden(const step_view *step, uint32_t worker);

#endif
