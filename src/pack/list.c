/* The tensors of a source as items to write: canonical names, fused matrices cut into their parts,
 * what the configuration already holds left out. */
#include "pack/pack_int.h"

#include "formats/names.h"

#include <stdio.h>

avo_status pack_list_add(pack_list *list, const pack_item *item, avo_error *error) {
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        pack_item *items = arena_take_array(list->arena, capacity, sizeof(pack_item));
        if (items == NULL)
            return status_no_memory(error, "the list of tensors", capacity * sizeof(pack_item));
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof(pack_item));
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *item;
    return AVO_OK;
}

typedef struct lister {
    const model_source *source;
    pack_type type;
    pack_look_up look_up;
    bool tied; /* in the file */
    pack_list *list;
    avo_error *error;
} lister;

static avo_status add(lister *l, pack_item *item, const pack_place *place, bool cut_fits) {
    pack_choose(l->type, l->look_up, place->role, l->tied, cut_fits, item);
    return pack_list_add(l->list, item, l->error);
}

/* Part [first, first + rows) of a fused tensor, under the name of its own. */
static avo_status add_part(lister *l, const pack_item *whole, uint32_t layer, const char *part,
                           uint32_t first, uint32_t rows) {
    pack_item item = *whole;
    pack_place place;
    snprintf(item.name, sizeof(item.name), "blk.%u.%s.%s", layer, part,
             whole->vector ? "bias" : "weight");
    if (!pack_place_of(text_from(item.name), l->source->config.layers, &place))
        return status_fail(l->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %s is not part of the architecture", l->source->path, item.name);
    item.rank = place.rank;
    if (whole->vector) { /* one row, of which a part of k is meant */
        uint64_t skipped = 0;
        if (!quant_run_bytes(whole->from.type, first, &skipped))
            return status_fail(l->error, AVO_ERROR_UNSUPPORTED, "%s: %s cannot be split at %u",
                               l->source->path, whole->name, first);
        item.from.data += skipped;
        item.k = item.from.k = rows;
    } else {
        if (whole->from.layout == QUANT_LAYOUT_PANELS && first % QUANT_PANEL_ROWS != 0)
            return status_fail(
                l->error, AVO_ERROR_UNSUPPORTED,
                "%s: %s in panels cannot be split at row %u, which is not a multiple of %u",
                l->source->path, whole->name, first, (unsigned)QUANT_PANEL_ROWS);
        item.from = weight_slice(&whole->from, first, rows);
        item.rows = rows;
    }
    return add(l, &item, &place, true);
}

/* A fused tensor. In panels its parts lie as they would as one matrix, but each begins with a panel
 * of its own; so they are written under the parts' names. Kept types stay as they are. */
static avo_status add_fused(lister *l, pack_item *item, const pack_place *place) {
    const model_config *config = &l->source->config;
    uint32_t query = config->heads * config->head_size;
    uint32_t kv = config->kv_heads * config->head_size;
    uint32_t inner = config->feed_forward;
    uint32_t length = item->vector ? item->k : item->rows;
    bool qkv = place->role == PACK_ROLE_QKV;
    if (!qkv && length != 2 * (uint64_t)inner)
        return add(l, item, place, true); /* an "up" without a gate in it */
    if (qkv && length != (uint64_t)query + 2 * (uint64_t)kv)
        return status_fail(l->error, AVO_ERROR_FORMAT, "%s: tensor %s has %u rows, expected %u",
                           l->source->path, item->name, length, query + 2 * kv);
    if (l->type == PACK_KEEP) {
        bool fits = qkv ? query % QUANT_PANEL_ROWS == 0 && kv % QUANT_PANEL_ROWS == 0
                        : inner % QUANT_PANEL_ROWS == 0;
        return add(l, item, place, fits);
    }
    uint32_t layer = place->layer;
    if (!qkv) {
        AVO_TRY(add_part(l, item, layer, "ffn_gate", 0, inner));
        return add_part(l, item, layer, "ffn_up", inner, inner);
    }
    AVO_TRY(add_part(l, item, layer, "attn_q", 0, query));
    AVO_TRY(add_part(l, item, layer, "attn_k", query, kv));
    return add_part(l, item, layer, "attn_v", query + kv, kv);
}

/* The head of a model where it is the embedding, as a matrix of its own. */
static avo_status add_head(lister *l, const pack_item *embedding) {
    pack_item head = *embedding;
    pack_place place;
    snprintf(head.name, sizeof(head.name), "output.weight");
    if (!pack_place_of(text_from(head.name), l->source->config.layers, &place))
        return status_fail(l->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %s is not part of the architecture", l->source->path, head.name);
    head.group = place.group;
    head.rank = place.rank;
    head.twice = true;
    return add(l, &head, &place, true);
}

/* The matrix or vector of a source tensor; false when it is neither. */
static bool view_tensor(const source_tensor *tensor, bool transposed, pack_item *item) {
    uint64_t rows = tensor->rank == 1 ? 1 : tensor->shape[0];
    uint64_t k = tensor->rank == 1 ? tensor->shape[0] : tensor->shape[1];
    item->vector = tensor->rank == 1;
    quant_layout layout = tensor->layout;
    if (transposed && tensor->rank == 2) {
        uint64_t swapped = rows;
        rows = k;
        k = swapped;
        layout = QUANT_LAYOUT_COLUMNS;
    }
    uint64_t bytes;
    if (tensor->rank < 1 || tensor->rank > 2 || rows == 0 || k == 0 || rows > UINT32_MAX ||
        k > UINT32_MAX || !weight_bytes(tensor->type, layout, rows, k, &bytes) ||
        bytes != tensor->bytes)
        return false;
    item->rows = (uint32_t)rows;
    item->k = (uint32_t)k;
    item->from = (weight_view){.type = tensor->type,
                               .layout = layout,
                               .rows = (uint32_t)rows,
                               .k = (uint32_t)k,
                               .data = tensor->data};
    return true;
}

/* ---- Experts ---- */

/* Expert `e` of a stacked tensor: rows [first, first + rows) of the `all` that each has. */
typedef struct expert_rows {
    const char *part;
    uint32_t first, rows, all, k;
} expert_rows;

static avo_status add_expert(lister *l, const pack_item *whole, uint32_t layer, uint32_t e,
                             const expert_rows *of) {
    const source_tensor *tensor = whole->tensor;
    pack_item item = *whole;
    pack_place place;
    snprintf(item.name, sizeof(item.name), "blk.%u.%s.%u.weight", layer, of->part, e);
    if (!pack_place_of(text_from(item.name), l->source->config.layers, &place))
        return status_fail(l->error, AVO_ERROR_UNSUPPORTED,
                           "%s: %s is not part of the architecture", l->source->path, item.name);
    uint64_t bytes = tensor->bytes / l->source->config.experts;
    weight_view all = {.type = tensor->type,
                       .layout = QUANT_LAYOUT_ROWS,
                       .rows = of->all,
                       .k = of->k,
                       .data = tensor->data + e * bytes};
    item.rank = place.rank;
    item.rows = of->rows;
    item.k = of->k;
    item.from = of->rows == of->all ? all : weight_slice(&all, of->first, of->rows);
    if (item.forget.size > 0)
        item.forget = (bytes_view){all.data, (size_t)bytes};
    return add(l, &item, &place, true);
}

/* All experts of a layer as matrices of their own. */
static avo_status add_experts(lister *l, const pack_item *item, const pack_place *place) {
    const model_config *config = &l->source->config;
    const source_tensor *tensor = item->tensor;
    uint32_t inner = config->expert_feed_forward, width = config->width;
    bool both = place->role == PACK_ROLE_GATE_UP_EXPERTS;
    bool down = place->role == PACK_ROLE_DOWN_EXPERTS;
    bool alternating =
        config->architecture == ARCHITECTURE_GPT_OSS && l->source->naming == SOURCE_NAMES_HF;
    const expert_rows gate = {"ffn_gate", 0, inner, both ? 2 * inner : inner, width};
    const expert_rows up = {"ffn_up", both ? inner : 0, inner, both ? 2 * inner : inner, width};
    const expert_rows last = {"ffn_down", 0, width, width, inner};
    const expert_rows *all = down ? &last : place->role == PACK_ROLE_UP_EXPERTS ? &up : &gate;
    uint64_t bytes;
    if (tensor->rank != 3 || tensor->shape[0] != config->experts || tensor->shape[1] != all->all ||
        tensor->shape[2] != all->k || alternating ||
        !weight_bytes(tensor->type, QUANT_LAYOUT_ROWS, all->all, all->k, &bytes) ||
        bytes * config->experts != tensor->bytes)
        return status_fail(l->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor %.*s cannot be packed: its experts are not stored as %u "
                           "matrices of %u × %u; pack a GGUF of the model",
                           l->source->path, TEXT_ARGUMENT(tensor->name), config->experts, all->all,
                           all->k);
    for (uint32_t e = 0; e < config->experts; e++) {
        AVO_TRY(add_expert(l, item, place->layer, e, all));
        if (both)
            AVO_TRY(add_expert(l, item, place->layer, e, &up));
    }
    return AVO_OK;
}

/* The same tensor with the rank that its role has: a router of one row may be stored as a vector,
 * and biases of all experts as a matrix. */
static source_tensor with_rank(const source_tensor *tensor, pack_role role) {
    source_tensor own = *tensor;
    if (role == PACK_ROLE_VECTOR && own.rank == 2) {
        own.rank = 1;
        own.shape[0] *= own.shape[1];
        own.shape[1] = 1;
    } else if (role == PACK_ROLE_ROUTER && own.rank == 1) {
        own.rank = 2;
        own.shape[1] = own.shape[0];
        own.shape[0] = 1;
    }
    return own;
}

static bool has_experts_of(pack_role role) {
    return role >= PACK_ROLE_GATE_EXPERTS && role <= PACK_ROLE_GATE_UP_EXPERTS;
}

static avo_status add_tensor(lister *l, const source_tensor *tensor) {
    const model_source *source = l->source;
    const model_config *config = &source->config;
    char room[NAMES_CANONICAL_MAX];
    text_view name;
    if (names_of_tensor(source, tensor, room, &name) == NAME_IGNORED)
        return AVO_OK;
    pack_place place;
    pack_item item = {0};
    if (!pack_place_of(name, config->layers, &place) || name.size >= sizeof(item.name))
        return names_no_place(source, tensor, l->error);
    if (place.role == PACK_ROLE_DROPPED || (place.role == PACK_ROLE_HEAD && config->tied_head))
        return AVO_OK;
    memcpy(item.name, name.data, name.size);
    item.tensor = tensor;
    item.group = place.group;
    item.rank = place.rank;
    item.plus_one = place.norm_weight && config->norm_plus_one;
    if (!source->files[tensor->file].borrowed)
        item.forget = (bytes_view){tensor->data, (size_t)tensor->bytes};
    if (has_experts_of(place.role))
        return add_experts(l, &item, &place);
    const source_tensor ranked = with_rank(tensor, place.role);
    if (!view_tensor(&ranked, config->transposed && place.in_layer, &item) ||
        (place.role == PACK_ROLE_VECTOR && !item.vector))
        return status_fail(l->error, AVO_ERROR_UNSUPPORTED,
                           "%s: tensor %.*s (%llu bytes of type %s, rank %u) cannot be packed",
                           source->path, TEXT_ARGUMENT(tensor->name),
                           (unsigned long long)tensor->bytes, quant_name(tensor->type),
                           tensor->rank);
    if (place.role == PACK_ROLE_QKV || place.role == PACK_ROLE_UP)
        return add_fused(l, &item, &place);
    if (place.role == PACK_ROLE_EMBEDDING && config->tied_head && !l->tied)
        AVO_TRY(add_head(l, &item));
    return add(l, &item, &place, true);
}

avo_status pack_list_source(const model_source *source, pack_type type, pack_look_up look_up,
                            pack_list *list, bool *tied, avo_error *error) {
    *tied = source->config.tied_head && !pack_look_up_splits(type, look_up);
    lister l = {source, type, look_up, *tied, list, error};
    for (uint32_t i = 0; i < source->tensor_count; i++)
        AVO_TRY(add_tensor(&l, &source->tensors[i]));
    if (list->count == 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: there are no tensors", source->path);
    pack_list_sort(list);
    for (uint32_t i = 1; i < list->count; i++)
        if (strcmp(list->items[i].name, list->items[i - 1].name) == 0)
            return status_fail(error, AVO_ERROR_FORMAT, "%s: tensor %s appears twice", source->path,
                               list->items[i].name);
    return AVO_OK;
}
