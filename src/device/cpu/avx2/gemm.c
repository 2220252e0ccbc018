/* General matrix products (device/cpu/gemm.h): tiles of 6 rows and 16 columns, 12 sums, two vectors
 * of B and a number of A in 15 registers. */
#include "device/cpu/avx2/vec16.h"

#define GEMM_ROWS   6
#define GEMM_STRIPS 1
#define GEMM_RADIX  4
#include "device/cpu/lanes/gemm_decode.h"

static void avx2_tile(const gemm_tile *t) {
    gemm_tile_of_6(t);
}

/* 8 × 8: rows i … of `from`, columns j … */
static void transpose_8(const float *from, size_t from_stride, float *to, size_t to_stride) {
    __m256 x[8], y[8];
    for (size_t i = 0; i < 8; i++)
        x[i] = _mm256_loadu_ps(from + i * from_stride);
    for (int i = 0; i < 8; i += 2) {
        y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm256_shuffle_ps(y[i + j], y[i + 2 + j], 0x44);
            x[i + 2 * j + 1] = _mm256_shuffle_ps(y[i + j], y[i + 2 + j], 0xee);
        }
    for (size_t i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(x[i], x[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * to_stride, _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));
    }
}

static void avx2_transpose(const float *from, size_t from_stride, size_t rows, size_t columns,
                           float *to, size_t to_stride) {
    for (size_t i = 0; i < rows; i += 8)
        for (size_t j = 0; j < columns; j += 8) {
            if (rows - i >= 8 && columns - j >= 8) {
                transpose_8(from + i * from_stride + j, from_stride, to + j * to_stride + i,
                            to_stride);
                continue;
            }
            for (size_t r = i; r < rows && r < i + 8; r++)
                for (size_t c = j; c < columns && c < j + 8; c++)
                    to[c * to_stride + r] = from[r * from_stride + c];
        }
}

void gemm_kernels_avx2(gemm_kernels *kernels) {
    kernels->name = "avx2";
    kernels->rows = GEMM_ROWS;
    kernels->strips = GEMM_STRIPS;
    kernels->tile = avx2_tile;
    kernels->transpose = avx2_transpose;
    kernels->decode = gemm_lanes_decode;
}
