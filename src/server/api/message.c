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

static avo_status write_reason(const choice *c, buffer *out) {
    const char *sequence = stopped_by(c);
    AVO_TRY(buffer_format(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(c)));
    return sequence == NULL ? buffer_append_text(out, "null")
                            : json_write_string(out, text_from(sequence));
}

/* Tokens read from the cache count beside the others there, not among them. */
static avo_status write_message_usage(const answer *a, bool timings, buffer *out) {
    answer_usage usage = usage_of(a);
    AVO_TRY(buffer_format(out,
                          "\"usage\":{\"input_tokens\":%llu,\"cache_creation_input_tokens\":0,"
                          "\"cache_read_input_tokens\":%llu,\"output_tokens\":%llu",
                          (unsigned long long)(usage.prompt_tokens - usage.cached_tokens),
                          (unsigned long long)usage.cached_tokens,
                          (unsigned long long)usage.new_tokens));
    if (timings) {
        AVO_TRY(buffer_append_text(out, ","));
        AVO_TRY(write_timings(&usage, out));
    }
    return buffer_append_text(out, "}");
}

static avo_status write_head(const answer *a, buffer *out) {
    AVO_TRY(
        buffer_format(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",", a->id));
    return write_member(out, "model", text_from(a->request->model));
}

static avo_status write_tool_use(const choice *c, size_t index, const tool_call *call, bool open,
                                 buffer *out) {
    char id[64];
    choice_call_id(c, index, "toolu_", id, sizeof(id));
    AVO_TRY(buffer_format(out, "{\"type\":\"tool_use\",\"id\":\"%s\",", id));
    AVO_TRY(write_member(out, "name", call->name));
    AVO_TRY(buffer_append_text(out, ",\"input\":"));
    AVO_TRY(open ? buffer_append_text(out, "{}")
                 : buffer_append(out, call->arguments.data, call->arguments.size));
    return buffer_append_text(out, "}");
}

static avo_status message_whole(answer *a, buffer *out) {
    const choice *c = &a->choices[0];
    size_t calls = choice_calls(c);
    bool text = c->text.size > 0 || calls == 0;
    AVO_TRY(write_head(a, out));
    AVO_TRY(buffer_append_text(out, ",\"content\":["));
    if (text) {
        AVO_TRY(buffer_append_text(out, "{\"type\":\"text\","));
        AVO_TRY(write_member(out, "text", buffer_text(&c->text)));
        AVO_TRY(buffer_append_text(out, "}"));
    }
    for (size_t i = 0; i < calls; i++) {
        if (i > 0 || text)
            AVO_TRY(buffer_append_text(out, ","));
        AVO_TRY(write_tool_use(c, i, choice_call(c, i), false, out));
    }
    AVO_TRY(buffer_append_text(out, "],"));
    AVO_TRY(write_reason(c, out));
    AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(write_message_usage(a, true, out));
    return buffer_append_text(out, "}");
}

/* ---- Streams ---- */

static avo_status message_begin(answer *a, buffer *out) {
    AVO_TRY(buffer_append_text(out, "event: message_start\ndata: {\"type\":\"message_start\","
                                    "\"message\":"));
    AVO_TRY(write_head(a, out));
    AVO_TRY(
        buffer_append_text(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,"));
    AVO_TRY(write_message_usage(a, false, out));
    return buffer_append_text(out, "}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
}

static avo_status message_token(answer *a, choice *c, const avo_token_event *token) {
    (void)a;
    (void)c;
    (void)token;
    return AVO_OK; /* this family tells no log-probabilities */
}

static avo_status block_start(answer *a, buffer *out) {
    return buffer_format(out,
                         "event: content_block_start\ndata: {\"type\":\"content_block_start\","
                         "\"index\":%u,\"content_block\":",
                         a->segment_count++);
}

static avo_status block_stop(answer *a, buffer *out) {
    a->text_open = false;
    return buffer_format(out,
                         "event: content_block_stop\ndata: {\"type\":\"content_block_stop\","
                         "\"index\":%u}\n\n",
                         a->segment_count - 1);
}

static avo_status block_delta(answer *a, const char *type, const char *member, text_view text,
                              buffer *out) {
    AVO_TRY(buffer_format(out,
                          "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
                          "\"index\":%u,\"delta\":{\"type\":\"%s\",",
                          a->segment_count - 1, type));
    AVO_TRY(write_member(out, member, text));
    return buffer_append_text(out, "}}\n\n");
}

static avo_status open_text(answer *a, buffer *out) {
    if (a->text_open)
        return AVO_OK;
    a->text_open = true;
    AVO_TRY(block_start(a, out));
    return buffer_append_text(out, "{\"type\":\"text\",\"text\":\"\"}}\n\n");
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
    AVO_TRY(block_start(a, out));
    AVO_TRY(write_tool_use(c, index, call, true, out));
    return buffer_append_text(out, "}\n\n");
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
    AVO_TRY(buffer_append_text(out, "event: message_delta\ndata: {\"type\":\"message_delta\","
                                    "\"delta\":{"));
    AVO_TRY(write_reason(&a->choices[0], out));
    AVO_TRY(buffer_append_text(out, "},"));
    AVO_TRY(write_message_usage(a, true, out));
    return buffer_append_text(out, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}"
                                   "\n\n");
}

static avo_status message_error(answer *a, const api_fault *fault, buffer *out) {
    (void)a;
    AVO_TRY(buffer_format(out,
                          "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"%s\",",
                          fault->status == 503   ? "overloaded_error"
                          : fault->status >= 500 ? "api_error"
                                                 : "invalid_request_error"));
    AVO_TRY(write_member(out, "message", text_from(fault->text)));
    return buffer_append_text(out, "}}\n\n");
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
    const exchange_request *asked = exchange_asked(exchange);
    api_request *r = NULL;
    api_fault fault = {0};
    if (api_request_read(api, BODY_MESSAGE, asked->key, asked->body, &r, &fault))
        answer_start(api, exchange, r, &message_writer);
    else
        api_fail(exchange, &fault);
}

void endpoint_message(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_message);
}

/* ---- How many tokens a conversation has ---- */

static bool count(api *api, text_view body, size_t *tokens, api_fault *fault) {
    api_request *r = NULL;
    buffer ids;
    buffer_init(&ids, NULL, API_ANSWER_BYTES_MAX);
    bool good = api_request_open(api, BODY_COUNT, NULL, body, &r, fault) &&
                api_request_talk(api, r, fault) && api_tokenize_chat(api, r, &ids, fault);
    *tokens = ids.size / sizeof(int32_t);
    buffer_free(&ids);
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
    (void)!buffer_format(&out, "{\"input_tokens\":%zu}", tokens);
    exchange_send(exchange, 200, "application/json", buffer_text(&out));
    buffer_free(&out);
}

void endpoint_count(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_count);
}
