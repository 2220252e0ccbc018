/* spec/corpus: keys see their own texts alone, the least recently used goes first, files come back
 * the same, and damaged ones change nothing. */
#include "support/support.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/random.h"
#include "spec/corpus_file.h"
#include "spec/corpus_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DRAFTS = 5 };

static const corpus_options usual = {
    .tokens_max = 500, .keys_max = 4, .vocabulary = 100, .model_digest = 0x1234};

static corpus *open_usual(void) {
    corpus *opened;
    assert_ok(corpus_open(&usual, NULL, &opened, NULL));
    return opened;
}

static corpus_key key_of(const corpus *corpus, const char *tenant) {
    return corpus_key_of(corpus, tenant, strlen(tenant));
}

static void add(corpus *corpus, const char *tenant, int32_t first, int32_t count) {
    int32_t tokens[100];
    for (int32_t i = 0; i < count; i++)
        tokens[i] = first + i;
    corpus_add(corpus, key_of(corpus, tenant), tokens, (size_t)count);
}

/* What follows these two tokens, or −1. */
static int32_t next_of(corpus *corpus, const char *tenant, int32_t a, int32_t b) {
    int32_t context[] = {a, b}, drafts[DRAFTS];
    suffix_match match = corpus_propose(corpus, key_of(corpus, tenant), context, 2, DRAFTS, drafts);
    return match.length == 2 && match.count > 0 ? drafts[0] : -1;
}

static void test_tenants(void **state) {
    (void)state;
    corpus *corpus = open_usual();
    add(corpus, "a", 10, 20);
    add(corpus, "b", 40, 20);
    assert_int_equal(next_of(corpus, "a", 12, 13), 14);
    assert_int_equal(next_of(corpus, "b", 42, 43), 44);
    assert_int_equal(next_of(corpus, "a", 42, 43), -1);
    assert_int_equal(next_of(corpus, "b", 12, 13), -1);
    assert_int_equal(next_of(corpus, "c", 12, 13), -1);
    /* The same text under two keys, with different ends. */
    static const int32_t one[] = {1, 2, 3}, two[] = {1, 2, 4};
    corpus_add(corpus, key_of(corpus, "a"), one, 3);
    corpus_add(corpus, key_of(corpus, "b"), two, 3);
    assert_int_equal(next_of(corpus, "a", 1, 2), 3);
    assert_int_equal(next_of(corpus, "b", 1, 2), 4);
    /* The end of a newer text does not hide an older one that goes on. */
    corpus_add(corpus, key_of(corpus, "a"), one, 2);
    assert_int_equal(next_of(corpus, "a", 1, 2), 3);
    /* No context reaches from one text into the next. */
    assert_int_equal(next_of(corpus, "a", 29, 1), -1);
    corpus_add(corpus, key_of(corpus, "new"), one, 0); /* nothing */
    assert_int_equal(corpus_count(corpus).keys, 2);
    corpus_clear(corpus);
    assert_int_equal(next_of(corpus, "a", 12, 13), -1);
    assert_int_equal(corpus_count(corpus).keys, 0);
    assert_int_equal(corpus_count(corpus).tokens, 0);
    corpus_close(corpus);
}

static void test_least_recent(void **state) {
    (void)state;
    corpus *corpus = open_usual();
    add(corpus, "a", 10, 20);
    add(corpus, "b", 20, 20);
    add(corpus, "c", 30, 20);
    add(corpus, "d", 40, 20);
    assert_int_equal(corpus_count(corpus).keys, 4);
    assert_int_equal(next_of(corpus, "a", 12, 13), 14); /* used: b is the oldest now */
    add(corpus, "e", 50, 20);
    assert_int_equal(corpus_count(corpus).keys, 4);
    assert_int_equal(next_of(corpus, "b", 22, 23), -1);
    assert_int_equal(next_of(corpus, "e", 52, 53), 54);
    assert_int_equal(next_of(corpus, "e", 22, 23), -1); /* has b's entry, not b's text */
    add(corpus, "b", 60, 20);                           /* c goes; b does not get its text back */
    assert_int_equal(next_of(corpus, "b", 22, 23), -1);
    assert_int_equal(next_of(corpus, "c", 32, 33), -1);
    assert_int_equal(next_of(corpus, "a", 12, 13), 14);
    assert_int_equal(next_of(corpus, "d", 42, 43), 44);
    corpus_close(corpus);
}

/* Past tokens_max the oldest text goes, whosever it is. */
static void test_tokens_max(void **state) {
    (void)state;
    corpus *corpus = open_usual();
    add(corpus, "a", 0, 50);
    for (int i = 0; i < 8; i++)
        add(corpus, "b", 40, 55);
    assert_int_equal(corpus_count(corpus).tokens, 499);
    assert_int_equal(next_of(corpus, "a", 0, 1), 2);
    /* With a break and 5 tokens more the window begins at the 5th token of a's text. */
    add(corpus, "b", 40, 5);
    assert_int_equal(corpus_count(corpus).tokens, 500);
    assert_int_equal(next_of(corpus, "a", 1, 2), -1);
    assert_int_equal(next_of(corpus, "a", 2, 3), 4);
    corpus_close(corpus);
}

static void test_owners_end(void **state) {
    (void)state;
    corpus *corpus = open_usual();
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++)
        add(corpus, names[i], 10 * i, 10);
    uint32_t oldest = corpus->oldest;
    corpus->entries[oldest].owner += UINT32_MAX / 4 * 4 - 3 * 4 + 4; /* the last but one */
    corpus->entries[oldest].owner -= corpus->entries[oldest].owner % 4;
    corpus->entries[oldest].owner += oldest;
    add(corpus, "f", 10, 10);
    assert_int_equal(next_of(corpus, "f", 11, 12), 13);
    assert_int_equal(corpus_count(corpus).keys, 1); /* all were forgotten */
    assert_int_equal(next_of(corpus, "e", 41, 42), -1);
    corpus_close(corpus);
}

static const char *scratch_path(const char *name) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", test_scratch_folder(), name);
    return path;
}

static void fill(corpus *corpus, uint64_t seed, uint32_t texts) {
    static const char *const names[] = {"a", "b", "c", "d"};
    uint64_t counter = seed << 32;
    for (uint32_t i = 0; i < texts; i++) {
        int32_t tokens[80];
        size_t count = 1 + random_at(1, 1, counter++).words[0] % 80;
        for (size_t k = 0; k < count; k++)
            tokens[k] = (int32_t)(random_at(1, 1, counter++).words[0] % 3);
        corpus_add(corpus, key_of(corpus, names[counter % 4]), tokens, count);
    }
}

static void expect_same(corpus *one, corpus *other) {
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    for (uint64_t i = 0; i < 2000; i++) {
        int32_t context[40], drafts[2][DRAFTS];
        size_t count = random_at(2, 2, i).words[0] % 40;
        for (size_t k = 0; k < count; k++)
            context[k] = (int32_t)(random_at(3, i, k).words[0] % 3);
        const char *name = names[i % 5];
        suffix_match a = corpus_propose(one, key_of(one, name), context, count, DRAFTS, drafts[0]);
        suffix_match b =
            corpus_propose(other, key_of(other, name), context, count, DRAFTS, drafts[1]);
        assert_int_equal(a.length, b.length);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(drafts[0], drafts[1], a.count * sizeof(int32_t));
    }
}

static void test_save_load(void **state) {
    (void)state;
    const char *path = scratch_path("texts.corpus");
    avo_error error;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        corpus *saved = open_usual(), *loaded = open_usual();
        fill(saved, seed, (uint32_t)seed * 3 - 3);
        saved->key_seed = seed; /* as if made by another process */
        corpus_clear(saved);
        fill(saved, seed, (uint32_t)seed * 3 - 3); /* 0 … 33 texts: up to 2.6 windows */
        assert_ok_error(corpus_save(saved, path, &error), &error);
        assert_ok_error(corpus_load(loaded, path, &error), &error);
        assert_int_equal(loaded->key_seed, seed);
        assert_int_equal(corpus_count(loaded).keys, corpus_count(saved).keys);
        for (uint32_t a = saved->oldest, b = loaded->oldest; a != CORPUS_NONE;
             a = saved->entries[a].newer, b = loaded->entries[b].newer)
            assert_memory_equal(&saved->entries[a].key, &loaded->entries[b].key,
                                sizeof(corpus_key));
        expect_same(saved, loaded);
        corpus_close(saved);
        corpus_close(loaded);
    }
    struct stat found;
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0600);
}

/* Forgotten keys are not written, and a smaller corpus takes the newest. */
static void test_load_smaller(void **state) {
    (void)state;
    const char *path = scratch_path("smaller.corpus");
    avo_error error;
    corpus *saved = open_usual(), *loaded;
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++)
        add(saved, names[i], 10 * i, 10);
    assert_ok_error(corpus_save(saved, path, &error), &error);
    file_map map;
    assert_ok(file_map_open(path, &map, &error));
    assert_int_equal(map.bytes.size, sizeof(corpus_header) + 4 * (sizeof(corpus_key) + 8 + 40));
    file_map_close(&map);
    corpus_options options = usual;
    options.keys_max = 2;
    options.tokens_max = 18;
    assert_ok(corpus_open(&options, NULL, &loaded, &error));
    assert_ok_error(corpus_load(loaded, path, &error), &error);
    assert_int_equal(corpus_count(loaded).keys, 2);
    assert_int_equal(next_of(loaded, "c", 21, 22), -1);
    assert_int_equal(next_of(loaded, "d", 30, 31), -1);
    assert_int_equal(next_of(loaded, "d", 32, 33), 34);
    assert_int_equal(next_of(loaded, "e", 40, 41), 42);
    assert_refused(corpus_load(loaded, path, &error), AVO_ERROR_ARGUMENT, &error,
                   "already has texts");
    corpus_close(loaded);
    corpus_close(saved);
}

typedef struct image {
    uint8_t *data;
    size_t size;
} image;

static image saved_image(void) {
    const char *path = scratch_path("image.corpus");
    corpus *corpus = open_usual();
    add(corpus, "a", 10, 4);
    add(corpus, "b", 20, 3);
    assert_ok(corpus_save(corpus, path, NULL));
    corpus_close(corpus);
    file_map map;
    assert_ok(file_map_open(path, &map, NULL));
    image image = {test_take_exact(map.bytes.size, 8), map.bytes.size};
    memcpy(image.data, map.bytes.data, image.size);
    file_map_close(&map);
    return image;
}

static void make_sums_right(image image) {
    corpus_header header;
    memcpy(&header, image.data, sizeof(header));
    header.body_sum = hash_bytes(image.data + sizeof(header), image.size - sizeof(header));
    header.header_sum = hash_bytes(&header, offsetof(corpus_header, header_sum));
    memcpy(image.data, &header, sizeof(header));
}

static void expect_refused(image image, avo_status status, const char *part) {
    corpus *corpus = open_usual();
    uint64_t seed = corpus->key_seed;
    avo_error error;
    assert_refused(corpus_load_bytes(corpus, (bytes_view){image.data, image.size}, "file", &error),
                   status, &error, part);
    assert_int_equal(corpus_count(corpus).keys, 0);
    assert_int_equal(corpus_count(corpus).tokens, 0);
    assert_int_equal(corpus->key_seed, seed);
    corpus_close(corpus);
}

static void test_damaged(void **state) {
    (void)state;
    image image = saved_image();
    for (size_t size = 0; size < image.size; size++) {
        uint8_t *part = test_take_exact(size + (size == 0), 8);
        memcpy(part, image.data, size);
        expect_refused((struct image){part, size}, AVO_ERROR_FORMAT, "file: ");
        free(part);
    }
    for (size_t bit = 0; bit < image.size * 8; bit++) {
        corpus *corpus = open_usual();
        image.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        avo_error error;
        assert_int_not_equal(
            corpus_load_bytes(corpus, (bytes_view){image.data, image.size}, "file", &error),
            AVO_OK);
        assert_int_equal(corpus_count(corpus).keys, 0);
        image.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        corpus_close(corpus);
    }
    free(image.data);
}

/* Fields that sums do not protect, because somebody made them right. */
static void test_refused(void **state) {
    (void)state;
    enum { KEYS = sizeof(corpus_header), TEXTS = KEYS + 2 * sizeof(corpus_key) };
    static const struct {
        size_t at;
        uint32_t value;
        avo_status status;
        const char *part;
    } cases[] = {
        {offsetof(corpus_header, magic), 1, AVO_ERROR_FORMAT, "not a corpus file"},
        {offsetof(corpus_header, version), 2, AVO_ERROR_UNSUPPORTED, "version is 2, must be 1"},
        {offsetof(corpus_header, header_bytes), 64, AVO_ERROR_FORMAT, "header is damaged"},
        {offsetof(corpus_header, file_bytes), 7, AVO_ERROR_FORMAT, "must have 7"},
        {offsetof(corpus_header, model_digest), 9, AVO_ERROR_ARGUMENT, "another model"},
        {offsetof(corpus_header, keys), CORPUS_KEYS_MAX + 1, AVO_ERROR_LIMIT, "at most 65536"},
        {offsetof(corpus_header, keys), CORPUS_KEYS_MAX, AVO_ERROR_FORMAT, "too few for 65536"},
        {offsetof(corpus_header, texts), 3, AVO_ERROR_FORMAT, "text 2 of 3 is truncated"},
        {offsetof(corpus_header, texts), 1, AVO_ERROR_FORMAT, "20 bytes behind them"},
        {offsetof(corpus_header, tokens), 8, AVO_ERROR_FORMAT, "must have 8 and 0"},
        {TEXTS, 2, AVO_ERROR_FORMAT, "key 2 of 2"},
        {TEXTS + 4, 0, AVO_ERROR_FORMAT, "0 tokens"},
        {TEXTS + 4, UINT32_MAX, AVO_ERROR_FORMAT, "text 0 of 2 is truncated"},
        {TEXTS + 8, 100, AVO_ERROR_FORMAT, "id is 100, must be 0 to 99"},
        {TEXTS + 12, UINT32_MAX, AVO_ERROR_FORMAT, "token 1: id is -1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        image image = saved_image();
        memcpy(image.data + cases[i].at, &cases[i].value, sizeof(uint32_t));
        make_sums_right(image);
        expect_refused(image, cases[i].status, cases[i].part);
        free(image.data);
    }
    image image = saved_image(); /* the largest id is one */
    int32_t largest = 99;
    memcpy(image.data + TEXTS + 8, &largest, sizeof(largest));
    /* A key that is there twice is one key. */
    memcpy(image.data + KEYS + sizeof(corpus_key), image.data + KEYS, sizeof(corpus_key));
    make_sums_right(image);
    corpus *corpus = open_usual();
    assert_ok(corpus_load_bytes(corpus, (bytes_view){image.data, image.size}, "file", NULL));
    assert_int_equal(corpus_count(corpus).keys, 1);
    corpus_close(corpus);
    free(image.data);
}

static void test_cannot_write(void **state) {
    (void)state;
    corpus *corpus = open_usual();
    avo_error error;
    add(corpus, "a", 10, 20);
    assert_refused(corpus_save(corpus, "/nowhere/at/all.corpus", &error), AVO_ERROR_IO, &error,
                   "/nowhere/at/all.corpus");
    assert_refused(corpus_load(corpus, "/nowhere/at/all.corpus", &error), AVO_ERROR_NOT_FOUND,
                   &error, "/nowhere/at/all.corpus");
    int before = test_entries(test_scratch_folder());
    test_disk_limit(64);
    avo_status status = corpus_save(corpus, scratch_path("full.corpus"), &error);
    test_disk_limit(0);
    assert_int_equal(status, AVO_ERROR_IO);
    assert_int_equal(test_entries(test_scratch_folder()), before);
    corpus_close(corpus);
}

static void test_options(void **state) {
    (void)state;
    avo_error error;
    corpus *corpus = NULL;
    corpus_options options = usual;
    options.keys_max = 0;
    assert_refused(corpus_open(&options, NULL, &corpus, &error), AVO_ERROR_ARGUMENT, &error,
                   "keys_max is 0");
    options.keys_max = CORPUS_KEYS_MAX + 1;
    assert_refused(corpus_open(&options, NULL, &corpus, &error), AVO_ERROR_ARGUMENT, &error,
                   "must be 1 to 65536");
    options.keys_max = CORPUS_KEYS_MAX;
    assert_ok(corpus_open(&options, NULL, &corpus, &error));
    corpus_close(corpus);
    options.vocabulary = 0;
    assert_refused(corpus_open(&options, NULL, &corpus, &error), AVO_ERROR_ARGUMENT, &error,
                   "vocabulary is 0");
    options = usual;
    options.tokens_max = 0;
    assert_refused(corpus_open(&options, NULL, &corpus, &error), AVO_ERROR_ARGUMENT, &error,
                   "tokens_max");
    for (size_t fail_at = 1; fail_at <= 3; fail_at++) {
        corpus = NULL;
        test_allocator allocator;
        test_allocator_init(&allocator);
        allocator.fail_at = fail_at;
        avo_status status = corpus_open(&usual, &allocator.allocator, &corpus, &error);
        assert_int_equal(status, fail_at <= 2 ? AVO_ERROR_MEMORY : AVO_OK);
        if (status == AVO_OK) {
            assert_int_equal(allocator.live_bytes, corpus_bytes(&usual));
            fill(corpus, 1, 50);
            assert_int_equal(allocator.allocations, 2);
        }
        corpus_close(corpus);
        assert_int_equal(allocator.live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tenants),      cmocka_unit_test(test_least_recent),
        cmocka_unit_test(test_tokens_max),   cmocka_unit_test(test_owners_end),
        cmocka_unit_test(test_save_load),    cmocka_unit_test(test_load_smaller),
        cmocka_unit_test(test_damaged),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cannot_write), cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
