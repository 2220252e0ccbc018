/* base/json: what is accepted, what is refused, and reading back what was written. */
#include "support/support.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

static avo_status parse(arena *arena, const char *text, json_value *root, avo_error *error) {
    return json_parse(arena, text_from(text), root, error);
}

static void accepts_values(void **state) {
    (void)state;
    arena arena;
    avo_error error = {0};
    json_value root;
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok_error(parse(&arena, " {\"a\": [1, -2.5, true, null, \"x\\u00e9\\ud83d\\ude00\\n\"]} ",
                          &root, &error),
                    &error);
    const json_value *a = json_find(&root, "a");
    assert_int_equal(a->array.count, 5);
    assert_int_equal(json_item(a, 0)->integer, 1);
    assert_true(json_item(a, 1)->number == -2.5);
    assert_true(text_is(json_item(a, 4)->string, "xé😀\n"));
    assert_null(json_item(a, 5));
    assert_null(json_find(&root, "b"));
    arena_free(&arena);
}

static void refuses_bad_text(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",      "{",           "[1,]",     "{\"a\":1,}",        "{\"a\" 1}", "01",    "1.",
        "1e",    "-",           "tru",      "\"\\x\"",           "\"\n\"",    "\"abc", "[1] 2",
        "{1:2}", "\"\\ud800\"", "\"\xff\"", "{\"a\":1,\"a\":2}", "1e999",     "nul",   "\"\\u12\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        arena arena;
        avo_error error = {0};
        json_value root;
        arena_init(&arena, NULL, SIZE_MAX);
        assert_refused(parse(&arena, bad[i], &root, &error), AVO_ERROR_FORMAT, &error, "JSON line");
        arena_free(&arena);
    }
}

/* Strings are looked at in words: what is special must be seen in each of a word's places. */
static void sees_every_byte_of_a_string(void **state) {
    (void)state;
    for (size_t length = 1; length < 20; length++) {
        for (size_t at = 0; at < length; at++) {
            for (unsigned byte = 1; byte < 256; byte++) {
                char text[32] = "\"";
                memset(text + 1, '~', length);
                text[1 + at] = (char)byte;
                text[1 + length] = '"';
                arena arena;
                json_value root;
                arena_init(&arena, NULL, SIZE_MAX);
                avo_status status = json_parse(&arena, (text_view){text, length + 2}, &root, NULL);
                bool good = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
                assert_int_equal(status, good ? AVO_OK : AVO_ERROR_FORMAT);
                if (good)
                    assert_int_equal(root.string.size, length);
                if (byte == '\\' && at + 1 < length) {
                    text[2 + at] = 'n';
                    assert_ok(json_parse(&arena, (text_view){text, length + 2}, &root, NULL));
                    assert_int_equal(root.string.size, length - 1);
                    assert_int_equal(root.string.data[at], '\n');
                }
                arena_free(&arena);
            }
        }
    }
}

static void limits_depth(void **state) {
    (void)state;
    char deep[1000];
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    arena arena;
    avo_error error = {0};
    json_value root;
    arena_init(&arena, NULL, SIZE_MAX);
    assert_refused(parse(&arena, deep, &root, &error), AVO_ERROR_FORMAT, &error, "deep");
    arena_free(&arena);
}

static void finds_in_large_objects(void **state) {
    (void)state;
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    assert_ok(buffer_append_text(&text, "{"));
    for (int i = 0; i < 1000; i++)
        assert_ok(buffer_format(&text, "%s\"key%d\":%d", i > 0 ? "," : "", i, i));
    assert_ok(buffer_append_text(&text, "}"));
    arena arena;
    avo_error error = {0};
    json_value root;
    arena_init(&arena, NULL, SIZE_MAX);
    assert_ok_error(json_parse(&arena, buffer_text(&text), &root, &error), &error);
    for (int i = 0; i < 1000; i++) {
        char key[20];
        snprintf(key, sizeof(key), "key%d", i);
        assert_int_equal(json_find(&root, key)->integer, i);
    }
    assert_null(json_find(&root, "key1000"));
    buffer again;
    buffer_init(&again, NULL, SIZE_MAX);
    assert_ok(json_write_value(&again, &root));
    assert_int_equal(again.size, text.size);
    assert_memory_equal(again.data, text.data, text.size);
    buffer_free(&again);
    buffer_free(&text);
    arena_free(&arena);
}

static void survives_every_allocation_failure(void **state) {
    (void)state;
    static const char text[] = "{\"a\":[1,2,3,4,5,6,7,8,9,10,\"q\\n\"],\"b\":{\"c\":{}},\"d\":1,"
                               "\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1}";
    for (size_t fail_at = 1; fail_at < 4; fail_at++) {
        test_allocator counter;
        test_allocator_init(&counter);
        counter.fail_at = fail_at;
        arena arena;
        avo_error error = {0};
        json_value root;
        arena_init(&arena, &counter.allocator, SIZE_MAX);
        avo_status status = parse(&arena, text, &root, &error);
        assert_true(status == AVO_OK || status == AVO_ERROR_MEMORY);
        arena_free(&arena);
        assert_int_equal(counter.live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_values),
        cmocka_unit_test(refuses_bad_text),
        cmocka_unit_test(sees_every_byte_of_a_string),
        cmocka_unit_test(limits_depth),
        cmocka_unit_test(finds_in_large_objects),
        cmocka_unit_test(survives_every_allocation_failure),
    };
    return cmocka_run_group_tests_name("base/json", tests, NULL, NULL);
}
