/* Adapters against the same model with everything that they change folded into its weights, and
 * what sessions refuse. */
#include "support/support.h"

#include "base/arena.h"
#include "base/random.h"
#include "device/runs.h"
#include "support/adapters.h"
#include "support/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 24

/* ---- Folding ---- */

typedef struct fold {
    arena arena;
    const avo_adapter *adapter[2];
    float factor[2];
    size_t count;
} fold;

static float *take(fold *f, size_t count) {
    float *numbers = arena_take_array(&f->arena, count, sizeof(float));
    assert_non_null(numbers);
    return numbers;
}

static void decode(fold *f, const weight_view *weight, float **out) {
    *out = take(f, (size_t)weight->rows * weight->k);
    for (size_t row = 0; row < weight->rows; row++)
        weight_decode_row(weight, row, *out + row * weight->k);
}

static weight_view plain(const float *numbers, uint32_t rows, uint32_t k) {
    return (weight_view){.type = QUANT_F32,
                         .layout = QUANT_LAYOUT_ROWS,
                         .rows = rows,
                         .k = k,
                         .data = (const uint8_t *)numbers};
}

/* sum += factor · up · down, row by row. */
static void add_low_rank(fold *f, const weight_view *up, const weight_view *down, float factor,
                         float *sum) {
    float *b;
    float *a;
    decode(f, up, &b);
    decode(f, down, &a);
    for (size_t i = 0; i < up->rows; i++)
        for (size_t r = 0; r < up->k; r++)
            for (size_t j = 0; j < down->k; j++)
                sum[i * down->k + j] += factor * b[i * up->k + r] * a[r * down->k + j];
}

static void add_numbers(const float *from, float factor, size_t count, float *sum) {
    for (size_t i = 0; from != NULL && i < count; i++)
        sum[i] += factor * from[i];
}

static void fold_linear(fold *f, uint32_t layer, adapter_matrix matrix, linear_view *linear) {
    uint32_t rows = linear->weight.rows;
    uint32_t k = linear->weight.k;
    if (linear->weight.data == NULL)
        return;
    float *weights;
    decode(f, &linear->weight, &weights);
    float *bias = take(f, rows);
    add_numbers(linear->bias, 1.0f, rows, bias);
    for (size_t i = 0; i < rows; i++) {
        float gain = 1.0f;
        for (size_t n = 0; n < f->count; n++) {
            const float *own = adapter_delta_of(&f->adapter[n]->view, layer, matrix)->gain;
            gain += own == NULL ? 0.0f : f->factor[n] * (own[i] - 1.0f);
        }
        bias[i] *= gain;
        for (size_t j = 0; j < k; j++)
            weights[i * k + j] *= gain;
    }
    for (size_t n = 0; n < f->count; n++) {
        const adapter_delta *delta = adapter_delta_of(&f->adapter[n]->view, layer, matrix);
        float factor = f->factor[n] * delta->scale;
        add_numbers(delta->offset, f->factor[n], rows, bias);
        if (delta->up.data != NULL && delta->down.data != NULL) {
            add_low_rank(f, &delta->up, &delta->down, factor, weights);
        } else if (delta->up.data != NULL) {
            float *difference;
            decode(f, &delta->up, &difference);
            add_numbers(difference, factor, (size_t)rows * k, weights);
        }
    }
    linear->weight = plain(weights, rows, k);
    linear->bias = bias;
}

static void fold_norm(fold *f, size_t offset, bool in_layer, uint32_t layer, uint32_t width,
                      norm_view *norm) {
    if (norm->kind == NORM_NONE)
        return;
    float *weight = take(f, width);
    float *bias = take(f, width);
    add_numbers(norm->weight, 1.0f, width, weight);
    add_numbers(norm->bias, 1.0f, width, bias);
    for (size_t n = 0; n < f->count; n++) {
        const adapter_view *view = &f->adapter[n]->view;
        const char *base = in_layer ? (const char *)&view->layer[layer] : (const char *)view;
        const adapter_norm *own = (const adapter_norm *)(const void *)(base + offset);
        add_numbers(own->weight, f->factor[n], width, weight);
        add_numbers(own->bias, f->factor[n], width, bias);
    }
    norm->weight = weight;
    norm->bias = norm->bias == NULL ? NULL : bias;
}

static void fold_embedding(fold *f, model_view *model) {
    float *table;
    uint32_t rows = model->embedding.rows;
    uint32_t k = model->embedding.k;
    decode(f, &model->embedding, &table);
    for (size_t n = 0; n < f->count; n++) {
        const adapter_embedding *own = &f->adapter[n]->view.embedding;
        float factor = f->factor[n] * own->scale;
        if (own->look.data == NULL)
            continue;
        float *look;
        decode(f, &own->look, &look);
        if (own->up.data == NULL) {
            add_numbers(look, factor, (size_t)rows * k, table);
            continue;
        }
        float *up;
        decode(f, &own->up, &up);
        for (size_t token = 0; token < rows; token++)
            for (size_t i = 0; i < k; i++)
                for (size_t r = 0; r < own->up.k; r++)
                    table[token * k + i] +=
                        factor * up[i * own->up.k + r] * look[token * own->up.k + r];
    }
    model->embedding = plain(table, rows, k);
}

static void fold_model(fold *f, model_view *model) {
    layer_view *layers = arena_take_array(&f->arena, model->layers, sizeof(*layers));
    assert_non_null(layers);
    memcpy(layers, model->layer, model->layers * sizeof(*layers));
    for (uint32_t i = 0; i < model->layers; i++) {
        layer_view *own = &layers[i];
        fold_linear(f, i, ADAPTER_QUERY, &own->query);
        fold_linear(f, i, ADAPTER_KEY, &own->key);
        fold_linear(f, i, ADAPTER_VALUE, &own->value);
        fold_linear(f, i, ADAPTER_OUTPUT, &own->output);
        fold_linear(f, i, ADAPTER_GATE, &own->gate);
        fold_linear(f, i, ADAPTER_UP, &own->up);
        fold_linear(f, i, ADAPTER_DOWN, &own->down);
#define FOLD_NORM(name, width)                                                                     \
    fold_norm(f, offsetof(adapter_layer, name), true, i, width, &own->name)
        FOLD_NORM(attention_norm, model->width);
        FOLD_NORM(feed_forward_norm, model->width);
        FOLD_NORM(attention_post_norm, model->width);
        FOLD_NORM(feed_forward_post_norm, model->width);
        FOLD_NORM(query_norm, own->head_size);
        FOLD_NORM(key_norm, own->head_size);
    }
    model->layer = layers;
    fold_linear(f, 0, ADAPTER_HEAD, &model->head);
    fold_norm(f, offsetof(adapter_view, final_norm), false, 0, model->width, &model->final_norm);
    fold_embedding(f, model);
}

/* ---- Comparing ---- */

static void compute(avo_engine *engine, const avo_session_options *options, uint32_t vocabulary,
                    float *logits) {
    avo_error error = {0};
    avo_session *session;
    avo_batch *batch;
    int32_t ids[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)(random_at(5, 0, i).words[0] % vocabulary);
    assert_ok_error(avo_session_open(engine, options, &session, &error), &error);
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    assert_ok(avo_batch_add_scored(batch, session, ids, TOKENS, TOKENS));
    assert_ok(avo_step(engine, batch));
    for (uint32_t i = 0; i < TOKENS; i++)
        memcpy(logits + (size_t)i * vocabulary, avo_batch_logits(batch, session, i),
               vocabulary * sizeof(float));
    avo_batch_close(batch);
    avo_session_close(session);
}

static double largest_difference(const float *a, const float *b, size_t count, double *range) {
    double largest = 0.0;
    float low = b[0];
    float high = b[0];
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        largest = difference <= largest ? largest : difference;
        low = b[i] < low ? b[i] : low;
        high = b[i] > high ? b[i] : high;
    }
    *range = (double)high - (double)low;
    return largest;
}

typedef struct merge_case {
    const char *what;
    adapter_random_options first, second; /* rank 0: none */
} merge_case;

#define ALL TEST_MATRICES_ALL
static const merge_case cases[] = {
    {"lora", {1, 8, ALL, 0, QUANT_F32, 0.2f}, {0}},
    {"q8", {1, 20, ALL, ADAPTER_RANDOM_SHARED, QUANT_Q8C, 0.2f}, {0}},
    {"gain", {2, 4, ALL, ADAPTER_RANDOM_GAINS | ADAPTER_RANDOM_OFFSETS, QUANT_F16, 0.2f}, {0}},
    {"whole", {3, 1, ALL, ADAPTER_RANDOM_WHOLE | ADAPTER_RANDOM_NORMS, QUANT_F32, 0.2f}, {0}},
    {"embedding", {4, 5, 0, ADAPTER_RANDOM_EMBEDDING, QUANT_F32, 0.5f}, {0}},
    {"table", {5, 1, 0, ADAPTER_RANDOM_EMBEDDING_WHOLE, QUANT_F32, 0.5f}, {0}},
    {"two",
     {6, 17, ALL, ADAPTER_RANDOM_GAINS | ADAPTER_RANDOM_NORMS, QUANT_Q8C, 0.2f},
     {7, 100, ALL, ADAPTER_RANDOM_GAINS | ADAPTER_RANDOM_OFFSETS, QUANT_F32, 0.2f}},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static avo_engine *open_engine(const avo_model *model, const char *isa) {
    avo_error error = {0};
    avo_engine *engine;
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.threads = 1;
    options.context_max = TOKENS;
    options.rope_context = TOKENS;
    options.rows_max = TOKENS;
    options.logits_max = TOKENS;
    options.device = test_device(isa);
    options.kv_type = "f32";
    assert_ok_error(avo_engine_open(model, &options, &engine, &error), &error);
    return engine;
}

static void check_case(const char *name, const avo_model *model, const merge_case *c,
                       uint32_t vocabulary) {
    size_t count = (size_t)TOKENS * vocabulary;
    float *merged = malloc(count * sizeof(float));
    float *logits = malloc(count * sizeof(float));
    assert_true(merged != NULL && logits != NULL);
    fold f = {.count = c->second.rank > 0 ? 2 : 1, .factor = {0.75f, -1.25f}};
    avo_adapter_use use[2];
    for (size_t i = 0; i < f.count; i++) {
        use[i].adapter = test_adapter_make(model, i == 0 ? &c->first : &c->second);
        use[i].weight = f.factor[i];
        f.adapter[i] = use[i].adapter;
    }
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = use;
    options.adapter_count = f.count;
    avo_model folded = *model;
    arena_init(&f.arena, NULL, SIZE_MAX);
    fold_model(&f, &folded.view);
    avo_engine *engine = open_engine(&folded, "ref");
    compute(engine, NULL, vocabulary, merged);
    avo_engine_close(engine);
    fixture_isas isas;
    fixture_isas_find(&isas);
    for (size_t i = 0; i < isas.count; i++) {
        double range;
        engine = open_engine(model, isas.name[i]);
        compute(engine, NULL, vocabulary, logits);
        if (largest_difference(logits, merged, count, &range) < 1e-2 * range)
            fail_msg("%s, %s: the adapter changes nothing", name, c->what);
        compute(engine, &options, vocabulary, logits);
        double difference = largest_difference(logits, merged, count, &range);
        /* The halves of 8 bits are multiplied with activations of 8 bits where the base, here of
         * floats, is not; the reference has floats for both. */
        bool rounds = strcmp(isas.name[i], "ref") != 0 &&
                      (c->first.type == QUANT_Q8C || c->second.type == QUANT_Q8C);
        if (!(difference < (rounds ? 2e-2 : 1e-3) * range))
            fail_msg("%s, %s, %s: differs by %g of %g", name, c->what, isas.name[i], difference,
                     range);
        avo_engine_close(engine);
    }
    for (size_t i = 0; i < f.count; i++)
        adapter_release(use[i].adapter);
    arena_free(&f.arena);
    free(merged);
    free(logits);
}

static void test_folded(void **state) {
    const char *name = *state;
    char relative[256];
    avo_error error = {0};
    avo_model *model;
    avo_model_info info = {.size = sizeof(info)};
    snprintf(relative, sizeof(relative), "models/%s", name);
    assert_ok_error(avo_model_open(test_fixture_path(relative), NULL, &model, &error), &error);
    avo_model_describe(model, &info);
    for (size_t i = 0; i < CASES; i++)
        check_case(name, model, &cases[i], info.vocabulary);
    avo_model_close(model);
}

/* ---- Refusals ---- */

static void test_refused(void **state) {
    (void)state;
    avo_error error = {0};
    avo_model *model;
    avo_model *other;
    avo_session *session;
    assert_ok_error(avo_model_open(test_fixture_path("models/llama2"), NULL, &model, &error),
                    &error);
    assert_ok_error(avo_model_open(test_fixture_path("models/llama2"), NULL, &other, &error),
                    &error);
    avo_engine *engine = open_engine(model, "ref");
    adapter_random_options options = {1, 200, 1, 0, QUANT_F32, 0.1f};
    avo_adapter *first = test_adapter_make(model, &options);
    avo_adapter *foreign = test_adapter_make(other, &options);
    options.seed = 2;
    avo_adapter *second = test_adapter_make(model, &options);
    avo_adapter_use use[AVO_ADAPTERS_MAX + 1] = {{first, 1.0f}, {second, 1.0f}};
    avo_session_options own = AVO_SESSION_OPTIONS_INIT;
    own.adapters = use;
    own.adapter_count = 2;
    assert_refused(avo_session_open(engine, &own, &session, &error), AVO_ERROR_LIMIT, &error,
                   "add up to 400");
    own.adapter_count = AVO_ADAPTERS_MAX + 1;
    assert_refused(avo_session_open(engine, &own, &session, &error), AVO_ERROR_LIMIT, &error,
                   "must be at most 8");
    own.adapter_count = 2;
    use[1].adapter = first;
    assert_refused(avo_session_open(engine, &own, &session, &error), AVO_ERROR_ARGUMENT, &error,
                   "twice");
    use[1].adapter = foreign;
    assert_refused(avo_session_open(engine, &own, &session, &error), AVO_ERROR_ARGUMENT, &error,
                   "another model");
    use[1].adapter = NULL;
    assert_refused(avo_session_open(engine, &own, &session, &error), AVO_ERROR_ARGUMENT, &error,
                   "adapters[1]");
    own.adapter_count = 1;
    use[0].weight = NAN;
    assert_refused(avo_session_open(engine, &own, &session, &error), AVO_ERROR_ARGUMENT, &error,
                   "weight");
    assert_int_equal(first->references, 1); /* nothing was kept */
    use[0].weight = 1.0f;
    assert_ok_error(avo_session_open(engine, &own, &session, &error), &error);
    assert_int_equal(first->references, 2);
    avo_session_close(session);
    assert_int_equal(first->references, 1);
    adapter_release(first);
    adapter_release(second);
    adapter_release(foreign);
    avo_engine_close(engine);
    avo_model_close(model);
    avo_model_close(other);
}

int main(void) {
    static const char *const names[] = {"llama2", "qwen3", "gemma3",  "phi3",
                                        "gpt2",   "opt",   "opt-350m"};
    struct CMUnitTest tests[sizeof(names) / sizeof(names[0]) + 1];
    size_t count = 0;
    for (; count < sizeof(names) / sizeof(names[0]); count++)
        tests[count] = (struct CMUnitTest){names[count], test_folded, NULL, NULL,
                                           (void *)(uintptr_t)names[count]};
    tests[count] = (struct CMUnitTest)cmocka_unit_test(test_refused);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
