/* Code of a warp: what its 32 lanes keep lies in arrays of OWN_LANES, of which a card's thread has
 * one element and the processor all 32. Loops over them are EACH_LANE; lanes see each other through
 * the exchanges below alone. Beside it: copies that a thread does not wait for, and how a kernel
 * begins before the one in front of it has ended. */
#ifndef AVO_DEVICE_CUDA_KERNELS_WARP_H
#define AVO_DEVICE_CUDA_KERNELS_WARP_H

#include "device/cuda/kernels/calls.h"
#include "device/cuda/kernels/place.h"
#include "device/exact/panel.h"

#include <assert.h>

#define WARP 32

#ifdef __CUDACC__
#define OWN_LANES 1
#define EACH_LANE(at, own)                                                                         \
    for (uint32_t own = 0, lane = (at)->thread % WARP; own < 1; own++, (void)lane)
/* A stage that every warp computes, with a barrier behind it. */
#define CUDA_WARPS(at, ...)                                                                        \
    do {                                                                                           \
        __VA_ARGS__;                                                                               \
        __syncthreads();                                                                           \
    } while (0)
#else
#define OWN_LANES WARP
#define EACH_LANE(at, own)                                                                         \
    for (uint32_t own = 0, lane = ((void)(at), 0); (void)lane, own < OWN_LANES; own++, lane = own)
#define CUDA_WARPS(at, ...)                                                                        \
    do {                                                                                           \
        for ((at)->thread = 0; (at)->thread < (at)->threads; (at)->thread += WARP) {               \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
#endif

EXACT_INLINE uint32_t warp_of(const kernel_place *at) {
    return at->thread / WARP;
}

EXACT_INLINE uint32_t warps_of(const kernel_place *at) {
    return at->threads / WARP;
}

/* What lanes wrote in front is seen by all of the warp's lanes behind. */
EXACT_INLINE void warp_meet(void) {
#ifdef __CUDA_ARCH__
    __syncwarp();
#endif
}

/* ---- Exchanges: every lane gets what lane ^ mask has ---- */

EXACT_INLINE void exchange_words(const uint32_t *from, uint32_t mask, uint32_t *to) {
#ifdef __CUDA_ARCH__
    to[0] = __shfl_xor_sync(0xffffffffu, from[0], (int)mask);
#else
    uint32_t all[OWN_LANES];
    for (uint32_t own = 0; own < OWN_LANES; own++)
        all[own] = from[(own ^ mask) % OWN_LANES];
    for (uint32_t own = 0; own < OWN_LANES; own++)
        to[own] = all[own];
#endif
}

EXACT_INLINE void exchange_floats(const float *from, uint32_t mask, float *to) {
#ifdef __CUDA_ARCH__
    to[0] = __shfl_xor_sync(0xffffffffu, from[0], (int)mask);
#else
    float all[OWN_LANES];
    for (uint32_t own = 0; own < OWN_LANES; own++)
        all[own] = from[(own ^ mask) % OWN_LANES];
    for (uint32_t own = 0; own < OWN_LANES; own++)
        to[own] = all[own];
#endif
}

/* The highest over groups of 2 · `to` lanes, in each of their lanes. */
EXACT_INLINE void warp_highest(const kernel_place *at, uint32_t *most, uint32_t to) {
#ifdef __CUDA_ARCH__
    if (to == WARP / 2) {
        most[0] = __reduce_max_sync(0xffffffffu, most[0]);
        return;
    }
#pragma unroll
#endif
    for (uint32_t mask = 1; mask <= to; mask *= 2) {
        uint32_t other[OWN_LANES];
        exchange_words(most, mask, other);
        EACH_LANE(at, own) {
            most[own] = other[own] > most[own] ? other[own] : most[own];
        }
    }
}

/* The sum over the warp, in each of its lanes. */
EXACT_INLINE void warp_add(const kernel_place *at, uint32_t *sum) {
#ifdef __CUDA_ARCH__
    (void)at;
    sum[0] = __reduce_add_sync(0xffffffffu, sum[0]);
#else
    uint32_t all = 0;
    EACH_LANE(at, own) {
        all += sum[own];
    }
    EACH_LANE(at, own) {
        sum[own] = all;
    }
#endif
}

/* ---- What other kernels wrote: not through this multiprocessor's own cache ---- */

EXACT_INLINE float load_fresh(const float *from) {
#ifdef __CUDA_ARCH__
    return __ldcg(from);
#else
    return *from;
#endif
}

EXACT_INLINE exact_words load_fresh_words(const void *from) {
    exact_words words;
#ifdef __CUDA_ARCH__
    uint4 four = __ldcg((const uint4 *)from);
    words.word[0] = four.x;
    words.word[1] = four.y;
    words.word[2] = four.z;
    words.word[3] = four.w;
#else
    words = *(const exact_words *)from;
#endif
    return words;
}

/* Eight bytes at once. */
EXACT_INLINE void load_pair(const uint8_t *from, uint32_t *word) {
#ifdef __CUDA_ARCH__
    uint2 two = *(const uint2 *)from;
    word[0] = two.x;
    word[1] = two.y;
#else
    word[0] = exact_load_word(from);
    word[1] = exact_load_word(from + 4);
#endif
}

EXACT_INLINE void store_pair(float *to, float low, float high) {
#ifdef __CUDA_ARCH__
    *(float2 *)to = make_float2(low, high);
#else
    to[0] = low;
    to[1] = high;
#endif
}

/* Weights are read once. */
EXACT_INLINE exact_words load_weights(const uint8_t *from) {
    exact_words words;
#ifdef __CUDA_ARCH__
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.word[0]), "=r"(words.word[1]), "=r"(words.word[2]),
                   "=r"(words.word[3])
                 : "l"(from));
#else
    words = *(const exact_words *)(const void *)from;
#endif
    return words;
}

/* ---- Copies of 16 bytes to shared memory ---- */

/* A thread's copies are done when it waits for the group that they are in, no sooner and no later:
 * so the processor does them, and a copy that is in no group is never done. */
#ifndef __CUDACC__
#define PLACE_THREADS 512
#define PLACE_COPIES  65536 /* under way in a block */

typedef struct place_copy {
    void *to;
    const void *from;
    uint32_t group, next; /* the thread's next one, or the next that is free */
} place_copy;

typedef struct place_copies {
    place_copy copy[PLACE_COPIES]; /* number 0 stands for none */
    uint32_t used, free;
    uint32_t first[PLACE_THREADS], last[PLACE_THREADS], groups[PLACE_THREADS];
} place_copies;

static inline void place_copy_add(const kernel_place *at, void *to, const void *from) {
    place_copies *own = at->copies;
    uint32_t number = own->free, thread = at->thread;
    if (number != 0)
        own->free = own->copy[number].next;
    else
        number = ++own->used;
    assert(number < PLACE_COPIES);
    own->copy[number] = (place_copy){to, from, own->groups[thread], 0};
    if (own->first[thread] == 0)
        own->first[thread] = number;
    else
        own->copy[own->last[thread]].next = number;
    own->last[thread] = number;
}

static inline void place_copy_wait(const kernel_place *at, uint32_t left) {
    place_copies *own = at->copies;
    for (uint32_t number = own->first[at->thread], next; number != 0; number = next) {
        place_copy *copy = &own->copy[number];
        next = copy->next;
        if (copy->group + left >= own->groups[at->thread])
            break;
        *(exact_words *)copy->to = *(const exact_words *)copy->from;
        own->first[at->thread] = next;
        copy->next = own->free;
        own->free = number;
    }
}
#endif

EXACT_INLINE void copy_begin(const kernel_place *at, void *to, const void *from) {
#ifdef __CUDACC__
    (void)at;
#endif
#ifdef __CUDA_ARCH__
    unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
#elif !defined(__CUDACC__)
    place_copy_add(at, to, from);
#endif
}

/* What was begun since the last mark is one group. */
EXACT_INLINE void copy_mark(const kernel_place *at) {
#ifdef __CUDACC__
    (void)at;
#endif
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif !defined(__CUDACC__)
    at->copies->groups[at->thread]++;
#endif
}

/* Until at most `left` of the thread's groups are under way: a constant. */
#ifdef __CUDACC__
#define COPY_WAIT(at, left) asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory")
#else
#define COPY_WAIT(at, left) place_copy_wait(at, left)
#endif

/* ---- Kernels that follow each other ---- */

/* From here on the next kernel may begin, as far as there is room for its blocks. */
EXACT_INLINE void place_let_next(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Until the kernel in front has ended, and with it all before it. Nothing that a step computes may
 * be read or written above this line. */
EXACT_INLINE void place_wait(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#define AHEAD_PIECE 16384

/* [from, from + bytes) is on its way to the second cache; thread number `thread` of `threads`. */
EXACT_INLINE void load_ahead(uint32_t thread, uint32_t threads, const uint8_t *from,
                             uint64_t bytes) {
    for (uint64_t first = (uint64_t)thread * AHEAD_PIECE; first < bytes;
         first += (uint64_t)threads * AHEAD_PIECE) {
        uint64_t left = bytes - first;
        uint32_t size = left < AHEAD_PIECE ? (uint32_t)left : AHEAD_PIECE;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from + first), "r"(size)
                     : "memory");
#else
        (void)*(const volatile uint8_t *)(from + first); /* it is there */
        (void)*(const volatile uint8_t *)(from + first + size - 1);
#endif
    }
}

#endif
