/* device/split: layers on two devices give the bits of one, wherever the model is cut; pages,
 * adapters, taps and session files are of both; "auto" takes as many layers as fit; what cannot be
 * divided is refused with a text; a call that fails fails what needed it. AVO_TEST_THREADS */
#include "support/support.h"

#include "engine/engine.h"
#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 40 /* more than a page */

static avo_model *open_model(const char *name) {
    char relative[128];
    avo_model *model;
    avo_error error = {0};
    snprintf(relative, sizeof(relative), "models/%s", name);
    assert_ok_error(avo_model_open(test_fixture_path(relative), NULL, &model, &error), &error);
    return model;
}

typedef struct wish {
    const char *device, *layers, *kv;
    avo_adapter *adapter; /* NULL: none */
    const char *first;    /* the first half of the tokens, on this device; NULL: all on one */
} wish;

static avo_engine_options options_of(const wish *wish, const char *device) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.gpu_layers = device == wish->device ? wish->layers : NULL;
    options.kv_type = wish->kv;
    options.threads = 2;
    options.context_max = 48; /* the fewest positions of any fixture */
    options.sessions_max = 2;
    options.rows_max = options.logits_max = 16;
    return options;
}

static avo_engine *open_engine(avo_model *model, const wish *wish, const char *device) {
    avo_engine_options options = options_of(wish, device);
    avo_engine *engine;
    avo_error error = {0};
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    return engine;
}

static avo_session *open_session(avo_engine *engine, const wish *wish) {
    avo_adapter_use use = {wish->adapter, 0.75f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    avo_session *session;
    avo_error error = {0};
    options.adapters = &use;
    options.adapter_count = wish->adapter != NULL;
    assert_ok_error(avo_session_open(engine, &options, &session, &error), &error);
    return session;
}

static void add_steps(avo_engine *engine, avo_session *session, uint32_t from, uint32_t to,
                      uint32_t vocabulary, float *logits) {
    avo_batch *batch;
    avo_error error = {0};
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    for (uint32_t i = from, rows; i < to; i += rows) {
        int32_t ids[16];
        rows = to - i < 9 ? to - i : 9;
        for (uint32_t row = 0; row < rows; row++)
            ids[row] = (int32_t)(((i + row) * 7 + 3) % (vocabulary < 90 ? vocabulary : 90));
        avo_batch_clear(batch);
        if (avo_batch_add_scored(batch, session, ids, rows, rows) != AVO_OK ||
            avo_step(engine, batch) != AVO_OK)
            fail_msg("step: %s", avo_batch_error(batch)->text);
        for (uint32_t row = 0; row < rows; row++)
            memcpy(logits + (size_t)(i + row) * vocabulary, avo_batch_logits(batch, session, row),
                   vocabulary * sizeof(float));
    }
    avo_batch_close(batch);
}

/* Logits of all tokens; where there is a first device, the session moves through a file. */
static float *compute(avo_model *model, const wish *wish, uint32_t vocabulary) {
    float *logits = malloc((size_t)TOKENS * vocabulary * sizeof(float));
    avo_error error = {0};
    uint32_t moved = wish->first != NULL ? TOKENS / 2 : 0;
    char path[256];
    assert_non_null(logits);
    snprintf(path, sizeof(path), "%s/split.session", test_scratch_folder());
    if (moved > 0) {
        avo_engine *first = open_engine(model, wish, wish->first);
        avo_session *session = open_session(first, wish);
        add_steps(first, session, 0, moved, vocabulary, logits);
        assert_ok_error(avo_session_save(session, path, &error), &error);
        avo_session_close(session);
        avo_engine_close(first);
    }
    avo_engine *engine = open_engine(model, wish, wish->device);
    avo_session *session = open_session(engine, wish);
    if (moved > 0)
        assert_ok_error(avo_session_restore(session, path, &error), &error);
    add_steps(engine, session, moved, TOKENS, vocabulary, logits);
    avo_session_close(session);
    avo_engine_close(engine);
    return logits;
}

static void check(avo_model *model, const wish *wanted, const wish *found, const char *what) {
    avo_model_info info = {.size = sizeof(info)};
    avo_model_describe(model, &info);
    float *one = compute(model, wanted, info.vocabulary);
    float *two = compute(model, found, info.vocabulary);
    if (memcmp(one, two, (size_t)TOKENS * info.vocabulary * sizeof(float)) != 0)
        fail_msg("%s on %s, layers %s, pages %s: other bits", what, found->device,
                 found->layers != NULL ? found->layers : "-", found->kv);
    free(one);
    free(two);
}

static void every_architecture_has_the_bits_of_one_device(void **state) {
    (void)state;
    static const char *const kv[] = {"f16", "int8", "f32", "fp8", "bf16"};
    for (size_t i = 0; i < FIXTURE_COUNT; i++) {
        avo_model *model = open_model(fixture_names[i].name);
        wish cpu = {.device = "cpu", .kv = kv[i % 5]};
        wish split = {.device = "remote:late", .layers = "1", .kv = kv[i % 5]};
        if (i % 3 == 1)
            split.first = "cpu";
        check(model, &cpu, &split, fixture_names[i].name);
        avo_model_close(model);
    }
}

static void every_cut_has_the_same_bits(void **state) {
    (void)state;
    static const char *const devices[] = {"split:0:cpu+remote:late", "split:2:cpu+remote:late",
                                          "split:auto:cpu+remote:late", "split:1:cpu+cuda-emulated",
                                          "split:0:cpu+cuda-emulated:graph=0"};
    avo_model *model = open_model("gemma3");
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        wish cpu = {.device = "cpu", .kv = "int8"};
        wish split = {.device = devices[i], .kv = "int8"};
        check(model, &cpu, &split, "gemma3");
    }
    wish back = {.device = "cpu", .kv = "f16", .first = "split:1:cpu+cuda-emulated"};
    wish cpu = {.device = "cpu", .kv = "f16"};
    check(model, &cpu, &back, "gemma3");
    avo_model_close(model);
}

static void adapters_have_the_bits_of_one_device(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"llama2", "all-linear"},  {"gpt2", "dora-conv1d"}, {"gemma3", "embedding-gemma"},
        {"gemma3", "saved-norms"}, {"gpt2", "bias-all"},    {"qwen2", "saved-linear"}};
    uint32_t compared = 0;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        char name[128], path[512];
        avo_error error = {0};
        avo_adapter *adapter;
        avo_model *model = open_model(pairs[i][0]);
        snprintf(name, sizeof(name), "adapters/%s", pairs[i][1]);
        snprintf(path, sizeof(path), "%s", test_fixture_path(name));
        if (avo_adapter_open(model, path, NULL, &adapter, &error) == AVO_OK) {
            wish cpu = {.device = "cpu", .kv = "f16", .adapter = adapter};
            wish split = {.device = "remote:late", .layers = "1", .kv = "f16", .adapter = adapter};
            check(model, &cpu, &split, pairs[i][1]);
            avo_adapter_close(adapter);
            compared++;
        }
        avo_model_close(model);
    }
    assert_int_equal(compared, sizeof(pairs) / sizeof(pairs[0]));
}

/* States before every layer, behind the last one and behind the last norm. */
static void taps_are_those_of_one_device(void **state) {
    (void)state;
    static const uint32_t taps[] = {0, 1, 3};
    static const int32_t ids[] = {1, 5, 9, 3, 7, 11};
    static const char *const devices[] = {"cpu", "split:2:cpu+remote:late",
                                          "split:0:cpu+remote:late"};
    avo_model *model = open_model("llama3");
    float *states[3] = {NULL};
    size_t bytes = 0;
    for (size_t d = 0; d < 3; d++) {
        wish own = {.device = devices[d], .kv = "f16"};
        avo_engine_options options = options_of(&own, own.device);
        avo_engine *engine;
        avo_session *session;
        avo_batch *batch;
        avo_error error = {0};
        options.taps = taps;
        options.tap_count = 3;
        assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
        assert_int_equal(engine_model_view(engine)->layers, 3);
        bytes = engine_model_view(engine)->width * sizeof(float);
        states[d] = malloc(6 * 4 * bytes);
        assert_non_null(states[d]);
        assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
        assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
        assert_ok(avo_batch_add(batch, session, ids, 6));
        assert_ok(avo_step(engine, batch));
        for (uint32_t i = 0; i < 4; i++) {
            const float *found = i < 3 ? avo_batch_tap(batch, session, taps[i], 0, 6)
                                       : avo_batch_hidden(batch, session, 0, 6);
            assert_non_null(found);
            memcpy((uint8_t *)states[d] + 6 * i * bytes, found, 6 * bytes);
        }
        avo_batch_close(batch);
        avo_session_close(session);
        avo_engine_close(engine);
    }
    assert_memory_equal(states[0], states[1], 6 * 4 * bytes);
    assert_memory_equal(states[0], states[2], 6 * 4 * bytes);
    for (size_t d = 0; d < 3; d++)
        free(states[d]);
    avo_model_close(model);
}

/* Many tokens make pages larger than weights: the more memory, the more layers "auto" takes, and
 * each part is planned where it is. */
static void auto_takes_what_fits(void **state) {
    (void)state;
    avo_model *model = open_model("llama3");
    uint32_t seen = 0;
    for (uint32_t mib = 1; mib <= 256; mib += mib < 16 ? 1 : 4) {
        char name[64];
        snprintf(name, sizeof(name), "remote:memory=%u", mib);
        wish own = {.device = name, .layers = "auto", .kv = "f16"};
        avo_engine_options options = options_of(&own, name);
        avo_plan plan = AVO_PLAN_INIT;
        engine_plan_details details;
        avo_error error = {0};
        options.kv_tokens = 200000;
        options.speculate = "off";
        if (engine_plan_describe(model, &options, &plan, &details, &error) != AVO_OK) {
            assert_int_equal(error.status, AVO_ERROR_MEMORY);
            continue;
        }
        assert_true(details.divides);
        assert_string_equal(plan.device, "split");
        assert_string_equal(details.part[1].device, "remote");
        assert_int_equal(details.part[0].layers + details.part[1].layers, 3);
        assert_int_equal(plan.cpu_layers, details.part[0].layers);
        assert_true(details.device_bytes <= (uint64_t)mib << 20);
        assert_int_equal(plan.kv_bytes, details.part[1].kv_bytes);
        assert_int_equal(plan.cpu_bytes, details.part[0].copied_bytes + details.part[0].kv_bytes +
                                             details.part[0].scratch_bytes);
        uint64_t rounded = (uint64_t)4 << 20, layer = plan.kv_bytes / 3; /* by huge pages */
        if (details.part[0].layers > 0 && details.part[1].layers > 0)
            layer = details.part[0].kv_bytes / details.part[0].layers;
        assert_true(plan.kv_bytes <= layer * details.part[1].layers + rounded);
        if (details.part[0].layers == 0)
            assert_int_equal(plan.cpu_bytes, 0);
        seen |= 1u << details.part[1].layers;
    }
    assert_int_equal(seen, 15); /* none, some and all */
    avo_model_close(model);
}

static void wrong_wishes_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *device, *layers;
        avo_status status;
        const char *text;
    } cases[] = {
        {"remote", "4", AVO_ERROR_ARGUMENT,
         "gpu_layers is 4, the model has 3 layers; must be at most 3"},
        {"remote", "-1", AVO_ERROR_ARGUMENT, "gpu_layers is \"-1\", must be a number"},
        {"remote", "all", AVO_ERROR_ARGUMENT, "must be a number of layers or \"auto\""},
        {"remote", "", AVO_ERROR_ARGUMENT, "gpu_layers is \"\""},
        {"ref", "1", AVO_ERROR_ARGUMENT, "ref has no memory of its own"},
        {"remote:ref", "1", AVO_ERROR_ARGUMENT, "compute different bits"},
        {"split:1:cpu+remote", "1", AVO_ERROR_ARGUMENT, "must be split:LAYERS:CPU+DEVICE"},
        {"split", NULL, AVO_ERROR_ARGUMENT, "must be split:LAYERS:CPU+DEVICE"},
        {"split:1:remote+remote", NULL, AVO_ERROR_ARGUMENT, "remote has memory of its own"},
        {"split:1:cpu+nothing", NULL, AVO_ERROR_ARGUMENT, "unknown device 'nothing'"},
        {"remote:memory=1", "2", AVO_ERROR_MEMORY,
         "device remote: 2 layers and the output head need"},
    };
    avo_model *model = open_model("llama3");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wish own = {.device = cases[i].device, .layers = cases[i].layers};
        avo_engine_options options = options_of(&own, own.device);
        avo_engine *engine;
        avo_error error = {0};
        options.kv_tokens = 100000;
        if (avo_engine_open(model, &options, &engine, &error) != cases[i].status ||
            strstr(error.text, cases[i].text) == NULL)
            fail_msg("%s, %s: %s", cases[i].device, cases[i].layers, error.text);
    }
    avo_model_close(model);
}

/* Every call of the second device in turn. */
static void any_call_may_fail(void **state) {
    (void)state;
    avo_model *model = open_model("llama3");
    uint32_t unopened = 0, failed = 0;
    for (uint32_t n = 1; n < 200; n++) {
        static const int32_t ids[] = {1, 5, 9, 3, 7, 11};
        char name[64];
        avo_engine *engine;
        avo_session *session;
        avo_batch *batch;
        avo_error error = {0};
        snprintf(name, sizeof(name), "remote:late,fail=%u", n);
        wish own = {.device = name, .layers = "1", .kv = "f16"};
        avo_engine_options options = options_of(&own, name);
        if (avo_engine_open(model, &options, &engine, &error) != AVO_OK) {
            assert_int_equal(error.status, AVO_ERROR_DEVICE);
            unopened++;
            continue;
        }
        assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
        assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
        avo_status status = AVO_OK;
        for (int i = 0; i < 2 && status == AVO_OK; i++) {
            avo_batch_clear(batch);
            status = avo_batch_add(batch, session, ids, 6);
            if (status == AVO_OK)
                status = avo_step(engine, batch);
        }
        failed += status != AVO_OK;
        if (status != AVO_OK) { /* the engine stays of use */
            avo_batch_clear(batch);
            assert_ok(avo_batch_add(batch, session, ids, 1));
            assert_ok(avo_step(engine, batch));
        }
        avo_batch_close(batch);
        avo_session_close(session);
        avo_engine_close(engine);
        if (status == AVO_OK)
            break;
    }
    assert_true(unopened >= 3 && failed >= 4);
    avo_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_has_the_bits_of_one_device),
        cmocka_unit_test(every_cut_has_the_same_bits),
        cmocka_unit_test(adapters_have_the_bits_of_one_device),
        cmocka_unit_test(taps_are_those_of_one_device),
        cmocka_unit_test(auto_takes_what_fits),
        cmocka_unit_test(wrong_wishes_are_refused),
        cmocka_unit_test(any_call_may_fail),
    };
    return cmocka_run_group_tests_name("device/split", tests, NULL, NULL);
}
