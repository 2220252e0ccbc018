/* Products of few rows with floats: one chain of fma for each output, as on the processor; weights
 * go through a ring in shared memory that all threads fill. */
#ifndef AVO_DEVICE_CUDA_KERNELS_FEW_FLOAT_H
#define AVO_DEVICE_CUDA_KERNELS_FEW_FLOAT_H

#include "device/cuda/kernels/few.h"

/* Weights go through a ring in shared memory: lines [step · lines, …) of all panels of a round. A
 * panel's part is followed by an unused line, so that two panels lie in different banks. */
EXACT_INLINE uint8_t *ring_at(const few_part *part, uint32_t step, uint32_t panel) {
    uint32_t bytes = (part->call->lines + 1) * EXACT_LINE;
    return (uint8_t *)(void *)part->desk.slots +
           (step % FEW_RING * part->call->together + panel) * bytes;
}

EXACT_INLINE void ring_fill(const few_part *part, const kernel_place *at, uint32_t round,
                            uint32_t step) {
    const few_call *call = part->call;
    uint32_t all = (call->input.k + 1) / 2, begin = step * call->lines;
    uint32_t lines = begin < all ? all - begin : 0;
    lines = lines < call->lines ? lines : call->lines;
    uint32_t first = part->first + round * call->together, panels = few_panels(part, round);
    for (uint32_t j = at->thread; j < panels * lines * 4; j += at->threads) {
        uint32_t panel = j / (lines * 4), place = j % (lines * 4) * 16;
        copy_begin(at, ring_at(part, step, panel) + place,
                   few_panel(call, first + panel) + (uint64_t)begin * EXACT_LINE + place);
    }
    copy_mark(at);
}

EXACT_INLINE float chain_pairs(uint32_t type, const uint8_t *line, const float *x, uint32_t pairs,
                               float f) {
#ifdef __CUDA_ARCH__
#pragma unroll 8
#endif
    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t pair = exact_load_word(line + i * EXACT_LINE);
        uint16_t a = (uint16_t)pair, b = (uint16_t)(pair >> 16);
        f = fmaf(type == TYPE_BF16 ? exact_from_brain(a) : exact_from_half(a), x[2 * i], f);
        f = fmaf(type == TYPE_BF16 ? exact_from_brain(b) : exact_from_half(b), x[2 * i + 1], f);
    }
    return f;
}

/* Of a thread for each output: the step's part of its chain. */
EXACT_INLINE void ring_chain(const few_part *part, const kernel_place *at, uint32_t round,
                             uint32_t step, float *kept) {
    const few_call *call = part->call;
    uint32_t outputs = few_panels(part, round) * 16, k = call->input.k;
    if (at->thread >= outputs * call->input.rows)
        return;
    uint32_t row = at->thread / outputs, panel = at->thread % outputs / 16;
    uint32_t begin = step * call->lines, pairs = k / 2 - begin;
    pairs = pairs < call->lines ? pairs : call->lines;
    const uint8_t *line = ring_at(part, step, panel) + 4 * (at->thread % 16);
    const float *x = part->desk.stage + row * part->desk.k + 2 * begin;
    float f = step == 0 ? 0.0f : kept[at->thread];
    f = call->type == TYPE_BF16 ? chain_pairs(TYPE_BF16, line, x, pairs, f)
                                : chain_pairs(TYPE_F16, line, x, pairs, f);
    if (k % 2 == 1 && pairs < call->lines && begin + pairs == k / 2) {
        uint16_t last = exact_load_half(line + pairs * EXACT_LINE);
        f = fmaf(call->type == TYPE_BF16 ? exact_from_brain(last) : exact_from_half(last),
                 x[2 * pairs], f);
    }
    kept[at->thread] = f;
}

EXACT_INLINE void ring_outputs(const few_part *part, const kernel_place *at, uint32_t round,
                               const float *kept) {
    const few_call *call = part->call;
    uint32_t outputs = few_panels(part, round) * 16, each = call->paired ? 32 : 16;
    uint32_t row = at->thread / outputs, inside = at->thread % outputs;
    if (at->thread >= outputs * call->input.rows || inside % each >= 16)
        return;
    few_place place =
        few_place_of(call, part->first + round * call->together + inside / 16, row, inside % 16);
    few_store(call, &place, kept[at->thread], call->paired ? kept[at->thread + 16] : 0.0f);
}

EXACT_INLINE void kernel_few_float(const few_call *call, kernel_place *at) {
    few_part part;
    uint32_t all = (call->input.k + 1) / 2, steps = (all + call->lines - 1) / call->lines;
    part.call = call;
    part.chunks = 1;
    few_desk_lay(&call->input, at->shared, &part.desk);
    few_share(&part, at, at->blocks);
    place_let_next();
    CUDA_EACH(at, few_ahead(&part, at); input_early(&call->input, at, &part.desk));
    place_wait();
    input_make(&call->input, at, &part.desk);
    float *kept = part.desk.slots + FEW_RING * call->together * (call->lines + 1) * EXACT_LINE / 4;
    uint32_t rounds = few_groups(&part);
    for (uint32_t round = 0; round < rounds; round++) {
        CUDA_EACH(at, for (uint32_t step = 0; step + 1 < FEW_RING; step++)
                          ring_fill(&part, at, round, step);
                  COPY_WAIT(at, FEW_RING - 2));
        for (uint32_t step = 0; step < steps; step++)
            CUDA_EACH(at, ring_fill(&part, at, round, step + FEW_RING - 1);
                      ring_chain(&part, at, round, step, kept); COPY_WAIT(at, FEW_RING - 2));
        CUDA_EACH(at, ring_outputs(&part, at, round, kept); COPY_WAIT(at, 0));
    }
}

#endif
