/* The encoder: what a text carries through the stages of encoding, kept from text to text. */
#ifndef AVO_TOKENIZER_ENCODE_INT_H
#define AVO_TOKENIZER_ENCODE_INT_H

#include "tokenizer/bpe_int.h"
#include "tokenizer/normalise_int.h"
#include "tokenizer/regex_int.h"
#include "tokenizer/trie_int.h"

struct tokenizer {
    const avo_allocator *allocator;
    image image;
    uint8_t *owned; /* the image's memory; NULL when it is somebody else's */
    size_t owned_bytes;
    bool by_bytes;   /* byte-level: decoding is the tokens' bytes */
    regex **regexes; /* one per step of normalisation and pre-tokenisation; NULL where none */
    uint32_t regex_count;
    trie_keeper *trie; /* trie.h: built when first asked for */
};

/* Results of words seen earlier, found again by their text. They depend on the word alone. */
#define CACHE_SLOTS 4096u
#define CACHE_TEXT  38u
#define CACHE_IDS   12u
#define CACHE_FROM  ((size_t)16 << 10) /* a single text shorter than this does without */
typedef struct cached_word {
    uint64_t hash;
    uint8_t count; /* 0: empty */
    uint8_t bytes;
    char text[CACHE_TEXT];
    int32_t ids[CACHE_IDS];
} cached_word;

struct encoder {
    const tokenizer *tokenizer;
    const image *image;
    const encode_options *options;
    id_list *ids;
    avo_error *error;
    bpe_work work;
    normaliser normaliser;
    regex_match match;
    buffer scratch[TOKENIZER_STEPS_MAX]; /* of pre-tokenisation steps that change text */
    cached_word *cache;                  /* NULL: none */
    bool last_unknown;                   /* the id before stands for unknown characters */
    encode_cache *segments;              /* NULL: none */
};

/* Segments shorter than this are encoded faster than found. */
#define SEGMENT_BYTES_MIN 64u
/* Appends the ids of a segment that was seen before; false: it was not, or there is no memory. */
bool encode_cache_find(encode_cache *cache, text_view segment, bool first, id_list *ids);
/* Keeps the ids, or does not. */
void encode_cache_keep(encode_cache *cache, text_view segment, bool first, const int32_t *ids,
                       size_t count);

/* A match of an added token. */
typedef struct added_match {
    size_t begin, end;             /* the token itself */
    size_t strip_begin, strip_end; /* with the white space it swallows */
    uint32_t id;
} added_match;

/* A search for added tokens, from the front of a text to its end. */
typedef struct added_search {
    const image *image;
    uint32_t which; /* 0: raw, 1: late */
    text_view text;
    const encode_options *options;
    bool located;      /* positions in `text` are positions in the caller's text, less `base`;
                        * else normalising has moved them, and only all of it can be trusted */
    size_t base;       /* where the text, or what it was made from, begins … */
    size_t base_bytes; /* … and how long that is */
    size_t trusted_at; /* spans before this one are behind us */
} added_search;
/* The next added token at or behind `from`, which is where the last match ended, white space it
 * swallowed included. False: none. */
bool added_next(added_search *search, size_t from, added_match *match);

/* A piece of a segment through the pre-tokenisation steps from `step` on, then BPE. */
typedef struct text_piece {
    text_view text;
    bool first;     /* begins where the caller's text begins */
    bool continued; /* goes on from an earlier part: nothing is put in front */
} text_piece;
AVO_MUST_USE avo_status pretokenise(encoder *encoder, uint32_t step, text_piece piece);
/* A word, after all steps. */
AVO_MUST_USE avo_status encode_word(encoder *encoder, text_view word);
/* Bytes that are no valid UTF-8, where every byte has a symbol. */
AVO_MUST_USE avo_status encode_bytes(encoder *encoder, text_view bytes);
AVO_MUST_USE avo_status encode_no_memory(encoder *encoder);

#endif
