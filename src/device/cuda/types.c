/* How kernels read each type of weights. */
#include "device/cuda/cuda.h"

#include <stddef.h>

typedef struct type_entry {
    quant_type type;
    exact_shape shape;
} type_entry;

#define NIBBLE      EXACT_LINES_NIBBLE
#define NIBBLE_BIT  EXACT_LINES_NIBBLE_BIT
#define NIBBLE_PAIR EXACT_LINES_NIBBLE_PAIR
#define MINIMUM     EXACT_SCALES_BLOCK_MINIMUM

/* group in units, head lines, unit lines, lines, zero, codebook, scales, halves, minimum */
static const type_entry entries[] = {
    {QUANT_Q8C, {0, 0, 8, EXACT_LINES_BYTE, 0, 0, EXACT_SCALES_ROW, false, false}},
    {QUANT_Q8R, {0, 0, 8, EXACT_LINES_BYTE, 0, 0, EXACT_SCALES_ROW, false, false}},
    {QUANT_Q8_0, {2, 1, 8, EXACT_LINES_BYTE, 0, 0, EXACT_SCALES_BLOCK, false, false}},
    {QUANT_Q8B, {2, 1, 8, EXACT_LINES_BYTE, 0, 0, EXACT_SCALES_BLOCK, false, false}},
    {QUANT_Q4_0, {2, 1, 4, NIBBLE, 8, 0, EXACT_SCALES_BLOCK, false, false}},
    {QUANT_Q4_1, {2, 2, 4, NIBBLE, 0, 0, MINIMUM, false, true}},
    {QUANT_Q4B64, {4, 1, 4, NIBBLE, 8, 0, EXACT_SCALES_BLOCK64, false, false}},
    {QUANT_Q4M64, {2, 1, 4, NIBBLE, 0, 0, EXACT_SCALES_BLOCK64_MINIMUM, false, true}},
    {QUANT_Q5_0, {2, 1, 5, NIBBLE_BIT, 16, 0, EXACT_SCALES_BLOCK, false, false}},
    {QUANT_Q5_1, {2, 2, 5, NIBBLE_BIT, 0, 0, MINIMUM, false, true}},
    {QUANT_IQ4_NL, {2, 1, 4, NIBBLE, 0, EXACT_IQ4, EXACT_SCALES_BLOCK, false, false}},
    {QUANT_MXFP4, {2, 1, 4, NIBBLE, 0, EXACT_MXFP4, EXACT_SCALES_BLOCK_BRAIN, false, false}},
    {QUANT_Q4_K, {8, 5, 4, NIBBLE, 0, 0, EXACT_SCALES_K32_MINIMUM, false, true}},
    {QUANT_Q5_K, {8, 5, 5, NIBBLE_BIT, 0, 0, EXACT_SCALES_K32_MINIMUM, false, true}},
    {QUANT_Q6_K, {8, 5, 6, NIBBLE_PAIR, 32, 0, EXACT_SCALES_K16, true, false}},
    {QUANT_Q3_K, {8, 5, 3, EXACT_LINES_PAIR_BIT, 4, 0, EXACT_SCALES_K16, true, false}},
    {QUANT_Q2_K, {8, 5, 2, EXACT_LINES_PAIR, 0, 0, EXACT_SCALES_K16_MINIMUM, true, true}},
    {QUANT_IQ4_XS, {8, 3, 4, NIBBLE, 0, EXACT_IQ4, EXACT_SCALES_K32, false, false}},
};

bool cuda_shape_of(quant_type type, exact_shape *shape) {
    *shape = (exact_shape){0};
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (entries[i].type == type) {
            *shape = entries[i].shape;
            return true;
        }
    return false;
}

cuda_kernel cuda_linear_kernel(quant_type type) {
    exact_shape ignored;
    return type == QUANT_Q4R                    ? CUDA_KERNEL_linear_q4r
           : cuda_shape_of(type, &ignored)      ? CUDA_KERNEL_linear_units
           : panels_form(type) == PRODUCT_FLOAT ? CUDA_KERNEL_linear_float
                                                : CUDA_KERNELS;
}
