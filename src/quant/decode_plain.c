/* Plain numbers to f32: floats of other widths, FP8, integers. A 64-bit number is rounded once,
 * to nearest even. */
#include "quant/decode_int.h"

void decode_f32(const uint8_t *source, size_t elements, float *out) {
    memcpy(out, source, elements * sizeof(float));
}

#define DECODE_PLAIN(name, type, expression)                                                       \
    void decode_##name(const uint8_t *source, size_t elements, float *out) {                       \
        for (size_t i = 0; i < elements; i++) {                                                    \
            type value;                                                                            \
            memcpy(&value, source + i * sizeof(type), sizeof(type));                               \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }
DECODE_PLAIN(f16, uint16_t, half_to_float(value))
DECODE_PLAIN(bf16, uint16_t, float_from_bits((uint32_t)value << 16))
DECODE_PLAIN(f64, double, (float)value)
DECODE_PLAIN(f8_e4m3, uint8_t, e4m3_to_float(value))
DECODE_PLAIN(f8_e5m2, uint8_t, half_to_float((uint16_t)(value << 8)))
DECODE_PLAIN(i8, int8_t, (float)value)
DECODE_PLAIN(u8, uint8_t, (float)value)
DECODE_PLAIN(i16, int16_t, (float)value)
DECODE_PLAIN(u16, uint16_t, (float)value)
DECODE_PLAIN(i32, int32_t, (float)value)
DECODE_PLAIN(u32, uint32_t, (float)value)
DECODE_PLAIN(i64, int64_t, (float)value)
DECODE_PLAIN(u64, uint64_t, (float)value)
DECODE_PLAIN(bool, uint8_t, value != 0 ? 1.0f : 0.0f)
#undef DECODE_PLAIN
