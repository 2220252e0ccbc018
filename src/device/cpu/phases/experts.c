/* The feed-forward part of a mixture of experts. Phases of a layer: the router's product; the
 * choice of experts, whose last worker groups rows by expert; rows copied together group by group;
 * gate, up and the activation; quantising; down; the weighed sum.
 *
 * An item of a product is a range of panels of one group's expert, for all rows of the group: a
 * step reads each expert that any row uses once, and experts with many rows are several items,
 * which idle workers take over. How many groups there will be is not known when the program is
 * made: items of groups that do not come up compute nothing. */
#include "device/cpu/phases/fast_int.h"

#include "base/checked.h"
#include "device/cpu/experts.h"
#include "device/exact/math.h"

#include <assert.h>
#include <string.h>

#define SLOTS_ITEM      8   /* slots that an item copies or quantises */
#define WORKER_ITEMS    4   /* items of a product for every worker, at least */
#define MANY_PANELS     16  /* of an item where groups have many rows */
#define MANY_GROUP      24  /* rows of a group, on average, that are many */
#define ROWS_BLOCK      256 /* of a group at a time */
#define COMBINE_COLUMNS 256

/* ---- Scratch ---- */

typedef struct expert_room {
    experts_choice choice;
    uint8_t *gathered[2]; /* rows of all slots, as gate reads them; as up does, if otherwise */
    uint8_t *gated;       /* what down reads, of slots */
    uint8_t *gated_shared;
    float *up;   /* [routed slots][feed forward], then [rows][of the shared expert] */
    float *down; /* [slots][width] */
} expert_room;

#define ROOM_PARTS 7

static bool measure(const experts_shape *shape, size_t rows, size_t part[ROOM_PARTS]) {
    size_t uses, up, shared, down, slots = shape->used + (shape->shared > 0);
    if (!size_multiply(rows, shape->used, &uses) ||
        !size_multiply(uses, shape->feed_forward, &up) ||
        !size_multiply(rows, shape->shared, &shared) || !size_add(up, shared, &up) ||
        !size_multiply(up, sizeof(float), &part[5]) || !size_multiply(rows, slots, &down) ||
        !size_multiply(down, shape->width * sizeof(float), &part[6]) ||
        !experts_choice_bytes(shape, rows, &part[0]))
        return false;
    part[1] = part[2] = activation_bytes(uses, shape->width);
    part[3] = activation_bytes(uses, shape->feed_forward);
    part[4] = activation_bytes(shape->shared > 0 ? rows : 0, shape->shared);
    for (size_t i = 0; i < ROOM_PARTS; i++)
        if (!size_round_up(part[i], 64, &part[i]))
            return false;
    return true;
}

bool fast_experts_bytes(const model_view *model, uint32_t rows_max, size_t *bytes) {
    experts_shape shape = experts_shape_of(model);
    size_t part[ROOM_PARTS];
    *bytes = 0;
    if (shape.count == 0)
        return true;
    if (!measure(&shape, rows_max, part))
        return false;
    for (size_t i = 0; i < ROOM_PARTS; i++)
        if (!size_add(*bytes, part[i], bytes))
            return false;
    return true;
}

static expert_room room_of(const step_view *step) {
    experts_shape shape = experts_shape_of(step->model);
    size_t part[ROOM_PARTS];
    void *at[ROOM_PARTS];
    uint8_t *block = fast_shared_experts(step);
    bool fits = measure(&shape, step->scratch->rows_max, part); /* it did at opening */
    (void)fits;
    for (size_t i = 0; i < ROOM_PARTS; i++) {
        at[i] = block;
        block += part[i];
    }
    experts_choice choice = experts_choice_lay(&shape, step->scratch->rows_max, at[0]);
    return (expert_room){choice, {at[1], at[2]}, at[3], at[4], at[5], at[6]};
}

/* What all phases of a layer look at. */
typedef struct expert_desk {
    const step_view *step;
    const layer_view *layer;
    const experts_view *experts;
    expert_room room;
    uint32_t rows, slots; /* of the batch; routed */
} expert_desk;

static expert_desk desk_of(const step_view *step, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    uint32_t rows = step->batch->rows;
    return (expert_desk){step,          layer, &layer->experts,
                         room_of(step), rows,  rows * layer->experts.used};
}

static product_form form_of(const linear_view *linear) {
    return panels_form(linear->weight.type);
}

unsigned fast_experts_forms(const experts_view *experts) {
    const expert_view *first = &experts->expert[0], *shared = &experts->shared;
    return fast_form_of(&experts->router) | fast_form_of(&experts->shared_gate) |
           fast_form_of(&first->gate) | fast_form_of(&first->up) | fast_form_of(&shared->gate) |
           fast_form_of(&shared->up);
}

/* ---- The router ---- */

static size_t router_products(const expert_desk *desk, fast_product products[2]) {
    const experts_view *experts = desk->experts;
    products[0] = (fast_product){
        .linear = &experts->router, .out = desk->room.choice.logits, .out_stride = experts->count};
    products[1] = (fast_product){
        .linear = &experts->shared_gate, .out = desk->room.choice.shared, .out_stride = 1};
    return experts->shared_gate.weight.data == NULL ? 1 : 2;
}

static void router_items(const step_view *step, const phase_entry *at, team_items *items) {
    expert_desk desk = desk_of(step, at->layer);
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, at->layer, &operand);
    fast_input input = fast_take_input(step, at, &own, &operand);
    fast_product products[2];
    size_t count = router_products(&desk, products);
    fast_products(step, &own, &input, products, count, items);
}

static void choose_items(const step_view *step, const phase_entry *at, team_items *items) {
    expert_desk desk = desk_of(step, at->layer);
    const experts_choice *choice = &desk.room.choice;
    uint32_t count = desk.experts->count, used = desk.experts->used;
    uint32_t all = (uint32_t)fast_row_items(desk.rows);
    uint32_t item, row, end;
    while (team_take(items, &item)) {
        for (fast_item_rows(desk.rows, item, &row, &end); row < end; row++) {
            experts_choose(desk.experts, choice->logits + (size_t)row * count,
                           choice->chosen + (size_t)row * used,
                           choice->weight + (size_t)row * used);
            bool weighed = desk.experts->shared_gate.weight.data != NULL;
            choice->shared[row] = weighed ? fused_sigmoid(choice->shared[row]) : 1.0f;
        }
        if (phase_last(at, 0, all))
            experts_group_rows(desk.experts, desk.rows, choice);
    }
}

/* ---- Rows of groups side by side ---- */

static activation_view gathered_of(const expert_desk *desk, const linear_view *linear,
                                   uint32_t area, uint32_t rows) {
    return activation_lay(form_of(linear), rows, desk->step->model->width,
                          desk->room.gathered[area]);
}

static void gather_items(const step_view *step, const phase_entry *at, team_items *items) {
    expert_desk desk = desk_of(step, at->layer);
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, at->layer, &operand);
    fast_input input = fast_take_input(step, at, &own, &operand);
    const expert_view *expert = &desk.experts->expert[0];
    product_form gate = form_of(&expert->gate), up = form_of(&expert->up);
    activation_view to_gate = gathered_of(&desk, &expert->gate, 0, desk.slots);
    activation_view to_up = gathered_of(&desk, &expert->up, 1, desk.slots);
    uint32_t item;
    while (team_take(items, &item))
        for (uint32_t slot = item * SLOTS_ITEM; slot < desk.slots && slot < (item + 1) * SLOTS_ITEM;
             slot++) {
            uint32_t row = desk.room.choice.row[slot];
            activation_copy_row(&input.form[gate], row, &to_gate, slot);
            if (up != gate)
                activation_copy_row(&input.form[up], row, &to_up, slot);
        }
}

/* The rows of a group as its expert's gate and up read them. One row of the batch needs no copies.
 */
static fast_input group_input(const expert_desk *desk, const expert_group *group,
                              const fast_input *batch) {
    const expert_view *expert = experts_of_group(desk->experts, group);
    product_form gate = form_of(&expert->gate), up = form_of(&expert->up);
    fast_input input = {0};
    if (group->expert == desk->experts->count || desk->rows == 1) {
        input.form[gate] = batch->form[gate];
        input.form[up] = batch->form[up];
        return input;
    }
    activation_view all = gathered_of(desk, &expert->gate, 0, desk->slots);
    input.form[gate] = activation_from(&all, group->first, 0);
    if (up == gate)
        return input;
    all = gathered_of(desk, &expert->up, 1, desk->slots);
    input.form[up] = activation_from(&all, group->first, 0);
    return input;
}

/* ---- How products are cut ---- */

/* Ranges of panels of a group's expert, whose matrix has `panels` of them. */
static size_t chunks_of(const expert_desk *desk, size_t panels) {
    size_t groups = experts_groups_max(desk->experts, desk->rows);
    size_t wanted = WORKER_ITEMS * team_size(desk->step->team);
    size_t chunks = (wanted + groups - 1) / groups;
    if (desk->slots >= groups * MANY_GROUP)
        chunks = size_max(chunks, (panels + MANY_PANELS - 1) / MANY_PANELS);
    /* A row of a part fits `FAST_PART_NUMBERS`, however wide the expert is. */
    chunks = size_max(chunks, (panels * QUANT_PANEL_ROWS - 1) / FAST_PART_NUMBERS + 1);
    return size_max(size_min(chunks, panels), 1);
}

/* The largest of routed and shared experts, which the same items compute. */
static size_t inner_chunks(const expert_desk *desk) {
    return chunks_of(desk, size_max(weight_panels(&desk->experts->expert[0].up.weight),
                                    weight_panels(&desk->experts->shared.up.weight)));
}

static size_t outer_chunks(const expert_desk *desk) {
    return chunks_of(desk, weight_panels(&desk->experts->expert[0].down.weight));
}

static size_t product_items(const expert_desk *desk, size_t chunks) {
    return experts_groups_max(desk->experts, desk->rows) * chunks;
}

/* The group of an item and its panels, of `panels`; false: there is nothing to do. */
static const expert_group *group_of(const expert_desk *desk, uint32_t item, size_t chunks) {
    uint32_t group = (uint32_t)(item / chunks);
    return group < *desk->room.choice.groups ? &desk->room.choice.group[group] : NULL;
}

/* Rows of a part whose outputs fit `FAST_PART_NUMBERS`. */
static uint32_t block_rows(const fast_part *part) {
    size_t fitting = FAST_PART_NUMBERS / ((part->last - part->first) * QUANT_PANEL_ROWS);
    assert(fitting > 0);
    return (uint32_t)size_max(size_min(fitting, ROWS_BLOCK), 1);
}

/* ---- Gate, up and the activation ---- */

static float *up_of_group(const expert_desk *desk, const expert_group *group) {
    size_t inner = desk->experts->expert[0].up.weight.rows;
    bool shared = group->expert == desk->experts->count;
    return desk->room.up + (shared ? desk->slots : group->first) * inner;
}

static void gated_part(const expert_desk *desk, const fast_worker *own, const fast_input *input,
                       const expert_group *group, const fast_part *part) {
    const step_view *step = desk->step;
    const op_table *ops = step->backend->ops;
    const expert_view *expert = experts_of_group(desk->experts, group);
    size_t stride = expert->up.weight.rows, begin = part->first * QUANT_PANEL_ROWS;
    size_t count = size_min(part->last * QUANT_PANEL_ROWS, stride) - begin;
    float *up = up_of_group(desk, group) + part->row_begin * stride;
    fast_product up_product = {.linear = &expert->up, .out = up, .out_stride = stride};
    fast_product_part(step, own, input, &up_product, part, up);
    linear_view slice = {.weight =
                             weight_slice(&expert->gate.weight, (uint32_t)begin, (uint32_t)count),
                         .bias = expert->gate.bias == NULL ? NULL : expert->gate.bias + begin};
    fast_product gate_product = {.linear = &slice, .out = own->gate, .out_stride = count};
    fast_part slice_part = {part->row_begin, part->row_end, 0, part->last - part->first};
    fast_product_part(step, own, input, &gate_product, &slice_part, own->gate);
    for (uint32_t row = 0; row < part->row_end - part->row_begin; row++)
        ops->activate(desk->layer->activation, own->gate + row * count, up + begin + row * stride,
                      count);
}

static void gated_items(const step_view *step, const phase_entry *at, team_items *items) {
    expert_desk desk = desk_of(step, at->layer);
    fast_worker own = fast_worker_of(step, items->worker);
    fast_operand operand;
    fast_operand_make(step, at->place, at->layer, &operand);
    fast_input batch = fast_take_input(step, at, &own, &operand);
    size_t chunks = inner_chunks(&desk);
    uint32_t item;
    while (team_take(items, &item)) {
        const expert_group *group = group_of(&desk, item, chunks);
        if (group == NULL)
            continue;
        fast_input input = group_input(&desk, group, &batch);
        const expert_view *expert = experts_of_group(desk.experts, group);
        fast_part part = {0};
        team_share(weight_panels(&expert->up.weight), (uint32_t)(item % chunks), (uint32_t)chunks,
                   &part.first, &part.last);
        if (part.first == part.last)
            continue;
        for (uint32_t rows = block_rows(&part); part.row_begin < group->rows;
             part.row_begin = part.row_end) {
            part.row_end = (uint32_t)size_min(part.row_begin + rows, group->rows);
            gated_part(&desk, &own, &input, group, &part);
        }
    }
}

/* ---- Down ---- */

static activation_view gated_of(const expert_desk *desk, bool shared) {
    const expert_view *expert = shared ? &desk->experts->shared : &desk->experts->expert[0];
    return activation_lay(form_of(&expert->down), shared ? desk->rows : desk->slots,
                          expert->down.weight.k,
                          shared ? desk->room.gated_shared : desk->room.gated);
}

static bool has_shared(const expert_desk *desk) {
    return desk->experts->shared.up.weight.data != NULL;
}

static size_t quantised_items(const expert_desk *desk) {
    size_t slots = desk->slots + (has_shared(desk) ? desk->rows : 0);
    return desk->rows == 1 ? slots : (slots + SLOTS_ITEM - 1) / SLOTS_ITEM;
}

static void quantise_items(const step_view *step, const phase_entry *at, team_items *items) {
    expert_desk desk = desk_of(step, at->layer);
    fast_worker own = fast_worker_of(step, items->worker);
    uint32_t all = desk.slots + (has_shared(&desk) ? desk.rows : 0);
    uint32_t each = desk.rows == 1 ? 1 : SLOTS_ITEM, item;
    activation_view routed = gated_of(&desk, false), shared = routed;
    if (has_shared(&desk))
        shared = gated_of(&desk, true);
    const float *behind = desk.room.up + (size_t)desk.slots * routed.k;
    while (team_take(items, &item))
        for (uint32_t slot = item * each; slot < all && slot < (item + 1) * each; slot++)
            if (slot < desk.slots)
                step->backend->ops->quantise(desk.room.up + (size_t)slot * routed.k, &routed, slot,
                                             own.linear);
            else
                step->backend->ops->quantise(behind + (size_t)(slot - desk.slots) * shared.k,
                                             &shared, slot - desk.slots, own.linear);
}

static void down_items(const step_view *step, const phase_entry *at, team_items *items) {
    expert_desk desk = desk_of(step, at->layer);
    fast_worker own = fast_worker_of(step, items->worker);
    size_t chunks = outer_chunks(&desk), width = step->model->width;
    uint32_t item;
    while (team_take(items, &item)) {
        const expert_group *group = group_of(&desk, item, chunks);
        if (group == NULL)
            continue;
        const expert_view *expert = experts_of_group(desk.experts, group);
        bool shared = group->expert == desk.experts->count;
        activation_view all = gated_of(&desk, shared);
        fast_input input = {0};
        input.form[all.form] = activation_from(&all, shared ? 0 : group->first, 0);
        float *out = desk.room.down + group->first * width;
        fast_product product = {.linear = &expert->down, .out = out, .out_stride = width};
        fast_part part = {0};
        team_share(weight_panels(&expert->down.weight), (uint32_t)(item % chunks), (uint32_t)chunks,
                   &part.first, &part.last);
        if (part.first == part.last)
            continue;
        for (uint32_t rows = block_rows(&part); part.row_begin < group->rows;
             part.row_begin = part.row_end) {
            part.row_end = (uint32_t)size_min(part.row_begin + rows, group->rows);
            fast_product_part(step, &own, &input, &product, &part, out + part.row_begin * width);
        }
    }
}

/* ---- The sum ---- */

/* `projected` of some columns: in ascending order of experts, the shared one last. */
static void combine(const expert_desk *desk, uint32_t row, size_t begin, size_t count) {
    const experts_choice *choice = &desk->room.choice;
    size_t width = desk->step->model->width, used = desk->experts->used;
    float *out = desk->step->scratch->projected + row * width + begin;
    const float *down = desk->room.down + begin;
    memset(out, 0, count * sizeof(float));
    for (size_t use = row * used; use < (row + 1) * used; use++)
        desk->step->backend->ops->add_scaled(down + choice->slot[use] * width, choice->weight[use],
                                             out, count);
    if (has_shared(desk))
        desk->step->backend->ops->add_scaled(down + ((size_t)desk->slots + row) * width,
                                             choice->shared[row], out, count);
}

/* Few rows without a norm behind the sum are cut into columns. */
static size_t combine_parts(const expert_desk *desk) {
    const layer_view *layer = desk->layer;
    bool whole = layer->feed_forward_post_norm.kind != NORM_NONE || layer->norm_after ||
                 desk->rows >= FAST_ROWS_MANY;
    return whole ? 1 : (desk->step->model->width + COMBINE_COLUMNS - 1) / COMBINE_COLUMNS;
}

static void combine_items(const step_view *step, const phase_entry *at, team_items *items) {
    expert_desk desk = desk_of(step, at->layer);
    fast_worker own = fast_worker_of(step, items->worker);
    size_t parts = combine_parts(&desk), width = step->model->width;
    uint32_t item, row, end;
    while (team_take(items, &item)) {
        if (parts > 1) {
            size_t begin = item % parts * COMBINE_COLUMNS;
            size_t count = size_min(COMBINE_COLUMNS, width - begin);
            row = (uint32_t)(item / parts);
            combine(&desk, row, begin, count);
            step->backend->ops->add_scaled(step->scratch->projected + row * width + begin,
                                           desk.layer->residual_scale,
                                           step->scratch->hidden + row * width + begin, count);
            continue;
        }
        for (fast_item_rows(desk.rows, item, &row, &end); row < end; row++) {
            combine(&desk, row, 0, width);
            fast_join_row(step, &own, at->layer, row);
        }
    }
}

/* ---- The layer ---- */

void fast_add_experts(phase_list *list) {
    const step_view *step = list->step;
    expert_desk desk = desk_of(step, list->layer);
    fast_product products[2];
    size_t count = router_products(&desk, products), parts = combine_parts(&desk);
    list->span = SPAN_FEED_FORWARD_INPUT;
    fast_add_input(list, PLACE_EXPERTS);
    phase_list_add(list, PLACE_EXPERTS, router_items,
                   fast_products_items(step, desk.rows, products, count));
    phase_list_add(list, PLACE_EXPERTS, choose_items, fast_row_items(desk.rows));
    phase_list_count(list, 1);
    if (desk.rows > 1)
        phase_list_add(list, PLACE_EXPERTS, gather_items,
                       (desk.slots + SLOTS_ITEM - 1) / SLOTS_ITEM);
    phase_list_add(list, PLACE_EXPERTS, gated_items, product_items(&desk, inner_chunks(&desk)));
    list->span = SPAN_FEED_FORWARD_OUTPUT;
    phase_list_add(list, PLACE_EXPERTS, quantise_items, quantised_items(&desk));
    phase_list_add(list, PLACE_EXPERTS, down_items, product_items(&desk, outer_chunks(&desk)));
    phase_list_add(list, PLACE_EXPERTS, combine_items,
                   parts > 1 ? desk.rows * parts : fast_row_items(desk.rows));
}
