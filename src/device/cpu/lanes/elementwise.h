/* What is done number by number or along one row: norms, activations, residuals, logits. Written
 * once in 16 lanes; every ISA folder includes it behind its vec16.h. plain/elementwise.c has the
 * same arithmetic for one number at a time, to the bit. */
#ifndef AVO_DEVICE_CPU_LANES_ELEMENTWISE_H
#define AVO_DEVICE_CPU_LANES_ELEMENTWISE_H

#include "base/mathd.h"
#include "device/cpu/lanes/exp.h"
#include "device/cpu/ops.h"

#include <math.h>
#include <string.h>

/* ---- Norms: sums in 16 lanes (lane = index mod 16), then one fixed tree ---- */

static inline float lanes_sum(const float *x, uint32_t width) {
    vec16 sum = v_zero();
    uint32_t i = 0;
    for (; i + LANES <= width; i += LANES)
        sum = v_add(sum, v_load(x + i));
    if (i < width)
        sum = v_add(sum, v_load_part(x + i, width - i));
    return v_sum(sum);
}

/* Σ (x − centre)² */
static inline float lanes_squares(const float *x, uint32_t width, float centre) {
    vec16 sum = v_zero();
    vec16 c = v_set(centre);
    uint32_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        vec16 d = v_sub(v_load(x + i), c);
        sum = v_fma(d, d, sum);
    }
    if (i < width) {
        float rest[LANES] = {0}; /* lanes that are not there differ from the centre by nothing */
        v_store_part(rest, v_sub(v_load_part(x + i, width - i), c), width - i);
        vec16 d = v_load(rest);
        sum = v_fma(d, d, sum);
    }
    return v_sum(sum);
}

static inline vec16 lanes_norm_one(vec16 x, vec16 mean, vec16 scale, vec16 weight, vec16 bias,
                                   bool has_bias) {
    vec16 y = v_mul(v_mul(v_sub(x, mean), scale), weight);
    return has_bias ? v_add(y, bias) : y;
}

static void lanes_norm(const norm_view *norm, const float *x, uint32_t width, float *out) {
    if (norm->kind == NORM_NONE) {
        if (out != x)
            memcpy(out, x, width * sizeof(float));
        return;
    }
    float centre = norm->kind == NORM_LAYER ? lanes_sum(x, width) / (float)width : 0.0f;
    float variance = lanes_squares(x, width, centre) / (float)width;
    vec16 scale = v_set(1.0f / sqrtf(variance + norm->epsilon));
    vec16 mean = v_set(centre);
    bool has_bias = norm->bias != NULL;
    const float *bias = has_bias ? norm->bias : norm->weight;
    uint32_t i = 0;
    for (; i + LANES <= width; i += LANES)
        v_store(out + i, lanes_norm_one(v_load(x + i), mean, scale, v_load(norm->weight + i),
                                        v_load(bias + i), has_bias));
    if (i < width) {
        size_t rest = width - i;
        v_store_part(out + i,
                     lanes_norm_one(v_load_part(x + i, rest), mean, scale,
                                    v_load_part(norm->weight + i, rest),
                                    v_load_part(bias + i, rest), has_bias),
                     rest);
    }
}

/* ---- Activations ---- */

static inline vec16 lanes_gelu_erf(vec16 x) {
    float lane[LANES];
    v_store(lane, x);
    for (int i = 0; i < LANES; i++)
        lane[i] = (float)(0.5 * (double)lane[i] *
                          (1.0 + mathd_erf((double)lane[i] * 0.70710678118654752)));
    return v_load(lane);
}

/* `count` vectors, a constant. */
static inline __attribute__((always_inline)) void lanes_activation(activation_kind kind,
                                                                   const int count, vec16 *x) {
    vec16 y[LANES_TOGETHER];
    switch (kind) {
    case ACTIVATION_SILU:
        for (int i = 0; i < count; i++)
            y[i] = x[i];
        v_sigmoid_each(count, y);
        for (int i = 0; i < count; i++)
            x[i] = v_mul(x[i], y[i]);
        return;
    case ACTIVATION_GELU_TANH:
        for (int i = 0; i < count; i++) {
            vec16 cube = v_mul(v_mul(v_set(0.044715f), x[i]), x[i]);
            y[i] = v_mul(v_set(0.797884561f), v_fma(cube, x[i], x[i]));
        }
        v_tanh_each(count, y);
        for (int i = 0; i < count; i++)
            x[i] = v_mul(v_mul(v_set(0.5f), x[i]), v_add(v_set(1.0f), y[i]));
        return;
    case ACTIVATION_GELU_ERF:
        for (int i = 0; i < count; i++)
            x[i] = lanes_gelu_erf(x[i]);
        return;
    case ACTIVATION_RELU:
        for (int i = 0; i < count; i++)
            x[i] = v_max(x[i], v_zero());
        return;
    case ACTIVATION_SWIGLU_CLIPPED: /* without its other factor */
        for (int i = 0; i < count; i++) {
            x[i] = v_min(x[i], v_set(7.0f));
            y[i] = v_mul(v_set(1.702f), x[i]);
        }
        v_sigmoid_each(count, y);
        for (int i = 0; i < count; i++)
            x[i] = v_mul(x[i], y[i]);
        return;
    }
}

/* What the activation of a gate is multiplied with. */
static inline __attribute__((always_inline)) vec16 lanes_factor(activation_kind kind, vec16 up) {
    if (kind != ACTIVATION_SWIGLU_CLIPPED)
        return up;
    return v_add(v_min(v_max(up, v_set(-7.0f)), v_set(7.0f)), v_set(1.0f));
}

/* `count` whole vectors from element `at` on. */
static inline __attribute__((always_inline)) void lanes_activate_each(activation_kind kind,
                                                                      const int count,
                                                                      const float *gate, float *up,
                                                                      size_t at) {
    vec16 x[LANES_TOGETHER];
    for (int i = 0; i < count; i++)
        x[i] = v_load((gate != NULL ? gate : up) + at + (size_t)i * LANES);
    lanes_activation(kind, count, x);
    for (int i = 0; i < count; i++) {
        float *to = up + at + (size_t)i * LANES;
        v_store(to, gate != NULL ? v_mul(x[i], lanes_factor(kind, v_load(to))) : x[i]);
    }
}

static inline void lanes_activate_kind(activation_kind kind, const float *gate, float *up,
                                       size_t count) {
    size_t i = 0;
    for (; i + LANES_TOGETHER * LANES <= count; i += LANES_TOGETHER * LANES)
        lanes_activate_each(kind, LANES_TOGETHER, gate, up, i);
    for (; i + LANES <= count; i += LANES)
        lanes_activate_each(kind, 1, gate, up, i);
    if (i < count) {
        size_t rest = count - i;
        vec16 u = v_load_part(up + i, rest);
        vec16 y = gate != NULL ? v_load_part(gate + i, rest) : u;
        lanes_activation(kind, 1, &y);
        v_store_part(up + i, gate != NULL ? v_mul(y, lanes_factor(kind, u)) : y, rest);
    }
}

static void lanes_activate(activation_kind kind, const float *gate, float *up, size_t count) {
    switch (kind) { /* so that the choice stands outside the loop */
    case ACTIVATION_SILU:
        lanes_activate_kind(ACTIVATION_SILU, gate, up, count);
        return;
    case ACTIVATION_GELU_TANH:
        lanes_activate_kind(ACTIVATION_GELU_TANH, gate, up, count);
        return;
    case ACTIVATION_GELU_ERF:
        lanes_activate_kind(ACTIVATION_GELU_ERF, gate, up, count);
        return;
    case ACTIVATION_RELU:
        lanes_activate_kind(ACTIVATION_RELU, gate, up, count);
        return;
    case ACTIVATION_SWIGLU_CLIPPED:
        lanes_activate_kind(ACTIVATION_SWIGLU_CLIPPED, gate, up, count);
        return;
    }
}

/* ---- Residuals and logits ---- */

static void lanes_add_scaled(const float *x, float scale, float *hidden, size_t count) {
    vec16 s = v_set(scale);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        v_store(hidden + i, v_fma(v_load(x + i), s, v_load(hidden + i)));
    if (i < count) {
        size_t rest = count - i;
        v_store_part(hidden + i, v_fma(v_load_part(x + i, rest), s, v_load_part(hidden + i, rest)),
                     rest);
    }
}

static inline vec16 lanes_logit(vec16 logit, float scale, float cap) {
    vec16 scaled = v_mul(logit, v_set(scale));
    return cap > 0.0f ? v_mul(v_set(cap), v_tanh(v_div(scaled, v_set(cap)))) : scaled;
}

static void lanes_finish_logits(float *logits, size_t count, float scale, float cap) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        v_store(logits + i, lanes_logit(v_load(logits + i), scale, cap));
    if (i < count)
        v_store_part(logits + i, lanes_logit(v_load_part(logits + i, count - i), scale, cap),
                     count - i);
}

static size_t lanes_largest(const float *logits, size_t count) {
    vec16 best = v_set(-INFINITY);
    ivec16 where = iv_set(0);
    float first[LANES];
    int32_t index[LANES];
    for (int lane = 0; lane < LANES; lane++)
        index[lane] = lane;
    ivec16 here = iv_load(index);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec16 x = v_load(logits + i);
        vmask better = v_less(best, x);
        best = v_select(better, x, best);
        where = iv_select(better, here, where);
        here = iv_add(here, iv_set(LANES));
    }
    v_store(first, best);
    iv_store(index, where);
    size_t found = 0;
    float largest = -INFINITY;
    for (int lane = 0; lane < LANES; lane++)
        if (first[lane] > largest || (first[lane] == largest && (size_t)index[lane] < found)) {
            largest = first[lane];
            found = (size_t)index[lane];
        }
    for (; i < count; i++)
        if (logits[i] > largest) {
            largest = logits[i];
            found = i;
        }
    return found;
}

static float lanes_sum_exp(const float *logits, size_t count, float offset) {
    vec16 sum = v_zero();
    vec16 down = v_set(offset);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES)
        sum = v_add(sum, v_exp(v_sub(v_load(logits + i), down)));
    if (i < count) {
        float rest[LANES] = {0}; /* lanes that are not there add nothing */
        v_store_part(rest, v_exp(v_sub(v_load_part(logits + i, count - i), down)), count - i);
        sum = v_add(sum, v_load(rest));
    }
    return v_sum(sum);
}

static inline void lanes_elementwise(op_table *table) {
    table->norm = lanes_norm;
    table->activate = lanes_activate;
    table->add_scaled = lanes_add_scaled;
    table->finish_logits = lanes_finish_logits;
    table->largest = lanes_largest;
    table->sum_exp = lanes_sum_exp;
}

#endif
