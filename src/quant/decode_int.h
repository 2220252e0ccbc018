/* The decoders of one type each, for the folder itself. `elements` is a multiple of the block;
 * every multiplication and addition stands in the order of the `gguf` package, so that results are
 * equal to the bit (of a NaN only that it is one). */
#ifndef AVO_QUANT_DECODE_INT_H
#define AVO_QUANT_DECODE_INT_H

#include "quant/quant.h"

typedef void quant_decode_function(const uint8_t *source, size_t elements, float *out);
typedef quant_decode_function *quant_decoder;

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
quant_decode_function decode_f32, decode_f16, decode_bf16, decode_f64, decode_f8_e4m3;
quant_decode_function decode_f8_e5m2, decode_i8, decode_u8, decode_i16, decode_u16, decode_i32;
quant_decode_function decode_u32, decode_i64, decode_u64, decode_bool;
/* decode_block32.c */
quant_decode_function decode_q4_0, decode_q4_1, decode_q5_0, decode_q5_1, decode_q8_0;
/* decode_k.c */
quant_decode_function decode_q2_k, decode_q3_k, decode_q4_k, decode_q5_k, decode_q6_k;
/* decode_codebook.c */
quant_decode_function decode_iq4_nl, decode_iq4_xs, decode_mxfp4;

#endif
