/* The registry's limits: memory that is asked for before it is taken, and files that cannot be
 * opened.
 */
#include "support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct bench {
    test_allocator counter; /* not for threads */
    avo_model *model;
    avo_registry *registry;
    avo_error error;
} bench;

static void bench_open(bench *b, avo_registry_options options) {
    memset(b, 0, sizeof(*b));
    test_allocator_init(&b->counter);
    avo_model_options model_options = AVO_MODEL_OPTIONS_INIT;
    model_options.allocator = &b->counter.allocator;
    assert_ok_error(
        avo_model_open(test_fixture_path("models/llama2"), &model_options, &b->model, &b->error),
        &b->error);
    assert_ok_error(avo_registry_open(b->model, &options, &b->registry, &b->error), &b->error);
}

static void bench_close(bench *b) {
    avo_registry_close(b->registry);
    avo_model_close(b->model);
    assert_int_equal(b->counter.live, 0);
}

static const char *adapter_path(const char *name) {
    static char paths[4][4096];
    static int turn;
    char relative[256];
    char *path = paths[turn++ % 4];
    snprintf(relative, sizeof(relative), "adapters/%s", name);
    snprintf(path, sizeof(paths[0]), "%s", test_fixture_path(relative));
    return path;
}

/* ---- What is open ---- */

typedef struct seen {
    uint32_t open;
    uint64_t memory;
} seen;

static void see(void *context, const avo_registry_entry *entry) {
    seen *all = context;
    all->open += entry->open;
    all->memory += entry->memory_bytes;
}

static seen look(const bench *b) {
    seen all = {0};
    avo_registry_list(b->registry, see, &all);
    return all;
}

/* What an open adapter of fixture "plain" takes. */
static uint64_t memory_of_one(void) {
    bench b;
    bench_open(&b, (avo_registry_options)AVO_REGISTRY_OPTIONS_INIT);
    assert_ok(avo_registry_load(b.registry, "one", adapter_path("plain"), 0, &b.error));
    uint64_t each = look(&b).memory;
    bench_close(&b);
    return each;
}

/* One that can never fit is refused before its memory is taken; so is one while others are in use.
 */
static void memory_is_asked_for_before_it_is_taken(void **state) {
    (void)state;
    bench b;
    uint64_t each = memory_of_one();
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.memory_max = each * 3 / 4;
    bench_open(&b, options);
    avo_adapter *none = NULL;
    char packed[4200];
    snprintf(packed, sizeof(packed), "%s/asked.avoa", test_scratch_folder());
    assert_ok_error(avo_adapter_open(b.model, adapter_path("plain"), NULL, &none, &b.error),
                    &b.error);
    assert_ok_error(avo_adapter_pack(none, packed, &b.error), &b.error);
    avo_adapter_close(none);
    none = NULL;
    const char *const paths[] = {adapter_path("plain"), packed};
    for (int i = 0; i < 2; i++) {
        size_t live = b.counter.live_bytes;
        b.counter.peak_bytes = live;
        assert_refused(avo_registry_load(b.registry, "a", paths[i], 0, &b.error), AVO_ERROR_FULL,
                       &b.error, "adapter \"a\" takes ");
        size_t refused = b.counter.peak_bytes - live;
        b.counter.peak_bytes = live;
        assert_ok(avo_adapter_open(b.model, paths[i], NULL, &none, &b.error));
        if (i == 0) /* of a packed file nothing is copied anyway */
            assert_true(refused + each / 2 < b.counter.peak_bytes - live);
        avo_adapter_close(none);
        assert_ok(avo_registry_load(b.registry, "lazy", paths[i], AVO_REGISTRY_LAZY, &b.error));
        assert_refused(avo_registry_take(b.registry, "lazy", &none, &b.error), AVO_ERROR_FULL,
                       &b.error, "adapter \"lazy\" takes ");
    }
    bench_close(&b);
    options.memory_max = each * 3 / 2; /* what was reserved and not used is given back */
    bench_open(&b, options);
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%d", i % 3);
        assert_ok_error(avo_registry_load(b.registry, name, adapter_path("plain"), 0, &b.error),
                        &b.error);
        assert_false(avo_registry_load(b.registry, "bad", adapter_path("nowhere"), 0, &b.error) ==
                     AVO_OK);
        assert_int_equal(look(&b).open, 1);
    }
    bench_close(&b);
}

/* Overwrites the bytes of a file where it lies, as cp does. */
static void write_over(const char *from, const char *to) {
    static uint8_t bytes[1 << 20];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "r+b");
    assert_non_null(in);
    assert_non_null(out);
    size_t count = fread(bytes, 1, sizeof(bytes), in);
    assert_true(count > 0 && count < sizeof(bytes));
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(truncate(to, (off_t)count), 0);
    struct timespec times[2] = {{1700000000, 1}, {1700000000, 123456789}};
    assert_int_equal(utimensat(AT_FDCWD, to, times, 0), 0); /* the clock of files is coarse */
}

/* What cannot be opened is not tried again by every request, but it is when its files change. */
static void failures_are_remembered_until_files_change(void **state) {
    (void)state;
    for (int rooted = 0; rooted < 2; rooted++) {
        bench b;
        avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
        options.root = rooted ? test_scratch_folder() : NULL;
        bench_open(&b, options);
        char folder[4200], file[2][4300];
        const char *const names[] = {"adapter_config.json", "adapter_model.safetensors"};
        snprintf(folder, sizeof(folder), "%s/failing-%d", test_scratch_folder(), rooted);
        assert_int_equal(mkdir(folder, 0755), 0);
        for (int i = 0; i < 2; i++) {
            snprintf(file[i], sizeof(file[i]), "%s/%s", folder, names[i]);
            FILE *out = fopen(file[i], "wb");
            assert_non_null(out);
            assert_true(fputs("{}", out) >= 0);
            assert_int_equal(fclose(out), 0);
        }
        avo_adapter *adapter = NULL;
        avo_error first = {0};
        assert_ok(avo_registry_load(b.registry, "bad",
                                    rooted ? folder + strlen(options.root) + 1 : folder,
                                    AVO_REGISTRY_LAZY, &b.error));
        usleep(40000); /* younger files are not trusted */
        size_t before = b.counter.allocations;
        assert_refused(avo_registry_take(b.registry, "bad", &adapter, &first), AVO_ERROR_FORMAT,
                       &first, "");
        size_t opening = b.counter.allocations - before;
        before = b.counter.allocations;
        for (int i = 0; i < 3; i++) {
            assert_refused(avo_registry_take(b.registry, "bad", &adapter, &b.error),
                           AVO_ERROR_FORMAT, &b.error, first.text);
            assert_null(adapter);
        }
        assert_true(opening > 1);
        assert_int_equal(b.counter.allocations, before);
        for (int i = 0; i < 2; i++) {
            char good[4300];
            snprintf(good, sizeof(good), "%s/%s", adapter_path("plain"), names[i]);
            write_over(good, file[i]);
        }
        assert_ok_error(avo_registry_take(b.registry, "bad", &adapter, &b.error), &b.error);
        avo_adapter_close(adapter);
        bench_close(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_asked_for_before_it_is_taken),
        cmocka_unit_test(failures_are_remembered_until_files_change),
    };
    return cmocka_run_group_tests_name("adapters/registry_limits", tests, NULL, NULL);
}
