/* Endpoints over a tiny model, on exchanges of the test's own that keep what they are given: no
 * transport is involved. */
#ifndef AVO_TESTS_SERVER_API_FIXTURE_H
#define AVO_TESTS_SERVER_API_FIXTURE_H

#include "support/support.h"

#include "server/api/api_int.h"
#include "server/keys.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Exchanges that only keep what they are given ---- */

typedef struct kept {
    exchange base;
    atomic_int references;
    pthread_mutex_t lock;
    unsigned status;
    int sends, streams, ends;
    pthread_t sender;
    uint32_t writes, writes_max; /* then the reader is too slow; 0: never */
    buffer body;
    bool retry_after;
    bool gone_already; /* before anybody wants to know */
    atomic_bool left;  /* the client has gone, and does not only have to hear of an end */
    exchange_usage usage;
    exchange_gone_function gone;
    void *gone_context;
} kept;

static server_options settings;
static struct api *the_api;
static atomic_bool readers_held; /* whoever reads bodies waits before it refuses one */

static void pause_shortly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static kept *kept_of(exchange *exchange) {
    return (kept *)(void *)exchange;
}

static const char *kept_header(exchange *exchange, const char *name) {
    (void)exchange;
    (void)name;
    return NULL;
}

static bool kept_gone(exchange *exchange) {
    return kept_of(exchange)->gone_already || atomic_load(&kept_of(exchange)->left);
}

static void kept_share(exchange *exchange) {
    atomic_fetch_add(&kept_of(exchange)->references, 1);
}

static void kept_release(exchange *exchange) {
    atomic_fetch_sub(&kept_of(exchange)->references, 1);
}

static void kept_set_header(exchange *exchange, const char *name, const char *value) {
    (void)value;
    kept *k = kept_of(exchange);
    k->retry_after = k->retry_after || strcmp(name, "Retry-After") == 0;
}

static void kept_send(exchange *exchange, unsigned status, const char *content_type,
                      text_view body) {
    (void)content_type;
    while (status == 400 && atomic_load(&readers_held))
        pause_shortly();
    kept *k = kept_of(exchange);
    pthread_mutex_lock(&k->lock);
    k->status = status;
    k->sends++;
    k->sender = pthread_self();
    k->gone = NULL;
    assert_ok(buffer_append(&k->body, body.data, body.size));
    pthread_mutex_unlock(&k->lock);
}

static void kept_stream(exchange *exchange, unsigned status, const char *content_type) {
    (void)content_type;
    kept *k = kept_of(exchange);
    pthread_mutex_lock(&k->lock);
    k->status = status;
    k->streams++;
    pthread_mutex_unlock(&k->lock);
}

static bool kept_write(exchange *exchange, text_view bytes) {
    kept *k = kept_of(exchange);
    pthread_mutex_lock(&k->lock);
    k->writes++;
    bool works = k->writes_max == 0 || k->writes <= k->writes_max;
    if (works)
        assert_ok(buffer_append(&k->body, bytes.data, bytes.size));
    pthread_mutex_unlock(&k->lock);
    return works;
}

static void kept_end(exchange *exchange) {
    kept *k = kept_of(exchange);
    pthread_mutex_lock(&k->lock);
    k->ends++;
    k->gone = NULL;
    pthread_mutex_unlock(&k->lock);
}

static void kept_on_gone(exchange *exchange, exchange_gone_function gone, void *context) {
    kept *k = kept_of(exchange);
    pthread_mutex_lock(&k->lock);
    k->gone = gone;
    k->gone_context = context;
    pthread_mutex_unlock(&k->lock);
    if (k->gone_already)
        gone(context);
}

static void kept_set_usage(exchange *exchange, const exchange_usage *usage) {
    kept *k = kept_of(exchange);
    pthread_mutex_lock(&k->lock);
    k->usage = *usage;
    pthread_mutex_unlock(&k->lock);
}

static void kept_set_failed(exchange *exchange, unsigned status, const char *text) {
    (void)exchange;
    (void)status;
    (void)text;
}

static void kept_set_prompt(exchange *exchange, text_view prompt) {
    (void)exchange;
    (void)prompt;
}

static const exchange_methods keeping = {.header = kept_header,
                                         .query = kept_header,
                                         .share = kept_share,
                                         .release = kept_release,
                                         .set_header = kept_set_header,
                                         .send = kept_send,
                                         .stream = kept_stream,
                                         .write = kept_write,
                                         .end = kept_end,
                                         .on_gone = kept_on_gone,
                                         .gone = kept_gone,
                                         .set_usage = kept_set_usage,
                                         .set_failed = kept_set_failed,
                                         .set_prompt = kept_set_prompt};

/* ---- A server around the endpoints ---- */

static bool host_draining(const void *context) {
    (void)context;
    return false;
}

static server_state host_health(const void *context, double *seconds) {
    (void)context;
    if (seconds != NULL)
        *seconds = 0.0;
    return SERVER_ALIVE;
}

static void host_figures(const void *context, uint32_t *running, uint32_t *waiting,
                         uint64_t *steps) {
    (void)context;
    *running = 3;
    *waiting = 4;
    *steps = 5;
}

static void host_say(const void *context, const char *line) {
    (void)context;
    (void)line;
}

static const api_host host = {
    .draining = host_draining, .health = host_health, .figures = host_figures, .say = host_say};

/* ---- Model, engine, scheduler and endpoints ---- */

typedef struct fixture {
    avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
} fixture;

static void fixture_open_on(fixture *w, const char *device, uint32_t sessions, uint32_t waiting) {
    avo_error error;
    const char *path = tiny_model_write(test_scratch_folder(), 1);
    assert_ok_error(avo_model_open(path, NULL, &w->model, &error), &error);
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    engine.threads = 1;
    engine.device = device;
    engine.sessions_max = sessions;
    assert_ok_error(avo_engine_open(w->model, &engine, &w->engine, &error), &error);
    avo_scheduler_options scheduler = AVO_SCHEDULER_OPTIONS_INIT;
    scheduler.waiting_max = waiting;
    assert_ok_error(avo_scheduler_open(w->engine, &scheduler, &w->scheduler, &error), &error);
    settings = (server_options){.model = w->model,
                                .engine = w->engine,
                                .scheduler = w->scheduler,
                                .model_name = "tiny",
                                .choices_max = 16};
    assert_ok_error(api_open(&settings, &host, &the_api, &error), &error);
}

static void fixture_open(fixture *w, uint32_t sessions, uint32_t waiting) {
    fixture_open_on(w, NULL, sessions, waiting);
}

static void close_scheduler(fixture *w) {
    avo_scheduler_close(w->scheduler);
    w->scheduler = NULL;
}

static void fixture_close(fixture *w) {
    if (w->scheduler != NULL)
        close_scheduler(w);
    api_close(the_api);
    avo_engine_close(w->engine);
    avo_model_close(w->model);
}

static void ask(kept *exchange, const char *body) {
    memset(exchange, 0, sizeof(*exchange));
    atomic_init(&exchange->references, 1);
    pthread_mutex_init(&exchange->lock, NULL);
    buffer_init(&exchange->body, NULL, SIZE_MAX);
    exchange->base.methods = &keeping;
    exchange->base.asked = (exchange_request){
        .method = "POST", .path = "/v1/completions", .body = text_from(body), .id = "test"};
}

static void handle(kept *exchange) {
    server_handler handler = api_handler(the_api);
    handler.handle(handler.context, &exchange->base);
}

static bool ended(kept *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool over = exchange->sends + exchange->ends > 0;
    pthread_mutex_unlock(&exchange->lock);
    return over && atomic_load(&exchange->references) == 1;
}

/* Waits for the end, of which there must be one. */
static void finish(kept *exchange) {
    while (!ended(exchange))
        pause_shortly();
    assert_int_equal(exchange->sends + exchange->ends, 1);
    assert_int_equal(exchange->ends, exchange->streams);
    assert_ok(buffer_terminate(&exchange->body));
}

static void done(kept *exchange) {
    buffer_free(&exchange->body);
    pthread_mutex_destroy(&exchange->lock);
}

static void nothing_left(fixture *w) {
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(w->scheduler, &info);
    while (info.running > 0 || info.waiting > 0) {
        pause_shortly();
        avo_scheduler_describe(w->scheduler, &info);
    }
}

#endif
