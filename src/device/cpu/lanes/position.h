/* What happens to q, k and v on their way into attention, in 16 lanes: rotation by position,
 * Hadamard rotation, the write into tiles. Included by files of an ISA folder, behind its vec16.h.
 * kv_tile.c and plain/attention.c have the same arithmetic for one number at a time. */
#ifndef AVO_DEVICE_CPU_LANES_POSITION_H
#define AVO_DEVICE_CPU_LANES_POSITION_H

#ifndef LANES
#error "include the folder's vec16.h first"
#endif

#include "device/cpu/ops.h"

#include <math.h>
#include <string.h>

/* ---- Rotation by position ---- */

static inline void lanes_rotate_apart(uint32_t pairs, const float *cosine, const float *sine,
                                      float *a, float *b) {
    for (uint32_t i = 0; i < pairs; i += LANES) {
        size_t count = pairs - i < LANES ? pairs - i : LANES;
        vec16 c = v_load_part(cosine + i, count);
        vec16 s = v_load_part(sine + i, count);
        vec16 x = v_load_part(a + i, count);
        vec16 y = v_load_part(b + i, count);
        v_store_part(a + i, v_fnma(y, s, v_mul(x, c)), count);
        v_store_part(b + i, v_fma(x, s, v_mul(y, c)), count);
    }
}

/* Pairs that lie side by side; less than a vector of them. */
static inline void lanes_rotate_rest(uint32_t pairs, const float *cosine, const float *sine,
                                     float *head) {
    float a[LANES];
    float b[LANES];
    for (uint32_t i = 0; i < pairs; i++) {
        a[i] = head[2 * i];
        b[i] = head[2 * i + 1];
    }
    lanes_rotate_apart(pairs, cosine, sine, a, b);
    for (uint32_t i = 0; i < pairs; i++) {
        head[2 * i] = a[i];
        head[2 * i + 1] = b[i];
    }
}

static void lanes_rotate(const rotary_table *table, const float *cosine, const float *sine,
                         float *head) {
    uint32_t pairs = table->pairs;
    if (!table->interleaved) {
        lanes_rotate_apart(pairs, cosine, sine, head, head + pairs);
        return;
    }
    uint32_t i = 0;
    for (; i + LANES <= pairs; i += LANES) {
        float *at = head + 2 * (size_t)i;
        vec16 c = v_load(cosine + i), s = v_load(sine + i), x, y, first, second;
        v_pairs_split(v_load(at), v_load(at + LANES), &x, &y);
        v_pairs_join(v_fnma(y, s, v_mul(x, c)), v_fma(x, s, v_mul(y, c)), &first, &second);
        v_store(at, first);
        v_store(at + LANES, second);
    }
    if (i < pairs)
        lanes_rotate_rest(pairs - i, cosine + i, sine + i, head + 2 * (size_t)i);
}

/* ---- Hadamard ---- */

/* a + b in lanes whose bit is clear, b − a (both as their partner sees them) where it is set. */
static inline vec16 lanes_butterfly(vec16 x, vec16 flipped, const float *sign) {
    return v_fma(x, v_load(sign), flipped);
}

/* Distances 1, 2, 4 and 8, inside one vector. */
static inline vec16 lanes_rotate_inside(vec16 x) {
    static const float signs[4][LANES] = {
        {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
        {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
        {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
        {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
    };
    x = lanes_butterfly(x, v_flip_1(x), signs[0]);
    x = lanes_butterfly(x, v_flip_2(x), signs[1]);
    x = lanes_butterfly(x, v_flip_4(x), signs[2]);
    return lanes_butterfly(x, v_flip_8(x), signs[3]);
}

static void lanes_rotate_block(float *x, uint32_t count) {
    vec16 scale = v_set(kv_rotate_scale(count));
    if (count == LANES) {
        v_store(x, v_mul(lanes_rotate_inside(v_load(x)), scale));
        return;
    }
    for (uint32_t i = 0; i < count; i += LANES)
        v_store(x + i, lanes_rotate_inside(v_load(x + i)));
    for (uint32_t half = LANES; half < count; half *= 2) {
        bool last = 2 * half == count;
        for (uint32_t i = 0; i < count; i += 2 * half)
            for (uint32_t j = i; j < i + half; j += LANES) {
                vec16 a = v_load(x + j);
                vec16 b = v_load(x + j + half);
                vec16 sum = v_add(a, b);
                vec16 difference = v_sub(a, b);
                v_store(x + j, last ? v_mul(sum, scale) : sum);
                v_store(x + j + half, last ? v_mul(difference, scale) : difference);
            }
    }
}

static void lanes_kv_rotate(float *x, uint32_t size) {
    uint32_t at = 0;
    while (size - at >= LANES) {
        uint32_t count = kv_rotate_block(size - at);
        lanes_rotate_block(x + at, count);
        at += count;
    }
    kv_rotate(x + at, size - at);
}

/* ---- Numbers ---- */

/* As scale_of in kv_tile.c: what numbers are multiplied with, and what brings them back. */
static inline float lanes_scale_of(const float *x, uint32_t count, float limit, float *scale) {
    ivec16 magnitude = iv_set(0x7fffffff);
    ivec16 most = iv_set(0);
    for (uint32_t i = 0; i < count; i += LANES) {
        size_t part = count - i < LANES ? count - i : LANES;
        most = iv_max_unsigned(most, iv_and(v_bits(v_load_part(x + i, part)), magnitude));
    }
    uint32_t bits = iv_largest_unsigned(most);
    float largest;
    memcpy(&largest, &bits, sizeof(largest));
    if (largest < 1e-30f) {
        *scale = 0.0f;
        return 0.0f;
    }
    *scale = largest / limit;
    return limit / largest;
}

/* As kv_int8_encode; `out` has room for whole vectors and ends in zeros. */
static inline void lanes_int8_encode(const float *x, uint32_t count, uint8_t *out, float *scale) {
    vec16 factor = v_set(lanes_scale_of(x, count, KV_INT8_LIMIT, scale));
    for (uint32_t i = 0; i < count; i += LANES) {
        size_t part = count - i < LANES ? count - i : LANES;
        vec16 y = v_mul(v_load_part(x + i, part), factor);
        y = v_select(v_is_nan(y), v_zero(), y);
        iv_store_bytes(out + i, v_to_int(y));
    }
}

/* As kv_fp8_encode, in the last byte of every lane. */
static inline ivec16 lanes_fp8(vec16 x) {
    vec16 magnitude = v_min(v_abs(x), v_set(KV_FP8_LIMIT));
    ivec16 sign = iv_and(iv_shift_right_zero(v_bits(x), 24), iv_set(0x80));
    ivec16 small = iv_and(v_bits(v_add(magnitude, v_set(0x1p14f))), iv_set(0xf));
    ivec16 bits = v_bits(magnitude);
    ivec16 odd = iv_and(iv_shift_right_zero(bits, 20), iv_set(1));
    ivec16 rounded = iv_add(iv_add(bits, iv_set(0x7ffff)), odd);
    ivec16 code = iv_sub(iv_shift_right_zero(rounded, 20), iv_set(120 << 3));
    return iv_or(sign, iv_select(v_less(magnitude, v_set(0x1p-6f)), small, code));
}

/* As fp8_error in kv_tile.c. */
static inline float lanes_fp8_error(const float *x, uint32_t count, float factor) {
    vec16 sum = v_zero();
    for (uint32_t i = 0; i < count; i += LANES) {
        size_t part = count - i < LANES ? count - i : LANES;
        vec16 y = v_abs(v_mul(v_load_part(x + i, part), v_set(factor)));
        y = v_min(y, v_set(KV_FP8_LIMIT));
        ivec16 bits = v_bits(y);
        ivec16 odd = iv_and(iv_shift_right_zero(bits, 20), iv_set(1));
        ivec16 rounded = iv_add(iv_add(bits, iv_set(0x7ffff)), odd);
        vec16 large = v_from_bits(iv_and(rounded, iv_set((int32_t)0xfff00000u)));
        vec16 small = v_sub(v_add(y, v_set(0x1p14f)), v_set(0x1p14f));
        vec16 number = v_select(v_less(y, v_set(0x1p-6f)), small, large);
        vec16 difference = v_sub(y, number);
        sum = v_fma(difference, difference, sum);
    }
    return v_sum(sum);
}

/* As fp8_scale_of there. */
static inline float lanes_fp8_scale_of(const float *x, uint32_t count, float *scale) {
    float first = lanes_scale_of(x, count, KV_FP8_LIMIT, scale);
    if (first == 0.0f)
        return first;
    float least = lanes_fp8_error(x, count, first);
    uint32_t best = 0;
    for (uint32_t j = 1; j < KV_FP8_SCALES; j++) {
        float error = lanes_fp8_error(x, count, first * kv_fp8_down[j]);
        error = error * (kv_fp8_up[j] * kv_fp8_up[j]);
        if (error < least) {
            least = error;
            best = j;
        }
    }
    *scale *= kv_fp8_up[best];
    return first * kv_fp8_down[best];
}

/* As quant_f32_to_bf16, in the last two bytes of every lane. */
static inline ivec16 lanes_bf16(vec16 x) {
    ivec16 bits = v_bits(x);
    ivec16 odd = iv_and(iv_shift_right_zero(bits, 16), iv_set(1));
    ivec16 rounded = iv_shift_right_zero(iv_add(iv_add(bits, iv_set(0x7fff)), odd), 16);
    ivec16 quiet = iv_or(iv_shift_right_zero(bits, 16), iv_set(0x40));
    return iv_select(v_is_nan(x), quiet, rounded);
}

static inline void lanes_encode(kv_type type, const float *x, uint32_t count, float factor,
                                uint8_t *out) {
    for (uint32_t i = 0; i < count; i += LANES) {
        size_t part = count - i < LANES ? count - i : LANES;
        vec16 y = v_load_part(x + i, part);
        if (type == KV_F16) {
            y = v_max(v_set(-KV_F16_LIMIT), v_min(v_set(KV_F16_LIMIT), y));
            v_store_f16((uint16_t *)(void *)out + i, y);
        } else if (type == KV_BF16) {
            iv_store_halves((uint16_t *)(void *)out + i, lanes_bf16(y));
        } else {
            iv_store_bytes(out + i, lanes_fp8(v_mul(y, v_set(factor))));
        }
    }
}

/* ---- The write ---- */

static void lanes_write_int8(uint32_t size, uint8_t *head, uint32_t slot, const float *key,
                             const float *value) {
    _Alignas(64) uint8_t bytes[KV_HEAD_SIZE_MAX];
    lanes_int8_encode(key, size, bytes, kv_key_scales(KV_INT8, size, head) + slot);
    for (uint32_t d = 0; d < size; d += 4)
        memcpy(head + kv_key_place(KV_INT8, d, slot), bytes + d, 4);
    lanes_int8_encode(value, size, bytes, kv_value_scales(KV_INT8, size, head) + slot);
    uint8_t *tile = head + kv_value_offset(KV_INT8, size) + kv_value_place(KV_INT8, size, 0, slot);
    for (uint32_t d = 0; d < size; d++)
        tile[d * 4] = bytes[d];
}

static void lanes_kv_write(kv_type type, uint32_t size, uint8_t *head, uint32_t slot,
                           const float *key, const float *value) {
    if (type == KV_F32) {
        kv_tile_write(type, size, head, slot, key, value);
        return;
    }
    if (type == KV_INT8) {
        lanes_write_int8(size, head, slot, key, value);
        return;
    }
    _Alignas(64) uint16_t numbers[KV_HEAD_SIZE_MAX];
    uint8_t *tile = head + kv_value_offset(type, size);
    float key_factor = 1.0f;
    float value_factor = 1.0f;
    if (type == KV_FP8) {
        key_factor = lanes_fp8_scale_of(key, size, kv_key_scales(type, size, head) + slot);
        value_factor = lanes_fp8_scale_of(value, size, kv_value_scales(type, size, head) + slot);
    }
    lanes_encode(type, key, size, key_factor, (uint8_t *)numbers);
    if (type == KV_FP8) {
        for (uint32_t d = 0; d < size; d++)
            head[(size_t)d * KV_PAGE_TOKENS + slot] = ((const uint8_t *)numbers)[d];
    } else {
        uint16_t *halves = (uint16_t *)(void *)head + slot;
        for (uint32_t d = 0; d < size; d++)
            halves[(size_t)d * KV_PAGE_TOKENS] = numbers[d];
    }
    lanes_encode(type, value, size, value_factor, (uint8_t *)numbers);
    memcpy(tile + slot * kv_value_stride(size) * kv_element_bytes(type), numbers,
           size * kv_element_bytes(type));
}

#endif
