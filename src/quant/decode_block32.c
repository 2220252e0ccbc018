/* GGUF's types with blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
 *
 * A block begins with an f16 scale d (the _1 types: and an f16 minimum m), the 5-bit types go on
 * with 32 fifth bits, then come 16 bytes of nibbles: the low ones are elements 0…15, the high ones
 * 16…31. Value: d·(q − 8), d·(q − 16), or d·q + m.
 */
#include "quant/decode_int.h"

void decode_q4_0(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 32; block++, source += 18, out += 32) {
        float scale = load_half(source);
        const uint8_t *nibbles = source + 2;
        for (int i = 0; i < 16; i++)
            out[i] = scale * (float)((nibbles[i] & 15) - 8);
        for (int i = 0; i < 16; i++)
            out[i + 16] = scale * (float)((nibbles[i] >> 4) - 8);
    }
}

void decode_q4_1(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 32; block++, source += 20, out += 32) {
        float scale = load_half(source);
        float minimum = load_half(source + 2);
        const uint8_t *nibbles = source + 4;
        for (int i = 0; i < 16; i++)
            out[i] = scale * (float)(nibbles[i] & 15) + minimum;
        for (int i = 0; i < 16; i++)
            out[i + 16] = scale * (float)(nibbles[i] >> 4) + minimum;
    }
}

/* The 32 five-bit numbers of a block. A bit of the mask becomes the fifth bit of its element by a
 * comparison of bytes, which vectors can do, unlike a shift by i. */
static inline void unpack_five_bits(const uint8_t *mask, const uint8_t *nibbles, uint8_t *q) {
    static const uint8_t bit[32] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                                    1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8_t spread[32], low[32];
    for (int i = 0; i < 4; i++)
        memset(spread + 8 * i, mask[i], 8);
    memcpy(low, nibbles, 16);
    for (int i = 0; i < 16; i++)
        low[i + 16] = nibbles[i] >> 4;
    for (int i = 0; i < 32; i++)
        q[i] = (uint8_t)((low[i] & 15) | ((spread[i] & bit[i]) != 0 ? 16 : 0));
}

void decode_q5_0(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 32; block++, source += 22, out += 32) {
        float scale = load_half(source);
        uint8_t q[32];
        unpack_five_bits(source + 2, source + 6, q);
        for (int i = 0; i < 32; i++)
            out[i] = scale * (float)(q[i] - 16);
    }
}

void decode_q5_1(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 32; block++, source += 24, out += 32) {
        float scale = load_half(source);
        float minimum = load_half(source + 2);
        uint8_t q[32];
        unpack_five_bits(source + 4, source + 8, q);
        for (int i = 0; i < 32; i++)
            out[i] = scale * (float)q[i] + minimum;
    }
}

void decode_q8_0(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 32; block++, source += 34, out += 32) {
        float scale = load_half(source);
        const int8_t *q = (const int8_t *)source + 2;
        for (int i = 0; i < 32; i++)
            out[i] = (float)q[i] * scale;
    }
}
