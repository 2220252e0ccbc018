/* Pairs of 64-bit numbers to an index: open addressing, no holes left behind, nothing allocated
 * after the beginning. O(1) expected; the hash differs from process to process, so nobody can make
 * names that all fall into one place. */
#ifndef AVO_SCHED_KEYS_H
#define AVO_SCHED_KEYS_H

#include "base/arena.h"

#define KEYS_NONE UINT32_MAX

typedef struct keys_entry {
    uint64_t key[2];
    uint32_t value; /* KEYS_NONE: nobody here */
} keys_entry;

typedef struct keys {
    keys_entry *entry; /* [mask + 1], a power of two, at most half full */
    uint32_t mask;
    uint32_t count;
    uint64_t seed; /* of the hash */
} keys;

/* Room for `capacity`; false: no memory. */
bool keys_init(keys *keys, arena *arena, uint32_t capacity);
uint32_t keys_find(const keys *keys, uint64_t a, uint64_t b);
/* The key must not be in yet. */
void keys_add(keys *keys, uint64_t a, uint64_t b, uint32_t value);
/* The key must be in. */
void keys_remove(keys *keys, uint64_t a, uint64_t b);

#endif
