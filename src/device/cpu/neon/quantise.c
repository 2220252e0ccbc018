/* Activations into the forms of activation.h, 16 numbers at a time; plain/quantise.c is the same in
 * plain C. A block is 32 k, of A8R 256. Not timed yet. */
#include "device/cpu/neon/vec16.h"

#include "base/checked.h"
#include "device/cpu/neon/neon_int.h"

#define BLOCK    PANEL_UNIT
#define A8_MOST  127.0f
#define A16_MOST 32512.0f

/* Of |x|, by the bits: an infinity is larger than any number, a NaN larger than that. */
static float largest_of(const float *x, size_t count) {
    ivec16 most = iv_set(0);
    for (size_t i = 0; i < count; i += LANES)
        most = iv_max_unsigned(most, v_bits(v_abs(v_load_part(x + i, size_min(count - i, LANES)))));
    uint32_t bits = iv_largest_unsigned(most);
    float largest;
    memcpy(&largest, &bits, sizeof(largest));
    return largest;
}

/* A NaN is not below anything, and so has a factor. */
static float factor_of(float largest, float most) {
    return largest < ACTIVATION_TINY ? 0.0f : most / largest;
}

static float scale_of(float largest, float most) {
    return largest < ACTIVATION_TINY ? 0.0f : largest / most;
}

/* 16 numbers; what is no number at all becomes 0, and the scale shows it. */
static ivec16 nearest(const float *x, size_t count, float factor) {
    return v_to_int(v_mul(v_load_part(x, size_min(count, LANES)), v_set(factor)));
}

/* `count` k, in whole blocks of 32; the sums of 16. */
static void write_bytes(const float *x, size_t count, float factor, int8_t *number, int32_t *sum) {
    size_t padded = (count + BLOCK - 1) / BLOCK * BLOCK;
    for (size_t i = 0; i < padded; i += LANES) {
        ivec16 n = i < count ? nearest(x + i, count - i, factor) : iv_set(0);
        iv_store_bytes((uint8_t *)number + i, n);
        sum[i / LANES] = iv_sum(n);
    }
}

static void quantise_a8(const float *x, const activation_view *out, size_t row) {
    int8_t *number = out->number + row * out->stride;
    float *scale = out->scale + row * out->scale_stride;
    float *sum = out->sum + row * out->scale_stride;
    int32_t *integer_sum = out->integer_sum + row * out->sum_stride;
    for (size_t i = 0; i < out->k; i += BLOCK, integer_sum += 2) {
        size_t count = size_min(out->k - i, BLOCK);
        float largest = largest_of(x + i, count);
        write_bytes(x + i, count, factor_of(largest, A8_MOST), number + i, integer_sum);
        scale[i / BLOCK] = scale_of(largest, A8_MOST);
        sum[i / BLOCK] = scale[i / BLOCK] * (float)(integer_sum[0] + integer_sum[1]);
    }
}

/* high = n / 255 to the nearest: 255 is odd, so there are no ties, and the nearest tie is so far
 * that the rounding of the product does not matter. */
static void quantise_a16(const float *x, const activation_view *out, size_t row) {
    uint8_t *high = (uint8_t *)out->number + row * out->stride;
    uint8_t *low = (uint8_t *)out->low + row * out->stride;
    float *scale = out->scale + row * out->scale_stride;
    for (size_t begin = 0; begin < out->k; begin += BLOCK) {
        size_t count = size_min(out->k - begin, BLOCK);
        float largest = largest_of(x + begin, count);
        float factor = factor_of(largest, A16_MOST);
        for (size_t i = begin; i < begin + count; i += LANES) {
            ivec16 n = nearest(x + i, begin + count - i, factor);
            ivec16 h = v_to_int(v_mul(v_from_int(n), v_set(1.0f / 255.0f)));
            iv_store_bytes(high + i, h);
            iv_store_bytes(low + i, iv_sub(n, iv_sub(iv_shift_left(h, 8), h)));
        }
        scale[begin / BLOCK] = scale_of(largest, A16_MOST);
    }
}

static void quantise_a8r(const float *x, const activation_view *out, size_t row, float *rotated) {
    int8_t *number = out->number + row * out->stride;
    int32_t *integer_sum = out->integer_sum + row * out->sum_stride;
    float *scale = out->scale + row * out->scale_stride;
    for (size_t begin = 0; begin < out->k; begin += Q4R_SUPER, scale++) {
        size_t count = size_min(out->k - begin, Q4R_SUPER);
        size_t padded = (count + Q4R_SUB - 1) / Q4R_SUB * Q4R_SUB;
        memcpy(rotated, x + begin, count * sizeof(float));
        memset(rotated + count, 0, (padded - count) * sizeof(float));
        neon_rotate(rotated, (uint32_t)padded);
        float largest = largest_of(rotated, padded);
        write_bytes(rotated, padded, factor_of(largest, A8_MOST), number + begin,
                    integer_sum + begin / Q4R_SUB);
        *scale = scale_of(largest, A8_MOST);
    }
}

void neon_quantise(const float *x, const activation_view *out, uint32_t row, uint8_t *scratch) {
    size_t k = out->k, written = (k + LANES - 1) / LANES * LANES;
    switch (out->form) {
    case PRODUCT_FLOAT:
        memcpy(out->x + row * out->stride, x, k * sizeof(float));
        memset(out->x + row * out->stride + k, 0, (out->stride - k) * sizeof(float));
        return;
    case PRODUCT_A8:
        quantise_a8(x, out, row);
        break;
    case PRODUCT_A16:
        quantise_a16(x, out, row);
        memset(out->low + row * out->stride + written, 0, out->stride - written);
        break;
    default:
        quantise_a8r(x, out, row, (float *)(void *)scratch);
    }
    memset(out->number + row * out->stride + written, 0, out->stride - written);
}
