/* What training reads of a step: hidden states before every layer, logits, log-probabilities.
 * Allocates nothing. */
#include "engine/engine_int.h"

#include <float.h>

uint32_t engine_head_rows(const avo_engine *engine) {
    return engine->plan.head_rows;
}

static avo_status newest_step(const avo_batch *batch, avo_error *error) {
    if (!batch->computed || batch->step_serial != batch->stream->step_serial)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "the batch was not computed by the newest step of its engine");
    return batch_results(batch, error);
}

avo_status engine_batch_head(avo_batch *batch, const uint32_t *rows, uint32_t count,
                             const int32_t *next, bool whole, const logit_top **found,
                             avo_error *error) {
    AVO_TRY(newest_step(batch, error));
    batch->scored = true;
    batch_view view = batch_rows(batch);
    view.logit_row = rows;
    view.logit_rows = count;
    view.logits_whole = whole;
    view.top = 1;
    view.target = next;
    avo_status status = batch_compute(batch, DEVICE_HEAD, &view, NULL);
    if (status != AVO_OK)
        return status_fail(error, status, "%s", batch->error.text);
    return device_read_top(batch->stream->stream, found, error);
}

avo_status engine_batch_head_logits(avo_batch *batch, uint32_t index, const float **logits,
                                    avo_error *error) {
    return device_read_logits(batch->stream->stream, index, logits, error);
}

avo_status engine_batch_hidden(avo_batch *batch, uint32_t layer, const float **rows,
                               avo_error *error) {
    const engine_plan *plan = &batch->engine->plan;
    uint32_t tap = 0;
    AVO_TRY(newest_step(batch, error));
    while (tap < plan->taps && plan->tap[tap] != layer)
        tap++;
    if (tap == plan->taps)
        return status_fail(error, AVO_ERROR_ARGUMENT, "the engine does not tap layer %u", layer);
    return device_read_tap(batch->stream->stream, tap, 0, batch->rows, rows, error);
}

avo_status engine_logprob(const logit_top *found, float *logprob, avo_error *error) {
    if (!(found->log_sum <= DBL_MAX) || found->count == 0 || !(found->logit[0] >= -FLT_MAX))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "logits are NaN or Inf; the weights or the computation are broken");
    *logprob = (float)((double)found->target - (double)found->logit[0] - found->log_sum);
    return AVO_OK;
}

void engine_session_keep_private(avo_session *session) {
    session->alone = true;
}

void engine_forget_prefixes(avo_engine *engine) {
    pages_drop_cache(kv_pool_pages(engine->kv));
}

bool engine_adapters_in_place(const avo_engine *engine) {
    return device_adapters_in_place(engine->device);
}
