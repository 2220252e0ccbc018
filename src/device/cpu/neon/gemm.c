/* General matrix products (device/cpu/gemm.h): tiles of 6 rows and 16 columns, 24 sums, four
 * vectors of B and a number of A in 29 registers. Not timed. */
#include "device/cpu/neon/vec16.h"

#define GEMM_ROWS   6
#define GEMM_STRIPS 1
#include "device/cpu/lanes/gemm.h"

static void neon_tile(const gemm_tile *t) {
    gemm_tile_of_6(t);
}

void gemm_kernels_neon(gemm_kernels *kernels) {
    kernels->name = "neon";
    kernels->rows = GEMM_ROWS;
    kernels->strips = GEMM_STRIPS;
    kernels->tile = neon_tile;
}
