/* Content sums through libxxhash. */
#define XXH_STATIC_LINKING_ONLY /* for the size of its state alone */
#include "base/hash.h"

#include <xxhash.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(hash_stream), "the state must fit");

uint64_t hash_bytes(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
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
