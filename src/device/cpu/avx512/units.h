/* Units (32 k of 16 rows) of the types with blocks, read into registers: byte lines of unsigned
 * numbers, scales and minima as floats. quant/panels.h has the layouts. The products of AVX-512
 * (a8.h) and AMX (amx/linear_blocks.h) read the same units. */
#ifndef AVO_DEVICE_CPU_AVX512_UNITS_H
#define AVO_DEVICE_CPU_AVX512_UNITS_H

#include "device/cpu/avx512/nibbles.h"

typedef struct a8_unit {
    __m512i line[8]; /* unsigned bytes */
    __m512 scale[2]; /* of the first and the second 16 k; [0] alone without sub-blocks */
    __m512 minimum[2];
} a8_unit;

typedef struct a8_kind {
    uint32_t group_units; /* units that share a head */
    uint32_t group_bytes; /* of a whole group */
    int32_t zero;         /* subtracted from every number */
    bool sub_blocks;
    bool minimum;
    void (*read)(const uint8_t *group, size_t unit, a8_unit *out);
} a8_kind;

/* A unit's share of the group, so that requests come evenly: more than the core can keep open at
 * once would wait. */
AVX512_INLINE void a8_prefetch(const a8_kind *kind, const uint8_t *group, size_t unit,
                               const int rows) {
    const size_t share = kind->group_bytes / kind->group_units;
#pragma GCC unroll 8
    for (size_t byte = 0; byte < share; byte += PANEL_LINE_BYTES)
        fetch_ahead(group + unit * share + byte, rows);
}

#define NIBBLE_UNIT 256 /* bytes: 4 nibble lines */
#define FIVE_UNIT   320 /* and a bit line */

/* ---- 4 and 5 bits in blocks of 32 and 64 ---- */

/* Head: two scales of 16 rows. */
AVX512_INLINE void read_q4_0(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + 64 + unit * NIBBLE_UNIT, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
}

/* Head: two scales, two minima. */
AVX512_INLINE void read_q4_1(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + 128 + unit * NIBBLE_UNIT, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
    out->minimum[0] = load_halves(group + 64 + 32 * unit);
}

/* Head: two scales of 64 k each. */
AVX512_INLINE void read_q4b64(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + 64 + unit * NIBBLE_UNIT, out->line);
    out->scale[0] = load_halves(group + 32 * (unit / 2));
}

/* Head: scale and minimum of 64 k. */
AVX512_INLINE void read_q4m64(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + 64 + unit * NIBBLE_UNIT, out->line);
    out->scale[0] = load_halves(group);
    out->minimum[0] = load_halves(group + 32);
}

/* Head: two scales of 16 rows. */
AVX512_INLINE void read_q5_0(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles_bits(group + 64 + unit * FIVE_UNIT, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
}

/* Head: two scales, two minima. */
AVX512_INLINE void read_q5_1(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles_bits(group + 128 + unit * FIVE_UNIT, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
    out->minimum[0] = load_halves(group + 64 + 32 * unit);
}

/* ---- 4-bit codebooks ----
 *
 * The codebook, with its zero point added so that its bytes are unsigned, is one vpshufb. */

#define CODE_ZERO 128

AVX512_INLINE void read_codes(const uint8_t *at, const int8_t codebook[16], __m512i out[8]) {
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)codebook);
    __m512i table = _mm512_broadcast_i32x4(_mm_xor_si128(codes, _mm_set1_epi8((char)CODE_ZERO)));
    read_nibbles(at, out);
#pragma GCC unroll 8
    for (int line = 0; line < 8; line++)
        out[line] = _mm512_shuffle_epi8(table, out[line]);
}

/* Head: two scales of 16 rows. */
AVX512_INLINE void read_iq4_nl(const uint8_t *group, size_t unit, a8_unit *out) {
    read_codes(group + 64 + unit * NIBBLE_UNIT, codebook_iq4, out->line);
    out->scale[0] = load_halves(group + 32 * unit);
}

/* Head: two scales as bf16. */
AVX512_INLINE void read_mxfp4(const uint8_t *group, size_t unit, a8_unit *out) {
    read_codes(group + 64 + unit * NIBBLE_UNIT, codebook_mxfp4, out->line);
    __m256i brain = _mm256_load_si256((const __m256i *)(const void *)(group + 32 * unit));
    out->scale[0] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(brain), 16));
}

/* Super-blocks. Head: a line with d, then 8 × 16 signed scales. */
AVX512_INLINE void read_iq4_xs(const uint8_t *group, size_t unit, a8_unit *out) {
    read_codes(group + 192 + unit * NIBBLE_UNIT, codebook_iq4, out->line);
    __m128i scales = _mm_load_si128((const __m128i *)(const void *)(group + 64 + 16 * unit));
    out->scale[0] =
        _mm512_mul_ps(load_halves(group), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales)));
}

/* ---- Super-blocks of 256 k and blocks of 32: a line with d and dmin, 8 × 16 scales, 8 × 16
 * minima ---- */

#define SUPER_HEAD 320

AVX512_INLINE void read_scale_minimum(const uint8_t *group, size_t unit, a8_unit *out) {
    out->scale[0] = _mm512_mul_ps(load_halves(group), load_bytes(group + 64 + 16 * unit));
    __m512 minimum = _mm512_mul_ps(load_halves(group + 32), load_bytes(group + 192 + 16 * unit));
    out->minimum[0] = _mm512_xor_ps(minimum, _mm512_set1_ps(-0.0f));
}

AVX512_INLINE void read_q4_k(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles(group + SUPER_HEAD + unit * NIBBLE_UNIT, out->line);
    read_scale_minimum(group, unit, out);
}

AVX512_INLINE void read_q5_k(const uint8_t *group, size_t unit, a8_unit *out) {
    read_nibbles_bits(group + SUPER_HEAD + unit * FIVE_UNIT, out->line);
    read_scale_minimum(group, unit, out);
}

/* ---- Super-blocks of 256 k and blocks of 16: a line with d (and dmin), 16 × 16 scales ---- */

#define Q2_K_UNIT 128 /* 2 two-bit lines */
#define Q3_K_UNIT 192 /* 2 two-bit lines, a bit line */
#define Q6_K_UNIT 384 /* 4 nibble lines, 2 two-bit lines */

AVX512_INLINE void read_signed_scales(const uint8_t *group, size_t unit, a8_unit *out) {
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *at = group + 64 + 16 * (2 * unit + half);
        __m128i scales = _mm_load_si128((const __m128i *)(const void *)at);
        out->scale[half] =
            _mm512_mul_ps(load_halves(group), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales)));
    }
}

/* Scale in the low nibble, minimum in the high one. */
AVX512_INLINE void read_q2_k(const uint8_t *group, size_t unit, a8_unit *out) {
    const uint8_t *lines = group + SUPER_HEAD + unit * Q2_K_UNIT;
    read_pair_line(lines, out->line);
    read_pair_line(lines + PANEL_LINE_BYTES, out->line + 4);
    __m512 d = load_halves(group), dmin = load_halves(group + 32);
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *at = group + 64 + 16 * (2 * unit + half);
        __m512i both = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)at));
        __m512i scale = _mm512_and_si512(both, _mm512_set1_epi32(15));
        out->scale[half] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(scale));
        __m512 minimum = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4)));
        out->minimum[half] = _mm512_xor_ps(minimum, _mm512_set1_ps(-0.0f));
    }
}

AVX512_INLINE void read_q3_k(const uint8_t *group, size_t unit, a8_unit *out) {
    const uint8_t *at = group + SUPER_HEAD + unit * Q3_K_UNIT;
    read_pair_line(at, out->line);
    read_pair_line(at + PANEL_LINE_BYTES, out->line + 4);
    add_bits(at + 2 * PANEL_LINE_BYTES, 4, out->line);
    read_signed_scales(group, unit, out);
}

AVX512_INLINE void read_q6_k(const uint8_t *group, size_t unit, a8_unit *out) {
    const uint8_t *at = group + SUPER_HEAD + unit * Q6_K_UNIT;
    read_nibbles(at, out->line);
    add_pair_line(at + 4 * PANEL_LINE_BYTES, out->line);
    add_pair_line(at + 5 * PANEL_LINE_BYTES, out->line + 4);
    read_signed_scales(group, unit, out);
}

/* ---- The types ---- */

static const a8_kind kind_q4_0 = {2, 64 + 2 * NIBBLE_UNIT, 8, false, false, read_q4_0};
static const a8_kind kind_q4_1 = {2, 128 + 2 * NIBBLE_UNIT, 0, false, true, read_q4_1};
static const a8_kind kind_q4b64 = {4, 64 + 4 * NIBBLE_UNIT, 8, false, false, read_q4b64};
static const a8_kind kind_q4m64 = {2, 64 + 2 * NIBBLE_UNIT, 0, false, true, read_q4m64};
static const a8_kind kind_q5_0 = {2, 64 + 2 * FIVE_UNIT, 16, false, false, read_q5_0};
static const a8_kind kind_q5_1 = {2, 128 + 2 * FIVE_UNIT, 0, false, true, read_q5_1};
static const a8_kind kind_iq4_nl = {2, 64 + 2 * NIBBLE_UNIT, CODE_ZERO, false, false, read_iq4_nl};
static const a8_kind kind_mxfp4 = {2, 64 + 2 * NIBBLE_UNIT, CODE_ZERO, false, false, read_mxfp4};
static const a8_kind kind_iq4_xs = {8, 192 + 8 * NIBBLE_UNIT, CODE_ZERO, false, false, read_iq4_xs};
static const a8_kind kind_q4_k = {8, SUPER_HEAD + 8 * NIBBLE_UNIT, 0, false, true, read_q4_k};
static const a8_kind kind_q5_k = {8, SUPER_HEAD + 8 * FIVE_UNIT, 0, false, true, read_q5_k};
static const a8_kind kind_q2_k = {8, SUPER_HEAD + 8 * Q2_K_UNIT, 0, true, true, read_q2_k};
static const a8_kind kind_q3_k = {8, SUPER_HEAD + 8 * Q3_K_UNIT, 4, true, false, read_q3_k};
static const a8_kind kind_q6_k = {8, SUPER_HEAD + 8 * Q6_K_UNIT, 32, true, false, read_q6_k};

#endif
