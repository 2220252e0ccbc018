/* The steps of the fast back ends. Written once over the op table, so that all of them compute the
 * same phases and give the same bits. Phases of a step, per layer: the products of q, k and v;
 * attention; the output product; gate and up; down: five. One more for K and V unless the
 * attention's plan is "fused", one more to join where it is "split" (attention_int.h), one more for
 * each norm behind a product, and one for every input that adapters change. Decoding one row has
 * up to two fewer (one_row.c). */
#include "device/cpu/phases/fast_int.h"

#include "base/checked.h"
#include "device/cpu/ref/ref.h"

#include <string.h>

#define LAYER_PHASES_MAX   20
#define EXPERTS_PHASES_MAX 6 /* more, of layers with experts */
#define OTHER_PHASES_MAX   10

static uint32_t phases_max(const model_view *model) {
    uint32_t more = model->experts_max > 0 ? EXPERTS_PHASES_MAX : 0;
    return model->layers * (LAYER_PHASES_MAX + more) + OTHER_PHASES_MAX;
}

/* ---- Query, key and value ---- */

void fast_query_key_value(const step_view *step, const layer_view *layer,
                          fast_product products[3]) {
    const scratch_view *scratch = step->scratch;
    size_t size = layer->head_size;
    products[0] = (fast_product){.linear = &layer->query, .out = scratch->query, .slot = 0};
    products[1] = (fast_product){.linear = &layer->key, .out = scratch->key, .slot = 1};
    products[2] = (fast_product){.linear = &layer->value, .out = scratch->value, .slot = 2};
    for (uint32_t i = 0; i < 3; i++) {
        size_t first = fast_first_row(step, layer, ADAPTER_QUERY + i);
        products[i].out += first;
        products[i].out_stride = (i == 0 ? layer->heads : layer->kv_heads) * size;
        products[i].first_panel = first / QUANT_PANEL_ROWS;
    }
}

static void query_key_value_items(const step_view *step, const phase_entry *at, team_items *items) {
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, at->layer, &operand);
    fast_input input = fast_take_input(step, at, &own, &operand);
    fast_product products[3];
    fast_query_key_value(step, &step->model->layer[at->layer], products);
    fast_products(step, &own, &input, products, 3, items);
}

/* ---- Products that join the residual ---- */

/* How a product joins the residual: its norms, and their places. */
typedef struct residual_join {
    const layer_view *layer;
    uint32_t number;
    const linear_view *linear;
    const norm_view *post_norm, *own_norm;
    adapter_norm_place post_place, own_place;
    bool plain; /* no norm lies between */
} residual_join;

static residual_join join_of(const step_view *step, phase_place place, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    residual_join join = {.layer = layer, .number = number};
    if (place == PLACE_OUTPUT) {
        join.linear = &layer->output;
        join.post_norm = &layer->attention_post_norm;
        join.own_norm = &layer->attention_norm;
        join.post_place = ADAPTER_ATTENTION_POST_NORM;
        join.own_place = ADAPTER_ATTENTION_NORM;
    } else {
        join.linear = &layer->down;
        join.post_norm = &layer->feed_forward_post_norm;
        join.own_norm = &layer->feed_forward_norm;
        join.post_place = ADAPTER_FEED_FORWARD_POST_NORM;
        join.own_place = ADAPTER_FEED_FORWARD_NORM;
    }
    join.plain = join.post_norm->kind == NORM_NONE && !layer->norm_after;
    return join;
}

static fast_product joining_product(const step_view *step, const residual_join *join) {
    size_t first = fast_first_row(step, join->layer, ADAPTER_OUTPUT); /* down's are the same */
    const scratch_view *scratch = step->scratch;
    return (fast_product){.linear = join->linear,
                          .out = (join->plain ? scratch->hidden : scratch->projected) + first,
                          .out_stride = step->model->width,
                          .end = join->plain ? LINEAR_ADD : LINEAR_STORE,
                          .add_scale = join->layer->residual_scale,
                          .first_panel = first / QUANT_PANEL_ROWS,
                          .aside = scratch->projected + first};
}

static void joining_items(const step_view *step, const phase_entry *at, team_items *items) {
    fast_worker own = fast_worker_of(step, items->worker);
    residual_join join = join_of(step, at->place, at->layer);
    fast_operand operand;
    fast_operand_make(step, at->place, at->layer, &operand);
    fast_input input = fast_take_input(step, at, &own, &operand);
    fast_product product = joining_product(step, &join);
    fast_products(step, &own, &input, &product, 1, items);
}

/* out = norm(x), as a row of the batch sees the norm. */
static void norm_row(const step_view *step, const fast_worker *own, const residual_join *join,
                     const norm_view *norm, adapter_norm_place place, uint32_t row, float *x) {
    norm_view seen = *norm;
    if (step->batch->runs > 0)
        seen = run_norm(step->batch, row, join->number, place, norm, step->model->width, own->norm);
    step->backend->ops->norm(&seen, x, step->model->width, x);
}

/* hidden += scale · norm(projected), and the norm behind it where the architecture has it so. */
static void finish_row(const step_view *step, const fast_worker *own, const residual_join *join,
                       uint32_t row) {
    uint32_t width = step->model->width;
    float *projected = step->scratch->projected + (size_t)row * width;
    float *hidden = step->scratch->hidden + (size_t)row * width;
    const norm_view *after_norm = join->layer->norm_after ? join->own_norm : &fast_no_norm;
    norm_row(step, own, join, join->post_norm, join->post_place, row, projected);
    step->backend->ops->add_scaled(projected, join->layer->residual_scale, hidden, width);
    norm_row(step, own, join, after_norm, join->own_place, row, hidden);
}

void fast_join_row(const step_view *step, const fast_worker *own, uint32_t layer, uint32_t row) {
    residual_join join = join_of(step, PLACE_DOWN, layer);
    finish_row(step, own, &join, row);
}

static void finish_items(const step_view *step, const phase_entry *at, team_items *items) {
    fast_worker own = fast_worker_of(step, items->worker);
    residual_join join = join_of(step, at->place, at->layer);
    uint32_t item, row, end;
    while (team_take(items, &item))
        for (fast_item_rows(step->batch->rows, item, &row, &end); row < end; row++)
            finish_row(step, &own, &join, row);
}

static void add_joining(phase_list *list, phase_place place) {
    const step_view *step = list->step;
    residual_join join = join_of(step, place, list->layer);
    fast_product product = joining_product(step, &join);
    fast_add_input(list, place);
    phase_list_add(list, place, joining_items,
                   fast_products_items(step, step->batch->rows, &product, 1));
    fast_take_counts(list, place);
    fast_add_exchange(list, place);
    if (!join.plain)
        phase_list_add(list, place, finish_items, fast_row_items(step->batch->rows));
}

/* ---- Norms over all heads of a row ---- */

static void whole_norm_items(const step_view *step, const phase_entry *at, team_items *items) {
    const layer_view *layer = &step->model->layer[at->layer];
    uint32_t query = layer->heads * layer->head_size, key = layer->kv_heads * layer->head_size;
    uint32_t item, row, end;
    while (team_take(items, &item))
        for (fast_item_rows(step->batch->rows, item, &row, &end); row < end; row++) {
            float *q = step->scratch->query + (size_t)row * query;
            float *k = step->scratch->key + (size_t)row * key;
            step->backend->ops->norm(&layer->query_norm, q, query, q);
            step->backend->ops->norm(&layer->key_norm, k, key, k);
        }
}

/* ---- Hidden states ---- */

/* Keeps the hidden states in front of a layer. */
static void tap_items(const step_view *step, const phase_entry *at, team_items *items) {
    size_t width = step->model->width;
    uint32_t item, begin, end, tap = 0;
    while (step->shape->tap[tap] != at->layer)
        tap++;
    while (team_take(items, &item)) {
        fast_item_rows(step->batch->rows, item, &begin, &end);
        memcpy(step->scratch->tap + (tap * (size_t)step->scratch->rows_max + begin) * width,
               step->scratch->hidden + begin * width, (end - begin) * width * sizeof(float));
    }
}

static void add_tap(phase_list *list, uint32_t layer) {
    const step_view *step = list->step;
    list->layer = layer;
    for (uint32_t i = 0; i < step->shape->taps; i++)
        if (step->shape->tap[i] == layer && !fast_add_far_tap(list, layer))
            phase_list_add(list, PLACE_NONE, tap_items, fast_row_items(step->batch->rows));
}

static void normed_items(const step_view *step, const phase_entry *at, team_items *items) {
    const model_view *model = step->model;
    const batch_view *batch = step->batch;
    fast_worker own = fast_worker_of(step, items->worker);
    uint32_t item, i, end;
    (void)at;
    while (team_take(items, &item))
        for (fast_item_rows(batch->logit_rows, item, &i, &end); i < end; i++) {
            uint32_t row = batch->logit_row[i];
            const float *x = step->scratch->hidden + (size_t)row * model->width;
            float *out = step->scratch->normed + (size_t)i * model->width;
            norm_view norm = model->final_norm;
            if (norm.kind == NORM_NONE) {
                memcpy(out, x, model->width * sizeof(*x));
                continue;
            }
            if (batch->runs > 0)
                norm = run_norm(batch, row, 0, ADAPTER_FINAL_NORM, &model->final_norm, model->width,
                                own.norm);
            step->backend->ops->norm(&norm, x, model->width, out);
        }
}

/* ---- Steps ---- */

static void add_query_key_value(phase_list *list) {
    const step_view *step = list->step;
    fast_product products[3];
    fast_query_key_value(step, &step->model->layer[list->layer], products);
    fast_add_input(list, PLACE_QUERY_KEY_VALUE);
    phase_list_add(list, PLACE_QUERY_KEY_VALUE, query_key_value_items,
                   fast_products_items(step, step->batch->rows, products, 3));
    fast_take_counts(list, PLACE_QUERY_KEY_VALUE);
}

static void add_layer(phase_list *list) {
    list->span = SPAN_ATTENTION_INPUT;
    group_range heads = fast_own_heads(list->step, &list->step->model->layer[list->layer]);
    if (heads.first < heads.end) { /* a rank may have none */
        bool one_row = fast_one_row(list);
        if (one_row)
            fast_add_one_row(list);
        else
            add_query_key_value(list);
        if (list->step->model->layer[list->layer].whole_norms)
            phase_list_add(list, PLACE_NONE, whole_norm_items,
                           fast_row_items(list->step->batch->rows));
        fast_add_attention(list, one_row);
    }
    fast_add_exchange(list, PLACE_QUERY_KEY_VALUE);
    list->span = SPAN_ATTENTION_OUTPUT;
    add_joining(list, PLACE_OUTPUT);
    if (list->step->model->layer[list->layer].experts.count > 0) {
        fast_add_experts(list);
        return;
    }
    list->span = SPAN_FEED_FORWARD_INPUT;
    fast_add_gated(list);
    list->span = SPAN_FEED_FORWARD_OUTPUT;
    add_joining(list, PLACE_DOWN);
}

static bool linears_alike(const linear_view *a, const linear_view *b) {
    return (a->weight.data == NULL) == (b->weight.data == NULL) &&
           a->weight.type == b->weight.type && a->weight.rows == b->weight.rows &&
           a->weight.k == b->weight.k;
}

static bool expert_alike(const expert_view *a, const expert_view *b) {
    return linears_alike(&a->gate, &b->gate) && linears_alike(&a->up, &b->up) &&
           linears_alike(&a->down, &b->down);
}

static bool experts_alike(const experts_view *a, const experts_view *b) {
    return a->count == b->count && a->used == b->used && linears_alike(&a->router, &b->router) &&
           linears_alike(&a->shared_gate, &b->shared_gate) &&
           expert_alike(&a->shared, &b->shared) &&
           (a->count == 0 || expert_alike(&a->expert[0], &b->expert[0]));
}

/* Whether two layers have the same phases with as many items, where no adapter makes a difference.
 */
static bool layers_alike(const layer_view *a, const layer_view *b) {
    return a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_size == b->head_size &&
           a->window == b->window && a->norm_after == b->norm_after &&
           a->attention_post_norm.kind == b->attention_post_norm.kind &&
           a->feed_forward_post_norm.kind == b->feed_forward_post_norm.kind &&
           linears_alike(&a->query, &b->query) && linears_alike(&a->key, &b->key) &&
           linears_alike(&a->value, &b->value) && linears_alike(&a->output, &b->output) &&
           linears_alike(&a->gate, &b->gate) && linears_alike(&a->up, &b->up) &&
           linears_alike(&a->down, &b->down) && a->whole_norms == b->whole_norms &&
           experts_alike(&a->experts, &b->experts);
}

/* Everybody waits for the leader meanwhile, so a layer like the one before is not planned again. */
static void add_layers(phase_list *list) {
    const model_view *model = list->step->model;
    group_range own = fast_own_layers(list->step);
    uint32_t first = 0, count = 0; /* phases of the layer before */
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        fast_add_pass(list, layer);
        add_tap(list, layer);
        uint32_t begin = list->count;
        if (layer < own.first || layer >= own.end)
            continue;
        if (layer > own.first && list->step->batch->runs == 0 &&
            layers_alike(&model->layer[layer - 1], &model->layer[layer]))
            phase_list_repeat(list, first, count);
        else
            add_layer(list);
        first = begin;
        count = list->count - begin;
    }
    fast_add_pass(list, model->layers);
    add_tap(list, model->layers);
}

static void forward(const step_view *step) {
    phase_list *list = step->phases;
    uint64_t begin = step_clock(step);
    if (fast_leads(step) || fast_by_rows(step))
        reference_embed(step);
    else
        reference_angles(step);
    step_note(step, SPAN_EMBED, 0, 0, &begin);
    phase_list_begin(list, step);
    add_layers(list);
    if (fast_leads(step) || fast_by_rows(step))
        fast_add_head(list);
    phase_list_run(list);
}

static void attention(const step_view *step, uint32_t layers) {
    phase_list *list = step->phases;
    reference_angles(step);
    phase_list_begin(list, step);
    for (list->layer = 0; list->layer < layers; list->layer++)
        fast_add_attention(list, false);
    phase_list_run(list);
}

static void head(const step_view *step) {
    phase_list_begin(step->phases, step);
    fast_add_head(step->phases);
    phase_list_run(step->phases);
}

static void hidden(const step_view *step) {
    phase_list *list = step->phases;
    phase_list_begin(list, step);
    list->span = SPAN_HEAD;
    phase_list_add(list, PLACE_NONE, normed_items, fast_row_items(step->batch->logit_rows));
    phase_list_run(list);
}

void fast_backend(const op_table *ops, backend *out) {
    *out = (backend){.name = ops->name,
                     .kv_default = KV_F16,
                     .ops = ops,
                     .panels = true,
                     .scratch_bytes = fast_scratch_bytes,
                     .phases_max = phases_max,
                     .forward = forward,
                     .attention = attention,
                     .head = head,
                     .hidden = hidden};
}
