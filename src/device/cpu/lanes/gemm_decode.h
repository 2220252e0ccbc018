/* Blocks of weights as floats for general products, in vectors of 16 rows: the types that models
 * are trained with. Every number has the bits of weight_decode_block, which decodes the others.
 * GEMM_RADIX: of how many vectors a pass of the rotation keeps in registers (4 or 16). */
#ifndef AVO_DEVICE_CPU_LANES_GEMM_DECODE_H
#define AVO_DEVICE_CPU_LANES_GEMM_DECODE_H

#include "device/cpu/lanes/gemm.h"
#include "quant/panels.h"

#include <string.h>

GEMM_INLINE ivec16 decode_line(const uint8_t *line) {
    return iv_load((const int32_t *)(const void *)line);
}

GEMM_INLINE vec16 decode_halves(const uint8_t *at) {
    return v_load_f16((const uint16_t *)(const void *)at);
}

/* ---- Lines ---- */

/* Lines of 16-bit floats: k even in the lower halves, k odd in the upper ones. */
GEMM_INLINE void decode_half_lines(const bool brain, const uint8_t *panel, size_t count,
                                   float *out) {
    for (size_t k = 0; k < count; k++, out += LANES) {
        ivec16 both = decode_line(panel + k / 2 * PANEL_LINE_BYTES);
        if (brain) {
            v_store(out, v_from_bits(k % 2 != 0 ? iv_and(both, iv_set((int32_t)0xffff0000u))
                                                : iv_shift_left(both, 16)));
        } else {
            uint16_t half[LANES];
            iv_store_halves(half, k % 2 != 0 ? iv_shift_right_zero(both, 16) : both);
            v_store(out, v_load_f16(half));
        }
    }
}

/* Four k of a line of signed bytes. */
GEMM_INLINE void decode_bytes(ivec16 line, vec16 scale, float *out) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        ivec16 number = iv_shift_right(iv_shift_left(line, 24 - 8 * i), 24);
        v_store(out + i * LANES, v_mul(scale, v_from_int(number)));
    }
}

/* Eight k of a line of nibbles: (nibble − zero) as floats. */
GEMM_INLINE void decode_nibbles(ivec16 line, const int zero, vec16 number[8]) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        ivec16 nibble = iv_and(iv_shift_right_zero(line, 8 * (i % 4) + 4 * (i / 4)), iv_set(15));
        number[i] = v_from_int(zero != 0 ? iv_sub(nibble, iv_set(zero)) : nibble);
    }
}

/* ---- Groups of 64 k: Q8_0 (Q8B), Q4_0, Q4_1 ---- */

typedef struct decode_shape {
    int head_bytes, unit_bytes; /* of a unit of 32 k */
    bool nibbles, minimum;
    int zero;
} decode_shape;

GEMM_INLINE void decode_unit(const decode_shape shape, const uint8_t *head, size_t unit,
                             float *out) {
    const uint8_t *lines = head + shape.head_bytes + unit * (size_t)shape.unit_bytes;
    vec16 scale = decode_halves(head + 32 * unit), minimum = v_zero();
    if (shape.minimum)
        minimum = decode_halves(head + 64 + 32 * unit);
    for (int n = 0; n < shape.unit_bytes / PANEL_LINE_BYTES; n++) {
        ivec16 line = decode_line(lines + n * PANEL_LINE_BYTES);
        if (!shape.nibbles) {
            decode_bytes(line, scale, out + 4 * n * LANES);
            continue;
        }
        vec16 number[8];
        decode_nibbles(line, shape.zero, number);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            vec16 value = v_mul(scale, number[i]);
            v_store(out + (8 * n + i) * LANES, shape.minimum ? v_add(value, minimum) : value);
        }
    }
}

/* `panel`: the group of the first k. */
GEMM_INLINE void decode_groups(const decode_shape shape, const uint8_t *panel, size_t count,
                               float *out) {
    float last[PANEL_UNIT * LANES];
    for (size_t k = 0; k < count; k += PANEL_UNIT) {
        const uint8_t *head = panel + k / 64 * (size_t)(shape.head_bytes + 2 * shape.unit_bytes);
        bool whole = count - k >= PANEL_UNIT;
        decode_unit(shape, head, k / PANEL_UNIT % 2, whole ? out + k * LANES : last);
        if (!whole)
            memcpy(out + k * LANES, last, (count - k) * LANES * sizeof(float));
    }
}

static void decode_q8_0(const uint8_t *panel, size_t begin, size_t count, float *out) {
    const decode_shape shape = {64, 512, false, false, 0};
    decode_groups(shape, panel + begin / 64 * 1088, count, out);
}

static void decode_q4_0(const uint8_t *panel, size_t begin, size_t count, float *out) {
    const decode_shape shape = {64, 256, true, false, 8};
    decode_groups(shape, panel + begin / 64 * 576, count, out);
}

static void decode_q4_1(const uint8_t *panel, size_t begin, size_t count, float *out) {
    const decode_shape shape = {128, 256, true, true, 0};
    decode_groups(shape, panel + begin / 64 * 640, count, out);
}

/* ---- Rotated types ---- */

/* Strides half … half · radix / 2 of a transform of `count` numbers, each a vector. */
GEMM_INLINE void rotate_pass(const int radix, float *x, size_t count, size_t half) {
    for (size_t i = 0; i < count; i += half * (size_t)radix)
        for (size_t j = i; j < i + half; j++) {
            vec16 v[16];
#pragma GCC unroll 16
            for (int n = 0; n < radix; n++)
                v[n] = v_load(x + (j + (size_t)n * half) * LANES);
#pragma GCC unroll 4
            for (int stride = 1; stride < radix; stride *= 2)
#pragma GCC unroll 16
                for (int n = 0; n < radix; n++)
                    if ((n & stride) == 0) {
                        vec16 a = v[n], b = v[n + stride];
                        v[n] = v_add(a, b);
                        v[n + stride] = v_sub(a, b);
                    }
#pragma GCC unroll 16
            for (int n = 0; n < radix; n++)
                v_store(x + (j + (size_t)n * half) * LANES, v[n]);
        }
}

/* quant_rotate of 16 rows. */
static void decode_rotate(float *x, size_t k) {
    while (k > 0) {
        size_t count = Q4R_SUPER, half = 1;
        while (count > k)
            count /= 2;
        for (; half * GEMM_RADIX <= count; half *= GEMM_RADIX)
            rotate_pass(GEMM_RADIX, x, count, half);
        for (; half < count; half *= 2)
            rotate_pass(2, x, count, half);
        vec16 scale = v_set(quant_rotate_scale(count));
        for (size_t i = 0; i < count; i++)
            v_store(x + i * LANES, v_mul(scale, v_load(x + i * LANES)));
        x += count * LANES;
        k -= count;
    }
}

/* `count` is a multiple of 16, `scales` the line behind the panel's bytes. */
static void decode_q8r(const uint8_t *lines, const uint8_t *scales, size_t count, float *out) {
    vec16 scale = v_load((const float *)(const void *)scales);
    for (size_t k = 0; k < count; k += 4)
        decode_bytes(decode_line(lines + k / 4 * PANEL_LINE_BYTES), scale, out + k * LANES);
    decode_rotate(out, count);
}

/* The multipliers of sub-block `sub` of a super-block. */
GEMM_INLINE vec16 decode_multiplier(const uint8_t *super, size_t sub) {
    const uint8_t *magnitude = super + PANEL_LINE_BYTES + sub / 2 * QUANT_PANEL_ROWS;
    uint16_t signs;
    int32_t number[LANES];
    memcpy(&signs, super + 32 + 2 * sub, sizeof(signs));
    for (int row = 0; row < LANES; row++) {
        int32_t negative = -(signs >> row & 1); /* all bits or none */
        number[row] = ((magnitude[row] >> (4 * (sub % 2)) & 15) ^ negative) - negative;
    }
    return v_from_int(iv_load(number));
}

/* One super-block, or the last `count` (a multiple of 16) of a panel. */
static void decode_q4r(const uint8_t *super, size_t count, float *out) {
    size_t subs = count / Q4R_SUB;
    const uint8_t *lines = super + PANEL_LINE_BYTES * (subs <= Q4R_SUBS / 2 ? 2 : 3);
    vec16 scale = decode_halves(super);
    for (size_t sub = 0; sub < subs; sub++, lines += 2 * PANEL_LINE_BYTES) {
        vec16 multiplier = decode_multiplier(super, sub);
#pragma GCC unroll 2
        for (int n = 0; n < 2; n++) {
            vec16 number[8];
            decode_nibbles(decode_line(lines + n * PANEL_LINE_BYTES), 8, number);
#pragma GCC unroll 8
            for (size_t i = 0; i < 8; i++)
                v_store(out + (sub * Q4R_SUB + 8 * (size_t)n + i) * LANES,
                        v_mul(scale, v_mul(multiplier, number[i])));
        }
    }
    decode_rotate(out, count);
}

/* ---- The entry ---- */

/* gemm_kernels.decode; `count` is at most GEMM_BLOCK_K. */
static void gemm_lanes_decode(const weight_view *weight, size_t panel, size_t begin, size_t count,
                              float *out) {
    uint64_t panel_bytes;
    if (weight->layout != QUANT_LAYOUT_PANELS ||
        !weight_panel_bytes(weight->type, weight->k, &panel_bytes)) {
        weight_decode_block(weight, panel, begin, count, out);
        return;
    }
    const uint8_t *data = weight->data + panel * panel_bytes;
    bool whole = count % Q4R_SUB == 0 && (count == Q4R_SUPER || begin + count == weight->k);
    switch ((int)weight->type) {
    case QUANT_F32:
        memcpy(out, data + begin * PANEL_LINE_BYTES, count * PANEL_LINE_BYTES);
        return;
    case QUANT_F16:
        decode_half_lines(false, data + begin / 2 * PANEL_LINE_BYTES, count, out);
        return;
    case QUANT_BF16:
        decode_half_lines(true, data + begin / 2 * PANEL_LINE_BYTES, count, out);
        return;
    case QUANT_Q8_0:
    case QUANT_Q8B:
        decode_q8_0(data, begin, count, out);
        return;
    case QUANT_Q4_0:
        decode_q4_0(data, begin, count, out);
        return;
    case QUANT_Q4_1:
        decode_q4_1(data, begin, count, out);
        return;
    case QUANT_Q8R:
        if (!whole)
            break;
        decode_q8r(data + begin / 4 * PANEL_LINE_BYTES, data + panel_bytes - PANEL_LINE_BYTES,
                   count, out);
        return;
    case QUANT_Q4R:
        if (!whole)
            break;
        decode_q4r(data + begin / Q4R_SUPER * (3 * PANEL_LINE_BYTES + Q4R_SUPER * 8), count, out);
        return;
    default:
        break;
    }
    weight_decode_block(weight, panel, begin, count, out);
}

#endif
