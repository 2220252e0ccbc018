/* Calibration: an observed engine walks the text, and for every input of a matrix the sums of
 * x_i · x_j are kept. Each sum belongs to one worker and grows row after row, so the file does not
 * depend on the number of threads. Where the sums of all inputs are more than the memory allows,
 * the text is walked again for the next few. */
#include "pack/calibrate.h"

#include "base/arena.h"
#include "base/checked.h"
#include "engine/observe.h"
#include "model/model.h"
#include "pack/calibration.h"
#include "pack/outer.h"
#include "pack/pack_int.h"

#include <math.h>
#include <stdio.h>

#define ROWS           256 /* of a step: a sum grows by so many rows at a time */
#define LOGIT_SHARE    4   /* of these, a quarter goes through the head */
#define MEMORY_DEFAULT ((uint64_t)1 << 30)
#define TILE           OUTER_TILE

typedef struct moments {
    float *sums; /* [k][k], lower tiles; NULL: not in this pass */
    uint32_t k;
    uint64_t samples;
} moments;

typedef struct calibrator {
    const avo_model *model;
    const calibrate_options *options;
    const int32_t *tokens;
    size_t count, windows;
    moments *inputs; /* [input_slots] */
    uint32_t input_slots;
    uint32_t *order; /* [entries] slots in the order of the file */
    calibration_entry *entries;
    uint32_t entry_count;
    uint32_t workers;
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    uint64_t done, total; /* tokens over all passes */
    avo_error *error;
} calibrator;

/* ---- Sums ---- */

static void add_edge(const float *x, size_t stride, uint32_t rows, size_t i, size_t i_end, size_t j,
                     size_t j_end, float *out, size_t k) {
    for (size_t a = i; a < i_end; a++)
        for (size_t b = j; b < j_end; b++) {
            float sum = 0;
            for (uint32_t row = 0; row < rows; row++)
                sum += x[row * stride + b] * x[row * stride + a];
            out[a * k + b] += sum;
        }
}

static void see(void *context, uint32_t worker, uint32_t layer, observed_input input,
                const float *x, size_t stride, uint32_t rows, uint32_t k) {
    calibrator *c = context;
    uint32_t layers = c->model->view.layers;
    moments *m = &c->inputs[input < OBSERVED_HEAD
                                ? layer * OBSERVED_HEAD + (uint32_t)input
                                : layers * OBSERVED_HEAD + (uint32_t)input - OBSERVED_HEAD];
    if (m->sums == NULL)
        return;
    if (worker == 0)
        m->samples += rows;
    for (size_t i = (size_t)worker * TILE; i < k; i += (size_t)c->workers * TILE)
        for (size_t j = 0; j <= i; j += TILE) {
            if (i + TILE > k) {
                add_edge(x, stride, rows, i, k, j, size_min(j + TILE, k), m->sums, k);
                continue;
            }
            outer_add(x, stride, rows, i, j, 1.0f, m->sums, k);
        }
}

/* ---- What there is to see ---- */

static void add_input(calibrator *c, uint32_t slot, uint32_t k, const char *format,
                      uint32_t layer) {
    calibration_entry *entry = &c->entries[c->entry_count];
    snprintf(entry->name, sizeof(entry->name), format, layer);
    entry->k = k;
    c->inputs[slot].k = k;
    c->order[c->entry_count++] = slot;
}

static avo_status list_inputs(calibrator *c, arena *arena) {
    const model_view *view = &c->model->view;
    c->input_slots = view->layers * OBSERVED_HEAD + OBSERVED_INPUTS - OBSERVED_HEAD;
    c->inputs = arena_take_array(arena, c->input_slots, sizeof(*c->inputs));
    c->order = arena_take_array(arena, c->input_slots, sizeof(*c->order));
    c->entries = arena_take_array(arena, c->input_slots, sizeof(*c->entries));
    if (c->inputs == NULL || c->order == NULL || c->entries == NULL)
        return status_no_memory(c->error, "the list of inputs", c->input_slots);
    uint32_t top = view->layers * OBSERVED_HEAD;
    if (view->embedding_project.weight.data != NULL)
        add_input(c, top + OBSERVED_PROJECT_IN - OBSERVED_HEAD, view->embedding.k, "project_in", 0);
    for (uint32_t i = 0; i < view->layers; i++) {
        const layer_view *layer = &view->layer[i];
        uint32_t slot = i * OBSERVED_HEAD;
        add_input(c, slot + OBSERVED_ATTENTION, view->width, "blk.%u.attn", i);
        add_input(c, slot + OBSERVED_OUTPUT, layer->output.weight.k, "blk.%u.attn_output", i);
        add_input(c, slot + OBSERVED_FEED_FORWARD, view->width, "blk.%u.ffn", i);
        if (layer->experts.count == 0) /* inputs of experts are not shown */
            add_input(c, slot + OBSERVED_DOWN, layer->feed_forward, "blk.%u.ffn_down", i);
    }
    if (view->head_project.weight.data != NULL)
        add_input(c, top + OBSERVED_PROJECT_OUT - OBSERVED_HEAD, view->width, "project_out", 0);
    add_input(c, top, view->head.weight.k, "output", 0);
    return AVO_OK;
}

/* ---- The walk ---- */

static avo_status compute(calibrator *c, const int32_t *tokens, size_t rows) {
    avo_batch_clear(c->batch);
    size_t logits = (rows + LOGIT_SHARE - 1) / LOGIT_SHARE;
    avo_status status = avo_batch_add_scored(c->batch, c->session, tokens, rows, logits);
    AVO_THEN(status, avo_step(c->engine, c->batch));
    if (status != AVO_OK)
        return status_fail(c->error, status, "%s", avo_batch_error(c->batch)->text);
    c->done += rows;
    if (c->options->progress != NULL &&
        !c->options->progress(c->options->progress_context, "calibrating", c->done, c->total))
        return status_fail(c->error, AVO_ERROR_CANCELLED, "calibration was cancelled");
    return AVO_OK;
}

static avo_status walk_text(calibrator *c) {
    size_t context = c->options->context;
    for (size_t begin = 0; begin < c->count; begin += context) {
        size_t end = size_min(begin + context, c->count);
        avo_batch_clear(c->batch);
        AVO_TRY(avo_session_truncate(c->session, 0, c->error));
        int32_t first = c->options->begin;
        for (size_t at = begin; at < end;) {
            size_t rows = size_min(end - at, ROWS);
            const int32_t *tokens = c->tokens + at;
            if (at == begin && first >= 0 && first != tokens[0]) {
                AVO_TRY(compute(c, &first, 1));
                at++;
                continue;
            }
            AVO_TRY(compute(c, tokens, rows));
            at += rows;
        }
    }
    return AVO_OK;
}

/* Entries [first, …) whose sums fit the memory; at least one. */
static uint32_t pass_end(const calibrator *c, uint32_t first) {
    uint64_t limit = c->options->memory != 0 ? c->options->memory : MEMORY_DEFAULT;
    uint64_t bytes = 0;
    uint32_t end = first;
    for (; end < c->entry_count; end++) {
        bytes += (uint64_t)c->entries[end].k * c->entries[end].k * sizeof(float);
        if (bytes > limit && end > first)
            break;
    }
    return end;
}

/* A damaged model, or one that overflows, is told of here and not when somebody packs with it. */
static avo_status add_moments(calibrator *c, uint32_t entry, calibration_writer *writer) {
    const moments *m = &c->inputs[c->order[entry]];
    double sum = 0;
    for (size_t i = 0; i < (size_t)m->k * m->k; i++)
        sum += (double)m->sums[i];
    if (!isfinite(sum))
        return status_fail(
            c->error, AVO_ERROR_FORMAT,
            "%s: the model computes NaN or Inf here; one of its weights may be damaged",
            c->entries[entry].name);
    return calibration_writer_add(writer, m->sums, m->samples, c->error);
}

static avo_status run_pass(calibrator *c, uint32_t first, uint32_t end,
                           calibration_writer *writer) {
    avo_status status = AVO_OK;
    for (uint32_t i = first; i < end && status == AVO_OK; i++) {
        moments *m = &c->inputs[c->order[i]];
        m->sums = allocator_take_array(NULL, (size_t)m->k * m->k, sizeof(float));
        if (m->sums == NULL)
            status = status_no_memory(c->error, "second moments", (size_t)m->k * m->k * 4);
    }
    AVO_THEN(status, walk_text(c));
    for (uint32_t i = first; i < end && status == AVO_OK; i++)
        status = add_moments(c, i, writer);
    for (uint32_t i = first; i < end; i++) {
        moments *m = &c->inputs[c->order[i]];
        allocator_give(NULL, m->sums, (size_t)m->k * m->k * sizeof(float));
        m->sums = NULL;
    }
    return status;
}

static avo_status open_engine(calibrator *c, const step_observer *observer) {
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    engine.threads = c->options->threads;
    engine.context_max = c->options->context;
    engine.rope_context = c->options->context;
    engine.rows_max = (uint32_t)size_min(ROWS, c->options->context);
    engine.logits_max = (engine.rows_max + LOGIT_SHARE - 1) / LOGIT_SHARE;
    AVO_TRY(engine_open_observed(c->model, &engine, observer, &c->engine, c->error));
    c->workers = engine_workers(c->engine);
    AVO_TRY(avo_session_open(c->engine, NULL, &c->session, c->error));
    return avo_batch_open(c->engine, &c->batch, c->error);
}

static avo_status run(calibrator *c, const char *path, calibrate_report *report) {
    for (uint32_t first = 0; first < c->entry_count; first = pass_end(c, first))
        report->passes++;
    c->total = (uint64_t)c->count * report->passes;
    calibration_writer writer;
    AVO_TRY(calibration_writer_open(&writer, path, c->entries, c->entry_count, c->error));
    avo_status status = AVO_OK;
    for (uint32_t first = 0; first < c->entry_count && status == AVO_OK;) {
        uint32_t end = pass_end(c, first);
        status = run_pass(c, first, end, &writer);
        first = end;
    }
    report->tokens = c->count;
    report->inputs = c->entry_count;
    report->file_bytes = writer.file.written;
    if (status == AVO_OK)
        return calibration_writer_commit(&writer, c->count, c->error);
    calibration_writer_abort(&writer);
    return status;
}

avo_status calibrate_model(const avo_model *model, const int32_t *tokens, size_t count,
                           const calibrate_options *options, const char *path,
                           calibrate_report *report, avo_error *error) {
    *report = (calibrate_report){0};
    if (count == 0 || options->context == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "there are no tokens to calibrate with");
    AVO_TRY(source_spare(model->source, path, error));
    calibrator c = {.model = model,
                    .options = options,
                    .tokens = tokens,
                    .count = options->tokens != 0 ? size_min(count, options->tokens) : count,
                    .error = error};
    step_observer observer = {see, &c};
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    avo_status status = list_inputs(&c, &arena);
    AVO_THEN(status, open_engine(&c, &observer));
    AVO_THEN(status, run(&c, path, report));
    avo_batch_close(c.batch);
    avo_session_close(c.session);
    avo_engine_close(c.engine);
    arena_free(&arena);
    return status;
}
