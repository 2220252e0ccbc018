/* Content sums through libxxhash. */
#include "base/hash.h"

#include <xxhash.h>

uint64_t hash_bytes(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}
