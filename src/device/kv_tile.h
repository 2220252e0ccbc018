/* The tiles in which K and V of one page, layer and KV head lie, 32 positions of them. Nobody but
 * this page and device/cpu/attention.h knows where a number lies.
 *
 *   F32, F16, BF16, FP8   K [head_size][32]                         lane = position
 *                         V [32][head_size rounded up to 16]        lane = dimension
 *   INT8                  K [head_size / 4 rounded up][32][4]       4 bytes: dimensions
 *                         V [8][head_size rounded up to 16][4]      4 bytes: positions
 *                         so that a line of 64 bytes is 16 lanes of four products to add up
 *   INT8, FP8             K scales [32] floats behind the K tile, V scales [32] behind the V tile
 *
 * A head begins with its K tile; every part begins at a multiple of 64 bytes from there.
 *
 * Numbers: F16 and BF16 to the nearest, ties to even, F16 at most ±65504. INT8 and FP8 of one
 * position: largest = the largest magnitude of the head's dimensions, NaN counting as the largest;
 * below 1e-30: scale 0, numbers 0. Otherwise scale = largest / limit and number = x · (limit /
 * largest) to the nearest, ties to even, with limit 127 (INT8) or 448 (FP8: E4M3 without infinity).
 *
 * FP8 tries KV_FP8_SCALES scales over one octave, scale · kv_fp8_up[j] with number = x · ((limit /
 * largest) · kv_fp8_down[j]), and takes the one with the least squared error, the first of equals
 * (the first of all where that is no number): every scale rounds all numbers anew, and of sixteen
 * one leaves a quarter less. The error: y = |x · factor|, at most 448; d = y − its nearest number;
 * lane[i mod 16] = fma(d, d, lane), i ascending from 0; the sum by math_sum16; · up[j]².
 */
#ifndef AVO_DEVICE_KV_TILE_H
#define AVO_DEVICE_KV_TILE_H

#include "device/layer.h"

/* Dimensions of a head; formats/ refuses more. */
#define KV_HEAD_SIZE_MAX 1024

#define KV_INT8_LIMIT 127.0f
#define KV_FP8_LIMIT  448.0f
#define KV_F16_LIMIT  65504.0f

#define KV_FP8_SCALES 16
extern const float kv_fp8_up[KV_FP8_SCALES];   /* 2^(j / 16) */
extern const float kv_fp8_down[KV_FP8_SCALES]; /* 2^(−j / 16) */

/* "f16"; "?" for no type. */
const char *kv_type_name(kv_type type);
/* KV_TYPE_COUNT when there is no such name. */
kv_type kv_type_named(const char *name);

static inline size_t kv_value_stride(uint32_t head_size) {
    return ((size_t)head_size + 15) / 16 * 16;
}

static inline bool kv_type_scaled(kv_type type) {
    return type == KV_INT8 || type == KV_FP8;
}

static inline size_t kv_element_bytes(kv_type type) {
    return type == KV_F32 ? 4 : type == KV_F16 || type == KV_BF16 ? 2 : 1;
}

static inline size_t kv_scale_bytes(kv_type type) {
    return kv_type_scaled(type) ? KV_PAGE_TOKENS * sizeof(float) : 0;
}

/* Of the K tile alone, without its scales. */
static inline size_t kv_key_bytes(kv_type type, uint32_t head_size) {
    size_t dimensions = type == KV_INT8 ? ((size_t)head_size + 3) / 4 * 4 : head_size;
    return (KV_PAGE_TOKENS * dimensions * kv_element_bytes(type) + 63) / 64 * 64;
}

static inline size_t kv_value_bytes(kv_type type, uint32_t head_size) {
    return KV_PAGE_TOKENS * kv_value_stride(head_size) * kv_element_bytes(type);
}

/* From a head's begin to its V tile. */
static inline size_t kv_value_offset(kv_type type, uint32_t head_size) {
    return kv_key_bytes(type, head_size) + kv_scale_bytes(type);
}

static inline size_t kv_head_bytes(kv_type type, uint32_t head_size) {
    return kv_value_offset(type, head_size) + kv_value_bytes(type, head_size) +
           kv_scale_bytes(type);
}

/* Scales of INT8 and FP8, [32] each; `head` as from kv_head. */
static inline float *kv_key_scales(kv_type type, uint32_t head_size, uint8_t *head) {
    return (float *)(void *)(head + kv_key_bytes(type, head_size));
}

static inline float *kv_value_scales(kv_type type, uint32_t head_size, uint8_t *head) {
    return (float *)(void *)(head + kv_value_offset(type, head_size) +
                             kv_value_bytes(type, head_size));
}

/* Hadamard transforms of one head in place, orthonormal and their own inverse up to rounding: the
 * largest powers of two that fit, from the front (80: 64 and 16; 20: 16 and 4). Additions at
 * distances 1, 2, 4, …, then every number times kv_rotate_scale(block). */
void kv_rotate(float *x, uint32_t size);
float kv_rotate_scale(uint32_t block);
/* The block that begins where `rest` dimensions are left. */
static inline uint32_t kv_rotate_block(uint32_t rest) {
    return rest == 0 ? 0 : 1u << (31 - __builtin_clz(rest));
}

/* Element number of dimension d of a position in the K tile, and in the V tile. */
static inline size_t kv_key_place(kv_type type, uint32_t d, uint32_t slot) {
    return type == KV_INT8 ? (size_t)(d / 4 * KV_PAGE_TOKENS + slot) * 4 + d % 4
                           : (size_t)d * KV_PAGE_TOKENS + slot;
}
static inline size_t kv_value_place(kv_type type, uint32_t head_size, uint32_t d, uint32_t slot) {
    size_t stride = kv_value_stride(head_size);
    return type == KV_INT8 ? (slot / 4 * stride + d) * 4 + slot % 4 : slot * stride + d;
}
/* The number at a place of a tile, without its scale. */
float kv_number(kv_type type, const uint8_t *tile, size_t place);

/* Numbers of a head as INT8 has them. */
void kv_int8_encode(const float *x, uint32_t count, int8_t *out, float *scale);
/* E4M3, to nearest even; |x| at most 448, larger ones become 448. */
uint8_t kv_fp8_encode(float x);

/* Writes one position (slot = position mod 32) of one head; key and value are rotated already where
 * the type wants it. */
void kv_tile_write(kv_type type, uint32_t head_size, uint8_t *head, uint32_t slot, const float *key,
                   const float *value);
/* What is stored, as floats, scales multiplied in: K as [head_size][32], V as [32][head_size
 * rounded up to 16]. For F32 nothing is copied; otherwise the answer lies in `room`, which has
 * kv_tile_floats(head_size) floats. */
const float *kv_tile_keys(kv_type type, uint32_t head_size, const uint8_t *head, float *room);
const float *kv_tile_values(kv_type type, uint32_t head_size, const uint8_t *head, float *room);
static inline size_t kv_tile_floats(uint32_t head_size) {
    return KV_PAGE_TOKENS * kv_value_stride(head_size);
}

#endif
