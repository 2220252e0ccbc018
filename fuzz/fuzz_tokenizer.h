/* What a tokenizer that opened must then stand: any text in, its own ids out again. */
#ifndef AVO_FUZZ_TOKENIZER_H
#define AVO_FUZZ_TOKENIZER_H

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define FUZZ_MEMORY ((size_t)256 << 20)

/* An allocator that refuses more than FUZZ_MEMORY at a time. Exact sizes, so that the sanitizer
 * sees the first byte too far. */
static inline void *fuzz_allocate(void *context, size_t size, size_t alignment) {
    (void)context;
    void *memory = NULL;
    return size <= FUZZ_MEMORY && posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

static inline void fuzz_release(void *context, void *memory, size_t size) {
    (void)context;
    (void)size;
    free(memory);
}

static const avo_allocator fuzz_allocator = {NULL, fuzz_allocate, fuzz_release};

/* Ids are in range; decoding takes them; what a stream emits is UTF-8; and, unless the tokenizer
 * was made by somebody else, text does not become special tokens. */
static inline void fuzz_text(const tokenizer *tokenizer, text_view text,
                             const encode_options *options, bool honest) {
    avo_error error = {0};
    id_list ids;
    id_list_init(&ids, &fuzz_allocator);
    uint32_t vocabulary = tokenizer_describe(tokenizer).vocabulary;
    if (tokenizer_encode(tokenizer, text, options, &ids, &error) == AVO_OK) {
        buffer out;
        decode_stream stream;
        buffer_init(&out, &fuzz_allocator, SIZE_MAX);
        decode_stream_init(&stream, tokenizer, true);
        for (size_t i = 0; i < ids.count; i++) {
            if (ids.ids[i] < 0 || (uint32_t)ids.ids[i] >= vocabulary)
                abort();
            if (honest && !options->special && !options->add_begin && !options->add_end &&
                tokenizer_is_special(tokenizer, ids.ids[i]) &&
                ids.ids[i] != tokenizer_describe(tokenizer).unknown)
                abort(); /* text became a special token */
            avo_status status = decode_stream_push(&stream, ids.ids[i], &out, &error);
            if (status == AVO_ERROR_LIMIT)
                continue; /* steps that make too much of a token */
            if (status != AVO_OK)
                abort();
        }
        if (decode_stream_finish(&stream, &out, &error) != AVO_OK ||
            utf8_valid_prefix(out.data, out.size) != out.size)
            abort();
        buffer_free(&out);
    }
    id_list_free(&ids);
}

static inline void fuzz_open(const tokenizer_source *source) {
    static const char sample[] =
        "Hello  world's 123\n\n <s> \xC3\xA9\xE2\x96\x81\xF0\x9F\x99\x82 e\xCC\x81 \xC2\xB2"
        "\xFF <|x|> \x00 zz";
    tokenizer *tokenizer;
    avo_error error = {0};
    if (tokenizer_open(source, &fuzz_allocator, &tokenizer, &error) != AVO_OK) {
        if (error.text[0] == '\0')
            abort(); /* a refusal has a reason */
        return;
    }
    bool honest = source->kind != TOKENIZER_SOURCE_IMAGE;
    for (int special = 0; special < 2; special++) {
        encode_options options = {.special = special, .add_begin = special, .add_end = special};
        fuzz_text(tokenizer, (text_view){sample, sizeof(sample) - 1}, &options, honest);
        size_t size = source->data.size < 400 ? source->data.size : 400;
        fuzz_text(tokenizer, (text_view){(const char *)source->data.data, size}, &options, honest);
    }
    tokenizer_info info = tokenizer_describe(tokenizer);
    for (int32_t id = 0; id < (int32_t)info.vocabulary && id < 1000; id++) {
        text_view piece = tokenizer_piece(tokenizer, id);
        if (piece.size > 0)
            (void)tokenizer_find_piece(tokenizer, piece);
    }
    tokenizer_close(tokenizer);
}

#endif
