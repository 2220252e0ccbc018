/* The table of types, sizes of runs, and the conversions between f32 and the narrow floats. */
#include "quant/quant.h"

#include "base/checked.h"
#include "quant/decode_int.h"
#include "quant/panels_int.h"

#include <assert.h>

static const quant_info types[] = {
#define QUANT_TYPE_INFO(name, number, text, elements, bytes) {name, text, elements, bytes},
    QUANT_TYPE_TABLE(QUANT_TYPE_INFO)
#undef QUANT_TYPE_INFO
};

const quant_info *quant_info_of(uint32_t type) {
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

const char *quant_layout_name(quant_layout layout) {
    static const char *const names[] = {"rows", "columns", "panels"};
    return names[layout];
}

const char *quant_name(uint32_t type) {
    const quant_info *info = quant_info_of(type);
    return info == NULL ? "?" : info->name;
}

bool quant_run_bytes(quant_type type, uint64_t elements, uint64_t *bytes) {
    const quant_info *info = quant_info_of(type);
    if (info == NULL || info->block_elements == 0 || elements % info->block_elements != 0)
        return false;
    return u64_multiply(elements / info->block_elements, info->block_bytes, bytes);
}

quant_decoder quant_decoder_of(quant_type type) {
    static const quant_decoder decoders[] = {
        [QUANT_F32] = decode_f32,         [QUANT_F16] = decode_f16,
        [QUANT_BF16] = decode_bf16,       [QUANT_F64] = decode_f64,
        [QUANT_F8_E4M3] = decode_f8_e4m3, [QUANT_F8_E5M2] = decode_f8_e5m2,
        [QUANT_I8] = decode_i8,           [QUANT_U8] = decode_u8,
        [QUANT_I16] = decode_i16,         [QUANT_U16] = decode_u16,
        [QUANT_I32] = decode_i32,         [QUANT_U32] = decode_u32,
        [QUANT_I64] = decode_i64,         [QUANT_U64] = decode_u64,
        [QUANT_BOOL] = decode_bool,       [QUANT_Q4_0] = decode_q4_0,
        [QUANT_Q4_1] = decode_q4_1,       [QUANT_Q5_0] = decode_q5_0,
        [QUANT_Q5_1] = decode_q5_1,       [QUANT_Q8_0] = decode_q8_0,
        [QUANT_Q2_K] = decode_q2_k,       [QUANT_Q3_K] = decode_q3_k,
        [QUANT_Q4_K] = decode_q4_k,       [QUANT_Q5_K] = decode_q5_k,
        [QUANT_Q6_K] = decode_q6_k,       [QUANT_IQ4_NL] = decode_iq4_nl,
        [QUANT_IQ4_XS] = decode_iq4_xs,   [QUANT_MXFP4] = decode_mxfp4,
    };
    return (size_t)type < sizeof(decoders) / sizeof(decoders[0]) ? decoders[type] : NULL;
}

void quant_decode(quant_type type, const uint8_t *source, size_t elements, float *out) {
    quant_decoder decoder = quant_decoder_of(type);
    assert(decoder != NULL && elements % quant_info_of(type)->block_elements == 0);
    decoder(source, elements, out);
}

void quant_encode(quant_type type, const float *source, size_t elements, uint8_t *out) {
    assert(type == QUANT_F32 || type == QUANT_F16 || type == QUANT_BF16 || type == QUANT_Q8_0);
    if (type == QUANT_F32) {
        memcpy(out, source, elements * sizeof(float));
        return;
    }
    if (type == QUANT_Q8_0) {
        assert(elements % 32 == 0);
        for (size_t i = 0; i < elements; i += 32, out += 34)
            encode_q8_0_block(source + i, out);
        return;
    }
    for (size_t i = 0; i < elements; i++) {
        uint16_t half =
            type == QUANT_F16 ? quant_f32_to_f16(source[i]) : quant_f32_to_bf16(source[i]);
        memcpy(out + 2 * i, &half, sizeof(half));
    }
}

float quant_f16_to_f32(uint16_t half) {
    return half_to_float(half);
}

float quant_f8_e4m3_to_f32(uint8_t byte) {
    return e4m3_to_float(byte);
}

uint16_t quant_f32_to_f16(float number) {
    uint32_t bits = float_bits(number);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN: quiet, the payload's upper bits kept */
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* from 65,520 on: infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* below 2^-14: the sum has a spacing of 2^-24, and rounds */
        return (uint16_t)(sign | (float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000u));
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (magnitude - 0x38000000u) >> 13);
}

uint16_t quant_f32_to_bf16(float number) {
    uint32_t bits = float_bits(number);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
