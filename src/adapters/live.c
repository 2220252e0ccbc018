/* Adapters in training: which modules, where their numbers are, and how they change. */
#include "adapters/live.h"

#include "adapters/adapters_int.h"
#include "base/checked.h"
#include "base/file.h"
#include "quant/panels.h"

#include <stdio.h>

typedef struct live_adapter {
    avo_adapter adapter; /* first: adapters.h knows this part alone */
    arena arena;
    region region;
    const model_view *base;
    adapter_layer *layers;
    adapter_live_module *modules;
    uint32_t count;
    uint32_t rank;
    float scale;
    bool gains;
    uint8_t *room; /* [16] rows of the longest k, as floats */
} live_adapter;

static live_adapter *live_of(avo_adapter *adapter) {
    return (live_adapter *)(void *)adapter;
}

static void close_live(avo_adapter *adapter) {
    live_adapter *own = live_of(adapter);
    arena_free(&own->arena);
    region_close(&own->region);
    allocator_give(adapter->allocator, own, sizeof(*own));
}

/* ---- Which modules ---- */

static const struct {
    module_role role;
    uint32_t matrices;
    adapter_matrix matrix[ADAPTER_MODULE_MATRICES];
} trainable[] = {
    {MODULE_QUERY, 1, {ADAPTER_QUERY}},
    {MODULE_KEY, 1, {ADAPTER_KEY}},
    {MODULE_VALUE, 1, {ADAPTER_VALUE}},
    {MODULE_QKV, 3, {ADAPTER_QUERY, ADAPTER_KEY, ADAPTER_VALUE}},
    {MODULE_OUTPUT, 1, {ADAPTER_OUTPUT}},
    {MODULE_GATE, 1, {ADAPTER_GATE}},
    {MODULE_UP, 1, {ADAPTER_UP}},
    {MODULE_GATE_UP, 2, {ADAPTER_GATE, ADAPTER_UP}},
    {MODULE_DOWN, 1, {ADAPTER_DOWN}},
    {MODULE_HEAD, 1, {ADAPTER_HEAD}},
};
#define TRAINABLE (sizeof(trainable) / sizeof(trainable[0]))

typedef struct live_builder {
    live_adapter *own;
    const adapter_base *base;
    const adapter_live_options *options;
    bool used[ADAPTER_LIVE_TARGETS_MAX];
    avo_error *error;
} live_builder;

static bool is_all_linear(const adapter_live_options *options) {
    return options->target_count == 1 && strcmp(options->targets[0], "all-linear") == 0;
}

bool adapter_name_ends(text_view name, text_view parts) {
    return parts.size > 0 && text_ends(name, parts) &&
           (name.size == parts.size || name.data[name.size - parts.size - 1] == '.');
}

uint32_t adapter_names_ending(const model_config *config, text_view parts) {
    char name[ADAPTER_NAME_MAX];
    uint32_t count = 0, all = module_count(config);
    for (uint32_t i = 0; i < all; i++)
        count += module_name(config, module_wrapper(config->architecture), i, name, sizeof(name)) &&
                 adapter_name_ends(text_from(name), parts);
    return count;
}

static bool is_target(live_builder *b, const char *name, module_role role) {
    if (is_all_linear(b->options))
        return role != MODULE_HEAD;
    bool found = false;
    for (size_t i = 0; i < b->options->target_count; i++)
        if (adapter_name_ends(text_from(name), text_from(b->options->targets[i])))
            found = b->used[i] = true;
    return found;
}

/* The base's matrix of a site of a module. */
static const linear_view *matrix_of(const model_view *base, uint32_t layer, adapter_matrix matrix) {
    if (matrix == ADAPTER_HEAD)
        return &base->head;
    const layer_view *own = &base->layer[layer];
    const linear_view *const all[] = {&own->query, &own->key, &own->value, &own->output,
                                      &own->gate,  &own->up,  &own->down};
    return all[matrix];
}

static avo_status set_order(live_builder *b, adapter_live_module *module) {
    static const adapter_site sites[] = {[ADAPTER_QUERY] = SITE_QUERY, [ADAPTER_KEY] = SITE_KEY};
    adapter_draft draft = {.base = b->base};
    adapter_matrix matrix = module->matrix[0];
    if (module->matrices != 1 || matrix > ADAPTER_KEY || !b->base->config->rope_interleaved)
        return AVO_OK;
    uint32_t *order = arena_take_array(&b->own->arena, module->rows, sizeof(*order));
    if (order == NULL)
        return status_no_memory(b->error, "the order of rows", module->rows * sizeof(*order));
    for (uint32_t i = 0; i < module->rows; i++)
        order[i] = draft_row(&draft, sites[matrix], i);
    module->order = order;
    return AVO_OK;
}

static avo_status add_module(live_builder *b, uint32_t layer, size_t kind) {
    const model_config *config = b->base->config;
    char name[ADAPTER_NAME_MAX];
    if (!module_name(config, module_wrapper(config->architecture),
                     module_index(config, layer, trainable[kind].role), name, sizeof(name)) ||
        !is_target(b, name, trainable[kind].role))
        return AVO_OK;
    live_adapter *own = b->own;
    adapter_live_module module = {.layer = layer, .matrices = trainable[kind].matrices};
    for (uint32_t i = 0; i < module.matrices; i++) {
        module.matrix[i] = trainable[kind].matrix[i];
        const linear_view *linear = matrix_of(b->base->view, layer, module.matrix[i]);
        if (linear->weight.data == NULL)
            return AVO_OK;
        module.first[i] = module.rows;
        module.rows += linear->weight.rows;
        module.k = linear->weight.k;
    }
    if (own->modules != NULL) {
        module.name = arena_copy_text(&own->arena, name, strlen(name));
        if (module.name == NULL)
            return status_no_memory(b->error, "a name", strlen(name));
        AVO_TRY(set_order(b, &module));
        own->modules[own->count] = module;
    }
    own->count++;
    return AVO_OK;
}

/* Once to count, once to fill. */
static avo_status add_modules(live_builder *b) {
    const model_view *view = b->base->view;
    b->own->count = 0;
    for (uint32_t layer = 0; layer < view->layers; layer++)
        for (size_t i = 0; i + 1 < TRAINABLE; i++)
            AVO_TRY(add_module(b, layer, i));
    return add_module(b, 0, TRAINABLE - 1);
}

static avo_status list_modules(live_builder *b) {
    const adapter_live_options *o = b->options;
    if (o->target_count == 0 || o->target_count > ADAPTER_LIVE_TARGETS_MAX)
        return status_fail(b->error, AVO_ERROR_ARGUMENT,
                           "%zu target modules, must be 1 to %d (or \"all-linear\")",
                           o->target_count, ADAPTER_LIVE_TARGETS_MAX);
    AVO_TRY(add_modules(b));
    for (size_t i = 0; i < o->target_count && !is_all_linear(o); i++)
        if (!b->used[i])
            return status_fail(
                b->error, AVO_ERROR_ARGUMENT,
                "target \"%s\" matches no matrix of this model (%s); targets are names such as "
                "\"%s\" or their ends, \"lm_head\", or \"all-linear\"; embeddings and norms are "
                "trained by full tuning only",
                o->targets[i], source_architecture_name(b->base->config->architecture),
                module_suffix(b->base->config->architecture, MODULE_OUTPUT));
    b->own->modules = arena_take_array(&b->own->arena, b->own->count, sizeof(*b->own->modules));
    if (b->own->modules == NULL)
        return status_no_memory(b->error, "modules", b->own->count * sizeof(*b->own->modules));
    return add_modules(b);
}

/* ---- Memory ---- */

static adapter_delta *delta_of(live_adapter *own, const adapter_live_module *module, uint32_t i) {
    adapter_matrix matrix = module->matrix[i];
    if (matrix == ADAPTER_HEAD)
        return &own->adapter.view.head;
    adapter_layer *layer = &own->layers[module->layer];
    adapter_delta *const all[] = {&layer->query, &layer->key, &layer->value, &layer->output,
                                  &layer->gate,  &layer->up,  &layer->down};
    return all[matrix];
}

static weight_view panels_of(uint32_t rows, uint32_t k, const uint8_t *data) {
    return (weight_view){
        .type = QUANT_F32, .layout = QUANT_LAYOUT_PANELS, .rows = rows, .k = k, .data = data};
}

static size_t panels_size(uint32_t rows, uint32_t k) {
    uint64_t bytes = 0; /* F32 has panels of any size that a base's matrix has */
    bool known = weight_bytes(QUANT_F32, QUANT_LAYOUT_PANELS, rows, k, &bytes);
    return known ? (size_t)bytes : 0;
}

/* `data` NULL: only counts. */
static size_t place_module(live_adapter *own, const adapter_live_module *module, uint8_t *data) {
    size_t at = 0;
    weight_view down = panels_of(own->rank, module->k, data);
    at += panels_size(own->rank, module->k);
    for (uint32_t i = 0; i < module->matrices; i++) {
        uint32_t rows = matrix_of(own->base, module->layer, module->matrix[i])->weight.rows;
        adapter_delta *delta = delta_of(own, module, i);
        delta->scale = own->scale;
        delta->down = down;
        delta->up = panels_of(rows, own->rank, data == NULL ? NULL : data + at);
        at += panels_size(rows, own->rank);
        if (!own->gains)
            continue;
        size_t floats = ((size_t)rows * sizeof(float) + 63) / 64 * 64;
        delta->gain = data == NULL ? NULL : (const float *)(const void *)(data + at);
        delta->offset = data == NULL ? NULL : (const float *)(const void *)(data + at + floats);
        at += 2 * floats;
    }
    return at;
}

static avo_status place_modules(live_adapter *own, avo_error *error) {
    size_t total = 0;
    size_t room = (size_t)QUANT_PANEL_ROWS * sizeof(float) *
                  size_max(size_max(own->base->k_max, own->base->width), ADAPTER_RANK_MAX);
    for (uint32_t i = 0; i < own->count; i++)
        total += place_module(own, &own->modules[i], NULL);
    const region_options options = {.huge = true};
    AVO_TRY(region_open(own->adapter.allocator, total + room, &options, "the adapter", &own->region,
                        error));
    memset(own->region.data, 0, total + room);
    size_t at = 0;
    for (uint32_t i = 0; i < own->count; i++)
        at += place_module(own, &own->modules[i], own->region.data + at);
    own->room = own->region.data + total;
    own->adapter.bytes = total;
    own->adapter.memory_bytes = own->arena.used_bytes + own->region.bytes;
    return AVO_OK;
}

/* ---- Opening ---- */

static avo_status build(live_builder *b) {
    live_adapter *own = b->own;
    AVO_TRY(list_modules(b));
    own->layers = arena_take_array(&own->arena, own->base->layers, sizeof(*own->layers));
    if (own->layers == NULL)
        return status_no_memory(b->error, "layers", own->base->layers * sizeof(*own->layers));
    own->adapter.view.layer = own->layers;
    own->adapter.view.embedding.scale = 1.0f;
    AVO_TRY(place_modules(own, b->error));
    own->adapter.view.gains = own->gains;
    own->adapter.view.rank = adapter_rank(&own->adapter.view, own->base->layers);
    return AVO_OK;
}

avo_status adapter_live_open(const adapter_base *base, const adapter_live_options *options,
                             const avo_allocator *allocator, avo_adapter **out, avo_error *error) {
    *out = NULL;
    if (options->rank == 0 || options->rank > ADAPTER_RANK_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "rank is %u, must be 1 to %d", options->rank,
                           ADAPTER_RANK_MAX);
    live_adapter *own = allocator_take_array(allocator, 1, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "an adapter", sizeof(*own));
    arena_init(&own->arena, allocator, SIZE_MAX);
    own->adapter = (avo_adapter){.allocator = allocator,
                                 .references = 1,
                                 .close = close_live,
                                 .config = base->config,
                                 .path = "(in training)",
                                 .type = "f32",
                                 .method = options->gains ? "dora" : "lora"};
    own->base = base->view;
    own->rank = options->rank;
    own->scale = options->scale;
    own->gains = options->gains;
    live_builder b = {.own = own, .base = base, .options = options, .error = error};
    avo_status status = build(&b);
    if (status != AVO_OK) {
        close_live(&own->adapter);
        return status;
    }
    *out = &own->adapter;
    return AVO_OK;
}

const adapter_live_module *adapter_live_modules(const avo_adapter *adapter, uint32_t *count) {
    const live_adapter *own = (const live_adapter *)(const void *)adapter;
    *count = own->count;
    return own->modules;
}

/* ---- Folders to continue from ---- */

static avo_status no_patterns(const char *path, const char *key, const json_value *patterns,
                              avo_error *error) {
    if (patterns == NULL)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_UNSUPPORTED,
                       "%s: %s has %zu entries, must have none: training continues adapters with "
                       "the same rank and alpha in all modules only",
                       path, key, patterns->object.count);
}

avo_status adapter_live_read_config(const char *path, const avo_allocator *allocator,
                                    adapter_live_config *out, avo_error *error) {
    arena scratch;
    file_map map;
    peft_config config;
    AVO_TRY(file_map_open(path, &map, error));
    arena_init(&scratch, allocator, SIZE_MAX);
    avo_status status = peft_config_read(&scratch, map.bytes, path, &config, error);
    AVO_THEN(status, no_patterns(path, "rank_pattern", config.ranks, error));
    AVO_THEN(status, no_patterns(path, "alpha_pattern", config.alphas, error));
    if (status == AVO_OK)
        *out = (adapter_live_config){config.rank, config.alpha, config.rslora, config.dora};
    arena_free(&scratch);
    file_map_close(&map);
    return status;
}

/* ---- Numbers ---- */

/* Rows of `from`, through the order and multiplied by their gains, as panels. */
typedef struct live_rows {
    const float *from; /* [rows][k] */
    const uint32_t *order;
    const float *gain;
} live_rows;

static void write_panels(live_adapter *own, const weight_view *to, const live_rows *rows) {
    uint64_t bytes = 0;
    if (!weight_panel_bytes(to->type, to->k, &bytes))
        return; /* cannot be: it was placed */
    float *room = (float *)(void *)own->room;
    uint8_t *data = (uint8_t *)(uintptr_t)to->data;
    for (size_t panel = 0; panel < weight_panels(to); panel++) {
        size_t first = panel * QUANT_PANEL_ROWS;
        size_t count = size_min(to->rows - first, QUANT_PANEL_ROWS);
        for (size_t i = 0; i < count; i++) {
            size_t row = rows->order == NULL ? first + i : rows->order[first + i];
            memcpy(room + i * to->k, rows->from + row * to->k, to->k * sizeof(float));
            for (size_t j = 0; rows->gain != NULL && j < to->k; j++)
                room[i * to->k + j] *= rows->gain[first + i];
        }
        weight_encode_panel(to->type, room, count, to->k, data + panel * (size_t)bytes);
    }
}

void adapter_live_set(avo_adapter *adapter, uint32_t number, const float *a, const float *b,
                      const float *gain) {
    live_adapter *own = live_of(adapter);
    const adapter_live_module *module = &own->modules[number];
    write_panels(own, &delta_of(own, module, 0)->down, &(live_rows){.from = a});
    for (uint32_t i = 0; i < module->matrices; i++) {
        adapter_delta *delta = delta_of(own, module, i);
        size_t first = module->first[i];
        const float *own_gain = own->gains ? gain + first : NULL;
        live_rows rows = {b + first * own->rank, module->order, own_gain};
        write_panels(own, &delta->up, &rows);
        if (!own->gains)
            continue;
        const float *bias = matrix_of(own->base, module->layer, module->matrix[i])->bias;
        for (uint32_t j = 0; j < delta->up.rows; j++) {
            ((float *)(uintptr_t)delta->gain)[j] = own_gain[j];
            ((float *)(uintptr_t)delta->offset)[j] =
                bias == NULL ? 0.0f : bias[j] - own_gain[j] * bias[j];
        }
    }
}

void adapter_live_seal(avo_adapter *adapter) {
    live_adapter *own = live_of(adapter);
    adapter_digest(&adapter->view, own->base->layers, own->base, adapter->view.digest);
}
