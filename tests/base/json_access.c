/* base/json and base/number: typed reads, what is written, and hosts with another locale. */
#include "support/support.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct document {
    arena arena;
    json_value root;
} document;

static void parse(document *document, const char *text) {
    avo_error error = {0};
    arena_init(&document->arena, NULL, SIZE_MAX);
    assert_ok_error(json_parse(&document->arena, text_from(text), &document->root, &error), &error);
}

static void reads_typed_members(void **state) {
    (void)state;
    document document;
    parse(&document, "\xEF\xBB\xBF{\"i\": -7, \"w\": 16.0, \"e\": 1e4, \"n\": 0.5, \"t\": true,\n"
                     " \"s\": \"text\", \"none\": null, \"half\": 1.5, \"big\": 1e300}");
    const json_value *root = &document.root;
    avo_error error = {0};
    int64_t integer = 99;
    assert_ok(json_get_integer(root, "absent", 0, 1, &integer, &error));
    assert_ok(json_get_integer(root, "none", 0, 1, &integer, &error));
    assert_ok(json_get_integer(NULL, "i", 0, 1, &integer, &error));
    assert_int_equal(integer, 99);
    assert_ok(json_get_integer(root, "i", -7, -7, &integer, &error));
    assert_int_equal(integer, -7);
    assert_ok(json_get_integer(root, "w", 0, 16, &integer, &error));
    assert_int_equal(integer, 16);
    assert_ok(json_get_integer(root, "e", 0, 10000, &integer, &error));
    assert_int_equal(integer, 10000);
    double number = 9;
    assert_ok(json_get_number(root, "absent", 0, 1, &number, &error));
    assert_true(number == 9);
    assert_ok(json_get_number(root, "n", 0.5, 0.5, &number, &error));
    assert_true(number == 0.5);
    assert_ok(json_get_number(root, "i", -10, 0, &number, &error));
    assert_true(number == -7);
    bool boolean = false;
    assert_ok(json_get_boolean(root, "absent", &boolean, &error));
    assert_false(boolean);
    assert_ok(json_get_boolean(root, "t", &boolean, &error));
    assert_true(boolean);
    text_view string = TEXT_LITERAL("as it was");
    assert_ok(json_get_string(root, "absent", &string, &error));
    assert_true(text_is(string, "as it was"));
    assert_ok(json_get_string(root, "s", &string, &error));
    assert_true(text_is(string, "text"));
    arena_free(&document.arena);
}

static void refuses_wrong_members(void **state) {
    (void)state;
    document document;
    parse(&document,
          "{\"i\": 5,\n\"s\": \"x\",\n\"half\": 1.5, \"big\": 1e300, \"a\": [], \"o\": {}}");
    const json_value *root = &document.root;
    avo_error error = {0};
    int64_t integer = 1;
    double number = 1;
    bool boolean = true;
    text_view string = TEXT_LITERAL("kept");
#define REFUSED(call, part) assert_refused(call, AVO_ERROR_FORMAT, &error, part)
    REFUSED(json_get_integer(root, "i", 6, 9, &integer, &error), "i (line 1) is 5, must be 6 to 9");
    REFUSED(json_get_integer(root, "i", 0, 4, &integer, &error), "must be 0 to 4");
    REFUSED(json_get_integer(root, "s", 0, 9, &integer, &error), "s (line 2): expected an integer");
    REFUSED(json_get_integer(root, "half", 0, 9, &integer, &error), "half (line 3)");
    REFUSED(json_get_integer(root, "big", 0, INT64_MAX, &integer, &error), "integer");
    REFUSED(json_get_number(root, "s", 0, 9, &number, &error), "found");
    REFUSED(json_get_number(root, "half", 2, 9, &number, &error), "is 1.5, must be 2 to 9");
    REFUSED(json_get_boolean(root, "i", &boolean, &error), "i (line 1)");
    REFUSED(json_get_string(root, "a", &string, &error), "a (line 3)");
    REFUSED(json_get_string(root, "o", &string, &error), "object");
#undef REFUSED
    assert_int_equal(integer, 1);
    assert_true(number == 1 && boolean && text_is(string, "kept"));
    assert_null(json_find(&document.root, ""));
    assert_null(json_item(&document.root, 0));
    assert_null(json_item(NULL, 0));
    assert_null(json_find(NULL, "i"));
    arena_free(&document.arena);
}

static void large_objects_refuse_duplicates(void **state) {
    (void)state;
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    assert_ok(buffer_append_text(&text, "{"));
    for (int i = 0; i < 500; i++)
        assert_ok(buffer_format(&text, "\"key%d\":%d,\n", i, i));
    assert_ok(buffer_append_text(&text, "\"key77\":1}"));
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    json_value root;
    avo_error error = {0};
    assert_refused(json_parse(&arena, buffer_text(&text), &root, &error), AVO_ERROR_FORMAT, &error,
                   "duplicate");
    arena_free(&arena);
    buffer_free(&text);
}

static void assert_written(double number, const char *wanted) {
    buffer out;
    buffer_init(&out, NULL, 100);
    assert_ok(json_write_number(&out, number));
    assert_ok(buffer_terminate(&out));
    assert_string_equal(out.data, wanted);
    buffer_free(&out);
}

static void writes_numbers_that_read_back(void **state) {
    (void)state;
    assert_written(0.5, "0.5");
    assert_written(-2, "-2");
    assert_written(0.0, "0");
    assert_written(-0.0, "-0.0"); /* "-0" would come back as the integer 0 */
    assert_written(0.1, "0.1");
    assert_written(1e300, "1e+300");
    assert_written(1.0 / 3.0, "0.3333333333333333");
    assert_written(NAN, "null");
    assert_written(-INFINITY, "null");
    static const double hard[] = {DBL_MAX, DBL_MIN, 5e-324, 0.1 + 0.2, 1e23, 2.5e-10, 123456789.25};
    for (size_t i = 0; i < sizeof(hard) / sizeof(hard[0]); i++) {
        buffer out;
        buffer_init(&out, NULL, 100);
        assert_ok(json_write_number(&out, hard[i]));
        assert_ok(buffer_terminate(&out));
        assert_true(number_from_text(out.data, NULL) == hard[i]);
        buffer_free(&out);
    }
}

static void writes_strings_and_trees(void **state) {
    (void)state;
    static const struct {
        const char *given;
        size_t size;
        const char *wanted;
    } cases[] = {
        {"plain", 5, "\"plain\""},
        {"\"\\/\b\f\n\r\t", 8, "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
        {"a\0b\x1f\x7f", 5, "\"a\\u0000b\\u001f\\u007f\""},
        {"é😀", 6, "\"é😀\""},
        {"x\xff\xc3", 3, "\"x\xef\xbf\xbd\xef\xbf\xbd\""},
        {"", 0, "\"\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buffer out;
        buffer_init(&out, NULL, 100);
        assert_ok(json_write_string(&out, (text_view){cases[i].given, cases[i].size}));
        assert_ok(buffer_terminate(&out));
        assert_string_equal(out.data, cases[i].wanted);
        buffer_free(&out);
    }
    static const char text[] =
        "{\"a\":[1,-2.5,true,false,null,\"é\\n\",[],{}],\"b\":{\"c\":1e+30}}";
    document document;
    parse(&document, text);
    for (size_t limit = 0; limit < sizeof(text); limit++) {
        buffer out;
        buffer_init(&out, NULL, limit);
        avo_status status = json_write_value(&out, &document.root);
        assert_int_equal(status, limit < sizeof(text) - 1 ? AVO_ERROR_LIMIT : AVO_OK);
        assert_true(out.size <= limit);
        buffer_free(&out);
    }
    arena_free(&document.arena);
}

/* A host that chose a locale with a decimal comma: numbers stay what they are. */
static void other_locales_change_nothing(void **state) {
    (void)state;
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8",  "fr_FR.UTF-8",
                                         "es_ES.UTF-8", "pt_BR.UTF-8", "ru_RU.UTF-8"};
    const char *chosen = NULL;
    for (size_t i = 0; chosen == NULL && i < sizeof(commas) / sizeof(commas[0]); i++)
        chosen = setlocale(LC_ALL, commas[i]);
    skip_without(chosen, "a locale with a decimal comma");
    char text[32];
    snprintf(text, sizeof(text), "%.1f", 0.5);
    assert_string_equal(text, "0,5"); /* so it is for everybody else */
    document document;
    parse(&document, "[0.5, 1.25e2]");
    assert_true(json_item(&document.root, 0)->number == 0.5);
    assert_true(json_item(&document.root, 1)->number == 125);
    arena_free(&document.arena);
    assert_written(0.5, "0.5");
    assert_written(0.1, "0.1");
    snprintf(text, sizeof(text), "%.1f", 0.5);
    assert_string_equal(text, "0,5"); /* and so it stays */
    setlocale(LC_ALL, "C");
}

static void numbers_stop_where_strtod_does(void **state) {
    (void)state;
    char *end;
    assert_true(number_from_text("12.5abc", &end) == 12.5);
    assert_string_equal(end, "abc");
    assert_true(number_from_text("abc", &end) == 0);
    assert_string_equal(end, "abc");
    char text[NUMBER_TEXT_MAX];
    assert_int_equal(number_to_text(text, sizeof(text), 'g', 17, -DBL_MIN), 24);
    assert_true(number_from_text(text, NULL) == -DBL_MIN);
    assert_int_equal(number_to_text(text, 3, 'g', 6, 0.125), 5); /* cut, terminated, true length */
    assert_string_equal(text, "0.");
}

static void keys_have_a_hash_of_their_own(void **state) {
    (void)state;
    assert_true(hash_key("abc", 3) == hash_key("abc", 3));
    assert_true(hash_key("abc", 3) == hash_key_seeded("abc", 3, hash_key_seed()));
    assert_true(hash_key("abc", 3) != hash_key("abd", 3));
    assert_true(hash_key("abc", 3) != hash_bytes("abc", 3)); /* fails once in 2^64 processes */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_typed_members),
        cmocka_unit_test(refuses_wrong_members),
        cmocka_unit_test(large_objects_refuse_duplicates),
        cmocka_unit_test(writes_numbers_that_read_back),
        cmocka_unit_test(writes_strings_and_trees),
        cmocka_unit_test(other_locales_change_nothing),
        cmocka_unit_test(numbers_stop_where_strtod_does),
        cmocka_unit_test(keys_have_a_hash_of_their_own),
    };
    return cmocka_run_group_tests_name("base/json_access", tests, NULL, NULL);
}
