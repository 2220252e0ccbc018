/* The decoders of one type each, for the folder itself. `elements` is a multiple of the block;
 * every multiplication and addition stands in the order of the `gguf` package, so that results are
 * equal to the bit (of a NaN only that it is one). */
#ifndef AVO_QUANT_DECODE_INT_H
#define AVO_QUANT_DECODE_INT_H

#include "quant/quant.h"

typedef void (*quant_decoder)(const uint8_t *source, size_t elements, float *out);

/* NULL for types without blocks. */
quant_decoder quant_decoder_of(quant_type type);

static inline uint16_t load_u16(const uint8_t *source) {
    uint16_t value;
    memcpy(&value, source, sizeof(value));
    return value;
}

static inline uint32_t load_u32(const uint8_t *source) {
    uint32_t value;
    memcpy(&value, source, sizeof(value));
    return value;
}

static inline float float_from_bits(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof(number));
    return number;
}

static inline uint32_t float_bits(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return bits;
}

/* Exact for all 65,536 values and without a branch, so that loops over it become vector code, and
 * without subnormal operands, which many processors are slow at: a subnormal half gets the exponent
 * of 2^-14 and loses that 2^-14 again. */
static inline float half_to_float(uint16_t half) {
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    uint32_t exponent = magnitude & 0x0f800000u;
    uint32_t bits = magnitude + 0x38000000u + (exponent == 0x0f800000u ? 0x38000000u : 0u);
    uint32_t subnormal = float_bits(float_from_bits(magnitude + 0x38800000u) - 0x1p-14f);
    bits = exponent == 0 ? subnormal : bits;
    return float_from_bits(bits | (uint32_t)(half & 0x8000) << 16);
}

static inline float load_half(const uint8_t *source) {
    return half_to_float(load_u16(source));
}

/* One sign, four exponent bits (bias 7), three mantissa bits, no infinities, one NaN; by the same
 * way, with 2^-6. */
static inline float e4m3_to_float(uint8_t byte) {
    uint32_t magnitude = (uint32_t)(byte & 0x7f) << 20;
    uint32_t bits = magnitude + 0x3c000000u;
    uint32_t subnormal = float_bits(float_from_bits(magnitude + 0x3c800000u) - 0x1p-6f);
    bits = (magnitude & 0x07800000u) == 0 ? subnormal : bits;
    bits = magnitude == 0x07f00000u ? 0x7ff00000u : bits;
    return float_from_bits(bits | (uint32_t)(byte & 0x80) << 24);
}

/* decode_plain.c */
void decode_f32(const uint8_t *source, size_t elements, float *out);
void decode_f16(const uint8_t *source, size_t elements, float *out);
void decode_bf16(const uint8_t *source, size_t elements, float *out);
void decode_f64(const uint8_t *source, size_t elements, float *out);
void decode_f8_e4m3(const uint8_t *source, size_t elements, float *out);
void decode_f8_e5m2(const uint8_t *source, size_t elements, float *out);
void decode_i8(const uint8_t *source, size_t elements, float *out);
void decode_u8(const uint8_t *source, size_t elements, float *out);
void decode_i16(const uint8_t *source, size_t elements, float *out);
void decode_u16(const uint8_t *source, size_t elements, float *out);
void decode_i32(const uint8_t *source, size_t elements, float *out);
void decode_u32(const uint8_t *source, size_t elements, float *out);
void decode_i64(const uint8_t *source, size_t elements, float *out);
void decode_u64(const uint8_t *source, size_t elements, float *out);
void decode_bool(const uint8_t *source, size_t elements, float *out);
/* decode_block32.c */
void decode_q4_0(const uint8_t *source, size_t elements, float *out);
void decode_q4_1(const uint8_t *source, size_t elements, float *out);
void decode_q5_0(const uint8_t *source, size_t elements, float *out);
void decode_q5_1(const uint8_t *source, size_t elements, float *out);
void decode_q8_0(const uint8_t *source, size_t elements, float *out);
/* decode_k.c */
void decode_q2_k(const uint8_t *source, size_t elements, float *out);
void decode_q3_k(const uint8_t *source, size_t elements, float *out);
void decode_q4_k(const uint8_t *source, size_t elements, float *out);
void decode_q5_k(const uint8_t *source, size_t elements, float *out);
void decode_q6_k(const uint8_t *source, size_t elements, float *out);
/* decode_codebook.c */
void decode_iq4_nl(const uint8_t *source, size_t elements, float *out);
void decode_iq4_xs(const uint8_t *source, size_t elements, float *out);
void decode_mxfp4(const uint8_t *source, size_t elements, float *out);

#endif
