/* eval/: perplexity against sums written out plainly, logits against the batch interface, files. */
#include "support/support.h"

#include "base/file.h"
#include "base/random.h"
#include "eval/eval.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 150

typedef struct fixture {
    avo_model *model;
    uint32_t vocabulary;
    int32_t tokens[TOKENS];
    float *logits; /* [TOKENS][vocabulary] scratch of plain_logits */
} fixture;

static int open_fixture(void **state) {
    static fixture fixture;
    avo_error error = {0};
    avo_model_info info = {.size = sizeof(info)};
    if (avo_model_open(test_fixture_path("models/llama2.gguf"), NULL, &fixture.model, &error) !=
        AVO_OK) {
        print_error("%s\n", error.text);
        return -1;
    }
    avo_model_describe(fixture.model, &info);
    fixture.vocabulary = info.vocabulary;
    for (uint64_t i = 0; i < TOKENS; i++)
        fixture.tokens[i] = (int32_t)(random_at(3, 0, i).words[0] % info.vocabulary);
    fixture.logits = malloc(sizeof(float) * TOKENS * info.vocabulary);
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state) {
    fixture *fixture = *state;
    avo_model_close(fixture->model);
    free(fixture->logits);
    return 0;
}

/* All logits of a window in one step, through the public interface. */
static void plain_logits(fixture *fixture, const int32_t *tokens, size_t count) {
    avo_error error = {0};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.context_max = (uint32_t)count;
    options.rows_max = (uint32_t)count;
    options.logits_max = (uint32_t)count;
    options.threads = 1;
    avo_engine *engine = NULL;
    avo_session *session = NULL;
    avo_batch *batch = NULL;
    assert_ok_error(avo_engine_open(fixture->model, &options, &engine, &error), &error);
    assert_ok_error(avo_session_open(engine, NULL, &session, &error), &error);
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    assert_ok(avo_batch_add_scored(batch, session, tokens, count, count));
    assert_ok(avo_step(engine, batch));
    for (size_t i = 0; i < count; i++)
        memcpy(fixture->logits + i * fixture->vocabulary, avo_batch_logits(batch, session, i),
               fixture->vocabulary * sizeof(float));
    avo_batch_close(batch);
    avo_session_close(session);
    avo_engine_close(engine);
}

static double plain_surprise(const fixture *fixture, size_t position, int32_t token) {
    const float *logits = fixture->logits + position * fixture->vocabulary;
    double total = 0;
    for (uint32_t i = 0; i < fixture->vocabulary; i++)
        total += exp((double)logits[i]);
    return log(total) - (double)logits[token];
}

typedef struct plain_sums {
    double values[4 * TOKENS];
    size_t count;
} plain_sums;

static void check_result(const plain_sums *sums, const perplexity_result *result) {
    double mean = 0;
    double variance = 0;
    for (size_t i = 0; i < sums->count; i++)
        mean += sums->values[i] / (double)sums->count;
    for (size_t i = 0; i < sums->count; i++)
        variance += (sums->values[i] - mean) * (sums->values[i] - mean) / (double)sums->count;
    double perplexity = exp(mean);
    double error = perplexity * sqrt(variance / ((double)sums->count - 1));
    assert_int_equal(result->tokens, sums->count);
    assert_true(fabs(result->perplexity / perplexity - 1) < 1e-6);
    assert_true(fabs(result->error / error - 1) < 1e-4);
}

/* Windows side by side: what llama.cpp's tool counts. */
static void plain_side_by_side(fixture *fixture, size_t context, size_t windows, int32_t begin,
                               plain_sums *sums) {
    sums->count = 0;
    for (size_t w = 0; w < windows; w++) {
        int32_t window[TOKENS];
        memcpy(window, fixture->tokens + w * context, context * sizeof(int32_t));
        if (begin >= 0)
            window[0] = begin;
        plain_logits(fixture, window, context);
        for (size_t position = context / 2; position + 1 < context; position++)
            sums->values[sums->count++] = plain_surprise(fixture, position, window[position + 1]);
    }
}

static void side_by_side_counts_as_told(void **state) {
    fixture *fixture = *state;
    static const struct {
        uint32_t context, windows_max, windows;
        int32_t begin;
    } cases[] = {{16, 0, 9, -1}, {16, 3, 3, 1},  {16, 100, 9, 1}, {15, 0, 10, 1},
                 {50, 0, 3, -1}, {150, 0, 1, 1}, {4, 5, 5, -1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        eval_options options = {.context = cases[i].context,
                                .windows_max = cases[i].windows_max,
                                .begin = cases[i].begin,
                                .engine.threads = 1};
        perplexity_result result;
        avo_error error = {0};
        plain_sums sums;
        plain_side_by_side(fixture, cases[i].context, cases[i].windows, cases[i].begin, &sums);
        assert_int_equal(sums.count,
                         cases[i].windows * (cases[i].context - cases[i].context / 2 - 1));
        assert_ok_error(
            eval_perplexity(fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
            &error);
        assert_int_equal(result.windows, cases[i].windows);
        check_result(&sums, &result);
    }
}

/* The sliding window: each token but the first once, with as much context as its window has. */
static void sliding_scores_every_token_once(void **state) {
    fixture *fixture = *state;
    static const uint32_t cases[][2] = {{16, 5}, {16, 15}, {40, 20}, {150, 10}, {200, 7}, {16, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t context = cases[i][0];
        size_t stride = cases[i][1];
        plain_sums sums = {.count = 0};
        size_t scored = 1;
        for (size_t begin = 0; scored < TOKENS; begin += stride) {
            size_t end = begin + context < TOKENS ? begin + context : TOKENS;
            plain_logits(fixture, fixture->tokens + begin, end - begin);
            for (; scored < end; scored++)
                sums.values[sums.count++] =
                    plain_surprise(fixture, scored - 1 - begin, fixture->tokens[scored]);
        }
        assert_int_equal(sums.count, TOKENS - 1);
        eval_options options = {.context = (uint32_t)context,
                                .stride = (uint32_t)stride,
                                .begin = 1,
                                .engine.threads = 1};
        perplexity_result result;
        avo_error error = {0};
        assert_ok_error(
            eval_perplexity(fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
            &error);
        check_result(&sums, &result);
    }
}

static void steps_and_threads_change_nothing(void **state) {
    fixture *fixture = *state;
    double wanted = 0;
    static const uint32_t chunks[] = {0, 1, 3, 16, 1000};
    for (size_t i = 0; i < 5; i++) {
        eval_options options = {
            .context = 32, .begin = 1, .chunk = chunks[i], .engine.threads = 1 + (uint32_t)i % 2};
        perplexity_result result;
        avo_error error = {0};
        assert_ok_error(
            eval_perplexity(fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
            &error);
        if (i == 0)
            wanted = result.perplexity;
        assert_true(result.perplexity == wanted);
    }
}

static bool stop_at_second(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    (void)total;
    ++*(int *)context;
    return done < 1;
}

static void refuses(void **state) {
    fixture *fixture = *state;
    perplexity_result result;
    avo_error error = {0};
    eval_options options = {.context = 512, .begin = -1, .engine.threads = 1};
    assert_refused(
        eval_perplexity(fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
        AVO_ERROR_ARGUMENT, &error, "the text has 150 tokens, must have at least 512");
    options.context = 16;
    options.stride = 16;
    assert_refused(
        eval_perplexity(fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
        AVO_ERROR_ARGUMENT, &error, "the stride is 16 tokens, must be smaller");
    options.stride = 0;
    options.context = 3;
    assert_refused(
        eval_perplexity(fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
        AVO_ERROR_ARGUMENT, &error, "at least 4");
    int32_t bad[16] = {0};
    bad[9] = (int32_t)fixture->vocabulary;
    options.context = 16;
    assert_refused(eval_perplexity(fixture->model, bad, 16, &options, &result, &error),
                   AVO_ERROR_ARGUMENT, &error, "id");
    int calls = 0;
    options.progress = stop_at_second;
    options.progress_context = &calls;
    assert_refused(
        eval_perplexity(fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
        AVO_ERROR_CANCELLED, &error, "1 of 9");
    assert_int_equal(calls, 2);
}

static void divergence_from_itself_is_zero(void **state) {
    fixture *fixture = *state;
    eval_options options = {.context = 16, .begin = 1, .engine.threads = 2};
    kl_result result;
    perplexity_result perplexity;
    avo_error error = {0};
    assert_ok_error(
        eval_kl(fixture->model, fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
        &error);
    assert_ok_error(
        eval_perplexity(fixture->model, fixture->tokens, TOKENS, &options, &perplexity, &error),
        &error);
    assert_true(result.mean == 0 && result.max == 0 && result.top1 == 1 && result.ratio == 1);
    assert_true(result.model.perplexity == perplexity.perplexity);
    assert_true(result.reference.perplexity == perplexity.perplexity);
    assert_true(result.model.error == perplexity.error);
    assert_int_equal(result.model.tokens, perplexity.tokens);
    assert_int_equal(result.model.windows, perplexity.windows);
}

static void divergence_refuses(void **state) {
    fixture *fixture = *state;
    avo_error error = {0};
    kl_result result;
    avo_model *other = NULL;
    assert_ok_error(avo_model_open(test_fixture_path("models/qwen3.gguf"), NULL, &other, &error),
                    &error);
    eval_options options = {.context = 16, .begin = -1, .engine.threads = 1};
    avo_model_info info = {.size = sizeof(info)};
    avo_model_describe(other, &info);
    if (info.vocabulary != fixture->vocabulary)
        assert_refused(
            eval_kl(other, fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
            AVO_ERROR_ARGUMENT, &error, "cannot be compared");
    avo_model_close(other);
    options.context = 512;
    assert_refused(
        eval_kl(fixture->model, fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
        AVO_ERROR_ARGUMENT, &error, "the text has 150 tokens, must have at least 512");
    options.context = 16;
    int calls = 0;
    options.progress = stop_at_second;
    options.progress_context = &calls;
    assert_refused(
        eval_kl(fixture->model, fixture->model, fixture->tokens, TOKENS, &options, &result, &error),
        AVO_ERROR_CANCELLED, &error, "1 of 9");
}

static void npy_holds_all_logits(void **state) {
    fixture *fixture = *state;
    avo_error error = {0};
    char path[4200];
    snprintf(path, sizeof(path), "%s/logits.npy", test_scratch_folder());
    eval_options options = {.context = 64, .chunk = 7, .engine.threads = 2};
    assert_ok_error(eval_logits_npy(fixture->model, fixture->tokens, 20, &options, path, &error),
                    &error);
    file_map map;
    assert_ok_error(file_map_open(path, &map, &error), &error);
    assert_int_equal(map.bytes.size, 128 + 20 * fixture->vocabulary * sizeof(float));
    char shape[40];
    snprintf(shape, sizeof(shape), "'shape': (20, %u), }", fixture->vocabulary);
    assert_memory_equal(map.bytes.data, "\x93NUMPY\x01\x00\x76\x00", 10);
    assert_non_null(memmem(map.bytes.data, 128, shape, strlen(shape)));
    assert_non_null(memmem(map.bytes.data, 128, "'descr': '<f4'", 14));
    assert_int_equal(map.bytes.data[127], '\n');
    plain_logits(fixture, fixture->tokens, 20);
    assert_memory_equal(map.bytes.data + 128, fixture->logits,
                        20 * fixture->vocabulary * sizeof(float));
    file_map_close(&map);
}

static void a_failed_npy_leaves_nothing(void **state) {
    fixture *fixture = *state;
    avo_error error = {0};
    char path[4200];
    snprintf(path, sizeof(path), "%s/failed.npy", test_scratch_folder());
    int32_t bad[] = {1, 2, -1};
    eval_options options = {.engine.threads = 1};
    assert_refused(eval_logits_npy(fixture->model, bad, 3, &options, path, &error),
                   AVO_ERROR_ARGUMENT, &error, "token 2: id is -1");
    assert_int_equal(file_kind_of(path), FILE_MISSING);
    options.context = 2;
    assert_refused(eval_logits_npy(fixture->model, fixture->tokens, 3, &options, path, &error),
                   AVO_ERROR_CONTEXT, &error, "3 tokens do not fit the context of 2");
    assert_refused(eval_logits_npy(fixture->model, fixture->tokens, 0, &options, path, &error),
                   AVO_ERROR_ARGUMENT, &error, "no tokens");
    assert_int_equal(file_kind_of(path), FILE_MISSING);
    assert_refused(eval_logits_npy(fixture->model, fixture->tokens, 2, &options,
                                   "/no/such/folder/x.npy", &error),
                   AVO_ERROR_IO, &error, "/no/such/folder");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(side_by_side_counts_as_told),
        cmocka_unit_test(sliding_scores_every_token_once),
        cmocka_unit_test(steps_and_threads_change_nothing),
        cmocka_unit_test(refuses),
        cmocka_unit_test(divergence_from_itself_is_zero),
        cmocka_unit_test(divergence_refuses),
        cmocka_unit_test(npy_holds_all_logits),
        cmocka_unit_test(a_failed_npy_leaves_nothing),
    };
    return cmocka_run_group_tests_name("eval/measures", tests, open_fixture, close_fixture);
}
