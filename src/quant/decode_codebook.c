/* Types whose 4-bit numbers are indices into a small table: IQ4_NL, IQ4_XS, MXFP4.
 *
 *   IQ4_NL  block of 32: f16 d, 16 bytes of nibbles (low: elements 0…15).
 *   IQ4_XS  super-block of 256: f16 d, 8 pairs of upper scale bits, 8 lower scale nibbles, then
 *           8 × 16 bytes of nibbles; scale of 32 elements is d·(6 bits − 32).
 *   MXFP4   block of 32: an E8M0 exponent, 16 bytes of nibbles. The table holds doubled E2M1
 *           values, so the scale is half of what the exponent says.
 */
#include "quant/decode_int.h"

static const float nonlinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
/* Index 8, the format's minus zero, is a plain zero here, as in the `gguf` package. */
static const float e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 32 elements of a table times a scale. */
static inline void decode_table(const float *table, float scale, const uint8_t *nibbles,
                                float *out) {
    for (int i = 0; i < 16; i++)
        out[i] = scale * table[nibbles[i] & 15];
    for (int i = 0; i < 16; i++)
        out[i + 16] = scale * table[nibbles[i] >> 4];
}

void decode_iq4_nl(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 32; block++, source += 18, out += 32)
        decode_table(nonlinear, load_half(source), source + 2, out);
}

void decode_iq4_xs(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 256; block++, source += 136) {
        float d = load_half(source);
        unsigned high = load_u16(source + 2);
        for (int group = 0; group < 8; group++, out += 32) {
            int low = source[4 + group / 2] >> (group % 2 * 4) & 15;
            int scale = (low | (int)(high >> (2 * group) & 3) << 4) - 32;
            decode_table(nonlinear, d * (float)scale, source + 8 + 16 * group, out);
        }
    }
}

/* Half of 2^(exponent − 127), subnormal for the two smallest; 255 gives 2^127 here as there. */
static inline float e8m0_half(uint32_t exponent) {
    return float_from_bits(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

void decode_mxfp4(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 32; block++, source += 17, out += 32)
        decode_table(e2m1_doubled, e8m0_half(source[0]), source + 1, out);
}
