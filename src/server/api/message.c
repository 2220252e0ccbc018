/* /v1/messages and /v1/messages/count_tokens, as Anthropic's clients know them. */
#include "server/api/answer.h"
#include "server/api/helpers.h"

#include <stdlib.h>

static const char *stop_reason(const choice *c) {
    if (ends_in_calls(c))
        return "tool_use";
    switch (c->result.finish) {
    case AVO_FINISH_STOP_TOKEN:
        return "end_turn";
    case AVO_FINISH_STOP_STRING:
        return "stop_sequence";
    default:
        return "max_tokens";
    }
}

static void write_reason(json_writer *w, const choice *c) {
    json_member_string(w, "stop_reason", stop_reason(c));
    json_member_string(w, "stop_sequence", stopped_by(c));
}

/* Tokens read from the cache count beside the others there, not among them. */
static void write_message_usage(json_writer *w, const answer *a, bool timings) {
    answer_usage usage = usage_of(a);
    json_member_object_begin(w, "usage");
    json_member_u64(w, "input_tokens", usage.prompt_tokens - usage.cached_tokens);
    json_member_u64(w, "cache_creation_input_tokens", 0);
    json_member_u64(w, "cache_read_input_tokens", usage.cached_tokens);
    json_member_u64(w, "output_tokens", usage.new_tokens);
    write_drafts(w, &usage);
    if (timings)
        write_timings(w, &usage);
    json_end(w);
}

static void write_head(json_writer *w, const answer *a) {
    json_member_string(w, "id", a->id);
    json_member_string(w, "type", "message");
    json_member_string(w, "role", "assistant");
    json_member_string(w, "model", a->request->model);
}

/* A block with the call; its input is what has come of the arguments, which may be cut. */
static void write_tool_use(json_writer *w, const choice *c, size_t index, text_view name,
                           text_view input) {
    char id[64];
    choice_call_id(c, index, "toolu_", id, sizeof(id));
    json_object_begin(w);
    json_member_string(w, "type", "tool_use");
    json_member_string(w, "id", id);
    json_member_text(w, "name", name);
    json_member_raw(w, "input", input);
    json_end(w);
}

static void write_text_block(json_writer *w, text_view text) {
    json_object_begin(w);
    json_member_string(w, "type", "text");
    json_member_text(w, "text", text);
    json_end(w);
}

static avo_status message_whole(answer *a, buffer *out) {
    const choice *c = &a->choices[0];
    size_t calls = choice_calls(c);
    json_writer w = json_writer_of(out);
    json_object_begin(&w);
    write_head(&w, a);
    json_member_array_begin(&w, "content");
    if (c->text.size > 0 || calls == 0)
        write_text_block(&w, buffer_text(&c->text));
    for (size_t i = 0; i < calls; i++) {
        const tool_call *call = choice_call(c, i);
        write_tool_use(&w, c, i, call->name, call->arguments);
    }
    json_end(&w);
    write_reason(&w, c);
    write_message_usage(&w, a, true);
    json_end(&w);
    return json_writer_status(&w);
}

/* ---- Streams ---- */

/* {"type":NAME of the event NAME, with its other members to come. */
static json_writer begin(buffer *out, const char *name) {
    avo_status status = event_begin(out, name);
    json_writer w = json_writer_of(out);
    json_writer_note(&w, status);
    json_object_begin(&w);
    json_member_string(&w, "type", name);
    return w;
}

static avo_status end(json_writer *w) {
    json_end(w);
    return event_end(w);
}

static avo_status message_begin(answer *a, buffer *out) {
    json_writer w = begin(out, "message_start");
    json_member_object_begin(&w, "message");
    write_head(&w, a);
    json_member_array_begin(&w, "content");
    json_end(&w);
    json_member_null(&w, "stop_reason");
    json_member_null(&w, "stop_sequence");
    write_message_usage(&w, a, false);
    json_end(&w);
    AVO_TRY(end(&w));
    w = begin(out, "ping");
    return end(&w);
}

static avo_status message_token(answer *a, choice *c, const avo_token_event *token) {
    (void)a;
    (void)c;
    (void)token;
    return AVO_OK; /* this family tells no log-probabilities */
}

/* The block itself follows. */
static json_writer block_start(answer *a, buffer *out) {
    json_writer w = begin(out, "content_block_start");
    json_member_u64(&w, "index", a->segment_count++);
    json_key(&w, "content_block");
    return w;
}

static avo_status block_stop(answer *a, buffer *out) {
    json_writer w = begin(out, "content_block_stop");
    a->text_open = false;
    json_member_u64(&w, "index", a->segment_count - 1);
    return end(&w);
}

static avo_status block_delta(answer *a, const char *type, const char *member, text_view text,
                              buffer *out) {
    json_writer w = begin(out, "content_block_delta");
    json_member_u64(&w, "index", a->segment_count - 1);
    json_member_object_begin(&w, "delta");
    json_member_string(&w, "type", type);
    json_member_text(&w, member, text);
    json_end(&w);
    return end(&w);
}

static avo_status open_text(answer *a, buffer *out) {
    if (a->text_open)
        return AVO_OK;
    a->text_open = true;
    json_writer w = block_start(a, out);
    write_text_block(&w, (text_view){"", 0});
    return end(&w);
}

static avo_status message_piece(answer *a, choice *c, text_view text, buffer *out) {
    (void)c;
    AVO_TRY(open_text(a, out));
    return block_delta(a, "text_delta", "text", text, out);
}

static avo_status message_call_begin(answer *a, choice *c, size_t index, const tool_call *call,
                                     buffer *out) {
    if (a->text_open)
        AVO_TRY(block_stop(a, out));
    json_writer w = block_start(a, out);
    write_tool_use(&w, c, index, call->name, TEXT_LITERAL("{}"));
    return end(&w);
}

static avo_status message_call_piece(answer *a, choice *c, size_t index, text_view arguments,
                                     buffer *out) {
    (void)c;
    (void)index;
    return block_delta(a, "input_json_delta", "partial_json", arguments, out);
}

static avo_status message_call_end(answer *a, choice *c, size_t index, const tool_call *call,
                                   buffer *out) {
    (void)c;
    (void)index;
    (void)call;
    return block_stop(a, out);
}

static avo_status message_finish(answer *a, choice *c, buffer *out) {
    (void)c;
    if (a->segment_count == 0)
        AVO_TRY(open_text(a, out));
    return a->text_open ? block_stop(a, out) : AVO_OK;
}

static avo_status message_end(answer *a, buffer *out) {
    json_writer w = begin(out, "message_delta");
    json_member_object_begin(&w, "delta");
    write_reason(&w, &a->choices[0]);
    json_end(&w);
    write_message_usage(&w, a, true);
    AVO_TRY(end(&w));
    w = begin(out, "message_stop");
    return end(&w);
}

static avo_status message_error(answer *a, const api_fault *fault, buffer *out) {
    (void)a;
    json_writer w = begin(out, "error");
    json_member_object_begin(&w, "error");
    json_member_string(&w, "type",
                       fault->status == 503   ? "overloaded_error"
                       : fault->status >= 500 ? "api_error"
                                              : "invalid_request_error");
    json_member_string(&w, "message", fault->text);
    json_end(&w);
    return end(&w);
}

static const answer_writer message_writer = {.id_prefix = "msg_",
                                             .begin = message_begin,
                                             .token = message_token,
                                             .piece = message_piece,
                                             .call_begin = message_call_begin,
                                             .call_piece = message_call_piece,
                                             .call_end = message_call_end,
                                             .finish = message_finish,
                                             .end = message_end,
                                             .error = message_error,
                                             .whole = message_whole};

static void answer_message(api *api, exchange *exchange) {
    answer_body(api, exchange, BODY_MESSAGE, &message_writer);
}

void endpoint_message(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_message);
}

/* ---- How many tokens a conversation has ---- */

static bool count(api *api, text_view body, size_t *tokens, api_fault *fault) {
    api_request *r = NULL;
    id_list ids;
    id_list_init(&ids, NULL);
    bool good = api_request_open(api, BODY_COUNT, NULL, body, &r, fault) &&
                api_request_talk(api, r, fault) && api_tokenize_chat(api, r, &ids, fault);
    *tokens = ids.count;
    id_list_free(&ids);
    api_request_free(r);
    return good;
}

static void answer_count(api *api, exchange *exchange) {
    api_fault fault = {0};
    size_t tokens = 0;
    if (!count(api, exchange_asked(exchange)->body, &tokens, &fault)) {
        api_fail(exchange, &fault);
        return;
    }
    buffer out;
    buffer_init(&out, NULL, 256);
    json_writer w = json_writer_of(&out);
    json_object_begin(&w);
    json_member_u64(&w, "input_tokens", tokens);
    json_end(&w);
    api_send_json(exchange, 200, &w);
    buffer_free(&out);
}

void endpoint_count(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_count);
}
