/* The engine: everything that computing needs, allocated once. */
#include "engine/engine.h"
#include "engine/engine_int.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/float_mode.h"
#include "device/kv_tile.h"

#include <stdio.h>
#include <string.h>

static avo_status open_scratch(avo_engine *engine, uint32_t number, avo_error *error) {
    scratch_sizes sizes;
    engine_lane *lane = &engine->lane[number];
    const engine_plan *plan = &engine->plan;
    if (!scratch_measure(engine->model, plan, lane_threads(plan, number), &engine->choice.backend,
                         &sizes))
        return status_fail(error, AVO_ERROR_LIMIT, "scratch: too large");
    AVO_TRY(region_open(engine->allocator, sizes.total, &plan->panels.region, "scratch",
                        &lane->scratch_region, error));
    scratch_cut(&sizes, plan, lane->scratch_region.data, &lane->scratch);
    return AVO_OK;
}

/* The second lane's workers take their places from the other end. */
static avo_status open_team(avo_engine *engine, uint32_t number, avo_error *error) {
    const engine_plan *plan = &engine->plan;
    team_options options = {.threads = lane_threads(plan, number),
                            .pin = plan->team_pin,
                            .places = number > 0 ? plan->threads : 0};
    return team_open_with(engine->allocator, &options, &engine->lane[number].team, error);
}

/* The weights as the back end reads them. */
static avo_status open_weights(avo_engine *engine, avo_error *error) {
    engine->view = engine->model->view;
    if (!engine->choice.backend.panels)
        return AVO_OK;
    const model_view *view;
    AVO_TRY(model_panels(engine->model, engine->lane[0].team, &engine->plan.panels, &view, error));
    engine->view = *view;
    return AVO_OK;
}

static avo_status open_parts(avo_engine *engine, avo_error *error) {
    AVO_TRY(backend_choose(engine->plan.isa, &engine->choice, error));
    for (uint32_t i = 0; i < engine->plan.lanes; i++)
        AVO_TRY(open_team(engine, i, error));
    AVO_TRY(open_weights(engine, error));
    AVO_TRY(model_rotary(&engine->model->source->config, engine->plan.rope_context, &engine->arena,
                         &engine->view.rotary, &engine->view.rotary_tables, error));
    for (uint32_t i = 0; i < engine->plan.lanes; i++)
        AVO_TRY(open_scratch(engine, i, error));
    AVO_TRY(sessions_open(engine, error));
    AVO_TRY(kv_pool_open(&engine->view, engine->plan.kv_type, engine->plan.kv_pages,
                         &engine->plan.panels.region, engine->allocator, &engine->kv, error));
    AVO_TRY(engine_batch_open(engine, 0, &engine->ring_batch, error));
    return engine_telemetry_open(engine, error);
}

/* Once per engine: what was chosen, of what, and why. */
static void log_choice(const avo_engine *engine) {
    const engine_plan *plan = &engine->plan;
    char names[64], line[256];
    if (plan->log == NULL)
        return;
    backend_names(names, sizeof(names));
    snprintf(line, sizeof(line), "instruction set %s (%s; this machine has: %s)", plan->isa,
             strcmp(plan->isa_from, "best") == 0     ? "the best there is"
             : strcmp(plan->isa_from, "option") == 0 ? "as asked for"
                                                     : "forced by AVO_ISA",
             names);
    plan->log(plan->log_context, line);
    snprintf(line, sizeof(line),
             "%u thread%s, pinned: %s; NUMA %s; huge pages %s; locked: %s; K and V in %s",
             plan->threads, plan->threads == 1 ? "" : "s", plan->pin, plan->numa, plan->huge_pages,
             plan->panels.region.lock ? "yes" : "no", kv_type_name(plan->kv_type));
    plan->log(plan->log_context, line);
    if (engine->lane[0].telemetry != NULL) {
        telemetry_engine_hardware(engine->lane[0].telemetry, line, sizeof(line));
        plan->log(plan->log_context, line);
    }
    if (plan->lanes < 2)
        return;
    snprintf(line, sizeof(line),
             "2 lanes: prompts can be computed beside decoding, with up to %u of the threads; "
             "scratch of the second: %llu KiB",
             lane_threads(plan, 1), (unsigned long long)plan->lane_bytes >> 10);
    plan->log(plan->log_context, line);
}

avo_status avo_engine_open(const avo_model *model, const avo_engine_options *options,
                           avo_engine **out, avo_error *error) {
    *out = NULL;
    engine_plan plan;
    AVO_TRY(engine_plan_make(model, options, &plan, error));
    avo_engine *engine = allocator_take_array(model->allocator, 1, sizeof(*engine));
    if (engine == NULL)
        return status_no_memory(error, "the engine's head", sizeof(*engine));
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

const char *avo_engine_isa(const avo_engine *engine) {
    return engine->choice.backend.name;
}

void avo_engine_close(avo_engine *engine) {
    if (engine == NULL)
        return;
    for (uint32_t i = 0; i < ENGINE_LANES_MAX; i++)
        team_close(engine->lane[i].team);
    engine_telemetry_close(engine);
    avo_batch_close(engine->ring_batch);
    sessions_close(engine);
    kv_pool_close(engine->kv);
    for (uint32_t i = 0; i < ENGINE_LANES_MAX; i++)
        region_close(&engine->lane[i].scratch_region);
    arena_free(&engine->arena);
    allocator_give(engine->allocator, engine, sizeof(*engine));
}
