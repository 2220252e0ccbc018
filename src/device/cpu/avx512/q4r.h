/* Tiles of Q4R. A tile is one panel times 1…16 rows.
 *
 * Bytes: a sub-block of 16 k becomes four lines of multiplier · (number − 8) + 128, all within
 * 8…248. Two numbers are multiplied at once in a 16-bit word: (256·b + a) · m + 257 · c is
 * 256 · (b·m + c) + (a·m + c), and with c = 128 − 8·m neither byte carries into the other.
 */
#ifndef AVO_DEVICE_CPU_AVX512_Q4R_H
#define AVO_DEVICE_CPU_AVX512_Q4R_H

#include "device/cpu/avx512/nibbles.h"
#include "device/cpu/avx512/tile.h"

#define SIGNS_AT      32
#define MAGNITUDES_AT PANEL_LINE_BYTES
#define SUB_BYTES     (2 * PANEL_LINE_BYTES)
#define NUMBER_ZERO   8
#define BYTE_ZERO     128

/* Calls of so few rows multiply per sub-block, those of these, up to 16, go to q4r_wide.c. */
#define Q4R_FEW_ROWS      8
#define Q4R_FEW_ROWS_ZEN5 6
#define Q4R_WIDE_ROWS     15

/* The rows of a tile, `count` of them, laid beside one another. `begin`: where integer sums begin.
 * Few rows: [sub-blocks][count], −8 · (sum of 16 numbers), else [super-blocks][count], −128 · (sum
 * of a super-block). */
typedef struct q4r_rows {
    const int8_t *number; /* [k / 32][count][32] */
    const float *scale;   /* [super-blocks][count] */
    const int32_t *begin;
} q4r_rows;

AVX512_INLINE size_t q4r_subs(size_t k, size_t begin) {
    size_t left = k - begin < Q4R_SUPER ? k - begin : Q4R_SUPER;
    return (left + Q4R_SUB - 1) / Q4R_SUB;
}

AVX512_INLINE size_t q4r_lines_at(size_t subs) {
    return MAGNITUDES_AT + (subs <= Q4R_SUBS / 2 ? 1u : 2u) * PANEL_LINE_BYTES;
}

AVX512_INLINE __mmask16 q4r_signs(const uint8_t *super, size_t sub) {
    uint16_t signs;
    memcpy(&signs, super + SIGNS_AT + 2 * sub, sizeof(signs));
    return (__mmask16)signs;
}

/* Signed words from magnitudes. */
AVX512_INLINE __m512i q4r_signed(__m512i magnitude, __mmask16 negative) {
    return _mm512_mask_mov_epi32(magnitude, negative,
                                 _mm512_sub_epi16(_mm512_setzero_si512(), magnitude));
}

/* All of a call of Q4R_WIDE_ROWS to 16 rows. */
void q4r_wide_run(const linear_call *call, size_t first, size_t last, uint8_t *scratch);

/* ---- Bytes ---- */

/* The magnitudes of two sub-blocks, each byte in both words of its row. */
AVX512_INLINE __m512i q4r_magnitudes(const uint8_t *super, size_t sub) {
    const __m512i spread =
        _mm512_set_epi32((int)0x800f800fu, (int)0x800e800eu, (int)0x800d800du, (int)0x800c800cu,
                         (int)0x800b800bu, (int)0x800a800au, (int)0x80098009u, (int)0x80088008u,
                         (int)0x80078007u, (int)0x80068006u, (int)0x80058005u, (int)0x80048004u,
                         (int)0x80038003u, (int)0x80028002u, (int)0x80018001u, (int)0x80008000u);
    const uint8_t *at = super + MAGNITUDES_AT + sub / 2 * QUANT_PANEL_ROWS;
    __m512i all = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(const void *)at));
    return _mm512_shuffle_epi8(all, spread);
}

/* The four lines of a sub-block. */
AVX512_INLINE void q4r_read_sub(const uint8_t *at, __m512i magnitude, __mmask16 negative,
                                __m512i line[4]) {
    __m512i factor = _mm512_set1_epi16(-NUMBER_ZERO * 257);
    __asm__("" : "+v"(factor)); /* gcc would make four operations of this multiplication */
    __m512i multiplier = q4r_signed(magnitude, negative);
    __m512i offset = _mm512_add_epi16(_mm512_mullo_epi16(multiplier, factor),
                                      _mm512_set1_epi16((short)(BYTE_ZERO * 257)));
    read_nibble_line(at, line);
    read_nibble_line(at + PANEL_LINE_BYTES, line + 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        line[i] = _mm512_add_epi16(_mm512_mullo_epi16(line[i], multiplier), offset);
}

/* `quads` times four lines against every row. */
AVX512_INLINE void q4r_add_rows(const int count, const bool shuffle, const int quads,
                                const __m512i *line, const int8_t *number, __m512i *total) {
#pragma GCC unroll 2
    for (int quad = 0; quad < quads; quad++)
        dot_quad(0, count, shuffled_rows(shuffle, count), line + 4 * quad, number + 16 * quad,
                 total);
}

AVX512_INLINE void q4r_prefetch(const uint8_t *lines, int bytes, const int rows) {
    for (int ahead = 0; ahead < bytes; ahead += PANEL_LINE_BYTES)
        fetch_ahead(lines + ahead, rows);
}

/* The integer sums of one super-block. `number`: its first. */
AVX512_INLINE void q4r_add_super(const int count, const bool shuffle, const uint8_t *super,
                                 size_t subs, const int8_t *number, __m512i *total) {
    const uint8_t *lines = super + q4r_lines_at(subs);
    const __m512i low = _mm512_set1_epi16(15);
    __m512i line[8];
    size_t sub = 0;
    for (; sub + 2 <= subs; sub += 2, lines += 2 * SUB_BYTES, number += count * PANEL_UNIT) {
        __m512i both = q4r_magnitudes(super, sub);
        q4r_prefetch(lines, 2 * SUB_BYTES, count);
        q4r_read_sub(lines, _mm512_and_si512(both, low), q4r_signs(super, sub), line);
        q4r_read_sub(lines + SUB_BYTES, _mm512_srli_epi16(both, 4), q4r_signs(super, sub + 1),
                     line + 4);
        q4r_add_rows(count, shuffle, 2, line, number, total);
    }
    if (sub < subs) {
        q4r_read_sub(lines, _mm512_and_si512(q4r_magnitudes(super, sub), low),
                     q4r_signs(super, sub), line);
        q4r_add_rows(count, shuffle, 1, line, number, total);
    }
}

AVX512_INLINE void q4r_load_lines(const int count, const int quads, const uint8_t *at,
                                  const int8_t *number, __m512i *total) {
    __m512i line[8];
#pragma GCC unroll 8
    for (int i = 0; i < 4 * quads; i++)
        line[i] = load_line(at + i * PANEL_LINE_BYTES);
    q4r_add_rows(count, false, quads, line, number, total);
}

/* The same from lines that were unpacked before; `laid` rows lie beside one another. */
AVX512_INLINE void q4r_add_lines(const int count, const int laid, const uint8_t *lines, size_t subs,
                                 const int8_t *number, __m512i *total) {
    for (; subs >= 2; subs -= 2, lines += 8 * PANEL_LINE_BYTES, number += laid * PANEL_UNIT)
        q4r_load_lines(count, 2, lines, number, total);
    if (subs > 0)
        q4r_load_lines(count, 1, lines, number, total);
}

/* ---- Numbers and multipliers apart ---- */

/* One sub-block: the sum over 16 numbers fits 16 bits, so that vpdpwssd multiplies it (the upper
 * word of `multiplier` is zero). */
AVX512_INLINE void q4r_add_few(const int count, const bool shuffle, const uint8_t *at,
                               __m512i multiplier, const int8_t *number, const int32_t *begin,
                               __m512i *total) {
    __m512i line[4], sum[Q4R_FEW_ROWS];
    read_nibble_line(at, line);
    read_nibble_line(at + PANEL_LINE_BYTES, line + 2);
#pragma GCC unroll 8
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_set1_epi32(begin[row]);
    q4r_add_rows(count, shuffle, 1, line, number, sum);
#pragma GCC unroll 8
    for (int row = 0; row < count; row++)
        total[row] = _mm512_dpwssd_epi32(total[row], sum[row], multiplier);
}

/* `begin`: of the super-block's first sub-block. */
AVX512_INLINE void q4r_add_super_few(const int count, const bool shuffle, const uint8_t *super,
                                     size_t subs, const int8_t *number, const int32_t *begin,
                                     __m512i *total) {
    const uint8_t *lines = super + q4r_lines_at(subs);
    const uint8_t *magnitudes = super + MAGNITUDES_AT;
    const __m512i low = _mm512_set1_epi32(15);
    const bool fetch = fetch_wanted(count, 2);
    for (size_t sub = 0; sub < subs; sub += 2, lines += 2 * SUB_BYTES) {
        __m512i both = _mm512_cvtepu8_epi32(_mm_load_si128(
            (const __m128i *)(const void *)(magnitudes + sub / 2 * QUANT_PANEL_ROWS)));
        if (fetch)
            q4r_prefetch(lines, 2 * SUB_BYTES, count);
        q4r_add_few(count, shuffle, lines,
                    q4r_signed(_mm512_and_si512(both, low), q4r_signs(super, sub)), number, begin,
                    total);
        if (sub + 1 < subs)
            q4r_add_few(count, shuffle, lines + SUB_BYTES,
                        q4r_signed(_mm512_srli_epi32(both, 4), q4r_signs(super, sub + 1)),
                        number + Q4R_SUB, begin + count, total);
        number += count * PANEL_UNIT;
        begin += 2 * count;
    }
}

/* ---- Tiles ---- */

typedef enum q4r_way { Q4R_FEW, Q4R_FUSED, Q4R_UNPACKED } q4r_way;

/* `count` rows of `laid`, which differ for Q4R_UNPACKED alone. `unpacked`: its lines. */
AVX512_INLINE void q4r_tile(const int count, const int laid, const q4r_way way, const bool shuffle,
                            const uint8_t *panel, const uint8_t *unpacked, size_t k,
                            const q4r_rows *rows, __m512 *sum) {
    for (int row = 0; row < count; row++)
        sum[row] = _mm512_setzero_ps();
    const int32_t *begins = rows->begin;
    const float *scales = rows->scale;
    for (size_t begin = 0; begin < k; begin += Q4R_SUPER, scales += laid) {
        size_t subs = q4r_subs(k, begin);
        const int8_t *number = rows->number + begin * (size_t)laid;
        __m512i total[TILE_ROWS_MAX];
#pragma GCC unroll 16
        for (int row = 0; row < count; row++)
            total[row] = way == Q4R_FEW ? _mm512_setzero_si512() : _mm512_set1_epi32(begins[row]);
        if (way == Q4R_FEW)
            q4r_add_super_few(count, shuffle, panel, subs, number, begins, total);
        else if (way == Q4R_FUSED)
            q4r_add_super(count, shuffle, panel, subs, number, total);
        else
            q4r_add_lines(count, laid, unpacked + begin * QUANT_PANEL_ROWS, subs, number, total);
        begins += way == Q4R_FEW ? Q4R_SUBS * laid : laid;
        __m512 scale = load_halves(panel);
#pragma GCC unroll 16
        for (int row = 0; row < count; row++) {
            __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(scales[row]));
            sum[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[row]), both, sum[row]);
        }
        panel += q4r_lines_at(subs) + subs * SUB_BYTES;
    }
}

#endif
