/* The split device: opening, and its memory, weights and adapters. */
#include "device/split/split_int.h"

#include "base/checked.h"
#include "device/matrices.h"
#include "device/pinned.h"
#include "device/upload.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PINNED_HEAD 64 /* bytes in front of pinned memory: what is to be given back */

/* ---- Memory ---- */

static bool memory_round(const device *device, size_t bytes, uint64_t *rounded) {
    const split_device *split = (const split_device *)(const void *)device;
    return device_memory_round(split->inner[SECOND], bytes, rounded);
}

static void block_close(split_device *split, split_block *block) {
    const avo_allocator *allocator = split->base.allocator;
    for (uint32_t i = 0; i < DEVICE_PARTS; i++)
        device_memory_give(split->inner[i], &block->memory[i]);
    allocator_give(allocator, block->offsets, block->offset_count * sizeof(*block->offsets));
    allocator_give(allocator, block, sizeof(*block));
}

static avo_status block_open(split_device *split, split_block **out, avo_error *error) {
    *out = allocator_take_array(split->base.allocator, 1, sizeof(**out));
    return *out != NULL ? AVO_OK : status_no_memory(error, "a block of memory", sizeof(**out));
}

static device_memory memory_of(split_block *block, size_t bytes) {
    return (device_memory){.address = (uint8_t *)block, .bytes = bytes, .owner = block};
}

static avo_status memory_take(device *device, size_t bytes, const char *what, device_memory *out,
                              avo_error *error) {
    split_device *split = split_of(device);
    split_block *block;
    AVO_TRY(block_open(split, &block, error));
    avo_status status =
        device_memory_take(split->inner[SECOND], bytes, what, &block->memory[SECOND], error);
    if (status == AVO_OK)
        *out = memory_of(block, bytes);
    else
        block_close(split, block);
    return status;
}

static void memory_give(device *device, device_memory *memory) {
    block_close(split_of(device), memory->owner);
}

/* Pages of a model that has layers on both devices. */
static avo_status take_parts(split_device *split, const model_view *model, uint32_t pages,
                             const device_kv *kv, split_block *block, avo_error *error) {
    split_models models;
    split_model(model, split->cut, &models);
    uint32_t first = models.part[FIRST].layers, second = models.part[SECOND].layers;
    size_t cut = second > 0 ? kv->layer_offset[first] : kv->page_bytes;
    block->page_bytes[FIRST] = cut;
    block->page_bytes[SECOND] = kv->page_bytes - cut;
    block->offset_count = second;
    block->offsets = allocator_take_array(split->base.allocator, second, sizeof(size_t));
    if (second > 0 && block->offsets == NULL)
        return status_no_memory(error, "the KV pool's head", second * sizeof(size_t));
    for (uint32_t i = 0; i < second; i++)
        block->offsets[i] = kv->layer_offset[first + i] - cut;
    const size_t *offsets[] = {kv->layer_offset, block->offsets};
    for (uint32_t i = 0; i < DEVICE_PARTS; i++) {
        block->kv[i] = (device_kv){
            .type = kv->type, .page_bytes = block->page_bytes[i], .layer_offset = offsets[i]};
        if (block->page_bytes[i] > 0)
            AVO_TRY(
                device_pages_take(split->inner[i], &models.part[i], pages, &block->kv[i], error));
        block->memory[i] = block->kv[i].memory;
    }
    return AVO_OK;
}

static avo_status pages_take(device *device, const model_view *model, uint32_t pages, device_kv *kv,
                             avo_error *error) {
    split_device *split = split_of(device);
    if (!split_divides(split, model))
        return device_memory_take(device, pages * kv->page_bytes, "the KV pool", &kv->memory,
                                  error);
    split_block *block;
    AVO_TRY(block_open(split, &block, error));
    avo_status status = take_parts(split, model, pages, kv, block, error);
    if (status == AVO_OK)
        kv->memory = memory_of(block, pages * kv->page_bytes);
    else
        block_close(split, block);
    return status;
}

/* ---- Ranges of a block ---- */

typedef struct range {
    const split_block *block;
    size_t offset, bytes;
} range;

/* What of the rest of a range is on one device. */
typedef struct range_part {
    uint32_t number;
    size_t offset, bytes; /* of that device's block */
} range_part;

static range_part next_part(const range *range) {
    const size_t *bytes = range->block->page_bytes;
    size_t whole = bytes[FIRST] + bytes[SECOND];
    if (whole == 0)
        return (range_part){SECOND, range->offset, range->bytes};
    size_t page = range->offset / whole, within = range->offset % whole;
    uint32_t number = within < bytes[FIRST] ? FIRST : SECOND;
    size_t begin = number == FIRST ? 0 : bytes[FIRST];
    return (range_part){number, page * bytes[number] + within - begin,
                        size_min(range->bytes, begin + bytes[number] - within)};
}

static void skip(range *range, size_t bytes) {
    range->offset += bytes;
    range->bytes -= bytes;
}

static avo_status copy_in(device *device, const device_memory *to, size_t offset, const void *from,
                          size_t bytes, avo_error *error) {
    range rest = {to->owner, offset, bytes};
    const uint8_t *at = from;
    while (rest.bytes > 0) {
        range_part part = next_part(&rest);
        AVO_TRY(device_copy_in(split_of(device)->inner[part.number],
                               &rest.block->memory[part.number], part.offset, at, part.bytes,
                               error));
        at += part.bytes;
        skip(&rest, part.bytes);
    }
    return AVO_OK;
}

static avo_status copy_out(device *device, void *to, const device_memory *from, size_t offset,
                           size_t bytes, avo_error *error) {
    range rest = {from->owner, offset, bytes};
    uint8_t *at = to;
    while (rest.bytes > 0) {
        range_part part = next_part(&rest);
        AVO_TRY(device_copy_out(split_of(device)->inner[part.number], at,
                                &rest.block->memory[part.number], part.offset, part.bytes, error));
        at += part.bytes;
        skip(&rest, part.bytes);
    }
    return AVO_OK;
}

static avo_status copy_across(device *device, const device_memory *to, size_t to_offset,
                              const device_memory *from, size_t from_offset, size_t bytes,
                              avo_error *error) {
    range target = {to->owner, to_offset, bytes}, source = {from->owner, from_offset, bytes};
    while (target.bytes > 0) {
        range_part part = next_part(&target), own = next_part(&source);
        assert(part.number == own.number && part.bytes == own.bytes); /* pages to pages */
        AVO_TRY(device_copy_across(
            split_of(device)->inner[part.number], &target.block->memory[part.number], part.offset,
            &source.block->memory[own.number], own.offset, part.bytes, error));
        skip(&target, part.bytes);
        skip(&source, part.bytes);
    }
    return AVO_OK;
}

/* Whole pages at once. */
static avo_status zero(device *device, const device_memory *memory, size_t offset, size_t bytes,
                       avo_error *error) {
    const split_block *block = memory->owner;
    const size_t *each = block->page_bytes;
    size_t whole = each[FIRST] + each[SECOND];
    bool pages = whole > 0 && offset % whole == 0 && bytes % whole == 0;
    for (uint32_t i = 0; pages && i < DEVICE_PARTS; i++)
        if (each[i] > 0)
            AVO_TRY(device_zero(split_of(device)->inner[i], &block->memory[i],
                                offset / whole * each[i], bytes / whole * each[i], error));
    range rest = {block, offset, pages ? 0 : bytes};
    while (rest.bytes > 0) {
        range_part part = next_part(&rest);
        AVO_TRY(device_zero(split_of(device)->inner[part.number], &block->memory[part.number],
                            part.offset, part.bytes, error));
        skip(&rest, part.bytes);
    }
    return AVO_OK;
}

static avo_status pinned_take(device *device, size_t bytes, const char *what, uint8_t **data,
                              avo_error *error) {
    device_pinned pinned;
    avo_status status = device_pinned_take(split_of(device)->inner[SECOND], bytes + PINNED_HEAD,
                                           what, &pinned, error);
    if (status != AVO_OK)
        return status;
    memcpy(pinned.data, &pinned, sizeof(pinned));
    *data = pinned.data + PINNED_HEAD;
    return AVO_OK;
}

static void pinned_give(device *device, uint8_t *data) {
    device_pinned pinned;
    memcpy(&pinned, data - PINNED_HEAD, sizeof(pinned));
    device_pinned_give(split_of(device)->inner[SECOND], &pinned);
}

/* ---- Weights ---- */

/* Of a model that was not divided. */
static avo_status weights_plan_of(const device *device, const weights_source *source,
                                  weights_plan *plan, avo_error *error) {
    const split_device *split = (const split_device *)(const void *)device;
    return device_weights_plan(split->inner[SECOND], source, plan, error);
}

/* The second part first: its upload lets go of the file's pages, which the first may read in
 * place. */
static avo_status weights_open(device_stream *stream, const weights_source *source,
                               device_weights *base, avo_error *error) {
    const split_device *split = split_of(stream->device);
    split_weights *weights = (split_weights *)(void *)base;
    if (!split_divides(split, source->model))
        return device_weights_open(split_stream_part(stream, SECOND), source,
                                   &weights->inner[SECOND], error);
    split_models stored, computed;
    model_view own = *source->model;
    own.layers = split->layers;
    split_model(source->model, split->cut, &stored);
    split_model(&own, split->cut, &computed);
    for (uint32_t i = DEVICE_PARTS; i-- > 0;) {
        weights_source part = *source;
        part.model = &computed.part[i];
        part.layers_stored = stored.part[i].layers;
        part.part_layers = i == FIRST ? split->cut : 0;
        part.file_bytes = matrices_bytes(&stored.part[i]);
        part.keeper = NULL; /* has whole models */
        part.divisible = false;
        AVO_TRY(
            device_weights_open(split_stream_part(stream, i), &part, &weights->inner[i], error));
    }
    return AVO_OK;
}

static void weights_close(device_weights *base) {
    split_weights *weights = (split_weights *)(void *)base;
    for (uint32_t i = 0; i < DEVICE_PARTS; i++)
        device_weights_close(weights->inner[i]);
}

/* ---- Adapters ---- */

static void adapter_close(device *device, adapter_copy *copy) {
    split_device *split = split_of(device);
    split_adapter *adapter = copy->memory.owner; /* in the copy's arena */
    for (uint32_t i = 0; adapter != NULL && i < DEVICE_PARTS; i++) {
        device_adapter_close(split->inner[i], &adapter->inner[i]);
        device_memory_give(split->inner[i], &adapter->memory[i]);
    }
}

typedef struct host_fill {
    uint8_t *at; /* NULL: sizes are counted */
    size_t bytes;
} host_fill;

static avo_status fill(void *context, const void *data, size_t bytes, const uint8_t **address,
                       avo_error *error) {
    host_fill *f = context;
    *address = f->at == NULL ? data : f->at + f->bytes;
    if (f->at != NULL)
        memcpy(f->at + f->bytes, data, bytes);
    if (size_add(f->bytes, bytes, &f->bytes) && size_round_up(f->bytes, 64, &f->bytes))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_LIMIT, "an adapter of %zu bytes is too large", bytes);
}

/* A device that uses adapters where they are gets a copy: ours must not depend on the caller's. */
static avo_status copy_adapter(device *inner, const model_view *model, arena *arena,
                               adapter_view *view, device_memory *memory, avo_error *error) {
    host_fill count = {0};
    adapter_view copy;
    AVO_TRY(upload_adapter(view, model, fill, &count, arena, &copy, error));
    AVO_TRY(device_memory_take(inner, size_max(count.bytes, 64), "an adapter", memory, error));
    host_fill f = {.at = memory->address};
    AVO_TRY(upload_adapter(view, model, fill, &f, arena, &copy, error));
    *view = copy;
    return AVO_OK;
}

static avo_status adapter_open(device *device, const adapter_view *view, const model_view *model,
                               adapter_copy *copy, avo_error *error) {
    split_device *split = split_of(device);
    split_adapter *adapter = arena_take_array(&copy->arena, 1, sizeof(*adapter));
    if (adapter == NULL)
        return status_no_memory(error, "an adapter", sizeof(*adapter));
    *adapter = (split_adapter){.view = {*view, *view}};
    copy->view = *view;
    copy->memory.owner = adapter;
    split_models models = {{*model, *model}};
    bool divides = split_divides(split, model);
    if (divides) {
        split_model(model, split->cut, &models);
        adapter->view[FIRST].head = (adapter_delta){0};
        adapter->view[FIRST].final_norm = (adapter_norm){0};
        adapter->view[SECOND].layer += models.part[FIRST].layers;
        adapter->view[SECOND].embedding = (adapter_embedding){0};
    }
    for (uint32_t i = divides ? FIRST : SECOND; i < DEVICE_PARTS; i++) {
        struct device *inner = split->inner[i];
        if (device_adapters_in_place(inner))
            AVO_TRY(copy_adapter(inner, &models.part[i], &copy->arena, &adapter->view[i],
                                 &adapter->memory[i], error));
        AVO_TRY(device_adapter_open(inner, &adapter->view[i], &models.part[i], &adapter->inner[i],
                                    error));
    }
    copy->memory.bytes = (size_t)adapter->inner[SECOND].bytes;
    return AVO_OK;
}

/* ---- Opening ---- */

static void close_split(device *device) {
    split_device *split = split_of(device);
    for (uint32_t i = 0; i < DEVICE_PARTS; i++)
        device_close(split->inner[i]);
    allocator_give(device->allocator, split, sizeof(*split));
}

static const device_operations operations = {
    .close = close_split,
    .memory_round = memory_round,
    .memory_take = memory_take,
    .memory_give = memory_give,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_across = copy_across,
    .zero = zero,
    .pinned_take = pinned_take,
    .pinned_give = pinned_give,
    .pages_take = pages_take,
    .divide = split_divide,
    .weights_plan = weights_plan_of,
    .weights_open = weights_open,
    .weights_size = sizeof(split_weights),
    .weights_close = weights_close,
    .adapter_open = adapter_open,
    .adapter_close = adapter_close,
    .stream = &split_stream_operations,
};

#define NAME_MAX_BYTES 128

typedef struct split_wish {
    uint32_t layers;
    char name[DEVICE_PARTS][NAME_MAX_BYTES];
} split_wish;

static bool take_name(const char *text, size_t length, char name[NAME_MAX_BYTES]) {
    if (length == 0 || length >= NAME_MAX_BYTES || strncmp(text, device_split.name, 5) == 0)
        return false;
    memcpy(name, text, length);
    name[length] = '\0';
    return true;
}

static bool read_parts(const char *text, split_wish *wish) {
    size_t length = strcspn(text, ":");
    char *end = NULL;
    unsigned long number = strtoul(text, &end, 10);
    if (length == 4 && strncmp(text, "auto", 4) == 0)
        wish->layers = LAYERS_FITTING;
    else if (length > 0 && *text >= '0' && *text <= '9' && end == text + length &&
             number < LAYERS_FITTING)
        wish->layers = (uint32_t)number;
    else
        return false;
    const char *first = text + length + (text[length] == ':');
    size_t plus = strcspn(first, "+");
    return first[plus] == '+' && take_name(first, plus, wish->name[FIRST]) &&
           take_name(first + plus + 1, strlen(first + plus + 1), wish->name[SECOND]);
}

static avo_status read_wish(const char *parameters, split_wish *wish, avo_error *error) {
    if (parameters != NULL && read_parts(parameters, wish))
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "device 'split%s%.80s': must be split:LAYERS:CPU+DEVICE, such as "
                       "split:20:cpu+cuda; LAYERS is the number of layers on DEVICE, or auto",
                       parameters != NULL ? ":" : "", parameters != NULL ? parameters : "");
}

static avo_status probe(const device_driver *driver, const char *parameters, avo_error *error) {
    (void)driver;
    split_wish wish;
    AVO_TRY(read_wish(parameters, &wish, error));
    for (uint32_t i = 0; i < DEVICE_PARTS; i++) {
        const device_driver *found;
        AVO_TRY(device_find_among(device_drivers(), wish.name[i], &found, error));
    }
    return AVO_OK;
}

static avo_status check_parts(const split_device *split, avo_error *error) {
    const device_info *first = device_describe(split->inner[FIRST]);
    const device_info *second = device_describe(split->inner[SECOND]);
    if (!first->host || second->host)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "device %s has %s; layers are split between a CPU device and one with "
                           "memory of its own, such as cuda",
                           first->host ? second->name : first->name,
                           first->host ? "no memory of its own" : "memory of its own");
    if (strcmp(first->bits, second->bits) == 0)
        return AVO_OK;
    return status_fail(error, AVO_ERROR_ARGUMENT,
                       "layers cannot be split between devices %s and %s, which compute different "
                       "bits (%s and %s)",
                       first->name, second->name, first->bits, second->bits);
}

static avo_status set_up(split_device *split, const device_options *options, const split_wish *wish,
                         avo_error *error) {
    for (uint32_t i = 0; i < DEVICE_PARTS; i++) {
        device_options own = *options;
        own.name = wish->name[i];
        own.arithmetic = "exact"; /* both compute the same bits */
        own.accept = NULL;
        AVO_TRY(device_open(&own, &split->inner[i], error));
    }
    AVO_TRY(check_parts(split, error));
    const device_info *first = device_describe(split->inner[FIRST]);
    const device_info *second = device_describe(split->inner[SECOND]);
    device_info *info = &split->base.info;
    *info = *second;
    info->name = device_split.name;
    info->kind = device_split.kind;
    info->whole_pages = first->whole_pages || second->whole_pages;
    info->observes = false;
    info->parallel = first->parallel && second->parallel;
    info->divides = true;
    info->layers_asked = wish->layers;
    info->cpu = first->cpu;
    return AVO_OK;
}

static avo_status open_split(const device_driver *driver, const device_options *options,
                             const char *parameters, device **out, avo_error *error) {
    (void)driver;
    split_wish wish;
    AVO_TRY(read_wish(parameters, &wish, error));
    split_device *split = allocator_take_array(options->allocator, 1, sizeof(*split));
    if (split == NULL)
        return status_no_memory(error, "the device", sizeof(*split));
    split->base.operations = &operations;
    split->base.allocator = options->allocator;
    *out = &split->base;
    return set_up(split, options, &wish, error);
}

/* Never chosen: `--gpu-layers` or its name ask for it. */
const device_driver device_split = {"split", "split", -1, probe, open_split};
