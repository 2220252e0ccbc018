/* Attention of a step, shared out among the workers.
 *
 * Work is cut into tiles: some tokens of one session (as many as make ATTEND_ROWS_MAX rows) with
 * the heads of one KV head, so that K and V are read once for all of them. Who computes what never
 * changes a bit: a row's splits lie at fixed positions and are joined in order (attention.h).
 *
 *   fused    few rows, and whole (tile, KV head) units share out evenly: a worker takes a unit from
 *            the rotation to the result, and nobody waits in between
 *   split    few units for the workers, long timelines: splits of one unit go to different workers,
 *            states lie in the shared scratch and are joined behind a barrier
 *   units    everything else: rows are rotated and written by all, then units are shared out
 */
#include "kernels/fast/fast_int.h"

#include "kernels/ops.h"

#include <string.h>

#define ITEMS_PER_WORKER_ENOUGH 16 /* more units than this each balance well without splits */
#define SPLITS_HELD_MIN         64 /* of one head, so that some short sessions may be split too */

/* ---- Scratch: shared states, then each worker's own ---- */

static uint32_t splits_held(uint32_t context_max) {
    uint32_t splits = (context_max + ATTEND_SPLIT - 1) / ATTEND_SPLIT;
    return splits > SPLITS_HELD_MIN ? splits : SPLITS_HELD_MIN;
}

static size_t whole_lines(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Of the layer with the largest heads and that with most of them. */
static void largest_heads(const model_view *model, uint32_t *size, uint32_t *heads) {
    *size = 1;
    *heads = 1;
    for (uint32_t i = 0; i < model->layers; i++) {
        const layer_view *layer = &model->layer[i];
        *size = layer->head_size > *size ? layer->head_size : *size;
        *heads = layer->heads > *heads ? layer->heads : *heads;
    }
}

size_t fast_attention_shared_bytes(const scratch_shape *shape) {
    uint32_t size;
    uint32_t heads;
    largest_heads(shape->model, &size, &heads);
    return (size_t)splits_held(shape->context_max) * heads * attend_state_floats(size) *
           sizeof(float);
}

/* attend's scratch, the query, parts and totals of all rows. */
size_t fast_attention_worker_bytes(const scratch_shape *shape) {
    uint32_t size;
    uint32_t heads;
    largest_heads(shape->model, &size, &heads);
    return whole_lines(attend_scratch_bytes(size)) +
           ATTEND_ROWS_MAX *
               (attend_query_stride(size) + 2 * attend_state_floats(size) * sizeof(float));
}

/* ---- The plan: the same for every worker ---- */

typedef struct attention_plan {
    const step_view *step;
    const layer_view *layer;
    const op_table *ops;
    uint32_t number; /* of the layer */
    uint32_t worker, workers;
    uint32_t group;      /* query heads of a KV head */
    uint32_t unit_heads; /* of these, in one unit */
    uint32_t units;      /* per tile: KV heads × parts of their groups */
    uint32_t tile_tokens;
    uint64_t cost; /* of everything */
    bool fused, split;
} attention_plan;

/* Tokens [first, first + tokens) of the batch; pages and splits that any of them sees. */
typedef struct attention_tile {
    uint32_t segment, first, tokens;
    uint32_t first_page, last_page;
    uint32_t first_split, splits;
    size_t slot; /* split: of the first shared state */
} attention_tile;

static void sees(const attention_plan *plan, uint32_t row, uint32_t *begin, uint32_t *end) {
    uint32_t window = plan->layer->window;
    *end = plan->step->batch->position[row] + 1;
    *begin = window > 0 && *end > window ? *end - window : 0;
}

/* Goes to the next tile; begins with a tile of zeros. */
static bool next_tile(const attention_plan *plan, attention_tile *tile) {
    const batch_view *batch = plan->step->batch;
    uint32_t row = tile->first + tile->tokens;
    tile->slot += (size_t)tile->tokens * plan->layer->heads * tile->splits;
    tile->tokens = 0;
    while (tile->segment < batch->segments &&
           row >= batch->segment[tile->segment].first + batch->segment[tile->segment].rows) {
        tile->segment++;
        if (tile->segment < batch->segments)
            row = batch->segment[tile->segment].first;
    }
    if (tile->segment >= batch->segments)
        return false;
    const batch_segment *segment = &batch->segment[tile->segment];
    row = row > segment->first ? row : segment->first;
    uint32_t rest = segment->first + segment->rows - row;
    tile->first = row;
    tile->tokens = rest < plan->tile_tokens ? rest : plan->tile_tokens;
    uint32_t begin;
    uint32_t end;
    uint32_t ignored;
    sees(plan, row, &begin, &ignored);
    sees(plan, row + tile->tokens - 1, &ignored, &end);
    tile->first_page = begin / KV_PAGE_TOKENS;
    tile->last_page = (end - 1) / KV_PAGE_TOKENS;
    tile->first_split = begin / ATTEND_SPLIT;
    tile->splits = (end - 1) / ATTEND_SPLIT - tile->first_split + 1;
    return true;
}

static void split_pages(const attention_tile *tile, uint32_t split, uint32_t *first,
                        uint32_t *last) {
    uint32_t begin = split * ATTEND_SPLIT_PAGES;
    uint32_t end = begin + ATTEND_SPLIT_PAGES - 1;
    *first = begin > tile->first_page ? begin : tile->first_page;
    *last = end < tile->last_page ? end : tile->last_page;
}

/* In pages × rows; reading a page counts as much as six rows that use it. */
static uint64_t cost_of(const attention_plan *plan, const attention_tile *tile, uint32_t pages) {
    return (uint64_t)pages * (tile->tokens * plan->unit_heads + 6);
}

static uint64_t unit_cost(const attention_plan *plan, const attention_tile *tile) {
    return cost_of(plan, tile, tile->last_page - tile->first_page + 1);
}

/* The worker of the item that lies behind `before` in cost. */
static uint32_t owner(const attention_plan *plan, uint64_t before, uint64_t cost) {
    return (uint32_t)((before + cost / 2) * plan->workers / plan->cost);
}

/* The largest share, when whole units are dealt out in order. */
static uint64_t longest_share(const attention_plan *plan) {
    attention_tile tile = {0};
    uint64_t before = 0;
    uint64_t longest = 0;
    uint64_t share = 0;
    uint32_t worker = 0;
    while (next_tile(plan, &tile))
        for (uint32_t unit = 0; unit < plan->units; unit++) {
            uint64_t cost = unit_cost(plan, &tile);
            uint32_t own = owner(plan, before, cost);
            share = own == worker ? share + cost : cost;
            worker = own;
            longest = share > longest ? share : longest;
            before += cost;
        }
    return longest;
}

static attention_plan make_plan(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    attention_plan plan = {.step = step,
                           .layer = layer,
                           .ops = step->backend->ops,
                           .number = number,
                           .worker = worker,
                           .workers = team_size(step->team),
                           .group = layer->heads / layer->kv_heads};
    uint32_t parts = (plan.group + ATTEND_ROWS_MAX - 1) / ATTEND_ROWS_MAX;
    plan.unit_heads = (plan.group + parts - 1) / parts;
    plan.units = layer->kv_heads * parts;
    plan.tile_tokens = ATTEND_ROWS_MAX / plan.unit_heads;
    uint64_t items = 0;
    bool whole = parts == 1; /* and every session is one tile */
    uint32_t splits = 0;
    attention_tile tile = {0};
    while (next_tile(&plan, &tile)) {
        items += plan.units;
        plan.cost += plan.units * unit_cost(&plan, &tile);
        whole = whole && tile.tokens == step->batch->segment[tile.segment].rows;
        splits = tile.splits > splits ? tile.splits : splits;
    }
    uint64_t fair = plan.cost / plan.workers + 2 * (plan.unit_heads + 6);
    plan.fused = whole && longest_share(&plan) <= fair;
    /* Behind the last tile, `slot` has counted the states of all. */
    plan.split = !plan.fused && splits > 1 && items < ITEMS_PER_WORKER_ENOUGH * plan.workers &&
                 tile.slot <= (size_t)splits_held(step->scratch->context_max) * layer->heads;
    return plan;
}

/* ---- Positions ---- */

static void position_head(const attention_plan *plan, const norm_view *norm, uint32_t row,
                          float *head) {
    const layer_view *layer = plan->layer;
    const scratch_view *scratch = plan->step->scratch;
    if (norm->kind != NORM_NONE)
        plan->ops->norm(norm, head, layer->head_size, head);
    if (layer->rotary != ROTARY_NONE) {
        size_t at = ((size_t)layer->rotary * scratch->rows_max + row) * scratch->pairs_max;
        plan->ops->rotate(&plan->step->model->rotary[layer->rotary], scratch->cosine + at,
                          scratch->sine + at, head);
    }
    if (kv_type_scaled(plan->step->kv->type))
        plan->ops->kv_rotate(head, layer->head_size);
}

static void position_key_value(const attention_plan *plan, uint32_t row, uint32_t kv) {
    const layer_view *layer = plan->layer;
    const step_view *step = plan->step;
    uint32_t position = step->batch->position[row];
    uint32_t page = batch_pages(step->batch, row)[position / KV_PAGE_TOKENS];
    size_t at = ((size_t)row * layer->kv_heads + kv) * layer->head_size;
    float *key = step->scratch->key + at;
    float *value = step->scratch->value + at;
    position_head(plan, &layer->key_norm, row, key);
    if (kv_type_scaled(step->kv->type))
        plan->ops->kv_rotate(value, layer->head_size);
    plan->ops->kv_write(step->kv->type, layer->head_size,
                        kv_head(step->kv, page, plan->number, kv, layer->head_size),
                        position % KV_PAGE_TOKENS, key, value);
}

static void position_queries(const attention_plan *plan, uint32_t row, uint32_t first,
                             uint32_t last) {
    const layer_view *layer = plan->layer;
    for (uint32_t head = first; head < last; head++)
        position_head(plan, &layer->query_norm, row,
                      plan->step->scratch->query +
                          ((size_t)row * layer->heads + head) * layer->head_size);
}

/* Heads [first, last) of a unit. */
static void unit_heads(const attention_plan *plan, uint32_t unit, uint32_t *kv, uint32_t *first,
                       uint32_t *last) {
    uint32_t parts = plan->units / plan->layer->kv_heads;
    *kv = unit / parts;
    uint32_t end = (*kv + 1) * plan->group;
    *first = *kv * plan->group + unit % parts * plan->unit_heads;
    *last = *first + plan->unit_heads < end ? *first + plan->unit_heads : end;
}

static void position_unit(const attention_plan *plan, const attention_tile *tile, uint32_t unit) {
    uint32_t kv;
    uint32_t first;
    uint32_t last;
    unit_heads(plan, unit, &kv, &first, &last);
    for (uint32_t row = tile->first; row < tile->first + tile->tokens; row++) {
        position_key_value(plan, row, kv);
        position_queries(plan, row, first, last);
    }
}

/* Calls `work` for every unit that is this worker's. */
typedef void (*unit_function)(const attention_plan *plan, const attention_tile *tile, uint32_t unit,
                              void *context);
static void own_units(const attention_plan *plan, unit_function work, void *context) {
    attention_tile tile = {0};
    uint64_t before = 0;
    while (next_tile(plan, &tile))
        for (uint32_t unit = 0; unit < plan->units; unit++) {
            uint64_t cost = unit_cost(plan, &tile);
            if (owner(plan, before, cost) == plan->worker)
                work(plan, &tile, unit, context);
            before += cost;
        }
}

static void position_own(const attention_plan *plan, const attention_tile *tile, uint32_t unit,
                         void *context) {
    (void)context;
    position_unit(plan, tile, unit);
}

void fast_position(const step_view *step, uint32_t number, uint32_t worker) {
    attention_plan plan = make_plan(step, number, worker);
    if (plan.fused) {
        own_units(&plan, position_own, NULL);
        return;
    }
    uint32_t kv_heads = plan.layer->kv_heads;
    size_t begin;
    size_t end;
    team_share((size_t)step->batch->rows * kv_heads, worker, plan.workers, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        uint32_t row = (uint32_t)(i / kv_heads);
        uint32_t kv = (uint32_t)(i % kv_heads);
        position_key_value(&plan, row, kv);
        position_queries(&plan, row, kv * plan.group, (kv + 1) * plan.group);
    }
    team_barrier(step->team, worker);
}

/* ---- Attention ---- */

/* A worker's part of the scratch, and the rows of the unit that it works on. */
typedef struct attention_desk {
    float *shared;
    uint8_t *query;
    float *parts, *totals; /* [rows][state_floats] */
    size_t state_floats;
    uint32_t begin[ATTEND_ROWS_MAX], end[ATTEND_ROWS_MAX];
    float *state[ATTEND_ROWS_MAX];
    uint32_t first_head, heads;
    attend_call call;
} attention_desk;

static void open_desk(const attention_plan *plan, attention_desk *desk) {
    const step_view *step = plan->step;
    uint32_t own_size = plan->layer->head_size;
    uint8_t *at = fast_worker_of(step, plan->worker).attention;
    desk->shared = (float *)(void *)fast_shared_attention(step);
    desk->state_floats = attend_state_floats(own_size);
    desk->call = (attend_call){.type = step->kv->type,
                               .head_size = own_size,
                               .softcap = plan->layer->attention_softcap,
                               .page_bytes = step->kv->page_bytes,
                               .begin = desk->begin,
                               .end = desk->end,
                               .state = desk->state,
                               .scratch = at};
    at += whole_lines(attend_scratch_bytes(own_size));
    desk->query = at;
    desk->call.query = at;
    at += ATTEND_ROWS_MAX * attend_query_stride(own_size);
    desk->parts = (float *)(void *)at;
    desk->totals = desk->parts + ATTEND_ROWS_MAX * desk->state_floats;
}

/* Rows of a unit: token after token, each with its heads. */
static void take_unit(const attention_plan *plan, const attention_tile *tile, uint32_t unit,
                      attention_desk *desk) {
    const layer_view *layer = plan->layer;
    const step_view *step = plan->step;
    uint32_t kv;
    uint32_t last;
    unit_heads(plan, unit, &kv, &desk->first_head, &last);
    desk->heads = last - desk->first_head;
    float factor = attend_query_factor(layer->attention_scale, layer->attention_softcap);
    uint32_t r = 0;
    for (uint32_t row = tile->first; row < tile->first + tile->tokens; row++)
        for (uint32_t head = desk->first_head; head < last; head++, r++) {
            sees(plan, row, &desk->begin[r], &desk->end[r]);
            plan->ops->attend_query(step->kv->type, layer->head_size, factor,
                                    step->scratch->query +
                                        ((size_t)row * layer->heads + head) * layer->head_size,
                                    desk->query, r);
        }
    desk->call.rows = r;
    desk->call.head = kv_head(step->kv, 0, plan->number, kv, layer->head_size);
    desk->call.pages = step->batch->segment[tile->segment].pages;
    desk->call.pages_end = tile->last_page + 1;
}

static void empty_state(const attention_plan *plan, float *state) {
    size_t stride = kv_value_stride(plan->layer->head_size);
    memset(state, 0, (stride + 2) * sizeof(float));
    state[stride] = ATTEND_EMPTY;
}

static bool row_sees(uint32_t begin, uint32_t end, uint32_t split) {
    return begin < (split + 1) * ATTEND_SPLIT && end > split * ATTEND_SPLIT;
}

static float *attended(const attention_plan *plan, uint32_t row, uint32_t head) {
    const layer_view *layer = plan->layer;
    return plan->step->scratch->attended + ((size_t)row * layer->heads + head) * layer->head_size;
}

/* A whole unit: all splits in order. */
static void attend_unit(const attention_plan *plan, const attention_tile *tile, uint32_t unit,
                        void *context) {
    attention_desk *desk = context;
    uint32_t size = plan->layer->head_size;
    take_unit(plan, tile, unit, desk);
    uint32_t rows = desk->call.rows;
    for (uint32_t r = 0; r < rows; r++) {
        desk->state[r] = desk->parts + r * desk->state_floats;
        empty_state(plan, desk->totals + r * desk->state_floats);
    }
    for (uint32_t split = tile->first_split; split < tile->first_split + tile->splits; split++) {
        split_pages(tile, split, &desk->call.first_page, &desk->call.last_page);
        plan->ops->attend(&desk->call);
        for (uint32_t r = 0; r < rows; r++)
            if (row_sees(desk->begin[r], desk->end[r], split))
                plan->ops->attend_join(size, desk->state[r], desk->totals + r * desk->state_floats);
    }
    for (uint32_t r = 0; r < rows; r++)
        plan->ops->attend_finish(
            desk->call.type, size, desk->totals + r * desk->state_floats,
            attended(plan, tile->first + r / desk->heads, desk->first_head + r % desk->heads));
}

static float *shared_state(const attention_plan *plan, const attention_tile *tile,
                           const attention_desk *desk, uint32_t row, uint32_t head,
                           uint32_t split) {
    size_t index = tile->slot +
                   ((size_t)(row - tile->first) * plan->layer->heads + head) * tile->splits +
                   (split - tile->first_split);
    return desk->shared + index * desk->state_floats;
}

/* This worker's splits of one unit, into shared states; `before`: cost of all units before it. */
static void attend_unit_splits(const attention_plan *plan, const attention_tile *tile,
                               uint32_t unit, uint64_t before, attention_desk *desk) {
    bool taken = false;
    for (uint32_t split = tile->first_split; split < tile->first_split + tile->splits; split++) {
        split_pages(tile, split, &desk->call.first_page, &desk->call.last_page);
        uint64_t cost = cost_of(plan, tile, desk->call.last_page - desk->call.first_page + 1);
        bool own = owner(plan, before, cost) == plan->worker;
        before += cost;
        if (!own)
            continue;
        if (!taken)
            take_unit(plan, tile, unit, desk);
        taken = true;
        for (uint32_t r = 0; r < desk->call.rows; r++)
            desk->state[r] = shared_state(plan, tile, desk, tile->first + r / desk->heads,
                                          desk->first_head + r % desk->heads, split);
        plan->ops->attend(&desk->call);
    }
}

static void attend_splits(const attention_plan *plan, attention_desk *desk) {
    attention_tile tile = {0};
    uint64_t before = 0;
    while (next_tile(plan, &tile))
        for (uint32_t unit = 0; unit < plan->units; unit++) {
            attend_unit_splits(plan, &tile, unit, before, desk);
            before += unit_cost(plan, &tile);
        }
}

static void join_row(const attention_plan *plan, const attention_tile *tile,
                     const attention_desk *desk, uint32_t row, uint32_t head) {
    uint32_t size = plan->layer->head_size;
    uint32_t begin;
    uint32_t end;
    sees(plan, row, &begin, &end);
    empty_state(plan, desk->totals);
    for (uint32_t split = tile->first_split; split < tile->first_split + tile->splits; split++)
        if (row_sees(begin, end, split))
            plan->ops->attend_join(size, shared_state(plan, tile, desk, row, head, split),
                                   desk->totals);
    plan->ops->attend_finish(desk->call.type, size, desk->totals, attended(plan, row, head));
}

/* The worker's share of rows, from shared states. */
static void join_splits(const attention_plan *plan, const attention_desk *desk) {
    uint32_t heads = plan->layer->heads;
    size_t first;
    size_t last;
    team_share((size_t)plan->step->batch->rows * heads, plan->worker, plan->workers, &first, &last);
    attention_tile tile = {0};
    while (next_tile(plan, &tile))
        for (size_t i = (size_t)tile.first * heads; i < (size_t)(tile.first + tile.tokens) * heads;
             i++)
            if (i >= first && i < last)
                join_row(plan, &tile, desk, (uint32_t)(i / heads), (uint32_t)(i % heads));
}

void fast_attention(const step_view *step, uint32_t number, uint32_t worker) {
    attention_plan plan = make_plan(step, number, worker);
    attention_desk desk;
    open_desk(&plan, &desk);
    if (plan.split) {
        attend_splits(&plan, &desk);
        team_barrier(step->team, worker);
        join_splits(&plan, &desk);
    } else {
        own_units(&plan, attend_unit, &desk);
    }
    team_barrier(step->team, worker);
}
