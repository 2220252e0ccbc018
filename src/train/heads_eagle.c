/* An EAGLE layer whose drafts are unrolled: draft 0 of every row has the state of true taps, draft
 * s + 1 of row r the output of draft s of row r − 1, as in use. docs/heads.md has the formulas.
 * Backward, the drafts are taken in the opposite order: keys and values of a draft then have the
 * derivatives of all that saw them, and its output that of the next draft's state. */
#include "train/heads_int.h"

#include <string.h>

static heads_layer_pass pass_of(const heads_span *span, uint32_t step) {
    return heads_layer_pass_of(span, EAGLE_LAYER, span->heads->layer.run, step);
}

/* ---- Forward ---- */

static const float *tap_rows(const heads_span *span, uint32_t tap) {
    return span->heads->tap[tap] +
           (size_t)(span->span->first + span->begin) * span->heads->config.width;
}

static void first_state(const heads_layer_pass *p) {
    for (uint32_t t = 0; t < p->config->taps; t++) {
        heads_norm tap = heads_layer_norm_of(p, EAGLE_TAP_NORM, tap_rows(p->span, t));
        tap.row = t;
        heads_norm_rows(p->core, &tap, p->b->tap_normed[t]);
        heads_layer_multiply(p, EAGLE_FUSE, t, p->width, p->b->tap_normed[t], p->own->state, t > 0);
    }
}

static void forward_step(const heads_layer_pass *p) {
    heads_layer_run *s = p->own;
    heads_layer_norm(p, EAGLE_STATE_NORM, s->state, s->state_normed);
    heads_layer_multiply(p, EAGLE_INPUT, 0, p->width, s->state_normed, s->input, false);
    heads_layer_multiply(p, EAGLE_INPUT, 1, p->width, p->b->token_normed, s->input, true);
    heads_layer_forward(p);
    heads_layer_norm(p, EAGLE_OUTPUT_NORM, s->result, p->span->heads->output[p->step]);
}

void eagle_forward(const heads_span *span) {
    heads_layer_begin(span, 1);
    for (uint32_t step = 0; step < span->heads->drafts && step < span->rows; step++) {
        heads_layer_pass p = pass_of(span, step);
        if (step == 0) {
            heads_layer_norm(&p, EAGLE_TOKEN_NORM, p.b->embedded, p.b->token_normed);
            first_state(&p);
        } else {
            memcpy(p.own->state + p.first * p.width,
                   p.runs[step - 1].result + (p.first - 1) * p.width,
                   p.rows * p.width * sizeof(float));
        }
        forward_step(&p);
    }
}

/* ---- Backward ---- */

/* To dstate. */
static void input_back(const heads_layer_pass *p) {
    const heads_layer_buffers *b = p->b;
    heads_layer_multiply_back(p, EAGLE_INPUT, 1, p->width, b->token_normed, b->dinput, b->dnormed,
                              false);
    heads_layer_norm_back(p, EAGLE_TOKEN_NORM, b->embedded, b->dnormed, false, NULL);
    heads_layer_multiply_back(p, EAGLE_INPUT, 0, p->width, p->own->state_normed, b->dinput,
                              b->dnormed, false);
    heads_layer_norm_back(p, EAGLE_STATE_NORM, p->own->state, b->dnormed, false, b->dstate);
}

static void first_state_back(const heads_layer_pass *p) {
    for (uint32_t t = 0; t < p->config->taps; t++) {
        heads_norm tap = heads_layer_norm_of(p, EAGLE_TAP_NORM, tap_rows(p->span, t));
        tap.row = t;
        heads_layer_multiply_back(p, EAGLE_FUSE, t, p->width, p->b->tap_normed[t], p->b->dstate,
                                  p->b->dnormed, false);
        heads_norm_back(p->core, &tap, p->b->dnormed, false, NULL);
    }
}

/* What the states of the draft give to the outputs of the one before it. */
static void hand_on(const heads_layer_pass *p) {
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

static void backward_step(const heads_layer_pass *p, bool last) {
    const heads_layer_buffers *b = p->b;
    size_t at = p->first * p->width;
    heads_layer_norm_back(p, EAGLE_OUTPUT_NORM, p->own->result, p->span->heads->doutput[p->step],
                          false, b->dresult);
    add_task task = {b->dnext + at, b->dresult + at};
    if (!last)
        train_each(p->core, p->rows * p->width, 8192, add_numbers, &task);
    heads_layer_backward(p);
    input_back(p);
    if (p->step > 0)
        hand_on(p);
    else
        first_state_back(p);
}

void eagle_backward(const heads_span *span) {
    uint32_t drafts = span->heads->drafts < span->rows ? span->heads->drafts : span->rows;
    heads_layer_clear_keys(span, drafts);
    for (uint32_t step = drafts; step-- > 0;) {
        heads_layer_pass p = pass_of(span, step);
        backward_step(&p, step + 1 == drafts);
    }
}
