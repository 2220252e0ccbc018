/* Encode to F8C: E4M3 numbers and one f32 scale per row. A float format is nearly as good with any
 * scale; what differs inside an octave is where the largest numbers fall between their neighbours,
 * and which of the smallest ones are subnormal. So scales of one octave are tried. */
#include "quant/decode_int.h"
#include "quant/panels_int.h"

#include <math.h>

#define E4M3_LARGEST 448.0f
#define SCALES       8
/* Below, numbers divided by the scale would not be normal floats; such rows are zeros. */
#define SMALLEST 0x1p-110f

uint8_t quant_f32_to_f8_e4m3(float number) {
    uint32_t bits = float_bits(number);
    uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    if (magnitude >= float_bits(E4M3_LARGEST))
        return (uint8_t)(sign | 0x7eu);
    if (magnitude < 0x3c800000u) /* below 2^-6: the sum has a spacing of 2^-9, and rounds */
        return (uint8_t)(sign | (float_bits(float_from_bits(magnitude) + 0x1p14f) - 0x46800000u));
    magnitude += 0x7ffffu + (magnitude >> 20 & 1u);
    return (uint8_t)(sign | (magnitude - 0x3c000000u) >> 20);
}

static double squared_error(const float *source, size_t k, float scale) {
    double sum = 0;
    for (size_t i = 0; i < k; i++) {
        float back = scale * e4m3_to_float(quant_f32_to_f8_e4m3(source[i] / scale));
        double difference = (double)source[i] - back;
        sum += difference * difference;
    }
    return sum;
}

static float best_scale(const float *source, size_t k) {
    float largest = 0;
    for (size_t i = 0; i < k; i++)
        largest = fabsf(source[i]) > largest ? fabsf(source[i]) : largest;
    if (largest < SMALLEST)
        return 0;
    float best = 0;
    double best_error = INFINITY;
    for (int i = 0; i < SCALES; i++) {
        float scale = largest / (E4M3_LARGEST * (1.0f - (float)i / (2 * SCALES)));
        double error = squared_error(source, k, scale);
        if (error < best_error) {
            best_error = error;
            best = scale;
        }
    }
    return best;
}

void panels_f8c_encode(const float *source, size_t rows, size_t k, uint8_t *out) {
    panels_clear(QUANT_F8C, k, out);
    for (size_t row = 0; row < rows; row++) {
        const float *from = source + row * k;
        float scale = best_scale(from, k);
        memcpy(out + (k + 3) / 4 * PANEL_LINE_BYTES + 4 * row, &scale, sizeof(scale));
        for (size_t i = 0; scale > 0 && i < k; i++)
            out[i / 4 * PANEL_LINE_BYTES + 4 * row + i % 4] = quant_f32_to_f8_e4m3(from[i] / scale);
    }
}
