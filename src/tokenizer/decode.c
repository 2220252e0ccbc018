/* Ids to text, token by token. A token is turned into bytes; those that may be the beginning of a
 * character wait for the next token. */
#include "tokenizer/encode_int.h"

#include "base/checked.h"
#include "base/utf8.h"

void decode_stream_init(decode_stream *stream, const tokenizer *tokenizer, bool special) {
    *stream = (decode_stream){.tokenizer = tokenizer, .special = special};
}

void decode_stream_continue(decode_stream *stream) {
    stream->begun = true;
    stream->stripped = UINT32_MAX;
}

static avo_status fail(avo_status status, avo_error *error) {
    if (status == AVO_ERROR_MEMORY)
        return status_fail(error, status, "out of memory while detokenizing");
    if (status == AVO_ERROR_LIMIT)
        return status_fail(error, status, "the text of the tokens exceeds its limit");
    return status;
}

/* Appends bytes and then lets go of everything that is certain. `out` from `begin` on is what this
 * call has appended; the stream's held bytes stand in front of the new ones. */
static avo_status put_bytes(decode_stream *stream, const char *bytes, size_t size, buffer *out) {
    if (stream->lossless && stream->held_bytes == 0)
        return buffer_append(out, bytes, size);
    char joined[sizeof(stream->held) + 64];
    for (size_t at = 0; at < size;) {
        size_t held = stream->held_bytes;
        size_t part = size - at < 64 ? size - at : 64;
        memcpy(joined, stream->held, held);
        memcpy(joined + held, bytes + at, part);
        at += part;
        size_t total = held + part;
        size_t wait = utf8_incomplete_suffix(joined, total);
        size_t sure = total - wait;
        for (size_t i = 0; i < sure;) {
            size_t valid = utf8_valid_prefix(joined + i, sure - i);
            AVO_TRY(buffer_append(out, joined + i, valid));
            i += valid;
            if (i == sure)
                break;
            size_t invalid = utf8_invalid_length(joined + i, sure - i);
            AVO_TRY(stream->lossless ? buffer_append(out, joined + i, invalid)
                                     : buffer_append(out, "\xEF\xBF\xBD", 3));
            i += invalid;
        }
        memcpy(stream->held, joined + sure, wait);
        stream->held_bytes = (uint32_t)wait;
    }
    return AVO_OK;
}

/* ---- Tokens of SentencePiece vocabularies go through the decoder's steps ---- */

typedef struct piece_text {
    buffer buffers[2];
    uint32_t turn;
    text_view text;
    bool is_byte; /* only what concerns the whole text applies to it */
} piece_text;

static avo_status replace_in(piece_text *piece, text_view from, text_view to) {
    if (memmem(piece->text.data, piece->text.size, from.data, from.size) == NULL)
        return AVO_OK;
    buffer *out = &piece->buffers[piece->turn];
    piece->turn ^= 1;
    out->size = 0;
    for (size_t at = 0; at < piece->text.size;) {
        const char *begin = piece->text.data + at;
        size_t left = piece->text.size - at;
        const char *found = memmem(begin, left, from.data, from.size);
        size_t bytes = found == NULL ? left : (size_t)(found - begin);
        AVO_TRY(buffer_append(out, begin, bytes));
        if (found != NULL)
            AVO_TRY(buffer_append(out, to.data, to.size));
        at += found == NULL ? left : bytes + from.size;
    }
    piece->text = buffer_text(out);
    return AVO_OK;
}

static void strip_token(piece_text *piece, text_view content, uint32_t start, uint32_t stop) {
    for (; start > 0 && text_starts(piece->text, content); start--) {
        piece->text.data += content.size;
        piece->text.size -= content.size;
    }
    for (; stop > 0 && text_ends(piece->text, content); stop--)
        piece->text.size -= content.size;
}

/* What is dropped in front of the whole text: at most `number` of `content`, over several tokens.
 */
static void strip_front(decode_stream *stream, piece_text *piece, text_view content,
                        uint32_t number) {
    while (stream->stripped < number && text_starts(piece->text, content)) {
        piece->text.data += content.size;
        piece->text.size -= content.size;
        stream->stripped++;
    }
    if (piece->text.size > 0)
        stream->stripped = UINT32_MAX;
}

static avo_status run_step(decode_stream *stream, const image_step *step, piece_text *piece) {
    const image *image = &stream->tokenizer->image;
    text_view first = image_text(image, step->first, step->first_bytes);
    text_view second = image_text(image, step->second, step->second_bytes);
    if (piece->is_byte && step->kind != STEP_DECODE_STRIP_TEXT)
        return AVO_OK;
    switch ((step_kind)step->kind) {
    case STEP_DECODE_REPLACE:
        return replace_in(piece, first, second);
    case STEP_DECODE_STRIP:
        strip_token(piece, first, step->number, step->number2);
        return AVO_OK;
    case STEP_DECODE_METASPACE:
        if (!stream->begun && step->number == 0)
            strip_token(piece, first, 1, 0);
        return replace_in(piece, first, TEXT_LITERAL(" "));
    default: /* STEP_DECODE_STRIP_TEXT */
        if (stream->stripped != UINT32_MAX)
            strip_front(stream, piece, first, step->number);
        return AVO_OK;
    }
}

static avo_status run_steps(decode_stream *stream, piece_text *piece, avo_error *error) {
    const image *image = &stream->tokenizer->image;
    const image_header *header = image->header;
    const image_step *steps = image->steps + header->normalise_count + header->pretokenise_count;
    size_t bytes = piece->text.size;
    for (uint32_t i = 0; i < header->decode_count; i++) {
        avo_status status = run_step(stream, &steps[i], piece);
        if (status == AVO_ERROR_LIMIT)
            return status_fail(
                error, status,
                "tokenizer step %s would produce more than %zu bytes from a token of %zu",
                step_name(steps[i].kind), piece->buffers[0].limit, bytes);
        if (status != AVO_OK)
            return fail(status, error);
    }
    return AVO_OK;
}

static int byte_of_piece(text_view piece) {
    static const char digits[] = "0123456789ABCDEF";
    if (piece.size != 6)
        return -1;
    const char *high = memchr(digits, piece.data[3], 16);
    const char *low = memchr(digits, piece.data[4], 16);
    return high == NULL || low == NULL ? -1 : (int)((high - digits) * 16 + (low - digits));
}

static avo_status push_piece(decode_stream *stream, uint32_t id, buffer *out, avo_error *error) {
    const tokenizer *tokenizer = stream->tokenizer;
    piece_text piece = {.text = image_piece(&tokenizer->image, id)};
    char bytes[1];
    int byte = tokenizer->image.flags[id] & TOKEN_BYTE ? byte_of_piece(piece.text) : -1;
    if (byte >= 0) {
        bytes[0] = (char)byte;
        piece = (piece_text){.text = {bytes, 1}, .is_byte = true};
    }
    size_t limit = size_max(TOKENIZER_DECODED_MAX, piece.text.size);
    buffer_init(&piece.buffers[0], tokenizer->allocator, limit);
    buffer_init(&piece.buffers[1], tokenizer->allocator, limit);
    avo_status status = run_steps(stream, &piece, error);
    stream->begun = true;
    AVO_THEN(status, fail(put_bytes(stream, piece.text.data, piece.text.size, out), error));
    buffer_free(&piece.buffers[0]);
    buffer_free(&piece.buffers[1]);
    return status;
}

avo_status decode_stream_push(decode_stream *stream, int32_t id, buffer *out, avo_error *error) {
    const image *image = &stream->tokenizer->image;
    if (id < 0)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "token %d is not in the vocabulary (%u tokens)", id,
                           image->header->vocabulary);
    if ((uint32_t)id >= image->header->vocabulary)
        return AVO_OK; /* a row that pads the model's embeddings */
    if (!stream->special && (image->flags[id] & TOKEN_SPECIAL))
        return AVO_OK;
    size_t size = out->size;
    avo_status status;
    if (stream->tokenizer->by_bytes) {
        text_view word = image_word_text(image, (uint32_t)id);
        status = fail(put_bytes(stream, word.data, word.size, out), error);
    } else {
        status = push_piece(stream, (uint32_t)id, out, error);
    }
    if (status != AVO_OK)
        out->size = size;
    return status;
}

avo_status decode_stream_finish(decode_stream *stream, buffer *out, avo_error *error) {
    uint32_t held = stream->held_bytes;
    stream->held_bytes = 0;
    if (held == 0)
        return AVO_OK;
    return fail(stream->lossless ? buffer_append(out, stream->held, held)
                                 : buffer_append(out, "\xEF\xBF\xBD", 3),
                error);
}

avo_status tokenizer_decode(const tokenizer *tokenizer, const int32_t *ids, size_t count,
                            bool special, buffer *out, avo_error *error) {
    decode_stream stream;
    decode_stream_init(&stream, tokenizer, special);
    stream.lossless = true;
    for (size_t i = 0; i < count; i++)
        AVO_TRY(decode_stream_push(&stream, ids[i], out, error));
    return decode_stream_finish(&stream, out, error);
}
