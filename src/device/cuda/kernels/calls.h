/* What kernels are given: plain structures that the host fills and passes by value. Pointers are
 * device addresses. Compiled as C by the host and as C++ by nvcc. */
#ifndef AVO_DEVICE_CUDA_KERNELS_CALLS_H
#define AVO_DEVICE_CUDA_KERNELS_CALLS_H

#include "device/exact/panel.h"

/* X(name, structure of its call, threads and blocks of a multiprocessor that it is compiled for,
 * whether it waits itself for the kernel in front): the kernels, in the order of cuda_kernel. A
 * part of the table is compiled by itself, so that several processors share the work
 * (kernels_products.cu and others). */
#define CUDA_KERNELS_PRODUCTS(X)                                                                   \
    X(prepare, prepare_call, 512, 1, false)                                                        \
    X(prepare_batch, prepare_batch, 512, 1, false)                                                 \
    X(linear_q4r, linear_batch, 512, 1, false)                                                     \
    X(tile_q4r, linear_batch, 256, 2, false)                                                       \
    X(tile_units, linear_batch, 256, 2, false)                                                     \
    X(wide_192, wide_call, 128 * WIDE_GROUPS_192 * WIDE_SPLITS_192, 1, false)                      \
    X(wide_128, wide_call, 128 * WIDE_GROUPS_128 * WIDE_SPLITS_128, 1, false)                      \
    X(wide_64, wide_call, 128 * WIDE_GROUPS_64 * WIDE_SPLITS_64, 1, false)                         \
    X(wide_32, wide_call, 128 * WIDE_GROUPS_32 * WIDE_SPLITS_32, 1, false)                         \
    X(wide_16, wide_call, 128 * WIDE_GROUPS_16 * WIDE_SPLITS_16, 1, false)                         \
    X(wide_x, prepare_call, 256, 4, false)                                                         \
    X(linear_units, linear_batch, 512, 1, false)                                                   \
    X(linear_float, linear_batch, 512, 1, false)
#define CUDA_KERNELS_FEW(X)                                                                        \
    X(ready, ready_call, FEW_THREADS, 2, true)                                                     \
    X(few_q4r, few_call, FEW_THREADS, 2, true)                                                     \
    X(few_q8b, few_call, FEW_THREADS, 2, true)                                                     \
    X(few_float, few_call, FEW_THREADS, 1, true)                                                   \
    X(decode, decode_call, 256, 2, true)
#define CUDA_KERNELS_ROWS(X)                                                                       \
    X(norm, norm_rows_call, 512, 1, false)                                                         \
    X(position, position_call, 512, 1, false)                                                      \
    X(position_64, position_call, 256, 4, false)                                                   \
    X(position_128, position_call, 256, 4, false)                                                  \
    X(attend, attend_rows_call, 512, 1, false)                                                     \
    X(attend_int8_64, attend_tiles_call, 128, 3, false)                                            \
    X(attend_int8_128, attend_tiles_call, 128, 3, false)                                           \
    X(attend_half_64, attend_tiles_call, 256, 1, false)                                            \
    X(attend_half_128, attend_tiles_call, 256, 1, false)                                           \
    X(head_chunk, head_call, 512, 1, false)                                                        \
    X(head_merge, head_call, 512, 1, false)                                                        \
    X(gain, gain_call, 512, 1, false)                                                              \
    X(offset, offset_call, 512, 1, false)                                                          \
    X(read, read_call, 512, 1, false)
#define CUDA_KERNELS_FAST(X)                                                                       \
    X(fast_pack, fast_pack_call, 256, 1, false)                                                    \
    X(fast_prepare, fast_prepare_call, 256, 1, true)                                               \
    X(fast_few, fast_call, FAST_THREADS, 2, true)                                                  \
    X(fast_few16, fast_call, FAST_THREADS, 1, true)                                                \
    X(fast_tile64, fast_call, FAST_TILE_THREADS, 1, true)                                          \
    X(fast_tile128, fast_call, FAST_TILE_THREADS, 1, true)                                         \
    X(fast_tile256, fast_call, FAST_TILE_THREADS, 1, true)
#define CUDA_KERNELS_FAST_ATTEND(X)                                                                \
    X(fast_position, position_call, 256, 1, true)                                                  \
    X(fast_decode, fast_attend_call, FAST_ATTEND_THREADS, 1, true)                                 \
    X(fast_attend, fast_attend_call, FAST_ATTEND_THREADS, 1, true)
#define CUDA_KERNEL_TABLE(X)                                                                       \
    CUDA_KERNELS_PRODUCTS(X)                                                                       \
    CUDA_KERNELS_FEW(X) CUDA_KERNELS_ROWS(X) CUDA_KERNELS_FAST(X) CUDA_KERNELS_FAST_ATTEND(X)

#define CUDA_UNITS 5 /* parts of the table, one image each */

typedef enum cuda_kernel {
#define X(name, call, threads, blocks, waits) CUDA_KERNEL_##name,
    CUDA_KERNEL_TABLE(X) CUDA_KERNELS
#undef X
} cuda_kernel;

/* ---- Norms and activations ---- */

#define CALL_NORM_NONE  0 /* as norm_kind */
#define CALL_NORM_RMS   1
#define CALL_NORM_LAYER 2

#define CALL_ADAPTERS 8 /* of one row */

/* What adapters add to a norm's weights and biases, of one row. */
typedef struct row_norms {
    uint32_t count;
    float factor[CALL_ADAPTERS];
    const float *weight[CALL_ADAPTERS], *bias[CALL_ADAPTERS]; /* NULL: nothing */
} row_norms;

typedef struct norm_call {
    uint32_t kind;
    float epsilon;
    const float *weight, *bias;
    const row_norms *rows; /* [rows] or NULL */
} norm_call;

#include "device/cuda/kernels/fast_calls.h"

#define CALL_FLOAT 0 /* as product_form */
#define CALL_A8    1
#define CALL_A16   2
#define CALL_A8R   3

/* Activations in one form, as activation_view. */
typedef struct form_call {
    float *x;
    int8_t *number, *low;
    float *scale, *sum;
    int32_t *integer_sum;
    uint32_t stride, scale_stride, sum_stride;
    uint32_t form;
} form_call;

/* Rows into a form: block (256 k, row), 256 threads. */
#define PREPARE_K       256
#define PREPARE_THREADS 256
typedef struct prepare_call {
    form_call out;
    const float *x; /* [rows][stride], or `up` of a gated product */
    uint64_t stride;
    const uint32_t *index; /* rows of x; NULL: 0, 1, 2, … */
    const float *gate;     /* like x; NULL: none */
    const float *factor;   /* [rows] multiplies x; NULL: 1 */
    uint32_t k;
    uint32_t staged;                /* shared memory has room for the whole row */
    uint32_t activated, activation; /* x = activation(gate) · x, or activation(x) */
    uint32_t padded;                /* wide_x: rows, up to a multiple of eight */
    uint32_t parts;                 /* wide_x: blocks of a row; with a norm, one */
    uint32_t rows;                  /* of one of several calls */
    norm_call norm;
} prepare_call;

/* Several of them: block (256 k, row, which one). */
#define PREPARE_GROUP 20
typedef struct prepare_batch {
    prepare_call one[PREPARE_GROUP];
} prepare_batch;

/* out = norm(x), or out = fma(norm(x), add_scale, out): block = row, 256 threads. */
typedef struct norm_rows_call {
    norm_call norm;
    const float *x;
    const uint32_t *index;
    float *out;
    uint32_t width;
    uint32_t add;
    float add_scale;
} norm_rows_call;

/* ---- Products ---- */

typedef struct linear_one {
    const uint8_t *data; /* panels */
    uint64_t panel_bytes;
    const float *bias; /* NULL: none */
    form_call x;
    float *out;
    uint64_t out_stride;
    const float *row_scale; /* [rows of x] in the place of add_scale; NULL: none */
    float add_scale;
    uint32_t add; /* out = fma(y, add_scale, out), else out = y */
    uint32_t rows, k, x_rows;
    uint32_t type; /* quant_type, of FLOAT */
    exact_shape shape;
} linear_one;

/* Block (two panels, rows of x, which product). */
#define LINEAR_CALLS       3   /* matrices of a site */
#define LINEAR_GROUP       20  /* calls of a launch */
#define LINEAR_ROWS        4   /* of x, of one block */
#define LINEAR_SLOTS       128 /* pairs of factors, of 32 lanes each, in shared memory */
#define LINEAR_THREADS     256
#define LINEAR_THREADS_Q4R 512 /* a warp for each super-block of k = 4096 */
#define LINEAR_FLOAT_ROWS  8
#define LINEAR_SHARED      (LINEAR_SLOTS * 64 * 4 + LINEAR_ROWS * 32 * 4)
typedef struct linear_batch {
    linear_one one[LINEAR_GROUP];
} linear_batch;

/* ---- Products of few rows, with what comes before them in the same kernel ---- */

/* Rows of floats into the form that products read, in shared memory: the norm, or the activation,
 * the rotation and the quantising. */
typedef struct few_input {
    const float *x;        /* [rows][stride] */
    const float *gate;     /* like x; NULL: none */
    const uint32_t *index; /* rows of x; NULL: 0, 1, 2, … */
    uint64_t stride;
    uint32_t k, rows, form;
    uint32_t together; /* rows that are staged at once */
    uint32_t direct;   /* not staged at all: there is no norm */
    uint32_t activated, activation;
    norm_call norm;       /* without rows of adapters */
    const uint8_t *ready; /* NULL, or all of it in its form, as kernel_ready leaves it */
} few_input;

/* Input in its form once for all blocks. */
typedef struct ready_call {
    few_input input;
    uint8_t *out;
} ready_call;

typedef struct few_matrix {
    const uint8_t *data; /* panels */
    const float *bias;
    float *out;
    uint64_t out_stride;
    float add_scale;
    uint32_t add;
    uint32_t outputs, panels;
} few_matrix;

/* Up to three matrices of one type and k, their panels one behind the other and shared out among
 * the blocks. `paired`: two of equal size, up and gate; out of the first is
 * activation(gate) · up. */
#define FEW_ROWS       8
#define FEW_FLOAT_ROWS 4
#define FEW_THREADS    512
#define FEW_RING       4
#define FEW_DEPTH      8 /* at most */
typedef struct few_call {
    few_input input;
    few_matrix one[LINEAR_CALLS];
    uint64_t panel_bytes;
    uint32_t matrices, panels;
    uint32_t paired, activation;
    uint32_t type;     /* FLOAT: quant_type */
    uint32_t together; /* panels of one round */
    uint32_t span;     /* pieces of each */
    uint32_t own;      /* panels of a block, at most */
    uint32_t last;     /* bytes of a panel's last piece */
    uint32_t depth;    /* pieces of a warp that are on their way */
    uint32_t whole;    /* a warp has all of a panel's k: no slots but for results */
    uint32_t lines;    /* FLOAT: of a panel that are in the ring together */
    uint64_t ahead;    /* bytes of weights that each block fetches before its input is there */
} few_call;

/* ---- Products of many rows by warpgroups (wide.h) ---- */

/* Warpgroups of a block that have panels of their own, and that share a panel's k: by the rows of a
 * tile. */
#define WIDE_GROUPS_192 2
#define WIDE_SPLITS_192 1
#define WIDE_GROUPS_128 2
#define WIDE_SPLITS_128 1
#define WIDE_GROUPS_64  1
#define WIDE_SPLITS_64  4
#define WIDE_GROUPS_32  1
#define WIDE_SPLITS_32  4
#define WIDE_GROUPS_16  1
#define WIDE_SPLITS_16  4

typedef struct wide_call {
    few_matrix one[LINEAR_CALLS];
    const uint8_t *number; /* of x, as wide.h has it */
    const float *scale;    /* [steps][padded] */
    uint64_t panel_bytes;
    uint32_t matrices, panels; /* of all matrices */
    uint32_t k, steps;         /* of 256 k */
    uint32_t rows, padded;     /* of x; up to a multiple of eight */
    uint32_t row_tiles, tiles; /* tiles: those of the same panels side by side */
} wide_call;

/* ---- Attention ---- */

#define CALL_KV_F32  0 /* as kv_type */
#define CALL_KV_F16  1
#define CALL_KV_BF16 2
#define CALL_KV_INT8 3
#define CALL_KV_FP8  4

#define CALL_PAGE  32
#define CALL_SPLIT 256 /* positions, of one state */

typedef struct kv_call {
    uint8_t *pool; /* at the layer */
    uint64_t page_bytes, head_bytes, key_bytes, value_offset, value_bytes;
    const uint32_t *pages;     /* page tables, one behind the other */
    const uint32_t *row_pages; /* [rows] where the row's table begins in `pages` */
    const uint32_t *position;  /* [rows] */
    uint32_t type, head_size, value_stride;
} kv_call;

/* Queries into what `attend` reads, keys and values into their pages: block (head, row). */
#define POSITION_THREADS 256
#define CALL_HEAD_MAX    1024
#define POSITION_SHARED  ((2 * CALL_HEAD_MAX + 16 * 16 + 64) * 4)
typedef struct position_call {
    kv_call kv;
    const float *query, *key, *value;
    uint8_t *query_out; /* [rows][heads][query_bytes] */
    uint64_t query_bytes;
    uint32_t heads, kv_heads;
    float query_factor;
    norm_call query_norm, key_norm;
    const float *cosine, *sine; /* [rows][pairs_max]; NULL: no rotation */
    uint32_t pairs, pairs_max, interleaved;
    uint32_t rows; /* position_64 and position_128: a warp for each head of each row */
} position_call;

#define ATTEND_THREADS 256
#define ATTEND_SHARED  ((2 * CALL_HEAD_MAX + 4 * CALL_SPLIT + 128) * 4)
typedef struct attend_rows_call {
    kv_call kv;
    const uint8_t *query;
    uint64_t query_bytes;
    float *out; /* [rows][heads][head_size] */
    uint32_t heads, kv_heads, window;
    float softcap;
} attend_rows_call;

/* Tiles of up to sixteen rows: consecutive rows of one session, times the heads that share a KV
 * head. Block (KV head, tiles): `share` warps (1, 2 or 4) share a tile, and take its splits in
 * turn.
 */
#define ATTEND_TILE_ROWS         16
#define ATTEND_TILE_WARPS        4
#define ATTEND_TILE_THREADS      (32 * ATTEND_TILE_WARPS)
#define ATTEND_TILE_SHARED(dims) (ATTEND_TILE_WARPS * ((dims) + 4) * 32 * 4)
/* The same of F16 pages, up to 128 rows: block (KV head, tile). */
#define HALF_ROWS    128
#define HALF_THREADS 256
#define HALF_SHARED(dims)                                                                          \
    (((dims)*128 + 128 * 128 + 16 * 128 + 2 * 4 * 128 + 8 * 128) * 4 + 4 * (dims)*128 + 4 * 64)
typedef struct attend_tiles_call {
    attend_rows_call rows;
    const uint32_t *tile; /* [tiles][2] first row of the batch, rows; 0 rows: nothing */
    uint32_t tiles, share;
} attend_tiles_call;

/* Rows that are alone in their sessions: block (heads of a KV head, row, split), 256 threads. */
#define DECODE_THREADS CALL_SPLIT
#define DECODE_HEADS   4 /* of a block, at most */
typedef struct decode_call {
    position_call position; /* without rows of adapters */
    attend_rows_call attend;
    float *part;       /* [rows][heads][splits][16 + head_size up to 16] */
    uint32_t *arrived; /* [rows][heads] zeros, which it leaves */
    uint32_t splits;
    uint32_t pages; /* of a split, at most */
} decode_call;

/* The fast arithmetic's, for pages of 16-bit floats. `splits` of fast_decode: 1, or spans of 256
 * positions that have blocks of their own; `tile` of fast_attend: [tiles][first row, rows]. */
#define FAST_ATTEND_THREADS 128
#define FAST_ATTEND_PAIRS   64 /* of row and head, of a block */
/* Bytes of shared memory: keys and values of four blocks, states and a total of 16 heads, and as
 * many queries, with a key and a value; keys and values of two blocks, and totals of 64. */
#define FAST_DECODE_SHARED(size)                                                                   \
    (1024 * (size) + 11 * 64 + 64 * (size) + (18 * 4 + 16 * 2) * (size))
#define FAST_ATTEND_SHARED(size) (512 * (size) + 256 * (size))
typedef struct fast_attend_call {
    kv_call kv;
    const uint8_t *query; /* [rows][heads][head_size], 16-bit */
    float *out;           /* as attend_rows_call */
    uint8_t *next;        /* the output's input; NULL: `out` */
    uint32_t next_many, next_brain;
    uint32_t rows, heads, kv_heads, window;
    float softcap;
    float *part;       /* as decode_call */
    uint32_t *arrived; /* the same */
    uint32_t splits, tiles;
    const uint32_t *tile;
    /* fast_decode does what fast_position does, of rows that are alone in their sessions. */
    uint32_t positions;
    position_call position;
} fast_attend_call;

/* ---- The head ---- */

#define HEAD_CHUNK_K      512
#define HEAD_THREADS      256
#define HEAD_TOP_MAX      64
#define HEAD_CHUNK_SHARED ((2 * HEAD_CHUNK_K + HEAD_THREADS + 32) * 4)
typedef struct head_sum {
    float highest, sum;
} head_sum;
typedef struct head_top {
    float logit[HEAD_TOP_MAX];
    int32_t token[HEAD_TOP_MAX];
    uint32_t count;
    float target;
} head_top;
typedef struct head_call {
    float *logits; /* [rows][vocabulary] */
    uint32_t vocabulary, chunks, top;
    uint32_t finish; /* scale and cap are applied */
    float scale, cap;
    const int32_t *target; /* [rows] or NULL */
    head_sum *sums;        /* [rows][chunks] */
    float *chunk_logit;    /* [rows][chunks][top] */
    int32_t *chunk_token;
    uint32_t *chunk_count; /* [rows][chunks] */
    head_top *out;         /* [rows] */
} head_call;

/* ---- Adapters ---- */

typedef struct row_gains {
    uint32_t count;
    float factor[CALL_ADAPTERS];
    const float *gain[CALL_ADAPTERS];
} row_gains;
/* y = y · (1 + Σ factor · (gain − 1)); `join`: then out = fma(y, add_scale, out). Block (256
 * outputs, row). */
typedef struct gain_call {
    const row_gains *rows;
    float *y;
    uint64_t stride;
    float *join;
    float add_scale;
    uint32_t count; /* outputs */
} gain_call;
/* out += factor · offset */
typedef struct offset_call {
    const float *offset;
    const float *factor; /* [rows] */
    float *out;
    uint64_t stride;
    uint32_t count;
} offset_call;

/* ---- Measuring ---- */

#define READ_BLOCKS  (132 * 8)
#define READ_THREADS 256
typedef struct read_call {
    const uint32_t *from; /* words in groups of four */
    uint64_t groups;
    uint32_t *sum; /* so that reads are not left out */
} read_call;

#endif
