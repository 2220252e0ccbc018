/* Prompt lookup, as llama.cpp's ngram-simple: the last n tokens, n from length_max down to
 * length_min, are looked for in the timeline; the tokens behind their most recent earlier
 * occurrence are the drafts. It is the index of suffix.h with contexts of at most length_max tokens
 * (so the same memory and time, and the same rules about forgetting and loops) that keeps quiet
 * below length_min.
 */
#ifndef AVO_SPEC_NGRAM_H
#define AVO_SPEC_NGRAM_H

#include "spec/suffix.h"

#define NGRAM_LENGTH_MAX 16

typedef struct ngram_options {
    uint32_t tokens_max; /* newest tokens that are searched */
    uint32_t length_min; /* 0: NGRAM_LENGTH_MIN_DEFAULT */
    uint32_t length_max; /* 0: NGRAM_LENGTH_MAX_DEFAULT, or length_min where that is more */
} ngram_options;
#define NGRAM_LENGTH_MIN_DEFAULT 2
#define NGRAM_LENGTH_MAX_DEFAULT 3

typedef struct ngram_index ngram_index;

/* Bytes of an index with valid options. */
size_t ngram_index_bytes(const ngram_options *options);
/* AVO_ERROR_ARGUMENT unless 1 <= length_min <= length_max <= NGRAM_LENGTH_MAX; else as
 * suffix_index_open. */
AVO_MUST_USE avo_status ngram_index_open(const ngram_options *options,
                                         const avo_allocator *allocator, ngram_index **out,
                                         avo_error *error);
/* NULL is ignored. */
void ngram_index_close(ngram_index *index);
void ngram_index_clear(ngram_index *index);
void ngram_index_push(ngram_index *index, int32_t token);
suffix_match ngram_index_propose(const ngram_index *index, uint32_t most, int32_t *drafts);

#endif
