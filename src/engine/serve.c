/* What the scheduler asks of an engine beyond the public interface. */
#include "engine/engine.h"

#include "engine/draft_heads.h"
#include "engine/engine_int.h"

#include <assert.h>

void engine_draft_from(avo_engine *engine, const draft_source *source) {
    assert(engine->speculation != NULL && (source == NULL || source->drafts_max <= DRAFTS_MAX));
    speculation_custom(engine->speculation, source);
}

engine_limits engine_limits_of(const avo_engine *engine) {
    return (engine_limits){.model = engine->model,
                           .allocator = engine->allocator,
                           .vocabulary = engine->view.vocabulary,
                           .context_max = engine->plan.context_max,
                           .sessions_max = engine->plan.sessions_max,
                           .rows_max = engine->plan.rows_max,
                           .logits_max = engine->plan.logits_max,
                           .kv_pages = engine->plan.kv_pages,
                           .threads = engine->plan.threads,
                           .streams = engine->plan.streams,
                           .log = engine->plan.log,
                           .log_context = engine->plan.log_context,
                           .speculation = engine->speculation,
                           .drafts = engine_drafts(engine),
                           .telemetry = engine->plan.telemetry,
                           .track = telemetry_engine_track(engine->stream[0].telemetry)};
}

avo_status engine_lead(avo_engine *engine, avo_error *error) {
    AVO_TRY(engine_check_free(engine, error));
    if (engine->sessions > 0)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "%u sessions of the engine are open; close them before opening a scheduler",
            engine->sessions);
    if (engine->batches > 0)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "%u batches of the engine are open; close them before opening a scheduler",
            engine->batches);
    engine->led = true;
    return AVO_OK;
}

void engine_leave(avo_engine *engine) {
    engine->led = false;
}

uint32_t engine_step_phases(const avo_engine *engine) {
    return device_stream_figures(engine->stream[0].stream).phases;
}

void engine_stream_resize(avo_engine *engine, uint32_t stream, uint32_t threads) {
    device_stream_resize(engine->stream[stream].stream, threads);
    if (stream == 0 && engine->draft_model != NULL)
        draft_model_resize(engine->draft_model, threads);
    if (stream == 0 && engine->draft_heads != NULL)
        draft_heads_resize(engine->draft_heads, threads);
}

avo_status engine_session_reserve(avo_session *session, uint32_t length, avo_error *error) {
    uint32_t most = session->engine->plan.context_max;
    if (length > most)
        return status_fail(error, AVO_ERROR_FULL, "%u tokens do not fit the context of %u", length,
                           most);
    return session_take_pages(session, length, error);
}
