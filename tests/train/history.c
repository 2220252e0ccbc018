/* train/history and train/runs: metrics as a page gets them, of files that others write. */
#include "support/support.h"

#include "train/history.h"
#include "train/runs.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

typedef struct reading {
    arena arena;
    buffer out;
    json_value root;
    history_facts facts;
    avo_error error;
} reading;

static void reading_open(reading *r) {
    memset(r, 0, sizeof(*r));
    arena_init(&r->arena, NULL, SIZE_MAX);
    buffer_init(&r->out, NULL, SIZE_MAX);
}

static void reading_close(reading *r) {
    buffer_free(&r->out);
    arena_free(&r->arena);
}

static void parse(reading *r) {
    assert_ok_error(json_parse(&r->arena, buffer_text(&r->out), &r->root, &r->error), &r->error);
}

static void read_lines(reading *r, const char *text, bool cut) {
    reading_open(r);
    json_writer w = json_writer_of(&r->out);
    json_object_begin(&w);
    assert_ok_error(history_write(NULL, text_from(text), cut, &w, &r->facts, &r->error), &r->error);
    json_end(&w);
    assert_ok(json_writer_status(&w));
    parse(r);
}

static const json_value *series(const reading *r, const char *name) {
    return json_find(json_find(&r->root, "series"), name);
}

static double number(const json_value *value) {
    assert_non_null(value);
    return value->kind == JSON_INTEGER ? (double)value->integer : value->number;
}

static double point(const json_value *curve, size_t index, size_t part) {
    return number(json_item(json_item(curve, index), part));
}

static void curves_of_metrics(void **state) {
    (void)state;
    reading r;
    read_lines(
        &r,
        "{\"loss\":2.5,\"learning_rate\":1e-4,\"step_time\":0.5,\"num_tokens\":10,"
        "\"rewards/dog/mean\":0.25,\"other\":7,\"step\":1}\n"
        "{\"eval_loss\":3,\"step\":1}\n"
        "{\"loss\":1.5,\"learning_rate\":null,\"step_time\":1.5,\"num_tokens\":20,\"step\":2}\n"
        "{\"loss\":9,\"step\":3}", /* is being written */
        false);
    assert_int_equal(r.facts.lines, 3);
    assert_int_equal(r.facts.skipped, 0);
    assert_int_equal(r.facts.step, 2);
    assert_true(r.facts.step_time == 1.0);
    assert_int_equal(series(&r, "loss")->array.count, 2);
    assert_true(point(series(&r, "loss"), 1, 0) == 2 && point(series(&r, "loss"), 1, 1) == 1.5);
    assert_int_equal(series(&r, "learning_rate")->array.count, 1);
    assert_int_equal(series(&r, "eval_loss")->array.count, 1);
    assert_int_equal(series(&r, "rewards/dog/mean")->array.count, 1);
    assert_null(series(&r, "other"));
    assert_null(series(&r, "num_tokens"));
    const json_value *latest = json_find(&r.root, "latest");
    assert_true(number(json_find(latest, "num_tokens")) == 20);
    assert_true(number(json_find(latest, "loss")) == 1.5);
    reading_close(&r);
}

static void other_lines_are_counted(void **state) {
    (void)state;
    static const char *const wrong[] = {"{\"loss\":1}",              /* no step */
                                        "{\"loss\":1,\"step\":1.5}", /* not whole */
                                        "{\"loss\":1,\"step\":-1}",
                                        "{\"loss\":1,\"step\":9007199254740993}",
                                        "{\"loss\":1,\"step\":\"2\"}",
                                        "[1,2]",
                                        "nonsense",
                                        "{\"loss\":1,\"step\":2",
                                        "{\"loss\":1,\"step\":1}", /* goes back */
                                        "\x80\xff",
                                        "{\"loss\":1e400,\"step\":2}x"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[512];
        reading r;
        snprintf(text, sizeof(text), "{\"loss\":4,\"step\":2}\n%s\n\n{\"loss\":5,\"step\":3}\n",
                 wrong[i]);
        read_lines(&r, text, false);
        assert_int_equal(r.facts.lines, 2);
        assert_int_equal(r.facts.skipped, 1);
        assert_int_equal(series(&r, "loss")->array.count, 2);
        reading_close(&r);
    }
}

static void a_cut_file_begins_behind_its_first_line(void **state) {
    (void)state;
    reading r;
    read_lines(&r, "oss\":4,\"step\":2}\n{\"loss\":5,\"step\":3}\n", true);
    assert_int_equal(r.facts.lines, 1);
    assert_int_equal(r.facts.skipped, 0);
    reading_close(&r);
    read_lines(&r, "no line at all", true);
    assert_int_equal(r.facts.lines + r.facts.skipped, 0);
    reading_close(&r);
    read_lines(&r, "", false);
    assert_null(series(&r, "loss"));
    reading_close(&r);
}

static void lines_of_any_length(void **state) {
    (void)state;
    static char text[200 << 10];
    size_t size = (size_t)snprintf(text, sizeof(text), "{\"x\":\"");
    memset(text + size, 'a', 100 << 10);
    size += 100 << 10;
    snprintf(text + size, sizeof(text) - size, "\",\"step\":1}\n{\"loss\":5,\"step\":3}\n");
    reading r;
    read_lines(&r, text, false);
    assert_int_equal(r.facts.lines, 1);
    assert_int_equal(r.facts.skipped, 1);
    reading_close(&r);
}

/* Means of neighbours: the last step stays, and so does the mean of all. */
static void many_points_become_fewer(void **state) {
    (void)state;
    buffer text;
    buffer_init(&text, NULL, SIZE_MAX);
    size_t count = 3 * HISTORY_POINTS_MAX + 1;
    for (size_t i = 0; i < count; i++)
        assert_ok(buffer_format(&text, "{\"loss\":%zu,\"step\":%zu}\n", i % 2, i + 1));
    assert_ok(buffer_terminate(&text));
    reading r;
    read_lines(&r, text.data, false);
    const json_value *loss = series(&r, "loss");
    assert_int_equal(loss->array.count, HISTORY_POINTS_MAX);
    assert_true(point(loss, HISTORY_POINTS_MAX - 1, 0) == (double)count);
    for (size_t i = 0; i < HISTORY_POINTS_MAX; i++)
        assert_true(point(loss, i, 1) > 0.3 && point(loss, i, 1) < 0.7);
    reading_close(&r);
    text.size = 0;
    for (size_t i = 0; i < 40; i++) /* names that files choose */
        assert_ok(buffer_format(&text, "{\"rewards/%zu/mean\":1,\"step\":1}\n", i));
    assert_ok(buffer_terminate(&text));
    read_lines(&r, text.data, false);
    assert_int_equal(json_find(&r.root, "series")->object.count, HISTORY_SERIES_MAX);
    reading_close(&r);
    buffer_free(&text);
}

static void without_memory(void **state) {
    (void)state;
    static const char text[] = "{\"loss\":2,\"eval_loss\":1,\"step\":1}\n{\"loss\":2,\"step\":2}\n";
    test_allocator failing;
    size_t fails = 0;
    for (avo_status status = AVO_ERROR_MEMORY; status != AVO_OK; fails++) {
        test_allocator_init(&failing);
        failing.fail_at = fails + 1;
        buffer out;
        history_facts facts;
        avo_error error = {0};
        buffer_init(&out, NULL, SIZE_MAX);
        json_writer w = json_writer_of(&out);
        json_object_begin(&w);
        status = history_write(&failing.allocator, TEXT_LITERAL(text), false, &w, &facts, &error);
        assert_true(status == AVO_OK || status == AVO_ERROR_MEMORY);
        buffer_free(&out);
        assert_int_equal(failing.live, 0);
        assert_true(fails < 100);
    }
    assert_true(fails > 1);
}

/* ---- Folders ---- */

static void put(const char *folder, const char *name, const char *text, int seconds_ago) {
    char path[4400];
    avo_error error = {0};
    (void)mkdir(folder, 0700);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_ok_error(file_write(path, text, strlen(text), &error), &error);
    struct utimbuf times = {time(NULL) - seconds_ago, time(NULL) - seconds_ago};
    assert_int_equal(utime(path, &times), 0);
}

static void list(reading *r, const char *folder) {
    reading_open(r);
    json_writer w = json_writer_of(&r->out);
    assert_ok_error(runs_list(folder, &w, &r->error), &r->error);
    assert_ok(json_writer_status(&w));
    parse(r);
}

static avo_status show(reading *r, const char *folder, const char *run) {
    reading_open(r);
    json_writer w = json_writer_of(&r->out);
    return runs_show(folder, run, &w, &r->error);
}

static bool has(const json_value *run, const char *key, const char *wanted) {
    const json_value *value = json_find(run, key);
    return value != NULL && value->kind == JSON_STRING && text_is(value->string, wanted);
}

static void a_folder_of_runs(void **state) {
    (void)state;
    char root[4096], path[4200], other[4200], link[4400];
    reading r;
    snprintf(root, sizeof(root), "%s/runs", test_scratch_folder());
    (void)mkdir(root, 0700);
    snprintf(path, sizeof(path), "%s/old", root);
    put(path, "metrics.jsonl", "{\"loss\":1,\"step\":4}\n", 500);
    put(path, "run_info.json", "{\"task\":\"sft\",\"model\":\"m\",\"steps\":4,\"batch\":2}", 500);
    snprintf(path, sizeof(path), "%s/halted", root);
    put(path, "metrics.jsonl", "{\"loss\":1,\"step\":3}\n", 400);
    put(path, "run_info.json", "{\"steps\":4,\"task\":7}", 400);
    snprintf(path, sizeof(path), "%s/new run", root);
    put(path, "metrics.jsonl", "{\"loss\":1,\"step\":3,\"step_time\":2}\nwhat\n", 1);
    put(path, "run_info.json", "{\"steps\":10}", 1);
    snprintf(path, sizeof(path), "%s/empty", root);
    put(path, "metrics.jsonl", "", 600);
    put(path, "run_info.json", "no JSON", 600);
    snprintf(path, sizeof(path), "%s/none", root);
    put(path, "else.txt", "x", 0);
    snprintf(path, sizeof(path), "%s/.hidden", root);
    put(path, "metrics.jsonl", "{\"loss\":1,\"step\":3}\n", 0);
    snprintf(other, sizeof(other), "%s/outside", test_scratch_folder());
    put(other, "metrics.jsonl", "{\"loss\":1,\"step\":3}\n", 0);
    snprintf(link, sizeof(link), "%s/linked", root);
    (void)symlink("../outside", link);
    snprintf(path, sizeof(path), "%s/inside", root);
    (void)mkdir(path, 0700);
    snprintf(link, sizeof(link), "%s/metrics.jsonl", path);
    (void)symlink("../../outside/metrics.jsonl", link);
    snprintf(path, sizeof(path), "%s/folder", root);
    (void)mkdir(path, 0700);
    snprintf(link, sizeof(link), "%s/metrics.jsonl", path);
    (void)mkdir(link, 0700);

    list(&r, root);
    const json_value *runs = json_find(&r.root, "runs");
    assert_int_equal(runs->array.count, 4);
    static const char *const names[] = {"new run", "halted", "old", "empty"};
    static const char *const states[] = {"running", "stopped", "finished", "stopped"};
    for (size_t i = 0; i < 4; i++) {
        assert_true(has(json_item(runs, i), "run", names[i]));
        assert_true(has(json_item(runs, i), "state", states[i]));
    }
    assert_true(number(json_find(json_item(runs, 0), "seconds_left")) == 14.0);
    assert_true(has(json_item(runs, 2), "task", "sft") && has(json_item(runs, 2), "model", "m"));
    assert_null(json_find(json_item(runs, 1), "task"));
    assert_int_equal(json_find(&r.root, "more")->integer, 0);
    reading_close(&r);

    assert_ok_error(show(&r, root, "new run"), &r.error);
    parse(&r);
    assert_int_equal(json_find(&r.root, "skipped")->integer, 1);
    assert_int_equal(json_find(&r.root, "steps")->integer, 10);
    assert_int_equal(series(&r, "loss")->array.count, 1);
    reading_close(&r);
    static const char *const refused[] = {
        "..",     "../outside", "linked",     "inside", ".hidden", "new run/", "/etc", "",
        "folder", "none",       "old/../old", ".",      "\xff",    "missing",  "./old"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_refused(show(&r, root, refused[i]), AVO_ERROR_NOT_FOUND, &r.error,
                       "no training run is named");
        assert_int_equal(r.out.size, 0);
        reading_close(&r);
    }
}

static void the_folder_of_one_run(void **state) {
    (void)state;
    char root[4096];
    reading r;
    avo_error error = {0};
    snprintf(root, sizeof(root), "%s/alone", test_scratch_folder());
    put(root, "metrics.jsonl", "{\"loss\":1,\"step\":3}\n", 1);
    run_note note = {.task = "rl", .model = "a \"model\"", .steps = 3, .batch = 1};
    assert_ok_error(runs_note_write(root, &note, &error), &error);
    list(&r, root);
    const json_value *run = json_item(json_find(&r.root, "runs"), 0);
    assert_true(has(run, "run", ".") && has(run, "title", "alone"));
    assert_true(has(run, "state", "finished") && has(run, "model", "a \"model\""));
    reading_close(&r);
    assert_ok_error(show(&r, root, "."), &r.error);
    parse(&r);
    assert_true(has(&r.root, "title", "alone"));
    reading_close(&r);
    snprintf(root, sizeof(root), "%s/nowhere", test_scratch_folder());
    assert_refused(show(&r, root, "."), AVO_ERROR_IO, &r.error, "nowhere");
    reading_close(&r);
}

static void large_files_and_many_runs(void **state) {
    (void)state;
    char root[4096], path[4200];
    reading r;
    buffer text;
    snprintf(root, sizeof(root), "%s/many", test_scratch_folder());
    (void)mkdir(root, 0700);
    for (unsigned i = 0; i < RUNS_SHOWN_MAX + 3; i++) {
        snprintf(path, sizeof(path), "%s/run-%u", root, i);
        put(path, "metrics.jsonl", "{\"step\":1}\n", (int)(2 * i));
    }
    list(&r, root);
    const json_value *runs = json_find(&r.root, "runs");
    assert_int_equal(runs->array.count, RUNS_SHOWN_MAX);
    assert_true(has(json_item(runs, RUNS_SHOWN_MAX - 1), "run", "run-99"));
    assert_int_equal(json_find(&r.root, "more")->integer, 3);
    reading_close(&r);
    buffer_init(&text, NULL, SIZE_MAX);
    for (unsigned i = 1; text.size < RUNS_BYTES_MAX + 100; i++)
        assert_ok(
            buffer_format(&text, "{\"loss\":1,\"filling\":\"%0*u\",\"step\":%u}\n", 1000, 0, i));
    assert_ok(buffer_terminate(&text));
    put(root, "metrics.jsonl", text.data, 0);
    buffer_free(&text);
    assert_ok_error(show(&r, root, "."), &r.error);
    parse(&r);
    assert_true(json_find(&r.root, "cut")->boolean);
    assert_int_equal(json_find(&r.root, "skipped")->integer, 0);
    assert_true(point(series(&r, "loss"), 0, 0) > 1);
    reading_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_of_metrics),
        cmocka_unit_test(other_lines_are_counted),
        cmocka_unit_test(a_cut_file_begins_behind_its_first_line),
        cmocka_unit_test(lines_of_any_length),
        cmocka_unit_test(many_points_become_fewer),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(a_folder_of_runs),
        cmocka_unit_test(the_folder_of_one_run),
        cmocka_unit_test(large_files_and_many_runs),
    };
    return cmocka_run_group_tests_name("train/history", tests, NULL, NULL);
}
