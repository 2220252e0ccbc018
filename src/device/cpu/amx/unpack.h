/* Units (32 k of 16 rows) of the types with blocks, read into registers: byte lines of unsigned
 * numbers, scales and minima as floats. panels.h says where everything lies. */
#ifndef AVO_DEVICE_CPU_AMX_UNPACK_H
#define AVO_DEVICE_CPU_AMX_UNPACK_H

#include "device/cpu/amx/amx_int.h"

typedef struct unit_lines {
    __m512i line[8];
    __m512 scale[2]; /* of the first and the second 16 k; [0] alone without sub-blocks */
    __m512 minimum[2];
} unit_lines;

/* A type: groups of units behind a head. */
typedef struct unit_kind {
    size_t group_units;
    size_t group_bytes;
    int zero; /* subtracted from every number */
    bool sub_blocks;
    bool minimum;
    void (*read)(const uint8_t *group, size_t unit, unit_lines *out);
} unit_kind;

AMX_INLINE __m512 unit_halves(const uint8_t *at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

/* 16 bytes, without and with sign, as floats. */
AMX_INLINE __m512 unit_bytes(const uint8_t *at) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at)));
}

AMX_INLINE __m512 unit_signed_bytes(const uint8_t *at) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at)));
}

/* ---- Lines ---- */

AMX_INLINE void unit_nibbles(const uint8_t *at, __m512i *line) {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i both = _mm512_loadu_si512(at + i * PANEL_LINE_BYTES);
        line[2 * i] = _mm512_and_si512(both, low);
        line[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
}

/* Two lines with two bits of each number. */
AMX_INLINE void unit_pairs(const uint8_t *at, __m512i *line) {
    const __m512i low = _mm512_set1_epi8(3);
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        __m512i all = _mm512_loadu_si512(at + i / 4 * PANEL_LINE_BYTES);
        line[i] = _mm512_and_si512(all, low);
        line[i + 1] = _mm512_and_si512(_mm512_srli_epi16(all, 2), low);
        line[i + 2] = _mm512_and_si512(_mm512_srli_epi16(all, 4), low);
        line[i + 3] = _mm512_and_si512(_mm512_srli_epi16(all, 6), low);
    }
}

/* A line with one more bit, worth `value`, of each number. */
AMX_INLINE void unit_bits(const uint8_t *at, int value, __m512i *line) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        uint64_t mask;
        memcpy(&mask, at + 8 * i, sizeof(mask));
        line[i] = _mm512_mask_add_epi8(line[i], mask, line[i], _mm512_set1_epi8((char)value));
    }
}

AMX_INLINE void unit_codes(const int8_t *codebook, __m512i *line) {
    __m512i table =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)codebook));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        line[i] = _mm512_shuffle_epi8(table, line[i]);
}

/* ---- Blocks of 32 and 64 ---- */

#define NIBBLE_UNIT 256 /* bytes: 4 lines */
#define NIBBLE_BITS 320 /* with a bit line */

AMX_INLINE void unit_read_q4_0(const uint8_t *group, size_t unit, unit_lines *out) {
    unit_nibbles(group + 64 + unit * NIBBLE_UNIT, out->line);
    out->scale[0] = unit_halves(group + 32 * unit);
}

AMX_INLINE void unit_read_q4_1(const uint8_t *group, size_t unit, unit_lines *out) {
    unit_nibbles(group + 128 + unit * NIBBLE_UNIT, out->line);
    out->scale[0] = unit_halves(group + 32 * unit);
    out->minimum[0] = unit_halves(group + 64 + 32 * unit);
}

AMX_INLINE void unit_read_q4b64(const uint8_t *group, size_t unit, unit_lines *out) {
    unit_nibbles(group + 64 + unit * NIBBLE_UNIT, out->line);
    out->scale[0] = unit_halves(group + 32 * (unit / 2));
}

AMX_INLINE void unit_read_q4m64(const uint8_t *group, size_t unit, unit_lines *out) {
    unit_nibbles(group + 64 + unit * NIBBLE_UNIT, out->line);
    out->scale[0] = unit_halves(group);
    out->minimum[0] = unit_halves(group + 32);
}

AMX_INLINE void unit_read_q5_0(const uint8_t *group, size_t unit, unit_lines *out) {
    unit_nibbles(group + 64 + unit * NIBBLE_BITS, out->line);
    unit_bits(group + 64 + unit * NIBBLE_BITS + NIBBLE_UNIT, 16, out->line);
    out->scale[0] = unit_halves(group + 32 * unit);
}

AMX_INLINE void unit_read_q5_1(const uint8_t *group, size_t unit, unit_lines *out) {
    unit_nibbles(group + 128 + unit * NIBBLE_BITS, out->line);
    unit_bits(group + 128 + unit * NIBBLE_BITS + NIBBLE_UNIT, 16, out->line);
    out->scale[0] = unit_halves(group + 32 * unit);
    out->minimum[0] = unit_halves(group + 64 + 32 * unit);
}

AMX_INLINE void unit_read_iq4_nl(const uint8_t *group, size_t unit, unit_lines *out) {
    unit_read_q4_0(group, unit, out);
    unit_codes(codebook_iq4, out->line);
}

AMX_INLINE void unit_read_mxfp4(const uint8_t *group, size_t unit, unit_lines *out) {
    unit_nibbles(group + 64 + unit * NIBBLE_UNIT, out->line);
    unit_codes(codebook_mxfp4, out->line);
    __m512i brain = _mm512_cvtepu16_epi32(
        _mm256_loadu_si256((const __m256i *)(const void *)(group + 32 * unit)));
    out->scale[0] = _mm512_castsi512_ps(_mm512_slli_epi32(brain, 16));
}

/* ---- Super-blocks of 256: the group ---- */

AMX_INLINE void unit_scales_k(const uint8_t *super, size_t unit, unit_lines *out) {
    out->scale[0] = _mm512_mul_ps(unit_halves(super), unit_bytes(super + 64 + 16 * unit));
    __m512 minimum = _mm512_mul_ps(unit_halves(super + 32), unit_bytes(super + 192 + 16 * unit));
    out->minimum[0] = _mm512_xor_ps(minimum, _mm512_set1_ps(-0.0f));
}

AMX_INLINE void unit_read_q4_k(const uint8_t *super, size_t unit, unit_lines *out) {
    unit_nibbles(super + 320 + unit * NIBBLE_UNIT, out->line);
    unit_scales_k(super, unit, out);
}

AMX_INLINE void unit_read_q5_k(const uint8_t *super, size_t unit, unit_lines *out) {
    unit_nibbles(super + 320 + unit * NIBBLE_BITS, out->line);
    unit_bits(super + 320 + unit * NIBBLE_BITS + NIBBLE_UNIT, 16, out->line);
    unit_scales_k(super, unit, out);
}

AMX_INLINE void unit_read_iq4_xs(const uint8_t *super, size_t unit, unit_lines *out) {
    unit_nibbles(super + 192 + unit * NIBBLE_UNIT, out->line);
    unit_codes(codebook_iq4, out->line);
    out->scale[0] = _mm512_mul_ps(unit_halves(super), unit_signed_bytes(super + 64 + 16 * unit));
}

AMX_INLINE void unit_scales_sub(const uint8_t *super, size_t unit, unit_lines *out) {
    for (size_t half = 0; half < 2; half++)
        out->scale[half] = _mm512_mul_ps(unit_halves(super),
                                         unit_signed_bytes(super + 64 + 32 * unit + 16 * half));
}

AMX_INLINE void unit_read_q6_k(const uint8_t *super, size_t unit, unit_lines *out) {
    const uint8_t *lines = super + 320 + unit * 384;
    __m512i high[8];
    unit_nibbles(lines, out->line);
    unit_pairs(lines + NIBBLE_UNIT, high);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        out->line[i] = _mm512_or_si512(out->line[i], _mm512_slli_epi16(high[i], 4));
    unit_scales_sub(super, unit, out);
}

AMX_INLINE void unit_read_q3_k(const uint8_t *super, size_t unit, unit_lines *out) {
    const uint8_t *lines = super + 320 + unit * 192;
    unit_pairs(lines, out->line);
    unit_bits(lines + 128, 4, out->line);
    unit_scales_sub(super, unit, out);
}

#endif
