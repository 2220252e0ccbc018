/* Positions: K and V are normed, rotated and written into their pages. Queries are rotated by the
 * worker that attends with them, when it takes them up (attention.c). */
#include "device/cpu/phases/attention_int.h"

/* As the row sees the norm. */
static void norm_head(const attention_plan *plan, const norm_view *norm, adapter_norm_place place,
                      uint32_t row, float *head) {
    const batch_view *batch = plan->step->batch;
    uint32_t size = plan->layer->head_size;
    norm_view seen = *norm;
    if (batch->runs > 0)
        seen = run_norm(batch, row, plan->number, place, norm, size,
                        fast_worker_of(plan->step, plan->worker).norm);
    plan->ops->norm(&seen, head, size, head);
}

void attention_position_head(const attention_plan *plan, const norm_view *norm,
                             adapter_norm_place place, uint32_t row, float *head) {
    const layer_view *layer = plan->layer;
    const scratch_view *scratch = plan->step->scratch;
    if (norm->kind != NORM_NONE && !layer->whole_norms)
        norm_head(plan, norm, place, row, head);
    if (layer->rotary != ROTARY_NONE) {
        size_t at = ((size_t)layer->rotary * scratch->rows_max + row) * scratch->pairs_max;
        plan->ops->rotate(&plan->step->model->rotary[layer->rotary], scratch->cosine + at,
                          scratch->sine + at, head);
    }
    if (kv_type_scaled(plan->step->kv->type))
        plan->ops->kv_rotate(head, layer->head_size);
}

void attention_position(const attention_plan *plan, uint32_t row, uint32_t kv) {
    const layer_view *layer = plan->layer;
    const step_view *step = plan->step;
    uint32_t position = step->batch->position[row];
    uint32_t page = batch_pages(step->batch, row)[position / KV_PAGE_TOKENS];
    size_t at = ((size_t)row * layer->kv_heads + kv) * layer->head_size;
    float *key = step->scratch->key + at;
    float *value = step->scratch->value + at;
    attention_position_head(plan, &layer->key_norm, ADAPTER_KEY_NORM, row, key);
    if (kv_type_scaled(step->kv->type))
        plan->ops->kv_rotate(value, layer->head_size);
    plan->ops->kv_write(step->kv->type, layer->head_size,
                        kv_head(step->kv, page, plan->number, kv, layer->head_size),
                        position % KV_PAGE_TOKENS, key, value);
}

size_t attention_position_counts(const attention_plan *plan) {
    return plan->once ? (size_t)plan->step->batch->segments * plan->layer->kv_heads : 0;
}

void attention_position_unit(const attention_plan *plan, const phase_entry *at,
                             const attention_unit *unit) {
    const batch_segment *segment = &plan->step->batch->segment[unit->tile.segment];
    uint32_t kv = attention_unit_heads(plan, unit->unit).kv;
    uint32_t which = unit->tile.segment * plan->layer->kv_heads + kv;
    if (plan->once && !phase_claim(at, which)) {
        phase_await(at, which);
        return;
    }
    for (uint32_t row = segment->first; row < segment->first + segment->rows; row++)
        attention_position(plan, row, kv);
    if (plan->once)
        phase_finish(at, which);
}
