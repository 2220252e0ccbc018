/* What one worker does on packed operands of a general product (device/cpu/gemm.h): the table that
 * instruction sets overwrite, beginning with plain C.
 *
 * Packed B: strips of 16 columns. A strip holds one block of k as [k][16]; columns past n are zero
 * or, from weights, anything (they are computed and not stored).
 * Packed A: rows, GEMM_A_STRIDE apart, each with one block of k. The stride keeps the same k of
 * consecutive rows in different sets of the first cache.
 * bfloat16: the same with two numbers of consecutive k in the place of one float, k odd in the
 * upper half; an odd k is padded with a zero. */
#ifndef AVO_DEVICE_CPU_GEMM_KERNELS_H
#define AVO_DEVICE_CPU_GEMM_KERNELS_H

#include "device/cpu/gemm.h"

#define GEMM_STRIP     16
#define GEMM_BLOCK_MAX (2 * GEMM_BLOCK_K) /* of bfloat16: as many steps when two go together */
#define GEMM_A_STRIDE  (GEMM_BLOCK_MAX + 16)

/* rows × columns of C from one block of k. */
typedef struct gemm_tile {
    const float *a; /* [rows][GEMM_A_STRIDE] */
    const float *b; /* strips, strip_stride floats apart */
    size_t strip_stride;
    size_t b_step; /* floats from one k to the next: 16, or more where B is read in place */
    size_t k;      /* steps: pairs in bfloat16 */
    float *c;
    size_t c_stride;
    uint32_t rows;    /* 1 … gemm_kernels.rows */
    uint32_t columns; /* 1 … 16 · gemm_kernels.strips */
    float scale;
    bool add;
} gemm_tile;

typedef struct gemm_kernels {
    const char *name;
    uint32_t rows, strips; /* of the largest tile */
    void (*tile)(const gemm_tile *tile);
    /* to[j · to_stride + i] = from[i · from_stride + j] for rows i and columns j of `from`. */
    void (*transpose)(const float *from, size_t from_stride, size_t rows, size_t columns, float *to,
                      size_t to_stride);
    /* weight_decode_block, but lanes past the weight's last row may hold anything. */
    void (*decode)(const weight_view *weight, size_t panel, size_t begin, size_t count, float *out);
    /* Rounds `count` numbers to bfloat16 and leaves them as floats. */
    void (*round)(float *numbers, size_t count);

    /* Instructions for bfloat16; NULL where the processor has none. Rounded floats in the order of
     * pairs then give the same numbers through `tile`. */
    void (*tile_bf16)(const gemm_tile *tile);
    /* A row of k numbers as pairs. */
    void (*pairs_row)(const float *from, size_t k, float *to);
    /* [k][16] as [pairs][16]. */
    void (*pairs_strip)(const float *from, size_t k, float *to);
} gemm_kernels;

void gemm_kernels_plain(gemm_kernels *kernels);
/* Each overwrites what it is faster at; the caller has checked CPU and operating system. */
void gemm_kernels_avx2(gemm_kernels *kernels);
void gemm_kernels_avx512(gemm_kernels *kernels);
void gemm_kernels_neon(gemm_kernels *kernels);
/* The table of an instruction set, as ops_of. */
bool gemm_kernels_of(const char *name, gemm_kernels *kernels);

#endif
