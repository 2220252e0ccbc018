/* Inside fast/: the phases that all vector back ends share, over their op table. */
#ifndef AVO_DEVICE_CPU_PHASES_FAST_INT_H
#define AVO_DEVICE_CPU_PHASES_FAST_INT_H

#include "device/cpu/group.h"
#include "device/cpu/phases/fast.h"
#include "device/cpu/phases/program.h"
#include "device/runs.h"

/* Where an architecture has no norm. */
static const norm_view fast_no_norm = {.kind = NORM_NONE};

/* ---- Scratch ---- */

/* Few enough numbers that every worker of a large team prepares them for itself: cheaper than a
 * phase. */
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
uint8_t *fast_shared_experts(const step_view *step);
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
    bool logits; /* rows are those that want logits, not all of the batch */
} fast_rows;

/* Activations in every form that somebody asked for; the others have rows 0. */
typedef struct fast_input {
    activation_view form[PRODUCT_FORMS];
    const fast_site *site; /* NULL: no adapter of the batch changes anything there */
    uint8_t *adapted;      /* A·x of every run and matrix, in the forms that B reads */
} fast_input;

/* The input of the matrices at a place: where its rows come from, and how they are prepared. */
typedef struct fast_operand {
    fast_rows rows;
    fast_site site;
    unsigned forms;   /* that the base's matrices read (bits) */
    bool alone;       /* so few rows that every worker prepares all of them for itself */
    bool together;    /* workers share the rows out at the begin of the phase that reads them */
    bool ready;       /* the phase before has prepared them, as `input` has it */
    fast_input input; /* where ready */
} fast_operand;

void fast_operand_make(const step_view *step, phase_place place, uint32_t layer, fast_operand *out);
/* The phases before the products at a place: preparing rows, where workers do not do it for
 * themselves, and A·x of adapters. */
void fast_add_input(phase_list *list, phase_place place);
/* The input as this worker's products read it; `at`: the phase, of which fast_take_counts was
 * asked.
 */
fast_input fast_take_input(const step_view *step, const phase_entry *at, const fast_worker *own,
                           const fast_operand *operand);
/* Counters for the phase that was added last, whose input is that of a place. */
void fast_take_counts(phase_list *list, phase_place place);

/* Bit of the form that a matrix reads; 0 for an absent one. */
unsigned fast_form_of(const linear_view *linear);

/* Rows that are worth taking one by one are an item each, many go in small blocks. */
#define FAST_ROWS_MANY  64
#define FAST_ROWS_BLOCK 4
static inline size_t fast_row_items(uint32_t rows) {
    return rows < FAST_ROWS_MANY ? rows : (rows + FAST_ROWS_BLOCK - 1) / FAST_ROWS_BLOCK;
}
static inline void fast_item_rows(uint32_t rows, uint32_t item, uint32_t *begin, uint32_t *end) {
    uint32_t block = rows < FAST_ROWS_MANY ? 1 : FAST_ROWS_BLOCK;
    *begin = item * block;
    *end = *begin + block < rows ? *begin + block : rows;
}

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
 * panels stream past, and within each, chunks of panels; a part is an item. An output's sum never
 * depends on the cut. */
typedef struct fast_cut {
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

fast_cut fast_cut_make(const step_view *step, uint32_t rows, const fast_panels *of);
/* Whether the parts share out evenly among the workers. */
bool fast_cut_even(const step_view *step, uint32_t rows, const fast_panels *of);
/* Panels of one item, at most, where one row is multiplied by `panels` panels like those of
 * `weight`.
 */
size_t fast_chunk_wish(const step_view *step, const weight_view *weight, size_t panels);
bool fast_cut_take(const fast_cut *cut, team_items *items, fast_part *part);

/* The outputs of several matrices that read the same input: how they are cut, and the parts that
 * are taken. */
size_t fast_products_items(const step_view *step, uint32_t rows, const fast_product *products,
                           size_t count);
void fast_products(const step_view *step, const fast_worker *own, const fast_input *input,
                   const fast_product *products, size_t count, team_items *items);
/* One part of one; row row_begin of the outputs goes to `out`. */
void fast_product_part(const step_view *step, const fast_worker *own, const fast_input *input,
                       const fast_product *product, const fast_part *part, float *out);

/* ---- Adapters ---- */

/* Bytes of a worker's own products with A, and of one number in them: at most, in any form. */
#define FAST_ADAPTED_ALONE  131072
#define FAST_ADAPTED_NUMBER 16

/* Whether an adapter of the batch changes anything at the site; in which forms they read x. */
bool fast_site_adapted(const step_view *step, const fast_site *site, unsigned *forms);
/* In which forms the adapters of one row (of the batch) read x. */
unsigned fast_row_forms(const step_view *step, const fast_site *site, uint32_t row);
/* A·x of everything that adapters change at `input->site`: its items, and one of them. */
size_t fast_adapt_items(const step_view *step, const fast_site *site);
void fast_adapt_item(const step_view *step, const fast_worker *own, const fast_input *input,
                     uint32_t item);
/* Where this worker's products find A·x, which is complete, in the form that B reads. */
void fast_adapt_input(const step_view *step, const fast_worker *own, fast_input *input);
/* What adapters make of a part of a product. `base`: the outputs of the base, STOREd; where the
 * product's end is ADD and `base` is not `out`, they have not joined `out` yet. */
void fast_adapt_part(const step_view *step, const fast_worker *own, const fast_input *input,
                     const fast_product *product, const fast_part *part, float *base, float *out);

/* ---- A model split over ranks (exchange.c) ---- */

/* Whether this rank has rows of every matrix; its matrices then begin at fast_first_row of the
 * whole ones. Alone, a device has all rows, KV heads, chunks of the vocabulary and layers. */
static inline bool fast_by_rows(const step_view *step) {
    return step->group != NULL && !step->group->group->by_layers;
}
size_t fast_first_row(const step_view *step, const layer_view *layer, adapter_matrix matrix);
group_range fast_own_heads(const step_view *step, const layer_view *layer);
group_range fast_own_chunks(const step_view *step, size_t chunks);
group_range fast_own_layers(const step_view *step);
/* This is rank 0, or there are no ranks. */
bool fast_leads(const step_view *step);

/* All ranks get what the products at a place gave (QUERY_KEY_VALUE: the attention). */
void fast_add_exchange(phase_list *list, phase_place place);
/* Whether that was sent in the form that the next product reads. */
bool fast_exchanged_input(const step_view *step, phase_place place, uint32_t layer,
                          fast_input *input);
/* By layers: rows go to the rank that computes `layer`; a tap's rows to rank 0. The latter returns
 * true where this rank has nothing to keep by itself. */
void fast_add_pass(phase_list *list, uint32_t layer);
bool fast_add_far_tap(phase_list *list, uint32_t layer);
/* By the leading thread, within a phase of its own. */
void fast_exchange(const step_view *step, const group_part *send, const group_part *receive);

/* ---- Phases in files of their own ---- */

void fast_query_key_value(const step_view *step, const layer_view *layer, fast_product products[3]);
/* Query, key and value of the list's layer together with what needs those of one KV head alone:
 * their positions, and the attention where its plan is "fused". Only where fast_one_row. */
bool fast_one_row(const phase_list *list);
void fast_add_one_row(phase_list *list);
/* Positions and attention of the list's layer, or what fast_add_one_row has left of it; positions
 * alone. */
void fast_add_attention(phase_list *list, bool positioned);
void fast_add_position(phase_list *list);
size_t fast_attention_worker_bytes(const scratch_shape *shape);
size_t fast_attention_shared_bytes(const scratch_shape *shape);
/* Gate, up and the activation. */
void fast_add_gated(phase_list *list);
/* Whether the phase before has left down's input in the forms that are read. */
bool fast_gated_input(const step_view *step, uint32_t layer, const fast_site *site,
                      fast_input *input);
void fast_add_head(phase_list *list);
/* The feed-forward part of a layer with experts, up to the residual. */
void fast_add_experts(phase_list *list);
bool fast_experts_bytes(const model_view *model, uint32_t rows_max, size_t *bytes);
/* The forms in which router and experts read their input (bits). */
unsigned fast_experts_forms(const experts_view *experts);
/* hidden += scale · norm(projected) of one row, and the norm behind it where there is one. */
void fast_join_row(const step_view *step, const fast_worker *own, uint32_t layer, uint32_t row);

#endif
