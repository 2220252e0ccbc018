/* Products of few rows, as decoding has them. A block takes its share of all panels, in one piece
 * of memory; its warps share the pieces of about 2 KB out and have them copied to shared memory
 * ahead (pipe.h), also before the kernel in front has ended. Integers go through the tensor cores,
 * 16 outputs, 8 rows and 32 k at a time: any order of them is exact. Of Q4R a number times its
 * multiplier fits a byte, of 8 bits the two halves of a row's numbers are rows of their own. Sums
 * over a step of k are left in shared memory with their factor, and a thread for each output adds
 * them up in the order of k, by fma; or, where a block has many panels, a warp has all of a panel's
 * k and adds them up itself. */
#ifndef AVO_DEVICE_CUDA_KERNELS_FEW_H
#define AVO_DEVICE_CUDA_KERNELS_FEW_H

#include "device/cuda/kernels/input.h"
#include "device/cuda/kernels/linear.h"
#include "device/cuda/kernels/pipe.h"

#define SLOT 32 /* words: pairs of 16 outputs */

/* Where a warp is: pieces that it takes one after the other. */
typedef struct few_walk {
    uint32_t panel, piece; /* of the round */
} few_walk;

/* A piece of the sequence of a warp: those of all rounds. */
typedef struct few_cursor {
    uint32_t round, panels, span; /* of the round: its panels, and pieces of each */
    few_walk at;
} few_cursor;

/* What a warp keeps from one round to the next. */
typedef struct few_warp {
    few_cursor ahead;     /* what is asked for next */
    uint32_t place, turn; /* of the pipe: what is used next, and how often it went round, mod 2 */
    uint32_t group;       /* first panel of the round that is asked for */
    uint32_t chunk;       /* first piece */
    uint32_t unused[3];
} few_warp;

typedef struct few_part {
    const few_call *call;
    few_desk desk;
    weight_pipe pipe;
    few_warp *warp;          /* [warps] */
    const uint8_t **source;  /* [own] panels of the block */
    uint32_t first, end;     /* panels of the block */
    uint32_t steps, pieces;  /* of a panel */
    uint32_t rounds, chunks; /* rounds of the same panels */
} few_part;

/* In words, of what is in front of the slots; base NULL: it counts. */
EXACT_INLINE uint32_t few_lay(const few_call *call, uint32_t warps, float *base, few_part *part) {
    uint32_t at = pipe_lay(call->depth, warps, base, &part->pipe);
    part->warp = (few_warp *)(void *)(base + at);
    at += warps * (uint32_t)(sizeof(few_warp) / 4);
    part->source = (const uint8_t **)(void *)(base + at);
    at += (call->own * 2 + 3) / 4 * 4;
    return at + few_desk_lay(&call->input, base + at, &part->desk);
}

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
    part->first = all * at->x / blocks * together; /* panels of a matrix: at most 2^20 */
    part->end = all * (at->x + 1) / blocks * together;
}

/* ---- Tensor cores ---- */

typedef struct few_words {
    uint32_t of[4];
} few_words;

/* Of a lane: outputs 2 (lane / 4) and the next, of columns 2 (lane % 4) and the next each. */
typedef struct few_sums {
    int32_t of[4];
} few_sums;

/* One of four products of a row of a and a column of b; a is unsigned bytes or not. */
EXACT_INLINE int32_t few_dot4(uint32_t a, uint32_t b, bool is_signed, int32_t sum) {
    for (uint32_t i = 0; i < 4; i++) {
        int32_t byte = is_signed ? (int8_t)(a >> 8 * i) : (uint8_t)(a >> 8 * i);
        sum += byte * (int8_t)(b >> 8 * i);
    }
    return sum;
}

/* sums += weights · x over 32 k: fragments of mma.m16n8k32, whose rows g and g + 8 are outputs 2 g
 * and 2 g + 1. b: two words. */
EXACT_INLINE void few_multiply(few_sums *sums, const few_words *a, const few_words *b,
                               bool is_signed) {
#ifdef __CUDA_ARCH__
    int32_t *s = sums[0].of;
    const uint32_t *w = a[0].of, *x = b[0].of;
    if (is_signed)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
            : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
            : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]));
    (void)few_dot4;
#else
    for (uint32_t lane = 0; lane < OWN_LANES; lane++)
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t g = lane / 4, column = 2 * (lane % 4) + i % 2;
            int32_t sum = sums[lane].of[i];
            for (uint32_t four = 0; four < 4; four++) {
                const few_words *w = &a[g * 4 + four], *x = &b[column * 4 + four];
                sum = few_dot4(w->of[i / 2], x->of[0], is_signed, sum);
                sum = few_dot4(w->of[i / 2 + 2], x->of[1], is_signed, sum);
            }
            sums[lane].of[i] = sum;
        }
#endif
}

typedef struct two_words {
    uint32_t word[2];
} __attribute__((aligned(8))) two_words;

EXACT_INLINE two_words load_two(const void *at) {
    return *(const two_words *)at;
}

/* ---- Rounds ---- */

EXACT_INLINE uint32_t few_group(const few_part *part, uint32_t round) {
    return part->chunks == 1 ? round : round / part->chunks;
}

EXACT_INLINE uint32_t few_chunk(const few_part *part, uint32_t round) {
    return part->chunks == 1 ? 0 : round % part->chunks;
}

/* Panels of a round. */
EXACT_INLINE uint32_t few_panels(const few_part *part, uint32_t round) {
    uint32_t left = part->end - part->first - few_group(part, round) * part->call->together;
    return left < part->call->together ? left : part->call->together;
}

/* Pieces of each. */
EXACT_INLINE uint32_t few_span(const few_part *part, uint32_t round) {
    uint32_t left = part->pieces - few_chunk(part, round) * part->call->span;
    return left < part->call->span ? left : part->call->span;
}

/* Steps of a piece: slots. */
EXACT_INLINE uint32_t piece_steps(bool q4r) {
    return q4r ? 1 : 4;
}

EXACT_INLINE uint32_t piece_bytes(bool q4r) {
    return (q4r ? EXACT_Q4R_SUPER_LINES : 34) * EXACT_LINE;
}

EXACT_INLINE uint32_t few_panel_words(const few_call *call, bool q4r) {
    return call->whole ? 16 : call->span * piece_steps(q4r) * SLOT;
}

/* Of a row and panel of a round. */
EXACT_INLINE float *few_slot(const few_part *part, uint32_t round, uint32_t row, uint32_t panel,
                             bool q4r) {
    const few_call *call = part->call;
    uint32_t number = (round % 2 * call->input.rows + row) * call->together + panel;
    return part->desk.slots + number * few_panel_words(call, q4r);
}

/* Chains that go on in the next round, behind the slots of two: 16 of a row and panel. */
EXACT_INLINE float *few_kept(const few_part *part, uint32_t row, uint32_t panel, bool q4r) {
    const few_call *call = part->call;
    uint32_t slots = 2 * call->input.rows * call->together * few_panel_words(call, q4r);
    return part->desk.slots + slots + (row * call->together + panel) * 16;
}

/* The warp's first piece of a round. */
EXACT_INLINE few_walk few_first(const few_call *call, const kernel_place *at, uint32_t span) {
    few_walk walk = {warp_of(at), 0};
    if (!call->whole) {
        walk = (few_walk){0, warp_of(at)};
        while (walk.piece >= span) {
            walk.piece -= span;
            walk.panel++;
        }
    }
    return walk;
}

EXACT_INLINE void few_next(const few_call *call, const kernel_place *at, uint32_t span,
                           few_walk *walk) {
    walk->piece += call->whole ? 1 : warps_of(at);
    while (walk->piece >= span) {
        walk->piece -= span;
        walk->panel += call->whole ? warps_of(at) : 1;
    }
}

EXACT_INLINE void cursor_round(const few_part *part, const kernel_place *at, few_warp *own) {
    few_cursor *cursor = &own->ahead;
    cursor->panels = few_panels(part, cursor->round);
    cursor->span = few_span(part, cursor->round);
    cursor->at = few_first(part->call, at, cursor->span);
    own->group = few_group(part, cursor->round) * part->call->together;
    own->chunk = few_chunk(part, cursor->round) * part->call->span;
}

/* On to the next piece that is there. */
EXACT_INLINE void cursor_settle(const few_part *part, const kernel_place *at, few_warp *own) {
    few_cursor *cursor = &own->ahead;
    while (cursor->at.panel >= cursor->panels && cursor->round < part->rounds)
        if (++cursor->round < part->rounds)
            cursor_round(part, at, own);
}

EXACT_INLINE void few_ask(const few_part *part, const kernel_place *at, few_warp *own,
                          uint32_t place, bool q4r) {
    few_cursor *cursor = &own->ahead;
    if (cursor->round >= part->rounds)
        return;
    uint32_t piece = own->chunk + cursor->at.piece;
    uint32_t bytes = piece + 1 < part->pieces ? piece_bytes(q4r) : part->call->last;
    pipe_ask(at, &part->pipe, place,
             part->source[own->group + cursor->at.panel] + piece * piece_bytes(q4r), bytes);
    few_next(part->call, at, cursor->span, &cursor->at);
    cursor_settle(part, at, own);
}

EXACT_INLINE void few_start(const few_part *part, const kernel_place *at, bool q4r) {
    few_warp own;
    own.ahead.round = 0;
    own.place = own.turn = 0;
    for (uint32_t i = 0; i < 3; i++)
        own.unused[i] = 0;
    pipe_open(at, &part->pipe);
    cursor_round(part, at, &own);
    cursor_settle(part, at, &own);
    for (uint32_t place = 0; place < part->pipe.depth; place++)
        few_ask(part, at, &own, place, q4r);
    if (at->thread % WARP == 0)
        part->warp[warp_of(at)] = own;
}

/* ---- Terms: a step's integer sums and their factors ---- */

/* Which row and output the numbers of few_chain belong to. Q4R: columns are rows; 8 bits: columns
 * are the two halves of rows, and there are two products of four rows each. */
EXACT_INLINE uint32_t term_row(bool q4r, uint32_t lane, uint32_t i) {
    return q4r ? 2 * (lane % 4) + i % 2 : 4 * (i / 2) + lane % 4;
}

EXACT_INLINE uint32_t term_output(bool q4r, uint32_t lane, uint32_t i) {
    return 2 * (lane / 4) + (q4r ? i / 2 : i % 2);
}

typedef struct few_chain {
    float of[4];
} few_chain;

/* A sum and its factor into the chain that the lane has, or into the step's slot. */
EXACT_INLINE void few_term(const few_part *part, uint32_t lane, uint32_t i, float *slot, float sum,
                           float factor, bool q4r, bool whole, few_chain *chain) {
    const few_call *call = part->call;
    uint32_t row = term_row(q4r, lane, i);
    if (whole) {
        chain->of[i] = fmaf(sum, factor, chain->of[i]);
    } else if (row < call->input.rows) {
        two_words both = {{exact_bits(sum), exact_bits(factor)}};
        uint32_t words = call->together * few_panel_words(call, q4r);
        *(two_words *)(void *)(slot + row * words + 2 * term_output(q4r, lane, i)) = both;
    }
}

/* Multipliers of a lane: of sub-blocks lane % 4, + 4, + 8, + 12 and outputs 2 (lane / 4) and the
 * next. */
typedef struct few_multipliers {
    int32_t of[8];
} few_multipliers;

EXACT_INLINE void q4r_multipliers(const uint8_t *super, uint32_t lane, few_multipliers *out) {
    uint32_t t = lane % 4, g = lane / 4;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t j = 0; j < 4; j += 2) {
        const uint8_t *magnitudes = super + EXACT_LINE + 16 * (2 * j + t / 2) + 2 * g;
        const uint8_t *signs = super + 32 + 2 * (4 * j + t);
        uint32_t m = exact_load_half(magnitudes) | (uint32_t)exact_load_half(magnitudes + 32) << 16;
        uint32_t s = exact_load_half(signs) | (uint32_t)exact_load_half(signs + 8) << 16;
        m = m >> 4 * (t % 2) & 0x0f0f0f0fu;
        s = ((s >> 2 * g & 0x00030003u) * 0x81u) & 0x01010101u; /* a bit for each byte of m */
        uint32_t bytes = ((m | 0x80808080u) - 2 * (m & s * 15)) ^ 0x80808080u;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 4; i++)
            out->of[2 * j + i] = (int8_t)(bytes >> 8 * i);
    }
}

/* Four numbers n (0 … 15) of one sub-block times its multiplier m: m · n + q4r_offset(m), which is
 * 128 + (n - 8) · m, an unsigned byte each, between 8 and 248. */
EXACT_INLINE uint32_t q4r_offset(int32_t multiplier) {
    uint32_t offset = 0x80808080u - (uint32_t)multiplier * 0x08080808u;
#ifdef __CUDA_ARCH__
    asm("" : "+r"(offset)); /* else the compiler takes 8 off each number, which is more work */
#endif
    return offset;
}

/* The 128 of all bytes are taken off in advance: sums begin at -128 Σ x. Numbers of x behind k are
 * 0, so that it does not matter what weights are read there. Lanes take the two lines of a
 * sub-block in one order or the other, so that fewer of them want the same banks; x lies in that
 * order. */
EXACT_INLINE void q4r_multiply(const few_part *part, const kernel_place *at, const uint8_t *super,
                               uint32_t step, few_sums *sums) {
    const few_desk *desk = &part->desk;
    uint32_t left = part->call->input.k - step * 256;
    const uint8_t *lines = super + (left <= 128 ? 2 : 3) * EXACT_LINE;
    few_multipliers multipliers[OWN_LANES];
    EACH_LANE(at, own) {
        two_words begin = load_two(desk->sums + step * 8 + 2 * (lane % 4));
        for (uint32_t i = 0; i < 4; i++)
            sums[own].of[i] = (int32_t)begin.word[i % 2];
        q4r_multipliers(super, lane, &multipliers[own]);
    }
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t j = 0; j < 4; j++) {
        few_words a[2][OWN_LANES], b[2][OWN_LANES];
        EACH_LANE(at, own) {
            uint32_t t = lane % 4, g = lane / 4, sub = 4 * j + t;
            uint32_t column = g < part->call->input.rows ? g : 0;
            const uint8_t *two = lines + sub * 2 * EXACT_LINE + 8 * g;
            const int8_t *x = desk->number + column * desk->stride + step * 256 + sub * 16;
            exact_words numbers = exact_load_words(x);
            uint32_t offset[2] = {q4r_offset(multipliers[own].of[2 * j]),
                                  q4r_offset(multipliers[own].of[2 * j + 1])};
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t i = 0; i < 2; i++) {
                two_words w = load_two(two + (t % 2 == i ? 0 : EXACT_LINE));
                for (uint32_t output = 0; output < 2; output++) {
                    uint32_t m = (uint32_t)multipliers[own].of[2 * j + output],
                             all = w.word[output];
                    a[i][own].of[output] = (all & 0x0f0f0f0fu) * m + offset[output];
                    a[i][own].of[output + 2] = (all >> 4 & 0x0f0f0f0fu) * m + offset[output];
                }
                b[i][own].of[0] = numbers.word[2 * i];
                b[i][own].of[1] = numbers.word[2 * i + 1];
            }
        }
        few_multiply(sums, a[0], b[0], false);
        few_multiply(sums, a[1], b[1], false);
    }
}

EXACT_INLINE void q4r_compute(const few_part *part, const kernel_place *at, const uint8_t *super,
                              uint32_t step, float *slot, bool whole, few_chain *chain) {
    few_sums sums[OWN_LANES];
    q4r_multiply(part, at, super, step, sums);
    EACH_LANE(at, own) {
        uint32_t two = exact_load_word(super + 4 * (lane / 4));
        two_words x = load_two(part->desk.scale + step * 8 + 2 * (lane % 4));
        float scale[2] = {exact_from_half((uint16_t)two), exact_from_half((uint16_t)(two >> 16))};
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 4; i++)
            few_term(part, lane, i, slot, (float)sums[own].of[i],
                     scale[i / 2] * exact_float(x.word[i % 2]), true, whole, &chain[own]);
    }
}

/* 32 k of four rows, from row `first` on; weights' numbers are in `a`. */
EXACT_INLINE void q8b_rows(const few_part *part, const kernel_place *at, const few_words *a,
                           const uint32_t *scales, uint32_t step, uint32_t first, float *slot,
                           bool whole, few_chain *chain) {
    const few_desk *desk = &part->desk;
    uint32_t rows = part->call->input.rows;
    few_sums sums[OWN_LANES];
    few_words b[OWN_LANES];
    EACH_LANE(at, own) {
        uint32_t column = 2 * first + lane / 4;
        column = column < 2 * rows ? column : 0;
        two_words x = load_two(desk->number + column * desk->stride + step * 32 + 8 * (lane % 4));
        b[own].of[0] = x.word[0];
        b[own].of[1] = x.word[1];
        for (uint32_t i = 0; i < 4; i++)
            sums[own].of[i] = 0;
    }
    few_multiply(sums, a, b, true);
    EACH_LANE(at, own) {
        float x_scale = desk->scale[step * desk->scale_rows + first + lane % 4];
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
        for (uint32_t i = 0; i < 2; i++) {
            int32_t sum = 255 * sums[own].of[2 * i] + sums[own].of[2 * i + 1];
            float scale = exact_from_half((uint16_t)(scales[own] >> 16 * i));
            few_term(part, lane, first / 2 + i, slot, (float)sum, scale * x_scale, false, whole,
                     &chain[own]);
        }
    }
}

/* Groups of 64 k behind a line of scales: two of them. */
EXACT_INLINE void q8b_compute(const few_part *part, const kernel_place *at, const uint8_t *groups,
                              uint32_t first, float *slot, bool whole, few_chain *chain) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (uint32_t i = 0; i < 4; i++) {
        const uint8_t *head = groups + i / 2 * 17 * EXACT_LINE;
        uint32_t step = first + i, scales[OWN_LANES];
        few_words a[OWN_LANES];
        if (step >= part->steps)
            break;
        EACH_LANE(at, own) {
            uint32_t t = lane % 4, g = lane / 4;
            const uint8_t *two = head + (1 + i % 2 * 8 + 2 * t) * EXACT_LINE + 8 * g;
            scales[own] = exact_load_word(head + i % 2 * 32 + 4 * g);
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
            for (uint32_t j = 0; j < 2; j++) {
                two_words w = load_two(two + (t % 2 == j ? 0 : EXACT_LINE));
                a[own].of[2 * j] = w.word[0];
                a[own].of[2 * j + 1] = w.word[1];
            }
        }
        q8b_rows(part, at, a, scales, step, 0, slot + i * SLOT, whole, chain);
        if (part->call->input.rows > 4)
            q8b_rows(part, at, a, scales, step, 4, slot + i * SLOT, whole, chain);
    }
}

/* A warp's chains of a panel are at their end. */
EXACT_INLINE void few_settle(const few_part *part, const kernel_place *at, uint32_t round,
                             uint32_t panel, bool q4r, const few_chain *chain) {
    EACH_LANE(at, own) {
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = term_row(q4r, lane, i);
            if (row < part->call->input.rows)
                few_slot(part, round, row, panel, q4r)[term_output(q4r, lane, i)] =
                    chain[own].of[i];
        }
    }
}

EXACT_INLINE void chain_clear(few_chain *chain) {
    for (uint32_t i = 0; i < OWN_LANES; i++)
        for (uint32_t j = 0; j < 4; j++)
            chain[i].of[j] = 0.0f;
}

EXACT_INLINE void few_terms(const few_part *part, const kernel_place *at, uint32_t round, bool q4r,
                            bool whole) {
    const few_call *call = part->call;
    uint32_t panels = few_panels(part, round), span = few_span(part, round);
    uint32_t before = few_chunk(part, round) * call->span;
    few_walk now = few_first(call, at, span);
    few_warp own = part->warp[warp_of(at)];
    few_chain chain[OWN_LANES];
    chain_clear(chain);
    while (now.panel < panels) {
        uint32_t panel = now.panel;
        const uint8_t *data = pipe_wait(at, &part->pipe, own.place, own.turn);
        float *slot =
            whole ? NULL
                  : few_slot(part, round, 0, panel, q4r) + now.piece * piece_steps(q4r) * SLOT;
        if (q4r)
            q4r_compute(part, at, data, before + now.piece, slot, whole, chain);
        else
            q8b_compute(part, at, data, 4 * (before + now.piece), slot, whole, chain);
#ifdef __CUDA_ARCH__
        __syncwarp();
#endif
        few_ask(part, at, &own, own.place, q4r);
        if (++own.place == part->pipe.depth) {
            own.place = 0;
            own.turn ^= 1;
        }
        few_next(call, at, span, &now);
        if (whole && now.panel != panel) {
            few_settle(part, at, round, panel, q4r, chain);
            chain_clear(chain);
        }
    }
#ifdef __CUDA_ARCH__
    __syncwarp();
#endif
    if (at->thread % WARP == 0)
        part->warp[warp_of(at)] = own;
}

/* ---- Outputs ---- */

EXACT_INLINE float few_biased(const few_matrix *one, uint32_t output, float f) {
    return one->bias == NULL ? f : f + one->bias[output];
}

/* Where an output goes, and what is there, if it is added to that: asked for before the sums. */
typedef struct few_place {
    const few_matrix *one;
    float *out, before;
    uint32_t output;
    bool there;
} few_place;

EXACT_INLINE few_place few_place_of(const few_call *call, uint32_t panel, uint32_t row,
                                    uint32_t lane) {
    few_place place;
    uint32_t inside;
    place.one = few_matrix_of(call, panel, &inside);
    place.output = inside * 16 + lane;
    place.there = place.output < place.one->outputs;
    place.out = place.one->out + (uint64_t)row * place.one->out_stride + place.output;
    place.before = place.there && place.one->add ? load_fresh(place.out) : 0.0f;
    return place;
}

EXACT_INLINE void few_store(const few_call *call, const few_place *place, float f, float gate) {
    const few_matrix *one = place->one;
    if (!place->there)
        return;
    float y = few_biased(one, place->output, f);
    if (call->paired)
        y = input_activation(call->activation, few_biased(&call->one[1], place->output, gate)) * y;
    *place->out = one->add ? fmaf(y, one->add_scale, place->before) : y;
}

EXACT_INLINE float few_sum(const few_part *part, uint32_t round, uint32_t row, uint32_t panel,
                           uint32_t lane, bool q4r) {
    const float *slot = few_slot(part, round, row, panel, q4r);
    if (part->call->whole)
        return slot[lane];
    uint32_t left = part->steps - few_chunk(part, round) * part->call->span * piece_steps(q4r);
    uint32_t steps = few_span(part, round) * piece_steps(q4r);
    float *kept = few_kept(part, row, panel, q4r) + lane;
    float f = few_chunk(part, round) == 0 ? 0.0f : *kept;
    steps = steps < left ? steps : left;
#ifdef __CUDA_ARCH__
#pragma unroll 8
#endif
    for (uint32_t step = 0; step < steps; step++) {
        two_words both = load_two(slot + step * SLOT + 2 * lane);
        f = fmaf(exact_float(both.word[0]), exact_float(both.word[1]), f);
    }
    if (part->chunks > 1)
        *kept = f;
    return f;
}

/* Of all threads: outputs of a round whose slots are filled. */
EXACT_INLINE void few_outputs(const few_part *part, const kernel_place *at, uint32_t round,
                              bool q4r) {
    const few_call *call = part->call;
    uint32_t panels = few_panels(part, round), each = call->paired ? 2 : 1;
    uint32_t outputs = panels / each * 16;
    uint32_t first = part->first + few_group(part, round) * call->together;
    for (uint32_t j = at->thread; j < outputs * call->input.rows; j += at->threads) {
        uint32_t row = call->input.rows == 1 ? 0 : j / outputs;
        uint32_t panel = (j - row * outputs) / 16 * each, lane = j % 16;
        few_place place = few_place_of(call, first + panel, row, lane);
        float f = few_sum(part, round, row, panel, lane, q4r);
        float gate = call->paired ? few_sum(part, round, row, panel + 1, lane, q4r) : 0.0f;
        if (few_chunk(part, round) + 1 == part->chunks)
            few_store(call, &place, f, gate);
    }
}

/* Outputs of the round in front, by the threads of a warp. */
EXACT_INLINE void few_before(const few_part *part, kernel_place *at, uint32_t round, bool q4r) {
#ifdef __CUDACC__
    if (round > 0)
        few_outputs(part, at, round - 1, q4r);
#else
    uint32_t thread = at->thread;
    for (; round > 0 && at->thread < thread + WARP; at->thread++)
        few_outputs(part, at, round - 1, q4r);
    at->thread = thread;
#endif
}

EXACT_INLINE void few_round(const few_part *part, kernel_place *at, uint32_t round, bool q4r) {
    few_before(part, at, round, q4r);
    if (round >= part->rounds)
        return;
    if (part->call->whole)
        few_terms(part, at, round, q4r, true);
    else
        few_terms(part, at, round, q4r, false);
}

/* ---- Kernels ---- */

EXACT_INLINE uint32_t few_groups(const few_part *part) {
    uint32_t panels = part->end - part->first, together = part->call->together;
    return panels <= together ? 1 : (panels + together - 1) / together;
}

/* The weights that the block reads first and has not asked for yet. */
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

EXACT_INLINE void few_sources(const few_part *part, const kernel_place *at) {
    for (uint32_t i = at->thread; part->first + i < part->end; i += at->threads)
        part->source[i] = few_panel(part->call, part->first + i);
}

/* Reads the call once, so that its parts are in the cache of constants when they are needed. */
EXACT_INLINE void few_touch(const few_call *call) {
#ifdef __CUDA_ARCH__
    const uint32_t *words = (const uint32_t *)(const void *)call;
#pragma unroll
    for (uint32_t i = 0; i < sizeof(*call) / 4; i += 16)
        asm volatile("" ::"r"(words[i]));
#else
    (void)call;
#endif
}

EXACT_INLINE void few_integers(const few_call *call, kernel_place *at, bool q4r) {
    few_part part;
    uint32_t k = call->input.k;
    part.call = call;
    part.steps = q4r ? (k + 255) / 256 : (k + 31) / 32;
    part.pieces = q4r ? part.steps : (part.steps + 3) / 4;
    few_lay(call, warps_of(at), at->shared, &part);
    few_share(&part, at, at->blocks);
    part.chunks = call->span >= part.pieces ? 1 : (part.pieces + call->span - 1) / call->span;
    part.rounds = few_groups(&part) * part.chunks;
    few_touch(call);
    CUDA_EACH(at, few_sources(&part, at); input_early(&call->input, at, &part.desk));
    CUDA_WARPS(at, few_start(&part, at, q4r));
    if (call->ahead > 0)
        CUDA_EACH(at, few_ahead(&part, at));
    place_wait();
    input_make(&call->input, at, &part.desk);
    /* Not sooner: its blocks would not be one for each multiprocessor, and take this input's time.
     */
    place_let_next();
    for (uint32_t round = 0; round <= part.rounds; round++)
        CUDA_WARPS(at, few_round(&part, at, round, q4r));
}

EXACT_INLINE void kernel_few_q4r(const few_call *call, kernel_place *at) {
    few_integers(call, at, true);
}

EXACT_INLINE void kernel_few_q8b(const few_call *call, kernel_place *at) {
    few_integers(call, at, false);
}

#endif
