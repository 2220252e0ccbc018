/* ZMTP: the handshake, subscriptions and replay requests in any pieces, what is refused, and the
 * bytes of messages and batches. */
#include "support/support.h"

#include "server/kv_format.h"
#include "server/kv_publish.h"
#include "server/zmtp.h"

#include <string.h>

#define VIEW(literal) ((bytes_view){(const uint8_t *)(literal), sizeof(literal) - 1})

static const uint8_t their_greeting[64] = {0xff, 0,    0, 0, 0,   0,   0,   0,
                                           1,    0x7f, 3, 1, 'N', 'U', 'L', 'L'};
#define READY_SUB    "\x04\x19\5READY\13Socket-Type\0\0\0\3SUB"
#define READY_DEALER "\x04\x1c\5READY\13Socket-Type\0\0\0\6DEALER"

/* NULL: taken, else why not. `piece` bytes at a time. */
static const char *give(zmtp_peer *peer, bytes_view bytes, size_t piece) {
    const char *why = NULL;
    for (size_t at = 0, size; at < bytes.size; at += size) {
        size_t room;
        uint8_t *in = zmtp_room(peer, &room);
        assert_true(room > 0);
        size = bytes.size - at < piece ? bytes.size - at : piece;
        size = size < room ? size : room;
        memcpy(in, bytes.data + at, size);
        if (!zmtp_received(peer, size, &why)) {
            assert_non_null(why);
            return why;
        }
    }
    return NULL;
}

static void shake_hands(zmtp_peer *peer, zmtp_role role, size_t piece) {
    assert_ok(zmtp_open(peer, role));
    assert_int_equal(peer->out.size, 64);
    assert_memory_equal(peer->out.data, "\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL\0\0\0\0\0", 21);
    peer->out.size = 0;
    assert_null(give(peer, (bytes_view){their_greeting, sizeof(their_greeting)}, piece));
    bytes_view ready = role == ZMTP_PUB ? VIEW("\x04\x19\5READY\13Socket-Type\0\0\0\3PUB")
                                        : VIEW("\x04\x1c\5READY\13Socket-Type\0\0\0\6ROUTER");
    assert_int_equal(peer->out.size, ready.size);
    assert_memory_equal(peer->out.data, ready.data, ready.size);
    peer->out.size = 0;
    assert_false(zmtp_wants(peer, VIEW("")));
    assert_null(give(peer, role == ZMTP_PUB ? VIEW(READY_SUB) : VIEW(READY_DEALER), piece));
    assert_int_equal(peer->state, ZMTP_OPEN);
}

static void subscribers_get_their_topics(void **state) {
    (void)state;
    for (size_t piece = 1; piece < 100; piece += 33) {
        zmtp_peer peer;
        shake_hands(&peer, ZMTP_PUB, piece);
        assert_false(zmtp_wants(&peer, VIEW("kv@a@m")));
        assert_null(give(&peer, VIEW("\0\4\1kv@"), piece)); /* 3.0: a message */
        assert_true(zmtp_wants(&peer, VIEW("kv@a@m")));
        assert_false(zmtp_wants(&peer, VIEW("kv")));
        assert_null(give(&peer, VIEW("\4\14\11SUBSCRIBEkv"), piece)); /* 3.1: a command */
        assert_true(zmtp_wants(&peer, VIEW("kv")));
        assert_null(give(&peer, VIEW("\4\11\6CANCELkv"), piece));
        assert_false(zmtp_wants(&peer, VIEW("kv")));
        assert_null(give(&peer, VIEW("\0\4\0kv@"), piece));
        assert_false(zmtp_wants(&peer, VIEW("kv@a@m")));
        assert_null(give(&peer, VIEW("\0\1\1"), piece)); /* everything */
        assert_true(zmtp_wants(&peer, VIEW("")));
        assert_null(give(&peer, VIEW("\4\11\4PING\0\1ab"), piece));
        assert_int_equal(peer.out.size, 9);
        assert_memory_equal(peer.out.data, "\4\7\4PONGab", 9);
        zmtp_close(&peer);
    }
}

static void messages_have_frames_and_a_limit(void **state) {
    (void)state;
    zmtp_peer peer;
    static uint8_t large[300];
    shake_hands(&peer, ZMTP_PUB, 64);
    const bytes_view frames[] = {VIEW("t"), VIEW("\0\0\0\0\0\0\0\1"), {large, sizeof(large)}};
    assert_true(zmtp_send(&peer, frames, 3));
    assert_int_equal(peer.out.size, 3 + 10 + 9 + 300);
    assert_memory_equal(peer.out.data, "\1\1t\1\10\0\0\0\0\0\0\0\1\2\0\0\0\0\0\0\1\x2c", 22);
    size_t sent = 1;
    while (zmtp_send(&peer, frames, 3))
        sent++;
    assert_int_equal(sent, ZMTP_UNREAD_MAX / 322);
    assert_int_equal(peer.out.size, sent * 322); /* nothing of the one that did not fit */
    peer.out_at = 322;                           /* the peer reads one: there is room for one */
    assert_true(zmtp_send(&peer, frames, 3));
    assert_false(zmtp_send(&peer, frames, 3));
    zmtp_close(&peer);
}

static void replays_are_asked_for_by_number(void **state) {
    (void)state;
    zmtp_peer peer;
    shake_hands(&peer, ZMTP_ROUTER, 7);
    assert_null(give(&peer, VIEW("\0\10\0\0\0\0\0\0\1\2"), 3));
    assert_true(peer.asked && !peer.empty_first);
    assert_int_equal(peer.asked_from, 258);
    peer.asked = false;
    assert_null(
        give(&peer, VIEW("\1\0\0\10\0\0\0\0\0\0\0\7"), 3)); /* REQ puts an empty frame first */
    assert_true(peer.asked && peer.empty_first);
    assert_int_equal(peer.asked_from, 7);
    assert_string_equal(give(&peer, VIEW("\0\3abc"), 9),
                        "its message is not a sequence number of 8 bytes");
    zmtp_close(&peer);
}

static void refuse_first(bytes_view greeting, const char *why) {
    zmtp_peer peer;
    assert_ok(zmtp_open(&peer, ZMTP_PUB));
    assert_string_equal(give(&peer, greeting, 64), why);
    zmtp_close(&peer);
}

static void other_protocols_are_refused(void **state) {
    (void)state;
    uint8_t bytes[64];
    refuse_first(
        VIEW("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nX-Filler: 1234567\r\n\r\n"),
        "it does not speak ZMTP");
    memcpy(bytes, their_greeting, 64);
    bytes[10] = 1;
    refuse_first((bytes_view){bytes, 64}, "it speaks an older ZMTP, 3.0 or later is needed");
    memcpy(bytes, their_greeting, 64);
    memcpy(bytes + 12, "CURVE", 5);
    refuse_first((bytes_view){bytes, 64}, "it wants another mechanism than NULL");
}

static void broken_frames_are_refused(void **state) {
    (void)state;
    static const struct {
        bytes_view bytes;
        bool open; /* after the handshake */
        const char *why;
    } cases[] = {
        {VIEW("\0\1\1"), false, "it does not begin with READY"},
        {VIEW("\4\4\3ABC"), false, "it does not begin with READY"},
        {VIEW("\4\4\11ABC"), false, "a command of it is broken"},
        {VIEW("\4\22\5READY\13Socket-Type"), false, "its READY is broken"},
        {VIEW("\x04\x19\5READY\13Socket-Type\0\0\0\3PUB"), false,
         "its socket is neither SUB nor XSUB"},
        {VIEW("\4\6\5READY"), false, "its socket is neither SUB nor XSUB"},
        {VIEW("\10\1a"), true, "a frame of it has unknown flags"},
        {VIEW("\5\1a"), true, "a frame of it has unknown flags"},
        {VIEW("\2\0\0\0\0\0\0\4\1"), true, "a frame of it is too long"},
        {VIEW("\0\0"), true, "a subscription of it is broken"},
        {VIEW("\0\1\2"), true, "a subscription of it is broken"},
        {VIEW("\1\1\1"), true, "a subscription of it is broken"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        zmtp_peer peer;
        if (cases[i].open) {
            shake_hands(&peer, ZMTP_PUB, 64);
        } else {
            assert_ok(zmtp_open(&peer, ZMTP_PUB));
            assert_null(give(&peer, (bytes_view){their_greeting, 64}, 64));
        }
        assert_string_equal(give(&peer, cases[i].bytes, 64), cases[i].why);
        zmtp_close(&peer);
    }
    zmtp_peer peer;
    shake_hands(&peer, ZMTP_PUB, 64);
    for (uint32_t i = 0; i < ZMTP_SUBSCRIPTIONS_MAX; i++)
        assert_null(give(&peer, VIEW("\0\2\1a"), 64));
    assert_string_equal(give(&peer, VIEW("\0\2\1a"), 64),
                        "it has too many subscriptions, or too long ones");
    zmtp_close(&peer);
    shake_hands(&peer, ZMTP_ROUTER, 64);
    assert_string_equal(give(&peer, VIEW("\1\1a\1\1a\1\1a\1\1a"), 64),
                        "a message of it has too many frames");
    zmtp_close(&peer);
}

/* The bytes of msgpack, by hand. */
static void batches_are_arrays_of_msgpack(void **state) {
    (void)state;
    kv_events *log;
    buffer out;
    kv_event events[4] = {{.kind = KV_EVENT_STORED, .block = 5, .label = 0},
                          {.kind = KV_EVENT_STORED, .block = 300, .parent = 5, .has_parent = true},
                          {.kind = KV_EVENT_REMOVED, .block = UINT64_MAX},
                          {.kind = KV_EVENT_CLEARED}};
    assert_ok(kv_events_open(1, NULL, &log, NULL));
    events[1].tokens[31] = 65536;
    buffer_init(&out, NULL, 4096);
    assert_ok(kv_format_batch(log, events, 4, 1.5, &out));
    const uint8_t *at = (const uint8_t *)out.data;
    assert_memory_equal(at,
                        "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x93\x98\xab"
                        "BlockStored",
                        24);
    at += 24;
    assert_memory_equal(at, "\x92\5\xce\0\0\1\x2c\xc0\xdd\0\0\0\x40", 13);
    at += 13 + 63; /* 63 zeros */
    assert_memory_equal(at, "\xce\0\1\0\0\x20\xc0\xa3GPU\xc0", 12);
    at += 12;
    assert_memory_equal(at,
                        "\x93\xac"
                        "BlockRemoved\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa3GPU",
                        28);
    at += 28;
    assert_memory_equal(at,
                        "\x91\xb0"
                        "AllBlocksCleared\0",
                        19);
    assert_ptr_equal(at + 19, out.data + out.size);
    out.size = 0;
    events[0].label = events[1].label = kv_events_label(log, "pirate");
    assert_ok(kv_format_batch(log, events, 2, 1.5, &out));
    assert_memory_equal(out.data + out.size - 8, "\xa6pirate\0", 8);
    out.limit = 50;
    out.size = 0;
    assert_int_equal(kv_format_batch(log, events, 2, 1.5, &out), AVO_ERROR_LIMIT);
    buffer_free(&out);
    kv_events_close(log);
}

static void endpoints_are_read(void **state) {
    (void)state;
    char address[KV_ADDRESS_MAX];
    uint16_t port;
    avo_error error = {0};
    assert_ok(kv_endpoint_read("--kv-events", "tcp://127.0.0.1:5557", address, &port, &error));
    assert_string_equal(address, "127.0.0.1");
    assert_int_equal(port, 5557);
    assert_ok(kv_endpoint_read("--kv-events", "tcp://*:0", address, &port, &error));
    assert_string_equal(address, "0.0.0.0");
    assert_ok(kv_endpoint_read("--kv-events", "tcp://[::1]:65535", address, &port, &error));
    assert_string_equal(address, "::1");
    static const char *const wrong[] = {"",           "127.0.0.1:5557", "tcp://",
                                        "tcp://:1",   "tcp://a:",       "tcp://a:65536",
                                        "tcp://a:1x", "ipc:///tmp/a",   "tcp://a:-1"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_refused(kv_endpoint_read("--kv-events", wrong[i], address, &port, &error),
                       AVO_ERROR_ARGUMENT, &error, "--kv-events is");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(subscribers_get_their_topics),
        cmocka_unit_test(messages_have_frames_and_a_limit),
        cmocka_unit_test(replays_are_asked_for_by_number),
        cmocka_unit_test(other_protocols_are_refused),
        cmocka_unit_test(broken_frames_are_refused),
        cmocka_unit_test(batches_are_arrays_of_msgpack),
        cmocka_unit_test(endpoints_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
