/* base/json_writer: commas, nesting, layouts, failures that stay, and faults that assert. */
#include "support/support.h"

#include "base/json_writer.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_text(buffer *out, const char *wanted) {
    assert_ok(buffer_terminate(out));
    assert_string_equal(out->data, wanted);
    buffer_free(out);
}

static void write_everything(json_writer *w) {
    json_object_begin(w);
    json_member_string(w, "name", "a \"b\"\n");
    json_member_string(w, "nothing", NULL);
    json_member_text(w, "text", (text_view){"x\0y", 3});
    json_member_u64(w, "most", UINT64_MAX);
    json_member_i64(w, "least", INT64_MIN);
    json_member_boolean(w, "yes", true);
    json_member_null(w, "none");
    json_member_object_begin(w, "empty");
    json_end(w);
    json_member_array_begin(w, "list");
    json_u64(w, 1);
    json_array_begin(w);
    json_end(w);
    json_object_begin(w);
    json_member_number(w, "third", 1.0 / 3.0);
    json_member_float(w, "tenth", 0.1f);
    json_end(w);
    json_boolean(w, false);
    json_end(w);
    json_member_raw(w, "raw", TEXT_LITERAL("{\"r\":0}"));
    json_key_text(w, TEXT_LITERAL("k\"y"));
    json_string(w, "é");
    json_end(w);
}

static const char everything[] =
    "{\"name\":\"a \\\"b\\\"\\n\",\"nothing\":null,\"text\":\"x\\u0000y\","
    "\"most\":18446744073709551615,\"least\":-9223372036854775808,\"yes\":true,\"none\":null,"
    "\"empty\":{},\"list\":[1,[],{\"third\":0.3333333333333333,\"tenth\":0.1},false],"
    "\"raw\":{\"r\":0},\"k\\\"y\":\"é\"}";

static void writes_members_and_items(void **state) {
    (void)state;
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    json_writer w = json_writer_of(&out);
    write_everything(&w);
    assert_ok(json_writer_status(&w));
    assert_text(&out, everything);
}

static void one_value_is_a_document(void **state) {
    (void)state;
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    json_writer w = json_writer_of(&out);
    json_string(&w, "alone");
    assert_ok(json_writer_status(&w));
    assert_text(&out, "\"alone\"");
}

static void lays_out_lines(void **state) {
    (void)state;
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    json_writer w = json_writer_indented(&out, 2);
    json_object_begin(&w);
    json_member_i64(&w, "format", 1);
    json_member_array_begin(&w, "none");
    json_end(&w);
    json_member_array_begin(&w, "files");
    for (unsigned i = 0; i < 2; i++) {
        json_object_begin(&w);
        json_member_string(&w, "path", "a");
        json_member_array_begin(&w, "bytes");
        json_u64(&w, i);
        json_u64(&w, 7);
        json_end(&w);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    assert_ok(json_writer_status(&w));
    assert_text(&out, "{\n"
                      "  \"format\": 1,\n"
                      "  \"none\": [],\n"
                      "  \"files\": [\n"
                      "    {\"path\": \"a\", \"bytes\": [0, 7]},\n"
                      "    {\"path\": \"a\", \"bytes\": [1, 7]}\n"
                      "  ]\n"
                      "}");
}

static void breaks_lines_where_asked(void **state) {
    (void)state;
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_line_break(&w, 1);
    json_member_null(&w, "a");
    json_member_array_begin(&w, "b");
    for (unsigned i = 0; i < 2; i++) {
        json_line_break(&w, 0);
        json_u64(&w, i);
    }
    json_line_break(&w, 0);
    json_end(&w);
    json_end(&w);
    assert_ok(json_writer_status(&w));
    assert_text(&out, "{\n \"a\":null,\"b\":[\n0,\n1\n]}");
}

static void writes_numbers_in_every_form(void **state) {
    (void)state;
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    json_writer w = json_writer_of(&out);
    json_array_begin(&w);
    json_fixed(&w, 1.0 / 3.0, 3);
    json_fixed(&w, 2.5, 0);
    json_significant(&w, 1234567.0, 6);
    json_significant(&w, 0.5, 6);
    json_float(&w, 1.0f / 3.0f);
    json_float(&w, 16777216.0f);
    json_float(&w, FLT_MIN);
    json_raw_format(&w, "%u.%03u", 12u, 7u);
    json_number(&w, NAN);
    json_float(&w, -INFINITY);
    json_fixed(&w, NAN, 3);
    json_significant(&w, INFINITY, 6);
    json_end(&w);
    assert_ok(json_writer_status(&w));
    assert_text(&out, "[0.333,2,1.23457e+06,0.5,0.33333334,16777216,1.1754944e-38,12.007,"
                      "null,null,null,null]");
    buffer_init(&out, NULL, SIZE_MAX);
    w = json_writer_of(&out);
    json_fixed(&w, -DBL_MAX, 17);
    assert_ok(json_writer_status(&w));
    assert_int_equal(out.size, 1 + 309 + 1 + 17);
    buffer_free(&out);
}

static void takes_what_is_json_already(void **state) {
    (void)state;
    arena arena;
    arena_init(&arena, NULL, SIZE_MAX);
    json_value tree;
    avo_error error = {0};
    assert_ok_error(json_parse(&arena, TEXT_LITERAL("{\"a\": [1, null]}"), &tree, &error), &error);
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_tree(&w, "tree", &tree);
    json_member_array_begin(&w, "items");
    json_raw_items(&w, TEXT_LITERAL(""));
    json_raw_items(&w, TEXT_LITERAL("1,2"));
    json_raw_items(&w, (text_view){NULL, 0});
    json_raw_items(&w, TEXT_LITERAL("3"));
    json_raw(&w, TEXT_LITERAL("4"));
    json_end(&w);
    json_raw_items(&w, TEXT_LITERAL("\"x\":1,\"y\":2"));
    json_end(&w);
    assert_ok(json_writer_status(&w));
    assert_text(&out, "{\"tree\":{\"a\":[1,null]},\"items\":[1,2,3,4],\"x\":1,\"y\":2}");
    arena_free(&arena);
}

/* The state is the writer's own: the buffer may be emptied between two calls. */
static void a_flushed_buffer_goes_on(void **state) {
    (void)state;
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    json_writer w = json_writer_of(&out);
    json_array_begin(&w);
    json_u64(&w, 1);
    out.size = 0;
    json_u64(&w, 2);
    json_end(&w);
    assert_ok(json_writer_status(&w));
    assert_text(&out, ",2]");
}

static void the_first_failure_stays(void **state) {
    (void)state;
    for (size_t limit = 0; limit < sizeof(everything); limit++) {
        buffer out;
        buffer_init(&out, NULL, limit);
        json_writer w = json_writer_of(&out);
        write_everything(&w);
        bool fits = limit >= sizeof(everything) - 1;
        assert_int_equal(json_writer_status(&w), fits ? AVO_OK : AVO_ERROR_LIMIT);
        assert_true(out.size <= limit);
        if (out.size > 0)
            assert_memory_equal(out.data, everything, out.size);
        buffer_free(&out);
    }
}

static void no_memory_is_a_failure(void **state) {
    (void)state;
    for (size_t failing = 1;; failing++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = failing;
        buffer out;
        buffer_init(&out, &allocator.allocator, SIZE_MAX);
        json_writer w = json_writer_of(&out);
        write_everything(&w);
        avo_status status = json_writer_status(&w);
        buffer_free(&out);
        assert_int_equal(allocator.live, 0);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_MEMORY);
    }
}

static void keeps_a_failure_of_the_caller(void **state) {
    (void)state;
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    json_writer w = json_writer_of(&out);
    json_array_begin(&w);
    json_writer_note(&w, AVO_OK);
    json_u64(&w, 1);
    json_writer_note(&w, AVO_ERROR_IO);
    json_writer_note(&w, AVO_ERROR_MEMORY);
    json_u64(&w, 2);
    json_end(&w);
    assert_int_equal(json_writer_status(&w), AVO_ERROR_IO);
    assert_text(&out, "[1");
}

/* ---- Programmer errors ---- */

static void no_key(json_writer *w) {
    json_object_begin(w);
    json_u64(w, 1);
}

static void raw_items_after_a_key(json_writer *w) {
    json_object_begin(w);
    json_key(w, "a");
    json_raw_items(w, TEXT_LITERAL("1"));
}

static void key_in_an_array(json_writer *w) {
    json_array_begin(w);
    json_key(w, "a");
}

static void key_twice(json_writer *w) {
    json_object_begin(w);
    json_key(w, "a");
    json_key(w, "b");
}

static void key_without_a_value(json_writer *w) {
    json_object_begin(w);
    json_key(w, "a");
    json_end(w);
}

static void line_break_after_a_key(json_writer *w) {
    json_object_begin(w);
    json_key(w, "a");
    json_line_break(w, 0);
}

static void end_too_many(json_writer *w) {
    json_array_begin(w);
    json_end(w);
    json_end(w);
}

static void second_document(json_writer *w) {
    json_null(w);
    json_null(w);
}

static void left_open(json_writer *w) {
    json_array_begin(w);
    (void)!json_writer_status(w);
}

static void empty_document(json_writer *w) {
    (void)!json_writer_status(w);
}

static void nest(json_writer *w, unsigned depth) {
    for (unsigned i = 0; i < depth; i++)
        json_array_begin(w);
}

static void too_deep(json_writer *w) {
    nest(w, JSON_WRITER_DEPTH_MAX + 1);
}

static void assert_aborts(void (*fault)(json_writer *w)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        buffer out;
        buffer_init(&out, NULL, SIZE_MAX);
        json_writer w = json_writer_of(&out);
        fault(&w);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void programmer_errors_assert(void **state) {
    (void)state;
    static void (*const faults[])(json_writer *) = {
        no_key,    raw_items_after_a_key, key_in_an_array,        key_twice,
        too_deep,  key_without_a_value,   end_too_many,           second_document,
        left_open, empty_document,        line_break_after_a_key,
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        assert_aborts(faults[i]);
    buffer out;
    buffer_init(&out, NULL, SIZE_MAX);
    json_writer w = json_writer_of(&out);
    nest(&w, JSON_WRITER_DEPTH_MAX);
    for (unsigned i = 0; i < JSON_WRITER_DEPTH_MAX; i++)
        json_end(&w);
    assert_ok(json_writer_status(&w));
    assert_int_equal(out.size, 2 * JSON_WRITER_DEPTH_MAX);
    buffer_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_members_and_items),
        cmocka_unit_test(one_value_is_a_document),
        cmocka_unit_test(lays_out_lines),
        cmocka_unit_test(breaks_lines_where_asked),
        cmocka_unit_test(writes_numbers_in_every_form),
        cmocka_unit_test(takes_what_is_json_already),
        cmocka_unit_test(a_flushed_buffer_goes_on),
        cmocka_unit_test(the_first_failure_stays),
        cmocka_unit_test(no_memory_is_a_failure),
        cmocka_unit_test(keeps_a_failure_of_the_caller),
        cmocka_unit_test(programmer_errors_assert),
    };
    return cmocka_run_group_tests_name("base/json_writer", tests, NULL, NULL);
}
