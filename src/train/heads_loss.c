/* Comparing drafts with their targets, up to TRAIN_HEAD_ROWS targets at a time. With logits z of a
 * draft at temperature T, p = softmax(z ÷ T) and q the model's probabilities of the tokens that can
 * be drafted, whose sum m may be below 1:
 *
 *   loss = m · log Σ e^(z ÷ T) − Σ q · z ÷ T         dz = weight ÷ T · (m · p − q)
 *
 * With teacher 0, T is 1 and q is 1 at the token that follows; 0 where that cannot be drafted. */
#include "train/heads_int.h"

#include "base/checked.h"
#include "base/mathd.h"
#include "base/mathf.h"

#include <math.h>
#include <string.h>

#define LANES 16

typedef struct heads_chunk {
    const heads_span *span;
    const train_want *want; /* [count] */
    uint32_t count;
    const float *model_logits[TRAIN_HEAD_ROWS];
    float highest[TRAIN_HEAD_ROWS], mass[TRAIN_HEAD_ROWS]; /* of model_logits; of `wanted` */
    /* of the draft at hand */
    uint32_t draft, rows;
    uint32_t target[TRAIN_HEAD_ROWS], row[TRAIN_HEAD_ROWS]; /* number of the want, row of output */
    double loss[TRAIN_HEAD_ROWS], distance[TRAIN_HEAD_ROWS];
} heads_chunk;

static uint32_t token_of(const heads_chunk *chunk, uint32_t target) {
    return chunk->want[target].row - chunk->span->span->first + 1;
}

/* ---- What the model says ---- */

static void copy_chosen(const struct train_heads *heads, const float *z, float highest,
                        float factor, float *q, float *mass) {
    double sum = 0.0;
    for (uint32_t c = 0; c < heads->config.frequent; c++) {
        q[c] = math_exp((z[heads->token[c]] - highest) * factor);
        sum += (double)q[c];
    }
    *mass = (float)sum;
}

/* q of a row: probabilities at the teacher's temperature. */
static void teach_row(heads_chunk *chunk, size_t row) {
    const struct train_heads *heads = chunk->span->heads;
    const float *z = chunk->model_logits[row];
    uint32_t vocabulary = heads->config.vocabulary, i = 0;
    float *q = heads->wanted + row * heads->config.frequent;
    float highest = chunk->highest[row], factor = (float)(1.0 / heads->teacher);
    float lanes[LANES] = {0};
    for (; i + LANES <= vocabulary; i += LANES)
        for (uint32_t lane = 0; lane < LANES; lane++)
            lanes[lane] += math_exp((z[i + lane] - highest) * factor);
    for (uint32_t lane = 0; i < vocabulary; i++, lane++)
        lanes[lane] += math_exp((z[i] - highest) * factor);
    float total = math_sum16(lanes);
    copy_chosen(heads, z, highest, factor, q, &chunk->mass[row]);
    for (uint32_t c = 0; c < heads->config.frequent; c++)
        q[c] /= total;
    chunk->mass[row] /= total;
}

static void point_row(heads_chunk *chunk, size_t row) {
    const struct train_heads *heads = chunk->span->heads;
    float *q = heads->wanted + row * heads->config.frequent;
    uint32_t column = heads->column[chunk->want[row].next];
    memset(q, 0, heads->config.frequent * sizeof(*q));
    chunk->mass[row] = column == UINT32_MAX ? 0.0f : 1.0f;
    if (column != UINT32_MAX)
        q[column] = 1.0f;
}

static void wanted_rows(void *context, size_t begin, size_t end) {
    heads_chunk *chunk = context;
    for (size_t row = begin; row < end; row++)
        if (chunk->span->heads->teacher > 0.0)
            teach_row(chunk, row);
        else
            point_row(chunk, row);
}

/* Logits of the model for the chunk's targets. */
static avo_status ask_model(heads_chunk *chunk, avo_error *error) {
    train_core *core = chunk->span->core;
    uint32_t rows[TRAIN_HEAD_ROWS];
    int32_t next[TRAIN_HEAD_ROWS];
    const logit_top *found;
    for (uint32_t i = 0; i < chunk->count; i++) {
        rows[i] = chunk->want[i].row;
        next[i] = chunk->want[i].next;
    }
    AVO_TRY(engine_batch_head(core->batch, rows, chunk->count, next, true, &found, error));
    for (uint32_t i = 0; i < chunk->count; i++) {
        float ignored;
        AVO_TRY(engine_logprob(&found[i], &ignored, error)); /* refuses NaN */
        chunk->highest[i] = found[i].logit[0];
    }
    for (uint32_t i = 0; i < chunk->count; i++)
        AVO_TRY(engine_batch_head_logits(core->batch, i, &chunk->model_logits[i], error));
    return AVO_OK;
}

/* ---- One draft ---- */

/* Which targets have this draft, and the rows of its outputs. */
static void choose_rows(heads_chunk *chunk, uint32_t draft) {
    const heads_span *span = chunk->span;
    uint32_t far = heads_row_distance(span->heads);
    uint32_t before = span->heads->config.kind == HEADS_MEDUSA ? draft : 0;
    chunk->draft = draft;
    chunk->rows = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        uint32_t token = token_of(chunk, i);
        if (token < far + draft + span->begin)
            continue;
        chunk->target[chunk->rows] = i;
        chunk->row[chunk->rows++] = token - far - span->begin - before;
    }
}

static void copy_rows(const heads_chunk *chunk, const float *from, float *to) {
    size_t width = chunk->span->heads->config.width;
    for (uint32_t i = 0; i < chunk->rows; i++)
        memcpy(to + i * width, from + chunk->row[i] * width, width * sizeof(float));
}

static void loss_row(heads_chunk *chunk, size_t row) {
    const struct train_heads *heads = chunk->span->heads;
    uint32_t columns = heads->config.frequent, best = 0, target = chunk->target[row];
    float *z = heads->logits + row * columns;
    const float *q = heads->wanted + (size_t)target * columns;
    double temperature = heads->teacher > 0.0 ? heads->teacher : 1.0, dot = 0.0;
    float inverse = (float)(1.0 / temperature), mass = chunk->mass[target];
    for (uint32_t c = 0; c < columns; c++) {
        z[c] *= inverse;
        best = z[c] > z[best] ? c : best;
        dot += (double)q[c] * (double)z[c];
    }
    double likeliest = (double)z[best];
    chunk->span->core->loops->softmax(z, columns);
    double sum = likeliest - mathd_log((double)z[best]); /* log Σ e^z */
    chunk->loss[row] = (double)mass * sum - dot;
    heads->right[chunk->draft][token_of(chunk, target)] =
        heads->token[best] == chunk->want[target].next;
    double decay = mathd_power(HEADS_DECAY, chunk->draft);
    float weight = (float)(chunk->span->pass->weight * decay / temperature);
    for (uint32_t c = 0; c < columns; c++)
        z[c] = weight * (mass * z[c] - q[c]);
}

static void loss_rows(void *context, size_t begin, size_t end) {
    for (size_t row = begin; row < end; row++)
        loss_row(context, row);
}

/* Adds the distance to the model's state. */
static void distance_rows(void *context, size_t begin, size_t end) {
    heads_chunk *chunk = context;
    const heads_span *span = chunk->span;
    const struct train_heads *heads = span->heads;
    size_t width = heads->config.width;
    double decay = mathd_power(HEADS_DECAY, chunk->draft), share = span->pass->state_share;
    float weight = (float)(span->pass->weight * decay * share / heads->state_scale / (double)width);
    for (size_t row = begin; row < end; row++) {
        const float *x = heads->gathered + row * width;
        const float *y = heads->states + chunk->target[row] * width;
        float *dx = heads->dgathered + row * width;
        double sum = 0.0;
        for (size_t i = 0; i < width; i++) {
            float far = x[i] - y[i], size = fabsf(far);
            sum += size < 1.0f ? 0.5 * (double)far * (double)far : (double)size - 0.5;
            dx[i] += weight * (size < 1.0f ? far : far > 0.0f ? 1.0f : -1.0f);
        }
        chunk->distance[row] = sum / (double)width / heads->state_scale;
    }
}

/* logits = scale · x · headᵀ, or with `back` dx = scale · dlogits · head. */
static void head_product(const heads_chunk *chunk, bool back) {
    const struct train_heads *heads = chunk->span->heads;
    train_core *core = chunk->span->core;
    size_t width = heads->config.width, columns = heads->config.frequent;
    gemm_call call = {.m = chunk->rows,
                      .n = back ? width : columns,
                      .k = back ? columns : width,
                      .a = back ? train_floats(heads->logits, columns, 1)
                                : train_floats(heads->gathered, width, 1),
                      .b = back ? train_floats(heads->head, width, 1)
                                : train_floats(heads->head, 1, width),
                      .c = back ? heads->dgathered : heads->logits,
                      .c_stride = back ? width : columns,
                      .scale = core->net.view->logit_scale,
                      .precision = core->precision};
    gemm_run(core->gemm, &call, 1);
}

static void compare_draft(heads_chunk *chunk, uint32_t draft, train_heads_sums *sums) {
    const heads_span *span = chunk->span;
    const struct train_heads *heads = span->heads;
    size_t width = heads->config.width;
    choose_rows(chunk, draft);
    copy_rows(chunk, heads->output[draft], heads->gathered);
    head_product(chunk, false);
    train_each(span->core, chunk->rows, 1, loss_rows, chunk);
    for (uint32_t i = 0; i < chunk->rows; i++)
        sums->loss[draft] += chunk->loss[i];
    if (!span->pass->learn)
        return;
    head_product(chunk, true);
    if (span->pass->state_share > 0.0) {
        train_each(span->core, chunk->rows, 1, distance_rows, chunk);
        for (uint32_t i = 0; i < chunk->rows; i++)
            sums->distance[draft] += span->pass->state_share * chunk->distance[i];
    }
    for (uint32_t i = 0; i < chunk->rows; i++)
        memcpy(heads->doutput[draft] + chunk->row[i] * width, heads->dgathered + i * width,
               width * sizeof(float));
}

/* ---- A sequence ---- */

static avo_status compare_chunk(heads_chunk *chunk, train_heads_sums *sums, avo_error *error) {
    const heads_span *span = chunk->span;
    const struct train_heads *heads = span->heads;
    train_core *core = span->core;
    size_t width = heads->config.width;
    if (heads->teacher > 0.0)
        AVO_TRY(ask_model(chunk, error));
    train_each(core, chunk->count, 1, wanted_rows, chunk);
    for (uint32_t i = 0; span->pass->state_share > 0.0 && i < chunk->count; i++)
        core->loops->norm(&core->net.view->final_norm,
                          heads->tap[heads->config.taps - 1] + chunk->want[i].row * width,
                          (uint32_t)width, heads->states + i * width);
    for (uint32_t k = 0; k < heads->outputs; k++)
        compare_draft(chunk, k, sums);
    return AVO_OK;
}

/* Chains that begin at `token`: how many of their drafts are targets, and how many of these are
 * right in a row. */
static void count_chain(const heads_span *span, const uint8_t *is_target, uint32_t token,
                        train_heads_sums *sums) {
    const struct train_heads *heads = span->heads;
    bool right = true;
    for (uint32_t k = 0; k < heads->drafts; k++) {
        if (token + k >= span->span->sequence->count || is_target[token + k] == 0)
            return;
        right = right && heads->right[k < heads->outputs ? k : 0][token + k] != 0;
        sums->chains[k]++;
        sums->accepted[k] += right;
    }
}

avo_status heads_compare(const heads_span *span, train_heads_sums *sums, avo_error *error) {
    const struct train_heads *heads = span->heads;
    size_t row_bytes = heads->config.width * sizeof(float);
    heads_chunk chunk = {.span = span};
    for (uint32_t k = 0; k < heads->outputs && span->pass->learn; k++)
        memset(heads->doutput[k], 0, span->rows * row_bytes);
    for (uint32_t at = 0; at < span->wants; at += chunk.count) {
        chunk.want = span->want + at;
        chunk.count = (uint32_t)size_min(span->wants - at, TRAIN_HEAD_ROWS);
        AVO_TRY(compare_chunk(&chunk, sums, error));
    }
    sums->targets += span->wants;
    for (uint32_t token = span->begin + heads_row_distance(heads); token <= span->span->rows;
         token++)
        count_chain(span, span->span->sequence->wanted, token, sums);
    return AVO_OK;
}
