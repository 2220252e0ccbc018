/* The draft: what the readers of tokenizer files fill, and compile.c turns into an image. */
#ifndef AVO_TOKENIZER_DRAFT_INT_H
#define AVO_TOKENIZER_DRAFT_INT_H

#include "base/arena.h"
#include "base/buffer.h"
#include "tokenizer/image_int.h"
#include "tokenizer/tokenizer.h"

#define DRAFT_BYTES_MAX ((size_t)2 << 30) /* working memory of one compilation */

typedef struct draft_token {
    text_view text; /* as the vocabulary writes it; in the source or the arena */
    float score;
    uint8_t flags;  /* TOKEN_… */
    bool mergeable; /* plain text may turn into it */
    bool found;     /* by draft_find: the first with its text */
    bool literal;   /* of a byte-level vocabulary, but it stands for its text as written */
} draft_token;

typedef struct draft_merge {
    uint32_t left, right, result;
    uint32_t rank;
} draft_merge;

typedef struct draft_added {
    text_view text;
    uint32_t id;
    uint32_t flags; /* ADDED_… */
    bool late;      /* sought in the normalised text … */
    bool normal;    /* … and not itself to be normalised first */
} draft_added;

enum { STAGE_NORMALISE, STAGE_PRETOKENISE, STAGE_DECODE, STAGE_COUNT };

typedef struct draft {
    arena *arena;
    const char *name; /* the file, for messages */
    avo_error *error;
    image_kind kind;
    uint32_t flags; /* IMAGE_… */
    draft_token *tokens;
    uint32_t vocabulary;
    uint32_t *table; /* token texts to ids, power of two; IMAGE_NONE: empty */
    uint32_t table_mask;
    uint32_t *tags; /* upper halves of the hashes in `table`: most other texts are not compared */
    bool by_score;  /* no list of merges: any two neighbours that form a token, best score first */
    bool ignore_merges;
    draft_merge *merges;
    size_t merge_count;
    uint32_t next_result; /* a guess: results of merges mostly follow each other */
    draft_added *added;
    uint32_t added_count;
    image_step steps[STAGE_COUNT][TOKENIZER_STEPS_MAX];
    uint32_t step_count[STAGE_COUNT];
    buffer texts; /* of the steps */
    int32_t begin, end, unknown, padding;
    bool fused;        /* of decoders: tokens have become one text */
    bool closed;       /* of pre-tokenizers: nothing may follow ByteLevel */
    bool unknown_used; /* characters outside the vocabulary become `unknown` */
    uint32_t prefix[TOKENIZER_FRAME_MAX], suffix[TOKENIZER_FRAME_MAX];
    uint32_t prefix_count, suffix_count;
} draft;

/* Cleared, ids −1. */
void draft_init(draft *draft, arena *arena, const char *name, avo_error *error);
AVO_MUST_USE avo_status draft_vocabulary(draft *draft, uint64_t count);
/* Indexes the token texts; the first of two equal ones is found. */
AVO_MUST_USE avo_status draft_index(draft *draft);
uint32_t draft_find(const draft *draft, text_view text);
AVO_MUST_USE avo_status draft_step(draft *draft, uint32_t stage, image_step step, text_view first,
                                   text_view second);
AVO_MUST_USE avo_status draft_no_memory(const draft *draft);
/* "name: text" with what is wrong. */
AVO_MUST_USE avo_status draft_fail(const draft *draft, avo_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Appends a merge (draft->merges has room); both parts and the whole must be tokens. One that
 * plain text must not turn into is left out. */
AVO_MUST_USE avo_status draft_add_merge(draft *draft, text_view left, text_view right,
                                        uint32_t rank);
/* A split by a regular expression: by a scanner where there is one for it. */
AVO_MUST_USE avo_status draft_split(draft *draft, text_view pattern, uint32_t flags);

/* ▁ and what SentencePiece models do with it. */
#define SPACE_MARK "\xE2\x96\x81"
/* Marks tokens written "<0x00>" … "<0xFF>" as bytes and sets the byte flags. */
void draft_mark_bytes(draft *draft);

/* The byte-level alphabet: the code point that stands for a byte, and back (−1: none). */
uint32_t alphabet_character(uint8_t byte);
int32_t alphabet_byte(uint32_t code_point);

/* ---- Readers ---- */
AVO_MUST_USE avo_status read_tokenizer_json(draft *draft, const tokenizer_source *source);
AVO_MUST_USE avo_status read_tokenizer_gguf(draft *draft, const tokenizer_source *source);
AVO_MUST_USE avo_status read_tokenizer_sentencepiece(draft *draft, const tokenizer_source *source);
AVO_MUST_USE avo_status read_tokenizer_llama2c(draft *draft, const tokenizer_source *source);
/* Of read_json: the parts that are sequences of named pieces. */
AVO_MUST_USE avo_status read_json_normaliser(draft *draft, const json_value *value, uint32_t depth);
AVO_MUST_USE avo_status read_json_pretokeniser(draft *draft, const json_value *value,
                                               uint32_t depth);
AVO_MUST_USE avo_status read_json_decoder(draft *draft, const json_value *value, uint32_t depth);
AVO_MUST_USE avo_status read_json_postprocessor(draft *draft, const json_value *value,
                                                uint32_t depth);

/* ---- Compilation ---- */

/* The image, from the allocator (`bytes` long, aligned to 64), and opened. */
AVO_MUST_USE avo_status compile_image(draft *draft, const avo_allocator *allocator, uint8_t **data,
                                      size_t *bytes, image *image);
/* Parts of it: the table of words, in the opened image; the trie of added tokens; and the merges
 * (made from scores where need be) with the symbols of characters. */
AVO_MUST_USE avo_status compile_words(draft *draft, const image *image, image_word *table);

typedef struct compiled_trie {
    image_node *nodes;
    image_edge *edges;
    uint32_t node_count, edge_count;
} compiled_trie;
AVO_MUST_USE avo_status compile_trie(draft *draft, const draft_added *added,
                                     const uint32_t *members, uint32_t count, compiled_trie *trie);

typedef struct compiled_symbols {
    uint32_t symbols;
    image_character *characters;
    uint32_t character_count; /* slots */
    uint32_t bytes[256];
    uint32_t merge_slots; /* of the table that compile_merges fills */
    uint64_t *pairs;
    uint32_t pair_words;
} compiled_symbols;
AVO_MUST_USE avo_status compile_symbols(draft *draft, compiled_symbols *symbols);
/* Behind it: enters the merges into the image; `count` without those that are listed twice. */
AVO_MUST_USE avo_status compile_merges(const draft *draft, image_merge *table, uint32_t slots,
                                       uint32_t *count);

#endif
