/* Many requests at once: submitted as room comes, returning when the last event of the last one was
 * delivered. */
#include "sched/scheduler_int.h"

typedef struct request_batch {
    avo_event_function on_event;
    void *on_event_context;
    pthread_mutex_t lock;
    pthread_cond_t done_cond;
    size_t left; /* submitted and not ended */
} request_batch;

static bool on_event(void *context, const avo_event *event) {
    request_batch *batch = context;
    bool more = batch->on_event == NULL || batch->on_event(batch->on_event_context, event);
    if (event->kind == AVO_EVENT_TOKEN || event->kind == AVO_EVENT_PROMPT)
        return more;
    pthread_mutex_lock(&batch->lock);
    if (--batch->left == 0)
        pthread_cond_signal(&batch->done_cond);
    pthread_mutex_unlock(&batch->lock);
    return more;
}

/* AVO_OK too when the request was refused and that will be told. */
static avo_status submit_one(avo_scheduler *s, const submission *submission, avo_error *error) {
    avo_error why = {0};
    avo_status status = scheduler_submit(s, submission, NULL, NULL, &why);
    if (status == AVO_OK)
        return status;
    why.status = status;
    if (scheduler_submit_failed(s, submission, &why) != AVO_OK)
        return status_no_memory(error, "a request", sizeof(request));
    return AVO_OK;
}

/* A program built against an older header has shorter ones. */
static const avo_request *request_at(const avo_request *requests, size_t index) {
    return (const avo_request *)(const void *)((const char *)requests + index * requests->size);
}

avo_status avo_scheduler_batch(avo_scheduler *s, const avo_request *requests, size_t count,
                               const avo_sampling *shared, avo_event_function listener,
                               void *listener_context, avo_error *error) {
    request_batch batch = {.on_event = listener, .on_event_context = listener_context};
    pthread_mutex_init(&batch.lock, NULL);
    pthread_cond_init(&batch.done_cond, NULL);
    avo_status status = AVO_OK;
    scheduler_enter(s);
    for (size_t i = 0; i < count && status == AVO_OK; i++) {
        submission submission = {.request = request_at(requests, i),
                                 .shared = shared,
                                 .index = i,
                                 .on_event = on_event,
                                 .on_event_context = &batch,
                                 .takes_events = true,
                                 .waits = true};
        pthread_mutex_lock(&batch.lock);
        batch.left++;
        pthread_mutex_unlock(&batch.lock);
        status = submit_one(s, &submission, error);
        if (status == AVO_OK)
            continue;
        pthread_mutex_lock(&batch.lock);
        batch.left--;
        pthread_mutex_unlock(&batch.lock);
    }
    pthread_mutex_lock(&batch.lock);
    while (batch.left > 0)
        pthread_cond_wait(&batch.done_cond, &batch.lock);
    pthread_mutex_unlock(&batch.lock);
    pthread_cond_destroy(&batch.done_cond);
    pthread_mutex_destroy(&batch.lock);
    scheduler_leave(s);
    return status;
}
