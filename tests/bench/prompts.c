/* bench/prompts: the sets are whole, files of all forms are read, wrong ones are refused by name.
 */
#include "support/support.h"

#include "bench/prompts.h"

#include <string.h>

static void the_sets_are_whole(void **state) {
    (void)state;
    bench_prompts prompts;
    avo_error error = {0};
    assert_ok_error(bench_prompts_sets(BENCH_PROMPT_SETS, 0, &prompts, &error), &error);
    assert_int_equal(prompts.count, bench_set_count * BENCH_SET_SIZE);
    for (size_t i = 0; i < prompts.count; i++) {
        const bench_prompt *p = &prompts.item[i];
        assert_string_equal(p->category, bench_sets[i / BENCH_SET_SIZE].name);
        assert_true(strlen(p->text) > 20);
        assert_int_equal(p->schema != NULL, strcmp(p->category, "json") == 0);
        assert_int_equal(p->temperature >= 0, strcmp(p->category, "random") == 0);
        for (size_t other = 0; other < i; other++)
            assert_string_not_equal(p->text, prompts.item[other].text);
    }
    bench_prompts_free(&prompts);
    assert_ok_error(bench_prompts_sets("story,chat", 2, &prompts, &error), &error);
    assert_int_equal(prompts.count, 4);
    assert_string_equal(prompts.item[3].category, "chat");
    bench_prompts_free(&prompts);
}

static void random_words_are_the_same_each_time(void **state) {
    (void)state;
    bench_prompts a, b;
    avo_error error = {0};
    assert_ok_error(bench_prompts_sets("random", 0, &a, &error), &error);
    assert_ok_error(bench_prompts_sets("random", 0, &b, &error), &error);
    for (size_t i = 0; i < a.count; i++)
        assert_string_equal(a.item[i].text, b.item[i].text);
    bench_prompts_free(&a);
    bench_prompts_free(&b);
}

static void unknown_sets_are_refused(void **state) {
    (void)state;
    bench_prompts prompts;
    avo_error error = {0};
    assert_refused(bench_prompts_sets("chat,poems", 0, &prompts, &error), AVO_ERROR_ARGUMENT,
                   &error, "\"poems\" is not a prompt set; there are chat,");
    bench_prompts_free(&prompts);
    assert_refused(bench_prompts_sets("chat,", 0, &prompts, &error), AVO_ERROR_ARGUMENT, &error,
                   "\"\" is not a prompt set");
    bench_prompts_free(&prompts);
    assert_refused(bench_prompts_sets("chat,code,chat", 0, &prompts, &error), AVO_ERROR_ARGUMENT,
                   &error, "chat is named twice");
    bench_prompts_free(&prompts);
}

static const char forms[] =
    "Plain text, as it is.\r\n\n   \n"
    "{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"First\\n\\u00e9\", "
    "\"Second\"]}\n"
    "{\"prompt\": \"Asked\", \"category\": \"writing\"}\n"
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": "
    "\"U\"}]}";

static void files_of_all_forms_are_read(void **state) {
    (void)state;
    bench_prompts prompts;
    avo_error error = {0};
    assert_ok_error(bench_prompts_text(text_from(forms), "f", 0, &prompts, &error), &error);
    assert_int_equal(prompts.count, 4);
    static const char *const wanted[][2] = {{"prompts", "Plain text, as it is."},
                                            {"writing", "First\n\xc3\xa9"},
                                            {"writing", "Asked"},
                                            {"prompts", "U"}};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(prompts.item[i].category, wanted[i][0]);
        assert_string_equal(prompts.item[i].text, wanted[i][1]);
        assert_true(prompts.item[i].temperature < 0);
    }
    bench_prompts_free(&prompts);
    assert_ok_error(bench_prompts_text(text_from(forms), "f", 1, &prompts, &error), &error);
    assert_int_equal(prompts.count, 2);
    bench_prompts_free(&prompts);
}

static void wrong_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {{"", "f: no prompts"},
                 {"\n \n", "f: no prompts"},
                 {"a\n{\"turns\": 3}", "f, line 2: no prompt; give \"prompt\""},
                 {"{\"turns\": []}", "no prompt"},
                 {"{\"prompt\": \"\"}", "no prompt"},
                 {"{\"prompt\": 3}", "no prompt"},
                 {"{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}]}", "no prompt"},
                 {"{\"prompt\": \"a\\u0000b\"}", "zero byte"},
                 {"{\"prompt\": \"x\", \"category\": \"a,b\"}", "category must have"},
                 {"{\"prompt\": \"x\", \"category\": \"\"}", "category must have"},
                 {"{\"prompt\": \"x\", \"category\": 3}", "category"},
                 {"{\"prompt\": \"x\"", "f, line 1"}};
    bench_prompts prompts;
    avo_error error = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        avo_status status = bench_prompts_text(text_from(cases[i].text), "f", 0, &prompts, &error);
        assert_int_not_equal(status, AVO_OK);
        assert_non_null(strstr(error.text, cases[i].says));
        bench_prompts_free(&prompts);
    }
    assert_refused(bench_prompts_file("/nonexistent/prompts", 0, &prompts, &error),
                   AVO_ERROR_NOT_FOUND, &error, "/nonexistent/prompts");
    bench_prompts_free(&prompts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sets_are_whole),
        cmocka_unit_test(random_words_are_the_same_each_time),
        cmocka_unit_test(unknown_sets_are_refused),
        cmocka_unit_test(files_of_all_forms_are_read),
        cmocka_unit_test(wrong_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
