/* load/: tables of a made-up result, and what is refused before a server is asked. The requests
 * themselves are tests/load/bench_http.py's. */
#include "support/support.h"

#include "load/load.h"

#include "base/json.h"

#include <string.h>

static load_table *made_up(void) {
    static load_table table;
    memset(&table, 0, sizeof(table));
    table.url = "http://\"x\"";
    table.count = 2;
    for (uint32_t i = 0; i < table.count; i++) {
        load_options *o = &table.item[i].options;
        load_result *r = &table.item[i].result;
        o->clients = 1 + i;
        o->prompt = 64;
        o->generate = 32;
        memcpy(r->model, "tiny", 5);
        r->requests = 10;
        r->finished = 8;
        r->refused = r->failed = 1;
        r->new_tokens = 256;
        r->seconds = 2.0;
        r->first.p50 = 0.25;
        memcpy(r->failure, "an \"error\"", 11);
    }
    return &table;
}

static double number_of(const json_value *object, const char *key) {
    double number = -1.0;
    assert_ok(json_get_number(object, key, 0, 1e9, &number, NULL));
    return number;
}

static void json_is_read_back(void **state) {
    (void)state;
    arena arena;
    buffer out;
    json_value root;
    avo_error error = {0};
    arena_init(&arena, NULL, SIZE_MAX);
    buffer_init(&out, NULL, SIZE_MAX);
    assert_ok(load_write_json(made_up(), &out));
    assert_ok_error(json_parse(&arena, buffer_text(&out), &root, &error), &error);
    assert_true(text_is(json_find(&root, "url")->string, "http://\"x\""));
    assert_true(text_is(json_find(&root, "model")->string, "tiny"));
    for (size_t i = 0; i < 2; i++) {
        const json_value *result = json_item(json_find(&root, "results"), i);
        assert_true(number_of(result, "clients") == (double)(1 + i));
        assert_true(number_of(result, "new_tokens_per_second") == 128.0);
        assert_true(number_of(result, "requests_per_second") == 4.0);
        assert_true(number_of(result, "first_token_p50") == 0.25);
        assert_true(text_is(json_find(result, "failure")->string, "an \"error\""));
    }
    buffer_free(&out);
    arena_free(&arena);
}

static size_t count_of(text_view text, char wanted) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += text.data[i] == wanted;
    return count;
}

static void tables_have_every_case(void **state) {
    (void)state;
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    assert_ok(load_write_csv(made_up(), &out));
    assert_int_equal(count_of(buffer_text(&out), '\n'), 3);
    assert_int_equal(count_of(buffer_text(&out), ','), 3 * 19);
    out.size = 0;
    assert_ok(load_write_markdown(made_up(), &out));
    assert_ok(buffer_terminate(&out));
    assert_non_null(strstr(out.data, "| 10 | 128.0 | 4.00 | 250 ms |"));
    assert_non_null(strstr(out.data, "1 failed, the first: an \"error\""));
    buffer_free(&out);
}

static void a_full_buffer_is_a_failure(void **state) {
    (void)state;
    avo_status (*const writers[])(const load_table *, buffer *) = {load_write_markdown,
                                                                   load_write_csv, load_write_json};
    for (size_t w = 0; w < sizeof(writers) / sizeof(writers[0]); w++)
        for (size_t limit = 0; limit < 100; limit++) {
            buffer out;
            buffer_init(&out, NULL, limit);
            assert_int_equal(writers[w](made_up(), &out), AVO_ERROR_LIMIT);
            buffer_free(&out);
        }
}

static void refused_before_a_server_is_asked(void **state) {
    (void)state;
    static char text[4096];
    memset(text, 'x', sizeof(text) - 1);
    avo_error error = {0};
    load_result result;
    load_options options = {.url = "ftp://x", .clients = 1, .requests = 1, .timeout_seconds = 1.0};
    assert_refused(load_run(&options, &result, &error), AVO_ERROR_ARGUMENT, &error,
                   "must begin with http:// or https://");
    options.url = text;
    assert_refused(load_run(&options, &result, &error), AVO_ERROR_LIMIT, &error, "too long");
    options.url = "http://127.0.0.1:1";
    options.key = text;
    assert_refused(load_run(&options, &result, &error), AVO_ERROR_LIMIT, &error,
                   "the key is too long");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_read_back),
        cmocka_unit_test(tables_have_every_case),
        cmocka_unit_test(a_full_buffer_is_a_failure),
        cmocka_unit_test(refused_before_a_server_is_asked),
    };
    return cmocka_run_group_tests_name("load/load", tests, NULL, NULL);
}
