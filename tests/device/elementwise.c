/* Norms, activations, residuals and logits: every table equals plain C to the bit, and plain C the
 * true functions within stated bounds. */
#include "support/support.h"

#include "base/random.h"
#include "device/exact/math.h"
#include "support/op_tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 301

static uint64_t random_u64(uint64_t seed, uint64_t counter) {
    random_block block = random_at(seed, 0, counter);
    return (uint64_t)block.words[0] << 32 | block.words[1];
}

typedef struct tables {
    op_table table[TEST_OP_TABLES]; /* the first is plain */
    size_t count;
} tables;

static tables tables_make(void) {
    tables all;
    all.count = test_op_tables(all.table);
    return all;
}

/* A mix of ordinary, tiny, huge and odd numbers. */
static void fill(uint64_t seed, float *out, size_t count, bool odd) {
    static const float special[] = {0.0f,   -0.0f,    INFINITY, -INFINITY,   NAN,     1e-42f,
                                    -87.4f, 88.8f,    1e30f,    -1e30f,      89.0f,   -103.0f,
                                    0.5f,   -0.5e-7f, 3.4e38f,  16777216.0f, -20.25f, 1e-20f};
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_u64(seed, i);
        float unit = (float)((double)(bits >> 11) * 0x1p-53 * 2.0 - 1.0);
        out[i] = unit * 8.0f;
        if (odd && bits % 13 == 0)
            out[i] = special[bits / 13 % (sizeof(special) / sizeof(special[0]))];
    }
}

/* Equal to the bit, any NaN like any other. */
static void check_equal(const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        assert_true(memcmp(&a[i], &b[i], sizeof(float)) == 0 || (a[i] != a[i] && b[i] != b[i]));
}

static void activations_are_equal(void **state) {
    (void)state;
    tables all = tables_make();
    float gate[COUNT_MAX], up[COUNT_MAX], want[COUNT_MAX], got[COUNT_MAX];
    for (size_t count = 0; count < COUNT_MAX; count += 1 + count / 20)
        for (int kind = ACTIVATION_SILU; kind <= ACTIVATION_RELU; kind++)
            for (int gated = 0; gated < 2; gated++)
                for (size_t t = 1; t < all.count; t++) {
                    fill(count * 10 + (size_t)kind, gate, count, true);
                    fill(count * 10 + (size_t)kind + 5, up, count, true);
                    memcpy(want, up, sizeof(up));
                    memcpy(got, up, sizeof(up));
                    all.table[0].activate((activation_kind)kind, gated ? gate : NULL, want, count);
                    all.table[t].activate((activation_kind)kind, gated ? gate : NULL, got, count);
                    check_equal(want, got, count);
                }
}

static void norms_are_equal(void **state) {
    (void)state;
    tables all = tables_make();
    float x[COUNT_MAX], weight[COUNT_MAX], bias[COUNT_MAX], want[COUNT_MAX], got[COUNT_MAX];
    fill(1, weight, COUNT_MAX, false);
    fill(2, bias, COUNT_MAX, false);
    for (uint32_t width = 1; width < COUNT_MAX; width += 1 + width / 20)
        for (int kind = NORM_NONE; kind <= NORM_LAYER; kind++)
            for (size_t t = 1; t < all.count; t++) {
                norm_view norm = {(norm_kind)kind, 1e-5f, weight, width % 2 ? bias : NULL};
                fill(width, x, width, width % 7 == 0);
                all.table[0].norm(&norm, x, width, want);
                all.table[t].norm(&norm, x, width, got);
                check_equal(want, got, width);
                all.table[t].norm(&norm, x, width, x); /* in place */
                check_equal(want, x, width);
            }
}

static void logits_are_equal(void **state) {
    (void)state;
    tables all = tables_make();
    float x[COUNT_MAX], want[COUNT_MAX], got[COUNT_MAX];
    for (size_t count = 1; count < COUNT_MAX; count += 1 + count / 20)
        for (size_t t = 1; t < all.count; t++) {
            fill(count + 77, x, count, true);
            assert_int_equal(all.table[0].largest(x, count), all.table[t].largest(x, count));
            for (size_t i = 0; i < count; i++)
                x[i] = (float)(random_u64(count, i) % 3); /* many equals: the first wins */
            assert_int_equal(all.table[0].largest(x, count), all.table[t].largest(x, count));
            fill(count + 78, x, count, true);
            memcpy(want, x, sizeof(x));
            memcpy(got, x, sizeof(x));
            float cap = count % 3 == 0 ? 30.0f : 0.0f;
            all.table[0].finish_logits(want, count, 0.7f, cap);
            all.table[t].finish_logits(got, count, 0.7f, cap);
            check_equal(want, got, count);
            float sums[2] = {all.table[0].sum_exp(x, count, 1.5f),
                             all.table[t].sum_exp(x, count, 1.5f)};
            check_equal(&sums[0], &sums[1], 1);
            all.table[0].add_scaled(x, 0.3f, want, count);
            all.table[t].add_scaled(x, 0.3f, got, count);
            check_equal(want, got, count);
        }
}

static void largest_ignores_nan(void **state) {
    (void)state;
    tables all = tables_make();
    float x[40];
    for (size_t t = 0; t < all.count; t++) {
        for (int i = 0; i < 40; i++)
            x[i] = NAN;
        assert_int_equal(all.table[t].largest(x, 40), 0);
        x[37] = -INFINITY;
        x[21] = -5.0f;
        assert_int_equal(all.table[t].largest(x, 40), 21);
    }
}

static void fused_exp_is_right(void **state) {
    (void)state;
    for (double x = -87.3; x < 88.7; x += 0.00117) {
        double want = exp((double)(float)x);
        assert_true(fabs((double)fused_exp((float)x) - want) <= 2.4e-7 * want);
    }
    assert_true(fused_exp(-88.0f) == 0.0f && fused_exp(-INFINITY) == 0.0f);
    assert_true(fused_exp(89.0f) == INFINITY && fused_exp(NAN) != fused_exp(NAN));
    assert_true(fused_exp(0.0f) == 1.0f);
    for (double x = -20; x < 20; x += 0.0013)
        assert_true(fabs((double)fused_tanh((float)x) - tanh((double)(float)x)) < 3e-7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_equal), cmocka_unit_test(norms_are_equal),
        cmocka_unit_test(logits_are_equal),      cmocka_unit_test(largest_ignores_nan),
        cmocka_unit_test(fused_exp_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
