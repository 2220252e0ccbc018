/* Activations into the forms of activation.h, one row at a time: the specification, in plain C. */
#include "device/cpu/plain/plain_int.h"

#include "base/checked.h"

#include <math.h>

#define A8_MOST   127.0f
#define A16_MOST  32512.0f
#define A16_RADIX 255
#define SUM_BLOCK 16
#define A8R_BLOCK 256
#define INFINITE  0x7f800000u
#define MAGNITUDE 0x7fffffffu

/* By the bits: an infinity is larger than any number, a NaN larger than that. */
static float largest_magnitude(const float *x, size_t count) {
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= MAGNITUDE;
        largest = bits > largest ? bits : largest;
    }
    float number;
    memcpy(&number, &largest, sizeof(number));
    return number;
}

/* Scale of a block, and what its numbers are multiplied with; 0: all of them are 0. */
static float block_scale(const float *x, size_t count, float most, float *inverse) {
    float largest = largest_magnitude(x, count);
    *inverse = 0.0f;
    if (largest < ACTIVATION_TINY)
        return 0.0f;
    if (isfinite(largest))
        *inverse = most / largest;
    return largest / most;
}

static inline int32_t nearest(float x, float inverse) {
    return inverse == 0.0f ? 0 : (int32_t)lrintf(x * inverse);
}

static int32_t quantise_block(const float *x, size_t count, float inverse, int8_t *number) {
    int32_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        number[i] = (int8_t)nearest(x[i], inverse);
        sum += number[i];
    }
    return sum;
}

/* For whole units: numbers behind k are zero. */
static void fill_sums(const int8_t *number, size_t k, int32_t *sums) {
    size_t count = (k + PANEL_UNIT - 1) / PANEL_UNIT * (PANEL_UNIT / SUM_BLOCK);
    for (size_t block = 0; block < count; block++) {
        sums[block] = 0;
        for (size_t i = 0; i < SUM_BLOCK; i++)
            sums[block] += number[block * SUM_BLOCK + i];
    }
}

static void quantise_a8(const float *x, const activation_view *out, uint32_t row) {
    int8_t *number = out->number + row * out->stride;
    float *scale = out->scale + row * out->scale_stride;
    float *sum = out->sum + row * out->scale_stride;
    memset(number, 0, out->stride);
    for (size_t begin = 0; begin < out->k; begin += PANEL_UNIT) {
        size_t count = size_min(out->k - begin, PANEL_UNIT), block = begin / PANEL_UNIT;
        float inverse;
        scale[block] = block_scale(x + begin, count, A8_MOST, &inverse);
        sum[block] =
            scale[block] * (float)quantise_block(x + begin, count, inverse, number + begin);
    }
    fill_sums(number, out->k, out->integer_sum + row * out->sum_stride);
}

static void quantise_a16(const float *x, const activation_view *out, uint32_t row) {
    int8_t *high = out->number + row * out->stride, *low = out->low + row * out->stride;
    float *scale = out->scale + row * out->scale_stride;
    memset(high, 0, out->stride);
    memset(low, 0, out->stride);
    for (size_t begin = 0; begin < out->k; begin += PANEL_UNIT) {
        size_t count = size_min(out->k - begin, PANEL_UNIT);
        float inverse;
        scale[begin / PANEL_UNIT] = block_scale(x + begin, count, A16_MOST, &inverse);
        for (size_t i = begin; i < begin + count; i++) {
            int32_t number = nearest(x[i], inverse);
            int32_t half = number < 0 ? -(A16_RADIX / 2) : A16_RADIX / 2;
            high[i] = (int8_t)((number + half) / A16_RADIX);
            low[i] = (int8_t)(number - A16_RADIX * high[i]);
        }
    }
}

static void quantise_a8r(const float *x, const activation_view *out, uint32_t row, float *rotated) {
    size_t padded = ((size_t)out->k + Q4R_SUB - 1) / Q4R_SUB * Q4R_SUB;
    int8_t *number = out->number + row * out->stride;
    memcpy(rotated, x, out->k * sizeof(float));
    memset(rotated + out->k, 0, (padded - out->k) * sizeof(float));
    quant_rotate(rotated, padded, 1);
    memset(number, 0, out->stride);
    for (size_t begin = 0; begin < padded; begin += A8R_BLOCK) {
        size_t count = size_min(padded - begin, A8R_BLOCK);
        float inverse;
        out->scale[row * out->scale_stride + begin / A8R_BLOCK] =
            block_scale(rotated + begin, count, A8_MOST, &inverse);
        quantise_block(rotated + begin, count, inverse, number + begin);
    }
    fill_sums(number, padded, out->integer_sum + row * out->sum_stride);
}

void plain_quantise(const float *x, const activation_view *out, uint32_t row, uint8_t *scratch) {
    switch (out->form) {
    case PRODUCT_FLOAT:
        memcpy(out->x + row * out->stride, x, out->k * sizeof(float));
        memset(out->x + row * out->stride + out->k, 0, (out->stride - out->k) * sizeof(float));
        return;
    case PRODUCT_A8:
        quantise_a8(x, out, row);
        return;
    case PRODUCT_A16:
        quantise_a16(x, out, row);
        return;
    case PRODUCT_A8R:
        quantise_a8r(x, out, row, (float *)(void *)scratch);
        return;
    case PRODUCT_FORMS:
        return;
    }
}
