/* Inside cuda/: a step as a sequence of launches, and where adapters join it. */
#ifndef AVO_DEVICE_CUDA_STEP_INT_H
#define AVO_DEVICE_CUDA_STEP_INT_H

#include "device/cuda/cuda.h"
#include "device/runs.h"

typedef struct cuda_step {
    cuda_stream *stream;
    cuda_port *port;
    const model_view *model; /* of the card */
    const batch_view *batch; /* of the host */
    const device_kv *kv;
    cuda_scratch *scratch;
    const cuda_tuning *tuning;
    uint32_t splits;  /* of attention: at most, of any row */
    uint32_t pages;   /* of a split */
    uint32_t tiles;   /* of attention of many rows */
    bool alone;       /* no two rows are of one session */
    bool fast;        /* matrices of 16-bit floats lie in slabs, for tensor cores */
    bool fast_tiles;  /* tiles are those of the fast arithmetic's attention */
    bool half;        /* attention has made the output's input */
    bool follows;     /* the last thing in the queue is a kernel of this step */
    cu_result result; /* of the first call that failed: all behind it are left out */
} cuda_step;

/* Where the rows of products' input come from, and which matrices read them. */
typedef struct cuda_site {
    const float *x;
    const uint32_t *index; /* of the card; NULL: 0, 1, 2, … */
    uint32_t rows, k;
    const norm_view *norm; /* NULL: none */
    adapter_norm_place place;
    uint32_t layer;
    bool head; /* rows are those that want logits */
    /* x = activation(gate) · x, or activation(x) without a gate */
    bool activated;
    activation_kind activation;
    const float *gate;
    uint32_t count; /* matrices that adapters may change */
    adapter_matrix matrix[ADAPTER_INPUT_MATRICES];
    /* The fast arithmetic: products are up and gate, whose outputs `joined` makes
     * activation(gate) · up; the input is there already, as 16-bit numbers; the outputs become the
     * next product's input (NULL: floats). */
    bool paired, joined;
    activation_kind joined_activation;
    const uint8_t *half;
    uint8_t *next;
    bool next_many;
} cuda_site;

typedef struct cuda_product {
    const linear_view *linear;
    float *out;
    size_t out_stride;
    bool add; /* out = fma(y, add_scale, out) */
    float add_scale;
} cuda_product;

/* Steps of up to so many rows are recorded. */
#define RECORD_ROWS 64

/* Host memory of the stream's inputs to the same place on the card. */
void step_send(cuda_step *step, size_t offset, size_t bytes);
/* Embeddings and angles, as every CPU device computes them. */
void step_embed(cuda_step *step, const cuda_weights *weights);
/* Rows, positions, pages and tiles of attention; false: the page tables are too long. */
bool step_send_batch(cuda_step *step, device_work work);

/* The kernels of the work, in order. */
void step_compute(cuda_step *step, device_work work);
/* The same, as a recording where the step's shape has one or may have one. */
void step_recorded(cuda_step *step, device_work work, const void *weights);

void step_launch(cuda_step *step, const cuda_launch *launch, const void *call);

/* A table that a kernel reads: written by the host, then sent. The tables of one launch are
 * reserved together, because reserving may wait until those before have arrived. */
typedef struct step_table {
    uint8_t *host;
    const uint8_t *card;
    size_t bytes;
} step_table;
void step_table_reserve(cuda_step *step, size_t bytes);
step_table step_table_take(cuda_step *step, size_t bytes);
void step_table_send(cuda_step *step, const step_table *table);

/* As rows with adapters see it; its table is reserved. */
norm_call step_norm(cuda_step *step, const norm_view *norm, adapter_norm_place place,
                    uint32_t layer, uint32_t rows, bool head);
form_call step_form(const activation_view *view);
linear_one step_linear(const weight_view *weight, const activation_view *x);
/* One product; its kernel is that of the type. */
void step_multiply(cuda_step *step, const linear_one *one, size_t count);
void step_prepare(cuda_step *step, const prepare_call *call, uint32_t rows);

/* ---- Few rows ---- */

/* False: not with these; nothing was launched. `pair`: products are up and gate, and their outputs
 * activation(gate) · up in the place of up. */
bool few_products(cuda_step *step, const cuda_site *site, const cuda_product *products,
                  size_t count, const activation_kind *pair);

/* ---- Many rows ---- */

/* False: not with these; nothing was launched. */
bool wide_products(cuda_step *step, const cuda_site *site, const cuda_product *products,
                   size_t count);

/* Tiles of the batch, at most as many as rows; 0: it has none. */
uint32_t tiles_write(cuda_step *step, uint32_t *tile);
/* False: not with these; nothing was launched. */
bool tiles_position(cuda_step *step, uint32_t number, const position_call *call);
/* Whether sessions of one row each are better off with tiles. */
bool tiles_known(const cuda_step *step, uint32_t number, const attend_rows_call *call);
bool tiles_attend(cuda_step *step, uint32_t number, const attend_rows_call *call);

/* ---- The fast arithmetic ---- */

/* Whether the products are its own. */
bool fast_computes(const cuda_step *step, const cuda_product *products, size_t count);
/* In one launch, and with an input for many rows; false: a few rows at a time. */
bool fast_in_one(const cuda_step *step, uint32_t rows, uint32_t k, bool *many);
/* The norm or activation of the place, and its products; product i goes to base[i], where `add[i]`
 * adds it to what is there. */
void fast_multiply(cuda_step *step, const cuda_site *site, const cuda_product *products,
                   float *const *base, const bool *add, size_t count);

/* Where `weight` reads what `made` gives, and is a product of the same kind: outputs become its
 * input (site->next). */
void fast_feed(cuda_step *step, cuda_site *site, const weight_view *made,
               const weight_view *weight);
/* Whether attention of the layer is the fast arithmetic's. */
bool fast_attends(const cuda_step *step, const layer_view *layer);
/* The batch's rows as blocks of its attention take them: first row and rows of each; their number.
 */
uint32_t fast_tile_rows(const cuda_step *step, uint32_t *tile);
/* Behind queries, keys and values: `position` and `attend` as the exact kernels have them.
 * step->half says whether its result is the output's input already. */
void fast_attention(cuda_step *step, const layer_view *layer, const position_call *position,
                    const attend_rows_call *attend);

/* ---- Adapters ---- */

/* Whether an adapter of the batch changes one of the site's matrices. */
bool adapt_any(const cuda_step *step, const cuda_site *site);
/* Whether one changes norms. */
bool adapt_norms(const cuda_step *step);
/* Forms in which adapters of the batch read the site's input (bits). */
unsigned adapt_forms(const cuda_step *step, const cuda_site *site);
/* Whether an adapter of the batch has a gain there: then products that join `out` are stored aside
 * first. */
bool adapt_gains(const cuda_step *step, const cuda_site *site, uint32_t slot);
/* Gains on the base's outputs (where `own` products put them), which then join `products`' where
 * they lie aside; then what every run adds. `input`: the site's rows in all forms. */
void adapt_site(cuda_step *step, const cuda_site *site, const cuda_product *products,
                const cuda_product *own, const activation_view *input);

#endif
