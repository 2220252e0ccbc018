/* Compilation of what BPE works with: symbols of bytes and characters, merges by rank, and the
 * set of neighbours that occur inside tokens. */
#include "tokenizer/draft_int.h"

#include "base/utf8.h"
#include "tokenizer/unicode_int.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct builder {
    draft *draft;
    compiled_symbols *out;
    image_character *characters;
    uint32_t character_mask, character_used;
    uint32_t *ranks; /* by score: of each token */
} builder;

static uint32_t slots_for(uint64_t entries) {
    uint32_t slots = 16;
    while (slots < entries + entries / 2 && slots < 1u << 30)
        slots *= 2;
    return slots;
}

/* The symbol of a character; a new one above the vocabulary where no token is that character. */
static avo_status character_symbol(builder *b, uint32_t code_point, uint32_t *symbol) {
    uint32_t at = (uint32_t)image_mix(code_point) & b->character_mask;
    for (uint32_t probes = 0; probes < IMAGE_PROBES; probes++) {
        image_character *slot = &b->characters[at];
        if (slot->code_point == code_point) {
            *symbol = slot->symbol;
            return AVO_OK;
        }
        if (slot->code_point == IMAGE_NONE) {
            char text[4];
            size_t bytes = utf8_encode(code_point, text);
            uint32_t id = draft_find(b->draft, (text_view){text, bytes});
            bool token = id != IMAGE_NONE && b->draft->tokens[id].mergeable;
            if (!token && !b->draft->by_score) { /* no merge can name it */
                *symbol = IMAGE_NONE;
                return AVO_OK;
            }
            *slot = (image_character){code_point, token ? id : b->out->symbols++};
            b->character_used++;
            *symbol = slot->symbol;
            return AVO_OK;
        }
        at = (at + 1) & b->character_mask;
    }
    return draft_fail(b->draft, AVO_ERROR_LIMIT, "too many characters have the same hash");
}

/* All characters that occur in tokens get a symbol. */
static avo_status collect_characters(builder *b) {
    /* At most as many as there are valid code points, and as bytes in all pieces. */
    uint64_t bytes = 0;
    for (uint32_t id = 0; id < b->draft->vocabulary; id++)
        bytes += b->draft->tokens[id].mergeable ? b->draft->tokens[id].text.size : 0;
    uint32_t slots = slots_for(bytes < 200000 ? bytes : 200000);
    b->characters = arena_take_array(b->draft->arena, slots, sizeof(image_character));
    if (b->characters == NULL)
        return draft_no_memory(b->draft);
    memset(b->characters, 0xFF, slots * sizeof(image_character));
    b->character_mask = slots - 1;
    for (uint32_t id = 0; id < b->draft->vocabulary; id++) {
        text_view text = b->draft->tokens[id].text;
        if (!b->draft->tokens[id].mergeable)
            continue;
        uint32_t code_point;
        for (size_t at = 0, length; at < text.size; at += length) {
            uint32_t symbol;
            length = utf8_decode(text.data + at, text.size - at, &code_point);
            if (length == 0)
                return draft_fail(b->draft, AVO_ERROR_FORMAT, "token %u is not valid UTF-8", id);
            if (b->character_used > b->character_mask / 4 * 3)
                return draft_fail(b->draft, AVO_ERROR_LIMIT,
                                  "too many different characters in tokens");
            AVO_TRY(character_symbol(b, code_point, &symbol));
        }
    }
    b->out->characters = b->characters;
    b->out->character_count = slots;
    return AVO_OK;
}

/* The symbol of a part of a token: a token, or a lone character. */
static uint32_t part_symbol(const builder *b, const char *text, size_t bytes) {
    uint32_t id = draft_find(b->draft, (text_view){text, bytes});
    if (id != IMAGE_NONE && b->draft->tokens[id].mergeable)
        return id;
    uint32_t code_point;
    if (utf8_decode(text, bytes, &code_point) != bytes)
        return IMAGE_NONE;
    uint32_t at = (uint32_t)image_mix(code_point) & b->character_mask;
    while (b->characters[at].code_point != IMAGE_NONE) {
        if (b->characters[at].code_point == code_point)
            return b->characters[at].symbol;
        at = (at + 1) & b->character_mask;
    }
    return IMAGE_NONE;
}

typedef struct scored {
    float score;
    uint32_t id;
} scored;

static int by_score_descending(const void *left, const void *right) {
    const scored *a = left;
    const scored *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Equal scores share a rank, so that the one further left goes first. */
static avo_status rank_scores(builder *b) {
    uint32_t vocabulary = b->draft->vocabulary;
    scored *order = arena_take_array(b->draft->arena, vocabulary, sizeof(scored));
    b->ranks = arena_take_array(b->draft->arena, vocabulary, sizeof(uint32_t));
    if (order == NULL || b->ranks == NULL)
        return draft_no_memory(b->draft);
    for (uint32_t id = 0; id < vocabulary; id++) {
        float score = b->draft->tokens[id].score;
        if (!(score == score))
            return draft_fail(b->draft, AVO_ERROR_FORMAT, "the score of token %u is NaN", id);
        order[id] = (scored){score, id};
    }
    qsort(order, vocabulary, sizeof(scored), by_score_descending);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < vocabulary; i++) {
        if (i > 0 && order[i].score != order[i - 1].score)
            rank++;
        b->ranks[order[i].id] = rank;
    }
    return AVO_OK;
}

static avo_status add_merge(builder *b, size_t *capacity, draft_merge merge) {
    draft *draft = b->draft;
    if (draft->merge_count == *capacity) {
        size_t larger = *capacity == 0 ? 4096 : *capacity * 2;
        draft_merge *moved = arena_take_array(draft->arena, larger, sizeof(draft_merge));
        if (moved == NULL)
            return draft_no_memory(draft);
        if (draft->merge_count > 0)
            memcpy(moved, draft->merges, draft->merge_count * sizeof(draft_merge));
        draft->merges = moved;
        *capacity = larger;
    }
    draft->merges[draft->merge_count++] = merge;
    return AVO_OK;
}

/* Any two neighbours whose texts together are a token may merge: every split of every token. */
static avo_status merges_from_scores(builder *b) {
    size_t capacity = 0;
    AVO_TRY(rank_scores(b));
    for (uint32_t id = 0; id < b->draft->vocabulary; id++) {
        const draft_token *token = &b->draft->tokens[id];
        if (!token->mergeable || draft_find(b->draft, token->text) != id)
            continue;
        if (token->text.size > TOKENIZER_SCORED_MAX)
            return draft_fail(b->draft, AVO_ERROR_FORMAT,
                              "token %u has %zu bytes, must have at most %u", id, token->text.size,
                              TOKENIZER_SCORED_MAX);
        for (size_t at = 1; at < token->text.size; at++) {
            if (((uint8_t)token->text.data[at] & 0xC0) == 0x80)
                continue;
            uint32_t left = part_symbol(b, token->text.data, at);
            if (left == IMAGE_NONE)
                continue;
            uint32_t right = part_symbol(b, token->text.data + at, token->text.size - at);
            if (right == IMAGE_NONE)
                continue;
            AVO_TRY(add_merge(b, &capacity, (draft_merge){left, right, id, b->ranks[id]}));
        }
    }
    return AVO_OK;
}

avo_status compile_merges(const draft *draft, image_merge *table, uint32_t slots, uint32_t *count) {
    memset(table, 0xFF, slots * sizeof(image_merge));
    *count = 0;
    for (size_t i = 0; i < draft->merge_count; i++) {
        draft_merge merge = draft->merges[i];
        uint32_t at = (uint32_t)image_pair_hash(merge.left, merge.right) & (slots - 1);
        uint32_t probes = 0;
        while (table[at].left != IMAGE_NONE &&
               (table[at].left != merge.left || table[at].right != merge.right)) {
            at = (at + 1) & (slots - 1);
            if (++probes == IMAGE_PROBES)
                return draft_fail(draft, AVO_ERROR_LIMIT, "merge %zu: too many hash collisions", i);
        }
        *count += table[at].left == IMAGE_NONE;
        /* Of a pair that is listed twice the last counts, as in the original. */
        table[at] = (image_merge){merge.left, merge.right, merge.rank, merge.result};
    }
    return AVO_OK;
}

/* Where no token contains two neighbours, no merge crosses between them: text can be cut there. */
static avo_status fill_pairs(builder *b) {
    uint64_t pairs = 0;
    bool needed = b->draft->kind == IMAGE_CHARACTERS;
    for (uint32_t id = 0; needed && id < b->draft->vocabulary; id++)
        pairs += b->draft->tokens[id].mergeable ? b->draft->tokens[id].text.size / 4 : 0;
    uint32_t words = 1;
    while (words < pairs / 8 && words < 1u << 17)
        words *= 2;
    b->out->pairs = arena_take_array(b->draft->arena, words, sizeof(uint64_t));
    if (b->out->pairs == NULL)
        return draft_no_memory(b->draft);
    b->out->pair_words = words;
    /* Where unknown characters vanish, what stands beside them meets: no cuts then. */
    if (needed && !b->draft->unknown_used && !(b->draft->flags & IMAGE_ALL_BYTES)) {
        memset(b->out->pairs, 0xFF, words * sizeof(uint64_t));
        return AVO_OK;
    }
    for (uint32_t id = 0; needed && id < b->draft->vocabulary; id++) {
        text_view text = b->draft->tokens[id].text;
        if (!b->draft->tokens[id].mergeable || text.size == 0)
            continue;
        uint32_t left;
        uint32_t right;
        for (size_t at = unicode_take(text.data, &left); at < text.size; left = right) {
            at += unicode_take(text.data + at, &right);
            uint32_t bit = (uint32_t)image_pair_hash(left, right) & (words * 64 - 1);
            b->out->pairs[bit >> 6] |= (uint64_t)1 << (bit & 63);
        }
    }
    return AVO_OK;
}

static void byte_symbols(builder *b) {
    bool all = true;
    for (uint32_t byte = 0; byte < 256; byte++) {
        char text[8];
        size_t bytes;
        if (b->draft->kind == IMAGE_BYTE_LEVEL)
            bytes = utf8_encode(alphabet_character((uint8_t)byte), text);
        else
            bytes = (size_t)snprintf(text, sizeof(text), "<0x%02X>", byte);
        uint32_t id = draft_find(b->draft, (text_view){text, bytes});
        if (b->draft->kind == IMAGE_BYTE_LEVEL) {
            if (id != IMAGE_NONE && (b->draft->tokens[id].flags & TOKEN_SPECIAL))
                id = IMAGE_NONE;
        } else if (id != IMAGE_NONE && !(b->draft->tokens[id].flags & TOKEN_BYTE)) {
            id = IMAGE_NONE;
        }
        b->out->bytes[byte] = id;
        all = all && id != IMAGE_NONE;
    }
    if (all)
        b->draft->flags |= IMAGE_ALL_BYTES;
}

avo_status compile_symbols(draft *draft, compiled_symbols *symbols) {
    builder b = {.draft = draft, .out = symbols};
    symbols->symbols = draft->vocabulary;
    if (draft->kind == IMAGE_CHARACTERS) {
        AVO_TRY(collect_characters(&b));
    } else {
        symbols->character_count = 1;
        symbols->characters = arena_take_array(draft->arena, 1, sizeof(image_character));
        if (symbols->characters == NULL)
            return draft_no_memory(draft);
        symbols->characters[0] = (image_character){IMAGE_NONE, 0};
    }
    byte_symbols(&b);
    if (draft->by_score)
        AVO_TRY(merges_from_scores(&b));
    symbols->merge_slots = slots_for(draft->merge_count);
    return fill_pairs(&b);
}
