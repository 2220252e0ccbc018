/* The engine: everything that computing needs, allocated once. */
#include "engine/engine.h"
#include "engine/draft_heads.h"
#include "engine/engine_int.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/float_mode.h"
#include "base/options.h"
#include "device/kv_tile.h"

#include <stdio.h>
#include <string.h>

static avo_status open_streams(avo_engine *engine, avo_error *error) {
    for (uint32_t i = 0; i < engine->plan.streams; i++) {
        stream_shape shape = engine_stream_shape(engine->model, &engine->plan, i);
        if (engine->beside != NULL && i == 0)
            shape.beside = engine->beside->stream[0].stream;
        AVO_TRY(device_stream_open(engine->device, &shape, &engine->stream[i].stream, error));
    }
    return AVO_OK;
}

static avo_status open_weights(avo_engine *engine, avo_error *error) {
    model_view view = engine->model->view;
    AVO_TRY(model_rotary(&engine->model->source->config, engine->plan.rope_context, &engine->arena,
                         &view.rotary, &view.rotary_tables, error));
    weights_source source = model_weights(engine->model, &view);
    AVO_TRY(device_weights_open(engine->stream[0].stream, &source, &engine->weights, error));
    engine->view = *device_weights_view(engine->weights);
    return AVO_OK;
}

static avo_status open_speculation(avo_engine *engine, avo_error *error) {
    engine->cost = engine_cost_guess(engine);
    if (engine->plan.speculation.kinds == DRAFTS_OFF)
        return AVO_OK;
    return speculation_open(&engine->plan.speculation, engine->allocator, &engine->speculation,
                            error);
}

static avo_status open_parts(avo_engine *engine, avo_error *error) {
    AVO_TRY(open_streams(engine, error));
    AVO_TRY(open_weights(engine, error));
    AVO_TRY(sessions_open(engine, error));
    AVO_TRY(engine_adapters_open(engine, error));
    AVO_TRY(kv_pool_open_with_host(engine->device, &engine->view, engine->plan.kv_type,
                                   engine->plan.kv_pages, engine->plan.kv_host_pages, &engine->kv,
                                   error));
    AVO_TRY(engine_batch_open(engine, 0, &engine->ring_batch, error));
    AVO_TRY(open_speculation(engine, error));
    return engine_telemetry_open(engine, error);
}

static void log_parts(const engine_plan *plan) {
    const engine_part *first = &plan->part[0], *second = &plan->part[1];
    char line[192];
    snprintf(
        line, sizeof(line),
        "of %u layers, the first %u are computed on %s, the others and the output head on %s%s",
        first->layers + second->layers, first->layers, first->device, second->device,
        plan->device.layers_asked == LAYERS_FITTING ? " (as many as its free memory holds)" : "");
    plan->log(plan->log_context, line);
}

/* Once per engine: what was chosen, of what, and why. */
static void log_choice(const avo_engine *engine) {
    const engine_plan *plan = &engine->plan;
    char names[64], line[384];
    if (plan->log == NULL)
        return;
    const device_info *device = &plan->device;
    device_names(names, sizeof(names));
    snprintf(line, sizeof(line), "device %s (%s%s; this machine has: %s); arithmetic %s (%s)",
             device->name,
             strcmp(plan->device_from, "best") == 0     ? "the fastest available"
             : strcmp(plan->device_from, "option") == 0 ? "requested"
                                                        : "chosen by ",
             plan->device_from[0] == 'A' ? plan->device_from : "", names, device->arithmetic,
             plan->arithmetic_why);
    plan->log(plan->log_context, line);
    if (device->divides)
        log_parts(plan);
    const device_cpu *cpu = &device->cpu;
    if (cpu->tuned) {
        char reason[128];
        cpu_threads processors = cpu_threads_detect();
        cpu_threads_text(&processors, reason, sizeof(reason));
        snprintf(line, sizeof(line), "threads: %s; adjusted by measurement", reason);
        plan->log(plan->log_context, line);
    }
    if (cpu->threads > 0)
        snprintf(line, sizeof(line),
                 "%u thread%s, pinned: %s; NUMA %s; huge pages %s; locked: %s; K and V in %s",
                 cpu->threads, cpu->threads == 1 ? "" : "s", cpu->pin, cpu->numa, cpu->huge_pages,
                 cpu->lock ? "yes" : "no", kv_type_name(plan->kv_type));
    else
        snprintf(line, sizeof(line), "K and V in %s", kv_type_name(plan->kv_type));
    plan->log(plan->log_context, line);
    if (engine->stream[0].telemetry != NULL) {
        telemetry_engine_hardware(engine->stream[0].telemetry, line, sizeof(line));
        plan->log(plan->log_context, line);
    }
    if (plan->streams < 2)
        return;
    char share[48] = "";
    if (cpu->threads > 0)
        snprintf(share, sizeof(share), ", with up to %u of the threads", cpu->threads - 1);
    snprintf(
        line, sizeof(line),
        "2 streams: prefill can run in parallel with decode%s; scratch of the second: %llu KiB",
        share, (unsigned long long)plan->stream_bytes >> 10);
    plan->log(plan->log_context, line);
}

avo_status engine_open_beside(const avo_model *model, const avo_engine_options *options,
                              avo_engine *beside, avo_engine **out, avo_error *error) {
    *out = NULL;
    engine_plan plan;
    device *device;
    AVO_TRY(engine_plan_make(model, options, &device, &plan, error));
    avo_engine *engine = allocator_take_array(model->allocator, 1, sizeof(*engine));
    if (engine == NULL) {
        device_close(device);
        return status_no_memory(error, "an engine", sizeof(*engine));
    }
    engine->device = device;
    engine->allocator = model->allocator;
    engine->model = model;
    engine->plan = plan;
    engine->beside = beside;
    arena_init(&engine->arena, model->allocator, SIZE_MAX);
    float_mode mode;
    float_mode_enter(&mode); /* rotation tables are computed here */
    avo_status status = open_parts(engine, error);
    float_mode_leave(&mode);
    if (status != AVO_OK) {
        avo_engine_close(engine);
        return status;
    }
    log_choice(engine);
    *out = engine;
    return AVO_OK;
}

static avo_status open_draft_model(avo_engine *engine, const avo_engine_options *given,
                                   avo_error *error) {
    const engine_plan *plan = &engine->plan;
    avo_engine_options own = AVO_ENGINE_OPTIONS_INIT;
    AVO_TRY(options_take(&own, sizeof(own), given, "avo_engine_options", error));
    if (own.draft_model == NULL || (plan->speculation.kinds & DRAFT_BIT(DRAFT_MODEL)) == DRAFTS_OFF)
        return AVO_OK;
    draft_model_options options = {.target = engine->model,
                                   .model = own.draft_model,
                                   .beside = engine,
                                   .engine = &own,
                                   .drafters = plan->speculation.drafters,
                                   .context_max = plan->context_max,
                                   .kv_tokens = (uint64_t)plan->kv_pages * KV_PAGE_TOKENS};
    return draft_model_open(&options, &engine->draft_model, error);
}

static avo_status open_draft_heads(avo_engine *engine, const avo_engine_options *given,
                                   avo_error *error) {
    const engine_plan *plan = &engine->plan;
    avo_engine_options own = AVO_ENGINE_OPTIONS_INIT;
    AVO_TRY(options_take(&own, sizeof(own), given, "avo_engine_options", error));
    draft_heads_options options = {
        .target = engine, .engine = &own, .drafters = plan->speculation.drafters};
    AVO_TRY(
        draft_heads_choose(engine->model, &own, plan->speculation.kinds, &options.heads, error));
    if (!heads_chosen(&options.heads))
        return AVO_OK;
    return draft_heads_open(&options, &engine->draft_heads, error);
}

avo_status avo_engine_open(const avo_model *model, const avo_engine_options *options,
                           avo_engine **out, avo_error *error) {
    AVO_TRY(engine_open_beside(model, options, NULL, out, error));
    avo_status status = open_draft_model(*out, options, error);
    AVO_THEN(status, open_draft_heads(*out, options, error));
    if (status == AVO_OK)
        return AVO_OK;
    avo_engine_close(*out);
    *out = NULL;
    return status;
}

static avo_status prepare_weights(const avo_model *model, device *device, const engine_plan *plan,
                                  avo_error *error) {
    stream_shape shape = engine_stream_shape(model, plan, 0);
    weights_source source = model_weights(model, &model->view);
    device_stream *stream = NULL;
    device_weights *weights = NULL;
    avo_status status = device_stream_open(device, &shape, &stream, error);
    AVO_THEN(status, device_weights_open(stream, &source, &weights, error));
    device_weights_close(weights);
    device_stream_close(stream);
    return status;
}

avo_status engine_prepare(const avo_model *model, const avo_engine_options *options,
                          avo_error *error) {
    avo_engine_options own = AVO_ENGINE_OPTIONS_INIT;
    AVO_TRY(options_take(&own, sizeof(own), options, "avo_engine_options", error));
    own.log = NULL; /* the engine will say it */
    if (own.context_max == 0)
        own.context_max = model->source->config.context;
    uint64_t most = memory_limit_detect().available_bytes / 4 * 3;
    if (own.memory_max == 0 || own.memory_max > most)
        own.memory_max = most;
    engine_plan plan;
    device *device;
    AVO_TRY(engine_plan_make(model, &own, &device, &plan, error));
    avo_status status = AVO_OK;
    if (plan.device.host && (plan.weights.missing_bytes > 0 || plan.weights.kept_bytes > 0)) {
        float_mode mode;
        float_mode_enter(&mode);
        status = prepare_weights(model, device, &plan, error);
        float_mode_leave(&mode);
    }
    device_close(device);
    return status;
}

const char *avo_engine_device(const avo_engine *engine) {
    return engine->plan.device.name;
}

/* Which numbers of threads steps were found to be fastest with, and what ranks have exchanged. */
static void log_tuned(const avo_engine *engine) {
    char line[224];
    for (uint32_t i = 0; engine->plan.log != NULL && i < engine->plan.streams; i++) {
        if (engine->stream[i].stream == NULL)
            continue;
        stream_figures figures = device_stream_figures(engine->stream[i].stream);
        snprintf(line, sizeof(line), "threads%s: %s", i > 0 ? " of the second stream" : "",
                 figures.threads);
        if (figures.threads[0] != '\0')
            engine->plan.log(engine->plan.log_context, line);
        if (figures.ranks[0] != '\0')
            engine->plan.log(engine->plan.log_context, figures.ranks);
    }
}

void avo_engine_close(avo_engine *engine) {
    if (engine == NULL)
        return;
    draft_heads_close(engine->draft_heads);
    draft_model_close(engine->draft_model);
    log_tuned(engine);
    /* In reverse order of opening, as devices may expect. */
    engine_telemetry_close(engine);
    speculation_close(engine->speculation);
    avo_batch_close(engine->ring_batch);
    kv_pool_close(engine->kv);
    kv_events_close(engine->kv_events);
    engine_adapters_close(engine);
    sessions_close(engine);
    device_weights_close(engine->weights);
    for (uint32_t i = DEVICE_STREAMS_MAX; i-- > 0;)
        device_stream_close(engine->stream[i].stream);
    device_close(engine->device);
    arena_free(&engine->arena);
    allocator_give(engine->allocator, engine, sizeof(*engine));
}
