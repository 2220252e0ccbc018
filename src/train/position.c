/* Positions: norms per head and rotation of queries and keys, and the way back. A rotation by an
 * angle is undone by that by its negative; the magnitude of the table multiplies both ways:
 *   (a, b) → (a·c − b·s, b·c + a·s)      da = da'·c + db'·s, db = db'·c − da'·s */
#include "train/core_int.h"

#include "device/rotary.h"

#include <string.h>

static void angle_rows(void *context, size_t begin, size_t end) {
    train_core *core = context;
    const model_view *view = core->net.view;
    for (uint32_t t = 0; t < view->rotary_tables; t++)
        for (size_t row = begin; row < end; row++) {
            size_t at = ((size_t)t * core->options.rows_max + row) * core->pairs_max;
            rotary_angles(&view->rotary[t], core->call.position[row], core->buffers.cosine + at,
                          core->buffers.sine + at);
        }
}

void train_angles(train_core *core) {
    train_each(core, core->call.rows, 16, angle_rows, core);
}

typedef struct rotate_task {
    train_core *core;
    const layer_view *layer;
    float *x;
    uint32_t heads;
    bool back;
} rotate_task;

void train_rotate(const rotary_table *table, const float *cosine, const float *sine, bool back,
                  float *head) {
    for (uint32_t i = 0; i < table->pairs; i++) {
        float *a = table->interleaved ? head + 2 * i : head + i;
        float *b = table->interleaved ? head + 2 * i + 1 : head + i + table->pairs;
        float s = back ? -sine[i] : sine[i];
        float x = *a, y = *b;
        *a = x * cosine[i] - y * s;
        *b = y * cosine[i] + x * s;
    }
}

static void rotate_rows(void *context, size_t begin, size_t end) {
    const rotate_task *task = context;
    const train_core *core = task->core;
    const rotary_table *table = &core->net.view->rotary[task->layer->rotary];
    for (size_t row = begin; row < end; row++) {
        size_t at = ((size_t)task->layer->rotary * core->options.rows_max + row) * core->pairs_max;
        for (uint32_t head = 0; head < task->heads; head++)
            train_rotate(table, core->buffers.cosine + at, core->buffers.sine + at, task->back,
                         task->x + (row * task->heads + head) * task->layer->head_size);
    }
}

static void rotate(train_core *core, const layer_view *layer, uint32_t heads, bool back, float *x) {
    rotate_task task = {core, layer, x, heads, back};
    if (layer->rotary != ROTARY_NONE)
        train_each(core, core->call.rows, 16, rotate_rows, &task);
}

static train_norm_rows head_rows(const train_core *core, const train_norm *norm, const float *x,
                                 uint32_t heads, uint32_t size) {
    return (train_norm_rows){norm, x, (size_t)core->call.rows * heads, size};
}

void train_positions(train_core *core, const train_layer *layer, const layer_view *view) {
    train_buffers *b = &core->buffers;
    train_norm_rows query =
        head_rows(core, &layer->query_norm, b->query_raw, view->heads, view->head_size);
    train_norm_rows key =
        head_rows(core, &layer->key_norm, b->key_raw, view->kv_heads, view->head_size);
    train_norms(core, &query, b->query);
    train_norms(core, &key, b->key);
    rotate(core, view, view->heads, false, b->query);
    rotate(core, view, view->kv_heads, false, b->key);
}

void train_positions_backward(train_core *core, const train_layer *layer, const layer_view *view) {
    train_buffers *b = &core->buffers;
    const train_call *call = &core->call;
    rotate(core, view, view->heads, true, b->dquery);
    rotate(core, view, view->kv_heads, true, b->dkey);
    train_norm_rows query =
        head_rows(core, &layer->query_norm, b->query_raw, view->heads, view->head_size);
    train_norm_rows key =
        head_rows(core, &layer->key_norm, b->key_raw, view->kv_heads, view->head_size);
    if (view->query_norm.kind != NORM_NONE)
        train_norms_backward(core, &query, b->dquery, view->heads, call->part, call->spans, false,
                             b->dquery);
    if (view->key_norm.kind != NORM_NONE)
        train_norms_backward(core, &key, b->dkey, view->kv_heads, call->part, call->spans, false,
                             b->dkey);
}
