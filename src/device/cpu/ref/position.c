/* Positions: rotation angles, rotation, and the write of K and V into pages. */
#include "device/cpu/ref/ref_int.h"

#include "device/kv_tile.h"
#include "device/rotary.h"

static void angles_worker(void *context, uint32_t worker, uint32_t workers) {
    const step_view *step = context;
    const scratch_view *scratch = step->scratch;
    size_t begin;
    size_t end;
    team_share(step->batch->rows, worker, workers, &begin, &end);
    for (uint32_t t = 0; t < step->model->rotary_tables; t++) {
        const rotary_table *table = &step->model->rotary[t];
        for (size_t row = begin; row < end; row++) {
            size_t at = ((size_t)t * scratch->rows_max + row) * scratch->pairs_max;
            rotary_angles(table, step->batch->position[row], scratch->cosine + at,
                          scratch->sine + at);
        }
    }
}

void reference_angles(const step_view *step) {
    if (step->model->rotary_tables > 0)
        reference_run_rows(step, angles_worker, (void *)(uintptr_t)step);
}

void reference_rotate(const rotary_table *table, const float *cosine, const float *sine,
                      float *head) {
    uint32_t pairs = table->pairs;
    for (uint32_t i = 0; i < pairs; i++) {
        float *a = table->interleaved ? head + 2 * i : head + i;
        float *b = table->interleaved ? head + 2 * i + 1 : head + i + pairs;
        float x = *a;
        float y = *b;
        *a = x * cosine[i] - y * sine[i];
        *b = y * cosine[i] + x * sine[i];
    }
}

typedef struct position_task {
    const step_view *step;
    uint32_t layer;
} position_task;

static void position_head(const step_view *step, uint32_t worker, const layer_view *layer,
                          const reference_norm_site *norm, size_t row, float *head) {
    if (norm->norm->kind != NORM_NONE && !layer->whole_norms)
        reference_norm_row(step, worker, norm, (uint32_t)row, head, layer->head_size, head);
    if (layer->rotary != ROTARY_NONE) {
        const scratch_view *scratch = step->scratch;
        size_t at = ((size_t)layer->rotary * scratch->rows_max + row) * scratch->pairs_max;
        reference_rotate(&step->model->rotary[layer->rotary], scratch->cosine + at,
                         scratch->sine + at, head);
    }
}

static void write_key_value(const step_view *step, uint32_t number, const layer_view *layer,
                            size_t row, uint32_t head) {
    uint32_t position = step->batch->position[row];
    uint32_t page = batch_pages(step->batch, row)[position / KV_PAGE_TOKENS];
    uint32_t size = layer->head_size;
    size_t at = (row * layer->kv_heads + head) * size;
    float *key = step->scratch->key + at;
    float *value = step->scratch->value + at;
    if (kv_type_scaled(step->kv->type)) {
        kv_rotate(key, size);
        kv_rotate(value, size);
    }
    kv_tile_write(step->kv->type, size, kv_head(step->kv, page, number, head, size),
                  position % KV_PAGE_TOKENS, key, value);
}

static void position_worker(void *context, uint32_t worker, uint32_t workers) {
    const position_task *task = context;
    const step_view *step = task->step;
    const layer_view *layer = &step->model->layer[task->layer];
    size_t begin;
    size_t end;
    team_share(step->batch->rows, worker, workers, &begin, &end);
    size_t size = layer->head_size;
    const reference_norm_site query_norm = {&layer->query_norm, task->layer, ADAPTER_QUERY_NORM};
    const reference_norm_site key_norm = {&layer->key_norm, task->layer, ADAPTER_KEY_NORM};
    for (size_t row = begin; row < end; row++) {
        float *query = step->scratch->query + row * layer->heads * size;
        float *key = step->scratch->key + row * layer->kv_heads * size;
        if (layer->whole_norms) {
            reference_norm_vector(&layer->query_norm, query, (uint32_t)(layer->heads * size),
                                  query);
            reference_norm_vector(&layer->key_norm, key, (uint32_t)(layer->kv_heads * size), key);
        }
        for (uint32_t head = 0; head < layer->heads; head++) {
            position_head(step, worker, layer, &query_norm, row, query + head * size);
            if (kv_type_scaled(step->kv->type))
                kv_rotate(query + head * size, layer->head_size);
        }
        for (uint32_t head = 0; head < layer->kv_heads; head++) {
            position_head(step, worker, layer, &key_norm, row, key + head * size);
            write_key_value(step, task->layer, layer, row, head);
        }
    }
}

void reference_position(const step_view *step, uint32_t layer) {
    position_task task = {step, layer};
    reference_run(step, position_worker, &task);
}
