/* Text to ids and back, exactly as the model's own tokenizer does it.
 *
 * A tokenizer is compiled once from its source into an image: one relocatable block of bytes that
 * holds vocabulary, merges, tables and options. Encoding reads only the image; a .avo file carries
 * it, so that opening costs the same whatever the vocabulary. Immutable, so shared by threads.
 */
#ifndef AVO_TOKENIZER_TOKENIZER_H
#define AVO_TOKENIZER_TOKENIZER_H

#include "base/buffer.h"
#include "formats/source.h"

typedef struct tokenizer tokenizer;

AVO_MUST_USE avo_status tokenizer_open(const tokenizer_source *source,
                                       const avo_allocator *allocator, tokenizer **out,
                                       avo_error *error);
/* A bare tokenizer.json (with a tokenizer_config.json beside it, if any), tokenizer.model or
 * llama2.c tokenizer.bin. */
AVO_MUST_USE avo_status tokenizer_open_file(const char *path, const avo_allocator *allocator,
                                            tokenizer **out, avo_error *error);
void tokenizer_close(tokenizer *tokenizer);

/* What `pack` writes into a .avo and TOKENIZER_SOURCE_IMAGE reads; lives with the tokenizer. */
bytes_view tokenizer_image(const tokenizer *tokenizer);

typedef struct tokenizer_info {
    const char *kind;    /* "byte-level BPE", "SentencePiece BPE" */
    uint32_t vocabulary; /* ids are below this */
    uint32_t merges;
    uint32_t added;                       /* added tokens, special ones included */
    int32_t begin, end, unknown, padding; /* −1: none */
    bool adds_begin, adds_end;            /* what encoding puts around a text by default */
} tokenizer_info;
tokenizer_info tokenizer_describe(const tokenizer *tokenizer);

/* A part of a text, [begin, end) in bytes. */
typedef struct text_span {
    size_t begin, end;
} text_span;

typedef struct encode_options {
    bool special;   /* special tokens in the text count as such … */
    bool add_begin; /* the begin token in front, where the tokenizer adds one */
    bool add_end;   /* the end token behind, where the tokenizer adds one */
    /* … but, when `trusted_given`, only where they lie wholly inside these spans (ascending,
     * disjoint, neighbours merged): the parts of a rendered chat that no user wrote. */
    bool trusted_given;
    const text_span *trusted;
    size_t trusted_count;
} encode_options;

/* A growing array of ids; starts zeroed, freed with id_list_free. */
typedef struct id_list {
    const avo_allocator *allocator;
    int32_t *ids;
    size_t count;
    size_t capacity;
} id_list;
void id_list_init(id_list *list, const avo_allocator *allocator);
void id_list_free(id_list *list);
AVO_MUST_USE avo_status id_list_append(id_list *list, int32_t id);
/* Room for `more` further ids. */
AVO_MUST_USE avo_status id_list_reserve(id_list *list, size_t more);

#define TOKENIZER_TEXT_MAX ((size_t)1 << 30) /* bytes of one text */

/* Appends the ids of `text`, which may be any bytes: invalid UTF-8 is kept where every byte has a
 * token and becomes U+FFFD elsewhere. n log n in the length of the text at worst; on failure `ids`
 * is as before. */
AVO_MUST_USE avo_status tokenizer_encode(const tokenizer *tokenizer, text_view text,
                                         const encode_options *options, id_list *ids,
                                         avo_error *error);

/* Encoding many texts, one after the other: keeps its working memory and the results of words from
 * one to the next, which more than halves the cost of short texts. The ids are the same. Of one
 * thread at a time; the tokenizer must outlive it. */
typedef struct encoder encoder;
AVO_MUST_USE avo_status encoder_open(const tokenizer *tokenizer, encoder **out, avo_error *error);
void encoder_close(encoder *encoder);
AVO_MUST_USE avo_status encoder_run(encoder *encoder, text_view text, const encode_options *options,
                                    id_list *ids, avo_error *error);

/* Encodings of whole segments, the texts between added tokens: a turn of a conversation, a system
 * message, a document. What stands on one side of an added token has no influence on the ids of the
 * other side, so a segment's ids depend on its own bytes and on whether the text begins with it,
 * and on nothing else; bytes are compared, not hashes alone. The turns of a conversation that grow
 * by one with every request are thus encoded once. Texts without added tokens are one segment.
 * Bounded; the least recently used go first. Shared by encoders of one tokenizer on any threads. */
typedef struct encode_cache encode_cache;
AVO_MUST_USE avo_status encode_cache_open(const tokenizer *tokenizer, size_t bytes_max,
                                          encode_cache **out, avo_error *error);
void encode_cache_close(encode_cache *cache);
/* From here on the encoder asks the cache first. */
void encoder_use(encoder *encoder, encode_cache *cache);
typedef struct encode_cache_counts {
    uint64_t asked_bytes, found_bytes; /* of segments long enough to be kept */
    size_t bytes, entries;
} encode_cache_counts;
encode_cache_counts encode_cache_count(encode_cache *cache);

/* The token as the vocabulary writes it ("Ġthe", "▁the", "<0x0A>"); empty for no such id. */
text_view tokenizer_piece(const tokenizer *tokenizer, int32_t id);
/* −1 when there is none. */
int32_t tokenizer_find_piece(const tokenizer *tokenizer, text_view piece);
bool tokenizer_is_special(const tokenizer *tokenizer, int32_t id);

/* ---- Decoding, token by token ---- */

/* Whole characters only: bytes of an unfinished one wait for the next token. */
typedef struct decode_stream {
    const tokenizer *tokenizer;
    bool special;  /* special tokens appear in the text */
    bool begun;    /* a token was decoded */
    bool lossless; /* bytes as they are; else an invalid sequence becomes U+FFFD */
    uint8_t held[8];
    uint32_t held_bytes;
    uint32_t stripped; /* leading spaces dropped so far; UINT32_MAX: no more will be */
} decode_stream;
void decode_stream_init(decode_stream *stream, const tokenizer *tokenizer, bool special);
/* The text continues another: what tokenizers drop at the begin of a text stays. */
void decode_stream_continue(decode_stream *stream);
/* Appends to `out` the text that is now certain. An id at or beyond the vocabulary has no text:
 * models have rows for such ids where their embeddings are padded. A negative one is an error. */
AVO_MUST_USE avo_status decode_stream_push(decode_stream *stream, int32_t id, buffer *out,
                                           avo_error *error);
/* The end: what is held is invalid for good. */
AVO_MUST_USE avo_status decode_stream_finish(decode_stream *stream, buffer *out, avo_error *error);

/* All at once; byte-exact (no U+FFFD) so that text → ids → text loses nothing. */
AVO_MUST_USE avo_status tokenizer_decode(const tokenizer *tokenizer, const int32_t *ids,
                                         size_t count, bool special, buffer *out, avo_error *error);

#endif
