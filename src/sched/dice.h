/* Random numbers of workloads, in order: a function of the seed and of how many were drawn. */
#ifndef AVO_SCHED_DICE_H
#define AVO_SCHED_DICE_H

#include "base/random.h"

#include <math.h>
#include <stdbool.h>

typedef struct dice {
    uint64_t seed, count;
} dice;

static inline double dice_uniform(dice *dice) {
    return random_uniform_at(dice->seed, 2, dice->count++);
}

/* In [low, high]. */
static inline uint32_t dice_between(dice *dice, uint32_t low, uint32_t high) {
    return low + (uint32_t)(dice_uniform(dice) * (high - low + 1));
}

static inline bool dice_chance(dice *dice, double probability) {
    return dice_uniform(dice) < probability;
}

static inline double dice_exponential(dice *dice, double mean) {
    return -mean * log(1 - dice_uniform(dice));
}

/* Lengths as people write: many short, few long. Log-normal of mean `mean` with sigma 0.8; from 1
 * to `most`. */
uint32_t dice_length(dice *dice, uint32_t mean, uint32_t most);

/* sums[k − 1]: the weights 1/i^exponent of 1…k. */
void dice_zipf_sums(double exponent, double *sums, uint32_t count);
/* One of 1…count by these weights. */
uint32_t dice_zipf(dice *dice, const double *sums, uint32_t count);

#endif
