/* How much an adapter changes: the Frobenius norm of every module's difference, measured on what
 * the kernels read. */
#include "adapters/adapters_int.h"

#include "adapters/lanes.h"
#include "base/checked.h"

#include <math.h>

typedef struct norm_room {
    const avo_allocator *allocator;
    float *down;      /* [k][rank] */
    float *panel;     /* [k][16] of `up` or the base */
    double *products; /* [rank][rank] A·Aᵀ */
    size_t bytes;
} norm_room;

/* ‖s·B·A‖² = s² Σ (Bᵀ·B)ᵢⱼ (A·Aᵀ)ᵢⱼ, without ever making B·A. */
static double low_rank_squares(const adapter_delta *delta, norm_room *room) {
    size_t k = delta->down.k, rank = delta->down.rows;
    float row_of[QUANT_PANEL_ROWS * ADAPTER_RANK_MAX];
    memset(room->products, 0, rank * rank * sizeof(double));
    for (size_t panel = 0; panel < weight_panels(&delta->down); panel++) {
        weight_decode_panel(&delta->down, panel, room->panel);
        size_t rows = size_min(rank - panel * QUANT_PANEL_ROWS, QUANT_PANEL_ROWS);
        for (size_t i = 0; i < k; i++)
            for (size_t r = 0; r < rows; r++)
                room->down[i * rank + panel * QUANT_PANEL_ROWS + r] =
                    room->panel[i * QUANT_PANEL_ROWS + r];
    }
    for (size_t i = 0; i < k; i++)
        for (size_t r = 0; r < rank; r++)
            for (size_t c = 0; c < rank; c++)
                room->products[r * rank + c] +=
                    (double)room->down[i * rank + r] * (double)room->down[i * rank + c];
    double sum = 0.0;
    for (size_t panel = 0; panel < weight_panels(&delta->up); panel++) {
        weight_decode_panel(&delta->up, panel, row_of); /* [rank][16] */
        for (size_t lane = 0; lane < QUANT_PANEL_ROWS; lane++)
            for (size_t r = 0; r < rank; r++) {
                double inner = 0.0;
                for (size_t c = 0; c < rank; c++)
                    inner +=
                        room->products[r * rank + c] * (double)row_of[c * QUANT_PANEL_ROWS + lane];
                sum += inner * (double)row_of[r * QUANT_PANEL_ROWS + lane];
            }
    }
    return sum * (double)delta->scale * (double)delta->scale;
}

/* Every number of a matrix. */
static double matrix_squares(const weight_view *view, float *panel) {
    double sum = 0.0;
    for (size_t i = 0; i < weight_panels(view); i++) {
        weight_decode_panel(view, i, panel);
        for (size_t j = 0; j < (size_t)view->k * QUANT_PANEL_ROWS; j++)
            sum += (double)panel[j] * (double)panel[j];
    }
    return sum;
}

/* DoRA: (gain − 1) · W + s · B · A, made 16 rows at a time. */
static double gain_squares(const adapter_delta *delta, const weight_view *base, norm_room *room) {
    size_t k = delta->down.k, rank = delta->down.rows;
    float up[QUANT_PANEL_ROWS * ADAPTER_RANK_MAX];
    double sum = 0.0;
    for (size_t panel = 0; panel < weight_panels(base); panel++) {
        size_t first = panel * QUANT_PANEL_ROWS;
        weight_decode_panel(&delta->up, panel, up);
        weight_decode_panel(base, panel, room->panel);
        for (size_t r = 0; r < rank * QUANT_PANEL_ROWS; r++)
            up[r] *= delta->scale;
        for (size_t lane = 0; lane < QUANT_PANEL_ROWS; lane++) {
            float gain = first + lane < base->rows ? delta->gain[first + lane] - 1.0f : 0.0f;
            for (size_t i = 0; i < k; i++)
                room->panel[i * QUANT_PANEL_ROWS + lane] *= gain;
        }
        lanes_product(room->panel, room->down, up, k, rank, room->panel);
        for (size_t i = 0; i < k * QUANT_PANEL_ROWS; i++)
            sum += (double)room->panel[i] * (double)room->panel[i];
    }
    return sum;
}

static double delta_squares(const avo_adapter *adapter, uint32_t layer, adapter_site site,
                            norm_room *room) {
    struct adapter_storage *storage = adapter->storage;
    adapter_view view = adapter->view;
    const adapter_delta *delta =
        site_delta(&view, layer == UINT32_MAX ? NULL : &storage->layers[layer], site);
    const linear_view *linear = site_linear(storage->base.view, layer, site);
    if (linear == NULL || delta->up.data == NULL)
        return 0.0;
    if (delta->down.data == NULL)
        return matrix_squares(&delta->up, room->panel);
    double sum = low_rank_squares(delta, room); /* leaves A in room->down */
    return delta->gain == NULL ? sum : gain_squares(delta, &linear->weight, room);
}

static double embedding_squares(const avo_adapter *adapter, norm_room *room) {
    const adapter_embedding *embedding = &adapter->view.embedding;
    if (embedding->look.data == NULL)
        return 0.0;
    if (embedding->up.data == NULL)
        return matrix_squares(&embedding->look, room->panel);
    /* The same as of a delta with A and B exchanged: lookᵀ·look, and the rows of `up`. */
    size_t rank = embedding->up.k;
    float row[ADAPTER_RANK_MAX * QUANT_PANEL_ROWS];
    memset(room->products, 0, rank * rank * sizeof(double));
    for (size_t token = 0; token < embedding->look.rows; token++) {
        weight_decode_row(&embedding->look, token, row);
        for (size_t r = 0; r < rank; r++)
            for (size_t c = 0; c < rank; c++)
                room->products[r * rank + c] += (double)row[r] * (double)row[c];
    }
    double sum = 0.0;
    for (size_t panel = 0; panel < weight_panels(&embedding->up); panel++) {
        weight_decode_panel(&embedding->up, panel, row);
        for (size_t lane = 0; lane < QUANT_PANEL_ROWS; lane++)
            for (size_t r = 0; r < rank; r++)
                for (size_t c = 0; c < rank; c++)
                    sum += room->products[r * rank + c] * (double)row[r * QUANT_PANEL_ROWS + lane] *
                           (double)row[c * QUANT_PANEL_ROWS + lane];
    }
    return sum * (double)embedding->scale * (double)embedding->scale;
}

static double floats_squares(const float *numbers, uint32_t count) {
    double sum = 0.0;
    for (uint32_t i = 0; numbers != NULL && i < count; i++)
        sum += (double)numbers[i] * (double)numbers[i];
    return sum;
}

/* Norms, biases: what their float arrays hold. */
static double site_floats(const avo_adapter *adapter, uint32_t layer, adapter_site site) {
    const struct adapter_storage *storage = adapter->storage;
    adapter_view view = adapter->view;
    double sum = 0.0;
    uint32_t layers = storage->base.view->layers;
    for (uint32_t i = 0; i < array_count(layers); i++) {
        adapter_array array = array_at(&view, storage->layers, layers, i);
        if (array.layer == layer && array.site == site && array.floats != NULL &&
            array.part != PART_GAIN)
            sum += floats_squares(*array.floats, array_floats(storage->base.view, &array));
    }
    return sum;
}

static double module_squares(const avo_adapter *adapter, uint32_t index, norm_room *room) {
    const struct adapter_storage *storage = adapter->storage;
    uint32_t layer;
    module_role role = module_role_of(storage->base.config, storage->module_index[index], &layer);
    double sum = 0.0;
    bool floats_only = adapter->modules[index].kind[0] == 'b' || module_is_norm(role);
    adapter_site sites[MODULE_SITES_MAX];
    uint32_t count = module_sites(role, sites);
    for (uint32_t i = 0; i < count; i++) {
        if (floats_only)
            sum += site_floats(adapter, layer, sites[i]);
        else if (role == MODULE_EMBEDDING)
            sum += embedding_squares(adapter, room);
        else
            sum += delta_squares(adapter, layer, sites[i], room);
    }
    return sum;
}

static bool compute(const avo_adapter *adapter) {
    struct adapter_storage *storage = adapter->storage;
    const model_view *base = storage->base.view;
    size_t k = size_max(size_max(base->k_max, base->embedding.k), ADAPTER_RANK_MAX);
    norm_room room = {.allocator = adapter->allocator};
    size_t down = k * ADAPTER_RANK_MAX * sizeof(float);
    size_t panel = k * QUANT_PANEL_ROWS * sizeof(float);
    size_t products = (size_t)ADAPTER_RANK_MAX * ADAPTER_RANK_MAX * sizeof(double);
    room.bytes = down + panel + products;
    uint8_t *memory = allocator_take(room.allocator, room.bytes);
    if (memory == NULL)
        return false;
    room.products = (double *)(void *)memory;
    room.down = (float *)(void *)(memory + products);
    room.panel = (float *)(void *)(memory + products + down);
    for (uint32_t i = 0; i < adapter->modules_matched; i++)
        storage->norms[i] = sqrt(module_squares(adapter, i, &room));
    allocator_give(room.allocator, memory, room.bytes);
    return true;
}

double adapter_module_norm(const avo_adapter *adapter, uint32_t index) {
    struct adapter_storage *storage = adapter->storage;
    (void)pthread_mutex_lock(&storage->mutex);
    if (!storage->norms_known)
        storage->norms_known = compute(adapter);
    double norm = storage->norms_known ? storage->norms[index] : NAN;
    (void)pthread_mutex_unlock(&storage->mutex);
    return norm;
}
