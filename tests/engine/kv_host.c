/* Prefixes whose pages the device needed for something else come back from the host's memory with
 * the same bits, counted, and devices without memory of their own refuse it. AVO_TEST_THREADS */
#include "support/support.h"

#include "avocet.h"

#include <stdlib.h>
#include <string.h>

#define PROMPT 70 /* two pages and a part of one */

static avo_model *model;

static int open_model(void **state) {
    (void)state;
    avo_error error = {0};
    return avo_model_open(test_fixture_path("models/llama3"), NULL, &model, &error) != AVO_OK;
}

static int close_model(void **state) {
    (void)state;
    avo_model_close(model);
    return 0;
}

static avo_engine_options small(const char *device, uint64_t host) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.threads = 2;
    options.context_max = 96;
    options.kv_tokens = 96;
    options.kv_host_bytes = host;
    options.speculate = "off";
    options.arithmetic = "exact";
    return options;
}

/* The logits behind a prompt, and how many of its tokens were found. */
static size_t compute(avo_engine *engine, int32_t first, float *logits, uint32_t vocabulary) {
    int32_t prompt[PROMPT];
    avo_session *session;
    avo_batch *batch;
    avo_error error = {0};
    size_t reused;
    for (int32_t i = 0; i < PROMPT; i++)
        prompt[i] = (i * 7 + first) % 50;
    assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    assert_ok_error(avo_session_reuse(session, prompt, PROMPT, &reused, &error), &error);
    assert_ok(avo_batch_add(batch, session, prompt + reused, PROMPT - reused));
    if (avo_step(engine, batch) != AVO_OK)
        fail_msg("%s", avo_batch_error(batch)->text);
    memcpy(logits, avo_batch_logits(batch, session, 0), vocabulary * sizeof(float));
    avo_batch_close(batch);
    avo_session_close(session);
    return reused;
}

static void prefixes_come_back(void **state) {
    (void)state;
    const char *card = getenv("AVO_TEST_CUDA");
    const char *const devices[] = {"remote:late", card != NULL ? card : "cuda-emulated",
                                   "split:1:cpu+remote:late"};
    avo_model_info info = {.size = sizeof(info)};
    avo_model_describe(model, &info);
    float wanted[2][4096], found[4096];
    assert_true(info.vocabulary <= 4096);
    for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++)
        for (int host = 0; host < 2; host++) {
            avo_engine_options options = small(devices[d], host == 1 ? (uint64_t)1 << 20 : 0);
            avo_engine *engine;
            avo_error error = {0};
            avo_kv_info kv = AVO_KV_INFO_INIT;
            avo_plan plan = AVO_PLAN_INIT;
            assert_ok_error(avo_engine_plan(model, &options, &plan, &error), &error);
            assert_true(host == 1 ? plan.kv_host_bytes > (1 << 19) : plan.kv_host_bytes == 0);
            assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
            for (int round = 0; round < 3; round++)
                for (int prompt = 0; prompt < 2; prompt++) {
                    bool first = d == 0 && host == 0 && round == 0;
                    size_t reused = compute(engine, 3 + prompt, first ? wanted[prompt] : found,
                                            info.vocabulary);
                    assert_int_equal(reused, round > 0 && host == 1 ? 64 : 0);
                    if (!first)
                        assert_memory_equal(found, wanted[prompt], info.vocabulary * sizeof(float));
                }
            avo_engine_kv(engine, &kv);
            assert_int_equal(kv.pages, 3);
            assert_int_equal(kv.pages_host > 0, host);
            assert_int_equal(kv.pages_moved_in > 0, host);
            assert_true(kv.pages_moved_out >= kv.pages_moved_in);
            assert_true(kv.pages_host_cached <= kv.pages_host);
            avo_engine_close(engine);
        }
}

static void wrong_sizes_are_refused(void **state) {
    (void)state;
    avo_engine *engine;
    avo_error error = {0};
    avo_engine_options options = small("cpu", 1 << 20);
    assert_refused(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_ARGUMENT, &error,
                   "has its KV pages in the host's memory");
    options = small("remote", 5);
    assert_refused(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_ARGUMENT, &error,
                   "kv_host_bytes is 5: must be at least one KV page");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_come_back),
        cmocka_unit_test(wrong_sizes_are_refused),
    };
    return cmocka_run_group_tests_name("engine/kv_host", tests, open_model, close_model);
}
