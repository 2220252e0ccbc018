/* Heads of requests: what is one, what is none, and that it is known as early as it can be. */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

#include "server/transport/head.h"

#define LIMIT 4096u

static head check(const char *text) {
    return head_check((text_view){text, strlen(text)}, LIMIT);
}

static void test_good_ones(void **state) {
    (void)state;
    static const char *const good[] = {
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\n\n",
        "\r\nPOST /v1/x?a=1&b HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n{...",
        "OPTIONS * HTTP/1.1\r\nX-Empty:\r\nX-Tab: a\tb\r\n\r\n",
        "BREW http://a/b HTTP/1.1\r\nX: \xc3\xa9\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        size_t size = strlen(good[i]);
        assert_int_equal(check(good[i]).state, HEAD_GOOD);
        /* Every part of one is good so far. */
        const char *end = strstr(good[i], "\r\n\r\n");
        size_t whole = end != NULL ? (size_t)(end - good[i]) + 4 : size;
        for (size_t part = 0; part < whole; part++) {
            head seen = head_check((text_view){good[i], part}, LIMIT);
            assert_int_equal(seen.state, HEAD_PARTIAL);
        }
    }
    head seen = check("POST /v1/x?a=1 HTTP/1.1\r\n");
    assert_true(text_is(seen.method, "POST"));
    assert_true(text_is(seen.target, "/v1/x?a=1"));
}

static void test_bad_ones(void **state) {
    (void)state;
    static const struct {
        unsigned status;
        const char *text;
    } bad[] = {
        {400, "\x16\x03\x01"},
        {400, "hello, you"},
        {400, "hello\r\n"},
        {400, "GET \r\n"},
        {400, "GET  HTTP/1.1\r\n"},
        {400, "GET /\r\n"},
        {400, "GET / HTTP/1.1 \r\n"},
        {400, "GET /a b HTTP/1.1\r\n"},
        {400, "GET /\x01 HTTP/1.1\r\n"},
        {400, "GET / http/1.1\r\n"},
        {400, "GET / HTTP/1.10\r\n"},
        {505, "GET / HTTP/2.0\r\n"},
        {505, "PRI * HTTP/2.0\r\n"},
        {400, "\r\n\r\n"},
        {400, " GET / HTTP/1.1\r\n"},
        {400, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"},
        {400, "GET / HTTP/1.1\r\nbroken\r\n"},
        {400, "GET / HTTP/1.1\r\n: value\r\n"},
        {400, "GET / HTTP/1.1\r\nName : value\r\n"},
        {400, "GET / HTTP/1.1\r\nName: value\r\n folded\r\n"},
        {400, "GET / HTTP/1.1\r\nName: a\rb\r\n"},
        {400, "GET / HTTP/1.1\r\nName: \x7f\r\n"},
        {400, "GET / HTTP/1.1\r\nContent-Length: -5\r\n"},
        {400, "GET / HTTP/1.1\r\nContent-Length:\r\n"},
        {400, "GET / HTTP/1.1\r\ncontent-length: 5 \r\n"},
        {400, "GET / HTTP/1.1\r\nContent-Length: 0x5\r\n"},
        {413, "GET / HTTP/1.1\r\nContent-Length: 12345678901234567890123\r\n"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        head seen = check(bad[i].text);
        if (seen.state != HEAD_BAD || seen.status != bad[i].status) {
            print_error("%s: state %d, status %u\n", bad[i].text, (int)seen.state, seen.status);
        }
        assert_int_equal(seen.state, HEAD_BAD);
        assert_int_equal(seen.status, bad[i].status);
        assert_non_null(seen.code);
        assert_non_null(seen.text);
    }
    head seen = head_check((text_view){"GET / HTTP/1.1\r\nA: b\0c\r\n", 24}, LIMIT);
    assert_int_equal(seen.status, 400);
}

static void test_long_ones(void **state) {
    (void)state;
    static char bytes[2 * LIMIT];
    memset(bytes, 'x', sizeof bytes);
    memcpy(bytes, "GET /", 5);
    assert_int_equal(head_check((text_view){bytes, LIMIT - 1}, LIMIT).state, HEAD_PARTIAL);
    assert_int_equal(head_check((text_view){bytes, LIMIT}, LIMIT).status, 414);
    memcpy(bytes, "GET / HTTP/1.1\r\nA: ", 19);
    assert_int_equal(head_check((text_view){bytes, LIMIT - 1}, LIMIT).state, HEAD_PARTIAL);
    assert_int_equal(head_check((text_view){bytes, LIMIT}, LIMIT).status, 431);
    memcpy(bytes + LIMIT - 4, "\r\n\r\n", 4); /* just fits, and a body may follow */
    assert_int_equal(head_check((text_view){bytes, LIMIT}, LIMIT).state, HEAD_GOOD);
    assert_int_equal(head_check((text_view){bytes, 2 * LIMIT}, LIMIT).state, HEAD_GOOD);
    memset(bytes + LIMIT - 4, 'x', 4);
    memcpy(bytes + LIMIT - 3, "\r\n\r\n", 4); /* one more does not */
    assert_int_equal(head_check((text_view){bytes, 2 * LIMIT}, LIMIT).status, 431);
}

static void test_many_fields(void **state) {
    (void)state;
    static char bytes[16384];
    for (uint32_t fields = HEAD_FIELDS_MAX - 1; fields <= HEAD_FIELDS_MAX + 1; fields++) {
        size_t used = (size_t)snprintf(bytes, sizeof bytes, "GET /?a HTTP/1.1\r\n");
        for (uint32_t i = 1; i < fields; i++) {
            used += (size_t)snprintf(bytes + used, sizeof bytes - used, "a: b\r\n");
        }
        snprintf(bytes + used, sizeof bytes - used, "\r\n");
        head seen = check(bytes);
        assert_int_equal(seen.state, fields <= HEAD_FIELDS_MAX ? HEAD_GOOD : HEAD_BAD);
        assert_int_equal(seen.status, fields <= HEAD_FIELDS_MAX ? 0 : 431);
    }
}

/* Cookies are copied, and so they count twice. */
static void test_large_cookies(void **state) {
    (void)state;
    static char bytes[LIMIT + 100];
    for (size_t size = 1; size < LIMIT; size += 7) {
        size_t used = (size_t)snprintf(bytes, sizeof bytes, "GET / HTTP/1.1\r\ncookie: %*s\r\n\r\n",
                                       (int)size, "x");
        memset(bytes + 24, 'x', size);
        head seen = check(bytes);
        assert_int_equal(seen.state == HEAD_GOOD, used + size <= LIMIT);
        assert_int_equal(seen.status, used + size <= LIMIT ? 0 : 431);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_ones),     cmocka_unit_test(test_bad_ones),
        cmocka_unit_test(test_long_ones),     cmocka_unit_test(test_many_fields),
        cmocka_unit_test(test_large_cookies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
