/* Streams of CPU devices: a team of threads and scratch for one step. A start computes at once on
 * the team, with the caller's thread among its workers, so that there is nothing to wait for. */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/float_mode.h"
#include "device/cpu/cpu.h"
#include "device/cpu/limits.h"

#include <assert.h>
#include <stdio.h>

/* A server and a chat wait for this when they start: a tenth of a second is enough for a figure
 * that dashboards show shares of. bench reads more and more often. */
#define READ_BYTES   ((size_t)128 << 20)
#define READ_SECONDS 0.06 /* with the first passes; a pass that has begun is not cut */

/* ---- Opening ---- */

/* Threads of a stream's team: all of them in the first, all but one in the second, since the first
 * always keeps one. */
static uint32_t stream_threads(const device *device, uint32_t index) {
    return index == 0 ? device->info.cpu.threads : device->info.cpu.threads - 1;
}

static uint32_t stream_phases(const cpu_device *cpu, const stream_shape *shape) {
    const backend *backend = &cpu->choice.backend;
    return backend->phases_max == NULL ? 0 : backend->phases_max(shape->model);
}

static bool stream_bytes(const device *device, const stream_shape *shape, uint64_t *bytes) {
    const cpu_device *cpu = (const cpu_device *)(const void *)device;
    scratch_sizes sizes;
    if (!cpu_scratch_measure(shape, stream_threads(device, shape->index), &cpu->choice.backend,
                             cpu->group, &sizes))
        return false;
    scratch_sizes lender;
    if (shape->lender != NULL &&
        cpu_scratch_measure(shape->lender, stream_threads(device, shape->lender->index),
                            &cpu->choice.backend, cpu->group, &lender))
        (void)cpu_scratch_borrow(&sizes, &lender);
    if (!device_memory_round(device, sizes.total, bytes))
        return false;
    *bytes += sizeof(cpu_stream) + phase_list_bytes(stream_phases(cpu, shape));
    return true;
}

/* Its own team, or that of the stream beside it where that has as many threads and room for as long
 * a program. */
static avo_status open_team(const device *device, const team_options *options, cpu_stream *stream,
                            avo_error *error) {
    device_stream *beside = stream->base.shape.beside;
    if (beside != NULL && beside->device->operations == device->operations) {
        team *theirs = cpu_stream_of(beside)->team;
        if (team_can_run(theirs, options->threads, options->phases)) {
            stream->team = theirs;
            stream->shares_team = true;
            return AVO_OK;
        }
    }
    return team_open_with(device->allocator, options, &stream->team, error);
}

static avo_status stream_open(device_stream *base, avo_error *error) {
    const device *device = base->device;
    const cpu_device *cpu = cpu_of(base->device);
    cpu_stream *stream = cpu_stream_of(base);
    const stream_shape *shape = &base->shape;
    /* The second stream's workers take their places from the other end. */
    team_options options = {.threads = stream_threads(device, shape->index),
                            .pin = cpu->pin,
                            .places = shape->index > 0 ? device->info.cpu.threads : 0,
                            .phases = stream_phases(cpu, shape)};
    AVO_TRY(open_team(device, &options, stream, error));
    if (options.phases > 0) {
        stream->phases_bytes = phase_list_bytes(options.phases);
        stream->phases_memory = allocator_take(device->allocator, stream->phases_bytes);
        if (stream->phases_memory == NULL)
            return status_no_memory(error, "the program of a step", stream->phases_bytes);
        phase_list_init(&stream->phases, options.phases, stream->phases_memory);
    }
    scratch_sizes sizes;
    if (!cpu_scratch_measure(shape, options.threads, &cpu->choice.backend, cpu->group, &sizes))
        return status_fail(error, AVO_ERROR_LIMIT,
                           "scratch for %u rows is too large; use fewer rows or a shorter context",
                           shape->rows_max);
    stream->sizes = sizes;
    const cpu_stream *lender = stream->shares_team ? cpu_stream_of(shape->beside) : NULL;
    bool borrows = lender != NULL && cpu_scratch_borrow(&sizes, &lender->sizes);
    AVO_TRY(region_open(cpu->data, sizes.total, &cpu->region, "scratch", &stream->region, error));
    cpu_scratch_cut(&sizes, shape, stream->region.data, &stream->scratch);
    if (borrows) {
        stream->scratch.worker = lender->scratch.worker;
        stream->scratch.shared = lender->scratch.shared;
        stream->sizes = sizes; /* nobody borrows from it */
    }
    stream->workers_max = options.threads;
    uint32_t decode = device->info.cpu.decode_threads;
    tuner_open(&stream->tuner, options.threads, decode < options.threads ? decode : options.threads,
               options.threads);
    return AVO_OK;
}

static void stream_close(device_stream *base) {
    cpu_stream *stream = cpu_stream_of(base);
    if (!stream->shares_team)
        team_close(stream->team);
    region_close(&stream->region);
    allocator_give(base->device->allocator, stream->phases_memory, stream->phases_bytes);
}

static void stream_resize(device_stream *stream, uint32_t threads) {
    cpu_stream_of(stream)->workers_max = threads;
}

static uint32_t stream_workers(const device_stream *stream) {
    return ((const cpu_stream *)(const void *)stream)->workers_max;
}

static void stream_figures_of(const device_stream *base, stream_figures *figures) {
    const cpu_stream *stream = (const cpu_stream *)(const void *)base;
    figures->phases = stream->phases.count;
    if (base->device->info.cpu.tuned)
        tuner_text(&stream->tuner, figures->threads, sizeof(figures->threads));
    const group_stream *group = &stream->group;
    if (group->steps > 0)
        snprintf(figures->ranks, sizeof(figures->ranks),
                 "rank %u of %u: %llu steps, each with %.0f exchanges, %.1f KiB sent, %.3f ms in "
                 "exchanges",
                 group->group->rank, group->group->ranks, (unsigned long long)group->steps,
                 (double)group->exchanges / (double)group->steps,
                 (double)group->sent_bytes / (double)group->steps / 1024.0,
                 (double)group->waited_ns / (double)group->steps * 1e-6);
}

/* Worker 0 is the thread that leads; it is counted again when another thread does. */
static void count_hardware(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    telemetry_engine_count(context, worker);
}

static void stream_report(device_stream *base, telemetry_engine *telemetry) {
    cpu_stream *stream = cpu_stream_of(base);
    stream->telemetry = telemetry;
    if (telemetry == NULL)
        return;
    team_resize(stream->team, stream->workers_max); /* the last step may have had fewer */
    team_count_waits(stream->team);
    team_each(stream->team, count_hardware, telemetry);
}

static avo_status stream_measure(device_stream *base, double *bytes_per_second, avo_error *error) {
    team *team = cpu_stream_of(base)->team;
    team_resize(team, cpu_stream_of(base)->workers_max);
    /* A quarter of the free memory is enough to be no bother. */
    uint64_t room = memory_limit_detect().available_bytes / 4;
    size_t bytes = READ_BYTES;
    bytes = room < bytes ? (size_t)room / 4096 * 4096 : bytes;
    if (bytes == 0)
        return status_no_memory(error, "memory to read", 4096);
    region memory;
    region_options options = {.huge = true};
    AVO_TRY(
        region_open(base->device->allocator, bytes, &options, "memory to read", &memory, error));
    limits_touch(team, memory.data, bytes);
    *bytes_per_second = limits_read(team, memory.data, bytes, READ_SECONDS);
    region_close(&memory);
    return AVO_OK;
}

/* ---- Steps ---- */

/* Where each run's products with A go. */
static void place_runs(const batch_view *batch, const scratch_view *scratch) {
    size_t at = 0;
    assert(batch->runs <= scratch->rows_max * (size_t)ADAPTERS_OF_ROW);
    for (uint32_t i = 0; i < batch->runs; i++) {
        const adapter_run *run = &batch->run[i];
        scratch->place[i] = (run_place){at, adapter_room(run->adapter->rank)};
        at += run->rows * scratch->place[i].row;
    }
}

static void compute(const backend *backend, device_work work, const step_view *step) {
    float_mode mode;
    float_mode_enter(&mode);
    if (work == DEVICE_FORWARD)
        backend->forward(step);
    else if (work == DEVICE_HEAD)
        backend->head(step);
    else
        backend->hidden(step);
    float_mode_leave(&mode);
}

/* The same with as many workers as steps like this one are fastest with. Only whole steps are
 * measured, and only where all workers are to be had: a scheduler that divides them between two
 * streams has reasons of its own. */
static void compute_tuned(cpu_stream *stream, const backend *backend, device_work work,
                          const step_view *step) {
    tuner *tuner = &stream->tuner;
    uint32_t rows = step->batch->rows, most = stream->workers_max;
    if (work != DEVICE_FORWARD || most < tuner->most) {
        uint32_t chosen = tuner_chosen(tuner, rows);
        team_resize(stream->team, chosen < most ? chosen : most);
        compute(backend, work, step);
        return;
    }
    team_resize(stream->team, tuner_choose(tuner, rows));
    uint64_t begin = clock_now_ns();
    compute(backend, work, step);
    tuner_learn(tuner, rows, clock_now_ns() - begin, team_absent(stream->team));
}

static group_stream *group_of(cpu_stream *stream, const device_weights *base) {
    const cpu_weights *weights = (const cpu_weights *)(const void *)base;
    if (!weights->split)
        return NULL;
    stream->group.group = cpu_of(base->device)->group;
    stream->group.layers_stored = weights->layers_stored;
    stream->group.status = AVO_OK;
    stream->group.steps++;
    atomic_store_explicit(&stream->group.failed, false, memory_order_relaxed);
    return &stream->group;
}

static avo_status stream_start(device_stream *base, device_work work, const device_step *given,
                               avo_error *error) {
    cpu_stream *stream = cpu_stream_of(base);
    const backend *backend = &cpu_of(base->device)->choice.backend;
    kv_view kv = {.type = given->kv->type,
                  .pool = given->kv->memory.address,
                  .page_bytes = given->kv->page_bytes,
                  .layer_offset = given->kv->layer_offset};
    step_view step = {.model = &given->weights->view,
                      .batch = given->batch,
                      .kv = &kv,
                      .scratch = &stream->scratch,
                      .shape = &stream->base.shape,
                      .backend = backend,
                      .team = stream->team,
                      .phases = &stream->phases,
                      .group = group_of(stream, given->weights),
                      .observer = given->observer,
                      .telemetry = stream->telemetry,
                      .tracing = given->tracing};
    place_runs(given->batch, &stream->scratch);
    if (base->device->info.cpu.tuned && given->observer == NULL) {
        compute_tuned(stream, backend, work, &step);
    } else {
        team_resize(stream->team, stream->workers_max); /* all of them look where one observes */
        compute(backend, work, &step);
    }
    if (step.group == NULL || step.group->status == AVO_OK)
        return AVO_OK;
    return status_fail(error, step.group->status, "%s", step.group->error.text);
}

/* ---- Results, read in place ---- */

static avo_status read_top(device_stream *stream, const logit_top **top, avo_error *error) {
    (void)error;
    *top = cpu_stream_of(stream)->scratch.top;
    return AVO_OK;
}

static avo_status read_logits(device_stream *base, uint32_t row, const float **logits,
                              avo_error *error) {
    (void)error;
    const cpu_stream *stream = cpu_stream_of(base);
    *logits = stream->scratch.logits + (size_t)row * stream->base.vocabulary;
    return AVO_OK;
}

static avo_status read_normed(device_stream *stream, uint32_t count, const float **rows,
                              avo_error *error) {
    (void)count;
    (void)error;
    *rows = cpu_stream_of(stream)->scratch.normed;
    return AVO_OK;
}

static avo_status read_tap(device_stream *base, uint32_t tap, uint32_t first, uint32_t count,
                           const float **rows, avo_error *error) {
    (void)count;
    (void)error;
    const cpu_stream *stream = cpu_stream_of(base);
    *rows = stream->scratch.tap +
            ((size_t)tap * stream->base.shape.rows_max + first) * (size_t)stream->base.width;
    return AVO_OK;
}

const stream_operations cpu_stream_operations = {.size = sizeof(cpu_stream),
                                                 .bytes = stream_bytes,
                                                 .open = stream_open,
                                                 .close = stream_close,
                                                 .resize = stream_resize,
                                                 .workers = stream_workers,
                                                 .figures = stream_figures_of,
                                                 .report = stream_report,
                                                 .measure = stream_measure,
                                                 .start = stream_start,
                                                 .read_top = read_top,
                                                 .read_logits = read_logits,
                                                 .read_normed = read_normed,
                                                 .read_tap = read_tap};
