/* engine/: pages shared between sessions change nothing. A prefix that was found, a fork, a
 * roll-back into a shared page: the logits are those of a session that computed everything itself,
 * bit for bit, for every type of K and V and every back end. AVO_TEST_THREADS */
#include "support/support.h"

#include "base/file.h"
#include "support/adapters.h"
#include "support/models.h"
#include "support/place.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { CONTEXT = 160, SESSIONS = 6 };

static avo_engine_options options_for(const char *isa, const char *kv_type) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 2;
    options.context_max = CONTEXT;
    options.sessions_max = SESSIONS;
    options.rows_max = 24;
    options.device = test_device(isa);
    options.kv_type = kv_type;
    return options;
}

static avo_session *open_salted(place *p, const char *salt) {
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.cache_salt = salt;
    avo_session *session;
    assert_ok_error(avo_session_open(p->engine, &options, &session, &p->error), &p->error);
    return session;
}

/* One that shares with nobody. */
static avo_session *open_lonely(place *p) {
    char salt[32];
    snprintf(salt, sizeof(salt), "lonely %u", p->salts++);
    return open_salted(p, salt);
}

static void make_tokens(const place *p, int32_t *tokens, uint32_t count, uint32_t kind) {
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)((i * 7 + i * i * 3 + kind * 11 + 1) % (p->vocabulary - 3));
}

/* Adds tokens in chunks; the logits of the last one. */
static void extend(place *p, avo_session *session, const int32_t *tokens, uint32_t count,
                   uint32_t chunk, float *logits) {
    for (uint32_t done = 0; done < count;) {
        uint32_t now = count - done < chunk ? count - done : chunk;
        avo_batch_clear(p->batch);
        assert_ok_error(avo_batch_add(p->batch, session, tokens + done, now),
                        avo_batch_error(p->batch));
        assert_ok(avo_step(p->engine, p->batch));
        done += now;
    }
    memcpy(logits, avo_batch_logits(p->batch, session, 0), p->vocabulary * sizeof(float));
}

static void assert_same(const place *p, const float *a, const float *b, const char *what) {
    if (memcmp(a, b, p->vocabulary * sizeof(float)) != 0)
        fail_msg("%s: logits differ", what);
}

/* What a session of its own gives after these tokens. */
static void compute_alone(place *p, const int32_t *tokens, uint32_t count, float *logits) {
    avo_session *session = open_lonely(p);
    extend(p, session, tokens, count, 13, logits);
    avo_session_close(session);
}

/* ---- The properties, on whatever engine ---- */

static void found_prefixes(place *p) {
    static const uint32_t lengths[] = {31, 32, 33, 64, 65, 97, 131};
    float found[PLACE_VOCABULARY_MAX], alone[PLACE_VOCABULARY_MAX];
    int32_t tokens[CONTEXT];
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint32_t length = lengths[i];
        make_tokens(p, tokens, CONTEXT, (uint32_t)i);
        avo_session *first = open_salted(p, "shared");
        extend(p, first, tokens, length, 11, found);
        if (i % 2 == 0) { /* of a past session; else of a live one */
            avo_session_close(first);
            first = NULL;
        }
        avo_session *second = open_salted(p, "shared");
        size_t reused;
        assert_ok(avo_session_reuse(second, tokens, length, &reused, &p->error));
        assert_int_equal(reused, (length - 1) / 32 * 32);
        assert_int_equal(avo_session_length(second), reused);
        assert_memory_equal(avo_session_tokens(second), tokens, reused * sizeof(int32_t));
        extend(p, second, tokens + reused, length - (uint32_t)reused, 24, found);
        compute_alone(p, tokens, length, alone);
        assert_same(p, found, alone, "a prefix found");
        extend(p, second, tokens + length, 9, 2, found);
        compute_alone(p, tokens, length + 9, alone);
        assert_same(p, found, alone, "what follows it");
        avo_session_close(first);
        avo_session_close(second);
    }
}

static void forks_diverge(place *p, uint32_t length) {
    float logits[4][PLACE_VOCABULARY_MAX];
    int32_t left[CONTEXT], right[CONTEXT];
    make_tokens(p, left, CONTEXT, 40 + length);
    make_tokens(p, right, CONTEXT, 41 + length);
    memcpy(right, left, length * sizeof(int32_t));
    avo_session *one = open_salted(p, "forks"), *other;
    extend(p, one, left, length, 17, logits[0]);
    assert_ok(avo_session_fork(one, &other, &p->error));
    assert_int_equal(avo_session_length(other), length);
    for (uint32_t i = 0; i < 3; i++) { /* both in one batch, over the end of a page */
        uint32_t from = length + i * 7;
        avo_batch_clear(p->batch);
        assert_ok(avo_batch_add(p->batch, one, left + from, 7));
        assert_ok(avo_batch_add(p->batch, other, right + from, 7));
        assert_ok(avo_step(p->engine, p->batch));
    }
    for (uint32_t i = 0; i < 2; i++)
        memcpy(logits[i], avo_batch_logits(p->batch, i == 0 ? one : other, 0),
               p->vocabulary * sizeof(float));
    compute_alone(p, left, length + 21, logits[2]);
    compute_alone(p, right, length + 21, logits[3]);
    assert_same(p, logits[0], logits[2], "the forked one");
    assert_same(p, logits[1], logits[3], "the fork");
    avo_session_close(one);
    extend(p, other, right + length + 21, 5, 5, logits[1]);
    compute_alone(p, right, length + 26, logits[3]);
    assert_same(p, logits[1], logits[3], "the fork left alone");
    avo_session_close(other);
}

static void rolled_back(place *p) {
    float logits[PLACE_VOCABULARY_MAX], alone[PLACE_VOCABULARY_MAX];
    int32_t tokens[CONTEXT], others[CONTEXT];
    make_tokens(p, tokens, CONTEXT, 60);
    make_tokens(p, others, CONTEXT, 61);
    memcpy(others, tokens, 41 * sizeof(int32_t));
    avo_session *one = open_salted(p, "back"), *two = open_salted(p, "back");
    extend(p, one, tokens, 100, 19, logits);
    assert_ok(avo_session_reuse(two, tokens, 100, NULL, &p->error));
    assert_int_equal(avo_session_length(two), 96);
    assert_ok(avo_session_truncate(one, 41, &p->error)); /* inside a page that `two` has too */
    extend(p, one, others + 41, 50, 24, logits);
    compute_alone(p, others, 91, alone);
    assert_same(p, logits, alone, "rolled back and on");
    extend(p, two, tokens + 96, 20, 24, logits);
    compute_alone(p, tokens, 116, alone);
    assert_same(p, logits, alone, "the page's other user");
    /* Alone in its page, but the index knows it. */
    assert_ok(avo_session_truncate(one, 70, &p->error));
    extend(p, one, others + 70, 30, 24, logits);
    compute_alone(p, others, 100, alone);
    assert_same(p, logits, alone, "rolled back again");
    avo_session_close(two);
    two = open_salted(p, "back");
    size_t reused;
    assert_ok(avo_session_reuse(two, tokens, 117, &reused, &p->error));
    assert_int_equal(reused, 96);
    extend(p, two, tokens + 96, 20, 24, logits);
    compute_alone(p, tokens, 116, alone);
    assert_same(p, logits, alone, "the prefix is still what it was");
    avo_session_close(one);
    avo_session_close(two);
}

static void every_property(const char *model, const char *isa, const char *kv_type) {
    place p;
    place_open(&p, model, options_for(isa, kv_type));
    found_prefixes(&p);
    forks_diverge(&p, 45);
    forks_diverge(&p, 64);
    forks_diverge(&p, 26);
    rolled_back(&p);
    avo_kv_info kv = AVO_KV_INFO_INIT;
    avo_engine_kv(p.engine, &kv);
    assert_int_equal(kv.pages_used, 0);
    assert_true(kv.pages_cached > 0 && kv.prefix_hit_tokens > 0);
    assert_int_equal(kv.pages_free + kv.pages_cached, kv.pages);
    place_close(&p);
}

static void sharing_changes_no_bit(void **state) {
    (void)state;
    static const char *const types[] = {"f32", "f16", "bf16", "int8", "fp8"};
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t i = 0; i < isas.count; i++) {
        if (i > 0 && i + 1 < isas.count)
            continue; /* the reference and the best; all others have the best one's bits */
        size_t count = sizeof(types) / sizeof(types[0]);
#ifdef __SANITIZE_THREAD__ /* ten times slower: plain loops with one type are enough for a race */
        if (i == 0)
            count = 1;
#endif
        for (size_t t = 0; t < count; t++)
            every_property("models/llama2.gguf", isas.name[i], types[t]);
    }
    every_property("models/gemma3.gguf", NULL, NULL); /* windowed layers */
}

/* ---- What is kept apart, and what is refused ---- */

static void salts_keep_apart(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2.gguf", options_for(NULL, NULL));
    float logits[PLACE_VOCABULARY_MAX];
    int32_t tokens[CONTEXT];
    make_tokens(&p, tokens, CONTEXT, 1);
    static const char *const salts[] = {NULL, "", "a", "b"};
    avo_session *session = open_salted(&p, "a");
    extend(&p, session, tokens, 70, 24, logits);
    avo_session_close(session);
    for (size_t i = 0; i < 4; i++) {
        size_t reused;
        session = open_salted(&p, salts[i]);
        assert_ok(avo_session_reuse(session, tokens, 70, &reused, &p.error));
        assert_int_equal(reused, i == 2 ? 64 : 0);
        avo_session_close(session);
    }
    place_close(&p);
}

/* Adapters and their weights decide what K and V are. */
static void adapters_keep_apart_with(const char *isa) {
    place p;
    place_open(&p, "models/llama2.gguf", options_for(isa, NULL));
    adapter_random_options random = {1, 8, TEST_MATRICES_LINEAR, 0, QUANT_F32, 0.05f};
    avo_adapter *adapter = test_adapter_make(p.model, &random);
    avo_adapter *same = test_adapter_make(p.model, &random); /* the same digest */
    random.seed = 2;
    avo_adapter *another = test_adapter_make(p.model, &random);
    avo_adapter_use uses[] = {{adapter, 1.0f}, {adapter, 0.5f}, {another, 1.0f}, {same, 1.0f}};
    float logits[PLACE_VOCABULARY_MAX], alone[PLACE_VOCABULARY_MAX];
    int32_t tokens[CONTEXT];
    make_tokens(&p, tokens, CONTEXT, 1);
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapter_count = 1;
    for (size_t i = 0; i < 5; i++) {
        avo_session *session;
        size_t reused;
        options.adapters = &uses[i];
        options.adapter_count = i < 4;
        assert_ok_error(avo_session_open(p.engine, &options, &session, &p.error), &p.error);
        assert_ok(avo_session_reuse(session, tokens, 70, &reused, &p.error));
        assert_int_equal(reused, i == 3 ? 64 : 0);
        extend(&p, session, tokens + reused, 70 - (uint32_t)reused, 24, logits);
        if (i == 0)
            memcpy(alone, logits, sizeof(alone));
        assert_true((memcmp(logits, alone, p.vocabulary * sizeof(float)) == 0) ==
                    (i == 0 || i == 3));
        avo_session *fork; /* has the adapters, too */
        assert_ok(avo_session_fork(session, &fork, &p.error));
        float forked[PLACE_VOCABULARY_MAX];
        extend(&p, session, tokens + 70, 3, 24, logits);
        extend(&p, fork, tokens + 70, 3, 24, forked);
        assert_same(&p, logits, forked, "a fork with adapters");
        avo_session_close(fork);
        avo_session_close(session);
    }
    adapter_release(adapter);
    adapter_release(same);
    adapter_release(another);
    place_close(&p);
}

static void adapters_keep_apart(void **state) {
    (void)state;
    adapters_keep_apart_with("ref");
    adapters_keep_apart_with(NULL);
}

static void write_bytes(const char *path, const uint8_t *bytes, size_t size, long seconds) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A packed file is written over while a session computes with it, and then put back, its times
 * included: what was computed from the other numbers is found by nobody. */
static void pages_of_overwritten_files_are_not_found(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2", options_for(NULL, NULL));
    char path[4096];
    snprintf(path, sizeof(path), "%s/overwritten.avoa", test_scratch_folder());
    avo_adapter *made;
    assert_ok_error(
        avo_adapter_open(p.model, test_fixture_path("adapters/plain"), NULL, &made, &p.error),
        &p.error);
    assert_ok_error(avo_adapter_pack(made, path, &p.error), &p.error);
    avo_adapter_close(made);
    file_map map;
    assert_ok_error(file_map_open(path, &map, &p.error), &p.error);
    size_t size = map.bytes.size;
    uint8_t *bytes[2];
    for (int i = 0; i < 2; i++) {
        bytes[i] = malloc(size);
        assert_non_null(bytes[i]);
        memcpy(bytes[i], map.bytes.data, size);
    }
    memset(bytes[1] + size / 2, 0, size / 2);
    file_map_close(&map);
    write_bytes(path, bytes[0], size, 1000000);
    int32_t tokens[CONTEXT];
    float logits[PLACE_VOCABULARY_MAX], right[PLACE_VOCABULARY_MAX], again[PLACE_VOCABULARY_MAX];
    make_tokens(&p, tokens, CONTEXT, 1);
    float *results[] = {right, logits, again};
    avo_adapter *adapter[3];
    avo_session *session[3];
    for (int i = 0; i < 3; i++) {
        struct timespec tick = {0, 20000000}; /* times of changes are coarse */
        nanosleep(&tick, NULL);
        if (i == 2)
            write_bytes(path, bytes[0], size, 1000000);
        assert_ok_error(avo_adapter_open(p.model, path, NULL, &adapter[i], &p.error), &p.error);
        avo_adapter_use use = {adapter[i], 1.0f};
        avo_session_options options = AVO_SESSION_OPTIONS_INIT;
        options.adapters = &use;
        options.adapter_count = 1;
        options.cache_salt = i == 0 ? "apart" : NULL;
        assert_ok_error(avo_session_open(p.engine, &options, &session[i], &p.error), &p.error);
        if (i == 1)
            write_bytes(path, bytes[1], size, 2000000);
        size_t reused;
        assert_ok(avo_session_reuse(session[i], tokens, 70, &reused, &p.error));
        assert_int_equal(reused, 0);
        extend(&p, session[i], tokens, 70, 24, results[i]);
    }
    /* It was overwritten while it was mapped; a device with its own memory had a copy by then. */
    assert_int_equal(memcmp(right, logits, p.vocabulary * sizeof(float)) != 0,
                     !test_device_is_remote());
    assert_same(&p, right, again, "a file that was put back");
    for (int i = 0; i < 3; i++) {
        avo_session_close(session[i]);
        avo_adapter_close(adapter[i]);
    }
    for (int i = 0; i < 2; i++)
        free(bytes[i]);
    place_close(&p);
}

static void wrong_use_is_refused(void **state) {
    (void)state;
    place p;
    avo_engine_options options = options_for(NULL, NULL);
    options.kv_tokens = 96;
    options.sessions_max = 2;
    place_open(&p, "models/llama2.gguf", options);
    float logits[PLACE_VOCABULARY_MAX];
    int32_t tokens[CONTEXT];
    make_tokens(&p, tokens, CONTEXT, 1);
    avo_session *session = open_salted(&p, NULL), *fork, *third;
    extend(&p, session, tokens, 70, 24, logits);
    assert_refused(avo_session_reuse(session, tokens, 70, NULL, &p.error), AVO_ERROR_ARGUMENT,
                   &p.error, "70 tokens");
    avo_batch_clear(p.batch);
    assert_ok(avo_batch_add(p.batch, session, tokens, 1));
    assert_refused(avo_session_fork(session, &fork, &p.error), AVO_ERROR_ARGUMENT, &p.error,
                   "is in a batch");
    avo_batch_clear(p.batch);
    assert_ok(avo_session_fork(session, &fork, &p.error));
    assert_refused(avo_session_fork(session, &third, &p.error), AVO_ERROR_FULL, &p.error, "2");
    /* The shared last page would have to be copied, and there is no page left. */
    assert_refused(avo_batch_add(p.batch, fork, tokens, 1), AVO_ERROR_FULL,
                   avo_batch_error(p.batch), "no KV pages");
    avo_session_close(session);
    extend(&p, fork, tokens + 70, 3, 3, logits);
    float alone[PLACE_VOCABULARY_MAX];
    avo_session_close(fork);
    compute_alone(&p, tokens, 73, alone);
    assert_same(&p, logits, alone, "after waiting for a page");
    place_close(&p);
}

/* A pool far too small for what passes through: pages are given away and computed again. */
static void given_away_pages_are_computed_again(void **state) {
    (void)state;
    place p;
    avo_engine_options options = options_for(NULL, NULL);
    options.kv_tokens = 7 * 32;
    place_open(&p, "models/llama2.gguf", options);
    float logits[PLACE_VOCABULARY_MAX], alone[PLACE_VOCABULARY_MAX];
    int32_t tokens[CONTEXT];
    size_t hits = 0;
    for (uint32_t round = 0; round < 24; round++) {
        uint32_t length = 50 + round * 17 % 50;
        make_tokens(&p, tokens, CONTEXT, round * round % 3);
        avo_session *session = open_salted(&p, NULL);
        size_t reused;
        assert_ok(avo_session_reuse(session, tokens, length, &reused, &p.error));
        hits += reused;
        extend(&p, session, tokens + reused, length - (uint32_t)reused, 24, logits);
        compute_alone(&p, tokens, length, alone);
        assert_same(&p, logits, alone, "in a small pool");
        avo_session_close(session);
    }
    assert_true(hits > 0);
    place_close(&p);
}

/* Sessions come and go, find, fork, copy, roll back and generate without taking memory. */
static void nothing_is_allocated(void **state) {
    (void)state;
    place p;
    place_open(&p, "models/llama2.gguf", options_for(NULL, NULL));
    float logits[PLACE_VOCABULARY_MAX];
    int32_t tokens[CONTEXT];
    make_tokens(&p, tokens, CONTEXT, 1);
    size_t before = p.counter.allocations;
    size_t bytes = p.counter.live_bytes;
    for (uint32_t round = 0; round < 5; round++) {
        avo_session *session = open_salted(&p, "s"), *fork;
        size_t reused;
        assert_ok(avo_session_reuse(session, tokens, 80, &reused, &p.error));
        extend(&p, session, tokens + reused, 80 - (uint32_t)reused, 24, logits);
        assert_ok(avo_session_fork(session, &fork, &p.error));
        avo_batch_clear(p.batch);
        assert_ok(avo_batch_add(p.batch, session, tokens, 5));
        assert_ok(avo_batch_add(p.batch, fork, tokens + 1, 5));
        assert_ok(avo_step(p.engine, p.batch));
        assert_ok(avo_session_truncate(fork, 40, &p.error));
        extend(&p, fork, tokens, 20, 20, logits);
        avo_session_close(session);
        avo_session_close(fork);
    }
    assert_int_equal(p.counter.allocations, before);
    assert_int_equal(p.counter.live_bytes, bytes);
    place_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharing_changes_no_bit),
        cmocka_unit_test(salts_keep_apart),
        cmocka_unit_test(adapters_keep_apart),
        cmocka_unit_test(pages_of_overwritten_files_are_not_found),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(given_away_pages_are_computed_again),
        cmocka_unit_test(nothing_is_allocated),
    };
    return cmocka_run_group_tests_name("engine/sharing", tests, NULL, NULL);
}
