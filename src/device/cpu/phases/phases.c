/* The phases of the fast back ends. Written once over the op table, so that all of them walk the
 * same way and give the same bits. Barriers of a decoding step, per layer: behind the products of
 * q, k, v; behind attention; behind the output product; behind gate and up; behind down: five. One
 * more behind the write of K and V unless the attention's plan is "fused", one more within
 * attention where it is "split" (attention_int.h; 3 KV heads on 2 workers: beyond 96 and beyond 256
 * tokens), and one more before each norm that stands behind a product. */
#include "device/cpu/phases/fast_int.h"

#include "base/checked.h"

static void embed(const step_view *step, uint32_t worker) {
    backend_reference()->embed(step, worker);
}

static void attention_input(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    fast_site site = {number, 3, {ADAPTER_QUERY, ADAPTER_KEY, ADAPTER_VALUE}};
    fast_rows rows = {.x = scratch->hidden,
                      .stride = step->model->width,
                      .rows = step->batch->rows,
                      .k = step->model->width,
                      .norm = layer->norm_after ? &fast_no_norm : &layer->attention_norm,
                      .layer = number,
                      .place = ADAPTER_ATTENTION_NORM,
                      .site = &site};
    fast_input input = fast_prepare(step, worker, &rows,
                                    fast_form_of(&layer->query) | fast_form_of(&layer->key) |
                                        fast_form_of(&layer->value));
    fast_product products[3] = {{.linear = &layer->query, .out = scratch->query, .slot = 0},
                                {.linear = &layer->key, .out = scratch->key, .slot = 1},
                                {.linear = &layer->value, .out = scratch->value, .slot = 2}};
    for (size_t i = 0; i < 3; i++)
        products[i].out_stride = products[i].linear->weight.rows;
    fast_products(step, worker, &input, products, 3);
    team_barrier(step->team, worker);
    fast_position(step, number, worker);
}

/* How a product joins the residual: its norms, and their places. */
typedef struct residual_join {
    const layer_view *layer;
    uint32_t number;
    const norm_view *post_norm, *own_norm;
    adapter_norm_place post_place, own_place;
} residual_join;

/* out = norm(x), as a row of the batch sees the norm. */
static void norm_row(const step_view *step, const fast_worker *own, const residual_join *join,
                     const norm_view *norm, adapter_norm_place place, uint32_t row, float *x) {
    norm_view seen = *norm;
    if (step->batch->runs > 0)
        seen = run_norm(step->batch, row, join->number, place, norm, step->model->width, own->norm);
    step->backend->ops->norm(&seen, x, step->model->width, x);
}

/* hidden += scale · norm(projected), and the norm behind it where the architecture has it so. */
static void finish_rows(const step_view *step, uint32_t worker, const residual_join *join) {
    const op_table *ops = step->backend->ops;
    const fast_worker own = fast_worker_of(step, worker);
    const norm_view *after_norm = join->layer->norm_after ? join->own_norm : &fast_no_norm;
    uint32_t width = step->model->width;
    size_t begin;
    size_t end;
    team_barrier(step->team, worker);
    team_share(step->batch->rows, worker, team_size(step->team), &begin, &end);
    for (size_t row = begin; row < end; row++) {
        float *projected = step->scratch->projected + row * width;
        float *hidden = step->scratch->hidden + row * width;
        norm_row(step, &own, join, join->post_norm, join->post_place, (uint32_t)row, projected);
        ops->add_scaled(projected, join->layer->residual_scale, hidden, width);
        norm_row(step, &own, join, after_norm, join->own_place, (uint32_t)row, hidden);
    }
}

/* The product of `linear` with its input joins the residual. */
static void add_product(const step_view *step, uint32_t worker, const residual_join *join,
                        const linear_view *linear, fast_input *input) {
    uint32_t width = step->model->width;
    bool plain = join->post_norm->kind == NORM_NONE && !join->layer->norm_after;
    fast_product product = {.linear = linear,
                            .out = plain ? step->scratch->hidden : step->scratch->projected,
                            .out_stride = width,
                            .end = plain ? LINEAR_ADD : LINEAR_STORE,
                            .add_scale = join->layer->residual_scale,
                            .aside = step->scratch->projected};
    fast_products(step, worker, input, &product, 1);
    if (!plain)
        finish_rows(step, worker, join);
    team_barrier(step->team, worker);
}

static void attention_output(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    uint32_t k = layer->output.weight.k;
    fast_site site = {number, 1, {ADAPTER_OUTPUT}};
    fast_rows rows = {.x = step->scratch->attended,
                      .stride = k,
                      .rows = step->batch->rows,
                      .k = k,
                      .site = &site};
    residual_join join = {layer,
                          number,
                          &layer->attention_post_norm,
                          &layer->attention_norm,
                          ADAPTER_ATTENTION_POST_NORM,
                          ADAPTER_ATTENTION_NORM};
    fast_input input = fast_prepare(step, worker, &rows, fast_form_of(&layer->output));
    add_product(step, worker, &join, &layer->output, &input);
}

static void feed_forward_output(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    fast_site site = {number, 1, {ADAPTER_DOWN}};
    residual_join join = {layer,
                          number,
                          &layer->feed_forward_post_norm,
                          &layer->feed_forward_norm,
                          ADAPTER_FEED_FORWARD_POST_NORM,
                          ADAPTER_FEED_FORWARD_NORM};
    fast_input input = fast_gated_input(step, number, worker, &site);
    add_product(step, worker, &join, &layer->down, &input);
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
                     .head = fast_head,
                     .hidden = fast_hidden};
}
