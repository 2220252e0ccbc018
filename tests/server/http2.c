/* HTTP/2 without sockets: a connection is fed by hand, by nghttp2's client or by raw frames, and a
 * handler of the test's own answers. Requests of gRPC and others, conversations, windows, floods,
 * broken frames; nothing waits for time. */
#include "support/support.h"

#include "http2_client.h"
#include "server/transport/nghttp2/nghttp2_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The server ---- */

#define HELD_MAX 512u

static struct {
    server server;
    h2_loop *loop;
    h2_connection *connection;
    exchange *held[HELD_MAX];
    unsigned held_count, gone, handled, refused_writes;
} the;

static void on_gone(void *context) {
    (void)context;
    the.gone++;
}

static void hold(exchange *exchange) {
    assert_true(the.held_count < HELD_MAX);
    the.held[the.held_count++] = exchange_share(exchange);
    exchange_on_gone(exchange, on_gone, NULL);
}

static void echo(exchange *exchange) {
    exchange_stream(exchange, 200, "application/grpc");
    (void)exchange_write(exchange, exchange_asked(exchange)->body);
    exchange_end(exchange);
}

static void answer_held(unsigned index) {
    echo(the.held[index]);
    exchange_release(the.held[index]);
    the.held[index] = NULL;
}

static void write_much(exchange *exchange) {
    static char piece[1000];
    memset(piece, 'x', sizeof(piece));
    exchange_stream(exchange, 200, "application/grpc");
    bool works = true;
    for (unsigned i = 0; i < 1000 && works; i++)
        works = exchange_write(exchange, (text_view){piece, sizeof(piece)});
    the.refused_writes += !works;
    exchange_end(exchange);
}

static void handle(void *context, exchange *exchange) {
    (void)context;
    const exchange_request *asked = exchange_asked(exchange);
    the.handled++;
    if (strcmp(asked->path, "/t/Hold") == 0 || strcmp(asked->path, "/t/TalkHold") == 0)
        hold(exchange);
    else if (strcmp(asked->path, "/t/Much") == 0)
        write_much(exchange);
    else if (strcmp(asked->path, "/t/Fail") == 0)
        exchange_fail(exchange, 404, NULL, NULL, "50%% of n\xc3\xb6thing");
    else if (strcmp(asked->path, "/plain path") == 0)
        exchange_send(exchange, 200, "text/plain", text_from(exchange_query(exchange, "a b")));
    else if (asked->grpc)
        echo(exchange);
    else
        exchange_send(exchange, 200, "text/plain", asked->body);
}

static void allowed(void *context, const char *path, char *text, size_t capacity) {
    (void)context;
    (void)path;
    snprintf(text, capacity, "GET, POST");
}

static unsigned call(void *context, const char *path) {
    (void)context;
    return strncmp(path, "/t/Talk", 7) == 0 ? SERVER_CALL_CONVERSES : 0;
}

static void open_all(uint64_t unread) {
    memset(&the, 0, sizeof(the));
    server *server = &the.server;
    server->options = (server_options){.address = "127.0.0.1",
                                       .body_bytes_max = 16 << 20,
                                       .connections_max = 4096,
                                       .header_seconds = 1e6,
                                       .idle_seconds = 1e6,
                                       .unread_bytes_max = unread == 0 ? 1 << 20 : unread};
    server->handler = (server_handler){.handle = handle, .allowed = allowed, .call = call};
    pthread_mutex_init(&server->live_lock, NULL);
    pthread_cond_init(&server->live_cond, NULL);
    pthread_mutex_init(&server->table_lock, NULL);
    pulse_init(server);
    the.loop = h2_loop_alone(server);
    the.connection = h2_connection_open(the.loop, -1);
    assert_non_null(the.connection);
}

static void close_all(void) {
    h2_loop_alone_close(the.loop);
    for (unsigned i = 0; i < the.held_count; i++)
        if (the.held[i] != NULL)
            answer_held(i);
    assert_int_equal(the.server.live_exchanges, 0);
    assert_int_equal(atomic_load(&the.server.open_exchanges), 0);
    assert_int_equal(atomic_load(&the.server.body_bytes), 0);
    pulse_end(&the.server);
    pthread_mutex_destroy(&the.server.table_lock);
    pthread_cond_destroy(&the.server.live_cond);
    pthread_mutex_destroy(&the.server.live_lock);
}

/* ---- Between both ---- */

/* Bytes to and fro until nobody has any. False: the server has had enough. */
static bool pump(void) {
    bool good = true;
    for (bool moved = true; moved && good;) {
        moved = false;
        const uint8_t *bytes;
        for (ssize_t size; (size = nghttp2_session_mem_send(client.session, &bytes)) > 0;
             moved = true)
            good = good && h2_session_receive(the.connection, (const char *)bytes, (size_t)size);
        h2_loop_work(the.loop);
        h2_connection_fill(the.connection);
        buffer *out = &the.connection->out;
        moved = moved || out->size > 0;
        look_for_goaway(buffer_text(out));
        if (out->size > 0)
            (void)nghttp2_session_mem_recv(client.session, (uint8_t *)out->data, out->size);
        out->size = 0;
        for (h2_stream *stream = the.connection->streams, *next; stream != NULL; stream = next) {
            next = stream->next;
            h2_stream_next(stream);
        }
    }
    return good;
}

#define HELLO TEXT_LITERAL("\0\0\0\0\5hello")
#define BYE   TEXT_LITERAL("\0\0\0\0\3bye")

static void assert_data(const reply *reply, text_view wanted) {
    assert_int_equal(reply->data.size, wanted.size);
    if (wanted.size > 0)
        assert_memory_equal(reply->data.data, wanted.data, wanted.size);
}

static void begin(uint64_t unread, uint32_t window) {
    open_all(unread);
    client_begin(window);
}

static void end(void) {
    close_all();
    client_end();
}

/* ---- Answers ---- */

static void calls_end_with_a_status(void **state) {
    (void)state;
    begin(0, 0);
    reply *good = grpc("/t/Echo", HELLO, false), *bad = grpc("/t/Fail", HELLO, false);
    reply *got = request("GET", "/t/Echo", "application/grpc", (text_view){"", 0}, false);
    reply *typed = request("POST", "/t/Echo", "application/grpc+proto", HELLO, false);
    reply *other = request("POST", "/t/Echo", "application/grpc+json", HELLO, false);
    assert_true(pump());
    assert_data(good, HELLO);
    assert_true(good->closed && good->code == 0);
    assert_string_equal(good->status, "200");
    assert_string_equal(good->type, "application/grpc");
    assert_string_equal(good->grpc, "0");
    assert_string_equal(good->message, "");
    assert_string_equal(bad->grpc, "5");
    assert_string_equal(bad->message, "50%25 of n%C3%B6thing");
    assert_string_equal(bad->status, "200");
    assert_true(bad->bare && bad->data.size == 0 && !good->bare);
    assert_string_equal(got->grpc, "12");
    assert_string_equal(typed->grpc, "0");
    assert_string_equal(other->grpc, ""); /* not gRPC */
    assert_string_equal(other->status, "200");
    end();
}

static void other_requests_are_answered_as_over_http1(void **state) {
    (void)state;
    begin(0, 0);
    const text_view none = {"", 0};
    reply *got = request("GET", "/plain%20path?a+b=c%2Bd&e", "text/plain", none, false);
    reply *posted = request("POST", "/echo", "text/plain", TEXT_LITERAL("body"), false);
    reply *head = request("HEAD", "/plain%20path?a+b=c", "text/plain", none, false);
    reply *failed = request("GET", "/t/Fail", "text/plain", none, false);
    reply *hidden = request("GET", "/plain%00path", "text/plain", none, false);
    reply *brew = request("BREW", "/", "text/plain", none, false);
    assert_true(pump());
    assert_data(got, TEXT_LITERAL("c+d"));
    assert_string_equal(got->status, "200");
    assert_data(posted, TEXT_LITERAL("body"));
    assert_string_equal(head->status, "200");
    assert_true(head->data.size == 0 && head->bare);
    assert_string_equal(failed->status, "404");
    assert_string_equal(failed->grpc, "");
    assert_true(failed->data.size > 20);
    assert_true(hidden->closed && hidden->code == NGHTTP2_PROTOCOL_ERROR);
    assert_string_equal(brew->status, "405");
    end();
}

static void conversations_are_answered_message_by_message(void **state) {
    (void)state;
    begin(0, 0);
    reply *talk = grpc("/t/Talk", HELLO, true);
    assert_true(pump());
    assert_data(talk, HELLO); /* before the client has ended */
    assert_string_equal(talk->grpc, "");
    go_on(talk, TEXT_LITERAL("\0\0\0"), true); /* a prefix in two pieces, and more behind it */
    assert_true(pump());
    go_on(talk, TEXT_LITERAL("\0\3bye\0\0\0\0\0\0\0\0\0\2me"), true);
    assert_true(pump());
    assert_data(talk, TEXT_LITERAL("\0\0\0\0\5hello\0\0\0\0\3bye\0\0\0\0\0\0\0\0\0\2me"));
    assert_int_equal(the.handled, 4);
    go_on(talk, (text_view){"", 0}, false);
    assert_true(pump());
    assert_true(talk->closed && talk->code == 0);
    assert_string_equal(talk->grpc, "0");
    /* Without a message, and with half of one. */
    reply *empty = grpc("/t/Talk", (text_view){"", 0}, false);
    reply *half = grpc("/t/Talk", TEXT_LITERAL("\0\0\0\0\5hell"), false);
    reply *both = grpc("/t/Talk", TEXT_LITERAL("\0\0\0\0\1a\0\0\0"), false);
    assert_true(pump());
    assert_string_equal(empty->grpc, "0");
    assert_string_equal(half->grpc, "3");
    assert_data(both, TEXT_LITERAL("\0\0\0\0\1a"));
    assert_string_equal(both->grpc, "3");
    end();
}

static void a_client_that_goes_on_waits(void **state) {
    (void)state;
    begin(0, 0);
    reply *talk = grpc("/t/TalkHold", HELLO, true);
    assert_true(pump());
    assert_int_equal(the.held_count, 1);
    static char
        flood[600 << 10]; /* messages of nothing, more than the stream's window has room for */
    go_on(talk, (text_view){flood, sizeof(flood)}, true);
    assert_true(pump());
    assert_int_equal(the.held_count, 1);
    assert_true(talk->body_at < sizeof(flood)); /* the window is closed */
    assert_true(the.connection->streams->backlog.size <= H2_WINDOW_BYTES);
    reply *other = grpc("/t/Echo", HELLO, false); /* the connection's is not */
    assert_true(pump());
    assert_string_equal(other->grpc, "0");
    answer_held(0);
    assert_true(pump());
    assert_int_equal(the.held_count, 2);
    assert_int_equal(talk->data.size, HELLO.size);
    end();
}

/* ---- Clients that go, read slowly or send too much ---- */

static void a_cancelled_stream_is_told_once(void **state) {
    (void)state;
    begin(0, 0);
    reply *held = grpc("/t/Hold", HELLO, false);
    assert_true(pump());
    assert_int_equal(the.held_count, 1);
    nghttp2_submit_rst_stream(client.session, 0, held->id, NGHTTP2_CANCEL);
    assert_true(pump());
    assert_int_equal(the.gone, 1);
    assert_true(exchange_gone(the.held[0]));
    assert_int_equal(atomic_load(&the.server.open_exchanges), 0);
    reply *next = grpc("/t/Echo", HELLO, false);
    assert_true(pump());
    assert_string_equal(next->grpc, "0");
    end();
}

static void a_slow_reader_loses_its_stream_only(void **state) {
    (void)state;
    begin(20000, 3000);
    reply *much = grpc("/t/Much", HELLO, false);
    assert_true(pump());
    assert_int_equal(the.refused_writes, 1);
    assert_true(much->closed);
    assert_int_equal(much->code, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_true(much->data.size <= 3000);
    reply *next = grpc("/t/Echo", HELLO, false);
    assert_true(pump());
    assert_string_equal(next->grpc, "0");
    end();
}

static void an_answer_waits_for_the_clients_window(void **state) {
    (void)state;
    begin(2 << 20, 3000);
    reply *much = grpc("/t/Much", HELLO, false);
    assert_true(pump());
    assert_int_equal(much->data.size, 3000);
    assert_false(much->closed);
    while (!much->closed) {
        size_t before = much->data.size;
        nghttp2_session_consume(client.session, much->id, 2000);
        assert_true(pump());
        assert_true(much->closed || much->data.size > before || before + 2000 > much->data.size);
    }
    assert_int_equal(much->data.size, 1000000);
    assert_string_equal(much->grpc, "0");
    end();
}

static void messages_have_a_maximum(void **state) {
    (void)state;
    begin(0, 0);
    size_t size = GRPC_PREFIX_BYTES + GRPC_MESSAGE_BYTES_MAX;
    char *bytes = calloc(1, size + 1);
    grpc_prefix_write(bytes, GRPC_MESSAGE_BYTES_MAX);
    reply *largest = grpc("/t/Hold", (text_view){bytes, size}, false);
    assert_true(pump());
    assert_int_equal(the.held_count, 1);
    assert_int_equal(exchange_asked(the.held[0])->body.size, size);
    grpc_prefix_write(bytes, GRPC_MESSAGE_BYTES_MAX + 1);
    reply *larger = grpc("/t/Echo", (text_view){bytes, size + 1}, false);
    reply *announced = grpc("/t/Echo", (text_view){bytes, GRPC_PREFIX_BYTES}, true);
    assert_true(pump());
    assert_string_equal(larger->grpc, "8");
    assert_string_equal(announced->grpc, "8"); /* before the message has come */
    assert_true(larger->body_at < size / 2 && announced->closed && larger->closed);
    assert_true(!largest->closed);
    free(bytes);
    reply *two = grpc("/t/Echo", TEXT_LITERAL("\0\0\0\0\1a\0\0\0\0\1b"), false);
    reply *cut = grpc("/t/Echo", TEXT_LITERAL("\0\0\0\0\7abc"), false);
    assert_true(pump());
    assert_string_equal(two->grpc, "3");
    assert_string_equal(cut->grpc, "3");
    end();
}

static void heads_have_a_maximum(void **state) {
    (void)state;
    begin(0, 0);
    static char value[20000];
    memset(value, 'v', sizeof(value) - 1);
    const nghttp2_nv fields[] = {FIELD(":method", "POST"),
                                 FIELD(":scheme", "http"),
                                 FIELD(":path", "/t/Echo"),
                                 FIELD(":authority", "a"),
                                 FIELD("content-type", "application/grpc"),
                                 FIELD("x-large", value)};
    reply *reply = &client.replies[client.count++];
    buffer_init(&reply->data, NULL, SIZE_MAX);
    reply->id = nghttp2_submit_request(client.session, NULL, fields, 6, NULL, NULL);
    assert_true(pump());
    assert_int_equal(the.handled, 0);
    assert_true(reply->closed);
    /* The type stands before what is too much. */
    assert_string_equal(reply->grpc, "8");
    end();
}

/* ---- Many ---- */

static void streams_beyond_the_limit_wait_for_others(void **state) {
    (void)state;
    begin(0, 0);
    for (unsigned i = 0; i < 400; i++)
        (void)grpc("/t/Hold", HELLO, false);
    assert_true(pump());
    assert_int_equal(the.held_count, H2_STREAMS_MAX);
    for (unsigned i = 0; i < 400; i++) {
        answer_held(i);
        assert_true(pump());
        assert_true(the.connection->stream_count <= H2_STREAMS_MAX);
    }
    for (unsigned i = 0; i < 400; i++)
        assert_string_equal(client.replies[i].grpc, "0");
    end();
}

static void assert_calmed(void) {
    assert_int_equal(client.goaway, NGHTTP2_ENHANCE_YOUR_CALM + 1);
}

/* Raw frames, many at once: what the client's library would not send. */
static void send_raw(const char *frame, size_t size, unsigned times) {
    bool good = true;
    for (unsigned i = 0; i < times && good && !the.connection->ends; i++)
        good = h2_session_receive(the.connection, frame, size);
    h2_loop_work(the.loop);
    for (buffer *out = &the.connection->out; h2_connection_fill(the.connection), out->size > 0;
         out->size = 0)
        look_for_goaway(buffer_text(out)); /* the client has not asked for these answers */
}

static void floods_end_the_connection(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } frames[] = {
        {"\0\0\x08\6\0\0\0\0\0abcdefgh", 17}, /* PING */
        {"\0\0\0\4\0\0\0\0\0", 9},            /* SETTINGS without anything */
        {"\0\0\5\2\0\0\0\0\1\0\0\0\0\1", 14}, /* PRIORITY */
    };
    for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
        begin(0, 0);
        assert_true(pump());
        send_raw(frames[i].bytes, frames[i].size, H2_CONTROL_BURST - 50);
        assert_int_equal(client.goaway, 0); /* as many as that are no flood */
        send_raw(frames[i].bytes, frames[i].size, 20000);
        assert_calmed();
        end();
    }
}

static void empty_data_is_a_flood(void **state) {
    (void)state;
    begin(0, 0);
    reply *held = grpc("/t/Echo", TEXT_LITERAL("\0"), true);
    assert_true(pump());
    assert_int_equal(held->id, 1);
    send_raw("\0\0\0\0\0\0\0\0\1", 9, 20000);
    assert_calmed();
    end();
}

static void rapid_resets_end_the_connection(void **state) {
    (void)state;
    begin(0, 0);
    assert_true(pump());
    unsigned rounds = 0;
    for (; rounds < 5000 && client.goaway == 0; rounds++) {
        client.count = 0; /* what they say is not kept */
        reply *one = grpc("/t/Echo", (text_view){"", 0}, true);
        const uint8_t *bytes;
        for (unsigned part = 0; part < 2; part++) { /* a request, and its reset */
            for (ssize_t size; (size = nghttp2_session_mem_send(client.session, &bytes)) > 0;)
                (void)!h2_session_receive(the.connection, (const char *)bytes, (size_t)size);
            if (part == 0)
                nghttp2_submit_rst_stream(client.session, 0, one->id, NGHTTP2_CANCEL);
        }
        (void)pump();
        buffer_free(&one->body);
        buffer_free(&one->data);
    }
    assert_calmed();
    assert_true(rounds <= H2_RESETS_BURST + 200);
    client.count = 0;
    end();
}

/* ---- Broken ---- */

static void broken_frames_end_the_connection(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } broken[] = {
        {"GET / HTTP/1.1\r\n\r\n", 18},                 /* not even the first bytes */
        {"\0\0\4\0\0\0\0\0\0abcd", 13},                 /* DATA of stream 0 */
        {"\xff\xff\xff\0\0\0\0\0\1", 9},                /* longer than agreed */
        {"\0\0\1\1\5\0\0\0\1\xff", 10},                 /* a head that HPACK cannot read */
        {"\0\0\4\x08\0\0\0\0\0\0\0\0\0", 13},           /* a window of nothing more */
        {"\0\0\3\3\0\0\0\0\1abc", 12},                  /* a short RST_STREAM */
        {"\0\0\0\x09\4\0\0\0\1", 9},                    /* CONTINUATION of nothing */
        {"\0\0\6\4\0\0\0\0\0\0\4\xff\xff\xff\xff", 15}, /* a setting out of range */
        {"\0\0\4\5\4\0\0\0\1\0\0\0\2", 13},             /* PUSH_PROMISE of a client */
    };
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        begin(0, 0);
        reply *held = i == 0 ? NULL : grpc("/t/Hold", HELLO, false);
        if (i > 0)
            assert_true(pump());
        bool good = h2_session_receive(the.connection, broken[i].bytes, broken[i].size);
        (void)pump();
        /* Refused by nghttp2, or by a last word and nothing read any more. */
        assert_true(!good || client.goaway > 1 ||
                    nghttp2_session_want_read(the.connection->session) == 0);
        (void)held;
        end();
    }
}

static void draining_lets_streams_end(void **state) {
    (void)state;
    begin(0, 0);
    reply *held = grpc("/t/Hold", HELLO, false);
    assert_true(pump());
    atomic_store(&the.server.draining, true);
    h2_dirty(the.connection);
    assert_true(pump());
    assert_int_equal(client.goaway, NGHTTP2_NO_ERROR + 1);
    assert_false(held->closed);
    answer_held(0);
    assert_true(pump());
    assert_string_equal(held->grpc, "0");
    assert_int_equal(nghttp2_session_want_read(the.connection->session), 0);
    end();
}

/* Every byte of a request by itself: nothing depends on how it was cut. */
static void bytes_come_one_by_one(void **state) {
    (void)state;
    begin(0, 0);
    reply *one = grpc("/t/Echo", HELLO, false);
    const uint8_t *bytes;
    for (ssize_t size; (size = nghttp2_session_mem_send(client.session, &bytes)) > 0;)
        for (ssize_t i = 0; i < size; i++)
            assert_true(h2_session_receive(the.connection, (const char *)bytes + i, 1));
    assert_true(pump());
    assert_data(one, HELLO);
    assert_string_equal(one->grpc, "0");
    end();
}

static void the_first_bytes_are_known(void **state) {
    (void)state;
    static server server;
    const text_view magic = TEXT_LITERAL("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_int_equal(carrier_http2.look(&server, magic).state, HEAD_GOOD);
    for (size_t part = 0; part < magic.size; part++)
        assert_int_equal(carrier_http2.look(&server, (text_view){magic.data, part}).state,
                         HEAD_PARTIAL);
    assert_int_equal(carrier_http2.look(&server, TEXT_LITERAL("POST / HTTP/1.1\r\n")).state,
                     HEAD_BAD);
    server.options.certificate = "a file";
    server.options.grpc_listen = 2; /* a port of its own */
    assert_int_equal(carrier_http2.look(&server, TEXT_LITERAL("\x16\x03")).state, HEAD_GOOD);
    assert_string_equal(carrier_http2.look(&server, magic).code, "tls");
    server.options.grpc_listen = 0; /* the first message of TLS decides: client_hello.c */
    assert_int_equal(carrier_http2.look(&server, TEXT_LITERAL("\x16\x03")).state, HEAD_PARTIAL);
    assert_int_equal(carrier_http2.look(&server, magic).state, HEAD_BAD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_end_with_a_status),
        cmocka_unit_test(other_requests_are_answered_as_over_http1),
        cmocka_unit_test(conversations_are_answered_message_by_message),
        cmocka_unit_test(a_client_that_goes_on_waits),
        cmocka_unit_test(a_cancelled_stream_is_told_once),
        cmocka_unit_test(a_slow_reader_loses_its_stream_only),
        cmocka_unit_test(an_answer_waits_for_the_clients_window),
        cmocka_unit_test(messages_have_a_maximum),
        cmocka_unit_test(heads_have_a_maximum),
        cmocka_unit_test(streams_beyond_the_limit_wait_for_others),
        cmocka_unit_test(floods_end_the_connection),
        cmocka_unit_test(empty_data_is_a_flood),
        cmocka_unit_test(rapid_resets_end_the_connection),
        cmocka_unit_test(broken_frames_end_the_connection),
        cmocka_unit_test(draining_lets_streams_end),
        cmocka_unit_test(bytes_come_one_by_one),
        cmocka_unit_test(the_first_bytes_are_known),
    };
    return cmocka_run_group_tests_name("server/http2", tests, NULL, NULL);
}
