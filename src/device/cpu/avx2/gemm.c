/* General matrix products (device/cpu/gemm.h): tiles of 6 rows and 16 columns, 12 sums, two vectors
 * of B and a number of A in 15 registers. */
#include "device/cpu/avx2/vec16.h"

#define GEMM_ROWS   6
#define GEMM_STRIPS 1
#include "device/cpu/lanes/gemm.h"

static void avx2_tile(const gemm_tile *t) {
    gemm_tile_of_6(t);
}

void gemm_kernels_avx2(gemm_kernels *kernels) {
    kernels->name = "avx2";
    kernels->rows = GEMM_ROWS;
    kernels->strips = GEMM_STRIPS;
    kernels->tile = avx2_tile;
}
