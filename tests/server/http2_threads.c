/* HTTP/2 over sockets, with every thread that there is: answers now, later and in pieces, many
 * streams on few connections, clients that go in between, the server that goes. AVO_TEST_THREADS */
#include "http_fixture.h"

#include "http2_client.h"

#define CONNECTIONS 4u
#define EACH        64u /* streams of one connection */

static int connected[CONNECTIONS];

static void send_all(int descriptor) {
    const uint8_t *bytes;
    for (ssize_t size; (size = nghttp2_session_mem_send(client.session, &bytes)) > 0;)
        assert_int_equal(send(descriptor, bytes, (size_t)size, MSG_NOSIGNAL), size);
}

/* Until all that was asked on this connection is closed. */
static void read_all(int descriptor) {
    char bytes[16384];
    for (;;) {
        unsigned open = 0;
        for (unsigned i = 0; i < client.count; i++)
            open += !client.replies[i].closed;
        if (open == 0)
            return;
        send_all(descriptor);
        ssize_t got = recv(descriptor, bytes, sizeof(bytes), 0);
        assert_true(got > 0);
        assert_int_equal(
            nghttp2_session_mem_recv(client.session, (const uint8_t *)bytes, (size_t)got), got);
    }
}

static void many_streams_are_answered(void **state) {
    (void)state;
    static const char *const paths[] = {"/stream?pieces=20&bytes=99", "/later?bytes=50", "/echo",
                                        "/stream?pieces=3&bytes=20000", "/nowhere"};
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){.grpc = true});
    for (unsigned round = 0; round < CONNECTIONS; round++) {
        int descriptor = client_open_at(server_grpc_port(fixture.server));
        client_begin(0);
        for (unsigned i = 0; i < EACH; i++)
            (void)request(i % 5 == 2 ? "POST" : "GET", paths[i % 5], "text/plain",
                          i % 5 == 2 ? TEXT_LITERAL("hello") : (text_view){"", 0}, false);
        read_all(descriptor);
        for (unsigned i = 0; i < EACH; i++) {
            static const size_t sizes[] = {20 * 100, 50, 5, 3 * 20001};
            const reply *reply = &client.replies[i];
            assert_string_equal(reply->status, i % 5 == 4 ? "404" : "200");
            if (i % 5 < 4)
                assert_int_equal(reply->data.size, sizes[i % 5]);
        }
        client_end();
        close(descriptor);
    }
    wait_until(server_open_exchanges(fixture.server) == 0);
    fixture_close(&fixture);
}

static void clients_go_while_answers_run(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){.grpc = true});
    for (unsigned round = 0; round < CONNECTIONS; round++) {
        connected[round] = client_open_at(server_grpc_port(fixture.server));
        client_begin(0);
        for (unsigned i = 0; i < 16; i++)
            (void)request("GET", "/stream?pieces=1000000&bytes=9&ms=1", "text/plain",
                          (text_view){"", 0}, false);
        send_all(connected[round]);
        wait_until(atomic_load(&handled) == (round + 1) * 16);
        client_end();
        if (round % 2 == 0)
            close(connected[round]);
    }
    wait_until(atomic_load(&gone_calls) == CONNECTIONS / 2 * 16);
    fixture_close(&fixture); /* the other half goes with the server */
    assert_int_equal(atomic_load(&gone_calls), CONNECTIONS * 16);
    for (unsigned round = 1; round < CONNECTIONS; round += 2)
        close(connected[round]);
}

static void draining_and_calling_off(void **state) {
    (void)state;
    http_fixture fixture = {0};
    fixture_open(&fixture, (server_options){.grpc = true});
    int descriptor = client_open_at(server_grpc_port(fixture.server));
    client_begin(0);
    for (unsigned i = 0; i < 8; i++)
        (void)request("GET", "/stream?pieces=1000000&bytes=9&ms=1", "text/plain",
                      (text_view){"", 0}, false);
    send_all(descriptor);
    wait_until(atomic_load(&handled) == 8);
    server_drain(fixture.server);
    assert_int_equal(server_call_off(fixture.server, 300.0), 0);
    read_all(descriptor);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(client.replies[i].code, 0);
    client_end();
    close(descriptor);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_streams_are_answered),
        cmocka_unit_test(clients_go_while_answers_run),
        cmocka_unit_test(draining_and_calling_off),
    };
    return cmocka_run_group_tests_name("server/http2_threads", tests, NULL, NULL);
}
