/* Activations forward and backward. One loop for each kind, so that compilers can use lanes. */
#include "train/activation.h"

#include "base/mathd.h"
#include "base/mathf.h"

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

#define FORWARD(function)                                                                          \
    for (size_t i = 0; i < count; i++) {                                                           \
        value_slope v = function(gate == NULL ? up[i] : gate[i]);                                  \
        out[i] = gate == NULL ? v.value : v.value * up[i];                                         \
    }

void train_activate(activation_kind kind, const float *gate, const float *up, size_t count,
                    float *out) {
    switch (kind) {
    case ACTIVATION_SILU:
        FORWARD(silu)
        break;
    case ACTIVATION_GELU_TANH:
        FORWARD(gelu_tanh)
        break;
    case ACTIVATION_GELU_ERF:
        FORWARD(gelu_erf)
        break;
    case ACTIVATION_RELU:
        FORWARD(relu)
        break;
    }
}

#define BACKWARD(function)                                                                         \
    if (gate == NULL) {                                                                            \
        for (size_t i = 0; i < count; i++)                                                         \
            dup[i] = dm[i] * function(up[i]).slope;                                                \
    } else {                                                                                       \
        for (size_t i = 0; i < count; i++) {                                                       \
            value_slope v = function(gate[i]);                                                     \
            float d = dm[i];                                                                       \
            dgate[i] = d * up[i] * v.slope;                                                        \
            dup[i] = d * v.value;                                                                  \
        }                                                                                          \
    }

void train_activate_backward(activation_kind kind, const float *gate, const float *up,
                             const float *dm, size_t count, float *dgate, float *dup) {
    switch (kind) {
    case ACTIVATION_SILU:
        BACKWARD(silu)
        break;
    case ACTIVATION_GELU_TANH:
        BACKWARD(gelu_tanh)
        break;
    case ACTIVATION_GELU_ERF:
        BACKWARD(gelu_erf)
        break;
    case ACTIVATION_RELU:
        BACKWARD(relu)
        break;
    }
}
