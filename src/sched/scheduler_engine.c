/* The engine thread: takes new requests, asks the core what to compute, computes it, draws, and
 * hands tokens to delivery. It waits for the engine alone, and for a prefill step in flight
 * (scheduler_prefill.c) when it has nothing else to do. */
#include "sched/scheduler_int.h"

#include "base/clock.h"
#include "base/float_mode.h"
#include "base/hash.h"

#include <string.h>
#include <time.h>

#define NOTHING_TO_DO_NS 2000000 /* something waits but cannot run: deadlines are looked at */

/* ---- Intake ---- */

static uint64_t name_key(const char *name) {
    return name == NULL || name[0] == '\0' ? 0 : hash_bytes(name, strlen(name));
}

static void over_locked(request *request, request_ending end) {
    avo_scheduler *s = request->scheduler;
    pthread_mutex_lock(&s->lock);
    request_over(request, end);
    pthread_mutex_unlock(&s->lock);
}

/* Of a prompt, what need not be computed, as it looks now. */
static uint32_t reusable(avo_scheduler *s, const request *request) {
    if (s->options.no_prefix_cache || request_looks(request) ||
        (request_first_deadline_ns(request) == 0 && request_deadline_ns(request) == 0))
        return 0; /* nobody would ask */
    avo_session_options options = request_session_options(request);
    return engine_prefix_peek(s->engine, &options, request->timeline, request->prompt_tokens);
}

static void take_request(avo_scheduler *s, request *request) {
    if (request_late(request)) {
        request->finish = AVO_FINISH_DEADLINE;
        over_locked(request, ENDED_FINISHED);
        return;
    }
    const avo_request *given = &request->given;
    sched_request wanted = {.id = request->number,
                            .tenant = name_key(given->tenant),
                            .adapter = request->adapter_key,
                            .adapters = (uint32_t)request->use_count,
                            .priority = given->priority,
                            .weight = given->tenant_weight > 0.0f ? given->tenant_weight : 1.0f,
                            .tenant_pages_max = request_budget(request),
                            .prompt_tokens = request->prompt_tokens,
                            .new_tokens_max = request->capacity - request->prompt_tokens,
                            .arrival_ns = request->submitted_ns,
                            .reusable_tokens = reusable(s, request),
                            .first_deadline_ns = request_first_deadline_ns(request),
                            .deadline_ns = request_deadline_ns(request),
                            .no_answer = given->no_answer,
                            .scored = given->prompt_logprobs};
    uint64_t retry_ns = 0;
    avo_status status = sched_submit(s->core, &wanted, clock_now_ns(), &retry_ns, &request->error);
    if (status != AVO_OK)
        over_locked(request, status == AVO_ERROR_DEADLINE ? ENDED_REFUSED : ENDED_FAILED);
}

/* Closing: whatever the core has ends. */
static void cancel_all(avo_scheduler *s) {
    s->cancel_count = 0;
    for (uint32_t i = 0; i < s->bucket_count; i++)
        for (request *request = s->buckets[i]; request != NULL; request = request->chain)
            if (request->state == REQUEST_TAKEN)
                (void)sched_cancel(s->core, request->number);
}

static void wait_for_work(avo_scheduler *s, bool stuck) {
    if (s->prefill_in_flight) {
        while (s->prefill == PREFILL_COMPUTING && s->inbox.first == NULL && s->cancel_count == 0 &&
               s->corpus_copy == NULL)
            pthread_cond_wait(&s->engine_cond, &s->lock);
        return;
    }
    if (stuck) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += NOTHING_TO_DO_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(&s->engine_cond, &s->lock, &until);
        return;
    }
    while (s->inbox.first == NULL && s->cancel_count == 0 && s->corpus_copy == NULL &&
           !(s->closing && s->tokenizers_done))
        pthread_cond_wait(&s->engine_cond, &s->lock);
}

/* False: everything has ended and nothing more will come. `stuck`: the last plan was empty. */
static bool intake(avo_scheduler *s, bool stuck) {
    request_list taken = {NULL, NULL};
    pthread_mutex_lock(&s->lock);
    bool idle = sched_idle(s->core);
    if (s->inbox.first == NULL && s->cancel_count == 0 && s->corpus_copy == NULL &&
        (idle || stuck) && (!s->closing || s->prefill_in_flight))
        wait_for_work(s, stuck && !idle);
    else if (s->closing && idle && s->inbox.first == NULL && !s->tokenizers_done)
        wait_for_work(s, false);
    for (uint32_t i = 0; i < s->cancel_count; i++)
        (void)sched_cancel(s->core, s->cancels[i]);
    s->cancel_count = 0;
    for (request *request = list_take(&s->inbox); request != NULL; request = list_take(&s->inbox)) {
        request->state = REQUEST_TAKEN;
        if (!s->closing && !request->cancelled) {
            list_append(&taken, request);
            continue;
        }
        request->finish = AVO_FINISH_CANCELLED;
        request_over(request, ENDED_FINISHED);
    }
    if (s->closing)
        cancel_all(s);
    bool more = !(s->closing && s->tokenizers_done && idle);
    pthread_mutex_unlock(&s->lock);
    for (request *request = list_take(&taken); request != NULL; request = list_take(&taken))
        take_request(s, request);
    scheduler_corpus_copy(s);
    return more;
}

/* ---- One step ---- */

static void note_begin(avo_scheduler *s, request *request, uint64_t now) {
    if (request->begun)
        return;
    request->begun = true;
    request->begun_ns = now;
    pthread_mutex_lock(&s->lock);
    sched_pace_begin(&s->pace, now, request->charge, s->waiting > 1); /* besides this one */
    request_uncount(request);
    note_begun(request);
    pthread_mutex_unlock(&s->lock);
}

/* The session has what was computed of the timeline and, while it decodes, the last token drawn.
 * Drafts lie in the timeline behind it (memory_drafts). */
static bool add_entry(avo_scheduler *s, avo_batch *batch, const sched_entry *entry) {
    running_request *running = &s->running[entry->sequence];
    request *request = running->request;
    if (!running_prepare(running))
        return false;
    bool draws = entry->draws && !request->given.no_answer;
    uint32_t first = avo_session_length(running->session);
    uint32_t count = entry->first + entry->rows - first;
    avo_status status =
        draws ? engine_batch_add_drafts(batch, running->session, request->timeline + first, count,
                                        entry->drafts)
              : avo_batch_add_scored(batch, running->session, request->timeline + first, count, 0);
    if (status != AVO_OK) {
        request->error = *avo_batch_error(batch);
        request->error.status = status;
        return false;
    }
    if (draws)
        sequence_want(&request->sequence, batch);
    return true;
}

bool step_build(avo_scheduler *s, serve_stream *stream, const sched_plan *plan, uint64_t now) {
    bool any = false;
    avo_batch_clear(stream->batch);
    batch_want_nothing(stream->batch);
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sched_entry *entry = &plan->entries[i];
        note_begin(s, s->running[entry->sequence].request, now);
        stream->scored[i] = false;
        stream->results[i] = (sched_result){.failed = !add_entry(s, stream->batch, entry)};
        any = any || !stream->results[i].failed;
    }
    return any;
}

/* A token was accepted: it waits with the request for delivery. */
static bool keep_token(void *context, const sample_choice *choice, uint32_t released) {
    request *request = context;
    uint32_t at = request->sequence.drawn - 1;
    if (at == 0)
        request->first_ns = clock_now_ns();
    if (request->drafted_at != NULL) /* a draft is still where it will be written */
        request->drafted_at[at] = at - request->step_drawn < request->step_drafts &&
                                  request->timeline[request->prompt_tokens + at] == choice->token;
    request->timeline[request->prompt_tokens + at] = choice->token;
    request->logprobs[at] = choice->logprob;
    if (request->tops != NULL)
        memcpy(request->tops + (size_t)at * request->top_stride, choice->top,
               request->top_stride * sizeof(*choice->top));
    if (request->released != NULL)
        request->released[at] = released;
    return true;
}

/* Draws for one request. */
static void draw(avo_batch *batch, running_request *running, uint32_t drafts,
                 sched_result *result) {
    request *request = running->request;
    if (request->given.no_answer) {
        request->finish = AVO_FINISH_LENGTH;
        result->finished = true;
        return;
    }
    sequence_step step = {.batch = batch,
                          .drafts =
                              request->timeline + request->prompt_tokens + request->sequence.drawn,
                          .draft_count = drafts,
                          .take = keep_token,
                          .context = request};
    sequence_outcome outcome;
    request->step_drafts = drafts;
    request->step_drawn = request->sequence.drawn;
    result->failed =
        sequence_accept(&request->sequence, &step, &outcome, &request->error) != AVO_OK;
    result->accepted = outcome.accepted;
    result->finished = outcome.finished;
    if (outcome.finished)
        request->finish = request->sequence.finish;
    uint32_t right = outcome.accepted > 0 ? outcome.accepted - 1 : 0;
    request->drafted += drafts;
    request->accepted += right;
    note_drafts(request->scheduler, drafts, right);
    if (running->drafter == NULL)
        return;
    drafter_verified(running->drafter, drafts, right);
    uint32_t before = request->prompt_tokens;
    before = before < DRAFT_PROMPT_TOKENS ? before : DRAFT_PROMPT_TOKENS;
    if (outcome.finished)
        drafter_learn(running->drafter, request->timeline + request->prompt_tokens - before,
                      before + request->sequence.drawn);
}

void step_draw(avo_scheduler *s, serve_stream *stream, const sched_plan *plan) {
    uint64_t begin = clock_now_ns();
    uint32_t drawn = 0;
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sched_entry *entry = &plan->entries[i];
        if (stream->results[i].failed || !entry->draws)
            continue;
        draw(stream->batch, &s->running[entry->sequence], entry->drafts, &stream->results[i]);
        drawn += stream->results[i].accepted;
    }
    note_stage(s, SPAN_SAMPLE, begin, drawn);
}

void step_score(avo_scheduler *s, serve_stream *stream, const sched_plan *plan) {
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sched_entry *entry = &plan->entries[i];
        running_request *running = &s->running[entry->sequence];
        if (stream->results[i].failed ||
            !(request_looks(running->request) || running->request->embedding != NULL))
            continue;
        bool good =
            request_score(running->request, stream->batch, running->session, entry) == AVO_OK;
        if (!good) /* what it drew is not told */
            stream->results[i] = (sched_result){.failed = true};
        stream->scored[i] = good && running->request->given.prompt_logprobs;
    }
}

void step_fail(avo_scheduler *s, serve_stream *stream, const sched_plan *plan) {
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        if (!stream->results[i].failed)
            s->running[plan->entries[i].sequence].request->error = *avo_batch_error(stream->batch);
        stream->results[i] = (sched_result){.failed = true};
    }
}

static void end_request(avo_scheduler *s, const sched_end *end) {
    request *request = requests_find(s, end->request);
    request_ending how = ENDED_FINISHED;
    switch (end->outcome) {
    case SCHED_FINISHED:
        break;
    case SCHED_CANCELLED:
        request->finish = AVO_FINISH_CANCELLED;
        break;
    case SCHED_EXPIRED:
        request->finish = AVO_FINISH_DEADLINE;
        break;
    case SCHED_REFUSED:
        how = ENDED_REFUSED;
        (void)!status_fail(&request->error, AVO_ERROR_DEADLINE,
                           "the deadline of the request cannot be met");
        break;
    case SCHED_FAILED:
        how = ENDED_FAILED;
        s->device_failures += request->error.status == AVO_ERROR_DEVICE;
        break;
    }
    request_over(request, how);
}

/* The core's counts, for whoever asks. */
static void publish_counts(avo_scheduler *s) {
    sched_counts counts = sched_count(s->core);
    avo_scheduler_info *info = &s->info;
    note_rates(s, &counts);
    info->running = counts.running;
    info->preemptions = counts.preemptions;
    info->prompt_tokens = counts.prompt_tokens;
    info->reused_tokens = counts.reused_tokens;
    info->new_tokens = counts.new_tokens;
    info->recomputed_tokens = counts.recomputed_tokens;
    info->resumed_tokens = counts.resumed_tokens;
    info->drafted_tokens = counts.draft_tokens;
    info->accepted_tokens = counts.accepted_drafts;
    info->steps = s->steps + s->prefill_steps;
    info->step_seconds = (double)s->step_ns * 1e-9;
    info->prefill_steps = s->prefill_steps;
    info->prefill_seconds = (double)s->prefill_steps_ns * 1e-9;
    info->prefill_threads = s->cores.prompts;
    info->busy_seconds = (double)s->busy_ns * 1e-9;
    info->device_failures = s->device_failures;
    scheduler_count_pages(s);
}

void step_learn(avo_scheduler *s, const sched_plan *plan, uint64_t ns) {
    s->device_failures = 0;
    step_cost *cost = sched_cost_model(s->core, plan->side);
    step_cost_learn(cost, &plan->load, (double)ns);
    if (s->engine_limits.speculation != NULL)
        step_cost_hope(cost, step_load_rows(&plan->load));
    if (plan->side == SCHED_PREFILL) {
        s->prefill_steps++;
        s->prefill_steps_ns += ns;
        return;
    }
    s->steps++;
    s->step_ns += ns;
}

void step_done(avo_scheduler *s, serve_stream *stream, const sched_plan *plan) {
    const sched_end *ends = NULL;
    uint32_t end_count = 0;
    sched_step_done(s->core, plan, stream->results, clock_now_ns(), &ends, &end_count);
    pthread_mutex_lock(&s->lock);
    uint64_t now = clock_now_ns();
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        uint32_t accepted = stream->results[i].accepted;
        if (accepted == 0 && !stream->scored[i])
            continue;
        request *request = requests_find(s, plan->entries[i].request);
        request->produced += accepted;
        request->scored = request_scored(request);
        while (accepted-- > 0)
            note_token(request, now);
        request_ready(request);
    }
    for (uint32_t i = 0; i < end_count; i++)
        end_request(s, &ends[i]);
    publish_counts(s);
    pthread_mutex_unlock(&s->lock);
}

void plan_publish(avo_scheduler *s, const sched_plan *plan) {
    if (plan->entry_count > 0 && plan->end_count == 0 && plan->preempted_count == 0)
        return;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < plan->preempted_count; i++) {
        request *request = requests_find(s, plan->preempted[i]);
        if (request != NULL)
            request->preemptions++;
    }
    for (uint32_t i = 0; i < plan->end_count; i++)
        end_request(s, &plan->ends[i]);
    publish_counts(s);
    pthread_mutex_unlock(&s->lock);
}

/* Computes the plan in stream 0; nanoseconds of the step itself. */
static uint64_t compute(avo_scheduler *s, const sched_plan *plan, uint64_t now) {
    serve_stream *stream = &s->stream[0];
    if (!step_build(s, stream, plan, now))
        return 0;
    note_stage(s, SPAN_PLAN, now, 0);
    uint64_t begin = clock_now_ns();
    avo_status status = avo_step(s->engine, stream->batch);
    uint64_t ns = clock_now_ns() - begin;
    if (status != AVO_OK) {
        step_fail(s, stream, plan);
        return ns;
    }
    step_draw(s, stream, plan);
    begin = clock_now_ns();
    step_score(s, stream, plan);
    ns += clock_now_ns() - begin;
    step_learn(s, plan, ns);
    return ns;
}

void *engine_main(void *context) {
    avo_scheduler *s = context;
    float_mode mode;
    float_mode_enter(&mode); /* draws must not depend on the mode of whoever opened the scheduler */
    bool stuck = false;
    while (intake(s, stuck)) {
        uint64_t begin = clock_now_ns();
        sched_plan plan;
        uint64_t step_ns = 0;
        prefill_advance(s);
        sched_plan_side(s->core, prefill_side(s), clock_now_ns(), &plan);
        plan_publish(s, &plan);
        if (plan.entry_count > 0) {
            step_ns = compute(s, &plan, begin);
            step_done(s, &s->stream[0], &plan);
        }
        stuck = plan.entry_count == 0;
        s->busy_ns += clock_now_ns() - begin - step_ns;
    }
    float_mode_leave(&mode);
    return NULL;
}
