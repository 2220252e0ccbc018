/* Attention inside fast/: how the work of a layer is cut and shared out.
 *
 * Work is cut into tiles: some tokens of one session (as many as make the rows of a call) with the
 * heads of one KV head, so that K and V are read once for all of them. Who computes what never
 * changes a bit: a row's splits lie at fixed positions and are joined in order (attention.h).
 *
 *   fused    every session is one tile: a (tile, KV head) unit is an item, from the rotation of K
 *            and V to the result, and no phase lies in between.
 *            With few rows tokens of one session may be several tiles, so that all workers have as
 *            much to do; then whoever is first at a KV head writes K and V of all of them (once)
 *   split    few units for the workers, long timelines: splits of one unit are items, states lie in
 *            the shared scratch and are joined in a phase of its own (one row: by the worker that
 *            computes a unit's last split)
 *   units    everything else: K and V are rotated and written in a phase of its own, then units are
 *            items
 */
#ifndef AVO_DEVICE_ATTENTION_INT_H
#define AVO_DEVICE_ATTENTION_INT_H

#include "device/cpu/ops.h"
#include "device/cpu/phases/fast_int.h"

/* Of one layer; the same for every worker but for `worker`. */
typedef struct attention_plan {
    const step_view *step;
    const layer_view *layer;
    const op_table *ops;
    uint32_t number; /* of the layer */
    uint32_t worker, workers;
    uint32_t group;              /* query heads of a KV head */
    uint32_t unit_heads;         /* of these, in one unit */
    uint32_t kv_first, kv_heads; /* that are computed here: all, or those of a rank */
    uint32_t parts;              /* of a group */
    uint32_t units;              /* per tile: KV heads × parts of their groups */
    uint32_t tile_tokens;
    bool fused, split;
    bool once; /* fused, but several units write K and V of one KV head: the first of them does */
} attention_plan;

/* Tokens [first, first + tokens) of the batch; pages and splits that any of them sees. */
typedef struct attention_tile {
    uint32_t segment, first, tokens;
    uint32_t first_page, last_page;
    uint32_t first_split, splits;
    size_t slot; /* split: of the first shared state */
} attention_tile;

/* Query heads [first, last) over one KV head. */
typedef struct attention_heads {
    uint32_t kv, first, last;
} attention_heads;

/* Every worker makes the layer's plan for itself in each phase: that takes less than a microsecond.
 */
attention_plan attention_plan_make(const step_view *step, uint32_t layer, uint32_t worker);

/* Goes to the next tile; begins with a tile of zeros. */
bool attention_next_tile(const attention_plan *plan, attention_tile *tile);
attention_heads attention_unit_heads(const attention_plan *plan, uint32_t unit);
/* The positions that a row of the batch sees. */
void attention_sees(const attention_plan *plan, uint32_t row, uint32_t *begin, uint32_t *end);
void attention_split_pages(const attention_tile *tile, uint32_t split, uint32_t *first,
                           uint32_t *last);

/* The tile and unit of an item; `count`: of all. Long ones come first in every share. */
typedef struct attention_unit {
    attention_tile tile;
    uint32_t unit, split;
} attention_unit;
size_t attention_units(const attention_plan *plan);
attention_unit attention_unit_at(const attention_plan *plan, size_t item);
/* Splits of all units, in the order of tiles, units and timelines. */
size_t attention_splits(const attention_plan *plan);
attention_unit attention_split_at(const attention_plan *plan, size_t item);

/* The attention of one KV head where the plan is fused and the batch is one row: from the rotation
 * of K and V on. */
void attention_head(const attention_plan *plan, uint32_t kv);
/* Writes K and V of one KV head of a row. */
void attention_position(const attention_plan *plan, uint32_t row, uint32_t kv);
void attention_position_unit(const attention_plan *plan, const phase_entry *at,
                             const attention_unit *unit);
/* Counters that this takes. */
size_t attention_position_counts(const attention_plan *plan);

/* Normed and rotated in place, as attention wants it. */
void attention_position_head(const attention_plan *plan, const norm_view *norm,
                             adapter_norm_place place, uint32_t row, float *head);

/* ---- A worker's scratch ---- */

static inline size_t attention_whole_lines(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

typedef struct attention_room {
    uint8_t *attend;       /* attend_scratch_bytes */
    uint8_t *query;        /* [ATTEND_ROWS_MAX][attend_query_stride] */
    float *parts, *totals; /* [ATTEND_ROWS_MAX][attend_state_floats] */
} attention_room;

attention_room attention_room_of(const attention_plan *plan);

#endif
