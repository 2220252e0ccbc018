/* AVO_TEST_THREADS. Draft heads in training, against PyTorch (tools/oracle/make_head_gradients.py):
 * losses and gradients of all kinds on the reference device, the same bits however sequences are
 * divided and for any number of threads, a file that opens as it was trained, and what is refused.
 * Errors are measured as in tests/train/gradients.c. */
#include "support/support.h"

#include "formats/source.h"
#include "support/models.h"
#include "support/tiny_model.h"
#include "train/heads.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUND  1e-5
#define TOKENS 20
#define SAMPLE 192

typedef struct heads_case {
    const char *name, *weights;
    train_heads_options options;
    uint32_t begin;
    double state_share;
} heads_case;

static const heads_case cases[] = {
    {"medusa", "f32-medusa", {HEADS_MEDUSA, 4, 61, 0, 0.7, 0}, 0, 0.0},
    {"medusa-hard", "f32-medusa", {HEADS_MEDUSA, 4, 61, 0, 0.0, 0}, 0, 0.0},
    {"eagle", "f32-eagle", {HEADS_EAGLE, 3, 61, 8, 0.7, 0}, 3, 0.5},
    {"eagle-hard", "f32-eagle", {HEADS_EAGLE, 2, 61, 0, 0.0, 0}, 0, 0.0},
    {"layers", "f32-layers", {HEADS_LAYERS, 3, 61, 0, 0.7, 2}, 0, 0.0},
    {"layers-hard", "f32-layers", {HEADS_LAYERS, 3, 61, 8, 0.0, 2}, 3, 0.0},
};

/* Tensors of a fixture. */
typedef struct stored {
    file_map map;
    model_source *source;
} stored;

static void stored_open(stored *s, const char *relative) {
    avo_error error;
    assert_ok_error(file_map_open(test_fixture_path(relative), &s->map, &error), &error);
    assert_ok_error(source_open_tensors(s->map.bytes, relative, NULL, &s->source, &error), &error);
}

static void stored_close(stored *s) {
    source_close(s->source);
    file_map_close(&s->map);
}

static const float *numbers_of(const stored *s, const char *name, const char *which,
                               size_t *count) {
    char full[TRAIN_NAME_MAX + 16];
    snprintf(full, sizeof(full), "%s%s", name, which);
    const source_tensor *tensor = source_find(s->source, text_from(full));
    if (tensor == NULL)
        fail_msg("the fixture has no %s", full);
    *count = (size_t)source_tensor_elements(tensor);
    return (const float *)(const void *)tensor->data;
}

static train_core *core_open(const avo_model *model, const train_heads_options *heads,
                             const char *device, uint32_t threads, avo_error *error) {
    train_core_options options = {.method = TRAIN_DRAFT_HEADS,
                                  .heads = *heads,
                                  .rows_max = 2 * TOKENS,
                                  .sequences_max = 2,
                                  .context_max = TOKENS,
                                  .engine = AVO_ENGINE_OPTIONS_INIT};
    options.engine.device = device;
    options.engine.kv_type = "f32";
    options.engine.threads = threads;
    train_core *core = NULL;
    return train_core_open(model, &options, &core, error) == AVO_OK ? core : NULL;
}

/* The weights and tokens of a fixture. */
static void take_weights(train_core *core, const char *name) {
    char relative[128];
    stored file;
    avo_error error;
    snprintf(relative, sizeof(relative), "heads/tiny/%s.safetensors", name);
    stored_open(&file, relative);
    const train_parameters *parameters = train_core_parameters(core);
    for (uint32_t i = 0; i < parameters->count; i++) {
        size_t count;
        const float *numbers = numbers_of(&file, parameters->item[i].name, "", &count);
        assert_int_equal(count, (size_t)parameters->item[i].rows * parameters->item[i].k);
        memcpy(parameters->item[i].value, numbers, count * sizeof(float));
    }
    size_t count;
    const float *tokens = numbers_of(&file, "frequent", "", &count);
    int32_t own[256];
    memcpy(own, tokens, count * sizeof(*own));
    assert_ok_error(train_heads_set_tokens(core, own, (uint32_t)count, &error), &error);
    stored_close(&file);
}

static void mark(uint8_t wanted[TOKENS]) {
    for (uint32_t i = 0; i < TOKENS; i++)
        wanted[i] = i >= 7 && i % 5 != 0;
}

typedef struct bench {
    avo_model *model;
    train_core *core;
    fixture fixture;
    uint8_t wanted[TOKENS];
    train_sequence sequence;
    avo_error error;
} bench;

static void bench_open(bench *b, const heads_case *c, const char *device, uint32_t threads) {
    assert_ok_error(avo_model_open(test_fixture_path("models/smollm2"), NULL, &b->model, &b->error),
                    &b->error);
    fixture_open(&b->fixture, "smollm2");
    b->core = core_open(b->model, &c->options, device, threads, &b->error);
    if (b->core == NULL)
        fail_msg("%s", b->error.text);
    take_weights(b->core, c->weights);
    mark(b->wanted);
    b->sequence = (train_sequence){b->fixture.ids, TOKENS, b->wanted};
    train_core_clear(b->core);
}

static void bench_close(bench *b) {
    train_core_close(b->core);
    fixture_close(&b->fixture);
    avo_model_close(b->model);
}

static void check_parameter(const stored *oracle, const train_parameter *p, double *worst) {
    size_t count, one, all = (size_t)p->rows * p->k;
    const float *wanted = numbers_of(oracle, p->name, "", &count);
    double most = 0.0, largest = (double)numbers_of(oracle, p->name, ".max", &one)[0];
    assert_int_equal(count, all < SAMPLE ? all : SAMPLE);
    for (size_t i = 0; i < count; i++) {
        size_t at = all <= SAMPLE ? i : i * all / SAMPLE;
        most = fmax(most, fabs((double)p->gradient[at] - (double)wanted[i]) / largest);
    }
    if (getenv("AVO_TEST_VERBOSE") != NULL)
        print_message("    %.1e %s\n", most, p->name);
    *worst = fmax(*worst, most);
    if (!(most <= BOUND))
        fail_msg("%s: the gradient is off by %.1e", p->name, most);
}

static void as_pytorch(void **state) {
    const heads_case *c = *state;
    char relative[128];
    bench b;
    stored oracle;
    bench_open(&b, c, "ref", 1);
    snprintf(relative, sizeof(relative), "train/heads.%s.safetensors", c->name);
    stored_open(&oracle, relative);
    train_heads_sums sums = {0};
    train_heads_pass pass = {.sequences = &b.sequence,
                             .begin = &c->begin,
                             .count = 1,
                             .weight = 1.0 / (double)train_heads_targets(&b.sequence),
                             .state_share = c->state_share,
                             .learn = true};
    assert_ok_error(train_heads_run(b.core, &pass, &sums, &b.error), &b.error);
    size_t count;
    const float *expected = numbers_of(&oracle, "sums", "", &count);
    uint32_t outputs = c->options.kind == HEADS_LAYERS ? 1 : c->options.drafts;
    assert_int_equal(count, 2 * outputs);
    double lost = 0.0, worst = 0.0;
    for (uint32_t k = 0; k < outputs; k++) {
        lost = fmax(lost, fabs(sums.loss[k] / (double)expected[2 * k] - 1.0));
        if (c->state_share > 0.0)
            lost = fmax(lost, fabs(sums.distance[k] / (double)expected[2 * k + 1] - 1.0));
    }
    const train_parameters *parameters = train_core_parameters(b.core);
    for (uint32_t i = 0; i < parameters->count; i++)
        check_parameter(&oracle, &parameters->item[i], &worst);
    print_message("  %-12s losses %.1e, gradients %.1e\n", c->name, lost, worst);
    assert_true(lost <= BOUND);
    stored_close(&oracle);
    bench_close(&b);
}

/* ---- Bits ---- */

#define NUMBERS_MAX 32768

/* Gradients of all parameters, one behind the other, of two sequences; `apart`: in a pass each. */
static size_t gradients_of(const heads_case *c, uint32_t threads, bool apart, float *out) {
    bench b;
    bench_open(&b, c, test_device(NULL), threads);
    uint8_t wanted[TOKENS] = {0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1};
    train_sequence sequences[2] = {b.sequence, {b.fixture.ids + 3, 12, wanted}};
    uint32_t begin[2] = {c->begin, 0};
    train_heads_sums sums = {0};
    for (size_t first = 0; first < 2; first += apart ? 1 : 2) {
        train_heads_pass pass = {.sequences = sequences + first,
                                 .begin = begin + first,
                                 .count = apart ? 1 : 2,
                                 .weight = 0.125,
                                 .state_share = c->state_share,
                                 .learn = true};
        assert_ok_error(train_heads_run(b.core, &pass, &sums, &b.error), &b.error);
    }
    size_t count = 0;
    const train_parameters *parameters = train_core_parameters(b.core);
    for (uint32_t i = 0; i < parameters->count; i++) {
        size_t numbers = (size_t)parameters->item[i].rows * parameters->item[i].k;
        assert_true(count + numbers <= NUMBERS_MAX);
        memcpy(out + count, parameters->item[i].gradient, numbers * sizeof(float));
        count += numbers;
    }
    bench_close(&b);
    return count;
}

static void same_bits(void **state) {
    (void)state;
    static float together[NUMBERS_MAX], other[NUMBERS_MAX];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t count = gradients_of(&cases[i], 1, false, together);
        assert_int_equal(gradients_of(&cases[i], 1, true, other), count);
        assert_memory_equal(together, other, count * sizeof(float));
        assert_int_equal(gradients_of(&cases[i], 3, false, other), count);
        assert_memory_equal(together, other, count * sizeof(float));
    }
}

/* ---- The file ---- */

/* As it was trained where nothing is rounded; smaller in 8 and 4 bits. */
static void file(void **state) {
    (void)state;
    static const quant_type types[] = {QUANT_F32, QUANT_Q8_0, QUANT_Q4_1};
    char path[600];
    for (size_t i = 0; i < 5; i += 2) {
        uint64_t bytes = UINT64_MAX;
        bench b;
        bench_open(&b, &cases[i], "ref", 1);
        snprintf(path, sizeof(path), "%s/heads.safetensors", test_scratch_folder());
        for (size_t t = 0; t < 3; t++) {
            avo_heads *heads;
            assert_ok_error(train_heads_write(b.core, path, types[t], &b.error), &b.error);
            assert_ok_error(avo_heads_open(b.model, path, &heads, &b.error), &b.error);
            assert_true(heads_made_for(&heads->config, b.model));
            assert_int_equal(heads->config.kind, cases[i].options.kind);
            assert_int_equal(heads->config.window, cases[i].options.window);
            assert_int_equal(heads->config.frequent, 61);
            assert_true(t != 1 || heads->file_bytes < bytes); /* short rows waste 4 bits */
            bytes = heads->file_bytes;
            avo_heads_close(heads);
            if (types[t] != QUANT_F32)
                continue;
            stored own;
            assert_ok_error(file_map_open(path, &own.map, &b.error), &b.error);
            assert_ok_error(source_open_tensors(own.map.bytes, path, NULL, &own.source, &b.error),
                            &b.error);
            const train_parameters *parameters = train_core_parameters(b.core);
            for (uint32_t p = 0; p < parameters->count; p++) {
                size_t count;
                const float *numbers = numbers_of(&own, parameters->item[p].name, "", &count);
                assert_memory_equal(numbers, parameters->item[p].value, count * sizeof(float));
            }
            stored_close(&own);
        }
        bench_close(&b);
    }
}

/* ---- Tokens ---- */

static void ranks(void **state) {
    (void)state;
    uint64_t amounts[8] = {0, 9, 0, 7, 7, 0, 100, 1}, more[8];
    int32_t tokens[8];
    memcpy(more, amounts, sizeof(more));
    train_heads_rank(more, 8, 3, tokens);
    assert_int_equal(tokens[0], 1);
    assert_int_equal(tokens[1], 3); /* of equal ones, the one with the smaller id */
    assert_int_equal(tokens[2], 6);
    memcpy(more, amounts, sizeof(more));
    train_heads_rank(more, 8, 8, tokens);
    for (int32_t i = 0; i < 8; i++)
        assert_int_equal(tokens[i], i);
}

/* ---- What is refused ---- */

static void refuse(const char *name, const train_heads_options *options, const char *text) {
    char path[128];
    avo_model *model;
    avo_error error = {0};
    snprintf(path, sizeof(path), "models/%s", name);
    assert_ok_error(avo_model_open(test_fixture_path(path), NULL, &model, &error), &error);
    assert_null(core_open(model, options, "ref", 1, &error));
    if (strstr(error.text, text) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", name, error.text, text);
    avo_model_close(model);
}

static void refusals(void **state) {
    (void)state;
    const train_heads_options good = cases[0].options;
    train_heads_options bad = good;
    refuse("gpt2", &good, "an RMS norm behind its layers");
    refuse("opt-350m", &good, "output matrix have its own width");
    bad.drafts = 9;
    refuse("smollm2", &bad, "drafts is 9, with medusa must be 1 to 8");
    bad = cases[2].options;
    bad.drafts = 5;
    refuse("smollm2", &bad, "with eagle must be 1 to 4");
    bad.drafts = 2;
    bad.window = 7;
    refuse("smollm2", &bad, "window is 7");
    bad = good;
    bad.tokens = 0;
    refuse("smollm2", &bad, "tokens is 0");
    bad = cases[4].options;
    bad.depth = 5;
    refuse("smollm2", &bad, "depth is 5, must be 1 to 4");
}

int main(void) {
    struct CMUnitTest tests[12];
    size_t count = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        tests[count++] = (struct CMUnitTest){cases[i].name, as_pytorch, NULL, NULL,
                                             (void *)(uintptr_t)&cases[i]};
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(same_bits);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(file);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(ranks);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(refusals);
    return _cmocka_run_group_tests("train/heads", tests, count, NULL, NULL);
}
