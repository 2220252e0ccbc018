/* base/value: trees that are read or copied once and shared. */
#include "support/support.h"

#include "base/value.h"

#include <string.h>

static void assert_written(const json_value *tree, const char *wanted) {
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    assert_ok(json_write_value(&out, tree));
    assert_ok(buffer_terminate(&out));
    assert_string_equal(out.data, wanted);
    buffer_free(&out);
}

static void text_becomes_a_value(void **state) {
    (void)state;
    char text[] = "{\"a\":[1,true,null,\"x\\ny\"],\"b\":{}}";
    avo_value *value;
    avo_error error = {0};
    assert_ok_error(avo_value_open(text, strlen(text), NULL, &value, &error), &error);
    memset(text, '!', sizeof(text)); /* it depends on nothing */
    assert_written(value_tree(value), "{\"a\":[1,true,null,\"x\\ny\"],\"b\":{}}");
    assert_int_equal(value_text_bytes(value), 1 + 3 + 1);
    assert_ptr_equal(avo_value_share(value), value);
    avo_value_close(value);
    assert_written(value_tree(value), "{\"a\":[1,true,null,\"x\\ny\"],\"b\":{}}");
    avo_value_close(value);
    avo_value_close(NULL);
    assert_null(avo_value_share(NULL));
    assert_refused(avo_value_open("{", 1, NULL, &value, &error), AVO_ERROR_FORMAT, &error,
                   "line 1");
    assert_null(value);
    assert_refused(avo_value_open("", 0, NULL, &value, &error), AVO_ERROR_FORMAT, &error, "line 1");
}

/* A copy is what writing and reading would give. */
static void copies_are_what_text_would_be(void **state) {
    (void)state;
    static const char *const texts[] = {"1.0",
                                        "-0.0",
                                        "100000.0",
                                        "1e6",
                                        "1e15",
                                        "123456789012345678",
                                        "1e300",
                                        "2.50",
                                        "9007199254740993.0",
                                        "9223372036854775808",
                                        "-12345.0",
                                        "[]",
                                        "{}",
                                        "\"\"",
                                        "\"\\u0000\"",
                                        "{\"k\":[{\"\":1.0},\"v\",false,null]}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        arena arena;
        json_value tree, again;
        avo_value *value;
        buffer written;
        arena_init(&arena, NULL, SIZE_MAX);
        buffer_init(&written, NULL, SIZE_MAX);
        assert_ok(json_parse(&arena, text_from(texts[i]), &tree, NULL));
        assert_ok(value_copy(&tree, NULL, SIZE_MAX, NULL, &value, NULL));
        assert_ok(json_write_value(&written, &tree));
        assert_ok(json_parse(&arena, buffer_text(&written), &again, NULL));
        if (value_tree(value)->kind != again.kind)
            fail_msg("%s: %s, expected %s", texts[i], json_kind_name(value_tree(value)->kind),
                     json_kind_name(again.kind));
        buffer expected;
        buffer_init(&expected, NULL, SIZE_MAX);
        assert_ok(json_write_value(&expected, &again));
        assert_ok(buffer_terminate(&expected));
        arena_free(&arena); /* it depends on nothing */
        assert_written(value_tree(value), expected.data);
        buffer_free(&expected);
        buffer_free(&written);
        avo_value_close(value);
    }
}

static void limits_hold(void **state) {
    (void)state;
    char text[4096];
    memset(text, 'x', sizeof(text));
    json_value tree = {.kind = JSON_STRING, .string = {text, sizeof(text)}};
    avo_value *value;
    avo_error error = {0};
    bool hit = false;
    assert_refused(value_copy(&tree, NULL, 1024, &hit, &value, &error), AVO_ERROR_MEMORY, &error,
                   "a value");
    assert_true(hit);
    assert_null(value);
    assert_ok(value_copy(&tree, NULL, 1 << 20, &hit, &value, &error));
    assert_false(hit);
    avo_value_close(value);
}

static void every_allocation_fails_once(void **state) {
    (void)state;
    static const char text[] = "{\"a\":[1,{\"b\":\"c\"}]}";
    for (size_t at = 1;; at++) {
        test_allocator counter;
        avo_value *read, *copied = NULL;
        test_allocator_init(&counter);
        counter.fail_at = at;
        avo_status status = avo_value_open(text, strlen(text), &counter.allocator, &read, NULL);
        if (status == AVO_OK)
            status =
                value_copy(value_tree(read), &counter.allocator, SIZE_MAX, NULL, &copied, NULL);
        avo_value_close(read);
        avo_value_close(copied);
        assert_int_equal(counter.live, 0);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_becomes_a_value), cmocka_unit_test(copies_are_what_text_would_be),
        cmocka_unit_test(limits_hold), cmocka_unit_test(every_allocation_fails_once)};
    return cmocka_run_group_tests_name("base/value", tests, NULL, NULL);
}
