/* Folders that change while they are read: configuration and weights always belong together.
 * AVO_TEST_THREADS */
#include "support/support.h"

#include "base/file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { OPENINGS = 300 };
#else
enum { OPENINGS = 1500 };
#endif

/* ---- Two versions ---- */

static void write_file(const char *folder, const char *name, const void *data, size_t size) {
    char path[4096], beside[4096 + 8];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(beside, sizeof(beside), "%s.new", path);
    FILE *file = fopen(beside, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(beside, path), 0);
}

static char *read_fixture(const char *name, size_t *size) {
    avo_error error = {0};
    file_map map;
    char relative[256];
    snprintf(relative, sizeof(relative), "adapters/plain/%s", name);
    assert_ok_error(file_map_open(test_fixture_path(relative), &map, &error), &error);
    char *text = malloc(map.bytes.size + 1);
    assert_non_null(text);
    memcpy(text, map.bytes.data, map.bytes.size);
    text[map.bytes.size] = '\0';
    *size = map.bytes.size;
    file_map_close(&map);
    return text;
}

/* Version 2 has another lora_alpha. */
static void write_config(const char *folder, int version) {
    size_t size;
    char *text = read_fixture("adapter_config.json", &size);
    char *alpha = strstr(text, "\"lora_alpha\":5");
    assert_non_null(alpha);
    if (version == 2)
        alpha[strlen("\"lora_alpha\":")] = '7';
    write_file(folder, "adapter_config.json", text, size);
    free(text);
}

/* And another weight. */
static void write_weights(const char *folder, int version) {
    size_t size;
    char *data = read_fixture("adapter_model.safetensors", &size);
    if (version == 2)
        data[size - 2] ^= 0x40;
    write_file(folder, "adapter_model.safetensors", data, size);
    free(data);
}

static void write_version(const char *folder, int version) {
    assert_int_equal(mkdir(folder, 0700), 0);
    write_config(folder, version);
    write_weights(folder, version);
}

static avo_status digest_of(const avo_model *model, const char *path, char digest[33],
                            avo_error *error) {
    avo_adapter *adapter;
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    AVO_TRY(avo_adapter_open(model, path, NULL, &adapter, error));
    avo_adapter_describe(adapter, &info);
    memcpy(digest, info.digest, 33);
    avo_adapter_close(adapter);
    return AVO_OK;
}

typedef struct scene {
    test_allocator counter;
    avo_allocator allocator; /* the same, and somebody who writes while it is asked */
    avo_model *model;
    avo_error error;
    char root[4000], folder[4096];
    int writes;  /* that are still to come, one before each allocation */
    int version; /* of the configuration in `folder` */
    char digest[3][33];
} scene;

static void *allocate(void *context, size_t size, size_t alignment) {
    scene *s = context;
    if (s->writes > 0) {
        s->writes--;
        s->version = 3 - s->version;
        write_config(s->folder, s->version);
    }
    return s->counter.allocator.allocate(s->counter.allocator.context, size, alignment);
}

static void release(void *context, void *memory, size_t size) {
    scene *s = context;
    s->counter.allocator.release(s->counter.allocator.context, memory, size);
}

static void scene_open(scene *s, const char *name) {
    memset(s, 0, sizeof(*s));
    test_allocator_init(&s->counter);
    s->allocator = (avo_allocator){s, allocate, release};
    avo_model_options options = AVO_MODEL_OPTIONS_INIT;
    options.allocator = &s->allocator;
    assert_ok_error(
        avo_model_open(test_fixture_path("models/llama2"), &options, &s->model, &s->error),
        &s->error);
    snprintf(s->root, sizeof(s->root), "%s/%s", test_scratch_folder(), name);
    assert_int_equal(mkdir(s->root, 0700), 0);
    for (int version = 1; version <= 2; version++) {
        snprintf(s->folder, sizeof(s->folder), "%s/v%d", s->root, version);
        write_version(s->folder, version);
        assert_ok_error(digest_of(s->model, s->folder, s->digest[version], &s->error), &s->error);
    }
    assert_string_not_equal(s->digest[1], s->digest[2]);
    s->version = 2; /* and `folder` is that one's */
}

static void scene_close(scene *s) {
    avo_model_close(s->model);
    assert_int_equal(s->counter.live, 0);
}

/* ---- A link that points elsewhere a moment later ---- */

typedef struct swapper {
    const char *root;
    atomic_bool ends;
    atomic_uint swaps;
} swapper;

static void *swap(void *context) {
    swapper *s = context;
    char link[4096], beside[4096];
    snprintf(link, sizeof(link), "%s/current", s->root);
    snprintf(beside, sizeof(beside), "%s/next", s->root);
    for (unsigned i = 0; !atomic_load(&s->ends); i++) {
        if (symlink(i % 2 == 0 ? "v2" : "v1", beside) == 0 && rename(beside, link) == 0)
            atomic_fetch_add(&s->swaps, 1);
    }
    return NULL;
}

static void a_link_is_followed_once(void **state) {
    (void)state;
    scene s;
    scene_open(&s, "links");
    swapper w = {.root = s.root};
    char link[4096];
    snprintf(link, sizeof(link), "%s/current", s.root);
    assert_int_equal(symlink("v1", link), 0);
    avo_registry *registry;
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.root = s.root;
    assert_ok_error(avo_registry_open(s.model, &options, &registry, &s.error), &s.error);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, swap, &w), 0);
    unsigned seen[3] = {0};
    for (unsigned i = 0; i < OPENINGS; i++) {
        char digest[33];
        if (i % 2 == 0) {
            assert_ok_error(digest_of(s.model, link, digest, &s.error), &s.error);
        } else {
            avo_adapter *adapter;
            avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
            assert_ok_error(avo_registry_load(registry, "a", "current", 0, &s.error), &s.error);
            assert_ok_error(avo_registry_take(registry, "a", &adapter, &s.error), &s.error);
            avo_adapter_describe(adapter, &info);
            memcpy(digest, info.digest, 33);
            avo_adapter_close(adapter);
        }
        int version = strcmp(digest, s.digest[1]) == 0   ? 1
                      : strcmp(digest, s.digest[2]) == 0 ? 2
                                                         : 0;
        if (version == 0)
            fail_msg("opening %u%s: one version's configuration with the other's weights", i,
                     i % 2 == 0 ? "" : ", beneath a root");
        seen[version]++;
    }
    atomic_store(&w.ends, true);
    pthread_join(thread, NULL);
    avo_registry_close(registry);
    print_message("  %u swaps; %u of the first, %u of the second\n", atomic_load(&w.swaps), seen[1],
                  seen[2]);
    scene_close(&s);
}

/* ---- A file that is replaced while the folder is read ---- */

static void read_again_and_then_refused(const char *name, bool rooted) {
    scene s;
    scene_open(&s, name);
    avo_registry *registry;
    avo_registry_options options = AVO_REGISTRY_OPTIONS_INIT;
    options.root = rooted ? s.root : NULL;
    assert_ok_error(avo_registry_open(s.model, &options, &registry, &s.error), &s.error);
    const char *path = rooted ? "v2" : s.folder;
    char wanted[33], found[33] = "";
    write_config(s.folder, s.version = 1); /* with the weights of the second */
    assert_ok_error(digest_of(s.model, s.folder, wanted, &s.error), &s.error);
    write_config(s.folder, s.version = 2);
    avo_adapter *adapter;
    avo_adapter_info info = AVO_ADAPTER_INFO_INIT;
    assert_ok_error(avo_registry_load(registry, "a", path, AVO_REGISTRY_LAZY, &s.error), &s.error);
    s.writes = 1; /* when all is opened and nothing read */
    assert_ok_error(avo_registry_take(registry, "a", &adapter, &s.error), &s.error);
    assert_int_equal(s.writes, 0);
    avo_adapter_describe(adapter, &info);
    memcpy(found, info.digest, 33);
    assert_string_equal(found, wanted); /* the newer one, whole */
    avo_adapter_close(adapter);
    assert_ok(avo_registry_unload(registry, "a", &s.error));
    assert_ok_error(avo_registry_load(registry, "b", path, AVO_REGISTRY_LAZY, &s.error), &s.error);
    s.writes = 1000000;
    assert_refused(avo_registry_take(registry, "b", &adapter, &s.error), AVO_ERROR_FORMAT, &s.error,
                   "changed while it was read");
    s.writes = 0;
    avo_registry_close(registry);
    scene_close(&s);
}

static void a_folder_that_changes_is_read_again_and_then_refused(void **state) {
    (void)state;
    read_again_and_then_refused("plain", false);
    read_again_and_then_refused("rooted", true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_is_followed_once),
        cmocka_unit_test(a_folder_that_changes_is_read_again_and_then_refused),
    };
    return cmocka_run_group_tests_name("adapters/swapped", tests, NULL, NULL);
}
