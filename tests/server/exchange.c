/* Exchanges: answers now, later and in pieces; clients that go, read slowly or pipeline; closing
 * while answers wait. AVO_TEST_THREADS */
#include "http_fixture.h"

#include "server/server_int.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"

static char text[1 << 20];

static void answers_come_now_and_later(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){0});
    int client = client_open(&fixture);
    client_send(client, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                        "X-Request-Id: mine-1\r\n\r\nhello");
    client_read(client, text, sizeof(text), "\r\n\r\nhello");
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    assert_non_null(strstr(text, "X-Request-Id: mine-1\r\n"));
    /* The same connection, an answer of another thread. */
    client_send(client, GET("/later?ms=30&bytes=3"));
    client_read(client, text, sizeof(text), "\r\n\r\nxxx");
    assert_non_null(strstr(text, "Content-Length: 3"));
    client_send(client, GET("/nothing"));
    client_read(client, text, sizeof(text), "}}");
    assert_non_null(strstr(text, "HTTP/1.1 404"));
    assert_non_null(strstr(text, "\"type\":\"not_found_error\""));
    close(client);
    fixture_close(&fixture);
}

static void a_stream_comes_as_it_is_written(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){0});
    int client = client_open(&fixture);
    client_send(client, GET("/stream?pieces=3&waits=1&bytes=7"));
    for (unsigned piece = 1; piece <= 2; piece++) { /* the next one is not written before */
        atomic_store(&permits, piece);
        client_read(client, text, sizeof(text), "xxxxxxx\n");
        assert_non_null(strstr(text, "xxxxxxx\n"));
    }
    atomic_store(&permits, 3);
    client_read(client, text, sizeof(text), "0\r\n\r\n");
    client_send(client, GET("/stream?pieces=1000&bytes=99")); /* kept alive */
    size_t got = client_read(client, text, sizeof(text), "\r\n0\r\n\r\n");
    assert_true(got > 100000);
    close(client);
    wait_until(atomic_load(&answers_ended) == 2);
    assert_int_equal(atomic_load(&gone_calls), 0);
    fixture_close(&fixture);
}

static void a_client_that_goes_is_seen_while_it_waits(void **state) {
    (void)state;
    static const char *const asked[] = {GET("/later?ms=5&pieces=100000"),
                                        GET("/stream?pieces=100000&ms=5&bytes=0")};
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){0});
    for (unsigned i = 0; i < 2; i++) {
        int client = client_open(&fixture);
        client_send(client, asked[i]);
        wait_until(atomic_load(&handled) == i + 1);
        assert_int_equal(server_open_exchanges(fixture.server), 1);
        close(client);
        wait_until(atomic_load(&gone_calls) == i + 1);
        wait_until(server_open_exchanges(fixture.server) == 0);
    }
    fixture_close(&fixture);
}

static void a_slow_reader_is_cut_off(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){.unread_bytes_max = 64 << 10});
    int client = client_open(&fixture);
    int small = 4096;
    setsockopt(client, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    client_send(client, GET("/stream?pieces=100000&bytes=9999"));
    wait_until(atomic_load(&writes_refused) == 1);
    wait_until(atomic_load(&answers_ended) == 1);
    wait_until(server_open_exchanges(fixture.server) == 0);
    close(client);
    fixture_close(&fixture);
}

/* One event may be larger than what may be unread: its reader is not slow. */
static void a_large_event_is_no_slow_reader(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){.unread_bytes_max = 64 << 10});
    int client = client_open(&fixture);
    client_send(client, GET("/stream?pieces=3&ms=100&bytes=200000"));
    size_t got = client_read(client, text, sizeof(text), "\r\n0\r\n\r\n");
    assert_true(got > 600000);
    assert_int_equal(atomic_load(&writes_refused), 0);
    assert_int_equal(atomic_load(&gone_calls), 0);
    close(client);
    fixture_close(&fixture);
}

/* ---- Bodies ---- */

#define BODY_MAX "65536"

/* From an address of this machine, so many bytes of a body of the largest size. */
static int client_begin_body(const http_fixture *fixture, const char *from, size_t bytes) {
    static char body[65536];
    memset(body, 'b', sizeof(body));
    int client = client_open_from(fixture, from);
    client_send(client,
                "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: " BODY_MAX "\r\n\r\n");
    for (size_t at = 0; at < bytes;) {
        ssize_t sent = send(client, body + at, bytes - at, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
    return client;
}

static bool body_is_taken(const http_fixture *fixture, const char *from) {
    int client = client_begin_body(fixture, from, 65536);
    client_read(client, text, sizeof(text), "\r\n\r\n");
    bool good = strstr(text, "HTTP/1.1 200") != NULL;
    if (!good) {
        assert_non_null(strstr(text, "HTTP/1.1 503"));
        assert_non_null(strstr(text, "Retry-After: "));
    }
    close(client);
    return good;
}

static void announced_bodies_hold_nothing(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){.body_bytes_max = 65536});
    int clients[64];
    for (int i = 0; i < 64; i++)
        clients[i] = client_begin_body(&fixture, "127.0.0.1", i % 2 == 0 ? 0 : 100);
    wait_until(atomic_load(&fixture.server->body_bytes) == 32 * 100);
    assert_true(body_is_taken(&fixture, "127.0.0.1"));
    for (int i = 0; i < 64; i++)
        close(clients[i]);
    fixture_close(&fixture);
}

/* One address sends nearly all of as many bodies as fit, and waits: the others have their part. */
static void bodies_of_one_address_leave_room(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture,
                 (server_options){.body_bytes_max = 65536, .connections_per_address_max = 100});
    int clients[8]; /* half of what all share is one address's part: 524,288 bytes */
    for (unsigned i = 0; i < 8; i++) {
        clients[i] = client_begin_body(&fixture, "127.0.0.1", 60000);
        wait_until(atomic_load(&fixture.server->body_bytes) == (i + 1) * 60000);
    }
    assert_false(body_is_taken(&fixture, "127.0.0.1"));
    for (int i = 0; i < 3; i++)
        assert_true(body_is_taken(&fixture, "127.0.0.2"));
    for (int i = 0; i < 8; i++)
        close(clients[i]);
    wait_until(body_is_taken(&fixture, "127.0.0.1")); /* what they held is there again */
    fixture_close(&fixture);
}

static void pipelined_requests_are_answered_in_order(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){0});
    int client = client_open(&fixture);
    client_send(
        client,
        GET("/later?ms=50&bytes=11")
            GET("/stream?pieces=2&ms=20&bytes=12") "POST /echo HTTP/1.1\r\nHost: "
                                                   "localhost\r\nContent-Length: 4\r\n\r\nlast");
    client_read(client, text, sizeof(text), "\r\n\r\nlast");
    const char *first = strstr(text, "\r\n\r\nxxxxxxxxxxx");
    const char *second = strstr(text, "xxxxxxxxxxxx\n");
    const char *third = strstr(text, "\r\n\r\nlast");
    assert_non_null(first);
    assert_non_null(second);
    assert_non_null(third);
    assert_true(first < second && second < third);
    assert_int_equal(atomic_load(&gone_calls), 0);
    close(client);
    fixture_close(&fixture);
}

static void closing_ends_answers_that_wait(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){0});
    int clients[20];
    for (int i = 0; i < 20; i++) {
        clients[i] = client_open(&fixture);
        client_send(clients[i], i % 2 == 0 ? GET("/later?ms=5&pieces=100000")
                                           : GET("/stream?ms=5&pieces=100000&bytes=3"));
    }
    wait_until(atomic_load(&handled) == 20);
    server_drain(fixture.server);
    assert_true(server_draining(fixture.server));
    int late = client_open(&fixture);
    client_send(late, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab");
    client_read(late, text, sizeof(text), "}}");
    assert_non_null(strstr(text, "HTTP/1.1 503"));
    assert_non_null(strstr(text, "Retry-After: "));
    close(late);
    fixture_close(&fixture);
    assert_int_equal(atomic_load(&gone_calls), 20);
    assert_int_equal(atomic_load(&answers_ended), 20);
    for (int i = 0; i < 20; i++)
        close(clients[i]);
}

/* Many clients that come, ask and leave at any moment; nothing is lost and nothing is left. */
typedef struct visitor {
    const http_fixture *fixture;
    unsigned seed;
    unsigned answered;
} visitor;

static void *visit(void *context) {
    visitor *visitor = context;
    char answer[4096];
    for (unsigned i = 0; i < 40; i++) {
        int client = client_open(visitor->fixture);
        unsigned kind = (visitor->seed + i * 7) % 5;
        client_send(client, kind == 0   ? GET("/later?ms=3")
                            : kind == 1 ? GET("/stream?pieces=5&ms=1&bytes=20")
                            : kind == 2 ? GET("/stream?pieces=50&ms=1&bytes=200")
                            : kind == 3 ? "GET /later HT"
                                        : GET("/echo"));
        if (kind < 2 || kind == 4) {
            client_read(client, answer, sizeof(answer), kind == 1 ? "\r\n0\r\n\r\n" : "\r\n\r\n");
            visitor->answered += strstr(answer, "HTTP/1.1 200") != NULL;
        }
        close(client);
    }
    return NULL;
}

static void clients_may_leave_at_any_moment(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){0});
    visitor visitors[8];
    pthread_t threads[8];
    for (unsigned i = 0; i < 8; i++) {
        visitors[i] = (visitor){&fixture, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, visit, &visitors[i]), 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(visitors[i].answered, 24); /* 3 of 5 kinds wait for their answer */
    }
    wait_until(server_open_exchanges(fixture.server) == 0);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_now_and_later),
        cmocka_unit_test(a_stream_comes_as_it_is_written),
        cmocka_unit_test(a_slow_reader_is_cut_off),
        cmocka_unit_test(a_large_event_is_no_slow_reader),
        cmocka_unit_test(announced_bodies_hold_nothing),
        cmocka_unit_test(bodies_of_one_address_leave_room),
        cmocka_unit_test(pipelined_requests_are_answered_in_order),
        cmocka_unit_test(closing_ends_answers_that_wait),
        cmocka_unit_test(clients_may_leave_at_any_moment),
        cmocka_unit_test(a_client_that_goes_is_seen_while_it_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
