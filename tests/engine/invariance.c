/* AVO_TEST_THREADS: the same tokens give the same bits, alone and in any company, in any chunks, on
 * any number of threads, again after part of a session was forgotten, and whatever lies in the KV
 * pool's memory. Random schedules on every tiny model; AVO_TEST_SEED=N replays one. */
#include "support/support.h"

#include "base/random.h"
#include "engine/engine.h"
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SESSIONS 3

/* One timeline: its tokens, and its logits when computed alone, token by token, on one thread. */
typedef struct timeline {
    int32_t *ids;
    float *alone;
    avo_session *session;
    uint32_t scored; /* rows asked for in the step at hand */
} timeline;

typedef struct trial {
    const fixture *fixture;
    timeline lines[SESSIONS];
    uint64_t seed;
    uint64_t draws;
} trial;

static uint32_t below(trial *trial, uint32_t limit) {
    return random_at(trial->seed, 0, trial->draws++).words[0] % limit;
}

static void compute_alone(const fixture_engine *opened, const fixture *fixture, timeline *line) {
    avo_error error = {0};
    avo_session *session;
    avo_batch *batch;
    assert_ok_error(avo_session_open(opened->engine, NULL, &session, &error), &error);
    assert_ok_error(avo_batch_open(opened->engine, &batch, &error), &error);
    for (uint32_t i = 0; i < fixture->positions; i++) {
        avo_batch_clear(batch);
        assert_ok(avo_batch_add(batch, session, line->ids + i, 1));
        assert_ok(avo_step(opened->engine, batch));
        memcpy(line->alone + (size_t)i * fixture->vocabulary, avo_batch_logits(batch, session, 0),
               fixture->vocabulary * sizeof(float));
    }
    avo_batch_close(batch);
    avo_session_close(session);
}

static void check_rows(const trial *trial, const timeline *line, avo_batch *batch) {
    size_t vocabulary = trial->fixture->vocabulary;
    uint32_t length = avo_session_length(line->session);
    for (uint32_t i = 0; i < line->scored; i++) {
        uint32_t position = length - line->scored + i;
        const float *row = avo_batch_logits(batch, line->session, i);
        assert_non_null(row);
        if (memcmp(row, line->alone + position * vocabulary, vocabulary * sizeof(float)) != 0)
            fail_msg("%s: position %u differs from the same tokens alone; AVO_TEST_SEED=%llu",
                     trial->fixture->name, position, (unsigned long long)trial->seed);
    }
}

/* Adds a random piece of some sessions, always of `first` unless it is complete. */
static void build_batch(trial *trial, avo_batch *batch, uint32_t first) {
    avo_batch_clear(batch);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        timeline *line = &trial->lines[(first + i) % SESSIONS];
        line->scored = 0;
        uint32_t length = avo_session_length(line->session);
        uint32_t left = trial->fixture->positions - length;
        if (left == 0 || (i > 0 && below(trial, 3) == 0))
            continue;
        uint32_t count = below(trial, 2) == 0 ? 1 : 1 + below(trial, left);
        line->scored = below(trial, count + 1);
        if (avo_batch_add_scored(batch, line->session, line->ids + length, count, line->scored) !=
            AVO_OK)
            fail_msg("add: %s", avo_batch_error(batch)->text);
    }
}

/* A session that is not complete; SESSIONS when there is none. */
static uint32_t choose_unfinished(trial *trial) {
    uint32_t begin = below(trial, SESSIONS);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        uint32_t at = (begin + i) % SESSIONS;
        if (avo_session_length(trial->lines[at].session) < trial->fixture->positions)
            return at;
    }
    return SESSIONS;
}

static void run_schedule(trial *trial, const fixture_engine *opened) {
    avo_error error = {0};
    avo_batch *batch;
    uint32_t forgotten = 0;
    assert_ok_error(avo_batch_open(opened->engine, &batch, &error), &error);
    for (int i = 0; i < SESSIONS; i++)
        assert_ok_error(avo_session_open(opened->engine, NULL, &trial->lines[i].session, &error),
                        &error);
    for (;;) {
        uint32_t first = choose_unfinished(trial);
        if (first == SESSIONS)
            break;
        build_batch(trial, batch, first);
        if (avo_step(opened->engine, batch) != AVO_OK)
            fail_msg("step: %s", avo_batch_error(batch)->text);
        for (int i = 0; i < SESSIONS; i++)
            check_rows(trial, &trial->lines[i], batch);
        if (forgotten < 6 && below(trial, 4) == 0) {
            timeline *line = &trial->lines[below(trial, SESSIONS)];
            uint32_t keep = below(trial, avo_session_length(line->session) + 1);
            assert_ok_error(avo_session_truncate(line->session, keep, &error), &error);
            forgotten++;
        }
    }
    avo_batch_close(batch);
    for (int i = 0; i < SESSIONS; i++)
        avo_session_close(trial->lines[i].session);
}

static void prepare(trial *trial, const char *path, const char *isa) {
    const fixture *fixture = trial->fixture;
    size_t floats = (size_t)fixture->positions * fixture->vocabulary;
    fixture_engine opened;
    fixture_engine_open(&opened, path, isa, fixture->positions, 1, 1);
    for (int i = 0; i < SESSIONS; i++) {
        timeline *line = &trial->lines[i];
        line->ids = malloc(fixture->positions * sizeof(int32_t));
        line->alone = malloc(floats * sizeof(float));
        assert_true(line->ids != NULL && line->alone != NULL);
        for (uint32_t p = 0; p < fixture->positions; p++)
            line->ids[p] = i == 0 ? fixture->ids[p] : (int32_t)below(trial, fixture->vocabulary);
        compute_alone(&opened, fixture, line);
    }
    fixture_engine_close(&opened);
}

/* Fills the pages of all sessions with NaN or infinities, whatever their type. */
static void spoil_pool(const fixture_engine *opened, const fixture *fixture, uint64_t seed) {
    static const uint32_t words[] = {0xffffffffu, 0x7f807f80u, 0xff800000u};
    kv_pool *pool = engine_kv(opened->engine);
    size_t bytes = kv_pool_view(pool)->page_bytes;
    uint32_t pages = SESSIONS * kv_pages_for(fixture->positions);
    uint8_t *page = malloc(bytes);
    assert_non_null(page);
    for (size_t i = 0; i < bytes; i += sizeof(words[0]))
        memcpy(page + i, &words[seed % 3], sizeof(words[0]));
    for (uint32_t i = 0; i < pages; i++)
        assert_ok(kv_pool_page_write(pool, i, page, NULL));
    free(page);
}

static void test_schedules(void **state) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    static const uint32_t threads[] = {
        3}; /* ten times slower: one count shows what they look for */
#else
    static const uint32_t threads[] = {1, 2, 3, 5};
#endif
    const fixture_name *which = *state;
    const char *replay = getenv("AVO_TEST_SEED");
    char relative[256];
    char path[4096];
    fixture_isas isas;
    fixture_isas_find(&isas);
    fixture fixture;
    fixture_open(&fixture, which->name);
    snprintf(relative, sizeof(relative), which->twin ? "models/%s.gguf" : "models/%s", which->name);
    snprintf(path, sizeof(path), "%s", test_fixture_path(relative));
    /* Each thread count with two seeds. */
    size_t counts = sizeof(threads) / sizeof(threads[0]);
    for (size_t turn = 0; turn < 2 * counts; turn++) {
        size_t i = turn % counts;
        trial trial = {.fixture = &fixture, .seed = 1000003 + turn};
        if (replay != NULL)
            trial.seed = strtoull(replay, NULL, 10);
        prepare(&trial, path, isas.name[turn % isas.count]);
        fixture_engine opened;
        fixture_engine_open(&opened, path, isas.name[turn % isas.count], fixture.positions,
                            SESSIONS, threads[i]);
        spoil_pool(&opened, &fixture, trial.seed);
        run_schedule(&trial, &opened);
        fixture_engine_close(&opened);
        for (int line = 0; line < SESSIONS; line++) {
            free(trial.lines[line].ids);
            free(trial.lines[line].alone);
        }
    }
    fixture_close(&fixture);
}

int main(void) {
    size_t count = fixture_count();
    struct CMUnitTest tests[FIXTURE_COUNT];
    for (size_t i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){fixture_names[i].name, test_schedules, NULL, NULL,
                                       (void *)(uintptr_t)&fixture_names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
