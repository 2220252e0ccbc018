/* Weights of CPU devices. Kernels read every matrix in PANELS; the reference reads any layout and
 * uses the file in place. What a file holds in PANELS stays where it is; the rest is repacked,
 * exact in value, into one region of huge pages, or found with a keeper who has them from an
 * earlier process (model/panel_cache.h). Built once per model by the first engine that needs it,
 * shared by all through the model's store. Panels in the host's own memory are kept until the model
 * closes; those of a device that keeps its data apart leave with the device.
 *
 * Each worker repacks the panels that team_share gives it of a matrix, of q, k and v together, in
 * the order of the forward pass, and then helps others, so that one without a processor holds up
 * nobody. A step of few rows cuts its products in the same way, so that a worker finds its pages on
 * its own NUMA node; many rows are cut too, and the next free worker takes the next part
 * (phases/products.c), wherever its panels are. Another team size later computes the same, from
 * where the pages are.
 */
#include "device/cpu/cpu.h"

#include "base/checked.h"
#include "base/hash.h"
#include "device/matrices.h"
#include "device/store.h"
#include "quant/panels.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MATRIX_ALIGNMENT REGION_PAGE_BYTES
#define PROGRESS_BYTES   ((uint64_t)4 << 20)  /* between two reports: about 1 ms of work */
#define FORGET_BYTES     ((uint64_t)64 << 20) /* of the file that lie in memory twice, at most */
#define ITEM_BYTES       ((size_t)256 << 10)  /* that a worker takes at once: about 0.1 ms */

#define PANELS_KEY "cpu panels" /* in the model's store */

typedef struct panels {
    model_view view; /* rotation tables are those of whoever built it: each engine has its own */
    layer_view *layers;
    expert_view *experts; /* [layers][experts_max]; NULL: there are none */
    region region;        /* {0} where they are kept, or nothing was repacked */
    bool kept;            /* they lie in the keeper's file */
} panels;

/* ---- The view that is built ---- */

/* The same place in the view that is being built, whose layers are ours to write. */
static weight_view *weight_to(panels *panels, size_t index) {
    return (weight_view *)(uintptr_t)matrices_at(&panels->view, index);
}

/* ---- The plan ---- */

/* What becomes of one matrix. */
typedef struct repack {
    weight_view from;
    weight_view to; /* data NULL until the region is there */
    size_t panel_bytes;
    size_t bytes;
    bool needed;
    /* q, k and v are one product to the kernels: shares are cut from the panels of all three. */
    size_t together, before;    /* panels of all of them, and of those in front of this one */
    uint32_t first_item, items; /* of each worker's share */
} repack;

static bool lies_ready(const weight_view *weight) {
    return weight->layout == QUANT_LAYOUT_PANELS && (uintptr_t)weight->data % PANEL_LINE_BYTES == 0;
}

static avo_status repack_of(const cpu_device *cpu, const weights_source *source,
                            const weight_view *weight, repack *out, avo_error *error) {
    *out = (repack){.from = *weight, .to = *weight};
    out->needed = !lies_ready(weight) || cpu->copy_mapped;
    out->to.type = weight_repack_type(weight);
    out->to.layout = QUANT_LAYOUT_PANELS;
    uint64_t panel_bytes;
    uint64_t bytes;
    if (!weight_panel_bytes(out->to.type, weight->k, &panel_bytes) ||
        !weight_bytes(out->to.type, QUANT_LAYOUT_PANELS, weight->rows, weight->k, &bytes) ||
        bytes > SIZE_MAX)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: a %u × %u matrix of type %s cannot be repacked", source->path,
                           weight->rows, weight->k, quant_name(weight->type));
    out->panel_bytes = (size_t)panel_bytes;
    out->bytes = (size_t)bytes;
    return AVO_OK;
}

/* What a block of panels depends on besides the numbers of the file. */
static void add_matrix(hash_stream *stream, size_t index, const repack *matrix, size_t offset) {
    const uint64_t numbers[] = {index,
                                offset,
                                matrix->bytes,
                                (uint64_t)matrix->from.type,
                                (uint64_t)matrix->from.layout,
                                (uint64_t)matrix->to.type,
                                matrix->from.rows,
                                matrix->from.k};
    hash_stream_add(stream, numbers, sizeof(numbers));
}

static avo_status measure(const cpu_device *cpu, const weights_source *source, weights_plan *plan,
                          weights_layout *layout, avo_error *error) {
    const model_view *view = source->model;
    size_t total = 0;
    hash_stream stream;
    hash_wide_begin(&stream);
    *plan = (weights_plan){.mapped_bytes = source->file_bytes};
    for (size_t i = 0; i < matrices_count(view); i++) {
        const weight_view *weight = matrices_at(view, i);
        if (weight->data == NULL)
            continue;
        repack matrix;
        AVO_TRY(repack_of(cpu, source, weight, &matrix, error));
        weights_plan_count(plan, &matrix.from, matrix.to.type, matrix.needed, matrix.bytes);
        if (!matrix.needed)
            continue;
        size_t rounded;
        add_matrix(&stream, i, &matrix, total);
        if (!size_round_up(matrix.bytes, MATRIX_ALIGNMENT, &rounded) ||
            !size_add(total, rounded, &total))
            return status_fail(error, AVO_ERROR_LIMIT, "%s: the repacked weights are too large",
                               source->path);
        if (weight->data != view->embedding.data) /* tied: rows are still looked up there */
            plan->mapped_bytes -= matrices_bytes_of(weight);
    }
    *layout = (weights_layout){.bytes = total};
    hash_wide_sum(&stream, layout->key);
    if (total > 0 && !region_round(total, cpu->region.huge, &total))
        return status_fail(error, AVO_ERROR_LIMIT, "%s: the repacked weights are too large",
                           source->path);
    plan->copied_bytes = total;
    plan->missing_bytes = total;
    return AVO_OK;
}

/* Whether this device has a part of the weights, as one of a group's ranks. */
static bool is_split(const cpu_device *cpu, const weights_source *source) {
    return cpu->group != NULL && source->divisible;
}

/* Data apart from the host's is nobody else's. */
static bool has_data_apart(const cpu_device *cpu) {
    return cpu->data != cpu->base.allocator;
}

/* Who keeps panels for this device; NULL: nobody. Panels of a file lie where the file cache has put
 * them, so they are of no use where pages shall be huge for certain, or on the node that reads
 * them.
 */
static const weights_keeper *keeper_of(const cpu_device *cpu, const weights_source *source) {
    bool wanted = !has_data_apart(cpu) && !cpu->copy_mapped && !is_split(cpu, source) &&
                  source->store != NULL && cpu->base.info.cpu.numa_nodes <= 1;
    return wanted ? source->keeper : NULL;
}

static const uint8_t *find_kept(const weights_keeper *keeper, const weights_layout *layout) {
    bool any = keeper != NULL && layout->bytes > 0;
    return any ? keeper->find(keeper->context, layout) : NULL;
}

static void panels_key(const cpu_device *cpu, const weights_source *source,
                       char key[STORE_KEY_MAX]) {
    const cpu_group *group = is_split(cpu, source) ? cpu->group : NULL;
    if (group != NULL)
        snprintf(key, STORE_KEY_MAX, PANELS_KEY " %u of %u%s", group->rank, group->ranks,
                 group->by_layers ? " by layers" : "");
    else if (has_data_apart(cpu))
        snprintf(key, STORE_KEY_MAX, PANELS_KEY " %p layers %u", (const void *)cpu->data,
                 source->part_layers);
    else if (source->part_layers > 0)
        snprintf(key, STORE_KEY_MAX, PANELS_KEY " of the first %u layers", source->part_layers);
    else
        snprintf(key, STORE_KEY_MAX, PANELS_KEY);
}

/* ---- A rank's part ---- */

/* The source whose model is the rank's part of the given one. */
typedef struct part_source {
    weights_source source;
    model_view model;
    layer_view *layers;
    size_t bytes;
} part_source;

static void part_close(const cpu_device *cpu, part_source *part) {
    allocator_give(cpu->base.allocator, part->layers, part->bytes);
}

static avo_status part_open(const cpu_device *cpu, const weights_source *source, part_source *part,
                            avo_error *error) {
    const model_view *whole = source->model;
    *part = (part_source){.source = *source};
    if (!is_split(cpu, source))
        return AVO_OK;
    part->bytes = whole->layers * sizeof(layer_view);
    part->layers = allocator_take_array(cpu->base.allocator, whole->layers, sizeof(layer_view));
    if (part->layers == NULL)
        return status_no_memory(error, "layers", part->bytes);
    group_model(cpu->group, whole, part->layers, &part->model);
    part->source.model = &part->model;
    part->source.file_bytes -= matrices_bytes(whole) - matrices_bytes(&part->model);
    return AVO_OK;
}

static avo_status plan_weights(const cpu_device *cpu, const weights_source *source,
                               weights_plan *plan, avo_error *error) {
    weights_layout layout;
    AVO_TRY(measure(cpu, source, plan, &layout, error));
    char key[STORE_KEY_MAX];
    panels_key(cpu, source, key);
    weights_entry *entry = weights_store_find(source->store, key);
    const panels *built = entry != NULL ? weights_entry_value(entry) : NULL;
    bool kept = built != NULL ? built->kept : find_kept(keeper_of(cpu, source), &layout) != NULL;
    if (built != NULL || kept)
        plan->missing_bytes = 0;
    if (built != NULL)
        plan->copied_bytes = built->region.bytes; /* as its builder wanted it */
    if (kept) {
        plan->copied_bytes = 0;
        plan->kept_bytes = layout.bytes;
        plan->mapped_bytes += layout.bytes;
    }
    weights_store_give(source->store, entry);
    return AVO_OK;
}

avo_status cpu_weights_plan(const device *device, const weights_source *source, weights_plan *plan,
                            avo_error *error) {
    const cpu_device *cpu = (const cpu_device *)(const void *)device;
    *plan = (weights_plan){.mapped_bytes = source->file_bytes};
    if (!cpu->choice.backend.panels)
        return AVO_OK;
    part_source part;
    AVO_TRY(part_open(cpu, source, &part, error));
    avo_status status = plan_weights(cpu, &part.source, plan, error);
    part_close(cpu, &part);
    return status;
}

/* ---- The walk ---- */

typedef struct walk {
    const weights_source *source;
    const repack *matrices; /* those that are needed */
    size_t count;
    uint64_t total;
    uint64_t reported, forgotten; /* of `done`, when worker 0 last did so */
    atomic_uint_fast64_t done;
    atomic_bool cancelled;
} walk;

static void repack_panel(const repack *matrix, size_t panel) {
    uint8_t *out = (uint8_t *)(uintptr_t)matrix->to.data + panel * matrix->panel_bytes;
    weight_repack_panel(&matrix->from, panel, matrix->to.type, out);
}

static void forget(const weights_source *source) {
    if (source->forget != NULL)
        source->forget(source->context);
}

/* Adds to what was done. Worker 0, which is the caller's thread, reports now and then, and gives
 * the file's pages back: all at once and seldom, because every such call stops all processors for a
 * moment; a page that somebody still reads comes back by itself. */
static void account(walk *walk, uint32_t worker, uint64_t bytes) {
    uint64_t done = atomic_fetch_add_explicit(&walk->done, bytes, memory_order_relaxed) + bytes;
    if (worker != 0)
        return;
    if (done >= walk->forgotten + FORGET_BYTES) {
        walk->forgotten = done;
        forget(walk->source);
    }
    if (walk->source->progress == NULL || done < walk->reported + PROGRESS_BYTES)
        return;
    walk->reported = done;
    if (!walk->source->progress(walk->source->progress_context, "repack", done, walk->total))
        atomic_store_explicit(&walk->cancelled, true, memory_order_relaxed);
}

/* One of the items that worker `owner` would compute of a matrix if all were as fast. */
static void repack_item(walk *walk, const repack *matrix, uint32_t owner, uint32_t item,
                        const team_items *items) {
    size_t begin;
    size_t end;
    team_share(matrix->together, owner, items->workers, &begin, &end);
    size_t first = begin - size_min(begin, matrix->before);
    size_t last = size_min(end - size_min(end, matrix->before), weight_panels(&matrix->from));
    if (first >= last)
        return;
    team_share(last - first, item, matrix->items, &begin, &end);
    for (size_t panel = first + begin; panel < first + end; panel++) {
        if (atomic_load_explicit(&walk->cancelled, memory_order_relaxed))
            return;
        repack_panel(matrix, panel);
        account(walk, items->worker, matrix->panel_bytes);
    }
}

static void repack_items(const void *context, uint32_t count, team_items *items) {
    walk *walk = *(struct walk *const *)context;
    size_t i = 0;
    uint32_t item;
    while (team_take(items, &item)) {
        uint32_t place = item % count;
        if (place < walk->matrices[i].first_item) /* another worker's share */
            i = 0;
        while (place >= walk->matrices[i].first_item + walk->matrices[i].items)
            i++;
        repack_item(walk, &walk->matrices[i], item / count, place - walk->matrices[i].first_item,
                    items);
    }
}

/* Cuts every worker's share into items; returns how many a share has. */
static uint32_t cut(repack *list, size_t count, uint32_t workers) {
    uint32_t total = 0;
    for (size_t i = 0; i < count; i++) {
        size_t items = list[i].bytes / workers / ITEM_BYTES + 1;
        size_t most = TEAM_ITEMS_MAX / workers / count; /* larger items of a very large model */
        list[i].first_item = total;
        list[i].items = (uint32_t)size_min(items, size_max(most, 1));
        total += list[i].items;
    }
    return total;
}

static avo_status repack_all(walk *walk, uint32_t items, team *team, avo_error *error) {
    const weights_source *source = walk->source;
    team_phase phase = {repack_items, items, items * team_size(team), false};
    team_run(team, &phase, 1, &walk);
    forget(source);
    uint64_t done = atomic_load_explicit(&walk->done, memory_order_relaxed);
    bool cancelled = atomic_load_explicit(&walk->cancelled, memory_order_relaxed);
    if (!cancelled && source->progress != NULL && walk->count > 0)
        cancelled = !source->progress(source->progress_context, "repack", done, walk->total);
    if (cancelled)
        return status_fail(error, AVO_ERROR_CANCELLED,
                           "repacking was cancelled after %llu of %llu bytes",
                           (unsigned long long)done, (unsigned long long)walk->total);
    return AVO_OK;
}

/* ---- Building ---- */

/* Which part of the kernels' product the matrix is. */
static void find_neighbours(const model_view *view, size_t index, repack *matrix) {
    size_t each = matrices_of_layer(view);
    size_t place = index == 0 ? MATRICES_DENSE : (index - 1) % each;
    matrix->together = weight_panels(&matrix->from);
    if (index > view->layers * each || place > 2)
        return;
    matrix->together = 0;
    for (size_t other = 0; other < 3; other++) {
        matrix->before = other == place ? matrix->together : matrix->before;
        matrix->together += weight_panels(matrices_at(view, index - place + other));
    }
}

typedef struct building {
    cpu_device *cpu;
    const weights_source *source;
    team *team;
    panels *panels;
    weights_layout layout;
} building;

/* Fills `list` with what must be repacked, each matrix at its place of the block, and the new view
 * with where everything will be. */
static avo_status lay_out(const building *b, const uint8_t *at, repack *list, walk *walk,
                          avo_error *error) {
    const model_view *model = b->source->model;
    for (size_t i = 0; i < matrices_count(model); i++) {
        const weight_view *weight = matrices_at(model, i);
        repack matrix;
        if (weight->data == NULL)
            continue;
        AVO_TRY(repack_of(b->cpu, b->source, weight, &matrix, error));
        if (!matrix.needed)
            continue;
        find_neighbours(model, i, &matrix);
        matrix.to.data = at;
        at += (matrix.bytes + MATRIX_ALIGNMENT - 1) / MATRIX_ALIGNMENT * MATRIX_ALIGNMENT;
        *weight_to(b->panels, i) = matrix.to;
        list[walk->count++] = matrix;
        walk->total += matrix.bytes;
    }
    return AVO_OK;
}

/* `kept`: the block is there already; NULL: it is repacked into the region. */
static avo_status fill(const building *b, const uint8_t *kept, avo_error *error) {
    const avo_allocator *allocator = b->cpu->base.allocator;
    size_t count = matrices_count(b->source->model);
    repack *list = allocator_take_array(allocator, count, sizeof(*list));
    if (list == NULL)
        return status_no_memory(error, "the list of matrices", count * sizeof(*list));
    walk walk = {.source = b->source, .matrices = list};
    const uint8_t *at = kept != NULL ? kept : b->panels->region.data;
    avo_status status = lay_out(b, at, list, &walk, error);
    /* A phase has a largest number of items: models with very many experts take several. */
    size_t most = TEAM_ITEMS_MAX / team_size(b->team), all = kept == NULL ? walk.count : 0;
    for (size_t i = 0; status == AVO_OK && i < all; i += walk.count) {
        walk.matrices = list + i;
        walk.count = size_min(all - i, most);
        uint32_t items = cut(list + i, walk.count, team_size(b->team));
        status = repack_all(&walk, items, b->team, error);
    }
    allocator_give(allocator, list, count * sizeof(*list));
    return status;
}

/* The owner is the allocator: the model's, which lives as long as its store. */
static void panels_release(void *owner, void *value) {
    const avo_allocator *allocator = owner;
    panels *panels = value;
    region_close(&panels->region);
    allocator_give(allocator, panels->experts,
                   (size_t)panels->view.layers * panels->view.experts_max * sizeof(expert_view));
    allocator_give(allocator, panels->layers, panels->view.layers * sizeof(layer_view));
    allocator_give(allocator, panels, sizeof(*panels));
}

/* Experts of our own, in the place of the model's. */
static avo_status take_experts(building *b, avo_error *error) {
    const model_view *model = b->source->model;
    size_t each = model->experts_max, count = model->layers * each;
    if (count == 0)
        return AVO_OK;
    b->panels->experts = allocator_take_array(b->cpu->base.allocator, count, sizeof(expert_view));
    if (b->panels->experts == NULL)
        return status_no_memory(error, "experts", count * sizeof(expert_view));
    for (uint32_t i = 0; i < model->layers; i++) {
        experts_view *experts = &b->panels->layers[i].experts;
        if (experts->count == 0)
            continue;
        expert_view *own = b->panels->experts + i * each;
        memcpy(own, experts->expert, experts->count * sizeof(expert_view));
        experts->expert = own;
    }
    return AVO_OK;
}

static avo_status take_layers(building *b, avo_error *error) {
    panels *panels = b->panels;
    const weights_source *source = b->source;
    weights_plan plan;
    AVO_TRY(measure(b->cpu, source, &plan, &b->layout, error));
    size_t layers = source->model->layers; /* 0: a single product of draft heads */
    panels->layers = allocator_take_array(b->cpu->base.allocator, layers, sizeof(layer_view));
    if (layers > 0 && panels->layers == NULL)
        return status_no_memory(error, "layers", layers * sizeof(layer_view));
    if (layers > 0)
        memcpy(panels->layers, source->model->layer, layers * sizeof(layer_view));
    panels->view = *source->model;
    panels->view.layer = panels->layers;
    return take_experts(b, error);
}

static avo_status take_region(const building *b, avo_error *error) {
    if (b->layout.bytes == 0)
        return AVO_OK;
    avo_status status =
        region_open(b->cpu->data, (size_t)b->layout.bytes, &b->cpu->region,
                    "repacked weights (`avocet pack` writes a file that needs none)",
                    &b->panels->region, error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", b->source->path);
}

/* Locks what steps read from the file. */
static avo_status lock_weight(const weights_source *source, const weight_view *weight,
                              avo_error *error) {
    if (weight->data == NULL)
        return AVO_OK;
    avo_status status =
        region_lock(weight->data, (size_t)matrices_bytes_of(weight), "mapped weights", error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", source->path);
}

static avo_status lock_mapped(const building *b, avo_error *error) {
    const model_view *view = &b->panels->view;
    AVO_TRY(lock_weight(b->source, &view->embedding, error));
    AVO_TRY(lock_weight(b->source, &view->position_embedding, error));
    for (size_t i = 0; i < matrices_count(view); i++) {
        const weight_view *weight = matrices_at(view, i);
        if (b->panels->kept || weight->data == matrices_at(b->source->model, i)->data)
            AVO_TRY(lock_weight(b->source, weight, error));
    }
    return AVO_OK;
}

/* ---- Panels that are kept ---- */

typedef struct comparison {
    const weights_keeper *keeper;
    atomic_bool wrong;
} comparison;

static void compare_pieces(const void *context, uint32_t argument, team_items *items) {
    comparison *comparison = *(struct comparison *const *)context;
    (void)argument;
    uint32_t piece;
    while (team_take(items, &piece))
        if (!comparison->keeper->is_right(comparison->keeper->context, piece))
            atomic_store_explicit(&comparison->wrong, true, memory_order_relaxed);
}

/* The kept block if all of its sums are right. Comparing maps its pages, too, which steps would
 * otherwise wait for. */
static const uint8_t *take_kept(const building *b) {
    const weights_keeper *keeper = keeper_of(b->cpu, b->source);
    const uint8_t *kept = find_kept(keeper, &b->layout);
    if (kept == NULL)
        return NULL;
    comparison comparison = {.keeper = keeper};
    struct comparison *context = &comparison;
    uint32_t pieces = keeper->pieces(keeper->context);
    team_phase phase = {compare_pieces, 0, pieces, false};
    team_run(b->team, &phase, 1, &context);
    if (!atomic_load_explicit(&comparison.wrong, memory_order_relaxed))
        return kept;
    keeper->reject(keeper->context);
    return NULL;
}

static avo_status panels_fill(building *b, avo_error *error) {
    if (b->cpu->region.huge && b->source->ask_huge != NULL)
        b->source->ask_huge(b->source->context);
    AVO_TRY(take_layers(b, error));
    const uint8_t *kept = take_kept(b);
    b->panels->kept = kept != NULL;
    if (kept == NULL)
        AVO_TRY(take_region(b, error));
    AVO_TRY(fill(b, kept, error));
    if (b->cpu->region.lock)
        AVO_TRY(lock_mapped(b, error));
    const weights_keeper *keeper = keeper_of(b->cpu, b->source);
    if (kept == NULL && keeper != NULL && b->layout.bytes > 0)
        keeper->offer(keeper->context, &b->layout, b->panels->region.data);
    return AVO_OK;
}

static avo_status panels_build(void *context, void **value, avo_error *error) {
    building *b = context;
    const avo_allocator *allocator = b->cpu->base.allocator;
    b->panels = allocator_take_array(allocator, 1, sizeof(*b->panels));
    if (b->panels == NULL)
        return status_no_memory(error, "the model's panels", sizeof(*b->panels));
    avo_status status = panels_fill(b, error);
    if (status != AVO_OK) {
        panels_release((void *)(uintptr_t)allocator, b->panels);
        return status;
    }
    *value = b->panels;
    return AVO_OK;
}

static avo_status take_panels(device_stream *stream, const weights_source *source,
                              cpu_weights *weights, avo_error *error) {
    cpu_device *cpu = cpu_of(stream->device);
    const avo_allocator *allocator = cpu->base.allocator;
    building b = {.cpu = cpu, .source = source, .team = cpu_stream_of(stream)->team};
    char key[STORE_KEY_MAX];
    panels_key(cpu, source, key);
    weights_form form = {.allocator = allocator,
                         .key = key,
                         .build = panels_build,
                         .context = &b,
                         .release = panels_release,
                         .owner = (void *)(uintptr_t)allocator,
                         .kept = !has_data_apart(cpu)};
    AVO_TRY(weights_store_take(source->store, &form, &weights->panels, error));
    const panels *built = weights_entry_value(weights->panels);
    weights->base.view = built->view;
    weights->base.view.rotary = source->model->rotary;
    weights->base.view.rotary_tables = source->model->rotary_tables;
    return AVO_OK;
}

avo_status cpu_weights_open(device_stream *stream, const weights_source *source,
                            device_weights *base, avo_error *error) {
    cpu_weights *weights = (cpu_weights *)(void *)base;
    const cpu_device *cpu = cpu_of(base->device);
    weights->store = source->store;
    if (!cpu->choice.backend.panels)
        return AVO_OK;
    part_source part;
    AVO_TRY(part_open(cpu, source, &part, error));
    weights->split = is_split(cpu, source);
    weights->layers_stored = source->model->layers;
    avo_status status = take_panels(stream, &part.source, weights, error);
    part_close(cpu, &part);
    return status;
}

void cpu_weights_close(device_weights *base) {
    const cpu_weights *weights = (const cpu_weights *)(const void *)base;
    weights_store_give(weights->store, weights->panels);
}

const region *cpu_weights_region(weights_store *store) {
    weights_entry *entry = weights_store_find(store, PANELS_KEY);
    const panels *built = entry != NULL ? weights_entry_value(entry) : NULL;
    weights_store_give(store, entry); /* it is kept */
    return built != NULL && built->region.data != NULL ? &built->region : NULL;
}
