/* 16 lines of 16 words, rows and columns exchanged: how rows of x come to lie beside one another.
 */
#ifndef AVO_DEVICE_CPU_AVX512_TRANSPOSE_H
#define AVO_DEVICE_CPU_AVX512_TRANSPOSE_H

#include "device/cpu/avx512/linear_int.h"

typedef __m512i block16[TILE_ROWS_MAX];

/* Row i, column j becomes row j, column i. */
static inline void transpose(block16 x) {
    block16 y;
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + 2 + j]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + 2 + j]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            y[i + j] = _mm512_shuffle_i32x4(x[i + j], x[i + 4 + j], 0x88);
            y[i + 4 + j] = _mm512_shuffle_i32x4(x[i + j], x[i + 4 + j], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        x[j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0x88);
        x[8 + j] = _mm512_shuffle_i32x4(y[j], y[8 + j], 0xdd);
    }
}

#endif
