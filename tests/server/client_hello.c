/* transport/client_hello: what a TLS client offers, in any records and pieces. */
#include "support/support.h"

#include "server/transport/client_hello.h"

#include "base/random.h"

#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    uint8_t data[2 * HELLO_BYTES_MAX];
    size_t size;
} bytes;

static void put(bytes *out, size_t number, size_t count) {
    for (size_t i = count; i-- > 0;)
        out->data[out->size++] = (uint8_t)(number >> (8 * i));
}

static void put_data(bytes *out, const void *data, size_t size) {
    memcpy(out->data + out->size, data, size);
    out->size += size;
}

/* A ClientHello without records; `names` as ALPN has them, NULL: no such extension. `padding` bytes
 * of another extension come first. */
static void make_hello(bytes *hello, const char *names, size_t padding) {
    static const uint8_t random[32];
    size_t names_size = names == NULL ? 0 : strlen(names);
    size_t alpn = names == NULL ? 0 : 4 + 2 + names_size;
    size_t extensions = 4 + padding + alpn;
    hello->size = 0;
    put(hello, 1, 1);
    put(hello, 2 + 32 + 1 + 2 + 4 + 2 + 2 + extensions, 3);
    put(hello, 0x0303, 2);
    put_data(hello, random, 32);
    put(hello, 0, 1); /* session */
    put(hello, 4, 2); /* ciphers */
    put(hello, 0x13011302, 4);
    put(hello, 0x0100, 2); /* compressions */
    put(hello, extensions, 2);
    put(hello, 21, 2);
    put(hello, padding, 2);
    for (size_t i = 0; i < padding; i++)
        put(hello, 0, 1);
    if (names == NULL)
        return;
    put(hello, 16, 2);
    put(hello, 2 + names_size, 2);
    put(hello, names_size, 2);
    put_data(hello, names, names_size);
}

static void put_records(bytes *out, const bytes *hello, size_t record) {
    out->size = 0;
    for (size_t at = 0; at < hello->size; at += record) {
        size_t size = hello->size - at < record ? hello->size - at : record;
        put(out, 22, 1);
        put(out, 0x0301, 2);
        put(out, size, 2);
        put_data(out, hello->data + at, size);
    }
}

static hello_answer ask(const bytes *in, size_t size) {
    uint8_t *exact = test_take_exact(size == 0 ? 1 : size, sizeof(void *));
    memcpy(exact, in->data, size);
    hello_answer answer = hello_offers((bytes_view){exact, size}, "h2");
    free(exact);
    return answer;
}

static void offers_are_found_in_any_pieces(void **state) {
    (void)state;
    static bytes hello, in;
    static const struct {
        const char *names;
        hello_answer wanted;
    } cases[] = {{"\2h2", HELLO_OFFERS},
                 {"\10http/1.1\2h2", HELLO_OFFERS},
                 {"\10http/1.1", HELLO_LACKS},
                 {"\3h2c\1h\2h3", HELLO_LACKS},
                 {"", HELLO_LACKS},
                 {NULL, HELLO_LACKS}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static const size_t records[] = {16384, 100, 7, 1};
        make_hello(&hello, cases[i].names, 90);
        for (size_t r = 0; r < sizeof(records) / sizeof(records[0]); r++) {
            put_records(&in, &hello, records[r]);
            for (size_t size = 0; size < in.size; size++)
                assert_int_equal(ask(&in, size), HELLO_PARTIAL);
            assert_int_equal(ask(&in, in.size), cases[i].wanted);
        }
        put(&in, 20, 1); /* what comes behind it does not matter */
        assert_int_equal(ask(&in, in.size), cases[i].wanted);
    }
}

static void the_limit_holds(void **state) {
    (void)state;
    static bytes hello, in;
    make_hello(&hello, "\2h2", 0);
    size_t padding = HELLO_BYTES_MAX - hello.size;
    make_hello(&hello, "\2h2", padding);
    assert_int_equal(hello.size, HELLO_BYTES_MAX);
    put_records(&in, &hello, 16384);
    assert_int_equal(ask(&in, in.size), HELLO_OFFERS);
    make_hello(&hello, "\2h2", padding + 1);
    put_records(&in, &hello, 16384);
    assert_int_equal(ask(&in, in.size), HELLO_LACKS);
    assert_int_equal(ask(&in, 9), HELLO_LACKS); /* its length says so at once */
}

static void other_bytes_offer_nothing(void **state) {
    (void)state;
    static bytes hello, in;
    static const char *const others[] = {"GET / HTTP/1.1\r\n", "PRI * HTTP/2.0", "\x16\3\1\0\0\1",
                                         "\x15\3\1\0\2\1\0", "\x16\3\1\0\1\2"};
    static const size_t sizes[] = {16, 14, 6, 7, 6};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        in.size = 0;
        put_data(&in, others[i], sizes[i]);
        assert_int_equal(ask(&in, in.size), HELLO_LACKS);
    }
    make_hello(&hello, "\2h2", 3);
    for (uint64_t i = 0; i < 4000; i++) { /* damaged anywhere: an answer, and no byte too far */
        put_records(&in, &hello, 16384);
        in.data[random_at(5, 1, i).words[0] % in.size] ^= (uint8_t)(1 + i % 255);
        (void)ask(&in, in.size - i % 5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offers_are_found_in_any_pieces),
        cmocka_unit_test(the_limit_holds),
        cmocka_unit_test(other_bytes_offer_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
