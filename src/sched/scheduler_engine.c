/* The engine thread: takes what has come, asks the core what to compute, computes it, draws, and
 * says what there is to deliver. It never waits for anybody but the team of the engine, and for a
 * flight (scheduler_flight.c) when it has nothing else to do. */
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

static void over_locked(job *job, job_end end) {
    avo_scheduler *s = job->scheduler;
    pthread_mutex_lock(&s->lock);
    job_over(job, end);
    pthread_mutex_unlock(&s->lock);
}

/* Of a prompt, what need not be computed, as it looks now. */
static uint32_t reusable(avo_scheduler *s, const job *job) {
    if (s->options.no_prefix_cache || job_looks(job) ||
        (job_first_deadline_ns(job) == 0 && job_deadline_ns(job) == 0))
        return 0; /* nobody would ask */
    avo_session_options options = slot_options(job);
    return engine_prefix_peek(s->engine, &options, job->timeline, job->prompt_tokens);
}

static void take_job(avo_scheduler *s, job *job) {
    if (job_late(job)) {
        job->finish = AVO_FINISH_DEADLINE;
        over_locked(job, JOB_ENDS_FINISHED);
        return;
    }
    const avo_request *given = &job->given;
    sched_request request = {.id = job->number,
                             .tenant = name_key(given->tenant),
                             .adapter = job->adapter_key,
                             .adapters = (uint32_t)job->use_count,
                             .priority = given->priority,
                             .weight = given->tenant_weight > 0.0f ? given->tenant_weight : 1.0f,
                             .prompt_tokens = job->prompt_tokens,
                             .new_tokens_max = job->capacity - job->prompt_tokens,
                             .arrival_ns = job->submitted_ns,
                             .reusable_tokens = reusable(s, job),
                             .first_deadline_ns = job_first_deadline_ns(job),
                             .deadline_ns = job_deadline_ns(job),
                             .no_answer = given->no_answer,
                             .scored = given->prompt_logprobs};
    uint64_t retry_ns = 0;
    avo_status status = sched_submit(s->core, &request, clock_now_ns(), &retry_ns, &job->error);
    if (status != AVO_OK)
        over_locked(job, status == AVO_ERROR_DEADLINE ? JOB_ENDS_REFUSED : JOB_ENDS_FAILED);
}

/* Closing: whatever the core has ends. */
static void cancel_all(avo_scheduler *s) {
    s->cancel_count = 0;
    for (uint32_t i = 0; i < s->bucket_count; i++)
        for (job *job = s->buckets[i]; job != NULL; job = job->chain)
            if (job->state == JOB_TAKEN)
                (void)sched_cancel(s->core, job->number);
}

static void wait_for_work(avo_scheduler *s, bool stuck) {
    if (s->flying) {
        while (s->flight == FLIGHT_COMPUTED && s->inbox.first == NULL && s->cancel_count == 0)
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
    while (s->inbox.first == NULL && s->cancel_count == 0 && !(s->closing && s->tokenizers_done))
        pthread_cond_wait(&s->engine_cond, &s->lock);
}

/* False: everything has ended and nothing more will come. `stuck`: the last plan was empty. */
static bool intake(avo_scheduler *s, bool stuck) {
    job_list taken = {NULL, NULL};
    pthread_mutex_lock(&s->lock);
    bool idle = sched_idle(s->core);
    if (s->inbox.first == NULL && s->cancel_count == 0 && (idle || stuck) &&
        (!s->closing || s->flying))
        wait_for_work(s, stuck && !idle);
    else if (s->closing && idle && s->inbox.first == NULL && !s->tokenizers_done)
        wait_for_work(s, false);
    for (uint32_t i = 0; i < s->cancel_count; i++)
        (void)sched_cancel(s->core, s->cancels[i]);
    s->cancel_count = 0;
    for (job *job = list_take(&s->inbox); job != NULL; job = list_take(&s->inbox)) {
        job->state = JOB_TAKEN;
        if (!s->closing && !job->cancelled) {
            list_append(&taken, job);
            continue;
        }
        job->finish = AVO_FINISH_CANCELLED;
        job_over(job, JOB_ENDS_FINISHED);
    }
    if (s->closing)
        cancel_all(s);
    bool more = !(s->closing && s->tokenizers_done && idle);
    pthread_mutex_unlock(&s->lock);
    for (job *job = list_take(&taken); job != NULL; job = list_take(&taken))
        take_job(s, job);
    return more;
}

/* ---- One step ---- */

static void note_begin(avo_scheduler *s, job *job, uint64_t now) {
    if (job->begun)
        return;
    job->begun = true;
    job->begun_ns = now;
    pthread_mutex_lock(&s->lock);
    sched_pace_begin(&s->pace, now, job->charge, s->waiting > 1); /* besides this one */
    job_uncount(job);
    note_begun(job);
    pthread_mutex_unlock(&s->lock);
}

/* The session has what was computed of the timeline and, while it decodes, the last token drawn.
 * Drafts lie in the timeline behind it (slot_drafts). */
static bool add_entry(avo_scheduler *s, avo_batch *batch, const sched_entry *entry) {
    serve_slot *slot = &s->slots[entry->slot];
    job *job = slot->job;
    if (!slot_prepare(slot))
        return false;
    bool draws = entry->draws && !job->given.no_answer;
    uint32_t first = avo_session_length(slot->session);
    uint32_t count = entry->first + entry->rows - first;
    avo_status status =
        draws ? engine_batch_add_drafts(batch, slot->session, job->timeline + first, count,
                                        entry->drafts)
              : avo_batch_add_scored(batch, slot->session, job->timeline + first, count, 0);
    if (status != AVO_OK) {
        job->error = *avo_batch_error(batch);
        job->error.status = status;
        return false;
    }
    if (draws)
        sequence_want(&job->sequence, batch);
    return true;
}

bool step_build(avo_scheduler *s, serve_lane *lane, const sched_plan *plan, uint64_t now) {
    bool any = false;
    avo_batch_clear(lane->batch);
    batch_want_nothing(lane->batch);
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sched_entry *entry = &plan->entries[i];
        note_begin(s, s->slots[entry->slot].job, now);
        lane->scored[i] = false;
        lane->results[i] = (sched_result){.failed = !add_entry(s, lane->batch, entry)};
        any = any || !lane->results[i].failed;
    }
    return any;
}

/* A token was accepted: it waits with the request for delivery. */
static bool keep_token(void *context, const sample_choice *choice, uint32_t released) {
    job *job = context;
    uint32_t at = job->sequence.drawn - 1;
    if (at == 0)
        job->first_ns = clock_now_ns();
    job->timeline[job->prompt_tokens + at] = choice->token;
    job->logprobs[at] = choice->logprob;
    if (job->tops != NULL)
        memcpy(job->tops + (size_t)at * job->top_stride, choice->top,
               job->top_stride * sizeof(*choice->top));
    if (job->released != NULL)
        job->released[at] = released;
    return true;
}

/* Draws for one request. */
static void draw(avo_batch *batch, job *job, uint32_t drafts, sched_result *result) {
    if (job->given.no_answer) {
        job->finish = AVO_FINISH_LENGTH;
        result->finished = true;
        return;
    }
    sequence_step step = {.batch = batch,
                          .drafts = job->timeline + job->prompt_tokens + job->sequence.drawn,
                          .draft_count = drafts,
                          .take = keep_token,
                          .context = job};
    sequence_outcome outcome;
    result->failed = sequence_accept(&job->sequence, &step, &outcome, &job->error) != AVO_OK;
    result->accepted = outcome.accepted;
    result->finished = outcome.finished;
    if (outcome.finished)
        job->finish = job->sequence.finish;
}

void step_draw(avo_scheduler *s, serve_lane *lane, const sched_plan *plan) {
    uint64_t begin = clock_now_ns();
    uint32_t drawn = 0;
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sched_entry *entry = &plan->entries[i];
        if (lane->results[i].failed || !entry->draws)
            continue;
        draw(lane->batch, s->slots[entry->slot].job, entry->drafts, &lane->results[i]);
        drawn += lane->results[i].accepted;
    }
    note_stage(s, SPAN_SAMPLE, begin, drawn);
}

void step_score(avo_scheduler *s, serve_lane *lane, const sched_plan *plan) {
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const sched_entry *entry = &plan->entries[i];
        serve_slot *slot = &s->slots[entry->slot];
        if (lane->results[i].failed || !(job_looks(slot->job) || slot->job->embedding != NULL))
            continue;
        bool good = job_score(slot->job, lane->batch, slot->session, entry) == AVO_OK;
        if (!good) /* what it drew is not told */
            lane->results[i] = (sched_result){.failed = true};
        lane->scored[i] = good && slot->job->given.prompt_logprobs;
    }
}

void step_fail(avo_scheduler *s, serve_lane *lane, const sched_plan *plan) {
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        if (!lane->results[i].failed)
            s->slots[plan->entries[i].slot].job->error = *avo_batch_error(lane->batch);
        lane->results[i] = (sched_result){.failed = true};
    }
}

static void end_job(avo_scheduler *s, const sched_end *end) {
    job *job = jobs_find(s, end->request);
    job_end how = JOB_ENDS_FINISHED;
    switch (end->outcome) {
    case SCHED_FINISHED:
        break;
    case SCHED_CANCELLED:
        job->finish = AVO_FINISH_CANCELLED;
        break;
    case SCHED_EXPIRED:
        job->finish = AVO_FINISH_DEADLINE;
        break;
    case SCHED_REFUSED:
        how = JOB_ENDS_REFUSED;
        (void)!status_fail(&job->error, AVO_ERROR_DEADLINE,
                           "the deadline of the request cannot be met");
        break;
    case SCHED_FAILED:
        how = JOB_ENDS_FAILED;
        break;
    }
    job_over(job, how);
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
    info->steps = s->steps + s->flights;
    info->step_seconds = (double)s->step_ns * 1e-9;
    info->prefill_steps = s->flights;
    info->prefill_seconds = (double)s->flights_ns * 1e-9;
    info->prefill_threads = s->cores.prompts;
    info->busy_seconds = (double)s->busy_ns * 1e-9;
    scheduler_count_pages(s);
}

void step_learn(avo_scheduler *s, const sched_plan *plan, uint64_t ns) {
    sched_cost_learn(sched_cost_model(s->core, plan->side), &plan->load, (double)ns);
    if (plan->side == SCHED_PREFILL) {
        s->flights++;
        s->flights_ns += ns;
        return;
    }
    s->steps++;
    s->step_ns += ns;
}

void step_done(avo_scheduler *s, serve_lane *lane, const sched_plan *plan) {
    const sched_end *ends = NULL;
    uint32_t end_count = 0;
    sched_step_done(s->core, plan, lane->results, clock_now_ns(), &ends, &end_count);
    pthread_mutex_lock(&s->lock);
    uint64_t now = clock_now_ns();
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        uint32_t accepted = lane->results[i].accepted;
        if (accepted == 0 && !lane->scored[i])
            continue;
        job *job = jobs_find(s, plan->entries[i].request);
        job->produced += accepted;
        job->scored = job_scored(job);
        while (accepted-- > 0)
            note_token(job, now);
        job_ready(job);
    }
    for (uint32_t i = 0; i < end_count; i++)
        end_job(s, &ends[i]);
    publish_counts(s);
    pthread_mutex_unlock(&s->lock);
}

void plan_publish(avo_scheduler *s, const sched_plan *plan) {
    if (plan->entry_count > 0 && plan->end_count == 0 && plan->preempted_count == 0)
        return;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < plan->preempted_count; i++) {
        job *job = jobs_find(s, plan->preempted[i]);
        if (job != NULL)
            job->preemptions++;
    }
    for (uint32_t i = 0; i < plan->end_count; i++)
        end_job(s, &plan->ends[i]);
    publish_counts(s);
    pthread_mutex_unlock(&s->lock);
}

/* Computes the plan in lane 0; nanoseconds of the step itself. */
static uint64_t compute(avo_scheduler *s, const sched_plan *plan, uint64_t now) {
    serve_lane *lane = &s->lane[0];
    if (!step_build(s, lane, plan, now))
        return 0;
    note_stage(s, SPAN_PLAN, now, 0);
    uint64_t begin = clock_now_ns();
    avo_status status = avo_step(s->engine, lane->batch);
    uint64_t ns = clock_now_ns() - begin;
    if (status != AVO_OK) {
        step_fail(s, lane, plan);
        return ns;
    }
    step_draw(s, lane, plan);
    begin = clock_now_ns();
    step_score(s, lane, plan);
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
        flight_turn(s);
        sched_plan_side(s->core, flight_side(s), clock_now_ns(), &plan);
        plan_publish(s, &plan);
        if (plan.entry_count > 0) {
            step_ns = compute(s, &plan, begin);
            step_done(s, &s->lane[0], &plan);
        }
        stuck = plan.entry_count == 0;
        s->busy_ns += clock_now_ns() - begin - step_ns;
    }
    float_mode_leave(&mode);
    return NULL;
}
