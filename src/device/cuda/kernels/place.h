/* How kernels are written, so that nvcc makes kernels of them and the C compiler functions that
 * compute one block: code of a block, in which CUDA_EACH is a stage that every thread computes,
 * with a barrier behind it. Outside of stages everything is the same for all threads of a block,
 * and nothing is kept in variables from one stage to the next but in memory. */
#ifndef AVO_DEVICE_CUDA_KERNELS_PLACE_H
#define AVO_DEVICE_CUDA_KERNELS_PLACE_H

#include "device/exact/inline.h"

struct place_copies;

typedef struct kernel_place {
    uint32_t x, y, z; /* the block */
    uint32_t thread, threads;
    uint32_t blocks; /* along x */
    float *shared;
    struct place_copies *copies; /* NULL on a card, which keeps them itself */
} kernel_place;

#ifdef __CUDACC__
#define CUDA_EACH(at, ...)                                                                         \
    do {                                                                                           \
        __VA_ARGS__;                                                                               \
        __syncthreads();                                                                           \
    } while (0)
#else
#define CUDA_EACH(at, ...)                                                                         \
    do {                                                                                           \
        for ((at)->thread = 0; (at)->thread < (at)->threads; (at)->thread++) {                     \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
#endif

#endif
