/* Answers on exchanges of the test's own (AVO_TEST_THREADS): clients that go and that read too
 * slowly, a scheduler that is full or is closed in the middle, lists that are longer than its
 * queue. Whatever happens, there is exactly one end. */
#include "support/support.h"

#include "base/clock.h"
#include "server/api_int.h"
#include "server/keys.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Exchanges that only keep what they are given ---- */

struct exchange {
    atomic_int references;
    exchange_request asked;
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
    void (*gone)(void *context);
    void *gone_context;
};

static server_options settings;
static struct api *the_api;
static atomic_bool readers_held; /* whoever reads bodies waits before it refuses one */

static void pause_shortly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

const exchange_request *exchange_asked(const exchange *exchange) {
    return &exchange->asked;
}

server *exchange_server(exchange *exchange) {
    (void)exchange;
    return NULL;
}

struct api *exchange_api(exchange *exchange) {
    (void)exchange;
    return the_api;
}

bool exchange_may_administer(const exchange *exchange) {
    (void)exchange;
    return false;
}

const char *exchange_header(exchange *exchange, const char *name) {
    (void)exchange;
    (void)name;
    return NULL;
}

const char *exchange_query(exchange *exchange, const char *name) {
    return exchange_header(exchange, name);
}

bool exchange_gone(exchange *exchange) {
    return exchange->gone_already || atomic_load(&exchange->left);
}

exchange *exchange_share(exchange *exchange) {
    atomic_fetch_add(&exchange->references, 1);
    return exchange;
}

void exchange_release(exchange *exchange) {
    atomic_fetch_sub(&exchange->references, 1);
}

void exchange_set_header(exchange *exchange, const char *name, const char *value) {
    (void)value;
    exchange->retry_after = exchange->retry_after || strcmp(name, "Retry-After") == 0;
}

void exchange_send(exchange *exchange, unsigned status, const char *content_type, text_view body) {
    (void)content_type;
    while (status == 400 && atomic_load(&readers_held))
        pause_shortly();
    pthread_mutex_lock(&exchange->lock);
    exchange->status = status;
    exchange->sends++;
    exchange->sender = pthread_self();
    exchange->gone = NULL;
    assert_ok(buffer_append(&exchange->body, body.data, body.size));
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_stream(exchange *exchange, unsigned status, const char *content_type) {
    (void)content_type;
    pthread_mutex_lock(&exchange->lock);
    exchange->status = status;
    exchange->streams++;
    pthread_mutex_unlock(&exchange->lock);
}

bool exchange_write(exchange *exchange, text_view bytes) {
    pthread_mutex_lock(&exchange->lock);
    exchange->writes++;
    bool works = exchange->writes_max == 0 || exchange->writes <= exchange->writes_max;
    if (works)
        assert_ok(buffer_append(&exchange->body, bytes.data, bytes.size));
    pthread_mutex_unlock(&exchange->lock);
    return works;
}

void exchange_end(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    exchange->ends++;
    exchange->gone = NULL;
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_on_gone(exchange *exchange, void (*gone)(void *context), void *context) {
    pthread_mutex_lock(&exchange->lock);
    exchange->gone = gone;
    exchange->gone_context = context;
    pthread_mutex_unlock(&exchange->lock);
    if (exchange->gone_already)
        gone(context);
}

void exchange_set_usage(exchange *exchange, const exchange_usage *usage) {
    pthread_mutex_lock(&exchange->lock);
    exchange->usage = *usage;
    pthread_mutex_unlock(&exchange->lock);
}

void exchange_set_failed(exchange *exchange) {
    (void)exchange;
}

void exchange_set_prompt(exchange *exchange, text_view prompt) {
    (void)exchange;
    (void)prompt;
}

const server_options *server_settings(const server *server) {
    (void)server;
    return &settings;
}

bool server_draining(const server *server) {
    (void)server;
    return false;
}

bool server_alive(const server *server, double *seconds) {
    (void)server;
    if (seconds != NULL)
        *seconds = 0.0;
    return true;
}

void server_figures(const server *server, uint32_t *running, uint32_t *waiting, uint64_t *steps) {
    (void)server;
    *running = 3;
    *waiting = 4;
    *steps = 5;
}

void server_say(const server *server, const char *format, ...) {
    (void)server;
    (void)format;
}

/* ---- The world ---- */

typedef struct world {
    avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
} world;

static void open_world(world *w, uint32_t sessions, uint32_t waiting) {
    avo_error error;
    const char *path = tiny_model_write(test_scratch_folder(), 1);
    assert_ok_error(avo_model_open(path, NULL, &w->model, &error), &error);
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    engine.threads = 1;
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
    assert_ok_error(api_open(NULL, &the_api, &error), &error);
}

static void close_scheduler(world *w) {
    avo_scheduler_close(w->scheduler);
    w->scheduler = NULL;
}

static void close_world(world *w) {
    if (w->scheduler != NULL)
        close_scheduler(w);
    api_close(the_api);
    avo_engine_close(w->engine);
    avo_model_close(w->model);
}

static void ask(exchange *exchange, const char *body) {
    memset(exchange, 0, sizeof(*exchange));
    atomic_init(&exchange->references, 1);
    pthread_mutex_init(&exchange->lock, NULL);
    buffer_init(&exchange->body, NULL, SIZE_MAX);
    exchange->asked = (exchange_request){
        .method = "POST", .path = "/v1/completions", .body = text_from(body), .id = "test"};
}

static bool ended(exchange *exchange) {
    pthread_mutex_lock(&exchange->lock);
    bool over = exchange->sends + exchange->ends > 0;
    pthread_mutex_unlock(&exchange->lock);
    return over && atomic_load(&exchange->references) == 1;
}

/* Waits for the end, of which there must be one. */
static void finish(exchange *exchange) {
    while (!ended(exchange))
        pause_shortly();
    assert_int_equal(exchange->sends + exchange->ends, 1);
    assert_int_equal(exchange->ends, exchange->streams);
    assert_ok(buffer_terminate(&exchange->body));
}

static void done(exchange *exchange) {
    buffer_free(&exchange->body);
    pthread_mutex_destroy(&exchange->lock);
}

static void nothing_left(world *w) {
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(w->scheduler, &info);
    while (info.running > 0 || info.waiting > 0) {
        pause_shortly();
        avo_scheduler_describe(w->scheduler, &info);
    }
}

#define LONG "\"prompt\":\"hello\",\"ignore_eos\":true,\"max_tokens\":150"

/* ---- Tests ---- */

/* What the pulse heard; the scheduler, which may hang, is not asked (it would say 0). */
static void test_health_asks_nobody(void **state) {
    (void)state;
    world w;
    open_world(&w, 4, 64);
    static const char *const paths[] = {"/health", "/ready"};
    for (int i = 0; i < 2; i++) {
        exchange exchange;
        ask(&exchange, "");
        exchange.asked.method = "GET";
        exchange.asked.path = paths[i];
        api_handle(&exchange);
        finish(&exchange);
        assert_int_equal(exchange.status, 200);
        assert_non_null(strstr(exchange.body.data, "\"running\":3,\"waiting\":4,\"steps\":5,"));
        done(&exchange);
    }
    close_world(&w);
}

static void test_closed_in_the_middle(void **state) {
    (void)state;
    world w;
    open_world(&w, 4, 64);
    exchange streamed[3], whole;
    for (int i = 0; i < 3; i++) {
        ask(&streamed[i], "{" LONG ",\"stream\":true,\"n\":4}");
        api_handle(&streamed[i]);
    }
    ask(&whole, "{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"],\"n\":8}");
    api_handle(&whole);
    for (bool speaks = false; !speaks; pause_shortly()) { /* until the first one does */
        pthread_mutex_lock(&streamed[0].lock);
        speaks = streamed[0].writes > 2;
        pthread_mutex_unlock(&streamed[0].lock);
    }
    close_scheduler(&w);
    for (int i = 0; i < 3; i++) {
        finish(&streamed[i]);
        const char *error = strstr(streamed[i].body.data, "shutting_down");
        if (streamed[i].streams > 0 && error == NULL) /* it was faster */
            assert_non_null(strstr(streamed[i].body.data, "[DONE]"));
        if (streamed[i].streams > 0 && error != NULL)
            assert_null(strstr(streamed[i].body.data, "[DONE]"));
        if (streamed[i].streams == 0)
            assert_int_equal(streamed[i].status, 503);
        done(&streamed[i]);
    }
    finish(&whole);
    assert_true(whole.status == 503 || whole.status == 200);
    done(&whole);
    close_world(&w);
}

static void test_slow_reader_is_cancelled(void **state) {
    (void)state;
    world w;
    open_world(&w, 2, 64);
    exchange slow;
    ask(&slow, "{" LONG ",\"stream\":true,\"n\":8}");
    slow.writes_max = 3;
    api_handle(&slow);
    finish(&slow);
    assert_null(strstr(slow.body.data, "[DONE]"));
    assert_true(slow.usage.prompt_tokens > 0 && slow.usage.new_tokens > 0); /* they were computed */
    nothing_left(&w);
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(w.scheduler, &info);
    assert_true(info.new_tokens < 8 * 150);
    done(&slow);
    close_world(&w);
}

static void test_client_goes(void **state) {
    (void)state;
    world w;
    open_world(&w, 2, 64);
    for (int round = 0; round < 20; round++) {
        exchange gone;
        ask(&gone, round % 2 == 0 ? "{" LONG ",\"n\":6}" : "{" LONG ",\"n\":6,\"stream\":true}");
        api_handle(&gone);
        const struct timespec pause = {0, round * 300000L};
        nanosleep(&pause, NULL);
        atomic_store(&gone.left, true);
        pthread_mutex_lock(&gone.lock); /* as the HTTP half does: no end while this runs */
        if (gone.gone != NULL)
            gone.gone(gone.gone_context);
        pthread_mutex_unlock(&gone.lock);
        finish(&gone);
        done(&gone);
    }
    nothing_left(&w);
    close_world(&w);
}

/* The server ends it, and its client is there to hear why. */
static void test_called_off(void **state) {
    (void)state;
    world w;
    open_world(&w, 2, 64);
    for (int round = 0; round < 20; round++) {
        exchange asked;
        bool stream = round % 2 == 1;
        ask(&asked, stream ? "{" LONG ",\"n\":6,\"stream\":true}" : "{" LONG ",\"n\":6}");
        api_handle(&asked);
        const struct timespec pause = {0, round * 300000L};
        nanosleep(&pause, NULL);
        while (!ended(&asked)) {
            pthread_mutex_lock(&asked.lock);
            if (asked.gone != NULL)
                asked.gone(asked.gone_context);
            pthread_mutex_unlock(&asked.lock);
            pause_shortly();
        }
        finish(&asked);
        assert_int_not_equal(asked.status, 499);
        const char *error = strstr(asked.body.data, "shutting_down");
        if (asked.streams > 0) /* or it was faster */
            assert_true((error != NULL) != (strstr(asked.body.data, "[DONE]") != NULL));
        else
            assert_int_equal(asked.status, error != NULL ? 503 : 200);
        done(&asked);
    }
    nothing_left(&w);
    close_world(&w);
}

/* Before anything was submitted: choices that wait for the first one have their end, too. */
static void test_client_has_gone(void **state) {
    (void)state;
    world w;
    open_world(&w, 2, 64);
    const char *const bodies[] = {"{" LONG "}", "{" LONG ",\"n\":2}",
                                  "{" LONG ",\"n\":6,\"stream\":true}",
                                  "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":3}"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        exchange gone;
        ask(&gone, bodies[i]);
        gone.gone_already = true;
        api_handle(&gone);
        finish(&gone);
        assert_int_equal(gone.status, 499);
        done(&gone);
    }
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(w.scheduler, &info);
    assert_int_equal(info.submitted, 0);
    close_world(&w);
}

static void test_full(void **state) {
    (void)state;
    world w;
    open_world(&w, 1, 2);
    int refused = 0;
    while (refused == 0) { /* the engine may have been faster than this thread */
        exchange many[12];
        for (int i = 0; i < 12; i++) {
            ask(&many[i], "{" LONG "}");
            api_handle(&many[i]);
        }
        for (int i = 0; i < 12; i++) {
            finish(&many[i]);
            assert_true(many[i].status == 200 || many[i].status == 503);
            refused += many[i].status == 503;
            assert_int_equal(many[i].retry_after, many[i].status == 503);
            done(&many[i]);
        }
        assert_true(refused < 12);
    }
    close_world(&w);
}

static void test_list_longer_than_the_queue(void **state) {
    (void)state;
    world w;
    open_world(&w, 2, 2);
    char body[1024] = "{\"max_tokens\":3,\"n\":2,\"seed\":1,\"prompt\":[\"p\"";
    for (int i = 0; i < 40; i++)
        memcpy(body + strlen(body), ",\"p\"", 5);
    memcpy(body + strlen(body), "]}", 3);
    exchange long_list;
    ask(&long_list, body);
    api_handle(&long_list);
    finish(&long_list);
    assert_int_equal(long_list.status, 200);
    assert_non_null(strstr(long_list.body.data, "\"index\":81,"));
    assert_null(strstr(long_list.body.data, "\"index\":82,"));
    done(&long_list);
    close_world(&w);
}

/* ---- Deadlines ---- */

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        count++;
    return count;
}

/* They count from when the request came, not from when a choice is submitted. */
static void test_deadline_that_has_passed(void **state) {
    (void)state;
    world w;
    open_world(&w, 2, 64);
    static const char *const bodies[] = {"{" LONG ",\"n\":3,\"deadline_ms\":5000}",
                                         "{" LONG ",\"n\":3,\"deadline_ms\":5000,\"stream\":true}",
                                         "{" LONG ",\"first_token_deadline_ms\":5000}"};
    for (size_t i = 0; i < 3; i++) {
        exchange late;
        ask(&late, bodies[i]);
        late.asked.arrived_ns = clock_now_ns() - 6000000000u;
        api_handle(&late);
        finish(&late);
        assert_int_equal(late.status, 504);
        assert_non_null(strstr(late.body.data, "deadline_exceeded"));
        done(&late);
    }
    avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
    avo_scheduler_describe(w.scheduler, &info);
    assert_int_equal(info.submitted, 0);
    close_world(&w);
}

/* Whenever it passes, every choice has one end, or the whole is 504. */
static void test_deadline_in_the_middle(void **state) {
    (void)state;
    world w;
    open_world(&w, 1, 64);
    for (int round = 0; round < 26; round++) {
        exchange asked;
        bool stream = round % 2 == 1;
        char body[256];
        snprintf(body, sizeof(body), "{" LONG ",\"n\":6,\"deadline_ms\":%d,\"stream\":%s}",
                 round < 24 ? 1 + round * 4 : 1000000, stream ? "true" : "false");
        ask(&asked, body);
        api_handle(&asked);
        finish(&asked);
        if (asked.status == 200) {
            assert_int_equal(count_of(asked.body.data, "\"finish_reason\":\"length\""), 6);
            assert_int_equal(count_of(asked.body.data, "[DONE]"), stream);
        } else {
            assert_int_equal(asked.status, 504);
            assert_true(round < 24);
        }
        done(&asked);
    }
    close_world(&w);
}

/* ---- Room ---- */

typedef struct crowd {
    avo_scheduler *scheduler;
    atomic_bool over;
} crowd;

static bool ignore_event(void *context, const avo_event *event) {
    (void)context;
    (void)event;
    return true;
}

/* Others, who fill the queue again as soon as there is room. */
static void *crowd_main(void *context) {
    crowd *crowd = context;
    avo_request request = AVO_REQUEST_INIT;
    request.text = "other";
    request.max_new_tokens = 8;
    request.ignore_end = true;
    request.on_event = ignore_event;
    while (!atomic_load(&crowd->over)) {
        avo_error error = {0};
        if (avo_scheduler_submit(crowd->scheduler, &request, NULL, NULL, &error) != AVO_OK)
            pause_shortly();
    }
    return NULL;
}

/* Where a choice has been computed, the others wait for room: nothing is thrown away. */
static void test_choices_wait_for_room(void **state) {
    (void)state;
    world w;
    open_world(&w, 1, 1);
    crowd crowd = {.scheduler = w.scheduler};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, crowd_main, &crowd), 0);
    int answered = 0;
    while (answered < 4) {
        exchange asked;
        bool stream = answered % 2 == 1;
        ask(&asked, stream ? "{\"prompt\":\"a\",\"max_tokens\":4,\"n\":3,\"ignore_eos\":true,"
                             "\"stream\":true}"
                           : "{\"prompt\":\"a\",\"max_tokens\":4,\"n\":3,\"ignore_eos\":true}");
        api_handle(&asked);
        finish(&asked);
        if (asked.streams > 0 || asked.usage.new_tokens > 0) {
            assert_int_equal(asked.status, 200);
            assert_int_equal(count_of(asked.body.data, "\"finish_reason\":\"length\""), 3);
            assert_null(strstr(asked.body.data, "\"error\""));
            answered++;
        } else {
            assert_int_equal(asked.status, 503); /* before anything was computed */
            pause_shortly();
        }
        done(&asked);
    }
    atomic_store(&crowd.over, true);
    pthread_join(thread, NULL);
    nothing_left(&w);
    close_world(&w);
}

/* ---- Large bodies ---- */

/* A conversation with a call whose arguments are `bytes` of numbers. */
static void write_arguments(buffer *body, size_t bytes, const char *end) {
    buffer_init(body, NULL, SIZE_MAX);
    assert_ok(buffer_append_text(
        body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\","
              "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":[1"));
    for (size_t i = 0; i < bytes / 2; i++)
        assert_ok(buffer_append_text(body, ",1"));
    assert_ok(buffer_append_text(body, end));
    assert_ok(buffer_append_text(body, "\"}}]}]}"));
    assert_ok(buffer_terminate(body));
}

/* Every family's body is read by a reader, not by the thread that everybody's streams need. */
static void test_large_bodies_are_read_elsewhere(void **state) {
    (void)state;
    static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                        "/v1/messages", "/v1/embeddings"};
    world w;
    open_world(&w, 2, 64);
    char *large = malloc(20001);
    memset(large, 'x', 20000);
    large[20000] = '\0';
    for (int size = 0; size < 2; size++)
        for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
            exchange exchange;
            ask(&exchange, size == 0 ? "no JSON" : large);
            exchange.asked.path = paths[i];
            api_handle(&exchange);
            finish(&exchange);
            assert_int_equal(exchange.status, 400);
            assert_int_equal(pthread_equal(exchange.sender, pthread_self()) != 0, size == 0);
            done(&exchange);
        }
    free(large);
    close_world(&w);
}

/* More than can wait: refused at once, and everybody has one answer. */
static void test_too_many_large_bodies(void **state) {
    (void)state;
    enum { MANY = API_UNREAD_MAX + 200 };
    world w;
    open_world(&w, 2, 64);
    buffer body;
    write_arguments(&body, 40000, "}"); /* which is no JSON, as is seen at the end */
    exchange *many = calloc(MANY, sizeof(*many));
    int refused = 0;
    atomic_store(&readers_held, true);
    for (int i = 0; i < MANY; i++) {
        ask(&many[i], body.data);
        many[i].asked.path = "/v1/chat/completions";
        api_handle(&many[i]);
    }
    atomic_store(&readers_held, false);
    for (int i = 0; i < MANY; i++) {
        finish(&many[i]);
        assert_true(many[i].status == 400 || many[i].status == 503);
        assert_int_equal(many[i].retry_after, many[i].status == 503);
        refused += many[i].status == 503;
        done(&many[i]);
    }
    assert_true(refused > 0 && refused <= MANY - API_UNREAD_MAX);
    free(many);
    buffer_free(&body);
    close_world(&w);
}

static void test_arguments_that_no_context_holds(void **state) {
    (void)state;
    world w;
    open_world(&w, 2, 64);
    for (int i = 0; i < 2; i++) {
        buffer body; /* no JSON at its end, which is told where the end is read */
        write_arguments(&body, i == 0 ? 1000 : API_ARGUMENTS_BYTES_MIN + 1000, "}");
        exchange exchange;
        ask(&exchange, body.data);
        exchange.asked.path = "/v1/chat/completions";
        api_handle(&exchange);
        finish(&exchange);
        assert_int_equal(exchange.status, 400);
        assert_non_null(
            strstr(exchange.body.data, i == 0 ? "are no JSON" : "context_length_exceeded"));
        done(&exchange);
        buffer_free(&body);
    }
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_health_asks_nobody),
        cmocka_unit_test(test_closed_in_the_middle),
        cmocka_unit_test(test_slow_reader_is_cancelled),
        cmocka_unit_test(test_client_goes),
        cmocka_unit_test(test_called_off),
        cmocka_unit_test(test_client_has_gone),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_list_longer_than_the_queue),
        cmocka_unit_test(test_deadline_that_has_passed),
        cmocka_unit_test(test_deadline_in_the_middle),
        cmocka_unit_test(test_choices_wait_for_room),
        cmocka_unit_test(test_large_bodies_are_read_elsewhere),
        cmocka_unit_test(test_too_many_large_bodies),
        cmocka_unit_test(test_arguments_that_no_context_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
