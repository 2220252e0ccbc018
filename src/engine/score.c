/* Behind a step: rows that it computed are given to the head, or to the last norm, once more. What
 * a step leaves in `hidden` stays until the next one, so a prompt may be computed in chunks as
 * large as any, and its rows are scored in as many looks at the head as they need. Allocates
 * nothing. */
#include "engine/engine_int.h"

#include "base/float_mode.h"

#include <float.h>

/* The batch's row of a session's row `first`; `count` of them are there. */
static bool find_rows(const avo_batch *batch, const avo_session *session, size_t first,
                      size_t count, uint32_t *row) {
    if (!batch->computed || batch->step_serial != batch->lane->step_serial)
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

typedef void (*phase)(const step_view *step, uint32_t worker);

typedef struct phase_task {
    const step_view *step;
    phase phase;
} phase_task;

static void phase_worker(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    const phase_task *task = context;
    task->phase(task->step, worker);
}

/* One phase more, of rows [row, row + count). */
static void run_phase(avo_batch *batch, phase phase, batch_view *rows, uint32_t row,
                      uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        batch->score_row[i] = row + i;
    rows->logit_row = batch->score_row;
    rows->logit_rows = count;
    step_view step = step_of(batch, rows);
    step.observer = NULL;
    phase_task task = {&step, phase};
    float_mode mode;
    float_mode_enter(&mode);
    team_run(step.team, phase_worker, &task);
    float_mode_leave(&mode);
}

const float *avo_batch_hidden(avo_batch *batch, const avo_session *session, size_t first,
                              size_t count) {
    uint32_t row;
    if (!find_rows(batch, session, first, count, &row))
        return NULL;
    batch_view rows = batch_rows(batch);
    run_phase(batch, batch->engine->choice.backend.hidden, &rows, row, (uint32_t)count);
    return batch->lane->scratch.normed;
}

static avo_status read_row(avo_batch *batch, const logit_top *found, size_t row, uint32_t top,
                           float *logprob, avo_logprob *tops) {
    if (!(found->log_sum <= DBL_MAX) || found->count == 0 || found->count < top ||
        !(found->logit[0] >= -FLT_MAX))
        return status_fail(&batch->error, AVO_ERROR_ARGUMENT,
                           "logits behind row %zu are no numbers: the weights or the computation "
                           "are broken",
                           row);
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
        return status_fail(&batch->error, AVO_ERROR_ARGUMENT,
                           "%u alternatives of rows %zu to %zu: at most %u, and room for them", top,
                           first, first + count, most);
    return AVO_OK;
}

avo_status avo_batch_score(avo_batch *batch, const avo_session *session, size_t first, size_t count,
                           const int32_t *next, uint32_t top, float *logprobs, avo_logprob *tops) {
    avo_engine *engine = batch->engine;
    uint32_t row;
    if (!find_rows(batch, session, first, count, &row))
        return status_fail(&batch->error, AVO_ERROR_ARGUMENT,
                           "the step just done has no rows %zu to %zu of the session", first,
                           first + count);
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
        run_phase(batch, engine->choice.backend.head, &rows, row + done, piece);
        for (uint32_t i = 0; i < piece; i++, done++)
            AVO_TRY(read_row(batch, &batch->lane->scratch.top[i], first + done, top,
                             &logprobs[done], tops == NULL ? NULL : tops + (size_t)done * top));
    }
    return AVO_OK;
}
