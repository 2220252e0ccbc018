/* Passes over all logits of a token that sampling makes, for the processor at hand. Every
 * instruction set gives the same bits: the same operations in the same order, in wider registers.
 */
#ifndef AVO_DEVICE_LOGITS_H
#define AVO_DEVICE_LOGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct logit_loops {
    /* Σ e^(logit − highest) in eight sums, which are then added in order. */
    double (*sum)(const float *logits, uint32_t count, float highest);
    /* weights[i] = e^((score − highest) / temperature) */
    void (*weigh)(const float *scores, size_t count, float highest, float temperature,
                  float *weights);
    /* Σ weights in eight sums, which are then added in order. */
    double (*total)(const float *weights, uint32_t count);
    /* The highest and the lowest; false: some are NaN or +inf. */
    bool (*range)(const float *logits, uint32_t count, float *highest, float *lowest);
} logit_loops;

extern const logit_loops logit_loops_plain;
/* Asks what the processor has, which takes up to 0.2 ms in a virtual machine: once for each
 * scheduler or sampler, not for each token. */
const logit_loops *logit_loops_best(void);

#endif
