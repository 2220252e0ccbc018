/* Compressed messages: there and back, in buffers with a limit, and everything that is refused. */
#include "support/support.h"

#include "server/api/grpc/gzip.h"

#include "base/random.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE = 100000 };

static bytes_view view(const buffer *bytes) {
    return (bytes_view){(const uint8_t *)bytes->data, bytes->size};
}

/* Compresses well where `noise` is 0, not at all where it is 1. */
static void fill(uint8_t *data, size_t size, bool noise) {
    for (size_t i = 0; i < size; i++)
        data[i] = noise ? (uint8_t)random_at(3, 1, i).words[0] : (uint8_t)(i / 1000);
}

static void messages_come_back(void **state) {
    (void)state;
    static uint8_t data[SIZE];
    static const size_t sizes[] = {0, 1, 1023, 16384, 16385, SIZE};
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t size = sizes[i / 2];
        buffer packed, plain;
        fill(data, size, i % 2 == 1);
        buffer_init(&packed, NULL, 2 * SIZE);
        buffer_init(&plain, NULL, size);
        assert_ok(gzip_deflate((bytes_view){data, size}, &packed));
        assert_ok(gzip_inflate(view(&packed), &plain));
        assert_int_equal(plain.size, size);
        assert_true(size == 0 || memcmp(plain.data, data, size) == 0);
        buffer_free(&packed);
        buffer_free(&plain);
    }
}

static void limits_hold(void **state) {
    (void)state;
    static uint8_t data[SIZE];
    buffer packed, plain, tight;
    fill(data, SIZE, false);
    buffer_init(&packed, NULL, SIZE);
    buffer_init(&plain, NULL, SIZE - 1);
    assert_ok(gzip_deflate((bytes_view){data, SIZE}, &packed));
    assert_int_equal(gzip_inflate(view(&packed), &plain), AVO_ERROR_LIMIT);
    assert_true(plain.size <= plain.limit);
    buffer_init(&tight, NULL, packed.size - 1);
    assert_int_equal(gzip_deflate((bytes_view){data, SIZE}, &tight), AVO_ERROR_LIMIT);
    buffer_free(&packed);
    buffer_free(&plain);
    buffer_free(&tight);
}

static void damage_is_refused(void **state) {
    (void)state;
    static uint8_t data[2000];
    buffer packed, plain;
    fill(data, sizeof(data), false);
    buffer_init(&packed, NULL, SIZE);
    buffer_init(&plain, NULL, SIZE);
    assert_ok(gzip_deflate((bytes_view){data, sizeof(data)}, &packed));
    for (size_t cut = 0; cut < packed.size; cut++) { /* at every byte */
        plain.size = 0;
        assert_int_equal(gzip_inflate((bytes_view){view(&packed).data, cut}, &plain),
                         AVO_ERROR_FORMAT);
    }
    plain.size = 0;
    packed.data[packed.size - 6] ^= 1; /* its sum */
    assert_int_equal(gzip_inflate(view(&packed), &plain), AVO_ERROR_FORMAT);
    packed.data[packed.size - 6] ^= 1;
    plain.size = 0;
    assert_ok(buffer_append(&packed, "x", 1)); /* behind its end */
    assert_int_equal(gzip_inflate(view(&packed), &plain), AVO_ERROR_FORMAT);
    plain.size = 0;
    assert_int_equal(gzip_inflate((bytes_view){data, sizeof(data)}, &plain), AVO_ERROR_FORMAT);
    buffer_free(&packed);
    buffer_free(&plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_back),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(damage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
