/* model/panel_cache: panels of an earlier run are mapped and compute the same; files that are
 * stale, cut, damaged, of another version or of somebody else are passed over and replaced; writing
 * never leaves a part of a file; old files give way. AVO_TEST_THREADS */
#include "support/support.h"

#include "base/allocator.h"
#include "base/hash.h"
#include "engine/engine.h"
#include "model/model.h"
#include "support/models.h"
#include "support/tiny_model.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS   8
#define LOGITS (ROWS * TINY_VOCABULARY)
#define LARGE  ((uint64_t)1 << 40)

static const char *model_path;
static char folder[4096];
static char lines[8192];                                       /* what the cache has logged */
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER; /* two models log at once */

static int write_model(void **state) {
    (void)state;
    static char path[4096];
    snprintf(path, sizeof(path), "%s", tiny_model_write(test_scratch_folder(), 7));
    model_path = path;
    snprintf(folder, sizeof(folder), "%s/a/panels", test_scratch_folder());
    return 0;
}

static void log_line(void *context, const char *line) {
    (void)context;
    pthread_mutex_lock(&lines_lock);
    size_t used = strlen(lines);
    snprintf(lines + used, sizeof(lines) - used, "%s\n", line);
    pthread_mutex_unlock(&lines_lock);
}

static panel_cache_options options_of(uint64_t bytes_max) {
    return (panel_cache_options){.folder = folder, .bytes_max = bytes_max, .log = log_line};
}

/* The model with a cache that keeps small models, too. */
static avo_model *open_model(const panel_cache_options *options) {
    avo_model *model;
    avo_error error = {0};
    lines[0] = '\0';
    assert_ok_error(avo_model_open(model_path, NULL, &model, &error), &error);
    if (options != NULL)
        model->panels = panel_cache_open(model->allocator, model->source, options);
    return model;
}

static const char *file_of_model(void) {
    static char path[PATH_MAX + 64];
    char real[PATH_MAX], name[48];
    assert_non_null(realpath(model_path, real));
    panel_cache_name(real, name);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static uint64_t kept_bytes(const avo_model *model, const char *device) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_plan plan = AVO_PLAN_INIT;
    engine_plan_details details;
    avo_error error = {0};
    options.context_max = 32;
    options.device = device;
    assert_ok_error(engine_plan_describe(model, &options, &plan, &details, &error), &error);
    assert_true(details.weights.kept_bytes == 0 || details.weights.missing_bytes == 0);
    return details.weights.kept_bytes;
}

static void compute(avo_model *model, const char *device, float *logits) {
    static const int32_t ids[ROWS] = {3, 1, 4, 1, 5, 9, 2, 6};
    fixture_engine opened = {.model = model};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_error error = {0};
    options.threads = 2;
    options.context_max = options.rows_max = 32;
    options.logits_max = ROWS;
    options.device = device;
    assert_ok_error(avo_engine_open(model, &options, &opened.engine, &error), &error);
    fixture_compute(&opened, ids, ROWS, TINY_VOCABULARY, logits);
    avo_engine_close(opened.engine);
}

/* One run of the model: whether the panels were found, and what came out. */
static bool run_once(const char *device, float *logits) {
    panel_cache_options options = options_of(LARGE);
    avo_model *model = open_model(&options);
    bool found = kept_bytes(model, device) > 0;
    compute(model, device, logits);
    avo_model_close(model);
    return found;
}

static bool has_device(const char *name) {
    avo_model *model = open_model(NULL);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_plan plan = AVO_PLAN_INIT;
    avo_error error;
    options.context_max = 32;
    options.device = name;
    bool there = avo_engine_plan(model, &options, &plan, &error) == AVO_OK;
    avo_model_close(model);
    return there;
}

/* A device that uses panels; NULL: this machine has none. */
static const char *any_device(void) {
    static const char *const names[] = {"avx2", "neon"};
    for (size_t i = 0; i < 2; i++)
        if (has_device(names[i]))
            return names[i];
    return NULL;
}

static void test_the_same_with_and_without(void **state) {
    (void)state;
    static const char *const devices[] = {"avx2", "avx512", "amx", "neon"};
    static float plain[LOGITS], first[LOGITS], again[LOGITS];
    for (size_t i = 0; i < 4; i++) {
        if (!has_device(devices[i]))
            continue;
        (void)unlink(file_of_model());
        avo_model *model = open_model(NULL);
        assert_int_equal(kept_bytes(model, devices[i]), 0);
        compute(model, devices[i], plain);
        avo_model_close(model);
        assert_false(run_once(devices[i], first));
        assert_non_null(strstr(lines, "wrote"));
        assert_true(run_once(devices[i], again));
        assert_non_null(strstr(lines, "found"));
        assert_memory_equal(plain, first, sizeof(plain));
        assert_memory_equal(plain, again, sizeof(plain));
    }
}

/* Passed over, the same logits, and found when it was written anew. */
static void expect_replaced(const char *device, const float *right) {
    static float logits[LOGITS];
    run_once(device, logits);
    assert_memory_equal(logits, right, sizeof(logits));
    assert_non_null(strstr(lines, "ignored"));
    assert_non_null(strstr(lines, "wrote"));
    assert_true(run_once(device, logits));
    assert_memory_equal(logits, right, sizeof(logits));
}

static void overwrite(const char *path, off_t offset, uint8_t change) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;
    assert_true(file >= 0 && pread(file, &byte, 1, offset) == 1);
    byte ^= change;
    assert_int_equal(pwrite(file, &byte, 1, offset), 1);
    close(file);
}

static void test_wrong_files_are_replaced(void **state) {
    (void)state;
    static float right[LOGITS];
    const char *device = any_device(), *path = file_of_model();
    struct stat info;
    skip_without(device, "a device with panels");
    (void)run_once(device, right);
    (void)run_once(device, right);
    assert_int_equal(stat(path, &info), 0);
    for (off_t offset = 0; offset < 128; offset += 4) { /* magic, version, lengths, digest, … */
        overwrite(path, offset, 1);
        expect_replaced(device, right);
    }
    overwrite(path, 130, 0x80); /* a sum */
    expect_replaced(device, right);
    overwrite(path, info.st_size - 5000, 1); /* a panel */
    expect_replaced(device, right);
    assert_int_equal(truncate(path, info.st_size - 1), 0);
    expect_replaced(device, right);
    assert_int_equal(truncate(path, 0), 0);
    expect_replaced(device, right);
    assert_int_equal(chmod(path, 0666), 0); /* anybody could have written it */
    expect_replaced(device, right);
}

static void test_a_changed_model(void **state) {
    (void)state;
    static float right[LOGITS];
    const char *device = any_device();
    skip_without(device, "a device with panels");
    (void)run_once(device, right);
    assert_true(run_once(device, right));
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, model_path, times, 0), 0);
    expect_replaced(device, right);
    static float other[LOGITS];
    (void)tiny_model_write(test_scratch_folder(), 8);
    (void)run_once(device, other);
    assert_non_null(strstr(lines, "ignored"));
    assert_memory_not_equal(right, other, sizeof(right));
    (void)tiny_model_write(test_scratch_folder(), 7);
    expect_replaced(device, right);
}

/* ---- The file ---- */

#define PANELS ((size_t)5 << 19) /* two pieces and a half */

static uint8_t *make_panels(void) {
    uint8_t *panels = malloc(PANELS);
    assert_non_null(panels);
    for (size_t i = 0; i < PANELS; i++)
        panels[i] = (uint8_t)(i * 7 + i / 4096);
    return panels;
}

static const panel_origin origin = {.path = "/models/a.gguf", .digest = 17, .stamps = {3, 4}};
static const weights_layout layout = {.bytes = PANELS, .key = {1, 2}};

static void open_writer(panel_writer *writer, const uint8_t *panels, char *path, size_t capacity) {
    avo_error error = {0};
    snprintf(path, capacity, "%s/one" PANEL_CACHE_ENDING, test_scratch_folder());
    assert_ok_error(panel_writer_open(writer, NULL, &origin, &layout, panels, path, &error),
                    &error);
}

static void write_whole(const uint8_t *panels, char *path, size_t capacity) {
    panel_writer writer;
    avo_error error = {0};
    bool done = false;
    open_writer(&writer, panels, path, capacity);
    for (int i = 0; i < 3; i++) {
        assert_false(done);
        assert_ok_error(panel_writer_step(&writer, &done, &error), &error);
    }
    assert_true(done);
    panel_writer_close(&writer);
}

static void test_cut_at_every_page(void **state) {
    (void)state;
    char path[4200];
    uint8_t *panels = make_panels();
    file_map map;
    panel_file file;
    avo_error error = {0};
    write_whole(panels, path, sizeof(path));
    assert_ok_error(file_map_open(path, &map, &error), &error);
    assert_ok_error(panel_file_parse(map.bytes, path, &file, &error), &error);
    assert_int_equal(file.pieces, 3);
    assert_memory_equal(file.panels, panels, PANELS);
    assert_ok_error(panel_file_check(&file, &origin, path, &error), &error);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(panel_file_is_right(&file, i));
    for (size_t bytes = 0; bytes < map.bytes.size; bytes += bytes < 8192 ? 16 : 4096) {
        bytes_view cut = {map.bytes.data, bytes};
        assert_int_equal(panel_file_parse(cut, path, &file, &error), AVO_ERROR_FORMAT);
    }
    file_map_close(&map);
    (void)unlink(path);
    free(panels);
}

static void test_origins(void **state) {
    (void)state;
    char path[4200];
    uint8_t *panels = make_panels();
    file_map map;
    panel_file file;
    avo_error error = {0};
    write_whole(panels, path, sizeof(path));
    assert_ok_error(file_map_open(path, &map, &error), &error);
    assert_ok_error(panel_file_parse(map.bytes, path, &file, &error), &error);
    panel_origin other = origin;
    other.path = "/models/b.gguf";
    assert_refused(panel_file_check(&file, &other, path, &error), AVO_ERROR_FORMAT, &error,
                   "another model");
    other = origin;
    other.digest++;
    assert_refused(panel_file_check(&file, &other, path, &error), AVO_ERROR_FORMAT, &error,
                   "digest");
    other = origin;
    other.stamps[1]++;
    assert_refused(panel_file_check(&file, &other, path, &error), AVO_ERROR_FORMAT, &error,
                   "changed");
    file_map_close(&map);
    (void)unlink(path);
    free(panels);
}

static void test_one_writer_at_a_time(void **state) {
    (void)state;
    char path[4200];
    uint8_t *panels = make_panels();
    panel_writer first, second;
    avo_error error = {0};
    bool done;
    int before = test_entries(test_scratch_folder());
    open_writer(&first, panels, path, sizeof(path));
    open_writer(&second, panels, path, sizeof(path));
    assert_ok_error(panel_writer_step(&first, &done, &error), &error);
    assert_int_equal(panel_writer_step(&second, &done, &error), AVO_ERROR_FULL);
    panel_writer_close(&second); /* leaves the first one's file alone */
    assert_int_equal(test_entries(test_scratch_folder()), before + 1);
    panel_writer_close(&first); /* not done: no trace */
    assert_int_equal(test_entries(test_scratch_folder()), before);
    free(panels);
}

static void test_full_disk(void **state) {
    (void)state;
    char path[4200];
    uint8_t *panels = make_panels();
    panel_writer writer;
    avo_error error = {0};
    bool done;
    int before = test_entries(test_scratch_folder());
    open_writer(&writer, panels, path, sizeof(path));
    assert_ok_error(panel_writer_step(&writer, &done, &error), &error);
    test_disk_limit((size_t)3 << 19); /* while it is written */
    avo_status status = panel_writer_step(&writer, &done, &error);
    test_disk_limit(0);
    assert_int_equal(status, AVO_ERROR_IO);
    panel_writer_close(&writer);
    assert_int_equal(test_entries(test_scratch_folder()), before);
    open_writer(&writer, panels, path, sizeof(path));
    test_disk_limit(4096); /* before */
    status = panel_writer_step(&writer, &done, &error);
    test_disk_limit(0);
    assert_int_equal(status, AVO_ERROR_IO);
    panel_writer_close(&writer);
    assert_int_equal(test_entries(test_scratch_folder()), before);
    free(panels);
}

/* ---- What cannot be written ---- */

static void test_no_folder(void **state) {
    (void)state;
    static float logits[LOGITS];
    char own[4300];
    const char *device = any_device();
    skip_without(device, "a device with panels");
    snprintf(own, sizeof(own), "%s/panels", model_path); /* below a file */
    panel_cache_options options = options_of(LARGE);
    options.folder = own;
    avo_model *model = open_model(&options);
    compute(model, device, logits);
    avo_model_close(model);
    assert_non_null(strstr(lines, "cannot create"));
}

static void test_nothing_is_written(void **state) {
    (void)state;
    static float logits[LOGITS];
    const char *device = any_device();
    skip_without(device, "a device with panels");
    (void)unlink(file_of_model());
    panel_cache_options only_used = options_of(0), small = options_of(4096);
    avo_model *model = open_model(&only_used);
    compute(model, device, logits);
    avo_model_close(model);
    assert_string_equal(lines, "");
    model = open_model(&small);
    compute(model, device, logits);
    avo_model_close(model);
    assert_non_null(strstr(lines, "do not fit"));
    panel_cache_options large = options_of(LARGE);
    large.bytes_min = LARGE; /* repacked sooner than looked after */
    model = open_model(&large);
    compute(model, device, logits);
    avo_model_close(model);
    model = open_model(&large); /* no step: no answer to be written behind */
    avo_model_close(model);
    assert_int_equal(access(file_of_model(), F_OK), -1);
}

static void test_two_at_once(void **state) {
    (void)state;
    static float first[LOGITS], second[LOGITS];
    const char *device = any_device();
    skip_without(device, "a device with panels");
    (void)unlink(file_of_model());
    panel_cache_options options = options_of(LARGE);
    avo_model *a = open_model(&options), *b = open_model(&options);
    compute(a, device, first);
    compute(b, device, second);
    avo_model_close(a);
    avo_model_close(b);
    assert_memory_equal(first, second, sizeof(first));
    assert_true(run_once(device, second));
    assert_memory_equal(first, second, sizeof(first));
}

static void touch(const char *name, size_t bytes, time_t seconds) {
    char path[8192];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(file >= 0 && ftruncate(file, (off_t)bytes) == 0);
    const struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
    assert_int_equal(futimens(file, times), 0);
    close(file);
}

static bool is_there(const char *name) {
    char path[8192];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void test_old_files_give_way(void **state) {
    (void)state;
    snprintf(folder, sizeof(folder), "%s/trim", test_scratch_folder());
    assert_int_equal(mkdir(folder, 0700), 0);
    touch("old.panels", 1000, 100);
    touch("older.panels", 1000, 50);
    touch("new.panels", 1000, 200);
    touch("other.txt", 100000, 1);
    touch(".left.panels.part", 5000, 1); /* of a writer that was killed */
    assert_true(panel_cache_trim(folder, "mine.panels", 1000, 4000));
    assert_false(is_there(".left.panels.part"));
    assert_true(is_there("older.panels"));
    assert_true(panel_cache_trim(folder, "mine.panels", 1001, 4000));
    assert_false(is_there("older.panels"));
    assert_true(is_there("old.panels") && is_there("new.panels"));
    assert_true(panel_cache_trim(folder, "new.panels", 3000, 4000)); /* it is replaced */
    assert_true(is_there("old.panels") && is_there("new.panels"));
    assert_false(panel_cache_trim(folder, "mine.panels", 4001, 4000));
    assert_true(is_there("old.panels") && is_there("new.panels") && is_there("other.txt"));
    assert_true(panel_cache_trim(folder, "mine.panels", 4000, 4000));
    assert_false(is_there("old.panels") || is_there("new.panels"));
    assert_false(panel_cache_trim(folder, "mine.panels", LARGE << 20, UINT64_MAX)); /* the disk */
    snprintf(folder, sizeof(folder), "%s/a/panels", test_scratch_folder());
}

static void test_no_memory(void **state) {
    (void)state;
    avo_model *model = open_model(NULL);
    panel_cache_options options = options_of(LARGE);
    uint8_t *panels = make_panels();
    test_allocator allocator;
    test_allocator_init(&allocator);
    allocator.fail_at = 1;
    assert_null(panel_cache_open(&allocator.allocator, model->source, &options));
    test_allocator_init(&allocator);
    allocator.fail_at = 2; /* sums of what is offered */
    panel_cache *cache = panel_cache_open(&allocator.allocator, model->source, &options);
    assert_non_null(cache);
    const weights_keeper *keeper = panel_cache_keeper(cache);
    keeper->offer(keeper->context, &layout, panels);
    panel_cache_begin(cache);
    panel_cache_close(cache);
    assert_non_null(strstr(lines, "not kept"));
    assert_int_equal(allocator.live, 0);
    avo_model_close(model);
    free(panels);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_with_and_without),
        cmocka_unit_test(test_wrong_files_are_replaced),
        cmocka_unit_test(test_a_changed_model),
        cmocka_unit_test(test_cut_at_every_page),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_one_writer_at_a_time),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_no_folder),
        cmocka_unit_test(test_nothing_is_written),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_old_files_give_way),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, write_model, NULL);
}
