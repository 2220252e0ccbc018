/* Draft heads against what PyTorch computed for the tiny ones (docs/heads.md), those in folders of
 * other projects included, on every device, and inside the engine. AVO_TEST_THREADS */
#include "support/support.h"

#include "base/random.h"
#include "engine/draft_heads_int.h"
#include "engine/drafting.h"
#include "model/heads_import.h"
#include "support/heads.h"
#include "support/models.h"
#include "support/npy.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TOKENS 20
#define WIDTH  36
#define TAPS   3
#define CHAIN  4

static const int32_t tokens[TOKENS] = {84, 48, 69, 71, 64, 13, 25, 56, 96, 15,
                                       78, 75, 33, 11, 74, 42, 8,  48, 29, 40};

typedef struct heads_case {
    const char *name;
    heads_kind kind;
    int32_t drafts[CHAIN];
} heads_case;

static const heads_case cases[] = {{"f32-eagle", HEADS_EAGLE, {19, 57, 16, 57}},
                                   {"q8-eagle", HEADS_EAGLE, {19, 57, 16, 57}},
                                   {"deep-eagle", HEADS_EAGLE, {34, 63, 13, 16}},
                                   {"f32-layers", HEADS_LAYERS, {9, 9, 9, 12}},
                                   {"q4-layers", HEADS_LAYERS, {31, 31, 58, 6}},
                                   {"f32-medusa", HEADS_MEDUSA, {0}},
                                   {"q8-medusa", HEADS_MEDUSA, {0}},
                                   {"others/medusa", HEADS_MEDUSA, {0}},
                                   {"others/eagle", HEADS_EAGLE, {36, 0, 76, 90}},
                                   {"others/speculators-eagle", HEADS_EAGLE, {82, 92, 17, 72}},
                                   {"others/eagle3", HEADS_EAGLE, {14, 14, 33, 33}},
                                   {"others/speculators", HEADS_EAGLE, {50, 50, 9, 3}}};

typedef struct bench {
    avo_model *model;
    avo_heads *heads;
    avo_engine *engine;
    avo_session *session;
    drafter *drafter;
    sequence sequence;
    draft draft;
    avo_error error;
} bench;

static const char *heads_path(const char *name) {
    char relative[128];
    bool other = strncmp(name, "others/", 7) == 0;
    snprintf(relative, sizeof(relative), other ? "heads/%s" : "heads/tiny/%s", name);
    return test_fixture_path(relative);
}

/* A folder without rounding, so that its logits can be compared. */
static void heads_open(bench *b, const char *name) {
    char file[64];
    if (strncmp(name, "others/", 7) != 0) {
        snprintf(file, sizeof(file), "%s.safetensors", name);
        assert_ok_error(avo_heads_open(b->model, heads_path(file), &b->heads, &b->error),
                        &b->error);
        return;
    }
    buffer made;
    buffer_init(&made, NULL, SIZE_MAX);
    assert_ok_error(heads_import(b->model, heads_path(name), QUANT_F32, &made, &b->error),
                    &b->error);
    bytes_view bytes = {(const uint8_t *)made.data, made.size};
    assert_ok_error(heads_open_memory(b->model, bytes, name, &b->heads, &b->error), &b->error);
    buffer_free(&made);
}

/* EAGLE-3's first layer, which the CUDA device does not compute. */
static bool must_be_refused(const char *name, const char *device) {
    bool wide = strcmp(name, "others/eagle3") == 0 || strcmp(name, "others/speculators") == 0;
    return wide && strncmp(device, "cuda", 4) == 0;
}

/* An engine for the model and the heads; its status. */
static avo_status open_engine(bench *b, const char *device) {
    const avo_heads *list[] = {b->heads};
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.device = device;
    options.threads = 2;
    options.context_max = 64;
    options.speculate = heads_kind_name(b->heads->config.kind);
    options.draft_controller = "fixed";
    options.draft_heads = list;
    options.draft_heads_count = 1;
    return avo_engine_open(b->model, &options, &b->engine, &b->error);
}

static void take_drafter(bench *b) {
    assert_ok_error(avo_session_open(b->engine, NULL, &b->session, &b->error), &b->error);
    avo_request request = AVO_REQUEST_INIT;
    const avo_sampling sampling = AVO_SAMPLING_INIT;
    draft_sources sources = engine_drafts(b->engine);
    b->drafter = drafting_take(b->engine->speculation, &sources, &request, &sampling, b->session);
    assert_non_null(b->drafter);
    b->sequence.session = b->session;
    b->engine->draft_heads->whole = true;
}

/* Random EAGLE layers of a random model whose width is a multiple of 32: output rows are rounded.
 */
static void bench_open_tiny(bench *b, uint64_t seed) {
    *b = (bench){0};
    assert_ok_error(
        avo_model_open(tiny_model_write(test_scratch_folder(), seed), NULL, &b->model, &b->error),
        &b->error);
    b->heads = test_heads_make(b->model, HEADS_EAGLE, seed);
    assert_ok_error(open_engine(b, test_device("ref")), &b->error);
    take_drafter(b);
}

/* false: refused, as it must be; nothing is open. */
static bool bench_open(bench *b, const char *name, const char *device) {
    *b = (bench){0};
    assert_ok_error(avo_model_open(test_fixture_path("models/smollm2"), NULL, &b->model, &b->error),
                    &b->error);
    heads_open(b, name);
    avo_status status = open_engine(b, device);
    if (must_be_refused(name, device)) {
        assert_int_equal(status, AVO_ERROR_UNSUPPORTED);
        assert_non_null(strstr(b->error.text, "the first layer's attention sees more"));
        avo_heads_close(b->heads);
        avo_model_close(b->model);
        return false;
    }
    assert_ok_error(status, &b->error);
    take_drafter(b);
    return true;
}

static void bench_close(bench *b) {
    draft_sources sources = engine_drafts(b->engine);
    drafting_give(&sources, b->drafter);
    avo_session_close(b->session);
    avo_engine_close(b->engine);
    avo_heads_close(b->heads);
    avo_model_close(b->model);
}

/* Drafts behind the first `count` tokens. */
static void propose(bench *b, uint32_t count, uint32_t most) {
    draft_request request = {.sequence = &b->sequence,
                             .drafter = b->drafter,
                             .timeline = {tokens, count, count},
                             .most = most,
                             .draft = &b->draft};
    draft_time time = {.token_ns = 1e9};
    b->draft.count = 0;
    draft_heads_propose(b->engine->draft_heads, &request, 1, &time);
}

/* The taps that PyTorch computed, in place of the engine's. */
static void give_taps(bench *b, const npy *taps, uint32_t count) {
    draft_heads *own = b->engine->draft_heads;
    if (own->taps == 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t tap = 0; tap < own->taps; tap++)
            memcpy(head_ring_row(own, 0, i) + (size_t)tap * WIDTH,
                   taps->numbers + ((size_t)i * TAPS + (own->taps == 1 ? TAPS - 1 : tap)) * WIDTH,
                   WIDTH * sizeof(float));
    own->feed[0].begin = 0;
    own->feed[0].end = count;
}

static double bound_of(const char *device) {
    return strcmp(device, "ref") == 0 ? 2e-5 : 4e-3; /* K and V in f16 */
}

static void compare(const bench *b, uint32_t row, const float *expected, const char *what,
                    const char *device) {
    const head_unit *unit = &b->engine->draft_heads->unit[b->heads->config.kind];
    const float *found;
    avo_error error;
    double largest = 0.0, worst = 0.0;
    bool own = b->heads->config.kind == HEADS_MEDUSA && b->heads->config.output;
    device_stream *stream = own ? unit->output[row].stream : unit->layers.stream;
    assert_ok_error(device_read_logits(stream, own ? 0 : row, &found, &error), &error);
    for (uint32_t i = 0; i < b->heads->config.frequent; i++) {
        largest = fmax(largest, fabs((double)expected[i]));
        worst = fmax(worst, fabs((double)expected[i] - (double)found[i]));
    }
    if (!(worst <= bound_of(device) * largest))
        fail_msg("%s on %s, row %u: differs by %.2e of %.2e", what, device, row, worst, largest);
}

static void check_medusa(bench *b, const heads_case *wanted, const char *device, const npy *taps,
                         const npy *logits) {
    size_t frequent = b->heads->config.frequent;
    for (uint32_t count = 2; count <= TOKENS; count++) {
        give_taps(b, taps, count - 1);
        propose(b, count, CHAIN);
        assert_int_equal(b->draft.count, CHAIN);
        for (uint32_t head = 0; head < CHAIN; head++)
            compare(b, head, logits->numbers + ((size_t)head * (TOKENS - 1) + count - 2) * frequent,
                    wanted->name, device);
    }
}

static void check_layers(bench *b, const heads_case *wanted, const char *device,
                         const npy *logits) {
    uint32_t first = wanted->kind == HEADS_EAGLE ? 2 : 1;
    size_t frequent = b->heads->config.frequent;
    npy chain;
    char file[64];
    for (uint32_t count = first; count <= TOKENS; count++) {
        propose(b, count, 1);
        assert_int_equal(b->draft.count, 1);
        compare(b, 0, logits->numbers + (size_t)(count - first) * frequent, wanted->name, device);
    }
    snprintf(file, sizeof(file), "%s-chain.npy", wanted->name);
    npy_open(&chain, heads_path(file));
    for (uint32_t most = 1; most <= CHAIN; most++) {
        propose(b, TOKENS, most);
        assert_int_equal(b->draft.count, most);
        compare(b, 0, chain.numbers + (size_t)(most - 1) * frequent, wanted->name, device);
    }
    for (uint32_t i = 0; i < CHAIN; i++)
        assert_int_equal(b->draft.tokens[i], wanted->drafts[i]);
    npy_close(&chain);
}

static void check_case(const heads_case *wanted, const char *device) {
    bench b;
    npy taps, logits;
    char file[64];
    if (!bench_open(&b, wanted->name, test_device(device)))
        return;
    npy_open(&taps, heads_path("taps.npy"));
    snprintf(file, sizeof(file), "%s.npy", wanted->name);
    npy_open(&logits, heads_path(file));
    if (wanted->kind == HEADS_EAGLE)
        give_taps(&b, &taps, TOKENS - 1);
    if (wanted->kind == HEADS_MEDUSA)
        check_medusa(&b, wanted, device, &taps, &logits);
    else
        check_layers(&b, wanted, device, &logits);
    npy_close(&taps);
    npy_close(&logits);
    bench_close(&b);
}

static void logits_are_those_of_pytorch(void **state) {
    (void)state;
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t i = 0; i < isas.count; i++)
        for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
            check_case(&cases[c], isas.name[i]);
}

/* The engine's steps leave the taps that PyTorch computed, in chunks and with rejected drafts. */
static void steps_leave_taps(void **state) {
    (void)state;
    bench b;
    npy taps;
    avo_batch *batch;
    bench_open(&b, "f32-eagle", test_device("ref"));
    npy_open(&taps, heads_path("taps.npy"));
    draft_heads *own = b.engine->draft_heads;
    assert_ok_error(engine_batch_open(b.engine, 0, &batch, &b.error), &b.error);
    const uint32_t chunks[] = {7, 1, 5, 6};
    uint32_t done = 0;
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        avo_batch_clear(batch);
        /* Wrong drafts behind the chunk are computed, and forgotten. */
        int32_t wrong[16] = {0};
        memcpy(wrong, tokens + done, chunks[i] * sizeof(*tokens));
        assert_ok(engine_batch_add_drafts(batch, b.session, wrong, chunks[i] + 2, 2));
        assert_ok(avo_step(b.engine, batch));
        session_settle(b.session);
        done += chunks[i];
        assert_int_equal(b.session->computed, done);
        for (uint32_t row = 0; row < done; row++)
            for (size_t k = 0; k < TAPS * (size_t)WIDTH; k++) {
                float found = head_ring_row(own, 0, row)[k];
                float expected = taps.numbers[(size_t)row * TAPS * WIDTH + k];
                if (!(fabsf(found - expected) < 2e-4f))
                    fail_msg("row %u, number %zu: %g, expected %g", row, k, (double)found,
                             (double)expected);
            }
    }
    assert_int_equal(own->feed[0].begin, 0);
    assert_true(own->feed[0].end >= done);
    avo_batch_close(batch);
    npy_close(&taps);
    bench_close(&b);
}

/* ---- Answers ---- */

static void generate(const bench *b, const char *speculate, float temperature, int32_t *answer,
                     avo_result *result) {
    avo_session *session;
    avo_error error;
    avo_request request = AVO_REQUEST_INIT;
    request.tokens = tokens;
    request.token_count = TOKENS;
    request.max_new_tokens = 40;
    request.ignore_end = true;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.temperature = temperature;
    request.sampling = &sampling;
    request.speculate = speculate;
    *result = (avo_result)AVO_RESULT_INIT;
    assert_ok_error(avo_session_open(b->engine, NULL, &session, &error), &error);
    assert_ok_error(avo_generate(b->engine, session, &request, result, &error), &error);
    assert_int_equal(session->count, TOKENS + 40);
    memcpy(answer, session->tokens + TOKENS, 40 * sizeof(*answer));
    avo_session_close(session);
}

static void answers_stay_the_same(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        for (int hot = 0; hot < 2; hot++) {
            bench b;
            int32_t with[40], without[40];
            avo_result result;
            bench_open(&b, cases[c].name, test_device("ref"));
            /* The test's own session and drafter are in the way of the only one. */
            draft_sources sources = engine_drafts(b.engine);
            drafting_give(&sources, b.drafter);
            avo_session_close(b.session);
            draft_heads_assume(b.engine->draft_heads, 1.0);
            generate(&b, "off", (float)hot, without, &result);
            assert_int_equal(result.drafted_tokens, 0);
            generate(&b, NULL, (float)hot, with, &result);
            assert_true(result.drafted_tokens > 0);
            assert_memory_equal(with, without, sizeof(with));
            b.drafter = NULL;
            avo_engine_close(b.engine);
            avo_heads_close(b.heads);
            avo_model_close(b.model);
        }
}

/* ---- The model's own rows ---- */

/* Σ norm(state) · row of the model's output matrix. */
static double own_logit(const bench *b, const float *state, int32_t token) {
    const norm_view *norm = &b->heads->layers.final_norm;
    uint32_t width = b->model->view.width;
    double square = 0, sum = 0;
    float *row = malloc(width * sizeof(float));
    for (uint32_t k = 0; k < width; k++)
        square += (double)state[k] * (double)state[k];
    double factor = 1 / sqrt(square / width + (double)norm->epsilon);
    weight_decode_row(&b->model->view.head.weight, (size_t)token, row);
    for (uint32_t k = 0; k < width; k++)
        sum += (double)state[k] * factor * (double)norm->weight[k] * (double)row[k];
    free(row);
    return sum;
}

/* Rows of the heads are rounded to 4 bits: of the two likeliest tokens by these, the draft is the
 * one that the model's own rows prefer. */
static void the_models_own_rows_choose(void **state) {
    (void)state;
    uint32_t other = 0;
    bench b;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        bench_open_tiny(&b, seed);
        draft_heads *own = b.engine->draft_heads;
        head_unit *unit = &own->unit[HEADS_EAGLE];
        assert_int_equal(b.heads->layers.head.weight.type, QUANT_Q4_1);
        for (uint32_t i = 0; i < TOKENS * own->taps * own->width; i++)
            own->ring[i] = (float)(random_at(seed, 3, i).words[0] % 2001) * 1e-3f - 1.0f;
        own->feed[0].begin = 0;
        own->feed[0].end = TOKENS - 1;
        propose(&b, TOKENS, 1);
        assert_int_equal(b.draft.count, 1);
        const logit_top *top;
        const float *states;
        assert_ok(device_read_top(unit->layers.stream, &top, &b.error));
        uint32_t row = own->batch.logit_row[0];
        assert_ok(device_read_tap(unit->layers.stream, 0, 0, row + 1, &states, &b.error));
        const float *last = states + (size_t)row * own->width;
        int32_t first = b.heads->frequent[top->token[0]], second = b.heads->frequent[top->token[1]];
        bool better = own_logit(&b, last, second) > own_logit(&b, last, first);
        assert_int_equal(b.draft.tokens[0], better ? second : first);
        other += better;
        bench_close(&b);
    }
    assert_in_range(other, 1, 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_models_own_rows_choose), cmocka_unit_test(logits_are_those_of_pytorch),
        cmocka_unit_test(steps_leave_taps), cmocka_unit_test(answers_stay_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
