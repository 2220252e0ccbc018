/* The plan of a layer's attention: tiles, units and items; and the scratch. All workers make the
 * same plan from the same batch, so nobody has to be asked. */
#include "device/cpu/phases/attention_int.h"

#define ITEMS_PER_WORKER_ENOUGH 16 /* more units than this each balance well without splits */
#define EVEN_UNITS              4  /* of every worker: the rest of a division weighs little */
#define TILE_ROWS_MIN           32 /* tiles are not cut smaller than this for balance */
#define ONCE_ROWS               16 /* most and fewest tokens of a session in several tiles */
#define ONCE_ROWS_MIN           3
#define ONCE_WORKERS            4
#define SPLITS_HELD_MIN         64 /* of one head, so that some short sessions may be split too */

/* ---- Scratch: shared states, then each worker's own ---- */

static uint32_t splits_held(uint32_t context_max) {
    uint32_t splits = (context_max + ATTEND_SPLIT - 1) / ATTEND_SPLIT;
    return splits > SPLITS_HELD_MIN ? splits : SPLITS_HELD_MIN;
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

size_t fast_attention_worker_bytes(const scratch_shape *shape) {
    uint32_t size;
    uint32_t heads;
    largest_heads(shape->model, &size, &heads);
    return attention_whole_lines(attend_scratch_bytes(size)) +
           ATTEND_ROWS_MAX *
               (attend_query_stride(size) + 2 * attend_state_floats(size) * sizeof(float));
}

attention_room attention_room_of(const attention_plan *plan) {
    uint32_t size = plan->layer->head_size;
    uint8_t *at = fast_worker_of(plan->step, plan->worker).attention;
    attention_room room;
    room.attend = at;
    room.query = at += attention_whole_lines(attend_scratch_bytes(size));
    room.parts = (float *)(void *)(at + ATTEND_ROWS_MAX * attend_query_stride(size));
    room.totals = room.parts + ATTEND_ROWS_MAX * attend_state_floats(size);
    return room;
}

/* ---- Tiles ---- */

void attention_sees(const attention_plan *plan, uint32_t row, uint32_t *begin, uint32_t *end) {
    uint32_t window = plan->layer->window;
    *end = plan->step->batch->position[row] + 1;
    *begin = window > 0 && *end > window ? *end - window : 0;
}

bool attention_next_tile(const attention_plan *plan, attention_tile *tile) {
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
    attention_sees(plan, row, &begin, &ignored);
    attention_sees(plan, row + tile->tokens - 1, &ignored, &end);
    tile->first_page = begin / KV_PAGE_TOKENS;
    tile->last_page = (end - 1) / KV_PAGE_TOKENS;
    tile->first_split = begin / ATTEND_SPLIT;
    tile->splits = (end - 1) / ATTEND_SPLIT - tile->first_split + 1;
    return true;
}

void attention_split_pages(const attention_tile *tile, uint32_t split, uint32_t *first,
                           uint32_t *last) {
    uint32_t begin = split * ATTEND_SPLIT_PAGES;
    uint32_t end = begin + ATTEND_SPLIT_PAGES - 1;
    *first = begin > tile->first_page ? begin : tile->first_page;
    *last = end < tile->last_page ? end : tile->last_page;
}

attention_heads attention_unit_heads(const attention_plan *plan, uint32_t unit) {
    attention_heads heads = {.kv = plan->kv_first + unit / plan->parts};
    uint32_t end = (heads.kv + 1) * plan->group;
    heads.first = heads.kv * plan->group + unit % plan->parts * plan->unit_heads;
    heads.last = heads.first + plan->unit_heads < end ? heads.first + plan->unit_heads : end;
    return heads;
}

/* ---- Items ---- */

/* Item `item` of `count` that workers take: a share begins with long units and ends with short
 * ones, every share with the like of the others. */
static size_t unit_of_item(const attention_plan *plan, size_t item, size_t count) {
    size_t base = count / plan->workers;
    size_t longer = count % plan->workers; /* shares with one more */
    size_t share = item < longer * (base + 1) ? item / (base + 1) : (item - longer) / base;
    size_t place = item - share * base - (share < longer ? share : longer);
    return count - 1 - (place * plan->workers + share);
}

size_t attention_units(const attention_plan *plan) {
    attention_tile tile = {0};
    size_t tiles = 0;
    while (attention_next_tile(plan, &tile))
        tiles++;
    return tiles * plan->units;
}

attention_unit attention_unit_at(const attention_plan *plan, size_t item) {
    attention_unit found = {0};
    size_t units = attention_units(plan), tiles = units / plan->units;
    /* With tiles of one session, those of a KV head side by side: K and V stay with one worker. */
    size_t index =
        plan->once ? item % tiles * plan->units + item / tiles : unit_of_item(plan, item, units);
    for (size_t i = 0; i <= index / plan->units; i++)
        (void)attention_next_tile(plan, &found.tile);
    found.unit = (uint32_t)(index % plan->units);
    return found;
}

size_t attention_splits(const attention_plan *plan) {
    attention_tile tile = {0};
    size_t splits = 0;
    while (attention_next_tile(plan, &tile))
        splits += (size_t)plan->units * tile.splits;
    return splits;
}

attention_unit attention_split_at(const attention_plan *plan, size_t item) {
    attention_unit found = {0};
    while (attention_next_tile(plan, &found.tile) &&
           item >= (size_t)plan->units * found.tile.splits)
        item -= (size_t)plan->units * found.tile.splits;
    found.unit = (uint32_t)(item / found.tile.splits);
    found.split = (uint32_t)(item % found.tile.splits);
    return found;
}

/* ---- The plan ---- */

/* Items of all tiles with this many rows. */
typedef struct plan_sum {
    uint64_t items;
    uint32_t splits; /* of the longest */
    size_t states;
    bool whole; /* every session is one tile */
} plan_sum;

static plan_sum sum_tiles(attention_plan *plan, uint32_t rows) {
    plan->tile_tokens = rows / plan->unit_heads > 1 ? rows / plan->unit_heads : 1;
    plan_sum sum = {.whole = true};
    attention_tile tile = {0};
    while (attention_next_tile(plan, &tile)) {
        sum.items += plan->units;
        sum.whole = sum.whole && tile.tokens == plan->step->batch->segment[tile.segment].rows;
        sum.splits = tile.splits > sum.splits ? tile.splits : sum.splits;
    }
    sum.states = tile.slot; /* behind the last tile it has counted all */
    return sum;
}

static bool even_units(const attention_plan *plan, const plan_sum *sum) {
    return sum->items % plan->workers == 0 || sum->items >= EVEN_UNITS * plan->workers;
}

/* Few rows: tiles with fewer tokens, so that all workers have as many units; false: there are none.
 */
static bool cut_even(attention_plan *plan, plan_sum *sum) {
    uint32_t tokens = plan->step->batch->rows;
    for (uint32_t tiles = 2; tiles <= plan->workers; tiles++) {
        plan_sum cut = sum_tiles(plan, (tokens + tiles - 1) / tiles * plan->unit_heads);
        if (!even_units(plan, &cut))
            continue;
        *sum = cut;
        return true;
    }
    *sum = sum_tiles(plan, ATTEND_ROWS_MAX);
    return false;
}

attention_plan attention_plan_make(const step_view *step, uint32_t number, uint32_t worker) {
    const layer_view *layer = &step->model->layer[number];
    attention_plan plan = {.step = step,
                           .layer = layer,
                           .ops = step->backend->ops,
                           .number = number,
                           .worker = worker,
                           .workers = team_size(step->team),
                           .group = layer->heads / layer->kv_heads};
    group_range heads = fast_own_heads(step, layer);
    plan.kv_first = (uint32_t)heads.first;
    plan.kv_heads = (uint32_t)(heads.end - heads.first);
    plan.parts = (plan.group + ATTEND_ROWS_MAX - 1) / ATTEND_ROWS_MAX;
    plan.unit_heads = (plan.group + plan.parts - 1) / plan.parts;
    plan.units = plan.kv_heads * plan.parts;
    uint64_t enough = (uint64_t)ITEMS_PER_WORKER_ENOUGH * plan.workers;
    uint32_t rows = ATTEND_ROWS_MAX;
    plan_sum sum = sum_tiles(&plan, rows);
    while (!sum.whole && sum.items < enough && rows > TILE_ROWS_MIN)
        sum = sum_tiles(&plan, rows /= 2);
    bool even = even_units(&plan, &sum);
    if (!even && plan.parts == 1 && sum.splits == 1 && plan.workers <= ONCE_WORKERS &&
        step->batch->segments == 1 && step->batch->rows <= ONCE_ROWS &&
        step->batch->rows >= ONCE_ROWS_MIN)
        even = plan.once = cut_even(&plan, &sum);
    plan.split = !even && sum.splits > 1 && sum.items < enough &&
                 sum.states <= (size_t)splits_held(step->scratch->context_max) * layer->heads;
    plan.fused = plan.parts == 1 && (sum.whole || plan.once) && !plan.split;
    return plan;
}
