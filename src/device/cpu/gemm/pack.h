/* Operands of general products as tiles read them (kernels.h). */
#ifndef AVO_DEVICE_CPU_GEMM_PACK_H
#define AVO_DEVICE_CPU_GEMM_PACK_H

#include "device/cpu/gemm/kernels.h"

/* Rows of A that a worker packs at a time. */
#define GEMM_PACK_ROWS 256
/* Strips times k of B that a worker packs at a time: as many strips as a block of k of a weight has
 * columns, or as much k as a block has. */
#define GEMM_PACK_STRIPS (GEMM_BLOCK_K / GEMM_STRIP)
#define GEMM_PACK_AREA   (4 * GEMM_BLOCK_K)

/* A worker's own buffers. */
typedef struct gemm_room {
    float a[GEMM_PACK_ROWS * GEMM_A_STRIDE];
    float strips[GEMM_PACK_AREA * GEMM_STRIP]; /* of B before they become pairs */
    float panel[GEMM_BLOCK_K * GEMM_STRIP];
} gemm_room;
_Static_assert(sizeof(gemm_room) <= GEMM_WORKER_BYTES, "gemm.h states the maximum");

/* How numbers are packed. */
typedef enum gemm_form {
    GEMM_FORM_FLOATS,
    GEMM_FORM_ROUNDED, /* to bfloat16, as floats, each pair exchanged: k odd first */
    GEMM_FORM_PAIRS    /* bfloat16 */
} gemm_form;

/* k of a block. */
static inline size_t gemm_block_k(gemm_form form) {
    return form == GEMM_FORM_FLOATS ? GEMM_BLOCK_K : GEMM_BLOCK_MAX;
}

/* Steps of a tile for `count` numbers of k. */
static inline size_t gemm_steps(gemm_form form, size_t count) {
    return form == GEMM_FORM_FLOATS    ? count
           : form == GEMM_FORM_ROUNDED ? (count + 1) / 2 * 2
                                       : (count + 1) / 2;
}

/* Part of a strip range and of GEMM_BLOCK_K k. */
typedef struct gemm_part {
    size_t strip, strips; /* first, and how many */
    size_t begin, count;  /* of k */
} gemm_part;

/* Rows [first, first + rows) of A and one block of k, [begin, begin + count), into room->a. `first`
 * is a multiple of 16. */
void gemm_pack_rows(const gemm_kernels *kernels, const gemm_call *call, gemm_form form,
                    size_t first, size_t rows, size_t begin, size_t count, gemm_room *room);
/* How a part of B is cut. True: across k, with up to GEMM_PACK_STRIPS strips that begin at a
 * multiple of that (rows of B that are long, or decoded together). False: across strips. */
bool gemm_pack_by_k(const gemm_operand *b);
/* A part of B; `out` is its first number, strips are `strip_stride` floats apart. part->begin is a
 * multiple of 16, of GEMM_BLOCK_K unless gemm_pack_by_k. */
void gemm_pack_strips(const gemm_kernels *kernels, const gemm_call *call, gemm_form form,
                      const gemm_part *part, float *out, size_t strip_stride, gemm_room *room);

#endif
