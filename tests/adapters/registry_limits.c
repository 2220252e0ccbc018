/* The registry's limits: memory that is asked for before it is taken, and files that cannot be
 * opened.
 */
#include "adapters/registry_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
                       &b.error, "adapter \"a\" needs");
        size_t refused = b.counter.peak_bytes - live;
        b.counter.peak_bytes = live;
        assert_ok(avo_adapter_open(b.model, paths[i], NULL, &none, &b.error));
        if (i == 0) /* of a packed file nothing is copied anyway */
            assert_true(refused + each / 2 < b.counter.peak_bytes - live);
        avo_adapter_close(none);
        assert_ok(avo_registry_load(b.registry, "lazy", paths[i], AVO_REGISTRY_LAZY, &b.error));
        assert_refused(avo_registry_take(b.registry, "lazy", &none, &b.error), AVO_ERROR_FULL,
                       &b.error, "adapter \"lazy\" needs");
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
