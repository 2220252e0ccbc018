/* Output folders: a run that is resumed is compared with what is there, passes over checkpoints
 * that cannot be read, clears what killed runs left, and is alone in its folder. Several files of
 * data are as one. */
#include "train/calls.h"

/* A checkpoint is continued by the same run only. */
static void other_runs(void **state) {
    (void)state;
    static const struct {
        const char *rest, *text;
    } cases[] = {{"\"steps\": 9, \"lr\": 0.02", "made with lr 0.01, this run has 0.02"},
                 {"\"steps\": 9, \"lr\": 0.01, \"batch\": 3", "made with batch 8"},
                 {"\"steps\": 9, \"lr\": 0.01, \"rank\": 5", "made with rank 4"},
                 {"\"steps\": 12, \"lr\": 0.01", "made with steps 9"}};
    char s[1024];
    call c = {.task = "sft", .output = "other", .stop_at = 2};
    c.settings = settings_of(s, w.texts, "\"steps\": 9, \"lr\": 0.01");
    assert_refused(train(&c, NULL), AVO_ERROR_CANCELLED, &w.error, "stopped after step 2 of 9");
    c.resume = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(s, sizeof(s), "{\"data\": \"%s\", \"threads\": 1, %s%s}", w.texts, cases[i].rest,
                 strstr(cases[i].rest, "rank") != NULL ? "" : ", \"rank\": 4");
        assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error, cases[i].text);
    }
    char path[600];
    write_text(path, "other.jsonl", "{\"text\": \"something else\"}\n");
    c.settings = settings_of(s, path, "\"steps\": 9, \"lr\": 0.01");
    assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error, "made with data");
}

/* A run without a checkpoint is not taken for another one either. */
static void other_runs_without_a_checkpoint(void **state) {
    (void)state;
    char s[1024], path[600];
    call c = {.task = "sft", .output = "begun", .settings = s, .resume = true};
    settings_of(s, w.texts, "\"steps\": 2, \"lr\": 0.01");
    assert_ok_error(train(&c, NULL), &w.error);
    folder_remove(in_folder("begun/checkpoint-2", path)); /* as when it was killed before */
    settings_of(s, w.texts, "\"steps\": 2, \"lr\": 0.01, \"seed\": 5");
    assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error,
                   "made with seed 0, this run has 5");
    settings_of(s, w.pairs, "\"steps\": 2, \"lr\": 0.01");
    c.task = "dpo";
    assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error, "made with task \"sft\"");
    c.task = "sft";
    settings_of(s, w.texts, "\"steps\": 2, \"lr\": 0.01");
    assert_ok_error(train(&c, NULL), &w.error);
}

/* Changes the lowest bit of a byte; `whence` as fseek has it. */
static void turn_bit(const char *path, long at, int whence) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, whence), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, at, whence), 0);
    assert_int_not_equal(fputc(byte ^ 1, file), EOF);
    assert_int_equal(fclose(file), 0);
}

/* A base model that differs in one bit of one weight, none of those that source_digest reads. */
static void another_base(void **state) {
    (void)state;
    char s[1024], path[600];
    avo_model *own = w.model;
    call c = {.task = "sft", .output = "another-base", .settings = s, .stop_at = 1};
    settings_of(s, w.texts, "\"steps\": 2, \"lr\": 0.01");
    assert_refused(train(&c, NULL), AVO_ERROR_CANCELLED, &w.error, "stopped after step 1");
    c.resume = true;
    c.stop_at = 0;
    assert_ok_error(file_make_folder(in_folder("base", path), &w.error), &w.error);
    const char *changed = tiny_model_write(path, 3);
    turn_bit(changed, 7 * 4 + 1024, SEEK_SET); /* of the embedding */
    assert_ok_error(avo_model_open(changed, NULL, &w.model, &w.error), &w.error);
    assert_int_equal(source_digest(w.model->source), source_digest(own->source));
    assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error, "made with model");
    assert_int_equal(unlink(in_folder("another-base/run.json", path)), 0); /* an older checkpoint */
    assert_refused(train(&c, NULL), AVO_ERROR_ARGUMENT, &w.error,
                   "checkpoint-1 was made with model");
    avo_model_close(w.model);
    w.model = own;
    assert_ok_error(train(&c, NULL), &w.error);
}

/* The newest checkpoint that can be read is continued. */
static void damaged_checkpoints(void **state) {
    (void)state;
    char s[1024], path[600];
    avo_train_result result = AVO_TRAIN_RESULT_INIT;
    call c = {.task = "sft", .output = "damaged", .stop_at = 4};
    c.settings = settings_of(s, w.texts,
                             "\"steps\": 6, \"lr\": 0.01, \"batch\": 2, \"save_every\": 1,"
                             "\"keep\": 4");
    assert_refused(train(&c, NULL), AVO_ERROR_CANCELLED, &w.error, "stopped after step 4");
    c.resume = true;
    c.stop_at = 0;
    c.log_text = calloc(1, LOG_CAPACITY);
    /* Without its state it is none; with half of its moments it is passed over. */
    assert_int_equal(unlink(in_folder("damaged/checkpoint-4/training_state.json", path)), 0);
    /* Its weights can be read, but one bit of them has changed. */
    turn_bit(in_folder("damaged/checkpoint-2/" ADAPTER, path), -1, SEEK_END);
    write_text(path, "damaged/checkpoint-3/optimizer.safetensors", "nonsense");
    assert_ok_error(train(&c, &result), &w.error);
    assert_int_equal(result.first_step, 1);
    assert_non_null(strstr(c.log_text, "checkpoint-3 cannot be read: "));
    assert_non_null(strstr(c.log_text, "the file is damaged"));
    assert_non_null(strstr(c.log_text, "resuming behind step 1"));
    free(c.log_text);
    c.log_text = NULL;
    call whole = {.task = "sft", .output = "undamaged", .settings = s};
    assert_ok_error(train(&whole, NULL), &w.error);
    assert_same_file("damaged", "undamaged", ADAPTER);
    assert_same_file("damaged/checkpoint-4", "undamaged/checkpoint-4", ADAPTER);
    /* A difference is no damage: the one before would hide it. */
    write_text(path, "damaged/checkpoint-6/training_state.json", "{\"version\": 2}");
    assert_refused(train(&c, &result), AVO_ERROR_UNSUPPORTED, &w.error, "version 2 of checkpoints");
    for (int i = 3; i <= 6; i++) {
        char name[64];
        snprintf(name, sizeof(name), "damaged/checkpoint-%d/training_state.json", i);
        write_text(path, name, "{");
    }
    assert_refused(train(&c, &result), AVO_ERROR_FORMAT, &w.error,
                   "has no checkpoint that can be read");
    assert_non_null(strstr(w.error.text, "checkpoint-6"));
}

/* What a run left that was killed while it removed or wrote a checkpoint. */
static void leftovers_are_cleared(void **state) {
    (void)state;
    static const char *const left[] = {".removed-checkpoint-3", ".checkpoint-9.part-999999999-0"};
    char s[1024], path[600], file[64];
    call c = {.task = "sft", .output = "left", .settings = s};
    settings_of(s, w.texts, "\"steps\": 1, \"lr\": 0.01");
    assert_ok_error(file_make_folder(in_folder("left", path), &w.error), &w.error);
    for (size_t i = 0; i < 2; i++) {
        snprintf(file, sizeof(file), "left/%s", left[i]);
        assert_ok_error(file_make_folder(in_folder(file, path), &w.error), &w.error);
        snprintf(file, sizeof(file), "left/%s/x", left[i]);
        write_text(path, file, "x");
    }
    assert_ok_error(train(&c, NULL), &w.error);
    for (size_t i = 0; i < 2; i++)
        assert_false(exists("left", left[i]));
}

/* While a run writes into a folder, no other one does. */
static void one_run_a_folder(void **state) {
    (void)state;
    char s[1024], path[600], process[64];
    train_lock lock = {.descriptor = -1};
    call c = {.task = "sft", .output = "locked", .settings = s};
    settings_of(s, w.texts, "\"steps\": 1, \"lr\": 0.01");
    assert_ok_error(train_lock_take(in_folder("locked", path), &lock, &w.error), &w.error);
    snprintf(process, sizeof(process), "another run (process %ld)", (long)getpid());
    assert_refused(train(&c, NULL), AVO_ERROR_IO, &w.error, process);
    assert_false(exists("locked", "metrics.jsonl"));
    train_lock_release(&lock);
    assert_ok_error(train(&c, NULL), &w.error);
}

/* Several files are as one. */
static void several_files(void **state) {
    (void)state;
    char s[2048], path[600], parts[2][600];
    write_text(parts[0], "part-1.jsonl",
               "{\"text\": \"once upon a time\"}\n{\"text\": \"a dog ran\"}\n");
    write_text(parts[1], "part-2.jsonl",
               "{\"content\": \"the dog sat on the mat\"}\n{\"content\": \"dogs\"}\n"
               "{\"content\": \"a cat and a dog\"}\n");
    call c = {.task = "sft", .output = "one-file", .settings = s};
    settings_of(s, w.texts, "\"steps\": 3, \"lr\": 0.01");
    assert_ok_error(train(&c, NULL), &w.error);
    snprintf(s, sizeof(s), "{\"data\": [\"%s\", \"%s\"], \"rank\": 4, \"steps\": 3, \"lr\": 0.01}",
             parts[0], parts[1]);
    c.output = "two-files";
    assert_ok_error(train(&c, NULL), &w.error);
    assert_same_file("one-file", "two-files", ADAPTER);
    write_text(path, "part-2.jsonl", "\n");
    c.output = "three-files";
    assert_refused(train(&c, NULL), AVO_ERROR_FORMAT, &w.error, "part-2.jsonl: the file has no");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_runs),
        cmocka_unit_test(another_base),
        cmocka_unit_test(other_runs_without_a_checkpoint),
        cmocka_unit_test(damaged_checkpoints),
        cmocka_unit_test(leftovers_are_cleared),
        cmocka_unit_test(one_run_a_folder),
        cmocka_unit_test(several_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
