/* The phases of the fast back ends. Written once over the op table, so that all of them walk the
 * same way and give the same bits. Barriers of a decoding step, per layer: behind the products of
 * q, k, v; behind attention; behind the output product; behind gate and up; behind down: five. One
 * more behind the write of K and V unless the attention's plan is "fused", one more within
 * attention where it is "split" (attention_int.h; 3 KV heads on 2 workers: beyond 96 and beyond 256
 * tokens), and one more before each norm that stands behind a product. */
#include "kernels/fast/fast_int.h"

#include "base/checked.h"

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
                      .norm = layer->norm_after ? &fast_no_norm : &layer->attention_norm};
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

/* The product of `linear` with its input joins the residual. */
static void add_product(const step_view *step, uint32_t worker, const layer_view *layer,
                        const linear_view *linear, const fast_input *input,
                        const norm_view *post_norm, const norm_view *own_norm) {
    uint32_t width = step->model->width;
    bool plain = post_norm->kind == NORM_NONE && !layer->norm_after;
    fast_product product = {.linear = linear,
                            .out = plain ? step->scratch->hidden : step->scratch->projected,
                            .out_stride = width,
                            .end = plain ? LINEAR_ADD : LINEAR_STORE,
                            .add_scale = layer->residual_scale};
    fast_products(step, worker, input, &product, 1);
    if (!plain)
        finish_rows(step, worker, layer, post_norm, layer->norm_after ? own_norm : &fast_no_norm);
    team_barrier(step->team, worker);
}

static void attention_output(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    uint32_t k = layer->output.weight.k;
    fast_rows rows = {.x = step->scratch->attended, .stride = k, .rows = step->batch->rows, .k = k};
    fast_input input = fast_prepare(step, worker, &rows, fast_form_of(&layer->output));
    add_product(step, worker, layer, &layer->output, &input, &layer->attention_post_norm,
                &layer->attention_norm);
}

static void feed_forward_output(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    fast_input input = fast_gated_input(step, number, worker);
    add_product(step, worker, layer, &layer->down, &input, &layer->feed_forward_post_norm,
                &layer->feed_forward_norm);
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
                     .feed_forward_input = fast_feed_forward_input,
                     .feed_forward_output = feed_forward_output,
                     .head = fast_head};
}
