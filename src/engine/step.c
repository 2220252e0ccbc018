/* One step: the batch becomes views, the model walks them, the sessions grow. Allocates nothing. */
#include "engine/draft_heads.h"
#include "engine/engine_int.h"

#include "engine/engine.h"

static avo_status step_check(avo_batch *batch) {
    avo_error *error = &batch->error;
    if (batch->computed)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the batch has been computed; clear it first");
    if (batch->session_closed)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "a session of the batch was closed; clear the batch first");
    if (batch->rows == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the batch is empty");
    return AVO_OK;
}

batch_view batch_rows(const avo_batch *batch) {
    return (batch_view){.rows = batch->rows,
                        .token = batch->token,
                        .position = batch->position,
                        .row_segment = batch->row_segment,
                        .segment = batch->segments,
                        .segments = batch->entry_count,
                        .logit_row = batch->logit_row,
                        .logit_rows = batch->logit_rows,
                        .logits_whole = batch->logits_whole,
                        .top = batch->top,
                        .run = batch->run,
                        .runs = batch->runs,
                        .gains = batch->gains};
}

avo_status batch_compute(avo_batch *batch, device_work work, const batch_view *rows,
                         const step_observer *observer) {
    const avo_engine *engine = batch->engine;
    device_stream *stream = batch->stream->stream;
    device_step step = {.weights = engine->weights,
                        .batch = rows,
                        .kv = kv_pool_view(engine->kv),
                        .observer = observer,
                        .tracing = telemetry_tracing(engine->plan.telemetry)};
    avo_status status = device_start(stream, work, &step, &batch->error);
    if (status == AVO_OK)
        status = device_wait(stream, &batch->error);
    if (status != AVO_OK)
        batch->lost = batch->error;
    return status;
}

avo_status batch_results(const avo_batch *batch, avo_error *error) {
    if (batch->lost.status == AVO_OK)
        return AVO_OK;
    return status_fail(error, batch->lost.status, "%s", batch->lost.text);
}

avo_status engine_step_begin(avo_batch *batch) {
    AVO_TRY(step_check(batch));
    batch->lost.status = AVO_OK;
    batch->logits_whole = batch->top == 0 || batch->whole;
    batch_arrange(batch);
    return AVO_OK;
}

avo_status engine_step_compute(avo_batch *batch) {
    uint64_t begin = telemetry_engine_begin(batch->stream->telemetry);
    batch_view rows = batch_rows(batch);
    AVO_TRY(batch_compute(batch, DEVICE_FORWARD, &rows, batch->engine->observer));
    engine_telemetry_step(batch, begin);
    return AVO_OK;
}

void engine_step_end(avo_batch *batch) {
    if (batch->engine->draft_heads != NULL)
        draft_heads_see(batch->engine->draft_heads, batch);
    for (uint32_t i = 0; i < batch->entry_count; i++) {
        avo_session *session = batch->entries[i].session;
        session->computed += batch->entries[i].rows - batch->entries[i].drafts;
        if (session->count < session->computed)
            session->count = session->computed;
        session->batch = NULL;
        session_publish(session);
    }
    batch->computed = true;
    if (batch->logit_rows > 0)
        panel_cache_begin(batch->engine->model->panels);
    batch->step_serial = ++batch->stream->step_serial;
    engine_telemetry_pages(batch->engine);
}

avo_status avo_step(avo_engine *engine, avo_batch *batch) {
    if (batch->engine != engine)
        return status_fail(&batch->error, AVO_ERROR_ARGUMENT,
                           "the batch belongs to another engine");
    AVO_TRY(engine_step_begin(batch));
    AVO_TRY(engine_step_compute(batch));
    engine_step_end(batch);
    return AVO_OK;
}
