/* Attention of a step by the plan of attention_int.h: units as a whole, or their splits into shared
 * states that are joined behind a barrier. */
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

static void attend_unit(const attention_plan *plan, const attention_tile *tile, uint32_t unit,
                        void *context) {
    attention_desk *desk = context;
    take_unit(plan, tile, unit, desk);
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
        plan->ops->attend_finish(
            desk->call.type, plan->layer->head_size, desk->room.totals + r * desk->state_floats,
            attended(plan, tile->first + r / heads, desk->heads.first + r % heads));
}

/* ---- Splits: shared states [tile][unit's rows][split] ---- */

static float *shared_states(const attention_tile *tile, const attention_desk *desk,
                            attention_heads heads) {
    size_t rows = (size_t)tile->tokens * heads.first;
    return desk->shared + (tile->slot + rows * tile->splits) * desk->state_floats;
}

/* This worker's splits of one unit; `before`: cost of all units before it. */
static void attend_unit_splits(const attention_plan *plan, const attention_tile *tile,
                               uint32_t unit, uint64_t before, attention_desk *desk) {
    bool taken = false;
    for (uint32_t i = 0; i < tile->splits; i++) {
        attention_split_pages(tile, tile->first_split + i, &desk->call.first_page,
                              &desk->call.last_page);
        uint64_t cost =
            attention_split_cost(plan, tile, desk->call.last_page - desk->call.first_page + 1);
        bool own = attention_owner(plan, before, cost) == plan->worker;
        before += cost;
        if (!own)
            continue;
        if (!taken)
            take_unit(plan, tile, unit, desk);
        taken = true;
        desk->call.state = shared_states(tile, desk, desk->heads) + i * desk->state_floats;
        plan->ops->attend(&desk->call);
    }
}

static void attend_splits(const attention_plan *plan, attention_desk *desk) {
    attention_tile tile = {0};
    uint64_t before = 0;
    while (attention_next_tile(plan, &tile)) {
        desk->call.state_stride = tile.splits * desk->state_floats;
        for (uint32_t unit = 0; unit < plan->units; unit++) {
            attend_unit_splits(plan, &tile, unit, before, desk);
            before += attention_unit_cost(plan, &tile);
        }
    }
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
    plan->ops->attend_finish(desk->call.type, plan->layer->head_size, total,
                             attended(plan, row, head));
}

static void join_unit(const attention_plan *plan, const attention_tile *tile, uint32_t unit,
                      size_t *index, const size_t share[2], const attention_desk *desk) {
    attention_heads heads = attention_unit_heads(plan, unit);
    uint32_t count = heads.last - heads.first;
    float *states = shared_states(tile, desk, heads);
    for (uint32_t r = 0; r < tile->tokens * count; r++, ++*index)
        if (*index >= share[0] && *index < share[1])
            join_row(plan, tile, desk, tile->first + r / count, heads.first + r % count,
                     states + (size_t)r * tile->splits * desk->state_floats);
}

/* The worker's share of rows, in the order of their states. */
static void join_splits(const attention_plan *plan, const attention_desk *desk) {
    size_t share[2];
    team_share((size_t)plan->step->batch->rows * plan->layer->heads, plan->worker, plan->workers,
               &share[0], &share[1]);
    size_t index = 0;
    attention_tile tile = {0};
    while (attention_next_tile(plan, &tile))
        for (uint32_t unit = 0; unit < plan->units; unit++)
            join_unit(plan, &tile, unit, &index, share, desk);
}

void fast_attention(const step_view *step, uint32_t number, uint32_t worker) {
    const attention_plan plan = attention_plan_make(step, number, worker);
    attention_desk desk;
    open_desk(&plan, &desk);
    if (plan.split) {
        attend_splits(&plan, &desk);
        team_barrier(step->team, worker);
        join_splits(&plan, &desk);
    } else if (plan.fused) {
        attention_own_units(&plan, attend_unit, &desk);
    } else {
        attention_any_units(&plan, attend_unit, &desk);
    }
    team_barrier(step->team, worker);
}
