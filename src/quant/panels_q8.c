/* PANELS of int8: Q8C with an f32 scale per row, Q8B with an f16 scale per row and 32 k. */
#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"

#include <math.h>

#define Q8_MAX         127.0f
#define HALF_MAX       65504.0f
#define ROUND_MAGIC    12582912.0f /* 1.5 · 2^23: adding it rounds to an integer, ties to even */
#define Q8B_BLOCK_LINE (Q8B_BLOCK / 4)

bool panels_q8_bytes(quant_type type, uint64_t k, uint64_t *bytes) {
    if (type == QUANT_Q8C) {
        *bytes = ((k + 3) / 4 + 1) * PANEL_LINE_BYTES;
        return true;
    }
    uint64_t blocks = (k + Q8B_BLOCK - 1) / Q8B_BLOCK;
    *bytes = (blocks * Q8B_BLOCK_LINE + (blocks + 1) / 2) * PANEL_LINE_BYTES;
    return true;
}

/* Where block `block` of a Q8B panel has its lines and its 16 scales. */
static size_t q8b_lines_at(size_t block) {
    return (block * Q8B_BLOCK_LINE + block / 2 + 1) * PANEL_LINE_BYTES;
}

static size_t q8b_scales_at(size_t block) {
    return block / 2 * (2 * Q8B_BLOCK_LINE + 1) * PANEL_LINE_BYTES + block % 2 * 32;
}

/* One line: four k of 16 rows. The value is q · scale in one rounding. */
static inline void decode_line(const uint8_t *line, const float *scale, float *out) {
    uint32_t words[QUANT_PANEL_ROWS];
    memcpy(words, line, sizeof(words));
    for (unsigned i = 0; i < 4; i++)
        for (unsigned row = 0; row < QUANT_PANEL_ROWS; row++) {
            int32_t q = (int32_t)(words[row] << (24 - 8 * i)) >> 24;
            out[i * QUANT_PANEL_ROWS + row] = scale[row] * (float)q;
        }
}

static void decode_lines(const uint8_t *lines, const float *scale, size_t k, float *out) {
    size_t i = 0;
    for (; i + 4 <= k; i += 4)
        decode_line(lines + i * 16, scale, out + i * QUANT_PANEL_ROWS);
    if (i < k) {
        float whole[4 * QUANT_PANEL_ROWS];
        decode_line(lines + i * 16, scale, whole);
        memcpy(out + i * QUANT_PANEL_ROWS, whole, (k - i) * QUANT_PANEL_ROWS * sizeof(float));
    }
}

void panels_q8_decode(quant_type type, const uint8_t *panel, size_t k, float *out) {
    float scale[QUANT_PANEL_ROWS];
    if (type == QUANT_Q8C) {
        memcpy(scale, panel + (k + 3) / 4 * PANEL_LINE_BYTES, sizeof(scale));
        decode_lines(panel, scale, k, out);
        return;
    }
    for (size_t begin = 0; begin < k; begin += Q8B_BLOCK) {
        size_t block = begin / Q8B_BLOCK;
        decode_f16(panel + q8b_scales_at(block), QUANT_PANEL_ROWS, scale);
        decode_lines(panel + q8b_lines_at(block), scale, size_min(k - begin, Q8B_BLOCK),
                     out + begin * QUANT_PANEL_ROWS);
    }
}

static void decode_lane(const uint8_t *lines, float scale, size_t k, size_t lane, float *out) {
    for (size_t i = 0; i < k; i++)
        out[i] = scale * (float)(int8_t)lines[i / 4 * PANEL_LINE_BYTES + 4 * lane + i % 4];
}

void panels_q8_decode_row(quant_type type, const uint8_t *panel, size_t k, size_t lane,
                          float *out) {
    if (type == QUANT_Q8C) {
        const uint8_t *scale = panel + (k + 3) / 4 * PANEL_LINE_BYTES + 4 * lane;
        decode_lane(panel, float_from_bits(load_u32(scale)), k, lane, out);
        return;
    }
    for (size_t begin = 0; begin < k; begin += Q8B_BLOCK) {
        size_t block = begin / Q8B_BLOCK;
        decode_lane(panel + q8b_lines_at(block), load_half(panel + q8b_scales_at(block) + 2 * lane),
                    size_min(k - begin, Q8B_BLOCK), lane, out + begin);
    }
}

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

static void encode_run(const float *source, size_t count, float scale, size_t row, uint8_t *lines) {
    for (size_t i = 0; i < count; i++)
        lines[i / 4 * PANEL_LINE_BYTES + 4 * row + i % 4] =
            (uint8_t)(int8_t)nearest_q8(source[i], scale);
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

void panels_q8_encode(quant_type type, const float *source, size_t rows, size_t k, uint8_t *out) {
    uint64_t bytes = 0;
    (void)panels_q8_bytes(type, k, &bytes);
    memset(out, 0, (size_t)bytes);
    for (size_t row = 0; row < rows; row++) {
        const float *from = source + row * k;
        if (type == QUANT_Q8C) {
            float scale = largest_magnitude(from, k) / Q8_MAX;
            encode_run(from, k, scale, row, out);
            memcpy(out + (k + 3) / 4 * PANEL_LINE_BYTES + 4 * row, &scale, sizeof(scale));
            continue;
        }
        for (size_t begin = 0; begin < k; begin += Q8B_BLOCK) {
            size_t block = begin / Q8B_BLOCK;
            size_t count = size_min(k - begin, Q8B_BLOCK);
            uint16_t half = q8b_scale(from + begin, count);
            memcpy(out + q8b_scales_at(block) + 2 * row, &half, sizeof(half));
            encode_run(from + begin, count, half_to_float(half), row, out + q8b_lines_at(block));
        }
    }
}

void encode_q8_0_block(const float *source, uint8_t *out) {
    uint16_t half = q8b_scale(source, Q8B_BLOCK);
    memcpy(out, &half, sizeof(half));
    for (size_t i = 0; i < Q8B_BLOCK; i++)
        out[2 + i] = (uint8_t)(int8_t)nearest_q8(source[i], half_to_float(half));
}
