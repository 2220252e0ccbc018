/* Slots: a running sequence has a session with its adapters. Preempted, it loses session and pages;
 * when it begins again, its timeline (prompt and what was generated) is found in the prefix cache
 * as far as its pages were not given away, and computed again otherwise. Both give the same bits.
 */
#include "sched/scheduler_int.h"

avo_session_options slot_options(const job *job) {
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = job->uses;
    options.adapter_count = job->use_count;
    options.cache_salt = job->given.cache_salt;
    return options;
}

static avo_status open_session(avo_scheduler *s, job *job, avo_session **session) {
    avo_session_options options = slot_options(job);
    return engine_session_open(s->engine, &options, session, &job->error);
}

static uint32_t slot_begin(void *context, uint32_t index, uint64_t number) {
    avo_scheduler *s = context;
    pthread_mutex_lock(&s->lock);
    job *job = jobs_find(s, number);
    pthread_mutex_unlock(&s->lock);
    serve_slot *slot = &s->slots[index];
    *slot = (serve_slot){.job = job};
    if (open_session(s, job, &slot->session) != AVO_OK) {
        slot->session = NULL;
        slot->broken = true;
        return 0;
    }
    size_t reused = 0;
    /* Of a prompt that is looked at, only what was looked at already. */
    uint32_t known = job_looks(job) && job->looked < job->prompt_tokens
                         ? job->looked + 1
                         : job->prompt_tokens + job->sequence.drawn;
    if (!s->options.no_prefix_cache &&
        avo_session_reuse(slot->session, job->timeline, known, &reused, &job->error) != AVO_OK) {
        slot->broken = true;
        return 0;
    }
    if (!job->begun)
        job->reused_tokens = (uint32_t)reused;
    return (uint32_t)reused;
}

/* A broken one shall be planned, so that it can be told that it has failed. */
static bool slot_reserve(void *context, uint32_t index, uint32_t length) {
    avo_scheduler *s = context;
    serve_slot *slot = &s->slots[index];
    return slot->broken || engine_session_reserve(slot->session, length);
}

static void slot_end(void *context, uint32_t index) {
    avo_scheduler *s = context;
    serve_slot *slot = &s->slots[index];
    avo_session_close(slot->session);
    sequence_end(&slot->job->sequence);
    *slot = (serve_slot){0};
}

static uint32_t slots_available(void *context) {
    avo_scheduler *s = context;
    avo_kv_info info = AVO_KV_INFO_INIT;
    avo_engine_kv(s->engine, &info);
    return info.pages_free + info.pages_cached;
}

/* Behind the tokens that are drawn there is room for more, which nobody else looks at. */
static uint32_t slot_drafts(void *context, uint32_t index, uint32_t most) {
    avo_scheduler *s = context;
    const draft_source *source = s->engine_limits.drafts;
    const job *job = s->slots[index].job;
    uint32_t known = job->prompt_tokens + job->sequence.drawn;
    if (s->slots[index].broken)
        return 0;
    return source->propose(source->context, job->timeline, known, most, job->timeline + known);
}

sched_memory slots_memory(avo_scheduler *s) {
    return (sched_memory){.context = s,
                          .begin = slot_begin,
                          .reserve = slot_reserve,
                          .end = slot_end,
                          .available = slots_available,
                          .page_tokens = KV_PAGE_TOKENS,
                          .drafts = s->engine_limits.drafts == NULL ? NULL : slot_drafts};
}

bool slot_prepare(serve_slot *slot) {
    job *job = slot->job;
    if (slot->broken || job->sequence.session != NULL || job->given.no_answer)
        return !slot->broken;
    slot->broken = sequence_begin(&job->sequence, slot->session, job->timeline, job->prompt_tokens,
                                  &job->error) != AVO_OK;
    return !slot->broken;
}
