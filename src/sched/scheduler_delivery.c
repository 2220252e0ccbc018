/* The delivery thread: decodes tokens to text and calls the listeners. Whatever it does, the engine
 * goes on; a listener that says no is heard by the next plan. */
#include "sched/scheduler_int.h"

#include "base/clock.h"

static bool tell(job *job, avo_event *event) {
    event->size = sizeof(*event);
    event->request = job->number;
    event->index = job->index;
    return job->on_event == NULL || job->on_event(job->on_event_context, event);
}

static bool tell_token(job *job, uint32_t at, int32_t token, text_view text) {
    avo_token_event told = {.token = token,
                            .index = at,
                            .text = text.size == 0 ? "" : text.data,
                            .text_bytes = text.size};
    if (token >= 0) {
        told.logprob = job->logprobs[at];
        told.top = job->tops == NULL ? NULL : job->tops + (size_t)at * job->top_stride;
        told.top_count = job->top_stride;
    }
    avo_event event = {.kind = AVO_EVENT_TOKEN, .token = &told};
    return tell(job, &event);
}

/* The listener, or the lack of memory, ends it: the engine shall know. */
static void give_up(job *job) {
    job->unwanted = true;
    (void)avo_scheduler_cancel(job->scheduler, job->number);
}

static avo_status deliver_token(job *job) {
    uint32_t at = job->delivered;
    int32_t token = job->timeline[job->prompt_tokens + at];
    text_view text;
    AVO_TRY(sequence_text_push(&job->text, token, sequence_stops_at(&job->sequence, token),
                               job->released == NULL ? 0 : job->released[at], &text,
                               &job->deliver_error));
    job->delivered++;
    if (!tell_token(job, at, token, text))
        give_up(job);
    return AVO_OK;
}

/* Whatever is incomplete when the prompt ends belongs to its last token. */
static avo_status deliver_prompt(job *job) {
    uint32_t at = job->prompt_delivered;
    buffer *room = &job->scheduler->text_room;
    room->size = 0;
    if (job->text.exists)
        AVO_TRY(
            decode_stream_push(&job->prompt_text, job->timeline[at], room, &job->deliver_error));
    if (job->text.exists && at + 1 == job->prompt_tokens)
        AVO_TRY(decode_stream_finish(&job->prompt_text, room, &job->deliver_error));
    job->prompt_delivered++;
    text_view text = buffer_text(room);
    bool listed = at > 0 && job->prompt_tops != NULL;
    avo_token_event told = {.token = job->timeline[at],
                            .index = at,
                            .text = text.size == 0 ? "" : text.data,
                            .text_bytes = text.size,
                            .logprob = job->prompt_logprobs[at],
                            .top = listed ? job->prompt_tops + (size_t)at * job->top_stride : NULL,
                            .top_count = listed ? job->top_stride : 0};
    avo_event event = {.kind = AVO_EVENT_PROMPT, .token = &told};
    if (!tell(job, &event))
        give_up(job);
    return AVO_OK;
}

/* Text that was held back. */
static void show_rest(void *context, text_view text) {
    job *job = context;
    (void)tell_token(job, job->delivered - 1, -1, text);
}

static double seconds_since(const job *job, uint64_t ns) {
    return ns == 0 ? 0.0 : clock_seconds(job->submitted_ns, ns);
}

static void tell_finished(job *job, avo_finish finish) {
    avo_result result = {.size = sizeof(result),
                         .finish = finish,
                         .stop_token = -1,
                         .stop_index = -1,
                         .prompt_tokens = job->prompt_tokens,
                         .reused_tokens = job->reused_tokens,
                         .new_tokens = job->delivered,
                         .preemptions = job->preemptions,
                         .queue_seconds = seconds_since(job, job->begun_ns),
                         .first_token_seconds = seconds_since(job, job->first_ns),
                         .total_seconds = seconds_since(job, job->over_ns)};
    sequence_name_stop(&job->sequence, &result);
    if (job->first_ns > 0) {
        result.prefill_seconds = clock_seconds(job->begun_ns, job->first_ns);
        result.decode_seconds = clock_seconds(job->first_ns, job->over_ns);
    }
    if (job->embedding != NULL && finish == AVO_FINISH_LENGTH) {
        result.embedding = job->embedding;
        result.embedding_width = job->scheduler->engine_limits.model->view.width;
    }
    avo_event event = {.kind = AVO_EVENT_FINISHED, .result = &result};
    (void)tell(job, &event);
}

static void tell_failed(job *job, const avo_error *error) {
    avo_event event = {.kind = AVO_EVENT_FAILED, .error = error};
    (void)tell(job, &event);
}

/* The end that the listener sees: what it said with the last token counts like in avo_generate,
 * after stops and before lengths. */
static avo_finish seen_finish(const job *job) {
    bool last = job->delivered == job->sequence.drawn;
    bool stops = job->finish == AVO_FINISH_STOP_TOKEN || job->finish == AVO_FINISH_STOP_STRING;
    return job->unwanted && !(last && stops) ? AVO_FINISH_CANCELLED : job->finish;
}

static void last_event(job *job) {
    if (job->deliver_error.status != AVO_OK) {
        tell_failed(job, &job->deliver_error);
        return;
    }
    if (job->end != JOB_ENDS_FINISHED) {
        tell_failed(job, &job->error);
        return;
    }
    avo_finish finish = seen_finish(job);
    avo_error error = {0};
    avo_status status = AVO_OK;
    if (job->delivered > 0) /* the engine thread has left the sequence, and with it its matcher */
        status =
            sequence_text_finish(&job->text, job->sequence.stops, &finish, show_rest, job, &error);
    if (status == AVO_OK)
        tell_finished(job, finish);
    else
        tell_failed(job, &error);
}

/* What there is of one job: `scored` tokens of its prompt, `produced` of its answer, and its end
 * where `over`. */
static void deliver(job *job, uint32_t scored, uint32_t produced, bool over) {
    bool cancelled = over && job->end == JOB_ENDS_FINISHED && job->finish == AVO_FINISH_CANCELLED;
    while (job->prompt_delivered < scored && !job->unwanted && !cancelled)
        if (deliver_prompt(job) != AVO_OK)
            give_up(job);
    while (job->delivered < produced && !job->unwanted && !cancelled)
        if (deliver_token(job) != AVO_OK)
            give_up(job);
    if (over)
        last_event(job);
}

static void job_gone(avo_scheduler *s, job *gone) {
    pthread_mutex_lock(&s->lock);
    job **at = &s->buckets[gone->number % s->bucket_count];
    while (*at != gone)
        at = &(*at)->chain;
    *at = gone->chain;
    s->live--;
    s->unborn -= gone->unborn;
    pthread_cond_broadcast(&s->gone_cond);
    pthread_mutex_unlock(&s->lock);
    job_free(gone);
}

void *delivery_main(void *context) {
    avo_scheduler *s = context;
    uint64_t begin = clock_thread_ns();
    for (;;) {
        pthread_mutex_lock(&s->lock);
        s->info.delivery_seconds = clock_seconds(begin, clock_thread_ns());
        while (s->ready_first == NULL && !s->engine_done)
            pthread_cond_wait(&s->ready_cond, &s->lock);
        job *job = s->ready_first;
        if (job == NULL) {
            pthread_mutex_unlock(&s->lock);
            return NULL;
        }
        s->ready_first = job->next_ready;
        if (s->ready_first == NULL)
            s->ready_last = NULL;
        job->ready = false;
        uint32_t produced = job->produced, scored = job->scored;
        bool over = job->state == JOB_OVER;
        pthread_mutex_unlock(&s->lock);
        uint64_t begin_ns = clock_now_ns();
        uint32_t before = job->delivered;
        deliver(job, scored, produced, over);
        note_delivered(s, job->number, begin_ns, job->delivered - before);
        if (over)
            job_gone(s, job);
    }
}
