/* Exchanges between the ranks of a group (device/cpu/group.h), as phases of a step. Behind the
 * attention, the output product, the gated product and down, every rank has its own columns of all
 * rows; the exchange gives all columns to all ranks. Columns that join the residual are sent as
 * floats. Inputs of output and down are quantised first where the form allows it, by the rank that
 * has them: the same bits as when every rank quantised whole rows, in a quarter of the bytes.
 *
 * The leading thread talks to the other ranks. Few bytes are packed and unpacked by it as well;
 * with many, all workers do that in phases of their own. */
#include "device/cpu/phases/fast_int.h"

#include "base/checked.h"
#include "base/clock.h"
#include "device/cpu/phases/head_int.h"

#include <assert.h>
#include <string.h>

#define LEADER_BYTES 32768 /* up to so many are packed by the leader */

/* ---- What is exchanged behind the products at a place ---- */

typedef struct swap {
    const step_view *step;
    const cpu_group *group;
    phase_place place;
    const layer_view *layer;
    uint32_t rows;
    float *x; /* [rows][stride]; a rank's own columns are computed */
    size_t stride;
    activation_view view; /* where columns go that are sent in a form; FLOAT: into x */
} swap;

static group_range columns_of(const swap *swap, uint32_t rank) {
    if (swap->place == PLACE_QUERY_KEY_VALUE)
        return group_attended(swap->group, swap->layer, rank);
    if (swap->place == PLACE_GATE_UP)
        return group_feed_forward(swap->group, swap->layer, rank);
    return group_width(swap->group, swap->step->model->width, rank);
}

/* The form that all ranks' columns can be sent in. Adapters may read another one than the base. */
static product_form form_of(const step_view *step, const swap *swap) {
    bool attended = swap->place == PLACE_QUERY_KEY_VALUE;
    const linear_view *reader = attended ? &swap->layer->output : &swap->layer->down;
    product_form form = panels_form(reader->weight.type);
    if (step->batch->runs > 0 ||
        !group_aligned(swap->group, swap->layer, attended ? group_attended : group_feed_forward,
                       form))
        return PRODUCT_FLOAT;
    return form;
}

static swap swap_of(const step_view *step, phase_place place, uint32_t number) {
    const layer_view *layer = &step->model->layer[number];
    const scratch_view *scratch = step->scratch;
    swap swap = {.step = step,
                 .group = step->group->group,
                 .place = place,
                 .layer = layer,
                 .rows = step->batch->rows,
                 .stride = step->model->width};
    bool output = place == PLACE_OUTPUT;
    const norm_view *post = output ? &layer->attention_post_norm : &layer->feed_forward_post_norm;
    switch (place) {
    case PLACE_QUERY_KEY_VALUE:
        swap.x = scratch->attended;
        swap.stride = (size_t)layer->heads * layer->head_size;
        break;
    case PLACE_GATE_UP:
        swap.x = scratch->up;
        swap.stride = layer->feed_forward;
        break;
    default:
        swap.x =
            post->kind == NORM_NONE && !layer->norm_after ? scratch->hidden : scratch->projected;
        return swap;
    }
    product_form form = form_of(step, &swap);
    if (form != PRODUCT_FLOAT)
        swap.view =
            activation_lay(form, swap.rows, (uint32_t)swap.stride, fast_shared_form(step, form));
    return swap;
}

/* ---- Bytes ---- */

static bool formed(const swap *swap) {
    return swap->view.number != NULL;
}

/* Numbers of one row's columns, in their form. */
static size_t numbers_of(const swap *swap, group_range columns) {
    size_t count = columns.end - columns.first;
    return swap->view.form == PRODUCT_A8R ? (count + Q4R_SUB - 1) / Q4R_SUB * Q4R_SUB : count;
}

static size_t scales_of(const swap *swap, group_range columns) {
    size_t block = swap->view.form == PRODUCT_A8R ? Q4R_SUPER : PANEL_UNIT;
    return (columns.end - columns.first + block - 1) / block;
}

static size_t row_bytes(const swap *swap, group_range columns) {
    if (!formed(swap))
        return (columns.end - columns.first) * sizeof(float);
    size_t planes = swap->view.form == PRODUCT_A16 ? 2 : 1;
    return planes * numbers_of(swap, columns) + scales_of(swap, columns) * sizeof(float);
}

static uint8_t *put(uint8_t *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
    return to + bytes;
}

static const uint8_t *get(void *to, const uint8_t *from, size_t bytes) {
    memcpy(to, from, bytes);
    return from + bytes;
}

/* One row's own columns into what is sent. */
static void pack_row(const swap *swap, const fast_worker *own, uint32_t row) {
    group_range columns = columns_of(swap, swap->group->rank);
    const float *x = swap->x + row * swap->stride + columns.first;
    uint8_t *to = swap->step->scratch->sent + row * row_bytes(swap, columns);
    if (columns.first == columns.end)
        return;
    if (!formed(swap)) {
        (void)put(to, x, row_bytes(swap, columns));
        return;
    }
    activation_view view =
        activation_lay(swap->view.form, 1, (uint32_t)(columns.end - columns.first), own->alone);
    swap->step->backend->ops->quantise(x, &view, 0, own->linear);
    to = put(to, view.number, numbers_of(swap, columns));
    if (view.low != NULL)
        to = put(to, view.low, numbers_of(swap, columns));
    (void)put(to, view.scale, scales_of(swap, columns) * sizeof(float));
}

/* As quantising makes them of the numbers. */
static void sum_numbers(const activation_view *view, uint32_t row, group_range columns) {
    const int8_t *number = view->number + row * view->stride;
    int32_t *sums = view->integer_sum + row * view->sum_stride;
    size_t end = (columns.end + PANEL_UNIT - 1) / PANEL_UNIT * (PANEL_UNIT / Q4R_SUB);
    for (size_t block = columns.first / Q4R_SUB; block < end; block++) {
        int32_t sum = 0;
        for (size_t i = 0; i < Q4R_SUB; i++)
            sum += number[block * Q4R_SUB + i];
        sums[block] = sum;
    }
    for (size_t unit = columns.first / PANEL_UNIT; view->sum != NULL && unit * 2 < end; unit++)
        view->sum[row * view->scale_stride + unit] = view->scale[row * view->scale_stride + unit] *
                                                     (float)(sums[2 * unit] + sums[2 * unit + 1]);
}

/* One row's columns of a rank to where products read them. */
static void unpack_row(const swap *swap, uint32_t rank, const uint8_t *from, uint32_t row) {
    const activation_view *view = &swap->view;
    group_range columns = columns_of(swap, rank);
    size_t numbers = numbers_of(swap, columns), at = row * view->stride + columns.first;
    if (columns.first == columns.end)
        return;
    if (!formed(swap)) {
        if (rank != swap->group->rank)
            (void)get(swap->x + row * swap->stride + columns.first, from, row_bytes(swap, columns));
        return;
    }
    size_t block = view->form == PRODUCT_A8R ? Q4R_SUPER : PANEL_UNIT;
    size_t left = columns.end == view->k ? view->stride - columns.first - numbers : 0;
    from = get(view->number + at, from, numbers);
    memset(view->number + at + numbers, 0, left);
    if (view->low != NULL) {
        from = get(view->low + at, from, numbers);
        memset(view->low + at + numbers, 0, left);
    }
    (void)get(view->scale + row * view->scale_stride + columns.first / block, from,
              scales_of(swap, columns) * sizeof(float));
    if (view->integer_sum != NULL)
        sum_numbers(view, row, (group_range){columns.first, columns.first + numbers});
}

static void unpack_rows(const swap *swap, uint32_t begin, uint32_t end) {
    const uint8_t *from = swap->step->scratch->received;
    for (uint32_t rank = 0; rank < swap->group->ranks; rank++) {
        bool own = rank == swap->group->rank;
        size_t bytes = row_bytes(swap, columns_of(swap, rank));
        const uint8_t *rows = own ? swap->step->scratch->sent : from;
        for (uint32_t row = begin; row < end; row++)
            unpack_row(swap, rank, rows + row * bytes, row);
        from += own ? 0 : swap->rows * bytes;
    }
}

/* ---- The call ---- */

void fast_exchange(const step_view *step, const group_part *send, const group_part *receive) {
    group_stream *stream = step->group;
    const cpu_group *group = stream->group;
    uint64_t begin = clock_now_ns();
    stream->status = group->exchange(group->context, send, receive, &stream->error);
    if (stream->status != AVO_OK)
        atomic_store_explicit(&stream->failed, true, memory_order_relaxed);
    stream->exchanges++;
    for (uint32_t rank = 0; rank < group->ranks; rank++)
        stream->sent_bytes += rank != group->rank ? send[rank].bytes : 0;
    stream->waited_ns += clock_now_ns() - begin;
}

/* Floats of one row lie as they are sent. */
static bool in_place(const swap *swap) {
    return swap->rows == 1 && !formed(swap);
}

static void swap_now(const swap *swap) {
    group_part send[GROUP_RANKS_MAX] = {{0}}, receive[GROUP_RANKS_MAX] = {{0}};
    const step_view *step = swap->step;
    size_t own = swap->rows * row_bytes(swap, columns_of(swap, swap->group->rank));
    uint8_t *at = step->scratch->received;
    for (uint32_t rank = 0; rank < swap->group->ranks; rank++) {
        group_range columns = columns_of(swap, rank);
        size_t bytes = swap->rows * row_bytes(swap, columns);
        if (rank == swap->group->rank)
            continue;
        send[rank] = (group_part){step->scratch->sent, own};
        receive[rank] = (group_part){at, bytes};
        if (in_place(swap)) {
            send[rank].data = (uint8_t *)(swap->x + columns_of(swap, swap->group->rank).first);
            receive[rank].data = (uint8_t *)(swap->x + columns.first);
        }
        at += bytes;
    }
    fast_exchange(step, send, receive);
}

/* ---- Phases ---- */

static void pack_items(const step_view *step, const phase_entry *at, team_items *items) {
    fast_worker own = fast_worker_of(step, items->worker);
    swap swap = swap_of(step, at->place, at->layer);
    uint32_t item, row, end;
    while (team_take(items, &item))
        for (fast_item_rows(swap.rows, item, &row, &end); row < end; row++)
            pack_row(&swap, &own, row);
}

static void unpack_items(const step_view *step, const phase_entry *at, team_items *items) {
    swap swap = swap_of(step, at->place, at->layer);
    uint32_t item, row, end;
    while (team_take(items, &item)) {
        fast_item_rows(swap.rows, item, &row, &end);
        unpack_rows(&swap, row, end);
    }
}

static bool leader_packs(const swap *swap) {
    return swap->rows == 1 || swap->rows * swap->stride * sizeof(float) <= LEADER_BYTES;
}

static void swap_item(const step_view *step, const phase_entry *at, team_items *items) {
    fast_worker own = fast_worker_of(step, items->worker);
    swap swap = swap_of(step, at->place, at->layer);
    bool packs = leader_packs(&swap) && !in_place(&swap);
    uint32_t item;
    while (team_take(items, &item)) {
        for (uint32_t row = 0; packs && row < swap.rows; row++)
            pack_row(&swap, &own, row);
        swap_now(&swap);
        if (packs && !atomic_load_explicit(&step->group->failed, memory_order_relaxed))
            unpack_rows(&swap, 0, swap.rows);
    }
}

void fast_add_exchange(phase_list *list, phase_place place) {
    const step_view *step = list->step;
    if (!fast_by_rows(step))
        return;
    swap swap = swap_of(step, place, list->layer);
    bool packs = leader_packs(&swap);
    if (!packs)
        phase_list_add(list, place, pack_items, fast_row_items(swap.rows));
    phase_list_lead(list, place, swap_item);
    if (!packs)
        phase_list_add(list, place, unpack_items, fast_row_items(swap.rows));
}

bool fast_exchanged_input(const step_view *step, phase_place place, uint32_t layer,
                          fast_input *input) {
    if (!fast_by_rows(step))
        return false;
    swap swap = swap_of(step, place, layer);
    *input = (fast_input){0};
    if (!formed(&swap))
        return false;
    input->form[swap.view.form] = swap.view;
    return true;
}

/* ---- Parts of products ---- */

size_t fast_first_row(const step_view *step, const layer_view *layer, adapter_matrix matrix) {
    if (!fast_by_rows(step))
        return 0;
    const cpu_group *group = step->group->group;
    size_t each;
    switch (matrix) {
    case ADAPTER_QUERY:
        return group_panels(group_attended(group, layer, group->rank)).first;
    case ADAPTER_KEY:
    case ADAPTER_VALUE:
        each = group_heads(group, layer, group->rank).first * layer->head_size;
        return each / QUANT_PANEL_ROWS * QUANT_PANEL_ROWS;
    case ADAPTER_GATE:
    case ADAPTER_UP:
        return group_panels(group_feed_forward(group, layer, group->rank)).first;
    case ADAPTER_HEAD:
        return fast_own_chunks(step, head_chunks(step->model)).first * HEAD_CHUNK;
    default:
        return group_panels(group_width(group, step->model->width, group->rank)).first;
    }
}

group_range fast_own_heads(const step_view *step, const layer_view *layer) {
    if (!fast_by_rows(step))
        return (group_range){0, layer->kv_heads};
    return group_heads(step->group->group, layer, step->group->group->rank);
}

group_range fast_own_chunks(const step_view *step, size_t chunks) {
    if (!fast_by_rows(step))
        return (group_range){0, chunks};
    return group_pieces(step->group->group, chunks, step->group->group->rank);
}

/* ---- By layers ---- */

/* Of the layers that this step computes. */
static group_range layers_of(const step_view *step, uint32_t rank) {
    model_view stored = *step->model;
    stored.layers = step->group->layers_stored;
    group_range range = group_layers(step->group->group, &stored, rank);
    range.first = size_min(range.first, step->model->layers);
    range.end = size_min(range.end, step->model->layers);
    return range;
}

group_range fast_own_layers(const step_view *step) {
    if (step->group == NULL || fast_by_rows(step))
        return (group_range){0, step->model->layers};
    return layers_of(step, step->group->group->rank);
}

bool fast_leads(const step_view *step) {
    return step->group == NULL || step->group->group->rank == 0;
}

/* The rank that has the rows before a layer is computed. */
static uint32_t owner_of(const step_view *step, uint32_t layer) {
    for (uint32_t rank = 0; rank < step->group->group->ranks; rank++) {
        group_range own = layers_of(step, rank);
        if (layer >= own.first && layer < own.end)
            return rank;
    }
    return 0; /* the head */
}

/* Rows at `layer` go from one rank to another; the others take no part. */
static void pass_rows(const step_view *step, uint32_t from, uint32_t to, float *rows) {
    group_part send[GROUP_RANKS_MAX] = {{0}}, receive[GROUP_RANKS_MAX] = {{0}};
    group_part all = {(uint8_t *)rows,
                      (size_t)step->batch->rows * step->model->width * sizeof(float)};
    uint32_t own = step->group->group->rank;
    if (own == from)
        send[to] = all;
    else
        receive[from] = all;
    fast_exchange(step, send, receive);
}

/* `layer` computes next: its rank gets the rows of the rank of the layer before. */
static void pass_item(const step_view *step, const phase_entry *at, team_items *items) {
    for (uint32_t item; team_take(items, &item);)
        pass_rows(step, owner_of(step, at->layer - 1), owner_of(step, at->layer),
                  step->scratch->hidden);
}

void fast_add_pass(phase_list *list, uint32_t layer) {
    const step_view *step = list->step;
    if (step->group == NULL || fast_by_rows(step) || layer == 0)
        return;
    uint32_t own = step->group->group->rank;
    uint32_t from = owner_of(step, layer - 1), to = owner_of(step, layer);
    list->layer = layer;
    if (from != to && (own == from || own == to))
        phase_list_lead(list, PLACE_NONE, pass_item);
}

/* Rank 0 gets the rows that a tap keeps, where another rank has them. */
static void tap_item(const step_view *step, const phase_entry *at, team_items *items) {
    uint32_t tap = 0;
    while (step->shape->tap[tap] != at->layer)
        tap++;
    uint32_t owner = owner_of(step, at->layer);
    float *kept = step->scratch->tap + tap * (size_t)step->scratch->rows_max * step->model->width;
    for (uint32_t item; team_take(items, &item);)
        pass_rows(step, owner, 0, step->group->group->rank == 0 ? kept : step->scratch->hidden);
}

bool fast_add_far_tap(phase_list *list, uint32_t layer) {
    const step_view *step = list->step;
    if (step->group == NULL || fast_by_rows(step))
        return false;
    uint32_t owner = owner_of(step, layer), own = step->group->group->rank;
    list->layer = layer;
    if (owner != 0 && (own == 0 || own == owner))
        phase_list_lead(list, PLACE_NONE, tap_item);
    return owner != 0 || own != 0;
}

/* ---- Buffers ---- */

bool fast_exchange_bytes(const cpu_group *group, const scratch_shape *shape, size_t *sent,
                         size_t *received) {
    const model_view *model = shape->model;
    size_t widest =
        size_max(size_max(model->width, model->query_width_max), model->feed_forward_max);
    size_t head = head_exchange_bytes(model, group->ranks);
    *sent = *received = 0;
    return size_multiply(widest * sizeof(float), shape->rows_max, received) &&
           size_multiply(head, shape->logits_max, &head) && size_add(*received, head, received) &&
           size_round_up(*received, 64, received) && size_add(*sent, *received, sent);
}
