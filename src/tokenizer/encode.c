/* Text to ids: added tokens out of the raw text, then normalisation, added tokens out of the
 * normalised text, pre-tokenisation, BPE.
 *
 * Invalid UTF-8: where every byte has a token (byte-level, byte fallback) invalid bytes are kept as
 * their bytes' tokens, so that nothing is lost, and what stands before and behind them is encoded
 * as two parts of one text; elsewhere they are replaced by U+FFFD, as Python does before the
 * original sees them. */
#include "tokenizer/encode_int.h"

#include "base/allocator.h"
#include "base/checked.h"
#include "base/utf8.h"
#include "tokenizer/unicode_int.h"

avo_status encode_no_memory(encoder *encoder) {
    return status_fail(encoder->error, AVO_ERROR_MEMORY, "out of memory while tokenizing");
}

static inline avo_status put_id(encoder *encoder, uint32_t id) {
    id_list *list = encoder->ids;
    if (list->count == list->capacity && id_list_reserve(list, 1) != AVO_OK)
        return encode_no_memory(encoder);
    list->ids[list->count++] = (int32_t)id;
    return AVO_OK;
}

/* A character without a token: its bytes, or the unknown token, or nothing. */
static avo_status put_unknown(encoder *encoder, text_view character) {
    const image *image = encoder->image;
    bool fallback = (image->header->flags & IMAGE_BYTE_FALLBACK) != 0;
    for (size_t i = 0; fallback && i < character.size; i++)
        fallback = image->bytes[(uint8_t)character.data[i]] != IMAGE_NONE;
    if (fallback) {
        for (size_t i = 0; i < character.size; i++)
            AVO_TRY(put_id(encoder, image->bytes[(uint8_t)character.data[i]]));
        encoder->last_unknown = false;
        return AVO_OK;
    }
    uint32_t unknown = image->header->unknown_symbol;
    if (unknown == IMAGE_NONE ||
        (encoder->last_unknown && (image->header->flags & IMAGE_FUSE_UNKNOWN)))
        return AVO_OK;
    encoder->last_unknown = true;
    return put_id(encoder, unknown);
}

/* The ids of a word's symbols; *plain says that all of them were tokens. */
static avo_status put_symbols(encoder *encoder, text_view word, uint32_t count, bool *plain) {
    const bpe_symbol *symbols = encoder->work.symbols;
    uint32_t vocabulary = encoder->image->header->vocabulary;
    *plain = true;
    if (id_list_reserve(encoder->ids, count) != AVO_OK)
        return encode_no_memory(encoder);
    for (uint32_t i = 0; i < count; i++) {
        if (symbols[i].id < vocabulary) {
            encoder->last_unknown = false;
            AVO_TRY(put_id(encoder, symbols[i].id));
            continue;
        }
        *plain = false;
        AVO_TRY(put_unknown(encoder, (text_view){word.data + symbols[i].begin,
                                                 symbols[i + 1].begin - symbols[i].begin}));
    }
    return AVO_OK;
}

/* BPE, with the results of earlier words at hand. */
static avo_status encode_parts(encoder *encoder, text_view word, uint64_t hash) {
    cached_word *slot = NULL;
    if (encoder->cache != NULL && word.size <= CACHE_TEXT) {
        slot = &encoder->cache[(hash >> 20) % CACHE_SLOTS];
        if (slot->count > 0 && slot->hash == hash && slot->bytes == word.size &&
            memcmp(slot->text, word.data, word.size) == 0) {
            id_list *list = encoder->ids;
            if (id_list_reserve(list, slot->count) != AVO_OK)
                return encode_no_memory(encoder);
            memcpy(list->ids + list->count, slot->ids, slot->count * sizeof(int32_t));
            list->count += slot->count;
            encoder->last_unknown = false;
            return AVO_OK;
        }
    }
    uint32_t count;
    avo_status status = bpe_word(encoder->image, &encoder->work, word, &count);
    if (status == AVO_ERROR_LIMIT)
        return status_fail(encoder->error, status, "a word has %zu bytes, must have at most %zu",
                           word.size, BPE_WORD_MAX);
    if (status != AVO_OK)
        return encode_no_memory(encoder);
    size_t at = encoder->ids->count;
    bool plain;
    AVO_TRY(put_symbols(encoder, word, count, &plain));
    if (slot != NULL && plain && count <= CACHE_IDS && count > 0) {
        slot->hash = hash;
        slot->count = (uint8_t)count;
        slot->bytes = (uint8_t)word.size;
        memcpy(slot->text, word.data, word.size);
        memcpy(slot->ids, encoder->ids->ids + at, count * sizeof(int32_t));
    }
    return AVO_OK;
}

static inline avo_status encode_unit(encoder *encoder, text_view word) {
    uint64_t hash = image_hash(word.data, word.size);
    uint32_t id = image_find_word(encoder->image, word.data, word.size, hash);
    if (id == IMAGE_NONE)
        return encode_parts(encoder, word, hash);
    encoder->last_unknown = false;
    return put_id(encoder, id);
}

avo_status encode_word(encoder *encoder, text_view word) {
    const image *image = encoder->image;
    encoder->last_unknown = false;
    if (word.size == 0)
        return AVO_OK;
    if (image->header->kind == IMAGE_BYTE_LEVEL)
        return encode_unit(encoder, word);
    /* Cut where no token reaches across. */
    uint32_t left;
    uint32_t right;
    size_t begin = 0;
    size_t at = unicode_take(word.data, &left);
    while (at < word.size) {
        uint32_t length = unicode_take(word.data + at, &right);
        if (!image_may_join(image, left, right)) {
            AVO_TRY(encode_unit(encoder, (text_view){word.data + begin, at - begin}));
            begin = at;
        }
        at += length;
        left = right;
    }
    return encode_unit(encoder, (text_view){word.data + begin, word.size - begin});
}

avo_status encode_bytes(encoder *encoder, text_view bytes) {
    if (encoder->image->header->kind == IMAGE_BYTE_LEVEL)
        return encode_word(encoder, bytes);
    for (size_t i = 0; i < bytes.size; i++)
        AVO_TRY(put_id(encoder, encoder->image->bytes[(uint8_t)bytes.data[i]]));
    return AVO_OK;
}

/* ---- Segments: text between added tokens ---- */

/* `begin` is where the segment begins in the caller's text. */
static avo_status encode_segment_anew(encoder *encoder, text_view segment, size_t begin,
                                      bool continued) {
    const image *image = encoder->image;
    if (segment.size == 0)
        return AVO_OK;
    text_view text;
    AVO_TRY(normalise(&encoder->normaliser, image->steps, image->header->normalise_count,
                      image->texts, segment, continued, &text, encoder->error));
    if (text.size == 0)
        return AVO_OK;
    bool same = text.data == segment.data && text.size == segment.size;
    added_search search = {.image = image,
                           .which = 1,
                           .text = text,
                           .options = encoder->options,
                           .located = same,
                           .base = begin,
                           .base_bytes = segment.size};
    size_t at = 0;
    added_match match;
    while (added_next(&search, at, &match)) {
        if (match.strip_begin > at)
            AVO_TRY(pretokenise(encoder, 0,
                                (text_piece){{text.data + at, match.strip_begin - at},
                                             begin == 0 && at == 0,
                                             continued && at == 0}));
        AVO_TRY(put_id(encoder, match.id));
        at = match.strip_end;
    }
    if (at == text.size)
        return AVO_OK;
    return pretokenise(encoder, 0,
                       (text_piece){{text.data + at, text.size - at},
                                    begin == 0 && at == 0,
                                    continued && at == 0});
}

/* Kept segments: not where added tokens are sought in the normalised text too, since these may
 * count here and not there; and not parts of a text that is cut by invalid bytes. */
static avo_status encode_segment(encoder *encoder, text_view segment, size_t begin,
                                 bool continued) {
    bool keeps = encoder->segments != NULL && segment.size >= SEGMENT_BYTES_MIN && !continued &&
                 encoder->image->node_count[1] <= 1; /* a root alone */
    if (!keeps)
        return encode_segment_anew(encoder, segment, begin, continued);
    if (encode_cache_find(encoder->segments, segment, begin == 0, encoder->ids)) {
        encoder->last_unknown = false;
        return AVO_OK;
    }
    size_t at = encoder->ids->count;
    AVO_TRY(encode_segment_anew(encoder, segment, begin, continued));
    encode_cache_keep(encoder->segments, segment, begin == 0, encoder->ids->ids + at,
                      encoder->ids->count - at);
    return AVO_OK;
}

/* Valid UTF-8 that begins at `base` of the caller's text. */
static avo_status encode_valid(encoder *encoder, text_view text, size_t base, bool continued) {
    added_search search = {.image = encoder->image,
                           .which = 0,
                           .text = text,
                           .options = encoder->options,
                           .located = true,
                           .base = base,
                           .base_bytes = text.size};
    size_t at = 0;
    added_match match;
    while (added_next(&search, at, &match)) {
        AVO_TRY(encode_segment(encoder, (text_view){text.data + at, match.strip_begin - at},
                               base + at, continued && at == 0));
        AVO_TRY(put_id(encoder, match.id));
        at = match.strip_end;
    }
    return encode_segment(encoder, (text_view){text.data + at, text.size - at}, base + at,
                          continued && at == 0);
}

static avo_status encode_mixed(encoder *encoder, text_view text) {
    size_t at = 0;
    while (at < text.size) {
        size_t valid = utf8_valid_prefix(text.data + at, text.size - at);
        if (valid > 0)
            AVO_TRY(encode_valid(encoder, (text_view){text.data + at, valid}, at, at > 0));
        at += valid;
        size_t begin = at;
        uint32_t ignored;
        while (at < text.size && utf8_decode(text.data + at, text.size - at, &ignored) == 0)
            at += utf8_invalid_length(text.data + at, text.size - at);
        if (at > begin)
            AVO_TRY(encode_bytes(encoder, (text_view){text.data + begin, at - begin}));
    }
    return AVO_OK;
}

/* Replaces what is invalid; trusted spans then no longer fit, so special tokens stay text. */
static avo_status encode_replaced(encoder *encoder, text_view text) {
    buffer clean;
    buffer_init(&clean, encoder->tokenizer->allocator, SIZE_MAX);
    avo_status status = AVO_OK;
    for (size_t at = 0; at < text.size && status == AVO_OK;) {
        size_t valid = utf8_valid_prefix(text.data + at, text.size - at);
        status = buffer_append(&clean, text.data + at, valid);
        at += valid;
        if (at == text.size || status != AVO_OK)
            break;
        status = buffer_append(&clean, "\xEF\xBF\xBD", 3);
        at += utf8_invalid_length(text.data + at, text.size - at);
    }
    const encode_options *given = encoder->options;
    encode_options options = *given;
    if (options.trusted_given)
        options.trusted_count = 0;
    encoder->options = &options;
    status = status == AVO_OK ? encode_valid(encoder, buffer_text(&clean), 0, false)
                              : encode_no_memory(encoder);
    encoder->options = given;
    buffer_free(&clean);
    return status;
}

static avo_status take_cache(encoder *encoder) {
    encoder->cache =
        allocator_take_array(encoder->tokenizer->allocator, CACHE_SLOTS, sizeof(cached_word));
    return encoder->cache == NULL ? encode_no_memory(encoder) : AVO_OK;
}

static avo_status encode_all(encoder *encoder, text_view text) {
    if (text.size >= CACHE_FROM && encoder->cache == NULL)
        AVO_TRY(take_cache(encoder));
    if (utf8_valid_prefix(text.data, text.size) == text.size)
        return encode_valid(encoder, text, 0, false);
    return encoder->image->header->flags & IMAGE_ALL_BYTES ? encode_mixed(encoder, text)
                                                           : encode_replaced(encoder, text);
}

static void encoder_init(encoder *encoder, const tokenizer *tokenizer) {
    *encoder = (struct encoder){.tokenizer = tokenizer, .image = &tokenizer->image};
    bpe_work_init(&encoder->work, tokenizer->allocator);
    normaliser_init(&encoder->normaliser, tokenizer->allocator);
    encoder->normaliser.match = &encoder->match;
    encoder->normaliser.regexes = tokenizer->regexes;
    for (uint32_t i = 0; i < TOKENIZER_STEPS_MAX; i++) /* each step bounds its own */
        buffer_init(&encoder->scratch[i], tokenizer->allocator, SIZE_MAX);
}

static void encoder_free(encoder *encoder) {
    bpe_work_free(&encoder->work);
    normaliser_free(&encoder->normaliser);
    regex_match_free(&encoder->match);
    for (uint32_t i = 0; i < TOKENIZER_STEPS_MAX; i++)
        buffer_free(&encoder->scratch[i]);
    allocator_give(encoder->tokenizer->allocator, encoder->cache,
                   CACHE_SLOTS * sizeof(cached_word));
}

avo_status encoder_run(encoder *encoder, text_view text, const encode_options *options,
                       id_list *ids, avo_error *error) {
    const image_header *header = encoder->image->header;
    if (text.size > TOKENIZER_TEXT_MAX)
        return status_fail(error, AVO_ERROR_LIMIT, "the text has %zu bytes, must have at most %zu",
                           text.size, TOKENIZER_TEXT_MAX);
    encoder->options = options;
    encoder->ids = ids;
    encoder->error = error;
    encoder->last_unknown = false;
    encoder->normaliser.told = false;
    normaliser_allow(&encoder->normaliser, text.size);
    size_t count = ids->count;
    avo_status status = AVO_OK;
    for (uint32_t i = 0; options->add_begin && i < header->prefix_count && status == AVO_OK; i++)
        status = put_id(encoder, header->prefix[i]);
    if (status == AVO_OK && text.size > 0)
        status = encode_all(encoder, text);
    for (uint32_t i = 0; options->add_end && i < header->suffix_count && status == AVO_OK; i++)
        status = put_id(encoder, header->suffix[i]);
    if (status != AVO_OK)
        ids->count = count;
    return status;
}

avo_status encoder_open(const tokenizer *tokenizer, encoder **out, avo_error *error) {
    *out = NULL;
    encoder *encoder = allocator_take(tokenizer->allocator, sizeof(*encoder));
    if (encoder == NULL)
        return status_no_memory(error, "an encoder", sizeof(*encoder));
    encoder_init(encoder, tokenizer);
    encoder->error = error;
    avo_status status = take_cache(encoder);
    if (status != AVO_OK) {
        encoder_close(encoder);
        return status;
    }
    *out = encoder;
    return AVO_OK;
}

void encoder_use(encoder *encoder, encode_cache *cache) {
    encoder->segments = cache;
}

void encoder_close(encoder *encoder) {
    if (encoder == NULL)
        return;
    const avo_allocator *allocator = encoder->tokenizer->allocator;
    encoder_free(encoder);
    allocator_give(allocator, encoder, sizeof(*encoder));
}

avo_status tokenizer_encode(const tokenizer *tokenizer, text_view text,
                            const encode_options *options, id_list *ids, avo_error *error) {
    encoder encoder;
    encoder_init(&encoder, tokenizer);
    avo_status status = encoder_run(&encoder, text, options, ids, error);
    encoder_free(&encoder);
    return status;
}
