/* device/test: the host reaches nothing of the remote device, results come late, and a call that
 * fails, whichever it is, fails what needed it and nothing else. AVO_TEST_THREADS */
#include "support/support.h"

#include "device/test/remote.h"
#include "engine/engine_int.h"
#include "memory/kv.h"
#include "support/models.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROMPT 40
#define ANSWER 12

static avo_model *open_model(void) {
    avo_model *model;
    avo_error error = {0};
    assert_ok_error(avo_model_open(test_fixture_path("models/llama3.gguf"), NULL, &model, &error),
                    &error);
    return model;
}

static avo_engine_options small_options(const char *device) {
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.threads = 2;
    options.context_max = 96;
    options.sessions_max = 3;
    return options;
}

/* A greedy answer, step by step through the public interface. */
static avo_status answer(avo_engine *engine, int32_t *tokens, avo_error *error) {
    avo_session *session = NULL;
    avo_batch *batch = NULL;
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * 7 + 3) % 50;
    avo_status status = avo_session_open(engine, NULL, &session, error);
    if (status == AVO_OK)
        status = avo_batch_open(engine, &batch, error);
    for (int i = 0; status == AVO_OK && i < ANSWER; i++) {
        avo_batch_clear(batch);
        status = i == 0 ? avo_batch_add(batch, session, prompt, PROMPT)
                        : avo_batch_add(batch, session, &tokens[i - 1], 1);
        if (status == AVO_OK)
            status = avo_step(engine, batch);
        const float *logits = status == AVO_OK ? avo_batch_logits(batch, session, 0) : NULL;
        if (logits == NULL) {
            *error = *avo_batch_error(batch);
            status = status == AVO_OK ? AVO_ERROR_DEVICE : status;
            break;
        }
        tokens[i] = 0;
        for (uint32_t t = 1; t < engine_model_view(engine)->vocabulary; t++)
            tokens[i] = logits[t] > logits[tokens[i]] ? (int32_t)t : tokens[i];
    }
    avo_batch_close(batch);
    avo_session_close(session);
    return status;
}

static void the_same_bits_from_behind_the_wall(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model = open_model();
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t i = 0; i < isas.count; i++) {
        char delayed[32], late[32];
        int32_t tokens[3][ANSWER];
        snprintf(delayed, sizeof(delayed), "remote:%s,delay=300", isas.name[i]);
        snprintf(late, sizeof(late), "remote:%s,late", isas.name[i]);
        const char *names[] = {isas.name[i], delayed, late};
        for (int n = 0; n < 3; n++) {
            avo_engine *engine;
            avo_engine_options options = small_options(names[n]);
            assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
            assert_string_equal(avo_engine_device(engine), n == 0 ? isas.name[i] : "remote");
            assert_ok_error(answer(engine, tokens[n], &error), &error);
            avo_engine_close(engine);
        }
        assert_memory_equal(tokens[0], tokens[1], sizeof(tokens[0]));
        assert_memory_equal(tokens[0], tokens[2], sizeof(tokens[0]));
    }
    avo_model_close(model);
}

/* Lets the kernel read the byte: it answers with an error where this process would be killed. */
static bool readable(const void *address) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    ssize_t written = write(ends[1], address, 1);
    assert_true(written == 1 || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return written == 1;
}

static void the_host_cannot_read_device_memory(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model = open_model();
    avo_engine *engine;
    avo_engine_options options = small_options("remote");
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    int32_t tokens[ANSWER];
    assert_ok_error(answer(engine, tokens, &error), &error);
    const model_view *view = engine_model_view(engine);
    assert_false(readable(kv_pool_view(engine_kv(engine))->memory.address));
    assert_false(readable(view->layer[0].query.weight.data));
    assert_false(readable(view->embedding.data));
    assert_false(readable(view->final_norm.weight));
    assert_true(readable(tokens));
    avo_engine_close(engine);
    avo_model_close(model);
}

/* Every call in turn: the engine does not open, or a request fails with a text, and the next one is
 * answered as ever. */
static void any_call_may_fail(void **state) {
    (void)state;
    avo_model *model = open_model();
    avo_error error = {0};
    int32_t wanted[ANSWER];
    avo_engine *engine;
    avo_engine_options options = small_options("remote");
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    assert_ok_error(answer(engine, wanted, &error), &error);
    avo_engine_close(engine);
    unsigned unopened = 0, failed = 0;
    bool untouched = false;
    for (unsigned n = 1; !untouched; n++) {
        char name[32];
        int32_t tokens[ANSWER];
        snprintf(name, sizeof(name), "remote:fail=%u", n);
        options = small_options(name);
        error = (avo_error){0};
        avo_status status = avo_engine_open(model, &options, &engine, &error);
        if (status != AVO_OK) {
            assert_int_equal(status, AVO_ERROR_DEVICE);
            assert_non_null(strstr(error.text, "requested"));
            unopened++;
            continue;
        }
        status = answer(engine, tokens, &error);
        untouched = status == AVO_OK;
        if (!untouched) {
            assert_int_equal(status, AVO_ERROR_DEVICE);
            failed++;
        }
        if (!untouched)
            assert_ok_error(answer(engine, tokens, &error), &error);
        assert_memory_equal(tokens, wanted, sizeof(wanted));
        avo_engine_close(engine);
        assert_true(n < 1000);
    }
    print_message("%u calls of opening and %u of an answer failed in turn\n", unopened, failed);
    assert_true(unopened >= 3 && failed >= 2 * ANSWER);
    avo_model_close(model);
}

static void a_lost_device_fails_everything(void **state) {
    (void)state;
    avo_model *model = open_model();
    avo_error error = {0};
    avo_engine *engine;
    avo_engine_options options = small_options("remote:lost=10");
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    for (int i = 0; i < 3; i++) {
        int32_t tokens[ANSWER];
        assert_int_equal(answer(engine, tokens, &error), AVO_ERROR_DEVICE);
    }
    avo_engine_close(engine);
    avo_model_close(model);
}

static void wrong_parameters_are_refused(void **state) {
    (void)state;
    avo_model *model = open_model();
    static const char *const names[] = {"remote:vmx", "remote:fail=x",
                                        "remote:fail=", "remote:ref,nothing=1", "ref:1"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        avo_error error = {0};
        avo_engine *engine;
        avo_engine_options options = small_options(names[i]);
        assert_int_equal(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_ARGUMENT);
        assert_non_null(strstr(error.text, "device '"));
    }
    avo_error error = {0};
    avo_engine *engine;
    avo_engine_options options = small_options("remote:memory=1");
    assert_refused(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_MEMORY, &error,
                   "memory= of the remote device");
    char names_here[128];
    device_names(names_here, sizeof(names_here));
    assert_null(strstr(names_here, "remote")); /* never by itself */
    avo_model_close(model);
}

/* Work behind a step fails: nothing of the step can be read any more, the reason is told, and the
 * next step is computed as ever. A read that fails leaves the other results alone. */
static void results_are_lost_with_work_behind_the_step(void **state) {
    (void)state;
    avo_model *model = open_model();
    unsigned lost = 0, unread = 0, unopened = 0;
    for (unsigned n = 1; lost + unread < 3; n++) {
        char name[32];
        snprintf(name, sizeof(name), "remote:fail=%u", n);
        avo_engine_options options = small_options(name);
        avo_engine *engine;
        avo_error error = {0};
        avo_session *session = NULL;
        avo_batch *batch = NULL;
        int32_t tokens[] = {1, 2, 3};
        assert_true(n < 1000);
        if (avo_engine_open(model, &options, &engine, &error) != AVO_OK) {
            unopened++;
            continue;
        }
        if (avo_session_open(engine, NULL, &session, &error) == AVO_OK &&
            avo_batch_open(engine, &batch, &error) == AVO_OK &&
            avo_batch_add(batch, session, tokens, 3) == AVO_OK &&
            avo_step(engine, batch) == AVO_OK && avo_batch_hidden(batch, session, 0, 3) == NULL) {
            assert_int_equal(avo_batch_error(batch)->status, AVO_ERROR_DEVICE);
            bool only_read = strstr(avo_batch_error(batch)->text, "reading") != NULL;
            assert_true((avo_batch_logits(batch, session, 0) != NULL) == only_read);
            lost += !only_read;
            unread += only_read;
            if (!only_read)
                assert_int_equal(avo_batch_error(batch)->status, AVO_ERROR_DEVICE);
            avo_batch_clear(batch);
            assert_ok(avo_batch_add(batch, session, tokens, 1));
            assert_ok(avo_step(engine, batch));
            assert_non_null(avo_batch_hidden(batch, session, 0, 1));
            assert_non_null(avo_batch_logits(batch, session, 0));
        }
        avo_batch_close(batch);
        avo_session_close(session);
        avo_engine_close(engine);
    }
    assert_true(unopened > 0 && lost > 0 && unread > 0);
    avo_model_close(model);
}

/* Engines of one model, opened and closed in any order: what one has prepared lies in the memory of
 * its own device, and is given back before the device closes (closing it asserts that). */
static void weights_leave_with_their_device(void **state) {
    (void)state;
    avo_model *model = open_model();
    avo_error error = {0};
    avo_engine *first, *second;
    int32_t one[ANSWER], two[ANSWER];
    avo_engine_options options = small_options("remote");
    assert_ok_error(avo_engine_open(model, &options, &first, &error), &error);
    assert_ok_error(avo_engine_open(model, &options, &second, &error), &error);
    assert_ok_error(answer(first, one, &error), &error);
    avo_engine_close(first);
    assert_ok_error(answer(second, two, &error), &error);
    assert_memory_equal(one, two, sizeof(one));
    assert_ok_error(avo_engine_open(model, &options, &first, &error), &error);
    avo_engine_close(second);
    assert_ok_error(answer(first, two, &error), &error);
    assert_memory_equal(one, two, sizeof(one));
    avo_engine_close(first);
    avo_model_close(model);
}

typedef struct log_text {
    char text[1024];
} log_text;

static void take_line(void *context, const char *line) {
    log_text *log = context;
    size_t used = strlen(log->text);
    snprintf(log->text + used, sizeof(log->text) - used, "%s\n", line);
}

/* What is true of CPUs alone is said of CPUs alone. */
static void a_device_without_threads_names_none(void **state) {
    (void)state;
    avo_model *model = open_model();
    avo_error error = {0};
    static const char *const names[] = {"remote:opaque", "ref"};
    for (int cpu = 0; cpu < 2; cpu++) {
        avo_plan plan = AVO_PLAN_INIT;
        log_text log = {0};
        avo_engine *engine;
        avo_engine_options options = small_options(names[cpu]);
        options.streams = 2;
        options.log = take_line;
        options.log_context = &log;
        assert_ok_error(avo_engine_plan(model, &options, &plan, &error), &error);
        assert_int_equal(plan.threads, cpu ? 2 : 0);
        assert_int_equal(plan.pin != NULL, cpu);
        assert_int_equal(plan.numa != NULL, cpu);
        assert_int_equal(plan.huge_pages != NULL, cpu);
        assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
        assert_non_null(strstr(log.text, "K and V in f"));
        assert_non_null(strstr(log.text, "2 streams: prefill can run in parallel with decode"));
        assert_null(strstr(log.text, "(null)"));
        assert_int_equal(strstr(log.text, "thread") != NULL, cpu);
        assert_int_equal(strstr(log.text, "NUMA") != NULL, cpu);
        avo_engine_close(engine);
    }
    avo_model_close(model);
}

/* Two memories, two limits: the error names the one that is too small. */
static void the_memory_that_lacks_is_named(void **state) {
    (void)state;
    avo_model *model = open_model();
    avo_error error = {0};
    avo_plan plan = AVO_PLAN_INIT;
    avo_engine_options options = small_options("remote:memory=64");
    assert_ok_error(avo_engine_plan(model, &options, &plan, &error), &error);
    assert_false(plan.host_memory);
    assert_int_equal(plan.available_bytes, (uint64_t)64 << 20);
    engine_plan_details details;
    assert_ok_error(engine_plan_describe(model, &options, &plan, &details, &error), &error);
    assert_int_equal(details.device_bytes, details.weights.copied_bytes + plan.kv_bytes +
                                               plan.scratch_bytes + details.adapter_bytes);
    assert_true(details.device_bytes > 0 && details.device_bytes <= plan.available_bytes);
    assert_true(details.host_bytes >= plan.session_bytes + plan.draft_bytes);
    options.rows_max = 65536;
    assert_refused(avo_engine_plan(model, &options, &plan, &error), AVO_ERROR_MEMORY, &error,
                   "device remote: KV pages");
    assert_null(strstr(error.text, "the host"));
    options = small_options("remote:memory=1000000000000");
    options.kv_tokens = 64;
    options.sessions_max = 65536;
    options.context_max = 16777216; /* timelines of 4 TiB */
    assert_refused(avo_engine_plan(model, &options, &plan, &error), AVO_ERROR_MEMORY, &error,
                   "of the host's memory");
    /* Where both share memory there is one total. */
    options = small_options("ref");
    assert_ok_error(engine_plan_describe(model, &options, &plan, &details, &error), &error);
    assert_int_equal(details.device_bytes, 0);
    assert_int_equal(details.host_bytes, plan.weight_bytes + plan.repack_bytes + plan.kv_bytes +
                                             plan.scratch_bytes + plan.session_bytes +
                                             plan.draft_bytes);
    avo_model_close(model);
}

/* Results behind the work that they survive, and NaN behind that which they do not. */
static void results_survive_as_promised(void **state) {
    (void)state;
    avo_model *model = open_model();
    avo_error error = {0};
    static const uint32_t tapped = 1;
    avo_engine *engine;
    avo_session *session;
    avo_batch *batch;
    avo_engine_options options = small_options("remote");
    options.taps = &tapped;
    options.tap_count = 1;
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    assert_ok(avo_session_open(engine, NULL, &session, &error));
    assert_ok(avo_batch_open(engine, &batch, &error));
    static const int32_t tokens[5] = {5, 4, 3, 2, 1};
    assert_ok(avo_batch_add(batch, session, tokens, 5));
    assert_ok(avo_step(engine, batch));
    uint32_t vocabulary = engine_model_view(engine)->vocabulary;
    size_t width = engine_model_view(engine)->width;
    float *logits = malloc(vocabulary * sizeof(float)), *tap = malloc(width * sizeof(float));
    assert_true(logits != NULL && tap != NULL);
    memcpy(logits, avo_batch_logits(batch, session, 0), vocabulary * sizeof(float));
    memcpy(tap, avo_batch_tap(batch, session, 1, 4, 1), width * sizeof(float));
    assert_true(!isnan(logits[0]) && !isnan(tap[0]));
    device_stream *stream = engine->stream[0].stream;
    const float *rows;
    const logit_top *top;
    const int32_t chosen[4] = {(int32_t)vocabulary - 1, 0, 7, 7};
    float read[4];
    assert_ok(device_read_chosen(stream, 0, chosen, 4, read, &error));
    for (size_t i = 0; i < 4; i++)
        assert_true(read[i] == logits[chosen[i]]);
    assert_ok(device_read_chosen(stream, 0, NULL, 0, NULL, &error));
    assert_ok(device_read_normed(stream, 1, &rows, &error));
    assert_true(isnan(rows[0])); /* nothing was normed */
    assert_ok(device_read_top(stream, &top, &error));
    assert_true(isnan(top[0].logit[0])); /* nobody asked for them */
    /* NORM: logits and taps survive. */
    assert_non_null(avo_batch_hidden(batch, session, 0, 5));
    assert_ok(device_read_normed(stream, 5, &rows, &error));
    assert_true(!isnan(rows[0]));
    assert_memory_equal(avo_batch_logits(batch, session, 0), logits, vocabulary * sizeof(float));
    assert_memory_equal(avo_batch_tap(batch, session, 1, 4, 1), tap, width * sizeof(float));
    /* HEAD of other rows: taps survive, logits and normed rows do not. */
    float logprob;
    static const int32_t next = 7;
    assert_ok(avo_batch_score(batch, session, 2, 1, &next, 0, &logprob, NULL));
    assert_memory_equal(avo_batch_tap(batch, session, 1, 4, 1), tap, width * sizeof(float));
    assert_ok(device_read_normed(stream, 1, &rows, &error));
    assert_true(isnan(rows[0]));
    assert_ok(device_read_logits(stream, 0, &rows, &error));
    assert_true(isnan(rows[0]));
    assert_ok(device_read_chosen(stream, 0, chosen, 4, read, &error));
    assert_true(isnan(read[0]) && isnan(read[3]));
    assert_ok(device_read_top(stream, &top, &error));
    assert_true(!isnan(top[0].logit[0]));
    assert_null(avo_batch_logits(batch, session, 0)); /* the engine knows */
    free(logits);
    free(tap);
    avo_batch_close(batch);
    avo_session_close(session);
    avo_engine_close(engine);
    avo_model_close(model);
}

/* Hidden states at every layer: equal bits on the device and behind the wall, in one chunk or in
 * many. */
static void layers_are_tapped(void **state) {
    (void)state;
    avo_model *model = open_model();
    avo_error error = {0};
    avo_model_info info = AVO_MODEL_INFO_INIT;
    avo_model_describe(model, &info);
    uint32_t layers = info.layers;
    uint32_t taps[16];
    for (uint32_t i = 0; i <= layers; i++)
        taps[i] = i;
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t isa = 0; isa < isas.count; isa++) {
        float *kept = NULL;
        size_t floats = 0;
        for (int remote = 0; remote < 2; remote++) {
            char name[32];
            snprintf(name, sizeof(name), "%s%s", remote ? "remote:" : "", isas.name[isa]);
            avo_engine_options options = small_options(name);
            options.taps = taps;
            options.tap_count = layers + 1;
            avo_engine *engine;
            assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
            size_t width = engine_model_view(engine)->width;
            avo_session *session;
            avo_batch *batch;
            assert_ok(avo_session_open(engine, NULL, &session, &error));
            assert_ok(avo_batch_open(engine, &batch, &error));
            int32_t tokens[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
            floats = (layers + 1) * 9 * width;
            float *got = malloc(floats * sizeof(float));
            assert_non_null(got);
            for (uint32_t first = 0; first < 9;) { /* remote: in chunks of 4 */
                uint32_t count = remote ? (9 - first < 4 ? 9 - first : 4) : 9;
                avo_batch_clear(batch);
                assert_ok(avo_batch_add(batch, session, tokens + first, count));
                assert_ok(avo_step(engine, batch));
                for (uint32_t layer = 0; layer <= layers; layer++) {
                    const float *rows = avo_batch_tap(batch, session, layer, 0, count);
                    assert_non_null(rows);
                    memcpy(got + (layer * 9 + first) * width, rows, count * width * sizeof(float));
                }
                first += count;
            }
            assert_null(avo_batch_tap(batch, session, layers + 1, 0, 1));
            assert_null(avo_batch_tap(batch, session, 0, 0, 10));
            if (remote) {
                assert_memory_equal(got, kept, floats * sizeof(float));
                free(kept);
                free(got);
            } else {
                kept = got;
            }
            avo_batch_close(batch);
            avo_session_close(session);
            avo_engine_close(engine);
        }
    }
    avo_engine *engine;
    avo_engine_options options = small_options("ref");
    static const uint32_t wrong[] = {1, 1};
    options.taps = wrong;
    options.tap_count = 2;
    assert_refused(avo_engine_open(model, &options, &engine, &error), AVO_ERROR_ARGUMENT, &error,
                   "taps[1] is 1");
    avo_model_close(model);
}

int main(void) {
    unsetenv("AVO_DEVICE");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_from_behind_the_wall),
        cmocka_unit_test(the_host_cannot_read_device_memory),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(a_lost_device_fails_everything),
        cmocka_unit_test(wrong_parameters_are_refused),
        cmocka_unit_test(results_are_lost_with_work_behind_the_step),
        cmocka_unit_test(weights_leave_with_their_device),
        cmocka_unit_test(a_device_without_threads_names_none),
        cmocka_unit_test(the_memory_that_lacks_is_named),
        cmocka_unit_test(results_survive_as_promised),
        cmocka_unit_test(layers_are_tapped),
    };
    return cmocka_run_group_tests_name("device/remote", tests, NULL, NULL);
}
