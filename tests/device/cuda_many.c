/* device/cuda: many rows in a step, against a CPU device, to the bit: products on tensor cores,
 * attention in tiles, sessions together. On the emulated card, or on the one that AVO_TEST_CUDA
 * names ("cuda"). */
#include "support/support.h"

#include "pack/pack.h"
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 512

/* The processor computes the emulated card's kernels slowly, and under sanitizers several times
 * more slowly. Kernels and their edges are the same; a card gets all cases, the others fewer. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static const char *card(void) {
    const char *wanted = getenv("AVO_TEST_CUDA");
    return wanted != NULL ? wanted : "cuda-emulated";
}

static bool emulated(void) {
    return strcmp(card(), "cuda-emulated") == 0;
}

/* Logits of all tokens of a session, in steps of at most `rows`. */
static float *compute(avo_model *model, const char *device, const char *kv, uint32_t rows,
                      uint32_t tokens, uint32_t vocabulary) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    avo_error error = {0};
    int32_t ids[TOKENS_MAX];
    float *logits = malloc((size_t)tokens * vocabulary * sizeof(float));
    assert_non_null(logits);
    options.device = device;
    options.threads = strcmp(device, "cpu") == 0 ? 2 : 0;
    options.kv_type = kv;
    options.context_max = options.rope_context = tokens;
    options.rows_max = options.logits_max = rows;
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    for (uint32_t i = 0; i < tokens; i++)
        ids[i] = (int32_t)((i * 7 + 3) % 90);
    for (uint32_t i = 0; i < tokens;) {
        uint32_t part = tokens - i < rows ? tokens - i : rows;
        avo_batch_clear(batch);
        assert_ok(avo_batch_add_scored(batch, session, ids + i, part, part));
        assert_ok(avo_step(engine, batch));
        for (uint32_t row = 0; row < part; row++, i++)
            memcpy(logits + (size_t)i * vocabulary, avo_batch_logits(batch, session, row),
                   vocabulary * sizeof(float));
    }
    avo_batch_close(batch);
    avo_session_close(session);
    avo_engine_close(engine);
    return logits;
}

static void check_case(const char *path, const char *kv, uint32_t rows, const char *way,
                       uint32_t tokens) {
    avo_model *model;
    avo_error error = {0};
    avo_model_info info = {.size = sizeof(info)};
    char name[128];
    assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
    avo_model_describe(model, &info);
    snprintf(name, sizeof(name), "%s:%s", card(), way);
    float *wanted = compute(model, "cpu", kv, rows, tokens, info.vocabulary);
    float *found = compute(model, name, kv, rows, tokens, info.vocabulary);
    if (memcmp(wanted, found, (size_t)tokens * info.vocabulary * sizeof(float)) != 0)
        fail_msg("%s, %s pages, steps of %u rows: other bits", name, kv, rows);
    free(wanted);
    free(found);
    avo_model_close(model);
}

/* Many rows on tensor cores: several super-blocks, rows and panels that do not fill a block. */
static void tiles_have_the_bits_of_the_processor(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%s/cuda.avo", test_scratch_folder());
    pack_options options = {.type = PACK_Q4, .threads = 2};
    pack_report report;
    avo_error error = {0};
    assert_ok_error(pack_random("odd", 1, path, &options, &report, &error), &error);
    static const struct {
        uint32_t rows, tokens;
        const char *way;
    } cases[] = {{70, 142, "wide=0:tile=5"}, {250, 500, "wide=5"},
                 {50, 114, "wide=5"},        {27, 59, "wide=5"},
                 {10, 44, "wide=5"},         {140, 300, "wide=5:processors=1"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strstr(cases[i].way, "processors") != NULL && !emulated())
            continue;
        if (SANITIZED && cases[i].rows > 27)
            continue;
        check_case(path, "f16", cases[i].rows, cases[i].way, cases[i].tokens);
    }
}

/* Only a search for the best scales finds negative multipliers. */
static void negative_multipliers_have_the_bits_of_the_processor(void **state) {
    (void)state;
    static const char *const ways[] = {"wide=5", "wide=0:tile=5"};
    static const uint32_t rows[] = {9, 24, 40, 100};
    char path[512];
    snprintf(path, sizeof(path), "%s/cuda.avo", test_scratch_folder());
    pack_options options = {.type = PACK_Q4, .effort = PACK_EFFORT_SEARCH, .threads = 2};
    pack_report report;
    avo_error error = {0};
    assert_ok_error(pack_file(test_fixture_path("models/llama3"), path, &options, &report, &error),
                    &error);
    for (size_t i = 0; i < (SANITIZED ? 4 : 8); i++) {
        check_case(path, "int8", rows[i / 2], ways[i % 2], 2 * rows[i / 2]);
    }
}

/* Heads of 64 and 128 dimensions have kernels of their own for many rows: several splits, and tiles
 * that are not full. */
static void attention_of_many_rows_has_the_bits_of_the_processor(void **state) {
    (void)state;
    static const char *const shapes[] = {"heads", "short"}, *const kv[] = {"int8", "f16"};
    char path[512];
    snprintf(path, sizeof(path), "%s/cuda.avo", test_scratch_folder());
    for (size_t i = 0; i < 4; i++) {
        pack_options options = {.type = PACK_Q4, .threads = 2};
        pack_report report;
        avo_error error = {0};
        if (emulated() && i != 0 && i != 3) /* each kind of page with one size of heads */
            continue;
        assert_ok_error(pack_random(shapes[i / 2], 1, path, &options, &report, &error), &error);
        check_case(path, kv[i % 2], 147, "tiles=1", SANITIZED && i > 0 ? 150 : 270);
    }
}

/* Tiles of 32 k: bytes with one scale for each row or block, nibbles with and without minima. */
static void tiles_of_units_have_the_bits_of_the_processor(void **state) {
    (void)state;
    static const pack_type types[] = {PACK_Q8, PACK_Q8C, PACK_Q4_0, PACK_Q4_1, PACK_Q4B64};
    char path[512];
    snprintf(path, sizeof(path), "%s/cuda.avo", test_scratch_folder());
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i += SANITIZED ? 3 : 1) {
        pack_options options = {.type = types[i], .threads = 2};
        pack_report report;
        avo_error error = {0};
        assert_ok_error(pack_random("heads", 1, path, &options, &report, &error), &error);
        check_case(path, "int8", 71, "tile=9", emulated() ? 84 : 142);
    }
}

#define TOGETHER        3
#define TOGETHER_TOKENS 300

/* Logits of the last token of sessions that are computed together, a row each. */
static float *compute_together(avo_model *model, const char *kv, const char *device,
                               uint32_t vocabulary) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_engine *engine;
    avo_session *session[TOGETHER];
    avo_batch *batch;
    avo_error error = {0};
    options.device = device;
    options.kv_type = kv;
    options.context_max = options.rope_context = TOGETHER_TOKENS + 1;
    options.sessions_max = TOGETHER;
    options.rows_max = TOGETHER_TOKENS;
    options.logits_max = TOGETHER;
    float *logits = malloc(TOGETHER * (size_t)vocabulary * sizeof(float));
    assert_non_null(logits);
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    for (uint32_t s = 0; s < TOGETHER; s++) {
        int32_t ids[TOGETHER_TOKENS];
        for (uint32_t i = 0; i < TOGETHER_TOKENS; i++)
            ids[i] = (int32_t)((i * (7 + s) + 3) % 90);
        assert_ok_error(avo_session_open(engine, NULL, &session[s], &error), &error);
        avo_batch_clear(batch);
        assert_ok(avo_batch_add(batch, session[s], ids, TOGETHER_TOKENS - 37 * s));
        assert_ok(avo_step(engine, batch));
    }
    avo_batch_clear(batch);
    for (uint32_t s = 0; s < TOGETHER; s++) {
        int32_t id = (int32_t)s;
        assert_ok(avo_batch_add_scored(batch, session[s], &id, 1, 1));
    }
    assert_ok(avo_step(engine, batch));
    for (uint32_t s = 0; s < TOGETHER; s++)
        memcpy(logits + (size_t)s * vocabulary, avo_batch_logits(batch, session[s], 0),
               vocabulary * sizeof(float));
    avo_batch_close(batch);
    for (uint32_t s = 0; s < TOGETHER; s++)
        avo_session_close(session[s]);
    avo_engine_close(engine);
    return logits;
}

static void sessions_together_have_the_bits_of_the_processor(void **state) {
    (void)state;
    static const char *const kv[] = {"int8", "f16"};
    char path[512];
    snprintf(path, sizeof(path), "%s/cuda.avo", test_scratch_folder());
    pack_options options = {.type = PACK_Q4, .threads = 2};
    pack_report report;
    avo_model *model;
    avo_error error = {0};
    avo_model_info info = {.size = sizeof(info)};
    assert_ok_error(pack_random("heads", 1, path, &options, &report, &error), &error);
    assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
    avo_model_describe(model, &info);
    for (size_t i = 0; i < (SANITIZED ? 1 : 2); i++) {
        float *wanted = compute_together(model, kv[i], "cpu", info.vocabulary);
        float *found = compute_together(model, kv[i], card(), info.vocabulary);
        if (memcmp(wanted, found, TOGETHER * (size_t)info.vocabulary * sizeof(float)) != 0)
            fail_msg("%s pages: other bits", kv[i]);
        free(wanted);
        free(found);
    }
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_have_the_bits_of_the_processor),
        cmocka_unit_test(negative_multipliers_have_the_bits_of_the_processor),
        cmocka_unit_test(attention_of_many_rows_has_the_bits_of_the_processor),
        cmocka_unit_test(tiles_of_units_have_the_bits_of_the_processor),
        cmocka_unit_test(sessions_together_have_the_bits_of_the_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
