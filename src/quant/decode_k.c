/* GGUF's super-blocks of 256: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.
 *
 *   Q2_K  16 bytes: scale (low nibble) and minimum (high) of each 16 elements; 64 bytes of 2-bit
 *         numbers; f16 d, f16 dmin.
 *   Q3_K  32 bytes of third bits; 64 bytes of 2-bit numbers; 16 six-bit scales in 12 bytes; f16 d.
 *   Q4_K  f16 d, f16 dmin; 8 six-bit scales and 8 minima (one pair per 32 elements) in 12 bytes;
 *         128 bytes of nibbles.
 *   Q5_K  as Q4_K with 32 bytes of fifth bits before the nibbles.
 *   Q6_K  128 bytes of low nibbles; 64 bytes of the two upper bits; 16 int8 scales; f16 d.
 * In all of them a byte holds elements that lie 32 apart, and the lower bits come first.
 */
#include "quant/decode_int.h"

/* Loops below run over 32 elements, two groups of 16 with a scale each, because compilers turn
 * loops of 32 into vector code and take those of 16 apart. */
static inline void fill_pair(float first, float second, float *pair) {
    for (int i = 0; i < 16; i++)
        pair[i] = first;
    for (int i = 16; i < 32; i++)
        pair[i] = second;
}

void decode_q2_k(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 256; block++, source += 84) {
        const uint8_t *scales = source;
        float d = load_half(source + 80);
        float dmin = load_half(source + 82);
        for (int pair = 0; pair < 8; pair++, scales += 2, out += 32) {
            const uint8_t *q = source + 16 + pair / 4 * 32;
            int shift = pair % 4 * 2;
            float scale[32], minimum[32];
            fill_pair(d * (float)(scales[0] & 15), d * (float)(scales[1] & 15), scale);
            fill_pair(dmin * (float)(scales[0] >> 4), dmin * (float)(scales[1] >> 4), minimum);
            for (int i = 0; i < 32; i++)
                out[i] = scale[i] * (float)(q[i] >> shift & 3) - minimum[i];
        }
    }
}

/* Scale `group` (0…15) of the 16 six-bit ones of Q3_K, less 32. */
static inline int q3_k_scale(const uint8_t *packed, int group) {
    int low = packed[group % 8] >> (group / 8 * 4) & 15;
    int high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

void decode_q3_k(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 256; block++, source += 110) {
        const uint8_t *high = source;
        float d = load_half(source + 108);
        for (int pair = 0; pair < 8; pair++, out += 32) {
            const uint8_t *q = source + 32 + pair / 4 * 32;
            int shift = pair % 4 * 2;
            float scale[32];
            fill_pair(d * (float)q3_k_scale(source + 96, 2 * pair),
                      d * (float)q3_k_scale(source + 96, 2 * pair + 1), scale);
            for (int i = 0; i < 32; i++) {
                int number = (q[i] >> shift & 3) | (high[i] >> pair & 1) << 2;
                out[i] = scale[i] * (float)(number - 4);
            }
        }
    }
}

/* Scale and minimum `group` (0…7) of Q4_K and Q5_K. */
static inline void q4_k_scale(const uint8_t *packed, int group, int *scale, int *minimum) {
    if (group < 4) {
        *scale = packed[group] & 63;
        *minimum = packed[group + 4] & 63;
    } else {
        *scale = (packed[group + 4] & 15) | (packed[group - 4] >> 2 & 0x30);
        *minimum = packed[group + 4] >> 4 | (packed[group] >> 2 & 0x30);
    }
}

void decode_q4_k(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 256; block++, source += 144) {
        float d = load_half(source);
        float dmin = load_half(source + 2);
        for (int pair = 0; pair < 4; pair++, out += 64) {
            const uint8_t *q = source + 16 + pair * 32;
            int scale, minimum;
            q4_k_scale(source + 4, 2 * pair, &scale, &minimum);
            float low_scale = d * (float)scale, low_minimum = dmin * (float)minimum;
            q4_k_scale(source + 4, 2 * pair + 1, &scale, &minimum);
            float high_scale = d * (float)scale, high_minimum = dmin * (float)minimum;
            for (int i = 0; i < 32; i++)
                out[i] = low_scale * (float)(q[i] & 15) - low_minimum;
            for (int i = 0; i < 32; i++)
                out[i + 32] = high_scale * (float)(q[i] >> 4) - high_minimum;
        }
    }
}

void decode_q5_k(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 256; block++, source += 176) {
        float d = load_half(source);
        float dmin = load_half(source + 2);
        const uint8_t *high = source + 16;
        for (int group = 0; group < 8; group++, out += 32) {
            const uint8_t *q = source + 48 + group / 2 * 32;
            int shift = group % 2 * 4;
            int scale, minimum;
            q4_k_scale(source + 4, group, &scale, &minimum);
            float group_scale = d * (float)scale, group_minimum = dmin * (float)minimum;
            for (int i = 0; i < 32; i++) {
                int number = (q[i] >> shift & 15) | (high[i] >> group & 1) << 4;
                out[i] = group_scale * (float)number - group_minimum;
            }
        }
    }
}

void decode_q6_k(const uint8_t *source, size_t elements, float *out) {
    for (size_t block = 0; block < elements / 256; block++, source += 210) {
        const int8_t *scales = (const int8_t *)source + 192;
        float d = load_half(source + 208);
        for (int pair = 0; pair < 8; pair++, scales += 2, out += 32) {
            /* 128 elements share 64 low bytes and 32 high bytes */
            const uint8_t *low = source + pair / 4 * 64 + pair % 2 * 32;
            const uint8_t *high = source + 128 + pair / 4 * 32;
            int low_shift = pair % 4 / 2 * 4;
            int high_shift = pair % 4 * 2;
            float scale[32];
            fill_pair(d * (float)scales[0], d * (float)scales[1], scale);
            for (int i = 0; i < 32; i++) {
                int number = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
                out[i] = scale[i] * (float)(number - 32);
            }
        }
    }
}
