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
    bool alone;       /* no two rows are of one session */
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
} cuda_site;

typedef struct cuda_product {
    const linear_view *linear;
    float *out;
    size_t out_stride;
    bool add; /* out = fma(y, add_scale, out) */
    float add_scale;
} cuda_product;

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
