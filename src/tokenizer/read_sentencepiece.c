/* SentencePiece's tokenizer.model: a protocol buffer, read by a small reader of our own.
 *
 *   ModelProto      1: SentencePiece (repeated)  2: TrainerSpec  3: NormalizerSpec
 *   SentencePiece   1: piece  2: score  3: type
 *   TrainerSpec     3: model type  35: byte fallback  24: space as suffix  40…43: unknown, begin,
 *                   end, padding
 *   NormalizerSpec  1: name  2: compiled character map  3: dummy prefix  4: squeeze spaces
 *                   5: escape spaces
 */
#include "tokenizer/sentencepiece_int.h"

typedef struct field {
    uint32_t number;
    uint32_t wire;
    uint64_t value;   /* varint, or the bits of a fixed one */
    bytes_view bytes; /* length-delimited */
} field;

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static bool read_varint(cursor *cursor, uint64_t *value) {
    *value = 0;
    for (uint32_t shift = 0; shift < 64; shift += 7) {
        uint8_t byte;
        if (!cursor_read_u8(cursor, &byte))
            return false;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool read_field(cursor *cursor, field *field) {
    uint64_t key;
    *field = (struct field){0};
    if (!read_varint(cursor, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return false;
    field->number = (uint32_t)(key >> 3);
    field->wire = (uint32_t)(key & 7);
    switch (field->wire) {
    case WIRE_VARINT:
        return read_varint(cursor, &field->value);
    case WIRE_FIXED64:
        return cursor_read_u64(cursor, &field->value);
    case WIRE_FIXED32: {
        uint32_t bits;
        bool good = cursor_read_u32(cursor, &bits);
        field->value = good ? bits : 0;
        return good;
    }
    case WIRE_BYTES: {
        uint64_t length;
        if (!read_varint(cursor, &length) || length > cursor_left(cursor))
            return false;
        field->bytes.size = (size_t)length;
        return cursor_take(cursor, (size_t)length, &field->bytes.data);
    }
    default:
        return false;
    }
}

static avo_status cut_off(const draft *draft, const char *where, size_t at) {
    return draft_fail(draft, AVO_ERROR_FORMAT, "invalid %s at byte %zu (tokenizer.model)", where,
                      at);
}

static avo_status read_piece(draft *draft, bytes_view bytes, uint32_t id, uint8_t *type) {
    cursor cursor = cursor_over(bytes);
    field field;
    draft_token *token = &draft->tokens[id];
    *type = PIECE_NORMAL;
    while (cursor_left(&cursor) > 0) {
        if (!read_field(&cursor, &field))
            return cut_off(draft, "token", cursor.at);
        if (field.number == 1 && field.wire == WIRE_BYTES) {
            token->text = (text_view){(const char *)field.bytes.data, field.bytes.size};
        } else if (field.number == 2 && field.wire == WIRE_FIXED32) {
            uint32_t bits = (uint32_t)field.value;
            memcpy(&token->score, &bits, sizeof(float));
        } else if (field.number == 3 && field.wire == WIRE_VARINT) {
            if (field.value < PIECE_NORMAL || field.value > PIECE_BYTE)
                return draft_fail(draft, AVO_ERROR_FORMAT, "token %u has unknown type %llu", id,
                                  (unsigned long long)field.value);
            *type = (uint8_t)field.value;
        }
    }
    return AVO_OK;
}

static avo_status read_trainer(draft *draft, bytes_view bytes) {
    static const char *const models[] = {"0", "unigram", "bpe", "word", "char"};
    cursor cursor = cursor_over(bytes);
    field field;
    uint64_t model = 1; /* unigram, when the file does not say */
    while (cursor_left(&cursor) > 0) {
        if (!read_field(&cursor, &field))
            return cut_off(draft, "trainer specification", cursor.at);
        if (field.wire != WIRE_VARINT)
            continue;
        int32_t *ids[] = {&draft->unknown, &draft->begin, &draft->end, &draft->padding};
        if (field.number == 3)
            model = field.value;
        else if (field.number == 24 && field.value != 0)
            return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                              "treat_whitespace_as_suffix is not supported");
        else if (field.number >= 40 && field.number <= 43)
            *ids[field.number - 40] = field.value < draft->vocabulary ? (int32_t)field.value : -1;
    }
    if (model != 2)
        return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                          "SentencePiece model type %s is not supported; only bpe is",
                          model < 5 ? models[model] : "unknown");
    return AVO_OK;
}

static avo_status read_normalizer(draft *draft, bytes_view bytes, sentencepiece_options *options) {
    cursor cursor = cursor_over(bytes);
    field field;
    text_view name = {"", 0};
    while (cursor_left(&cursor) > 0) {
        if (!read_field(&cursor, &field))
            return cut_off(draft, "normalizer specification", cursor.at);
        bool number = field.wire == WIRE_VARINT;
        if (field.number == 1 && field.wire == WIRE_BYTES)
            name = (text_view){(const char *)field.bytes.data, field.bytes.size};
        else if (field.number == 2 && field.wire == WIRE_BYTES && field.bytes.size > 0)
            return draft_fail(draft, AVO_ERROR_UNSUPPORTED,
                              "SentencePiece normaliser \"%.*s\" has a compiled character map; "
                              "only \"identity\" is supported",
                              TEXT_ARGUMENT(name));
        else if (field.number == 3 && number)
            options->add_prefix = field.value != 0;
        else if (field.number == 4 && number)
            options->squeeze = field.value != 0;
        else if (field.number == 5 && number)
            options->escape = field.value != 0;
    }
    return AVO_OK;
}

static avo_status read_pieces(draft *draft, bytes_view data, uint8_t **types) {
    uint64_t count = 0;
    cursor cursor = cursor_over(data);
    field field;
    while (cursor_left(&cursor) > 0) {
        if (!read_field(&cursor, &field))
            return cut_off(draft, "field", cursor.at);
        count += field.number == 1 && field.wire == WIRE_BYTES;
    }
    AVO_TRY(draft_vocabulary(draft, count));
    *types = arena_take(draft->arena, count);
    if (*types == NULL)
        return draft_no_memory(draft);
    uint32_t id = 0;
    cursor = cursor_over(data);
    while (cursor_left(&cursor) > 0 && read_field(&cursor, &field))
        if (field.number == 1 && field.wire == WIRE_BYTES) {
            AVO_TRY(read_piece(draft, field.bytes, id, &(*types)[id]));
            id++;
        }
    return AVO_OK;
}

avo_status read_tokenizer_sentencepiece(draft *draft, const tokenizer_source *source) {
    sentencepiece_options options = {.add_prefix = true, .squeeze = true, .escape = true};
    uint8_t *types;
    AVO_TRY(read_pieces(draft, source->data, &types));
    draft->unknown = 0; /* the specification's defaults */
    draft->begin = draft->vocabulary > 1 ? 1 : -1;
    draft->end = draft->vocabulary > 2 ? 2 : -1;
    cursor cursor = cursor_over(source->data);
    field field;
    bool trained = false;
    while (cursor_left(&cursor) > 0 && read_field(&cursor, &field)) {
        if (field.number == 2 && field.wire == WIRE_BYTES) {
            AVO_TRY(read_trainer(draft, field.bytes));
            trained = true;
        } else if (field.number == 3 && field.wire == WIRE_BYTES) {
            AVO_TRY(read_normalizer(draft, field.bytes, &options));
        }
    }
    if (!trained)
        return draft_fail(draft, AVO_ERROR_FORMAT,
                          "the trainer specification is missing (tokenizer.model)");
    options.add_begin = draft->begin >= 0;
    AVO_TRY(draft_config(draft, source->config, &options.add_begin, &options.add_end));
    return draft_sentencepiece(draft, types, &options);
}
