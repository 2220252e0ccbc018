/* Byte-pair encoding of one word over an image. */
#ifndef AVO_TOKENIZER_BPE_INT_H
#define AVO_TOKENIZER_BPE_INT_H

#include "tokenizer/image_int.h"
#include "tokenizer/tokenizer.h"

/* Working memory that grows and stays for the words of one call. */
typedef struct bpe_symbol {
    uint32_t id;    /* IMAGE_NONE: a character without a symbol */
    uint32_t begin; /* in the word, in bytes; the next symbol's begin is its end */
} bpe_symbol;

typedef struct bpe_candidate {
    uint32_t rank;
    uint32_t at; /* index of the left symbol */
    uint32_t left, right;
} bpe_candidate;

typedef struct bpe_work {
    const avo_allocator *allocator;
    bpe_symbol *symbols;
    size_t symbol_capacity;
    uint32_t *links; /* long words: next and previous of each symbol */
    size_t link_capacity;
    bpe_candidate *heap;
    size_t heap_capacity;
    uint64_t operations; /* lookups and moves done so far: what the linearity test counts */
} bpe_work;

void bpe_work_init(bpe_work *work, const avo_allocator *allocator);
void bpe_work_free(bpe_work *work);

/* The symbols of `word` after all merges, in work->symbols[0 … *count). `word` is valid UTF-8
 * unless the image is byte-level; its size is at most BPE_WORD_MAX. */
#define BPE_WORD_MAX ((size_t)1 << 30)
AVO_MUST_USE avo_status bpe_word(const image *image, bpe_work *work, text_view word,
                                 uint32_t *count);

#endif
