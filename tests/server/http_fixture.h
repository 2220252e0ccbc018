/* A server over a tiny model with a handler of the test's own, and clients on plain sockets: the
 * transport is what is tested. */
#ifndef AVO_TESTS_SERVER_HTTP_FIXTURE_H
#define AVO_TESTS_SERVER_HTTP_FIXTURE_H

#include "support/support.h"

#include "server/server.h"
#include "server/transport/exchange.h"

#include "support/tiny_model.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Endpoints ---- */

typedef struct later {
    exchange *exchange;
    unsigned pieces, bytes, pause_ms;
    bool stream, waits; /* waits: for a permit before each piece */
    atomic_bool gone;
    pthread_t thread;
} later;

static atomic_uint gone_calls, writes_refused, answers_ended, handled, permits;

static inline void sleep_ms(unsigned milliseconds) {
    usleep(milliseconds * 1000u);
}

static inline void on_gone(void *context) {
    later *work = context;
    atomic_fetch_add(&gone_calls, 1);
    atomic_store(&work->gone, true);
}

static inline unsigned number_of(exchange *exchange, const char *name, unsigned otherwise) {
    const char *text = exchange_query(exchange, name);
    return text == NULL ? otherwise : (unsigned)strtoul(text, NULL, 10);
}

static inline void *answer_later(void *context) {
    later *work = context;
    char *piece = malloc(work->bytes + 1);
    memset(piece, 'x', work->bytes);
    piece[work->bytes] = '\n';
    bool works = true;
    for (unsigned i = 0; i < work->pieces && works && !atomic_load(&work->gone); i++) {
        if (work->pause_ms > 0)
            sleep_ms(work->pause_ms);
        while (work->waits && i >= atomic_load(&permits))
            sleep_ms(1);
        if (work->stream)
            works = exchange_write(work->exchange, (text_view){piece, work->bytes + 1});
    }
    if (!works)
        atomic_fetch_add(&writes_refused, 1);
    if (work->stream)
        exchange_end(work->exchange);
    else
        exchange_send(work->exchange, 200, "text/plain", (text_view){piece, work->bytes});
    atomic_fetch_add(&answers_ended, 1);
    exchange_usage usage = {.model = "tiny", .prompt_tokens = 3, .new_tokens = 4};
    exchange_set_usage(work->exchange, &usage);
    exchange_release(work->exchange);
    free(piece);
    free(work);
    return NULL;
}

static inline void begin_later(exchange *exchange, bool stream) {
    later *work = calloc(1, sizeof(*work));
    work->exchange = exchange_share(exchange);
    work->stream = stream;
    work->pieces = number_of(exchange, "pieces", 1);
    work->bytes = number_of(exchange, "bytes", 4);
    work->pause_ms = number_of(exchange, "ms", 0);
    work->waits = number_of(exchange, "waits", 0) > 0;
    if (stream)
        exchange_stream(exchange, 200, "text/event-stream");
    exchange_on_gone(exchange, on_gone, work);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    assert_int_equal(pthread_create(&work->thread, &attributes, answer_later, work), 0);
    pthread_attr_destroy(&attributes);
}

static inline void fixture_allowed(void *context, const char *path, char *text, size_t capacity) {
    (void)context;
    (void)path;
    snprintf(text, capacity, "GET, POST, OPTIONS");
}

static inline void fixture_handle(void *context, exchange *exchange) {
    (void)context;
    const exchange_request *asked = exchange_asked(exchange);
    atomic_fetch_add(&handled, 1);
    if (strcmp(asked->path, "/echo") == 0)
        exchange_send(exchange, 200, "application/octet-stream", asked->body);
    else if (strcmp(asked->path, "/later") == 0)
        begin_later(exchange, false);
    else if (strcmp(asked->path, "/stream") == 0)
        begin_later(exchange, true);
    else if (strcmp(asked->path, "/admin") == 0)
        exchange_send(exchange, asked->may_administer ? 200 : 403, "text/plain", TEXT_LITERAL("x"));
    else
        exchange_fail(exchange, 404, NULL, NULL, "no such path: %s", asked->path);
}

/* ---- The server ---- */

typedef struct http_fixture {
    avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
    server *server;
} http_fixture;

static inline void fixture_open(http_fixture *fixture, server_options options) {
    avo_error error = {0};
    avo_engine_options engine = AVO_ENGINE_OPTIONS_INIT;
    engine.threads = 1;
    const char *path = tiny_model_write(test_scratch_folder(), 7);
    assert_ok_error(avo_model_open(path, NULL, &fixture->model, &error), &error);
    assert_ok_error(avo_engine_open(fixture->model, &engine, &fixture->engine, &error), &error);
    assert_ok_error(avo_scheduler_open(fixture->engine, NULL, &fixture->scheduler, &error), &error);
    options.model = fixture->model;
    options.engine = fixture->engine;
    options.scheduler = fixture->scheduler;
    options.model_name = "tiny";
    atomic_store(&gone_calls, 0);
    atomic_store(&writes_refused, 0);
    atomic_store(&answers_ended, 0);
    atomic_store(&handled, 0);
    atomic_store(&permits, 0);
    const server_handler handler = {.handle = fixture_handle, .allowed = fixture_allowed};
    assert_ok_error(server_open_with(&options, &handler, &fixture->server, &error), &error);
}

static inline void fixture_close(http_fixture *fixture) {
    server_close(fixture->server);
    avo_scheduler_close(fixture->scheduler);
    avo_engine_close(fixture->engine);
    avo_model_close(fixture->model);
}

/* ---- Clients ---- */

/* From an address of this machine; NULL: any. */
static inline int client_connect(uint16_t port, const char *from) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(client >= 0);
    if (from != NULL) {
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(from)};
        assert_int_equal(bind(client, (struct sockaddr *)&own, sizeof(own)), 0);
    }
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
    return client;
}

static inline int client_open_from(const http_fixture *fixture, const char *from) {
    return client_connect(server_port(fixture->server), from);
}

static inline int client_open_at(uint16_t port) {
    return client_connect(port, NULL);
}

static inline int client_open(const http_fixture *fixture) {
    return client_open_from(fixture, NULL);
}

static inline void client_send(int client, const char *text) {
    size_t length = strlen(text);
    assert_int_equal(send(client, text, length, MSG_NOSIGNAL), (ssize_t)length);
}

/* Reads until `wanted` appears or the other side closes; terminated. */
static inline size_t client_read(int client, char *text, size_t capacity, const char *wanted) {
    size_t size = 0;
    text[0] = '\0';
    while (size + 1 < capacity && (wanted == NULL || strstr(text, wanted) == NULL)) {
        ssize_t got = recv(client, text + size, capacity - 1 - size, 0);
        if (got <= 0)
            break;
        size += (size_t)got;
        text[size] = '\0';
    }
    return size;
}

/* Until `condition` holds. What never does is ended by the limit of time of the whole test. */
#define wait_until(condition)                                                                      \
    do {                                                                                           \
        while (!(condition))                                                                       \
            sleep_ms(1);                                                                           \
    } while (0)

#endif
