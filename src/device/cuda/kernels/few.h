/* Products of few rows, as decoding has them. A block takes its share of all panels, in one piece
 * of memory; its warps share the pieces of about 2 KB out. A lane loads 16 bytes, which are four
 * outputs; integer sums over a step of k are added up across lanes and left in shared memory with
 * their factor, a slot for 16 outputs, and a thread for each output adds them up in the order of k,
 * by fma, while the others are at the next panels. */
#ifndef AVO_DEVICE_CUDA_KERNELS_FEW_H
#define AVO_DEVICE_CUDA_KERNELS_FEW_H

#include "device/cuda/kernels/input.h"
#include "device/cuda/kernels/linear.h"

#define SLOT 32 /* words: pairs of 16 outputs */

typedef struct few_part {
    const few_call *call;
    few_desk desk;
    uint32_t first, end;    /* panels of the block */
    uint32_t steps, pieces; /* of a panel */
} few_part;

/* ---- Which panel ---- */

EXACT_INLINE const few_matrix *few_matrix_of(const few_call *call, uint32_t panel,
                                             uint32_t *inside) {
    if (call->paired) {
        *inside = panel / 2;
        return &call->one[panel % 2];
    }
    uint32_t i = 0;
    while (i + 1 < call->matrices && panel >= call->one[i].panels)
        panel -= call->one[i++].panels;
    *inside = panel;
    return &call->one[i];
}

EXACT_INLINE const uint8_t *few_panel(const few_call *call, uint32_t panel) {
    uint32_t inside;
    const few_matrix *one = few_matrix_of(call, panel, &inside);
    return one->data + inside * call->panel_bytes;
}

EXACT_INLINE void few_share(few_part *part, const kernel_place *at, uint32_t blocks) {
    uint32_t together = part->call->paired ? 2 : 1, all = part->call->panels / together;
    part->first = (uint32_t)((uint64_t)all * at->x / blocks) * together;
    part->end = (uint32_t)((uint64_t)all * (at->x + 1) / blocks) * together;
}

/* The first `ahead` bytes of what the block will read. */
EXACT_INLINE void few_ahead(const few_part *part, const kernel_place *at) {
    const few_call *call = part->call;
    uint64_t left = call->ahead;
    uint32_t streams = call->paired ? 2 : 1;
    for (uint32_t i = 0; i < streams; i++) {
        uint64_t own = left / streams;
        for (uint32_t panel = part->first + i; panel < part->end && own > 0;) {
            uint32_t inside, count;
            const few_matrix *one = few_matrix_of(call, panel, &inside);
            count = call->paired ? (part->end - part->first) / 2 : one->panels - inside;
            if (!call->paired && count > part->end - panel)
                count = part->end - panel;
            uint64_t bytes = count * call->panel_bytes;
            bytes = bytes < own ? bytes : own;
            load_ahead(at, one->data + inside * call->panel_bytes, bytes / 16 * 16);
            own -= bytes;
            panel += call->paired ? part->end : count;
        }
    }
}

/* ---- Pieces: what a warp loads at once ---- */

typedef struct few_piece {
    exact_words line[4];
    uint32_t extra[4]; /* Q4R: multipliers and signs, twice; else scales */
    uint32_t scale;    /* Q4R */
} few_piece;

/* The output whose sum a lane has in the end. */
EXACT_INLINE uint32_t lane_output(uint32_t lane) {
    return 4 * (lane % 4) + 2 * (lane >> 4) + (lane >> 3 & 1);
}

EXACT_INLINE void q4r_load(const few_call *call, const kernel_place *at, const uint8_t *panel,
                           uint32_t piece, few_piece *out) {
    const uint8_t *super = panel + (uint64_t)piece * EXACT_Q4R_SUPER_LINES * EXACT_LINE;
    uint32_t left = call->input.k - piece * 256, subs = left < 256 ? (left + 15) / 16 : 16;
    EACH_LANE(at, own) {
        few_piece *mine = &out[own];
        uint32_t four = lane % 4;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t pass = 0; pass < 2; pass++) {
            uint32_t sub = 8 * pass + lane / 4;
            if (sub < subs) {
                const uint8_t *lines =
                    super + (subs <= 8 ? 2 : 3) * EXACT_LINE + sub * 2 * EXACT_LINE + 16 * four;
                mine->line[2 * pass] = load_weights(lines);
                mine->line[2 * pass + 1] = load_weights(lines + EXACT_LINE);
                mine->extra[2 * pass] =
                    exact_load_word(super + EXACT_LINE + sub / 2 * 16 + 4 * four) >> sub % 2 * 4;
                mine->extra[2 * pass + 1] = exact_load_half(super + 32 + 2 * sub);
            } else {
                for (uint32_t i = 0; i < 4; i++)
                    mine->line[2 * pass].word[i] = mine->line[2 * pass + 1].word[i] = 0;
                mine->extra[2 * pass] = mine->extra[2 * pass + 1] = 0;
            }
        }
        mine->scale = exact_load_half(super + 2 * lane_output(lane));
    }
}

/* Groups of 64 k behind a line of scales: two of them. */
EXACT_INLINE void q8b_load(const few_call *call, const kernel_place *at, const uint8_t *panel,
                           uint32_t piece, few_piece *out) {
    uint32_t steps = (call->input.k + 31) / 32;
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 4; i++) {
            const uint8_t *head = panel + (uint64_t)(2 * piece + i / 2) * 17 * EXACT_LINE;
            if (4 * piece + i < steps) {
                out[own].line[i] =
                    load_weights(head + EXACT_LINE + i % 2 * 8 * EXACT_LINE + 16 * lane);
                out[own].extra[i] = exact_load_half(head + i % 2 * 32 + 2 * lane_output(lane));
            } else {
                for (uint32_t j = 0; j < 4; j++)
                    out[own].line[i].word[j] = 0;
                out[own].extra[i] = 0;
            }
        }
    }
}

typedef struct lane_sums {
    int32_t of[4]; /* outputs */
} lane_sums;

/* Over the eight lanes that have the same four outputs; lane_output says whose sum stays. */
EXACT_INLINE void lanes_join(const kernel_place *at, const lane_sums *sums, int32_t *out) {
    uint32_t given[OWN_LANES], taken[OWN_LANES], kept[2][OWN_LANES];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < 2; i++) {
        EACH_LANE(at, own) {
            bool upper = lane >> 4 != 0;
            given[own] = (uint32_t)(upper ? sums[own].of[i] : sums[own].of[2 + i]);
            kept[i][own] = (uint32_t)(upper ? sums[own].of[2 + i] : sums[own].of[i]);
        }
        exchange_words(given, 16, taken);
        EACH_LANE(at, own) {
            kept[i][own] += taken[own];
        }
    }
    EACH_LANE(at, own) {
        bool upper = (lane >> 3 & 1) != 0;
        given[own] = upper ? kept[0][own] : kept[1][own];
        kept[0][own] = upper ? kept[1][own] : kept[0][own];
    }
    exchange_words(given, 8, taken);
    EACH_LANE(at, own) {
        kept[0][own] += taken[own];
    }
    exchange_words(kept[0], 4, taken);
    EACH_LANE(at, own) {
        out[own] = (int32_t)(kept[0][own] + taken[own]);
    }
}

EXACT_INLINE void slot_put(const kernel_place *at, float *slot, const int32_t *sum,
                           const float *factor) {
    EACH_LANE(at, own) if ((lane & 4) == 0) {
        float *pair = slot + 2 * lane_output(lane);
        pair[0] = (float)sum[own];
        pair[1] = factor[own];
    }
}

EXACT_INLINE void q4r_compute(const few_part *part, const kernel_place *at, const few_piece *piece,
                              uint32_t step, uint32_t row, float *slot) {
    const few_desk *desk = &part->desk;
    const int8_t *x = desk->number + row * desk->k + step * 256;
    const int32_t *x_sums = desk->sums + (row * desk->k + step * 256) / 16;
    float x_scale = desk->scale[row * desk->scales + step], factor[OWN_LANES];
    lane_sums sums[OWN_LANES];
    int32_t sum[OWN_LANES];
    EACH_LANE(at, own) {
        const few_piece *mine = &piece[own];
        uint32_t four = lane % 4;
        for (uint32_t i = 0; i < 4; i++)
            sums[own].of[i] = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t pass = 0; pass < 2; pass++) {
            uint32_t sub = 8 * pass + lane / 4;
            exact_words own_x = exact_load_words(x + sub * 16);
            int32_t offset = -8 * x_sums[sub];
            uint32_t signs = mine->extra[2 * pass + 1] >> 4 * four;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t a = mine->line[2 * pass].word[i], b = mine->line[2 * pass + 1].word[i];
                int32_t s = exact_dot4(a & 0x0f0f0f0fu, own_x.word[0], offset);
                s = exact_dot4(a >> 4 & 0x0f0f0f0fu, own_x.word[1], s);
                s = exact_dot4(b & 0x0f0f0f0fu, own_x.word[2], s);
                s = exact_dot4(b >> 4 & 0x0f0f0f0fu, own_x.word[3], s);
                int32_t m = (int32_t)(mine->extra[2 * pass] >> 8 * i & 15);
                sums[own].of[i] += (signs >> i & 1 ? -m : m) * s;
            }
        }
        factor[own] = exact_from_half((uint16_t)mine->scale) * x_scale;
    }
    lanes_join(at, sums, sum);
    slot_put(at, slot, sum, factor);
}

EXACT_INLINE void q8b_compute(const few_part *part, const kernel_place *at, const few_piece *piece,
                              uint32_t first, uint32_t row, float *slot) {
    const few_desk *desk = &part->desk;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t step = first + i;
        if (step >= part->steps)
            break;
        uint32_t place = row * desk->k + step * 32;
        float x_scale = desk->scale[row * desk->scales + step], factor[OWN_LANES];
        lane_sums sums[OWN_LANES];
        int32_t sum[OWN_LANES];
        EACH_LANE(at, own) {
            uint32_t high = *(const uint32_t *)(const void *)(desk->number + place + lane / 4 * 4);
            uint32_t low = *(const uint32_t *)(const void *)(desk->low + place + lane / 4 * 4);
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t w = piece[own].line[i].word[j];
                sums[own].of[j] = 255 * exact_dot4(w, high, 0) + exact_dot4(w, low, 0);
            }
            factor[own] = exact_from_half((uint16_t)piece[own].extra[i]) * x_scale;
        }
        lanes_join(at, sums, sum);
        slot_put(at, slot + i * SLOT, sum, factor);
    }
}

/* ---- Rounds ---- */

EXACT_INLINE float *few_slot(const few_part *part, uint32_t round, uint32_t row, uint32_t panel,
                             uint32_t step) {
    uint32_t together = part->call->together, rows = part->call->input.rows;
    uint32_t slot = ((round % 2 * rows + row) * together + panel) * part->steps + step;
    return part->desk.slots + (uint64_t)slot * SLOT;
}

/* Panels of a round. */
EXACT_INLINE uint32_t few_panels(const few_part *part, uint32_t round) {
    uint32_t left = part->end - part->first - round * part->call->together;
    return left < part->call->together ? left : part->call->together;
}

EXACT_INLINE void few_load(const few_part *part, const kernel_place *at, uint32_t round,
                           uint32_t unit, bool q4r, few_piece *out) {
    uint32_t panel = part->first + round * part->call->together + unit / part->pieces;
    const uint8_t *data = few_panel(part->call, panel);
    if (q4r)
        q4r_load(part->call, at, data, unit % part->pieces, out);
    else
        q8b_load(part->call, at, data, unit % part->pieces, out);
}

EXACT_INLINE void few_terms(const few_part *part, const kernel_place *at, uint32_t round,
                            bool q4r) {
    uint32_t units = few_panels(part, round) * part->pieces, unit = warp_of(at);
    few_piece piece[OWN_LANES], next[OWN_LANES];
    if (unit < units)
        few_load(part, at, round, unit, q4r, next);
    while (unit < units) {
        uint32_t own_panel = unit / part->pieces, own_piece = unit % part->pieces;
        for (uint32_t i = 0; i < OWN_LANES; i++)
            piece[i] = next[i];
        unit += warps_of(at);
        if (unit < units)
            few_load(part, at, round, unit, q4r, next);
        for (uint32_t row = 0; row < part->call->input.rows; row++)
            if (q4r)
                q4r_compute(part, at, piece, own_piece, row,
                            few_slot(part, round, row, own_panel, own_piece));
            else
                q8b_compute(part, at, piece, 4 * own_piece, row,
                            few_slot(part, round, row, own_panel, 4 * own_piece));
    }
}

EXACT_INLINE float few_chain(const float *slot, uint32_t steps) {
    float f = 0.0f;
#ifdef __CUDA_ARCH__
#pragma unroll 8
#endif
    for (uint32_t step = 0; step < steps; step++)
        f = fmaf(slot[step * SLOT], slot[step * SLOT + 1], f);
    return f;
}

EXACT_INLINE float few_biased(const few_matrix *one, uint32_t output, float f) {
    return one->bias == NULL ? f : f + one->bias[output];
}

EXACT_INLINE void few_store(const few_call *call, uint32_t panel, uint32_t row, uint32_t lane,
                            float f, float gate) {
    uint32_t inside;
    const few_matrix *one = few_matrix_of(call, panel, &inside);
    uint32_t output = inside * 16 + lane;
    if (output >= one->outputs)
        return;
    float *out = one->out + (uint64_t)row * one->out_stride + output;
    float y = few_biased(one, output, f);
    if (call->paired)
        y = exact_activation(call->activation, few_biased(&call->one[1], output, gate)) * y;
    *out = one->add ? fmaf(y, one->add_scale, load_fresh(out)) : y;
}

/* Of all threads: outputs of a round whose slots are filled. */
EXACT_INLINE void few_outputs(const few_part *part, const kernel_place *at, uint32_t round) {
    const few_call *call = part->call;
    uint32_t panels = few_panels(part, round), each = call->paired ? 2 : 1;
    uint32_t outputs = panels / each * 16, first = part->first + round * call->together;
    for (uint32_t j = at->thread; j < outputs * call->input.rows; j += at->threads) {
        uint32_t row = j / outputs, panel = j % outputs / 16 * each, lane = j % 16;
        float f = few_chain(few_slot(part, round, row, panel, 0) + 2 * lane, part->steps);
        float gate = call->paired ? few_chain(few_slot(part, round, row, panel + 1, 0) + 2 * lane,
                                              part->steps)
                                  : 0.0f;
        few_store(call, first + panel, row, lane, f, gate);
    }
}

EXACT_INLINE void few_round(const few_part *part, kernel_place *at, uint32_t round, uint32_t rounds,
                            bool q4r) {
#ifdef __CUDACC__
    if (round > 0)
        few_outputs(part, at, round - 1);
#else
    uint32_t thread = at->thread;
    for (; round > 0 && at->thread < thread + WARP; at->thread++)
        few_outputs(part, at, round - 1);
    at->thread = thread;
#endif
    if (round < rounds)
        few_terms(part, at, round, q4r);
}

EXACT_INLINE void few_begin(const few_call *call, kernel_place *at, uint32_t blocks,
                            few_part *part) {
    part->call = call;
    few_desk_lay(&call->input, at->shared, &part->desk);
    few_share(part, at, blocks);
    place_let_next();
    CUDA_EACH(at, few_ahead(part, at); input_early(&call->input, at, &part->desk));
    place_wait();
    input_make(&call->input, at, &part->desk);
}

EXACT_INLINE void few_integers(const few_call *call, kernel_place *at, uint32_t blocks, bool q4r) {
    few_part part;
    uint32_t k = call->input.k;
    part.steps = q4r ? (k + 255) / 256 : (k + 31) / 32;
    part.pieces = q4r ? part.steps : (part.steps + 3) / 4;
    few_begin(call, at, blocks, &part);
    uint32_t rounds = (part.end - part.first + call->together - 1) / call->together;
    for (uint32_t round = 0; round <= rounds; round++)
        CUDA_WARPS(at, few_round(&part, at, round, rounds, q4r));
}

EXACT_INLINE void kernel_few_q4r(const few_call *call, kernel_place *at) {
    few_integers(call, at, at->blocks, true);
}

EXACT_INLINE void kernel_few_q8b(const few_call *call, kernel_place *at) {
    few_integers(call, at, at->blocks, false);
}

/* The same with twice the registers, and no room for the next kernel beside it. */
EXACT_INLINE void kernel_few_q4r_wide(const few_call *call, kernel_place *at) {
    few_integers(call, at, at->blocks, true);
}

EXACT_INLINE void kernel_few_q8b_wide(const few_call *call, kernel_place *at) {
    few_integers(call, at, at->blocks, false);
}

/* ---- Floats: one chain of fma for each output ---- */

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
    few_store(call, part->first + round * call->together + inside / 16, row, inside % 16,
              kept[at->thread], call->paired ? kept[at->thread + 16] : 0.0f);
}

EXACT_INLINE void kernel_few_float(const few_call *call, kernel_place *at) {
    few_part part;
    uint32_t all = (call->input.k + 1) / 2, steps = (all + call->lines - 1) / call->lines;
    few_begin(call, at, at->blocks, &part);
    float *kept = part.desk.slots + FEW_RING * call->together * (call->lines + 1) * EXACT_LINE / 4;
    uint32_t rounds = (part.end - part.first + call->together - 1) / call->together;
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
