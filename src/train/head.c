/* The head: log-probabilities of wanted tokens, and the way back through it, in chunks of rows.
 * With p = softmax(z) and c the coefficient of a row whose next token is t:
 *
 *   dz = c·(onehot(t) − p),   z = cap·tanh(y/cap): dy = dz·(1 − (z/cap)²),   y = scale·head
 *
 * The derivative by a row's hidden state is c times one that does not depend on c. So where nothing
 * behind the layers is trained, the forward pass computes that while the row's logits are at hand
 * ("units"), and the backward pass only multiplies; else the backward pass computes the logits
 * again.
 */
#include "train/core_int.h"

#include "base/checked.h"

#include <string.h>

/* ---- Chunks ---- */

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

/* The head of the chunk's rows; with `whole` their logits, too. */
static avo_status compute(head_chunk *chunk, bool whole, const logit_top **found,
                          avo_error *error) {
    train_core *core = chunk->core;
    uint32_t rows[TRAIN_HEAD_ROWS];
    int32_t next[TRAIN_HEAD_ROWS];
    for (uint32_t i = 0; i < chunk->count; i++) {
        rows[i] = chunk->want[i]->row;
        next[i] = chunk->want[i]->next;
    }
    AVO_TRY(engine_batch_head(core->batch, rows, chunk->count, next, whole, found, error));
    for (uint32_t i = 0; whole && i < chunk->count; i++)
        AVO_TRY(engine_batch_head_logits(core->batch, i, &chunk->logits[i], error));
    return AVO_OK;
}

/* ---- Backward ---- */

/* The chunk's rows of hidden states behind the last layer → the derivative by them. Buffers of
 * the layers serve, since none is being computed. */
static void head_back(head_chunk *chunk, train_head_pass pass, const float *hidden) {
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
        .use = {{&net->head_project, b->projected, b->after}}, 1, b->normed, rows, NULL};
    if (projected)
        train_linears(core, &project);
    float *low = b->low + (size_t)ADAPTER_HEAD * core->options.rows_max * core->rank;
    train_linear frozen = {.base = net->head.base};
    train_group head = {.use = {{pass == HEAD_INPUT ? &frozen : &net->head, NULL, b->logits}},
                        .count = 1,
                        .x = projected ? b->projected : b->normed,
                        .rows = rows,
                        .low = low};
    train_low(core, &head);
    if (pass == HEAD_WEIGHT) {
        train_linears_backward(core, &head, &all, 1, NULL, false);
        return;
    }
    train_linears_backward(core, &head, &all, 1, projected ? b->after : b->width_a, false);
    if (projected)
        train_linears_backward(core, &project, &all, 1, b->width_a, false);
    train_norms_backward(core, &last, b->width_a, 1, &all, 1, false, b->width_b);
}

/* From the chunk's logits to width_b. */
static avo_status chunk_back(head_chunk *chunk, train_head_pass pass, avo_error *error) {
    train_core *core = chunk->core;
    const float *hidden;
    train_each(core, chunk->count, 1, logit_rows, chunk);
    AVO_TRY(engine_batch_hidden(core->batch, core->net.view->layers, &hidden, error));
    head_back(chunk, pass, hidden);
    return AVO_OK;
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

avo_status train_head_backward(train_core *core, const float *coefficients, train_head_pass pass,
                               uint32_t at, uint32_t end, avo_error *error) {
    head_chunk chunk = {.core = core};
    size_t width = core->net.view->width;
    while (next_chunk(&chunk, coefficients, &at, end)) {
        const logit_top *found;
        AVO_TRY(compute(&chunk, true, &found, error));
        AVO_TRY(chunk_back(&chunk, pass, error));
        for (uint32_t i = 0; pass != HEAD_WEIGHT && i < chunk.count; i++)
            memcpy(core->buffers.hidden + chunk.want[i]->row * width,
                   core->buffers.width_b + i * width, width * sizeof(float));
    }
    return AVO_OK;
}

typedef struct apply_task {
    train_core *core;
    const float *coefficients;
} apply_task;

static void apply_rows(void *context, size_t begin, size_t end) {
    const apply_task *task = context;
    train_core *core = task->core;
    size_t width = core->net.view->width;
    for (size_t n = begin; n < end; n++) {
        const train_want *want = &core->call.want[n];
        const float *unit = core->buffers.units + n * width;
        float *to = core->buffers.hidden + want->row * width;
        for (size_t i = 0; i < width; i++)
            to[i] = task->coefficients[want->at] * unit[i];
    }
}

void train_head_apply(train_core *core, const float *coefficients) {
    apply_task task = {core, coefficients};
    train_each(core, core->call.wants, 16, apply_rows, &task);
}

/* ---- Scores ---- */

typedef struct entropy_task {
    const head_chunk *chunk;
    float *entropies;
} entropy_task;

static void entropy_rows(void *context, size_t begin, size_t end) {
    const entropy_task *task = context;
    const train_core *core = task->chunk->core;
    for (size_t row = begin; row < end; row++) {
        const train_want *want = task->chunk->want[row];
        task->entropies[want->at] =
            core->loops->entropy(task->chunk->logits[row], core->net.view->vocabulary,
                                 want->highest, (float)want->log_sum);
    }
}

/* Wants [at, at + count), which begin the chunk. */
static avo_status score_chunk(head_chunk *chunk, uint32_t at, bool keep, const train_scores *scores,
                              avo_error *error) {
    train_core *core = chunk->core;
    const logit_top *found;
    AVO_TRY(compute(chunk, keep || scores->entropies != NULL, &found, error));
    for (uint32_t i = 0; i < chunk->count; i++) {
        train_want *want = &core->call.want[at + i];
        AVO_TRY(engine_logprob(&found[i], &scores->logprobs[want->at], error));
        want->highest = found[i].logit[0];
        want->log_sum = found[i].log_sum;
        if (scores->likeliest != NULL)
            scores->likeliest[want->at] = found[i].token[0] == want->next;
    }
    entropy_task task = {chunk, scores->entropies};
    if (scores->entropies != NULL)
        train_each(core, chunk->count, 1, entropy_rows, &task);
    if (!keep)
        return AVO_OK;
    AVO_TRY(chunk_back(chunk, HEAD_INPUT, error));
    size_t width = core->net.view->width;
    memcpy(core->buffers.units + at * width, core->buffers.width_b,
           chunk->count * width * sizeof(float));
    return AVO_OK;
}

avo_status train_head_score(train_core *core, bool keep, const train_scores *scores,
                            avo_error *error) {
    train_call *call = &core->call;
    head_chunk chunk = {.core = core};
    keep = keep && !core->net.head_trained;
    for (uint32_t at = 0; at < call->wants; at += chunk.count) {
        chunk.count = (uint32_t)size_min(call->wants - at, TRAIN_HEAD_ROWS);
        for (uint32_t i = 0; i < chunk.count; i++) {
            chunk.want[i] = &call->want[at + i];
            chunk.coefficient[i] = 1.0f;
        }
        AVO_TRY(score_chunk(&chunk, at, keep, scores, error));
    }
    return AVO_OK;
}
