/* The state of training a vocabulary: words (bpe_words.c), pairs and merges (bpe.c), the file
 * (bpe_json.c). */
#ifndef AVO_TRAIN_BPE_INT_H
#define AVO_TRAIN_BPE_INT_H

#include "base/arena.h"
#include "train/bpe.h"

#define BPE_NONE      UINT32_MAX
#define BPE_WORDS_MAX ((uint64_t)1 << 28)
#define BPE_WORD_MAX  65535u /* bytes; a longer one is counted in parts */

typedef struct bpe_word {
    const char *text;  /* bytes; symbols once training runs */
    uint32_t *symbols; /* [count] */
    uint32_t size;     /* of the text; then the number of symbols */
    uint64_t count;    /* how often it was seen */
} bpe_word;

typedef struct bpe_token {
    text_view text; /* bytes, not characters of the alphabet */
} bpe_token;

typedef struct bpe_merge {
    uint32_t left, right;
} bpe_merge;

/* An array that grows by doubling. */
typedef struct bpe_array {
    void *items;
    size_t count, capacity, size; /* size: of an item */
} bpe_array;

struct train_bpe {
    train_bpe_options options;
    arena arena; /* texts of words and tokens, symbols */
    bpe_array words;
    uint32_t *slots; /* [slot_count] a power of two; word + 1, 0: free */
    size_t slot_count;
    bpe_token *tokens; /* [options.vocabulary] by id */
    uint32_t token_count;
    uint32_t byte_ids[256];
    bpe_array merges;
    uint64_t bytes;
    bool ran;
};

/* Space for one more item, cleared; NULL without memory. */
void *bpe_array_add(const avo_allocator *allocator, bpe_array *array);
void bpe_array_free(const avo_allocator *allocator, bpe_array *array);

static inline bpe_word *bpe_words(const train_bpe *bpe) {
    return bpe->words.items;
}

#endif
