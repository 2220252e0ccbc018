/* Random adapters: uniform numbers, A of norm 1 per row, B as large as the strength asks for. */
#include "adapters/random.h"

#include "adapters/adapters.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/region.h"
#include "device/runs.h"
#include "quant/panels.h"

#include <math.h>

#define SCALE 2.0f /* α = 2 r, as most have it */

typedef struct random_maker {
    const adapter_base *base;
    const adapter_random_options *options;
    arena *arena;
    avo_adapter *adapter;
    uint8_t *panels;     /* all of them, one behind the other; NULL: they are only counted */
    size_t panels_bytes; /* so far */
    uint64_t stream;     /* of the next numbers */
    float *panel;        /* [16][longest k] */
    avo_error *error;
} random_maker;

static avo_status no_memory(const random_maker *maker, size_t bytes) {
    return status_no_memory(maker->error, "a random adapter", bytes);
}

/* Uniform in ±√3 · deviation. */
static void fill(random_maker *maker, uint64_t counter, float deviation, size_t count, float *out) {
    for (size_t i = 0; i < count; i += 4) {
        random_block block = random_at(maker->options->seed, maker->stream, counter + i / 4);
        for (size_t j = 0; j < 4 && i + j < count; j++)
            out[i + j] = ((float)(block.words[j] >> 8) * 0x1p-23f - 1.0f) * 1.7320508f * deviation;
    }
}

static avo_status make_numbers(random_maker *maker, float mean, float deviation, size_t count,
                               const float **out) {
    if (maker->panels == NULL)
        return AVO_OK;
    float *numbers = arena_take_array(maker->arena, count, sizeof(float));
    if (numbers == NULL)
        return no_memory(maker, count * sizeof(float));
    maker->stream++;
    fill(maker, 0, deviation, count, numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] += mean;
    maker->adapter->bytes += count * sizeof(float);
    *out = numbers;
    return AVO_OK;
}

static avo_status make_panels(random_maker *maker, quant_type type, float deviation, uint32_t rows,
                              uint32_t k, weight_view *out) {
    uint64_t bytes = 0;
    uint64_t panel_bytes = 0;
    if (!weight_bytes(type, QUANT_LAYOUT_PANELS, rows, k, &bytes) ||
        !weight_panel_bytes(type, k, &panel_bytes))
        return status_fail(maker->error, AVO_ERROR_ARGUMENT, "random adapters cannot have type %s",
                           quant_name(type));
    uint8_t *data = maker->panels + maker->panels_bytes;
    maker->panels_bytes += (size_t)bytes; /* whole lines */
    if (maker->panels == NULL)
        return AVO_OK;
    *out = (weight_view){
        .type = type, .layout = QUANT_LAYOUT_PANELS, .rows = rows, .k = k, .data = data};
    maker->stream++;
    for (size_t panel = 0; panel < weight_panels(out); panel++) {
        size_t first = panel * QUANT_PANEL_ROWS;
        size_t count = rows - first < QUANT_PANEL_ROWS ? rows - first : QUANT_PANEL_ROWS;
        fill(maker, first * k, deviation, count * k, maker->panel);
        weight_encode_panel(type, maker->panel, count, k, data + panel * (size_t)panel_bytes);
    }
    maker->adapter->bytes += bytes;
    return AVO_OK;
}

static avo_status make_rows(random_maker *maker, float deviation, uint32_t rows, uint32_t k,
                            weight_view *out) {
    const float *numbers;
    if (maker->panels == NULL)
        return AVO_OK;
    AVO_TRY(make_numbers(maker, 0.0f, deviation, (size_t)rows * k, &numbers));
    maker->adapter->bytes -= (size_t)rows * k * sizeof(float); /* a step reads a row of it */
    *out = (weight_view){.type = QUANT_F32,
                         .layout = QUANT_LAYOUT_ROWS,
                         .rows = rows,
                         .k = k,
                         .data = (const uint8_t *)numbers};
    return AVO_OK;
}

/* Of the base's numbers, from its first rows. */
static float deviation_of(random_maker *maker, const weight_view *weight) {
    if (maker->panels == NULL)
        return 1.0f;
    weight_decode_panel(weight, 0, maker->panel);
    size_t rows = weight->rows < QUANT_PANEL_ROWS ? weight->rows : QUANT_PANEL_ROWS;
    double sum = 0.0;
    for (size_t i = 0; i < (size_t)weight->k * QUANT_PANEL_ROWS; i++)
        sum += (double)maker->panel[i] * (double)maker->panel[i];
    return (float)sqrt(sum / ((double)rows * weight->k));
}

/* `shared`: another's A that reads the same; NULL: one of its own. */
static avo_status make_delta(random_maker *maker, const linear_view *linear,
                             const weight_view *shared, adapter_delta *out) {
    const adapter_random_options *o = maker->options;
    uint32_t rows = linear->weight.rows;
    uint32_t k = linear->weight.k;
    float wanted = o->strength * deviation_of(maker, &linear->weight);
    out->scale = SCALE;
    if (o->parts & ADAPTER_RANDOM_WHOLE) {
        AVO_TRY(make_panels(maker, o->type, wanted / SCALE, rows, k, &out->up));
    } else {
        if (shared != NULL)
            out->down = *shared;
        else
            AVO_TRY(make_panels(maker, adapter_half_type(o->type, k), 1.0f / sqrtf((float)k),
                                o->rank, k, &out->down));
        float product = sqrtf((float)o->rank / (float)k) * SCALE; /* with B of deviation 1 */
        AVO_TRY(make_panels(maker, adapter_half_type(o->type, o->rank), wanted / product, rows,
                            o->rank, &out->up));
    }
    if (o->parts & ADAPTER_RANDOM_GAINS)
        AVO_TRY(make_numbers(maker, 1.0f, o->strength, rows, &out->gain));
    if (o->parts & ADAPTER_RANDOM_OFFSETS)
        AVO_TRY(make_numbers(maker, 0.0f, o->strength, rows, &out->offset));
    return AVO_OK;
}

static avo_status make_norm(random_maker *maker, const norm_view *norm, uint32_t width,
                            adapter_norm *out) {
    if (norm->kind == NORM_NONE)
        return AVO_OK;
    AVO_TRY(make_numbers(maker, 0.0f, maker->options->strength, width, &out->weight));
    return norm->bias == NULL
               ? AVO_OK
               : make_numbers(maker, 0.0f, maker->options->strength, width, &out->bias);
}

static avo_status make_norms(random_maker *maker, const layer_view *layer, adapter_layer *out) {
    uint32_t width = maker->base->view->width;
    AVO_TRY(make_norm(maker, &layer->attention_norm, width, &out->attention_norm));
    AVO_TRY(make_norm(maker, &layer->feed_forward_norm, width, &out->feed_forward_norm));
    AVO_TRY(make_norm(maker, &layer->attention_post_norm, width, &out->attention_post_norm));
    AVO_TRY(make_norm(maker, &layer->feed_forward_post_norm, width, &out->feed_forward_post_norm));
    AVO_TRY(make_norm(maker, &layer->query_norm, layer->head_size, &out->query_norm));
    return make_norm(maker, &layer->key_norm, layer->head_size, &out->key_norm);
}

/* Who has the same input as `matrix` and stands before it; itself: nobody. */
static adapter_matrix sharer(adapter_matrix matrix) {
    switch (matrix) {
    case ADAPTER_KEY:
    case ADAPTER_VALUE:
        return ADAPTER_QUERY;
    case ADAPTER_UP:
        return ADAPTER_GATE;
    default:
        return matrix;
    }
}

static avo_status make_layer(random_maker *maker, uint32_t number, adapter_layer *layers) {
    const model_view *model = maker->base->view;
    adapter_layer *own = &layers[number];
    adapter_delta *const deltas[] = {&own->query, &own->key, &own->value, &own->output,
                                     &own->gate,  &own->up,  &own->down};
    for (int matrix = 0; matrix < ADAPTER_HEAD; matrix++) {
        const linear_view *linear = run_matrix(model, number, (adapter_matrix)matrix);
        if ((maker->options->matrices >> matrix & 1) == 0 || linear->weight.data == NULL)
            continue;
        const weight_view *before = &deltas[sharer((adapter_matrix)matrix)]->down;
        bool shared = (maker->options->parts & ADAPTER_RANDOM_SHARED) && before->data != NULL &&
                      before != &deltas[matrix]->down;
        AVO_TRY(make_delta(maker, linear, shared ? before : NULL, deltas[matrix]));
    }
    if (maker->options->parts & ADAPTER_RANDOM_NORMS)
        AVO_TRY(make_norms(maker, &model->layer[number], own));
    return AVO_OK;
}

static avo_status make_embedding(random_maker *maker, adapter_embedding *out) {
    const model_view *model = maker->base->view;
    const weight_view *base = &model->embedding;
    uint32_t parts = maker->options->parts;
    float wanted = maker->options->strength * deviation_of(maker, base);
    uint32_t rank = maker->options->rank;
    out->scale = SCALE;
    if (parts & ADAPTER_RANDOM_EMBEDDING_WHOLE)
        return make_rows(maker, wanted / SCALE, base->rows, base->k, &out->look);
    if ((parts & ADAPTER_RANDOM_EMBEDDING) == 0)
        return AVO_OK;
    AVO_TRY(make_rows(maker, 1.0f / sqrtf((float)rank), base->rows, rank, &out->look));
    return make_panels(maker, maker->options->type, wanted / SCALE, base->k, rank, &out->up);
}

static avo_status make_view(random_maker *maker) {
    const model_view *model = maker->base->view;
    adapter_view *view = &maker->adapter->view;
    uint32_t longest = model->k_max > model->width ? model->k_max : model->width;
    longest = longest > ADAPTER_RANK_MAX ? longest : ADAPTER_RANK_MAX;
    maker->panel =
        arena_take_array(maker->arena, (size_t)longest * QUANT_PANEL_ROWS, sizeof(float));
    adapter_layer *layers = arena_take_array(maker->arena, model->layers, sizeof(*layers));
    if (maker->panel == NULL || layers == NULL)
        return no_memory(maker, model->layers * sizeof(*layers));
    view->layer = layers;
    for (uint32_t i = 0; i < model->layers; i++)
        AVO_TRY(make_layer(maker, i, layers));
    AVO_TRY(make_embedding(maker, &view->embedding));
    if (maker->options->matrices >> ADAPTER_HEAD & 1)
        AVO_TRY(make_delta(maker, &model->head, NULL, &view->head));
    if (maker->options->parts & ADAPTER_RANDOM_NORMS)
        AVO_TRY(make_norm(maker, &model->final_norm, model->width, &view->final_norm));
    view->gains = (maker->options->parts & ADAPTER_RANDOM_GAINS) != 0;
    view->norms = (maker->options->parts & ADAPTER_RANDOM_NORMS) != 0;
    view->rank = adapter_rank(view, model->layers);
    return AVO_OK;
}

/* ---- The adapter ---- */

/* Whole, behind the public part. */
typedef struct random_adapter {
    avo_adapter adapter;
    arena arena;
    region region;
} random_adapter;

static void close_random(avo_adapter *adapter) {
    random_adapter *own = (random_adapter *)(void *)adapter;
    arena_free(&own->arena);
    region_close(&own->region);
    allocator_give(adapter->allocator, own, sizeof(*own));
}

avo_status adapter_random(const adapter_base *base, const adapter_random_options *options,
                          const avo_allocator *allocator, avo_adapter **out, avo_error *error) {
    *out = NULL;
    if (options->rank == 0 || options->rank > ADAPTER_RANK_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "rank is %u, must be 1 to %d", options->rank,
                           ADAPTER_RANK_MAX);
    if (options->type != QUANT_Q8C && options->type != QUANT_F16 && options->type != QUANT_F32)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "random adapters must have type q8, f16 or f32, not %s",
                           quant_name(options->type));
    random_adapter *own = allocator_take_array(allocator, 1, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "a random adapter", sizeof(*own));
    arena_init(&own->arena, allocator, SIZE_MAX);
    own->adapter = (avo_adapter){.allocator = allocator,
                                 .references = 1,
                                 .close = close_random,
                                 .config = base->config,
                                 .path = "(random)",
                                 .type = options->type == QUANT_Q8C   ? "q8"
                                         : options->type == QUANT_F16 ? "f16"
                                                                      : "f32",
                                 .method = "lora"};
    uint64_t numbers[] = {options->seed,           options->rank,
                          options->matrices,       options->parts,
                          (uint64_t)options->type, (uint64_t)(options->strength * 1e6f)};
    own->adapter.view.digest[0] = hash_bytes(numbers, sizeof(numbers));
    own->adapter.view.digest[1] = options->seed;
    random_maker maker = {.base = base,
                          .options = options,
                          .arena = &own->arena,
                          .adapter = &own->adapter,
                          .error = error};
    avo_status status = make_view(&maker);
    const region_options huge = {.huge = true};
    AVO_THEN(status, region_open(allocator, maker.panels_bytes + PANEL_LINE_BYTES, &huge,
                                 "a random adapter", &own->region, error));
    if (status == AVO_OK) {
        maker.panels = own->region.data;
        maker.panels_bytes = 0;
        maker.stream = 0;
        own->adapter.bytes = 0;
        status = make_view(&maker);
    }
    own->adapter.memory_bytes = own->arena.used_bytes + own->region.bytes;
    if (status != AVO_OK) {
        close_random(&own->adapter);
        return status;
    }
    *out = &own->adapter;
    return AVO_OK;
}
