/* device/cuda: the fast arithmetic. Bits do not depend on batches, on the split of a prompt, or on
 * how products are launched; results are near those of exact arithmetic; sessions are never mixed.
 * On the emulated card, or on the one that AVO_TEST_CUDA names. AVO_TEST_CUDA_MODELS: the named
 * files alone (tools/cuda_check). */
#include "support/support.h"

#include "pack/pack.h"
#include "support/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *card(void) {
    const char *wanted = getenv("AVO_TEST_CUDA");
    return wanted != NULL ? wanted : "cuda-emulated";
}

static avo_engine *open_engine(const avo_model *model, const char *device, const char *arithmetic,
                               uint32_t rows, uint32_t context) {
    avo_engine *engine = NULL;
    avo_error error = {0};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.arithmetic = arithmetic;
    options.threads = strcmp(device, "cpu") == 0 ? 2 : 0;
    options.kv_type = "f16";
    options.context_max = options.rope_context = context;
    options.sessions_max = 4;
    options.rows_max = options.logits_max = rows;
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    return engine;
}

/* Logits of `count` tokens in steps of at most `rows`; with `beside`, each step has as many rows of
 * another session. */
static void compute(avo_engine *engine, uint32_t count, uint32_t rows, bool beside,
                    uint32_t vocabulary, float *logits) {
    avo_batch *batch;
    avo_session *session, *other;
    avo_error error = {0};
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
    assert_ok_error(avo_session_open(engine, NULL, &other, &error), &error);
    for (uint32_t i = 0; i < count;) {
        int32_t ids[512], others[512];
        uint32_t part = count - i < rows ? count - i : rows;
        for (uint32_t j = 0; j < part; j++) {
            ids[j] = (int32_t)(((i + j) * 7 + 3) % (vocabulary < 90 ? vocabulary : 90));
            others[j] = (int32_t)(((i + j) * 5 + 1) % (vocabulary < 90 ? vocabulary : 90));
        }
        avo_batch_clear(batch);
        if ((beside && avo_batch_add(batch, other, others, part) != AVO_OK) ||
            avo_batch_add_scored(batch, session, ids, part, part) != AVO_OK ||
            avo_step(engine, batch) != AVO_OK)
            fail_msg("step: %s", avo_batch_error(batch)->text);
        for (uint32_t row = 0; row < part; row++, i++)
            memcpy(logits + (size_t)i * vocabulary, avo_batch_logits(batch, session, row),
                   vocabulary * sizeof(float));
    }
    avo_session_close(session);
    avo_session_close(other);
    avo_batch_close(batch);
}

static double relative_error(const float *found, const float *wanted, size_t count) {
    double error = 0, all = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = (double)found[i] - (double)wanted[i];
        error += difference * difference;
        all += (double)wanted[i] * (double)wanted[i];
    }
    return sqrt(error / all);
}

/* Every way gives the bits of the first, which are within `bound` of the processor's. */
static double check_model(const char *path, const char *const *devices, size_t device_count,
                          const uint32_t *rows, size_t row_count, uint32_t count, double bound) {
    avo_model *model;
    avo_error error = {0};
    avo_model_info info = {.size = sizeof(info)};
    assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
    avo_model_describe(model, &info);
    size_t numbers = (size_t)count * info.vocabulary;
    float *first = malloc(numbers * sizeof(float)), *found = malloc(numbers * sizeof(float));
    assert_true(first != NULL && found != NULL);
    avo_engine *engine = open_engine(model, "cpu", "exact", 64, count);
    compute(engine, count, 64, false, info.vocabulary, found);
    avo_engine_close(engine);
    double distance = 0;
    for (size_t i = 0; i < device_count; i++) {
        engine = open_engine(model, devices[i], "fast", 2 * count, count);
        for (size_t j = 0; j < row_count; j++)
            for (int beside = 0; beside < 2; beside++) {
                bool reference = i == 0 && j == 0 && beside == 0;
                float *own = reference ? first : found;
                if (reference) {
                    compute(engine, count, rows[j], false, info.vocabulary, first);
                    distance = relative_error(first, found, numbers);
                    if (!(distance < bound))
                        fail_msg("%s: relative error %g, must be less than %g", path, distance,
                                 bound);
                    continue;
                }
                compute(engine, count, rows[j], beside, info.vocabulary, own);
                if (memcmp(first, own, numbers * sizeof(float)) != 0)
                    fail_msg("%s on %s in steps of %u%s: other bits", path, devices[i], rows[j],
                             beside ? " beside another session" : "");
            }
        avo_engine_close(engine);
    }
    free(first);
    free(found);
    avo_model_close(model);
    return distance;
}

static char *packed(const char *model, pack_type type) {
    static char path[512];
    pack_options options = {.type = type, .threads = 2};
    pack_report report;
    avo_error error = {0};
    snprintf(path, sizeof(path), "%s/cuda-fast.avo", test_scratch_folder());
    if (strchr(model, '/') != NULL)
        assert_ok_error(pack_file(test_fixture_path(model), path, &options, &report, &error),
                        &error);
    else
        assert_ok_error(pack_random(model, 1, path, &options, &report, &error), &error);
    return path;
}

/* Single rows, several in one tile of eight or sixteen, and tiles of many. */
static void bits_do_not_depend_on_batches(void **state) {
    (void)state;
    static const char *const names[] = {"models/llama3", "models/gemma3", "models/qwen2",
                                        "models/gpt2",   "models/opt",    "models/phi3"};
    static const uint32_t rows[] = {1, 3, 11, 16, 23, 44};
    const char *const devices[] = {card()};
    for (size_t i = 0; i < 6; i++) {
        pack_type type = i % 2 == 0 ? PACK_F16 : PACK_BF16;
        check_model(packed(names[i], type), devices, 1, rows, 6, 44,
                    type == PACK_F16 ? 4e-3 : 4e-2);
    }
}

/* Cards without products of warpgroups, one block, no recordings. */
static void bits_do_not_depend_on_launches(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 19};
    const char *const emulated[] = {"cuda-emulated", "cuda-emulated:groups=0",
                                    "cuda-emulated:processors=1", "cuda-emulated:graph=0"};
    const char *const real[] = {card(), "cuda:graph=0", "cuda:early=0"};
    bool is_real = strcmp(card(), "cuda-emulated") != 0;
    size_t count = is_real ? 3 : 4;
#if defined(__SANITIZE_ADDRESS__) /* slow */
    count = 2;
#endif
    check_model(packed("odd", PACK_F16), is_real ? real : emulated, count, rows, 2, 19, 4e-3);
}

/* Heads of 64: attention on tensor cores, of more than one span of 256 positions, in single rows
 * and in tiles. */
static void bits_of_attention_do_not_depend_on_batches(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) /* slow */
    static const uint32_t rows[] = {150};
#else
    static const uint32_t rows[] = {1, 17, 150};
#endif
    const char *const devices[] = {card()};
    check_model(packed("long", PACK_F16), devices, 1, rows, sizeof(rows) / sizeof(rows[0]), 270,
                4e-3);
}

static void sessions_are_not_mixed(void **state) {
    (void)state;
    avo_model *model;
    avo_session *session;
    avo_error error = {0};
    char path[512];
    const char *file = packed("models/llama3", PACK_F16);
    static const char *const way[][2] = {{"exact", "fast"}, {"fast", "exact"}};
    snprintf(path, sizeof(path), "%s/cuda-fast.session", test_scratch_folder());
    assert_ok_error(avo_model_open(file, NULL, &model, &error), &error);
    for (int i = 0; i < 2; i++) {
        avo_engine *engine = open_engine(model, card(), way[i][0], 8, 64);
        assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
        assert_ok_error(avo_session_save(session, path, &error), &error);
        avo_session_close(session);
        avo_engine_close(engine);
        engine = open_engine(model, card(), way[i][0], 8, 64); /* the same arithmetic: restored */
        assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
        assert_ok_error(avo_session_restore(session, path, &error), &error);
        avo_session_close(session);
        avo_engine_close(engine);
        engine = open_engine(model, card(), way[i][1], 8, 64);
        assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
        assert_int_equal(avo_session_restore(session, path, &error), AVO_ERROR_ARGUMENT);
        assert_non_null(strstr(error.text, i == 0 ? "computed with exact arithmetic, this engine "
                                                    "uses fast arithmetic"
                                                  : "computed with fast arithmetic"));
        avo_session_close(session);
        avo_engine_close(engine);
    }
    avo_model_close(model);
}

static void check_plan(const avo_model *model, const char *device, const char *arithmetic,
                       const char *wanted, const char *why) {
    avo_error error = {0};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    avo_plan plan = AVO_PLAN_INIT;
    options.device = device;
    options.arithmetic = arithmetic;
    assert_ok_error(avo_engine_plan(model, &options, &plan, &error), &error);
    assert_string_equal(plan.arithmetic, wanted);
    assert_string_equal(plan.arithmetic_why, why);
}

static void the_model_decides_where_nobody_asks(void **state) {
    (void)state;
    avo_model *model;
    avo_error error = {0};
    assert_ok_error(avo_model_open(packed("models/llama3", PACK_BF16), NULL, &model, &error),
                    &error);
    check_plan(model, card(), NULL, "fast", "most matrices are 16-bit floats");
    check_plan(model, card(), "exact", "exact", "requested");
    check_plan(model, "cpu", NULL, "exact", "device's only one");
    check_plan(model, "ref", "exact", "ref", "requested");
    avo_engine *engine;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = "ref";
    options.arithmetic = "fast";
    assert_int_equal(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_UNSUPPORTED);
    assert_string_equal(error.text, "device ref has no fast arithmetic; use arithmetic \"exact\", "
                                    "or device \"cuda\"");
    options.arithmetic = "quick";
    assert_int_equal(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_ARGUMENT);
    assert_string_equal(error.text, "arithmetic is 'quick', must be \"exact\" or \"fast\"");
    avo_model_close(model);
    assert_ok_error(avo_model_open(packed("models/llama3", PACK_Q4), NULL, &model, &error), &error);
    check_plan(model, card(), NULL, "exact", "matrices are not 16-bit floats");
    check_plan(model, card(), "fast", "fast", "requested");
    avo_model_close(model);
}

/* AVO_TEST_CUDA_MODELS: files, with spaces between. */
static void named_models_have_one_result(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 2, 7, 16, 40, 80};
    const char *const devices[] = {card()};
    char *models = strdup(getenv("AVO_TEST_CUDA_MODELS")), *next = NULL;
    for (char *path = strtok_r(models, " ", &next); path != NULL;
         path = strtok_r(NULL, " ", &next)) {
        double distance = check_model(path, devices, 1, rows, 6, 80, 0.02);
        printf("%s: one result in 11 ways, relative error %.2e\n", path, distance);
    }
    free(models);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_decides_where_nobody_asks),
        cmocka_unit_test(sessions_are_not_mixed),
        cmocka_unit_test(bits_do_not_depend_on_batches),
        cmocka_unit_test(bits_do_not_depend_on_launches),
        cmocka_unit_test(bits_of_attention_do_not_depend_on_batches),
    };
    const struct CMUnitTest named[] = {cmocka_unit_test(named_models_have_one_result)};
    if (getenv("AVO_TEST_CUDA_MODELS") != NULL)
        return cmocka_run_group_tests(named, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
