/* Products of many rows with Q4R weights on the tensor cores, in integers: exact, and so the same
 * bits as everywhere. A number times its multiplier fits a byte, so the weights of a super-block
 * are made signed bytes in registers; a warp multiplies one panel (16 outputs) with 64 rows of x,
 * 32 k at a time, and adds each super-block's sums up by fma, in the order of k. On an H200 prefill
 * of 8B is 3.8 times as fast as without (docs/cuda.md). */
#ifndef AVO_DEVICE_CUDA_KERNELS_TILE_H
#define AVO_DEVICE_CUDA_KERNELS_TILE_H

#include "device/cuda/kernels/linear.h"
#include "device/cuda/kernels/warp.h"

#define TILE_ROWS    64                   /* of x */
#define TILE_GROUPS  (TILE_ROWS / 8)      /* of eight, as the cores take them */
#define TILE_PANELS  8                    /* of a block: a warp for each */
#define TILE_THREADS (TILE_PANELS * WARP) /* of a block */
#define TILE_X       (256 + 16)           /* bytes of a row, so that eight lie in different banks */
#define TILE_SUPER   (EXACT_Q4R_SUPER_LINES * EXACT_LINE)
#define TILE_BUFFER  (TILE_ROWS * TILE_X + TILE_PANELS * TILE_SUPER + TILE_ROWS * 4)
#define TILE_BUFFERS 3 /* super-blocks of k: one is computed, the others are on their way */
#define TILE_SHARED  (TILE_BUFFERS * TILE_BUFFER)

#ifdef __CUDACC__
#define OWN_WARPS 1
#else
#define OWN_WARPS TILE_PANELS
#endif

/* Of a lane: outputs lane / 4 and eight more, rows 2 (lane % 4) and the next of each group. */
typedef struct tile_lane {
    float f[TILE_GROUPS][4];
} tile_lane;

typedef struct tile_integers {
    int32_t of[TILE_GROUPS][4];
} tile_integers;

typedef struct tile_words {
    uint32_t of[4];
} tile_words;

typedef struct tile_part {
    const linear_one *one;
    uint32_t first_row, rows, first_panel, panels, steps;
} tile_part;

EXACT_INLINE uint8_t *tile_x(const kernel_place *at, uint32_t step) {
    return (uint8_t *)(void *)at->shared + step % TILE_BUFFERS * TILE_BUFFER;
}

EXACT_INLINE uint8_t *tile_panel(const kernel_place *at, uint32_t step, uint32_t panel) {
    return tile_x(at, step) + TILE_ROWS * TILE_X + panel * TILE_SUPER;
}

EXACT_INLINE float *tile_scales(const kernel_place *at, uint32_t step) {
    return (float *)(void *)tile_panel(at, step, TILE_PANELS);
}

/* One super-block of k on its way to shared memory, by all threads. */
EXACT_INLINE void tile_copy(const tile_part *part, const kernel_place *at, uint32_t step) {
    const linear_one *one = part->one;
    const form_call *x = &one->x;
    if (step < part->steps) {
        uint32_t begin = step * 256, left = x->stride - begin;
        uint32_t chunks = (left < 256 ? left : 256) / 16;
        for (uint32_t i = at->thread; i < part->rows * chunks; i += at->threads) {
            uint32_t row = i / chunks, place = i % chunks * 16;
            copy_begin(at, tile_x(at, step) + row * TILE_X + place,
                       x->number + (uint64_t)(part->first_row + row) * x->stride + begin + place);
        }
        uint64_t behind = one->panel_bytes - (uint64_t)step * TILE_SUPER;
        uint32_t lines = (uint32_t)(behind < TILE_SUPER ? behind : TILE_SUPER) / 16;
        for (uint32_t i = at->thread; i < part->panels * lines; i += at->threads) {
            uint32_t panel = i / lines, place = i % lines * 16;
            copy_begin(at, tile_panel(at, step, panel) + place,
                       one->data + (part->first_panel + panel) * one->panel_bytes +
                           (uint64_t)step * TILE_SUPER + place);
        }
        if (at->thread < part->rows)
            tile_scales(at, step)[at->thread] =
                x->scale[(uint64_t)(part->first_row + at->thread) * x->scale_stride + step];
    }
    copy_mark(at);
}

/* Four numbers (0 … 15) of one sub-block times its signed multiplier: (number - 8) · multiplier, a
 * signed byte each. No byte carries: 128 more than that is between 8 and 248. */
EXACT_INLINE uint32_t tile_bytes(uint32_t numbers, int32_t multiplier) {
    uint32_t m = (uint32_t)multiplier;
    return (numbers * m + (0x80808080u - m * 0x08080808u)) ^ 0x80808080u;
}

/* Multipliers of both sub-blocks of a pair, of one output. */
EXACT_INLINE void tile_multipliers(const uint8_t *super, uint32_t pair, uint32_t subs,
                                   uint32_t output, int32_t *multiplier) {
    uint32_t both = super[EXACT_LINE + pair * 16 + output];
    uint32_t signs = exact_load_word(super + 32 + 4 * pair) >> output;
    int32_t first = (int32_t)(both & 15), second = 2 * pair + 1 < subs ? (int32_t)(both >> 4) : 0;
    multiplier[0] = (signs & 1u) != 0 ? -first : first;
    multiplier[1] = (signs >> 16 & 1u) != 0 ? -second : second;
}

/* Weights of 32 k as the cores take them. Of an odd number of sub-blocks the last is read with the
 * two lines behind it, times 0; a stage has room for whole super-blocks. */
EXACT_INLINE void tile_weights(const kernel_place *at, const uint8_t *super, uint32_t pair,
                               uint32_t subs, tile_words *out) {
    const uint8_t *lines = super + (subs <= 8 ? 2 : 3) * EXACT_LINE + pair * 4 * EXACT_LINE;
    EACH_LANE(at, own) {
        uint32_t four = lane % 4;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t output = lane / 4 + 8 * half;
            int32_t multiplier[2];
            tile_multipliers(super, pair, subs, output, multiplier);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t sub = 0; sub < 2; sub++) {
                uint32_t word =
                    exact_load_word(lines + (2 * sub + four / 2) * EXACT_LINE + 4 * output);
                out[own].of[half + 2 * sub] =
                    tile_bytes(word >> 4 * (four % 2) & 0x0f0f0f0fu, multiplier[sub]);
            }
        }
    }
}

/* sum += weights · x of 16 outputs, 8 rows and 32 k: fragments of mma.m16n8k32. */
EXACT_INLINE void tile_multiply(const tile_words *weights, const tile_words *x, tile_integers *sum,
                                uint32_t group) {
#ifdef __CUDA_ARCH__
    int32_t *s = sum[0].of[group];
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
                 : "r"(weights[0].of[0]), "r"(weights[0].of[1]), "r"(weights[0].of[2]),
                   "r"(weights[0].of[3]), "r"(x[0].of[0]), "r"(x[0].of[1]));
#else
    for (uint32_t lane = 0; lane < OWN_LANES; lane++)
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t output = lane / 4, row = 2 * (lane % 4) + i % 2;
            int32_t all = sum[lane].of[group][i];
            for (uint32_t four = 0; four < 4; four++) {
                const tile_words *a = &weights[output * 4 + four], *b = &x[row * 4 + four];
                all = exact_dot4(a->of[i / 2], b->of[0], all);
                all = exact_dot4(a->of[i / 2 + 2], b->of[1], all);
            }
            sum[lane].of[group][i] = all;
        }
#endif
}

EXACT_INLINE void tile_compute(const tile_part *part, const kernel_place *at, uint32_t step,
                               tile_lane *lanes) {
    uint32_t panel = warp_of(at), left = part->one->k - step * 256;
    uint32_t subs = left < 256 ? (left + 15) / 16 : 16;
    if (panel >= part->panels)
        return;
    const uint8_t *super = tile_panel(at, step, panel), *x = tile_x(at, step);
    tile_integers sum[OWN_LANES];
    tile_words weights[OWN_LANES], numbers[OWN_LANES];
    for (uint32_t i = 0; i < OWN_LANES; i++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t j = 0; j < TILE_GROUPS * 4; j++)
            sum[i].of[j / 4][j % 4] = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 2
#endif
    for (uint32_t pair = 0; pair < (subs + 1) / 2; pair++) {
        tile_weights(at, super, pair, subs, weights);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t group = 0; group < TILE_GROUPS; group++) {
            EACH_LANE(at, own) {
                const uint8_t *four =
                    x + (8 * group + lane / 4) * TILE_X + pair * 32 + lane % 4 * 4;
                numbers[own].of[0] = exact_load_word(four);
                numbers[own].of[1] = exact_load_word(four + 16);
            }
            tile_multiply(weights, numbers, sum, group);
        }
    }
    const float *scales = tile_scales(at, step);
    EACH_LANE(at, own) {
        float scale[2];
        for (uint32_t half = 0; half < 2; half++)
            scale[half] = exact_from_half(exact_load_half(super + 2 * (lane / 4 + 8 * half)));
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t group = 0; group < TILE_GROUPS; group++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t row = 8 * group + 2 * (lane % 4) + i % 2;
                float *f = &lanes[own].f[group][i];
                *f = fmaf((float)sum[own].of[group][i], scale[i / 2] * scales[row],
                          step == 0 ? 0.0f : *f);
            }
    }
}

EXACT_INLINE void tile_finish(const tile_part *part, const kernel_place *at,
                              const tile_lane *lanes) {
    const linear_one *one = part->one;
    if (warp_of(at) >= part->panels)
        return;
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t group = 0; group < TILE_GROUPS; group++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t row = 8 * group + 2 * (lane % 4) + i % 2;
                uint32_t output = (part->first_panel + warp_of(at)) * 16 + lane / 4 + i / 2 * 8;
                if (row < part->rows && output < one->rows)
                    linear_store(one, part->first_row + row, output, lanes[own].f[group][i]);
            }
    }
}

/* Block (rows of x, panels, which product). */
EXACT_INLINE void kernel_tile_q4r(const linear_batch *call, kernel_place *at) {
    tile_part part = {.one = &call->one[at->z],
                      .first_row = at->x * TILE_ROWS,
                      .first_panel = at->y * TILE_PANELS};
    const linear_one *one = part.one;
    uint32_t panels = (one->rows + 15) / 16;
    if (part.first_panel >= panels || part.first_row >= one->x_rows)
        return;
    uint32_t left = one->x_rows - part.first_row;
    part.rows = left < TILE_ROWS ? left : TILE_ROWS;
    left = panels - part.first_panel;
    part.panels = left < TILE_PANELS ? left : TILE_PANELS;
    part.steps = (one->k + 255) / 256;
    tile_lane lanes[OWN_WARPS][OWN_LANES];
#define TILE_OWN (lanes[OWN_WARPS == 1 ? 0 : warp_of(at)])
    CUDA_EACH(at,
              for (uint32_t step = 0; step + 1 < TILE_BUFFERS; step++) tile_copy(&part, at, step));
    for (uint32_t step = 0; step < part.steps; step++) {
        CUDA_EACH(at, tile_copy(&part, at, step + TILE_BUFFERS - 1);
                  COPY_WAIT(at, TILE_BUFFERS - 1));
        CUDA_WARPS(at, tile_compute(&part, at, step, TILE_OWN));
    }
    CUDA_WARPS(at, tile_finish(&part, at, TILE_OWN));
#undef TILE_OWN
}

#endif
