/* Encode to int8: panels of Q8C and Q8R with an f32 scale per row, rows of Q8_0 with an f16 scale
 * per 32 k.
 */
#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"

#include <math.h>

#define Q8_MAX      127.0f
#define HALF_MAX    65504.0f
#define ROUND_MAGIC 12582912.0f /* 1.5 · 2^23: adding it rounds to an integer, ties to even */

static float largest_magnitude(const float *source, size_t count) {
    float largest = 0.0f;
    for (size_t i = 0; i < count; i++)
        largest = fabsf(source[i]) > largest ? fabsf(source[i]) : largest;
    return largest;
}

static inline float nearest_q8(float number, float scale) {
    if (scale == 0.0f)
        return 0.0f;
    float quotient = number / scale; /* not by the inverse, which a subnormal scale has not */
    quotient = quotient > Q8_MAX ? Q8_MAX : quotient < -Q8_MAX ? -Q8_MAX : quotient;
    return quotient + ROUND_MAGIC - ROUND_MAGIC;
}

static double squared_error(const float *source, size_t count, float scale) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = (double)source[i] - (double)scale * nearest_q8(source[i], scale);
        sum += difference * difference;
    }
    return sum;
}

/* The f16 scale of a block: of the neighbours of largest / 127, the one with the smaller error (the
 * lower one clips, the upper one is coarser). */
static uint16_t q8b_scale(const float *source, size_t count) {
    float wanted = largest_magnitude(source, count) / Q8_MAX;
    uint16_t nearest = quant_f32_to_f16(wanted > HALF_MAX ? HALF_MAX : wanted);
    uint16_t other = half_to_float(nearest) < wanted ? (uint16_t)(nearest + 1)
                     : nearest > 0                   ? (uint16_t)(nearest - 1)
                                                     : nearest;
    if (half_to_float(other) > HALF_MAX)
        return nearest;
    return squared_error(source, count, half_to_float(other)) <
                   squared_error(source, count, half_to_float(nearest))
               ? other
               : nearest;
}

void panels_q8c_encode(const float *source, size_t rows, size_t k, uint8_t *out) {
    panels_clear(QUANT_Q8C, k, out);
    for (size_t row = 0; row < rows; row++) {
        const float *from = source + row * k;
        float scale = largest_magnitude(from, k) / Q8_MAX;
        for (size_t i = 0; i < k; i++)
            out[i / 4 * PANEL_LINE_BYTES + 4 * row + i % 4] =
                (uint8_t)(int8_t)nearest_q8(from[i], scale);
        memcpy(out + (k + 3) / 4 * PANEL_LINE_BYTES + 4 * row, &scale, sizeof(scale));
    }
}

/* Of 256 k, all rows side by side as they lie in a line; the rest of the panel's rows and the
 * padding of k are zero. */
static void rotate_rows(const float *source, size_t rows, size_t k, size_t begin, size_t count,
                        float *whole) {
    memset(whole, 0, count * QUANT_PANEL_ROWS * sizeof(float));
    size_t there = size_min(k - begin, count);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < there; i++)
            whole[i * QUANT_PANEL_ROWS + row] = source[row * k + begin + i];
    quant_rotate(whole, count, QUANT_PANEL_ROWS);
}

/* Twice over the matrix: the scale is of the rotated row, and there is no room to keep it. */
void panels_q8r_encode(const float *source, size_t rows, size_t k, uint8_t *out) {
    size_t padded = (k + Q4R_SUB - 1) / Q4R_SUB * Q4R_SUB;
    float whole[Q4R_SUPER * QUANT_PANEL_ROWS], scale[QUANT_PANEL_ROWS] = {0};
    for (size_t begin = 0; begin < padded; begin += Q4R_SUPER) {
        size_t count = size_min(padded - begin, Q4R_SUPER);
        rotate_rows(source, rows, k, begin, count, whole);
        for (size_t i = 0; i < count * QUANT_PANEL_ROWS; i++) {
            float *most = &scale[i % QUANT_PANEL_ROWS];
            *most = fabsf(whole[i]) > *most ? fabsf(whole[i]) : *most;
        }
    }
    for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
        scale[row] /= Q8_MAX;
    for (size_t begin = 0; begin < padded; begin += Q4R_SUPER) {
        size_t count = size_min(padded - begin, Q4R_SUPER);
        rotate_rows(source, rows, k, begin, count, whole);
        for (size_t i = 0; i < count; i++) {
            uint8_t *line = out + (begin + i) / 4 * PANEL_LINE_BYTES + i % 4;
            for (size_t row = 0; row < QUANT_PANEL_ROWS; row++)
                line[4 * row] =
                    (uint8_t)(int8_t)nearest_q8(whole[i * QUANT_PANEL_ROWS + row], scale[row]);
        }
    }
    memcpy(out + padded / 4 * PANEL_LINE_BYTES, scale, sizeof(scale));
}

void encode_q8_0_block(const float *source, uint8_t *out) {
    uint16_t half = q8b_scale(source, Q8B_BLOCK);
    memcpy(out, &half, sizeof(half));
    for (size_t i = 0; i < Q8B_BLOCK; i++)
        out[2 + i] = (uint8_t)(int8_t)nearest_q8(source[i], half_to_float(half));
}
