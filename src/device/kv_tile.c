/* K and V into and out of tiles, number by number: the form that the fast writers are compared
 * with, and what the reference computes on. */
#include "device/kv_tile.h"

#include "base/mathf.h"
#include "quant/quant.h"

#include <math.h>

#define KV_TINY 1e-30f

static const char *const type_names[KV_TYPE_COUNT] = {"f32", "f16", "bf16", "int8", "fp8"};

const char *kv_type_name(kv_type type) {
    return (unsigned)type < KV_TYPE_COUNT ? type_names[type] : "?";
}

kv_type kv_type_named(const char *name) {
    int type = 0;
    while (type < KV_TYPE_COUNT && strcmp(name, type_names[type]) != 0)
        type++;
    return (kv_type)type;
}

/* ---- Rotation ---- */

float kv_rotate_scale(uint32_t block) {
    /* 1 / √2 to the n-th, as floats */
    static const float scales[] = {1.0f,    0.70710678118654752f, 0.5f,    0.35355339059327376f,
                                   0.25f,   0.17677669529663688f, 0.125f,  0.08838834764831845f,
                                   0.0625f, 0.04419417382415922f, 0.03125f};
    unsigned power = block > 1 ? 31u - (unsigned)__builtin_clz(block) : 0u;
    return power < sizeof(scales) / sizeof(scales[0]) ? scales[power]
                                                      : (float)(1.0 / sqrt((double)block));
}

static void rotate_block(float *x, uint32_t count) {
    for (uint32_t half = 1; half < count; half *= 2)
        for (uint32_t i = 0; i < count; i += 2 * half)
            for (uint32_t j = i; j < i + half; j++) {
                float a = x[j];
                float b = x[j + half];
                x[j] = a + b;
                x[j + half] = a - b;
            }
    float scale = kv_rotate_scale(count);
    for (uint32_t i = 0; i < count; i++)
        x[i] *= scale;
}

void kv_rotate(float *x, uint32_t size) {
    for (uint32_t at = 0; at < size;) {
        uint32_t count = kv_rotate_block(size - at);
        rotate_block(x + at, count);
        at += count;
    }
}

/* ---- Numbers ---- */

uint8_t kv_fp8_encode(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t sign = bits >> 24 & 0x80u;
    float magnitude = fabsf(x);
    if (!(magnitude < KV_FP8_LIMIT))
        magnitude = KV_FP8_LIMIT;
    memcpy(&bits, &magnitude, sizeof(bits));
    if (magnitude < 0x1p-6f) { /* subnormal: multiples of 2^-9; the sum's last bits count them */
        float sum = magnitude + 0x1p14f;
        uint32_t count;
        memcpy(&count, &sum, sizeof(count));
        return (uint8_t)(sign | (count & 0xfu));
    }
    bits += 0x7ffffu + (bits >> 20 & 1u); /* three bits of fraction stay */
    return (uint8_t)(sign | ((bits >> 20) - (120u << 3)));
}

static uint16_t f16_encode(float x) {
    x = x > KV_F16_LIMIT ? KV_F16_LIMIT : x;
    x = x < -KV_F16_LIMIT ? -KV_F16_LIMIT : x;
    return quant_f32_to_f16(x);
}

/* The largest magnitude, compared as bits so that NaN wins. */
static float largest_of(const float *x, uint32_t count) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof(bits));
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    float number;
    memcpy(&number, &largest, sizeof(number));
    return number;
}

/* What numbers are multiplied with; *scale is what brings them back. */
static float scale_of(const float *x, uint32_t count, float limit, float *scale) {
    float largest = largest_of(x, count);
    if (largest < KV_TINY) {
        *scale = 0.0f;
        return 0.0f;
    }
    *scale = largest / limit;
    return limit / largest;
}

const float kv_fp8_up[KV_FP8_SCALES] = {1.000000000f, 1.044273782f, 1.090507733f, 1.138788635f,
                                        1.189207115f, 1.241857812f, 1.296839555f, 1.354255547f,
                                        1.414213562f, 1.476826146f, 1.542210825f, 1.610490332f,
                                        1.681792831f, 1.756252160f, 1.834008086f, 1.915206561f};
const float kv_fp8_down[KV_FP8_SCALES] = {1.000000000f, 0.957603281f, 0.917004043f, 0.878126080f,
                                          0.840896415f, 0.805245166f, 0.771105413f, 0.738413073f,
                                          0.707106781f, 0.677127773f, 0.648419777f, 0.620928906f,
                                          0.594603558f, 0.569394317f, 0.545253866f, 0.522136891f};

/* Σ of squared differences between x · factor and its numbers. */
static float fp8_error(const float *x, uint32_t count, float factor) {
    float lane[16] = {0};
    for (uint32_t i = 0; i < count; i++) {
        float y = fabsf(x[i] * factor);
        y = y < KV_FP8_LIMIT ? y : KV_FP8_LIMIT;
        float difference = y - quant_f8_e4m3_to_f32(kv_fp8_encode(y));
        lane[i % 16] = fmaf(difference, difference, lane[i % 16]);
    }
    return math_sum16(lane);
}

/* As scale_of, the best of several. */
static float fp8_scale_of(const float *x, uint32_t count, float *scale) {
    float first = scale_of(x, count, KV_FP8_LIMIT, scale);
    if (first == 0.0f)
        return first;
    float least = fp8_error(x, count, first);
    uint32_t best = 0;
    for (uint32_t j = 1; j < KV_FP8_SCALES; j++) {
        float error = fp8_error(x, count, first * kv_fp8_down[j]);
        error = error * (kv_fp8_up[j] * kv_fp8_up[j]);
        if (error < least) {
            least = error;
            best = j;
        }
    }
    *scale *= kv_fp8_up[best];
    return first * kv_fp8_down[best];
}

/* NaN, which has made the scale NaN already, as 0. */
static int8_t int8_of(float x) {
    return x == x ? (int8_t)lrintf(x) : 0;
}

void kv_int8_encode(const float *x, uint32_t count, int8_t *out, float *scale) {
    float factor = scale_of(x, count, KV_INT8_LIMIT, scale);
    for (uint32_t i = 0; i < count; i++)
        out[i] = int8_of(x[i] * factor);
}

float kv_number(kv_type type, const uint8_t *tile, size_t place) {
    uint16_t half;
    float x;
    switch (type) {
    case KV_F32:
        memcpy(&x, tile + place * 4, 4);
        return x;
    case KV_F16:
    case KV_BF16:
        memcpy(&half, tile + place * 2, 2);
        return type == KV_F16 ? quant_f16_to_f32(half) : quant_bf16_to_f32(half);
    case KV_INT8:
        return (float)(int8_t)tile[place];
    default:
        return quant_f8_e4m3_to_f32(tile[place]);
    }
}

static void put(kv_type type, uint8_t *tile, size_t place, float x) {
    switch (type) {
    case KV_F32:
        memcpy(tile + place * 4, &x, 4);
        return;
    case KV_F16:
    case KV_BF16: {
        uint16_t half = type == KV_F16 ? f16_encode(x) : quant_f32_to_bf16(x);
        memcpy(tile + place * 2, &half, 2);
        return;
    }
    case KV_INT8:
        tile[place] = (uint8_t)int8_of(x);
        return;
    default:
        tile[place] = kv_fp8_encode(x);
        return;
    }
}

void kv_tile_write(kv_type type, uint32_t head_size, uint8_t *head, uint32_t slot, const float *key,
                   const float *value) {
    uint8_t *value_tile = head + kv_value_offset(type, head_size);
    float key_factor = 1.0f;
    float value_factor = 1.0f;
    float *key_scale = kv_key_scales(type, head_size, head) + slot;
    float *value_scale = kv_value_scales(type, head_size, head) + slot;
    if (type == KV_INT8) {
        key_factor = scale_of(key, head_size, KV_INT8_LIMIT, key_scale);
        value_factor = scale_of(value, head_size, KV_INT8_LIMIT, value_scale);
    } else if (type == KV_FP8) {
        key_factor = fp8_scale_of(key, head_size, key_scale);
        value_factor = fp8_scale_of(value, head_size, value_scale);
    }
    for (uint32_t d = 0; d < head_size; d++) {
        put(type, head, kv_key_place(type, d, slot), key[d] * key_factor);
        put(type, value_tile, kv_value_place(type, head_size, d, slot), value[d] * value_factor);
    }
}

/* ---- Whole tiles ---- */

static quant_type plain_type(kv_type type) {
    return type == KV_F16 ? QUANT_F16 : type == KV_BF16 ? QUANT_BF16 : QUANT_F8_E4M3;
}

const float *kv_tile_keys(kv_type type, uint32_t head_size, const uint8_t *head, float *room) {
    if (type == KV_F32)
        return (const float *)(const void *)head;
    if (type == KV_INT8) {
        for (uint32_t d = 0; d < head_size; d++)
            for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++)
                room[d * KV_PAGE_TOKENS + slot] = (float)(int8_t)head[kv_key_place(type, d, slot)];
    } else {
        quant_decode(plain_type(type), head, (size_t)head_size * KV_PAGE_TOKENS, room);
    }
    if (kv_type_scaled(type)) {
        float scale[KV_PAGE_TOKENS];
        memcpy(scale, head + kv_key_bytes(type, head_size), sizeof(scale));
        for (uint32_t d = 0; d < head_size; d++)
            for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++)
                room[d * KV_PAGE_TOKENS + slot] *= scale[slot];
    }
    return room;
}

const float *kv_tile_values(kv_type type, uint32_t head_size, const uint8_t *head, float *room) {
    const uint8_t *tile = head + kv_value_offset(type, head_size);
    size_t stride = kv_value_stride(head_size);
    if (type == KV_F32)
        return (const float *)(const void *)tile;
    if (type == KV_INT8) {
        for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++)
            for (uint32_t d = 0; d < stride; d++)
                room[slot * stride + d] =
                    (float)(int8_t)tile[kv_value_place(type, head_size, d, slot)];
    } else {
        quant_decode(plain_type(type), tile, KV_PAGE_TOKENS * stride, room);
    }
    if (kv_type_scaled(type)) {
        float scale[KV_PAGE_TOKENS];
        memcpy(scale, tile + kv_value_bytes(type, head_size), sizeof(scale));
        for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++)
            for (uint32_t d = 0; d < stride; d++)
                room[slot * stride + d] *= scale[slot];
    }
    return room;
}
