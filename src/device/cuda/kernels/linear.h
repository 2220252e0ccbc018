/* Matrix products. A warp's lane is an output: two panels side by side. Integer sums over 32 k
 * (A8R: 256 k) do not depend on their order, so warps share them out; each leaves a pair of factors
 * in shared memory, and one warp per row of x adds up their products in the order of k, by fma.
 * Floats are one chain of fma per output. Formulas: device/cpu/activation.h. */
#ifndef AVO_DEVICE_CUDA_KERNELS_LINEAR_H
#define AVO_DEVICE_CUDA_KERNELS_LINEAR_H

#include "device/cuda/kernels/calls.h"
#include "device/cuda/kernels/place.h"

#define LANES 32

/* What a block computes. */
typedef struct linear_part {
    const linear_one *one;
    uint32_t first_row, rows; /* of x */
    uint32_t steps;           /* of k: 32, A8R: 256 each */
    uint32_t pairs;           /* factors of one step */
    uint32_t chunk;           /* steps whose factors fit shared memory */
} linear_part;

EXACT_INLINE const uint8_t *linear_panel(const linear_one *one, const kernel_place *at) {
    return one->data + (uint64_t)(2 * at->x + at->thread % LANES / 16) * one->panel_bytes;
}

EXACT_INLINE uint32_t linear_output(const kernel_place *at) {
    return at->x * LANES + at->thread % LANES;
}

/* Whether the lane's panel is there; its rows behind the last output are zero. */
EXACT_INLINE bool linear_there(const linear_one *one, const kernel_place *at) {
    return linear_output(at) / 16 * 16 < one->rows;
}

EXACT_INLINE float *linear_slot(const linear_part *part, const kernel_place *at, uint32_t step,
                                uint32_t row, uint32_t pair) {
    uint32_t slot = (step % part->chunk * part->rows + row) * part->pairs + pair;
    return at->shared + slot * 2 * LANES + at->thread % LANES;
}

EXACT_INLINE void linear_put(float *slot, float a, float b) {
    slot[0] = a;
    slot[LANES] = b;
}

/* ---- Factors of one step ---- */

EXACT_INLINE int32_t unit_sum(const exact_unit *unit, const int8_t *x, int half) {
    const uint32_t *four = (const uint32_t *)(const void *)x;
    int32_t sum = 0;
    for (int i = 4 * half; i < 4 * half + 4; i++)
        sum = exact_dot4(unit->word[i], four[i], sum);
    return sum;
}

EXACT_INLINE void terms_a8(const linear_part *part, const kernel_place *at, const exact_unit *unit,
                           uint32_t step, uint32_t row) {
    const form_call *x = &part->one->x;
    uint64_t own = part->first_row + row;
    const int8_t *number = x->number + own * x->stride + step * 32;
    const int32_t *sums = x->integer_sum + own * x->sum_stride + 2 * step;
    float scale = x->scale[own * x->scale_stride + step];
    bool minimum = part->one->shape.minimum;
    float *slot = linear_slot(part, at, step, row, 0);
    if (!part->one->shape.halves) {
        linear_put(slot, (float)(unit_sum(unit, number, 0) + unit_sum(unit, number, 1)),
                   unit->scale[0] * scale);
        if (minimum)
            linear_put(slot + 2 * LANES, unit->minimum[0], x->sum[own * x->scale_stride + step]);
        return;
    }
    for (int half = 0; half < 2; half++) {
        linear_put(slot, (float)unit_sum(unit, number, half), unit->scale[half] * scale);
        slot += 2 * LANES;
        if (minimum) {
            linear_put(slot, unit->minimum[half], scale * (float)sums[half]);
            slot += 2 * LANES;
        }
    }
}

EXACT_INLINE void terms_a16(const linear_part *part, const kernel_place *at, const exact_unit *unit,
                            uint32_t step, uint32_t row) {
    const form_call *x = &part->one->x;
    uint64_t own = part->first_row + row, number = own * x->stride + step * 32;
    int32_t high = unit_sum(unit, x->number + number, 0) + unit_sum(unit, x->number + number, 1);
    int32_t low = unit_sum(unit, x->low + number, 0) + unit_sum(unit, x->low + number, 1);
    float scale = x->scale[own * x->scale_stride + step];
    bool by_row = part->one->shape.scales == EXACT_SCALES_ROW;
    linear_put(linear_slot(part, at, step, row, 0), (float)(255 * high + low),
               by_row ? scale : unit->scale[0] * scale);
}

/* One step of all rows. */
EXACT_INLINE void terms_unit(const linear_part *part, const kernel_place *at, const uint8_t *panel,
                             uint32_t step) {
    const linear_one *one = part->one;
    exact_unit unit;
    exact_unit_read(&one->shape, panel, (one->k + 3) / 4, step, at->thread % 16, &unit);
    for (uint32_t row = 0; row < part->rows; row++)
        if (one->x.form == CALL_A8)
            terms_a8(part, at, &unit, step, row);
        else
            terms_a16(part, at, &unit, step, row);
}

EXACT_INLINE void terms_q8r(const linear_part *part, const kernel_place *at, const uint8_t *panel,
                            uint32_t step) {
    const linear_one *one = part->one;
    const form_call *x = &one->x;
    uint32_t units = (one->k + 31) / 32, end = step * 8 + 8 < units ? step * 8 + 8 : units;
    int32_t sum[LINEAR_ROWS] = {0, 0, 0, 0};
    for (uint32_t u = step * 8; u < end; u++) {
        exact_unit unit;
        exact_unit_read(&one->shape, panel, (one->k + 15) / 16 * 4, u, at->thread % 16, &unit);
        for (uint32_t row = 0; row < part->rows; row++) {
            const int8_t *number =
                x->number + (uint64_t)(part->first_row + row) * x->stride + u * 32;
            sum[row] += unit_sum(&unit, number, 0) + unit_sum(&unit, number, 1);
        }
    }
    for (uint32_t row = 0; row < part->rows; row++)
        linear_put(linear_slot(part, at, step, row, 0), (float)sum[row],
                   x->scale[(uint64_t)(part->first_row + row) * x->scale_stride + step]);
}

EXACT_INLINE void terms_q4r(const linear_part *part, const kernel_place *at, const uint8_t *panel,
                            uint32_t step) {
    const linear_one *one = part->one;
    const form_call *x = &one->x;
    const uint8_t *super = panel + (uint64_t)step * EXACT_Q4R_SUPER_LINES * EXACT_LINE;
    uint32_t left = one->k - step * 256, subs = left < 256 ? (left + 15) / 16 : 16;
    uint32_t lane = at->thread % 16;
    float scale = exact_from_half(exact_load_half(super + 2 * lane));
    for (uint32_t row = 0; row < part->rows; row++) {
        uint64_t own = part->first_row + row;
        const int8_t *number = x->number + own * x->stride + step * 256;
        const int32_t *sums = x->integer_sum + own * x->sum_stride + step * 16;
        int32_t sum = subs == 16 ? exact_q4r_sum(super, 16, lane, number, sums)
                                 : exact_q4r_sum(super, subs, lane, number, sums);
        linear_put(linear_slot(part, at, step, row, 0), (float)sum,
                   scale * x->scale[own * x->scale_stride + step]);
    }
}

/* ---- Stages ---- */

/* Steps [begin, end), shared out among the warps. */
EXACT_INLINE void linear_terms(const linear_part *part, const kernel_place *at, uint32_t begin,
                               uint32_t end, bool q4r) {
    if (!linear_there(part->one, at))
        return;
    const uint8_t *panel = linear_panel(part->one, at);
    for (uint32_t step = begin + at->thread / LANES; step < end; step += at->threads / LANES)
        if (q4r)
            terms_q4r(part, at, panel, step);
        else if (part->one->x.form == CALL_A8R)
            terms_q8r(part, at, panel, step);
        else
            terms_unit(part, at, panel, step);
}

EXACT_INLINE void linear_store(const linear_one *one, uint32_t row, uint32_t output, float f) {
    float *out = one->out + (uint64_t)row * one->out_stride + output;
    float y = one->bias == NULL ? f : f + one->bias[output];
    float scale = one->row_scale != NULL ? one->row_scale[row] : one->add_scale;
    *out = one->add ? fmaf(y, scale, *out) : y;
}

EXACT_INLINE void linear_finish(const linear_one *one, const kernel_place *at, uint32_t row,
                                float f) {
    linear_store(one, row, linear_output(at), f);
}

/* Of one warp per row: adds up steps [begin, end). */
EXACT_INLINE void linear_chain(const linear_part *part, const kernel_place *at, uint32_t begin,
                               uint32_t end) {
    const linear_one *one = part->one;
    uint32_t row = at->thread / LANES;
    if (row >= part->rows || linear_output(at) >= one->rows)
        return;
    float *kept = at->shared + LINEAR_SLOTS * 2 * LANES + at->thread;
    float f = begin == 0 ? 0.0f : *kept;
    for (uint32_t step = begin; step < end; step++)
        for (uint32_t pair = 0; pair < part->pairs; pair++) {
            const float *slot = linear_slot(part, at, step, row, pair);
            f = fmaf(slot[0], slot[LANES], f);
        }
    *kept = f;
    if (end < part->steps)
        return;
    if (one->shape.scales == EXACT_SCALES_ROW) {
        exact_unit unit;
        uint32_t lines = one->x.form == CALL_A8R ? (one->k + 15) / 16 * 4 : (one->k + 3) / 4;
        exact_unit_read(&one->shape, linear_panel(one, at), lines, 0, at->thread % 16, &unit);
        f *= unit.scale[0];
    }
    linear_finish(one, at, part->first_row + row, f);
}

/* False: the block has nothing to compute. */
EXACT_INLINE bool linear_part_of(const linear_batch *call, const kernel_place *at,
                                 uint32_t block_rows, linear_part *part) {
    const linear_one *one = &call->one[at->z];
    part->one = one;
    part->first_row = at->y * block_rows;
    if (at->x * LANES >= one->rows || part->first_row >= one->x_rows)
        return false;
    uint32_t left = one->x_rows - part->first_row;
    part->rows = left < block_rows ? left : block_rows;
    part->steps = one->x.form == CALL_A8R ? (one->k + 255) / 256 : (one->k + 31) / 32;
    part->pairs = one->x.form == CALL_A8
                      ? (one->shape.halves ? 2u : 1u) * (one->shape.minimum ? 2u : 1u)
                      : 1u;
    part->chunk = LINEAR_SLOTS / (part->rows * part->pairs);
    return true;
}

EXACT_INLINE void linear_integers(const linear_batch *call, kernel_place *at, bool q4r) {
    linear_part part;
    if (!linear_part_of(call, at, LINEAR_ROWS, &part))
        return;
    for (uint32_t begin = 0; begin < part.steps; begin += part.chunk) {
        uint32_t end = begin + part.chunk < part.steps ? begin + part.chunk : part.steps;
        CUDA_EACH(at, linear_terms(&part, at, begin, end, q4r));
        CUDA_EACH(at, linear_chain(&part, at, begin, end));
    }
}

EXACT_INLINE void kernel_linear_q4r(const linear_batch *call, kernel_place *at) {
    linear_integers(call, at, true);
}

EXACT_INLINE void kernel_linear_units(const linear_batch *call, kernel_place *at) {
    linear_integers(call, at, false);
}

/* ---- Floats ---- */

#define TYPE_F32  0 /* as quant_type */
#define TYPE_F16  1
#define TYPE_BF16 2

EXACT_INLINE float chain_words(const linear_one *one, const uint8_t *line, const float *x) {
    float f = 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll 8
#endif
    for (uint32_t i = 0; i < one->k; i++)
        f = fmaf(exact_float(exact_load_word(line + (uint64_t)i * EXACT_LINE)), x[i], f);
    return f;
}

EXACT_INLINE float chain_halves(const linear_one *one, const uint8_t *line, const float *x) {
    bool brain = one->type == TYPE_BF16;
    float f = 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll 8
#endif
    for (uint32_t i = 0; i < (one->k + 1) / 2; i++) {
        uint32_t pair = exact_load_word(line + (uint64_t)i * EXACT_LINE);
        uint16_t first = (uint16_t)pair, second = (uint16_t)(pair >> 16);
        f = fmaf(brain ? exact_from_brain(first) : exact_from_half(first), x[2 * i], f);
        if (2 * i + 1 < one->k)
            f = fmaf(brain ? exact_from_brain(second) : exact_from_half(second), x[2 * i + 1], f);
    }
    return f;
}

/* F8C. */
EXACT_INLINE float chain_bytes(const linear_one *one, const uint8_t *line, const float *x) {
    uint32_t lines = (one->k + 3) / 4;
    float f = 0.0f;
    for (uint32_t i = 0; i < lines; i++) {
        uint32_t four = exact_load_word(line + (uint64_t)i * EXACT_LINE);
        for (uint32_t j = 0; j < 4 && 4 * i + j < one->k; j++)
            f = fmaf(exact_from_e4m3((uint8_t)(four >> 8 * j)), x[4 * i + j], f);
    }
    return f * exact_float(exact_load_word(line + (uint64_t)lines * EXACT_LINE));
}

EXACT_INLINE void linear_floats(const linear_part *part, const kernel_place *at) {
    const linear_one *one = part->one;
    uint32_t row = at->thread / LANES;
    if (row >= part->rows || linear_output(at) >= one->rows)
        return;
    row += part->first_row;
    const uint8_t *line = linear_panel(one, at) + 4 * (at->thread % 16);
    const float *x = one->x.x + (uint64_t)row * one->x.stride;
    float f = one->type == TYPE_F32                             ? chain_words(one, line, x)
              : one->type == TYPE_F16 || one->type == TYPE_BF16 ? chain_halves(one, line, x)
                                                                : chain_bytes(one, line, x);
    linear_finish(one, at, row, f);
}

EXACT_INLINE void kernel_linear_float(const linear_batch *call, kernel_place *at) {
    linear_part part;
    if (linear_part_of(call, at, LINEAR_FLOAT_ROWS, &part))
        CUDA_EACH(at, linear_floats(&part, at));
}

#endif
