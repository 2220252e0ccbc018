/* The rotation of Q4R: Hadamard transforms of 256 k at a time, orthonormal and their own inverse.
 * They spread outliers over their block, so that one scale serves it all. */
#include "quant/quant.h"

#define ROTATE_BLOCK 256

/* Numbers lie `lanes` apart and `lanes` of them are transformed side by side. The order of the
 * additions is part of the format's arithmetic: strides 1, 2, 4, … */
static inline void rotate_block(float *x, size_t count, size_t lanes) {
    for (size_t half = 1; half < count; half *= 2)
        for (size_t i = 0; i < count; i += 2 * half)
            for (size_t j = i; j < i + half; j++)
                for (size_t lane = 0; lane < lanes; lane++) {
                    float a = x[j * lanes + lane];
                    float b = x[(j + half) * lanes + lane];
                    x[j * lanes + lane] = a + b;
                    x[(j + half) * lanes + lane] = a - b;
                }
    float scale = quant_rotate_scale(count);
    for (size_t i = 0; i < count * lanes; i++)
        x[i] *= scale;
}

float quant_rotate_scale(size_t count) {
    switch (count) {
    case 16:
        return 0.25f;
    case 32:
        return 0.17677669529663687f;
    case 64:
        return 0.125f;
    case 128:
        return 0.08838834764831845f;
    default:
        return 0.0625f;
    }
}

void quant_rotate(float *x, size_t k, size_t lanes) {
    while (k > 0) {
        size_t count = ROTATE_BLOCK;
        while (count > k)
            count /= 2;
        if (lanes == 1) /* one row: loops over k become vectors only with a constant stride */
            rotate_block(x, count, 1);
        else
            rotate_block(x, count, lanes);
        x += count * lanes;
        k -= count;
    }
}
