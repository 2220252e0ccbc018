/* Weights on their way to shared memory: each warp has a few places for pieces, asks for them by
 * copies in bulk, and uses them in the order in which it asked. Nothing else is shared between
 * warps, so there is no barrier. Before compute capability 9.0 a piece is copied when the warp
 * waits for it. */
#ifndef AVO_DEVICE_CUDA_KERNELS_PIPE_H
#define AVO_DEVICE_CUDA_KERNELS_PIPE_H

#include "device/cuda/kernels/warp.h"

#define PIPE_PIECE 2240 /* bytes of a place */

typedef struct weight_pipe {
    uint8_t *piece;  /* [warps][depth][PIPE_PIECE] */
    uint64_t *full;  /* [warps][depth] the card's barriers; else what will be copied */
    uint32_t *bytes; /* [warps][depth] and how much */
    uint32_t depth;
} weight_pipe;

/* In words, multiples of four; base NULL: it counts. */
EXACT_INLINE uint32_t pipe_lay(uint32_t depth, uint32_t warps, float *base, weight_pipe *pipe) {
    uint32_t places = warps * depth, at = places * PIPE_PIECE / 4;
    pipe->depth = depth;
    pipe->piece = (uint8_t *)(void *)base;
    pipe->full = (uint64_t *)(void *)(base + at);
    at += places * 2;
    pipe->bytes = (uint32_t *)(void *)(base + at);
    at += places;
    return (at + 3) / 4 * 4;
}

EXACT_INLINE void pipe_open(const kernel_place *at, const weight_pipe *pipe) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (at->thread % WARP == 0) {
#pragma unroll 1
        for (uint32_t i = 0; i < pipe->depth; i++) {
            uint64_t *full = pipe->full + warp_of(at) * pipe->depth + i;
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(
                             (unsigned)__cvta_generic_to_shared(full))
                         : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncwarp();
#else
    (void)at;
    (void)pipe;
#endif
}

/* By all lanes, which have read what was in the place. */
EXACT_INLINE void pipe_ask(const kernel_place *at, const weight_pipe *pipe, uint32_t place,
                           const uint8_t *from, uint32_t bytes) {
    place += warp_of(at) * pipe->depth;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (at->thread % WARP == 0) {
        unsigned full = (unsigned)__cvta_generic_to_shared(pipe->full + place);
        unsigned to = (unsigned)__cvta_generic_to_shared(pipe->piece + place * PIPE_PIECE);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                     "r"(bytes)
                     : "memory");
        /* First to go from the second cache: else they drive code and activations out of it. */
        uint64_t policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
                     "l"(from), "r"(bytes), "r"(full), "l"(policy)
                     : "memory");
    }
#else
#ifndef __CUDACC__
    memset(pipe->piece + place * PIPE_PIECE, 0xff, PIPE_PIECE); /* what was there is gone */
#endif
    pipe->full[place] = (uint64_t)(uintptr_t)from;
    pipe->bytes[place] = bytes;
#endif
}

/* Until the place is full; `turn`: how often it was used before, modulo 2. */
EXACT_INLINE const uint8_t *pipe_wait(const kernel_place *at, const weight_pipe *pipe,
                                      uint32_t place, uint32_t turn) {
    place += warp_of(at) * pipe->depth;
    uint8_t *piece = pipe->piece + place * PIPE_PIECE;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    unsigned full = (unsigned)__cvta_generic_to_shared(pipe->full + place), done = 0;
    while (done == 0)
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(full), "r"(turn)
                     : "memory");
#else
    (void)turn;
    const uint8_t *from = (const uint8_t *)(uintptr_t)pipe->full[place];
    EACH_LANE(at, own) {
        for (uint32_t i = 16 * lane; i < pipe->bytes[place]; i += 16 * WARP)
            *(exact_words *)(void *)(piece + i) = exact_load_words(from + i);
    }
#ifdef __CUDA_ARCH__
    __syncwarp();
#endif
#endif
    return piece;
}

#endif
