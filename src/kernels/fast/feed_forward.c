/* Gate and up, the activation that joins them, and the form in which down reads the result: all of
 * it for one part of rows and columns while that part lies in the cache, without a barrier in
 * between. For that, parts must begin where blocks of the form do; where such parts would share out
 * unevenly among many workers, rows are quantised behind the barrier instead. */
#include "kernels/fast/fast_int.h"

#include "base/checked.h"

/* Columns that can be quantised by themselves: whole blocks, and whole lines of every array that
 * kernels write in one go. */
#define GRANULE_PANELS     8
#define GRANULE_PANELS_A8R (Q4R_SUPER / QUANT_PANEL_ROWS)

static fast_panels panels_of(const layer_view *layer) {
    bool rotated = panels_form(layer->down.weight.type) == PRODUCT_A8R;
    return (fast_panels){.weight = &layer->up.weight,
                         .panels = weight_panels(&layer->up.weight),
                         .granule = rotated ? GRANULE_PANELS_A8R : GRANULE_PANELS};
}

/* One row is not: it decodes at the speed of memory, larger parts read better, and every worker
 * quantises it for itself in no time. */
static bool quantised_in_parts(const step_view *step, const fast_panels *panels) {
    return step->batch->rows > 1 && fast_cut_even(step, step->batch->rows, panels);
}

/* Where down's input lies when parts are quantised one by one. */
static activation_view gated_view(const step_view *step, const layer_view *layer) {
    return activation_lay(panels_form(layer->down.weight.type), step->batch->rows,
                          layer->down.weight.k, fast_shared_gated(step));
}

/* Columns [begin, end) of one row, as a view of one row. Behind the last column it goes on to the
 * end of the row, so that the padding is cleared too. */
static activation_view part_of(const activation_view *view, uint32_t row, size_t begin,
                               size_t end) {
    activation_view part = activation_from(view, row, begin);
    part.rows = 1;
    part.k = (uint32_t)(end - begin);
    part.stride = (end < view->k ? end : view->stride) - begin;
    return part;
}

/* A part of gate and up, and the activation on what they gave. The gate's outputs are written where
 * this worker's last ones were, so that they never leave its cache. `down`: NULL where rows are
 * quantised later. */
static void gated_part(const step_view *step, const fast_worker *own, const fast_input *input,
                       const layer_view *layer, const activation_view *down,
                       const fast_part *part) {
    const op_table *ops = step->backend->ops;
    size_t stride = layer->feed_forward;
    size_t begin = part->first * QUANT_PANEL_ROWS;
    size_t count = size_min(part->last * QUANT_PANEL_ROWS, stride) - begin;
    float *up = step->scratch->up + part->row_begin * stride;
    fast_product up_product = {.linear = &layer->up, .out_stride = stride};
    fast_product_part(step, own, input, &up_product, part, up);
    const float *gate = NULL;
    if (layer->gate.weight.data != NULL) {
        linear_view slice = {
            .weight = weight_slice(&layer->gate.weight, (uint32_t)begin, (uint32_t)count),
            .bias = layer->gate.bias == NULL ? NULL : layer->gate.bias + begin};
        fast_product gate_product = {.linear = &slice, .out_stride = count};
        fast_part slice_part = {part->row_begin, part->row_end, 0, part->last - part->first};
        fast_product_part(step, own, input, &gate_product, &slice_part, own->gate);
        gate = own->gate;
    }
    for (uint32_t row = 0; row < part->row_end - part->row_begin; row++) {
        float *columns = up + begin + row * stride;
        ops->activate(layer->activation, gate == NULL ? NULL : gate + row * count, columns, count);
        if (down != NULL) {
            activation_view to = part_of(down, part->row_begin + row, begin, begin + count);
            ops->quantise(columns, &to, 0, own->linear);
        }
    }
}

void fast_feed_forward_input(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    fast_rows rows = {.x = step->scratch->hidden,
                      .stride = step->model->width,
                      .rows = step->batch->rows,
                      .k = step->model->width,
                      .norm = layer->norm_after ? &fast_no_norm : &layer->feed_forward_norm};
    fast_input input =
        fast_prepare(step, worker, &rows, fast_form_of(&layer->gate) | fast_form_of(&layer->up));
    fast_worker own = fast_worker_of(step, worker);
    fast_panels panels = panels_of(layer);
    bool fused = quantised_in_parts(step, &panels);
    activation_view down = fused ? gated_view(step, layer) : (activation_view){0};
    if (!fused)
        panels.granule = 1;
    fast_cut cut;
    fast_part part;
    fast_cut_begin(step, worker, rows.rows, &panels, &cut);
    while (fast_cut_next(&cut, &part))
        gated_part(step, &own, &input, layer, fused ? &down : NULL, &part);
    team_barrier(step->team, worker);
}

fast_input fast_gated_input(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    fast_panels panels = panels_of(layer);
    uint32_t k = layer->down.weight.k;
    fast_rows rows = {.x = step->scratch->up, .stride = k, .rows = step->batch->rows, .k = k};
    if (!quantised_in_parts(step, &panels))
        return fast_prepare(step, worker, &rows, fast_form_of(&layer->down));
    fast_input input = {0};
    activation_view ready = gated_view(step, layer);
    input.form[ready.form] = ready;
    return input;
}
