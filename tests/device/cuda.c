/* device/cuda: whole models against a CPU device, to the bit (device/cuda_arithmetic.c: numbers,
 * device/cuda_many.c: many rows).
 * On the emulated card, or on the one that AVO_TEST_CUDA names ("cuda"). Failures of the driver
 * fail what needed the call, nothing else. AVO_TEST_CUDA_MODELS: the named files alone, in the
 * named ways (tools/cuda_check). */
#include "support/support.h"

#include "device/cuda/cuda.h"
#include "device/test/cuda_emulated.h"
#include "pack/pack.h"
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *card(void) {
    const char *wanted = getenv("AVO_TEST_CUDA");
    return wanted != NULL ? wanted : "cuda-emulated";
}

/* ---- Whole models ---- */

typedef struct model_case {
    const char *path;
    const char *kv;
    uint32_t rows;   /* of a step, at most */
    const char *way; /* NULL: the usual one; else it alone */
} model_case;

static avo_engine *open_engine(avo_model *model, const model_case *given, const char *device,
                               uint32_t context) {
    avo_engine *engine = NULL;
    avo_error error = {0};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.threads = strcmp(device, "cpu") == 0 && getenv("AVO_TEST_CUDA_MODELS") == NULL ? 2 : 0;
    options.arithmetic = "exact";
    options.kv_type = given->kv;
    options.context_max = options.rope_context = context;
    options.sessions_max = 2;
    options.rows_max = given->rows;
    options.logits_max = given->rows;
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    return engine;
}

/* Logits of all tokens, in steps of at most given->rows. */
static void compute(avo_engine *engine, avo_session *session, const int32_t *ids, uint32_t count,
                    uint32_t rows, uint32_t vocabulary, float *logits) {
    avo_batch *batch;
    avo_error error = {0};
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    for (uint32_t i = 0; i < count;) {
        uint32_t part = count - i < rows ? count - i : rows;
        avo_batch_clear(batch);
        if (avo_batch_add_scored(batch, session, ids + i, part, part) != AVO_OK ||
            avo_step(engine, batch) != AVO_OK)
            fail_msg("step: %s", avo_batch_error(batch)->text);
        for (uint32_t row = 0; row < part; row++, i++)
            memcpy(logits + (size_t)i * vocabulary, avo_batch_logits(batch, session, row),
                   vocabulary * sizeof(float));
    }
    avo_batch_close(batch);
}

/* The first half of the tokens on one device; the session moves through a file, and the other
 * half is computed on the other. */
static float *compute_both(avo_model *model, const model_case *given, const char *first,
                           const char *second, uint32_t count, uint32_t vocabulary) {
    float *logits = malloc((size_t)count * vocabulary * sizeof(float));
    int32_t ids[512];
    char path[256];
    avo_error error = {0};
    assert_non_null(logits);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)((i * 7 + 3) % (vocabulary < 90 ? vocabulary : 90));
    avo_engine *engine = open_engine(model, given, first, count);
    avo_session *session;
    assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
    compute(engine, session, ids, count / 2, given->rows, vocabulary, logits);
    snprintf(path, sizeof(path), "%s/cuda.session", test_scratch_folder());
    if (strcmp(first, second) != 0) {
        assert_ok_error(avo_session_save(session, path, &error), &error);
        avo_session_close(session);
        avo_engine_close(engine);
        engine = open_engine(model, given, second, count);
        assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
        assert_ok_error(avo_session_restore(session, path, &error), &error);
    }
    compute(engine, session, ids + count / 2, count - count / 2, given->rows, vocabulary,
            logits + (size_t)(count / 2) * vocabulary);
    avo_session_close(session);
    avo_engine_close(engine);
    return logits;
}

static void check_case(const model_case *given, uint32_t count) {
    avo_model *model;
    avo_error error = {0};
    avo_model_info info = {.size = sizeof(info)};
    assert_ok_error(avo_model_open(given->path, NULL, &model, &error), &error);
    avo_model_describe(model, &info);
    static const char *const cpu = "cpu";
    float *wanted = compute_both(model, given, cpu, cpu, count, info.vocabulary);
    char own[128];
    snprintf(own, sizeof(own), "%s%s%s", card(), given->way != NULL ? ":" : "",
             given->way != NULL ? given->way : "");
    const char *pairs[][2] = {{own, own}, {cpu, own}, {own, cpu}};
    for (size_t i = 0; i < (given->way != NULL ? 1 : 3); i++) {
        float *found = compute_both(model, given, pairs[i][0], pairs[i][1], count, info.vocabulary);
        if (memcmp(wanted, found, (size_t)count * info.vocabulary * sizeof(float)) != 0)
            fail_msg("%s with %s pages, %s then %s: other bits", given->path, given->kv,
                     pairs[i][0], pairs[i][1]);
        free(found);
    }
    free(wanted);
    avo_model_close(model);
}

static void every_architecture_has_the_bits_of_the_processor(void **state) {
    (void)state;
    static const char *const kv[] = {"f16", "int8", "f32", "fp8", "bf16"};
    for (size_t i = 0; i < FIXTURE_DENSE; i++) {
        char name[256], path[512];
        snprintf(name, sizeof(name), "models/%s", fixture_names[i].name);
        snprintf(path, sizeof(path), "%s", test_fixture_path(name));
        model_case given = {path, kv[i % 5], 40, NULL};
        check_case(&given, 44);
        given.kv = kv[(i + 1) % 5];
        given.rows = 7;
        check_case(&given, 40);
    }
}

static void every_type_has_the_bits_of_the_processor(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%s/cuda.avo", test_scratch_folder());
    for (int type = 0; type < PACK_KEEP; type++) {
        pack_options options = {
            .type = (pack_type)type, .effort = PACK_EFFORT_SEARCH, .threads = 2};
        pack_report report;
        avo_error error = {0};
        assert_ok_error(
            pack_file(test_fixture_path("models/qwen2"), path, &options, &report, &error), &error);
        model_case given = {path, "f16", 9, NULL};
        check_case(&given, 40);
    }
}

/* Steps of few rows, as decoding has them: recorded once, products with their input in one kernel.
 * Only a search for the best scales finds negative multipliers. */
static void few_rows_have_the_bits_of_the_processor(void **state) {
    (void)state;
    static const char *const names[] = {"models/llama3", "models/gemma3", "models/qwen2",
                                        "models/gpt2",   "models/opt",    "models/phi3"};
    static const pack_type types[] = {PACK_Q4, PACK_Q8, PACK_F16};
    char path[512], name[512];
    snprintf(path, sizeof(path), "%s/cuda.avo", test_scratch_folder());
    for (size_t i = 0; i < 6; i++)
        for (size_t t = 0; t < 3; t++) {
            pack_options options = {.type = types[t], .effort = PACK_EFFORT_SEARCH, .threads = 2};
            pack_report report;
            avo_error error = {0};
            snprintf(name, sizeof(name), "%s", test_fixture_path(names[i]));
            assert_ok_error(pack_file(name, path, &options, &report, &error), &error);
            model_case given = {path, i % 2 == 0 ? "f16" : "int8", 1 + (uint32_t)(i + t) % 4, NULL};
            check_case(&given, 16);
            given.way = i % 2 == 0 ? "depth=1" : "ready=0";
            given.rows = 5 + (uint32_t)(i + t) % 4;
            check_case(&given, 8);
        }
}

/* Several super-blocks of k, the last one short; blocks with many panels, and more than fit a
 * round. */
static void larger_models_have_the_bits_of_the_processor(void **state) {
    (void)state;
    static const struct {
        const char *shape, *way;
        pack_type type;
        uint32_t rows;
    } cases[] = {{"short", "whole=0", PACK_Q4, 4},       {"odd", "rung=2", PACK_Q4, 2},
                 {"odd", "depth=3:ready=2", PACK_Q4, 8}, {"short", "ready=0", PACK_Q8, 6},
                 {"odd", "rung=2", PACK_Q8, 2},          {"odd", "whole=0", PACK_Q8, 7},
                 {"odd", "rung=2", PACK_F16, 3},         {"short", "lines=1024", PACK_F16, 2}};
    char path[512];
    snprintf(path, sizeof(path), "%s/cuda.avo", test_scratch_folder());
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pack_options options = {.type = cases[i].type, .threads = 2};
        pack_report report;
        avo_error error = {0};
        assert_ok_error(pack_random(cases[i].shape, 1, path, &options, &report, &error), &error);
        model_case given = {path, "f16", cases[i].rows, cases[i].way};
        check_case(&given, 8);
    }
}

/* Every way to compute a step. */
static void every_way_has_the_same_bits(void **state) {
    (void)state;
    static const char *const ways[] = {"rung=1",
                                       "graph=0",
                                       "early=0",
                                       "ahead=0",
                                       "pair=0",
                                       "whole=0",
                                       "whole=1",
                                       "attend=1",
                                       "depth=1:early=0:graph=0",
                                       "depth=3:whole=1",
                                       "ready=0:ahead=96:room=116",
                                       "processors=1",
                                       "processors=1:whole=16",
                                       "rung=1:tile=1"};
    char path[512];
    snprintf(path, sizeof(path), "%s/cuda.avo", test_scratch_folder());
    pack_options options = {.type = PACK_Q4, .effort = PACK_EFFORT_SEARCH, .threads = 2};
    pack_report report;
    avo_model *model;
    avo_error error = {0};
    avo_model_info info = {.size = sizeof(info)};
    assert_ok_error(pack_file(test_fixture_path("models/llama3"), path, &options, &report, &error),
                    &error);
    assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
    avo_model_describe(model, &info);
    model_case given = {path, "f16", 1, NULL};
    float *wanted = compute_both(model, &given, "cpu", "cpu", 20, info.vocabulary);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        char name[64];
        if (strncmp(ways[i], "processors", 10) == 0 && strcmp(card(), "cuda-emulated") != 0)
            continue;
        snprintf(name, sizeof(name), "%s:%s", card(), ways[i]);
        float *found = compute_both(model, &given, name, name, 20, info.vocabulary);
        if (memcmp(wanted, found, 20 * (size_t)info.vocabulary * sizeof(float)) != 0)
            fail_msg("%s: other bits", ways[i]);
        free(found);
    }
    free(wanted);
    avo_model_close(model);
}

/* ---- Models and ways that the caller names ---- */

#define NAMED_TOKENS 24

/* AVO_TEST_CUDA_TOKENS of a session, at most 512: steps have 1 and 3 rows, or as many as that. */
static uint32_t named_tokens(void) {
    const char *wanted = getenv("AVO_TEST_CUDA_TOKENS");
    return wanted != NULL ? (uint32_t)strtoul(wanted, NULL, 10) : NAMED_TOKENS;
}

static const char *named_kv(void) {
    const char *wanted = getenv("AVO_TEST_CUDA_KV");
    return wanted != NULL ? wanted : "f16";
}

static void compare_named(avo_model *model, const char *path, const char *way, const float *wanted,
                          uint32_t vocabulary, uint32_t *others) {
    static const uint32_t counts[] = {1, 3, 8};
    uint32_t tokens = named_tokens(), many = getenv("AVO_TEST_CUDA_TOKENS") != NULL;
    for (uint32_t i = 0; i < (many ? 1 : 3); i++) {
        uint32_t rows = many ? tokens : counts[i];
        char name[256];
        model_case given = {path, named_kv(), rows, NULL};
        snprintf(name, sizeof(name), "%s%s%s", card(), strcmp(way, "-") == 0 ? "" : ":",
                 strcmp(way, "-") == 0 ? "" : way);
        float *found = compute_both(model, &given, name, name, tokens, vocabulary);
        uint32_t token = 0;
        while (token < tokens &&
               memcmp(wanted + (size_t)token * vocabulary, found + (size_t)token * vocabulary,
                      vocabulary * sizeof(float)) == 0)
            token++;
        printf("%s, %s, steps of %u: %s", path, way, rows,
               token == tokens ? "the processor's bits\n" : "OTHER BITS");
        if (token < tokens) {
            printf(" from token %u\n", token);
            ++*others;
        }
        fflush(stdout);
        free(found);
    }
}

/* AVO_TEST_CUDA_MODELS and AVO_TEST_CUDA_WAYS: files and ways ("-": the usual one), with spaces
 * between. */
static void named_models_have_the_bits_of_the_processor(void **state) {
    (void)state;
    uint32_t others = 0;
    char *models = strdup(getenv("AVO_TEST_CUDA_MODELS")), *next_model = NULL;
    const char *wanted_ways = getenv("AVO_TEST_CUDA_WAYS");
    for (char *path = strtok_r(models, " ", &next_model); path != NULL;
         path = strtok_r(NULL, " ", &next_model)) {
        avo_model *model;
        avo_error error = {0};
        avo_model_info info = {.size = sizeof(info)};
        assert_ok_error(avo_model_open(path, NULL, &model, &error), &error);
        avo_model_describe(model, &info);
        model_case given = {path, named_kv(), named_tokens(), NULL};
        float *wanted = compute_both(model, &given, "cpu", "cpu", named_tokens(), info.vocabulary);
        char *ways = strdup(wanted_ways != NULL ? wanted_ways : "-"), *next_way = NULL;
        for (char *way = strtok_r(ways, " ", &next_way); way != NULL;
             way = strtok_r(NULL, " ", &next_way))
            compare_named(model, path, way, wanted, info.vocabulary, &others);
        free(ways);
        free(wanted);
        avo_model_close(model);
    }
    free(models);
    assert_int_equal(others, 0);
}

/* More than one split of 256 positions, with and without a window and a soft cap. */
static void long_sessions_have_the_bits_of_the_processor(void **state) {
    (void)state;
    static const char *const names[] = {"models/llama3", "models/gemma3", "models/mistral"};
    static const char *const kv[] = {"f16", "int8", "fp8"};
    for (size_t i = 0; i < 3; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s", test_fixture_path(names[i]));
        model_case given = {path, kv[i], 64, NULL};
        check_case(&given, 320);
#if defined(__SANITIZE_ADDRESS__) /* slow: one by one only with a window and a soft cap */
        if (i != 1)
            continue;
#endif
        given.rows = 1;
        check_case(&given, 272);
    }
}

/* ---- Hidden states ---- */

#define TAPPED 9 /* tokens, in steps of 5 and 4 */

/* Of every token, the states before each layer and behind the last one, then behind the last norm:
 * [TAPPED][layers + 2][width]. */
static float *compute_states(avo_model *model, const char *device, uint32_t layers,
                             uint32_t width) {
    static const int32_t ids[TAPPED] = {1, 5, 9, 3, 7, 11, 2, 4, 6};
    uint32_t taps[16];
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.arithmetic = "exact";
    options.context_max = 32;
    options.taps = taps;
    options.tap_count = layers + 1;
    for (uint32_t i = 0; i <= layers; i++)
        taps[i] = i;
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    avo_error error = {0};
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    float *states = malloc((size_t)TAPPED * (layers + 2) * width * sizeof(float)), *to = states;
    assert_non_null(states);
    for (uint32_t first = 0, rows = 5; first < TAPPED; first += rows, rows = TAPPED - first) {
        avo_batch_clear(batch);
        assert_ok(avo_batch_add(batch, session, ids + first, rows));
        assert_ok(avo_step(engine, batch));
        for (uint32_t row = 0; row < rows; row++)
            for (uint32_t layer = 0; layer < layers + 2; layer++, to += width) {
                const float *found = layer <= layers ? avo_batch_tap(batch, session, layer, row, 1)
                                                     : avo_batch_hidden(batch, session, row, 1);
                assert_non_null(found);
                memcpy(to, found, width * sizeof(float));
            }
    }
    avo_batch_close(batch);
    avo_session_close(session);
    avo_engine_close(engine);
    return states;
}

static void hidden_states_have_the_bits_of_the_processor(void **state) {
    (void)state;
    static const char *const names[] = {"models/llama3", "models/gemma3", "models/opt",
                                        "models/gpt2"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        avo_model *model;
        avo_error error = {0};
        avo_model_info info = {.size = sizeof(info)};
        assert_ok_error(avo_model_open(test_fixture_path(names[i]), NULL, &model, &error), &error);
        avo_model_describe(model, &info);
        float *wanted = compute_states(model, "cpu", info.layers, info.width);
        float *found = compute_states(model, card(), info.layers, info.width);
        if (memcmp(wanted, found,
                   (size_t)TAPPED * (info.layers + 2) * info.width * sizeof(float)) != 0)
            fail_msg("%s: other bits", names[i]);
        free(wanted);
        free(found);
        avo_model_close(model);
    }
}

/* ---- Adapters ---- */

#define ADAPTED 12 /* tokens */

static float *compute_adapted(avo_model *model, avo_adapter *adapter, const char *device,
                              uint32_t vocabulary) {
    static const int32_t ids[ADAPTED] = {1, 5, 9, 3, 7, 11, 2, 4, 6, 8, 10, 12};
    model_case given = {NULL, "f16", ADAPTED, NULL};
    avo_engine *engine = open_engine(model, &given, device, 32);
    avo_adapter_use use = {adapter, 0.75f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    avo_session *session;
    avo_error error = {0};
    float *logits = malloc((size_t)ADAPTED * vocabulary * sizeof(float));
    assert_non_null(logits);
    options.adapters = &use;
    options.adapter_count = 1;
    assert_ok_error(avo_session_open(engine, &options, &session, &error), &error);
    compute(engine, session, ids, ADAPTED, 5, vocabulary, logits);
    avo_session_close(session);
    avo_engine_close(engine);
    return logits;
}

/* Every pair of an adapter and a model that fit: low rank, gains, offsets, norms, embeddings. */
static void adapters_have_the_bits_of_the_processor(void **state) {
    (void)state;
    static const char *const adapters[] = {"all-linear",  "bias-all",        "dora",
                                           "dora-bias",   "dora-conv1d",     "conv1d",
                                           "embedding",   "embedding-gemma", "embedding-head",
                                           "saved-norms", "saved-linear",    "rank-forty"};
    static const char *const models[] = {"llama2", "llama3", "gpt2", "gemma3", "qwen2"};
    uint32_t compared = 0;
    for (size_t i = 0; i < 60; i++) {
        char name[128], path[512];
        avo_model *model;
        avo_adapter *adapter;
        avo_error error = {0};
        avo_model_info info = {.size = sizeof(info)};
        snprintf(name, sizeof(name), "models/%s", models[i % 5]);
        assert_ok_error(avo_model_open(test_fixture_path(name), NULL, &model, &error), &error);
        avo_model_describe(model, &info);
        snprintf(name, sizeof(name), "adapters/%s", adapters[i / 5]);
        snprintf(path, sizeof(path), "%s", test_fixture_path(name));
        if (avo_adapter_open(model, path, NULL, &adapter, &error) == AVO_OK) {
            float *wanted = compute_adapted(model, adapter, "cpu", info.vocabulary);
            float *found = compute_adapted(model, adapter, card(), info.vocabulary);
            if (memcmp(wanted, found, (size_t)ADAPTED * info.vocabulary * sizeof(float)) != 0)
                fail_msg("%s on %s: other bits", adapters[i / 5], models[i % 5]);
            free(wanted);
            free(found);
            avo_adapter_close(adapter);
            compared++;
        }
        avo_model_close(model);
    }
    print_message("  %u pairs compared\n", compared);
    assert_true(compared >= 5);
}

/* ---- Failures ---- */

static avo_status answer(avo_model *model, const char *device, avo_error *error) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.arithmetic = "exact";
    options.context_max = 64;
    options.sessions_max = 1;
    avo_engine *engine;
    avo_session *session = NULL;
    avo_batch *batch = NULL;
    static const int32_t ids[] = {1, 2, 3, 4, 5};
    avo_status status = avo_engine_open(model, &options, &engine, error);
    if (status != AVO_OK)
        return status;
    status = avo_session_open(engine, NULL, &session, error);
    if (status == AVO_OK)
        status = avo_batch_open(engine, &batch, error);
    for (int i = 0; i < 3 && status == AVO_OK; i++) {
        avo_batch_clear(batch);
        status = avo_batch_add(batch, session, ids, 5);
        if (status == AVO_OK)
            status = avo_step(engine, batch);
        if (status == AVO_OK && avo_batch_logits(batch, session, 0) == NULL)
            status = AVO_ERROR_DEVICE;
        if (status != AVO_OK)
            *error = *avo_batch_error(batch);
    }
    avo_batch_close(batch);
    avo_session_close(session);
    avo_engine_close(engine);
    return status;
}

static void a_call_that_fails_fails_what_needed_it(void **state) {
    (void)state;
    avo_model *model;
    avo_error error = {0};
    assert_ok(avo_model_open(test_fixture_path("models/llama3"), NULL, &model, &error));
    uint32_t failed = 0;
    for (uint32_t number = 1; number < 2000; number += number < 60 ? 1 : 17) {
        char name[64];
        snprintf(name, sizeof(name), "cuda-emulated:%s=%u", number % 2 ? "fail" : "lost", number);
        avo_status status = answer(model, name, &error);
        if (status == AVO_OK)
            break;
        assert_int_equal(status, AVO_ERROR_DEVICE);
        assert_non_null(strstr(error.text, "719"));
        failed++;
    }
    assert_true(failed > 60);
    assert_int_equal(answer(model, "cuda-emulated:fail=2,code=2", &error), AVO_ERROR_MEMORY);
    assert_non_null(strstr(error.text, "free memory on the card"));
    assert_int_not_equal(answer(model, "cuda-emulated:memory=0", &error), AVO_OK);
    assert_int_equal(answer(model, "cuda-emulated:speed=9", &error), AVO_ERROR_ARGUMENT);
    assert_ok_error(answer(model, "cuda-emulated", &error), &error);
    avo_model_close(model);
}

/* ---- The driver library, played ---- */

static int played_version = 13000, played_count = 1, played_init, played_load;

static cu_result play_init(unsigned flags) {
    (void)flags;
    return played_init;
}
static cu_result play_version(int *version) {
    *version = played_version;
    return 0;
}
static cu_result play_name(cu_result result, const char **name) {
    *name = result == CU_NO_BINARY ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : "CUDA_ERROR_PLAYED";
    return 0;
}
static cu_result play_count(int *count) {
    *count = played_count;
    return 0;
}
static cu_result play_device(cu_device *device, int index) {
    *device = index;
    return 0;
}
static cu_result play_retain(cu_context *context, cu_device device) {
    (void)device;
    *context = (cu_context)(uintptr_t)64;
    return 0;
}
static cu_result play_release(cu_device device) {
    (void)device;
    return 0;
}
static cu_result play_set(cu_context context) {
    (void)context;
    return 0;
}
static cu_result play_attribute(int *value, int attribute, cu_device device) {
    (void)device;
    *value = attribute;
    return 0;
}
static cu_result play_load(cu_module *module, const void *image) {
    (void)module;
    (void)image;
    return played_load;
}

static void refused(const char *text, avo_status wanted, int index) {
    cuda_library library = {.init = play_init,
                            .version = play_version,
                            .error_name = play_name,
                            .device_count = play_count,
                            .device_get = play_device,
                            .context_retain = play_retain,
                            .context_release = play_release,
                            .context_set = play_set,
                            .device_attribute = play_attribute,
                            .module_load = play_load};
    cuda_port *port = NULL;
    avo_error error = {0};
    static const void *const image[CUDA_UNITS] = {"", "", "", "", ""};
    assert_int_equal(cuda_port_open(NULL, &library, image, index, &port, &error), wanted);
    if (strstr(error.text, text) == NULL)
        fail_msg("'%s' does not say '%s'", error.text, text);
}

static void a_driver_that_cannot_is_refused(void **state) {
    (void)state;
    played_init = CU_NO_DEVICE;
    refused("does not start: CUDA_ERROR_PLAYED (100)", AVO_ERROR_UNSUPPORTED, 0);
    played_init = 0;
    played_version = 11080;
    refused("supports CUDA 11.8, must support 12.0", AVO_ERROR_UNSUPPORTED, 0);
    played_version = 13000;
    refused("has 1 card, numbered from 0", AVO_ERROR_ARGUMENT, 1);
    played_count = 0;
    refused("finds no card", AVO_ERROR_UNSUPPORTED, 0);
    played_count = 1;
    played_load = CU_NO_BINARY;
    refused("need a card of compute capability 8.0", AVO_ERROR_DEVICE, 0);
}

/* One device stays open: a card's context begins and ends with its first and last user. */
static int keep_open(void **state) {
    avo_error error = {0};
    device_options options = {.name = card(), .streams = 1};
    device *device;
    assert_ok_error(device_open(&options, &device, &error), &error);
    *state = device;
    return 0;
}

static int close_kept(void **state) {
    device_close(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_has_the_bits_of_the_processor),
        cmocka_unit_test(every_type_has_the_bits_of_the_processor),
        cmocka_unit_test(few_rows_have_the_bits_of_the_processor),
        cmocka_unit_test(larger_models_have_the_bits_of_the_processor),
        cmocka_unit_test(every_way_has_the_same_bits),
        cmocka_unit_test(long_sessions_have_the_bits_of_the_processor),
        cmocka_unit_test(hidden_states_have_the_bits_of_the_processor),
        cmocka_unit_test(adapters_have_the_bits_of_the_processor),
        cmocka_unit_test(a_call_that_fails_fails_what_needed_it),
        cmocka_unit_test(a_driver_that_cannot_is_refused),
    };
    const struct CMUnitTest named[] = {
        cmocka_unit_test(named_models_have_the_bits_of_the_processor)};
    if (getenv("AVO_TEST_CUDA_MODELS") != NULL)
        return cmocka_run_group_tests(named, keep_open, close_kept);
    return cmocka_run_group_tests(tests, keep_open, close_kept);
}
