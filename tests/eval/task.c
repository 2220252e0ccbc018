/* Tasks: every key that is refused, templates, filters, comparing, shots as Python draws them, and
 * that memory that runs out at any point is an error and nothing more. */
#include "support/support.h"

#include "base/file.h"
#include "eval/items.h"
#include "eval/python_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

#define GENERATE "\"name\":\"t\",\"kind\":\"generate\",\"prompt\":\"{{q}}\",\"target\":\"{{a}}\""
#define CHOICE                                                                                     \
    "\"name\":\"t\",\"kind\":\"choice\",\"prompt\":\"{{q}}\",\"target\":\"{{g}}\","                \
    "\"choices\":[\"a\",\"b\"]"

static void refuses(const char *json, avo_status status, const char *part) {
    eval_task *task = NULL;
    avo_error error = {0};
    avo_status got = task_open(text_from(json), "t.json", NULL, &task, &error);
    if (got != status || strstr(error.text, part) == NULL)
        fail_msg("%.80s: expected \"%s\", got %s: %s", json, part, avo_status_text(got),
                 error.text);
}

static const struct {
    const char *json, *part;
} wrong_tasks[] = {
    {"", "t.json"},
    {"[]", "t.json:1: a task must be an object, found"},
    {"{}", "the \"name\" of a task must have 1 to 64 characters"},
    {"{\"name\":\"a b\"}", "\"name\" may have letters, digits"},
    {"{\"name\":1}", "t.json: name (line 1)"},
    {"{\"name\":\"t\"}", "\"kind\" must be \"choice\", \"continuation\" or \"generate\""},
    {"{\"name\":\"t\",\"kind\":\"magic\"}", "\"kind\" must be"},
    {"{\"name\":\"t\",\"kind\":\"choice\",\n\"frob\":1}", "t.json:2: unknown key \"frob\""},
    {"{\"name\":\"t\",\"kind\":\"choice\"}", "\"prompt\" is missing"},
    {"{\"name\":\"t\",\"kind\":\"choice\",\"prompt\":1}", "\"prompt\" must be a string"},
    {"{\"name\":\"t\",\"kind\":\"choice\",\"prompt\":\"{{\"}", "\"prompt\": "},
    {"{\"name\":\"t\",\"kind\":\"choice\",\"prompt\":\"p\"}", "\"choices\" is missing"},
    {"{\"name\":\"t\",\"kind\":\"choice\",\"prompt\":\"p\",\"choices\":[\"a\"]}",
     "\"choices\" has 1 items, must have 2 to 64"},
    {"{\"name\":\"t\",\"kind\":\"choice\",\"prompt\":\"p\",\"choices\":[\"a\",2]}",
     "\"choices\" must hold strings"},
    {"{\"name\":\"t\",\"kind\":\"choice\",\"prompt\":\"p\",\"choices\":{}}",
     "\"choices\" must be an array"},
    {"{\"name\":\"t\",\"kind\":\"continuation\",\"prompt\":\"p\"}", "\"target\" is missing"},
    {"{" CHOICE ",\"stop\":[\"a\"]}", "\"stop\" belongs to tasks of kind \"generate\""},
    {"{" CHOICE ",\"max_tokens\":3}", "\"max_tokens\" belongs to tasks of kind"},
    {"{" CHOICE ",\"filters\":[]}", "\"filters\" belongs to tasks of kind"},
    {"{" GENERATE ",\"choices\":[\"a\",\"b\"]}", "\"choices\" belongs to tasks of kind"},
    {"{" GENERATE ",\"stop\":[\"\"]}", "\"stop\" must hold strings that are not empty"},
    {"{" GENERATE ",\"stop\":\"a\"}", "\"stop\" must be an array"},
    {"{" GENERATE ",\"max_tokens\":0}", "max_tokens (line 1) is 0, must be 1 to 65536"},
    {"{" GENERATE ",\"version\":\"x\"}", "t.json: version"},
    {"{" GENERATE ",\"metrics\":[\"acc\"]}", "may be \"exact_match\" and \"pass@1\""},
    {"{" GENERATE ",\"metrics\":[]}", "\"metrics\" has 0 items"},
    {"{" CHOICE ",\"metrics\":[\"acc\",\"acc\"]}", "names a metric twice"},
    {"{" GENERATE ",\"metrics\":[\"pass@1\"]}", "\"program\" is missing"},
    {"{" GENERATE ",\"program\":\"p\"}", "\"program\" needs the metric pass@1"},
    {"{" GENERATE ",\"filters\":[{\"steps\":[]}]}", "the \"name\" of a filter"},
    {"{" GENERATE ",\"filters\":[{\"name\":\"f\"},{\"name\":\"f\"}]}", "is that of another filter"},
    {"{" GENERATE ",\"filters\":[{\"name\":\"f\",\"step\":[]}]}", "unknown key \"step\""},
    {"{" GENERATE ",\"filters\":[{\"name\":\"f\",\"steps\":[{}]}]}",
     "needs one of \"regex\", \"before\" and \"strip\""},
    {"{" GENERATE ",\"filters\":[{\"name\":\"f\",\"steps\":[{\"regex\":\"a\","
     "\"strip\":true}]}]}",
     "needs one of"},
    {"{" GENERATE ",\"filters\":[{\"name\":\"f\",\"steps\":[{\"regex\":\"(\"}]}]}",
     "the pattern \"(\" is wrong"},
    {"{" GENERATE ",\"filters\":[{\"name\":\"f\",\"steps\":[{\"regex\":\"a\","
     "\"match\":\"second\"}]}]}",
     "\"match\" must be \"first\" or \"last\""},
    {"{" GENERATE ",\"ignore\":[3]}", "\"ignore\" must hold strings"},
    {"{" GENERATE ",\"ignore\":[\"[\"]}", "the pattern \"[\" is wrong"},
    {"{" GENERATE ",\"ignore_case\":1}", "ignore_case"},
    {"{" GENERATE ",\"shots\":[]}", "\"shots\" must be an object"},
    {"{" GENERATE ",\"shots\":{}}", "needs one of \"from\" and \"examples\""},
    {"{" GENERATE ",\"shots\":{\"from\":\"a\",\"examples\":[{}]}}", "needs one of"},
    {"{" GENERATE ",\"shots\":{\"from\":\"a\"}}", "\"count\" must be the number of shots"},
    {"{" GENERATE ",\"shots\":{\"examples\":[{}],\"count\":2}}", "\"count\" must be"},
    {"{" GENERATE ",\"shots\":{\"from\":\"a\",\"count\":65}}", "must be 1 to 64"},
    {"{" GENERATE ",\"shots\":{\"from\":\"a\",\"count\":1,\"draw\":\"last\"}}",
     "\"draw\" must be \"random\" or \"first\""},
    {"{" GENERATE ",\"shots\":{\"from\":\"a\",\"count\":1,\"seed\":-1}}", "seed"},
    {"{\"name\":\"t\",\"kind\":\"generate\",\"prompt\":\"p\",\"metrics\":[\"pass@1\"],"
     "\"program\":\"x\",\"shots\":{\"from\":\"a\",\"count\":1}}",
     "\"shots\" need a \"target\""},
};

static void wrong_tasks_are_refused(void **state) {
    (void)state;

    for (size_t i = 0; i < sizeof(wrong_tasks) / sizeof(wrong_tasks[0]); i++)
        refuses(wrong_tasks[i].json, AVO_ERROR_FORMAT, wrong_tasks[i].part);
    char *large = malloc(TASK_BYTES_MAX + 2);
    assert_non_null(large);
    memset(large, ' ', TASK_BYTES_MAX + 1);
    large[TASK_BYTES_MAX + 1] = '\0';
    refuses(large, AVO_ERROR_LIMIT, "a task must have at most");
    free(large);
}

static eval_task *open_good(const char *json) {
    eval_task *task = NULL;
    avo_error error = {0};
    assert_ok_error(task_open(text_from(json), "t.json", NULL, &task, &error), &error);
    return task;
}

/* The tasks of the tree. */
static eval_task *open_shipped(const char *name) {
    char path[512];
    file_map map;
    eval_task *task = NULL;
    avo_error error = {0};
    snprintf(path, sizeof(path), "%s/configs/tasks/%s.json", AVO_SOURCE_FOLDER, name);
    assert_ok_error(file_map_open(path, &map, &error), &error);
    assert_ok_error(task_open((text_view){(const char *)map.bytes.data, map.bytes.size}, path, NULL,
                              &task, &error),
                    &error);
    file_map_close(&map);
    return task;
}

static void defaults(void **state) {
    (void)state;
    eval_task *task = open_good("{" GENERATE "}");
    char name[TASK_SCORE_NAME_MAX];
    assert_int_equal(task->max_tokens, 256);
    assert_true(text_is(task->delimiter, " "));
    assert_int_equal(task_scores(task), 1);
    assert_string_equal(task_score_name(task, 0, "_stderr", name), "exact_match_stderr,none");
    task_close(task);
    task = open_good("{" CHOICE "}");
    assert_int_equal(task_scores(task), 2);
    assert_string_equal(task_score_name(task, 1, "", name), "acc_norm,none");
    assert_int_equal(task_headline(task), 0);
    task_close(task);
    task = open_shipped("gsm8k");
    assert_int_equal(task_scores(task), 2);
    assert_int_equal(task_headline(task), 1);
    assert_string_equal(task_score_name(task, 1, "", name), "exact_match,flexible-extract");
    task_close(task);
}

/* ---- Filters: what lm-eval's RegexFilter and exact_match give ---- */

static void filters_as_lm_eval(void **state) {
    (void)state;
    static const struct {
        const char *answer, *target, *strict, *flexible;
        bool strict_right, flexible_right;
    } cases[] = {
        {"so 6.\n#### 18", "x\n#### 18", "18", "18", true, true},
        {"The total is $1,234.", "#### 1234", "[invalid]", "$1,234.", false, true},
        {"#### 7 and later 8", "#### 7", "7", "8", true, false},
        {"none at all", "#### 5", "[invalid]", "[invalid]", false, false},
        {"", "#### 5", "[invalid]", "[invalid]", false, false},
        {"#### -3.", "#### -3", "-3.", "-3.", true, true},
        {"3 . .. 4", "#### 4", "[invalid]", "4", false, true},
        {"5 ..", "#### 5", "[invalid]", "..", false, false},
    };
    eval_task *task = open_shipped("gsm8k");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (uint32_t filter = 0; filter < 2; filter++) {
            text_view result;
            bool same;
            avo_error error = {0};
            assert_ok_error(task_filter_apply(&task->filter[filter], text_from(cases[i].answer),
                                              &result, &error),
                            &error);
            const char *wanted = filter == 0 ? cases[i].strict : cases[i].flexible;
            if (!text_is(result, wanted))
                fail_msg("case %zu: \"%.*s\", expected \"%s\"", i, TEXT_ARGUMENT(result), wanted);
            assert_ok_error(
                task_exact_match(task, result, text_from(cases[i].target), &same, &error), &error);
            assert_int_equal(same, filter == 0 ? cases[i].strict_right : cases[i].flexible_right);
        }
    task_close(task);
}

static void other_filters(void **state) {
    (void)state;
    eval_task *task =
        open_good("{" GENERATE ",\"ignore_case\":true,\"filters\":[{\"name\":\"f\",\"steps\":["
                  "{\"before\":\"```\"},{\"strip\":true},{\"regex\":\"(x)|(\\\\w+)$\","
                  "\"fallback\":\"-\"}]}]}");
    static const char *const cases[][2] = {{"a b \n```c", "b"},
                                           {"a", "a"},
                                           {"```", "-"},
                                           {" \xc2\xa0 \xe2\x80\x89", "-"},
                                           {"ax!", "x"}};
    avo_error error = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        text_view result;
        assert_ok_error(
            task_filter_apply(&task->filter[0], text_from(cases[i][0]), &result, &error), &error);
        if (!text_is(result, cases[i][1]))
            fail_msg("case %zu: \"%.*s\"", i, TEXT_ARGUMENT(result));
    }
    bool same;
    assert_ok(task_exact_match(task, TEXT_LITERAL("\xc3\x84 B"), TEXT_LITERAL("\xc3\xa4 b"), &same,
                               &error));
    assert_true(same);
    /* Bytes that are no text are compared as they are. */
    assert_ok(task_exact_match(task, TEXT_LITERAL("\xff"), TEXT_LITERAL("\xfe"), &same, &error));
    assert_false(same);
    task_close(task);
}

/* A pattern of a user may need exponential time: it ends with an error. */
static void backtracking_is_limited(void **state) {
    (void)state;
    eval_task *task = open_good("{" GENERATE ",\"filters\":[{\"name\":\"f\",\"steps\":["
                                "{\"regex\":\"(a|aa)+$\"}]}]}");
    char answer[4096];
    memset(answer, 'a', sizeof(answer));
    answer[sizeof(answer) - 1] = '!';
    text_view result;
    avo_error error = {0};
    assert_refused(
        task_filter_apply(&task->filter[0], (text_view){answer, sizeof(answer)}, &result, &error),
        AVO_ERROR_LIMIT, &error, "needs too many steps");
    task_close(task);
}

/* Each step that the matcher can take back needs memory, more with many groups: the memory ends
 * long before the steps do. */
static void memory_of_a_search_is_limited(void **state) {
    (void)state;
    enum { BYTES = 100000 };
    eval_task *task = open_good("{" GENERATE ",\"filters\":[{\"name\":\"f\",\"steps\":["
                                "{\"regex\":\"(?:(a)|()()()()()()()()()()()()()b)*$\"}]}]}");
    char *answer = malloc(BYTES);
    assert_non_null(answer);
    memset(answer, 'a', BYTES);
    text_view result;
    avo_error error = {0};
    assert_ok_error(task_filter_apply(&task->filter[0], (text_view){answer, 1000}, &result, &error),
                    &error);
    assert_refused(task_filter_apply(&task->filter[0], (text_view){answer, BYTES}, &result, &error),
                   AVO_ERROR_LIMIT, &error, "too much memory for an answer of 100000 bytes");
    free(answer);
    task_close(task);
}

/* ---- Shots ---- */

static void draws_as_python(void **state) {
    (void)state;
    /* random.Random(seed); r.sample(range(population), count), three times each. */
    static const struct {
        uint64_t seed;
        uint32_t population, count, drawn[3][5];
    } cases[] = {
#include "python_samples.h"
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        python_random random;
        python_random_seed(&random, cases[i].seed);
        for (int turn = 0; turn < 3; turn++) {
            uint32_t indices[5];
            python_random_sample(&random, cases[i].population, cases[i].count, indices);
            assert_memory_equal(indices, cases[i].drawn[turn], cases[i].count * sizeof(indices[0]));
        }
    }
}

/* ---- Documents ---- */

static void documents_are_objects(void **state) {
    (void)state;
    eval_documents documents;
    avo_error error = {0};
    const char text[] = "\n{\"q\": 1}\r\n \n{\"q\": 2}\n{\"q\": 3}";
    assert_ok_error(documents_open(text_from(text), "d.jsonl", 0, NULL, &documents, &error),
                    &error);
    assert_int_equal(documents.count, 3);
    documents_close(&documents);
    assert_ok(documents_open(text_from(text), "d.jsonl", 2, NULL, &documents, &error));
    assert_int_equal(documents.count, 2);
    assert_int_equal(documents.total, 3);
    documents_close(&documents);
    assert_refused(documents_open(text_from(" \n"), "d.jsonl", 0, NULL, &documents, &error),
                   AVO_ERROR_ARGUMENT, &error, "d.jsonl has no documents");
    assert_refused(documents_open(text_from("{}\n\n[]"), "d.jsonl", 0, NULL, &documents, &error),
                   AVO_ERROR_FORMAT, &error, "d.jsonl: the document in line 3 must be an object");
    assert_refused(documents_open(text_from("{}\n{"), "d.jsonl", 0, NULL, &documents, &error),
                   AVO_ERROR_FORMAT, &error, "d.jsonl: document in line 2");
}

/* ---- Memory ---- */

static void memory_that_runs_out(void **state) {
    (void)state;
    char path[512];
    file_map map;
    avo_error error = {0};
    snprintf(path, sizeof(path), "%s/configs/tasks/gsm8k_cot.json", AVO_SOURCE_FOLDER);
    assert_ok_error(file_map_open(path, &map, &error), &error);
    text_view text = {(const char *)map.bytes.data, map.bytes.size};
    avo_status status = AVO_ERROR_MEMORY;
    for (size_t fail = 1; status != AVO_OK; fail++) {
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = fail;
        eval_task *task = NULL;
        status = task_open(text, "t.json", &allocator.allocator, &task, &error);
        if (status == AVO_OK) {
            text_view result;
            bool same;
            allocator.fail_at = 0;
            assert_ok(task_filter_apply(&task->filter[1], TEXT_LITERAL("12"), &result, &error));
            assert_ok(task_exact_match(task, result, TEXT_LITERAL("12"), &same, &error));
            assert_true(same);
            task_close(task);
        } else {
            assert_int_equal(status, AVO_ERROR_MEMORY);
        }
        assert_int_equal(allocator.live, 0);
        assert_true(fail < 5000);
    }
    file_map_close(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_tasks_are_refused), cmocka_unit_test(defaults),
        cmocka_unit_test(filters_as_lm_eval),      cmocka_unit_test(other_filters),
        cmocka_unit_test(backtracking_is_limited), cmocka_unit_test(memory_of_a_search_is_limited),
        cmocka_unit_test(draws_as_python),         cmocka_unit_test(documents_are_objects),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
