/* What tokenizer.model and GGUF's "llama" vocabularies have in common. */
#ifndef AVO_TOKENIZER_SENTENCEPIECE_INT_H
#define AVO_TOKENIZER_SENTENCEPIECE_INT_H

#include "tokenizer/draft_int.h"

/* Types of pieces; GGUF's token_type uses the same numbers. */
enum {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN = 2,
    PIECE_CONTROL = 3,
    PIECE_USER_DEFINED = 4,
    PIECE_UNUSED = 5,
    PIECE_BYTE = 6
};

typedef struct sentencepiece_options {
    bool add_prefix; /* a space in front of every text */
    bool squeeze;    /* runs of spaces become one, none at the ends */
    bool escape;     /* a space is written ▁ */
    bool add_begin, add_end;
} sentencepiece_options;

/* Texts, scores and special ids are in the draft; this adds the rest. */
AVO_MUST_USE avo_status draft_sentencepiece(draft *draft, const uint8_t *types,
                                            const sentencepiece_options *options);
/* The tokens that are sought in texts: control, unknown and user-defined ones. Pieces of the types
 * NORMAL and, where `user_merges`, USER_DEFINED may come out of plain text. */
AVO_MUST_USE avo_status draft_types(draft *draft, const uint8_t *types, bool user_late);
/* begin and end around a text. */
void draft_frame(draft *draft, bool add_begin, bool add_end);
/* add_bos_token and add_eos_token of tokenizer_config.json, where it has them. */
AVO_MUST_USE avo_status draft_config(draft *draft, bytes_view config, bool *add_begin,
                                     bool *add_end);

#endif
