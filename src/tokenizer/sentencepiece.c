/* SentencePiece BPE vocabularies: types of pieces, and the steps their texts go through. */
#include "tokenizer/sentencepiece_int.h"

avo_status draft_types(draft *draft, const uint8_t *types, bool user_late) {
    uint32_t count = 0;
    for (uint32_t id = 0; id < draft->vocabulary; id++)
        count += types[id] == PIECE_CONTROL || types[id] == PIECE_UNKNOWN ||
                 types[id] == PIECE_USER_DEFINED;
    if (count > TOKENIZER_ADDED_MAX)
        return draft_fail(draft, AVO_ERROR_LIMIT, "%u special tokens, must be at most %u", count,
                          TOKENIZER_ADDED_MAX);
    draft->added = arena_take_array(draft->arena, (size_t)count + 1, sizeof(draft_added));
    if (draft->added == NULL)
        return draft_no_memory(draft);
    for (uint32_t id = 0; id < draft->vocabulary; id++) {
        draft_token *token = &draft->tokens[id];
        bool special = types[id] == PIECE_CONTROL || types[id] == PIECE_UNKNOWN;
        bool user = types[id] == PIECE_USER_DEFINED;
        token->flags |= TOKEN_KNOWN;
        token->mergeable = types[id] == PIECE_NORMAL || (user && user_late);
        if (!special && !user)
            continue;
        token->flags |= (uint8_t)(TOKEN_ADDED | (special ? TOKEN_SPECIAL : 0));
        if (token->text.size == 0)
            continue;
        if (token->text.size > TOKENIZER_ADDED_BYTES)
            return draft_fail(draft, AVO_ERROR_FORMAT,
                              "special token %u has %zu bytes, must have at most %u", id,
                              token->text.size, TOKENIZER_ADDED_BYTES);
        draft->added[draft->added_count++] = (draft_added){.text = token->text,
                                                           .id = id,
                                                           .flags = special ? ADDED_SPECIAL : 0,
                                                           .late = user && user_late,
                                                           .normal = true};
    }
    return AVO_OK;
}

void draft_frame(draft *draft, bool add_begin, bool add_end) {
    if (add_begin && draft->begin >= 0)
        draft->prefix[draft->prefix_count++] = (uint32_t)draft->begin;
    if (add_end && draft->end >= 0)
        draft->suffix[draft->suffix_count++] = (uint32_t)draft->end;
}

avo_status draft_config(draft *draft, bytes_view config, bool *add_begin, bool *add_end) {
    json_value root;
    if (config.size == 0)
        return AVO_OK;
    avo_status status = json_parse(
        draft->arena, (text_view){(const char *)config.data, config.size}, &root, draft->error);
    AVO_THEN(status, json_get_boolean(&root, "add_bos_token", add_begin, draft->error));
    AVO_THEN(status, json_get_boolean(&root, "add_eos_token", add_end, draft->error));
    return status == AVO_OK
               ? AVO_OK
               : status_prefix(draft->error, status, "%s: tokenizer_config.json", draft->name);
}

avo_status draft_sentencepiece(draft *draft, const uint8_t *types,
                               const sentencepiece_options *options) {
    text_view none = TEXT_LITERAL("");
    text_view space = TEXT_LITERAL(" ");
    text_view mark = TEXT_LITERAL(SPACE_MARK);
    draft->kind = IMAGE_CHARACTERS;
    draft->by_score = true;
    draft->flags |= IMAGE_FUSE_UNKNOWN;
    AVO_TRY(draft_types(draft, types, true));
    AVO_TRY(draft_index(draft));
    for (uint32_t id = 0; id < draft->vocabulary; id++)
        if (types[id] == PIECE_BYTE) {
            draft_mark_bytes(draft);
            break;
        }
    draft->unknown_used = draft->unknown >= 0;
    if (options->squeeze)
        AVO_TRY(draft_step(draft, STAGE_NORMALISE, (image_step){.kind = STEP_SQUEEZE}, none, none));
    if (options->add_prefix)
        AVO_TRY(
            draft_step(draft, STAGE_NORMALISE, (image_step){.kind = STEP_PREPEND}, space, none));
    if (options->escape) {
        AVO_TRY(
            draft_step(draft, STAGE_NORMALISE, (image_step){.kind = STEP_REPLACE}, space, mark));
        AVO_TRY(draft_step(draft, STAGE_DECODE, (image_step){.kind = STEP_DECODE_REPLACE}, mark,
                           space));
    }
    if (options->add_prefix)
        AVO_TRY(draft_step(draft, STAGE_DECODE,
                           (image_step){.kind = STEP_DECODE_STRIP_TEXT, .number = 1}, space, none));
    draft_frame(draft, options->add_begin, options->add_end);
    return AVO_OK;
}
