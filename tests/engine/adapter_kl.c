/* What 8 bits lose of an adapter: the divergence of the model's distributions under the adapter in
 * 8 bit from those under the same adapter in 16 bit. A tiny model here; AVO_TEST_MODEL=FILE does
 * the same with a real one, on text, and prints the figure. */
#include "support/support.h"

#include "base/random.h"
#include "support/adapters.h"
#include "support/models.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 256
#define LIMIT  1e-4

static const char text[] =
    "The avocet is a wader with an upturned beak. It sweeps it from side to side through shallow "
    "water, and feeds on what it finds there: insects, shrimps and small worms. In winter large "
    "flocks gather in estuaries, where the tide lays bare miles of mud twice a day. They nest on "
    "islands in lagoons, in a scrape lined with grass, and both parents sit on the four eggs. A "
    "program that serves many people at once has to be as patient: it reads what comes, keeps what "
    "it needs, and gives each of them an answer that does not depend on who else is asking. To do "
    "that well, one must measure, and to measure well one must know what the machine could do at "
    "best. Everything else is a guess, and guesses have a way of being wrong where it costs most.";

static void compute(avo_engine *engine, avo_adapter *adapter, const int32_t *ids, uint32_t count,
                    uint32_t vocabulary, float *logits) {
    avo_error error = {0};
    avo_session *session;
    avo_batch *batch;
    avo_adapter_use use = {adapter, 1.0f};
    avo_session_options options = AVO_SESSION_OPTIONS_INIT;
    options.adapters = &use;
    options.adapter_count = adapter != NULL;
    assert_ok_error(avo_session_open(engine, &options, &session, &error), &error);
    assert_ok_error(avo_batch_open(engine, &batch, &error), &error);
    assert_ok(avo_batch_add_scored(batch, session, ids, count, count));
    assert_ok(avo_step(engine, batch));
    for (uint32_t i = 0; i < count; i++)
        memcpy(logits + (size_t)i * vocabulary, avo_batch_logits(batch, session, i),
               vocabulary * sizeof(float));
    avo_batch_close(batch);
    avo_session_close(session);
}

static double log_sum(const float *logits, uint32_t count) {
    double highest = (double)logits[0];
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        highest = (double)logits[i] > highest ? (double)logits[i] : highest;
    for (uint32_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - highest);
    return highest + log(sum);
}

/* Σ p (log p − log q), mean over the rows. */
static double divergence(const float *p, const float *q, uint32_t rows, uint32_t vocabulary) {
    double total = 0.0;
    for (uint32_t row = 0; row < rows; row++, p += vocabulary, q += vocabulary) {
        double p_sum = log_sum(p, vocabulary);
        double q_sum = log_sum(q, vocabulary);
        for (uint32_t i = 0; i < vocabulary; i++) {
            double log_p = (double)p[i] - p_sum;
            total += exp(log_p) * (log_p - ((double)q[i] - q_sum));
        }
    }
    return total / rows;
}

typedef struct trial {
    avo_model *model;
    avo_engine *engine;
    int32_t ids[TOKENS];
    size_t count;
    uint32_t vocabulary;
} trial;

static void open_trial(trial *t, const char *isa) {
    const char *given = getenv("AVO_TEST_MODEL");
    avo_error error = {0};
    avo_model_info info = {.size = sizeof(info)};
    assert_ok_error(avo_model_open(given != NULL ? given : test_fixture_path("models/llama2"), NULL,
                                   &t->model, &error),
                    &error);
    avo_model_describe(t->model, &info);
    t->vocabulary = info.vocabulary;
    t->count = given != NULL ? 0 : 48;
    for (size_t i = 0; i < t->count; i++)
        t->ids[i] = (int32_t)(random_at(9, 0, i).words[0] % info.vocabulary);
    if (given != NULL)
        assert_ok_error(
            avo_tokenize(t->model, text, strlen(text), 0, t->ids, TOKENS, &t->count, &error),
            &error);
    avo_engine_options options = AVO_ENGINE_OPTIONS_INIT;
    options.context_max = TOKENS;
    options.rows_max = TOKENS;
    options.logits_max = TOKENS;
    options.device = test_device(isa);
    assert_ok_error(avo_engine_open(t->model, &options, &t->engine, &error), &error);
}

/* Logits under a random adapter stored as `type`; QUANT_BOOL: none. */
static float *logits_under(const trial *t, quant_type type) {
    float *logits = malloc(t->count * t->vocabulary * sizeof(float));
    assert_non_null(logits);
    adapter_random_options random = {1, 32, TEST_MATRICES_LINEAR, 0, type, 0.05f};
    avo_adapter *adapter = type == QUANT_BOOL ? NULL : test_adapter_make(t->model, &random);
    compute(t->engine, adapter, t->ids, (uint32_t)t->count, t->vocabulary, logits);
    adapter_release(adapter);
    return logits;
}

/* With the reference's floats the adapter's rounding is all that differs. A fast back end rounds
 * what products of a quantised base are given, and the least difference makes it round otherwise:
 * how much that is shows in what 16 bit are against 32. */
static void test_divergence(void **state) {
    const char *isa = *state;
    trial t = {0};
    open_trial(&t, isa);
    float *base = logits_under(&t, QUANT_BOOL);
    float *whole = logits_under(&t, QUANT_F32);
    float *half = logits_under(&t, QUANT_F16);
    float *byte = logits_under(&t, QUANT_Q8C);
    uint32_t rows = (uint32_t)t.count;
    double lost = divergence(half, byte, rows, t.vocabulary);
    double changed = divergence(half, base, rows, t.vocabulary);
    print_message("%s: KL of 8 bit against 16 bit %.3g, of 16 against 32 %.3g, of the base %.3g; "
                  "%u tokens\n",
                  isa != NULL ? isa : "fast", lost, divergence(whole, half, rows, t.vocabulary),
                  changed, rows);
    if (isa != NULL || getenv("AVO_TEST_MODEL") == NULL)
        assert_true(lost >= -1e-9 && lost < LIMIT);
    assert_true(changed > 10 * LIMIT); /* else there is nothing to lose */
    free(base);
    free(whole);
    free(half);
    free(byte);
    avo_engine_close(t.engine);
    avo_model_close(t.model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"reference", test_divergence, NULL, NULL, (void *)(uintptr_t) "ref"},
        {"fast", test_divergence, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
