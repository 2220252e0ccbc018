/* Repacking at load: which matrices, where they go, and the parallel walk. */
#include "model/panels.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "quant/panels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define MATRIX_ALIGNMENT REGION_PAGE_BYTES
#define PROGRESS_BYTES   ((uint64_t)4 << 20)  /* between two reports: about 1 ms of work */
#define FORGET_BYTES     ((uint64_t)64 << 20) /* of the file that lie in memory twice, at most */

struct model_panels {
    pthread_mutex_t mutex;
    bool built;
    model_view view;
    layer_view *layers;
    region region;
};

/* ---- Every matrix, in the order of the forward pass ---- */

static const size_t layer_linears[] = {offsetof(layer_view, query), offsetof(layer_view, key),
                                       offsetof(layer_view, value), offsetof(layer_view, output),
                                       offsetof(layer_view, gate),  offsetof(layer_view, up),
                                       offsetof(layer_view, down)};
#define LAYER_LINEARS (sizeof(layer_linears) / sizeof(layer_linears[0]))

static size_t linear_count(const model_view *view) {
    return 3 + view->layers * LAYER_LINEARS;
}

static const weight_view *weight_at(const model_view *view, size_t index) {
    size_t layered = view->layers * LAYER_LINEARS;
    if (index == 0)
        return &view->embedding_project.weight;
    if (index == layered + 1)
        return &view->head_project.weight;
    if (index == layered + 2)
        return &view->head.weight;
    const layer_view *layer = &view->layer[(index - 1) / LAYER_LINEARS];
    const void *linear = (const char *)layer + layer_linears[(index - 1) % LAYER_LINEARS];
    return &((const linear_view *)linear)->weight;
}

/* The same place in the view that is being built, whose layers are ours to write. */
static weight_view *weight_to(struct model_panels *panels, size_t index) {
    return (weight_view *)(uintptr_t)weight_at(&panels->view, index);
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
    size_t together, before; /* panels of all of them, and of those in front of this one */
} repack;

static bool lies_ready(const weight_view *weight) {
    return weight->layout == QUANT_LAYOUT_PANELS && (uintptr_t)weight->data % PANEL_LINE_BYTES == 0;
}

static avo_status repack_of(const avo_model *model, const weight_view *weight,
                            const panels_options *options, repack *out, avo_error *error) {
    *out = (repack){.from = *weight, .to = *weight};
    out->needed = !lies_ready(weight) || options->copy_mapped;
    out->to.type = weight_repack_type(weight);
    out->to.layout = QUANT_LAYOUT_PANELS;
    out->to.column_stride = 0;
    uint64_t panel_bytes;
    uint64_t bytes;
    if (!weight_panel_bytes(out->to.type, weight->k, &panel_bytes) ||
        !weight_bytes(out->to.type, QUANT_LAYOUT_PANELS, weight->rows, weight->k, &bytes) ||
        bytes > SIZE_MAX)
        return status_fail(error, AVO_ERROR_UNSUPPORTED,
                           "%s: a matrix of %u × %u in type %s cannot be repacked",
                           model->source->path, weight->rows, weight->k, quant_name(weight->type));
    out->panel_bytes = (size_t)panel_bytes;
    out->bytes = (size_t)bytes;
    return AVO_OK;
}

static void count_group(panels_plan *plan, const repack *matrix) {
    panels_group *group = plan->group;
    for (uint32_t i = 0; i < plan->groups; i++, group++)
        if (group->from == matrix->from.type && group->to == matrix->to.type &&
            group->layout == matrix->from.layout && group->repacked == matrix->needed)
            break;
    if (group == plan->group + PANELS_GROUPS_MAX)
        group--; /* more kinds than a file can reasonably have: the last one takes the rest */
    if (group == plan->group + plan->groups) {
        plan->groups++;
        *group = (panels_group){.from = matrix->from.type,
                                .to = matrix->to.type,
                                .layout = matrix->from.layout,
                                .repacked = matrix->needed};
    }
    group->matrices++;
    group->bytes += matrix->bytes;
}

/* Bytes of the file that nobody reads again. */
static uint64_t stored_bytes(const weight_view *weight) {
    uint64_t bytes = 0;
    bool known = weight_bytes(weight->type, weight->layout, weight->rows, weight->k, &bytes);
    return known ? bytes : 0;
}

static avo_status measure(const avo_model *model, const panels_options *options, panels_plan *plan,
                          size_t *region_bytes, avo_error *error) {
    const model_view *view = &model->view;
    size_t total = 0;
    *plan = (panels_plan){.mapped_bytes = model->weight_bytes};
    for (size_t i = 0; i < linear_count(view); i++) {
        const weight_view *weight = weight_at(view, i);
        if (weight->data == NULL)
            continue;
        repack matrix;
        AVO_TRY(repack_of(model, weight, options, &matrix, error));
        count_group(plan, &matrix);
        if (!matrix.needed)
            continue;
        size_t rounded;
        if (!size_round_up(matrix.bytes, MATRIX_ALIGNMENT, &rounded) ||
            !size_add(total, rounded, &total))
            return status_fail(error, AVO_ERROR_LIMIT, "%s: repacked weights: too large",
                               model->source->path);
        if (weight->data != view->embedding.data) /* tied: rows are still looked up there */
            plan->mapped_bytes -= stored_bytes(weight);
    }
    *region_bytes = total;
    if (total > 0 && !region_round(total, options->region.huge, &total))
        return status_fail(error, AVO_ERROR_LIMIT, "%s: repacked weights: too large",
                           model->source->path);
    plan->repack_bytes = total;
    plan->missing_bytes = total;
    return AVO_OK;
}

avo_status model_panels_plan(const avo_model *model, const panels_options *options,
                             panels_plan *plan, avo_error *error) {
    size_t region_bytes;
    AVO_TRY(measure(model, options, plan, &region_bytes, error));
    pthread_mutex_lock(&model->panels->mutex);
    if (model->panels->built) {
        plan->missing_bytes = 0;
        plan->repack_bytes = model->panels->region.bytes; /* as its builder wanted it */
    }
    pthread_mutex_unlock(&model->panels->mutex);
    return AVO_OK;
}

/* ---- The walk ---- */

typedef struct walk {
    const avo_model *model;
    const repack *matrices; /* those that are needed */
    size_t count;
    uint64_t total;
    const panels_options *options;
    uint64_t reported, forgotten; /* of `done`, when worker 0 last did so */
    atomic_uint_fast64_t done;
    atomic_bool cancelled;
} walk;

static void repack_panel(const repack *matrix, size_t panel) {
    uint8_t *out = (uint8_t *)(uintptr_t)matrix->to.data + panel * matrix->panel_bytes;
    weight_repack_panel(&matrix->from, panel, matrix->to.type, out);
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
        source_forget(walk->model->source);
    }
    if (walk->options->progress == NULL || done < walk->reported + PROGRESS_BYTES)
        return;
    walk->reported = done;
    if (!walk->options->progress(walk->options->progress_context, "repack", done, walk->total))
        atomic_store_explicit(&walk->cancelled, true, memory_order_relaxed);
}

static void repack_share(void *context, uint32_t worker, uint32_t workers) {
    walk *walk = context;
    for (size_t i = 0; i < walk->count; i++) {
        const repack *matrix = &walk->matrices[i];
        size_t begin;
        size_t end;
        team_share(matrix->together, worker, workers, &begin, &end);
        size_t last = size_min(end - size_min(end, matrix->before), weight_panels(&matrix->from));
        for (size_t panel = begin - size_min(begin, matrix->before); panel < last; panel++) {
            if (atomic_load_explicit(&walk->cancelled, memory_order_relaxed))
                return;
            repack_panel(matrix, panel);
            account(walk, worker, matrix->panel_bytes);
        }
    }
}

static avo_status repack_all(walk *walk, team *team, avo_error *error) {
    const panels_options *options = walk->options;
    team_run(team, repack_share, walk);
    source_forget(walk->model->source);
    uint64_t done = atomic_load_explicit(&walk->done, memory_order_relaxed);
    bool cancelled = atomic_load_explicit(&walk->cancelled, memory_order_relaxed);
    if (!cancelled && options->progress != NULL && walk->count > 0)
        cancelled = !options->progress(options->progress_context, "repack", done, walk->total);
    if (cancelled)
        return status_fail(error, AVO_ERROR_CANCELLED,
                           "repacking was cancelled after %llu of %llu bytes",
                           (unsigned long long)done, (unsigned long long)walk->total);
    return AVO_OK;
}

/* ---- Building ---- */

/* Which part of the kernels' product the matrix is. */
static void find_neighbours(const model_view *view, size_t index, repack *matrix) {
    size_t place = index == 0 ? LAYER_LINEARS : (index - 1) % LAYER_LINEARS;
    matrix->together = weight_panels(&matrix->from);
    if (index > view->layers * LAYER_LINEARS || place > 2)
        return;
    matrix->together = 0;
    for (size_t other = 0; other < 3; other++) {
        matrix->before = other == place ? matrix->together : matrix->before;
        matrix->together += weight_panels(weight_at(view, index - place + other));
    }
}

/* Fills `list` with what must be repacked, each matrix at its place of the region, and the new view
 * with where everything will be. */
static avo_status lay_out(const avo_model *model, const panels_options *options, repack *list,
                          walk *walk, avo_error *error) {
    struct model_panels *panels = model->panels;
    uint8_t *at = panels->region.data;
    for (size_t i = 0; i < linear_count(&model->view); i++) {
        const weight_view *weight = weight_at(&model->view, i);
        repack matrix;
        if (weight->data == NULL)
            continue;
        AVO_TRY(repack_of(model, weight, options, &matrix, error));
        if (!matrix.needed)
            continue;
        find_neighbours(&model->view, i, &matrix);
        matrix.to.data = at;
        at += (matrix.bytes + MATRIX_ALIGNMENT - 1) / MATRIX_ALIGNMENT * MATRIX_ALIGNMENT;
        *weight_to(panels, i) = matrix.to;
        list[walk->count++] = matrix;
        walk->total += matrix.bytes;
    }
    return AVO_OK;
}

static avo_status fill(const avo_model *model, team *team, const panels_options *options,
                       avo_error *error) {
    size_t count = linear_count(&model->view);
    repack *list = allocator_take_array(model->allocator, count, sizeof(*list));
    if (list == NULL)
        return status_no_memory(error, "the list of matrices", count * sizeof(*list));
    walk walk = {.model = model, .matrices = list, .options = options};
    avo_status status = lay_out(model, options, list, &walk, error);
    if (status == AVO_OK && walk.count > 0)
        status = repack_all(&walk, team, error);
    allocator_give(model->allocator, list, count * sizeof(*list));
    return status;
}

static void clear(const avo_model *model) {
    struct model_panels *panels = model->panels;
    region_close(&panels->region);
    allocator_give(model->allocator, panels->layers, model->view.layers * sizeof(layer_view));
    panels->layers = NULL;
    panels->view = (model_view){0};
}

static avo_status take_memory(const avo_model *model, const panels_options *options,
                              avo_error *error) {
    struct model_panels *panels = model->panels;
    panels_plan plan;
    size_t bytes;
    AVO_TRY(measure(model, options, &plan, &bytes, error));
    size_t layers = model->view.layers;
    panels->layers = allocator_take_array(model->allocator, layers, sizeof(layer_view));
    if (panels->layers == NULL)
        return status_no_memory(error, "layers", layers * sizeof(layer_view));
    memcpy(panels->layers, model->view.layer, layers * sizeof(layer_view));
    panels->view = model->view;
    panels->view.layer = panels->layers;
    if (bytes == 0)
        return AVO_OK;
    avo_status status = region_open(model->allocator, bytes, &options->region,
                                    "repacked weights (`avocet pack` makes a file that needs none)",
                                    &panels->region, error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", model->source->path);
}

/* Locks what steps read from the file. */
static avo_status lock_weight(const avo_model *model, const weight_view *weight, avo_error *error) {
    if (weight->data == NULL)
        return AVO_OK;
    avo_status status =
        region_lock(weight->data, (size_t)stored_bytes(weight), "mapped weights", error);
    return status == AVO_OK ? AVO_OK : status_prefix(error, status, "%s", model->source->path);
}

static avo_status lock_mapped(const avo_model *model, avo_error *error) {
    const model_view *view = &model->panels->view;
    AVO_TRY(lock_weight(model, &view->embedding, error));
    AVO_TRY(lock_weight(model, &view->position_embedding, error));
    for (size_t i = 0; i < linear_count(view); i++) {
        const weight_view *weight = weight_at(view, i);
        if (weight->data == weight_at(&model->view, i)->data)
            AVO_TRY(lock_weight(model, weight, error));
    }
    return AVO_OK;
}

static avo_status build(const avo_model *model, team *team, const panels_options *options,
                        avo_error *error) {
    if (options->region.huge)
        source_ask_huge(model->source);
    AVO_TRY(take_memory(model, options, error));
    AVO_TRY(fill(model, team, options, error));
    return options->region.lock ? lock_mapped(model, error) : AVO_OK;
}

avo_status model_panels(const avo_model *model, team *team, const panels_options *options,
                        const model_view **out, avo_error *error) {
    struct model_panels *panels = model->panels;
    *out = NULL;
    pthread_mutex_lock(&panels->mutex);
    avo_status status = AVO_OK;
    if (!panels->built) {
        status = build(model, team, options, error);
        if (status != AVO_OK)
            clear(model);
        panels->built = status == AVO_OK;
    }
    if (panels->built)
        *out = &panels->view;
    pthread_mutex_unlock(&panels->mutex);
    return status;
}

const region *model_panels_region(const avo_model *model) {
    pthread_mutex_lock(&model->panels->mutex);
    bool there = model->panels->built && model->panels->region.data != NULL;
    pthread_mutex_unlock(&model->panels->mutex);
    return there ? &model->panels->region : NULL;
}

avo_status model_panels_init(avo_model *model, avo_error *error) {
    model->panels = allocator_take_array(model->allocator, 1, sizeof(*model->panels));
    if (model->panels == NULL)
        return status_no_memory(error, "the model's panels", sizeof(*model->panels));
    pthread_mutex_init(&model->panels->mutex, NULL);
    return AVO_OK;
}

void model_panels_close(avo_model *model) {
    if (model->panels == NULL)
        return;
    clear(model);
    pthread_mutex_destroy(&model->panels->mutex);
    allocator_give(model->allocator, model->panels, sizeof(*model->panels));
}
