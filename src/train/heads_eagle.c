/* An EAGLE layer whose drafts are unrolled: draft 0 of every row has the state of true taps, draft
 * s + 1 of row r the output of draft s of row r − 1, as in use. docs/heads.md has the formulas.
 * Backward, the drafts are taken in the opposite order: keys and values of a draft then have the
 * derivatives of all that saw them, and its output that of the next draft's state. */
#include "train/heads_int.h"

#include "device/rotary.h"

#include <string.h>

/* A draft of the rows that have it: [first, span->rows). */
typedef struct eagle_pass {
    const heads_span *span;
    train_core *core;
    eagle_buffers *b;
    eagle_step *s;
    const heads_config *config;
    uint32_t step;
    size_t first, rows, width, query, kv;
} eagle_pass;

static eagle_pass pass_of(const heads_span *span, uint32_t step) {
    const heads_config *c = &span->heads->config;
    return (eagle_pass){.span = span,
                        .core = span->core,
                        .b = &span->heads->eagle,
                        .s = &span->heads->eagle.step[step],
                        .config = c,
                        .step = step,
                        .first = step,
                        .rows = span->rows > step ? span->rows - step : 0,
                        .width = c->width,
                        .query = (size_t)c->attention_heads * c->head_size,
                        .kv = (size_t)c->kv_heads * c->head_size};
}

static const train_parameter *parameter_of(const train_core *core, eagle_parameter number) {
    return &core->parameters.item[number];
}

/* The product with columns [part · columns, …) of a matrix, of the pass's rows. */
static heads_product product_of(const eagle_pass *p, eagle_parameter number, uint32_t part,
                                size_t columns, const float *x, float *y) {
    const train_parameter *parameter = parameter_of(p->core, number);
    return (heads_product){.parameter = parameter,
                           .first = part * (uint32_t)columns,
                           .columns = (uint32_t)columns,
                           .x = x + p->first * columns,
                           .y = y == NULL ? NULL : y + p->first * parameter->rows,
                           .rows = p->rows};
}

static void multiply(const eagle_pass *p, eagle_parameter number, uint32_t part, size_t columns,
                     const float *x, float *y, bool add) {
    heads_product product = product_of(p, number, part, columns, x, y);
    heads_multiply(p->core, &product, add);
}

static void multiply_back(const eagle_pass *p, eagle_parameter number, uint32_t part,
                          size_t columns, const float *x, const float *dy, float *dx, bool add) {
    heads_product product = product_of(p, number, part, columns, x, NULL);
    heads_multiply_back(p->core, &product, dy + p->first * product.parameter->rows,
                        dx + p->first * columns, add);
}

static heads_norm norm_of(const eagle_pass *p, eagle_parameter number, const float *x) {
    return (heads_norm){
        .parameter = parameter_of(p->core, number), .x = x + p->first * p->width, .rows = p->rows};
}

static void norm(const eagle_pass *p, eagle_parameter number, const float *x, float *out) {
    heads_norm own = norm_of(p, number, x);
    heads_norm_rows(p->core, &own, out + p->first * p->width);
}

static void norm_back(const eagle_pass *p, eagle_parameter number, const float *x, const float *dy,
                      bool add, float *dx) {
    heads_norm own = norm_of(p, number, x);
    size_t at = p->first * p->width;
    heads_norm_back(p->core, &own, dy + at, add, dx == NULL ? NULL : dx + at);
}

/* Of the pass's rows. */
static void copy(const eagle_pass *p, const float *from, float *to) {
    memcpy(to + p->first * p->width, from + p->first * p->width,
           p->rows * p->width * sizeof(float));
}

/* ---- Rows ---- */

typedef struct rotate_task {
    const eagle_pass *p;
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
            train_rotate(&heads->rotary, heads->eagle.cosine + row * pairs,
                         heads->eagle.sine + row * pairs, task->back,
                         task->x + (row * task->heads + head) * size);
    }
}

static void rotate(const eagle_pass *p, float *x, uint32_t heads, bool back) {
    rotate_task task = {p, x, heads, back};
    train_each(p->core, p->rows, 16, rotate_rows, &task);
}

typedef struct activate_task {
    const eagle_pass *p;
    bool back;
} activate_task;

static void activate_numbers(void *context, size_t begin, size_t end) {
    const activate_task *task = context;
    const eagle_pass *p = task->p;
    size_t at = p->first * p->config->feed_forward + begin, count = end - begin;
    const gradient_loops *loops = p->core->loops;
    if (task->back)
        loops->activate_back(ACTIVATION_SILU, p->s->gate + at, p->s->up + at, p->b->dactive + at,
                             count, p->b->dgate + at, p->b->dactive + at);
    else
        loops->activate(ACTIVATION_SILU, p->s->gate + at, p->s->up + at, count, p->s->active + at);
}

static void activate(const eagle_pass *p, bool back) {
    activate_task task = {p, back};
    train_each(p->core, p->rows * p->config->feed_forward, 8192, activate_numbers, &task);
}

/* Embeddings of the tokens behind the rows, and angles of the rows. */
static void input_rows(void *context, size_t begin, size_t end) {
    const heads_span *span = context;
    const struct train_heads *heads = span->heads;
    size_t pairs = heads->config.head_size / 2;
    for (size_t row = begin; row < end; row++) {
        heads_embed(span->core, span->span->sequence->tokens[span->begin + row + 1],
                    heads->eagle.embedded + row * heads->config.width);
        rotary_angles(&heads->rotary, (uint32_t)row, heads->eagle.cosine + row * pairs,
                      heads->eagle.sine + row * pairs);
    }
}

/* ---- Forward ---- */

static const float *tap_rows(const heads_span *span, uint32_t tap) {
    return span->heads->tap[tap] +
           (size_t)(span->span->first + span->begin) * span->heads->config.width;
}

static void first_state(const eagle_pass *p) {
    for (uint32_t t = 0; t < p->config->taps; t++) {
        heads_norm tap = norm_of(p, EAGLE_TAP_NORM, tap_rows(p->span, t));
        tap.row = t;
        heads_norm_rows(p->core, &tap, p->b->tap_normed[t]);
        multiply(p, EAGLE_FUSE, t, p->width, p->b->tap_normed[t], p->s->state, t > 0);
    }
}

static void forward_step(const eagle_pass *p) {
    const eagle_buffers *b = p->b;
    eagle_step *s = p->s;
    norm(p, EAGLE_STATE_NORM, s->state, s->state_normed);
    multiply(p, EAGLE_INPUT, 0, p->width, s->state_normed, s->input, false);
    multiply(p, EAGLE_INPUT, 1, p->width, b->token_normed, s->input, true);
    norm(p, EAGLE_ATTENTION_NORM, s->input, s->normed);
    multiply(p, EAGLE_QUERY, 0, p->width, s->normed, s->query, false);
    multiply(p, EAGLE_KEY, 0, p->width, s->normed, s->key, false);
    multiply(p, EAGLE_VALUE, 0, p->width, s->normed, s->value, false);
    rotate(p, s->query, p->config->attention_heads, false);
    rotate(p, s->key, p->config->kv_heads, false);
    eagle_attention(p->span, p->step);
    copy(p, s->input, s->joined);
    multiply(p, EAGLE_OUTPUT, 0, p->query, s->attended, s->joined, true);
    norm(p, EAGLE_FEED_FORWARD_NORM, s->joined, s->normed_up);
    multiply(p, EAGLE_GATE, 0, p->width, s->normed_up, s->gate, false);
    multiply(p, EAGLE_UP, 0, p->width, s->normed_up, s->up, false);
    activate(p, false);
    copy(p, s->joined, s->result);
    multiply(p, EAGLE_DOWN, 0, p->config->feed_forward, s->active, s->result, true);
    norm(p, EAGLE_OUTPUT_NORM, s->result, p->span->heads->output[p->step]);
}

void eagle_forward(const heads_span *span) {
    train_each(span->core, span->rows, 8, input_rows, (void *)(uintptr_t)span);
    for (uint32_t step = 0; step < span->heads->drafts && step < span->rows; step++) {
        eagle_pass p = pass_of(span, step);
        if (step == 0) {
            norm(&p, EAGLE_TOKEN_NORM, p.b->embedded, p.b->token_normed);
            first_state(&p);
        } else {
            memcpy(p.s->state + p.first * p.width,
                   p.b->step[step - 1].result + (p.first - 1) * p.width,
                   p.rows * p.width * sizeof(float));
        }
        forward_step(&p);
    }
}

/* ---- Backward ---- */

static void feed_forward_back(const eagle_pass *p) {
    const eagle_buffers *b = p->b;
    const eagle_step *s = p->s;
    multiply_back(p, EAGLE_DOWN, 0, p->config->feed_forward, s->active, b->dresult, b->dactive,
                  false);
    activate(p, true);
    multiply_back(p, EAGLE_GATE, 0, p->width, s->normed_up, b->dgate, b->dnormed, false);
    multiply_back(p, EAGLE_UP, 0, p->width, s->normed_up, b->dactive, b->dnormed, true);
    copy(p, b->dresult, b->djoined);
    norm_back(p, EAGLE_FEED_FORWARD_NORM, s->joined, b->dnormed, true, b->djoined);
}

static void attention_back(const eagle_pass *p) {
    const eagle_buffers *b = p->b;
    const eagle_step *s = p->s;
    multiply_back(p, EAGLE_OUTPUT, 0, p->query, s->attended, b->djoined, b->dattended, false);
    eagle_attention_back(p->span, p->step);
    rotate(p, b->dquery, p->config->attention_heads, true);
    rotate(p, s->dkey, p->config->kv_heads, true);
    multiply_back(p, EAGLE_QUERY, 0, p->width, s->normed, b->dquery, b->dnormed, false);
    multiply_back(p, EAGLE_KEY, 0, p->width, s->normed, s->dkey, b->dnormed, true);
    multiply_back(p, EAGLE_VALUE, 0, p->width, s->normed, s->dvalue, b->dnormed, true);
    copy(p, b->djoined, b->dinput);
    norm_back(p, EAGLE_ATTENTION_NORM, s->input, b->dnormed, true, b->dinput);
}

/* To dstate. */
static void input_back(const eagle_pass *p) {
    const eagle_buffers *b = p->b;
    multiply_back(p, EAGLE_INPUT, 1, p->width, b->token_normed, b->dinput, b->dnormed, false);
    norm_back(p, EAGLE_TOKEN_NORM, b->embedded, b->dnormed, false, NULL);
    multiply_back(p, EAGLE_INPUT, 0, p->width, p->s->state_normed, b->dinput, b->dnormed, false);
    norm_back(p, EAGLE_STATE_NORM, p->s->state, b->dnormed, false, b->dstate);
}

static void first_state_back(const eagle_pass *p) {
    for (uint32_t t = 0; t < p->config->taps; t++) {
        heads_norm tap = norm_of(p, EAGLE_TAP_NORM, tap_rows(p->span, t));
        tap.row = t;
        multiply_back(p, EAGLE_FUSE, t, p->width, p->b->tap_normed[t], p->b->dstate, p->b->dnormed,
                      false);
        heads_norm_back(p->core, &tap, p->b->dnormed, false, NULL);
    }
}

/* What the states of the draft give to the outputs of the one before it. */
static void hand_on(const eagle_pass *p) {
    size_t bytes = p->width * sizeof(float);
    float *to = p->b->dnext + (p->first - 1) * p->width;
    memcpy(to, p->b->dstate + p->first * p->width, p->rows * bytes);
    memset(to + p->rows * p->width, 0, bytes); /* nothing is behind the last row */
}

typedef struct add_task {
    const float *from;
    float *to;
} add_task;

static void add_numbers(void *context, size_t begin, size_t end) {
    const add_task *task = context;
    for (size_t i = begin; i < end; i++)
        task->to[i] += task->from[i];
}

static void backward_step(const eagle_pass *p, bool last) {
    const eagle_buffers *b = p->b;
    size_t at = p->first * p->width;
    norm_back(p, EAGLE_OUTPUT_NORM, p->s->result, p->span->heads->doutput[p->step], false,
              b->dresult);
    add_task task = {b->dnext + at, b->dresult + at};
    if (!last)
        train_each(p->core, p->rows * p->width, 8192, add_numbers, &task);
    feed_forward_back(p);
    attention_back(p);
    input_back(p);
    if (p->step > 0)
        hand_on(p);
    else
        first_state_back(p);
}

void eagle_backward(const heads_span *span) {
    uint32_t drafts = span->heads->drafts < span->rows ? span->heads->drafts : span->rows;
    size_t keys = (size_t)span->rows * span->heads->config.kv_heads * span->heads->config.head_size;
    for (uint32_t step = 0; step < drafts; step++) {
        memset(span->heads->eagle.step[step].dkey, 0, keys * sizeof(float));
        memset(span->heads->eagle.step[step].dvalue, 0, keys * sizeof(float));
    }
    for (uint32_t step = drafts; step-- > 0;) {
        eagle_pass p = pass_of(span, step);
        backward_step(&p, step + 1 == drafts);
    }
}
