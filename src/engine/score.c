/* Behind a step: rows that it computed are given to the head, or to the last norm, once more. What
 * a step leaves in `hidden` stays until the next one, so a prompt may be computed in chunks as
 * large as any, and its rows are scored in as many looks at the head as they need. Allocates
 * nothing. */
#include "engine/engine_int.h"

#include <float.h>

/* The batch's row of a session's row `first`; `count` of them are there. */
static bool find_rows(const avo_batch *batch, const avo_session *session, size_t first,
                      size_t count, uint32_t *row) {
    if (!batch->computed || batch->step_serial != batch->stream->step_serial)
        return false;
    for (uint32_t i = 0; i < batch->entry_count; i++) {
        const batch_entry *entry = &batch->entries[i];
        if (entry->serial != session->serial)
            continue;
        *row = batch->segments[i].first + (uint32_t)first;
        return first < entry->rows && count > 0 && count <= entry->rows - first;
    }
    return false;
}

/* Work behind the step, of rows [row, row + count). */
static avo_status run_behind(avo_batch *batch, device_work work, batch_view *rows, uint32_t row,
                             uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        batch->score_row[i] = row + i;
    rows->logit_row = batch->score_row;
    rows->logit_rows = count;
    return batch_compute(batch, work, rows, NULL);
}

static avo_status no_such_rows(avo_batch *batch, size_t first, size_t count) {
    return status_fail(&batch->error, AVO_ERROR_ARGUMENT,
                       "the last step did not compute rows %zu to %zu of the session", first,
                       first + count);
}

static avo_status read_hidden(avo_batch *batch, const avo_session *session, size_t first,
                              size_t count, const float **hidden) {
    uint32_t row;
    if (!find_rows(batch, session, first, count, &row))
        return no_such_rows(batch, first, count);
    AVO_TRY(batch_results(batch, &batch->error));
    batch_view rows = batch_rows(batch);
    AVO_TRY(run_behind(batch, DEVICE_NORM, &rows, row, (uint32_t)count));
    return device_read_normed(batch->stream->stream, (uint32_t)count, hidden, &batch->error);
}

const float *avo_batch_hidden(avo_batch *batch, const avo_session *session, size_t first,
                              size_t count) {
    const float *hidden;
    return read_hidden(batch, session, first, count, &hidden) == AVO_OK ? hidden : NULL;
}

static avo_status read_tap(avo_batch *batch, const avo_session *session, uint32_t layer,
                           size_t first, size_t count, const float **hidden) {
    const engine_plan *plan = &batch->engine->plan;
    uint32_t tap = 0;
    uint32_t row;
    while (tap < plan->taps && plan->tap[tap] != layer)
        tap++;
    if (tap == plan->taps)
        return status_fail(&batch->error, AVO_ERROR_ARGUMENT,
                           "the engine does not tap layer %u; name it in avo_engine_options.taps",
                           layer);
    if (!find_rows(batch, session, first, count, &row))
        return no_such_rows(batch, first, count);
    AVO_TRY(batch_results(batch, &batch->error));
    return device_read_tap(batch->stream->stream, tap, row, (uint32_t)count, hidden, &batch->error);
}

const float *avo_batch_tap(avo_batch *batch, const avo_session *session, uint32_t layer,
                           size_t first, size_t count) {
    const float *hidden;
    return read_tap(batch, session, layer, first, count, &hidden) == AVO_OK ? hidden : NULL;
}

static avo_status read_row(avo_batch *batch, const logit_top *found, size_t row, uint32_t top,
                           float *logprob, avo_logprob *tops) {
    if (!(found->log_sum <= DBL_MAX) || found->count == 0 || found->count < top ||
        !(found->logit[0] >= -FLT_MAX))
        return status_fail(
            &batch->error, AVO_ERROR_ARGUMENT,
            "the logits of row %zu are NaN or Inf; the weights or the computation are broken", row);
    double base = (double)found->logit[0];
    *logprob = (float)((double)found->target - base - found->log_sum);
    for (uint32_t i = 0; i < top; i++)
        tops[i] = (avo_logprob){found->token[i],
                                (float)((double)found->logit[i] - base - found->log_sum)};
    return AVO_OK;
}

static avo_status check_score(avo_batch *batch, size_t first, size_t count, uint32_t top,
                              const avo_logprob *tops) {
    uint32_t vocabulary = batch->engine->view.vocabulary;
    uint32_t most = vocabulary < AVO_TOP_LOGPROBS_MAX ? vocabulary : AVO_TOP_LOGPROBS_MAX;
    if (top > most || (top > 0 && tops == NULL))
        return status_fail(
            &batch->error, AVO_ERROR_ARGUMENT,
            "%u alternatives for rows %zu to %zu; must be at most %u, with an array for them", top,
            first, first + count, most);
    return AVO_OK;
}

avo_status avo_batch_score(avo_batch *batch, const avo_session *session, size_t first, size_t count,
                           const int32_t *next, uint32_t top, float *logprobs, avo_logprob *tops) {
    avo_engine *engine = batch->engine;
    uint32_t row;
    if (!find_rows(batch, session, first, count, &row))
        return no_such_rows(batch, first, count);
    AVO_TRY(batch_results(batch, &batch->error));
    AVO_TRY(check_score(batch, first, count, top, tops));
    AVO_TRY(batch_check_tokens(batch, next, count));
    batch->scored = true;
    batch_view rows = batch_rows(batch);
    rows.logits_whole = false;
    rows.top = top > 0 ? top : 1;
    uint32_t done = 0;
    while (done < count) {
        uint32_t left = (uint32_t)count - done;
        uint32_t piece = left < engine->plan.head_rows ? left : engine->plan.head_rows;
        rows.target = next + done;
        const logit_top *found;
        AVO_TRY(run_behind(batch, DEVICE_HEAD, &rows, row + done, piece));
        AVO_TRY(device_read_top(batch->stream->stream, &found, &batch->error));
        for (uint32_t i = 0; i < piece; i++, done++)
            AVO_TRY(read_row(batch, &found[i], first + done, top, &logprobs[done],
                             tops == NULL ? NULL : tops + (size_t)done * top));
    }
    return AVO_OK;
}
