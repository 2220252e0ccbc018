/* Queries, keys and values of many rows: what kernel_position does with a block for each head of
 * each row, a warp does here, in registers, where a head has 64 or 128 dimensions, all of them
 * rotated or none, and no norm of its own. Called by device/cuda/tiles.c; cannot fail. */
#ifndef AVO_DEVICE_CUDA_KERNELS_PLACE_MANY_H
#define AVO_DEVICE_CUDA_KERNELS_PLACE_MANY_H

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/warp.h"

/* Of a lane: dimensions lane * dims / 32 and those behind it. */
typedef struct many_lane {
    float x[4];
} many_lane;

EXACT_INLINE void many_turn(const position_call *call, const kernel_place *at, uint32_t dims,
                            uint32_t row, many_lane *lanes) {
    const float *cosine = call->cosine + (uint64_t)row * call->pairs_max;
    const float *sine = call->sine + (uint64_t)row * call->pairs_max;
    uint32_t each = dims / WARP;
    if (call->interleaved) {
        EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < each / 2; i++) {
                float a = lanes[own].x[2 * i], b = lanes[own].x[2 * i + 1];
                float c = cosine[lane * each / 2 + i], s = sine[lane * each / 2 + i];
                lanes[own].x[2 * i] = fmaf(-b, s, a * c);
                lanes[own].x[2 * i + 1] = fmaf(a, s, b * c);
            }
        }
        return;
    }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < each; i++) {
        float mine[OWN_LANES], other[OWN_LANES];
        EACH_LANE(at, own) {
            mine[own] = lanes[own].x[i];
        }
        exchange_floats(mine, WARP / 2, other); /* half the dimensions away */
        EACH_LANE(at, own) {
            uint32_t angle = lane % (WARP / 2) * each + i;
            float b = lane < WARP / 2 ? -other[own] : other[own];
            lanes[own].x[i] = fmaf(b, sine[angle], mine[own] * cosine[angle]);
        }
    }
}

EXACT_INLINE void many_rotate(const kernel_place *at, uint32_t dims, many_lane *lanes) {
    uint32_t each = dims / WARP;
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 1; half < each; half *= 2)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < each; i++)
                if ((i & half) == 0) {
                    float low = lanes[own].x[i], high = lanes[own].x[i + half];
                    lanes[own].x[i] = low + high;
                    lanes[own].x[i + half] = low - high;
                }
    }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t mask = 1; mask < WARP; mask *= 2)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < each; i++) {
            float mine[OWN_LANES], other[OWN_LANES];
            EACH_LANE(at, own) {
                mine[own] = lanes[own].x[i];
            }
            exchange_floats(mine, mask, other);
            EACH_LANE(at, own) {
                lanes[own].x[i] =
                    (lane & mask) == 0 ? mine[own] + other[own] : other[own] - mine[own];
            }
        }
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < each; i++)
            lanes[own].x[i] *= head_factor(dims);
    }
}

/* Bytes of four numbers of a lane; with two numbers the upper half is nothing. */
EXACT_INLINE uint32_t many_bytes(uint32_t each, const many_lane *lane, float factor) {
    uint32_t word = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < each; i++) {
        float y = lane->x[i] * factor;
        word |= (uint32_t)(uint8_t)(int8_t)(y == y ? exact_nearest(y) : 0) << 8 * i;
    }
    return word;
}

EXACT_INLINE void many_query(const position_call *call, const kernel_place *at, uint32_t dims,
                             const float *scales, const many_lane *lanes, uint8_t *out) {
    uint32_t each = dims / WARP;
    EACH_LANE(at, own) {
        uint32_t first = lane * each;
        if (call->kv.type == CALL_KV_INT8) {
            uint32_t word = many_bytes(each, &lanes[own], scales[0]);
            if (each == 4)
                *(uint32_t *)(void *)(out + first) = word;
            else
                *(uint16_t *)(void *)(out + first) = (uint16_t)word;
            if (lane == 0)
                *(float *)(void *)(out + dims) = scales[1] * call->query_factor;
        } else {
            for (uint32_t i = 0; i < each; i++)
                ((float *)(void *)out)[first + i] = lanes[own].x[i] * call->query_factor;
        }
    }
}

EXACT_INLINE void many_put(const kv_call *kv, const kernel_place *at, uint32_t dims, uint8_t *tile,
                           uint32_t slot, bool value, const float *scales, const many_lane *lanes) {
    uint32_t each = dims / WARP;
    uint8_t *scale = tile + kv->key_bytes;
    if (value) {
        tile += kv->value_offset;
        scale = tile + kv->value_bytes;
    }
    EACH_LANE(at, own) {
        if (kv->type == CALL_KV_INT8 && lane == 0)
            *(float *)(void *)(scale + 4 * slot) = scales[1];
        float factor = kv->type == CALL_KV_INT8 ? scales[0] : 1.0f;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < each; i++) {
            uint32_t d = lane * each + i;
            tile_put(kv->type, tile,
                     value ? value_place(kv->type, kv->value_stride, d, slot)
                           : key_place(kv->type, d, slot),
                     lanes[own].x[i] * factor);
        }
    }
}

EXACT_INLINE void many_head(const position_call *call, const kernel_place *at, uint32_t dims,
                            uint32_t row, uint32_t head) {
    const kv_call *kv = &call->kv;
    uint32_t each = dims / WARP, in = head;
    bool query = head < call->heads, value = head >= call->heads + call->kv_heads;
    const float *from = call->query + ((uint64_t)row * call->heads + head) * dims;
    if (!query) {
        in = (head - call->heads) % call->kv_heads;
        from = (value ? call->value : call->key) + ((uint64_t)row * call->kv_heads + in) * dims;
    }
    many_lane lanes[OWN_LANES];
    uint32_t most[OWN_LANES];
    EACH_LANE(at, own) {
        for (uint32_t i = 0; i < each; i++)
            lanes[own].x[i] = from[lane * each + i];
    }
    if (!value && call->cosine != NULL)
        many_turn(call, at, dims, row, lanes);
    float scales[2] = {1.0f, 1.0f};
    if (kv->type == CALL_KV_INT8) {
        many_rotate(at, dims, lanes);
        EACH_LANE(at, own) {
            most[own] = 0;
            for (uint32_t i = 0; i < each; i++) {
                uint32_t bits = exact_bits(lanes[own].x[i]) & 0x7fffffffu;
                most[own] = bits > most[own] ? bits : most[own];
            }
        }
        warp_highest(at, most, WARP / 2);
        position_scale(kv->type, exact_float(most[0]), NULL, scales);
    }
    if (query) {
        many_query(call, at, dims, scales, lanes,
                   call->query_out + ((uint64_t)row * call->heads + head) * call->query_bytes);
        return;
    }
    uint32_t position = kv->position[row];
    many_put(kv, at, dims, kv_head_of(kv, row, position / CALL_PAGE, in), position % CALL_PAGE,
             value, scales, lanes);
}

/* Warps one behind the other: heads of a row side by side. */
EXACT_INLINE void many_position(const position_call *call, kernel_place *at, uint32_t dims) {
    uint32_t heads = call->heads + 2 * call->kv_heads;
    CUDA_WARPS(at, uint32_t number = at->x * warps_of(at) + warp_of(at);
               if (number < heads * call->rows)
                   many_head(call, at, dims, number / heads, number % heads));
}

EXACT_INLINE void kernel_position_64(const position_call *call, kernel_place *at) {
    many_position(call, at, 64);
}

EXACT_INLINE void kernel_position_128(const position_call *call, kernel_place *at) {
    many_position(call, at, 128);
}

#endif
