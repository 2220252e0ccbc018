/* A model, a registry of its adapters, and what the registry says of itself: for the tests of both
 * files about it. Everything inline: a test need not use all of it. */
#ifndef AVO_TESTS_ADAPTERS_REGISTRY_WORLD_H
#define AVO_TESTS_ADAPTERS_REGISTRY_WORLD_H

#include "support/support.h"

#include <stdio.h>
#include <string.h>

typedef struct bench {
    test_allocator counter; /* not for threads */
    avo_model *model;
    avo_registry *registry;
    avo_error error;
} bench;

static inline void bench_open(bench *b, avo_registry_options options) {
    memset(b, 0, sizeof(*b));
    test_allocator_init(&b->counter);
    avo_model_options model_options = AVO_MODEL_OPTIONS_INIT;
    model_options.allocator = &b->counter.allocator;
    assert_ok_error(
        avo_model_open(test_fixture_path("models/llama2"), &model_options, &b->model, &b->error),
        &b->error);
    assert_ok_error(avo_registry_open(b->model, &options, &b->registry, &b->error), &b->error);
}

static inline void bench_close(bench *b) {
    avo_registry_close(b->registry);
    avo_model_close(b->model);
    assert_int_equal(b->counter.live, 0);
}

static inline const char *adapter_path(const char *name) {
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
    uint32_t names, open, users;
    uint64_t memory;
    char last[64];
} seen;

static inline void see(void *context, const avo_registry_entry *entry) {
    seen *all = context;
    assert_true(all->names == 0 || strcmp(all->last, entry->name) < 0);
    snprintf(all->last, sizeof(all->last), "%s", entry->name);
    all->names++;
    all->open += entry->open;
    all->users += entry->users;
    all->memory += entry->memory_bytes;
    assert_int_equal(entry->open, entry->memory_bytes > 0);
}

static inline seen look(const bench *b) {
    seen all = {0};
    avo_registry_list(b->registry, see, &all);
    return all;
}

/* What an open adapter of fixture "plain" takes. */
static inline uint64_t memory_of_one(void) {
    bench b;
    bench_open(&b, (avo_registry_options)AVO_REGISTRY_OPTIONS_INIT);
    assert_ok(avo_registry_load(b.registry, "one", adapter_path("plain"), 0, &b.error));
    uint64_t each = look(&b).memory;
    bench_close(&b);
    return each;
}

#endif
