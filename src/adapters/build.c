/* From a draft to an adapter: one region that holds every array in order, each at a multiple of 64
 * bytes. First all sizes are known, then the region is taken, then everything is written once. */
#include "adapters/build_int.h"

#include "base/checked.h"

#include <math.h>

#define ARRAY_ALIGNMENT 64

/* ---- Which module fills a site ---- */

typedef struct site_choice {
    module_role own, fused;
} site_choice;

static const site_choice choices[] = {
    [SITE_ATTENTION_NORM] = {MODULE_ATTENTION_NORM, MODULE_ATTENTION_NORM},
    [SITE_QUERY] = {MODULE_QUERY, MODULE_QKV},
    [SITE_KEY] = {MODULE_KEY, MODULE_QKV},
    [SITE_VALUE] = {MODULE_VALUE, MODULE_QKV},
    [SITE_QUERY_NORM] = {MODULE_QUERY_NORM, MODULE_QUERY_NORM},
    [SITE_KEY_NORM] = {MODULE_KEY_NORM, MODULE_KEY_NORM},
    [SITE_OUTPUT] = {MODULE_OUTPUT, MODULE_OUTPUT},
    [SITE_ATTENTION_POST_NORM] = {MODULE_ATTENTION_POST_NORM, MODULE_ATTENTION_POST_NORM},
    [SITE_FEED_FORWARD_NORM] = {MODULE_FEED_FORWARD_NORM, MODULE_FEED_FORWARD_NORM},
    [SITE_GATE] = {MODULE_GATE, MODULE_GATE_UP},
    [SITE_UP] = {MODULE_UP, MODULE_GATE_UP},
    [SITE_DOWN] = {MODULE_DOWN, MODULE_DOWN},
    [SITE_FEED_FORWARD_POST_NORM] = {MODULE_FEED_FORWARD_POST_NORM, MODULE_FEED_FORWARD_POST_NORM},
    [SITE_EMBEDDING] = {MODULE_EMBEDDING, MODULE_EMBEDDING},
    [SITE_FINAL_NORM] = {MODULE_FINAL_NORM, MODULE_FINAL_NORM},
    [SITE_HEAD] = {MODULE_HEAD, MODULE_HEAD},
};

const module_draft *build_module(const builder *b, uint32_t layer, adapter_site site,
                                 uint32_t *first) {
    const model_config *config = b->draft->base->config;
    const model_view *view = b->draft->base->view;
    *first = 0;
    const module_draft *own = &b->draft->modules[module_index(config, layer, choices[site].own)];
    if (own->name != NULL || choices[site].own == choices[site].fused)
        return own->name != NULL ? own : NULL;
    const module_draft *fused =
        &b->draft->modules[module_index(config, layer, choices[site].fused)];
    if (fused->name == NULL)
        return NULL;
    const layer_view *l = &view->layer[layer];
    if (site == SITE_KEY)
        *first = l->query.weight.rows;
    else if (site == SITE_VALUE)
        *first = l->query.weight.rows + l->key.weight.rows;
    else if (site == SITE_UP)
        *first = l->gate.weight.rows;
    return fused;
}

/* ---- Sizes ---- */

/* Rows of the embedding: few are read, so they may be wide. */
static quant_type look_type(const builder *b, const module_draft *module, uint32_t k) {
    if (b->type == QUANT_F32)
        return QUANT_F32;
    bool whole = module->weight != NULL || module->magnitude != NULL;
    return whole && b->type == QUANT_Q8C && k % 32 == 0 ? QUANT_Q8_0 : QUANT_F16;
}

/* The matrix as it will be, without data; rows 0: none. */
static weight_view matrix_plan(const builder *b, const adapter_array *array,
                               const module_draft *module) {
    const model_view *base = b->draft->base->view;
    const linear_view *linear = site_linear(base, array->layer, array->site);
    weight_view plan = {.type = b->type, .layout = QUANT_LAYOUT_PANELS};
    bool embedding = array->site == SITE_EMBEDDING;
    bool low_rank = module->down != NULL && !(embedding && module->magnitude != NULL);
    bool whole = module->weight != NULL || (embedding && module->magnitude != NULL);
    switch (array->part) {
    case PART_DOWN:
        plan.rows = low_rank ? module->rank : 0;
        plan.k = linear->weight.k;
        plan.type = adapter_half_type(b->type, plan.k);
        break;
    case PART_UP:
        plan.rows = embedding ? (low_rank ? base->embedding.k : 0)
                              : (low_rank || whole ? linear->weight.rows : 0);
        plan.k = low_rank ? module->rank : linear != NULL ? linear->weight.k : 0;
        if (low_rank && !embedding)
            plan.type = adapter_half_type(b->type, plan.k);
        break;
    default: /* PART_LOOK */
        plan.rows = low_rank || whole ? base->embedding.rows : 0;
        plan.k = low_rank ? module->rank : base->embedding.k;
        plan.type = look_type(b, module, plan.k);
        plan.layout = QUANT_LAYOUT_ROWS;
    }
    return plan;
}

static bool floats_wanted(const builder *b, const adapter_array *array,
                          const module_draft *module) {
    const linear_view *linear = site_linear(b->draft->base->view, array->layer, array->site);
    switch (array->part) {
    case PART_GAIN:
        return module->magnitude != NULL;
    case PART_OFFSET:
        return module->bias != NULL || module->up_bias != NULL ||
               (module->magnitude != NULL && linear->bias != NULL);
    case PART_NORM_WEIGHT:
        return module->weight != NULL;
    default:
        return module->bias != NULL;
    }
}

static avo_status place(builder *b, uint64_t bytes, const uint8_t **data, avo_error *error) {
    size_t at, end;
    if (bytes > SIZE_MAX / 2 || !size_round_up(b->at, ARRAY_ALIGNMENT, &at) ||
        !size_add(at, (size_t)bytes, &end))
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the adapter is too large for memory",
                           b->draft->path);
    b->at = end;
    /* Before there is a region, anything that is not NULL says "something is here". */
    *data = b->data == NULL ? (const uint8_t *)b->draft : b->data + at;
    return AVO_OK;
}

static avo_status place_array(builder *b, const adapter_array *array, const weight_view *before,
                              bool fused_before, avo_error *error) {
    uint32_t first;
    const module_draft *module = build_module(b, array->layer, array->site, &first);
    if (module == NULL)
        return AVO_OK;
    if (array->matrix == NULL) {
        uint32_t count = array_floats(b->draft->base->view, array);
        const uint8_t *data = NULL;
        if (count > 0 && floats_wanted(b, array, module))
            AVO_TRY(place(b, sizeof(float) * (uint64_t)count, &data, error));
        *array->floats = (const float *)(const void *)data;
        return AVO_OK;
    }
    weight_view plan = matrix_plan(b, array, module);
    if (plan.rows == 0)
        return AVO_OK;
    if (array->part == PART_DOWN && fused_before) {
        *array->matrix = *before; /* parts of a fused module share A */
        return AVO_OK;
    }
    uint64_t bytes;
    if (!weight_bytes(plan.type, plan.layout, plan.rows, plan.k, &bytes))
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: module %s: a %u × %u matrix cannot be stored as %s", b->draft->path,
                           module->name, plan.rows, plan.k, quant_name(plan.type));
    AVO_TRY(place(b, bytes, &plan.data, error));
    *array->matrix = plan;
    return AVO_OK;
}

static avo_status place_all(builder *b, avo_error *error) {
    const model_view *base = b->draft->base->view;
    adapter_view *view = &b->adapter->view;
    b->at = 0;
    const module_draft *last = NULL;
    const weight_view *last_view = NULL;
    for (uint32_t i = 0; i < array_count(base->layers); i++) {
        adapter_array array = array_at(view, b->layers, base->layers, i);
        uint32_t first = 0;
        const module_draft *module = build_module(b, array.layer, array.site, &first);
        bool shared = array.part == PART_DOWN && module != NULL && module == last;
        AVO_TRY(place_array(b, &array, last_view, shared, error));
        if (array.part == PART_DOWN) {
            last = module;
            last_view = array.matrix;
        }
    }
    return AVO_OK;
}

/* ---- Opening ---- */

static void set_scales(builder *b) {
    const model_view *base = b->draft->base->view;
    adapter_view *view = &b->adapter->view;
    view->embedding.scale = 1.0f;
    for (uint32_t i = 0; i < array_count(base->layers); i++) {
        adapter_array array = array_at(view, b->layers, base->layers, i);
        uint32_t first;
        const module_draft *module = build_module(b, array.layer, array.site, &first);
        if (module == NULL || array.part != PART_UP)
            continue;
        float scale = module->down != NULL ? (float)module->scale : 1.0f;
        adapter_delta *delta = site_delta(
            view, array.layer == UINT32_MAX ? NULL : &b->layers[array.layer], array.site);
        if (delta != NULL)
            delta->scale = scale;
        else if (array.matrix->data != NULL)
            view->embedding.scale = scale;
    }
}

static const char *kind_of(module_role role, const module_draft *module) {
    if (module_is_norm(role))
        return module->weight != NULL ? "norm" : "bias";
    if (module->down != NULL)
        return role == MODULE_EMBEDDING ? "embedding" : module->magnitude != NULL ? "dora" : "lora";
    return module->weight != NULL ? "full" : "bias";
}

static avo_status list_modules(builder *b, avo_error *error) {
    const adapter_draft *draft = b->draft;
    avo_adapter *adapter = b->adapter;
    uint32_t count = 0;
    for (uint32_t i = 0; i < draft->module_count; i++)
        count += draft->modules[i].name != NULL;
    adapter_module *modules = arena_take_array(&adapter->storage->arena, count, sizeof(*modules));
    if (modules == NULL)
        return status_no_memory(error, "modules", count * sizeof(*modules));
    adapter->storage->modules = modules;
    adapter->modules = modules;
    for (uint32_t j = 0; j < draft->module_count; j++) {
        /* The embedding stands last in the index, and first in a forward pass. */
        uint32_t embedding = module_index(draft->base->config, 0, MODULE_EMBEDDING);
        uint32_t i = j == 0 ? embedding : j <= embedding ? j - 1 : j;
        const module_draft *module = &draft->modules[i];
        if (module->name == NULL)
            continue;
        uint32_t layer;
        module_role role = module_role_of(draft->base->config, i, &layer);
        adapter_module *shown = &modules[adapter->modules_matched++];
        shown->name = arena_copy_text(&adapter->storage->arena, module->name, strlen(module->name));
        if (shown->name == NULL)
            return status_no_memory(error, "a name", strlen(module->name));
        shown->kind = kind_of(role, module);
        shown->rank = module->down != NULL ? module->rank : 0;
        shown->scale = module->down != NULL ? module->scale : 1.0;
        adapter->storage->module_index[adapter->modules_matched - 1] = i;
    }
    adapter->modules_expected = draft->modules_expected;
    if (adapter->modules_matched != adapter->modules_expected)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: %u modules have tensors, must be %u",
                           draft->path, adapter->modules_matched, adapter->modules_expected);
    return AVO_OK;
}

static avo_status take_module_index(builder *b, avo_error *error) {
    uint32_t count = b->draft->module_count;
    struct adapter_storage *storage = b->adapter->storage;
    storage->module_index = arena_take_array(&storage->arena, count, sizeof(uint32_t));
    storage->norms = arena_take_array(&storage->arena, count, sizeof(double));
    return storage->module_index == NULL || storage->norms == NULL
               ? status_no_memory(error, "modules", count * sizeof(uint32_t))
               : AVO_OK;
}

avo_status adapter_build(const adapter_draft *draft, const adapter_options *options,
                         avo_adapter *adapter, avo_error *error) {
    struct adapter_storage *storage = adapter->storage;
    const model_view *base = draft->base->view;
    builder b = {
        .draft = draft, .adapter = adapter, .type = options->type, .allocator = adapter->allocator};
    b.layers = arena_take_array(&storage->arena, base->layers, sizeof(*b.layers));
    if (b.layers == NULL)
        return status_no_memory(error, "layers", base->layers * sizeof(*b.layers));
    storage->layers = b.layers;
    adapter->view.layer = b.layers;
    adapter->method = draft->method;
    AVO_TRY(take_module_index(&b, error));
    AVO_TRY(list_modules(&b, error));
    AVO_TRY(place_all(&b, error));
    if (b.at == 0)
        return status_fail(error, AVO_ERROR_FORMAT, "%s: the adapter changes nothing", draft->path);
    AVO_TRY(adapter_admit(options, adapter, b.at, error));
    AVO_TRY(region_open(adapter->allocator, b.at,
                        &(region_options){.huge = b.at >= REGION_HUGE_BYTES}, "an adapter",
                        &storage->region, error));
    memset(storage->region.data, 0, b.at);
    b.data = storage->region.data;
    AVO_TRY(place_all(&b, error));
    set_scales(&b);
    return build_fill(&b, error);
}
