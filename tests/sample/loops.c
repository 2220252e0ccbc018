/* sample/: the passes over all logits give the same bits on every instruction set of this machine,
 * those of plain loops written for reading; and so do the filters and the pick behind them, on odd
 * sizes, with equals, infinities and NaN. */
#include "support/support.h"

#include "base/mathf.h"
#include "base/random.h"
#include "device/cpu/isa.h"
#include "sample/sample_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 2600 /* five blocks and a rest */
#define SETS_MAX  8

/* Odd sizes around registers and blocks, and the one above them all. */
static const uint32_t sizes[] = {1,  2,  3,  7,   8,   9,   15,  16,   17,   31,   33,
                                 63, 65, 97, 500, 511, 512, 513, 1023, 1025, 2559, COUNT_MAX};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* All that this machine runs; returns how many. */
static size_t all_loops(const logit_loops *loops[SETS_MAX]) {
    size_t count = 0;
    const instruction_set *set;
    loops[count++] = &logit_loops_plain;
    for (size_t i = 0; (set = isa_at(i)) != NULL && count < SETS_MAX; i++)
        if (set->logits != NULL)
            loops[count++] = set->logits;
    return count;
}

/* ---- The plain way ---- */

static double plain_total(const float *values, size_t count) {
    double sums[8] = {0}, total = 0;
    for (size_t i = 0; i < count; i++)
        sums[i % 8] += (double)values[i];
    for (size_t i = 0; i < 8; i++)
        total += sums[i];
    return total;
}

static double plain_sum(const float *logits, uint32_t count, float highest) {
    float e[COUNT_MAX];
    for (uint32_t i = 0; i < count; i++)
        e[i] = math_exp(logits[i] - highest);
    return plain_total(e, count);
}

static bool plain_range(const float *logits, uint32_t count, float *highest, float *lowest) {
    bool good = true;
    *highest = -INFINITY;
    *lowest = INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        good = good && !isnan(logits[i]) && logits[i] != INFINITY;
        *highest = logits[i] > *highest ? logits[i] : *highest;
        *lowest = logits[i] < *lowest ? logits[i] : *lowest;
    }
    return good;
}

/* ---- Logits ---- */

typedef enum kind { SPREAD, EQUAL, FEW, FORBIDDEN, FAR, KINDS } kind;

/* Ordinary ones; all the same; few values; many −infinities; differences beyond what exp gives. */
static void fill(kind kind, uint64_t seed, uint32_t count, float *logits) {
    for (uint32_t i = 0; i < count; i++) {
        random_block r = random_at(seed, 5, i);
        float u = (float)(r.words[0] % 100000) / 100000.0f;
        logits[i] = 24.0f * u - 12.0f;
        if (kind == EQUAL)
            logits[i] = 1.25f;
        else if (kind == FEW)
            logits[i] = (float)(r.words[0] % 4) * 0.5f;
        else if (kind == FAR)
            logits[i] = r.words[1] % 5 == 0 ? 3e38f * u : -3e38f * u;
        else if (kind == FORBIDDEN && r.words[1] % 3 > 0)
            logits[i] = -INFINITY;
    }
    if (kind == FORBIDDEN)
        logits[seed % count] = 2.0f;
}

static void same_bits(double found, double expected) {
    assert_memory_equal(&found, &expected, sizeof(found));
}

static void same_float(float found, float expected) {
    assert_memory_equal(&found, &expected, sizeof(found));
}

static void passes_have_the_bits_of_plain_loops(void **state) {
    (void)state;
    const logit_loops *loops[SETS_MAX];
    size_t sets = all_loops(loops);
    static const float temperatures[] = {0.01f, 0.7f, 1.0f, 1.5f, 100.0f};
    static float room[COUNT_MAX + 3], weights[COUNT_MAX];
    for (size_t s = 0; s < sets; s++)
        for (uint32_t n = 0; n < SIZES * KINDS; n++) {
            uint32_t count = sizes[n / KINDS];
            float *logits = room + n % 4; /* rows of logits need not be aligned */
            float highest, lowest, high, low;
            fill((kind)(n % KINDS), n, count, logits);
            assert_true(loops[s]->range(logits, count, &highest, &lowest));
            assert_true(plain_range(logits, count, &high, &low));
            same_float(highest, high);
            same_float(lowest, low);
            same_bits(loops[s]->sum(logits, count, high), plain_sum(logits, count, high));
            for (size_t t = 0; t < sizeof(temperatures) / sizeof(temperatures[0]); t++) {
                loops[s]->weigh(logits, count, high, temperatures[t], weights);
                for (uint32_t i = 0; i < count; i++)
                    same_float(weights[i], math_exp((float)(((double)logits[i] - (double)high) /
                                                            (double)temperatures[t])));
                same_bits(loops[s]->total(weights, count), plain_total(weights, count));
            }
        }
}

/* One broken logit is seen wherever it is, and hides neither the highest nor the lowest. */
static void broken_logits_are_seen_in_every_place(void **state) {
    (void)state;
    const logit_loops *loops[SETS_MAX];
    size_t sets = all_loops(loops);
    static const float broken[] = {NAN, -NAN, INFINITY};
    for (size_t s = 0; s < sets; s++)
        for (uint32_t count = 1; count <= 67; count++)
            for (uint32_t at = 0; at < count; at++)
                for (size_t b = 0; b < 3; b++) {
                    float logits[67], highest, lowest, high, low;
                    fill(SPREAD, count, count, logits);
                    logits[at] = broken[b];
                    assert_false(loops[s]->range(logits, count, &highest, &lowest));
                    assert_false(plain_range(logits, count, &high, &low));
                    same_float(highest, high);
                    same_float(lowest, low);
                    logits[at] = -INFINITY; /* this one is not broken */
                    assert_true(loops[s]->range(logits, count, &highest, &lowest));
                    assert_true(lowest == -INFINITY);
                }
}

static void all_forbidden(void **state) {
    (void)state;
    const logit_loops *loops[SETS_MAX];
    size_t sets = all_loops(loops);
    float logits[67], highest, lowest;
    for (uint32_t i = 0; i < 67; i++)
        logits[i] = -INFINITY;
    for (size_t s = 0; s < sets; s++)
        for (uint32_t count = 0; count <= 67; count++) {
            assert_true(loops[s]->range(logits, count, &highest, &lowest));
            assert_true(highest == -INFINITY && lowest == (count > 0 ? -INFINITY : INFINITY));
            assert_true(loops[s]->total(logits, 0) == 0 && loops[s]->sum(logits, 0, 0) == 0);
        }
}

/* ---- Filters ---- */

typedef struct filters {
    uint32_t top_k;
    float top_p, min_p, typical, temperature;
} filters;

typedef struct outcome {
    candidate_set set;
    int32_t ids[COUNT_MAX];
    float scores[COUNT_MAX], weights[COUNT_MAX];
    uint32_t keys[COUNT_MAX];
    int32_t picked[6];
    double total;
} outcome;

static const double uniforms[6] = {0.0, 0.1, 0.5, 0.9, 0.999999, 1.0 - 0x1p-53};

/* What is left of the logits, and what is picked of it. */
static void narrow(const logit_loops *loops, const filters *by, const float *logits, uint32_t count,
                   outcome *out) {
    float highest, lowest;
    out->set = (candidate_set){.ids = out->ids,
                               .scores = out->scores,
                               .weights = out->weights,
                               .keys = out->keys,
                               .loops = loops};
    assert_true(loops->range(logits, count, &highest, &lowest));
    for (uint32_t i = 0; i < count; i++)
        if (logits[i] > -INFINITY) {
            out->ids[out->set.count] = (int32_t)i;
            out->scores[out->set.count++] = logits[i];
        }
    candidates_top_k(&out->set, by->top_k);
    candidates_weigh(&out->set, highest, by->temperature);
    candidates_top_p(&out->set, by->top_p);
    candidates_min_p(&out->set, by->min_p);
    candidates_typical(&out->set, by->typical, highest, by->temperature);
    out->total = candidates_total(&out->set);
    for (size_t i = 0; i < 6; i++)
        out->picked[i] = out->ids[candidates_pick(&out->set, uniforms[i])];
}

static void same_outcome(const outcome *found, const outcome *expected) {
    assert_int_equal(found->set.count, expected->set.count);
    assert_true(found->set.count > 0);
    assert_memory_equal(found->ids, expected->ids, found->set.count * sizeof(int32_t));
    assert_memory_equal(found->weights, expected->weights, found->set.count * sizeof(float));
    assert_memory_equal(found->picked, expected->picked, sizeof(found->picked));
    same_bits(found->total, expected->total);
}

/* The pick by adding one weight after the other, for sums without rounding. */
static int32_t plain_pick(const outcome *out, double uniform) {
    double target = uniform * out->total, sum = 0;
    int32_t last = out->ids[0];
    for (size_t i = 0; i < out->set.count; i++) {
        last = out->weights[i] > 0 ? out->ids[i] : last;
        sum += (double)out->weights[i];
        if (out->weights[i] > 0 && target < sum)
            break;
    }
    return last;
}

static void filters_agree_on_every_instruction_set(void **state) {
    (void)state;
    static const filters all[] = {
        {0, 1, 0, 1, 0.7f},     {40, 1, 0, 1, 0.8f},   {0, 0.9f, 0, 1, 1.0f},
        {0, 1, 0.05f, 1, 1.5f}, {0, 1, 0, 0.9f, 1.0f}, {600, 0.95f, 0.01f, 0.8f, 0.6f},
        {1, 1, 0, 1, 0.3f},     {0, 0.0f, 0, 1, 1.0f}, {7, 0.5f, 0.5f, 0.5f, 2.0f}};
    const logit_loops *loops[SETS_MAX];
    size_t sets = all_loops(loops);
    static float logits[COUNT_MAX];
    static outcome found, expected;
    for (uint32_t n = 0; n < SIZES * KINDS; n++)
        for (size_t f = 0; f < sizeof(all) / sizeof(all[0]); f++) {
            fill((kind)(n % KINDS), n + 7, sizes[n / KINDS], logits);
            narrow(&logit_loops_plain, &all[f], logits, sizes[n / KINDS], &expected);
            for (size_t s = 1; s < sets; s++) {
                narrow(loops[s], &all[f], logits, sizes[n / KINDS], &found);
                same_outcome(&found, &expected);
            }
            if (n % KINDS == EQUAL) /* weights of 1: any order adds them without rounding */
                for (size_t i = 0; i < 6; i++)
                    assert_int_equal(expected.picked[i], plain_pick(&expected, uniforms[i]));
        }
}

/* Where the target is at a border of blocks, behind blocks without weight, and at the very end. */
static void picks_walk_over_blocks(void **state) {
    (void)state;
    static outcome out;
    const uint32_t count = 2 * 512 + 100;
    out.set = (candidate_set){.ids = out.ids,
                              .scores = out.scores,
                              .weights = out.weights,
                              .keys = out.keys,
                              .count = count,
                              .loops = &logit_loops_plain};
    for (uint32_t i = 0; i < count; i++) {
        out.ids[i] = (int32_t)i;
        out.weights[i] = 1.0f;
    }
    for (uint32_t wanted = 0; wanted < count; wanted++)
        assert_int_equal(candidates_pick(&out.set, ((double)wanted + 0.5) / count), wanted);
    for (uint32_t i = 0; i < count; i++) /* the first and the last block weigh nothing */
        out.weights[i] = i == 600 || i == 900 ? 1.0f : 0.0f;
    assert_int_equal(candidates_pick(&out.set, 0.0), 600);
    assert_int_equal(candidates_pick(&out.set, 0.49), 600);
    assert_int_equal(candidates_pick(&out.set, 0.5), 900);
    assert_int_equal(candidates_pick(&out.set, 1.0 - 0x1p-53), 900);
    assert_int_equal(candidates_pick(&out.set, 1.0), 900); /* as rounding may leave it */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_have_the_bits_of_plain_loops),
        cmocka_unit_test(broken_logits_are_seen_in_every_place),
        cmocka_unit_test(all_forbidden),
        cmocka_unit_test(filters_agree_on_every_instruction_set),
        cmocka_unit_test(picks_walk_over_blocks),
    };
    return cmocka_run_group_tests_name("sample/loops", tests, NULL, NULL);
}
