/* The backward pass: the head (head.c), the layers from the last to the first, the embeddings. */
#include "train/core_int.h"

#include <string.h>

/* ---- Embeddings ---- */

typedef struct embedding_task {
    train_core *core;
    const float *d;
    size_t width;
    train_part part; /* rows */
} embedding_task;

/* Columns [begin, end) of the part's rows: each token's gradient is summed over rows in their
 * order. A token that occurs twice in a sequence is added twice. */
static void embedding_columns(void *context, size_t begin, size_t end) {
    const embedding_task *task = context;
    const train_call *call = &task->core->call;
    float scale = task->core->net.view->embedding_scale;
    for (size_t row = task->part.first; row < task->part.first + task->part.rows; row++) {
        float *to = task->core->net.dembedding + (size_t)call->token[row] * task->width;
        for (size_t i = begin; i < end; i++)
            to[i] += scale * task->d[row * task->width + i];
    }
}

static void position_columns(void *context, size_t begin, size_t end) {
    const embedding_task *task = context;
    const train_call *call = &task->core->call;
    for (size_t row = 0; row < call->rows; row++) {
        size_t position = (size_t)call->position[row] + task->core->net.view->position_offset;
        float *to = task->core->net.dposition + position * task->width;
        for (size_t i = begin; i < end; i++)
            to[i] += task->d[row * task->width + i];
    }
}

/* The embeddings before a projection into the width, OPT-350m's. */
static void look_up(train_core *core, float *out) {
    const model_view *view = core->net.view;
    for (size_t row = 0; row < core->call.rows; row++) {
        float *to = out + row * view->embedding.k;
        weight_decode_row(&view->embedding, (size_t)core->call.token[row], to);
        for (uint32_t i = 0; i < view->embedding.k; i++)
            to[i] *= view->embedding_scale;
    }
}

/* Head and embedding in turn, sequence by sequence. */
static avo_status tied_backward(train_core *core, embedding_task *task, const float *coefficients,
                                avo_error *error) {
    const train_call *call = &core->call;
    uint32_t at = 0;
    for (uint32_t s = 0; s < call->spans; s++) {
        uint32_t end = at;
        while (end < call->wants && call->want[end].span == s)
            end++;
        AVO_TRY(train_head_backward(core, coefficients, HEAD_WEIGHT, at, end, error));
        at = end;
        task->part = call->part[s];
        train_each(core, task->width, 16, embedding_columns, task);
    }
    return AVO_OK;
}

static avo_status embedding_backward(train_core *core, const float *coefficients,
                                     avo_error *error) {
    train_buffers *b = &core->buffers;
    const model_view *view = core->net.view;
    const train_call *call = &core->call;
    embedding_task task = {core, b->hidden, view->width, {0, call->rows}};
    if (core->net.dposition != NULL)
        train_each(core, view->width, 16, position_columns, &task);
    if (view->embedding_project.weight.data != NULL) {
        look_up(core, b->projected);
        train_group project = {.use = {{&core->net.embedding_project, NULL, b->hidden}},
                               .count = 1,
                               .x = b->projected,
                               .rows = call->rows};
        train_linears_backward(core, &project, call->part, call->spans, b->width_a, false);
        task = (embedding_task){core, b->width_a, view->embedding.k, {0, call->rows}};
    }
    if (core->net.tied)
        return tied_backward(core, &task, coefficients, error);
    train_each(core, task.width, 16, embedding_columns, &task);
    return AVO_OK;
}

/* ---- All of it ---- */

static avo_status layers_backward(train_core *core, const float *coefficients, avo_error *error) {
    train_angles(core);
    for (uint32_t layer = core->net.view->layers; layer-- > core->net.first;) {
        const float *hidden;
        AVO_TRY(engine_batch_hidden(core->batch, layer, &hidden, error));
        train_layer_forward(core, layer, hidden);
        train_layer_backward(core, layer, hidden, layer > core->net.first || core->net.input);
    }
    return core->net.input ? embedding_backward(core, coefficients, error) : AVO_OK;
}

avo_status train_backward(train_core *core, const float *coefficients, avo_error *error) {
    if (!core->call.ready)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "there is no forward pass to go back through: a backward pass follows "
                           "one that was not of the base, once");
    core->call.ready = false;
    size_t numbers = (size_t)core->call.rows * core->net.view->width;
    memset(core->buffers.hidden, 0, numbers * sizeof(float));
    avo_status status = AVO_OK;
    if (core->call.rows > 0) {
        if (core->net.head_trained)
            status = train_head_backward(core, coefficients, core->net.tied ? HEAD_INPUT : HEAD_ALL,
                                         0, core->call.wants, error);
        else
            train_head_apply(core, coefficients);
        AVO_THEN(status, layers_backward(core, coefficients, error));
    }
    train_close_sessions(core);
    return status;
}
