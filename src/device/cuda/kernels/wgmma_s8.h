/* Hopper's own way to multiply bytes: a warpgroup (four warps) multiplies 64 outputs, whose weights
 * it has in registers, with N rows of x in shared memory, 32 k at a time, and goes on while the
 * cores compute. Beside it: barriers that count the bytes which copies in bulk have brought. The
 * processor computes the same for one warp at a time, from the same places. */
#ifndef AVO_DEVICE_CUDA_KERNELS_WGMMA_S8_H
#define AVO_DEVICE_CUDA_KERNELS_WGMMA_S8_H

#include "device/cuda/kernels/warp.h"

/* Code of compute capability 9.0 alone: "sm_90a". */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA_CARD 1
#else
#define WGMMA_CARD 0
#endif

#define WGMMA_K      32                /* of one instruction */
#define WGMMA_CORE   128               /* bytes: 8 rows of 16 k */
#define WGMMA_GROUP  (16 * WGMMA_CORE) /* bytes of 8 rows and 256 k: cores in the order of k */
#define WGMMA_GROUPS 24                /* of 8 rows of x: N = 192 at most */

/* Of a lane: outputs lane / 4 and eight more of its warp's sixteen, rows 2 (lane % 4) and the next
 * of each group of eight. */
typedef struct wgmma_sums {
    int32_t of[WGMMA_GROUPS][4];
} wgmma_sums;

/* Weights of a warp's 16 outputs and 32 k: outputs lane / 4, and with odd numbers eight more;
 * k = 4 (lane % 4) …, and from number 2 on 16 more. */
typedef struct wgmma_words {
    uint32_t of[4];
} wgmma_words;

/* ---- Products ---- */

#if WGMMA_CARD
/* Rows of x: cores of 128 bytes; those behind each other in k side by side, groups of eight rows
 * WGMMA_GROUP apart. */
EXACT_INLINE uint64_t wgmma_describe(const uint8_t *x) {
    uint64_t at = (uint64_t)__cvta_generic_to_shared(x);
    return at >> 4 | (uint64_t)(WGMMA_CORE >> 4) << 16 | (uint64_t)(WGMMA_GROUP >> 4) << 32;
}

EXACT_INLINE void wgmma_16(int32_t (*s)[4], const uint32_t *a, uint64_t x, uint32_t add) {
    asm volatile("{\n.reg .pred p;\n"
                 "setp.ne.b32 p, %13, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7}, "
                 "{%8, %9, %10, %11}, %12, p;\n}"
                 : "+r"(s[0][0]), "+r"(s[0][1]), "+r"(s[0][2]), "+r"(s[0][3]), "+r"(s[1][0]),
                   "+r"(s[1][1]), "+r"(s[1][2]), "+r"(s[1][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}

EXACT_INLINE void wgmma_32(int32_t (*s)[4], const uint32_t *a, uint64_t x, uint32_t add) {
    asm volatile("{\n.reg .pred p;\n"
                 "setp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                 "{%16, %17, %18, %19}, %20, p;\n}"
                 : "+r"(s[0][0]), "+r"(s[0][1]), "+r"(s[0][2]), "+r"(s[0][3]), "+r"(s[1][0]),
                   "+r"(s[1][1]), "+r"(s[1][2]), "+r"(s[1][3]), "+r"(s[2][0]), "+r"(s[2][1]),
                   "+r"(s[2][2]), "+r"(s[2][3]), "+r"(s[3][0]), "+r"(s[3][1]), "+r"(s[3][2]),
                   "+r"(s[3][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}

EXACT_INLINE void wgmma_64(int32_t (*s)[4], const uint32_t *a, uint64_t x, uint32_t add) {
    asm volatile("{\n.reg .pred p;\n"
                 "setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, p;\n}"
                 : "+r"(s[0][0]), "+r"(s[0][1]), "+r"(s[0][2]), "+r"(s[0][3]), "+r"(s[1][0]),
                   "+r"(s[1][1]), "+r"(s[1][2]), "+r"(s[1][3]), "+r"(s[2][0]), "+r"(s[2][1]),
                   "+r"(s[2][2]), "+r"(s[2][3]), "+r"(s[3][0]), "+r"(s[3][1]), "+r"(s[3][2]),
                   "+r"(s[3][3]), "+r"(s[4][0]), "+r"(s[4][1]), "+r"(s[4][2]), "+r"(s[4][3]),
                   "+r"(s[5][0]), "+r"(s[5][1]), "+r"(s[5][2]), "+r"(s[5][3]), "+r"(s[6][0]),
                   "+r"(s[6][1]), "+r"(s[6][2]), "+r"(s[6][3]), "+r"(s[7][0]), "+r"(s[7][1]),
                   "+r"(s[7][2]), "+r"(s[7][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}

EXACT_INLINE void wgmma_128(int32_t (*s)[4], const uint32_t *a, uint64_t x, uint32_t add) {
    asm volatile("{\n.reg .pred p;\n"
                 "setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, p;\n}"
                 : "+r"(s[0][0]), "+r"(s[0][1]), "+r"(s[0][2]), "+r"(s[0][3]), "+r"(s[1][0]),
                   "+r"(s[1][1]), "+r"(s[1][2]), "+r"(s[1][3]), "+r"(s[2][0]), "+r"(s[2][1]),
                   "+r"(s[2][2]), "+r"(s[2][3]), "+r"(s[3][0]), "+r"(s[3][1]), "+r"(s[3][2]),
                   "+r"(s[3][3]), "+r"(s[4][0]), "+r"(s[4][1]), "+r"(s[4][2]), "+r"(s[4][3]),
                   "+r"(s[5][0]), "+r"(s[5][1]), "+r"(s[5][2]), "+r"(s[5][3]), "+r"(s[6][0]),
                   "+r"(s[6][1]), "+r"(s[6][2]), "+r"(s[6][3]), "+r"(s[7][0]), "+r"(s[7][1]),
                   "+r"(s[7][2]), "+r"(s[7][3]), "+r"(s[8][0]), "+r"(s[8][1]), "+r"(s[8][2]),
                   "+r"(s[8][3]), "+r"(s[9][0]), "+r"(s[9][1]), "+r"(s[9][2]), "+r"(s[9][3]),
                   "+r"(s[10][0]), "+r"(s[10][1]), "+r"(s[10][2]), "+r"(s[10][3]), "+r"(s[11][0]),
                   "+r"(s[11][1]), "+r"(s[11][2]), "+r"(s[11][3]), "+r"(s[12][0]), "+r"(s[12][1]),
                   "+r"(s[12][2]), "+r"(s[12][3]), "+r"(s[13][0]), "+r"(s[13][1]), "+r"(s[13][2]),
                   "+r"(s[13][3]), "+r"(s[14][0]), "+r"(s[14][1]), "+r"(s[14][2]), "+r"(s[14][3]),
                   "+r"(s[15][0]), "+r"(s[15][1]), "+r"(s[15][2]), "+r"(s[15][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}

EXACT_INLINE void wgmma_192(int32_t (*s)[4], const uint32_t *a, uint64_t x, uint32_t add) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "setp.ne.b32 p, %101, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k32.s32.s8.s8 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
        "{%96, %97, %98, %99}, %100, p;\n}"
        : "+r"(s[0][0]), "+r"(s[0][1]), "+r"(s[0][2]), "+r"(s[0][3]), "+r"(s[1][0]), "+r"(s[1][1]),
          "+r"(s[1][2]), "+r"(s[1][3]), "+r"(s[2][0]), "+r"(s[2][1]), "+r"(s[2][2]), "+r"(s[2][3]),
          "+r"(s[3][0]), "+r"(s[3][1]), "+r"(s[3][2]), "+r"(s[3][3]), "+r"(s[4][0]), "+r"(s[4][1]),
          "+r"(s[4][2]), "+r"(s[4][3]), "+r"(s[5][0]), "+r"(s[5][1]), "+r"(s[5][2]), "+r"(s[5][3]),
          "+r"(s[6][0]), "+r"(s[6][1]), "+r"(s[6][2]), "+r"(s[6][3]), "+r"(s[7][0]), "+r"(s[7][1]),
          "+r"(s[7][2]), "+r"(s[7][3]), "+r"(s[8][0]), "+r"(s[8][1]), "+r"(s[8][2]), "+r"(s[8][3]),
          "+r"(s[9][0]), "+r"(s[9][1]), "+r"(s[9][2]), "+r"(s[9][3]), "+r"(s[10][0]),
          "+r"(s[10][1]), "+r"(s[10][2]), "+r"(s[10][3]), "+r"(s[11][0]), "+r"(s[11][1]),
          "+r"(s[11][2]), "+r"(s[11][3]), "+r"(s[12][0]), "+r"(s[12][1]), "+r"(s[12][2]),
          "+r"(s[12][3]), "+r"(s[13][0]), "+r"(s[13][1]), "+r"(s[13][2]), "+r"(s[13][3]),
          "+r"(s[14][0]), "+r"(s[14][1]), "+r"(s[14][2]), "+r"(s[14][3]), "+r"(s[15][0]),
          "+r"(s[15][1]), "+r"(s[15][2]), "+r"(s[15][3]), "+r"(s[16][0]), "+r"(s[16][1]),
          "+r"(s[16][2]), "+r"(s[16][3]), "+r"(s[17][0]), "+r"(s[17][1]), "+r"(s[17][2]),
          "+r"(s[17][3]), "+r"(s[18][0]), "+r"(s[18][1]), "+r"(s[18][2]), "+r"(s[18][3]),
          "+r"(s[19][0]), "+r"(s[19][1]), "+r"(s[19][2]), "+r"(s[19][3]), "+r"(s[20][0]),
          "+r"(s[20][1]), "+r"(s[20][2]), "+r"(s[20][3]), "+r"(s[21][0]), "+r"(s[21][1]),
          "+r"(s[21][2]), "+r"(s[21][3]), "+r"(s[22][0]), "+r"(s[22][1]), "+r"(s[22][2]),
          "+r"(s[22][3]), "+r"(s[23][0]), "+r"(s[23][1]), "+r"(s[23][2]), "+r"(s[23][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}

#endif

/* Before the first product of a sequence: registers are written. */
EXACT_INLINE void wgmma_begin(void) {
#if WGMMA_CARD
    asm volatile("wgmma.fence.sync.aligned;");
#endif
}

/* One product is a group of its own. sum = weights · x (+ sum, with `add`); `rows`: 16, 32, 64, 128
 * or 192, a constant. */
EXACT_INLINE void wgmma_multiply(uint32_t rows, const wgmma_words *weights, const uint8_t *x,
                                 bool add, wgmma_sums *sum) {
#if WGMMA_CARD
    uint64_t from = wgmma_describe(x);
    if (rows == 16)
        wgmma_16(sum[0].of, weights[0].of, from, add);
    else if (rows == 32)
        wgmma_32(sum[0].of, weights[0].of, from, add);
    else if (rows == 64)
        wgmma_64(sum[0].of, weights[0].of, from, add);
    else if (rows == 192)
        wgmma_192(sum[0].of, weights[0].of, from, add);
    else
        wgmma_128(sum[0].of, weights[0].of, from, add);
    asm volatile("wgmma.commit_group.sync.aligned;");
#elif !defined(__CUDACC__)
    for (uint32_t lane = 0; lane < OWN_LANES; lane++)
        for (uint32_t i = 0; i < rows / 2; i++) {
            uint32_t output = lane / 4, row = 2 * (lane % 4) + i % 2;
            const uint8_t *own = x + i / 4 * WGMMA_GROUP + row * 16;
            int32_t all = add ? sum[lane].of[i / 4][i % 4] : 0;
            for (uint32_t four = 0; four < 4; four++) {
                const uint32_t *a = weights[output * 4 + four].of + i / 2 % 2;
                all = exact_dot4(a[0], exact_load_word(own + 4 * four), all);
                all = exact_dot4(a[2], exact_load_word(own + WGMMA_CORE + 4 * four), all);
            }
            sum[lane].of[i / 4][i % 4] = all;
        }
#else
    (void)rows, (void)weights, (void)x, (void)add, (void)sum;
#endif
}

/* Until at most `left` products are under way: a constant. The sums may be read behind WGMMA_END
 * alone. Loads may be moved across all of these but the last one: only copies in bulk write where
 * products read, and they have barriers of their own. */
#if WGMMA_CARD
#define WGMMA_WAIT(left) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left))
#define WGMMA_END()      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory")
#else
#define WGMMA_WAIT(left) (void)0
#define WGMMA_END()      (void)0
#endif

/* ---- Barriers of copies in bulk ---- */

#define BULK_COPIES 20 /* of one filling */

/* In shared memory. */
typedef struct bulk_barrier {
#ifdef __CUDACC__
    uint64_t word;
    uint64_t unused;
#else
    uint32_t copies; /* that are done when the barrier is waited for */
    struct {
        void *to;
        const void *from;
        uint32_t bytes;
    } copy[BULK_COPIES];
#endif
} bulk_barrier;

EXACT_INLINE void bulk_open(bulk_barrier *barrier) {
#if WGMMA_CARD
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier->word);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#elif !defined(__CUDACC__)
    barrier->copies = 0;
#else
    (void)barrier;
#endif
}

/* By one thread, before the copies: how much they will bring. */
EXACT_INLINE void bulk_expect(bulk_barrier *barrier, uint32_t bytes) {
#if WGMMA_CARD
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(&barrier->word)),
                 "r"(bytes)
                 : "memory");
#else
    (void)bytes;
#ifndef __CUDACC__
    assert(barrier->copies == 0);
#endif
    (void)barrier;
#endif
}

/* Multiples of 16 bytes. */
EXACT_INLINE void bulk_copy(bulk_barrier *barrier, void *to, const void *from, uint32_t bytes) {
#if WGMMA_CARD
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes), "r"((unsigned)__cvta_generic_to_shared(&barrier->word))
                 : "memory");
#elif !defined(__CUDACC__)
    assert(barrier->copies < BULK_COPIES && bytes % 16 == 0);
    barrier->copy[barrier->copies].to = to;
    barrier->copy[barrier->copies].from = from;
    barrier->copy[barrier->copies++].bytes = bytes;
#else
    (void)barrier, (void)to, (void)from, (void)bytes;
#endif
}

/* Until everything is there: the filling number 2n + turn, from 0. */
EXACT_INLINE void bulk_wait(bulk_barrier *barrier, uint32_t turn) {
#if WGMMA_CARD
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier->word), done = 0;
    while (done == 0)
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(at), "r"(turn)
                     : "memory");
#elif !defined(__CUDACC__)
    (void)turn;
    for (uint32_t i = 0; i < barrier->copies; i++)
        for (uint32_t j = 0; j < barrier->copy[i].bytes; j++)
            ((uint8_t *)barrier->copy[i].to)[j] = ((const uint8_t *)barrier->copy[i].from)[j];
    barrier->copies = 0;
#else
    (void)barrier, (void)turn;
#endif
}

#endif
