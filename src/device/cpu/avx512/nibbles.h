/* Lines of nibbles, pairs of bits and bits to byte lines (quant/panels.h). */
#ifndef AVO_DEVICE_CPU_AVX512_NIBBLES_H
#define AVO_DEVICE_CPU_AVX512_NIBBLES_H

#include "device/cpu/avx512/linear_int.h"

/* Two byte lines from one line of nibbles, numbers 0…15. */
AVX512_INLINE void read_nibble_line(const uint8_t *at, __m512i *out) {
    const __m512i low = _mm512_set1_epi8(15);
    __m512i line = load_line(at);
    __asm__("" : "+v"(line)); /* gcc would load it twice */
    out[0] = _mm512_and_si512(line, low);
    out[1] = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
}

/* The eight byte lines of a unit of four nibble lines. */
AVX512_INLINE void read_nibbles(const uint8_t *at, __m512i out[8]) {
#pragma GCC unroll 4
    for (int line = 0; line < 4; line++)
        read_nibble_line(at + line * PANEL_LINE_BYTES, out + 2 * line);
}

/* Adds `value` to the bytes whose bits are set in a bit line. */
AVX512_INLINE void add_bits(const uint8_t *at, char value, __m512i line[8]) {
    uint64_t masks[8];
    memcpy(masks, at, sizeof(masks));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        line[i] =
            _mm512_mask_add_epi8(line[i], (__mmask64)masks[i], line[i], _mm512_set1_epi8(value));
}

/* 4 nibble lines and a bit line: numbers 0…31. */
AVX512_INLINE void read_nibbles_bits(const uint8_t *at, __m512i out[8]) {
    read_nibbles(at, out);
    add_bits(at + 4 * PANEL_LINE_BYTES, 16, out);
}

/* One two-bit line: numbers 0…3 of four byte lines. */
AVX512_INLINE void read_pair_line(const uint8_t *at, __m512i *out) {
    const __m512i mask = _mm512_set1_epi8(3);
    __m512i line = load_line(at);
    out[0] = _mm512_and_si512(line, mask);
    out[1] = _mm512_and_si512(_mm512_srli_epi16(line, 2), mask);
    out[2] = _mm512_and_si512(_mm512_srli_epi16(line, 4), mask);
    out[3] = _mm512_and_si512(_mm512_srli_epi16(line, 6), mask);
}

/* The same as the upper bits of four byte lines that have the lower four. */
AVX512_INLINE void add_pair_line(const uint8_t *at, __m512i *out) {
    const __m512i mask = _mm512_set1_epi8(0x30);
    enum { either = 0xf8 }; /* a | (b & c) */
    __m512i line = load_line(at);
    out[0] = _mm512_ternarylogic_epi32(out[0], _mm512_slli_epi16(line, 4), mask, either);
    out[1] = _mm512_ternarylogic_epi32(out[1], _mm512_slli_epi16(line, 2), mask, either);
    out[2] = _mm512_ternarylogic_epi32(out[2], line, mask, either);
    out[3] = _mm512_ternarylogic_epi32(out[3], _mm512_srli_epi16(line, 2), mask, either);
}

#endif
