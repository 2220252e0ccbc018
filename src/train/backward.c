/* The backward pass: the head in chunks of rows, the layers from the last to the first, the
 * embeddings. With p = softmax(z) and c the coefficient of a row whose next token is t:
 *
 *   dz = c·(onehot(t) − p),   z = cap·tanh(y/cap): dy = dz·(1 − (z/cap)²),   y = scale·head */
#include "train/core_int.h"

#include "base/checked.h"

#include <string.h>

/* ---- The head ---- */

/* Up to TRAIN_HEAD_ROWS rows with coefficients; of one sequence where what is behind the layers is
 * trained, so that its gradients are summed sequence by sequence. */
typedef struct head_chunk {
    train_core *core;
    const train_want *want[TRAIN_HEAD_ROWS];
    const float *logits[TRAIN_HEAD_ROWS];
    float coefficient[TRAIN_HEAD_ROWS];
    uint32_t count;
} head_chunk;

static void logit_rows(void *context, size_t begin, size_t end) {
    const head_chunk *chunk = context;
    const model_view *view = chunk->core->net.view;
    float cap = view->logit_softcap;
    for (size_t row = begin; row < end; row++) {
        const train_want *want = chunk->want[row];
        const float *z = chunk->logits[row];
        float *d = chunk->core->buffers.logits + row * view->vocabulary;
        gradient_logits of = {want->highest, (float)want->log_sum, chunk->coefficient[row]};
        chunk->core->loops->logits_back(&of, z, view->vocabulary, d);
        d[want->next] += of.coefficient;
        for (uint32_t i = 0; cap > 0.0f && i < view->vocabulary; i++)
            d[i] *= 1.0f - (z[i] / cap) * (z[i] / cap);
        for (uint32_t i = 0; view->logit_scale != 1.0f && i < view->vocabulary; i++)
            d[i] *= view->logit_scale;
    }
}

static avo_status take_logits(head_chunk *chunk, avo_error *error) {
    train_core *core = chunk->core;
    uint32_t rows[TRAIN_HEAD_ROWS];
    int32_t next[TRAIN_HEAD_ROWS];
    const logit_top *found;
    for (uint32_t i = 0; i < chunk->count; i++) {
        rows[i] = chunk->want[i]->row;
        next[i] = chunk->want[i]->next;
    }
    AVO_TRY(engine_batch_head(core->batch, rows, chunk->count, next, true, &found, error));
    for (uint32_t i = 0; i < chunk->count; i++)
        AVO_TRY(engine_batch_head_logits(core->batch, i, &chunk->logits[i], error));
    return AVO_OK;
}

/* What a walk over the head computes. Where head and embedding are one matrix, both of whose
 * gradients are summed sequence by sequence, the head's part waits for the embedding's. */
typedef enum head_pass { HEAD_ALL, HEAD_INPUT, HEAD_WEIGHT } head_pass;

/* The chunk's rows of hidden states behind the last layer → the derivative by them. Buffers of
 * the layers serve, since none is being computed. */
static void head_back(head_chunk *chunk, head_pass pass, const float *hidden) {
    train_core *core = chunk->core;
    train_model *net = &core->net;
    train_buffers *b = &core->buffers;
    size_t width = net->view->width, rows = chunk->count;
    for (size_t i = 0; i < rows; i++)
        memcpy(b->before + i * width, hidden + chunk->want[i]->row * width, width * sizeof(float));
    train_norm_rows last = {&net->final_norm, b->before, rows, (uint32_t)width};
    train_norms(core, &last, b->normed);
    train_part all = {0, chunk->count};
    bool projected = net->head_project.base->weight.data != NULL;
    train_group project = {
        .use = {{&net->head_project, b->projected, b->after, NULL}}, 1, b->normed, rows};
    if (projected)
        train_linears(core, &project);
    float *low = b->low + (size_t)ADAPTER_HEAD * core->options.rows_max * core->rank;
    train_linear frozen = {.base = net->head.base};
    train_group head = {.use = {{pass == HEAD_INPUT ? &frozen : &net->head, NULL, b->logits, low}},
                        .count = 1,
                        .x = projected ? b->projected : b->normed,
                        .rows = rows};
    train_low(core, &head);
    if (pass == HEAD_WEIGHT) {
        train_linears_backward(core, &head, &all, 1, NULL, false);
        return;
    }
    train_linears_backward(core, &head, &all, 1, projected ? b->after : b->width_a, false);
    if (projected)
        train_linears_backward(core, &project, &all, 1, b->width_a, false);
    train_norms_backward(core, &last, b->width_a, 1, &all, 1, false, b->width_b);
    for (size_t i = 0; i < rows; i++)
        memcpy(b->hidden + chunk->want[i]->row * width, b->width_b + i * width,
               width * sizeof(float));
}

/* The next chunk of wants from *at on, before `end`; false: there are none with coefficients. */
static bool next_chunk(head_chunk *chunk, const float *coefficients, uint32_t *at, uint32_t end) {
    const train_call *call = &chunk->core->call;
    chunk->count = 0;
    for (; *at < end && chunk->count < TRAIN_HEAD_ROWS; (*at)++) {
        const train_want *want = &call->want[*at];
        if (chunk->core->net.head_trained && chunk->count > 0 && chunk->want[0]->span != want->span)
            break;
        if (coefficients[want->at] == 0.0f)
            continue;
        chunk->coefficient[chunk->count] = coefficients[want->at];
        chunk->want[chunk->count++] = want;
    }
    return chunk->count > 0;
}

/* Wants [at, end). */
static avo_status head_backward(train_core *core, const float *coefficients, head_pass pass,
                                uint32_t at, uint32_t end, avo_error *error) {
    head_chunk chunk = {.core = core};
    while (next_chunk(&chunk, coefficients, &at, end)) {
        const float *hidden;
        AVO_TRY(take_logits(&chunk, error));
        train_each(core, chunk.count, 1, logit_rows, &chunk);
        AVO_TRY(engine_batch_hidden(core->batch, core->net.view->layers, &hidden, error));
        head_back(&chunk, pass, hidden);
    }
    return AVO_OK;
}

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
        AVO_TRY(head_backward(core, coefficients, HEAD_WEIGHT, at, end, error));
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
        train_group project = {.use = {{&core->net.embedding_project, NULL, b->hidden, NULL}},
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
        head_pass pass = core->net.tied ? HEAD_INPUT : HEAD_ALL;
        status = head_backward(core, coefficients, pass, 0, core->call.wants, error);
        AVO_THEN(status, layers_backward(core, coefficients, error));
    }
    train_close_sessions(core);
    return status;
}
