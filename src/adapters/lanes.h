/* Rows of B·A for 16 outputs at a time: lane = output, as in panels. Sums go over the rank in
 * order, so that gains do not depend on how wide the machine's vectors are. */
#ifndef AVO_ADAPTERS_LANES_H
#define AVO_ADAPTERS_LANES_H

#include "quant/quant.h"

typedef float lanes16 __attribute__((vector_size(64), aligned(4)));

/* out[count][16] = base[count][16] + a[count][rank] · up[rank][16]; in place where both are one.
 * Two k at a time: each load of `up` serves both. */
static inline void lanes_product(const float *base, const float *a, const float *up, size_t count,
                                 size_t rank, float *out) {
    const lanes16 *rows = (const lanes16 *)(const void *)up;
    size_t i = 0;
    for (; i + 2 <= count; i += 2) {
        lanes16 first = *(const lanes16 *)(const void *)(base + i * QUANT_PANEL_ROWS);
        lanes16 second = *(const lanes16 *)(const void *)(base + (i + 1) * QUANT_PANEL_ROWS);
        for (size_t r = 0; r < rank; r++) {
            lanes16 row = rows[r];
            first += a[i * rank + r] * row;
            second += a[(i + 1) * rank + r] * row;
        }
        *(lanes16 *)(void *)(out + i * QUANT_PANEL_ROWS) = first;
        *(lanes16 *)(void *)(out + (i + 1) * QUANT_PANEL_ROWS) = second;
    }
    for (; i < count; i++) {
        lanes16 value = *(const lanes16 *)(const void *)(base + i * QUANT_PANEL_ROWS);
        for (size_t r = 0; r < rank; r++)
            value += a[i * rank + r] * rows[r];
        *(lanes16 *)(void *)(out + i * QUANT_PANEL_ROWS) = value;
    }
}

#endif
