/* Sums over a view's matrices. */
#include "model/reads.h"

static void add(model_reads *reads, const linear_view *linear, uint64_t times) {
    const weight_view *weight = &linear->weight;
    uint64_t bytes;
    if (weight->data == NULL ||
        !weight_bytes(weight->type, weight->layout, weight->rows, weight->k, &bytes))
        return;
    reads->bytes += bytes * times;
    reads->parameters += (uint64_t)weight->rows * weight->k * times;
}

static void add_expert(model_reads *reads, const expert_view *expert, uint64_t times) {
    add(reads, &expert->gate, times);
    add(reads, &expert->up, times);
    add(reads, &expert->down, times);
}

static void add_experts(model_reads *reads, const experts_view *experts) {
    if (experts->count == 0)
        return;
    model_reads all = {0};
    add_expert(&all, &experts->expert[0], experts->count);
    reads->expert_bytes += all.bytes;
    reads->experts = experts->count;
    reads->used = experts->used;
    add(reads, &experts->router, 1);
    add(reads, &experts->shared_gate, 1);
    add_expert(reads, &experts->expert[0], experts->used);
    add_expert(reads, &experts->shared, 1);
}

model_reads model_reads_of(const model_view *view) {
    model_reads reads = {0};
    for (uint32_t i = 0; i < view->layers; i++) {
        const layer_view *layer = &view->layer[i];
        const linear_view *linears[] = {&layer->query, &layer->key, &layer->value, &layer->output,
                                        &layer->gate,  &layer->up,  &layer->down};
        for (size_t n = 0; n < sizeof(linears) / sizeof(linears[0]); n++)
            add(&reads, linears[n], 1);
        add_experts(&reads, &layer->experts);
    }
    add(&reads, &view->embedding_project, 1);
    add(&reads, &view->head_project, 1);
    add(&reads, &view->head, 1);
    return reads;
}
