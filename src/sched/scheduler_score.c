/* What a request wants of its prompt: logprobs of its tokens, its hidden states pooled. On the
 * engine's thread, behind the step that computed the rows.
 *
 * Rows are looked at in the order of the prompt and never twice: after a preemption they are
 * computed again as far as the prefix cache has lost them, and those that were looked at are passed
 * over. Sums of a mean are added row by row in that order, so that chunks leave no trace in them.
 */
#include "sched/scheduler_int.h"

#include <math.h>

bool job_looks(const job *job) {
    return job->given.prompt_logprobs || job->given.pooling == AVO_POOLING_MEAN;
}

avo_status job_take_score_room(job *job, avo_error *error) {
    size_t count = job->prompt_tokens;
    size_t width = job->scheduler->engine_limits.model->view.width;
    bool tops = job->given.prompt_logprobs && job->top_stride > 0;
    bool pools = job->given.pooling != AVO_POOLING_NONE;
    bool means = job->given.pooling == AVO_POOLING_MEAN;
    arena *arena = &job->arena;
    if (job->given.prompt_logprobs)
        job->prompt_logprobs = arena_take_array(arena, count, sizeof(float));
    if (tops)
        job->prompt_tops = arena_take_array(arena, count * job->top_stride, sizeof(avo_logprob));
    if (means)
        job->pooled = arena_take_array(arena, width, sizeof(double));
    if (pools)
        job->embedding = arena_take_array(arena, width, sizeof(float));
    if ((job->given.prompt_logprobs && job->prompt_logprobs == NULL) ||
        (tops && job->prompt_tops == NULL) || (means && job->pooled == NULL) ||
        (pools && job->embedding == NULL))
        return status_no_memory(error, "what is wanted of a prompt", count * sizeof(float));
    if (job->prompt_logprobs != NULL)
        job->prompt_logprobs[0] = NAN; /* nothing stands before it */
    return AVO_OK;
}

uint32_t job_scored(const job *job) {
    if (job->prompt_logprobs == NULL || job->looked == 0)
        return 0;
    return job->looked < job->prompt_tokens ? job->looked + 1 : job->prompt_tokens;
}

/* Rows [from, to) of the prompt, which begins at row `from` − `first` of the step. */
typedef struct look {
    avo_batch *batch;
    const avo_session *session;
    uint32_t first, from, to;
} look;

/* The last row of a prompt has no token of it behind. */
static avo_status look_logprobs(job *job, const look *look) {
    uint32_t end = look->to < job->prompt_tokens ? look->to : job->prompt_tokens - 1;
    if (look->from >= end)
        return AVO_OK;
    size_t next = look->from + 1;
    avo_status status = avo_batch_score(
        look->batch, look->session, look->from - look->first, end - look->from,
        job->timeline + next, job->prompt_tops == NULL ? 0 : job->top_stride,
        job->prompt_logprobs + next,
        job->prompt_tops == NULL ? NULL : job->prompt_tops + next * job->top_stride);
    if (status != AVO_OK)
        job->error = *avo_batch_error(look->batch);
    return status;
}

static void look_mean(job *job, const look *look) {
    size_t width = job->scheduler->engine_limits.model->view.width;
    uint32_t count = look->to - look->from;
    const float *hidden =
        avo_batch_hidden(look->batch, look->session, look->from - look->first, count);
    for (uint32_t row = 0; row < count; row++, hidden += width)
        for (size_t i = 0; i < width; i++)
            job->pooled[i] += (double)hidden[i];
    if (look->to < job->prompt_tokens)
        return;
    for (size_t i = 0; i < width; i++)
        job->embedding[i] = (float)(job->pooled[i] / (double)job->prompt_tokens);
}

static void look_last(job *job, const look *look) {
    size_t width = job->scheduler->engine_limits.model->view.width;
    const float *hidden =
        avo_batch_hidden(look->batch, look->session, job->prompt_tokens - 1 - look->first, 1);
    for (size_t i = 0; i < width; i++)
        job->embedding[i] = hidden[i];
}

avo_status job_score(job *job, avo_batch *batch, const avo_session *session,
                     const sched_entry *entry) {
    uint32_t end = entry->first + entry->rows;
    look look = {.batch = batch,
                 .session = session,
                 .first = entry->first,
                 .from = entry->first > job->looked ? entry->first : job->looked,
                 .to = end < job->prompt_tokens ? end : job->prompt_tokens};
    if (look.from >= look.to)
        return AVO_OK;
    if (job->pooled != NULL)
        look_mean(job, &look);
    else if (job->embedding != NULL && look.to == job->prompt_tokens)
        look_last(job, &look);
    if (job->prompt_logprobs != NULL)
        AVO_TRY(look_logprobs(job, &look));
    job->looked = look.to;
    return AVO_OK;
}
