/* General matrix products (device/cpu/gemm.h): tiles of 14 rows and 32 columns, 28 sums, two
 * vectors of B and a number of A in 31 registers. For each k, 28 fma wait for 16 loads.
 *
 * One Zen 5 core (peak 270 GFLOPS in the same run) with operands in its caches: 264 to 268 GFLOPS
 * for tiles of 12 to 14 rows and 256 k. Whole products: avocet bench --kernels --op gemm. */
#include "device/cpu/avx512/vec16.h"

#define GEMM_ROWS   14
#define GEMM_STRIPS 2
#define GEMM_RADIX  16
#include "base/cpu.h"
#include "device/cpu/avx512/avx512_int.h"
#include "device/cpu/avx512/transpose.h"
#include "device/cpu/lanes/gemm_decode.h"

static void avx512_tile(const gemm_tile *t) {
    gemm_tile_of_14(t);
}

static void avx512_transpose(const float *from, size_t from_stride, size_t rows, size_t columns,
                             float *to, size_t to_stride) {
    for (size_t i = 0; i < rows; i += 16)
        for (size_t j = 0; j < columns; j += 16) {
            size_t high = rows - i < 16 ? rows - i : 16, wide = columns - j < 16 ? columns - j : 16;
            block16 x;
            for (size_t r = 0; r < 16; r++)
                x[r] = r < high ? _mm512_maskz_loadu_epi32(first_lanes(wide),
                                                           from + (i + r) * from_stride + j)
                                : _mm512_setzero_si512();
            transpose(x);
            for (size_t r = 0; r < wide; r++)
                _mm512_mask_storeu_epi32(to + (j + r) * to_stride + i, first_lanes(high), x[r]);
        }
}

void gemm_kernels_avx512(gemm_kernels *kernels) {
    kernels->name = "avx512";
    kernels->rows = GEMM_ROWS;
    kernels->strips = GEMM_STRIPS;
    kernels->tile = avx512_tile;
    kernels->transpose = avx512_transpose;
    kernels->decode = gemm_lanes_decode;
    if (cpu_features_detect().avx512_bf16)
        avx512_bf16_gemm(kernels);
}
