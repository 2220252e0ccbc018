/* A row under adapters gives the same bits alone and in any company: beside rows
 * of the base and of other adapters, in any chunks, on any number of threads, and the fast back
 * ends agree with each other. Random schedules; AVO_TEST_SEED=N replays one. */
#include "support/support.h"

#include "base/random.h"
#include "support/adapters.h"
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADAPTERS  6
#define LINES     7
#define POSITIONS 20

/* Which adapters the timelines have, with which weights. */
typedef struct line_adapters {
    uint32_t count;
    struct {
        uint32_t adapter;
        float weight;
    } use[3];
} line_adapters;
static const line_adapters lines_of[LINES] = {
    {0, {{0, 0.0f}}},
    {1, {{0, 1.0f}}},
    {2, {{1, 0.5f}, {0, 1.0f}}},
    {1, {{0, -0.75f}}},
    {3, {{2, 1.0f}, {3, 0.25f}, {0, 1.5f}}},
    {1, {{4, 1.0f}}},
    {2, {{5, 1.0f}, {3, 1.0f}}},
};

static const adapter_random_options adapters_of[ADAPTERS] = {
    {1, 8, TEST_MATRICES_LINEAR, 0, QUANT_Q8C, 0.1f},
    {2, 3, TEST_MATRICES_ALL, ADAPTER_RANDOM_SHARED | ADAPTER_RANDOM_EMBEDDING, QUANT_Q8C, 0.1f},
    {3, 20, 1u << ADAPTER_QUERY | 1u << ADAPTER_VALUE, ADAPTER_RANDOM_OFFSETS, QUANT_F16, 0.1f},
    {4, 16, TEST_MATRICES_ALL, ADAPTER_RANDOM_GAINS | ADAPTER_RANDOM_NORMS, QUANT_Q8C, 0.1f},
    {5, 1, TEST_MATRICES_ALL,
     ADAPTER_RANDOM_WHOLE | ADAPTER_RANDOM_EMBEDDING_WHOLE | ADAPTER_RANDOM_OFFSETS, QUANT_F32,
     0.1f},
    {6, 40, 1u << ADAPTER_DOWN | 1u << ADAPTER_OUTPUT | 1u << ADAPTER_HEAD,
     ADAPTER_RANDOM_GAINS | ADAPTER_RANDOM_OFFSETS, QUANT_F32, 0.1f},
};

typedef struct trial {
    fixture_engine opened;
    avo_adapter *adapters[ADAPTERS];
    uint32_t vocabulary;
    uint64_t seed, draws;
    avo_session *session[LINES];
    uint32_t scored[LINES];
    float *alone; /* [LINES][POSITIONS][vocabulary] */
} trial;

static uint32_t below(trial *t, uint32_t limit) {
    return random_at(t->seed, 0, t->draws++).words[0] % limit;
}

static int32_t token_at(const trial *t, uint32_t line, uint32_t position) {
    return (int32_t)(random_at(77, line, position).words[0] % t->vocabulary);
}

static void open_adapters(trial *t) {
    for (int i = 0; i < ADAPTERS; i++)
        t->adapters[i] = test_adapter_make(t->opened.model, &adapters_of[i]);
}

static void close_adapters(trial *t) {
    for (int i = 0; i < ADAPTERS; i++)
        adapter_release(t->adapters[i]);
}

static avo_session *open_line(const trial *t, uint32_t line) {
    avo_error error = {0};
    avo_session *session;
    avo_adapter_use use[3];
    for (uint32_t i = 0; i < lines_of[line].count; i++)
        use[i] = (avo_adapter_use){t->adapters[lines_of[line].use[i].adapter],
                                   lines_of[line].use[i].weight};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = use;
    options.adapter_count = lines_of[line].count;
    assert_ok_error(avo_session_open(t->opened.engine, &options, &session, &error), &error);
    return session;
}

static float *alone_at(const trial *t, uint32_t line, uint32_t position) {
    return t->alone + ((size_t)line * POSITIONS + position) * t->vocabulary;
}

static void compute_alone(trial *t, avo_batch *batch) {
    for (uint32_t line = 0; line < LINES; line++) {
        avo_session *session = open_line(t, line);
        for (uint32_t i = 0; i < POSITIONS; i++) {
            int32_t token = token_at(t, line, i);
            avo_batch_clear(batch);
            assert_ok(avo_batch_add(batch, session, &token, 1));
            assert_ok(avo_step(t->opened.engine, batch));
            memcpy(alone_at(t, line, i), avo_batch_logits(batch, session, 0),
                   t->vocabulary * sizeof(float));
        }
        avo_session_close(session);
    }
}

/* Adds a random piece of the line. */
static void add_piece(trial *t, avo_batch *batch, uint32_t line) {
    uint32_t length = avo_session_length(t->session[line]);
    uint32_t left = POSITIONS - length;
    t->scored[line] = 0;
    if (left == 0 || below(t, 4) == 0)
        return;
    uint32_t count = below(t, 2) == 0 ? 1 : 1 + below(t, left);
    int32_t tokens[POSITIONS];
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = token_at(t, line, length + i);
    t->scored[line] = below(t, count + 1);
    if (avo_batch_add_scored(batch, t->session[line], tokens, count, t->scored[line]) != AVO_OK)
        fail_msg("add: %s", avo_batch_error(batch)->text);
}

static void check_line(const trial *t, avo_batch *batch, uint32_t line, const char *name) {
    uint32_t length = avo_session_length(t->session[line]);
    for (uint32_t i = 0; i < t->scored[line]; i++) {
        uint32_t position = length - t->scored[line] + i;
        const float *row = avo_batch_logits(batch, t->session[line], i);
        assert_non_null(row);
        if (memcmp(row, alone_at(t, line, position), t->vocabulary * sizeof(float)) != 0)
            fail_msg("%s: line %u, position %u differs from the same alone; AVO_TEST_SEED=%llu",
                     name, line, position, (unsigned long long)t->seed);
    }
}

static void run_schedule(trial *t, const char *name) {
    avo_error error = {0};
    avo_batch *batch;
    assert_ok_error(avo_batch_open(t->opened.engine, &batch, &error), &error);
    for (uint32_t line = 0; line < LINES; line++)
        t->session[line] = open_line(t, line);
    uint32_t done;
    do {
        avo_batch_clear(batch);
        uint32_t begin = below(t, LINES);
        for (uint32_t i = 0; i < LINES; i++)
            add_piece(t, batch, (begin + i) % LINES);
        if (avo_step(t->opened.engine, batch) == AVO_OK)
            for (uint32_t line = 0; line < LINES; line++)
                check_line(t, batch, line, name);
        done = 0;
        for (uint32_t line = 0; line < LINES; line++)
            done += avo_session_length(t->session[line]) == POSITIONS;
    } while (done < LINES);
    avo_batch_close(batch);
    for (uint32_t line = 0; line < LINES; line++)
        avo_session_close(t->session[line]);
}

static void open_engine(trial *t, const char *path, const char *isa, uint32_t threads) {
    fixture_engine_open(&t->opened, path, isa, POSITIONS, LINES, threads);
    avo_model_info info = {.size = sizeof(info)};
    avo_model_describe(t->opened.model, &info);
    t->vocabulary = info.vocabulary;
    open_adapters(t);
}

static void close_engine(trial *t) {
    close_adapters(t);
    fixture_engine_close(&t->opened);
}

static void test_model(void **state) {
    const char *name = *state;
    const char *replay = getenv("AVO_TEST_SEED");
    char relative[256], path[4096];
    snprintf(relative, sizeof(relative), "models/%s", name);
    snprintf(path, sizeof(path), "%s", test_fixture_path(relative));
    fixture_isas isas;
    fixture_isas_find(&isas);
    float *fast = NULL; /* what the first fast back end gave */
    for (size_t i = 0; i < isas.count; i++) {
        trial t = {.seed = 1000003};
        avo_error error = {0};
        avo_batch *batch;
        open_engine(&t, path, isas.name[i], 1);
        size_t bytes = (size_t)LINES * POSITIONS * t.vocabulary * sizeof(float);
        t.alone = malloc(bytes);
        assert_non_null(t.alone);
        assert_ok_error(avo_batch_open(t.opened.engine, &batch, &error), &error);
        compute_alone(&t, batch);
        avo_batch_close(batch);
        close_engine(&t);
        if (i > 0 && fast != NULL && memcmp(fast, t.alone, bytes) != 0)
            fail_msg("%s: %s and %s differ", name, isas.name[1], isas.name[i]);
        for (uint32_t threads = 1; threads <= 3; threads++) {
            open_engine(&t, path, isas.name[i], threads);
            for (int turn = 0; turn < 2; turn++) {
                t.seed = 1000003 + threads + 100 * (uint64_t)turn;
                t.seed = replay != NULL ? strtoull(replay, NULL, 10) : t.seed;
                t.draws = 0;
                run_schedule(&t, name);
            }
            close_engine(&t);
        }
        if (i == 1)
            fast = t.alone;
        else
            free(t.alone);
    }
    free(fast);
}

int main(void) {
    static const char *const names[] = {"llama2", "qwen3", "gemma3",  "phi3",
                                        "gpt2",   "opt",   "opt-350m"};
    struct CMUnitTest tests[sizeof(names) / sizeof(names[0])];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        tests[i] =
            (struct CMUnitTest){names[i], test_model, NULL, NULL, (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
