/* Drawing from the highest logits alone chooses what drawing from all of them chooses. */
#include "support/support.h"

#include "base/random.h"
#include "sample/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VOCABULARY 300

static uint32_t random_word(uint64_t seed, uint64_t counter) {
    return random_at(seed, 7, counter).words[0];
}

/* Few different values: many equals. */
static void fill(uint64_t seed, uint32_t values, float *logits) {
    for (uint32_t i = 0; i < VOCABULARY; i++)
        logits[i] = (float)(random_word(seed, i) % values) * 0.25f - 8.0f;
}

/* What a back end would report, the plain way. */
static void find_top(const float *logits, uint32_t wanted, logit_top *top) {
    memset(top, 0, sizeof(*top));
    bool taken[VOCABULARY] = {false};
    for (uint32_t n = 0; n < wanted && n < VOCABULARY; n++) {
        int32_t best = -1;
        for (int32_t i = 0; i < VOCABULARY; i++)
            if (!taken[i] && (best < 0 || logits[i] > logits[best]))
                best = i;
        taken[best] = true;
        top->logit[n] = logits[best];
        top->token[n] = best;
        top->count = n + 1;
    }
    double sum = 0.0;
    for (uint32_t i = 0; i < VOCABULARY; i++)
        sum += exp((double)logits[i] - (double)top->logit[0]);
    top->log_sum = log(sum);
}

static void check_draws(const avo_sampling *sampling, uint32_t values, uint32_t *undecided_count) {
    avo_error error = {0};
    sampler *sampler;
    assert_ok_error(sampler_open(sampling, VOCABULARY, NULL, &sampler, &error), &error);
    uint32_t wanted = sampler_top(sampler);
    assert_true(wanted > 0 && wanted <= LOGIT_TOP_MAX);
    for (uint64_t position = 0; position < 200; position++) {
        float logits[VOCABULARY];
        logit_top top;
        sample_choice all, few;
        bool undecided;
        fill(position + values, values, logits);
        find_top(logits, wanted, &top);
        sampler_draw_top(sampler, &top, position, &few, &undecided);
        if (undecided) {
            ++*undecided_count;
            continue;
        }
        int32_t token = few.token;
        float logprob = few.logprob;
        uint32_t listed = few.top_count;
        assert_ok_error(sampler_draw(sampler, logits, position, &all, &error), &error);
        assert_int_equal(all.token, token);
        assert_true(fabsf(all.logprob - logprob) < 1e-5f);
        assert_int_equal(all.top_count, listed);
    }
    sampler_close(sampler);
}

static void the_same_tokens(void **state) {
    (void)state;
    uint32_t undecided = 0;
    for (uint32_t k = 1; k < LOGIT_TOP_MAX; k += 6)
        for (int filter = 0; filter < 4; filter++) {
            avo_sampling sampling = AVO_SAMPLING_INIT;
            sampling.temperature = 0.8f;
            sampling.top_k = k;
            sampling.top_p = filter == 1 ? 0.7f : 1.0f;
            sampling.min_p = filter == 2 ? 0.2f : 0.0f;
            sampling.top_logprobs = filter == 3 ? 5 : 0;
            check_draws(&sampling, 4000, &undecided);
            check_draws(&sampling, 60, &undecided);
        }
    assert_true(undecided > 0); /* ties at the border were met, and seen */
}

static void greedy(void **state) {
    (void)state;
    uint32_t undecided = 0;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.temperature = 0.0f;
    check_draws(&sampling, 20, &undecided);
    assert_int_equal(undecided, 0); /* of equals the lowest token is the choice */
}

static void broken_logits_are_left_to_the_whole(void **state) {
    (void)state;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.temperature = 0.0f;
    sampler *sampler;
    assert_ok(sampler_open(&sampling, VOCABULARY, NULL, &sampler, NULL));
    logit_top top = {.logit = {1.0f}, .token = {3}, .count = 1, .log_sum = NAN};
    sample_choice choice;
    bool undecided;
    sampler_draw_top(sampler, &top, 0, &choice, &undecided);
    assert_true(undecided);
    top = (logit_top){.count = 0};
    sampler_draw_top(sampler, &top, 0, &choice, &undecided);
    assert_true(undecided);
    sampler_close(sampler);
}

static void what_needs_all_of_them(void **state) {
    (void)state;
    avo_logit_bias bias = {.token = 1, .bias = 1.0f};
    avo_sampling sampling[5];
    for (int i = 0; i < 5; i++) {
        sampling[i] = (avo_sampling)AVO_SAMPLING_INIT;
        sampling[i].temperature = 0.5f;
        sampling[i].top_k = 10;
    }
    sampling[0].bias = &bias;
    sampling[0].bias_count = 1;
    sampling[1].repetition_penalty = 1.1f;
    sampling[2].top_k = 0;
    sampling[3].top_k = LOGIT_TOP_MAX;
    for (int i = 0; i < 5; i++) {
        sampler *sampler;
        assert_ok(sampler_open(&sampling[i], VOCABULARY, NULL, &sampler, NULL));
        assert_int_equal(sampler_top(sampler), i < 4 ? 0 : 11);
        sampler_close(sampler);
    }
}

/* Peaked and flat, with equals and with tokens that cannot be: where the highest decide what top-p
 * and min-p leave, it is what all of them leave. */
static void the_same_tokens_by_top_p_and_min_p(void **state) {
    (void)state;
    static const float spreads[] = {0.25f, 1.0f, 3.0f, 8.0f};
    static const float temperatures[] = {0.3f, 0.7f, 1.0f, 1.3f, 4.0f};
    static const float filters[][2] = {{0.9f, 0.0f},  {0.5f, 0.0f},   {0.99f, 0.05f},
                                       {1.0f, 0.05f}, {1.0f, 0.001f}, {0.0f, 0.0f}};
    uint32_t decided = 0, undecided = 0;
    for (size_t t = 0; t < 5; t++)
        for (size_t f = 0; f < 6; f++) {
            avo_sampling sampling = AVO_SAMPLING_INIT;
            avo_error error = {0};
            sampler *sampler;
            sampling.temperature = temperatures[t];
            sampling.top_p = filters[f][0];
            sampling.min_p = filters[f][1];
            sampling.seed = 5 + f;
            sampling.top_logprobs = 3;
            assert_ok_error(sampler_open(&sampling, VOCABULARY, NULL, &sampler, &error), &error);
            assert_int_equal(sampler_top(sampler), 0);
            uint32_t wanted = sampler_likely_top(sampler);
            assert_int_equal(wanted, LOGIT_TOP_MAX);
            for (uint64_t position = 0; position < 160; position++) {
                float logits[VOCABULARY];
                logit_top top;
                sample_choice few, all;
                bool open;
                for (uint32_t i = 0; i < VOCABULARY; i++) {
                    double sum = 0.0; /* of four: nearly normal */
                    for (uint64_t part = 0; part < 4; part++)
                        sum += random_word(position * 5 + part + f, i) * 0x1p-32 - 0.5;
                    logits[i] = spreads[position % 4] * (float)sum * 4.0f;
                    if (position % 8 == 5)
                        logits[i] = (float)(int)logits[i]; /* equals */
                    if (position % 16 == 9 && i % 5 == 0)
                        logits[i] = -INFINITY;
                }
                find_top(logits, wanted, &top);
                sampler_try_top(sampler, &top, position, &few, &open);
                undecided += open;
                if (open)
                    continue;
                decided++;
                int32_t token = few.token;
                float logprob = few.logprob;
                assert_ok_error(sampler_draw_found(sampler, logits, &top, position, &all, &error),
                                &error);
                assert_int_equal(all.token, token);
                assert_true(all.logprob == logprob);
                assert_int_equal(all.top_count, few.top_count);
            }
            sampler_close(sampler);
        }
    print_message("  %u draws decided, %u not\n", decided, undecided);
    assert_true(decided > 1500 && undecided > 100);
}

/* Options that need all tokens, and logits that are broken. */
static void what_the_highest_cannot_decide(void **state) {
    (void)state;
    avo_error error = {0};
    for (int which = 0; which < 5; which++) {
        avo_sampling sampling = AVO_SAMPLING_INIT;
        sampling.temperature = which == 4 ? 0.0f : 1.0f;
        sampling.top_p = which == 0 ? 1.0f : 0.9f;
        sampling.typical_p = which == 1 ? 0.9f : 1.0f;
        sampling.repetition_penalty = which == 2 ? 1.5f : 1.0f;
        sampling.top_k = which == 3 ? 200 : 0;
        sampler *sampler;
        assert_ok_error(sampler_open(&sampling, VOCABULARY, NULL, &sampler, &error), &error);
        assert_int_equal(sampler_likely_top(sampler), 0);
        sampler_close(sampler);
    }
    avo_sampling sampling = AVO_SAMPLING_INIT;
    sampling.temperature = 1.0f;
    sampling.top_p = 0.9f;
    sampler *sampler;
    assert_ok_error(sampler_open(&sampling, VOCABULARY, NULL, &sampler, &error), &error);
    float logits[VOCABULARY];
    logit_top top;
    sample_choice choice;
    bool undecided;
    fill(1, 30, logits);
    find_top(logits, LOGIT_TOP_MAX, &top);
    top.log_sum = NAN;
    sampler_try_top(sampler, &top, 0, &choice, &undecided);
    assert_true(undecided);
    uint64_t allowed[VOCABULARY / 64 + 1] = {1};
    find_top(logits, LOGIT_TOP_MAX, &top);
    sampler_allow(sampler, allowed);
    sampler_try_top(sampler, &top, 0, &choice, &undecided);
    assert_true(undecided);
    sampler_close(sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens_by_top_p_and_min_p),
        cmocka_unit_test(what_the_highest_cannot_decide),
        cmocka_unit_test(the_same_tokens),
        cmocka_unit_test(greedy),
        cmocka_unit_test(broken_logits_are_left_to_the_whole),
        cmocka_unit_test(what_needs_all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
