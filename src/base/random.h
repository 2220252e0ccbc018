/* Counter-based random numbers (Philox 4x32-10): a draw is a pure function of (seed, stream,
 * counter), so it depends neither on what was drawn before nor on who else draws. */
#ifndef AVO_BASE_RANDOM_H
#define AVO_BASE_RANDOM_H

#include <stdint.h>

typedef struct random_block {
    uint32_t words[4];
} random_block;

random_block random_at(uint64_t seed, uint64_t stream, uint64_t counter);

/* In [0, 1), 53 bits; from the first two words of a block. */
double random_uniform_at(uint64_t seed, uint64_t stream, uint64_t counter);

#endif
