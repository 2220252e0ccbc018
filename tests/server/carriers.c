/* Carriers: an exchange is refused, woken, cut and freed by the driver that brought it, whatever
 * version of HTTP that speaks; nothing about connections is said above it. */
#include "support/support.h"

#include "server/server_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct other_exchange {
    carried http;
    unsigned wakes, cuts, status;
    char code[32];
} other_exchange;

static unsigned freed;

static other_exchange *other_of(carried *exchange) {
    return (other_exchange *)(void *)exchange;
}

static void wake(carried *exchange) {
    other_of(exchange)->wakes++;
}

static void cut(carried *exchange) {
    other_of(exchange)->cuts++;
}

static void release(carried *exchange) {
    freed++;
    free(exchange);
}

static size_t refuse(carried *exchange, unsigned status, const char *code, const char *text) {
    other_of(exchange)->status = status;
    snprintf(other_of(exchange)->code, sizeof(other_of(exchange)->code), "%s", code);
    return strlen(text);
}

/* Not HTTP/1.1: its connections are another test's. */
static const carrier_driver other = {.refuse = refuse, .wake = wake, .cut = cut, .free = release};

static void open_server(server *server) {
    memset(server, 0, sizeof(*server));
    server->options.body_bytes_max = 1000;
    pthread_mutex_init(&server->live_lock, NULL);
    pthread_cond_init(&server->live_cond, NULL);
}

static void close_server(server *server) {
    assert_int_equal(server->live_exchanges, 0);
    pthread_cond_destroy(&server->live_cond);
    pthread_mutex_destroy(&server->live_lock);
}

static other_exchange *open_exchange(server *server) {
    other_exchange *own = calloc(1, sizeof(*own));
    assert_non_null(own);
    assert_true(carried_open(&own->http, &other, server, "/v1/models?x=1"));
    assert_true(carried_begin(&own->http, "/v1/models", "GET"));
    own->http.descriptor = 1000000; /* nobody may write there */
    return own;
}

static void a_late_request_is_refused_by_its_driver(void **state) {
    (void)state;
    static server server;
    open_server(&server);
    other_exchange *own = open_exchange(&server);
    carried_expire(&own->http);
    assert_int_equal(own->status, 408);
    assert_string_equal(own->code, "too_slow");
    assert_int_equal(own->cuts, 1);
    assert_true(own->http.late && own->http.status == 408 && own->http.sent_bytes > 0);
    assert_false(carried_take(&own->http));
    freed = 0;
    exchange_release(&own->http.base);
    assert_int_equal(freed, 1);
    own = open_exchange(&server); /* one that has come in time is left alone */
    assert_true(carried_take(&own->http));
    carried_expire(&own->http);
    assert_int_equal(own->status, 0);
    assert_int_equal(own->cuts, 0);
    exchange_release(&own->http.base);
    close_server(&server);
}

static void see_header(void *context, const char *name, const char *value) {
    assert_non_null(value);
    assert_ok(buffer_format(context, "%s;", name));
}

static void headers_of_connections_are_the_drivers(void **state) {
    (void)state;
    static server server;
    open_server(&server);
    other_exchange *own = open_exchange(&server);
    buffer names;
    buffer_init(&names, NULL, 1024);
    atomic_store(&server.draining, true);
    exchange_set_header(&own->http.base, "X-Mine", "1");
    exchange_send(&own->http.base, 200, "text/plain", TEXT_LITERAL("hello"));
    assert_int_equal(own->wakes, 1);
    carried_each_header(&own->http, see_header, &names);
    assert_ok(buffer_terminate(&names));
    assert_string_equal(names.data, "Content-Type;X-Request-Id;X-Content-Type-Options;X-Mine;");
    buffer_free(&names);
    exchange_release(&own->http.base);
    close_server(&server);
}

static void a_slow_reader_is_cut_by_its_driver(void **state) {
    (void)state;
    static server server;
    open_server(&server);
    server.options.unread_bytes_max = 10;
    other_exchange *own = open_exchange(&server);
    exchange_stream(&own->http.base, 200, "text/plain");
    assert_true(exchange_write(&own->http.base, TEXT_LITERAL("12345678")));
    assert_true(exchange_write(&own->http.base, TEXT_LITERAL("1234567890")));
    assert_int_equal(own->cuts, 0);
    assert_false(exchange_write(&own->http.base, TEXT_LITERAL("1234567890")));
    assert_int_equal(own->cuts, 1);
    exchange_end(&own->http.base);
    exchange_release(&own->http.base);
    close_server(&server);
}

static void http1_takes_what_begins_like_it(void **state) {
    (void)state;
    static server server;
    server.options.header_bytes_max = 4096;
    const text_view get = TEXT_LITERAL("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    const text_view other_version = TEXT_LITERAL("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_int_equal(carrier_http1.look(&server, get).state, HEAD_GOOD);
    assert_int_equal(carrier_http1.look(&server, TEXT_LITERAL("GET / HT")).state, HEAD_PARTIAL);
    assert_int_equal(carrier_http1.look(&server, other_version).state, HEAD_BAD);
    server.options.certificate = "a file";
    assert_int_equal(carrier_http1.look(&server, TEXT_LITERAL("\x16\x03")).state, HEAD_GOOD);
    head plain = carrier_http1.look(&server, get);
    assert_int_equal(plain.state, HEAD_BAD);
    assert_string_equal(plain.code, "tls");
    server.options.certificate = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_request_is_refused_by_its_driver),
        cmocka_unit_test(headers_of_connections_are_the_drivers),
        cmocka_unit_test(a_slow_reader_is_cut_by_its_driver),
        cmocka_unit_test(http1_takes_what_begins_like_it),
    };
    return cmocka_run_group_tests_name("server/carriers", tests, NULL, NULL);
}
