/* Arithmetic that processors and graphics cards compute to the same bit: these headers are compiled
 * by the C compiler and by nvcc. Everything in them is rounded operation by operation; an fma is
 * written as one. nvcc is called with -fmad=false -ftz=false -prec-div=true -prec-sqrt=true. */
#ifndef AVO_DEVICE_EXACT_INLINE_H
#define AVO_DEVICE_EXACT_INLINE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define EXACT_INLINE static __device__ __forceinline__
#define EXACT_TABLE  static __device__ const
#else
#define EXACT_INLINE static inline
#define EXACT_TABLE  static const
#endif

EXACT_INLINE uint32_t exact_bits(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

EXACT_INLINE float exact_float(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof(number));
    return number;
}

/* To the nearest integer, ties to even; |x| < 2^31. */
EXACT_INLINE int32_t exact_nearest(float x) {
#ifdef __CUDA_ARCH__
    return __float2int_rn(x);
#else
    return (int32_t)lrintf(x);
#endif
}

/* sum + the four products of signed bytes. */
EXACT_INLINE int32_t exact_dot4(uint32_t a, uint32_t b, int32_t sum) {
#ifdef __CUDA_ARCH__
    return __dp4a((int)a, (int)b, sum);
#else
    for (int i = 0; i < 4; i++)
        sum += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return sum;
#endif
}

#endif
