/* ollama's /api/chat, /api/generate, /api/embed and /api/embeddings: JSON lines. */
#include "server/api/answer.h"
#include "server/api/helpers.h"
#include "server/log.h"

#include <math.h>

static bool is_chat(const answer *a) {
    return a->request->body == BODY_OLLAMA_CHAT;
}

void ollama_write_head(json_writer *w, const char *model) {
    char now[LOG_TIME_BYTES];
    log_time(now);
    json_member_string(w, "model", model);
    json_member_string(w, "created_at", now);
}

static const char *done_reason(const choice *c) {
    return ends_in_calls(c) ? "stop" : finish_name(c);
}

static void write_nanoseconds(json_writer *w, const char *name, double seconds) {
    json_member_u64(w, name, seconds > 0.0 ? (uint64_t)llround(seconds * 1e9) : 0);
}

static void write_done(json_writer *w, const choice *c) {
    const avo_result *result = &c->result;
    json_member_boolean(w, "done", true);
    json_member_string(w, "done_reason", done_reason(c));
    write_nanoseconds(w, "total_duration", result->total_seconds);
    json_member_u64(w, "load_duration", 0);
    json_member_u64(w, "prompt_eval_count", result->prompt_tokens);
    write_nanoseconds(w, "prompt_eval_duration", result->prefill_seconds);
    json_member_u64(w, "eval_count", result->new_tokens);
    write_nanoseconds(w, "eval_duration", result->decode_seconds);
}

/* What the model said, or a part of it; calls come in pieces of their own. */
static void write_text(json_writer *w, const answer *a, text_view text, text_view thinking) {
    if (is_chat(a)) {
        json_member_object_begin(w, "message");
        json_member_string(w, "role", "assistant");
    }
    json_member_text(w, is_chat(a) ? "content" : "response", text);
    if (thinking.size > 0)
        json_member_text(w, "thinking", thinking);
}

static void write_call(json_writer *w, const tool_call *call) {
    json_object_begin(w);
    json_member_object_begin(w, "function");
    json_member_text(w, "name", call->name);
    json_member_raw(w, "arguments", call->arguments);
    json_end(w);
    json_end(w);
}

static void write_entries(json_writer *w, const choice *c) {
    if (!c->answer->request->logprobs || c->entries[0].size == 0)
        return;
    json_member_array_begin(w, "logprobs");
    json_raw_items(w, buffer_text(&c->entries[0]));
    json_end(w);
}

static avo_status ollama_token(answer *a, choice *c, const avo_token_event *token) {
    return write_logprob_entry(a, token, &c->entries[0]);
}

/* ---- Streams ---- */

static const text_view nothing = {"", 0};

static json_writer line_begin(answer *a, text_view text, text_view thinking, buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    ollama_write_head(&w, a->request->model);
    write_text(&w, a, text, thinking);
    return w;
}

/* Behind the members of the message. */
static avo_status line_end(const answer *a, const choice *c, json_writer *w) {
    if (is_chat(a))
        json_end(w);
    write_entries(w, c);
    json_member_boolean(w, "done", false);
    json_end(w);
    AVO_TRY(json_writer_status(w));
    return buffer_append_text(w->out, "\n");
}

static avo_status ollama_piece(answer *a, choice *c, text_view text, buffer *out) {
    json_writer w = line_begin(a, text, nothing, out);
    return line_end(a, c, &w);
}

/* Log-probabilities wait for the text behind it. */
static avo_status ollama_reasoning(answer *a, choice *c, text_view text, buffer *out) {
    json_writer w = line_begin(a, nothing, text, out);
    if (is_chat(a))
        json_end(&w);
    (void)c;
    json_member_boolean(&w, "done", false);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append_text(out, "\n");
}

/* Calls are told whole: arguments are an object there. */
static avo_status call_nothing(answer *a, choice *c, size_t index, const tool_call *call,
                               buffer *out) {
    (void)a, (void)c, (void)index, (void)call, (void)out;
    return AVO_OK;
}

static avo_status call_no_piece(answer *a, choice *c, size_t index, text_view arguments,
                                buffer *out) {
    (void)a, (void)c, (void)index, (void)arguments, (void)out;
    return AVO_OK;
}

static avo_status ollama_call_end(answer *a, choice *c, size_t index, const tool_call *call,
                                  buffer *out) {
    (void)index;
    if (call->cut) /* half an object cannot be told */
        return AVO_OK;
    json_writer w = line_begin(a, nothing, nothing, out);
    json_member_array_begin(&w, "tool_calls");
    write_call(&w, call);
    json_end(&w);
    return line_end(a, c, &w);
}

static avo_status ollama_finish(answer *a, choice *c, buffer *out) {
    json_writer w = line_begin(a, nothing, nothing, out);
    if (is_chat(a))
        json_end(&w);
    write_entries(&w, c);
    write_done(&w, c);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append_text(out, "\n");
}

static avo_status ollama_end(answer *a, buffer *out) {
    (void)a;
    (void)out;
    return AVO_OK;
}

static avo_status ollama_error(answer *a, const api_fault *fault, buffer *out) {
    (void)a;
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_string(&w, "error", fault->text);
    json_end(&w);
    AVO_TRY(json_writer_status(&w));
    return buffer_append_text(out, "\n");
}

/* ---- Whole ---- */

static avo_status ollama_whole(answer *a, buffer *out) {
    const choice *c = &a->choices[0];
    json_writer w = line_begin(a, buffer_text(&c->text), buffer_text(&c->reasoning), out);
    size_t calls = choice_calls(c);
    if (calls > 0)
        json_member_array_begin(&w, "tool_calls");
    for (size_t i = 0; i < calls; i++)
        if (!choice_call(c, i)->cut)
            write_call(&w, choice_call(c, i));
    if (calls > 0)
        json_end(&w);
    if (is_chat(a))
        json_end(&w);
    write_entries(&w, c);
    write_done(&w, c);
    json_end(&w);
    return json_writer_status(&w);
}

static const answer_writer ollama_writer = {.id_prefix = "ollama-",
                                            .stream_type = "application/x-ndjson",
                                            .begin = stream_begin,
                                            .token = ollama_token,
                                            .piece = ollama_piece,
                                            .reasoning = ollama_reasoning,
                                            .call_begin = call_nothing,
                                            .call_piece = call_no_piece,
                                            .call_end = ollama_call_end,
                                            .finish = ollama_finish,
                                            .end = ollama_end,
                                            .error = ollama_error,
                                            .whole = ollama_whole};

/* A request without a prompt asks for the model to be loaded, which it is. */
static void send_loaded(exchange *exchange, const api_request *r) {
    buffer out;
    buffer_init(&out, NULL, API_ANSWER_BYTES_MAX);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    ollama_write_head(&w, r->model);
    if (r->body == BODY_OLLAMA_CHAT) {
        json_member_object_begin(&w, "message");
        json_member_string(&w, "role", "assistant");
        json_member_string(&w, "content", "");
        json_end(&w);
    } else {
        json_member_string(&w, "response", "");
    }
    json_member_boolean(&w, "done", true);
    json_member_string(&w, "done_reason", "load");
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

static void answer_ollama(api *api, exchange *exchange, api_body body) {
    const exchange_request *asked = exchange_asked(exchange);
    api_request *r = NULL;
    api_fault fault = {0};
    if (!api_request_read(api, body, asked->key, asked->body, &r, &fault)) {
        api_fail(exchange, &fault);
    } else if (r->prompt_count == 0) {
        send_loaded(exchange, r);
        api_request_free(r);
    } else {
        answer_request(api, exchange, r, &ollama_writer);
    }
}

static void answer_chat(api *api, exchange *exchange) {
    answer_ollama(api, exchange, BODY_OLLAMA_CHAT);
}

static void answer_generate(api *api, exchange *exchange) {
    answer_ollama(api, exchange, BODY_OLLAMA_GENERATE);
}

void endpoint_ollama_chat(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_chat);
}

void endpoint_ollama_generate(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_generate);
}

/* ---- Embeddings ---- */

static avo_status embed_whole(answer *a, buffer *out) {
    answer_usage usage = usage_of(a);
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_string(&w, "model", a->request->model);
    json_member_array_begin(&w, "embeddings");
    for (uint32_t i = 0; i < a->choice_count; i++)
        json_raw(&w, buffer_text(&a->choices[i].text));
    json_end(&w);
    write_nanoseconds(&w, "total_duration", usage.total_seconds);
    json_member_u64(&w, "load_duration", 0);
    json_member_u64(&w, "prompt_eval_count", usage.prompt_tokens);
    json_end(&w);
    return json_writer_status(&w);
}

static avo_status vector_whole(answer *a, buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    json_member_raw(&w, "embedding", buffer_text(&a->choices[0].text));
    json_end(&w);
    return json_writer_status(&w);
}

static const answer_writer embed_writer = {
    .id_prefix = "emb-", .whole = embed_whole, .vector = embedding_vector};
static const answer_writer vector_writer = {
    .id_prefix = "emb-", .whole = vector_whole, .vector = embedding_vector};

static void answer_embed(api *api, exchange *exchange) {
    answer_body(api, exchange, BODY_OLLAMA_EMBED, &embed_writer);
}

static void answer_vector(api *api, exchange *exchange) {
    answer_body(api, exchange, BODY_OLLAMA_VECTOR, &vector_writer);
}

void endpoint_ollama_embed(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_embed);
}

void endpoint_ollama_vector(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_vector);
}
