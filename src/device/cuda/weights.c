/* Weights and adapters on the card. Matrices go there in PANELS, repacked on the way where the file
 * has another layout, exact in value; norms and biases as they are. Embeddings and rotation tables
 * stay with the host, which looks them up. One block of memory for each engine's weights. */
#include "device/cuda/cuda.h"

#include "base/checked.h"
#include "device/upload.h"

#include <string.h>

#define ALIGNMENT   256
#define STAGE_BYTES ((size_t)8 << 20) /* at least: that are repacked before they are copied */

/* A walk over everything that goes to the card; without memory it only counts. */
typedef struct upload_walk {
    cuda_device *cuda; /* NULL: it counts */
    const weights_source *source;
    weights_plan *plan; /* NULL: nobody asks for groups */
    uint8_t *memory;
    size_t bytes, total;
    uint8_t *stage; /* panels that were repacked */
    size_t stage_bytes;
    bool fast;
    uint8_t *pack_stage; /* of the card: panels that become slabs */
    avo_error *error;
} upload_walk;

static avo_status walk_place(upload_walk *walk, size_t bytes, uint8_t **to) {
    *to = walk->memory == NULL ? NULL : walk->memory + walk->bytes;
    if (size_add(walk->bytes, bytes, &walk->bytes) &&
        size_round_up(walk->bytes, ALIGNMENT, &walk->bytes))
        return AVO_OK;
    return status_fail(walk->error, AVO_ERROR_LIMIT, "%s: the weights are too large",
                       walk->source->path);
}

static avo_status walk_floats(upload_walk *walk, const float **floats, size_t count) {
    uint8_t *to;
    if (*floats == NULL)
        return AVO_OK;
    AVO_TRY(walk_place(walk, count * sizeof(float), &to));
    if (walk->memory == NULL)
        return AVO_OK;
    AVO_TRY(cuda_copy_in(walk->cuda, to, *floats, count * sizeof(float), walk->error));
    *floats = (const float *)(const void *)to;
    return AVO_OK;
}

/* ---- Matrices ---- */

static avo_status report(upload_walk *walk) {
    const weights_source *source = walk->source;
    if (source->progress == NULL ||
        source->progress(source->progress_context, "upload", walk->bytes, walk->total))
        return AVO_OK;
    return status_fail(walk->error, AVO_ERROR_CANCELLED,
                       "uploading was cancelled after %zu of %zu bytes", walk->bytes, walk->total);
}

/* As many panels at a time as the stage holds. */
static avo_status copy_panels(upload_walk *walk, const weight_view *from, quant_type type,
                              size_t panel_bytes, uint8_t *to) {
    size_t panels = weight_panels(from), each = walk->stage_bytes / panel_bytes;
    for (size_t first = 0; first < panels; first += each) {
        size_t count = size_min(panels - first, each);
        for (size_t i = 0; i < count; i++)
            weight_repack_panel(from, first + i, type, walk->stage + i * panel_bytes);
        AVO_TRY(cuda_copy_in(walk->cuda, to + first * panel_bytes, walk->stage, count * panel_bytes,
                             walk->error));
        AVO_TRY(report(walk));
    }
    return AVO_OK;
}

/* Where a matrix goes in slabs. */
typedef struct slab_place {
    uint8_t *to;
    bool paired;
    uint32_t half;
} slab_place;

/* Panels that lie on the card into slabs. */
static avo_status pack_panels(upload_walk *walk, const weight_view *weight, const slab_place *place,
                              size_t panel_bytes, size_t first, size_t count) {
    cuda_port *port = walk->cuda->port;
    fast_pack_call call = {.from = walk->pack_stage,
                           .panel_bytes = panel_bytes,
                           .to = place->to,
                           .first = (uint32_t)first,
                           .k = weight->k,
                           .slabs = fast_slabs(weight->k),
                           .paired = place->paired,
                           .half = place->half};
    cuda_launch launch = {CUDA_KERNEL_fast_pack, (uint32_t)count, 1, 1, 256, 0, CUDA_BEHIND};
    cu_result result = port->operations->launch(port, &launch, &call);
    if (result == 0)
        result = port->operations->wait(port, CUDA_QUEUE_STEPS);
    return cuda_status(port, result, "laying out weights", walk->error);
}

/* The matrix in the layout of the fast arithmetic. */
static avo_status walk_slabs(upload_walk *walk, weight_view *weight, const slab_place *place) {
    uint64_t panel_bytes;
    bool repacked = weight->layout != QUANT_LAYOUT_PANELS;
    if (!weight_panel_bytes(weight->type, weight->k, &panel_bytes))
        return status_fail(walk->error, AVO_ERROR_LIMIT, "%s: the weights are too large",
                           walk->source->path);
    if (walk->plan != NULL)
        weights_plan_count(walk->plan, weight, weight->type, true,
                           fast_bytes(weight->rows, weight->k));
    if (walk->stage_bytes < panel_bytes && walk->memory == NULL)
        walk->stage_bytes = (size_t)panel_bytes;
    if (walk->memory == NULL)
        return AVO_OK;
    size_t panels = weight_panels(weight), each = walk->stage_bytes / panel_bytes;
    for (size_t first = 0; first < panels; first += each) {
        size_t count = size_min(panels - first, each);
        const uint8_t *from = repacked ? walk->stage : weight->data + first * panel_bytes;
        for (size_t i = 0; i < count && repacked; i++)
            weight_repack_panel(weight, first + i, weight->type, walk->stage + i * panel_bytes);
        AVO_TRY(cuda_copy_in(walk->cuda, walk->pack_stage, from, count * panel_bytes, walk->error));
        AVO_TRY(pack_panels(walk, weight, place, panel_bytes, first, count));
        AVO_TRY(report(walk));
    }
    weight->layout = QUANT_LAYOUT_PANELS;
    weight->row_first = weight->rows_whole = 0;
    weight->data = place->to;
    return AVO_OK;
}

static avo_status walk_weight(upload_walk *walk, weight_view *weight) {
    uint64_t panel_bytes, bytes;
    uint8_t *to;
    if (weight->data == NULL)
        return AVO_OK;
    quant_type type = weight_repack_type(weight);
    bool repacked = weight->layout != QUANT_LAYOUT_PANELS;
    if (!panels_known(type) || cuda_linear_kernel(type) == CUDA_KERNELS ||
        !weight_panel_bytes(type, weight->k, &panel_bytes) ||
        !weight_bytes(type, QUANT_LAYOUT_PANELS, weight->rows, weight->k, &bytes) ||
        bytes > SIZE_MAX)
        return status_fail(walk->error, AVO_ERROR_UNSUPPORTED,
                           "%s: a %u × %u matrix of type %s cannot be computed by device cuda",
                           walk->source->path, weight->rows, weight->k, quant_name(weight->type));
    AVO_TRY(walk_place(walk, (size_t)bytes, &to));
    if (walk->plan != NULL)
        weights_plan_count(walk->plan, weight, type, repacked, bytes);
    if (walk->stage_bytes < panel_bytes && walk->memory == NULL)
        walk->stage_bytes = (size_t)panel_bytes;
    if (walk->memory == NULL)
        return AVO_OK;
    if (repacked)
        AVO_TRY(copy_panels(walk, weight, type, (size_t)panel_bytes, to));
    else
        AVO_TRY(cuda_copy_in(walk->cuda, to, weight->data, (size_t)bytes, walk->error));
    weight->type = type;
    weight->layout = QUANT_LAYOUT_PANELS;
    weight->row_first = weight->rows_whole = 0;
    weight->data = to;
    return report(walk);
}

static avo_status walk_linear(upload_walk *walk, linear_view *linear) {
    AVO_TRY(walk_weight(walk, &linear->weight));
    return walk_floats(walk, &linear->bias, linear->weight.rows);
}

/* Matrices of a place in the model; `paired`: up and gate, in the same panels. */
static avo_status walk_site(upload_walk *walk, linear_view *const *linears, size_t count,
                            bool paired) {
    const weight_view *weights[3];
    for (size_t i = 0; i < count; i++)
        weights[i] = &linears[i]->weight;
    bool fast = walk->fast && (paired || fast_matrices(weights, count));
    slab_place place = {.paired = paired};
    for (size_t i = 0; i < count; i++) {
        weight_view *weight = &linears[i]->weight;
        if (fast && (i == 0 || !paired)) {
            uint64_t bytes = fast_bytes(weight->rows, weight->k) * (paired ? 2 : 1);
            if (bytes > SIZE_MAX)
                return status_fail(walk->error, AVO_ERROR_LIMIT, "%s: the weights are too large",
                                   walk->source->path);
            AVO_TRY(walk_place(walk, (size_t)bytes, &place.to));
        }
        place.half = paired ? (uint32_t)i : 0;
        if (fast)
            AVO_TRY(walk_slabs(walk, weight, &place));
        else
            AVO_TRY(walk_weight(walk, weight));
        AVO_TRY(walk_floats(walk, &linears[i]->bias, weight->rows));
    }
    return AVO_OK;
}

static avo_status walk_norm(upload_walk *walk, norm_view *norm, size_t width) {
    AVO_TRY(walk_floats(walk, &norm->weight, width));
    return walk_floats(walk, &norm->bias, width);
}

static avo_status walk_layer(upload_walk *walk, layer_view *layer, uint32_t width) {
    linear_view *attention[] = {&layer->query, &layer->key, &layer->value};
    linear_view *output[] = {&layer->output}, *down[] = {&layer->down};
    linear_view *feed_forward[] = {&layer->up, &layer->gate};
    norm_view *norms[] = {&layer->attention_norm, &layer->attention_post_norm,
                          &layer->feed_forward_norm, &layer->feed_forward_post_norm};
    AVO_TRY(walk_site(walk, attention, 3, false));
    AVO_TRY(walk_site(walk, output, 1, false));
    bool paired = walk->fast && fast_paired(layer);
    if (paired || layer->gate.weight.data == NULL) {
        AVO_TRY(walk_site(walk, feed_forward, layer->gate.weight.data == NULL ? 1 : 2, paired));
    } else {
        /* of two types: exactly, both */
        AVO_TRY(walk_linear(walk, &layer->gate));
        AVO_TRY(walk_linear(walk, &layer->up));
    }
    AVO_TRY(walk_site(walk, down, 1, false));
    for (size_t i = 0; i < sizeof(norms) / sizeof(norms[0]); i++)
        AVO_TRY(walk_norm(walk, norms[i], width));
    AVO_TRY(walk_norm(walk, &layer->query_norm, layer->head_size));
    return walk_norm(walk, &layer->key_norm, layer->head_size);
}

/* `view` is a copy whose layers are the caller's to change; the embedding's own projection is the
 * host's. */
static avo_status walk_model(upload_walk *walk, model_view *view, layer_view *layers) {
    for (uint32_t i = 0; i < view->layers; i++) {
        layer_view layer = view->layer[i];
        AVO_TRY(walk_layer(walk, layers == NULL ? &layer : &layers[i], view->width));
    }
    linear_view *project[] = {&view->head_project}, *head[] = {&view->head};
    AVO_TRY(walk_norm(walk, &view->final_norm, view->width));
    AVO_TRY(walk_site(walk, project, 1, false));
    return walk_site(walk, head, 1, false);
}

/* ---- The plan ---- */

/* EAGLE-3's first layer attends to more than the residual. */
static avo_status check_first_layer(const device *device, const weights_source *source,
                                    avo_error *error) {
    const model_view *model = source->model;
    if (model->layers > 0 && model->layer[0].query.weight.k != model->width)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: the first layer's attention sees more than the residual; device %s "
                           "does not compute this",
                           source->path, device->info.name);
    return AVO_OK;
}

static avo_status count_bytes(const device *device, const weights_source *source,
                              weights_plan *plan, upload_walk *walk, avo_error *error) {
    model_view view = *source->model;
    *walk = (upload_walk){.source = source,
                          .plan = plan,
                          .stage_bytes = STAGE_BYTES,
                          .fast = ((const cuda_device *)(const void *)device)->fast,
                          .error = error};
    return walk_model(walk, &view, NULL);
}

avo_status cuda_weights_plan(const device *device, const weights_source *source, weights_plan *plan,
                             avo_error *error) {
    upload_walk walk;
    uint64_t rounded, mapped = 0, bytes;
    AVO_TRY(check_first_layer(device, source, error));
    AVO_TRY(count_bytes(device, source, plan, &walk, error));
    if (!device_memory_round(device, walk.bytes, &rounded))
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the weights are too large", source->path);
    const weight_view *kept[] = {&source->model->embedding, &source->model->position_embedding,
                                 &source->model->embedding_project.weight};
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (kept[i]->data != NULL &&
            weight_bytes(kept[i]->type, kept[i]->layout, kept[i]->rows, kept[i]->k, &bytes))
            mapped += bytes;
    plan->mapped_bytes = mapped < source->file_bytes ? mapped : source->file_bytes;
    plan->copied_bytes = plan->missing_bytes = rounded;
    return AVO_OK;
}

/* ---- Uploading ---- */

static avo_status upload_all(cuda_weights *weights, const weights_source *source, upload_walk *walk,
                             avo_error *error) {
    model_view *view = &weights->base.view;
    size_t count = view->layers; /* 0: a single product of draft heads */
    layer_view *layers = arena_take_array(&weights->arena, count, sizeof(*layers));
    if (count > 0 && layers == NULL)
        return status_no_memory(error, "layers", count * sizeof(*layers));
    if (count > 0)
        memcpy(layers, source->model->layer, count * sizeof(*layers));
    AVO_TRY(walk_model(walk, view, layers));
    view->layer = layers;
    if (source->forget != NULL)
        source->forget(source->context);
    return AVO_OK;
}

static avo_status fill(cuda_weights *weights, const weights_source *source, avo_error *error) {
    cuda_device *cuda = cuda_of(weights->base.device);
    const avo_allocator *allocator = cuda->base.allocator;
    upload_walk walk;
    AVO_TRY(count_bytes(weights->base.device, source, NULL, &walk, error));
    AVO_TRY(cuda_status(
        cuda->port,
        cuda->port->operations->take(cuda->port, size_max(walk.bytes, ALIGNMENT), &weights->memory),
        "taking memory for weights", error));
    walk.cuda = cuda;
    walk.memory = weights->memory;
    walk.total = walk.bytes;
    walk.bytes = 0;
    walk.stage = allocator_take(allocator, walk.stage_bytes);
    if (walk.stage == NULL)
        return status_no_memory(error, "panels on their way to the card", walk.stage_bytes);
    avo_status status = AVO_OK;
    if (walk.fast)
        status = cuda_status(
            cuda->port,
            cuda->port->operations->take(cuda->port, walk.stage_bytes, &walk.pack_stage),
            "taking memory for panels", error);
    if (status == AVO_OK)
        status = upload_all(weights, source, &walk, error);
    if (walk.pack_stage != NULL)
        cuda->port->operations->give(cuda->port, walk.pack_stage);
    allocator_give(allocator, walk.stage, walk.stage_bytes);
    return status;
}

avo_status cuda_weights_open(device_stream *stream, const weights_source *source,
                             device_weights *base, avo_error *error) {
    (void)stream;
    cuda_weights *weights = (cuda_weights *)(void *)base;
    weights->host = *source->model;
    arena_init(&weights->arena, base->device->allocator, SIZE_MAX);
    AVO_TRY(check_first_layer(base->device, source, error));
    return fill(weights, source, error);
}

void cuda_weights_close(device_weights *base) {
    cuda_weights *weights = (cuda_weights *)(void *)base;
    cuda_port *port = cuda_of(base->device)->port;
    if (weights->memory != NULL)
        port->operations->give(port, weights->memory);
    arena_free(&weights->arena);
}

/* ---- Adapters ---- */

typedef struct adapter_fill {
    cuda_device *cuda;
    uint8_t *memory; /* NULL: sizes are counted */
    size_t bytes;
} adapter_fill;

static avo_status take_array(void *context, const void *data, size_t bytes, const uint8_t **address,
                             avo_error *error) {
    adapter_fill *f = context;
    uint8_t *to = f->memory == NULL ? NULL : f->memory + f->bytes;
    *address = to == NULL ? data : to;
    if (to != NULL)
        AVO_TRY(cuda_copy_in(f->cuda, to, data, bytes, error));
    if (!size_add(f->bytes, bytes, &f->bytes) || !size_round_up(f->bytes, ALIGNMENT, &f->bytes))
        return status_fail(error, AVO_ERROR_LIMIT, "an adapter is too large");
    return AVO_OK;
}

/* A copy in host memory: the host looks up embeddings. */
static avo_status keep_weight(adapter_copy *own, weight_view *weight, avo_error *error) {
    uint64_t bytes;
    if (weight->data == NULL)
        return AVO_OK;
    if (!weight_bytes(weight->type, weight->layout, weight->rows, weight->k, &bytes) ||
        bytes > SIZE_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "an adapter's embedding is too large");
    uint8_t *copy = arena_take(&own->arena, (size_t)bytes);
    if (copy == NULL)
        return status_no_memory(error, "an adapter's embedding", (size_t)bytes);
    memcpy(copy, weight->data, (size_t)bytes);
    weight->data = copy;
    return AVO_OK;
}

avo_status cuda_adapter_open(device *device, const adapter_view *view, const model_view *model,
                             adapter_copy *copy, avo_error *error) {
    adapter_view rest = *view; /* what goes to the card; the host reads embeddings */
    rest.embedding.look.data = rest.embedding.up.data = NULL;
    adapter_fill f = {.cuda = cuda_of(device)};
    AVO_TRY(upload_adapter(&rest, model, take_array, &f, &copy->arena, &copy->view, error));
    AVO_TRY(device_memory_take(device, size_max(f.bytes, ALIGNMENT), "an adapter", &copy->memory,
                               error));
    f.memory = copy->memory.address;
    f.bytes = 0;
    AVO_TRY(upload_adapter(&rest, model, take_array, &f, &copy->arena, &copy->view, error));
    copy->view.embedding = view->embedding;
    AVO_TRY(keep_weight(copy, &copy->view.embedding.look, error));
    return keep_weight(copy, &copy->view.embedding.up, error);
}

void cuda_adapter_close(device *device, adapter_copy *copy) {
    device_memory_give(device, &copy->memory);
}
