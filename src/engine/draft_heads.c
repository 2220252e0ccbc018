/* Draft heads: opening, memory, and the hidden states that they read. */
#include "engine/draft_heads_int.h"

#include "base/checked.h"

#include <string.h>

#define FIRST_BYTES_NS 20.0 /* bytes per ns before a pass was timed */

/* ---- The choice ---- */

draft_kind draft_heads_kind(heads_kind kind) {
    static const draft_kind kinds[HEADS_KINDS] = {
        [HEADS_MEDUSA] = DRAFT_MEDUSA, [HEADS_EAGLE] = DRAFT_EAGLE, [HEADS_LAYERS] = DRAFT_LAYERS};
    return kinds[kind];
}

avo_status draft_heads_choose(const avo_model *model, const avo_engine_options *options,
                              draft_kinds kinds, heads_choice *choice, avo_error *error) {
    *choice = (heads_choice){{NULL}};
    for (size_t i = 0; i < options->draft_heads_count; i++) {
        const avo_heads *heads = options->draft_heads[i];
        heads_kind kind = heads->config.kind;
        if (heads->config.width != model->view.width ||
            heads->config.layers != model->view.layers ||
            heads->config.vocabulary != model->view.vocabulary)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "draft_heads[%zu]: %s was opened for another model", i, heads->path);
        if (choice->of[kind] != NULL)
            return status_fail(error, AVO_ERROR_ARGUMENT,
                               "draft_heads[%zu]: %s and %s are both %s heads; give one of them", i,
                               choice->of[kind]->path, heads->path, heads_kind_name(kind));
        choice->of[kind] = heads;
    }
    for (uint32_t kind = 0; kind < HEADS_KINDS; kind++)
        if ((kinds & DRAFT_BIT(draft_heads_kind((heads_kind)kind))) == 0)
            choice->of[kind] = NULL;
    return AVO_OK;
}

static bool add_tap(uint32_t layer, uint32_t *tap, uint32_t *taps) {
    uint32_t at = 0;
    while (at < *taps && tap[at] < layer)
        at++;
    if (at < *taps && tap[at] == layer)
        return true;
    if (*taps == DEVICE_TAPS_MAX)
        return false;
    memmove(tap + at + 1, tap + at, (*taps - at) * sizeof(*tap));
    tap[at] = layer;
    (*taps)++;
    return true;
}

bool draft_heads_taps(const heads_choice *choice, uint32_t *tap, uint32_t *taps) {
    for (uint32_t kind = 0; kind < HEADS_KINDS; kind++) {
        const avo_heads *heads = choice->of[kind];
        for (uint32_t i = 0; heads != NULL && i < heads->config.taps; i++)
            if (!add_tap(heads->config.tap[i], tap, taps))
                return false;
    }
    return true;
}

/* ---- Memory ---- */

/* Few rows keep scratch small, and longer prompts are fed in several passes. */
static uint32_t rows_of_pass(const draft_heads_options *options) {
    uint64_t rows = (uint64_t)options->drafters * HEADS_MEDUSA_MAX;
    if (rows < HEADS_ROWS_MIN)
        return HEADS_ROWS_MIN;
    return rows < HEADS_ROWS_MAX ? (uint32_t)rows : HEADS_ROWS_MAX;
}

static head_program_options program_options(const draft_heads_options *options,
                                            const avo_allocator *allocator, const avo_heads *heads,
                                            const model_view *view) {
    bool layers = view->layers > 0;
    /* One row of each drafter has logits, or one of each head; a product gives all of its rows. */
    uint32_t rows = rows_of_pass(options), logits = rows;
    if (layers)
        logits = options->drafters;
    else if (view == &heads->medusa_head && options->drafters * heads->config.heads < rows)
        logits = options->drafters * heads->config.heads;
    for (uint32_t i = 0; i < HEADS_MEDUSA_MAX; i++)
        if (view == &heads->medusa_output[i])
            logits = options->drafters;
    return (head_program_options){
        .allocator = allocator,
        .engine = options->engine,
        .view = view,
        .path = heads->path,
        .rows_max = rows,
        .logits_max = logits,
        .context_max = HEADS_CONTEXT,
        .pages = layers ? options->drafters * kv_pages_for(HEADS_CONTEXT) : 0,
        .beside = options->target != NULL ? options->target->stream[0].stream : NULL,
        .lender = options->lender};
}

/* The views of a unit, in the order fuse, input, layers, blocks, outputs; those without weights are
 * not there. */
static void unit_views(const avo_heads *heads, const model_view *views[HEAD_PROGRAMS]) {
    bool medusa = heads->config.kind == HEADS_MEDUSA;
    uint32_t count = 0;
    views[count++] = &heads->fuse;
    views[count++] = medusa ? &heads->medusa_states : &heads->input;
    views[count++] = medusa ? &heads->medusa_head : &heads->layers;
    for (uint32_t i = 0; i < HEADS_BLOCKS_MAX; i++)
        views[count++] = &heads->medusa_block[i];
    for (uint32_t i = 0; i < HEADS_MEDUSA_MAX; i++)
        views[count++] = &heads->medusa_output[i];
    for (uint32_t i = 0; i < HEAD_PROGRAMS; i++)
        if (views[i]->head.weight.data == NULL)
            views[i] = NULL;
}

void head_unit_programs(head_unit *unit, head_program *programs[HEAD_PROGRAMS]) {
    uint32_t count = 0;
    programs[count++] = &unit->fuse;
    programs[count++] = &unit->input;
    programs[count++] = &unit->layers;
    for (uint32_t i = 0; i < HEADS_BLOCKS_MAX; i++)
        programs[count++] = &unit->block[i];
    for (uint32_t i = 0; i < HEADS_MEDUSA_MAX; i++)
        programs[count++] = &unit->output[i];
}

typedef struct heads_sizes {
    uint32_t kept, taps, x;
    size_t ring, arrays;
} heads_sizes;

static heads_sizes measure(const draft_heads_options *options, uint32_t width) {
    uint32_t tap[DEVICE_TAPS_MAX];
    heads_sizes sizes = {.kept = DRAFTS_MAX + 2, .x = 1};
    (void)draft_heads_taps(&options->heads, tap, &sizes.taps);
    for (uint32_t kind = 0; kind < HEADS_KINDS; kind++) {
        const avo_heads *heads = options->heads.of[kind];
        if (heads == NULL)
            continue;
        if (kind == HEADS_EAGLE)
            sizes.kept = HEADS_FEED_MAX + DRAFTS_MAX + 2;
        if (heads->config.heads > sizes.x)
            sizes.x = heads->config.heads;
    }
    sizes.ring = (size_t)options->drafters * sizes.kept * sizes.taps * width * sizeof(float);
    sizes.arrays =
        rows_of_pass(options) * ((size_t)(sizes.taps + 2 + sizes.x) * width + 4) * sizeof(float) +
        options->drafters *
            (sizeof(batch_segment) + sizeof(uint32_t) + sizeof(head_feed) +
             HEADS_KINDS * sizeof(head_rows) + kv_pages_for(HEADS_CONTEXT) * sizeof(uint32_t));
    return sizes;
}

uint64_t draft_heads_bytes(const avo_model *model, const draft_heads_options *options) {
    heads_sizes sizes = measure(options, model->view.width);
    uint64_t bytes = sizeof(draft_heads) + sizes.ring + sizes.arrays;
    for (uint32_t kind = 0; kind < HEADS_KINDS; kind++) {
        const avo_heads *heads = options->heads.of[kind];
        const model_view *views[HEAD_PROGRAMS];
        if (heads == NULL)
            continue;
        bytes += sizeof(*heads) + heads->arena.used_bytes + heads->rest_bytes;
        unit_views(heads, views);
        for (uint32_t i = 0; i < HEAD_PROGRAMS; i++) {
            if (views[i] == NULL)
                continue;
            head_program_options own = program_options(options, model->allocator, heads, views[i]);
            bytes += head_program_bytes(options->device, &own);
        }
    }
    return bytes;
}

/* ---- Opening ---- */

static avo_status take(draft_heads *own, size_t count, size_t size, void *out, avo_error *error) {
    void *array = count == 0 ? NULL : arena_take_array(&own->arena, count, size);
    if (count > 0 && array == NULL)
        return status_no_memory(error, "draft heads", count * size);
    memcpy(out, &array, sizeof(array));
    return AVO_OK;
}

static avo_status take_arrays(draft_heads *own, const heads_sizes *sizes, avo_error *error) {
    head_batch *batch = &own->batch;
    size_t width = own->width, rows = own->rows_max;
    size_t pages = kv_pages_for(HEADS_CONTEXT);
    AVO_TRY(take(own, sizes->ring / sizeof(float), sizeof(float), &own->ring, error));
    AVO_TRY(take(own, own->drafters, sizeof(head_feed), &own->feed, error));
    AVO_TRY(take(own, own->drafters * pages, sizeof(uint32_t), &own->pages, error));
    AVO_TRY(take(own, rows * sizes->taps * width, sizeof(float), &batch->fused, error));
    AVO_TRY(take(own, rows * 2 * width, sizeof(float), &batch->joined, error));
    AVO_TRY(take(own, rows * sizes->x * width, sizeof(float), &batch->x, error));
    AVO_TRY(take(own, rows, sizeof(int32_t), &batch->token, error));
    AVO_TRY(take(own, rows, sizeof(uint32_t), &batch->position, error));
    AVO_TRY(take(own, rows, sizeof(uint32_t), &batch->row_segment, error));
    AVO_TRY(take(own, rows, sizeof(uint32_t), &batch->logit_row, error));
    AVO_TRY(take(own, own->drafters, sizeof(batch_segment), &batch->segment, error));
    AVO_TRY(take(own, own->drafters, sizeof(uint32_t), &batch->request, error));
    for (uint32_t i = 0; i < own->drafters * pages; i++)
        own->pages[i] = i;
    return AVO_OK;
}

static uint32_t place_of(const uint32_t *list, uint32_t count, uint32_t layer) {
    uint32_t at = 0;
    while (at < count && list[at] != layer)
        at++;
    return at;
}

static bool used_in_place(const draft_heads *own, const avo_heads *heads, const model_view *view) {
    weights_source source = {.model = view, .path = heads->path};
    weights_plan plan = {0};
    avo_error error;
    return device_weights_plan(own->target->device, &source, &plan, &error) == AVO_OK &&
           plan.copied_bytes == 0;
}

static avo_status open_unit(draft_heads *own, const draft_heads_options *options, heads_kind kind,
                            const uint32_t *tap, avo_error *error) {
    head_unit *unit = &own->unit[kind];
    const avo_heads *heads = options->heads.of[kind];
    head_program *programs[HEAD_PROGRAMS];
    const model_view *views[HEAD_PROGRAMS];
    unit->heads = heads;
    head_unit_programs(unit, programs);
    for (uint32_t i = 0; i < heads->config.taps; i++)
        unit->tap[i] = place_of(tap, own->taps, heads->config.tap[i]);
    unit_views(heads, views);
    bool whole = views[2] == NULL || used_in_place(own, heads, views[2]);
    while (!whole) /* opening copies them; another engine may be at it */
        whole = heads_gather_more(heads, UINT32_MAX);
    for (uint32_t i = 0; i < HEAD_PROGRAMS; i++) {
        if (views[i] == NULL)
            continue;
        head_program_options program = program_options(options, own->allocator, heads, views[i]);
        AVO_TRY(head_program_open(&program, programs[i], error));
    }
    for (uint32_t i = 0; i < HEADS_PASSES; i++)
        unit->pass_ns[i] = (double)(heads->arena.used_bytes + heads->rest_bytes) / FIRST_BYTES_NS;
    if (kind == HEADS_MEDUSA)
        return AVO_OK;
    return take(own, own->drafters, sizeof(head_rows), &unit->rows, error);
}

static avo_status open_parts(draft_heads *own, const draft_heads_options *options,
                             avo_error *error) {
    const engine_plan *plan = &own->target->plan;
    heads_sizes sizes = measure(options, own->width);
    uint32_t tap[DEVICE_TAPS_MAX];
    own->kept = sizes.kept;
    (void)draft_heads_taps(&options->heads, tap, &own->taps);
    for (uint32_t i = 0; i < own->taps; i++)
        own->tap[i] = place_of(plan->tap, plan->taps, tap[i]);
    AVO_TRY(take_arrays(own, &sizes, error));
    for (uint32_t kind = 0; kind < HEADS_KINDS; kind++)
        if (options->heads.of[kind] != NULL)
            AVO_TRY(open_unit(own, options, (heads_kind)kind, tap, error));
    return AVO_OK;
}

avo_status draft_heads_open(const draft_heads_options *options, draft_heads **out,
                            avo_error *error) {
    *out = NULL;
    const avo_model *model = options->target->model;
    draft_heads *own = allocator_take_array(model->allocator, 1, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "draft heads", sizeof(*own));
    own->allocator = model->allocator;
    own->target = options->target;
    own->drafters = options->drafters;
    own->rows_max = rows_of_pass(options);
    own->width = model->view.width;
    arena_init(&own->arena, model->allocator, SIZE_MAX);
    avo_status status = open_parts(own, options, error);
    if (status != AVO_OK) {
        draft_heads_close(own);
        return status_prefix(error, status, "draft heads");
    }
    *out = own;
    return AVO_OK;
}

void draft_heads_close(draft_heads *own) {
    if (own == NULL)
        return;
    for (uint32_t kind = HEADS_KINDS; kind-- > 0;) {
        head_program *programs[HEAD_PROGRAMS];
        head_unit_programs(&own->unit[kind], programs);
        for (uint32_t i = HEAD_PROGRAMS; i-- > 0;)
            head_program_close(programs[i]);
    }
    arena_free(&own->arena);
    allocator_give(own->allocator, own, sizeof(*own));
}

void draft_heads_resize(draft_heads *own, uint32_t threads) {
    for (uint32_t kind = 0; kind < HEADS_KINDS; kind++) {
        head_program *programs[HEAD_PROGRAMS];
        head_unit_programs(&own->unit[kind], programs);
        for (uint32_t i = 0; i < HEAD_PROGRAMS; i++)
            if (programs[i]->stream != NULL)
                device_stream_resize(programs[i]->stream, threads);
    }
}

/* ---- Hidden states ---- */

void draft_heads_forget(draft_heads *own, const drafter *drafter) {
    own->feed[drafter_number(drafter)] = (head_feed){0};
}

void draft_heads_attach(draft_heads *own, const drafter *drafter, avo_session *session) {
    uint32_t number = drafter_number(drafter);
    own->feed[number] = (head_feed){.serial = session->serial};
    session->heads_drafter = number + 1;
    for (uint32_t kind = 0; kind < HEADS_KINDS; kind++)
        if (own->unit[kind].rows != NULL)
            own->unit[kind].rows[number].begun = false;
}

/* Taps of rows [row, row + count) of the step, which are the positions from `position` on. */
static bool copy_taps(draft_heads *own, device_stream *stream, uint32_t drafter, uint32_t row,
                      uint32_t position, uint32_t count) {
    size_t width = own->width;
    for (uint32_t tap = 0; tap < own->taps; tap++) {
        const float *from;
        avo_error error;
        if (device_read_tap(stream, own->tap[tap], row, count, &from, &error) != AVO_OK)
            return false;
        for (uint32_t i = 0; i < count; i++)
            memcpy(head_ring_row(own, drafter, position + i) + tap * width, from + i * width,
                   width * sizeof(float));
    }
    return true;
}

static void see_entry(draft_heads *own, const avo_batch *batch, uint32_t number) {
    const avo_session *session = batch->entries[number].session;
    uint32_t drafter = session->heads_drafter - 1, rows = batch->entries[number].rows;
    head_feed *feed = &own->feed[drafter];
    uint32_t end = session->computed + rows;
    uint32_t count = rows < own->kept ? rows : own->kept;
    if (session->computed > feed->end || session->computed < feed->begin)
        feed->begin = feed->end = end - count; /* rows between are missing, or all are new */
    if (!copy_taps(own, batch->stream->stream, drafter,
                   batch->segments[number].first + rows - count, end - count, count)) {
        feed->begin = feed->end = end;
        return;
    }
    feed->end = end;
    if (end - feed->begin > own->kept)
        feed->begin = end - own->kept;
}

void draft_heads_see(draft_heads *own, const avo_batch *batch) {
    for (uint32_t i = 0; own->taps > 0 && i < batch->entry_count; i++) {
        const avo_session *session = batch->entries[i].session;
        if (session != NULL && session->heads_drafter > 0 && session->ring_window == 0 &&
            own->feed[session->heads_drafter - 1].serial == session->serial)
            see_entry(own, batch, i);
    }
}

/* ---- Tests ---- */

void draft_heads_assume(draft_heads *own, double pass_ns) {
    own->assumed_ns = pass_ns;
}
