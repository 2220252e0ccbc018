/* Content sums through libxxhash. */
#define XXH_STATIC_LINKING_ONLY /* for the size of its state alone */
#include "base/hash.h"

#include <string.h>
#include <sys/auxv.h>
#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(hash_stream), "the state must fit");

uint64_t hash_bytes(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}

/* Sixteen random bytes that the kernel gives every process: a seed without any state. */
uint64_t hash_key_seed(void) {
    uint64_t seed = 0;
    const void *random = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    if (random != NULL)
        memcpy(&seed, random, sizeof(seed));
    return seed;
}

uint64_t hash_key_seeded(const void *data, size_t bytes, uint64_t seed) {
    return XXH3_64bits_withSeed(data, bytes, seed);
}

uint64_t hash_key(const void *data, size_t bytes) {
    return hash_key_seeded(data, bytes, hash_key_seed());
}

void hash_key_wide_seeded(const void *data, size_t bytes, uint64_t seed, uint64_t key[2]) {
    XXH128_hash_t sum = XXH3_128bits_withSeed(data, bytes, seed);
    key[0] = sum.low64;
    key[1] = sum.high64;
}

void hash_key_wide(const void *data, size_t bytes, uint64_t key[2]) {
    hash_key_wide_seeded(data, bytes, hash_key_seed(), key);
}

static XXH3_state_t *state_of(hash_stream *stream) {
    return (XXH3_state_t *)(void *)stream->state;
}

void hash_stream_begin(hash_stream *stream) {
    XXH3_INITSTATE(state_of(stream));
    (void)XXH3_64bits_reset(state_of(stream));
}

void hash_stream_add(hash_stream *stream, const void *data, size_t bytes) {
    if (bytes > 0)
        (void)XXH3_64bits_update(state_of(stream), data, bytes);
}

uint64_t hash_stream_sum(const hash_stream *stream) {
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)stream->state);
}

void hash_wide_begin(hash_stream *stream) {
    XXH3_INITSTATE(state_of(stream));
    (void)XXH3_128bits_reset(state_of(stream));
}

void hash_wide_sum(const hash_stream *stream, uint64_t sum[2]) {
    XXH128_hash_t whole = XXH3_128bits_digest((const XXH3_state_t *)(const void *)stream->state);
    sum[0] = whole.low64;
    sum[1] = whole.high64;
}
