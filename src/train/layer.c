/* One layer forward, from the hidden states that the engine has tapped before it, and backward.
 *
 *   x = norm(h)        a = O·attention(rotate(norm(Q·x)), rotate(norm(K·x)), V·x)
 *   j = h + r·norm(a)  m = act(G·norm(j)) ⊙ U·norm(j)
 *   h' = j + r·norm(D·m)
 *
 * with the norms that the architecture has; with norm_after, they are behind the additions instead
 * of in front of the products. */
#include "train/core_int.h"

#include <string.h>

static const norm_view no_norm = {.kind = NORM_NONE};
static const train_norm no_train_norm = {.base = &no_norm};

typedef struct layer_pass {
    train_core *core;
    train_buffers *b;
    const train_layer *layer;
    const layer_view *view;
    const float *hidden; /* before the layer */
    size_t rows;
    uint32_t width;
} layer_pass;

static layer_pass pass_of(train_core *core, uint32_t layer, const float *hidden) {
    return (layer_pass){.core = core,
                        .b = &core->buffers,
                        .layer = &core->net.layer[layer],
                        .view = &core->net.view->layer[layer],
                        .hidden = hidden,
                        .rows = core->call.rows,
                        .width = core->net.view->width};
}

static float *low_of(const layer_pass *p, adapter_matrix matrix) {
    return p->b->low + (size_t)matrix * p->core->options.rows_max * p->core->rank;
}

/* ---- Groups of matrices ---- */

static train_group attention_group(const layer_pass *p) {
    const train_layer *l = p->layer;
    const train_buffers *b = p->b;
    return (train_group){.use = {{&l->query, b->query_raw, b->dquery},
                                 {&l->key, b->key_raw, b->dkey},
                                 {&l->value, b->value, b->dvalue}},
                         .count = 3,
                         .x = p->view->norm_after ? p->hidden : b->normed,
                         .rows = p->rows,
                         .low = low_of(p, ADAPTER_QUERY)};
}

static train_group output_group(const layer_pass *p, float *dout) {
    return (train_group){.use = {{&p->layer->output, p->b->projected, dout}},
                         .count = 1,
                         .x = p->b->attended,
                         .rows = p->rows,
                         .low = low_of(p, ADAPTER_OUTPUT)};
}

/* Gradients of gate and up take the places of what is not needed any more. */
static train_group gated_group(const layer_pass *p) {
    const train_layer *l = p->layer;
    const train_buffers *b = p->b;
    train_use up = {&l->up, b->up, b->dactive};
    train_group group = {.use = {{&l->gate, b->gate, b->active}, up},
                         .count = 2,
                         .x = p->view->norm_after ? b->joined : b->normed_up,
                         .rows = p->rows,
                         .low = low_of(p, ADAPTER_GATE)};
    if (l->gate.base->weight.data == NULL) {
        group.use[0] = up;
        group.count = 1;
    }
    return group;
}

static train_group down_group(const layer_pass *p, float *dout) {
    return (train_group){.use = {{&p->layer->down, p->b->down, dout}},
                         .count = 1,
                         .x = p->b->active,
                         .rows = p->rows,
                         .low = low_of(p, ADAPTER_DOWN)};
}

/* ---- Rows ---- */

/* out = x + scale · y. */
typedef struct join_task {
    const float *x, *y;
    float *out;
    float scale;
} join_task;

static void join_numbers(void *context, size_t begin, size_t end) {
    const join_task *task = context;
    for (size_t i = begin; i < end; i++)
        task->out[i] = task->x[i] + task->scale * task->y[i];
}

static void join(const layer_pass *p, const float *x, const float *y, float *out) {
    join_task task = {x, y, out, p->view->residual_scale};
    train_each(p->core, p->rows * p->width, 8192, join_numbers, &task);
}

typedef struct scale_task {
    const float *x;
    float *out;
    float scale;
} scale_task;

static void scale_numbers(void *context, size_t begin, size_t end) {
    const scale_task *task = context;
    for (size_t i = begin; i < end; i++)
        task->out[i] = task->scale * task->x[i];
}

static train_norm_rows norm_of(const layer_pass *p, const train_norm *norm, const float *x) {
    return (train_norm_rows){norm, x, p->rows, p->width};
}

typedef struct activate_task {
    const layer_pass *p;
    bool back;
} activate_task;

static void activate_numbers(void *context, size_t begin, size_t end) {
    const activate_task *task = context;
    const layer_pass *p = task->p;
    const train_buffers *b = p->b;
    const float *gate = p->layer->gate.base->weight.data == NULL ? NULL : b->gate + begin;
    size_t count = end - begin;
    if (task->back)
        p->core->loops->activate_back(p->view->activation, gate, b->up + begin, b->dactive + begin,
                                      count, b->active + begin, b->dactive + begin);
    else
        p->core->loops->activate(p->view->activation, gate, b->up + begin, count,
                                 b->active + begin);
}

static void activate(const layer_pass *p, bool back) {
    activate_task task = {p, back};
    train_each(p->core, p->rows * p->view->feed_forward, 8192, activate_numbers, &task);
}

/* ---- Forward ---- */

static void attention_forward(const layer_pass *p) {
    train_buffers *b = p->b;
    const layer_view *v = p->view;
    train_norm_rows in = norm_of(p, &p->layer->attention_norm, p->hidden);
    if (!v->norm_after)
        train_norms(p->core, &in, b->normed);
    train_group group = attention_group(p);
    train_linears(p->core, &group);
    train_positions(p->core, p->layer, v);
    train_attention(p->core, v);
    group = output_group(p, NULL);
    train_linears(p->core, &group);
    const float *added = b->projected;
    if (v->attention_post_norm.kind != NORM_NONE) {
        train_norm_rows post = norm_of(p, &p->layer->attention_post_norm, b->projected);
        train_norms(p->core, &post, b->width_a);
        added = b->width_a;
    }
    join(p, p->hidden, added, v->norm_after ? b->before : b->joined);
    train_norm_rows after = norm_of(p, &p->layer->attention_norm, b->before);
    if (v->norm_after)
        train_norms(p->core, &after, b->joined);
}

/* Whether anything reads what the down projection gives. */
static bool needs_down(const layer_pass *p) {
    return p->view->norm_after || p->view->feed_forward_post_norm.kind != NORM_NONE ||
           p->layer->down.gain != NULL;
}

static void feed_forward_forward(const layer_pass *p) {
    train_buffers *b = p->b;
    const layer_view *v = p->view;
    train_norm_rows in = norm_of(p, &p->layer->feed_forward_norm, b->joined);
    if (!v->norm_after)
        train_norms(p->core, &in, b->normed_up);
    train_group group = gated_group(p);
    train_linears(p->core, &group);
    activate(p, false);
    group = down_group(p, NULL);
    if (needs_down(p))
        train_linears(p->core, &group);
    else
        train_low(p->core, &group);
    if (!v->norm_after)
        return;
    const float *added = b->down;
    if (v->feed_forward_post_norm.kind != NORM_NONE) {
        train_norm_rows post = norm_of(p, &p->layer->feed_forward_post_norm, b->down);
        train_norms(p->core, &post, b->width_a);
        added = b->width_a;
    }
    join(p, b->joined, added, b->after);
}

void train_layer_forward(train_core *core, uint32_t layer, const float *hidden) {
    layer_pass p = pass_of(core, layer, hidden);
    attention_forward(&p);
    feed_forward_forward(&p);
}

/* ---- Backward ---- */

static void norms_back(const layer_pass *p, const train_norm *norm, const float *x, const float *dy,
                       bool add, float *dx) {
    train_norm_rows rows = norm_of(p, norm, x);
    train_norms_backward(p->core, &rows, dy, 1, p->core->call.part, p->core->call.spans, add, dx);
}

static void linears_back(const layer_pass *p, const train_group *group, float *dx) {
    train_linears_backward(p->core, group, p->core->call.part, p->core->call.spans, dx, false);
}

/* The derivative by what a product gave, from that by the residual behind it: scaled, and back
 * through the norm behind the product. In width_a. */
static void added_back(const layer_pass *p, const train_norm *post, const float *product) {
    scale_task task = {p->b->hidden, p->b->width_a, p->view->residual_scale};
    train_each(p->core, p->rows * p->width, 8192, scale_numbers, &task);
    if (post->base->kind != NORM_NONE)
        norms_back(p, post, product, p->b->width_a, false, p->b->width_a);
}

static void feed_forward_back(const layer_pass *p) {
    train_buffers *b = p->b;
    const train_layer *l = p->layer;
    bool after = p->view->norm_after;
    if (after)
        norms_back(p, &l->feed_forward_norm, b->after, b->hidden, false, b->hidden);
    added_back(p, &l->feed_forward_post_norm, b->down);
    train_group group = down_group(p, b->width_a);
    linears_back(p, &group, b->dactive);
    activate(p, true);
    group = gated_group(p);
    linears_back(p, &group, b->width_a);
    norms_back(p, after ? &no_train_norm : &l->feed_forward_norm, b->joined, b->width_a, true,
               b->hidden);
}

static void attention_back(const layer_pass *p, bool input) {
    train_buffers *b = p->b;
    const train_layer *l = p->layer;
    bool after = p->view->norm_after;
    if (after)
        norms_back(p, &l->attention_norm, b->before, b->hidden, false, b->hidden);
    added_back(p, &l->attention_post_norm, b->projected);
    train_group group = output_group(p, b->width_a);
    linears_back(p, &group, b->dattended);
    train_attention_backward(p->core, p->view);
    train_positions_backward(p->core, l, p->view);
    group = attention_group(p);
    bool norm_trained = l->attention_norm.dweight != NULL && !after;
    linears_back(p, &group, input || norm_trained ? b->width_a : NULL);
    if (input || norm_trained)
        norms_back(p, after ? &no_train_norm : &l->attention_norm, p->hidden, b->width_a, true,
                   input ? b->hidden : NULL);
}

void train_layer_backward(train_core *core, uint32_t layer, const float *hidden, bool input) {
    layer_pass p = pass_of(core, layer, hidden);
    feed_forward_back(&p);
    attention_back(&p, input);
}
