/* Final norm and logits. Workers take chunks of the vocabulary; of each chunk they keep the highest
 * logits and the sum of exponentials, so that greedy and top-k drawing need no look at the whole,
 * which is written only where somebody asked for it. */
#include "device/cpu/phases/fast_int.h"

#include "base/checked.h"
#include "base/mathd.h"
#include "device/cpu/phases/head_int.h"

#include <math.h>
#include <string.h>

static chunk_sum *chunk_sums(const step_view *step, size_t row) {
    size_t chunks = head_chunks(step->model);
    return (chunk_sum *)(void *)fast_shared_head(step) + row * chunks;
}

static logit_top *worker_top(const step_view *step, size_t row, uint32_t worker) {
    size_t sums = step->scratch->logits_max * head_chunks(step->model) * sizeof(chunk_sum);
    logit_top *all = (logit_top *)(void *)(fast_shared_head(step) + sums);
    return all + row * team_size(step->team) + worker;
}

/* Keeps the `wanted` highest in order; of equals the lower token stays in front, in whatever order
 * they come. */
static void top_insert(logit_top *top, uint32_t wanted, float logit, int32_t token) {
    uint32_t at = top->count;
    while (at > 0 && (logit > top->logit[at - 1] ||
                      (logit == top->logit[at - 1] && token < top->token[at - 1])))
        at--;
    if (at >= wanted)
        return;
    uint32_t last = top->count < wanted ? top->count++ : wanted - 1;
    for (uint32_t i = last; i > at; i--) {
        top->logit[i] = top->logit[i - 1];
        top->token[i] = top->token[i - 1];
    }
    top->logit[at] = logit;
    top->token[at] = token;
}

static void top_scan(const step_view *step, logit_top *top, const float *logits, size_t count,
                     size_t first, float highest) {
    uint32_t wanted = step->batch->top;
    if (top->count == wanted && !(highest >= top->logit[wanted - 1]))
        return; /* nothing here comes in */
    for (size_t i = 0; i < count; i++)
        if (logits[i] == logits[i] && (top->count < wanted || logits[i] >= top->logit[wanted - 1]))
            top_insert(top, wanted, logits[i], (int32_t)(first + i));
}

/* One chunk of all rows, from the product to what is kept of it. */
static void head_chunk(const step_view *step, const fast_worker *own, const fast_input *input,
                       size_t chunk) {
    const model_view *model = step->model;
    const op_table *ops = step->backend->ops;
    const batch_view *batch = step->batch;
    size_t first = chunk * HEAD_CHUNK;
    size_t count = size_min(model->vocabulary - first, HEAD_CHUNK);
    bool whole = batch->logits_whole;
    size_t stride = whole ? model->vocabulary : HEAD_CHUNK;
    float *base = whole ? step->scratch->logits + first : own->logits;
    size_t own_first = first - fast_first_row(step, NULL, ADAPTER_HEAD);
    linear_view part = {.weight =
                            weight_slice(&model->head.weight, (uint32_t)own_first, (uint32_t)count),
                        .bias = model->head.bias == NULL ? NULL : model->head.bias + own_first};
    fast_product product = {.linear = &part,
                            .out = base,
                            .out_stride = stride,
                            .end = LINEAR_STORE,
                            .first_panel = first / QUANT_PANEL_ROWS};
    fast_part all = {0, batch->logit_rows, 0, weight_panels(&part.weight)};
    fast_product_part(step, own, input, &product, &all, base);
    for (uint32_t row = 0; row < batch->logit_rows; row++) {
        float *logits = base + row * stride;
        if (model->logit_scale != 1.0f || model->logit_softcap != 0.0f)
            ops->finish_logits(logits, count, model->logit_scale, model->logit_softcap);
        if (batch->top == 0)
            continue;
        float highest = logits[ops->largest(logits, count)];
        highest = highest == highest ? highest : -INFINITY;
        float offset = highest == -INFINITY ? 0.0f : highest;
        chunk_sums(step, row)[chunk] = (chunk_sum){highest, ops->sum_exp(logits, count, offset)};
        top_scan(step, worker_top(step, row, own->index), logits, count, first, highest);
        size_t target = batch->target == NULL ? SIZE_MAX : (size_t)batch->target[row];
        if (target >= first && target - first < count)
            step->scratch->top[row].target = logits[target - first];
    }
}

/* What the workers found becomes one list. */
static void merge_found(const step_view *step, size_t row) {
    logit_top *out = &step->scratch->top[row];
    out->count = 0;
    for (uint32_t worker = 0; worker < team_size(step->team); worker++) {
        const logit_top *found = worker_top(step, row, worker);
        for (uint32_t i = 0; i < found->count; i++)
            top_insert(out, step->batch->top, found->logit[i], found->token[i]);
    }
}

/* What the chunks summed becomes one sum. */
static void merge_sums(const step_view *step, size_t row) {
    logit_top *out = &step->scratch->top[row];
    const chunk_sum *sums = chunk_sums(step, row);
    double highest = out->count > 0 ? (double)out->logit[0] : 0.0;
    double sum = 0.0;
    for (size_t chunk = 0; chunk < head_chunks(step->model); chunk++)
        sum += sums[chunk].highest == -INFINITY && sums[chunk].sum == sums[chunk].sum
                   ? 0.0
                   : (double)sums[chunk].sum * mathd_exp((double)sums[chunk].highest - highest);
    out->log_sum = mathd_log(sum);
}

static void merge_row(const step_view *step, size_t row) {
    merge_found(step, row);
    if (!fast_by_rows(step))
        merge_sums(step, row);
}

/* ---- Ranks: rank 0 gets what the others found ---- */

static void pack_found(const step_view *step, size_t row, uint8_t *to) {
    const logit_top *top = &step->scratch->top[row];
    group_range own = fast_own_chunks(step, head_chunks(step->model));
    uint32_t wanted = step->batch->top;
    memcpy(to, &top->count, sizeof(top->count));
    memcpy(to += sizeof(top->count), &top->target, sizeof(top->target));
    memcpy(to += sizeof(top->target), top->logit, wanted * sizeof(float));
    memcpy(to += wanted * sizeof(float), top->token, wanted * sizeof(int32_t));
    memcpy(to + wanted * sizeof(int32_t), chunk_sums(step, row) + own.first,
           (own.end - own.first) * sizeof(chunk_sum));
}

static void unpack_found(const step_view *step, group_range chunks, size_t row,
                         const uint8_t *from) {
    logit_top found, *top = &step->scratch->top[row];
    uint32_t wanted = step->batch->top;
    memcpy(&found.count, from, sizeof(found.count));
    memcpy(&found.target, from += sizeof(found.count), sizeof(found.target));
    memcpy(found.logit, from += sizeof(found.target), wanted * sizeof(float));
    memcpy(found.token, from += wanted * sizeof(float), wanted * sizeof(int32_t));
    memcpy(chunk_sums(step, row) + chunks.first, from + wanted * sizeof(int32_t),
           (chunks.end - chunks.first) * sizeof(chunk_sum));
    for (uint32_t i = 0; i < found.count && i < wanted; i++)
        top_insert(top, wanted, found.logit[i], found.token[i]);
    size_t target = step->batch->target == NULL ? SIZE_MAX : (size_t)step->batch->target[row];
    if (target / HEAD_CHUNK >= chunks.first && target / HEAD_CHUNK < chunks.end)
        top->target = found.target;
}

static void collect_top(const step_view *step) {
    group_part send[GROUP_RANKS_MAX] = {{0}}, receive[GROUP_RANKS_MAX] = {{0}};
    const group_stream *stream = step->group;
    const cpu_group *group = stream->group;
    uint32_t rows = step->batch->logit_rows;
    size_t chunks = head_chunks(step->model), at = 0, bytes[GROUP_RANKS_MAX];
    for (uint32_t rank = 0; rank < group->ranks; rank++) {
        group_range own = group_pieces(group, chunks, rank);
        bytes[rank] = head_sent_bytes(step->batch->top, own.end - own.first);
        if (group->rank == 0 && rank > 0) {
            receive[rank] = (group_part){step->scratch->received + at, rows * bytes[rank]};
            at += rows * bytes[rank];
        }
    }
    if (group->rank > 0) {
        for (uint32_t row = 0; row < rows; row++)
            pack_found(step, row, step->scratch->sent + row * bytes[group->rank]);
        send[0] = (group_part){step->scratch->sent, rows * bytes[group->rank]};
    }
    fast_exchange(step, send, receive);
    if (group->rank > 0 || atomic_load_explicit(&stream->failed, memory_order_relaxed))
        return;
    for (uint32_t rank = 1; rank < group->ranks; rank++)
        for (uint32_t row = 0; row < rows; row++)
            unpack_found(step, group_pieces(group, chunks, rank), row,
                         receive[rank].data + row * bytes[rank]);
    for (uint32_t row = 0; row < rows; row++)
        merge_sums(step, row);
}

/* All logits of a row, to where rank 0 keeps them. */
static void collect_row(const step_view *step, size_t row) {
    group_part send[GROUP_RANKS_MAX] = {{0}}, receive[GROUP_RANKS_MAX] = {{0}};
    const cpu_group *group = step->group->group;
    size_t vocabulary = step->model->vocabulary;
    float *logits = step->scratch->logits + row * vocabulary;
    for (uint32_t rank = 1; rank < group->ranks; rank++) {
        group_range chunks = group_pieces(group, head_chunks(step->model), rank);
        size_t first = size_min(chunks.first * HEAD_CHUNK, vocabulary);
        size_t end = size_min(chunks.end * HEAD_CHUNK, vocabulary);
        group_part part = {(uint8_t *)(logits + first), (end - first) * sizeof(float)};
        if (group->rank == 0)
            receive[rank] = part;
        else if (group->rank == rank)
            send[0] = part;
    }
    fast_exchange(step, send, receive);
}

static void collect_item(const step_view *step, const phase_entry *at, team_items *items) {
    (void)at;
    for (uint32_t item; team_take(items, &item);) {
        if (step->batch->top > 0)
            collect_top(step);
        for (uint32_t row = 0; step->batch->logits_whole && row < step->batch->logit_rows; row++)
            if (!atomic_load_explicit(&step->group->failed, memory_order_relaxed))
                collect_row(step, row);
    }
}

/* ---- Phases ---- */

static void project_product(const step_view *step, fast_product *out) {
    *out = (fast_product){.linear = &step->model->head_project,
                          .out = step->scratch->projected,
                          .out_stride = step->model->head.weight.k,
                          .end = LINEAR_STORE};
}

static void project_items(const step_view *step, const phase_entry *at, team_items *items) {
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, 0, &operand);
    fast_input input = fast_take_input(step, at, &own, &operand);
    fast_product project;
    project_product(step, &project);
    fast_products(step, &own, &input, &project, 1, items);
}

static void chunk_items(const step_view *step, const phase_entry *at, team_items *items) {
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, 0, &operand);
    fast_input input = fast_take_input(step, at, &own, &operand);
    uint32_t chunk;
    group_range chunks = fast_own_chunks(step, head_chunks(step->model));
    while (team_take(items, &chunk)) {
        head_chunk(step, &own, &input, chunks.first + chunk);
        if (at->counts > 0 && phase_last(at, 0, (uint32_t)(chunks.end - chunks.first)))
            merge_row(step, 0);
    }
}

static void merge_items(const step_view *step, const phase_entry *at, team_items *items) {
    uint32_t row;
    (void)at;
    while (team_take(items, &row))
        merge_row(step, row);
}

void fast_add_head(phase_list *list) {
    const step_view *step = list->step;
    uint32_t rows = step->batch->logit_rows;
    list->span = SPAN_HEAD;
    list->layer = 0;
    if (rows == 0)
        return;
    /* Whoever takes no chunk has found nothing. */
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t worker = 0; worker < team_size(step->team); worker++)
            worker_top(step, row, worker)->count = 0;
    if (step->model->head_project.weight.data != NULL) {
        fast_product project;
        project_product(step, &project);
        fast_add_input(list, PLACE_HEAD_PROJECT);
        phase_list_add(list, PLACE_HEAD_PROJECT, project_items,
                       fast_products_items(step, rows, &project, 1));
    }
    group_range chunks = fast_own_chunks(step, head_chunks(step->model));
    fast_add_input(list, PLACE_HEAD);
    phase_list_add(list, PLACE_HEAD, chunk_items, chunks.end - chunks.first);
    if (step->batch->top > 0 && rows == 1 && list->added && phase_list_counts(list, 1))
        phase_list_count(list, 1);
    else if (step->batch->top > 0)
        phase_list_add(list, PLACE_NONE, merge_items, rows);
    if (fast_by_rows(step))
        phase_list_lead(list, PLACE_NONE, collect_item);
}
