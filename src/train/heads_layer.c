/* A layer of draft heads, forward and backward: normed attention with rotated queries and keys,
 * then a gated feed-forward part, each added to its input (docs/heads.md has the formulas). EAGLE
 * runs one layer several times, a distilled draft several layers once. */
#include "train/heads_int.h"

#include "device/rotary.h"

#include <string.h>

heads_layer_pass heads_layer_pass_of(const heads_span *span, uint32_t parameter,
                                     heads_layer_run *runs, uint32_t step) {
    const heads_config *c = &span->heads->config;
    return (heads_layer_pass){.span = span,
                              .core = span->core,
                              .b = &span->heads->layer,
                              .own = &runs[step],
                              .runs = runs,
                              .step = step,
                              .parameter = parameter,
                              .config = c,
                              .first = step,
                              .rows = span->rows > step ? span->rows - step : 0,
                              .width = c->width,
                              .query = (size_t)c->attention_heads * c->head_size,
                              .kv = (size_t)c->kv_heads * c->head_size};
}

/* ---- Matrices and norms ---- */

static heads_product product_of(const heads_layer_pass *p, uint32_t number, uint32_t part,
                                size_t columns, const float *x, float *y) {
    const train_parameter *parameter = &p->core->parameters.item[number];
    return (heads_product){.parameter = parameter,
                           .first = part * (uint32_t)columns,
                           .columns = (uint32_t)columns,
                           .x = x + p->first * columns,
                           .y = y == NULL ? NULL : y + p->first * parameter->rows,
                           .rows = p->rows};
}

void heads_layer_multiply(const heads_layer_pass *p, uint32_t parameter, uint32_t part,
                          size_t columns, const float *x, float *y, bool add) {
    heads_product product = product_of(p, parameter, part, columns, x, y);
    heads_multiply(p->core, &product, add);
}

void heads_layer_multiply_back(const heads_layer_pass *p, uint32_t parameter, uint32_t part,
                               size_t columns, const float *x, const float *dy, float *dx,
                               bool add) {
    heads_product product = product_of(p, parameter, part, columns, x, NULL);
    heads_multiply_back(p->core, &product, dy + p->first * product.parameter->rows,
                        dx + p->first * columns, add);
}

heads_norm heads_layer_norm_of(const heads_layer_pass *p, uint32_t parameter, const float *x) {
    return (heads_norm){.parameter = &p->core->parameters.item[parameter],
                        .x = x + p->first * p->width,
                        .rows = p->rows};
}

void heads_layer_norm(const heads_layer_pass *p, uint32_t parameter, const float *x, float *out) {
    heads_norm own = heads_layer_norm_of(p, parameter, x);
    heads_norm_rows(p->core, &own, out + p->first * p->width);
}

void heads_layer_norm_back(const heads_layer_pass *p, uint32_t parameter, const float *x,
                           const float *dy, bool add, float *dx) {
    heads_norm own = heads_layer_norm_of(p, parameter, x);
    size_t at = p->first * p->width;
    heads_norm_back(p->core, &own, dy + at, add, dx == NULL ? NULL : dx + at);
}

void heads_layer_copy(const heads_layer_pass *p, const float *from, float *to) {
    memcpy(to + p->first * p->width, from + p->first * p->width,
           p->rows * p->width * sizeof(float));
}

/* ---- Rows ---- */

typedef struct begin_task {
    const heads_span *span;
    uint32_t behind;
} begin_task;

static void begin_rows(void *context, size_t begin, size_t end) {
    const begin_task *task = context;
    const heads_span *span = task->span;
    const struct train_heads *heads = span->heads;
    size_t pairs = heads->config.head_size / 2;
    for (size_t row = begin; row < end; row++) {
        heads_embed(span->core, span->span->sequence->tokens[span->begin + row + task->behind],
                    heads->layer.embedded + row * heads->config.width);
        rotary_angles(&heads->rotary, (uint32_t)row, heads->layer.cosine + row * pairs,
                      heads->layer.sine + row * pairs);
    }
}

void heads_layer_begin(const heads_span *span, uint32_t behind) {
    begin_task task = {span, behind};
    train_each(span->core, span->rows, 8, begin_rows, &task);
}

typedef struct rotate_task {
    const heads_layer_pass *p;
    float *x;
    uint32_t heads;
    bool back;
} rotate_task;

static void rotate_rows(void *context, size_t begin, size_t end) {
    const rotate_task *task = context;
    const struct train_heads *heads = task->p->span->heads;
    uint32_t size = heads->config.head_size, pairs = size / 2;
    for (size_t i = begin; i < end; i++) {
        size_t row = task->p->first + i;
        for (uint32_t head = 0; head < task->heads; head++)
            train_rotate(&heads->rotary, heads->layer.cosine + row * pairs,
                         heads->layer.sine + row * pairs, task->back,
                         task->x + (row * task->heads + head) * size);
    }
}

static void rotate(const heads_layer_pass *p, float *x, uint32_t heads, bool back) {
    rotate_task task = {p, x, heads, back};
    train_each(p->core, p->rows, 16, rotate_rows, &task);
}

typedef struct activate_task {
    const heads_layer_pass *p;
    bool back;
} activate_task;

static void activate_numbers(void *context, size_t begin, size_t end) {
    const activate_task *task = context;
    const heads_layer_pass *p = task->p;
    size_t at = p->first * p->config->feed_forward + begin, count = end - begin;
    const gradient_loops *loops = p->core->loops;
    if (task->back)
        loops->activate_back(ACTIVATION_SILU, p->own->gate + at, p->own->up + at,
                             p->b->dactive + at, count, p->b->dgate + at, p->b->dactive + at);
    else
        loops->activate(ACTIVATION_SILU, p->own->gate + at, p->own->up + at, count,
                        p->own->active + at);
}

static void activate(const heads_layer_pass *p, bool back) {
    activate_task task = {p, back};
    train_each(p->core, p->rows * p->config->feed_forward, 8192, activate_numbers, &task);
}

void heads_layer_clear_keys(const heads_span *span, uint32_t runs) {
    const heads_config *c = &span->heads->config;
    size_t keys = (size_t)span->rows * c->kv_heads * c->head_size;
    for (uint32_t i = 0; i < runs; i++) {
        memset(span->heads->layer.run[i].dkey, 0, keys * sizeof(float));
        memset(span->heads->layer.run[i].dvalue, 0, keys * sizeof(float));
    }
}

/* ---- The layer ---- */

void heads_layer_forward(const heads_layer_pass *p) {
    const uint32_t at = p->parameter;
    heads_layer_run *s = p->own;
    heads_layer_norm(p, at + LAYER_ATTENTION_NORM, s->input, s->normed);
    heads_layer_multiply(p, at + LAYER_QUERY, 0, p->width, s->normed, s->query, false);
    heads_layer_multiply(p, at + LAYER_KEY, 0, p->width, s->normed, s->key, false);
    heads_layer_multiply(p, at + LAYER_VALUE, 0, p->width, s->normed, s->value, false);
    rotate(p, s->query, p->config->attention_heads, false);
    rotate(p, s->key, p->config->kv_heads, false);
    heads_layer_attention(p);
    heads_layer_copy(p, s->input, s->joined);
    heads_layer_multiply(p, at + LAYER_OUTPUT, 0, p->query, s->attended, s->joined, true);
    heads_layer_norm(p, at + LAYER_FEED_FORWARD_NORM, s->joined, s->normed_up);
    heads_layer_multiply(p, at + LAYER_GATE, 0, p->width, s->normed_up, s->gate, false);
    heads_layer_multiply(p, at + LAYER_UP, 0, p->width, s->normed_up, s->up, false);
    activate(p, false);
    heads_layer_copy(p, s->joined, s->result);
    heads_layer_multiply(p, at + LAYER_DOWN, 0, p->config->feed_forward, s->active, s->result,
                         true);
}

static void feed_forward_back(const heads_layer_pass *p) {
    const heads_layer_buffers *b = p->b;
    const heads_layer_run *s = p->own;
    const uint32_t at = p->parameter;
    heads_layer_multiply_back(p, at + LAYER_DOWN, 0, p->config->feed_forward, s->active, b->dresult,
                              b->dactive, false);
    activate(p, true);
    heads_layer_multiply_back(p, at + LAYER_GATE, 0, p->width, s->normed_up, b->dgate, b->dnormed,
                              false);
    heads_layer_multiply_back(p, at + LAYER_UP, 0, p->width, s->normed_up, b->dactive, b->dnormed,
                              true);
    heads_layer_copy(p, b->dresult, b->djoined);
    heads_layer_norm_back(p, at + LAYER_FEED_FORWARD_NORM, s->joined, b->dnormed, true, b->djoined);
}

static void attention_back(const heads_layer_pass *p) {
    const heads_layer_buffers *b = p->b;
    const heads_layer_run *s = p->own;
    const uint32_t at = p->parameter;
    heads_layer_multiply_back(p, at + LAYER_OUTPUT, 0, p->query, s->attended, b->djoined,
                              b->dattended, false);
    heads_layer_attention_back(p);
    rotate(p, b->dquery, p->config->attention_heads, true);
    rotate(p, s->dkey, p->config->kv_heads, true);
    heads_layer_multiply_back(p, at + LAYER_QUERY, 0, p->width, s->normed, b->dquery, b->dnormed,
                              false);
    heads_layer_multiply_back(p, at + LAYER_KEY, 0, p->width, s->normed, s->dkey, b->dnormed, true);
    heads_layer_multiply_back(p, at + LAYER_VALUE, 0, p->width, s->normed, s->dvalue, b->dnormed,
                              true);
    heads_layer_copy(p, b->djoined, b->dinput);
    heads_layer_norm_back(p, at + LAYER_ATTENTION_NORM, s->input, b->dnormed, true, b->dinput);
}

void heads_layer_backward(const heads_layer_pass *p) {
    feed_forward_back(p);
    attention_back(p);
}
