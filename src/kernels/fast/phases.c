/* The phases of the fast back ends. Written once over the op table, so that all of them walk the
 * same way and give the same bits. Barriers of a decoding step, per layer: behind the products of
 * q, k, v; behind attention; behind the output product; behind gate and up; behind down. */
#include "kernels/fast/fast_int.h"

#include "base/checked.h"

static const norm_view no_norm = {.kind = NORM_NONE};

static void embed(const step_view *step, uint32_t worker) {
    backend_reference()->embed(step, worker);
}

static void attention_input(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    fast_rows rows = {.x = scratch->hidden,
                      .stride = step->model->width,
                      .rows = step->batch->rows,
                      .k = step->model->width,
                      .norm = layer->norm_after ? &no_norm : &layer->attention_norm};
    fast_input input = fast_prepare(step, worker, &rows,
                                    fast_form_of(&layer->query) | fast_form_of(&layer->key) |
                                        fast_form_of(&layer->value));
    fast_product products[3] = {
        {&layer->query, scratch->query, layer->query.weight.rows, LINEAR_STORE, 0.0f},
        {&layer->key, scratch->key, layer->key.weight.rows, LINEAR_STORE, 0.0f},
        {&layer->value, scratch->value, layer->value.weight.rows, LINEAR_STORE, 0.0f}};
    fast_products(step, worker, &input, products, 3);
    team_barrier(step->team, worker);
    fast_position(step, number, worker);
}

/* hidden += scale · norm(projected), and the norm behind it where the architecture has it so. */
static void finish_rows(const step_view *step, uint32_t worker, const layer_view *layer,
                        const norm_view *post_norm, const norm_view *after_norm) {
    const op_table *ops = step->backend->ops;
    uint32_t width = step->model->width;
    size_t begin;
    size_t end;
    team_barrier(step->team, worker);
    team_share(step->batch->rows, worker, team_size(step->team), &begin, &end);
    for (size_t row = begin; row < end; row++) {
        float *projected = step->scratch->projected + row * width;
        float *hidden = step->scratch->hidden + row * width;
        ops->norm(post_norm, projected, width, projected);
        ops->add_scaled(projected, layer->residual_scale, hidden, width);
        ops->norm(after_norm, hidden, width, hidden);
    }
}

/* The product of `linear` with rows of x joins the residual. */
static void add_product(const step_view *step, uint32_t worker, const layer_view *layer,
                        const linear_view *linear, const float *x, const norm_view *post_norm,
                        const norm_view *own_norm) {
    uint32_t width = step->model->width;
    fast_rows rows = {
        .x = x, .stride = linear->weight.k, .rows = step->batch->rows, .k = linear->weight.k};
    fast_input input = fast_prepare(step, worker, &rows, fast_form_of(linear));
    bool plain = post_norm->kind == NORM_NONE && !layer->norm_after;
    fast_product product = {.linear = linear,
                            .out = plain ? step->scratch->hidden : step->scratch->projected,
                            .out_stride = width,
                            .end = plain ? LINEAR_ADD : LINEAR_STORE,
                            .add_scale = layer->residual_scale};
    fast_products(step, worker, &input, &product, 1);
    if (!plain)
        finish_rows(step, worker, layer, post_norm, layer->norm_after ? own_norm : &no_norm);
    team_barrier(step->team, worker);
}

static void attention_output(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    add_product(step, worker, layer, &layer->output, step->scratch->attended,
                &layer->attention_post_norm, &layer->attention_norm);
}

/* A part of gate and up, and the activation on what they gave. The gate's outputs are written where
 * this worker's last ones were, so that they never leave its cache. */
static void gated_part(const step_view *step, const fast_worker *own, const fast_input *input,
                       const layer_view *layer, const fast_part *part) {
    size_t begin = part->first * QUANT_PANEL_ROWS;
    size_t count = size_min(part->last * QUANT_PANEL_ROWS, layer->feed_forward) - begin;
    float *up = step->scratch->up + part->row_begin * (size_t)layer->feed_forward;
    fast_product up_product = {.linear = &layer->up, .out_stride = layer->feed_forward};
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
    for (uint32_t row = 0; row < part->row_end - part->row_begin; row++)
        step->backend->ops->activate(layer->activation, gate == NULL ? NULL : gate + row * count,
                                     up + begin + row * (size_t)layer->feed_forward, count);
}

static void feed_forward_input(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    fast_rows rows = {.x = step->scratch->hidden,
                      .stride = step->model->width,
                      .rows = step->batch->rows,
                      .k = step->model->width,
                      .norm = layer->norm_after ? &no_norm : &layer->feed_forward_norm};
    fast_input input =
        fast_prepare(step, worker, &rows, fast_form_of(&layer->gate) | fast_form_of(&layer->up));
    fast_worker own = fast_worker_of(step, worker);
    fast_cut cut;
    fast_part part;
    fast_cut_begin(step, worker, rows.rows, &layer->up.weight, weight_panels(&layer->up.weight),
                   &cut);
    while (fast_cut_next(&cut, &part))
        gated_part(step, &own, &input, layer, &part);
    team_barrier(step->team, worker);
}

static void feed_forward_output(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    add_product(step, worker, layer, &layer->down, step->scratch->up,
                &layer->feed_forward_post_norm, &layer->feed_forward_norm);
}

void fast_backend(const op_table *ops, backend *out) {
    *out = (backend){.name = ops->name,
                     .kv_default = KV_F16,
                     .ops = ops,
                     .panels = true,
                     .scratch_bytes = fast_scratch_bytes,
                     .embed = embed,
                     .attention_input = attention_input,
                     .attention = fast_attention,
                     .attention_output = attention_output,
                     .feed_forward_input = feed_forward_input,
                     .feed_forward_output = feed_forward_output,
                     .head = fast_head};
}
