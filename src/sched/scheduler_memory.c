/* Memory for the core: a running request has a session with its adapters. Preempted, it loses
 * session and pages; when it runs again, its timeline (prompt and answer so far) is found in the
 * prefix cache as far as its pages were not given away, and computed again otherwise. Both give the
 * same bits. */
#include "sched/scheduler_int.h"

#include <string.h>

avo_session_options request_session_options(const request *request) {
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = request->uses;
    options.adapter_count = request->use_count;
    options.cache_salt = request->given.cache_salt;
    return options;
}

static avo_status open_session(avo_scheduler *s, request *request, avo_session **session) {
    avo_session_options options = request_session_options(request);
    AVO_TRY(engine_session_open(s->engine, &options, session, &request->error));
    if (engine_kv_events(s->engine) != NULL) {
        char adapters[REQUEST_ADAPTERS_TEXT];
        request_adapters_text(request, adapters);
        engine_session_label(*session, adapters);
    }
    return AVO_OK;
}

static uint32_t memory_begin(void *context, uint32_t index, uint64_t number) {
    avo_scheduler *s = context;
    pthread_mutex_lock(&s->lock);
    request *request = requests_find(s, number);
    pthread_mutex_unlock(&s->lock);
    running_request *running = &s->running[index];
    *running = (running_request){.request = request};
    if (open_session(s, request, &running->session) != AVO_OK) {
        running->session = NULL;
        running->broken = true;
        return 0;
    }
    size_t reused = 0;
    /* Of a prompt that is looked at, only what was looked at already. */
    uint32_t known = request_looks(request) && request->looked < request->prompt_tokens
                         ? request->looked + 1
                         : request->prompt_tokens + request->sequence.drawn;
    if (!s->options.no_prefix_cache && avo_session_reuse(running->session, request->timeline, known,
                                                         &reused, &request->error) != AVO_OK) {
        running->broken = true;
        return 0;
    }
    if (!request->begun)
        request->reused_tokens = (uint32_t)reused;
    if (!request->given.no_answer)
        running->drafter = drafting_take(s->engine_limits.speculation, &s->engine_limits.drafts,
                                         &request->given, &request->sampling, running->session);
    return (uint32_t)reused;
}

/* A broken one is planned all the same, so that its failure can be told. So is one whose pages the
 * device failed to prepare: only a lack of pages is worth waiting or preempting for. */
static bool memory_reserve(void *context, uint32_t index, uint32_t length) {
    avo_scheduler *s = context;
    running_request *running = &s->running[index];
    if (running->broken)
        return true;
    avo_error error;
    avo_status status = engine_session_reserve(running->session, length, &error);
    if (status == AVO_OK || status == AVO_ERROR_FULL)
        return status == AVO_OK;
    running->request->error = error;
    running->broken = true;
    return true;
}

static void memory_end(void *context, uint32_t index) {
    avo_scheduler *s = context;
    running_request *running = &s->running[index];
    drafting_give(&s->engine_limits.drafts, running->drafter);
    avo_session_close(running->session);
    sequence_end(&running->request->sequence);
    *running = (running_request){0};
}

static uint32_t memory_available(void *context) {
    avo_scheduler *s = context;
    avo_kv_info info = AVO_KV_INFO_INIT;
    avo_engine_kv(s->engine, &info);
    return info.pages_free + info.pages_cached;
}

/* Behind the sampled tokens the request's timeline has room for more, which nobody else reads until
 * they are accepted: drafts are kept there. */
static void keep_drafts(running_request *running, sched_wish *wish) {
    request *request = running->request;
    const draft *draft = &running->draft;
    memcpy(request->timeline + request->prompt_tokens + request->sequence.drawn, draft->tokens,
           draft->count * sizeof(draft->tokens[0]));
    wish->count = draft->count;
    wish->survival = draft->survival;
    wish->always = draft->always;
}

static void memory_drafts(void *context, sched_wish *wishes, uint32_t count,
                          const sched_time *time) {
    avo_scheduler *s = context;
    draft_time allowed = {.token_ns = time->token_ns,
                          .row_ns = time->row_ns,
                          .left_ns = time->left_ns,
                          .hopeless = time->hopeless};
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < count; i++) {
        running_request *running = &s->running[wishes[i].sequence];
        request *request = running->request;
        uint32_t known = request->prompt_tokens + request->sequence.drawn;
        running->draft.count = 0;
        /* A prompt that was cached up to its last token is drafted for in its first step. */
        if (running->drafter != NULL && running_prepare(running))
            s->draft_requests[wanted++] =
                (draft_request){.sequence = &request->sequence,
                                .drafter = running->drafter,
                                .timeline = {request->timeline, known, known},
                                .most = wishes[i].most,
                                .draft = &running->draft,
                                .no_reuse = s->options.no_prefix_cache};
    }
    drafting_propose(&s->engine_limits.drafts, s->draft_requests, wanted, &allowed);
    for (uint32_t i = 0; i < count; i++)
        keep_drafts(&s->running[wishes[i].sequence], &wishes[i]);
}

sched_memory scheduler_memory(avo_scheduler *s) {
    return (sched_memory){.context = s,
                          .begin = memory_begin,
                          .reserve = memory_reserve,
                          .end = memory_end,
                          .available = memory_available,
                          .page_tokens = KV_PAGE_TOKENS,
                          .drafts = s->engine_limits.speculation == NULL ? NULL : memory_drafts};
}

bool running_prepare(running_request *running) {
    request *request = running->request;
    if (running->broken || request->sequence.session != NULL || request->given.no_answer)
        return !running->broken;
    running->broken = sequence_begin(&request->sequence, running->session, request->timeline,
                                     request->prompt_tokens, &request->error) != AVO_OK;
    return !running->broken;
}
