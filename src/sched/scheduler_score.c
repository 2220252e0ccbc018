/* What a request wants of its prompt: logprobs of its tokens, its hidden states pooled. On the
 * engine's thread, behind the step that computed the rows.
 *
 * Rows are looked at in the order of the prompt and never twice: after a preemption they are
 * computed again as far as the prefix cache has lost them, and those that were looked at are passed
 * over. Sums of a mean are added row by row in that order, so that chunks leave no trace in them.
 *
 * A request may want logprobs of later tokens only (prompt_logprobs_from). Rows before the one in
 * front of the first such token then count as looked at from the start, so that they can come from
 * the prefix cache.
 */
#include "sched/scheduler_int.h"

#include <math.h>

bool request_looks(const request *request) {
    return request->given.prompt_logprobs || request->given.pooling == AVO_POOLING_MEAN;
}

avo_status request_allocate_scores(request *request, avo_error *error) {
    size_t count = request->prompt_tokens;
    size_t from = request->given.prompt_logprobs_from;
    if (from >= count)
        return status_fail(
            error, AVO_ERROR_ARGUMENT,
            "prompt_logprobs_from is %zu, must be less than the prompt's tokens (%zu)", from,
            count);
    size_t width = request->scheduler->engine_limits.model->view.width;
    bool tops = request->given.prompt_logprobs && request->top_stride > 0;
    bool pools = request->given.pooling != AVO_POOLING_NONE;
    bool means = request->given.pooling == AVO_POOLING_MEAN;
    arena *arena = &request->arena;
    if (request->given.prompt_logprobs)
        request->prompt_logprobs = arena_take_array(arena, count, sizeof(float));
    if (tops)
        request->prompt_tops =
            arena_take_array(arena, count * request->top_stride, sizeof(avo_logprob));
    if (means)
        request->pooled = arena_take_array(arena, width, sizeof(double));
    if (pools)
        request->embedding = arena_take_array(arena, width, sizeof(float));
    if ((request->given.prompt_logprobs && request->prompt_logprobs == NULL) ||
        (tops && request->prompt_tops == NULL) || (means && request->pooled == NULL) ||
        (pools && request->embedding == NULL))
        return status_no_memory(error, "scores and embeddings of a prompt", count * sizeof(float));
    if (request->prompt_logprobs != NULL)
        request->prompt_logprobs[0] = NAN; /* nothing stands before it */
    if (from > 0 && !means)
        request->looked = (uint32_t)from - 1;
    return AVO_OK;
}

uint32_t request_scored(const request *request) {
    if (request->prompt_logprobs == NULL || request->looked == 0)
        return 0;
    return request->looked < request->prompt_tokens ? request->looked + 1 : request->prompt_tokens;
}

/* Rows [from, to) of the prompt, which begins at row `from` − `first` of the step. */
typedef struct look {
    avo_batch *batch;
    const avo_session *session;
    uint32_t first, from, to;
} look;

/* The last row of a prompt has no token of it behind. */
static avo_status look_logprobs(request *request, const look *look) {
    uint32_t end = look->to < request->prompt_tokens ? look->to : request->prompt_tokens - 1;
    if (look->from >= end)
        return AVO_OK;
    size_t next = look->from + 1;
    avo_status status = avo_batch_score(
        look->batch, look->session, look->from - look->first, end - look->from,
        request->timeline + next, request->prompt_tops == NULL ? 0 : request->top_stride,
        request->prompt_logprobs + next,
        request->prompt_tops == NULL ? NULL : request->prompt_tops + next * request->top_stride);
    if (status != AVO_OK)
        request->error = *avo_batch_error(look->batch);
    return status;
}

/* Hidden states of `count` rows, from row `first` of the step on. */
static avo_status look_hidden(request *request, const look *look, uint32_t first, uint32_t count,
                              const float **hidden) {
    *hidden = avo_batch_hidden(look->batch, look->session, first, count);
    if (*hidden != NULL)
        return AVO_OK;
    request->error = *avo_batch_error(look->batch);
    return request->error.status;
}

static avo_status look_mean(request *request, const look *look) {
    size_t width = request->scheduler->engine_limits.model->view.width;
    uint32_t count = look->to - look->from;
    const float *hidden;
    AVO_TRY(look_hidden(request, look, look->from - look->first, count, &hidden));
    for (uint32_t row = 0; row < count; row++, hidden += width)
        for (size_t i = 0; i < width; i++)
            request->pooled[i] += (double)hidden[i];
    for (size_t i = 0; look->to == request->prompt_tokens && i < width; i++)
        request->embedding[i] = (float)(request->pooled[i] / (double)request->prompt_tokens);
    return AVO_OK;
}

static avo_status look_last(request *request, const look *look) {
    size_t width = request->scheduler->engine_limits.model->view.width;
    const float *hidden;
    AVO_TRY(look_hidden(request, look, request->prompt_tokens - 1 - look->first, 1, &hidden));
    for (size_t i = 0; i < width; i++)
        request->embedding[i] = hidden[i];
    return AVO_OK;
}

avo_status request_score(request *request, avo_batch *batch, const avo_session *session,
                         const sched_entry *entry) {
    uint32_t end = entry->first + entry->rows;
    look look = {.batch = batch,
                 .session = session,
                 .first = entry->first,
                 .from = entry->first > request->looked ? entry->first : request->looked,
                 .to = end < request->prompt_tokens ? end : request->prompt_tokens};
    if (look.from >= look.to)
        return AVO_OK;
    if (request->pooled != NULL)
        AVO_TRY(look_mean(request, &look));
    else if (request->embedding != NULL && look.to == request->prompt_tokens)
        AVO_TRY(look_last(request, &look));
    if (request->prompt_logprobs != NULL)
        AVO_TRY(look_logprobs(request, &look));
    request->looked = look.to;
    return AVO_OK;
}
