/* Following a text in two vocabularies. */
#include "engine/draft_text.h"

#include "base/allocator.h"

#include <string.h>

#define TEXT_MAX   ((size_t)1 << 24) /* bytes that are tokenized at a time */
#define TEXT_FIRST 1024              /* of these, reserved */
#define WORDS_KEPT 2                 /* newest words that more text may still change */
#define TAIL_MAX   512               /* bytes of text without a word's end that are kept open */
#define COMPLETE   0.6f              /* probability that the last token of guessed text is whole */

/* The newest text: whole tokens of it may still change. */
typedef struct follower {
    uint64_t position; /* target tokens that were read */
    bool lost;         /* the text does not fit */
    decode_stream stream;
    int32_t *tokens; /* [context_max] of the draft model */
    uint32_t count;
    uint32_t settled; /* of these, as they will stay */
    buffer tail;      /* text of the others */
    /* Guesses behind it: */
    decode_stream guess_stream;
    int32_t guess[DRAFT_TEXT_GUESSES];
    float probability[DRAFT_TEXT_GUESSES];
    size_t end[DRAFT_TEXT_GUESSES]; /* of its text in `guessed` */
    uint32_t guesses;
    buffer guessed;
} follower;

struct draft_text {
    const avo_allocator *allocator;
    const tokenizer *target, *own;
    encoder *to_target, *to_own;
    tokenizer_info target_info, own_info;
    id_list ids, anchor_ids;
    buffer anchored, piece;
    uint32_t followers, context_max;
    follower *follower; /* [followers] */
    int32_t *tokens;    /* [followers][context_max] */
};

/* ---- Opening ---- */

uint64_t draft_text_bytes(uint32_t followers, uint32_t context_max) {
    uint64_t each = sizeof(follower) + (uint64_t)context_max * sizeof(int32_t) + 2 * TEXT_FIRST;
    return sizeof(draft_text) + each * followers;
}

static avo_status open_parts(draft_text *text, avo_error *error) {
    const avo_allocator *allocator = text->allocator;
    size_t count = text->followers;
    AVO_TRY(encoder_open(text->target, &text->to_target, error));
    AVO_TRY(encoder_open(text->own, &text->to_own, error));
    text->follower = allocator_take_array(allocator, count, sizeof(follower));
    text->tokens = allocator_take_array(allocator, count * text->context_max, sizeof(int32_t));
    if (text->follower == NULL || text->tokens == NULL)
        return status_no_memory(error, "the text of timelines",
                                (size_t)draft_text_bytes(text->followers, text->context_max));
    for (uint32_t i = 0; i < count; i++) {
        follower *one = &text->follower[i];
        one->tokens = text->tokens + (size_t)i * text->context_max;
        buffer_init(&one->tail, allocator, TEXT_MAX);
        buffer_init(&one->guessed, allocator, TEXT_MAX);
        if (buffer_reserve(&one->tail, TEXT_FIRST) != AVO_OK ||
            buffer_reserve(&one->guessed, TEXT_FIRST) != AVO_OK)
            return status_no_memory(error, "the text of timelines", TEXT_FIRST);
        draft_text_clear(text, i);
    }
    return AVO_OK;
}

avo_status draft_text_open(const tokenizer *target, const tokenizer *own, uint32_t followers,
                           uint32_t context_max, const avo_allocator *allocator, draft_text **out,
                           avo_error *error) {
    draft_text *text = allocator_take_array(allocator, 1, sizeof(*text));
    if (text == NULL)
        return status_no_memory(error, "the text of timelines", sizeof(*text));
    text->allocator = allocator;
    text->target = target;
    text->own = own;
    text->target_info = tokenizer_describe(target);
    text->own_info = tokenizer_describe(own);
    text->followers = followers;
    text->context_max = context_max;
    id_list_init(&text->ids, allocator);
    id_list_init(&text->anchor_ids, allocator);
    buffer_init(&text->anchored, allocator, TEXT_MAX);
    buffer_init(&text->piece, allocator, TEXT_MAX);
    avo_status status = open_parts(text, error);
    if (status != AVO_OK) {
        draft_text_close(text);
        return status;
    }
    *out = text;
    return AVO_OK;
}

void draft_text_close(draft_text *text) {
    if (text == NULL)
        return;
    for (uint32_t i = 0; text->follower != NULL && i < text->followers; i++) {
        buffer_free(&text->follower[i].tail);
        buffer_free(&text->follower[i].guessed);
    }
    encoder_close(text->to_target);
    encoder_close(text->to_own);
    id_list_free(&text->ids);
    id_list_free(&text->anchor_ids);
    buffer_free(&text->anchored);
    buffer_free(&text->piece);
    allocator_give(text->allocator, text->follower, text->followers * sizeof(follower));
    allocator_give(text->allocator, text->tokens,
                   (size_t)text->followers * text->context_max * sizeof(int32_t));
    allocator_give(text->allocator, text, sizeof(*text));
}

void draft_text_clear(draft_text *text, uint32_t number) {
    follower *one = &text->follower[number];
    one->position = 0;
    one->lost = false;
    one->count = one->settled = one->guesses = 0;
    one->tail.size = one->guessed.size = 0;
    decode_stream_init(&one->stream, text->target, true);
    one->stream.lossless = true;
}

/* ---- Tokenizing a part of a text ---- */

static bool is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* The ids of text that stands behind other text, into text->ids. Tokenizers treat the begin of a
 * text in their own ways, so another character comes first, of a kind that forms no word with what
 * follows, and its ids are taken off again. False: they are not where they should be. */
static bool encode_behind(draft_text *text, encoder *encoder, text_view part) {
    avo_error error;
    const encode_options options = {.special = true};
    text_view anchor = part.size > 0 && is_space(part.data[0]) ? text_from("a") : text_from("\n");
    text->ids.count = text->anchor_ids.count = 0;
    text->anchored.size = 0;
    if (buffer_append(&text->anchored, anchor.data, anchor.size) != AVO_OK ||
        buffer_append(&text->anchored, part.data, part.size) != AVO_OK ||
        encoder_run(encoder, anchor, &options, &text->anchor_ids, &error) != AVO_OK ||
        encoder_run(encoder, buffer_text(&text->anchored), &options, &text->ids, &error) != AVO_OK)
        return false;
    size_t front = text->anchor_ids.count;
    if (text->ids.count < front ||
        memcmp(text->ids.ids, text->anchor_ids.ids, front * sizeof(int32_t)) != 0)
        return false;
    text->ids.count -= front;
    memmove(text->ids.ids, text->ids.ids + front, text->ids.count * sizeof(int32_t));
    return true;
}

/* ---- Following ---- */

/* The text of one of the draft model's tokens, in text->piece. */
static bool decode_own(draft_text *text, decode_stream *stream, int32_t token) {
    avo_error error;
    text->piece.size = 0;
    return decode_stream_push(stream, token, &text->piece, &error) == AVO_OK;
}

/* All but the newest words is settled: finds where, and drops its text. */
static void settle(draft_text *text, follower *one) {
    decode_stream stream;
    decode_stream_init(&stream, text->own, true);
    if (one->settled > 0)
        decode_stream_continue(&stream);
    stream.lossless = true;
    /* Where words begin, newest last. */
    uint32_t begin[WORDS_KEPT + 1] = {0};
    size_t offset[WORDS_KEPT + 1] = {0}, at = 0;
    uint32_t words = 0;
    for (uint32_t i = one->settled; i < one->count; i++) {
        if (i == 0 && one->tokens[i] == text->own_info.begin)
            continue;
        if (!decode_own(text, &stream, one->tokens[i]))
            return;
        bool begins = at > 0 && stream.held_bytes == 0 && text->piece.size > 0 &&
                      is_space(text->piece.data[0]);
        bool too_long = one->tail.size - at > TAIL_MAX && stream.held_bytes == 0;
        if (begins || too_long) {
            memmove(begin, begin + 1, sizeof(begin) - sizeof(begin[0]));
            memmove(offset, offset + 1, sizeof(offset) - sizeof(offset[0]));
            begin[WORDS_KEPT] = i;
            offset[WORDS_KEPT] = at;
            words++;
        }
        at += text->piece.size;
    }
    /* Text that does not come back as it was (a tokenizer may normalise it) stays open. */
    if (words <= WORDS_KEPT || at != one->tail.size)
        return;
    one->settled = begin[0];
    one->tail.size -= offset[0];
    memmove(one->tail.data, one->tail.data + offset[0], one->tail.size);
}

static bool tokenize_tail(draft_text *text, follower *one) {
    avo_error error;
    text_view tail = buffer_text(&one->tail);
    const encode_options whole = {.special = true, .add_begin = true};
    text->ids.count = 0;
    if (one->settled == 0) {
        if (encoder_run(text->to_own, tail, &whole, &text->ids, &error) != AVO_OK)
            return false;
    } else if (!encode_behind(text, text->to_own, tail)) {
        return false;
    }
    if (text->ids.count > text->context_max - one->settled)
        return false;
    memcpy(one->tokens + one->settled, text->ids.ids, text->ids.count * sizeof(int32_t));
    one->count = one->settled + (uint32_t)text->ids.count;
    return true;
}

/* The begin token of the target means nothing to the other model, which has its own. */
static bool read_tokens(draft_text *text, follower *one, const draft_timeline *timeline) {
    avo_error error;
    for (uint64_t i = one->position; i < timeline->count; i++) {
        if (timeline->tokens[i] == text->target_info.begin)
            continue;
        if (decode_stream_push(&one->stream, timeline->tokens[i], &one->tail, &error) != AVO_OK)
            return false;
    }
    one->position = timeline->count;
    return true;
}

draft_timeline draft_text_follow(draft_text *text, uint32_t number,
                                 const draft_timeline *timeline) {
    follower *one = &text->follower[number];
    one->guesses = 0;
    one->guessed.size = 0;
    if (timeline->count < one->position || timeline->position != timeline->count)
        one->lost = true;
    bool grown = timeline->count > one->position;
    if (!one->lost && grown)
        one->lost = !read_tokens(text, one, timeline) || !tokenize_tail(text, one);
    if (one->lost || one->count == 0 || one->stream.held_bytes > 0)
        return (draft_timeline){NULL, 0, 0};
    if (grown)
        settle(text, one);
    decode_stream_init(&one->guess_stream, text->own, true);
    decode_stream_continue(&one->guess_stream);
    one->guess_stream.lossless = true;
    return (draft_timeline){one->tokens, one->count, one->count};
}

/* ---- Guesses ---- */

uint32_t draft_text_guesses(const draft_text *text, uint32_t number, int32_t *last) {
    const follower *one = &text->follower[number];
    *last = one->guesses > 0 ? one->guess[one->guesses - 1] : -1;
    return one->guesses;
}

/* Grades of the target's tokens: the product over the guesses whose text ends inside a token. */
static void grade(draft_text *text, const follower *one, bool open, draft *out) {
    decode_stream stream;
    decode_stream_init(&stream, text->target, true);
    decode_stream_continue(&stream);
    stream.lossless = true;
    size_t end = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < out->count; i++) {
        avo_error error;
        float probability = 1.0f;
        text->piece.size = 0;
        if (decode_stream_push(&stream, out->tokens[i], &text->piece, &error) == AVO_OK)
            end += text->piece.size;
        for (; at < one->guesses && one->end[at] <= end; at++)
            probability *= one->probability[at];
        if (at < one->guesses && one->end[at] - end > 0 && probability == 1.0f)
            probability = one->probability[at]; /* a part of a longer guess */
        if (open && i + 1 == out->count)
            probability *= COMPLETE; /* more text may make it a longer token */
        out->grade[i] = draft_grade(probability);
    }
}

bool draft_text_guess(draft_text *text, uint32_t number, int32_t token, float probability,
                      uint32_t most, draft *out) {
    follower *one = &text->follower[number];
    bool ends = tokenizer_is_special(text->own, token) || token == text->own_info.end;
    if (!ends) {
        avo_error error;
        if (decode_stream_push(&one->guess_stream, token, &one->guessed, &error) != AVO_OK)
            return false;
        one->guess[one->guesses] = token;
        one->probability[one->guesses] = probability;
        one->end[one->guesses] = one->guessed.size;
        one->guesses++;
    }
    if (one->guessed.size == 0 || !encode_behind(text, text->to_target, buffer_text(&one->guessed)))
        return !ends && one->guesses < DRAFT_TEXT_GUESSES;
    size_t count = text->ids.count;
    out->count = count < most ? (uint32_t)count : most;
    memcpy(out->tokens, text->ids.ids, out->count * sizeof(int32_t));
    grade(text, one, !ends && out->count == count, out);
    return !ends && out->count < most && one->guesses < DRAFT_TEXT_GUESSES;
}
