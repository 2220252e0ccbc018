/* Content sums: XXH3 of 64 bits (libxxhash; `xxhsum -H3` computes the same). */
#ifndef AVO_BASE_HASH_H
#define AVO_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *data, size_t bytes);

#endif
