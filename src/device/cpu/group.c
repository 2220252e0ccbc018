/* Who computes what in a group, and a rank's part of a model. */
#include "device/cpu/group.h"

#include "base/checked.h"
#include "base/team.h"

#include <assert.h>

/* Feed-forward rows begin at whole blocks of the form that the next product reads, where that
 * leaves no rank with much more than its share. */
#define UNEVEN_OF 8 /* the longest part is 1/8 too long at most */

static size_t form_block(product_form form) {
    return form == PRODUCT_FLOAT ? 1 : form == PRODUCT_A8R ? Q4R_SUPER : PANEL_UNIT;
}

/* The rank's share of [0, count), in whole granules. */
static group_range share(const cpu_group *group, size_t count, size_t granule, uint32_t rank) {
    group_range range;
    team_share((count + granule - 1) / granule, rank, group->ranks, &range.first, &range.end);
    range.first = size_min(range.first * granule, count);
    range.end = size_min(range.end * granule, count);
    return range;
}

group_range group_heads(const cpu_group *group, const layer_view *layer, uint32_t rank) {
    return share(group, layer->kv_heads, 1, rank);
}

group_range group_attended(const cpu_group *group, const layer_view *layer, uint32_t rank) {
    size_t each = (size_t)(layer->heads / layer->kv_heads) * layer->head_size;
    group_range heads = group_heads(group, layer, rank);
    return (group_range){heads.first * each, heads.end * each};
}

group_range group_width(const cpu_group *group, uint32_t width, uint32_t rank) {
    return share(group, width, QUANT_PANEL_ROWS, rank);
}

static size_t feed_forward_granule(const cpu_group *group, const layer_view *layer) {
    size_t block = form_block(panels_form(weight_repack_type(&layer->down.weight)));
    size_t blocks = layer->feed_forward / size_max(block, QUANT_PANEL_ROWS);
    size_t longest = (blocks + group->ranks - 1) / group->ranks;
    bool even = longest * group->ranks * UNEVEN_OF <= blocks * (UNEVEN_OF + 1);
    return even ? size_max(block, QUANT_PANEL_ROWS) : 2 * QUANT_PANEL_ROWS;
}

group_range group_feed_forward(const cpu_group *group, const layer_view *layer, uint32_t rank) {
    return share(group, layer->feed_forward, feed_forward_granule(group, layer), rank);
}

group_range group_pieces(const cpu_group *group, size_t count, uint32_t rank) {
    return share(group, count, 1, rank);
}

bool group_aligned(const cpu_group *group, const layer_view *layer, group_part_of *part,
                   product_form form) {
    for (uint32_t rank = 1; rank < group->ranks; rank++)
        if (part(group, layer, rank).first % form_block(form) != 0)
            return false;
    return true;
}

/* ---- Layers ---- */

static uint64_t numbers_of(const linear_view *linear) {
    return (uint64_t)linear->weight.rows * linear->weight.k;
}

static uint64_t layer_cost(const layer_view *layer) {
    return numbers_of(&layer->query) + numbers_of(&layer->key) + numbers_of(&layer->value) +
           numbers_of(&layer->output) + numbers_of(&layer->gate) + numbers_of(&layer->up) +
           numbers_of(&layer->down);
}

/* Layers are as large as one another in nearly all models, so the first stands for all: each rank
 * takes what brings the sum nearest to its share. Rank 0 has the head before all of them. */
group_range group_layers(const cpu_group *group, const model_view *model, uint32_t rank) {
    uint32_t layers = model->layers;
    uint64_t each = layers > 0 ? layer_cost(&model->layer[0]) : 0;
    uint64_t head = numbers_of(&model->head);
    if (each == 0 || layers < group->ranks)
        return share(group, layers, 1, rank);
    uint64_t part = (head + each * layers) / group->ranks;
    uint64_t first = part > head ? (part - head + each / 2) / each : 0;
    uint64_t most = layers - (group->ranks - 1); /* every other rank gets one at least */
    first = first < 1 ? 1 : first > most ? most : first;
    if (rank == 0)
        return (group_range){0, first};
    cpu_group others = {.ranks = group->ranks - 1};
    group_range range = share(&others, layers - first, 1, rank - 1);
    return (group_range){range.first + first, range.end + first};
}

/* ---- A rank's weights ---- */

/* Rows [range) in whole panels. */
static void slice(linear_view *linear, group_range range) {
    if (linear->weight.data == NULL)
        return;
    group_range panels = {0, 0};
    if (range.first < range.end)
        panels = group_panels(range);
    uint32_t first = (uint32_t)panels.first;
    uint32_t end = (uint32_t)size_min(panels.end, linear->weight.rows);
    linear->weight = weight_slice(&linear->weight, first, end - first);
    linear->bias = linear->bias == NULL ? NULL : linear->bias + first;
}

static void slice_layer(const cpu_group *group, uint32_t width, layer_view *layer) {
    group_range heads = group_heads(group, layer, group->rank);
    group_range keys = {heads.first * layer->head_size, heads.end * layer->head_size};
    group_range rows = group_feed_forward(group, layer, group->rank);
    slice(&layer->query, group_attended(group, layer, group->rank));
    slice(&layer->key, keys);
    slice(&layer->value, keys);
    slice(&layer->output, group_width(group, width, group->rank));
    slice(&layer->gate, rows);
    slice(&layer->up, rows);
    slice(&layer->down, group_width(group, width, group->rank));
}

static void drop_layer(layer_view *layer) {
    linear_view *linears[] = {&layer->query, &layer->key, &layer->value, &layer->output,
                              &layer->gate,  &layer->up,  &layer->down};
    for (size_t i = 0; i < sizeof(linears) / sizeof(linears[0]); i++)
        linears[i]->weight.data = NULL;
}

void group_model(const cpu_group *group, const model_view *model, layer_view *layers,
                 model_view *out) {
    group_range own = {0, model->layers};
    *out = *model;
    out->layer = layers;
    if (group->by_layers)
        own = group_layers(group, model, group->rank);
    for (uint32_t i = 0; i < model->layers; i++) {
        layers[i] = model->layer[i];
        if (i < own.first || i >= own.end)
            drop_layer(&layers[i]);
        else if (!group->by_layers)
            slice_layer(group, model->width, &layers[i]);
    }
    if (!group->by_layers) {
        size_t pieces = (model->vocabulary + GROUP_PIECE - 1) / GROUP_PIECE;
        group_range head = group_pieces(group, pieces, group->rank);
        slice(&out->head, (group_range){head.first * GROUP_PIECE, head.end * GROUP_PIECE});
    } else if (group->rank > 0) {
        out->head.weight.data = out->head_project.weight.data = NULL;
    }
}
