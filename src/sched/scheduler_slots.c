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
                         : job->prompt_tokens + job->drawn;
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
    sampler_close(slot->job->sampler);
    slot->job->sampler = NULL;
    grammar_matcher_close(slot->job->matcher);
    slot->job->matcher = NULL;
    *slot = (serve_slot){0};
}

static uint32_t slots_available(void *context) {
    avo_scheduler *s = context;
    avo_kv_info info = AVO_KV_INFO_INIT;
    avo_engine_kv(s->engine, &info);
    return info.pages_free + info.pages_cached;
}

sched_memory slots_memory(avo_scheduler *s) {
    return (sched_memory){.context = s,
                          .begin = slot_begin,
                          .reserve = slot_reserve,
                          .end = slot_end,
                          .available = slots_available,
                          .page_tokens = KV_PAGE_TOKENS};
}

/* At the place of the grammar that the answer has reached. */
static bool open_matcher(avo_scheduler *s, job *job) {
    const avo_request *given = &job->given;
    if (grammar_matcher_open(given->grammar, given->stop_tokens, given->stop_token_count,
                             s->allocator, &job->matcher, &job->error) != AVO_OK)
        return false;
    sampler_constrain(job->sampler);
    for (uint32_t i = 0; i < job->drawn; i++)
        if (grammar_matcher_follow(job->matcher, job->timeline[job->prompt_tokens + i],
                                   &job->error) != AVO_OK)
            return false;
    return true;
}

bool slot_prepare(avo_scheduler *s, serve_slot *slot) {
    job *job = slot->job;
    if (slot->broken || job->sampler != NULL || job->given.no_answer)
        return !slot->broken;
    if (sampler_open_in(s->room, &job->sampling, s->allocator, &job->sampler, &job->error) !=
        AVO_OK) {
        slot->broken = true;
        return false;
    }
    if (job->given.grammar != NULL && !open_matcher(s, job)) {
        slot->broken = true;
        return false;
    }
    sampler_see_prompt(job->sampler, job->timeline, job->prompt_tokens);
    for (uint32_t i = 0; i < job->drawn; i++)
        sampler_see_output(job->sampler, job->timeline[job->prompt_tokens + i]);
    return true;
}
