/* What the products with Q4R share: the layout of its panels (quant/panels.h), multipliers. */
#ifndef AVO_DEVICE_CPU_AVX2_Q4R_H
#define AVO_DEVICE_CPU_AVX2_Q4R_H

#include "device/cpu/avx2/linear_int.h"

#include "base/checked.h"

#define PAIR_K       (2 * Q4R_SUB)
#define PAIRS        (Q4R_SUPER / PAIR_K)
#define PACKED_HEAD  PANEL_LINE_BYTES
#define PACKED_BYTES (3 * PANEL_LINE_BYTES + Q4R_SUPER / 8 * PANEL_LINE_BYTES)
#define PAIR_LINES   (PAIR_K / 4)
#define SUB_BYTES    (2 * PANEL_LINE_BYTES)

/* Lines as the kernel of the folder wants them. */
typedef struct q4r_piece {
    uint8_t line[PIECE_K / 4][PANEL_LINE_BYTES];
    int32_t multiplier[PAIRS][QUANT_PANEL_ROWS]; /* int16 of a, int16 of b */
    float scale[QUANT_PANEL_ROWS];
} __attribute__((aligned(64))) q4r_piece;

ALWAYS_INLINE size_t sub_blocks(size_t k) {
    return (size_min(k, Q4R_SUPER) + Q4R_SUB - 1) / Q4R_SUB;
}

/* Eight outputs of two pairs: bit r of byte 0 (or 1) of word a, and of word b, is the sign of
 * output r (8 + r). */
ALWAYS_INLINE void signed_bytes(__m256i magnitude, __m256i signs, const char half, int32_t *out) {
    const __m256i bit = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32, 64, 64, -128, -128));
    const __m256i word =
        _mm256_add_epi8(_mm256_setr_epi8(0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 4, 6, 4, 6,
                                         4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6),
                        _mm256_set1_epi8(half));
    __m256i negative =
        _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(signs, word), bit), bit);
    __m256i both = _mm256_sub_epi8(_mm256_xor_si256(magnitude, negative), negative);
    store_bytes(out, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(both)));
    store_bytes(out + QUANT_PANEL_ROWS, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(both, 1)));
}

/* Multipliers of all pairs, two at a time, one in each half of a register: magnitudes from the
 * nibbles of a byte, signs from two words. They are bytes until they have their sign, for outputs
 * 0 … 7 and 8 … 15: of a in the even places and of b in the odd ones. */
ALWAYS_INLINE void unpack_multipliers(const uint8_t *super, size_t subs,
                                      int32_t out[PAIRS][QUANT_PANEL_ROWS]) {
    const __m256i nibble = _mm256_set1_epi8(15);
    for (size_t pair = 0; 2 * pair < subs; pair += 2) {
        __m256i packed = load_bytes(super + PACKED_HEAD + pair * QUANT_PANEL_ROWS);
        int64_t four_words;
        memcpy(&four_words, super + 32 + 4 * pair, sizeof(four_words));
        __m256i signs = _mm256_set1_epi64x(four_words);
        __m256i of_a = _mm256_and_si256(packed, nibble);
        __m256i of_b = _mm256_and_si256(_mm256_srli_epi16(packed, 4), nibble);
        signed_bytes(_mm256_unpacklo_epi8(of_a, of_b), signs, 0, out[pair]);
        signed_bytes(_mm256_unpackhi_epi8(of_a, of_b), signs, 1, out[pair] + 8);
    }
}

#endif
