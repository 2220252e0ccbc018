/* The engine: everything that computing needs, allocated once. */
#include "engine/engine.h"
#include "engine/engine_int.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/float_mode.h"
#include "device/kv_tile.h"

#include <stdio.h>
#include <string.h>

static avo_status open_streams(avo_engine *engine, avo_error *error) {
    for (uint32_t i = 0; i < engine->plan.streams; i++) {
        stream_shape shape = engine_stream_shape(engine->model, &engine->plan, i);
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

static avo_status open_parts(avo_engine *engine, avo_error *error) {
    AVO_TRY(open_streams(engine, error));
    AVO_TRY(open_weights(engine, error));
    AVO_TRY(sessions_open(engine, error));
    AVO_TRY(engine_adapters_open(engine, error));
    AVO_TRY(kv_pool_open(engine->device, &engine->view, engine->plan.kv_type, engine->plan.kv_pages,
                         &engine->kv, error));
    AVO_TRY(engine_batch_open(engine, 0, &engine->ring_batch, error));
    return engine_telemetry_open(engine, error);
}

/* Once per engine: what was chosen, of what, and why. */
static void log_choice(const avo_engine *engine) {
    const engine_plan *plan = &engine->plan;
    char names[64], line[256];
    if (plan->log == NULL)
        return;
    const device_info *device = &plan->device;
    device_names(names, sizeof(names));
    snprintf(line, sizeof(line), "device %s (%s%s; this machine has: %s)", device->name,
             strcmp(plan->device_from, "best") == 0     ? "the fastest available"
             : strcmp(plan->device_from, "option") == 0 ? "requested"
                                                        : "chosen by ",
             plan->device_from[0] == 'A' ? plan->device_from : "", names);
    plan->log(plan->log_context, line);
    const device_cpu *cpu = &device->cpu;
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

avo_status avo_engine_open(const avo_model *model, const avo_engine_options *options,
                           avo_engine **out, avo_error *error) {
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

const char *avo_engine_device(const avo_engine *engine) {
    return engine->plan.device.name;
}

void avo_engine_close(avo_engine *engine) {
    if (engine == NULL)
        return;
    /* In reverse order of opening, as devices may expect. */
    engine_telemetry_close(engine);
    avo_batch_close(engine->ring_batch);
    kv_pool_close(engine->kv);
    engine_adapters_close(engine);
    sessions_close(engine);
    device_weights_close(engine->weights);
    for (uint32_t i = DEVICE_STREAMS_MAX; i-- > 0;)
        device_stream_close(engine->stream[i].stream);
    device_close(engine->device);
    arena_free(&engine->arena);
    allocator_give(engine->allocator, engine, sizeof(*engine));
}
