/* base/allocator, base/arena, base/buffer: alignment, limits, and every allocation that fails. */
#include "support/support.h"

#include "base/arena.h"
#include "base/buffer.h"

#include <string.h>

static void allocator_aligns_and_refuses(void **state) {
    (void)state;
    for (size_t size = 1; size < 5000; size = size * 3 + 1) {
        void *memory = allocator_take(NULL, size);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % ALLOCATOR_ALIGNMENT, 0);
        memset(memory, 1, size);
        allocator_give(NULL, memory, size);
    }
    assert_null(allocator_take(NULL, 0));
    assert_null(allocator_take(NULL, SIZE_MAX));
    assert_null(allocator_take_array(NULL, SIZE_MAX / 2, 3));
    assert_null(allocator_take_array(NULL, 0, 3));
    allocator_give(NULL, NULL, 0);
    uint8_t *zeros = allocator_take_array(NULL, 100, 3);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(zeros[i], 0);
    allocator_give(NULL, zeros, 300);
}

static void allocator_of_the_caller_is_used(void **state) {
    (void)state;
    test_allocator counter;
    test_allocator_init(&counter);
    void *a = allocator_take(&counter.allocator, 100);
    void *b = allocator_take_array(&counter.allocator, 10, 10);
    assert_int_equal(counter.live, 2);
    assert_int_equal(counter.live_bytes, 200);
    allocator_give(&counter.allocator, NULL, 5);
    allocator_give(&counter.allocator, a, 100);
    allocator_give(&counter.allocator, b, 100);
    assert_int_equal(counter.live, 0);
    assert_int_equal(counter.live_bytes, 0);
}

static void arena_gives_clean_separate_memory(void **state) {
    (void)state;
    test_allocator counter;
    test_allocator_init(&counter);
    arena arena;
    arena_init(&arena, &counter.allocator, SIZE_MAX);
    uint8_t *taken[400];
    size_t sizes[400];
    for (size_t i = 0; i < 400; i++) {
        sizes[i] = i * i % 5003 + 1;
        taken[i] = arena_take(&arena, sizes[i]);
        assert_non_null(taken[i]);
        assert_int_equal((uintptr_t)taken[i] % (sizes[i] >= 1024 ? 64 : 16), 0);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(taken[i][j], 0);
        memset(taken[i], (int)(i & 0xFF), sizes[i]);
    }
    for (size_t i = 0; i < 400; i++) /* nobody wrote into anybody else's */
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(taken[i][j], i & 0xFF);
    assert_int_equal(arena.used_bytes, counter.live_bytes);
    assert_null(arena_take(&arena, 0));
    assert_null(arena_take(&arena, SIZE_MAX));
    assert_null(arena_take(&arena, SIZE_MAX - 64));
    assert_null(arena_take_array(&arena, SIZE_MAX / 2, 4));
    arena_free(&arena);
    assert_int_equal(counter.live, 0);
    assert_int_equal(arena.used_bytes, 0);
    assert_non_null(arena_take(&arena, 8)); /* usable again */
    arena_free(&arena);
    arena_free(&arena);
    arena_reset(&arena); /* of nothing */
    for (size_t round = 0; round < 3; round++) {
        size_t live = counter.live;
        uint8_t *again = arena_take(&arena, 3000);
        for (size_t i = 0; i < 3000; i++)
            assert_int_equal(again[i], 0);
        memset(again, 7, 3000);
        assert_true(round == 0 || counter.live == live); /* the block that was kept */
        for (size_t i = 0; i < 100; i++)
            assert_non_null(arena_take(&arena, 10000));
        arena_reset(&arena);
        assert_int_equal(counter.live, 1);
        assert_int_equal(arena.used_bytes, counter.live_bytes);
    }
    arena_free(&arena);
    assert_int_equal(counter.live, 0);
    assert_int_equal(counter.live, 0);
}

/* Of AddressSanitizer's run time, where it is linked. */
extern int __asan_address_is_poisoned(const volatile void *address) __attribute__((weak));

static void sanitizer_sees_a_byte_too_far(void **state) {
    (void)state;
    if (__asan_address_is_poisoned == NULL)
        skip();
    for (size_t size = 1; size < 3000; size = size * 3 + 1) {
        test_allocator counter;
        test_allocator_init(&counter);
        char *direct = allocator_take(NULL, size);
        char *counted = allocator_take(&counter.allocator, size);
        assert_true(__asan_address_is_poisoned(direct + size));
        assert_true(__asan_address_is_poisoned(counted + size));
        allocator_give(NULL, direct, size);
        allocator_give(&counter.allocator, counted, size);
        arena arena;
        arena_init(&arena, &counter.allocator, SIZE_MAX);
        char *items[2] = {arena_take(&arena, size), arena_take(&arena, size)};
        for (size_t i = 0; i < 2; i++) {
            assert_false(__asan_address_is_poisoned(items[i]));
            assert_false(__asan_address_is_poisoned(items[i] + size - 1));
            assert_true(__asan_address_is_poisoned(items[i] + size));
            assert_true(__asan_address_is_poisoned(items[i] - 1));
        }
        arena_free(&arena);
    }
}

static void arena_copies_text(void **state) {
    (void)state;
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    assert_string_equal(arena_copy_text(&arena, "abcdef", 3), "abc");
    assert_string_equal(arena_copy_text(&arena, NULL, 0), "");
    assert_null(arena_copy_text(&arena, "x", SIZE_MAX));
    arena_free(&arena);
}

static void arena_keeps_its_limit(void **state) {
    (void)state;
    static const size_t limits[] = {0, 100, 1000, 20000, 100000, 1000000};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        test_allocator counter;
        test_allocator_init(&counter);
        arena arena;
        arena_init(&arena, &counter.allocator, limits[i]);
        size_t given = 0;
        while (given <= limits[i] && arena_take(&arena, 100) != NULL)
            given += 100;
        assert_true(given <= limits[i]);
        assert_true(counter.peak_bytes <= limits[i]);
        if (limits[i] >= 1000) /* most of what was allowed was of use */
            assert_true(given >= limits[i] / 2);
        arena_free(&arena);
        assert_int_equal(counter.live, 0);
    }
}

static void arena_survives_failed_allocations(void **state) {
    (void)state;
    for (size_t fail_at = 1; fail_at < 8; fail_at++) {
        test_allocator counter;
        test_allocator_init(&counter);
        counter.fail_at = fail_at;
        arena arena;
        arena_init(&arena, &counter.allocator, SIZE_MAX);
        size_t failures = 0;
        for (size_t i = 0; i < 100; i++)
            failures += arena_take(&arena, 20000) == NULL;
        assert_int_equal(failures, 1); /* the one, and it goes on afterwards */
        arena_free(&arena);
        assert_int_equal(counter.live, 0);
    }
}

static void buffer_grows_and_formats(void **state) {
    (void)state;
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    assert_int_equal(buffer_text(&text).size, 0);
    assert_non_null(buffer_text(&text).data);
    for (int i = 0; i < 1000; i++)
        assert_ok(buffer_format(&text, "%d,", i));
    assert_ok(buffer_append(&text, NULL, 0));
    assert_ok(buffer_append_text(&text, "end"));
    assert_ok(buffer_terminate(&text));
    assert_int_equal(strlen(text.data), text.size);
    assert_int_equal(text.size, 3890 + 3);
    assert_string_equal(text.data + text.size - 7, "999,end");
    buffer_free(&text);
    buffer_free(&text);
}

static void buffer_keeps_its_limit(void **state) {
    (void)state;
    buffer text;
    buffer_init(&text, NULL, 10);
    assert_ok(buffer_append(&text, "12345", 5));
    assert_int_equal(buffer_append(&text, "123456", 6), AVO_ERROR_LIMIT);
    assert_int_equal(buffer_format(&text, "%s", "123456"), AVO_ERROR_LIMIT);
    assert_int_equal(buffer_append(&text, "x", SIZE_MAX), AVO_ERROR_LIMIT);
    assert_int_equal(buffer_reserve(&text, SIZE_MAX - 2), AVO_ERROR_LIMIT);
    assert_int_equal(text.size, 5); /* a refused append leaves the text as it was */
    assert_ok(buffer_format(&text, "%s", "67890"));
    assert_ok(buffer_terminate(&text)); /* the terminator is not counted */
    assert_string_equal(text.data, "1234567890");
    assert_int_equal(buffer_append(&text, "x", 1), AVO_ERROR_LIMIT);
    buffer_free(&text);
}

static void buffer_survives_failed_allocations(void **state) {
    (void)state;
    for (size_t fail_at = 1; fail_at < 6; fail_at++) {
        test_allocator counter;
        test_allocator_init(&counter);
        counter.fail_at = fail_at;
        buffer text;
        buffer_init(&text, &counter.allocator, SIZE_MAX);
        size_t failures = 0;
        for (size_t i = 0; i < 500; i++) {
            avo_status status = buffer_append(&text, "0123456789", 10);
            assert_true(status == AVO_OK || status == AVO_ERROR_MEMORY);
            failures += status != AVO_OK;
        }
        assert_int_equal(failures, 1);
        assert_int_equal(text.size, 4990);
        for (size_t i = 0; i < text.size; i++)
            assert_int_equal(text.data[i], '0' + (int)(i % 10));
        buffer_free(&text);
        assert_int_equal(counter.live, 0);
        assert_int_equal(counter.live_bytes, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocator_aligns_and_refuses),
        cmocka_unit_test(allocator_of_the_caller_is_used),
        cmocka_unit_test(arena_gives_clean_separate_memory),
        cmocka_unit_test(sanitizer_sees_a_byte_too_far),
        cmocka_unit_test(arena_copies_text),
        cmocka_unit_test(arena_keeps_its_limit),
        cmocka_unit_test(arena_survives_failed_allocations),
        cmocka_unit_test(buffer_grows_and_formats),
        cmocka_unit_test(buffer_keeps_its_limit),
        cmocka_unit_test(buffer_survives_failed_allocations),
    };
    return cmocka_run_group_tests_name("base/memory", tests, NULL, NULL);
}
