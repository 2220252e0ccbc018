/* Attention of a step by the plan of attention_int.h: units as a whole, or their splits into shared
 * states that are joined: of one row by the worker that computes the last split, of more rows in a
 * phase of their own. */
#include "device/cpu/phases/attention_int.h"

#include <string.h>

/* The rows of the unit that a worker works on, and where its numbers lie. */
typedef struct attention_desk {
    attention_room room;
    float *shared;
    size_t state_floats;
    uint32_t begin[ATTEND_ROWS_MAX], end[ATTEND_ROWS_MAX];
    attention_heads heads;
    attend_call call;
} attention_desk;

static void open_desk(const attention_plan *plan, attention_desk *desk) {
    const step_view *step = plan->step;
    uint32_t size = plan->layer->head_size;
    desk->room = attention_room_of(plan);
    desk->shared = (float *)(void *)fast_shared_attention(step);
    desk->state_floats = attend_state_floats(size);
    desk->call = (attend_call){.type = step->kv->type,
                               .head_size = size,
                               .softcap = plan->layer->attention_softcap,
                               .page_bytes = step->kv->page_bytes,
                               .begin = desk->begin,
                               .end = desk->end,
                               .query = desk->room.query,
                               .state_stride = desk->state_floats,
                               .scratch = desk->room.attend};
}

/* Rows of a unit: token after token, each with its heads. Several workers may take up the same
 * query, so it is rotated in a copy. */
static void take_unit(const attention_plan *plan, const attention_tile *tile, uint32_t unit,
                      attention_desk *desk) {
    const layer_view *layer = plan->layer;
    const step_view *step = plan->step;
    size_t size = layer->head_size;
    float factor = attend_query_factor(layer->attention_scale, layer->attention_softcap);
    float *copy = desk->room.parts; /* free until the first split is computed */
    desk->heads = attention_unit_heads(plan, unit);
    uint32_t r = 0;
    for (uint32_t row = tile->first; row < tile->first + tile->tokens; row++)
        for (uint32_t head = desk->heads.first; head < desk->heads.last; head++, r++) {
            const float *query = step->scratch->query + ((size_t)row * layer->heads + head) * size;
            for (size_t i = 0; i < size; i += 16) /* the next token's, from another's cache */
                __builtin_prefetch(query + layer->heads * size + i);
            attention_sees(plan, row, &desk->begin[r], &desk->end[r]);
            memcpy(copy, query, size * sizeof(float));
            attention_position_head(plan, &layer->query_norm, ADAPTER_QUERY_NORM, row, copy);
            plan->ops->attend_query(step->kv->type, layer->head_size, factor, copy,
                                    desk->room.query, r);
        }
    desk->call.rows = r;
    desk->call.head = kv_head(step->kv, 0, plan->number, desk->heads.kv, layer->head_size);
    desk->call.pages = step->batch->segment[tile->segment].pages;
    desk->call.pages_end = tile->last_page + 1;
}

static float *attended(const attention_plan *plan, uint32_t row, uint32_t head) {
    const layer_view *layer = plan->layer;
    return plan->step->scratch->attended + ((size_t)row * layer->heads + head) * layer->head_size;
}

/* The score of a head's sink joins its row as a split that has no values. */
static void finish_state(const attention_plan *plan, const attention_desk *desk, uint32_t row,
                         uint32_t head, float *total) {
    uint32_t size = plan->layer->head_size;
    if (plan->layer->sinks != NULL) {
        float *sink = desk->room.parts; /* free behind the last split */
        memset(sink, 0, desk->state_floats * sizeof(float));
        *attend_state_largest(sink, size) = plan->layer->sinks[head] * ATTEND_LOG2E;
        *attend_state_sum(sink, size) = 1.0f;
        plan->ops->attend_join(size, sink, total);
    }
    plan->ops->attend_finish(desk->call.type, size, total, attended(plan, row, head));
}

/* ---- Whole units ---- */

/* Parts of a split behind the tile's first: a row's first becomes its total, later ones join it. */
static void join_parts(const attention_plan *plan, const attention_desk *desk, uint32_t split) {
    for (uint32_t r = 0; r < desk->call.rows; r++) {
        const float *part = desk->room.parts + r * desk->state_floats;
        float *total = desk->room.totals + r * desk->state_floats;
        if (desk->end[r] <= split * ATTEND_SPLIT)
            continue;
        if (desk->begin[r] >= split * ATTEND_SPLIT)
            memcpy(total, part, desk->state_floats * sizeof(float));
        else
            plan->ops->attend_join(plan->layer->head_size, part, total);
    }
}

static void attend_unit(const attention_plan *plan, const attention_unit *unit,
                        attention_desk *desk) {
    const attention_tile *tile = &unit->tile;
    take_unit(plan, tile, unit->unit, desk);
    for (uint32_t i = 0; i < tile->splits; i++) {
        uint32_t split = tile->first_split + i;
        attention_split_pages(tile, split, &desk->call.first_page, &desk->call.last_page);
        desk->call.state = i == 0 ? desk->room.totals : desk->room.parts;
        plan->ops->attend(&desk->call);
        if (i > 0)
            join_parts(plan, desk, split);
    }
    uint32_t heads = desk->heads.last - desk->heads.first;
    for (uint32_t r = 0; r < desk->call.rows; r++)
        finish_state(plan, desk, tile->first + r / heads, desk->heads.first + r % heads,
                     desk->room.totals + r * desk->state_floats);
}

/* ---- Splits: shared states [tile][unit's rows][split] ---- */

static float *shared_states(const attention_tile *tile, const attention_desk *desk,
                            attention_heads heads) {
    size_t rows = (size_t)tile->tokens * heads.first;
    return desk->shared + (tile->slot + rows * tile->splits) * desk->state_floats;
}

static void attend_split(const attention_plan *plan, const attention_unit *unit,
                         attention_desk *desk) {
    const attention_tile *tile = &unit->tile;
    attention_split_pages(tile, tile->first_split + unit->split, &desk->call.first_page,
                          &desk->call.last_page);
    desk->call.state_stride = tile->splits * desk->state_floats;
    desk->call.state = shared_states(tile, desk, desk->heads) + unit->split * desk->state_floats;
    plan->ops->attend(&desk->call);
}

/* One row: into its first state, which nobody needs any more. */
static void join_row(const attention_plan *plan, const attention_tile *tile,
                     const attention_desk *desk, uint32_t row, uint32_t head, float *states) {
    uint32_t begin;
    uint32_t end;
    attention_sees(plan, row, &begin, &end);
    uint32_t first = begin / ATTEND_SPLIT - tile->first_split;
    uint32_t last = (end - 1) / ATTEND_SPLIT - tile->first_split;
    float *total = states + first * desk->state_floats;
    for (uint32_t i = first + 1; i <= last; i++)
        plan->ops->attend_join(plan->layer->head_size, states + i * desk->state_floats, total);
    finish_state(plan, desk, row, head, total);
}

/* The tile's row and head whose states are the `index`-th of the tile's. */
static void join_state(const attention_plan *plan, const attention_tile *tile,
                       const attention_desk *desk, size_t index) {
    for (uint32_t unit = 0; unit < plan->units; unit++) {
        attention_heads heads = attention_unit_heads(plan, unit);
        uint32_t count = heads.last - heads.first;
        if (index >= (size_t)tile->tokens * count) {
            index -= (size_t)tile->tokens * count;
            continue;
        }
        join_row(plan, tile, desk, tile->first + (uint32_t)index / count,
                 heads.first + (uint32_t)index % count,
                 shared_states(tile, desk, heads) + index * tile->splits * desk->state_floats);
        return;
    }
}

/* ---- Phases ---- */

void attention_head(const attention_plan *plan, uint32_t kv) {
    attention_desk desk;
    attention_unit unit = {.unit = kv};
    open_desk(plan, &desk);
    (void)attention_next_tile(plan, &unit.tile);
    attention_position_unit(plan, NULL, &unit);
    attend_unit(plan, &unit, &desk);
}

static void unit_items(const step_view *step, const phase_entry *at, team_items *items) {
    const attention_plan plan = attention_plan_make(step, at->layer, items->worker);
    attention_desk desk;
    uint32_t item;
    open_desk(&plan, &desk);
    while (team_take(items, &item)) {
        attention_unit unit = attention_unit_at(&plan, item);
        if (plan.fused)
            attention_position_unit(&plan, at, &unit);
        attend_unit(&plan, &unit, &desk);
    }
}

/* All states of a unit. */
static void join_unit(const attention_plan *plan, const attention_unit *unit,
                      const attention_desk *desk) {
    const attention_tile *tile = &unit->tile;
    attention_heads heads = attention_unit_heads(plan, unit->unit);
    float *states = shared_states(tile, desk, heads);
    for (uint32_t row = tile->first; row < tile->first + tile->tokens; row++)
        for (uint32_t head = heads.first; head < heads.last; head++) {
            join_row(plan, tile, desk, row, head, states);
            states += tile->splits * desk->state_floats;
        }
}

/* Splits of one unit come one after another: its queries are taken up once. */
static void split_items(const step_view *step, const phase_entry *at, team_items *items) {
    const attention_plan plan = attention_plan_make(step, at->layer, items->worker);
    attention_desk desk;
    uint32_t item;
    uint32_t first = UINT32_MAX, unit = UINT32_MAX; /* at hand */
    open_desk(&plan, &desk);
    while (team_take(items, &item)) {
        attention_unit next = attention_split_at(&plan, item);
        if (next.tile.first != first || next.unit != unit)
            take_unit(&plan, &next.tile, next.unit, &desk);
        first = next.tile.first;
        unit = next.unit;
        attend_split(&plan, &next, &desk);
        if (at->counts > 0 && phase_last(at, unit, next.tile.splits))
            join_unit(&plan, &next, &desk);
    }
}

static void join_items(const step_view *step, const phase_entry *at, team_items *items) {
    const attention_plan plan = attention_plan_make(step, at->layer, items->worker);
    attention_desk desk;
    uint32_t item;
    open_desk(&plan, &desk);
    while (team_take(items, &item)) {
        size_t index = item;
        attention_tile tile = {0};
        while (attention_next_tile(&plan, &tile) &&
               index >= (size_t)tile.tokens * plan.kv_heads * plan.group)
            index -= (size_t)tile.tokens * plan.kv_heads * plan.group;
        join_state(&plan, &tile, &desk, index);
    }
}

#define POSITION_HEADS 8 /* of an item, where there are many */

static size_t position_count(const attention_plan *plan, uint32_t *each) {
    size_t heads = (size_t)plan->step->batch->rows * plan->kv_heads;
    *each = heads >= (size_t)plan->workers * POSITION_HEADS ? POSITION_HEADS : 1;
    return (heads + *each - 1) / *each;
}

static void position_items(const step_view *step, const phase_entry *at, team_items *items) {
    const attention_plan plan = attention_plan_make(step, at->layer, items->worker);
    uint32_t kv_heads = plan.kv_heads;
    uint32_t item, each;
    (void)position_count(&plan, &each);
    while (team_take(items, &item))
        for (uint32_t i = item * each; i < (item + 1) * each && i < step->batch->rows * kv_heads;
             i++)
            attention_position(&plan, i / kv_heads, plan.kv_first + i % kv_heads);
}

void fast_add_position(phase_list *list) {
    const attention_plan plan = attention_plan_make(list->step, list->layer, 0);
    uint32_t each;
    list->span = SPAN_ATTENTION_INPUT;
    phase_list_add(list, PLACE_NONE, position_items, position_count(&plan, &each));
}

void fast_add_attention(phase_list *list, bool positioned) {
    const step_view *step = list->step;
    const attention_plan plan = attention_plan_make(step, list->layer, 0);
    if (!positioned && !plan.fused)
        fast_add_position(list);
    if (positioned && plan.fused)
        return;
    list->span = SPAN_ATTENTION;
    if (!plan.split) {
        phase_list_add(list, PLACE_NONE, unit_items, attention_units(&plan));
        phase_list_count(list, attention_position_counts(&plan));
        return;
    }
    phase_list_add(list, PLACE_NONE, split_items, attention_splits(&plan));
    if (step->batch->rows == 1 && phase_list_counts(list, plan.units)) {
        phase_list_count(list, plan.units);
        return;
    }
    phase_list_add(list, PLACE_NONE, join_items,
                   (size_t)step->batch->rows * plan.kv_heads * plan.group);
}
