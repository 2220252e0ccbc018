/* Matrix products, cut into parts that workers take. */
#include "kernels/fast/fast_int.h"

#include "base/checked.h"

/* Input that stays in a core's own cache while a share of panels streams past; the smallest such
 * caches have 512 KB, those that matter 1 to 2 MB. */
#define BLOCK_BYTES 1048576
#define BLOCK_ROWS  512 /* most rows: what kernels keep sums of */
#define BLOCK_STEP  16  /* rows of a block come in tiles of so many */

/* Chunks of panels: a few for every worker, so that they level out, but not less than is worth a
 * call. */
#define WORKER_PARTS 6
#define CHUNK_BYTES  32768 /* of weights */

/* ---- Cutting ---- */

static uint32_t block_rows(uint32_t rows, size_t k) {
    size_t fitting = size_max(BLOCK_BYTES / size_max(activation_stride(k), 1), BLOCK_STEP);
    size_t blocks = (rows + size_min(fitting, BLOCK_ROWS) - 1) / size_min(fitting, BLOCK_ROWS);
    size_t even = (rows + blocks - 1) / blocks;
    return (uint32_t)((even + BLOCK_STEP - 1) / BLOCK_STEP * BLOCK_STEP);
}

/* With more rows kernels take more panels side by side. */
#define STEP_MAX 4
static size_t chunk_step(size_t rows) {
    return rows <= 8 ? 1 : rows < 64 ? 2 : STEP_MAX;
}
_Static_assert(STEP_MAX *QUANT_PANEL_ROWS *BLOCK_ROWS <= FAST_PART_NUMBERS, "the least part");

static size_t chunk_panels(size_t rows, const weight_view *weight, size_t wanted) {
    uint64_t bytes = 0; /* of a panel */
    size_t step = chunk_step(rows);
    if (panels_bytes(weight->type, weight->k, &bytes) && bytes > 0)
        wanted = size_max(wanted, CHUNK_BYTES / (size_t)bytes);
    size_t chunk = size_min(wanted, FAST_PART_NUMBERS / QUANT_PANEL_ROWS / rows);
    return size_max(chunk / step * step, step);
}

void fast_cut_begin(const step_view *step, uint32_t worker, uint32_t rows,
                    const weight_view *weight, size_t panels, fast_cut *out) {
    out->rows = rows;
    out->block = block_rows(rows, weight->k);
    out->panels = panels;
    size_t blocks = (rows + out->block - 1) / out->block;
    size_t parts = (size_t)team_size(step->team) * WORKER_PARTS;
    out->chunk = chunk_panels(out->block, weight, panels * blocks / parts);
    out->chunks = (panels + out->chunk - 1) / out->chunk;
    team_work_begin(step->team, worker, blocks * out->chunks, 1, &out->work);
}

bool fast_cut_next(fast_cut *cut, fast_part *part) {
    size_t item;
    size_t ignored;
    if (!team_work_next(&cut->work, &item, &ignored))
        return false;
    size_t row = item / cut->chunks * cut->block;
    part->row_begin = (uint32_t)row;
    part->row_end = (uint32_t)size_min(row + cut->block, cut->rows);
    part->first = item % cut->chunks * cut->chunk;
    part->last = size_min(part->first + cut->chunk, cut->panels);
    return true;
}

/* ---- Products ---- */

/* Rows [begin, end) of a view. */
static activation_view rows_of(const activation_view *x, uint32_t begin, uint32_t end) {
    activation_view part = *x;
    part.rows = end - begin;
    if (x->x != NULL)
        part.x += begin * x->stride;
    if (x->number != NULL)
        part.number += begin * x->stride;
    if (x->low != NULL)
        part.low += begin * x->stride;
    if (x->scale != NULL)
        part.scale += begin * x->scale_stride;
    if (x->sum != NULL)
        part.sum += begin * x->scale_stride;
    if (x->integer_sum != NULL)
        part.integer_sum += begin * x->sum_stride;
    return part;
}

void fast_product_part(const step_view *step, const fast_worker *own, const fast_input *input,
                       const fast_product *product, const fast_part *part, float *out) {
    const weight_view *weight = &product->linear->weight;
    activation_view x =
        rows_of(&input->form[panels_form(weight->type)], part->row_begin, part->row_end);
    linear_call call = {.weight = weight,
                        .bias = product->linear->bias,
                        .x = &x,
                        .out = out,
                        .out_stride = product->out_stride,
                        .end = product->end,
                        .add_scale = product->add_scale};
    step->backend->ops->linear[panel_index_of(weight->type)](&call, part->first, part->last,
                                                             own->linear);
}

/* The matrices stand behind one another, as one row of panels. */
void fast_products(const step_view *step, uint32_t worker, const fast_input *input,
                   const fast_product *products, size_t count) {
    fast_worker own = fast_worker_of(step, worker);
    const weight_view *weight = &products[0].linear->weight;
    uint32_t rows = input->form[panels_form(weight->type)].rows;
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += weight_panels(&products[i].linear->weight);
    fast_cut cut;
    fast_part part;
    fast_cut_begin(step, worker, rows, weight, total, &cut);
    while (fast_cut_next(&cut, &part)) {
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            size_t panels = weight_panels(&products[i].linear->weight);
            fast_part own_part = part;
            own_part.first = part.first > at ? part.first - at : 0;
            own_part.last = part.last > at ? size_min(part.last - at, panels) : 0;
            if (own_part.first < own_part.last)
                fast_product_part(step, &own, input, &products[i], &own_part,
                                  products[i].out + part.row_begin * products[i].out_stride);
            at += panels;
        }
    }
}
