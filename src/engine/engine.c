/* The engine: everything that computing needs, allocated once. */
#include "engine/engine_int.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/float_mode.h"
#include "kernels/kv_tile.h"

#include <stdio.h>
#include <string.h>

static avo_status open_scratch(avo_engine *engine, avo_error *error) {
    scratch_sizes sizes;
    if (!scratch_measure(engine->model, &engine->plan, &engine->choice.backend, &sizes))
        return status_fail(error, AVO_ERROR_LIMIT, "scratch: too large");
    engine->scratch_bytes = sizes.total;
    AVO_TRY(region_open(engine->allocator, engine->scratch_bytes, &engine->plan.panels.region,
                        "scratch", &engine->scratch_region, error));
    scratch_cut(&sizes, &engine->plan, engine->scratch_region.data, &engine->scratch);
    return AVO_OK;
}

/* The weights as the back end reads them. */
static avo_status open_weights(avo_engine *engine, avo_error *error) {
    engine->view = engine->model->view;
    if (!engine->choice.backend.panels)
        return AVO_OK;
    const model_view *view;
    AVO_TRY(model_panels(engine->model, engine->team, &engine->plan.panels, &view, error));
    engine->view = *view;
    return AVO_OK;
}

static avo_status open_parts(avo_engine *engine, avo_error *error) {
    AVO_TRY(backend_choose(engine->plan.isa, &engine->choice, error));
    team_options team = {.threads = engine->plan.threads, .pin = engine->plan.team_pin};
    AVO_TRY(team_open_with(engine->allocator, &team, &engine->team, error));
    AVO_TRY(open_weights(engine, error));
    AVO_TRY(model_rotary(&engine->model->source->config, engine->plan.rope_context, &engine->arena,
                         &engine->view.rotary, &engine->view.rotary_tables, error));
    AVO_TRY(open_scratch(engine, error));
    AVO_TRY(sessions_open(engine, error));
    return kv_pool_open(&engine->view, engine->plan.kv_type, engine->plan.kv_pages,
                        &engine->plan.panels.region, engine->allocator, &engine->kv, error);
}

/* Once per engine: what was chosen, of what, and why. */
static void log_choice(const engine_plan *plan) {
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
    log_choice(&engine->plan);
    *out = engine;
    return AVO_OK;
}

const char *avo_engine_isa(const avo_engine *engine) {
    return engine->choice.backend.name;
}

void avo_engine_close(avo_engine *engine) {
    if (engine == NULL)
        return;
    team_close(engine->team);
    avo_batch_close(engine->ring_batch);
    sessions_close(engine);
    kv_pool_close(engine->kv);
    region_close(&engine->scratch_region);
    arena_free(&engine->arena);
    allocator_give(engine->allocator, engine, sizeof(*engine));
}
