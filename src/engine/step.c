/* One step: the batch becomes views, the model walks them, the sessions grow. Allocates nothing. */
#include "engine/engine_int.h"

static avo_status step_check(avo_engine *engine, avo_batch *batch) {
    avo_error *error = &batch->error;
    if (batch->engine != engine)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the batch belongs to another engine");
    if (batch->computed)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the batch was computed: clear it first");
    if (batch->session_closed)
        return status_fail(error, AVO_ERROR_ARGUMENT, "a session of the batch was closed");
    if (batch->rows == 0)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the batch is empty");
    return AVO_OK;
}

avo_status avo_step(avo_engine *engine, avo_batch *batch) {
    AVO_TRY(step_check(engine, batch));
    batch_view rows = {.rows = batch->rows,
                       .token = batch->token,
                       .position = batch->position,
                       .pages = batch->pages,
                       .logit_row = batch->logit_row,
                       .logit_rows = batch->logit_rows};
    step_view step = {.model = &engine->view,
                      .batch = &rows,
                      .kv = kv_pool_view(engine->kv),
                      .scratch = &engine->scratch,
                      .team = engine->team};
    model_forward(engine->backend, &step);
    for (uint32_t i = 0; i < batch->entry_count; i++) {
        batch_entry *entry = &batch->entries[i];
        entry->session->length += entry->rows;
        entry->session->batch = NULL;
    }
    batch->computed = true;
    return AVO_OK;
}
