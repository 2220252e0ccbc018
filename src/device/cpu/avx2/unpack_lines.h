/* From the lines of panels.h to byte lines: eight of them (32 k, 512 bytes) from one unit. Each
 * asks for the packed lines that come `ahead` bytes later. */
#ifndef AVO_DEVICE_CPU_AVX2_UNPACK_LINES_H
#define AVO_DEVICE_CPU_AVX2_UNPACK_LINES_H

#include "device/cpu/avx2/linear_int.h"

#define NIBBLE_UNIT_BYTES (4 * PANEL_LINE_BYTES)
#define PAIR_UNIT_BYTES   (2 * PANEL_LINE_BYTES)

/* Four nibble lines. */
ALWAYS_INLINE void unpack_nibbles(const uint8_t *source, size_t ahead, uint8_t *out) {
    const __m256i nibble = _mm256_set1_epi8(15);
    fetch_lines(source, ahead, 4);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        __m256i both = load_bytes(source + 32 * i);
        uint8_t *to = out + i / 2 * 2 * PANEL_LINE_BYTES + i % 2 * 32;
        store_bytes(to, _mm256_and_si256(both, nibble));
        store_bytes(to + PANEL_LINE_BYTES, _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble));
    }
}

/* Four nibble lines through a table of 16 bytes. */
ALWAYS_INLINE void unpack_codes(const uint8_t *source, size_t ahead, __m256i table, uint8_t *out) {
    const __m256i nibble = _mm256_set1_epi8(15);
    fetch_lines(source, ahead, 4);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        __m256i both = load_bytes(source + 32 * i);
        __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
        uint8_t *to = out + i / 2 * 2 * PANEL_LINE_BYTES + i % 2 * 32;
        store_bytes(to, _mm256_shuffle_epi8(table, _mm256_and_si256(both, nibble)));
        store_bytes(to + PANEL_LINE_BYTES, _mm256_shuffle_epi8(table, high));
    }
}

ALWAYS_INLINE __m256i table_of(const int8_t codebook[16]) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)codebook));
}

/* Two two-bit lines. */
ALWAYS_INLINE void unpack_pairs(const uint8_t *source, size_t ahead, uint8_t *out) {
    const __m256i pair = _mm256_set1_epi8(3);
    fetch_lines(source, ahead, 2);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        __m256i four = load_bytes(source + 32 * i);
        uint8_t *to = out + i / 2 * 4 * PANEL_LINE_BYTES + i % 2 * 32;
        store_bytes(to, _mm256_and_si256(four, pair));
        store_bytes(to + PANEL_LINE_BYTES, _mm256_and_si256(_mm256_srli_epi16(four, 2), pair));
        store_bytes(to + 2 * PANEL_LINE_BYTES, _mm256_and_si256(_mm256_srli_epi16(four, 4), pair));
        store_bytes(to + 3 * PANEL_LINE_BYTES, _mm256_and_si256(_mm256_srli_epi16(four, 6), pair));
    }
}

/* Four nibble lines, two two-bit lines above them: six bits. */
ALWAYS_INLINE void unpack_sixes(const uint8_t *source, size_t ahead, uint8_t *out) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i pair = _mm256_set1_epi8(0x30);
    fetch_lines(source, ahead, 6);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) { /* two-bit line i / 2, half i % 2: byte lines 4 · (i / 2) … */
        __m256i four = load_bytes(source + NIBBLE_UNIT_BYTES + 32 * i);
        const uint8_t *from = source + i / 2 * 2 * PANEL_LINE_BYTES + i % 2 * 32;
        __m256i a = load_bytes(from);
        __m256i b = load_bytes(from + PANEL_LINE_BYTES);
        uint8_t *to = out + i / 2 * 4 * PANEL_LINE_BYTES + i % 2 * 32;
        store_bytes(to, _mm256_or_si256(_mm256_and_si256(a, nibble),
                                        _mm256_and_si256(_mm256_slli_epi16(four, 4), pair)));
        store_bytes(to + PANEL_LINE_BYTES,
                    _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(a, 4), nibble),
                                    _mm256_and_si256(_mm256_slli_epi16(four, 2), pair)));
        store_bytes(to + 2 * PANEL_LINE_BYTES,
                    _mm256_or_si256(_mm256_and_si256(b, nibble), _mm256_and_si256(four, pair)));
        store_bytes(to + 3 * PANEL_LINE_BYTES,
                    _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(b, 4), nibble),
                                    _mm256_and_si256(_mm256_srli_epi16(four, 2), pair)));
    }
}

/* A bit line: sets bit `value` in bytes that are there already. */
ALWAYS_INLINE void unpack_bits(const uint8_t *source, size_t ahead, const char value,
                               uint8_t *out) {
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    fetch_lines(source, ahead, 1);
#pragma GCC unroll 8
    for (size_t i = 0; i < 16; i++) {
        __m256i bits = _mm256_shuffle_epi8(broadcast4(source + 4 * i), spread);
        __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, bit), bit);
        uint8_t *to = out + 32 * i;
        store_bytes(
            to, _mm256_or_si256(load_bytes(to), _mm256_and_si256(set, _mm256_set1_epi8(value))));
    }
}

#endif
