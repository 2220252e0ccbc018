/* Threads that wait in the place of the connections' own. */
#include "server/api/helpers.h"

#include <stdlib.h>

typedef struct helper {
    api *api;
    void (*run)(struct api *api, void *context);
    void *context;
} helper;

static void *helper_main(void *context) {
    helper helper = *(struct helper *)context;
    free(context);
    helper.run(helper.api, helper.context);
    pthread_mutex_lock(&helper.api->lock);
    helper.api->helpers--;
    pthread_cond_broadcast(&helper.api->idle);
    pthread_mutex_unlock(&helper.api->lock);
    return NULL;
}

bool thread_start(void *(*run)(void *context), void *context) {
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    bool started = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                   pthread_create(&thread, &attributes, run, context) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

static bool take_place(api *api) {
    pthread_mutex_lock(&api->lock);
    bool free_place = api->helping < API_HELPERS_MAX;
    if (free_place) {
        api->helping++;
        api->helpers++;
    }
    pthread_mutex_unlock(&api->lock);
    return free_place;
}

void helper_finished(api *api) {
    pthread_mutex_lock(&api->lock);
    api->helping--;
    pthread_mutex_unlock(&api->lock);
}

bool helper_start(api *api, void (*run)(struct api *api, void *context), void *context) {
    if (!take_place(api))
        return false;
    helper *made = malloc(sizeof(*made));
    bool started = false;
    if (made != NULL) {
        *made = (helper){api, run, context};
        started = thread_start(helper_main, made);
    }
    if (!started) {
        free(made);
        pthread_mutex_lock(&api->lock);
        api->helping--;
        api->helpers--;
        pthread_mutex_unlock(&api->lock);
    }
    return started;
}

/* ---- Answers that take their time ---- */

struct answer_job {
    exchange *exchange;
    void (*answer)(struct api *api, exchange *exchange);
    answer_job *next;
};

static void answer_one(api *api, answer_job *job) {
    if (exchange_gone(job->exchange)) /* while it waited */
        exchange_fail(job->exchange, 499, NULL, "client_gone", "the client closed the connection");
    else
        job->answer(api, job->exchange);
    exchange_release(job->exchange);
    free(job);
}

/* Until nothing waits any more. */
static void *reader_main(void *context) {
    api *api = context;
    pthread_mutex_lock(&api->lock);
    while (api->unread_first != NULL) {
        answer_job *job = api->unread_first;
        api->unread_first = job->next;
        if (job->next == NULL)
            api->unread_last = NULL;
        api->unread_count--;
        pthread_mutex_unlock(&api->lock);
        answer_one(api, job);
        pthread_mutex_lock(&api->lock);
    }
    api->readers--;
    pthread_cond_broadcast(&api->idle);
    pthread_mutex_unlock(&api->lock);
    return NULL;
}

/* False: as many wait as may. *begins: a reader is to be made, and is counted already. */
static bool enqueue(api *api, answer_job *job, bool *begins) {
    pthread_mutex_lock(&api->lock);
    bool room = api->unread_count < API_UNREAD_MAX;
    if (room) {
        if (api->unread_last != NULL)
            api->unread_last->next = job;
        else
            api->unread_first = job;
        api->unread_last = job;
        api->unread_count++;
    }
    *begins = room && api->readers < API_READERS_MAX;
    api->readers += *begins;
    pthread_mutex_unlock(&api->lock);
    return room;
}

/* Whether another reader will see to what waits. */
static bool leave_to_others(api *api) {
    pthread_mutex_lock(&api->lock);
    bool others = api->readers > 1;
    api->readers -= others;
    pthread_mutex_unlock(&api->lock);
    return others;
}

void helper_answer(api *api, exchange *exchange,
                   void (*answer)(struct api *api, struct exchange *exchange)) {
    if (exchange_asked(exchange)->body.size <= API_AT_ONCE_BYTES_MAX) {
        answer(api, exchange);
        return;
    }
    bool begins = false;
    answer_job *job = malloc(sizeof(*job));
    if (job != NULL) {
        *job = (answer_job){exchange_share(exchange), answer, NULL};
        if (enqueue(api, job, &begins)) {
            /* Without a thread for it, it is read here: slow, but read. */
            if (begins && !thread_start(reader_main, api) && !leave_to_others(api))
                (void)reader_main(api);
            return;
        }
        exchange_release(job->exchange);
        free(job);
    }
    exchange_refuse(exchange, 503, 1.0, "other large requests are being processed");
}
