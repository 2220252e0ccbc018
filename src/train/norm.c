/* Norms forward and backward. */
#include "train/norm.h"

#include "base/mathf.h"

#include <string.h>

#define LANES 16

/* What both directions need of a row. */
typedef struct row_shape {
    float mean, scale;
} row_shape;

static float sum_lanes(const float *x, uint32_t width) {
    float lanes[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] += x[i + (uint32_t)lane];
    for (; i < width; i++)
        lanes[i % LANES] += x[i];
    return math_sum16(lanes);
}

static float sum_squares(const float *x, uint32_t width, float centre) {
    float lanes[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            float d = x[i + (uint32_t)lane] - centre;
            lanes[lane] += d * d;
        }
    for (; i < width; i++)
        lanes[i % LANES] += (x[i] - centre) * (x[i] - centre);
    return math_sum16(lanes);
}

/* Σ w·dy·(x − centre), and where `plain` is given Σ w·dy. */
static float sum_products(const float *w, const float *dy, const float *x, uint32_t width,
                          float centre, float *plain) {
    float lanes[LANES] = {0};
    float sums[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t at = i + (uint32_t)lane;
            float d = w[at] * dy[at];
            sums[lane] += d;
            lanes[lane] += d * (x[at] - centre);
        }
    for (; i < width; i++) {
        float d = w[i] * dy[i];
        sums[i % LANES] += d;
        lanes[i % LANES] += d * (x[i] - centre);
    }
    *plain = math_sum16(sums);
    return math_sum16(lanes);
}

static row_shape shape_of(const norm_view *norm, const float *x, uint32_t width) {
    row_shape shape = {0};
    shape.mean = norm->kind == NORM_LAYER ? sum_lanes(x, width) / (float)width : 0.0f;
    float variance = sum_squares(x, width, shape.mean) / (float)width;
    shape.scale = 1.0f / sqrtf(variance + norm->epsilon);
    return shape;
}

void train_norm_row(const norm_view *norm, const float *x, uint32_t width, float *out) {
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

void train_norm_row_backward(const norm_view *norm, const float *x, const float *dy, uint32_t width,
                             bool add, float *dx) {
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

void train_norm_row_gradient(const norm_view *norm, const float *x, const float *dy, uint32_t width,
                             float *dweight, float *dbias) {
    if (norm->kind == NORM_NONE || dweight == NULL)
        return;
    row_shape shape = shape_of(norm, x, width);
    for (uint32_t i = 0; i < width; i++)
        dweight[i] += dy[i] * ((x[i] - shape.mean) * shape.scale);
    for (uint32_t i = 0; dbias != NULL && i < width; i++)
        dbias[i] += dy[i];
}
