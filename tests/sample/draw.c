/* sample/: draws against a plain reference, distributions by chi-square, penalties, refusals.
 *
 * The reference below is written for reading: it sorts everything and uses the C library's exp and
 * log in double precision. It follows the processors of Hugging Face transformers. */
#include "support/support.h"

#include "base/random.h"
#include "sample/sample.h"
#include "sample/sample_int.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VOCABULARY_MAX 600

/* ---- The reference ---- */

typedef struct history {
    const int32_t *prompt;
    size_t prompt_count;
    const int32_t *output;
    size_t output_count;
} history;

static const double *sort_values;

static int by_value(const void *a, const void *b) {
    int x = *(const int *)a;
    int y = *(const int *)b;
    if (sort_values[x] != sort_values[y])
        return sort_values[x] < sort_values[y] ? -1 : 1;
    return x < y ? -1 : 1;
}

static void order_by(int *order, int count, const double *values) {
    for (int i = 0; i < count; i++)
        order[i] = i;
    sort_values = values;
    qsort(order, (size_t)count, sizeof(*order), by_value);
}

static bool contains(const int32_t *tokens, size_t count, int token) {
    for (size_t i = 0; i < count; i++)
        if (tokens[i] == token)
            return true;
    return false;
}

static void reference_scores(const avo_sampling *options, const history *seen, const float *logits,
                             int vocabulary, double *scores) {
    for (int i = 0; i < vocabulary; i++) {
        float score = logits[i];
        for (size_t k = 0; k < options->bias_count; k++)
            if (options->bias[k].token == i)
                score += options->bias[k].bias;
        if (contains(seen->prompt, seen->prompt_count, i) ||
            contains(seen->output, seen->output_count, i))
            score = score < 0 ? score * options->repetition_penalty
                              : score / options->repetition_penalty;
        int count = 0;
        for (size_t k = 0; k < seen->output_count; k++)
            count += seen->output[k] == i;
        if (count > 0)
            score -= options->presence_penalty + (float)count * options->frequency_penalty;
        scores[i] = (double)score;
    }
}

static double exponentials(const double *scores, int count, double *weights) {
    double highest = -INFINITY;
    for (int i = 0; i < count; i++)
        highest = fmax(highest, scores[i]);
    double total = 0;
    for (int i = 0; i < count; i++)
        total += weights[i] = exp(scores[i] - highest);
    return total;
}

static void softmax(const double *scores, int count, double *shares) {
    double total = exponentials(scores, count, shares);
    for (int i = 0; i < count; i++)
        shares[i] /= total;
}

static void reference_top_k(double *scores, int count, uint32_t k) {
    if (k == 0 || k >= (uint32_t)count)
        return;
    double negated[VOCABULARY_MAX] = {0};
    int order[VOCABULARY_MAX];
    for (int i = 0; i < count; i++)
        negated[i] = -scores[i];
    order_by(order, count, negated);
    double last = scores[order[k - 1]];
    for (int i = 0; i < count; i++)
        if (scores[i] < last)
            scores[i] = -INFINITY;
}

static void reference_top_p(double *scores, int count, double p) {
    if (p >= 1)
        return;
    /* Not normalised: many equal tokens then add up without rounding, and ties are decided. */
    double weights[VOCABULARY_MAX];
    double negated[VOCABULARY_MAX];
    int order[VOCABULARY_MAX];
    double total = exponentials(scores, count, weights);
    for (int i = 0; i < count; i++)
        negated[i] = -scores[i];
    order_by(order, count, negated);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        if (i > 0 && sum >= p * total)
            scores[order[i]] = -INFINITY;
        sum += weights[order[i]];
    }
}

static void reference_min_p(double *scores, int count, double p) {
    double shares[VOCABULARY_MAX];
    double highest = 0;
    softmax(scores, count, shares);
    for (int i = 0; i < count; i++)
        highest = fmax(highest, shares[i]);
    for (int i = 0; i < count; i++)
        if (shares[i] < p * highest)
            scores[i] = -INFINITY;
}

static void reference_typical(double *scores, int count, double p) {
    if (p >= 1)
        return;
    double shares[VOCABULARY_MAX];
    double distance[VOCABULARY_MAX];
    int order[VOCABULARY_MAX];
    softmax(scores, count, shares);
    double entropy = 0;
    for (int i = 0; i < count; i++)
        if (shares[i] > 0)
            entropy -= shares[i] * log(shares[i]);
    for (int i = 0; i < count; i++)
        distance[i] = (double)(float)fabs(-log(shares[i]) - entropy);
    order_by(order, count, distance);
    double sum = 0;
    int last = 0;
    while (last < count - 1 && sum + shares[order[last]] < p)
        sum += shares[order[last++]];
    double border = distance[order[last]];
    for (int i = 0; i < count; i++)
        if (distance[i] > border)
            scores[i] = -INFINITY;
}

/* The probability of every token. */
static void reference_shares(const avo_sampling *options, const history *seen, const float *logits,
                             int vocabulary, double *shares) {
    double scores[VOCABULARY_MAX];
    reference_scores(options, seen, logits, vocabulary, scores);
    for (int i = 0; i < vocabulary; i++)
        scores[i] /= (double)options->temperature;
    reference_top_k(scores, vocabulary, options->top_k);
    reference_top_p(scores, vocabulary, (double)options->top_p);
    reference_min_p(scores, vocabulary, (double)options->min_p);
    reference_typical(scores, vocabulary, (double)options->typical_p);
    softmax(scores, vocabulary, shares);
}

static int reference_draw(const avo_sampling *options, const double *shares, int vocabulary,
                          uint64_t position) {
    double uniform = random_uniform_at(options->seed, 0, position);
    double sum = 0;
    int last = 0;
    for (int i = 0; i < vocabulary; i++) {
        if (shares[i] <= 0)
            continue;
        last = i;
        sum += shares[i];
        if (uniform < sum)
            return i;
    }
    return last;
}

/* ---- Help ---- */

static const history nothing_seen = {0};

/* Roughly normal logits from the generator, some of them equal on purpose. */
static void make_logits(float *logits, int vocabulary, uint64_t seed, float spread) {
    for (int i = 0; i < vocabulary; i++) {
        double sum = 0;
        for (uint64_t k = 0; k < 6; k++)
            sum += random_uniform_at(seed, 77, (uint64_t)i * 6 + k) - 0.5;
        logits[i] = (float)sum * spread;
        if (i % 7 == 6)
            logits[i] = logits[i - 3];
    }
}

static sampler *open_sampler(const avo_sampling *options, int vocabulary) {
    avo_error error = {0};
    sampler *sampler = NULL;
    assert_ok_error(sampler_open(options, (uint32_t)vocabulary, NULL, &sampler, &error), &error);
    return sampler;
}

static int draw(sampler *sampler, const float *logits, uint64_t position) {
    avo_error error = {0};
    sample_choice choice;
    assert_ok_error(sampler_draw(sampler, logits, position, &choice, &error), &error);
    return choice.token;
}

/* Chi-square of `draws` draws against `shares`, as a multiple of the value that a right sampler
 * exceeds once in 10,000 seeds (Wilson and Hilferty's approximation). Below 1 is good. */
static double chi_square(const avo_sampling *options, const float *logits, int vocabulary,
                         const double *shares, int draws) {
    sampler *sampler = open_sampler(options, vocabulary);
    int counts[VOCABULARY_MAX] = {0};
    for (int i = 0; i < draws; i++)
        counts[draw(sampler, logits, (uint64_t)i)]++;
    sampler_close(sampler);
    double statistic = 0;
    double rare_expected = 0; /* cells with few draws are counted together */
    int rare_count = 0;
    int cells = 0;
    for (int i = 0; i < vocabulary; i++) {
        double expected = shares[i] * draws;
        if (shares[i] <= 0 && counts[i] > 0)
            return INFINITY; /* a token that must not come */
        if (expected < 5) {
            rare_expected += expected;
            rare_count += counts[i];
            continue;
        }
        statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
        cells++;
    }
    if (rare_expected > 1) {
        statistic += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
        cells++;
    }
    if (cells < 2)
        return 0;
    double freedom = cells - 1;
    double root = 1 - 2 / (9 * freedom) + 3.719 * sqrt(2 / (9 * freedom));
    return statistic / (freedom * root * root * root);
}

/* ---- Tests ---- */

typedef struct setting {
    float temperature;
    uint32_t top_k;
    float top_p, min_p, typical_p;
} setting;

static const setting settings[] = {
    {1.0f, 0, 1.0f, 0.0f, 1.0f},   {0.7f, 0, 1.0f, 0.0f, 1.0f},   {1.8f, 0, 1.0f, 0.0f, 1.0f},
    {1.0f, 5, 1.0f, 0.0f, 1.0f},   {1.0f, 1, 1.0f, 0.0f, 1.0f},   {1.0f, 9999, 1.0f, 0.0f, 1.0f},
    {1.0f, 0, 0.9f, 0.0f, 1.0f},   {1.0f, 0, 0.3f, 0.0f, 1.0f},   {1.0f, 0, 1e-6f, 0.0f, 1.0f},
    {1.0f, 0, 0.0f, 0.0f, 1.0f},   {1.0f, 0, 1.0f, 0.1f, 1.0f},   {1.0f, 0, 1.0f, 1.0f, 1.0f},
    {1.0f, 0, 1.0f, 0.0f, 0.9f},   {1.0f, 0, 1.0f, 0.0f, 0.2f},   {1.0f, 0, 1.0f, 0.0f, 1e-5f},
    {0.8f, 40, 0.95f, 0.0f, 1.0f}, {1.3f, 20, 0.8f, 0.05f, 0.9f}, {0.5f, 10, 0.9f, 0.02f, 0.7f},
    {1e6f, 0, 1.0f, 0.0f, 1.0f},   {1e6f, 7, 0.5f, 0.0f, 1.0f},   {1e-6f, 0, 1.0f, 0.0f, 1.0f},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static avo_sampling from_setting(const setting *setting, uint64_t seed) {
    avo_sampling options = AVO_SAMPLING_INIT;
    options.temperature = setting->temperature;
    options.top_k = setting->top_k;
    options.top_p = setting->top_p;
    options.min_p = setting->min_p;
    options.typical_p = setting->typical_p;
    options.seed = seed;
    return options;
}

static void draws_equal_the_reference(void **state) {
    (void)state;
    static const int vocabularies[] = {1, 2, 3, 31, 257, 600};
    float logits[VOCABULARY_MAX];
    double shares[VOCABULARY_MAX];
    for (size_t s = 0; s < SETTINGS; s++)
        for (size_t v = 0; v < sizeof(vocabularies) / sizeof(vocabularies[0]); v++)
            for (uint64_t seed = 0; seed < 8; seed++) {
                int vocabulary = vocabularies[v];
                avo_sampling options = from_setting(&settings[s], seed);
                make_logits(logits, vocabulary, seed + 100 * v, seed % 2 == 0 ? 3.0f : 12.0f);
                if (seed == 5) /* all equal: every border is a tie */
                    for (int i = 0; i < vocabulary; i++)
                        logits[i] = -2.5f;
                reference_shares(&options, &nothing_seen, logits, vocabulary, shares);
                sampler *sampler = open_sampler(&options, vocabulary);
                for (uint64_t position = 0; position < 25; position++) {
                    int got = draw(sampler, logits, position);
                    int wanted = reference_draw(&options, shares, vocabulary, position);
                    if (got != wanted)
                        fail_msg("setting %zu, vocabulary %d, seed %d, position %d: %d, not %d", s,
                                 vocabulary, (int)seed, (int)position, got, wanted);
                }
                sampler_close(sampler);
            }
}

static void distributions_fit(void **state) {
    (void)state;
    float logits[VOCABULARY_MAX];
    double shares[VOCABULARY_MAX];
    for (size_t s = 0; s < SETTINGS; s++)
        for (uint64_t seed = 1; seed <= 2; seed++) {
            avo_sampling options = from_setting(&settings[s], seed);
            make_logits(logits, 60, seed, 4.0f);
            reference_shares(&options, &nothing_seen, logits, 60, shares);
            double fit = chi_square(&options, logits, 60, shares, 4000);
            if (!(fit < 1))
                fail_msg("setting %zu, seed %d: chi-square is %.2f times the limit", s, (int)seed,
                         fit);
        }
}

/* The same test must see samplers that are only a little wrong. */
static void distribution_test_can_fail(void **state) {
    (void)state;
    const setting right = {0.8f, 20, 0.9f, 0.02f, 1.0f};
    setting wrong[5];
    for (size_t i = 0; i < 5; i++)
        wrong[i] = right;
    wrong[0].temperature = 0.9f;
    wrong[1].top_k = 4;
    wrong[2].top_p = 0.8f;
    wrong[3].min_p = 0.3f;
    wrong[4].typical_p = 0.8f;
    float logits[VOCABULARY_MAX];
    double shares[VOCABULARY_MAX];
    make_logits(logits, 60, 9, 2.0f);
    avo_sampling options = from_setting(&right, 4);
    reference_shares(&options, &nothing_seen, logits, 60, shares);
    assert_true(chi_square(&options, logits, 60, shares, 8000) < 1);
    for (size_t i = 0; i < 5; i++) {
        avo_sampling other = from_setting(&wrong[i], 4);
        if (!(chi_square(&other, logits, 60, shares, 8000) > 1))
            fail_msg("wrong setting %zu was not noticed", i);
    }
    /* A generator stuck at one number, as a sampler that ignores the position would have. */
    sampler *sampler = open_sampler(&options, 60);
    int first = draw(sampler, logits, 0);
    int others = 0;
    for (uint64_t position = 1; position < 100; position++)
        others += draw(sampler, logits, position) != first;
    assert_true(others > 10);
    sampler_close(sampler);
}

static void greedy_takes_the_lowest_of_equals(void **state) {
    (void)state;
    avo_sampling options = AVO_SAMPLING_INIT;
    float logits[] = {-1.0f, 3.0f, 2.0f, 3.0f, 3.0f};
    sampler *sampler = open_sampler(&options, 5);
    for (uint64_t position = 0; position < 10; position++)
        assert_int_equal(draw(sampler, logits, position), 1);
    sampler_close(sampler);
    /* Filters mean nothing without temperature; a seed neither. */
    options.top_k = 3;
    options.top_p = 0.1f;
    options.seed = 99;
    sampler = open_sampler(&options, 5);
    assert_int_equal(draw(sampler, logits, 3), 1);
    sampler_close(sampler);
}

static void penalties_are_exact(void **state) {
    (void)state;
    static const int32_t prompt[] = {1, 1, 2, 5};
    static const int32_t output[] = {2, 3, 3, 3};
    static const history seen = {prompt, 4, output, 4};
    static const avo_logit_bias bias[] = {{0, 1.25f}, {4, -INFINITY}, {6, -0.5f}};
    float logits[] = {0.5f, 2.0f, -1.0f, 3.0f, 9.0f, -0.25f, 1.5f, 0.0f};
    double shares[VOCABULARY_MAX];
    static const float penalties[][3] = {{1.3f, 0, 0},        {1, 0.7f, 0},         {1, 0, 0.4f},
                                         {0.8f, -0.5f, 0.2f}, {2.0f, 1.5f, -0.75f}, {1, 0, 0}};
    for (size_t p = 0; p < 6; p++) {
        avo_sampling options = AVO_SAMPLING_INIT;
        options.temperature = 1.0f;
        options.repetition_penalty = penalties[p][0];
        options.presence_penalty = penalties[p][1];
        options.frequency_penalty = penalties[p][2];
        options.bias = bias;
        options.bias_count = 3;
        options.seed = p;
        reference_shares(&options, &seen, logits, 8, shares);
        assert_true(shares[4] == 0);
        sampler *sampler = open_sampler(&options, 8);
        sampler_see_prompt(sampler, prompt, 4);
        for (int i = 0; i < 4; i++)
            sampler_see_output(sampler, output[i]);
        sampler_see_output(sampler, -1); /* not tokens: ignored */
        sampler_see_output(sampler, 8);
        for (uint64_t position = 0; position < 3000; position++)
            assert_int_equal(draw(sampler, logits, position),
                             reference_draw(&options, shares, 8, position));
        sampler_close(sampler);
    }
}

/* Greedy shows exactly where a penalty turns the order round. */
static void penalties_turn_the_order(void **state) {
    (void)state;
    float logits[] = {1.0f, 2.0f};
    avo_sampling options = AVO_SAMPLING_INIT;
    static const int32_t prompt[] = {1};
    options.repetition_penalty = 1.999f;
    sampler *sampler = open_sampler(&options, 2);
    sampler_see_prompt(sampler, prompt, 1);
    assert_int_equal(draw(sampler, logits, 0), 1); /* 2/1.999 > 1 */
    sampler_close(sampler);
    options.repetition_penalty = 2.001f;
    sampler = open_sampler(&options, 2);
    sampler_see_prompt(sampler, prompt, 1);
    assert_int_equal(draw(sampler, logits, 0), 0);
    sampler_close(sampler);
    /* Presence and frequency do not look at the prompt. */
    options = (avo_sampling)AVO_SAMPLING_INIT;
    options.frequency_penalty = 0.4f;
    sampler = open_sampler(&options, 2);
    for (int i = 0; i < 10; i++)
        sampler_see_prompt(sampler, prompt, 1);
    assert_int_equal(draw(sampler, logits, 0), 1);
    for (int i = 0; i < 2; i++)
        sampler_see_output(sampler, 1);
    assert_int_equal(draw(sampler, logits, 0), 1); /* 2 − 0.8 */
    sampler_see_output(sampler, 1);
    assert_int_equal(draw(sampler, logits, 0), 0); /* 2 − 1.2 */
    sampler_close(sampler);
}

static void a_draw_depends_on_nothing_else(void **state) {
    (void)state;
    float logits[VOCABULARY_MAX];
    float others[VOCABULARY_MAX];
    make_logits(logits, 300, 5, 3.0f);
    make_logits(others, 300, 6, 3.0f);
    float copy[VOCABULARY_MAX];
    memcpy(copy, logits, sizeof(copy));
    avo_sampling options = AVO_SAMPLING_INIT;
    options.temperature = 1.0f;
    options.top_p = 0.9f;
    options.seed = 0x123456789ABCDEFu;
    int wanted[50];
    sampler *fresh = open_sampler(&options, 300);
    for (int i = 0; i < 50; i++)
        wanted[i] = draw(fresh, logits, (uint64_t)i);
    sampler_close(fresh);
    sampler *busy = open_sampler(&options, 300);
    for (int i = 49; i >= 0; i--) {
        draw(busy, others, (uint64_t)i * 31);
        sampler_see_output(busy, i);
        assert_int_equal(draw(busy, logits, (uint64_t)i), wanted[i]);
    }
    sampler_close(busy);
    assert_memory_equal(copy, logits, sizeof(float) * 300);
    options.seed++;
    sampler *other_seed = open_sampler(&options, 300);
    int different = 0;
    for (int i = 0; i < 50; i++)
        different += draw(other_seed, logits, (uint64_t)i) != wanted[i];
    assert_true(different > 20);
    sampler_close(other_seed);
}

static void logprobs_are_the_models_own(void **state) {
    (void)state;
    float logits[VOCABULARY_MAX];
    make_logits(logits, 203, 11, 8.0f);
    double scores[VOCABULARY_MAX];
    double shares[VOCABULARY_MAX];
    for (int i = 0; i < 203; i++)
        scores[i] = (double)logits[i];
    softmax(scores, 203, shares);
    static const avo_logit_bias bias[] = {{3, 50.0f}};
    avo_sampling options = AVO_SAMPLING_INIT;
    options.temperature = 0.5f;
    options.top_k = 2;
    options.bias = bias;
    options.bias_count = 1;
    options.top_logprobs = 20;
    sampler *sampler = open_sampler(&options, 203);
    avo_error error = {0};
    sample_choice choice;
    assert_ok_error(sampler_draw(sampler, logits, 0, &choice, &error), &error);
    assert_int_equal(choice.token, 3); /* the bias decides, and does not count */
    assert_true(fabs((double)choice.logprob - log(shares[3])) < 1e-5);
    assert_int_equal(choice.top_count, 20);
    double negated[VOCABULARY_MAX];
    int order[VOCABULARY_MAX];
    for (int i = 0; i < 203; i++)
        negated[i] = -scores[i];
    order_by(order, 203, negated);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(choice.top[i].token, order[i]);
        assert_true(fabs((double)choice.top[i].logprob - log(shares[order[i]])) < 1e-5);
    }
    sampler_close(sampler);
    /* More alternatives than tokens. */
    sampler = open_sampler(&options, 7);
    assert_ok_error(sampler_draw(sampler, logits, 0, &choice, &error), &error);
    assert_int_equal(choice.top_count, 7);
    sampler_close(sampler);
}

static void logarithm_is_exact_enough(void **state) {
    (void)state;
    for (int exponent = -1070; exponent < 1024; exponent += 7)
        for (uint64_t i = 0; i < 20; i++) {
            double x = ldexp(1.0 + random_uniform_at(1, 1, i), exponent);
            assert_true(fabs(sample_log(x) - log(x)) <= 4e-16 * fmax(1, fabs(log(x))));
        }
    assert_true(sample_log(1.0) == 0.0);
    assert_true(isnan(sample_log(0.0)) && isnan(sample_log(-1.0)) && isnan(sample_log(NAN)) &&
                isnan(sample_log(INFINITY)));
}

static void bad_logits_are_refused(void **state) {
    (void)state;
    avo_sampling options = AVO_SAMPLING_INIT;
    avo_error error = {0};
    sample_choice choice;
    for (int warm = 0; warm < 2; warm++) {
        options.temperature = warm ? 1.0f : 0.0f;
        sampler *sampler = open_sampler(&options, 9);
        float logits[9] = {0};
        logits[8] = NAN;
        assert_refused(sampler_draw(sampler, logits, 0, &choice, &error), AVO_ERROR_ARGUMENT,
                       &error, "token 8");
        logits[8] = INFINITY;
        assert_refused(sampler_draw(sampler, logits, 0, &choice, &error), AVO_ERROR_ARGUMENT,
                       &error, "inf");
        for (int i = 0; i < 9; i++)
            logits[i] = -INFINITY;
        assert_refused(sampler_draw(sampler, logits, 0, &choice, &error), AVO_ERROR_ARGUMENT,
                       &error, "-inf");
        logits[4] = -FLT_MAX; /* the only one left */
        assert_int_equal(draw(sampler, logits, 0), 4);
        logits[5] = FLT_MAX;
        assert_int_equal(draw(sampler, logits, 0), 5);
        sampler_close(sampler);
    }
}

static void forbidding_everything_is_refused(void **state) {
    (void)state;
    static const avo_logit_bias bias[] = {{0, -INFINITY}, {1, -INFINITY}};
    float logits[] = {1.0f, 2.0f};
    avo_sampling options = AVO_SAMPLING_INIT;
    options.bias = bias;
    options.bias_count = 1;
    options.temperature = 1.0f;
    sampler *sampler = open_sampler(&options, 2);
    for (uint64_t position = 0; position < 100; position++)
        assert_int_equal(draw(sampler, logits, position), 1);
    sampler_close(sampler);
    options.bias_count = 2;
    sampler = open_sampler(&options, 2);
    avo_error error = {0};
    sample_choice choice;
    assert_refused(sampler_draw(sampler, logits, 0, &choice, &error), AVO_ERROR_ARGUMENT, &error,
                   "forbid every token");
    sampler_close(sampler);
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    static const avo_logit_bias absent[] = {{10, 1.0f}};
    static const avo_logit_bias negative[] = {{-1, 1.0f}};
    static const avo_logit_bias not_a_number[] = {{1, NAN}};
    static const avo_logit_bias endless[] = {{1, INFINITY}};
    const float bad[][8] = {
        /* temperature, top_p, min_p, typical, repetition, presence, frequency */
        {NAN, 1, 0, 1, 1, 0, 0},      {-0.1f, 1, 0, 1, 1, 0, 0}, {INFINITY, 1, 0, 1, 1, 0, 0},
        {1, NAN, 0, 1, 1, 0, 0},      {1, 1.01f, 0, 1, 1, 0, 0}, {1, -0.01f, 0, 1, 1, 0, 0},
        {1, 1, NAN, 1, 1, 0, 0},      {1, 1, 1.5f, 1, 1, 0, 0},  {1, 1, -1, 1, 1, 0, 0},
        {1, 1, 0, NAN, 1, 0, 0},      {1, 1, 0, 0, 1, 0, 0},     {1, 1, 0, 2, 1, 0, 0},
        {1, 1, 0, 1, NAN, 0, 0},      {1, 1, 0, 1, 0, 0, 0},     {1, 1, 0, 1, -1, 0, 0},
        {1, 1, 0, 1, INFINITY, 0, 0}, {1, 1, 0, 1, 1, NAN, 0},   {1, 1, 0, 1, 1, 0, -INFINITY}};
    avo_error error = {0};
    sampler *sampler = NULL;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        avo_sampling options = AVO_SAMPLING_INIT;
        options.temperature = bad[i][0];
        options.top_p = bad[i][1];
        options.min_p = bad[i][2];
        options.typical_p = bad[i][3];
        options.repetition_penalty = bad[i][4];
        options.presence_penalty = bad[i][5];
        options.frequency_penalty = bad[i][6];
        assert_refused(sampler_open(&options, 10, NULL, &sampler, &error), AVO_ERROR_ARGUMENT,
                       &error, ", must be");
        assert_null(sampler);
    }
    const avo_logit_bias *const lists[] = {absent, negative, not_a_number, endless, NULL};
    for (size_t i = 0; i < 5; i++) {
        avo_sampling options = AVO_SAMPLING_INIT;
        options.bias = lists[i];
        options.bias_count = 1;
        assert_refused(sampler_open(&options, 10, NULL, &sampler, &error), AVO_ERROR_ARGUMENT,
                       &error, "bias");
    }
    avo_sampling options = AVO_SAMPLING_INIT;
    options.top_logprobs = 21;
    assert_refused(sampler_open(&options, 10, NULL, &sampler, &error), AVO_ERROR_ARGUMENT, &error,
                   "top_logprobs is 21");
    options = (avo_sampling)AVO_SAMPLING_INIT;
    assert_refused(sampler_open(&options, 0, NULL, &sampler, &error), AVO_ERROR_ARGUMENT, &error,
                   "vocabulary");
    options.size = 3;
    assert_refused(sampler_open(&options, 10, NULL, &sampler, &error), AVO_ERROR_ARGUMENT, &error,
                   "AVO_SAMPLING_INIT");
}

static void allocates_only_when_opened(void **state) {
    (void)state;
    static const avo_logit_bias bias[] = {{1, 0.5f}};
    float logits[VOCABULARY_MAX];
    make_logits(logits, 500, 2, 4.0f);
    avo_sampling options = AVO_SAMPLING_INIT;
    options.temperature = 0.9f;
    options.top_k = 50;
    options.top_p = 0.9f;
    options.min_p = 0.01f;
    options.typical_p = 0.95f;
    options.repetition_penalty = 1.1f;
    options.bias = bias;
    options.bias_count = 1;
    options.top_logprobs = 5;
    avo_error error = {0};
    sampler *sampler = NULL;
    test_allocator counter;
    test_allocator_init(&counter);
    assert_ok_error(sampler_open(&options, 500, &counter.allocator, &sampler, &error), &error);
    size_t allocations = counter.allocations;
    for (uint64_t position = 0; position < 100; position++)
        sampler_see_output(sampler, draw(sampler, logits, position));
    assert_int_equal(counter.allocations, allocations);
    sampler_close(sampler);
    assert_int_equal(counter.live, 0);
    for (size_t fail_at = 1; fail_at <= allocations; fail_at++) {
        test_allocator_init(&counter);
        counter.fail_at = fail_at;
        assert_refused(sampler_open(&options, 500, &counter.allocator, &sampler, &error),
                       AVO_ERROR_MEMORY, &error, "sampler");
        assert_null(sampler);
        assert_int_equal(counter.live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_equal_the_reference),
        cmocka_unit_test(distributions_fit),
        cmocka_unit_test(distribution_test_can_fail),
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(penalties_are_exact),
        cmocka_unit_test(penalties_turn_the_order),
        cmocka_unit_test(a_draw_depends_on_nothing_else),
        cmocka_unit_test(logprobs_are_the_models_own),
        cmocka_unit_test(logarithm_is_exact_enough),
        cmocka_unit_test(bad_logits_are_refused),
        cmocka_unit_test(forbidding_everything_is_refused),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(allocates_only_when_opened),
    };
    return cmocka_run_group_tests_name("sample/draw", tests, NULL, NULL);
}
