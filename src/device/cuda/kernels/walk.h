/* Products of few rows one behind the other in one kernel: a block for each multiprocessor, which
 * meet between two phases. Each warp has a ring of pieces in shared memory, which it fills by
 * copies in bulk and empties itself; the pieces of all phases are one sequence, so that the next
 * phase's weights are on their way while blocks meet and prepare their input. Slower than few.h so
 * far: the four products of a layer of 8B in Q4R take 68.5 us on an H200 (docs/cuda.md). */
#ifndef AVO_DEVICE_CUDA_KERNELS_WALK_H
#define AVO_DEVICE_CUDA_KERNELS_WALK_H

#include "device/cuda/kernels/few.h"

typedef enum walk_kind { WALK_Q4R, WALK_Q8B, WALK_FLOAT } walk_kind;

/* Bytes of a whole piece: the room that one has. */
EXACT_INLINE uint32_t walk_bytes(walk_kind kind) {
    return kind == WALK_FLOAT ? WALK_LINES * EXACT_LINE : piece_bytes(kind == WALK_Q4R);
}

/* Of a panel. */
EXACT_INLINE uint32_t walk_pieces(walk_kind kind, uint32_t k) {
    uint32_t each = kind == WALK_Q4R ? 256 : kind == WALK_Q8B ? 128 : 2 * WALK_LINES;
    return (k + each - 1) / each;
}

/* A piece of the sequence of a warp. */
typedef struct walk_cursor {
    uint32_t phase, round;
    few_walk at;                       /* panel of the round, and its piece */
    uint32_t first, end, pieces, left; /* of the phase: panels of the block; panels of the round */
} walk_cursor;

/* What a warp keeps from one stage to the next. */
typedef struct walk_warp {
    walk_cursor ahead;   /* what is asked for next */
    uint32_t slot, turn; /* of the ring: what is used next, and how often it went round, mod 2 */
    uint32_t last;       /* phase behind the last one */
} walk_warp;

typedef struct walk_desk {
    uint8_t *piece;  /* [warps][depth][WALK_PIECE] */
    uint64_t *full;  /* [warps][depth] the card's barriers; on the processor, what will be copied */
    uint32_t *bytes; /* [warps][depth] and how much */
    walk_warp *warp; /* [warps] */
    float *rest;     /* of the products */
    uint32_t room;   /* bytes of a piece */
} walk_desk;

/* In words, of what is in front of `rest`; shared NULL: it counts. */
EXACT_INLINE uint32_t walk_lay(uint32_t depth, uint32_t warps, bool floats, float *shared,
                               walk_desk *desk) {
    desk->room = floats ? WALK_LINES * EXACT_LINE : WALK_PIECE;
    uint32_t slots = warps * depth, at = slots * desk->room / 4;
    desk->piece = (uint8_t *)(void *)shared;
    desk->full = (uint64_t *)(void *)(shared + at);
    at += slots * 2;
    desk->bytes = (uint32_t *)(void *)(shared + at);
    at += slots;
    desk->warp = (walk_warp *)(void *)(shared + at);
    at += warps * (uint32_t)(sizeof(walk_warp) / 4);
    at = (at + 15) / 16 * 16;
    desk->rest = shared + at;
    return at;
}

/* ---- The ring ---- */

EXACT_INLINE uint32_t ring_slot(const walk_call *call, const kernel_place *at, uint32_t slot) {
    return warp_of(at) * call->depth + slot;
}

EXACT_INLINE void ring_open(const walk_call *call, const kernel_place *at, const walk_desk *desk) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (at->thread % WARP == 0) {
        for (uint32_t i = 0; i < call->depth; i++) {
            uint64_t *full = desk->full + ring_slot(call, at, i);
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
                             (unsigned)__cvta_generic_to_shared(full))
                         : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncwarp();
#else
    (void)call;
    (void)at;
    (void)desk;
#endif
}

/* By all lanes, which have read what is in the slot. */
EXACT_INLINE void ring_ask(const walk_call *call, const kernel_place *at, const walk_desk *desk,
                           uint32_t slot, const uint8_t *from, uint32_t bytes) {
    uint32_t place = ring_slot(call, at, slot);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (at->thread % WARP == 0) {
        unsigned full = (unsigned)__cvta_generic_to_shared(desk->full + place);
        unsigned to = (unsigned)__cvta_generic_to_shared(desk->piece + place * desk->room);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                     "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1], %2, [%3];" ::"r"(to),
                     "l"(from), "r"(bytes), "r"(full)
                     : "memory");
    }
#else
    desk->full[place] = (uint64_t)(uintptr_t)from;
    desk->bytes[place] = bytes;
#endif
}

/* Until the slot is full. */
EXACT_INLINE const uint8_t *ring_wait(const walk_call *call, const kernel_place *at,
                                      const walk_desk *desk, const walk_warp *own) {
    uint32_t place = ring_slot(call, at, own->slot);
    uint8_t *piece = desk->piece + place * desk->room;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    unsigned full = (unsigned)__cvta_generic_to_shared(desk->full + place), done = 0;
    while (done == 0)
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(full), "r"(own->turn)
                     : "memory");
#else
    memcpy(piece, (const void *)(uintptr_t)desk->full[place], desk->bytes[place]);
#endif
    return piece;
}

/* ---- The sequence ---- */

EXACT_INLINE void cursor_round(const few_call *own, const kernel_place *at, walk_cursor *cursor) {
    uint32_t left = cursor->end - cursor->first, before = cursor->round * own->together;
    left = left > before ? left - before : 0;
    cursor->left = left < own->together ? left : own->together;
    cursor->at = few_first(own, at, cursor->pieces);
}

EXACT_INLINE void cursor_enter(const walk_call *call, const kernel_place *at, walk_kind kind,
                               walk_cursor *cursor) {
    const few_call *own = &call->phase[cursor->phase];
    few_part part;
    part.call = own;
    few_share(&part, at, at->blocks);
    cursor->first = part.first;
    cursor->end = part.end;
    cursor->pieces = walk_pieces(kind, own->input.k);
    cursor->round = 0;
    cursor_round(own, at, cursor);
}

/* On to the next piece that is there. */
EXACT_INLINE void cursor_settle(const walk_call *call, const kernel_place *at, walk_kind kind,
                                uint32_t last, walk_cursor *cursor) {
    while (cursor->phase < last && cursor->at.panel >= cursor->left) {
        const few_call *own = &call->phase[cursor->phase];
        if ((cursor->round + 1) * own->together < cursor->end - cursor->first) {
            cursor->round++;
            cursor_round(own, at, cursor);
        } else if (++cursor->phase < last) {
            cursor_enter(call, at, kind, cursor);
        }
    }
}

EXACT_INLINE void walk_ask(const walk_call *call, const kernel_place *at, const walk_desk *desk,
                           walk_warp *own, uint32_t slot, walk_kind kind) {
    walk_cursor *cursor = &own->ahead;
    if (cursor->phase >= own->last)
        return;
    const few_call *few = &call->phase[cursor->phase];
    uint32_t panel = cursor->first + cursor->round * few->together + cursor->at.panel;
    uint32_t begin = cursor->at.piece * walk_bytes(kind);
    uint64_t left = few->panel_bytes - begin;
    uint32_t bytes = left < walk_bytes(kind) ? (uint32_t)left : walk_bytes(kind);
    ring_ask(call, at, desk, slot, few_panel(few, panel) + begin, bytes);
    few_part part;
    part.call = few;
    part.pieces = cursor->pieces;
    few_next(&part, at, &cursor->at);
    cursor_settle(call, at, kind, own->last, cursor);
}

EXACT_INLINE void walk_open(const walk_call *call, const kernel_place *at, const walk_desk *desk,
                            uint32_t begin, uint32_t last, walk_kind kind) {
    walk_warp own;
    own.ahead.phase = begin;
    own.slot = own.turn = 0;
    own.last = last;
    ring_open(call, at, desk);
    cursor_enter(call, at, kind, &own.ahead);
    cursor_settle(call, at, kind, last, &own.ahead);
    for (uint32_t slot = 0; slot < call->depth; slot++)
        walk_ask(call, at, desk, &own, slot, kind);
    if (at->thread % WARP == 0)
        desk->warp[warp_of(at)] = own;
}

/* ---- A phase ---- */

/* Floats: the piece's part of the chains of 16 outputs, two rows at a time. */
EXACT_INLINE void walk_chain(const few_part *part, const kernel_place *at, const uint8_t *data,
                             const few_walk *now, uint32_t round) {
    const few_call *call = part->call;
    uint32_t begin = now->piece * WALK_LINES, k = call->input.k, pairs = k / 2 - begin;
    bool odd = k % 2 == 1 && pairs < WALK_LINES;
    pairs = pairs < WALK_LINES ? pairs : WALK_LINES;
    for (uint32_t first = 0; first < call->input.rows; first += 2)
        EACH_LANE(at, own) {
            uint32_t row = first + lane / 16;
            if (row >= call->input.rows)
                continue;
            float *slot = few_slot(part, round, row, now->panel, 0) + lane % 16;
            const float *x = part->desk.stage + row * part->desk.k + 2 * begin;
            const uint8_t *line = data + 4 * (lane % 16);
            float f = now->piece == 0 ? 0.0f : *slot;
            f = call->type == TYPE_BF16 ? chain_pairs(TYPE_BF16, line, x, pairs, f)
                                        : chain_pairs(TYPE_F16, line, x, pairs, f);
            if (odd) {
                uint16_t last = exact_load_half(line + pairs * EXACT_LINE);
                f = fmaf(call->type == TYPE_BF16 ? exact_from_brain(last) : exact_from_half(last),
                         x[2 * pairs], f);
            }
            *slot = f;
        }
}

EXACT_INLINE void walk_terms(const walk_call *call, const few_part *part, const kernel_place *at,
                             const walk_desk *desk, uint32_t round, walk_kind kind) {
    uint32_t panels = few_panels(part, round);
    few_walk now = few_first(part->call, at, part->pieces);
    walk_warp own = desk->warp[warp_of(at)];
    few_piece piece[OWN_LANES];
    for (; now.panel < panels; few_next(part, at, &now)) {
        const uint8_t *data = ring_wait(call, at, desk, &own);
        if (kind == WALK_FLOAT)
            walk_chain(part, at, data, &now, round);
        else
            piece_load(part->call, at, data, now.piece, kind == WALK_Q4R, true, piece);
#ifdef __CUDA_ARCH__
        __syncwarp();
#endif
        walk_ask(call, at, desk, &own, own.slot, kind);
        if (++own.slot == call->depth) {
            own.slot = 0;
            own.turn ^= 1;
        }
        if (kind != WALK_FLOAT)
            piece_compute(part, at, piece, &now, round, kind == WALK_Q4R);
    }
#ifdef __CUDA_ARCH__
    __syncwarp();
#endif
    if (at->thread % WARP == 0)
        desk->warp[warp_of(at)] = own;
}

EXACT_INLINE void walk_round(const walk_call *call, const few_part *part, kernel_place *at,
                             const walk_desk *desk, uint32_t round, uint32_t rounds,
                             walk_kind kind) {
    few_before(part, at, round);
    if (round < rounds)
        walk_terms(call, part, at, desk, round, kind);
}

/* Until all blocks are here, and what they wrote can be read. The first one makes the sum of what
 * they add a half of the word's range, so that its highest bit changes when all have come. */
EXACT_INLINE void walk_meet(const walk_call *call, const kernel_place *at) {
#ifdef __CUDA_ARCH__
    if (at->thread == 0) {
        uint32_t one = at->x == 0 ? 0x80000000u - (at->blocks - 1) : 1, now;
        __threadfence();
        uint32_t before = atomicAdd(call->met, one);
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(now)
                         : "l"(call->met)
                         : "memory");
        while (((before ^ now) & 0x80000000u) == 0);
        __threadfence();
    }
    __syncthreads();
#else
    (void)call;
    (void)at;
#endif
}

/* Phases [begin, last). */
EXACT_INLINE void walk_phases(const walk_call *call, kernel_place *at, uint32_t begin,
                              uint32_t last, walk_kind kind) {
    walk_desk desk;
    walk_lay(call->depth, warps_of(at), kind == WALK_FLOAT, at->shared, &desk);
    place_let_next();
    CUDA_WARPS(at, walk_open(call, at, &desk, begin, last, kind));
    for (uint32_t phase = begin; phase < last; phase++) {
        const few_call *own = &call->phase[phase];
        few_part part;
        few_open(own, at, desk.rest, kind == WALK_Q4R, &part);
        part.pieces = walk_pieces(kind, own->input.k);
        CUDA_EACH(at, input_early(&own->input, at, &part.desk));
        if (phase == begin)
            place_wait();
        else
            walk_meet(call, at);
        input_make(&own->input, at, &part.desk);
        uint32_t rounds = few_rounds(&part);
        for (uint32_t round = 0; round <= rounds; round++)
            CUDA_WARPS(at, walk_round(call, &part, at, &desk, round, rounds, kind));
    }
}

EXACT_INLINE void walk_all(const walk_call *call, kernel_place *at, walk_kind kind) {
#ifdef __CUDACC__
    walk_phases(call, at, 0, call->phases, kind);
#else
    walk_phases(call, at, at->pass, at->blocks == 1 ? call->phases : at->pass + 1, kind);
#endif
}

EXACT_INLINE void kernel_walk_q4r(const walk_call *call, kernel_place *at) {
    walk_all(call, at, WALK_Q4R);
}

EXACT_INLINE void kernel_walk_q8b(const walk_call *call, kernel_place *at) {
    walk_all(call, at, WALK_Q8B);
}

EXACT_INLINE void kernel_walk_float(const walk_call *call, kernel_place *at) {
    walk_all(call, at, WALK_FLOAT);
}

#endif
