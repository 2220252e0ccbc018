/* Which layers are whose, and what each part takes. */
#include "device/split/split_int.h"

#include "base/checked.h"
#include "device/kv_tile.h"
#include "device/matrices.h"

#include <string.h>

bool split_divides(const split_device *split, const model_view *model) {
    return split->layer != NULL && model->layer == split->layer && split->cut > 0;
}

void split_model(const model_view *model, uint32_t cut, split_models *out) {
    model_view *first = &out->part[FIRST], *second = &out->part[SECOND];
    uint32_t own = model->layers < cut ? model->layers : cut; /* fewer: an early exit */
    *first = *second = *model;
    first->layers = own;
    first->head_project = first->head = (linear_view){0};
    first->final_norm = (norm_view){.kind = NORM_NONE};
    second->layers = model->layers - own;
    second->layer = model->layer + own;
    second->embedding = (weight_view){.k = model->width}; /* hidden states come as input */
    second->embedding_scale = 1.0f;
    second->position_embedding = (weight_view){0};
    second->embedding_norm = (norm_view){.kind = NORM_NONE};
    second->embedding_project = (linear_view){0};
}

bool split_shape(const stream_shape *shape, uint32_t cut, split_shapes *out) {
    split_model(shape->model, cut, &out->models);
    uint32_t own = out->models.part[FIRST].layers;
    stream_shape *first = &out->part[FIRST], *second = &out->part[SECOND];
    *first = *second = *shape;
    first->model = &out->models.part[FIRST];
    first->logits_max = first->head_rows = 1; /* it has no head */
    first->taps = second->taps = 0;
    second->model = &out->models.part[SECOND];
    first->lender = second->lender = NULL;
    first->beside = second->beside = NULL;
    for (uint32_t i = 0; i < shape->taps; i++)
        if (shape->tap[i] < own)
            first->tap[first->taps++] = shape->tap[i];
        else
            second->tap[second->taps++] = shape->tap[i] - own;
    if (first->taps == DEVICE_TAPS_MAX)
        return false;
    first->tap[first->taps++] = own;
    return true;
}

/* ---- Sizes ---- */

static bool pages_bytes(const device *device, const model_view *model, kv_type type, uint32_t pages,
                        uint64_t *bytes) {
    size_t page = 0, layer, total;
    for (uint32_t i = 0; i < model->layers; i++)
        if (!size_multiply(kv_head_bytes(type, model->layer[i].head_size), model->layer[i].kv_heads,
                           &layer) ||
            !size_add(page, layer, &page))
            return false;
    *bytes = 0;
    return page == 0 ||
           (size_multiply(page, pages, &total) && device_memory_round(device, total, bytes));
}

/* Scratch of one part's streams. */
static bool streams_bytes(const device *device, const device_division *division, uint32_t cut,
                          uint32_t number, uint64_t *bytes) {
    *bytes = 0;
    for (uint32_t i = 0; i < division->streams; i++) {
        split_shapes shapes;
        uint64_t own;
        if (!split_shape(&division->shape[i], cut, &shapes))
            return false;
        const stream_shape *shape = cut == 0 ? &division->shape[i] : &shapes.part[number];
        if (!device_stream_bytes(device, shape, &own) || !u64_add(*bytes, own, bytes) ||
            (number == FIRST && !u64_add(*bytes, split_stream_bytes(shape), bytes)))
            return false;
    }
    return true;
}

/* The source of one part's weights; its model is in `models`. */
static weights_source part_source(const weights_source *source, uint32_t cut, uint32_t number,
                                  split_models *models) {
    weights_source part = *source;
    if (cut == 0)
        return part;
    split_model(source->model, cut, models);
    const model_view *model = &models->part[number];
    part.model = model;
    part.keeper = NULL; /* has whole models */
    part.layers_stored = 0;
    part.part_layers = number == FIRST ? cut : 0;
    part.file_bytes = matrices_bytes(model);
    return part;
}

static avo_status measure_part(const split_device *split, const device_division *division,
                               uint32_t cut, uint32_t number, device_part *part, avo_error *error) {
    const device *device = split->inner[number];
    split_models models;
    model_view stored = *division->source->model;
    weights_source whole = *division->source;
    if (whole.layers_stored > 0)
        stored.layers = whole.layers_stored;
    whole.model = &stored;
    weights_source source = part_source(&whole, cut, number, &models);
    *part = (device_part){.name = device_describe(device)->name};
    if (number == FIRST && cut == 0)
        return AVO_OK;
    AVO_TRY(device_weights_plan(device, &source, &part->weights, error));
    split_models computed;
    split_model(division->source->model, cut, &computed);
    const model_view *model = cut == 0 ? division->source->model : &computed.part[number];
    part->first_layer = division->source->model->layers - model->layers;
    part->first_layer = number == FIRST ? 0 : part->first_layer;
    part->layers = model->layers;
    if (pages_bytes(device, model, division->kv_type, division->kv_pages, &part->kv_bytes) &&
        streams_bytes(device, division, cut, number, &part->scratch_bytes))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_LIMIT, "%s: %u layers on device %s are too large",
                       division->source->path, part->layers, part->name);
}

static bool fits(const device_part *part, uint64_t bytes_max) {
    uint64_t bytes;
    return u64_add(part->weights.missing_bytes, part->kv_bytes, &bytes) &&
           u64_add(bytes, part->scratch_bytes, &bytes) && bytes <= bytes_max;
}

/* The first layer of the second device: as low as its memory allows. */
static avo_status choose(const split_device *split, const device_division *division,
                         uint32_t stored, uint32_t *cut, avo_error *error) {
    device_part part;
    for (*cut = 0; *cut < stored; ++*cut) {
        AVO_TRY(measure_part(split, division, *cut, SECOND, &part, error));
        if (fits(&part, division->bytes_max))
            break;
    }
    return AVO_OK;
}

avo_status split_divide(device *device, const device_division *division,
                        device_part part[DEVICE_PARTS], avo_error *error) {
    split_device *split = split_of(device);
    const weights_source *source = division->source;
    uint32_t stored = source->layers_stored > 0 ? source->layers_stored : source->model->layers;
    uint32_t asked = device->info.layers_asked, cut;
    if (asked == LAYERS_FITTING)
        AVO_TRY(choose(split, division, stored, &cut, error));
    else if (asked <= stored)
        cut = stored - asked;
    else
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s: %u layers are asked for on device %s (--gpu-layers), the model has "
                           "%u; must be at most %u, or auto",
                           source->path, asked, device_describe(split->inner[SECOND])->name, stored,
                           stored);
    for (uint32_t i = 0; i < DEVICE_PARTS; i++) {
        AVO_TRY(measure_part(split, division, cut, i, &part[i], error));
        split->step_bytes[i] = part[i].weights.mapped_bytes + part[i].weights.copied_bytes;
    }
    split->layer = source->model->layer;
    split->layers = source->model->layers;
    split->cut = cut;
    return AVO_OK;
}
