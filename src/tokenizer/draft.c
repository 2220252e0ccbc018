/* What the readers share. */
#include "tokenizer/draft_int.h"

#include "base/checked.h"
#include "base/utf8.h"
#include "tokenizer/scan_int.h"

#include <stdarg.h>
#include <stdio.h>

void draft_init(draft *draft, arena *arena, const char *name, avo_error *error) {
    *draft = (struct draft){.arena = arena,
                            .name = name,
                            .error = error,
                            .begin = -1,
                            .end = -1,
                            .unknown = -1,
                            .padding = -1};
    buffer_init(&draft->texts, arena->allocator, (size_t)16 << 20);
}

avo_status draft_no_memory(const draft *draft) {
    return status_fail(draft->error, AVO_ERROR_MEMORY, "%s: out of memory for the tokenizer",
                       draft->name);
}

avo_status draft_fail(const draft *draft, avo_status status, const char *format, ...) {
    char text[AVO_ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return status_fail(draft->error, status, "%s: %s", draft->name, text);
}

avo_status draft_vocabulary(draft *draft, uint64_t count) {
    if (count == 0 || count > TOKENIZER_VOCABULARY_MAX)
        return draft_fail(draft, AVO_ERROR_FORMAT,
                          "the vocabulary has %llu tokens, must have 1 to %u",
                          (unsigned long long)count, TOKENIZER_VOCABULARY_MAX);
    draft->vocabulary = (uint32_t)count;
    draft->tokens = arena_take_array(draft->arena, count, sizeof(draft_token));
    return draft->tokens == NULL ? draft_no_memory(draft) : AVO_OK;
}

/* Does the slot, which is not empty, hold the token with this text? */
static inline bool holds(const draft *draft, uint32_t at, uint64_t hash, text_view text) {
    return draft->tags[at] == (uint32_t)(hash >> 32) &&
           text_equal(draft->tokens[draft->table[at]].text, text);
}

avo_status draft_index(draft *draft) {
    uint32_t slots = 16;
    while (slots < draft->vocabulary * 2)
        slots *= 2;
    draft->table = arena_take_array(draft->arena, slots, sizeof(uint32_t));
    draft->tags = arena_take_array(draft->arena, slots, sizeof(uint32_t));
    if (draft->table == NULL || draft->tags == NULL)
        return draft_no_memory(draft);
    memset(draft->table, 0xFF, slots * sizeof(uint32_t));
    draft->table_mask = slots - 1;
    for (uint32_t id = 0; id < draft->vocabulary; id++) {
        text_view text = draft->tokens[id].text;
        if (!(draft->tokens[id].flags & TOKEN_KNOWN))
            continue;
        if (text.size > TOKENIZER_PIECE_MAX)
            return draft_fail(draft, AVO_ERROR_FORMAT,
                              "token %u has %zu bytes, must have at most %u", id, text.size,
                              TOKENIZER_PIECE_MAX);
        uint64_t hash = image_hash(text.data, text.size);
        uint32_t at = (uint32_t)hash & draft->table_mask;
        uint32_t probes = 0;
        while (draft->table[at] != IMAGE_NONE && !holds(draft, at, hash, text)) {
            at = (at + 1) & draft->table_mask;
            if (++probes == IMAGE_PROBES)
                return draft_fail(draft, AVO_ERROR_LIMIT, "token %u: too many hash collisions", id);
        }
        if (draft->table[at] != IMAGE_NONE)
            continue;
        draft->table[at] = id;
        draft->tags[at] = (uint32_t)(hash >> 32);
        draft->tokens[id].found = true;
    }
    return AVO_OK;
}

uint32_t draft_find(const draft *draft, text_view text) {
    uint64_t hash = image_hash(text.data, text.size);
    uint32_t at = (uint32_t)hash & draft->table_mask;
    while (draft->table[at] != IMAGE_NONE) {
        if (holds(draft, at, hash, text))
            return draft->table[at];
        at = (at + 1) & draft->table_mask;
    }
    return IMAGE_NONE;
}

static avo_status keep_text(draft *draft, text_view text, uint32_t *offset, uint32_t *bytes) {
    *offset = (uint32_t)draft->texts.size;
    *bytes = (uint32_t)text.size;
    avo_status status = buffer_append(&draft->texts, text.data, text.size);
    if (status == AVO_ERROR_LIMIT)
        return draft_fail(draft, status, "the texts of its steps exceed %zu bytes",
                          draft->texts.limit);
    return status == AVO_OK ? AVO_OK : draft_no_memory(draft);
}

avo_status draft_step(draft *draft, uint32_t stage, image_step step, text_view first,
                      text_view second) {
    uint32_t *count = &draft->step_count[stage];
    if (*count == TOKENIZER_STEPS_MAX)
        return draft_fail(draft, AVO_ERROR_LIMIT, "more than %u tokenizer steps",
                          TOKENIZER_STEPS_MAX);
    AVO_TRY(keep_text(draft, first, &step.first, &step.first_bytes));
    AVO_TRY(keep_text(draft, second, &step.second, &step.second_bytes));
    draft->steps[stage][(*count)++] = step;
    return AVO_OK;
}

/* The token whose text is that of both, of at most TOKENIZER_PIECE_MAX bytes each. */
static uint32_t find_joined(const draft *draft, text_view left, text_view right) {
    char whole[2 * TOKENIZER_PIECE_MAX];
    if (draft->next_result < draft->vocabulary && draft->tokens[draft->next_result].found) {
        text_view text = draft->tokens[draft->next_result].text;
        if (text.size == left.size + right.size && text_starts(text, left) &&
            text_ends(text, right))
            return draft->next_result;
    }
    if (left.size > 0)
        memcpy(whole, left.data, left.size);
    if (right.size > 0)
        memcpy(whole + left.size, right.data, right.size);
    return draft_find(draft, (text_view){whole, left.size + right.size});
}

avo_status draft_add_merge(draft *draft, text_view left, text_view right, uint32_t rank) {
    const text_view parts[2] = {left, right};
    uint32_t ids[3];
    for (uint32_t i = 0; i < 2; i++) {
        ids[i] = parts[i].size > TOKENIZER_PIECE_MAX ? IMAGE_NONE : draft_find(draft, parts[i]);
        if (ids[i] == IMAGE_NONE)
            return draft_fail(draft, AVO_ERROR_FORMAT, "merge %u: \"%.*s\" is not a token", rank,
                              TEXT_ARGUMENT(parts[i]));
    }
    ids[2] = find_joined(draft, left, right);
    if (ids[2] == IMAGE_NONE) {
        size_t begin = size_min(left.size, 200);
        return draft_fail(draft, AVO_ERROR_FORMAT, "merge %u: \"%.*s%.*s\" is not a token", rank,
                          (int)begin, left.data, (int)size_min(right.size, 200 - begin),
                          right.data);
    }
    draft->next_result = ids[2] + 1;
    for (uint32_t i = 0; i < 3; i++)
        if (!draft->tokens[ids[i]].mergeable)
            return AVO_OK;
    draft->merges[draft->merge_count++] = (draft_merge){ids[0], ids[1], ids[2], rank};
    return AVO_OK;
}

avo_status draft_split(draft *draft, text_view pattern, uint32_t flags) {
    text_view none = TEXT_LITERAL("");
    scanner scanner = scanner_find(pattern);
    bool whole = (flags & SPLIT_BEHAVIOUR) == SPLIT_ISOLATED; /* its pieces cover the text */
    if (scanner != SCANNER_COUNT && whole && !(flags & STEP_INVERT))
        return draft_step(draft, STAGE_PRETOKENISE,
                          (image_step){.kind = STEP_SPLIT_SCANNER, .number = scanner}, none, none);
    return draft_step(draft, STAGE_PRETOKENISE,
                      (image_step){.kind = STEP_SPLIT_REGEX, .flags = flags}, pattern, none);
}

void draft_mark_bytes(draft *draft) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", byte);
        uint32_t id = draft_find(draft, text_from(text));
        if (id == IMAGE_NONE || (draft->tokens[id].flags & TOKEN_SPECIAL))
            continue;
        draft->tokens[id].flags |= TOKEN_BYTE;
        draft->tokens[id].mergeable = false;
        draft->flags |= IMAGE_BYTE_FALLBACK;
    }
}

/* GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes follow from U+0100 on. */
static bool alphabet_printable(uint32_t c) {
    return (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

uint32_t alphabet_character(uint8_t byte) {
    if (alphabet_printable(byte))
        return byte;
    if (byte <= 0x20)
        return 0x100u + byte; /* 0x00 … 0x20 */
    if (byte <= 0xA0)
        return 0x121u + byte - 0x7F; /* 0x7F … 0xA0 */
    return 0x143u;                   /* 0xAD */
}

int32_t alphabet_byte(uint32_t code_point) {
    if (code_point < 0x100)
        return alphabet_printable(code_point) ? (int32_t)code_point : -1;
    if (code_point <= 0x120)
        return (int32_t)(code_point - 0x100);
    if (code_point <= 0x142)
        return (int32_t)(code_point - 0x121 + 0x7F);
    return code_point == 0x143 ? 0xAD : -1;
}
