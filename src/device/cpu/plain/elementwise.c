/* Norms, activations, residuals and logits of the op table in plain C: what lanes/elementwise.h
 * computes, one number at a time. */
#include "device/cpu/plain/plain_int.h"

#include "base/mathf.h"
#include "device/exact/math.h"

static void plain_norm(const norm_view *norm, const float *x, uint32_t width, float *out) {
    if (norm->kind == NORM_NONE) {
        if (out != x)
            memcpy(out, x, width * sizeof(float));
        return;
    }
    float mean = 0.0f;
    if (norm->kind == NORM_LAYER) {
        float lanes[16] = {0};
        for (uint32_t i = 0; i < width; i++)
            lanes[i % 16] += x[i];
        mean = math_sum16(lanes) / (float)width;
    }
    float squares[16] = {0};
    for (uint32_t i = 0; i < width; i++)
        squares[i % 16] = fmaf(x[i] - mean, x[i] - mean, squares[i % 16]);
    float scale = 1.0f / sqrtf(math_sum16(squares) / (float)width + norm->epsilon);
    for (uint32_t i = 0; i < width; i++) {
        float y = (x[i] - mean) * scale * norm->weight[i];
        out[i] = norm->bias == NULL ? y : y + norm->bias[i];
    }
}

/* What the activation of a gate is multiplied with. */
static float plain_factor(activation_kind kind, float up) {
    if (kind != ACTIVATION_SWIGLU_CLIPPED)
        return up;
    float low = up > -7.0f ? up : -7.0f;
    return (low < 7.0f ? low : 7.0f) + 1.0f;
}

static void plain_activate(activation_kind kind, const float *gate, float *up, size_t count) {
    for (size_t i = 0; i < count; i++)
        up[i] = gate != NULL ? exact_activation(kind, gate[i]) * plain_factor(kind, up[i])
                             : exact_activation(kind, up[i]);
}

static void plain_add_scaled(const float *x, float scale, float *hidden, size_t count) {
    for (size_t i = 0; i < count; i++)
        hidden[i] = fmaf(x[i], scale, hidden[i]);
}

static void plain_finish_logits(float *logits, size_t count, float scale, float cap) {
    for (size_t i = 0; i < count; i++) {
        float logit = logits[i] * scale;
        logits[i] = cap > 0.0f ? cap * fused_tanh(logit / cap) : logit;
    }
}

static size_t plain_largest(const float *logits, size_t count) {
    size_t found = 0;
    float largest = -INFINITY;
    for (size_t i = 0; i < count; i++)
        if (logits[i] > largest) {
            largest = logits[i];
            found = i;
        }
    return found;
}

static float plain_sum_exp(const float *logits, size_t count, float offset) {
    float lanes[16] = {0};
    for (size_t i = 0; i < count; i++)
        lanes[i % 16] += fused_exp(logits[i] - offset);
    return math_sum16(lanes);
}

void plain_elementwise(op_table *table) {
    table->norm = plain_norm;
    table->activate = plain_activate;
    table->add_scaled = plain_add_scaled;
    table->finish_logits = plain_finish_logits;
    table->largest = plain_largest;
    table->sum_exp = plain_sum_exp;
}
