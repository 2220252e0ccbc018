/* llama.cpp's /completion, /infill and /embedding. */
#include "server/api/answer.h"
#include "server/api/helpers.h"

#include <stdio.h>

/* Places in a choice's entries. */
enum { PROBABILITIES, IDS };

static void write_probability(json_writer *w, const answer *a, int32_t token, float logprob,
                              buffer *piece) {
    json_writer_note(w, api_piece(a->api->model, token, piece));
    json_member_i64(w, "id", token);
    json_member_text(w, "token", buffer_text(piece));
    json_member_array_begin(w, "bytes");
    for (size_t i = 0; i < piece->size; i++)
        json_u64(w, (unsigned char)piece->data[i]);
    json_end(w);
    json_key(w, "logprob");
    write_logprob(w, logprob);
}

static avo_status write_probabilities(const answer *a, const avo_token_event *token, buffer *piece,
                                      buffer *out) {
    AVO_TRY(entries_begin(out));
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    write_probability(&w, a, token->token, token->logprob, piece);
    json_member_array_begin(&w, "top_logprobs");
    for (uint32_t i = 0; i < token->top_count; i++) {
        json_object_begin(&w);
        write_probability(&w, a, token->top[i].token, token->top[i].logprob, piece);
        json_end(&w);
    }
    json_end(&w);
    json_end(&w);
    return json_writer_status(&w);
}

static avo_status llama_token(answer *a, choice *c, const avo_token_event *token) {
    AVO_TRY(entries_begin(&c->entries[IDS]));
    AVO_TRY(buffer_format(&c->entries[IDS], "%d", token->token));
    if (!a->request->logprobs)
        return AVO_OK;
    buffer piece;
    buffer_init(&piece, NULL, API_TEXT_BYTES_MAX);
    avo_status status = write_probabilities(a, token, &piece, &c->entries[PROBABILITIES]);
    buffer_free(&piece);
    return status;
}

static void write_lists(json_writer *w, const choice *c, bool ids) {
    json_member_array_begin(w, "tokens");
    if (ids)
        json_raw_items(w, buffer_text(&c->entries[IDS]));
    json_end(w);
    if (!c->answer->request->logprobs)
        return;
    json_member_array_begin(w, "completion_probabilities");
    json_raw_items(w, buffer_text(&c->entries[PROBABILITIES]));
    json_end(w);
}

static void write_place(json_writer *w, const choice *c) {
    json_member_u64(w, "index", c->index);
    json_member_i64(w, "id_slot", -1); /* requests have none of their own */
}

/* ---- The end ---- */

void llama_write_settings(json_writer *w, const avo_sampling *sampling, const avo_request *request,
                          bool stream, const char *grammar) {
    json_member_i64(w, "seed", (int64_t)sampling->seed);
    json_member_float(w, "temperature", sampling->temperature);
    json_member_u64(w, "top_k", sampling->top_k);
    json_member_float(w, "top_p", sampling->top_p);
    json_member_float(w, "min_p", sampling->min_p);
    json_member_float(w, "typical_p", sampling->typical_p);
    json_member_i64(w, "repeat_last_n", -1);
    json_member_float(w, "repeat_penalty", sampling->repetition_penalty);
    json_member_float(w, "presence_penalty", sampling->presence_penalty);
    json_member_float(w, "frequency_penalty", sampling->frequency_penalty);
    json_member_i64(w, "n_predict",
                    request->no_answer             ? 0
                    : request->max_new_tokens == 0 ? -1
                                                   : (int64_t)request->max_new_tokens);
    json_member_u64(w, "n_probs", sampling->top_logprobs);
    json_member_array_begin(w, "stop");
    for (size_t i = 0; i < request->stop_count; i++)
        json_string(w, request->stop[i]);
    json_end(w);
    json_member_boolean(w, "ignore_eos", request->ignore_end);
    json_member_boolean(w, "stream", stream);
    json_member_string(w, "grammar", grammar == NULL ? "" : grammar);
}

static const char *stop_type(const choice *c) {
    switch (c->result.finish) {
    case AVO_FINISH_STOP_TOKEN:
        return "eos";
    case AVO_FINISH_STOP_STRING:
        return "word";
    default:
        return "limit";
    }
}

static double rate(uint64_t tokens, double seconds) {
    return tokens == 0 || seconds <= 0.0 ? 0.0 : (double)tokens / seconds;
}

static void write_rates(json_writer *w, const char *part, uint64_t tokens, double seconds) {
    static const char *const names[] = {"n", "ms", "per_token_ms", "per_second"};
    const double values[] = {(double)tokens, seconds * 1e3,
                             tokens == 0 ? 0.0 : seconds * 1e3 / (double)tokens,
                             rate(tokens, seconds)};
    char name[32];
    for (size_t i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "%s_%s", part, names[i]);
        json_member_fixed(w, name, values[i], i == 0 ? 0 : 3);
    }
}

static void write_llama_timings(json_writer *w, const avo_result *result) {
    json_member_object_begin(w, "timings");
    json_member_u64(w, "cache_n", result->reused_tokens);
    write_rates(w, "prompt", result->prompt_tokens - result->reused_tokens,
                result->prefill_seconds);
    write_rates(w, "predicted", result->new_tokens, result->decode_seconds);
    json_end(w);
}

/* All that is told at the end of a choice; `content` of a stream was told before. */
static void write_end(json_writer *w, const choice *c, bool whole) {
    const answer *a = c->answer;
    const api_request *r = a->request;
    const avo_result *result = &c->result;
    text_view text = buffer_text(&c->text);
    avo_sampling sampling = r->sampling;
    sampling.seed += c->index % r->best_of;
    buffer prompt;
    buffer_init(&prompt, NULL, API_ANSWER_BYTES_MAX);
    json_writer_note(w, choice_prompt(c, AVO_TOKENIZE_SPECIAL, &prompt));
    json_object_begin(w);
    write_place(w, c);
    json_member_text(w, "content", whole ? text : (text_view){"", 0});
    write_lists(w, c, whole && r->return_tokens);
    json_member_boolean(w, "stop", true);
    json_member_string(w, "model", r->model);
    json_member_u64(w, "tokens_predicted", result->new_tokens);
    json_member_u64(w, "tokens_evaluated", result->prompt_tokens);
    json_member_u64(w, "tokens_cached", result->prompt_tokens + result->new_tokens);
    json_member_object_begin(w, "generation_settings");
    llama_write_settings(w, &sampling, &r->submit, r->stream, r->grammar);
    json_end(w);
    json_member_text(w, "prompt", buffer_text(&prompt));
    json_member_boolean(w, "has_new_line",
                        text.size > 0 && memchr(text.data, '\n', text.size) != NULL);
    json_member_boolean(w, "truncated", result->finish == AVO_FINISH_CONTEXT);
    json_member_string(w, "stop_type", stop_type(c));
    json_member_string(w, "stopping_word", stopped_by(c) == NULL ? "" : stopped_by(c));
    write_llama_timings(w, result);
    json_end(w);
    buffer_free(&prompt);
}

static avo_status llama_whole(answer *a, buffer *out) {
    json_writer w = json_writer_of(out);
    if (a->choice_count > 1)
        json_array_begin(&w);
    for (uint32_t i = 0; i < a->choice_count; i++)
        write_end(&w, &a->choices[i], true);
    if (a->choice_count > 1)
        json_end(&w);
    return json_writer_status(&w);
}

/* ---- Streams ---- */

static avo_status llama_piece(answer *a, choice *c, text_view text, buffer *out) {
    (void)a;
    AVO_TRY(event_begin(out, NULL));
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    write_place(&w, c);
    json_member_text(&w, "content", text);
    write_lists(&w, c, true);
    json_member_boolean(&w, "stop", false);
    json_member_u64(&w, "tokens_predicted", c->tokens_seen);
    json_end(&w);
    return event_end(&w);
}

static avo_status llama_finish(answer *a, choice *c, buffer *out) {
    (void)a;
    AVO_TRY(event_begin(out, NULL));
    json_writer w = json_writer_of(out);
    write_end(&w, c, false);
    return event_end(&w);
}

static avo_status llama_end(answer *a, buffer *out) {
    (void)a;
    (void)out;
    return AVO_OK;
}

static const answer_writer llama_writer = {.id_prefix = "cmpl-",
                                           .all_tokens = true,
                                           .begin = stream_begin,
                                           .token = llama_token,
                                           .piece = llama_piece,
                                           .finish = llama_finish,
                                           .end = llama_end,
                                           .error = stream_error,
                                           .whole = llama_whole};

static void answer_llama(api *api, exchange *exchange) {
    answer_body(api, exchange, BODY_LLAMA, &llama_writer);
}

static void answer_infill(api *api, exchange *exchange) {
    answer_body(api, exchange, BODY_INFILL, &llama_writer);
}

void endpoint_llama(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_llama);
}

void endpoint_infill(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_infill);
}

/* ---- Embeddings ---- */

/* [{"index", "embedding": [[…]]}]: a list of vectors, of which there is one. */
static avo_status vectors_whole(answer *a, buffer *out) {
    json_writer w = json_writer_of(out);
    json_array_begin(&w);
    for (uint32_t i = 0; i < a->choice_count; i++) {
        json_object_begin(&w);
        json_member_u64(&w, "index", i);
        json_member_array_begin(&w, "embedding");
        json_raw_items(&w, buffer_text(&a->choices[i].text));
        json_end(&w);
        json_end(&w);
    }
    json_end(&w);
    return json_writer_status(&w);
}

static const answer_writer vectors_writer = {
    .id_prefix = "emb-", .whole = vectors_whole, .vector = embedding_vector};

static void answer_vectors(api *api, exchange *exchange) {
    answer_body(api, exchange, BODY_LLAMA_EMBEDDING, &vectors_writer);
}

void endpoint_llama_embedding(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_vectors);
}
