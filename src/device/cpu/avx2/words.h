/* Products in int16: what the families of 8 bits share (linear_word.c says how). */
#ifndef AVO_DEVICE_CPU_AVX2_WORDS_H
#define AVO_DEVICE_CPU_AVX2_WORDS_H

#include "device/cpu/avx2/linear_int.h"

#define UNIT_WORD_LINES (PANEL_UNIT / 2)

/* Words in the order 0 2 1 3 of every four: what shifting leaves of a byte line (unpack_words). */
ALWAYS_INLINE __m256i word_order(__m256i words) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0,
                                           1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    return _mm256_shuffle_epi8(words, order);
}

ALWAYS_INLINE __m256i widen(const int8_t *source) {
    return _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(const void *)source));
}

/* 32 bytes of a line, k 0 1 2 3 of 8 outputs, as words: k 0 and 2, then k 1 and 3. */
ALWAYS_INLINE void unpack_words(__m256i bytes, int16_t *out) {
    store_bytes(out, _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
    store_bytes(out + 2 * QUANT_PANEL_ROWS, _mm256_srai_epi16(bytes, 8));
}

/* Byte lines, two lines of words each. */
ALWAYS_INLINE void unpack_byte_lines(const uint8_t *source, size_t ahead, size_t lines,
                                     int16_t out[][2 * QUANT_PANEL_ROWS]) {
    fetch_lines(source, ahead, lines);
#pragma GCC unroll 8
    for (size_t i = 0; i < lines; i++)
        for (size_t h = 0; h < 2; h++)
            unpack_words(load_bytes(source + i * PANEL_LINE_BYTES + 32 * h), out[2 * i] + 16 * h);
}

typedef struct word_sums {
    __m256i half[TILE_ROWS][2];
} word_sums;

/* One byte line, 4 k of 16 outputs, with 4 words of each row. */
ALWAYS_INLINE void few_line(const uint8_t *source, const word_record *x, size_t at, word_sums *wide,
                            const int rows) {
    __m256i even[2], odd[2];
    for (int h = 0; h < 2; h++) {
        __m256i bytes = load_bytes(source + 32 * h);
        even[h] = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
        odd[h] = _mm256_srai_epi16(bytes, 8);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        __m256i first = broadcast4(x[r].number + at);
        __m256i second = broadcast4(x[r].number + at + 2);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i *sum = &wide->half[r][h];
            *sum = add_words(*sum, even[h], first);
            *sum = add_words(*sum, odd[h], second);
        }
    }
}

#endif
