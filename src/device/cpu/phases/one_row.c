/* Decoding one row: query, key and value in one phase with what only needs those of one KV head.
 * The panels of a KV head (its queries, its key, its value) are cut into items; the worker that
 * computes the last item of a head goes on with its attention, or, where that is shared out among
 * more workers than there are heads, writes its key and value. Nobody waits in between. */
#include "device/cpu/phases/attention_int.h"

#include "base/checked.h"

/* Workers of a team whose phases are short enough to write keys and values in one of their own:
 * panels of a KV head are fewer in a row than those of a whole matrix, and read more slowly. */
#define TEAM_SMALL 4

/* How the panels of every KV head are cut. */
typedef struct head_cut {
    uint32_t heads;   /* KV heads */
    size_t panels[3]; /* of a KV head: of query, key and value */
    size_t all;       /* their sum */
    size_t chunk;     /* panels of an item */
    uint32_t chunks;  /* items of a head */
} head_cut;

static head_cut cut_heads(const step_view *step, const layer_view *layer) {
    size_t panels = layer->head_size / QUANT_PANEL_ROWS, workers = team_size(step->team);
    group_range heads = fast_own_heads(step, layer);
    head_cut cut = {.heads = (uint32_t)(heads.end - heads.first),
                    .panels = {panels * layer->heads / layer->kv_heads, panels, panels}};
    cut.all = cut.panels[0] + cut.panels[1] + cut.panels[2];
    size_t most =
        size_min(cut.all, fast_chunk_wish(step, &layer->query.weight, cut.all * cut.heads));
    size_t shortest = SIZE_MAX;
    for (size_t chunk = most; chunk > 0 && chunk * 4 >= most; chunk--) {
        size_t items = (cut.all + chunk - 1) / chunk * cut.heads;
        size_t share = (items + workers - 1) / workers * chunk;
        if (share < shortest) {
            shortest = share;
            cut.chunk = chunk;
        }
    }
    cut.chunks = (uint32_t)((cut.all + cut.chunk - 1) / cut.chunk);
    return cut;
}

bool fast_one_row(const phase_list *list) {
    const step_view *step = list->step;
    const layer_view *layer = &step->model->layer[list->layer];
    group_range heads = fast_own_heads(step, layer);
    size_t size = layer->head_size, kv = (heads.end - heads.first) * size;
    size_t queries = kv * (layer->heads / layer->kv_heads);
    uint32_t workers = team_size(step->team);
    bool gains =
        workers > TEAM_SMALL || (workers > 1 && attention_plan_make(step, list->layer, 0).fused);
    return gains && step->batch->rows == 1 && !layer->whole_norms && size % QUANT_PANEL_ROWS == 0 &&
           layer->query.weight.rows == queries && layer->key.weight.rows == kv &&
           layer->value.weight.rows == kv && phase_list_counts(list, layer->kv_heads);
}

/* Panels [first, last) of a KV head, in the order query, key, value. */
static void compute_panels(const step_view *step, const fast_worker *own, const fast_input *input,
                           const fast_product products[3], const head_cut *cut, uint32_t head,
                           size_t first, size_t last) {
    size_t at = 0;
    for (size_t i = 0; i < 3; i++) {
        size_t panels = cut->panels[i], begin = first > at ? first - at : 0;
        size_t end = last > at ? size_min(last - at, panels) : 0;
        fast_part part = {0, 1, head * panels + begin, head * panels + end};
        if (begin < end)
            fast_product_part(step, own, input, &products[i], &part, products[i].out);
        at += panels;
    }
}

static void head_items(const step_view *step, const phase_entry *at, team_items *items) {
    const layer_view *layer = &step->model->layer[at->layer];
    uint64_t begin = step_clock(step);
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, at->layer, &operand);
    fast_input input = fast_take_input(step, at, &own, &operand);
    fast_product products[3];
    fast_query_key_value(step, layer, products);
    const attention_plan plan = attention_plan_make(step, at->layer, items->worker);
    const head_cut cut = cut_heads(step, layer);
    uint32_t item;
    while (team_take(items, &item)) {
        uint32_t head = item / cut.chunks;
        size_t first = item % cut.chunks * cut.chunk;
        compute_panels(step, &own, &input, products, &cut, head, first,
                       size_min(first + cut.chunk, cut.all));
        if (!phase_last(at, head, cut.chunks))
            continue;
        step_note(step, SPAN_ATTENTION_INPUT, at->layer, items->worker, &begin);
        if (plan.fused)
            attention_head(&plan, head);
        else
            attention_position(&plan, 0, plan.kv_first + head);
        step_note(step, plan.fused ? SPAN_ATTENTION : SPAN_ATTENTION_INPUT, at->layer,
                  items->worker, &begin);
    }
    step_note(step, SPAN_ATTENTION_INPUT, at->layer, items->worker, &begin);
}

void fast_add_one_row(phase_list *list) {
    const layer_view *layer = &list->step->model->layer[list->layer];
    const head_cut cut = cut_heads(list->step, layer);
    fast_add_input(list, PLACE_QUERY_KEY_VALUE);
    phase_list_add(list, PLACE_QUERY_KEY_VALUE, head_items, cut.heads * cut.chunks);
    phase_list_count(list, cut.heads);
    list->entry[list->count - 1].notes = true;
}
