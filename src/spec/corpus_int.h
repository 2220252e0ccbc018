/* The fields of the corpus, shared by corpus.c and corpus_file.c. */
#ifndef AVO_SPEC_CORPUS_INT_H
#define AVO_SPEC_CORPUS_INT_H

#include "spec/corpus.h"
#include "spec/suffix_int.h"

#define CORPUS_NONE UINT32_MAX

typedef struct corpus_entry {
    corpus_key key;
    uint32_t owner;        /* in the index; modulo keys_max it is the number of this entry */
    uint32_t next;         /* in the chain of its bucket */
    uint32_t newer, older; /* in the order of use */
    uint32_t rank;         /* while a file is written: its number there */
} corpus_entry;

struct corpus {
    const avo_allocator *allocator;
    corpus_options options;
    uint64_t key_seed;
    suffix_index *index;
    size_t bytes; /* of this block, which holds the arrays too */
    uint32_t key_count;
    uint32_t newest, oldest; /* entries, by use */
    uint32_t bucket_mask;
    corpus_entry *entries; /* [keys_max] */
    uint32_t *buckets;     /* [bucket_mask + 1] the first entry of each chain */
};

/* The entry of a key, as the newest; CORPUS_NONE where it is unknown. */
uint32_t corpus_use(corpus *corpus, corpus_key key);
/* The same, but makes one, in the place of the least recently used where all are taken. */
uint32_t corpus_make(corpus *corpus, corpus_key key);

#endif
