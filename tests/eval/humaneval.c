/* The solutions of HumanEval's authors all pass in the sandbox, and cut ones do not.
 * (AVO_TEST_THREADS) */
#include "support/support.h"

#include "base/clock.h"
#include "base/json.h"
#include "eval/code_run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define PROBLEMS    164
#define CUT         16 /* of them are run without a solution */
#define THREADS     4
#define TEXT_MAX    (1 << 20)
#define PROGRAM_MAX (1 << 16)

typedef struct problem {
    char program[PROGRAM_MAX];
    code_run_result result;
    avo_status status;
    avo_error error;
} problem;

static problem *problems;
static atomic_size_t next;
static size_t count;

static void *run_some(void *context) {
    (void)context;
    code_run_options options = {.wall_seconds = (uint32_t)PATIENCE, .cpu_seconds = 60};
    for (size_t i; (i = atomic_fetch_add(&next, 1)) < count;)
        problems[i].status = code_run(problems[i].program, strlen(problems[i].program), &options,
                                      &problems[i].result, &problems[i].error);
    return NULL;
}

static size_t read_problems(const char *path, bool solved) {
    char *text = test_take_exact(TEXT_MAX, 64);
    gzFile file = gzopen(path, "rb");
    assert_true(text != NULL && file != NULL);
    int bytes = gzread(file, text, TEXT_MAX);
    gzclose(file);
    assert_in_range(bytes, 1, TEXT_MAX - 1);
    size_t found = 0;
    for (char *line = text, *end; line < text + bytes; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + bytes - line));
        end = end == NULL ? text + bytes : end;
        arena arena;
        json_value item;
        avo_error error;
        arena_init(&arena, NULL, SIZE_MAX);
        assert_ok_error(json_parse(&arena, (text_view){line, (size_t)(end - line)}, &item, &error),
                        &error);
        text_view prompt, solution, test, name;
        assert_ok(json_get_string(&item, "prompt", &prompt, NULL));
        assert_ok(json_get_string(&item, "canonical_solution", &solution, NULL));
        assert_ok(json_get_string(&item, "test", &test, NULL));
        assert_ok(json_get_string(&item, "entry_point", &name, NULL));
        assert_true(found < PROBLEMS);
        int length =
            snprintf(problems[found++].program, PROGRAM_MAX, "%.*s%.*s\n%.*s\ncheck(%.*s)\n",
                     (int)prompt.size, prompt.data, solved ? (int)solution.size : 0, solution.data,
                     (int)test.size, test.data, (int)name.size, name.data);
        assert_in_range(length, 1, PROGRAM_MAX - 1);
        arena_free(&arena);
    }
    free(text);
    return found;
}

static size_t count_passed(const char *path, bool solved) {
    assert_int_equal(read_problems(path, solved), PROBLEMS);
    count = solved ? PROBLEMS : CUT;
    pthread_t threads[THREADS];
    uint64_t begin = clock_now_ns();
    atomic_store(&next, 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_some, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    double seconds = clock_seconds(begin, clock_now_ns());
    size_t passed = 0;
    for (size_t i = 0; i < count; i++) {
        if (problems[i].status == AVO_ERROR_UNSUPPORTED) {
            print_message("SKIPPED: %s\n", problems[i].error.text);
            skip();
        }
        if (problems[i].status != AVO_OK)
            fail_msg("problem %zu: %s", i, problems[i].error.text);
        passed += problems[i].result.outcome == CODE_PASSED;
        if (solved && problems[i].result.outcome != CODE_PASSED)
            print_message("problem %zu: %s\n", i, problems[i].result.output);
    }
    print_message("%zu of %zu passed, %.1f runs per second\n", passed, count,
                  (double)count / seconds);
    return passed;
}

static void solutions_pass_and_prompts_do_not(void **state) {
    (void)state;
    const char *path = test_data_path("eval/humaneval/HumanEval.jsonl.gz");
    skip_without(path, "HumanEval.jsonl.gz");
    problems = calloc(PROBLEMS, sizeof(*problems));
    assert_non_null(problems);
    assert_int_equal(count_passed(path, true), PROBLEMS);
    assert_int_equal(count_passed(path, false), 0);
    free(problems);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(solutions_pass_and_prompts_do_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
