/* /v1/chat/completions: answers, whole and as a stream. */
#include "server/api/answer.h"
#include "server/api/helpers.h"

static avo_status write_head(const answer *a, const char *object, buffer *out) {
    AVO_TRY(buffer_format(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,", a->id, object,
                          (long long)a->created));
    AVO_TRY(write_member(out, "model", text_from(a->request->model)));
    return buffer_append_text(out, ",\"system_fingerprint\":\"avocet-" AVO_VERSION_TEXT "\"");
}

static avo_status write_logprobs(const answer *a, const choice *c, buffer *out) {
    if (!a->request->logprobs)
        return buffer_append_text(out, ",\"logprobs\":null");
    AVO_TRY(buffer_append_text(out, ",\"logprobs\":{\"content\":["));
    AVO_TRY(buffer_append(out, buffer_text(&c->entries[0]).data, c->entries[0].size));
    return buffer_append_text(out, "],\"refusal\":null}");
}

static avo_status write_call(const choice *c, size_t index, const tool_call *call,
                             text_view arguments, buffer *out) {
    char id[64];
    choice_call_id(c, index, "call_", id, sizeof(id));
    AVO_TRY(buffer_format(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{", id));
    AVO_TRY(write_member(out, "name", call->name));
    AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(write_member(out, "arguments", arguments));
    return buffer_append_text(out, "}}");
}

/* ---- Whole ---- */

static avo_status write_message(const answer *a, const choice *c, buffer *out) {
    size_t calls = choice_calls(c);
    AVO_TRY(buffer_format(
        out, "{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":", c->index));
    AVO_TRY(calls > 0 && c->text.size == 0 ? buffer_append_text(out, "null")
                                           : json_write_string(out, buffer_text(&c->text)));
    AVO_TRY(buffer_append_text(out, ",\"refusal\":null"));
    for (size_t i = 0; i < calls; i++) {
        AVO_TRY(buffer_append_text(out, i == 0 ? ",\"tool_calls\":[{" : ",{"));
        const tool_call *call = choice_call(c, i);
        AVO_TRY(write_call(c, i, call, call->arguments, out));
    }
    AVO_TRY(buffer_append_text(out, calls > 0 ? "]}" : "}"));
    AVO_TRY(write_logprobs(a, c, out));
    AVO_TRY(write_choice_end(c, out));
    return buffer_append_text(out, "}");
}

static avo_status chat_whole(answer *a, buffer *out) {
    AVO_TRY(write_head(a, "chat.completion", out));
    AVO_TRY(buffer_append_text(out, ",\"choices\":["));
    for (uint32_t i = 0; i < a->choice_count; i++) {
        if (i > 0)
            AVO_TRY(buffer_append_text(out, ","));
        AVO_TRY(write_message(a, &a->choices[i], out));
    }
    AVO_TRY(buffer_append_text(out, "],\"usage\":"));
    AVO_TRY(write_usage(a, out));
    return buffer_append_text(out, "}");
}

/* ---- Streams ---- */

static avo_status chat_token(answer *a, choice *c, const avo_token_event *token) {
    buffer *entries = &c->entries[0];
    if (entries->size > 0)
        AVO_TRY(buffer_append_text(entries, ","));
    return write_logprob_entry(a, token, entries);
}

static avo_status chunk_open(answer *a, choice *c, buffer *out) {
    AVO_TRY(buffer_append_text(out, "data: "));
    AVO_TRY(write_head(a, "chat.completion.chunk", out));
    return buffer_format(out, ",\"choices\":[{\"index\":%u,\"delta\":{", c->index);
}

/* The first piece of a choice names the role. */
static avo_status chunk_role(choice *c, buffer *out) {
    if (c->opened)
        return AVO_OK;
    c->opened = true;
    return buffer_append_text(out, "\"role\":\"assistant\",");
}

static avo_status chunk_close(answer *a, const char *end, buffer *out) {
    AVO_TRY(buffer_append_text(out, end));
    AVO_TRY(buffer_append_text(out, "}]"));
    if (a->request->include_usage)
        AVO_TRY(buffer_append_text(out, ",\"usage\":null"));
    return buffer_append_text(out, "}\n\n");
}

static avo_status chat_piece(answer *a, choice *c, text_view text, buffer *out) {
    AVO_TRY(chunk_open(a, c, out));
    AVO_TRY(chunk_role(c, out));
    AVO_TRY(write_member(out, "content", text));
    AVO_TRY(buffer_append_text(out, "}"));
    AVO_TRY(write_logprobs(a, c, out));
    return chunk_close(a, ",\"finish_reason\":null", out);
}

static avo_status chat_call_begin(answer *a, choice *c, size_t index, const tool_call *call,
                                  buffer *out) {
    AVO_TRY(chunk_open(a, c, out));
    AVO_TRY(chunk_role(c, out));
    AVO_TRY(buffer_format(out, "\"tool_calls\":[{\"index\":%zu,", index));
    AVO_TRY(write_call(c, index, call, (text_view){"", 0}, out));
    return chunk_close(a, "]},\"logprobs\":null,\"finish_reason\":null", out);
}

static avo_status chat_call_piece(answer *a, choice *c, size_t index, text_view arguments,
                                  buffer *out) {
    AVO_TRY(chunk_open(a, c, out));
    AVO_TRY(buffer_format(out, "\"tool_calls\":[{\"index\":%zu,\"function\":{", index));
    AVO_TRY(write_member(out, "arguments", arguments));
    return chunk_close(a, "}}]},\"logprobs\":null,\"finish_reason\":null", out);
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
    AVO_TRY(chunk_open(a, c, out));
    if (!c->opened)
        AVO_TRY(buffer_append_text(out, "\"role\":\"assistant\",\"content\":\"\""));
    c->opened = true;
    AVO_TRY(buffer_append_text(out, "}"));
    AVO_TRY(write_logprobs(a, c, out));
    AVO_TRY(write_choice_end(c, out));
    return chunk_close(a, "", out);
}

static avo_status chat_end(answer *a, buffer *out) {
    if (a->request->include_usage) {
        AVO_TRY(buffer_append_text(out, "data: "));
        AVO_TRY(write_head(a, "chat.completion.chunk", out));
        AVO_TRY(buffer_append_text(out, ",\"choices\":[],\"usage\":"));
        AVO_TRY(write_usage(a, out));
        AVO_TRY(buffer_append_text(out, "}\n\n"));
    }
    return buffer_append_text(out, "data: [DONE]\n\n");
}

static const answer_writer chat_writer = {.id_prefix = "chatcmpl-",
                                          .begin = stream_begin,
                                          .token = chat_token,
                                          .piece = chat_piece,
                                          .call_begin = chat_call_begin,
                                          .call_piece = chat_call_piece,
                                          .call_end = chat_call_end,
                                          .finish = chat_finish,
                                          .end = chat_end,
                                          .error = stream_error,
                                          .whole = chat_whole};

static void answer_chat(api *api, exchange *exchange) {
    const exchange_request *asked = exchange_asked(exchange);
    api_request *r = NULL;
    api_fault fault = {0};
    if (api_request_read(api, BODY_CHAT, asked->key, asked->body, &r, &fault))
        answer_start(api, exchange, r, &chat_writer);
    else
        api_fail(exchange, &fault);
}

void endpoint_chat(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_chat);
}
