/* Content sums: XXH3 of 64 bits (libxxhash; `xxhsum -H3` computes the same). */
#ifndef AVO_BASE_HASH_H
#define AVO_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *data, size_t bytes);

/* For tables of keys that come from files: differs from process to process, so that nobody can make
 * a file whose keys all fall into one slot. Never written down, never the order of anything. */
uint64_t hash_key(const void *data, size_t bytes);
/* The same sum for tables that ask often: they take the seed once and keep it. */
uint64_t hash_key_seed(void);
uint64_t hash_key_seeded(const void *data, size_t bytes, uint64_t seed);

/* The same with 128 bits, for keys that stand for what they were made of. */
void hash_key_wide(const void *data, size_t bytes, uint64_t key[2]);
/* With a seed of its own, for keys that outlive the process. */
void hash_key_wide_seeded(const void *data, size_t bytes, uint64_t seed, uint64_t key[2]);

/* The same sum as hash_bytes of bytes that come in pieces. */
typedef struct hash_stream {
    _Alignas(64) unsigned char state[576]; /* libxxhash's own */
} hash_stream;
void hash_stream_begin(hash_stream *stream);
void hash_stream_add(hash_stream *stream, const void *data, size_t bytes);
/* Of everything so far; more may be added. */
uint64_t hash_stream_sum(const hash_stream *stream);
/* XXH3 of 128 bits, where a sum stands for the content itself: begin with this one, add as above.
 */
void hash_wide_begin(hash_stream *stream);
void hash_wide_sum(const hash_stream *stream, uint64_t sum[2]); /* low, high */

#endif
