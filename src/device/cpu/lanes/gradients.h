/* The loops of device/gradients.h, written so that a compiler runs them in the lanes of the folder
 * that includes this. Contraction is off everywhere (CMakeLists.txt), so that lanes change no bit.
 */
#ifndef AVO_DEVICE_CPU_LANES_GRADIENTS_H
#define AVO_DEVICE_CPU_LANES_GRADIENTS_H

#include "base/mathd.h"
#include "base/mathf.h"
#include "device/gradients.h"

/* ---- Norms ---- */

#define GRADIENT_LANES 16

/* What both directions need of a row. */
typedef struct row_shape {
    float mean, scale;
} row_shape;

static inline float sum_lanes(const float *x, uint32_t width) {
    float lanes[GRADIENT_LANES] = {0};
    uint32_t i = 0;
    for (; i + GRADIENT_LANES <= width; i += GRADIENT_LANES)
        for (int lane = 0; lane < GRADIENT_LANES; lane++)
            lanes[lane] += x[i + (uint32_t)lane];
    for (; i < width; i++)
        lanes[i % GRADIENT_LANES] += x[i];
    return math_sum16(lanes);
}

static inline float sum_squares(const float *x, uint32_t width, float centre) {
    float lanes[GRADIENT_LANES] = {0};
    uint32_t i = 0;
    for (; i + GRADIENT_LANES <= width; i += GRADIENT_LANES)
        for (int lane = 0; lane < GRADIENT_LANES; lane++) {
            float d = x[i + (uint32_t)lane] - centre;
            lanes[lane] += d * d;
        }
    for (; i < width; i++)
        lanes[i % GRADIENT_LANES] += (x[i] - centre) * (x[i] - centre);
    return math_sum16(lanes);
}

/* Σ w·dy·(x − centre), and where `plain` is given Σ w·dy. */
static inline float sum_products(const float *w, const float *dy, const float *x, uint32_t width,
                                 float centre, float *plain) {
    float lanes[GRADIENT_LANES] = {0};
    float sums[GRADIENT_LANES] = {0};
    uint32_t i = 0;
    for (; i + GRADIENT_LANES <= width; i += GRADIENT_LANES)
        for (int lane = 0; lane < GRADIENT_LANES; lane++) {
            uint32_t at = i + (uint32_t)lane;
            float d = w[at] * dy[at];
            sums[lane] += d;
            lanes[lane] += d * (x[at] - centre);
        }
    for (; i < width; i++) {
        float d = w[i] * dy[i];
        sums[i % GRADIENT_LANES] += d;
        lanes[i % GRADIENT_LANES] += d * (x[i] - centre);
    }
    *plain = math_sum16(sums);
    return math_sum16(lanes);
}

static inline row_shape shape_of(const norm_view *norm, const float *x, uint32_t width) {
    row_shape shape = {0};
    shape.mean = norm->kind == NORM_LAYER ? sum_lanes(x, width) / (float)width : 0.0f;
    float variance = sum_squares(x, width, shape.mean) / (float)width;
    shape.scale = 1.0f / sqrtf(variance + norm->epsilon);
    return shape;
}

static inline void lanes_norm(const norm_view *norm, const float *x, uint32_t width, float *out) {
    if (norm->kind == NORM_NONE) {
        if (out != x)
            memcpy(out, x, width * sizeof(float));
        return;
    }
    row_shape shape = shape_of(norm, x, width);
    for (uint32_t i = 0; i < width; i++)
        out[i] = (x[i] - shape.mean) * shape.scale * norm->weight[i];
    for (uint32_t i = 0; norm->bias != NULL && i < width; i++)
        out[i] += norm->bias[i];
}

static inline void lanes_norm_back(const norm_view *norm, const float *x, const float *dy,
                                   uint32_t width, bool add, float *dx) {
    if (norm->kind == NORM_NONE) {
        for (uint32_t i = 0; i < width; i++)
            dx[i] = add ? dx[i] + dy[i] : dy[i];
        return;
    }
    row_shape shape = shape_of(norm, x, width);
    float plain;
    float product = sum_products(norm->weight, dy, x, width, shape.mean, &plain);
    float n = (float)width;
    float mean = norm->kind == NORM_LAYER ? plain / n : 0.0f;
    float slope = product * shape.scale * shape.scale / n; /* per x − mean */
    for (uint32_t i = 0; i < width; i++) {
        float d = norm->weight[i] * dy[i] - mean - (x[i] - shape.mean) * slope;
        dx[i] = add ? dx[i] + shape.scale * d : shape.scale * d;
    }
}

static inline void lanes_norm_weights(const norm_view *norm, const float *x, const float *dy,
                                      uint32_t width, float *dweight, float *dbias) {
    if (norm->kind == NORM_NONE || dweight == NULL)
        return;
    row_shape shape = shape_of(norm, x, width);
    for (uint32_t i = 0; i < width; i++)
        dweight[i] += dy[i] * ((x[i] - shape.mean) * shape.scale);
    for (uint32_t i = 0; dbias != NULL && i < width; i++)
        dbias[i] += dy[i];
}

/* ---- Activations ---- */

typedef struct value_slope {
    float value, slope;
} value_slope;

static inline value_slope silu(float x) {
    float s = math_sigmoid(x);
    return (value_slope){x * s, s * (1.0f + x * (1.0f - s))};
}

/* 0.5·x·(1 + tanh(t)), t = √(2/π)·(x + 0.044715·x³) */
static inline value_slope gelu_tanh(float x) {
    float tanh_t = math_tanh(0.797884561f * (x + 0.044715f * x * x * x));
    float slope_t = 0.797884561f * (1.0f + 3.0f * 0.044715f * x * x);
    return (value_slope){0.5f * x * (1.0f + tanh_t),
                         0.5f * (1.0f + tanh_t) + 0.5f * x * (1.0f - tanh_t * tanh_t) * slope_t};
}

/* x·Φ(x); Φ' is the normal density. */
static inline value_slope gelu_erf(float x) {
    double phi = 0.5 * (1.0 + mathd_erf((double)x * 0.70710678118654752));
    double density = 0.3989422804014327 * mathd_exp(-0.5 * (double)x * (double)x);
    return (value_slope){(float)(x * phi), (float)(phi + x * density)};
}

static inline value_slope relu(float x) {
    return (value_slope){x > 0.0f ? x : 0.0f, x > 0.0f ? 1.0f : 0.0f};
}

/* One loop for each kind, with and without a gate. */
#define LANES_ACTIVATE(function)                                                                   \
    if (gate == NULL)                                                                              \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = function(up[i]).value;                                                        \
    else                                                                                           \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = function(gate[i]).value * up[i];                                              \
    break;

static inline void lanes_activate(activation_kind kind, const float *gate, const float *up,
                                  size_t count, float *restrict out) {
    switch (kind) {
    case ACTIVATION_SILU:
        LANES_ACTIVATE(silu)
    case ACTIVATION_GELU_TANH:
        LANES_ACTIVATE(gelu_tanh)
    case ACTIVATION_GELU_ERF:
        LANES_ACTIVATE(gelu_erf)
    case ACTIVATION_RELU:
        LANES_ACTIVATE(relu)
    case ACTIVATION_SWIGLU_CLIPPED: /* of experts, which cannot be trained */
        break;
    }
}

/* `dup` may be `dm`: every number is read before it is written. */
#define LANES_ACTIVATE_BACK(function)                                                              \
    if (gate == NULL)                                                                              \
        for (size_t i = 0; i < count; i++)                                                         \
            dup[i] = dm[i] * function(up[i]).slope;                                                \
    else                                                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            value_slope v = function(gate[i]);                                                     \
            float d = dm[i];                                                                       \
            dgate[i] = d * up[i] * v.slope;                                                        \
            dup[i] = d * v.value;                                                                  \
        }                                                                                          \
    break;

static inline void lanes_activate_back(activation_kind kind, const float *gate, const float *up,
                                       const float *dm, size_t count, float *dgate, float *dup) {
    switch (kind) {
    case ACTIVATION_SILU:
        LANES_ACTIVATE_BACK(silu)
    case ACTIVATION_GELU_TANH:
        LANES_ACTIVATE_BACK(gelu_tanh)
    case ACTIVATION_GELU_ERF:
        LANES_ACTIVATE_BACK(gelu_erf)
    case ACTIVATION_RELU:
        LANES_ACTIVATE_BACK(relu)
    case ACTIVATION_SWIGLU_CLIPPED:
        break;
    }
}

/* ---- Attention ---- */

static inline void lanes_softmax(float *scores, size_t count) {
    float high[GRADIENT_LANES], lanes[GRADIENT_LANES] = {0};
    size_t i = 0;
    for (int lane = 0; lane < GRADIENT_LANES; lane++)
        high[lane] = scores[0];
    for (; i + GRADIENT_LANES <= count; i += GRADIENT_LANES)
        for (int lane = 0; lane < GRADIENT_LANES; lane++) {
            float x = scores[i + (size_t)lane];
            high[lane] = x > high[lane] ? x : high[lane];
        }
    for (; i < count; i++)
        high[0] = scores[i] > high[0] ? scores[i] : high[0];
    float highest = high[0];
    for (int lane = 1; lane < GRADIENT_LANES; lane++)
        highest = high[lane] > highest ? high[lane] : highest;
    for (i = 0; i < count; i++)
        scores[i] = math_exp(scores[i] - highest);
    for (i = 0; i + GRADIENT_LANES <= count; i += GRADIENT_LANES)
        for (int lane = 0; lane < GRADIENT_LANES; lane++)
            lanes[lane] += scores[i + (size_t)lane];
    for (; i < count; i++)
        lanes[i % GRADIENT_LANES] += scores[i];
    float scale = 1.0f / math_sum16(lanes);
    for (i = 0; i < count; i++)
        scores[i] *= scale;
}

static inline void lanes_softmax_back(const float *p, size_t count, float *d) {
    float lanes[GRADIENT_LANES] = {0};
    size_t i = 0;
    for (; i + GRADIENT_LANES <= count; i += GRADIENT_LANES)
        for (int lane = 0; lane < GRADIENT_LANES; lane++)
            lanes[lane] += p[i + (size_t)lane] * d[i + (size_t)lane];
    for (; i < count; i++)
        lanes[i % GRADIENT_LANES] += p[i] * d[i];
    float mean = math_sum16(lanes);
    for (i = 0; i < count; i++)
        d[i] = p[i] * (d[i] - mean);
}

/* ---- Logits ---- */

static inline void lanes_logits_back(const gradient_logits *of, const float *z, size_t count,
                                     float *restrict d) {
    float highest = of->highest, log_sum = of->log_sum, c = -of->coefficient;
    for (size_t i = 0; i < count; i++)
        d[i] = c * math_exp((z[i] - highest) - log_sum);
}

static inline float lanes_entropy(const float *z, size_t count, float highest, float log_sum) {
    float lanes[GRADIENT_LANES] = {0};
    size_t i = 0;
    for (; i + GRADIENT_LANES <= count; i += GRADIENT_LANES)
        for (int lane = 0; lane < GRADIENT_LANES; lane++) {
            float x = z[i + (size_t)lane] - highest;
            lanes[lane] += math_exp(x - log_sum) * x;
        }
    for (; i < count; i++)
        lanes[i % GRADIENT_LANES] += math_exp(z[i] - highest - log_sum) * (z[i] - highest);
    return log_sum - math_sum16(lanes);
}

#define LANES_GRADIENTS                                                                            \
    {                                                                                              \
        lanes_norm, lanes_norm_back, lanes_norm_weights, lanes_activate, lanes_activate_back,      \
            lanes_softmax, lanes_softmax_back, lanes_logits_back, lanes_entropy                    \
    }

#endif
