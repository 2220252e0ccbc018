/* llama2.c's tokenizer.bin: i32 longest token, then per token f32 score, i32 bytes, the text.
 * Ids 0 to 2 are unknown, begin and end; 3 to 258 are the bytes, written "<0x0A>" or, in older
 * files, as the character of that number, which other tokens have too; spaces stand as they are. */
#include "tokenizer/draft_int.h"

#include "base/utf8.h"

#include <stdio.h>

enum { LLAMA2C_UNKNOWN = 0, LLAMA2C_BEGIN = 1, LLAMA2C_END = 2, LLAMA2C_FIRST_BYTE = 3 };

static avo_status read_token(draft *draft, cursor *cursor, uint32_t id, uint32_t longest) {
    float score;
    uint32_t bytes;
    const uint8_t *text;
    if (!cursor_read_f32(cursor, &score) || !cursor_read_u32(cursor, &bytes))
        return draft_fail(draft, AVO_ERROR_FORMAT, "ends inside token %u", id);
    if (bytes > longest || bytes > TOKENIZER_SCORED_MAX)
        return draft_fail(draft, AVO_ERROR_FORMAT, "token %u has %u bytes (at most %u)", id, bytes,
                          longest < TOKENIZER_SCORED_MAX ? longest : TOKENIZER_SCORED_MAX);
    if (!cursor_take(cursor, bytes, &text))
        return draft_fail(draft, AVO_ERROR_FORMAT, "ends inside token %u", id);
    if (id < draft->vocabulary)
        draft->tokens[id] =
            (draft_token){.text = {(const char *)text, bytes},
                          .score = score,
                          .flags = TOKEN_KNOWN | (id < LLAMA2C_FIRST_BYTE ? TOKEN_SPECIAL : 0),
                          .mergeable = id >= LLAMA2C_FIRST_BYTE};
    return AVO_OK;
}

/* All tokens; a first pass only counts them. */
static avo_status read_all(draft *draft, const tokenizer_source *source, uint32_t *count) {
    cursor cursor = cursor_over(source->data);
    uint32_t longest;
    if (!cursor_read_u32(&cursor, &longest) || longest == 0)
        return draft_fail(draft, AVO_ERROR_FORMAT, "no llama2.c tokenizer: the longest token is 0");
    uint32_t limit = source->vocabulary > 0 ? source->vocabulary : TOKENIZER_VOCABULARY_MAX;
    for (*count = 0; *count < limit && cursor_left(&cursor) > 0; (*count)++)
        AVO_TRY(read_token(draft, &cursor, *count, longest));
    if (source->vocabulary > 0 && *count != source->vocabulary)
        return draft_fail(draft, AVO_ERROR_FORMAT, "has %u tokens, the model wants %u", *count,
                          source->vocabulary);
    if (cursor_left(&cursor) > 0)
        return draft_fail(draft, AVO_ERROR_FORMAT, "%zu bytes behind the last token",
                          cursor_left(&cursor));
    if (*count <= LLAMA2C_END)
        return draft_fail(draft, AVO_ERROR_FORMAT, "has only %u tokens", *count);
    return AVO_OK;
}

/* Gives the tokens of the bytes one spelling, which no text can have by chance. */
static avo_status spell_bytes(draft *draft) {
    for (uint32_t byte = 0; byte < 256 && LLAMA2C_FIRST_BYTE + byte < draft->vocabulary; byte++) {
        draft_token *token = &draft->tokens[LLAMA2C_FIRST_BYTE + byte];
        char character[4];
        text_view latin = {character, utf8_encode(byte, character)};
        char *text = arena_take(draft->arena, 8);
        if (text == NULL)
            return draft_no_memory(draft);
        snprintf(text, 8, "<0x%02X>", byte);
        if (!text_equal(token->text, latin) && !text_is(token->text, text))
            return draft_fail(draft, AVO_ERROR_FORMAT, "token %u is \"%.*s\", not the byte %s",
                              LLAMA2C_FIRST_BYTE + byte, TEXT_ARGUMENT(token->text), text);
        token->text = text_from(text);
    }
    return AVO_OK;
}

avo_status read_tokenizer_llama2c(draft *draft, const tokenizer_source *source) {
    uint32_t count;
    AVO_TRY(read_all(draft, source, &count));
    AVO_TRY(draft_vocabulary(draft, count));
    AVO_TRY(read_all(draft, source, &count));
    AVO_TRY(spell_bytes(draft));
    AVO_TRY(draft_index(draft));
    draft->kind = IMAGE_CHARACTERS;
    draft->by_score = true;
    draft_mark_bytes(draft);
    draft->unknown = LLAMA2C_UNKNOWN;
    draft->unknown_used = true;
    draft->begin = LLAMA2C_BEGIN;
    draft->end = LLAMA2C_END;
    draft->prefix[draft->prefix_count++] = LLAMA2C_BEGIN;
    AVO_TRY(draft_step(draft, STAGE_NORMALISE, (image_step){.kind = STEP_PREPEND},
                       TEXT_LITERAL(" "), TEXT_LITERAL("")));
    return draft_step(draft, STAGE_DECODE,
                      (image_step){.kind = STEP_DECODE_STRIP_TEXT, .number = 1}, TEXT_LITERAL(" "),
                      TEXT_LITERAL(""));
}
