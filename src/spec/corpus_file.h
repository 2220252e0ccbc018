/* The file of a corpus, little-endian:
 *
 *   corpus_header     128 bytes
 *   keys              corpus_key each, the least recently used first
 *   texts             the oldest first: u32 number of the key, u32 tokens, then i32 each
 *
 * Everything is checked before the corpus changes: sums, sizes, the model, every key number and
 * every token.
 */
#ifndef AVO_SPEC_CORPUS_FILE_H
#define AVO_SPEC_CORPUS_FILE_H

#include <stddef.h>
#include <stdint.h>

#define CORPUS_FILE_MAGIC   "AVOCORP"
#define CORPUS_FILE_VERSION 1

typedef struct corpus_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes;
    uint64_t file_bytes;
    uint64_t model_digest;
    uint64_t key_seed; /* of the hash that made the keys */
    uint32_t keys;
    uint32_t texts;
    uint64_t tokens; /* of all texts */
    uint8_t zero[56];
    uint64_t body_sum;   /* XXH3 of everything behind the header */
    uint64_t header_sum; /* XXH3 of the header before this field */
} corpus_header;
_Static_assert(sizeof(corpus_header) == 128, "the header of the file");

typedef struct corpus_file_text {
    uint32_t key;
    uint32_t tokens;
} corpus_file_text;

#endif
