/* The reference back end: the phases of a step, composed from plain operations. */
#include "kernels/ref/ref_int.h"

#include "base/checked.h"
#include "base/mathd.h"
#include "base/mathf.h"
#include "kernels/kv_tile.h"

#include <string.h>

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

static void embed(const step_view *step, uint32_t worker) {
    const model_view *model = step->model;
    const scratch_view *scratch = step->scratch;
    uint32_t rows = step->batch->rows;
    reference_run(step, worker, embed_worker, (void *)(uintptr_t)step);
    if (model->embedding_project.weight.data != NULL) {
        reference_show(step, worker, 0, OBSERVED_PROJECT_IN, scratch->normed, model->embedding.k,
                       step->batch->rows, model->embedding.k);
        reference_linear(step, worker, &model->embedding_project, scratch->normed,
                         model->embedding.k, rows, scratch->hidden, model->width);
    }
    if (model->position_embedding.data != NULL)
        reference_run(step, worker, learned_position_worker, (void *)(uintptr_t)step);
    if (model->embedding_norm.kind != NORM_NONE)
        reference_norm(step, worker, &model->embedding_norm, scratch->hidden, model->width, rows,
                       model->width, scratch->hidden, model->width);
    reference_angles(step, worker);
}

/* ---- attention ---- */

static const norm_view no_norm = {.kind = NORM_NONE};

static void attention_input(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    uint32_t rows = step->batch->rows;
    size_t width = step->model->width;
    reference_norm(step, worker, layer->norm_after ? &no_norm : &layer->attention_norm,
                   scratch->hidden, width, rows, (uint32_t)width, scratch->normed, width);
    reference_show(step, worker, number, OBSERVED_ATTENTION, scratch->normed, width, rows,
                   (uint32_t)width);
    reference_linear(step, worker, &layer->query, scratch->normed, width, rows, scratch->query,
                     layer->query.weight.rows);
    reference_linear(step, worker, &layer->key, scratch->normed, width, rows, scratch->key,
                     layer->key.weight.rows);
    reference_linear(step, worker, &layer->value, scratch->normed, width, rows, scratch->value,
                     layer->value.weight.rows);
    reference_position(step, number, worker);
}

/* hidden += scale · norm(projected), and the norm behind it where the architecture has it so. */
typedef struct residual_task {
    const step_view *step;
    const norm_view *post_norm;
    const norm_view *after_norm;
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
        reference_norm_vector(task->post_norm, projected, width, projected);
        for (uint32_t i = 0; i < width; i++)
            hidden[i] += projected[i] * task->scale;
        reference_norm_vector(task->after_norm, hidden, width, hidden);
    }
}

static void add_residual(const step_view *step, uint32_t worker, const layer_view *layer,
                         const norm_view *post_norm, const norm_view *own_norm) {
    residual_task task = {step, post_norm, layer->norm_after ? own_norm : &no_norm,
                          layer->residual_scale};
    reference_run(step, worker, residual_worker, &task);
}

static void attention_output(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    reference_show(step, worker, number, OBSERVED_OUTPUT, scratch->attended, layer->output.weight.k,
                   step->batch->rows, layer->output.weight.k);
    reference_linear(step, worker, &layer->output, scratch->attended, layer->output.weight.k,
                     step->batch->rows, scratch->projected, step->model->width);
    add_residual(step, worker, layer, &layer->attention_post_norm, &layer->attention_norm);
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
    }
    return x;
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
            scratch->up[i] *= reference_activate(task->layer->activation, scratch->gated[i]);
        else
            scratch->up[i] = reference_activate(task->layer->activation, scratch->up[i]);
    }
}

static void feed_forward_input(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    uint32_t rows = step->batch->rows;
    size_t width = step->model->width;
    reference_norm(step, worker, layer->norm_after ? &no_norm : &layer->feed_forward_norm,
                   scratch->hidden, width, rows, (uint32_t)width, scratch->normed, width);
    reference_show(step, worker, number, OBSERVED_FEED_FORWARD, scratch->normed, width, rows,
                   (uint32_t)width);
    if (layer->gate.weight.data != NULL)
        reference_linear(step, worker, &layer->gate, scratch->normed, width, rows, scratch->gated,
                         layer->feed_forward);
    reference_linear(step, worker, &layer->up, scratch->normed, width, rows, scratch->up,
                     layer->feed_forward);
    activation_task task = {step, layer};
    reference_run(step, worker, activation_worker, &task);
}

static void feed_forward_output(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    reference_show(step, worker, number, OBSERVED_DOWN, scratch->up, layer->feed_forward,
                   step->batch->rows, layer->feed_forward);
    reference_linear(step, worker, &layer->down, scratch->up, layer->feed_forward,
                     step->batch->rows, scratch->projected, step->model->width);
    add_residual(step, worker, layer, &layer->feed_forward_post_norm, &layer->feed_forward_norm);
}

/* ---- head ---- */

static void head_norm_worker(void *context, uint32_t worker, uint32_t workers) {
    const step_view *step = context;
    size_t width = step->model->width;
    size_t begin;
    size_t end;
    team_share(step->batch->logit_rows, worker, workers, &begin, &end);
    for (size_t i = begin; i < end; i++)
        reference_norm_vector(&step->model->final_norm,
                              step->scratch->hidden + step->batch->logit_row[i] * width,
                              (uint32_t)width, step->scratch->normed + i * width);
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
    for (size_t row = begin; row < end; row++)
        top_of_row(step->scratch->logits + row * step->model->vocabulary, step->model->vocabulary,
                   step->batch->top, &step->scratch->top[row]);
}

static void head(const step_view *step, uint32_t worker) {
    const model_view *model = step->model;
    const scratch_view *scratch = step->scratch;
    const batch_view *batch = step->batch;
    if (batch->logit_rows == 0)
        return;
    reference_run(step, worker, head_norm_worker, (void *)(uintptr_t)step);
    const float *from = scratch->normed;
    if (model->head_project.weight.data != NULL) {
        reference_show(step, worker, 0, OBSERVED_PROJECT_OUT, scratch->normed, model->width,
                       batch->logit_rows, model->width);
        reference_linear(step, worker, &model->head_project, scratch->normed, model->width,
                         batch->logit_rows, scratch->projected, model->head.weight.k);
        from = scratch->projected;
    }
    reference_show(step, worker, 0, OBSERVED_HEAD, from, model->head.weight.k, batch->logit_rows,
                   model->head.weight.k);
    reference_linear(step, worker, &model->head, from, model->head.weight.k, batch->logit_rows,
                     scratch->logits, model->vocabulary);
    if (model->logit_scale != 1.0f || model->logit_softcap != 0.0f)
        reference_run(step, worker, finish_logits_worker, (void *)(uintptr_t)step);
    if (batch->top > 0)
        reference_run(step, worker, top_worker, (void *)(uintptr_t)step);
}

/* A decoded panel, or the scores of one row and head beside a decoded tile. */
static bool scratch_bytes(const scratch_shape *shape, size_t *worker, size_t *shared) {
    size_t panel = (size_t)shape->model->k_max * QUANT_PANEL_ROWS;
    size_t tile = 0;
    for (uint32_t i = 0; i < shape->model->layers; i++)
        tile = size_max(tile, kv_tile_floats(shape->model->layer[i].head_size));
    size_t scores = (size_t)shape->context_max + KV_PAGE_TOKENS + tile;
    *shared = 0;
    return size_multiply(size_max(panel, scores), sizeof(float), worker) &&
           size_round_up(*worker, 64, worker);
}

static const backend reference = {
    .name = "ref",
    .kv_default = KV_F32,
    .scratch_bytes = scratch_bytes,
    .embed = embed,
    .attention_input = attention_input,
    .attention = reference_attention,
    .attention_output = attention_output,
    .feed_forward_input = feed_forward_input,
    .feed_forward_output = feed_forward_output,
    .head = head,
};

const backend *backend_reference(void) {
    return &reference;
}
