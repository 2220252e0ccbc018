/* The loops of the backward pass: derivatives against differences of the same functions in double
 * precision, and the same bits from every instruction set, at lengths around whole vectors. */
#include "support/support.h"

#include "device/cpu/isa.h"
#include "device/gradients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST  83
#define STEP  1e-5
#define BOUND 2e-5 /* of the largest number, or of 0.01 */

static const uint32_t lengths[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, MOST};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static void draw(uint32_t seed, size_t count, float *out) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = 2.0f * ((float)(seed >> 8) * 0x1p-23f - 1.0f);
    }
}

static void assert_near(const float *found, const double *wanted, size_t count, const char *what) {
    double size = 1e-2;
    for (size_t i = 0; i < count; i++)
        size = fmax(size, fabs(wanted[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)found[i] - wanted[i]) <= BOUND * size))
            fail_msg("%s: number %zu of %zu is %g, must be %g", what, i, count, (double)found[i],
                     wanted[i]);
}

/* ---- Norms ---- */

typedef struct norm_case {
    norm_kind kind;
    uint32_t width;
    float x[MOST], dy[MOST], weight[MOST], bias[MOST];
    norm_view view;
} norm_case;

static void make_norm(norm_case *c, norm_kind kind, uint32_t width) {
    c->kind = kind;
    c->width = width;
    draw(1 + width, width, c->x);
    draw(2 + width, width, c->dy);
    draw(3 + width, width, c->weight);
    draw(4 + width, width, c->bias);
    c->view = (norm_view){kind, 1e-3f, c->weight, kind == NORM_LAYER ? c->bias : NULL};
}

static void norm_double(const norm_case *c, const double *x, const double *weight, double *out) {
    double mean = 0.0, variance = 0.0;
    for (uint32_t i = 0; c->kind == NORM_LAYER && i < c->width; i++)
        mean += x[i] / c->width;
    for (uint32_t i = 0; i < c->width; i++)
        variance += (x[i] - mean) * (x[i] - mean) / c->width;
    for (uint32_t i = 0; i < c->width; i++)
        out[i] = (x[i] - mean) / sqrt(variance + 1e-3) * weight[i] +
                 (c->kind == NORM_LAYER ? (double)c->bias[i] : 0.0);
}

static double norm_sum(const norm_case *c, const double *x, const double *weight) {
    double out[MOST], sum = 0.0;
    norm_double(c, x, weight, out);
    for (uint32_t i = 0; i < c->width; i++)
        sum += (double)c->dy[i] * out[i];
    return sum;
}

/* d Σ dy·norm / d numbers[i], where `numbers` is x or weight. */
static void norm_slopes(const norm_case *c, double *x, double *weight, double *numbers,
                        double *out) {
    for (uint32_t i = 0; i < c->width; i++) {
        double kept = numbers[i];
        numbers[i] = kept + STEP;
        double high = norm_sum(c, x, weight);
        numbers[i] = kept - STEP;
        out[i] = (high - norm_sum(c, x, weight)) / (2.0 * STEP);
        numbers[i] = kept;
    }
}

static void check_norm(const norm_case *c) {
    const gradient_loops *loops = gradient_loops_best();
    double x[MOST], weight[MOST], wanted[MOST];
    float found[MOST], again[MOST], bias[MOST] = {0};
    for (uint32_t i = 0; i < c->width; i++) {
        x[i] = (double)c->x[i];
        weight[i] = (double)c->weight[i];
    }
    loops->norm(&c->view, c->x, c->width, found);
    norm_double(c, x, weight, wanted);
    assert_near(found, wanted, c->width, "norm");
    norm_slopes(c, x, weight, x, wanted);
    loops->norm_back(&c->view, c->x, c->dy, c->width, false, found);
    assert_near(found, wanted, c->width, "derivative by x");
    memcpy(again, c->dy, sizeof(again));
    loops->norm_back(&c->view, c->x, again, c->width, false, again);
    assert_memory_equal(found, again, c->width * sizeof(float));
    loops->norm_back(&c->view, c->x, c->dy, c->width, true, again);
    for (uint32_t i = 0; i < c->width; i++)
        assert_true(fabsf(again[i] - 2.0f * found[i]) <= 1e-4f);
    norm_slopes(c, x, weight, weight, wanted);
    memset(found, 0, sizeof(found));
    loops->norm_weights(&c->view, c->x, c->dy, c->width, found, bias);
    assert_near(found, wanted, c->width, "derivative by weights");
    assert_memory_equal(bias, c->dy, c->width * sizeof(float));
}

static void norms(void **state) {
    (void)state;
    norm_case c;
    for (size_t i = 1; i < LENGTHS; i++) { /* a norm of one number has no slope to speak of */
        make_norm(&c, NORM_RMS, lengths[i]);
        check_norm(&c);
        make_norm(&c, NORM_LAYER, lengths[i]);
        check_norm(&c);
    }
    make_norm(&c, NORM_NONE, 5);
    float out[5];
    gradient_loops_best()->norm(&c.view, c.x, 5, out);
    assert_memory_equal(out, c.x, sizeof(out));
    gradient_loops_best()->norm_back(&c.view, c.x, c.dy, 5, false, out);
    assert_memory_equal(out, c.dy, sizeof(out));
}

/* ---- Activations ---- */

static double activate_double(activation_kind kind, double x) {
    switch (kind) {
    case ACTIVATION_SILU:
        return x / (1.0 + exp(-x));
    case ACTIVATION_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case ACTIVATION_GELU_ERF:
        return 0.5 * x * (1.0 + erf(x * 0.7071067811865476));
    case ACTIVATION_RELU:
        return x > 0.0 ? x : 0.0;
    case ACTIVATION_SWIGLU_CLIPPED: /* of experts, which cannot be trained */
        break;
    }
    return x;
}

static double activate_slope(activation_kind kind, double x) {
    return (activate_double(kind, x + STEP) - activate_double(kind, x - STEP)) / (2.0 * STEP);
}

static void check_activation(activation_kind kind, uint32_t count, bool gated) {
    const gradient_loops *loops = gradient_loops_best();
    float gate[MOST], up[MOST], dm[MOST], out[MOST], dgate[MOST];
    double value[MOST], by_gate[MOST], by_up[MOST];
    draw(count, count, gate);
    draw(count + 1, count, up);
    draw(count + 2, count, dm);
    for (uint32_t i = 0; i < count; i++) {
        double x = (double)(gated ? gate[i] : up[i]), d = (double)dm[i];
        value[i] = activate_double(kind, x) * (gated ? (double)up[i] : 1.0);
        by_gate[i] = d * activate_slope(kind, x) * (double)up[i];
        by_up[i] = gated ? d * activate_double(kind, x) : d * activate_slope(kind, x);
    }
    loops->activate(kind, gated ? gate : NULL, up, count, out);
    assert_near(out, value, count, "activation");
    loops->activate_back(kind, gated ? gate : NULL, up, dm, count, dgate, dm);
    assert_near(dm, by_up, count, "derivative by up");
    if (gated)
        assert_near(dgate, by_gate, count, "derivative by gate");
}

static void activations(void **state) {
    (void)state;
    for (int kind = ACTIVATION_SILU; kind <= ACTIVATION_RELU; kind++)
        for (size_t i = 0; i < LENGTHS; i++) {
            check_activation((activation_kind)kind, lengths[i], true);
            check_activation((activation_kind)kind, lengths[i], false);
        }
}

/* ---- Softmax ---- */

static void softmax_double(const double *x, uint32_t count, double *out) {
    double highest = x[0], sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        highest = fmax(highest, x[i]);
    for (uint32_t i = 0; i < count; i++)
        sum += exp(x[i] - highest);
    for (uint32_t i = 0; i < count; i++)
        out[i] = exp(x[i] - highest) / sum;
}

static void softmaxes(void **state) {
    (void)state;
    const gradient_loops *loops = gradient_loops_best();
    for (size_t n = 0; n < LENGTHS; n++) {
        uint32_t count = lengths[n];
        float p[MOST], d[MOST], x[MOST];
        double z[MOST], wanted[MOST], slope[MOST], high[MOST], low[MOST];
        draw(count, count, x);
        draw(count + 9, count, d);
        memcpy(p, x, sizeof(p));
        for (uint32_t i = 0; i < count; i++)
            z[i] = (double)x[i];
        softmax_double(z, count, wanted);
        loops->softmax(p, count);
        assert_near(p, wanted, count, "softmax");
        for (uint32_t i = 0; i < count; i++) {
            z[i] += STEP;
            softmax_double(z, count, high);
            z[i] -= 2.0 * STEP;
            softmax_double(z, count, low);
            z[i] += STEP;
            slope[i] = 0.0;
            for (uint32_t j = 0; j < count; j++)
                slope[i] += (double)d[j] * (high[j] - low[j]) / (2.0 * STEP);
        }
        loops->softmax_back(p, count, d);
        assert_near(d, slope, count, "derivative of a softmax");
    }
}

static void logits(void **state) {
    (void)state;
    const gradient_loops *loops = gradient_loops_best();
    for (size_t n = 0; n < LENGTHS; n++) {
        uint32_t count = lengths[n];
        float z[MOST], d[MOST], highest = -INFINITY;
        double x[MOST], p[MOST], sum = 0.0, entropy = 0.0;
        draw(count + 5, count, z);
        for (uint32_t i = 0; i < count; i++) {
            x[i] = (double)z[i];
            highest = fmaxf(highest, z[i]);
        }
        softmax_double(x, count, p);
        for (uint32_t i = 0; i < count; i++) {
            sum += exp(x[i] - (double)highest);
            entropy -= p[i] * log(p[i]);
        }
        float found = loops->entropy(z, count, highest, (float)log(sum));
        assert_true(fabs((double)found - entropy) <= 1e-5);
        gradient_logits of = {highest, (float)log(sum), 0.75f};
        loops->logits_back(&of, z, count, d);
        for (uint32_t i = 0; i < count; i++)
            p[i] *= -0.75;
        assert_near(d, p, count, "derivative by logits");
    }
}

/* ---- The same bits ---- */

/* Everything that the loops compute of some numbers, behind one another. */
static size_t compute_all(const gradient_loops *loops, uint32_t count, float *out) {
    norm_case rms, layer;
    float *to = out;
    make_norm(&rms, NORM_RMS, count);
    make_norm(&layer, NORM_LAYER, count);
    const norm_case *const both[] = {&rms, &layer};
    for (int i = 0; i < 2; i++) {
        loops->norm(&both[i]->view, both[i]->x, count, to);
        loops->norm_back(&both[i]->view, both[i]->x, both[i]->dy, count, false, to + count);
        memset(to + 2 * count, 0, 2 * count * sizeof(float));
        loops->norm_weights(&both[i]->view, both[i]->x, both[i]->dy, count, to + 2 * count,
                            to + 3 * count);
        to += 4 * count;
    }
    for (int kind = ACTIVATION_SILU; kind <= ACTIVATION_RELU; kind++) {
        loops->activate((activation_kind)kind, rms.x, rms.dy, count, to);
        loops->activate_back((activation_kind)kind, rms.x, rms.dy, rms.weight, count, to + count,
                             to + 2 * count);
        to += 3 * count;
    }
    memcpy(to, rms.x, count * sizeof(float));
    loops->softmax(to, count);
    memcpy(to + count, rms.dy, count * sizeof(float));
    loops->softmax_back(to, count, to + count);
    gradient_logits of = {2.0f, 1.25f, 0.5f};
    loops->logits_back(&of, rms.x, count, to + 2 * count);
    to += 3 * count;
    *to++ = loops->entropy(rms.x, count, 2.0f, 1.25f);
    return (size_t)(to - out);
}

static void same_bits(void **state) {
    (void)state;
    static float plain[32 * MOST], other[32 * MOST];
    const instruction_set *set;
    for (size_t n = 0; n < LENGTHS; n++) {
        size_t count = compute_all(&gradient_loops_plain, lengths[n], plain);
        assert_true(count <= sizeof(plain) / sizeof(plain[0]));
        for (size_t i = 0; (set = isa_at(i)) != NULL; i++) {
            if (set->gradients == NULL)
                continue;
            compute_all(set->gradients, lengths[n], other);
            if (memcmp(plain, other, count * sizeof(float)) != 0)
                fail_msg("%s, %u numbers: other bits", set->name, lengths[n]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(norms), cmocka_unit_test(activations),
                                       cmocka_unit_test(softmaxes), cmocka_unit_test(logits),
                                       cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
