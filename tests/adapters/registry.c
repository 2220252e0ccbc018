/* Names of adapters under traffic: versions, pins, memory, a root that cannot be left.
 * AVO_TEST_THREADS */
#include "adapters/registry_world.h"

#include "adapters/packed_int.h"
#include "base/file.h"
#include "base/hash.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CYCLES 500 /* what leaks or races does so in the first ones */
#else
#define CYCLES 10000
#endif

static void digest_of(const avo_adapter *adapter, char out[33]) {
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    avo_adapter_describe(adapter, &info);
    memcpy(out, info.digest, 33);
}

static void names_are_loaded_replaced_and_unloaded(void **state) {
    (void)state;
    bench b;
    bench_open(&b, (avo_registry_options)AVO_REGISTRY_OPTIONS_INIT);
    avo_adapter *first, *second, *none = NULL;
    char one[33], two[33], again[33];
    assert_refused(avo_registry_take(b.registry, "a", &none, &b.error), AVO_ERROR_NOT_FOUND,
                   &b.error, "no adapter is named \"a\"");
    assert_ok_error(avo_registry_load(b.registry, "a", adapter_path("plain"), 0, &b.error),
                    &b.error);
    assert_ok_error(avo_registry_take(b.registry, "a", &first, &b.error), &b.error);
    digest_of(first, one);
    /* A failed load leaves the name as it was. */
    assert_int_not_equal(avo_registry_load(b.registry, "a", adapter_path("conv1d"), 0, &b.error),
                         AVO_OK);
    assert_ok_error(avo_registry_take(b.registry, "a", &second, &b.error), &b.error);
    assert_ptr_equal(first, second);
    avo_adapter_close(second);
    /* Whoever took the first version keeps it. */
    assert_ok_error(avo_registry_load(b.registry, "a", adapter_path("dora"), 0, &b.error),
                    &b.error);
    assert_ok_error(avo_registry_take(b.registry, "a", &second, &b.error), &b.error);
    digest_of(second, two);
    digest_of(first, again);
    assert_string_not_equal(one, two);
    assert_string_equal(one, again);
    assert_ok_error(avo_registry_unload(b.registry, "a", &b.error), &b.error);
    assert_refused(avo_registry_unload(b.registry, "a", &b.error), AVO_ERROR_NOT_FOUND, &b.error,
                   "no adapter is named");
    digest_of(second, again);
    assert_string_equal(two, again);
    avo_adapter_close(first);
    avo_adapter_close(second);
    bench_close(&b);
}

static void wrong_names_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"",    ".",   "..",    "/etc", "a/../b", "a b",
                                        "a\n", "\"x", ".hide", "ä",    "a\\b",   "a..b"};
    static const char *const right[] = {"a", "org/name", "v1.2:latest", "A-b_c.d"};
    bench b;
    bench_open(&b, (avo_registry_options)AVO_REGISTRY_OPTIONS_INIT);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_refused(avo_registry_load(b.registry, wrong[i], adapter_path("plain"),
                                         AVO_REGISTRY_LAZY, &b.error),
                       AVO_ERROR_ARGUMENT, &b.error, "adapter name");
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
        assert_ok_error(avo_registry_load(b.registry, right[i], adapter_path("plain"),
                                          AVO_REGISTRY_LAZY, &b.error),
                        &b.error);
    bench_close(&b);
}

/* ---- The root ---- */

static void copy_file(const char *from, const char *to) {
    avo_error error = {0};
    file_map map;
    file_writer writer;
    assert_ok_error(file_map_open(from, &map, &error), &error);
    assert_ok_error(file_writer_open(&writer, to, &error), &error);
    assert_ok_error(file_writer_append(&writer, map.bytes.data, map.bytes.size, &error), &error);
    assert_ok_error(file_writer_commit(&writer, &error), &error);
    file_map_close(&map);
}

static void make_adapter(const char *folder, const char *from) {
    char a[4600], z[4600];
    (void)mkdir(folder, 0700);
    snprintf(a, sizeof(a), "%s/adapter_config.json", from);
    snprintf(z, sizeof(z), "%s/adapter_config.json", folder);
    copy_file(a, z);
    snprintf(a, sizeof(a), "%s/adapter_model.safetensors", from);
    snprintf(z, sizeof(z), "%s/adapter_model.safetensors", folder);
    copy_file(a, z);
}

static void link_to(const char *target, const char *folder, const char *name) {
    char path[4600];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    (void)unlink(path);
    assert_int_equal(symlink(target, path), 0);
}

static void nothing_leaves_the_root(void **state) {
    (void)state;
    char root[4096], inner[4200], outside[4200], tricky[4200], path[4600];
    snprintf(root, sizeof(root), "%s/root", test_scratch_folder());
    snprintf(inner, sizeof(inner), "%s/good", root);
    snprintf(tricky, sizeof(tricky), "%s/tricky", root);
    snprintf(outside, sizeof(outside), "%s/outside", test_scratch_folder());
    (void)mkdir(root, 0700);
    (void)mkdir(tricky, 0700);
    make_adapter(inner, adapter_path("plain"));
    make_adapter(outside, adapter_path("plain"));
    link_to("good", root, "inside-link");
    link_to("../outside", root, "outside-link");
    link_to(outside, root, "absolute-link");
    /* A folder inside whose weights lie outside. */
    snprintf(path, sizeof(path), "%s/adapter_model.safetensors", outside);
    link_to(path, tricky, "adapter_model.safetensors");
    link_to("../good/adapter_config.json", tricky, "adapter_config.json");
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.root = root;
    bench b;
    bench_open(&b, options);
    assert_ok_error(avo_registry_load(b.registry, "a", "good", 0, &b.error), &b.error);
    assert_ok_error(avo_registry_load(b.registry, "b", "inside-link", 0, &b.error), &b.error);
    assert_ok_error(avo_registry_load(b.registry, "c", "./good/../good", 0, &b.error), &b.error);
    assert_ok_error(avo_registry_load(b.registry, "e", inner, 0, &b.error), &b.error);
    snprintf(path, sizeof(path), "%sother/good", root); /* begins like the root */
    assert_refused(avo_registry_load(b.registry, "d", path, 0, &b.error), AVO_ERROR_ARGUMENT,
                   &b.error, "leaves the adapter root");
    snprintf(path, sizeof(path), "%s/../outside", root);
    assert_refused(avo_registry_load(b.registry, "d", path, 0, &b.error), AVO_ERROR_ARGUMENT,
                   &b.error, "leaves the adapter root");
    static const char *const leaving[] = {"../outside",  "outside-link", "absolute-link",
                                          "tricky",      "/etc",         "good/../../outside",
                                          "../root/good"};
    for (size_t i = 0; i < sizeof(leaving) / sizeof(leaving[0]); i++)
        assert_refused(avo_registry_load(b.registry, "d", leaving[i], 0, &b.error),
                       AVO_ERROR_ARGUMENT, &b.error, "leaves the adapter root");
    assert_refused(avo_registry_load(b.registry, "d", "nowhere", 0, &b.error), AVO_ERROR_NOT_FOUND,
                   &b.error, "no such file");
    avo_adapter *none = NULL;
    assert_ok(avo_registry_load(b.registry, "lazy", "outside-link", AVO_REGISTRY_LAZY, &b.error));
    assert_refused(avo_registry_take(b.registry, "lazy", &none, &b.error), AVO_ERROR_ARGUMENT,
                   &b.error, "leaves the adapter root");
    bench_close(&b);
}

/* Messages are those of adapters outside of a root, and name the files as the caller does. */
static void faults_below_a_root_are_named(void **state) {
    (void)state;
    char root[4096], folder[4200], path[4600], wanted[4800];
    snprintf(root, sizeof(root), "%s/faults", test_scratch_folder());
    (void)mkdir(root, 0700);
    snprintf(folder, sizeof(folder), "%s/one", root);
    (void)mkdir(folder, 0700);
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.root = root;
    bench b;
    bench_open(&b, options);
    assert_refused(avo_registry_load(b.registry, "a", "one", 0, &b.error), AVO_ERROR_NOT_FOUND,
                   &b.error, "one: the folder has no adapter_config.json");
    make_adapter(folder, adapter_path("plain"));
    snprintf(path, sizeof(path), "%s/adapter_model.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    assert_refused(avo_registry_load(b.registry, "a", "one", 0, &b.error), AVO_ERROR_NOT_FOUND,
                   &b.error, "one: the folder has no adapter_model.safetensors");
    snprintf(wanted, sizeof(wanted), "%s: not a regular file", path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_refused(avo_registry_load(b.registry, "a", "one", 0, &b.error), AVO_ERROR_IO, &b.error,
                   wanted);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof(path), "%s/adapter_model.bin", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fclose(file);
    assert_refused(avo_registry_load(b.registry, "a", "one", 0, &b.error), AVO_ERROR_UNSUPPORTED,
                   &b.error, "refusing to read adapter_model.bin, a Python pickle");
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/pipe", root);
    (void)unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(wanted, sizeof(wanted), "%s: not a regular file", path);
    assert_refused(avo_registry_load(b.registry, "a", "pipe", 0, &b.error), AVO_ERROR_IO, &b.error,
                   wanted);
    bench_close(&b);
}

/* ---- Memory ---- */

static void the_least_recently_used_makes_room(void **state) {
    (void)state;
    bench b;
    uint64_t each = memory_of_one();
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.memory_max = 3 * each;
    bench_open(&b, options);
    avo_adapter *held[3], *none = NULL;
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "a%d", i);
        assert_ok(avo_registry_load(b.registry, name, adapter_path("plain"),
                                    AVO_REGISTRY_LAZY | (i == 0 ? AVO_REGISTRY_PINNED : 0),
                                    &b.error));
    }
    assert_int_equal(look(&b).open, 0);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "a%d", i);
        assert_ok_error(avo_registry_take(b.registry, name, &held[0], &b.error), &b.error);
        avo_adapter_close(held[0]);
        seen all = look(&b);
        assert_int_equal(all.names, 100);
        assert_true(all.open <= 3 && all.memory <= 3 * each && all.users == 0);
    }
    /* The pinned one has stayed; those in use stay too, and then there is no room. */
    assert_ok(avo_registry_take(b.registry, "a98", &held[0], &b.error));
    assert_ok(avo_registry_take(b.registry, "a99", &held[1], &b.error));
    assert_int_equal(look(&b).users, 2);
    assert_refused(avo_registry_take(b.registry, "a5", &none, &b.error), AVO_ERROR_FULL, &b.error,
                   "are used by adapters in use");
    avo_adapter_close(held[0]);
    assert_ok_error(avo_registry_take(b.registry, "a5", &held[0], &b.error), &b.error);
    avo_adapter_close(held[0]);
    avo_adapter_close(held[1]);
    bench_close(&b);
}

/* A packed adapter with so many bytes of padding behind its arrays. */
static void write_large(const avo_model *model, const char *path, size_t more) {
    avo_error error = {0};
    avo_adapter *adapter;
    file_map map;
    assert_ok_error(avo_adapter_open(model, adapter_path("plain"), NULL, &adapter, &error), &error);
    assert_ok_error(avo_adapter_pack(adapter, path, &error), &error);
    avo_adapter_close(adapter);
    assert_ok_error(file_map_open(path, &map, &error), &error);
    size_t size = map.bytes.size;
    uint8_t *bytes = calloc(1, size + more);
    assert_non_null(bytes);
    memcpy(bytes, map.bytes.data, size);
    file_map_close(&map);
    packed_header *header = (packed_header *)(void *)bytes;
    header->file_bytes += more;
    header->data_bytes += more;
    header->head_sum = 0;
    header->head_sum =
        hash_bytes(bytes, sizeof(*header) + header->array_count * sizeof(packed_array) +
                              header->module_count * sizeof(packed_module) + header->names_bytes);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size + more, file), size + more);
    assert_int_equal(fclose(file), 0);
    free(bytes);
}

static void hundreds_make_room_at_once_or_none(void **state) {
    (void)state;
    bench b;
    bench_open(&b, (avo_registry_options)AVO_REGISTRY_OPTIONS_INIT);
    assert_ok(avo_registry_load(b.registry, "one", adapter_path("plain"), 0, &b.error));
    uint64_t each = look(&b).memory;
    char large[4200], name[16];
    snprintf(large, sizeof(large), "%s/large.avoa", test_scratch_folder());
    write_large(b.model, large, (size_t)(100 * each));
    bench_close(&b);
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.memory_max = 150 * each;
    bench_open(&b, options);
    avo_adapter *held[60], *none = NULL;
    for (int i = 0; i < 150; i++) {
        snprintf(name, sizeof(name), "a%d", i);
        assert_ok(avo_registry_load(b.registry, name, adapter_path("plain"), 0, &b.error));
        if (i < 60)
            assert_ok(avo_registry_take(b.registry, name, &held[i], &b.error));
    }
    assert_ok(avo_registry_load(b.registry, "large", large, AVO_REGISTRY_LAZY, &b.error));
    /* 90 are idle, and that is not enough: all of them stay. */
    assert_int_equal(look(&b).open, 150);
    assert_refused(avo_registry_load(b.registry, "x", large, 0, &b.error), AVO_ERROR_FULL, &b.error,
                   "are used by adapters in use");
    assert_refused(avo_registry_take(b.registry, "large", &none, &b.error), AVO_ERROR_FULL,
                   &b.error, "are used by adapters in use");
    assert_int_equal(look(&b).open, 150);
    for (int i = 0; i < 60; i++)
        avo_adapter_close(held[i]);
    assert_ok_error(avo_registry_take(b.registry, "large", &none, &b.error), &b.error);
    seen all = look(&b);
    assert_true(all.open < 50 && all.open > 40 && all.memory <= 150 * each);
    avo_adapter_close(none);
    bench_close(&b);
}

static void replaced_versions_count_while_they_are_used(void **state) {
    (void)state;
    bench b;
    uint64_t each = memory_of_one();
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.memory_max = 2 * each;
    bench_open(&b, options);
    avo_adapter *first;
    const char *path = adapter_path("plain");
    assert_ok(avo_registry_load(b.registry, "a", path, AVO_REGISTRY_PINNED, &b.error));
    assert_ok(avo_registry_take(b.registry, "a", &first, &b.error));
    /* Both versions fit; a third adapter does not until the first version is given back. */
    assert_ok_error(avo_registry_load(b.registry, "a", path, AVO_REGISTRY_PINNED, &b.error),
                    &b.error);
    assert_refused(avo_registry_load(b.registry, "b", path, 0, &b.error), AVO_ERROR_FULL, &b.error,
                   "are used by adapters in use");
    avo_adapter_close(first);
    assert_ok_error(avo_registry_load(b.registry, "b", path, 0, &b.error), &b.error);
    /* What is replaced makes room, pinned or not, and unloaded ones in use count as well. */
    assert_ok_error(avo_registry_load(b.registry, "a", path, AVO_REGISTRY_PINNED, &b.error),
                    &b.error);
    assert_int_equal(look(&b).open, 2);
    assert_ok(avo_registry_take(b.registry, "b", &first, &b.error));
    assert_ok(avo_registry_unload(b.registry, "b", &b.error));
    assert_refused(avo_registry_load(b.registry, "b", path, 0, &b.error), AVO_ERROR_FULL, &b.error,
                   "are used by adapters in use");
    avo_registry *gone = b.registry; /* adapters may outlive it */
    b.registry = NULL;
    avo_registry_close(gone);
    avo_adapter_close(first);
    bench_close(&b);
}

static void ten_thousand_cycles_leak_nothing(void **state) {
    (void)state;
    bench b;
    bench_open(&b, (avo_registry_options)AVO_REGISTRY_OPTIONS_INIT);
    static const char *const kinds[] = {"plain", "dora"};
    char wanted[2][33];
    for (int i = 0; i < 2; i++) {
        avo_adapter *adapter;
        assert_ok(avo_adapter_open(b.model, adapter_path(kinds[i]), NULL, &adapter, &b.error));
        digest_of(adapter, wanted[i]);
        avo_adapter_close(adapter);
    }
    size_t live = b.counter.live;
    avo_adapter *before = NULL;
    char digest[33];
    for (int i = 0; i < CYCLES; i++) {
        uint32_t flags = i % 3 == 0 ? 0 : AVO_REGISTRY_LAZY;
        avo_adapter *adapter;
        assert_ok_error(
            avo_registry_load(b.registry, "a", adapter_path(kinds[i % 2]), flags, &b.error),
            &b.error);
        if (i % 8 == 0) {
            assert_ok_error(avo_registry_take(b.registry, "a", &adapter, &b.error), &b.error);
            digest_of(adapter, digest);
            assert_string_equal(digest, wanted[i % 2]);
            avo_adapter_close(before);
            before = adapter;
        }
        if (i % 5 == 0)
            assert_ok_error(avo_registry_unload(b.registry, "a", &b.error), &b.error);
    }
    avo_adapter_close(before);
    (void)!avo_registry_unload(b.registry, "a", &b.error);
    assert_true(b.counter.live <= live + 1); /* the table of names */
    bench_close(&b);
}

/* ---- Threads ---- */

typedef struct traffic {
    avo_registry *registry;
    const char *paths[2];
    char digests[2][33];
    uint32_t turns;
    uint32_t number;
    uint32_t taken; /* out */
    bool wrong;     /* out */
} traffic;

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

static avo_status open_session(const bench *b, avo_adapter *adapter, avo_error *error) {
    avo_engine *engine;
    avo_session *session = NULL;
    avo_adapter_use use = {adapter, 1.0f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = &use;
    options.adapter_count = 1;
    assert_ok_error(avo_engine_open(b->model, NULL, &engine, error), error);
    avo_status status = avo_session_open(engine, &options, &session, error);
    avo_session_close(session);
    avo_engine_close(engine);
    return status;
}

static void packed_files_written_in_place_are_noticed(void **state) {
    (void)state;
    for (int rooted = 0; rooted < 2; rooted++) {
        bench b;
        avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
        options.root = rooted ? test_scratch_folder() : NULL;
        bench_open(&b, options);
        char path[4096], other[4096], one[33], two[33];
        snprintf(path, sizeof(path), "%s/mapped.avoa", test_scratch_folder());
        snprintf(other, sizeof(other), "%s/other.avoa", test_scratch_folder());
        avo_adapter *made, *first, *second;
        assert_ok_error(avo_adapter_open(b.model, adapter_path("plain"), NULL, &made, &b.error),
                        &b.error);
        assert_ok_error(avo_adapter_pack(made, path, &b.error), &b.error);
        avo_adapter_close(made);
        assert_ok_error(avo_adapter_open(b.model, adapter_path("dora"), NULL, &made, &b.error),
                        &b.error);
        assert_ok_error(avo_adapter_pack(made, other, &b.error), &b.error);
        assert_ok_error(
            avo_registry_load(b.registry, "a", rooted ? "mapped.avoa" : path, 0, &b.error),
            &b.error);
        assert_ok_error(avo_registry_take(b.registry, "a", &first, &b.error), &b.error);
        assert_ok_error(open_session(&b, first, &b.error), &b.error);
        write_over(other, path);
        assert_refused(open_session(&b, first, &b.error), AVO_ERROR_FORMAT, &b.error,
                       "mapped.avoa: changed on disk since it was opened");
        assert_ok_error(avo_registry_take(b.registry, "a", &second, &b.error), &b.error);
        digest_of(made, one);
        digest_of(second, two);
        assert_string_equal(one, two);
        assert_ok_error(open_session(&b, second, &b.error), &b.error);
        /* Renamed over: whoever has the old one keeps it. */
        assert_ok_error(avo_adapter_pack(made, path, &b.error), &b.error);
        assert_ok_error(open_session(&b, second, &b.error), &b.error);
        avo_adapter_close(first);
        avo_adapter_close(second);
        avo_adapter_close(made);
        bench_close(&b);
    }
}

static void *change(void *context) {
    traffic *t = context;
    avo_error error;
    for (uint32_t i = 0; i < t->turns; i++) {
        char name[8];
        snprintf(name, sizeof(name), "n%u", (i + t->number) % 3);
        uint32_t flags = i % 2 == 0 ? 0 : AVO_REGISTRY_LAZY;
        if (i % 7 == 6)
            (void)!avo_registry_unload(t->registry, name, &error);
        else if (avo_registry_load(t->registry, name, t->paths[i % 2], flags, &error) != AVO_OK)
            t->wrong = true;
    }
    return NULL;
}

static void *use(void *context) {
    traffic *t = context;
    avo_error error;
    for (uint32_t i = 0; i < 4 * t->turns; i++) {
        char name[8], digest[33];
        avo_adapter *adapter;
        snprintf(name, sizeof(name), "n%u", i % 3);
        avo_status status = avo_registry_take(t->registry, name, &adapter, &error);
        if (status == AVO_ERROR_NOT_FOUND)
            continue;
        if (status != AVO_OK) {
            t->wrong = true;
            continue;
        }
        digest_of(adapter, digest);
        if (strcmp(digest, t->digests[0]) != 0 && strcmp(digest, t->digests[1]) != 0)
            t->wrong = true;
        avo_adapter_module module = AVO_ADAPTER_MODULE_INIT;
        if (!avo_adapter_module_at(adapter, 0, &module) || !(module.norm > 0))
            t->wrong = true;
        avo_adapter_close(adapter);
        t->taken++;
    }
    return NULL;
}

static void many_threads_load_take_and_unload(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model;
    avo_registry *registry;
    traffic all[4];
    pthread_t threads[4];
    assert_ok_error(avo_model_open(test_fixture_path("models/llama2"), NULL, &model, &error),
                    &error);
    assert_ok_error(avo_registry_open(model, NULL, &registry, &error), &error);
    memset(all, 0, sizeof(all));
    for (int i = 0; i < 4; i++) {
        all[i] = (traffic){.registry = registry, .turns = 150, .number = (uint32_t)i};
        all[i].paths[0] = strdup(adapter_path("plain"));
        all[i].paths[1] = strdup(adapter_path("all-linear"));
        for (int j = 0; j < 2; j++) {
            avo_adapter *adapter;
            assert_ok(avo_adapter_open(model, all[i].paths[j], NULL, &adapter, &error));
            digest_of(adapter, all[i].digests[j]);
            avo_adapter_close(adapter);
        }
    }
    /* Known before anybody asks: takers may be done before the first file is read. */
    static const char *const names[] = {"n0", "n1", "n2"};
    for (size_t i = 0; i < 3; i++)
        assert_ok_error(avo_registry_load(registry, names[i], all[0].paths[0], 0, &error), &error);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? change : use, &all[i]), 0);
    uint32_t taken = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(all[i].wrong);
        taken += all[i].taken;
        free((void *)(uintptr_t)all[i].paths[0]);
        free((void *)(uintptr_t)all[i].paths[1]);
    }
    assert_true(taken > 0);
    avo_registry_close(registry);
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_loaded_replaced_and_unloaded),
        cmocka_unit_test(wrong_names_are_refused),
        cmocka_unit_test(nothing_leaves_the_root),
        cmocka_unit_test(faults_below_a_root_are_named),
        cmocka_unit_test(the_least_recently_used_makes_room),
        cmocka_unit_test(hundreds_make_room_at_once_or_none),
        cmocka_unit_test(replaced_versions_count_while_they_are_used),
        cmocka_unit_test(packed_files_written_in_place_are_noticed),
        cmocka_unit_test(ten_thousand_cycles_leak_nothing),
        cmocka_unit_test(many_threads_load_take_and_unload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
