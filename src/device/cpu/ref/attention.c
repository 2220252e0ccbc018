/* Attention of the reference back end: one row and head at a time, two passes over the row's own
 * timeline. Tiles begin at fixed absolute positions, lane = position, so what a row computes
 * depends on its position alone. */
#include "device/cpu/ref/ref_int.h"

#include "base/mathf.h"
#include "device/kv_tile.h"

#include <string.h>

typedef struct attention_task {
    const step_view *step;
    uint32_t layer;
} attention_task;

/* scores[position] for every position of the tiles [first_page, last_page]. */
static void score_tiles(const step_view *step, uint32_t number, size_t row, uint32_t head,
                        uint32_t first_page, uint32_t last_page, float *scores, float *room) {
    const layer_view *layer = &step->model->layer[number];
    uint32_t size = layer->head_size;
    uint32_t own = head / (layer->heads / layer->kv_heads);
    const float *query = step->scratch->query + (row * layer->heads + head) * size;
    for (uint32_t p = first_page; p <= last_page; p++) {
        const float *tile = kv_tile_keys(
            step->kv->type, size,
            kv_head(step->kv, batch_pages(step->batch, row)[p], number, own, size), room);
        float lanes[KV_PAGE_TOKENS] = {0};
        for (uint32_t d = 0; d < size; d++) {
            float q = query[d];
            for (uint32_t lane = 0; lane < KV_PAGE_TOKENS; lane++)
                lanes[lane] += tile[d * KV_PAGE_TOKENS + lane] * q;
        }
        float *out = scores + (size_t)p * KV_PAGE_TOKENS;
        for (uint32_t lane = 0; lane < KV_PAGE_TOKENS; lane++) {
            float score = lanes[lane] * layer->attention_scale;
            if (layer->attention_softcap > 0.0f)
                score = layer->attention_softcap * math_tanh(score / layer->attention_softcap);
            out[lane] = score;
        }
    }
}

/* Scores of [begin, end) to weights that sum to 1, together with that of the sink where there is
 * one. */
static void softmax(float *scores, uint32_t begin, uint32_t end, const float *sink) {
    float largest = sink != NULL && *sink > scores[begin] ? *sink : scores[begin];
    for (uint32_t i = begin; i < end; i++)
        largest = scores[i] > largest ? scores[i] : largest;
    float lanes[16] = {0};
    for (uint32_t i = begin; i < end; i++) {
        scores[i] = math_exp(scores[i] - largest);
        lanes[i % 16] += scores[i];
    }
    if (sink != NULL)
        lanes[end % 16] += math_exp(*sink - largest);
    float scale = 1.0f / math_sum16(lanes);
    for (uint32_t i = begin; i < end; i++)
        scores[i] *= scale;
}

/* room: kv_tile_floats, then the scores */
static void attend_head(const step_view *step, uint32_t number, size_t row, uint32_t head,
                        float *room) {
    const layer_view *layer = &step->model->layer[number];
    uint32_t size = layer->head_size;
    kv_type type = step->kv->type;
    float *scores = room + kv_tile_floats(size);
    uint32_t end = step->batch->position[row] + 1;
    uint32_t begin = layer->window > 0 && end > layer->window ? end - layer->window : 0;
    score_tiles(step, number, row, head, begin / KV_PAGE_TOKENS, (end - 1) / KV_PAGE_TOKENS, scores,
                room);
    softmax(scores, begin, end, layer->sinks == NULL ? NULL : layer->sinks + head);
    uint32_t own = head / (layer->heads / layer->kv_heads);
    size_t stride = kv_value_stride(size);
    float *out = step->scratch->attended + (row * layer->heads + head) * size;
    memset(out, 0, size * sizeof(float));
    const float *values = NULL;
    for (uint32_t position = begin; position < end; position++) {
        uint32_t slot = position % KV_PAGE_TOKENS;
        if (values == NULL || slot == 0) {
            uint32_t page = batch_pages(step->batch, row)[position / KV_PAGE_TOKENS];
            values = kv_tile_values(type, size, kv_head(step->kv, page, number, own, size), room);
        }
        const float *value = values + slot * stride;
        float weight = scores[position];
        for (uint32_t d = 0; d < size; d++)
            out[d] += value[d] * weight;
    }
    if (kv_type_scaled(type))
        kv_rotate(out, size);
}

static void attention_worker(void *context, uint32_t worker, uint32_t workers) {
    const attention_task *task = context;
    const step_view *step = task->step;
    uint32_t heads = step->model->layer[task->layer].heads;
    float *room = reference_worker_scratch(step, worker);
    size_t begin;
    size_t end;
    team_share((size_t)step->batch->rows * heads, worker, workers, &begin, &end);
    for (size_t unit = begin; unit < end; unit++)
        attend_head(step, task->layer, unit / heads, (uint32_t)(unit % heads), room);
}

void reference_attention(const step_view *step, uint32_t layer) {
    attention_task task = {step, layer};
    reference_run(step, attention_worker, &task);
}
