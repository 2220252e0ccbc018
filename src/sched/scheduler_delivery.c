/* The delivery thread: decodes tokens to text and calls the listeners. Whatever it does, the engine
 * goes on; a listener that says no is heard by the next plan. */
#include "sched/scheduler_int.h"

#include "base/clock.h"

static bool tell(request *request, avo_event *event) {
    event->size = sizeof(*event);
    event->request = request->number;
    event->index = request->index;
    return request->on_event == NULL || request->on_event(request->on_event_context, event);
}

static bool tell_token(request *request, uint32_t at, int32_t token, text_view text) {
    avo_token_event told = {.token = token,
                            .index = at,
                            .text = text.size == 0 ? "" : text.data,
                            .text_bytes = text.size};
    if (token >= 0) {
        told.logprob = request->logprobs[at];
        told.top = request->tops == NULL ? NULL : request->tops + (size_t)at * request->top_stride;
        told.top_count = request->top_stride;
        told.drafted = request->drafted_at != NULL && request->drafted_at[at];
    }
    avo_event event = {.kind = AVO_EVENT_TOKEN, .token = &told};
    return tell(request, &event);
}

/* The listener, or the lack of memory, ends it: the engine shall know. */
static void give_up(request *request) {
    request->unwanted = true;
    (void)avo_scheduler_cancel(request->scheduler, request->number);
}

static avo_status deliver_token(request *request) {
    uint32_t at = request->delivered;
    int32_t token = request->timeline[request->prompt_tokens + at];
    text_view text;
    AVO_TRY(sequence_text_push(&request->text, token, sequence_stops_at(&request->sequence, token),
                               request->released == NULL ? 0 : request->released[at], &text,
                               &request->deliver_error));
    request->delivered++;
    if (!tell_token(request, at, token, text))
        give_up(request);
    return AVO_OK;
}

/* Whatever is incomplete when the prompt ends belongs to its last token. */
static avo_status deliver_prompt(request *request) {
    uint32_t at = request->prompt_delivered;
    buffer *room = &request->scheduler->text_buffer;
    room->size = 0;
    if (request->text.exists)
        AVO_TRY(decode_stream_push(&request->prompt_text, request->timeline[at], room,
                                   &request->deliver_error));
    if (request->text.exists && at + 1 == request->prompt_tokens)
        AVO_TRY(decode_stream_finish(&request->prompt_text, room, &request->deliver_error));
    request->prompt_delivered++;
    if (at < request->given.prompt_logprobs_from)
        return AVO_OK;
    text_view text = buffer_text(room);
    bool listed = at > 0 && request->prompt_tops != NULL;
    avo_token_event told = {.token = request->timeline[at],
                            .index = at,
                            .text = text.size == 0 ? "" : text.data,
                            .text_bytes = text.size,
                            .logprob = request->prompt_logprobs[at],
                            .top = listed ? request->prompt_tops + (size_t)at * request->top_stride
                                          : NULL,
                            .top_count = listed ? request->top_stride : 0};
    avo_event event = {.kind = AVO_EVENT_PROMPT, .token = &told};
    if (!tell(request, &event))
        give_up(request);
    return AVO_OK;
}

/* Text that was held back. */
static void show_rest(void *context, text_view text) {
    request *request = context;
    (void)tell_token(request, request->delivered - 1, -1, text);
}

static double seconds_since(const request *request, uint64_t ns) {
    return ns == 0 ? 0.0 : clock_seconds(request->submitted_ns, ns);
}

static void tell_finished(request *request, avo_finish finish) {
    avo_result result = {.size = sizeof(result),
                         .finish = finish,
                         .stop_token = -1,
                         .stop_index = -1,
                         .prompt_tokens = request->prompt_tokens,
                         .reused_tokens = request->reused_tokens,
                         .drafted_tokens = request->drafted,
                         .accepted_tokens = request->accepted,
                         .new_tokens = request->delivered,
                         .preemptions = request->preemptions,
                         .queue_seconds = seconds_since(request, request->begun_ns),
                         .first_token_seconds = seconds_since(request, request->first_ns),
                         .total_seconds = seconds_since(request, request->over_ns)};
    sequence_name_stop(&request->sequence, &result);
    if (request->first_ns > 0) {
        result.prefill_seconds = clock_seconds(request->begun_ns, request->first_ns);
        result.decode_seconds = clock_seconds(request->first_ns, request->over_ns);
    }
    if (request->embedding != NULL && finish == AVO_FINISH_LENGTH) {
        result.embedding = request->embedding;
        result.embedding_width = request->scheduler->engine_limits.model->view.width;
    }
    avo_event event = {.kind = AVO_EVENT_FINISHED, .result = &result};
    (void)tell(request, &event);
}

static void tell_failed(request *request, const avo_error *error) {
    avo_event event = {.kind = AVO_EVENT_FAILED, .error = error};
    (void)tell(request, &event);
}

/* The end that the listener sees: what it said with the last token counts like in avo_generate,
 * after stops and before lengths. */
static avo_finish seen_finish(const request *request) {
    bool last = request->delivered == request->sequence.drawn;
    bool stops =
        request->finish == AVO_FINISH_STOP_TOKEN || request->finish == AVO_FINISH_STOP_STRING;
    return request->unwanted && !(last && stops) ? AVO_FINISH_CANCELLED : request->finish;
}

static void last_event(request *request) {
    if (request->deliver_error.status != AVO_OK) {
        tell_failed(request, &request->deliver_error);
        return;
    }
    if (request->end != ENDED_FINISHED) {
        tell_failed(request, &request->error);
        return;
    }
    avo_finish finish = seen_finish(request);
    avo_error error = {0};
    avo_status status = AVO_OK;
    /* The engine thread has left the sequence, and with it its stop matcher. */
    if (request->delivered > 0)
        status = sequence_text_finish(&request->text, request->sequence.stops, &finish, show_rest,
                                      request, &error);
    if (status == AVO_OK)
        tell_finished(request, finish);
    else
        tell_failed(request, &error);
}

/* What there is of one request: `scored` tokens of its prompt, `produced` of its answer, and its
 * end where `over`. */
static void deliver(request *request, uint32_t scored, uint32_t produced, bool over) {
    bool cancelled =
        over && request->end == ENDED_FINISHED && request->finish == AVO_FINISH_CANCELLED;
    while (request->prompt_delivered < scored && !request->unwanted && !cancelled)
        if (deliver_prompt(request) != AVO_OK)
            give_up(request);
    while (request->delivered < produced && !request->unwanted && !cancelled)
        if (deliver_token(request) != AVO_OK)
            give_up(request);
    if (over)
        last_event(request);
}

static void request_gone(avo_scheduler *s, request *gone) {
    pthread_mutex_lock(&s->lock);
    request **at = &s->buckets[gone->number % s->bucket_count];
    while (*at != gone)
        at = &(*at)->chain;
    *at = gone->chain;
    s->live--;
    s->rejected -= gone->rejected;
    pthread_cond_broadcast(&s->gone_cond);
    pthread_mutex_unlock(&s->lock);
    request_free(gone);
}

void *delivery_main(void *context) {
    avo_scheduler *s = context;
    uint64_t begin = clock_thread_ns();
    for (;;) {
        pthread_mutex_lock(&s->lock);
        s->info.delivery_seconds = clock_seconds(begin, clock_thread_ns());
        while (s->ready_first == NULL && !s->engine_done)
            pthread_cond_wait(&s->ready_cond, &s->lock);
        request *request = s->ready_first;
        if (request == NULL) {
            pthread_mutex_unlock(&s->lock);
            return NULL;
        }
        s->ready_first = request->next_ready;
        if (s->ready_first == NULL)
            s->ready_last = NULL;
        request->ready = false;
        uint32_t produced = request->produced, scored = request->scored;
        bool over = request->state == REQUEST_OVER;
        pthread_mutex_unlock(&s->lock);
        uint64_t begin_ns = clock_now_ns();
        uint32_t before = request->delivered;
        deliver(request, scored, produced, over);
        note_delivered(s, request->number, begin_ns, request->delivered - before);
        if (over)
            request_gone(s, request);
    }
}
