/* What the kernels of the fast arithmetic are given. Included by calls.h alone. */
#ifndef AVO_DEVICE_CUDA_KERNELS_FAST_CALLS_H
#define AVO_DEVICE_CUDA_KERNELS_FAST_CALLS_H

#include "device/cuda/kernels/calls.h" /* which includes this behind its norms */

/* Weights: 16 outputs are a panel, 64 k of it a slab of 2 KB, slabs in the order of k. In a slab
 * [half of the outputs][k / 8][output % 8][k % 8], 16-bit numbers: each 8 × 8 of them lie together,
 * as tensor cores read them. Zeros behind the last output and the last k. Paired matrices, up and
 * gate: panel p has outputs 8p … 8p + 7 of both, in turn: up, gate, up, …
 *
 * Inputs are 16-bit numbers of the weights' type, in one of two layouts:
 *   few rows    [k / 32][row][k / 2 % 4][4 pairs]: a lane's operands of two steps are 16 bytes
 *   many rows   [k / 64][row / 8][k / 8 % 8][row % 8][k % 8], as weights have it
 */
#define FAST_PANEL        16
#define FAST_SLAB         64
#define FAST_SLAB_BYTES   2048
#define FAST_ROWS         16   /* of the kernel for few rows */
#define FAST_MAKES        4    /* of which this many can be made in the same kernel */
#define FAST_MAKES_K      4096 /* so long at most, and even */
#define FAST_PIECE        2    /* slabs that are copied together, for few rows */
#define FAST_WARPS        8
#define FAST_THREADS      256
#define FAST_RINGS        FAST_WARPS /* of fast_few */
#define FAST_TILE_PANELS  8          /* of the kernel for many rows: 128 outputs */
#define FAST_TILE_THREADS 384
#define FAST_TILE_STAGES  8  /* at most */
#define FAST_GIVE         32 /* rows that a warp stores together, by way of shared memory */
#define FAST_GIVE_STRIDE  20
#define FAST_TILE_HEAD    (1024 + FAST_WARPS * FAST_GIVE * FAST_GIVE_STRIDE * 4) /* before stages */

/* Float rows into an input: norm or activation, then rounding. Block = row, 256 threads. */
typedef struct fast_prepare_call {
    const float *x, *gate; /* as few_input */
    const uint32_t *index;
    uint64_t stride;
    uint32_t k, slabs, rows;
    uint32_t brain, many;
    uint32_t activated, activation;
    norm_call norm;
    uint8_t *out;
} fast_prepare_call;

/* Panels of quant/panels.h into slabs: block = panel, 256 threads. */
typedef struct fast_pack_call {
    const uint8_t *from;
    uint64_t panel_bytes;
    uint8_t *to; /* the matrix, or up and gate */
    uint32_t first, k, slabs;
    uint32_t paired, half; /* paired: 0 up, 1 gate */
} fast_pack_call;

typedef struct fast_output {
    float *out; /* [rows][stride]; NULL: only `next` */
    uint64_t stride;
    const float *bias;
    float add_scale;
    uint32_t add; /* out = fma(y, add_scale, out) */
} fast_output;

typedef struct fast_matrix {
    const uint8_t *data;
    fast_output to;
    uint32_t outputs, panels;
} fast_matrix;

/* Up to three matrices of one k. `paired`: the first is up and gate; `gate` is where gate goes, and
 * with `activated` out of up is activation(gate) · up. */
typedef struct fast_call {
    fast_matrix one[3];
    fast_output gate;
    uint32_t matrices, panels;
    uint32_t paired, activated, activation;
    uint32_t brain; /* bf16, else f16 */
    uint32_t slabs; /* of k */
    uint32_t rows;
    uint32_t groups;  /* of eight rows in `x` of many rows */
    uint32_t workers; /* few rows: rings that are used */
    uint32_t depth;   /* few rows: pieces in a ring; many: stages */
    uint32_t shares;  /* many rows, but no more than a tile has: a block takes one stretch of
                         panels, not tiles */
    const uint8_t *x; /* the input; NULL: few rows make it themselves, of `make` */
    fast_prepare_call make;
    uint8_t *next;      /* the product's outputs as the next one's input; NULL: none */
    uint32_t next_many; /* in which layout */
} fast_call;

#endif
