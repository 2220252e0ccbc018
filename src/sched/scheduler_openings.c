/* Adapters that must be opened before requests can go on, and requests that can end because nobody
 * works on them.
 *
 * Opening takes as long as the files want, so it has threads of its own. An opening is named, and
 * whoever asks for that name is parked there: a second request for it takes no second thread, and
 * requests for others pass by. There are never more openings than requests that wait.
 */
#include "sched/scheduler_int.h"

#include "base/clock.h"
#include "base/hash.h"

#include <string.h>
#include <time.h>

/* ---- Openings; the lock is held ---- */

static opening **bucket_of(avo_scheduler *s, const char *name) {
    return &s->opening_bucket[hash_bytes(name, strlen(name)) % SCHEDULER_OPENING_BUCKETS];
}

static void enqueue(avo_scheduler *s, opening *opening) {
    opening->runs = false;
    opening->next = NULL;
    *(s->opening_last != NULL ? &s->opening_last->next : &s->opening_first) = opening;
    s->opening_last = opening;
    pthread_cond_signal(&s->opening_cond);
}

static opening *dequeue(avo_scheduler *s) {
    opening *opening = s->opening_first;
    if (opening == NULL)
        return NULL;
    s->opening_first = opening->next;
    if (s->opening_first == NULL)
        s->opening_last = NULL;
    return opening;
}

static void opening_free(avo_scheduler *s, opening *gone) {
    opening **at = bucket_of(s, gone->name);
    while (*at != gone)
        at = &(*at)->chain;
    *at = gone->chain;
    allocator_give(s->allocator, gone, gone->bytes);
}

avo_status opening_park(request *request, const char *name, avo_error *error) {
    avo_scheduler *s = request->scheduler;
    opening **bucket = bucket_of(s, name), *found = *bucket;
    while (found != NULL && strcmp(found->name, name) != 0)
        found = found->chain;
    if (found == NULL) {
        size_t length = strlen(name) + 1, bytes = sizeof(*found) + length;
        found = allocator_take(s->allocator, bytes);
        if (found == NULL)
            return status_no_memory(error, "an adapter's name", bytes);
        *found = (opening){.chain = *bucket, .bytes = bytes};
        memcpy(found->name, name, length);
        *bucket = found;
        enqueue(s, found);
    }
    request->state = REQUEST_PARKED;
    list_append(found->runs ? &found->late : &found->requests, request);
    request_watch(request);
    return AVO_OK;
}

/* Those who waited when it began: they go on with it, or have failed with it. */
static void serve(avo_scheduler *s, opening *opening, avo_adapter *adapter,
                  const avo_error *error) {
    for (request *request = list_take(&opening->requests); request != NULL;
         request = list_take(&opening->requests)) {
        if (adapter == NULL) {
            request->error = *error;
            request_over(request, ENDED_FAILED);
            continue;
        }
        float weight = request->given.named_adapters[request->named_taken++].weight;
        request->uses[request->use_count++] = (avo_adapter_use){adapter_share(adapter), weight};
        request->state = REQUEST_PENDING;
        list_append(&s->resumed, request);
        pthread_cond_signal(&s->pending_cond);
    }
}

/* Those who came meanwhile are next; without any it is gone. */
static void go_on(avo_scheduler *s, opening *opening) {
    for (request *request = list_take(&opening->late); request != NULL;
         request = list_take(&opening->late))
        list_append(&opening->requests, request);
    if (opening->requests.first != NULL)
        enqueue(s, opening);
    else
        opening_free(s, opening);
}

void *opener_main(void *context) {
    avo_scheduler *s = context;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        opening *opening = dequeue(s);
        if (opening == NULL && s->openers_done)
            break;
        if (opening == NULL) {
            pthread_cond_wait(&s->opening_cond, &s->lock);
            continue;
        }
        if (opening->requests.first == NULL) { /* all of them have ended */
            opening_free(s, opening);
            continue;
        }
        opening->runs = true;
        pthread_mutex_unlock(&s->lock);
        avo_adapter *adapter = NULL;
        avo_error error = {0};
        avo_status status = avo_registry_take(s->options.registry, opening->name, &adapter, &error);
        error.status = status;
        pthread_mutex_lock(&s->lock);
        serve(s, opening, adapter, &error);
        go_on(s, opening);
        pthread_mutex_unlock(&s->lock);
        adapter_release(adapter);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- Ends of those that wait; the lock is held ---- */

bool request_waits(const request *request) {
    return request->state == REQUEST_PENDING || request->state == REQUEST_PARKED;
}

void request_drop(request *request) {
    list_remove(request);
    request_over(request, ENDED_FINISHED);
}

/* Calls `see` for every request that is pending or parked; it may drop it. */
static void each_waiting(avo_scheduler *s, bool parked_only,
                         void (*see)(request *request, void *context), void *context) {
    request_list *own[] = {&s->pending, &s->resumed};
    for (int i = 0; i < 2 && !parked_only; i++)
        for (request *request = own[i]->first, *next; request != NULL; request = next) {
            next = request->next;
            see(request, context);
        }
    for (uint32_t i = 0; i < SCHEDULER_OPENING_BUCKETS; i++)
        for (opening *o = s->opening_bucket[i]; o != NULL; o = o->chain) {
            request_list *lists[] = {&o->requests, &o->late};
            for (int n = 0; n < 2; n++)
                for (request *request = lists[n]->first, *next; request != NULL; request = next) {
                    next = request->next;
                    see(request, context);
                }
        }
}

static void cancel_parked(request *request, void *context) {
    (void)context;
    request->finish = AVO_FINISH_CANCELLED;
    request_drop(request);
}

void openings_cancel(avo_scheduler *s) {
    each_waiting(s, true, cancel_parked, NULL);
}

/* ---- Deadlines of those that wait ---- */

void request_watch(const request *request) {
    avo_scheduler *s = request->scheduler;
    uint64_t due = request_due_ns(request);
    if (due == 0 || (s->due_ns > 0 && s->due_ns <= due))
        return;
    s->due_ns = due;
    pthread_cond_signal(&s->watch_cond);
}

typedef struct watch {
    uint64_t now_ns, next_ns; /* 0: no deadline is left */
} watch;

static void end_late(request *request, void *context) {
    watch *watch = context;
    uint64_t due = request_due_ns(request);
    if (due == 0)
        return;
    if (due <= watch->now_ns) {
        request->finish = AVO_FINISH_DEADLINE;
        request_drop(request);
    } else if (watch->next_ns == 0 || due < watch->next_ns) {
        watch->next_ns = due;
    }
}

/* Looking at all of them is worth it: it is done when a deadline has come, and seldom enough that
 * many deadlines one behind the other cost little. */
static void look(avo_scheduler *s) {
    watch watch = {.now_ns = clock_now_ns()};
    each_waiting(s, false, end_late, &watch);
    uint64_t soonest = watch.now_ns + SCHEDULER_WATCH_NS;
    s->due_ns = watch.next_ns == 0 || watch.next_ns > soonest ? watch.next_ns : soonest;
}

void *watch_main(void *context) {
    avo_scheduler *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->ending) {
        if (s->due_ns == 0) {
            pthread_cond_wait(&s->watch_cond, &s->lock);
            continue;
        }
        if (s->due_ns <= clock_now_ns()) {
            look(s);
            continue;
        }
        struct timespec until = {.tv_sec = (time_t)(s->due_ns / 1000000000u),
                                 .tv_nsec = (long)(s->due_ns % 1000000000u)};
        pthread_cond_timedwait(&s->watch_cond, &s->lock, &until);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
