/* Tiles of float types: one to four panels times up to 16 rows, one sum per lane, k ascending.
 *
 * A product must wait for the one before it in its sum (4 cycles), so there must be enough sums: up
 * to three rows take four panels at a time.
 */
#ifndef AVO_DEVICE_CPU_AVX512_FLOAT_H
#define AVO_DEVICE_CPU_AVX512_FLOAT_H

#include "device/cpu/avx512/tile.h"

typedef enum float_kind { FLOAT_F32, FLOAT_F16, FLOAT_BF16, FLOAT_F8C } float_kind;

/* Consecutive k in one line. */
AVX512_INLINE size_t float_step(const float_kind kind) {
    return kind == FLOAT_F32 ? 1 : kind == FLOAT_F8C ? 4 : 2;
}

#define STEP_MAX 4

/* E4M3 in byte `i` of every lane. Its exponent begins at 1/2^6 where a float's begins at 1/2^126:
 * the bits, moved into place, times 2^120, subnormals included. Not for NaN. */
AVX512_INLINE __m512 read_e4m3(__m512i line, const int i) {
    __m512i top = i == 3 ? line : _mm512_slli_epi32(line, (unsigned)(24 - 8 * i));
    __m512i bits = _mm512_and_si512(_mm512_srai_epi32(top, 4), _mm512_set1_epi32((int)0x87f00000u));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
}

/* All four bytes of a line of E4M3; its two NaN (all bits but the sign set) are rare enough for a
 * jump. */
AVX512_INLINE void read_e4m3_line(__m512i line, __m512 out[STEP_MAX]) {
    const __m512i all = _mm512_set1_epi8(0x7f);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        out[i] = read_e4m3(line, i);
    if (__builtin_expect(_mm512_cmpeq_epi8_mask(_mm512_and_si512(line, all), all) != 0, 0))
        for (int i = 0; i < 4; i++) {
            __m512i top = _mm512_sllv_epi32(line, _mm512_set1_epi32(24 - 8 * i));
            __m512i nan =
                _mm512_or_si512(_mm512_and_si512(top, _mm512_set1_epi32((int)0x80000000u)),
                                _mm512_set1_epi32(0x7ff00000));
            __mmask16 here =
                _mm512_cmpeq_epi32_mask(_mm512_and_si512(top, _mm512_set1_epi32(0x7f000000)),
                                        _mm512_set1_epi32(0x7f000000));
            out[i] = _mm512_mask_mov_ps(out[i], here, _mm512_castsi512_ps(nan));
        }
}

/* The numbers of one line, k after k. */
AVX512_INLINE void read_floats(const float_kind kind, const uint8_t *at, __m512 out[STEP_MAX]) {
    if (kind == FLOAT_F32) {
        out[0] = _mm512_load_ps(at);
        return;
    }
    __m512i line = load_line(at);
    if (kind == FLOAT_BF16) {
        out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(line, 16));
        out[1] = _mm512_castsi512_ps(_mm512_and_si512(line, _mm512_set1_epi32((int)0xffff0000u)));
    } else if (kind == FLOAT_F16) {
        const __m512i apart =
            _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26,
                             24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        line = _mm512_permutexvar_epi16(apart, line);
        out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(line));
        out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(line, 1));
    } else {
        read_e4m3_line(line, out);
    }
}

/* sum[panel · count + row] */
AVX512_INLINE void float_tile(const float_kind kind, const int count, const int panels,
                              const uint8_t *panel, size_t panel_bytes, size_t k,
                              const float *const *x, __m512 *out) {
    const size_t step = float_step(kind);
    __m512 sum[TILE_ROWS_MAX];
#pragma GCC unroll 16
    for (int i = 0; i < count * panels; i++)
        sum[i] = _mm512_setzero_ps();
    size_t at = 0;
    for (; at + step <= k; at += step, panel += PANEL_LINE_BYTES) {
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            const uint8_t *line = panel + (size_t)p * panel_bytes;
            __m512 weight[STEP_MAX];
            _mm_prefetch((const char *)line + PREFETCH_BYTES, _MM_HINT_T0);
            read_floats(kind, line, weight);
#pragma GCC unroll 4
            for (size_t i = 0; i < step; i++)
#pragma GCC unroll 16
                for (int row = 0; row < count; row++)
                    sum[p * count + row] = _mm512_fmadd_ps(
                        weight[i], _mm512_set1_ps(x[row][at + i]), sum[p * count + row]);
        }
    }
    /* What lies behind k in the last line is no weight. */
    for (int p = 0; at < k && p < panels; p++) {
        __m512 weight[STEP_MAX];
        read_floats(kind, panel + (size_t)p * panel_bytes, weight);
#pragma GCC unroll 4
        for (size_t i = 0; i < step; i++)
            for (int row = 0; row < count && at + i < k; row++)
                sum[p * count + row] = _mm512_fmadd_ps(weight[i], _mm512_set1_ps(x[row][at + i]),
                                                       sum[p * count + row]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < count * panels; i++)
        out[i] = sum[i];
}

/* F8C: the scales of a panel's rows, behind its lines. */
AVX512_INLINE __m512 float_scales(const uint8_t *panel, size_t k) {
    return _mm512_load_ps(panel + (k + 3) / 4 * PANEL_LINE_BYTES);
}

#endif
