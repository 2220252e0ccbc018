/* Finding the adapters of tests/fixtures/adapters and what is expected of them. */
#include "support/adapter_fixtures.h"
#include "support/models.h"
#include "support/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

size_t adapter_fixtures(char names[ADAPTER_FIXTURES_MAX][64]) {
    DIR *folder = opendir(test_fixture_path("adapters"));
    assert_non_null(folder);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.' || strchr(entry->d_name, '.') != NULL)
            continue;
        bool experts = strncmp(entry->d_name, "experts", strlen("experts")) == 0;
        if (experts && !test_device_has_threads()) /* only CPUs compute their models */
            continue;
        size_t bytes = strlen(entry->d_name) + 1;
        assert_true(count < ADAPTER_FIXTURES_MAX && bytes <= sizeof(names[0]));
        memcpy(names[count++], entry->d_name, bytes);
    }
    (void)closedir(folder);
    assert_true(count > 20);
    qsort(names, count, 64, by_name);
    return count;
}

static void fixture_file(char *out, size_t capacity, const char *format, const char *name) {
    char relative[256];
    snprintf(relative, sizeof(relative), format, name);
    snprintf(out, capacity, "%s", test_fixture_path(relative));
}

static void forget_missing(char *path) {
    if (file_kind_of(path) == FILE_MISSING)
        path[0] = '\0';
}

void adapter_fixture_open(adapter_fixture *fixture, const char *name) {
    memset(fixture, 0, sizeof(*fixture));
    snprintf(fixture->name, sizeof(fixture->name), "%s", name);
    fixture_file(fixture->path, sizeof(fixture->path), "adapters/%s", name);
    fixture_file(fixture->twin, sizeof(fixture->twin), "adapters/%s.gguf", name);
    forget_missing(fixture->twin);
    char relative[256], base[64];
    snprintf(relative, sizeof(relative), "adapters/%s/base.txt", name);
    FILE *file = fopen(test_fixture_path(relative), "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%63s", base), 1);
    (void)fclose(file);
    fixture_file(fixture->base, sizeof(fixture->base), "models/%s", base);
    fixture_file(fixture->base_twin, sizeof(fixture->base_twin), "models/%s.gguf", base);
    forget_missing(fixture->base_twin);
    uint32_t shape[2];
    file_map ids;
    snprintf(relative, sizeof(relative), "adapters/%s/ids.npy", name);
    const void *numbers = fixture_npy(&ids, relative, "'<i4'", sizeof(int32_t), shape);
    fixture->positions = shape[0];
    assert_true(shape[0] <= sizeof(fixture->ids) / sizeof(fixture->ids[0]));
    memcpy(fixture->ids, numbers, shape[0] * sizeof(int32_t));
    file_map_close(&ids);
    snprintf(relative, sizeof(relative), "adapters/%s/logits.npy", name);
    fixture->logits = fixture_npy(&fixture->logits_file, relative, "'<f4'", sizeof(float), shape);
    fixture->kept = shape[0];
    fixture->vocabulary = shape[1];
    float low = fixture->logits[0], high = low;
    for (size_t i = 0; i < (size_t)fixture->kept * fixture->vocabulary; i++) {
        low = fixture->logits[i] < low ? fixture->logits[i] : low;
        high = fixture->logits[i] > high ? fixture->logits[i] : high;
    }
    fixture->range = high - low;
    assert_true(fixture->kept > 0 && fixture->range > 1.0f);
}

void adapter_fixture_close(adapter_fixture *fixture) {
    file_map_close(&fixture->logits_file);
}
