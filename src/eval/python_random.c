/* MT19937, seeded and read as CPython does it, and the two ways in which sample draws. */
#include "eval/python_random.h"

#include <assert.h>
#include <stdbool.h>

#define WORDS  PYTHON_RANDOM_WORDS
#define MIDDLE 397

static void seed_word(python_random *random, uint32_t seed) {
    random->word[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        uint32_t before = random->word[i - 1];
        random->word[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    random->next = WORDS;
}

/* init_by_array with the seed's 32-bit words, lowest first, without leading zeros. */
void python_random_seed(python_random *random, uint64_t seed) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t keys = key[1] != 0 ? 2 : 1, i = 1, j = 0;
    uint32_t *word = random->word;
    seed_word(random, 19650218u);
    for (uint32_t k = 0; k < WORDS; k++) {
        word[i] = (word[i] ^ ((word[i - 1] ^ (word[i - 1] >> 30)) * 1664525u)) + key[j] + j;
        j = (j + 1) % keys;
        if (++i == WORDS) {
            word[0] = word[WORDS - 1];
            i = 1;
        }
    }
    for (uint32_t k = 1; k < WORDS; k++) {
        word[i] = (word[i] ^ ((word[i - 1] ^ (word[i - 1] >> 30)) * 1566083941u)) - i;
        if (++i == WORDS) {
            word[0] = word[WORDS - 1];
            i = 1;
        }
    }
    word[0] = 0x80000000u;
}

static void twist(python_random *random) {
    uint32_t *word = random->word;
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t y = (word[i] & 0x80000000u) | (word[(i + 1) % WORDS] & 0x7fffffffu);
        word[i] = word[(i + MIDDLE) % WORDS] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908b0dfu : 0u);
    }
    random->next = 0;
}

uint32_t python_random_word(python_random *random) {
    if (random->next == WORDS)
        twist(random);
    uint32_t y = random->word[random->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* _randbelow: as many bits as `limit` has, again until they are below it. */
static uint32_t below(python_random *random, uint32_t limit) {
    unsigned bits = 0;
    while (bits < 32 && limit >> bits != 0)
        bits++;
    uint32_t drawn;
    do
        drawn = python_random_word(random) >> (32 - bits);
    while (drawn >= limit);
    return drawn;
}

/* Where CPython keeps a pool of all rather than a set of those drawn: a set of `count` items would
 * need more memory than the list. */
static bool takes_pool(uint32_t population, uint32_t count) {
    uint64_t set_size = 21;
    if (count > 5) {
        uint64_t power = 1; /* 4 ** ceil(log(count * 3, 4)) */
        while (power < (uint64_t)count * 3)
            power *= 4;
        set_size += power;
    }
    return population <= set_size;
}

void python_random_sample(python_random *random, uint32_t population, uint32_t count,
                          uint32_t *indices) {
    assert(count <= PYTHON_RANDOM_SAMPLE_MAX && count <= population);
    if (takes_pool(population, count)) {
        uint32_t pool[21 + 256]; /* 4 ** ceil(log(64 * 3, 4)) is 256 */
        for (uint32_t i = 0; i < population; i++)
            pool[i] = i;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t at = below(random, population - i);
            indices[i] = pool[at];
            pool[at] = pool[population - i - 1];
        }
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        bool again;
        do {
            indices[i] = below(random, population);
            again = false;
            for (uint32_t j = 0; j < i; j++)
                again = again || indices[j] == indices[i];
        } while (again);
    }
}
