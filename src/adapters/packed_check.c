/* What a packed file says about itself must follow from its arrays: whoever makes one by hand gets
 * its sums right, so nothing that is shown or computed with rests on them alone. */
#include "adapters/packed_int.h"

/* ---- Numbers ---- */

static bool halves_are_finite(const uint8_t *data, uint64_t count, size_t stride) {
    uint32_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, data + i * stride, sizeof(bits));
        wrong |= (bits & 0x7C00u) == 0x7C00u;
    }
    return wrong == 0;
}

static bool floats_are_finite(const uint8_t *data, uint64_t count) {
    uint32_t wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
        wrong |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return wrong == 0;
}

bool packed_is_finite(const weight_view *view) {
    uint64_t bytes = view_bytes(view), panel = 0;
    switch (view->type) {
    case QUANT_F32:
        return floats_are_finite(view->data, bytes / 4);
    case QUANT_F16:
        return halves_are_finite(view->data, bytes / 2, 2);
    case QUANT_Q8_0: /* rows: blocks of a scale and 32 bytes */
        return view->layout == QUANT_LAYOUT_ROWS && halves_are_finite(view->data, bytes / 34, 34);
    case QUANT_Q8C: /* panels: the last line holds the scales */
    case QUANT_Q8R:
        if (view->layout != QUANT_LAYOUT_PANELS ||
            !weight_panel_bytes(view->type, view->k, &panel) || panel < 64)
            return false;
        for (uint64_t at = panel; at <= bytes; at += panel)
            if (!floats_are_finite(view->data + at - 64, QUANT_PANEL_ROWS))
                return false;
        return true;
    default:
        return false;
    }
}

/* ---- Modules ---- */

/* What a site's arrays make of a module. `kind` NULL: nothing is there. */
typedef struct site_claim {
    const char *kind;
    uint32_t rank;
    float scale;
} site_claim;

static site_claim claim_of(const avo_adapter *adapter, uint32_t layer, adapter_site site) {
    adapter_view view = adapter->view;
    adapter_layer *own = layer == UINT32_MAX ? NULL : &adapter->storage->layers[layer];
    const adapter_norm *norm = site_adapter_norm(&view, own, site);
    const adapter_delta *delta = site_delta(&view, own, site);
    if (norm != NULL)
        return (site_claim){norm->weight != NULL ? "norm"
                            : norm->bias != NULL ? "bias"
                                                 : NULL,
                            0, 1.0f};
    if (delta == NULL) { /* the embedding */
        const adapter_embedding *embedding = &view.embedding;
        if (embedding->look.data == NULL)
            return (site_claim){0};
        return embedding->up.data != NULL
                   ? (site_claim){"embedding", embedding->up.k, embedding->scale}
                   : (site_claim){"full", 0, embedding->scale};
    }
    if (delta->down.data != NULL)
        return (site_claim){delta->gain != NULL ? "dora" : "lora", delta->down.rows, delta->scale};
    if (delta->up.data != NULL)
        return (site_claim){"full", 0, delta->scale};
    return (site_claim){delta->offset != NULL ? "bias" : NULL, 0, 1.0f};
}

static bool claim_fits(const site_claim *claim, const packed_module *module) {
    if (claim->kind == NULL)
        return false;
    const char *kind = packed_kinds[module->kind];
    /* DoRA of an embedding is kept as a whole table: of its rank nothing is left. */
    if (strcmp(kind, "embedding") == 0 && claim->rank == 0)
        return strcmp(claim->kind, "full") == 0 && claim->scale == 1.0f && module->rank >= 1 &&
               module->rank <= ADAPTER_RANK_MAX;
    return strcmp(kind, claim->kind) == 0 && module->rank == claim->rank &&
           (claim->rank > 0 ? (float)module->scale == claim->scale
                            : module->scale == 1.0 && claim->scale == 1.0f);
}

static bool name_fits(const model_config *config, const char *name, uint32_t index,
                      const char **wrapper) {
    return module_find(config, text_from(name), wrapper) == index ||
           module_find_gguf(config, text_from(name)) == index;
}

/* Bit `site` of covered[layer], or of covered[layers] for what no layer has. */
static bool modules_fit(const avo_adapter *adapter, const packed_module *modules,
                        uint32_t *covered) {
    const struct adapter_storage *storage = adapter->storage;
    const model_config *config = storage->base.config;
    uint32_t embedding = module_index(config, 0, MODULE_EMBEDDING);
    uint32_t layers = storage->base.view->layers;
    uint64_t last = 0;
    const char *wrapper = NULL;
    for (uint32_t i = 0; i < adapter->modules_matched; i++) {
        packed_module module;
        memcpy(&module, &modules[i], sizeof(module));
        uint64_t turn = module.index == embedding ? 1 : (uint64_t)module.index + 2;
        if (turn <= last || !name_fits(config, adapter->modules[i].name, module.index, &wrapper))
            return false;
        last = turn;
        uint32_t layer;
        module_role role = module_role_of(config, module.index, &layer);
        adapter_site sites[MODULE_SITES_MAX];
        uint32_t count = module_sites(role, sites);
        for (uint32_t j = 0; j < count; j++) {
            site_claim claim = claim_of(adapter, layer, sites[j]);
            uint32_t *place = &covered[layer == UINT32_MAX ? layers : layer];
            if (!claim_fits(&claim, &module) || (*place >> sites[j] & 1) != 0)
                return false;
            *place |= 1u << sites[j];
        }
    }
    /* And no array without its module. */
    adapter_view view = adapter->view;
    for (uint32_t i = 0; i < array_count(layers); i++) {
        adapter_array array = array_at(&view, storage->layers, layers, i);
        bool there = array.matrix != NULL ? array.matrix->data != NULL : *array.floats != NULL;
        uint32_t bits = covered[array.layer == UINT32_MAX ? layers : array.layer];
        if (there && (bits >> array.site & 1) == 0)
            return false;
    }
    return true;
}

avo_status packed_check_modules(const avo_adapter *adapter, const packed_module *modules, bool *fit,
                                avo_error *error) {
    size_t bytes = (adapter->storage->base.view->layers + (size_t)1) * sizeof(uint32_t);
    uint32_t *covered = allocator_take(adapter->allocator, bytes);
    if (covered == NULL)
        return status_no_memory(error, "a packed adapter's modules", bytes);
    memset(covered, 0, bytes);
    *fit = modules_fit(adapter, modules, covered);
    allocator_give(adapter->allocator, covered, bytes);
    return AVO_OK;
}
