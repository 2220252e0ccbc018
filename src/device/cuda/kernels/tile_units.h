/* Products of many rows with 8-bit weights and blocks of 4 bits on the tensor cores. Of each 32 k
 * the integers are exact; what is added up, by fma and in the order of k, is what
 * device/cpu/activation.h has. A warp multiplies one panel with 64 rows of x, a block eight panels;
 * a step of 128 or 256 k is computed while the next ones are copied. Called by device/cuda/step.c
 * for types whose scales do not change inside 32 k and whose numbers are bytes or nibbles; cannot
 * fail. */
#ifndef AVO_DEVICE_CUDA_KERNELS_TILE_UNITS_H
#define AVO_DEVICE_CUDA_KERNELS_TILE_UNITS_H

#include "device/cuda/kernels/tile.h"

#define UNITS_PAD 32 /* bytes behind a row of x, so that four rows lie in different banks */

/* Units of a step: a whole group. */
EXACT_INLINE uint32_t units_step(const exact_shape *shape) {
    return shape->group_units > 4 ? 8 : 4;
}

/* Bytes of a panel's step. */
EXACT_INLINE uint32_t units_weights(const exact_shape *shape) {
    uint32_t units = units_step(shape);
    uint32_t heads = shape->group_units > 0 ? units / shape->group_units * shape->head_lines : 0;
    return (heads + units * shape->unit_lines) * EXACT_LINE;
}

EXACT_INLINE uint32_t units_row(const exact_shape *shape) {
    return units_step(shape) * 32 + UNITS_PAD;
}

/* Of a buffer: x, its low bytes, its scales and sums, then panels. */
EXACT_INLINE uint32_t units_buffer(const exact_shape *shape) {
    return TILE_ROWS * (2 * units_row(shape) + 8 * units_step(shape)) +
           TILE_PANELS * units_weights(shape);
}

EXACT_INLINE bool units_known(const exact_shape *shape) {
    return !shape->halves &&
           (shape->lines == EXACT_LINES_BYTE || shape->lines == EXACT_LINES_NIBBLE);
}

EXACT_INLINE uint8_t *units_x(const exact_shape *shape, const kernel_place *at, uint32_t step,
                              bool low) {
    return (uint8_t *)(void *)at->shared + step % TILE_BUFFERS * units_buffer(shape) +
           (low ? TILE_ROWS * units_row(shape) : 0);
}

/* [unit][row]; sums behind scales. */
EXACT_INLINE float *units_scales(const exact_shape *shape, const kernel_place *at, uint32_t step) {
    return (float *)(void *)(units_x(shape, at, step, true) + TILE_ROWS * units_row(shape));
}

EXACT_INLINE uint8_t *units_panel(const exact_shape *shape, const kernel_place *at, uint32_t step,
                                  uint32_t panel) {
    return (uint8_t *)(void *)(units_scales(shape, at, step) + 2 * TILE_ROWS * units_step(shape)) +
           panel * units_weights(shape);
}

/* A step on its way, by all threads. */
EXACT_INLINE void units_copy(const tile_part *part, const kernel_place *at, uint32_t step) {
    const linear_one *one = part->one;
    const exact_shape *shape = &one->shape;
    const form_call *x = &one->x;
    if (step < part->steps) {
        uint32_t units = units_step(shape), begin = step * units * 32, left = x->stride - begin;
        uint32_t chunks = (left < units * 32 ? left : units * 32) / 16;
        for (uint32_t i = at->thread; i < part->rows * chunks; i += at->threads) {
            uint32_t row = i / chunks, place = i % chunks * 16;
            uint64_t from = (uint64_t)(part->first_row + row) * x->stride + begin + place;
            copy_begin(at, units_x(shape, at, step, false) + row * units_row(shape) + place,
                       x->number + from);
            if (x->form == CALL_A16)
                copy_begin(at, units_x(shape, at, step, true) + row * units_row(shape) + place,
                           x->low + from);
        }
        uint64_t first = (uint64_t)step * units_weights(shape), behind = one->panel_bytes - first;
        uint32_t lines =
            (uint32_t)(behind < units_weights(shape) ? behind : units_weights(shape)) / 16;
        for (uint32_t i = at->thread; i < part->panels * lines; i += at->threads) {
            uint32_t panel = i / lines, place = i % lines * 16;
            copy_begin(at, units_panel(shape, at, step, panel) + place,
                       one->data + (part->first_panel + panel) * one->panel_bytes + first + place);
        }
        float *scales = units_scales(shape, at, step);
        uint32_t all = (one->k + 31) / 32 - step * units;
        all = all < units ? all : units;
        for (uint32_t i = at->thread; i < part->rows * all; i += at->threads) {
            uint32_t row = i / all, unit = i % all;
            uint64_t from =
                (uint64_t)(part->first_row + row) * x->scale_stride + step * units + unit;
            scales[unit * TILE_ROWS + row] = x->scale[from];
            if (shape->minimum)
                scales[(units + unit) * TILE_ROWS + row] = x->sum[from];
        }
    }
    copy_mark(at);
}

/* Words 2 (lane % 4) and the next of a unit, of outputs 2 (lane / 4) and the next: numbers as they
 * are multiplied. */
EXACT_INLINE void units_words(const exact_shape *shape, const kernel_place *at,
                              const uint8_t *lines, tile_words *out) {
    EACH_LANE(at, own) {
        const uint8_t *from = lines + 8 * (lane / 4);
        uint32_t four = lane % 4, *word = out[own].of;
        if (shape->lines == EXACT_LINES_BYTE) {
            load_pair(from + 2 * four * EXACT_LINE, word);
            load_pair(from + (2 * four + 1) * EXACT_LINE, word + 2);
        } else {
            uint32_t both[2];
            load_pair(from + four * EXACT_LINE, both);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 2; i++) {
                word[i] = both[i] & 0x0f0f0f0fu;
                word[i + 2] = both[i] >> 4 & 0x0f0f0f0fu;
            }
        }
        if (shape->codebook != EXACT_LINEAR)
            for (uint32_t i = 0; i < 4; i++)
                word[i] = exact_look_up(shape->codebook, word[i]);
        else if (shape->zero != 0)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 4; i++)
                word[i] = ((word[i] | 0x80808080u) - shape->zero * 0x01010101u) ^ 0x80808080u;
    }
}

/* sums of 64 rows. */
EXACT_INLINE void units_multiply(const exact_shape *shape, const kernel_place *at,
                                 const tile_words *weights, const uint8_t *x, tile_integers *sum) {
    for (uint32_t i = 0; i < OWN_LANES; i++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t j = 0; j < TILE_GROUPS * 4; j++)
            sum[i].of[j / 4][j % 4] = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t group = 0; group < TILE_GROUPS; group++) {
        tile_words numbers[OWN_LANES];
        EACH_LANE(at, own) {
            load_pair(x + (8 * group + lane / 4) * units_row(shape) + lane % 4 * 8,
                      numbers[own].of);
        }
        tile_multiply(weights, numbers, sum, group);
    }
}

typedef struct units_scale {
    float of[2], minimum[2];
} units_scale;

EXACT_INLINE void units_add(const linear_one *one, const kernel_place *at, const float *scales,
                            const units_scale *scale, const tile_integers *sum,
                            const tile_integers *low, tile_lane *lanes) {
    bool by_row = one->shape.scales == EXACT_SCALES_ROW, two = one->x.form == CALL_A16;
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t group = 0; group < TILE_GROUPS; group++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 4; i++) {
                const float *row = scales + 8 * group + 2 * (lane % 4) + i % 2;
                int32_t all = sum[own].of[group][i];
                float *f = &lanes[own].f[group][i];
                if (two)
                    all = 255 * all + low[own].of[group][i];
                *f = fmaf((float)all, by_row ? row[0] : scale[own].of[i / 2] * row[0], *f);
                if (one->shape.minimum)
                    *f = fmaf(scale[own].minimum[i / 2], row[units_step(&one->shape) * TILE_ROWS],
                              *f);
            }
    }
}

EXACT_INLINE void units_compute(const tile_part *part, const kernel_place *at, uint32_t step,
                                tile_lane *lanes) {
    const linear_one *one = part->one;
    const exact_shape *shape = &one->shape;
    uint32_t units = units_step(shape), left = (one->k + 31) / 32 - step * units;
    uint32_t group_units = shape->group_units > 0 ? shape->group_units : units;
    uint32_t group_lines = shape->head_lines + group_units * shape->unit_lines;
    if (warp_of(at) >= part->panels)
        return;
    const uint8_t *panel = units_panel(shape, at, step, warp_of(at));
    for (uint32_t unit = 0; unit < units && unit < left; unit++) {
        const uint8_t *head = panel + unit / group_units * group_lines * EXACT_LINE;
        uint32_t inside = unit % group_units;
        const uint8_t *lines = head + (shape->head_lines + inside * shape->unit_lines) * EXACT_LINE;
        tile_words weights[OWN_LANES];
        tile_integers sum[OWN_LANES], low[OWN_LANES];
        units_scale scale[OWN_LANES];
        units_words(shape, at, lines, weights);
        units_multiply(shape, at, weights, units_x(shape, at, step, false) + unit * 32, sum);
        if (one->x.form == CALL_A16)
            units_multiply(shape, at, weights, units_x(shape, at, step, true) + unit * 32, low);
        if (shape->scales != EXACT_SCALES_ROW)
            EACH_LANE(at, own) {
                for (uint32_t i = 0; i < 2; i++) {
                    exact_unit own_unit;
                    exact_unit_scales(shape->scales, head, inside, 2 * (lane / 4) + i, &own_unit);
                    scale[own].of[i] = own_unit.scale[0];
                    scale[own].minimum[i] = own_unit.minimum[0];
                }
            }
        units_add(one, at, units_scales(shape, at, step) + unit * TILE_ROWS, scale, sum, low,
                  lanes);
    }
}

EXACT_INLINE void units_finish(const tile_part *part, const kernel_place *at,
                               const tile_lane *lanes) {
    const linear_one *one = part->one;
    if (warp_of(at) >= part->panels)
        return;
    uint32_t panel = part->first_panel + warp_of(at);
    const uint8_t *scales =
        one->data + panel * one->panel_bytes + (one->k + 3) / 4 * EXACT_LINE; /* by row */
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t group = 0; group < TILE_GROUPS; group++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t row = 8 * group + 2 * (lane % 4) + i % 2, output = 2 * (lane / 4) + i / 2;
                float f = lanes[own].f[group][i];
                if (one->shape.scales == EXACT_SCALES_ROW)
                    f *= exact_float(exact_load_word(scales + 4 * output));
                if (row < part->rows && panel * 16 + output < one->rows)
                    linear_store(one, part->first_row + row, panel * 16 + output, f);
            }
    }
}

/* Block (rows of x, panels, which product). */
EXACT_INLINE void kernel_tile_units(const linear_batch *call, kernel_place *at) {
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
    part.steps = (one->k + units_step(&one->shape) * 32 - 1) / (units_step(&one->shape) * 32);
    tile_lane lanes[OWN_WARPS][OWN_LANES];
#define UNITS_OWN (lanes[OWN_WARPS == 1 ? 0 : warp_of(at)])
    for (uint32_t w = 0; w < OWN_WARPS; w++)
        for (uint32_t i = 0; i < OWN_LANES; i++)
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t j = 0; j < TILE_GROUPS * 4; j++)
                lanes[w][i].f[j / 4][j % 4] = 0.0f;
    CUDA_EACH(at,
              for (uint32_t step = 0; step + 1 < TILE_BUFFERS; step++) units_copy(&part, at, step));
    for (uint32_t step = 0; step < part.steps; step++) {
        CUDA_EACH(at, units_copy(&part, at, step + TILE_BUFFERS - 1);
                  COPY_WAIT(at, TILE_BUFFERS - 1));
        CUDA_WARPS(at, units_compute(&part, at, step, UNITS_OWN));
    }
    CUDA_WARPS(at, units_finish(&part, at, UNITS_OWN));
#undef UNITS_OWN
}

#endif
