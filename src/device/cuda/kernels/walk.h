/* A step of few rows in one kernel: a block for each multiprocessor, and all blocks meet between
 * two phases: products, inputs of long rows, attention. One warp of a block does nothing but have
 * the block's weights copied into a ring of stages in shared memory, of all phases one behind the
 * other: they are on their way while blocks meet, prepare their inputs and attend. The other warps
 * share the pieces of a stage out, as few.h has them, and free it. */
#ifndef AVO_DEVICE_CUDA_KERNELS_WALK_H
#define AVO_DEVICE_CUDA_KERNELS_WALK_H

#include "device/cuda/kernels/decode.h"
#include "device/cuda/kernels/few.h"

#define WALK_WARPS (WALK_THREADS / WARP)
#define WALK_STAGE (WALK_PIECES * PIPE_PIECE)

/* Where a block is in its ring: the next stage, and how often it went round, modulo 2. */
typedef struct walk_ring {
    uint8_t *stage;         /* [stages][WALK_STAGE] */
    uint64_t *full, *empty; /* [stages] the card's barriers */
    uint32_t stages, place, turn;
} walk_ring;

typedef struct walk_desk {
    walk_ring ring;
    walk_phase *phase; /* [2] copies: this one and the next */
    float *rest;       /* of the phase */
} walk_desk;

/* In words, of what is in front of `rest`; base NULL: it counts. */
EXACT_INLINE uint32_t walk_lay(uint32_t stages, float *base, walk_desk *desk) {
    uint32_t at = stages * WALK_STAGE / 4;
    desk->ring.stage = (uint8_t *)(void *)base;
    desk->ring.stages = stages;
    desk->ring.place = desk->ring.turn = 0;
    desk->ring.full = (uint64_t *)(void *)(base + at);
    desk->ring.empty = desk->ring.full + stages;
    at += (4 * stages + 3) / 4 * 4;
    desk->phase = (walk_phase *)(void *)(base + at);
    at += 2 * (uint32_t)(sizeof(walk_phase) / 4);
    desk->rest = base + at;
    return at;
}

/* ---- The sequence of a block's weights ---- */

/* Panels of a matrix one behind the other in memory. */
typedef struct walk_stretch {
    const uint8_t *from;
    uint32_t pieces;      /* of all of them */
    uint32_t panel, each; /* of the round: the first one, and from one to the next */
    uint32_t own;         /* pieces of a panel */
    uint32_t panel_bytes, piece_bytes;
} walk_stretch;

/* Of matrix `number` in a round. */
EXACT_INLINE walk_stretch walk_stretch_of(const few_part *part, uint32_t round, uint32_t number,
                                          bool q4r) {
    const few_call *call = part->call;
    uint32_t begin = part->first + round * call->together, end = begin + few_panels(part, round);
    walk_stretch stretch;
    stretch.panel = 0;
    if (call->paired) {
        begin /= 2;
        end /= 2;
        stretch.panel = number;
    } else {
        uint32_t first = begin, before = 0;
        for (uint32_t i = 0; i < number; i++)
            before += call->one[i].panels;
        uint32_t behind = before + call->one[number].panels;
        begin = begin > before ? begin : before;
        end = end < behind ? end : behind;
        end = end > begin ? end : begin;
        stretch.panel = begin - first;
        begin -= before;
        end -= before;
    }
    stretch.each = call->paired ? 2 : 1;
    stretch.own = part->pieces;
    stretch.pieces = (end - begin) * part->pieces;
    stretch.panel_bytes = (uint32_t)call->panel_bytes;
    stretch.piece_bytes = piece_bytes(q4r);
    stretch.from = call->one[number].data + (uint64_t)begin * call->panel_bytes;
    return stretch;
}

EXACT_INLINE uint32_t stretch_stages(const walk_stretch *stretch) {
    return (stretch->pieces + WALK_PIECES - 1) / WALK_PIECES;
}

EXACT_INLINE uint32_t stretch_offset(const walk_stretch *stretch, uint32_t piece) {
    uint32_t panel = piece / stretch->own;
    return panel * stretch->panel_bytes + (piece - panel * stretch->own) * stretch->piece_bytes;
}

EXACT_INLINE uint32_t stretch_end(const walk_stretch *stretch, uint32_t stage) {
    uint32_t end = (stage + 1) * WALK_PIECES;
    return stretch_offset(stretch, end < stretch->pieces ? end : stretch->pieces);
}

/* `count` stages on, at most once round. */
EXACT_INLINE void stage_on(walk_ring *ring, uint32_t count) {
    ring->place += count;
    if (ring->place >= ring->stages) {
        ring->place -= ring->stages;
        ring->turn ^= 1;
    }
}

EXACT_INLINE void stage_pass(walk_ring *ring, uint32_t count) {
    while (count > ring->stages) {
        count -= ring->stages;
        ring->turn ^= 1;
    }
    stage_on(ring, count);
}

EXACT_INLINE void walk_open(const walk_call *walk, const few_call *call, const kernel_place *at,
                            bool q4r, few_part *part) {
    (void)walk;
    part->call = call;
    part->steps = q4r ? (call->input.k + 255) / 256 : (call->input.k + 31) / 32;
    part->pieces = q4r ? part->steps : (part->steps + 3) / 4;
    part->chunks = 1;
    few_share(part, at, at->blocks);
    part->rounds = few_groups(part);
}

/* ---- Copies ---- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
EXACT_INLINE void stage_until(const uint64_t *barrier, uint32_t turn) {
    unsigned at = (unsigned)__cvta_generic_to_shared(barrier), done = 0;
    while (done == 0)
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(at), "r"(turn)
                     : "memory");
}
#endif

/* By one thread, when the stage is free. */
EXACT_INLINE void stage_fill(const walk_ring *ring, const uint8_t *from, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    unsigned full = (unsigned)__cvta_generic_to_shared(ring->full + ring->place);
    unsigned to = (unsigned)__cvta_generic_to_shared(ring->stage + ring->place * WALK_STAGE);
    stage_until(ring->empty + ring->place, ring->turn ^ 1);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full), "r"(bytes)
                 : "memory");
    uint64_t policy; /* first to go from the second cache, as in pipe.h */
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(full), "l"(policy)
                 : "memory");
#else
    memcpy(ring->stage + ring->place * WALK_STAGE, from, bytes);
#endif
}

/* All of the block's weights, phase by phase. */
EXACT_INLINE void walk_copy(const walk_call *walk, const kernel_place *at, walk_ring ring,
                            bool q4r) {
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t i = 0; i < walk->phases; i++) {
        const walk_phase *phase = walk->phase + i;
        few_part part;
        if (phase->kind != WALK_PRODUCTS)
            continue;
        walk_open(walk, &phase->call.few, at, q4r, &part);
        for (uint32_t round = 0; round < part.rounds; round++)
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
            for (uint32_t number = 0; number < part.call->matrices; number++) {
                walk_stretch stretch = walk_stretch_of(&part, round, number, q4r);
                uint32_t stages = stretch_stages(&stretch), begin = 0;
                for (uint32_t stage = 0; stage < stages; stage++) {
                    uint32_t end = stretch_end(&stretch, stage);
                    stage_fill(&ring, stretch.from + begin, end - begin);
                    stage_on(&ring, 1);
                    begin = end;
                }
            }
    }
}

/* ---- Products ---- */

/* Piece number `i` of a stretch, panel and piece of it, where it lies in the ring. */
EXACT_INLINE const uint8_t *walk_wait(const walk_ring *ring, const walk_stretch *stretch,
                                      uint32_t i, uint32_t panel, uint32_t piece) {
    uint32_t back = i % WALK_PIECES, panels = 0, before = piece;
    while (back > before) { /* pieces of the stage in front are of other panels */
        back -= before + 1;
        before = stretch->own - 1;
        panels++;
    }
    before -= back;
    (void)panel;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    stage_until(ring->full + ring->place, ring->turn);
#else
    uint32_t stage = i / WALK_PIECES, begin = stretch_offset(stretch, stage * WALK_PIECES);
    stage_fill(ring, stretch->from + begin, stretch_end(stretch, stage) - begin);
#endif
    return ring->stage + ring->place * WALK_STAGE + panels * stretch->panel_bytes +
           piece * stretch->piece_bytes - before * stretch->piece_bytes;
}

/* By all lanes, which have read what they need. */
EXACT_INLINE void walk_free(const kernel_place *at, const walk_ring *ring,
                            const walk_stretch *stretch, uint32_t i) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __syncwarp();
    if (at->thread % WARP == 0) { /* the last piece is there for those that the stage lacks */
        uint32_t count = i + 1 == stretch->pieces ? WALK_PIECES - i % WALK_PIECES : 1;
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(
                         (unsigned)__cvta_generic_to_shared(ring->empty + ring->place)),
                     "r"(count)
                     : "memory");
    }
#else
    (void)at;
    (void)ring;
    (void)stretch;
    (void)i;
#endif
}

EXACT_INLINE void walk_stretch_terms(const few_part *part, const kernel_place *at, walk_ring ring,
                                     const walk_stretch *stretch, uint32_t i, uint32_t round,
                                     bool q4r) {
    uint32_t panel = i / stretch->own, piece = i - panel * stretch->own;
    stage_on(&ring, i / WALK_PIECES);
    while (i < stretch->pieces) {
        const uint8_t *data = walk_wait(&ring, stretch, i, panel, piece);
        float *slot = few_slot(part, round, 0, stretch->panel + panel * stretch->each, q4r) +
                      piece * piece_steps(q4r) * SLOT;
        few_chain none[OWN_LANES];
        if (q4r)
            q4r_compute(part, at, data, piece, slot, false, none);
        else
            q8b_compute(part, at, data, 4 * piece, slot, false, none);
        walk_free(at, &ring, stretch, i);
        stage_on(&ring, WALK_WARPS / WALK_PIECES);
        i += WALK_WARPS;
        piece += WALK_WARPS;
        while (piece >= stretch->own) {
            piece -= stretch->own;
            panel++;
        }
    }
}

/* Of a warp: every sixteenth piece of the round. `given` is in shared memory: what is read for each
 * piece goes to registers first. */
EXACT_INLINE void walk_terms(const few_part *given, const kernel_place *at, walk_ring ring,
                             uint32_t round, bool q4r) {
    few_part part = *given;
    few_call call;
    uint32_t before = 0;
    call.input.rows = given->call->input.rows;
    call.input.k = given->call->input.k;
    call.together = given->call->together;
    call.span = given->call->span;
    call.whole = 0;
    part.call = &call;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t number = 0; number < given->call->matrices; number++) {
        walk_stretch stretch = walk_stretch_of(given, round, number, q4r);
        uint32_t first = (warp_of(at) - before) % WALK_WARPS;
        walk_stretch_terms(&part, at, ring, &stretch, first, round, q4r);
        stage_pass(&ring, stretch_stages(&stretch));
        before += stretch.pieces;
    }
}

EXACT_INLINE uint32_t walk_round_stages(const few_part *part, uint32_t round, bool q4r) {
    uint32_t stages = 0;
    for (uint32_t number = 0; number < part->call->matrices; number++) {
        walk_stretch stretch = walk_stretch_of(part, round, number, q4r);
        stages += stretch_stages(&stretch);
    }
    return stages;
}

EXACT_INLINE void walk_round(const few_part *part, kernel_place *at, const walk_ring *ring,
                             uint32_t round, bool q4r) {
    few_before(part, at, round, q4r);
    if (round < part->rounds)
        walk_terms(part, at, *ring, round, q4r);
}

EXACT_INLINE void walk_products(const few_part *part, kernel_place *at, walk_ring *ring, bool q4r) {
    input_make(&part->call->input, at, &part->desk);
    for (uint32_t round = 0; round <= part->rounds; round++) {
        CUDA_WARPS(at, walk_round(part, at, ring, round, q4r));
        if (round < part->rounds)
            stage_pass(ring, walk_round_stages(part, round, q4r));
    }
}

/* ---- Meetings ---- */

/* The first block makes the sum of what they add a half of the word's range, so that its highest
 * bit changes when all have come. */
EXACT_INLINE uint32_t walk_arrive(const walk_call *walk, const kernel_place *at) {
    uint32_t before = 0;
#ifdef __CUDA_ARCH__
    if (at->thread == 0) {
        __threadfence();
        before = atomicAdd(walk->met, at->x == 0 ? 0x80000000u - (at->blocks - 1) : 1);
    }
#else
    (void)walk;
    (void)at;
#endif
    return before;
}

/* Until all blocks have arrived, and what they wrote can be read. */
EXACT_INLINE void walk_await(const walk_call *walk, const kernel_place *at, uint32_t before) {
#ifdef __CUDA_ARCH__
    if (at->thread == 0) {
        uint32_t now;
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(now)
                         : "l"(walk->met)
                         : "memory");
        while (((before ^ now) & 0x80000000u) == 0);
        __threadfence();
    }
    place_meet(at);
#else
    (void)walk;
    (void)at;
    (void)before;
#endif
}

/* ---- Phases ---- */

EXACT_INLINE void walk_take(const walk_call *walk, const kernel_place *at, const walk_desk *desk,
                            uint32_t number) {
    if (number >= walk->phases)
        return;
    const uint8_t *from = (const uint8_t *)(walk->phase + number);
    uint8_t *to = (uint8_t *)(desk->phase + number % 2);
    for (uint32_t i = 16 * at->thread; i < sizeof(walk_phase); i += 16 * at->threads)
        copy_begin(at, to + i, from + i);
    copy_mark(at);
}

/* Blocks of a kernel, shared out among those that are here. */
EXACT_INLINE void walk_units(const walk_phase *phase, const kernel_place *at, float *rest) {
    kernel_place own = *at;
    uint32_t plane = phase->x * phase->y, all = plane * phase->z;
    own.shared = rest;
    own.blocks = phase->x;
    if (phase->kind == WALK_DECODE) {
        own.threads = DECODE_THREADS;
        own.barrier = 2;
#ifdef __CUDA_ARCH__
        if (at->thread >= DECODE_THREADS)
            return;
#endif
    }
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (uint32_t unit = at->x; unit < all; unit += at->blocks) {
        own.x = unit % phase->x;
        own.y = unit / phase->x % phase->y;
        own.z = unit / plane;
        if (phase->kind == WALK_DECODE)
            kernel_decode(&phase->call.decode, &own);
        else
            kernel_ready(&phase->call.ready, &own);
    }
}

/* Phase `number`, whose copy is there; the next one's is fetched. `before`: of the last meeting. */
EXACT_INLINE uint32_t walk_one(const walk_call *walk, kernel_place *at, walk_desk *desk,
                               uint32_t number, uint32_t before, bool q4r) {
    const walk_phase *phase = desk->phase + number % 2;
    few_part part;
    bool products = phase->kind == WALK_PRODUCTS;
    if (products) {
        walk_open(walk, &phase->call.few, at, q4r, &part);
        few_desk_lay(&part.call->input, desk->rest, &part.desk);
    }
    CUDA_EACH(at, walk_take(walk, at, desk, number + 1);
              if (products) input_early(&part.call->input, at, &part.desk));
    if (number > 0)
        walk_await(walk, at, before);
    if (products)
        walk_products(&part, at, &desk->ring, q4r);
    else
        walk_units(phase, at, desk->rest);
    CUDA_EACH(at, COPY_WAIT(at, 0));
    return walk_arrive(walk, at);
}

EXACT_INLINE void walk_start(const walk_call *walk, kernel_place *at, const walk_desk *desk) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (at->thread == WALK_THREADS) {
        for (uint32_t i = 0; i < desk->ring.stages; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
                             (unsigned)__cvta_generic_to_shared(desk->ring.full + i))
                         : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
                             (unsigned)__cvta_generic_to_shared(desk->ring.empty + i)),
                         "n"(WALK_PIECES)
                         : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
#endif
    (void)walk;
    (void)at;
    (void)desk;
}

EXACT_INLINE void walk_all(const walk_call *walk, kernel_place *at, bool q4r) {
    walk_desk desk;
    walk_lay(walk->stages, at->shared, &desk);
#ifdef __CUDACC__
    walk_start(walk, at, &desk);
    __syncthreads();
    at->threads = WALK_THREADS;
    at->barrier = 1;
    if (at->thread >= WALK_THREADS) {
        if (at->thread == WALK_THREADS)
            walk_copy(walk, at, desk.ring, q4r);
        return;
    }
    CUDA_EACH(at, walk_take(walk, at, &desk, 0); COPY_WAIT(at, 0));
    uint32_t before = 0;
#pragma unroll 1
    for (uint32_t number = 0; number < walk->phases; number++)
        before = walk_one(walk, at, &desk, number, before, q4r);
#else
    at->threads = WALK_THREADS;
    (void)walk_start;
    (void)walk_copy;
    CUDA_EACH(at, walk_take(walk, at, &desk, at->pass); COPY_WAIT(at, 0));
    walk_one(walk, at, &desk, at->pass, 0, q4r);
#endif
}

EXACT_INLINE void kernel_walk_q4r(const walk_call *walk, kernel_place *at) {
    walk_all(walk, at, true);
}

EXACT_INLINE void kernel_walk_q8b(const walk_call *walk, kernel_place *at) {
    walk_all(walk, at, false);
}

#endif
