/* Products of few rows, as decoding has them. A block takes its share of all panels, in one piece
 * of memory; its warps share the pieces of about 2 KB out. A lane loads 16 bytes, which are four
 * outputs; integer sums over a step of k are added up across lanes and left in shared memory with
 * their factor, a slot for 16 outputs, and a thread for each output adds them up in the order of k,
 * by fma, while the others are at the next panels. On an H200, of 8B's matrices with one row: gate
 * and up in Q4R 26.5 us, 2.4 TB/s; down 20.5 us, 1.6 TB/s (docs/cuda.md). */
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

/* `near`: from shared memory. */
EXACT_INLINE exact_words piece_words(const uint8_t *from, bool near) {
    return near ? exact_load_words(from) : load_weights(from);
}

EXACT_INLINE void q4r_load(const few_call *call, const kernel_place *at, const uint8_t *super,
                           uint32_t piece, bool near, few_piece *out) {
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
                mine->line[2 * pass] = piece_words(lines, near);
                mine->line[2 * pass + 1] = piece_words(lines + EXACT_LINE, near);
                mine->extra[2 * pass] =
                    exact_load_word(super + EXACT_LINE + sub / 2 * 16 + 4 * four);
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
EXACT_INLINE void q8b_load(const few_call *call, const kernel_place *at, const uint8_t *groups,
                           uint32_t piece, bool near, few_piece *out) {
    uint32_t steps = (call->input.k + 31) / 32;
    EACH_LANE(at, own) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 4; i++) {
            const uint8_t *head = groups + i / 2 * 17 * EXACT_LINE;
            if (4 * piece + i < steps) {
                out[own].line[i] =
                    piece_words(head + EXACT_LINE + i % 2 * 8 * EXACT_LINE + 16 * lane, near);
                out[own].extra[i] = exact_load_half(head + i % 2 * 32 + 2 * lane_output(lane));
            } else {
                for (uint32_t j = 0; j < 4; j++)
                    out[own].line[i].word[j] = 0;
                out[own].extra[i] = 0;
            }
        }
    }
}

EXACT_INLINE uint32_t piece_bytes(bool q4r) {
    return (q4r ? EXACT_Q4R_SUPER_LINES : 34) * EXACT_LINE;
}

/* Piece number `piece` of a panel. */
EXACT_INLINE void piece_load(const few_call *call, const kernel_place *at, const uint8_t *data,
                             uint32_t piece, bool q4r, bool near, few_piece *out) {
    if (q4r)
        q4r_load(call, at, data, piece, near, out);
    else
        q8b_load(call, at, data, piece, near, out);
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

/* A sum and its factor into their slot, or, where the warp has all of the panel's k, into the chain
 * of its output, which lies in the first half of a slot. */
EXACT_INLINE void few_term(const few_call *call, const kernel_place *at, float *slot,
                           const int32_t *sum, const float *factor) {
    EACH_LANE(at, own) if ((lane & 4) == 0) {
        uint32_t output = lane_output(lane);
        if (call->whole) {
            slot[output] = fmaf((float)sum[own], factor[own], slot[output]);
        } else {
            slot[2 * output] = (float)sum[own];
            slot[2 * output + 1] = factor[own];
        }
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
            uint32_t multipliers = mine->extra[2 * pass] >> sub % 2 * 4;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t a = mine->line[2 * pass].word[i], b = mine->line[2 * pass + 1].word[i];
                int32_t s = exact_dot4(a & 0x0f0f0f0fu, own_x.word[0], offset);
                s = exact_dot4(a >> 4 & 0x0f0f0f0fu, own_x.word[1], s);
                s = exact_dot4(b & 0x0f0f0f0fu, own_x.word[2], s);
                s = exact_dot4(b >> 4 & 0x0f0f0f0fu, own_x.word[3], s);
                int32_t m = (int32_t)(multipliers >> 8 * i & 15);
                sums[own].of[i] += (signs >> i & 1 ? -m : m) * s;
            }
        }
        factor[own] = exact_from_half((uint16_t)mine->scale) * x_scale;
    }
    lanes_join(at, sums, sum);
    few_term(part->call, at, slot, sum, factor);
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
        few_term(part->call, at, slot + (part->call->whole ? 0 : i * SLOT), sum, factor);
    }
}

/* ---- Rounds ---- */

EXACT_INLINE float *few_slot(const few_part *part, uint32_t round, uint32_t row, uint32_t panel,
                             uint32_t step) {
    const few_call *call = part->call;
    uint32_t rows = call->input.rows;
    uint32_t slot = (round % 2 * rows + row) * call->together + panel;
    return part->desk.slots + (call->whole ? slot * 16 : (slot * part->steps + step) * SLOT);
}

/* Panels of a round. */
EXACT_INLINE uint32_t few_panels(const few_part *part, uint32_t round) {
    uint32_t left = part->end - part->first - round * part->call->together;
    return left < part->call->together ? left : part->call->together;
}

/* Where a warp is: pieces that it takes one after the other. */
typedef struct few_walk {
    uint32_t panel, piece; /* of the round */
} few_walk;

/* The warp's first piece of a round. */
EXACT_INLINE few_walk few_first(const few_call *call, const kernel_place *at, uint32_t pieces) {
    few_walk walk = {warp_of(at), 0};
    if (!call->whole) {
        walk.panel = warp_of(at) / pieces;
        walk.piece = warp_of(at) % pieces;
    }
    return walk;
}

EXACT_INLINE void few_next(const few_part *part, const kernel_place *at, few_walk *walk) {
    walk->piece += part->call->whole ? 1 : warps_of(at);
    while (walk->piece >= part->pieces) {
        walk->piece -= part->pieces;
        walk->panel += part->call->whole ? warps_of(at) : 1;
    }
}

EXACT_INLINE void few_load(const few_part *part, const kernel_place *at, uint32_t round,
                           const few_walk *walk, bool q4r, few_piece *out) {
    uint32_t panel = part->first + round * part->call->together + walk->panel;
    const uint8_t *data = few_panel(part->call, panel);
    piece_load(part->call, at, data + (uint64_t)walk->piece * piece_bytes(q4r), walk->piece, q4r,
               false, out);
}

EXACT_INLINE void few_clear(const few_part *part, const kernel_place *at, uint32_t round,
                            uint32_t panel) {
    for (uint32_t row = 0; row < part->call->input.rows; row++) {
        float *slot = few_slot(part, round, row, panel, 0);
        EACH_LANE(at, own) if ((lane & 4) == 0) slot[lane_output(lane)] = 0.0f;
    }
}

/* What a piece gives to the sums of its panel, of all rows. */
EXACT_INLINE void piece_compute(const few_part *part, const kernel_place *at,
                                const few_piece *piece, const few_walk *own, uint32_t round,
                                bool q4r) {
    if (part->call->whole && own->piece == 0)
        few_clear(part, at, round, own->panel);
    for (uint32_t row = 0; row < part->call->input.rows; row++)
        if (q4r)
            q4r_compute(part, at, piece, own->piece, row,
                        few_slot(part, round, row, own->panel, own->piece));
        else
            q8b_compute(part, at, piece, 4 * own->piece, row,
                        few_slot(part, round, row, own->panel, 4 * own->piece));
}

EXACT_INLINE void few_terms(const few_part *part, const kernel_place *at, uint32_t round,
                            bool q4r) {
    uint32_t panels = few_panels(part, round);
    few_piece piece[OWN_LANES], next[OWN_LANES];
    few_walk own = few_first(part->call, at, part->pieces), ahead;
    if (own.panel < panels)
        few_load(part, at, round, &own, q4r, next);
    for (; own.panel < panels; own = ahead) {
        for (uint32_t i = 0; i < OWN_LANES; i++)
            piece[i] = next[i];
        ahead = own;
        few_next(part, at, &ahead);
        if (ahead.panel < panels)
            few_load(part, at, round, &ahead, q4r, next);
        piece_compute(part, at, piece, &own, round, q4r);
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
        y = input_activation(call->activation, few_biased(&call->one[1], output, gate)) * y;
    *out = one->add ? fmaf(y, one->add_scale, load_fresh(out)) : y;
}

EXACT_INLINE float few_sum(const few_part *part, uint32_t round, uint32_t row, uint32_t panel,
                           uint32_t lane) {
    const float *slot = few_slot(part, round, row, panel, 0);
    return part->call->whole ? slot[lane] : few_chain(slot + 2 * lane, part->steps);
}

/* Of all threads: outputs of a round whose slots are filled. */
EXACT_INLINE void few_outputs(const few_part *part, const kernel_place *at, uint32_t round) {
    const few_call *call = part->call;
    uint32_t panels = few_panels(part, round), each = call->paired ? 2 : 1;
    uint32_t outputs = panels / each * 16, first = part->first + round * call->together;
    for (uint32_t j = at->thread; j < outputs * call->input.rows; j += at->threads) {
        uint32_t row = j / outputs, panel = j % outputs / 16 * each, lane = j % 16;
        float f = few_sum(part, round, row, panel, lane);
        float gate = call->paired ? few_sum(part, round, row, panel + 1, lane) : 0.0f;
        few_store(call, first + panel, row, lane, f, gate);
    }
}

/* Outputs of the round in front, by the threads of a warp. */
EXACT_INLINE void few_before(const few_part *part, kernel_place *at, uint32_t round) {
#ifdef __CUDACC__
    if (round > 0)
        few_outputs(part, at, round - 1);
#else
    uint32_t thread = at->thread;
    for (; round > 0 && at->thread < thread + WARP; at->thread++)
        few_outputs(part, at, round - 1);
    at->thread = thread;
#endif
}

EXACT_INLINE void few_round(const few_part *part, kernel_place *at, uint32_t round, uint32_t rounds,
                            bool q4r) {
    few_before(part, at, round);
    if (round < rounds)
        few_terms(part, at, round, q4r);
}

/* The part of few_call that a block computes; its shared memory begins at `shared`. */
EXACT_INLINE void few_open(const few_call *call, const kernel_place *at, float *shared, bool q4r,
                           few_part *part) {
    uint32_t k = call->input.k;
    part->call = call;
    part->steps = q4r ? (k + 255) / 256 : (k + 31) / 32;
    part->pieces = q4r ? part->steps : (part->steps + 3) / 4;
    few_desk_lay(&call->input, shared, &part->desk);
    few_share(part, at, at->blocks);
}

/* The weights that the block reads first. */
EXACT_INLINE void few_ahead(const few_part *part, const kernel_place *at) {
    const few_call *call = part->call;
    uint32_t together = call->paired ? 2 : 1, begin = part->first / together;
    uint32_t end = part->end / together;
    uint64_t left = call->ahead / together / 16 * 16;
    for (uint32_t i = 0; i < call->matrices; i++) {
        uint32_t panels = call->one[i].panels, last = end < panels ? end : panels;
        if (begin < last) {
            uint64_t bytes = (last - begin) * call->panel_bytes;
            bytes = bytes < left ? bytes : left;
            load_ahead(at->thread, at->threads, call->one[i].data + begin * call->panel_bytes,
                       bytes);
            left -= call->paired ? 0 : bytes;
        }
        if (call->paired)
            continue;
        begin = begin < panels ? 0 : begin - panels;
        end = end < panels ? 0 : end - panels;
    }
}

EXACT_INLINE uint32_t few_rounds(const few_part *part) {
    return (part->end - part->first + part->call->together - 1) / part->call->together;
}

EXACT_INLINE void few_begin(const few_call *call, kernel_place *at, bool q4r, few_part *part) {
    few_open(call, at, at->shared, q4r, part);
    place_let_next();
    CUDA_EACH(at, few_ahead(part, at); input_early(&call->input, at, &part->desk));
    place_wait();
    input_make(&call->input, at, &part->desk);
}

EXACT_INLINE void few_integers(const few_call *call, kernel_place *at, bool q4r) {
    few_part part;
    few_begin(call, at, q4r, &part);
    uint32_t rounds = few_rounds(&part);
    for (uint32_t round = 0; round <= rounds; round++)
        CUDA_WARPS(at, few_round(&part, at, round, rounds, q4r));
}

EXACT_INLINE void kernel_few_q4r(const few_call *call, kernel_place *at) {
    few_integers(call, at, true);
}

EXACT_INLINE void kernel_few_q8b(const few_call *call, kernel_place *at) {
    few_integers(call, at, false);
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
    few_begin(call, at, false, &part);
    float *kept = part.desk.slots + FEW_RING * call->together * (call->lines + 1) * EXACT_LINE / 4;
    uint32_t rounds = few_rounds(&part);
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
