/* hub/panels: the size of a model's repacked weights on disk, and removing them with it and alone.
 */
#include "support/support.h"

#include "hub/hub.h"
#include "model/panel_cache.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[2048];

static void write_file(const char *name, const char *text) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", home, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_folder(const char *name) {
    char path[4096];
    snprintf(path, sizeof(path), "%s%s", home, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* Panels of a model at `name` below the home, with `text` in their place. */
static void write_panels(const char *name, const char *text) {
    char path[4096], real[PATH_MAX], file[48], below[64];
    snprintf(path, sizeof(path), "%s/%s", home, name);
    assert_non_null(realpath(path, real));
    panel_cache_name(real, file);
    snprintf(below, sizeof(below), "panels/%s", file);
    write_file(below, text);
}

static uint64_t all_bytes(void) {
    uint64_t bytes;
    avo_error error = {0};
    assert_ok_error(hub_panels_size(&bytes, &error), &error);
    return bytes;
}

static void test_panels_go_with_their_model(void **state) {
    (void)state;
    hub_models models;
    avo_error error = {0};
    uint64_t freed;
    snprintf(home, sizeof(home), "%s/home", test_scratch_folder());
    assert_int_equal(setenv("AVOCET_HOME", home, 1), 0);
    assert_int_equal(all_bytes(), 0); /* there is no folder yet */
    make_folder("");
    make_folder("/models");
    make_folder("/models/one");
    make_folder("/panels");
    write_file("models/one/a.gguf", "weights");
    write_file("models/one/b.gguf", "others");
    write_file("models/one/avocet-manifest.json",
               "{\"format\": 1, \"name\": \"one\", \"source\": \"s\", \"revision\": \"\", "
               "\"licence\": \"\", \"date\": \"\", \"model\": \"a.gguf\", \"files\": [{\"path\": "
               "\"a.gguf\", \"bytes\": 7, \"sha256\": \"\"}, {\"path\": \"b.gguf\", \"bytes\": 6, "
               "\"sha256\": \"\"}]}");
    write_file("elsewhere.gguf", "weights");
    write_panels("models/one/a.gguf", "12345");
    write_panels("models/one/b.gguf", "123");
    write_panels("elsewhere.gguf", "1234567890");
    write_file("panels/notes.txt", "not a panel");
    assert_int_equal(all_bytes(), 18);
    assert_ok_error(hub_list(&models, &error), &error);
    assert_int_equal(models.count, 1);
    assert_int_equal(hub_panel_bytes(&models.items[0]), 8);
    hub_models_free(&models);
    assert_ok_error(hub_remove("one", &freed, &error), &error);
    assert_true(freed >= 7 + 6 + 8);
    assert_int_equal(all_bytes(), 10);
    assert_ok_error(hub_panels_remove_all(&freed, &error), &error);
    assert_int_equal(freed, 10);
    assert_int_equal(all_bytes(), 0);
    char kept[4096];
    snprintf(kept, sizeof(kept), "%s/panels/notes.txt", home);
    assert_int_equal(access(kept, F_OK), 0);
}

static void test_the_folder(void **state) {
    (void)state;
    char path[256];
    avo_error error = {0};
    setenv("AVOCET_HOME", "/a", 1);
    assert_ok_error(hub_panel_folder(path, sizeof(path), &error), &error);
    assert_string_equal(path, "/a/panels");
    unsetenv("AVOCET_HOME");
    setenv("XDG_CACHE_HOME", "/b", 1);
    assert_ok_error(hub_panel_folder(path, sizeof(path), &error), &error);
    assert_string_equal(path, "/b/avocet/panels");
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/c", 1);
    assert_ok_error(hub_panel_folder(path, sizeof(path), &error), &error);
    assert_string_equal(path, "/c/.cache/avocet/panels");
    unsetenv("HOME");
    assert_int_equal(hub_panel_folder(path, sizeof(path), &error), AVO_ERROR_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_panels_go_with_their_model),
        cmocka_unit_test(test_the_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
