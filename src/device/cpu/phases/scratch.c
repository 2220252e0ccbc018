/* The scratch of the fast back ends: how much, and where its parts lie. */
#include "device/cpu/phases/fast_int.h"

#include "base/checked.h"
#include "device/cpu/phases/head_int.h"

/* Longest input of a product. */
static size_t longest_input(const model_view *model) {
    return size_max(size_max(model->k_max, model->width), ADAPTER_RANK_MAX);
}

/* One form's activations of rows that a worker prepares alone: up to ALONE_ROWS rows of together at
 * most ALONE_NUMBERS numbers (each row padded), or one row of any length. */
static size_t alone_bytes(const model_view *model) {
    return activation_bytes(ALONE_ROWS, ALONE_NUMBERS / ALONE_ROWS) +
           activation_bytes(1, size_max(longest_input(model), ALONE_NUMBERS));
}

/* Offsets of a worker's parts. The attention's comes last: where it begins is needed in every
 * phase, how long it is only once. */
typedef struct worker_parts {
    size_t linear, row, alone, alone_bytes, logits, gate, norm, adapted, attention;
} worker_parts;

static bool part_add(size_t *total, size_t bytes, size_t *offset) {
    *offset = *total;
    return size_add(*total, bytes, total) && size_round_up(*total, 64, total);
}

static bool worker_lay(const scratch_shape *shape, worker_parts *parts) {
    size_t k = longest_input(shape->model);
    size_t logits;
    size_t *end = &parts->attention;
    *end = 0;
    parts->alone_bytes = (alone_bytes(shape->model) + 63) / 64 * 64;
    return size_multiply(shape->logits_max, HEAD_CHUNK * sizeof(float), &logits) &&
           part_add(end, linear_scratch_bytes(k), &parts->linear) &&
           part_add(end, k * sizeof(float), &parts->row) &&
           part_add(end, PRODUCT_FORMS * parts->alone_bytes, &parts->alone) &&
           part_add(end, logits, &parts->logits) &&
           part_add(end, FAST_PART_NUMBERS * sizeof(float), &parts->gate) &&
           part_add(end, 2 * k * sizeof(float), &parts->norm) &&
           part_add(end, FAST_ADAPTED_ALONE, &parts->adapted);
}

/* Activations of all rows in every form, those of the gated product in one, then the head's, the
 * attention's and the adapters' parts. */
bool fast_scratch_bytes(const scratch_shape *shape, size_t *worker, size_t *shared) {
    worker_parts parts = {0};
    size_t forms;
    size_t head;
    size_t adapted;
    if (!worker_lay(shape, &parts) ||
        !size_multiply(PRODUCT_FORMS + 1, fast_form_bytes(shape->model, shape->rows_max), &forms) ||
        !size_multiply(shape->logits_max, head_row_bytes(shape->model, shape->workers), &head) ||
        !size_multiply(adapter_row_room(shape->adapter_rank_max) * FAST_ADAPTED_NUMBER,
                       shape->rows_max, &adapted))
        return false;
    if (!size_add(parts.attention, fast_attention_worker_bytes(shape), worker) ||
        !size_round_up(*worker, 64, worker))
        return false;
    *shared = 0;
    size_t ignored;
    size_t experts;
    return fast_experts_bytes(shape->model, shape->rows_max, &experts) &&
           part_add(shared, forms, &ignored) && part_add(shared, head, &ignored) &&
           part_add(shared, fast_attention_shared_bytes(shape), &ignored) &&
           part_add(shared, adapted, &ignored) && part_add(shared, experts, &ignored);
}

size_t fast_form_bytes(const model_view *model, uint32_t rows_max) {
    return (activation_bytes(rows_max, longest_input(model)) + 63) / 64 * 64;
}

static scratch_shape shape_of(const step_view *step) {
    return (scratch_shape){.model = step->model,
                           .rows_max = step->scratch->rows_max,
                           .logits_max = step->scratch->logits_max,
                           .workers = team_size(step->team),
                           .context_max = step->scratch->context_max,
                           .adapter_rank_max = step->scratch->adapter_rank_max};
}

fast_worker fast_worker_of(const step_view *step, uint32_t worker) {
    scratch_shape shape = shape_of(step);
    worker_parts parts = {0};
    bool fits = worker_lay(&shape, &parts); /* it did when the engine was opened */
    (void)fits;
    uint8_t *base = step->scratch->worker + worker * step->scratch->worker_bytes;
    return (fast_worker){.index = worker,
                         .linear = base + parts.linear,
                         .row = (float *)(void *)(base + parts.row),
                         .alone = base + parts.alone,
                         .alone_bytes = parts.alone_bytes,
                         .logits = (float *)(void *)(base + parts.logits),
                         .gate = (float *)(void *)(base + parts.gate),
                         .norm = (float *)(void *)(base + parts.norm),
                         .adapted = base + parts.adapted,
                         .attention = base + parts.attention};
}

uint8_t *fast_shared_form(const step_view *step, product_form form) {
    return step->scratch->shared +
           (size_t)form * fast_form_bytes(step->model, step->scratch->rows_max);
}

uint8_t *fast_shared_gated(const step_view *step) {
    return fast_shared_form(step, PRODUCT_FORMS);
}

uint8_t *fast_shared_head(const step_view *step) {
    return fast_shared_gated(step) + fast_form_bytes(step->model, step->scratch->rows_max);
}

uint8_t *fast_shared_attention(const step_view *step) {
    size_t head = step->scratch->logits_max * head_row_bytes(step->model, team_size(step->team));
    return fast_shared_head(step) + (head + 63) / 64 * 64;
}

uint8_t *fast_shared_adapted(const step_view *step) {
    scratch_shape shape = shape_of(step);
    return fast_shared_attention(step) + (fast_attention_shared_bytes(&shape) + 63) / 64 * 64;
}

uint8_t *fast_shared_experts(const step_view *step) {
    size_t adapted = adapter_row_room(step->scratch->adapter_rank_max) * FAST_ADAPTED_NUMBER *
                     step->scratch->rows_max;
    return fast_shared_adapted(step) + (adapted + 63) / 64 * 64;
}
