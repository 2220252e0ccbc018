/* Draws from allowed tokens alone: what a draw gives whose other logits are forbidden, from all
 * logits and from the highest; with the logprobs of the model's own distribution. */
#include "support/support.h"

#include "base/random.h"
#include "sample/sample.h"

#include <math.h>
#include <string.h>

#define VOCABULARY 300
#define WORDS      ((VOCABULARY + 63) / 64)

static uint32_t random_word(uint64_t seed, uint64_t counter) {
    return random_at(seed, 8, counter).words[0];
}

/* Logits with equals among them, and every `share`-th token allowed, one at least. */
static void fill(uint64_t seed, uint32_t share, float *logits, uint64_t *allowed) {
    memset(allowed, 0, WORDS * sizeof(*allowed));
    for (uint32_t i = 0; i < VOCABULARY; i++) {
        logits[i] = (float)(random_word(seed, i) % 200) * 0.1f - 8.0f;
        if (random_word(seed, 1000 + i) % share == 0)
            allowed[i / 64] |= (uint64_t)1 << (i % 64);
    }
    uint32_t one = random_word(seed, 5000) % VOCABULARY;
    allowed[one / 64] |= (uint64_t)1 << (one % 64);
}

static void find_top(const float *logits, uint32_t wanted, logit_top *top) {
    bool taken[VOCABULARY] = {false};
    memset(top, 0, sizeof(*top));
    for (uint32_t n = 0; n < wanted; n++) {
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

typedef struct tally {
    uint32_t from_top, from_allowed, from_all;
} tally;

/* As a sequence does it. */
static void draw(sampler *sampler, const float *logits, uint64_t position, sample_choice *choice,
                 tally *tally) {
    uint32_t wanted = sampler_top(sampler);
    avo_error error;
    if (wanted > 0) {
        logit_top top;
        bool undecided;
        find_top(logits, wanted, &top);
        sampler_draw_top(sampler, &top, position, choice, &undecided);
        tally->from_top += !undecided;
        if (!undecided)
            return;
        const int32_t *tokens;
        float *chosen;
        uint32_t count = sampler_list_allowed(sampler, &tokens, &chosen);
        for (uint32_t i = 0; i < count; i++)
            chosen[i] = logits[tokens[i]];
        if (count > 0 && sampler_draw_allowed(sampler, &top, position, choice)) {
            tally->from_allowed++;
            return;
        }
    }
    tally->from_all++;
    assert_ok_error(sampler_draw(sampler, logits, position, choice, &error), &error);
}

static void check(const avo_sampling *sampling, uint32_t share, tally *tally) {
    sampler *plain;
    sampler *bound;
    avo_error error;
    assert_ok(sampler_open(sampling, VOCABULARY, NULL, &plain, &error));
    assert_ok(sampler_open(sampling, VOCABULARY, NULL, &bound, &error));
    sampler_constrain(bound);
    for (uint64_t position = 0; position < 60; position++) {
        float logits[VOCABULARY];
        float forbidden[VOCABULARY];
        uint64_t allowed[WORDS];
        sample_choice wanted;
        sample_choice choice;
        fill(position * 7 + share, share, logits, allowed);
        double highest = -1e30;
        for (uint32_t i = 0; i < VOCABULARY; i++) {
            bool may = (allowed[i / 64] >> (i % 64) & 1) != 0;
            forbidden[i] = may ? logits[i] : -INFINITY;
            highest = (double)logits[i] > highest ? (double)logits[i] : highest;
        }
        assert_ok_error(sampler_draw(plain, forbidden, position, &wanted, &error), &error);
        sampler_allow(bound, allowed);
        draw(bound, logits, position, &choice, tally);
        assert_int_equal(choice.token, wanted.token);
        double sum = 0.0;
        for (uint32_t i = 0; i < VOCABULARY; i++)
            sum += exp((double)logits[i] - highest);
        double logprob = (double)logits[choice.token] - highest - log(sum);
        assert_true(fabs((double)choice.logprob - logprob) < 1e-4);
        assert_int_equal(choice.top_count, sampling->top_logprobs);
        sampler_see_output(plain, wanted.token);
        sampler_see_output(bound, choice.token);
    }
    sampler_close(plain);
    sampler_close(bound);
}

static void the_same_as_forbidding(void **state) {
    (void)state;
    tally tally = {0};
    for (uint32_t share = 1; share < 400; share = share * 3 + 1)
        for (int kind = 0; kind < 7; kind++) {
            avo_sampling sampling = AVO_SAMPLING_INIT;
            sampling.temperature = kind == 0 ? 0.0f : 1.2f;
            sampling.top_k = kind == 1 ? 5 : kind == 2 ? 60 : 0;
            sampling.top_p = kind == 3 ? 0.6f : 1.0f;
            sampling.min_p = kind == 4 ? 0.1f : 0.0f;
            sampling.repetition_penalty = kind == 5 ? 1.4f : 1.0f;
            sampling.typical_p = kind == 6 ? 0.8f : 1.0f;
            sampling.top_logprobs = kind % 2 == 0 ? 3 : 0;
            check(&sampling, share, &tally);
        }
    assert_true(tally.from_top > 50 && tally.from_allowed > 50 && tally.from_all > 50);
}

/* None of the allowed has a probability. */
static void nothing_is_left(void **state) {
    (void)state;
    avo_sampling sampling = AVO_SAMPLING_INIT;
    avo_logit_bias bias = {7, -INFINITY};
    sampling.bias = &bias;
    sampling.bias_count = 1;
    sampler *sampler;
    avo_error error;
    float logits[VOCABULARY] = {0};
    uint64_t allowed[WORDS] = {(uint64_t)1 << 7};
    sample_choice choice;
    assert_ok(sampler_open(&sampling, VOCABULARY, NULL, &sampler, &error));
    sampler_constrain(sampler);
    sampler_allow(sampler, allowed);
    assert_refused(sampler_draw(sampler, logits, 0, &choice, &error), AVO_ERROR_ARGUMENT, &error,
                   "that the grammar allows");
    sampler_close(sampler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_as_forbidding),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
