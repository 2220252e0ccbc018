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
