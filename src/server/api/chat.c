/* /v1/chat/completions: answers, whole and as a stream. */
#include "server/api/answer.h"
#include "server/api/helpers.h"

static void write_logprobs(json_writer *w, const answer *a, const choice *c) {
    if (!a->request->logprobs) {
        json_member_null(w, "logprobs");
        return;
    }
    json_member_object_begin(w, "logprobs");
    json_member_array_begin(w, "content");
    json_raw_items(w, buffer_text(&c->entries[0]));
    json_end(w);
    json_member_null(w, "refusal");
    json_end(w);
}

/* Of a call that is told whole, or with no arguments as it begins. */
static void write_call(json_writer *w, const choice *c, size_t index, text_view name,
                       text_view arguments) {
    char id[64];
    choice_call_id(c, index, "call_", id, sizeof(id));
    json_member_string(w, "id", id);
    json_member_string(w, "type", "function");
    json_member_object_begin(w, "function");
    json_member_text(w, "name", name);
    json_member_text(w, "arguments", arguments);
    json_end(w);
}

/* ---- Whole ---- */

static void write_message(json_writer *w, const answer *a, const choice *c) {
    size_t calls = choice_calls(c);
    json_object_begin(w);
    json_member_u64(w, "index", c->index);
    json_member_object_begin(w, "message");
    json_member_string(w, "role", "assistant");
    json_key(w, "content");
    if (calls > 0 && c->text.size == 0)
        json_null(w);
    else
        json_text(w, buffer_text(&c->text));
    if (c->reasoning.size > 0)
        json_member_text(w, "reasoning_content", buffer_text(&c->reasoning));
    json_member_null(w, "refusal");
    if (calls > 0)
        json_member_array_begin(w, "tool_calls");
    for (size_t i = 0; i < calls; i++) {
        const tool_call *call = choice_call(c, i);
        json_object_begin(w);
        write_call(w, c, i, call->name, call->arguments);
        json_end(w);
    }
    if (calls > 0)
        json_end(w);
    json_end(w);
    write_logprobs(w, a, c);
    write_choice_end(w, c);
    json_end(w);
}

static avo_status chat_whole(answer *a, buffer *out) {
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    write_openai_head(&w, a, "chat.completion");
    json_member_array_begin(&w, "choices");
    for (uint32_t i = 0; i < a->choice_count; i++)
        write_message(&w, a, &a->choices[i]);
    json_end(&w);
    write_prompt_logprobs(&w, &a->choices[0]);
    write_usage(&w, a);
    json_end(&w);
    return json_writer_status(&w);
}

/* ---- Streams ---- */

static avo_status chat_token(answer *a, choice *c, const avo_token_event *token) {
    return write_logprob_entry(a, token, &c->entries[0]);
}

/* Up to the members of the choice's delta; the first of a choice names the role. */
static json_writer delta_begin(answer *a, choice *c, buffer *out) {
    avo_status status = event_begin(out, NULL);
    json_writer w = json_writer_of(out);
    json_writer_note(&w, status);
    json_object_begin(&w);
    write_openai_head(&w, a, a->writer->chunk);
    json_member_array_begin(&w, "choices");
    json_object_begin(&w);
    json_member_u64(&w, "index", c->index);
    json_member_object_begin(&w, "delta");
    if (!c->opened)
        json_member_string(&w, "role", "assistant");
    return w;
}

/* Behind the members of the choice. */
static avo_status delta_end(answer *a, choice *c, json_writer *w) {
    c->opened = true;
    json_end(w);
    json_end(w);
    if (a->request->include_usage)
        json_member_null(w, "usage");
    json_end(w);
    return event_end(w);
}

static avo_status chat_piece(answer *a, choice *c, text_view text, buffer *out) {
    json_writer w = delta_begin(a, c, out);
    json_member_text(&w, "content", text);
    json_end(&w);
    write_logprobs(&w, a, c);
    json_member_null(&w, "finish_reason");
    return delta_end(a, c, &w);
}

static avo_status chat_reasoning(answer *a, choice *c, text_view text, buffer *out) {
    json_writer w = delta_begin(a, c, out);
    json_member_text(&w, "reasoning_content", text);
    json_end(&w);
    json_member_null(&w, "logprobs");
    json_member_null(&w, "finish_reason");
    return delta_end(a, c, &w);
}

static json_writer call_begin(answer *a, choice *c, size_t index, buffer *out) {
    json_writer w = delta_begin(a, c, out);
    json_member_array_begin(&w, "tool_calls");
    json_object_begin(&w);
    json_member_u64(&w, "index", index);
    return w;
}

static avo_status call_end(answer *a, choice *c, json_writer *w) {
    json_end(w);
    json_end(w);
    json_end(w);
    json_member_null(w, "logprobs");
    json_member_null(w, "finish_reason");
    return delta_end(a, c, w);
}

static avo_status chat_call_begin(answer *a, choice *c, size_t index, const tool_call *call,
                                  buffer *out) {
    json_writer w = call_begin(a, c, index, out);
    write_call(&w, c, index, call->name, (text_view){"", 0});
    return call_end(a, c, &w);
}

static avo_status chat_call_piece(answer *a, choice *c, size_t index, text_view arguments,
                                  buffer *out) {
    json_writer w = call_begin(a, c, index, out);
    json_member_object_begin(&w, "function");
    json_member_text(&w, "arguments", arguments);
    json_end(&w);
    return call_end(a, c, &w);
}

static avo_status chat_call_end(answer *a, choice *c, size_t index, const tool_call *call,
                                buffer *out) {
    (void)a;
    (void)c;
    (void)index;
    (void)call;
    (void)out;
    return AVO_OK; /* the next one, or the finish, says so */
}

static avo_status chat_finish(answer *a, choice *c, buffer *out) {
    json_writer w = delta_begin(a, c, out);
    if (!c->opened)
        json_member_string(&w, "content", "");
    json_end(&w);
    write_logprobs(&w, a, c);
    write_choice_end(&w, c);
    return delta_end(a, c, &w);
}

static const answer_writer chat_writer = {.id_prefix = "chatcmpl-",
                                          .chunk = "chat.completion.chunk",
                                          .begin = stream_begin,
                                          .token = chat_token,
                                          .piece = chat_piece,
                                          .reasoning = chat_reasoning,
                                          .call_begin = chat_call_begin,
                                          .call_piece = chat_call_piece,
                                          .call_end = chat_call_end,
                                          .finish = chat_finish,
                                          .end = stream_end,
                                          .error = stream_error,
                                          .whole = chat_whole};

static void answer_chat(api *api, exchange *exchange) {
    answer_body(api, exchange, BODY_CHAT, &chat_writer);
}

void endpoint_chat(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_chat);
}
