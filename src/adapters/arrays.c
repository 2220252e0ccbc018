/* The arrays of an adapter in their one order: that of a forward pass, what reads the same x side
 * by side. */
#include "adapters/adapters_int.h"

#include "base/hash.h"

typedef struct array_place {
    adapter_site site;
    adapter_part part;
} array_place;

#define DELTA_REST(site)                                                                           \
    {site, PART_UP}, {site, PART_GAIN}, {                                                          \
        site, PART_OFFSET                                                                          \
    }
#define NORM_ARRAYS(site)                                                                          \
    {site, PART_NORM_WEIGHT}, {                                                                    \
        site, PART_NORM_BIAS                                                                       \
    }

static const array_place first_places[] = {
    {SITE_EMBEDDING, PART_LOOK},
    {SITE_EMBEDDING, PART_UP},
};

static const array_place layer_places[] = {
    NORM_ARRAYS(SITE_ATTENTION_NORM),
    {SITE_QUERY, PART_DOWN},
    {SITE_KEY, PART_DOWN},
    {SITE_VALUE, PART_DOWN},
    DELTA_REST(SITE_QUERY),
    DELTA_REST(SITE_KEY),
    DELTA_REST(SITE_VALUE),
    NORM_ARRAYS(SITE_QUERY_NORM),
    NORM_ARRAYS(SITE_KEY_NORM),
    {SITE_OUTPUT, PART_DOWN},
    DELTA_REST(SITE_OUTPUT),
    NORM_ARRAYS(SITE_ATTENTION_POST_NORM),
    NORM_ARRAYS(SITE_FEED_FORWARD_NORM),
    {SITE_GATE, PART_DOWN},
    {SITE_UP, PART_DOWN},
    DELTA_REST(SITE_GATE),
    DELTA_REST(SITE_UP),
    {SITE_DOWN, PART_DOWN},
    DELTA_REST(SITE_DOWN),
    NORM_ARRAYS(SITE_FEED_FORWARD_POST_NORM),
};

static const array_place last_places[] = {
    NORM_ARRAYS(SITE_FINAL_NORM),
    {SITE_HEAD, PART_DOWN},
    DELTA_REST(SITE_HEAD),
};

#define FIRST_ARRAYS (sizeof(first_places) / sizeof(first_places[0]))
#define LAYER_ARRAYS (sizeof(layer_places) / sizeof(layer_places[0]))
#define LAST_ARRAYS  (sizeof(last_places) / sizeof(last_places[0]))

uint32_t array_count(uint32_t layers) {
    return (uint32_t)(FIRST_ARRAYS + layers * LAYER_ARRAYS + LAST_ARRAYS);
}

/* The members of adapter_layer and layer_view that are sites. */
#define LAYER_MATRICES(X)                                                                          \
    X(SITE_QUERY, query)                                                                           \
    X(SITE_KEY, key)                                                                               \
    X(SITE_VALUE, value)                                                                           \
    X(SITE_OUTPUT, output)                                                                         \
    X(SITE_GATE, gate)                                                                             \
    X(SITE_UP, up)                                                                                 \
    X(SITE_DOWN, down)
#define LAYER_NORMS(X)                                                                             \
    X(SITE_ATTENTION_NORM, attention_norm)                                                         \
    X(SITE_QUERY_NORM, query_norm)                                                                 \
    X(SITE_KEY_NORM, key_norm)                                                                     \
    X(SITE_ATTENTION_POST_NORM, attention_post_norm)                                               \
    X(SITE_FEED_FORWARD_NORM, feed_forward_norm)                                                   \
    X(SITE_FEED_FORWARD_POST_NORM, feed_forward_post_norm)
#define MEMBER_OF_SITE(name, member)                                                               \
    if (site == name)                                                                              \
        return &layer->member;

adapter_delta *site_delta(adapter_view *view, adapter_layer *layer, adapter_site site) {
    LAYER_MATRICES(MEMBER_OF_SITE)
    return site == SITE_HEAD ? &view->head : NULL;
}

adapter_norm *site_adapter_norm(adapter_view *view, adapter_layer *layer, adapter_site site) {
    LAYER_NORMS(MEMBER_OF_SITE)
    return site == SITE_FINAL_NORM ? &view->final_norm : NULL;
}

adapter_array array_at(adapter_view *view, adapter_layer *layers, uint32_t layer_count,
                       uint32_t index) {
    uint32_t layered = layer_count * (uint32_t)LAYER_ARRAYS;
    adapter_array array = {.layer = UINT32_MAX};
    array_place place;
    adapter_layer *layer = NULL;
    if (index < FIRST_ARRAYS) {
        place = first_places[index];
    } else if (index - FIRST_ARRAYS < layered) {
        uint32_t at = index - (uint32_t)FIRST_ARRAYS;
        array.layer = at / (uint32_t)LAYER_ARRAYS;
        layer = &layers[array.layer];
        place = layer_places[at % LAYER_ARRAYS];
    } else {
        place = last_places[index - FIRST_ARRAYS - layered];
    }
    array.site = place.site;
    array.part = place.part;
    adapter_delta *delta = site_delta(view, layer, place.site);
    adapter_norm *norm = site_adapter_norm(view, layer, place.site);
    switch (place.part) {
    case PART_DOWN:
        array.matrix = &delta->down;
        break;
    case PART_UP:
        array.matrix = delta != NULL ? &delta->up : &view->embedding.up;
        break;
    case PART_LOOK:
        array.matrix = &view->embedding.look;
        break;
    case PART_GAIN:
        array.floats = &delta->gain;
        break;
    case PART_OFFSET:
        array.floats = &delta->offset;
        break;
    case PART_NORM_WEIGHT:
        array.floats = &norm->weight;
        break;
    case PART_NORM_BIAS:
        array.floats = &norm->bias;
        break;
    }
    return array;
}

/* ---- The base's side ---- */

static const linear_view *layer_linear(const layer_view *layer, adapter_site site) {
    LAYER_MATRICES(MEMBER_OF_SITE)
    return NULL;
}

static const norm_view *layer_norm(const layer_view *layer, adapter_site site) {
    LAYER_NORMS(MEMBER_OF_SITE)
    return NULL;
}

const linear_view *site_linear(const model_view *base, uint32_t layer, adapter_site site) {
    const linear_view *linear = site == SITE_HEAD     ? &base->head
                                : layer == UINT32_MAX ? NULL
                                                      : layer_linear(&base->layer[layer], site);
    return linear == NULL || linear->weight.data == NULL ? NULL : linear;
}

const norm_view *site_norm(const model_view *base, uint32_t layer, adapter_site site,
                           uint32_t *width) {
    const norm_view *norm = site == SITE_FINAL_NORM ? &base->final_norm
                            : layer == UINT32_MAX   ? NULL
                                                    : layer_norm(&base->layer[layer], site);
    bool of_heads = layer != UINT32_MAX && (site == SITE_QUERY_NORM || site == SITE_KEY_NORM);
    *width = of_heads ? base->layer[layer].head_size : base->width;
    return norm == NULL || norm->kind == NORM_NONE ? NULL : norm;
}

uint32_t module_sites(module_role role, adapter_site sites[MODULE_SITES_MAX]) {
    static const struct {
        uint32_t count;
        adapter_site sites[MODULE_SITES_MAX];
    } table[MODULE_ROLES] = {
        [MODULE_ATTENTION_NORM] = {1, {SITE_ATTENTION_NORM}},
        [MODULE_QUERY] = {1, {SITE_QUERY}},
        [MODULE_KEY] = {1, {SITE_KEY}},
        [MODULE_VALUE] = {1, {SITE_VALUE}},
        [MODULE_QKV] = {3, {SITE_QUERY, SITE_KEY, SITE_VALUE}},
        [MODULE_QUERY_NORM] = {1, {SITE_QUERY_NORM}},
        [MODULE_KEY_NORM] = {1, {SITE_KEY_NORM}},
        [MODULE_OUTPUT] = {1, {SITE_OUTPUT}},
        [MODULE_ATTENTION_POST_NORM] = {1, {SITE_ATTENTION_POST_NORM}},
        [MODULE_FEED_FORWARD_NORM] = {1, {SITE_FEED_FORWARD_NORM}},
        [MODULE_GATE] = {1, {SITE_GATE}},
        [MODULE_UP] = {1, {SITE_UP}},
        [MODULE_GATE_UP] = {2, {SITE_GATE, SITE_UP}},
        [MODULE_DOWN] = {1, {SITE_DOWN}},
        [MODULE_FEED_FORWARD_POST_NORM] = {1, {SITE_FEED_FORWARD_POST_NORM}},
        [MODULE_EMBEDDING] = {1, {SITE_EMBEDDING}},
        [MODULE_FINAL_NORM] = {1, {SITE_FINAL_NORM}},
        [MODULE_HEAD] = {1, {SITE_HEAD}},
    };
    memcpy(sites, table[role].sites, sizeof(table[role].sites));
    return table[role].count;
}

uint32_t array_floats(const model_view *base, const adapter_array *array) {
    uint32_t width;
    if (array->part == PART_GAIN || array->part == PART_OFFSET) {
        const linear_view *linear = site_linear(base, array->layer, array->site);
        return linear == NULL ? 0 : linear->weight.rows;
    }
    const norm_view *norm = site_norm(base, array->layer, array->site, &width);
    if (norm == NULL || (array->part == PART_NORM_BIAS && norm->bias == NULL))
        return 0;
    return width;
}

uint64_t view_bytes(const weight_view *view) {
    uint64_t bytes = 0;
    if (view->data != NULL && !weight_bytes(view->type, view->layout, view->rows, view->k, &bytes))
        bytes = 0;
    return bytes;
}

/* ---- What follows from the arrays ---- */

/* Stops at the first number that is none: of an adapter that was trained, at once. */
static bool zero_rows(const weight_view *up) {
    float row[ADAPTER_RANK_MAX];
    for (size_t i = 0; i < up->rows; i++) {
        weight_decode_row(up, i, row);
        for (size_t j = 0; j < up->k; j++)
            if (row[j] != 0.0f)
                return false;
    }
    return true;
}

/* Whether one array adds nothing. What is not looked at (A, tables, matrices trained as a whole)
 * counts as something only where it adds by itself. */
static bool adds_nothing(const adapter_array *array, const adapter_delta *delta,
                         const model_view *base) {
    if (array->matrix != NULL) {
        if (array->matrix->data == NULL || (delta != NULL && array->part == PART_DOWN))
            return true;
        return delta != NULL && array->matrix->k <= ADAPTER_RANK_MAX &&
               (delta->scale == 0.0f || zero_rows(array->matrix));
    }
    for (uint32_t i = 0; *array->floats != NULL && i < array_floats(base, array); i++)
        if ((*array->floats)[i] != (array->part == PART_GAIN ? 1.0f : 0.0f))
            return false;
    return true;
}

void adapter_sum_up(avo_adapter *adapter, uint32_t layer_count) {
    adapter_view *view = &adapter->view;
    adapter_layer *layers = adapter->storage->layers;
    view->layer = layers;
    view->gains = view->norms = false;
    view->rank = adapter_rank(view, layer_count);
    adapter->bytes = 0;
    adapter->idle = true;
    const uint8_t *last = NULL; /* shared matrices stand side by side */
    for (uint32_t i = 0; i < array_count(layer_count); i++) {
        adapter_array array = array_at(view, layers, layer_count, i);
        adapter_delta *delta =
            site_delta(view, array.layer == UINT32_MAX ? NULL : &layers[array.layer], array.site);
        adapter->idle = adapter->idle && adds_nothing(&array, delta, adapter->storage->base.view);
        if (array.matrix != NULL) {
            if (array.part != PART_LOOK && array.matrix->data != last)
                adapter->bytes += view_bytes(array.matrix);
            last = array.matrix->data != NULL ? array.matrix->data : last;
        } else if (*array.floats != NULL) {
            adapter->bytes += sizeof(float) * array_floats(adapter->storage->base.view, &array);
            view->gains = view->gains || array.part == PART_GAIN;
            view->norms =
                view->norms || array.part == PART_NORM_WEIGHT || array.part == PART_NORM_BIAS;
        }
    }
}

/* ---- The digest ---- */

typedef struct array_head {
    uint32_t index, type, rows, k;
    float scale;
    uint32_t shared; /* the array's data are those of the one before */
} array_head;

void adapter_digest(const adapter_view *view, uint32_t layer_count, const model_view *base,
                    uint64_t digest[2]) {
    adapter_view own = *view;
    adapter_layer *layers = (adapter_layer *)(uintptr_t)view->layer; /* only read */
    hash_stream stream;
    hash_wide_begin(&stream);
    weight_view last = {0};
    for (uint32_t i = 0; i < array_count(layer_count); i++) {
        adapter_array array = array_at(&own, layers, layer_count, i);
        array_head head = {.index = i};
        const void *data;
        size_t bytes;
        if (array.matrix != NULL) {
            adapter_delta *delta = site_delta(
                &own, array.layer == UINT32_MAX ? NULL : &layers[array.layer], array.site);
            head.type = (uint32_t)array.matrix->type;
            head.rows = array.matrix->rows;
            head.k = array.matrix->k;
            head.scale = delta != NULL ? delta->scale : own.embedding.scale;
            data = array.matrix->data;
            bytes = (size_t)view_bytes(array.matrix);
            head.shared = data != NULL && weight_same(array.matrix, &last);
            last = data != NULL ? *array.matrix : last;
        } else {
            head.rows = array_floats(base, &array);
            data = *array.floats;
            bytes = sizeof(float) * head.rows;
        }
        if (data == NULL)
            continue;
        hash_stream_add(&stream, &head, sizeof(head));
        hash_stream_add(&stream, data, head.shared ? 0 : bytes);
    }
    hash_wide_sum(&stream, digest);
}
