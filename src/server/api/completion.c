/* /v1/completions: answers, whole and as a stream; with echo the prompt's log-probabilities, too.
 */
#include "server/api/answer.h"
#include "server/api/helpers.h"

#include "base/utf8.h"

#include <stdlib.h>

/* Places of the four lists in a choice's entries. */
enum { TOKENS, LOGPROBS, TOPS, OFFSETS };

/* ---- Log-probabilities ---- */

/* Pieces that are no text by themselves are told byte by byte, so that none looks like another. */
static avo_status write_piece(const buffer *piece, buffer *out) {
    text_view text = buffer_text(piece);
    if (utf8_valid_prefix(text.data, text.size) == text.size)
        return json_write_string(out, text);
    AVO_TRY(buffer_append_text(out, "\"bytes:"));
    for (size_t i = 0; i < text.size; i++)
        AVO_TRY(buffer_format(out, "\\\\x%02x", (unsigned char)text.data[i]));
    return buffer_append_text(out, "\"");
}

/* One alternative; a text that stands there already, from another token, is not told twice. `keys`
 * has all of them, a newline before and behind each: within one it is written as \n. */
static avo_status write_top(const answer *a, int32_t token, float logprob, buffer *piece,
                            buffer *keys, buffer *out) {
    size_t at = keys->size;
    AVO_TRY(api_piece(a->api->model, token, piece));
    AVO_TRY(write_piece(piece, keys));
    AVO_TRY(buffer_append_text(keys, "\n"));
    size_t bytes = keys->size - at;
    if (memmem(keys->data, at, keys->data + at - 1, bytes + 1) != NULL)
        return AVO_OK;
    if (at > 1)
        AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(buffer_append(out, keys->data + at, bytes - 1));
    AVO_TRY(buffer_append_text(out, ":"));
    return write_float(out, logprob);
}

/* The likeliest ones and the token itself. */
static avo_status write_tops(const answer *a, const avo_token_event *token, bool known,
                             buffer *piece, buffer *keys, buffer *out) {
    if (!known || token->top_count == 0)
        return buffer_append_text(out, "null");
    keys->size = 0;
    AVO_TRY(buffer_append_text(keys, "\n"));
    AVO_TRY(buffer_append_text(out, "{"));
    for (uint32_t i = 0; i < token->top_count; i++)
        AVO_TRY(write_top(a, token->top[i].token, token->top[i].logprob, piece, keys, out));
    AVO_TRY(write_top(a, token->token, token->logprob, piece, keys, out));
    return buffer_append_text(out, "}");
}

static size_t characters_of(text_view text) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return count;
}

static avo_status write_lists(answer *a, choice *c, const avo_token_event *token, buffer *piece,
                              buffer *keys) {
    buffer *lists = c->entries;
    for (size_t i = 0; i < 4; i++)
        if (lists[i].size > 0)
            AVO_TRY(buffer_append_text(&lists[i], ","));
    bool known = token->logprob == token->logprob; /* the first of a prompt has none */
    AVO_TRY(api_piece(a->api->model, token->token, piece));
    AVO_TRY(write_piece(piece, &lists[TOKENS]));
    AVO_TRY(buffer_format(&lists[OFFSETS], "%llu", (unsigned long long)c->characters));
    c->characters += characters_of(buffer_text(piece));
    AVO_TRY(write_float(&lists[LOGPROBS], token->logprob));
    return write_tops(a, token, known, piece, keys, &lists[TOPS]);
}

static avo_status completion_token(answer *a, choice *c, const avo_token_event *token) {
    buffer piece, keys;
    buffer_init(&piece, NULL, API_TEXT_BYTES_MAX);
    buffer_init(&keys, NULL, API_ANSWER_BYTES_MAX);
    avo_status status = write_lists(a, c, token, &piece, &keys);
    buffer_free(&piece);
    buffer_free(&keys);
    return status;
}

static avo_status write_logprobs(const answer *a, const choice *c, buffer *out) {
    static const char *const names[] = {",\"logprobs\":{\"tokens\":[", "],\"token_logprobs\":[",
                                        "],\"top_logprobs\":[", "],\"text_offset\":["};
    if (!a->request->logprobs)
        return buffer_append_text(out, ",\"logprobs\":null");
    for (size_t i = 0; i < 4; i++) {
        AVO_TRY(buffer_append_text(out, names[i]));
        AVO_TRY(buffer_append(out, buffer_text(&c->entries[i]).data, c->entries[i].size));
    }
    return buffer_append_text(out, "]}");
}

/* ---- Whole ---- */

static avo_status write_head(const answer *a, buffer *out) {
    AVO_TRY(buffer_format(out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%lld,",
                          a->id, (long long)a->created));
    AVO_TRY(write_member(out, "model", text_from(a->request->model)));
    return buffer_append_text(out, ",\"system_fingerprint\":\"avocet-" AVO_VERSION_TEXT "\"");
}

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
static avo_status write_prompt(const answer *a, uint32_t prompt, buffer *out) {
    const choice *best[API_CHOICES_MAX];
    uint32_t count = a->request->best_of;
    for (uint32_t i = 0; i < count; i++)
        best[i] = &a->choices[prompt * count + i];
    if (count > a->request->n)
        qsort(best, count, sizeof(best[0]), by_logprob);
    for (uint32_t i = 0; i < a->request->n; i++) {
        uint32_t index = prompt * a->request->n + i;
        AVO_TRY(buffer_format(out, "%s{\"index\":%u,", index > 0 ? "," : "", index));
        AVO_TRY(write_member(out, "text", buffer_text(&best[i]->text)));
        AVO_TRY(write_logprobs(a, best[i], out));
        AVO_TRY(write_choice_end(best[i], out));
        AVO_TRY(buffer_append_text(out, "}"));
    }
    return AVO_OK;
}

static avo_status completion_whole(answer *a, buffer *out) {
    AVO_TRY(write_head(a, out));
    AVO_TRY(buffer_append_text(out, ",\"choices\":["));
    for (uint32_t i = 0; i < a->request->prompt_count; i++)
        AVO_TRY(write_prompt(a, i, out));
    AVO_TRY(buffer_append_text(out, "],\"usage\":"));
    AVO_TRY(write_usage(a, out));
    return buffer_append_text(out, "}");
}

/* ---- Streams ---- */

static avo_status write_chunk(answer *a, choice *c, text_view text, bool last, buffer *out) {
    AVO_TRY(buffer_append_text(out, "data: "));
    AVO_TRY(write_head(a, out));
    AVO_TRY(buffer_format(out, ",\"choices\":[{\"index\":%u,", c->index));
    AVO_TRY(write_member(out, "text", text));
    AVO_TRY(write_logprobs(a, c, out));
    AVO_TRY(last ? write_choice_end(c, out) : buffer_append_text(out, ",\"finish_reason\":null"));
    AVO_TRY(buffer_append_text(out, "}]"));
    if (a->request->include_usage)
        AVO_TRY(buffer_append_text(out, ",\"usage\":null"));
    return buffer_append_text(out, "}\n\n");
}

static avo_status completion_piece(answer *a, choice *c, text_view text, buffer *out) {
    return write_chunk(a, c, text, false, out);
}

static avo_status completion_finish(answer *a, choice *c, buffer *out) {
    return write_chunk(a, c, (text_view){"", 0}, true, out);
}

static avo_status completion_end(answer *a, buffer *out) {
    if (a->request->include_usage) {
        AVO_TRY(buffer_append_text(out, "data: "));
        AVO_TRY(write_head(a, out));
        AVO_TRY(buffer_append_text(out, ",\"choices\":[],\"usage\":"));
        AVO_TRY(write_usage(a, out));
        AVO_TRY(buffer_append_text(out, "}\n\n"));
    }
    return buffer_append_text(out, "data: [DONE]\n\n");
}

static const answer_writer completion_writer = {.id_prefix = "cmpl-",
                                                .begin = stream_begin,
                                                .token = completion_token,
                                                .piece = completion_piece,
                                                .finish = completion_finish,
                                                .end = completion_end,
                                                .error = stream_error,
                                                .whole = completion_whole};

static void answer_completion(api *api, exchange *exchange) {
    const exchange_request *asked = exchange_asked(exchange);
    api_request *r = NULL;
    api_fault fault = {0};
    if (api_request_read(api, BODY_COMPLETION, asked->key, asked->body, &r, &fault))
        answer_start(api, exchange, r, &completion_writer);
    else
        api_fail(exchange, &fault);
}

void endpoint_completion(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_completion);
}
