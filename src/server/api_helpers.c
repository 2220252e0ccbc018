/* Threads that wait in the place of the connections' own. */
#include "server/api_helpers.h"

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

static bool take_place(api *api) {
    pthread_mutex_lock(&api->lock);
    bool free_place = api->helpers < API_HELPERS_MAX;
    if (free_place)
        api->helpers++;
    pthread_mutex_unlock(&api->lock);
    return free_place;
}

bool helper_start(api *api, void (*run)(struct api *api, void *context), void *context) {
    if (!take_place(api))
        return false;
    helper *made = malloc(sizeof(*made));
    pthread_attr_t attributes;
    bool started = false;
    if (made != NULL && pthread_attr_init(&attributes) == 0) {
        *made = (helper){api, run, context};
        pthread_t thread;
        started = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                  pthread_create(&thread, &attributes, helper_main, made) == 0;
        pthread_attr_destroy(&attributes);
    }
    if (!started) {
        free(made);
        pthread_mutex_lock(&api->lock);
        api->helpers--;
        pthread_mutex_unlock(&api->lock);
    }
    return started;
}

/* ---- Answers that take their time ---- */

typedef struct answer_job {
    exchange *exchange;
    void (*answer)(struct api *api, exchange *exchange);
} answer_job;

static void answer_run(api *api, void *context) {
    answer_job job = *(answer_job *)context;
    free(context);
    job.answer(api, job.exchange);
    exchange_release(job.exchange);
}

void helper_answer(api *api, exchange *exchange,
                   void (*answer)(struct api *api, struct exchange *exchange)) {
    if (exchange_asked(exchange)->body.size <= API_AT_ONCE_BYTES_MAX) {
        answer(api, exchange);
        return;
    }
    answer_job *job = malloc(sizeof(*job));
    if (job != NULL) {
        *job = (answer_job){exchange_share(exchange), answer};
        if (helper_start(api, answer_run, job))
            return;
        exchange_release(job->exchange);
        free(job);
    }
    exchange_refuse(exchange, 503, 1.0, "other long texts are being read");
}
