/* Python's random.Random(seed).sample: lm-eval draws the shots of each document with it, so prompts
 * are the same bytes only with the same generator (MT19937) and the same way of drawing. Owned by
 * who calls; cannot fail. Not for anything else: base/random.h is our generator. */
#ifndef AVO_EVAL_PYTHON_RANDOM_H
#define AVO_EVAL_PYTHON_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#define PYTHON_RANDOM_WORDS      624
#define PYTHON_RANDOM_SAMPLE_MAX 64

typedef struct python_random {
    uint32_t word[PYTHON_RANDOM_WORDS];
    uint32_t next;
} python_random;

/* Random(seed), for seeds that are not negative. */
void python_random_seed(python_random *random, uint64_t seed);
/* getrandbits(32). */
uint32_t python_random_word(python_random *random);
/* sample(range(population), count): the indices in the order drawn. `count` is at most
 * PYTHON_RANDOM_SAMPLE_MAX and at most `population`, which is at most 2^32 − 1. */
void python_random_sample(python_random *random, uint32_t population, uint32_t count,
                          uint32_t *indices);

#endif
