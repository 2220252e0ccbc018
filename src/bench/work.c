/* What a step has to read and to compute at the very least. */
#include "bench/bench.h"

#include "device/kv_tile.h"
#include "quant/panels.h"

static void add_matrix(const weight_view *weight, bool floats, double rows, limit_work *work) {
    uint64_t bytes;
    if (weight->data == NULL || rows == 0 ||
        !weight_bytes(weight->type, weight->layout, weight->rows, weight->k, &bytes))
        return;
    work->bytes += (double)bytes;
    double operations = 2.0 * weight->rows * weight->k * rows;
    if (floats || panels_form(weight->type) == PRODUCT_FLOAT)
        work->floating_operations += operations;
    else
        work->integer_operations += operations;
}

/* Bytes count each expert once that a row uses, if rows choose at random: of `count` experts as
 * many as `rows` rows are expected to use together. */
static void add_experts(const experts_view *experts, bool floats, double rows, limit_work *work) {
    if (experts->count == 0 || rows == 0)
        return;
    const expert_view *expert = &experts->expert[0], *shared = &experts->shared;
    double left = 1.0 - (double)experts->used / experts->count, unused = 1.0;
    for (double row = 0; row < rows; row++)
        unused *= left;
    limit_work one = {0};
    add_matrix(&expert->gate.weight, floats, rows * experts->used, &one);
    add_matrix(&expert->up.weight, floats, rows * experts->used, &one);
    add_matrix(&expert->down.weight, floats, rows * experts->used, &one);
    work->bytes += one.bytes * experts->count * (1.0 - unused);
    work->integer_operations += one.integer_operations;
    work->floating_operations += one.floating_operations;
    add_matrix(&experts->router.weight, floats, rows, work);
    add_matrix(&shared->gate.weight, floats, rows, work);
    add_matrix(&shared->up.weight, floats, rows, work);
    add_matrix(&shared->down.weight, floats, rows, work);
}

/* Scores and sums of `rows` consecutive rows, the last of which sees `depth + rows` positions. */
static void add_attention(const layer_view *layer, kv_type kv, bool floats, double depth,
                          double rows, limit_work *work) {
    double window = layer->window > 0 ? layer->window : depth + rows;
    double seen = 0; /* positions, summed over the rows */
    for (double row = 1; row <= rows; row++)
        seen += depth + row < window ? depth + row : window;
    double operations = 4.0 * layer->heads * layer->head_size * seen;
    if (floats || kv != KV_INT8)
        work->floating_operations += operations;
    else
        work->integer_operations += operations;
    double positions = depth + rows < window + rows - 1 ? depth + rows : window + rows - 1;
    work->bytes +=
        positions * layer->kv_heads * (double)kv_head_bytes(kv, layer->head_size) / KV_PAGE_TOKENS;
}

void bench_attention_work(const layer_view *layer, kv_type kv, bool floats, uint32_t depth,
                          uint32_t rows, limit_work *work) {
    add_attention(layer, kv, floats, depth, rows, work);
}

void bench_step_work(const model_view *model, kv_type kv, bool floats, uint32_t sessions,
                     uint32_t depth, uint32_t rows, uint32_t logits, limit_work *work) {
    double all = (double)sessions * rows;
    for (uint32_t i = 0; i < model->layers; i++) {
        const layer_view *layer = &model->layer[i];
        const linear_view *matrices[] = {&layer->query, &layer->key, &layer->value, &layer->output,
                                         &layer->gate,  &layer->up,  &layer->down};
        for (size_t j = 0; j < sizeof(matrices) / sizeof(matrices[0]); j++)
            add_matrix(&matrices[j]->weight, floats, all, work);
        add_experts(&layer->experts, floats, all, work);
        for (uint32_t session = 0; session < sessions; session++)
            add_attention(layer, kv, floats, depth, rows, work);
    }
    add_matrix(&model->embedding_project.weight, floats, all, work);
    add_matrix(&model->head_project.weight, floats, logits, work);
    add_matrix(&model->head.weight, floats, logits, work);
}
