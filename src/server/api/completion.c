/* /v1/completions: answers, whole and as a stream; with echo the prompt's log-probabilities, too.
 */
#include "server/api/answer.h"
#include "server/api/helpers.h"

#include "base/utf8.h"

#include <stdlib.h>

/* Places of the four lists in a choice's entries. */
enum { TOKENS, LOGPROBS, TOPS, OFFSETS };

/* ---- Log-probabilities ---- */

/* The text of a token. One that is no text by itself is told byte by byte, so that none looks like
 * another. */
static avo_status token_text(const answer *a, int32_t token, buffer *piece, buffer *bytes,
                             text_view *out) {
    AVO_TRY(api_piece(a->api->model, token, piece));
    *out = buffer_text(piece);
    if (utf8_valid_prefix(out->data, out->size) == out->size)
        return AVO_OK;
    bytes->size = 0;
    AVO_TRY(buffer_append_text(bytes, "bytes:"));
    for (size_t i = 0; i < piece->size; i++)
        AVO_TRY(buffer_format(bytes, "\\x%02x", (unsigned char)piece->data[i]));
    *out = buffer_text(bytes);
    return AVO_OK;
}

/* Buffers that are used for one token after the other. */
typedef struct token_room {
    buffer piece, bytes;
    buffer keys; /* of a token's alternatives, as JSON: a newline before and behind each */
} token_room;

/* One alternative; a text that is there already, from another token, is not told twice. */
static avo_status write_top(json_writer *w, const answer *a, int32_t token, float logprob,
                            token_room *room) {
    text_view text;
    buffer *keys = &room->keys;
    size_t at = keys->size;
    AVO_TRY(token_text(a, token, &room->piece, &room->bytes, &text));
    AVO_TRY(json_write_string(keys, text)); /* where a newline is \n */
    AVO_TRY(buffer_append_text(keys, "\n"));
    if (memmem(keys->data, at, keys->data + at - 1, keys->size - at + 1) != NULL)
        return AVO_OK;
    json_key_text(w, text);
    write_logprob(w, logprob);
    return AVO_OK;
}

/* The likeliest ones and the token itself. */
static avo_status write_tops(const answer *a, const avo_token_event *token, bool known,
                             token_room *room, buffer *out) {
    if (!known || token->top_count == 0)
        return buffer_append_text(out, "null");
    room->keys.size = 0;
    AVO_TRY(buffer_append_text(&room->keys, "\n"));
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    for (uint32_t i = 0; i < token->top_count; i++)
        AVO_TRY(write_top(&w, a, token->top[i].token, token->top[i].logprob, room));
    AVO_TRY(write_top(&w, a, token->token, token->logprob, room));
    json_end(&w);
    return json_writer_status(&w);
}

static size_t characters_of(text_view text) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return count;
}

static avo_status write_lists(answer *a, choice *c, const avo_token_event *token,
                              token_room *room) {
    buffer *lists = c->entries;
    text_view text;
    for (size_t i = 0; i < 4; i++)
        AVO_TRY(entries_begin(&lists[i]));
    bool known = token->logprob == token->logprob; /* the first of a prompt has none */
    AVO_TRY(token_text(a, token->token, &room->piece, &room->bytes, &text));
    AVO_TRY(json_write_string(&lists[TOKENS], text));
    AVO_TRY(buffer_format(&lists[OFFSETS], "%llu", (unsigned long long)c->characters));
    c->characters += characters_of(buffer_text(&room->piece));
    json_writer w = json_writer_of(&lists[LOGPROBS]);
    write_logprob(&w, token->logprob);
    AVO_TRY(json_writer_status(&w));
    return write_tops(a, token, known, room, &lists[TOPS]);
}

static avo_status completion_token(answer *a, choice *c, const avo_token_event *token) {
    token_room room;
    buffer_init(&room.piece, NULL, API_TEXT_BYTES_MAX);
    buffer_init(&room.bytes, NULL, API_ANSWER_BYTES_MAX);
    buffer_init(&room.keys, NULL, API_ANSWER_BYTES_MAX);
    avo_status status = write_lists(a, c, token, &room);
    buffer_free(&room.piece);
    buffer_free(&room.bytes);
    buffer_free(&room.keys);
    return status;
}

static void write_logprobs(json_writer *w, const answer *a, const choice *c) {
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    if (!a->request->logprobs) {
        json_member_null(w, "logprobs");
        return;
    }
    json_member_object_begin(w, "logprobs");
    for (size_t i = 0; i < 4; i++) {
        json_member_array_begin(w, names[i]);
        json_raw_items(w, buffer_text(&c->entries[i]));
        json_end(w);
    }
    json_end(w);
}

/* ---- Whole ---- */

static double mean_logprob(const choice *c) {
    return c->tokens_seen == 0 ? 0.0 : c->logprob_sum / (double)c->tokens_seen;
}

static int by_logprob(const void *a, const void *b) {
    const choice *left = *(const choice *const *)a, *right = *(const choice *const *)b;
    double l = mean_logprob(left), r = mean_logprob(right);
    if (l != r)
        return l > r ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* The n best answers of a prompt. */
static void write_prompt(json_writer *w, const answer *a, uint32_t prompt) {
    const choice *best[API_CHOICES_MAX];
    uint32_t count = a->request->best_of;
    for (uint32_t i = 0; i < count; i++)
        best[i] = &a->choices[prompt * count + i];
    if (count > a->request->n)
        qsort(best, count, sizeof(best[0]), by_logprob);
    for (uint32_t i = 0; i < a->request->n; i++) {
        json_object_begin(w);
        json_member_u64(w, "index", prompt * a->request->n + i);
        json_member_text(w, "text", buffer_text(&best[i]->text));
        write_logprobs(w, a, best[i]);
        write_prompt_logprobs(w, best[i]);
        write_choice_end(w, best[i]);
        json_end(w);
    }
}

static avo_status completion_whole(answer *a, buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    write_openai_head(&w, a, a->writer->chunk);
    json_member_array_begin(&w, "choices");
    for (uint32_t i = 0; i < a->request->prompt_count; i++)
        write_prompt(&w, a, i);
    json_end(&w);
    write_usage(&w, a);
    json_end(&w);
    return json_writer_status(&w);
}

/* ---- Streams ---- */

static avo_status write_chunk(answer *a, choice *c, text_view text, bool last, buffer *out) {
    AVO_TRY(event_begin(out, NULL));
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    write_openai_head(&w, a, a->writer->chunk);
    json_member_array_begin(&w, "choices");
    json_object_begin(&w);
    json_member_u64(&w, "index", c->index);
    json_member_text(&w, "text", text);
    write_logprobs(&w, a, c);
    if (last)
        write_choice_end(&w, c);
    else
        json_member_null(&w, "finish_reason");
    json_end(&w);
    json_end(&w);
    if (a->request->include_usage)
        json_member_null(&w, "usage");
    json_end(&w);
    return event_end(&w);
}

static avo_status completion_piece(answer *a, choice *c, text_view text, buffer *out) {
    return write_chunk(a, c, text, false, out);
}

static avo_status completion_finish(answer *a, choice *c, buffer *out) {
    return write_chunk(a, c, (text_view){"", 0}, true, out);
}

static const answer_writer completion_writer = {.id_prefix = "cmpl-",
                                                .chunk = "text_completion",
                                                .begin = stream_begin,
                                                .token = completion_token,
                                                .piece = completion_piece,
                                                .finish = completion_finish,
                                                .end = stream_end,
                                                .error = stream_error,
                                                .whole = completion_whole};

static void answer_completion(api *api, exchange *exchange) {
    answer_body(api, exchange, BODY_COMPLETION, &completion_writer);
}

void endpoint_completion(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_completion);
}
