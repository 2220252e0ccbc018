/* The search for scale, minimum and numbers of one 4-bit block of up to 64 numbers, by weighted
 * least squares. */
#ifndef AVO_QUANT_SEARCH_BLOCK_H
#define AVO_QUANT_SEARCH_BLOCK_H

#include "quant/quant.h"

#define SEARCH_BLOCK_MAX 64

typedef struct block_found {
    uint16_t scale;   /* f16 bits; symmetric: of either sign */
    uint16_t minimum; /* f16 bits */
    uint8_t number[SEARCH_BLOCK_MAX];
} block_found;

/* Value: scale · (number − 8). `weight` [count], not negative, or NULL: all equal. `count` finite
 * numbers of at most weight_largest. */
void search_symmetric(const float *source, const float *weight, size_t count, block_found *found);
/* Value: scale · number + minimum; the scale is not negative. */
void search_minimum(const float *source, const float *weight, size_t count, block_found *found);

#endif
