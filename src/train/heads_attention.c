/* Attention of a layer of draft heads. Row r of EAGLE's draft `step` sees positions
 * r − window + 1 … r: up to r − step the rows of true states, then one row of each later draft, as
 * a chain of drafts that began at row r − step has them in its cache. With step 0 all rows are of
 * the same run. One worker computes all rows
 * of a KV head, so that sums have one order. */
#include "train/heads_int.h"

#include "base/mathf.h"

#include <math.h>
#include <string.h>

#define LANES 16

typedef struct attention_task {
    const heads_layer_pass *pass;
    bool back;
} attention_task;

/* What a row sees. */
typedef struct attention_row {
    const heads_layer_run *runs;
    uint32_t row, step, first; /* positions [first, row] */
    size_t stride, at;         /* of a row of keys; of the KV head in it */
} attention_row;

static float dot_of(const float *a, const float *b, uint32_t count) {
    float lanes[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (uint32_t lane = 0; lane < LANES; lane++)
            lanes[lane] += a[i + lane] * b[i + lane];
    for (uint32_t lane = 0; i < count; i++, lane++)
        lanes[lane] += a[i] * b[i];
    return math_sum16(lanes);
}

static void add_scaled(float *to, const float *from, float factor, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

/* Which draft computed a position, and where its key lies. */
static const heads_layer_run *step_at(const attention_row *row, uint32_t position) {
    uint32_t last_true = row->row - row->step;
    return &row->runs[position <= last_true ? 0 : position - last_true];
}

static size_t key_at(const attention_row *row, uint32_t position) {
    return position * row->stride + row->at;
}

static attention_row row_of(const attention_task *task, uint32_t kv_head, uint32_t row) {
    const struct train_heads *heads = task->pass->span->heads;
    const heads_config *c = &heads->config;
    uint32_t first = heads->window > 0 && row + 1 > heads->window ? row + 1 - heads->window : 0;
    return (attention_row){.runs = task->pass->runs,
                           .row = row,
                           .step = task->pass->step,
                           .first = first,
                           .stride = (size_t)c->kv_heads * c->head_size,
                           .at = (size_t)kv_head * c->head_size};
}

/* Weights of the positions that the row sees. */
static void weigh(const attention_task *task, const attention_row *row, const float *query,
                  float scale, float *weights) {
    uint32_t size = task->pass->span->heads->config.head_size, count = row->row - row->first + 1;
    for (uint32_t i = 0; i < count; i++)
        weights[i] =
            scale *
            dot_of(query, step_at(row, row->first + i)->key + key_at(row, row->first + i), size);
    task->pass->span->core->loops->softmax(weights, count);
}

static void forward_row(const attention_row *row, const float *weights, uint32_t size, float *out) {
    memset(out, 0, size * sizeof(*out));
    for (uint32_t p = row->first; p <= row->row; p++)
        add_scaled(out, step_at(row, p)->value + key_at(row, p), weights[p - row->first], size);
}

static void backward_row(const attention_task *task, const attention_row *row, const float *query,
                         const float *dout, float scale, const float *weights, float *dscores,
                         float *dquery) {
    uint32_t size = task->pass->span->heads->config.head_size, count = row->row - row->first + 1;
    for (uint32_t p = row->first; p <= row->row; p++) {
        const heads_layer_run *from = step_at(row, p);
        dscores[p - row->first] = dot_of(dout, from->value + key_at(row, p), size);
        add_scaled(from->dvalue + key_at(row, p), dout, weights[p - row->first], size);
    }
    task->pass->span->core->loops->softmax_back(weights, count, dscores);
    memset(dquery, 0, size * sizeof(*dquery));
    for (uint32_t p = row->first; p <= row->row; p++) {
        const heads_layer_run *from = step_at(row, p);
        float d = scale * dscores[p - row->first];
        add_scaled(dquery, from->key + key_at(row, p), d, size);
        add_scaled(from->dkey + key_at(row, p), query, d, size);
    }
}

static void kv_heads(void *context, size_t begin, size_t end) {
    const attention_task *task = context;
    const heads_span *span = task->pass->span;
    const heads_layer_buffers *b = task->pass->b;
    const heads_config *c = &span->heads->config;
    const heads_layer_run *own = task->pass->own;
    uint32_t size = c->head_size, group = c->attention_heads / c->kv_heads;
    size_t room = span->core->options.context_max;
    float scale = (float)(1.0 / sqrt((double)size));
    for (size_t kv = begin; kv < end; kv++)
        for (uint32_t r = task->pass->step; r < span->rows; r++) {
            attention_row row = row_of(task, (uint32_t)kv, r);
            float *weights = b->scores + kv * 2 * room;
            for (size_t head = kv * group; head < (kv + 1) * group; head++) {
                size_t at = (r * (size_t)c->attention_heads + head) * size;
                weigh(task, &row, own->query + at, scale, weights);
                if (task->back)
                    backward_row(task, &row, own->query + at, b->dattended + at, scale, weights,
                                 weights + room, b->dquery + at);
                else
                    forward_row(&row, weights, size, own->attended + at);
            }
        }
}

static void attend(const heads_layer_pass *pass, bool back) {
    attention_task task = {pass, back};
    train_each(pass->core, pass->config->kv_heads, 1, kv_heads, &task);
}

void heads_layer_attention(const heads_layer_pass *pass) {
    attend(pass, false);
}

void heads_layer_attention_back(const heads_layer_pass *pass) {
    attend(pass, true);
}
