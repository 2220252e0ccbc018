/* The reference back end: the phases of a step, composed from plain operations. */
#include "device/cpu/ref/ref_int.h"

#include "base/checked.h"
#include "base/mathd.h"
#include "base/mathf.h"
#include "device/cpu/phases/program.h"
#include "device/kv_tile.h"

#include <string.h>

/* ---- Shares ---- */

#define ROWS_FEW 8

typedef struct share_task {
    team_task task;
    void *context;
    uint32_t shares;
} share_task;

static void compute_shares(const void *context, uint32_t argument, team_items *items) {
    const share_task *own = context;
    uint32_t share;
    (void)argument;
    while (team_take(items, &share))
        own->task(own->context, share, own->shares);
}

void reference_run(const step_view *step, team_task task, void *context) {
    share_task own = {task, context, team_size(step->team)};
    team_phase phase = {.compute = compute_shares, .items = own.shares};
    team_run(step->team, &phase, 1, &own);
}

void reference_run_rows(const step_view *step, team_task task, void *context) {
    if (step->batch->rows <= ROWS_FEW)
        task(context, 0, 1);
    else
        reference_run(step, task, context);
}

typedef struct show_task {
    const step_observer *observer;
    uint32_t layer;
    observed_input input;
    const float *x;
    size_t stride;
    uint32_t rows, k;
} show_task;

static void show_worker(void *context, uint32_t worker, uint32_t workers) {
    const show_task *own = context;
    (void)workers;
    own->observer->see(own->observer->context, worker, own->layer, own->input, own->x, own->stride,
                       own->rows, own->k);
}

void reference_show(const step_view *step, uint32_t layer, observed_input input, const float *x,
                    size_t stride, uint32_t rows, uint32_t k) {
    show_task own = {step->observer, layer, input, x, stride, rows, k};
    if (step->observer != NULL)
        reference_run(step, show_worker, &own);
}

/* ---- embed ---- */

static void embed_worker(void *context, uint32_t worker, uint32_t workers) {
    const step_view *step = context;
    const model_view *model = step->model;
    float *row_scratch = reference_worker_scratch(step, worker);
    bool project = model->embedding_project.weight.data != NULL;
    float *base = project ? step->scratch->normed : step->scratch->hidden;
    size_t width = model->embedding.k;
    size_t begin;
    size_t end;
    team_share(step->batch->rows, worker, workers, &begin, &end);
    if (step->batch->input != NULL) {
        memcpy(base + begin * width, step->batch->input + begin * width,
               (end - begin) * width * sizeof(float));
        return;
    }
    for (size_t row = begin; row < end; row++) {
        weight_decode_row(&model->embedding, (size_t)step->batch->token[row], row_scratch);
        float *out = base + row * width;
        for (size_t i = 0; i < width; i++)
            out[i] = row_scratch[i] * model->embedding_scale;
    }
}

static void learned_position_worker(void *context, uint32_t worker, uint32_t workers) {
    const step_view *step = context;
    const model_view *model = step->model;
    float *row_scratch = reference_worker_scratch(step, worker);
    size_t begin;
    size_t end;
    team_share(step->batch->rows, worker, workers, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        size_t position = (size_t)step->batch->position[row] + model->position_offset;
        weight_decode_row(&model->position_embedding, position, row_scratch);
        float *hidden = step->scratch->hidden + row * model->width;
        for (size_t i = 0; i < model->width; i++)
            hidden[i] += row_scratch[i];
    }
}

/* No adapter changes this one. */
static void embedding_norm_worker(void *context, uint32_t worker, uint32_t workers) {
    const step_view *step = context;
    uint32_t width = step->model->width;
    size_t begin;
    size_t end;
    team_share(step->batch->rows, worker, workers, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        float *hidden = step->scratch->hidden + row * width;
        reference_norm_vector(&step->model->embedding_norm, hidden, width, hidden);
    }
}

void reference_embed(const step_view *step) {
    const model_view *model = step->model;
    const scratch_view *scratch = step->scratch;
    uint32_t rows = step->batch->rows;
    bool project = model->embedding_project.weight.data != NULL;
    reference_run_rows(step, embed_worker, (void *)(uintptr_t)step);
    reference_adapt_embedding(step, project ? scratch->normed : scratch->hidden,
                              model->embedding.k);
    if (project) {
        reference_show(step, 0, OBSERVED_PROJECT_IN, scratch->normed, model->embedding.k,
                       step->batch->rows, model->embedding.k);
        reference_linear(step, &model->embedding_project, scratch->normed, model->embedding.k, rows,
                         scratch->hidden, model->width);
    }
    if (model->position_embedding.data != NULL)
        reference_run_rows(step, learned_position_worker, (void *)(uintptr_t)step);
    if (model->embedding_norm.kind != NORM_NONE)
        reference_run_rows(step, embedding_norm_worker, (void *)(uintptr_t)step);
    reference_angles(step);
}

/* ---- attention ---- */

static const norm_view no_norm = {.kind = NORM_NONE};

/* The product of a matrix with all rows of the batch, and what adapters add to it. */
static void project(const step_view *step, uint32_t layer, adapter_matrix matrix,
                    const linear_view *linear, const float *x, float *out) {
    reference_site site = {.layer = layer,
                           .matrix = matrix,
                           .x = x,
                           .x_stride = linear->weight.k,
                           .out = out,
                           .out_stride = linear->weight.rows,
                           .rows = step->batch->rows,
                           .outputs = linear->weight.rows};
    reference_linear(step, linear, x, site.x_stride, site.rows, out, site.out_stride);
    reference_adapt(step, &site);
}

static void attention_input(const step_view *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    reference_norm_site norm = {layer->norm_after ? &no_norm : &layer->attention_norm, number,
                                ADAPTER_ATTENTION_NORM};
    const float *input = number == 0 ? step->batch->attention_input : NULL;
    if (input == NULL) {
        reference_norm(step, &norm, scratch->hidden, scratch->normed);
        input = scratch->normed;
    }
    reference_show(step, number, OBSERVED_ATTENTION, input, layer->query.weight.k,
                   step->batch->rows, layer->query.weight.k);
    project(step, number, ADAPTER_QUERY, &layer->query, input, scratch->query);
    project(step, number, ADAPTER_KEY, &layer->key, input, scratch->key);
    project(step, number, ADAPTER_VALUE, &layer->value, input, scratch->value);
    reference_position(step, number);
}

/* hidden += scale · norm(projected), and the norm behind it where the architecture has it so. */
typedef struct residual_task {
    const step_view *step;
    reference_norm_site post_norm, after_norm;
    float scale;
} residual_task;

static void residual_worker(void *context, uint32_t worker, uint32_t workers) {
    const residual_task *task = context;
    uint32_t width = task->step->model->width;
    size_t begin;
    size_t end;
    team_share(task->step->batch->rows, worker, workers, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        float *projected = task->step->scratch->projected + row * width;
        float *hidden = task->step->scratch->hidden + row * width;
        reference_norm_row(task->step, worker, &task->post_norm, (uint32_t)row, projected, width,
                           projected);
        for (uint32_t i = 0; i < width; i++)
            hidden[i] += projected[i] * task->scale;
        reference_norm_row(task->step, worker, &task->after_norm, (uint32_t)row, hidden, width,
                           hidden);
    }
}

static void attention_output(const step_view *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    reference_show(step, number, OBSERVED_OUTPUT, scratch->attended, layer->output.weight.k,
                   step->batch->rows, layer->output.weight.k);
    project(step, number, ADAPTER_OUTPUT, &layer->output, scratch->attended, scratch->projected);
    residual_task task = {
        step,
        {&layer->attention_post_norm, number, ADAPTER_ATTENTION_POST_NORM},
        {layer->norm_after ? &layer->attention_norm : &no_norm, number, ADAPTER_ATTENTION_NORM},
        layer->residual_scale};
    reference_run(step, residual_worker, &task);
}

/* ---- feed-forward ---- */

float reference_activate(activation_kind kind, float x) {
    switch (kind) {
    case ACTIVATION_SILU:
        return x * math_sigmoid(x);
    case ACTIVATION_GELU_TANH:
        return 0.5f * x * (1.0f + math_tanh(0.797884561f * (x + 0.044715f * x * x * x)));
    case ACTIVATION_GELU_ERF:
        return (float)(0.5 * x * (1.0 + mathd_erf((double)x * 0.70710678118654752)));
    case ACTIVATION_RELU:
        return x > 0.0f ? x : 0.0f;
    case ACTIVATION_SWIGLU_CLIPPED: { /* without its other factor */
        float g = x < 7.0f ? x : 7.0f;
        return g * math_sigmoid(1.702f * g);
    }
    }
    return x;
}

float reference_gated(activation_kind kind, float gate, float up) {
    if (kind == ACTIVATION_SWIGLU_CLIPPED)
        up = (up < -7.0f ? -7.0f : up > 7.0f ? 7.0f : up) + 1.0f;
    return up * reference_activate(kind, gate);
}

typedef struct activation_task {
    const step_view *step;
    const layer_view *layer;
} activation_task;

static void activation_worker(void *context, uint32_t worker, uint32_t workers) {
    const activation_task *task = context;
    const scratch_view *scratch = task->step->scratch;
    bool gated = task->layer->gate.weight.data != NULL;
    size_t width = task->layer->feed_forward;
    size_t begin;
    size_t end;
    team_share(task->step->batch->rows, worker, workers, &begin, &end);
    for (size_t i = begin * width; i < end * width; i++) {
        if (gated)
            scratch->up[i] =
                reference_gated(task->layer->activation, scratch->gated[i], scratch->up[i]);
        else
            scratch->up[i] = reference_activate(task->layer->activation, scratch->up[i]);
    }
}

static void feed_forward_input(const step_view *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    reference_norm_site norm = {layer->norm_after ? &no_norm : &layer->feed_forward_norm, number,
                                ADAPTER_FEED_FORWARD_NORM};
    reference_norm(step, &norm, scratch->hidden, scratch->normed);
    reference_show(step, number, OBSERVED_FEED_FORWARD, scratch->normed, step->model->width,
                   step->batch->rows, step->model->width);
    if (layer->experts.count > 0) {
        reference_experts(step, number);
        return;
    }
    if (layer->gate.weight.data != NULL)
        project(step, number, ADAPTER_GATE, &layer->gate, scratch->normed, scratch->gated);
    project(step, number, ADAPTER_UP, &layer->up, scratch->normed, scratch->up);
    activation_task task = {step, layer};
    reference_run(step, activation_worker, &task);
}

static void feed_forward_output(const step_view *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    if (layer->experts.count == 0) {
        reference_show(step, number, OBSERVED_DOWN, scratch->up, layer->feed_forward,
                       step->batch->rows, layer->feed_forward);
        project(step, number, ADAPTER_DOWN, &layer->down, scratch->up, scratch->projected);
    }
    residual_task task = {step,
                          {&layer->feed_forward_post_norm, number, ADAPTER_FEED_FORWARD_POST_NORM},
                          {layer->norm_after ? &layer->feed_forward_norm : &no_norm, number,
                           ADAPTER_FEED_FORWARD_NORM},
                          layer->residual_scale};
    reference_run(step, residual_worker, &task);
}

/* ---- head ---- */

static void head_norm_worker(void *context, uint32_t worker, uint32_t workers) {
    const step_view *step = context;
    size_t width = step->model->width;
    size_t begin;
    size_t end;
    team_share(step->batch->logit_rows, worker, workers, &begin, &end);
    const reference_norm_site norm = {&step->model->final_norm, 0, ADAPTER_FINAL_NORM};
    for (size_t i = begin; i < end; i++) {
        uint32_t row = step->batch->logit_row[i];
        reference_norm_row(step, worker, &norm, row, step->scratch->hidden + row * width,
                           (uint32_t)width, step->scratch->normed + i * width);
    }
}

static void finish_logits_worker(void *context, uint32_t worker, uint32_t workers) {
    const step_view *step = context;
    const model_view *model = step->model;
    size_t begin;
    size_t end;
    team_share((size_t)step->batch->logit_rows * model->vocabulary, worker, workers, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        float logit = step->scratch->logits[i] * model->logit_scale;
        if (model->logit_softcap > 0.0f)
            logit = model->logit_softcap * math_tanh(logit / model->logit_softcap);
        step->scratch->logits[i] = logit;
    }
}

/* The highest logits of a row, found again and again: `top` is small, and this the plain truth. */
static void top_of_row(const float *logits, uint32_t vocabulary, uint32_t wanted, logit_top *top) {
    top->count = wanted < vocabulary ? wanted : vocabulary;
    for (uint32_t n = 0; n < top->count; n++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < vocabulary; i++) {
            bool later = n == 0 || logits[i] < top->logit[n - 1] ||
                         (logits[i] == top->logit[n - 1] && (int32_t)i > top->token[n - 1]);
            if (later && (best == UINT32_MAX ? logits[i] == logits[i] : logits[i] > logits[best]))
                best = i;
        }
        if (best == UINT32_MAX) { /* only what is no number is left */
            top->count = n;
            break;
        }
        top->logit[n] = logits[best];
        top->token[n] = (int32_t)best;
    }
    double sum = 0.0;
    double highest = top->count > 0 ? (double)top->logit[0] : 0.0;
    for (uint32_t i = 0; i < vocabulary; i++)
        sum += logits[i] == logits[i] ? mathd_exp((double)logits[i] - highest) : (double)logits[i];
    top->log_sum = mathd_log(sum);
}

static void top_worker(void *context, uint32_t worker, uint32_t workers) {
    const step_view *step = context;
    size_t begin;
    size_t end;
    team_share(step->batch->logit_rows, worker, workers, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        const float *logits = step->scratch->logits + row * step->model->vocabulary;
        top_of_row(logits, step->model->vocabulary, step->batch->top, &step->scratch->top[row]);
        if (step->batch->target != NULL)
            step->scratch->top[row].target = logits[step->batch->target[row]];
    }
}

static void hidden(const step_view *step) {
    reference_run(step, head_norm_worker, (void *)(uintptr_t)step);
}

static void head(const step_view *step) {
    const model_view *model = step->model;
    const scratch_view *scratch = step->scratch;
    const batch_view *batch = step->batch;
    if (batch->logit_rows == 0)
        return;
    reference_run(step, head_norm_worker, (void *)(uintptr_t)step);
    const float *from = scratch->normed;
    if (model->head_project.weight.data != NULL) {
        reference_show(step, 0, OBSERVED_PROJECT_OUT, scratch->normed, model->width,
                       batch->logit_rows, model->width);
        reference_linear(step, &model->head_project, scratch->normed, model->width,
                         batch->logit_rows, scratch->projected, model->head.weight.k);
        from = scratch->projected;
    }
    reference_show(step, 0, OBSERVED_HEAD, from, model->head.weight.k, batch->logit_rows,
                   model->head.weight.k);
    reference_site site = {.matrix = ADAPTER_HEAD,
                           .x = from,
                           .x_stride = model->head.weight.k,
                           .out = scratch->logits,
                           .out_stride = model->vocabulary,
                           .rows = batch->logit_rows,
                           .outputs = model->vocabulary};
    reference_linear(step, &model->head, from, site.x_stride, site.rows, scratch->logits,
                     model->vocabulary);
    reference_adapt(step, &site);
    if (model->logit_scale != 1.0f || model->logit_softcap != 0.0f)
        reference_run(step, finish_logits_worker, (void *)(uintptr_t)step);
    if (batch->top > 0)
        reference_run(step, top_worker, (void *)(uintptr_t)step);
}

/* A decoded panel, or the scores of one row and head beside a decoded tile, or a norm's weights. */
static bool scratch_bytes(const scratch_shape *shape, size_t *worker, size_t *shared) {
    size_t k = size_max(shape->model->k_max, shape->model->width);
    size_t panel = size_max(k, ADAPTER_RANK_MAX) * QUANT_PANEL_ROWS;
    size_t tile = 0;
    for (uint32_t i = 0; i < shape->model->layers; i++)
        tile = size_max(tile, kv_tile_floats(shape->model->layer[i].head_size));
    size_t scores = (size_t)shape->context_max + KV_PAGE_TOKENS + tile;
    return reference_experts_bytes(shape->model, shape->rows_max, shared) &&
           size_multiply(size_max(panel, scores), sizeof(float), worker) &&
           size_round_up(*worker, 64, worker);
}

/* ---- A step ---- */

/* Keeps the hidden states in front of `layer` where the stream taps them. */
static void tap(const step_view *step, uint32_t layer) {
    size_t width = step->model->width;
    for (uint32_t i = 0; i < step->shape->taps; i++)
        if (step->shape->tap[i] == layer)
            memcpy(step->scratch->tap + i * (size_t)step->scratch->rows_max * width,
                   step->scratch->hidden, step->batch->rows * width * sizeof(float));
}

static void attention_alone(const step_view *step, uint32_t layers) {
    reference_angles(step);
    for (uint32_t layer = 0; layer < layers; layer++) {
        reference_position(step, layer);
        reference_attention(step, layer);
    }
}

static void forward(const step_view *step) {
    uint64_t begin = step_clock(step);
    reference_embed(step);
    step_note(step, SPAN_EMBED, 0, 0, &begin);
    for (uint32_t layer = 0; layer < step->model->layers; layer++) {
        tap(step, layer);
        attention_input(step, layer);
        step_note(step, SPAN_ATTENTION_INPUT, layer, 0, &begin);
        reference_attention(step, layer);
        step_note(step, SPAN_ATTENTION, layer, 0, &begin);
        attention_output(step, layer);
        step_note(step, SPAN_ATTENTION_OUTPUT, layer, 0, &begin);
        feed_forward_input(step, layer);
        step_note(step, SPAN_FEED_FORWARD_INPUT, layer, 0, &begin);
        feed_forward_output(step, layer);
        step_note(step, SPAN_FEED_FORWARD_OUTPUT, layer, 0, &begin);
    }
    tap(step, step->model->layers);
    head(step);
    step_note(step, SPAN_HEAD, 0, 0, &begin);
}

static const backend reference = {
    .name = "ref",
    .kv_default = KV_F32,
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .attention = attention_alone,
    .head = head,
    .hidden = hidden,
};

const backend *backend_reference(void) {
    return &reference;
}
