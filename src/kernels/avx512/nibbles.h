/* Nibble lines to byte lines. */
#ifndef AVO_KERNELS_AVX512_NIBBLES_H
#define AVO_KERNELS_AVX512_NIBBLES_H

#include "kernels/avx512/linear_int.h"

/* Two byte lines from one line of nibbles, numbers 0…15. */
AVX512_INLINE void read_nibble_line(const uint8_t *at, __m512i *out) {
    const __m512i low = _mm512_set1_epi8(15);
    __m512i line = load_line(at);
    out[0] = _mm512_and_si512(line, low);
    out[1] = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
}

/* The eight byte lines of a unit of four nibble lines. */
AVX512_INLINE void read_nibbles(const uint8_t *at, __m512i out[8]) {
#pragma GCC unroll 4
    for (int line = 0; line < 4; line++)
        read_nibble_line(at + line * PANEL_LINE_BYTES, out + 2 * line);
}

#endif
