/* /v1/responses: items instead of messages, events with names. Nothing is kept between requests. */
#include "server/api/answer.h"
#include "server/api/helpers.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Parts ---- */

static void item_id(const answer *a, uint32_t index, const char *prefix, char *id,
                    size_t capacity) {
    const char *own = strchr(a->id, '_');
    snprintf(id, capacity, "%s%s%02x", prefix, own == NULL ? a->id : own + 1, index);
}

static avo_status write_logprobs(text_view entries, buffer *out) {
    AVO_TRY(buffer_append_text(out, ",\"logprobs\":["));
    AVO_TRY(buffer_append(out, entries.data, entries.size));
    return buffer_append_text(out, "]");
}

static avo_status write_part(text_view text, text_view entries, buffer *out) {
    AVO_TRY(buffer_append_text(out, "{\"type\":\"output_text\","));
    AVO_TRY(write_member(out, "text", text));
    AVO_TRY(buffer_append_text(out, ",\"annotations\":[]"));
    AVO_TRY(write_logprobs(entries, out));
    return buffer_append_text(out, "}");
}

static text_view segment_text(const answer *a, uint32_t index) {
    const segment *s = &a->segments[index];
    return (text_view){buffer_text(&a->choices[0].text).data + s->begin, s->end - s->begin};
}

static text_view segment_entries(const answer *a, uint32_t index) {
    const segment *s = &a->segments[index];
    return (text_view){buffer_text(&a->entries).data + s->first_entry,
                       s->entries_end - s->first_entry};
}

static avo_status write_text_item(const answer *a, uint32_t index, const char *status,
                                  buffer *out) {
    char id[96];
    item_id(a, index, "msg_", id, sizeof(id));
    AVO_TRY(buffer_format(out,
                          "{\"type\":\"message\",\"id\":\"%s\",\"status\":\"%s\",\"role\":"
                          "\"assistant\",\"content\":[",
                          id, status));
    if (strcmp(status, "in_progress") != 0)
        AVO_TRY(write_part(segment_text(a, index), segment_entries(a, index), out));
    return buffer_append_text(out, "]}");
}

static avo_status write_call_item(const answer *a, uint32_t index, size_t call_index,
                                  const tool_call *call, bool open, buffer *out) {
    const choice *c = &a->choices[0];
    char id[96], call_id[64];
    item_id(a, index, "fc_", id, sizeof(id));
    choice_call_id(c, call_index, "call_", call_id, sizeof(call_id));
    AVO_TRY(buffer_format(out,
                          "{\"type\":\"function_call\",\"id\":\"%s\",\"call_id\":\"%s\",\"status\":"
                          "\"%s\",",
                          id, call_id,
                          open        ? "in_progress"
                          : call->cut ? "incomplete"
                                      : "completed"));
    AVO_TRY(write_member(out, "name", call->name));
    AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(write_member(out, "arguments", open ? (text_view){"", 0} : call->arguments));
    return buffer_append_text(out, "}");
}

static const char *item_status(const choice *c) {
    return strcmp(finish_name(c), "length") == 0 ? "incomplete" : "completed";
}

static avo_status write_output(const answer *a, buffer *out) {
    const choice *c = &a->choices[0];
    for (uint32_t i = 0; i < a->segment_count; i++) {
        const segment *segment = &a->segments[i];
        bool last = i + 1 == a->segment_count;
        if (i > 0)
            AVO_TRY(buffer_append_text(out, ","));
        AVO_TRY(segment->is_call ? write_call_item(a, i, segment->begin,
                                                   choice_call(c, segment->begin), false, out)
                                 : write_text_item(a, i, last ? item_status(c) : "completed", out));
    }
    return AVO_OK;
}

/* ---- The response ---- */

static avo_status write_or(buffer *out, const char *name, const char *json, const char *otherwise) {
    AVO_TRY(buffer_format(out, ",\"%s\":", name));
    return buffer_append_text(out, json == NULL ? otherwise : json);
}

static avo_status write_settings(const answer *a, buffer *out) {
    const api_request *r = a->request;
    AVO_TRY(buffer_append_text(out, ",\"instructions\":"));
    AVO_TRY(r->instructions == NULL ? buffer_append_text(out, "null")
                                    : json_write_string(out, text_from(r->instructions)));
    AVO_TRY(write_or(out, "tools", r->tools_json, "[]"));
    AVO_TRY(write_or(out, "tool_choice", r->tool_choice_json, "\"auto\""));
    AVO_TRY(write_or(out, "metadata", r->metadata_json, "{}"));
    AVO_TRY(write_or(out, "text", r->format_json, "{\"format\":{\"type\":\"text\"}}"));
    AVO_TRY(buffer_format(
        out, ",\"parallel_tool_calls\":%s,\"temperature\":", r->parallel_calls ? "true" : "false"));
    AVO_TRY(write_float(out, r->sampling.temperature));
    AVO_TRY(buffer_append_text(out, ",\"top_p\":"));
    AVO_TRY(write_float(out, r->sampling.top_p));
    if (r->submit.max_new_tokens > 0)
        AVO_TRY(buffer_format(out, ",\"max_output_tokens\":%u", r->submit.max_new_tokens));
    else
        AVO_TRY(buffer_append_text(out, ",\"max_output_tokens\":null"));
    return buffer_format(out,
                         ",\"seed\":%lld,\"previous_response_id\":null,\"store\":false,"
                         "\"truncation\":\"disabled\",\"background\":false",
                         (long long)r->sampling.seed);
}

static avo_status write_response_usage(const answer *a, buffer *out) {
    answer_usage usage = usage_of(a);
    AVO_TRY(buffer_format(out,
                          ",\"usage\":{\"input_tokens\":%llu,\"input_tokens_details\":"
                          "{\"cached_tokens\":%llu},\"output_tokens\":%llu,"
                          "\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":"
                          "%llu,",
                          (unsigned long long)usage.prompt_tokens,
                          (unsigned long long)usage.cached_tokens,
                          (unsigned long long)usage.new_tokens,
                          (unsigned long long)(usage.prompt_tokens + usage.new_tokens)));
    AVO_TRY(write_timings(&usage, out));
    return buffer_append_text(out, "}");
}

static avo_status write_response(const answer *a, const char *status, const api_fault *fault,
                                 buffer *out) {
    bool ended = strcmp(status, "in_progress") != 0;
    AVO_TRY(buffer_format(out,
                          "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":"
                          "\"%s\",",
                          a->id, (long long)a->created, status));
    AVO_TRY(write_member(out, "model", text_from(a->request->model)));
    AVO_TRY(buffer_append_text(out, ",\"error\":"));
    if (fault != NULL) {
        AVO_TRY(buffer_append_text(out, "{\"code\":\"server_error\","));
        AVO_TRY(write_member(out, "message", text_from(fault->text)));
        AVO_TRY(buffer_append_text(out, "}"));
    } else {
        AVO_TRY(buffer_append_text(out, "null"));
    }
    AVO_TRY(buffer_append_text(out, strcmp(status, "incomplete") == 0
                                        ? ",\"incomplete_details\":{\"reason\":"
                                          "\"max_output_tokens\"}"
                                        : ",\"incomplete_details\":null"));
    AVO_TRY(buffer_append_text(out, ",\"output\":["));
    if (ended && fault == NULL)
        AVO_TRY(write_output(a, out));
    AVO_TRY(buffer_append_text(out, "]"));
    AVO_TRY(write_settings(a, out));
    if (ended && fault == NULL)
        AVO_TRY(write_response_usage(a, out));
    else
        AVO_TRY(buffer_append_text(out, ",\"usage\":null"));
    return buffer_append_text(out, "}");
}

static avo_status response_whole(answer *a, buffer *out) {
    return write_response(a, item_status(&a->choices[0]), NULL, out);
}

/* ---- Streams ----
 * Of a whole answer the same functions keep its items, and say nothing. */

static avo_status event_open(answer *a, const char *name, buffer *out) {
    return buffer_format(out,
                         "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":"
                         "%u",
                         name, name, a->sequence++);
}

static avo_status event_close(buffer *out) {
    return buffer_append_text(out, "}\n\n");
}

static avo_status write_state(answer *a, const char *name, const char *status,
                              const api_fault *fault, buffer *out) {
    AVO_TRY(event_open(a, name, out));
    AVO_TRY(buffer_append_text(out, ",\"response\":"));
    AVO_TRY(write_response(a, status, fault, out));
    return event_close(out);
}

static avo_status response_begin(answer *a, buffer *out) {
    AVO_TRY(write_state(a, "created", "in_progress", NULL, out));
    return write_state(a, "in_progress", "in_progress", NULL, out);
}

static avo_status response_token(answer *a, choice *c, const avo_token_event *token) {
    buffer *entries = &c->entries[0];
    if (entries->size > 0)
        AVO_TRY(buffer_append_text(entries, ","));
    return write_logprob_entry(a, token, entries);
}

/* An event about the text of the item that is open. */
static avo_status text_event(answer *a, const char *name, buffer *out) {
    char id[96];
    uint32_t index = a->segment_count - 1;
    item_id(a, index, "msg_", id, sizeof(id));
    AVO_TRY(event_open(a, name, out));
    return buffer_format(out, ",\"item_id\":\"%s\",\"output_index\":%u,\"content_index\":0", id,
                         index);
}

static avo_status item_event(answer *a, uint32_t index, const char *name, buffer *out) {
    AVO_TRY(event_open(a, name, out));
    return buffer_format(out, ",\"output_index\":%u,\"item\":", index);
}

static avo_status open_text(answer *a, size_t begin, buffer *out) {
    size_t entry = a->entries.size;
    a->segments[a->segment_count++] = (segment){false, begin, begin, entry, entry};
    a->text_open = true;
    if (!a->streaming)
        return AVO_OK;
    AVO_TRY(item_event(a, a->segment_count - 1, "output_item.added", out));
    AVO_TRY(write_text_item(a, a->segment_count - 1, "in_progress", out));
    AVO_TRY(event_close(out));
    AVO_TRY(text_event(a, "content_part.added", out));
    AVO_TRY(buffer_append_text(out, ",\"part\":"));
    AVO_TRY(write_part((text_view){"", 0}, (text_view){"", 0}, out));
    return event_close(out);
}

/* What has come since the last text becomes the open one's. */
static avo_status keep_entries(answer *a, const buffer *entries) {
    segment *s = &a->segments[a->segment_count - 1];
    if (entries->size > 0 && s->entries_end > s->first_entry)
        AVO_TRY(buffer_append_text(&a->entries, ","));
    AVO_TRY(buffer_append(&a->entries, buffer_text(entries).data, entries->size));
    s->entries_end = a->entries.size;
    return AVO_OK;
}

static avo_status response_piece(answer *a, choice *c, text_view text, buffer *out) {
    if (!a->text_open) {
        if (a->segment_count >= SEGMENTS_MAX)
            return AVO_OK;
        AVO_TRY(open_text(a, c->text.size - text.size, out));
    }
    a->segments[a->segment_count - 1].end = c->text.size;
    AVO_TRY(keep_entries(a, &c->entries[0]));
    if (!a->streaming)
        return AVO_OK;
    AVO_TRY(text_event(a, "output_text.delta", out));
    AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(write_member(out, "delta", text));
    AVO_TRY(write_logprobs(buffer_text(&c->entries[0]), out));
    return event_close(out);
}

static avo_status close_text(answer *a, const char *status, buffer *out) {
    if (!a->text_open)
        return AVO_OK;
    uint32_t index = a->segment_count - 1;
    text_view text = segment_text(a, index), entries = segment_entries(a, index);
    a->text_open = false;
    if (!a->streaming)
        return AVO_OK;
    AVO_TRY(text_event(a, "output_text.done", out));
    AVO_TRY(buffer_append_text(out, ","));
    AVO_TRY(write_member(out, "text", text));
    AVO_TRY(write_logprobs(entries, out));
    AVO_TRY(event_close(out));
    AVO_TRY(text_event(a, "content_part.done", out));
    AVO_TRY(buffer_append_text(out, ",\"part\":"));
    AVO_TRY(write_part(text, entries, out));
    AVO_TRY(event_close(out));
    AVO_TRY(item_event(a, index, "output_item.done", out));
    AVO_TRY(write_text_item(a, index, status, out));
    return event_close(out);
}

static avo_status arguments_event(answer *a, const char *name, const char *member, text_view text,
                                  buffer *out) {
    char id[96];
    item_id(a, a->call_segment, "fc_", id, sizeof(id));
    AVO_TRY(event_open(a, name, out));
    AVO_TRY(buffer_format(out, ",\"item_id\":\"%s\",\"output_index\":%u,", id, a->call_segment));
    AVO_TRY(write_member(out, member, text));
    return event_close(out);
}

static avo_status response_call_begin(answer *a, choice *c, size_t index, const tool_call *call,
                                      buffer *out) {
    (void)c;
    AVO_TRY(close_text(a, "completed", out));
    if (a->segment_count >= SEGMENTS_MAX)
        return AVO_OK;
    a->call_segment = a->segment_count++;
    a->segments[a->call_segment] = (segment){.is_call = true, .begin = index};
    if (!a->streaming)
        return AVO_OK;
    AVO_TRY(item_event(a, a->call_segment, "output_item.added", out));
    AVO_TRY(write_call_item(a, a->call_segment, index, call, true, out));
    return event_close(out);
}

static avo_status response_call_piece(answer *a, choice *c, size_t index, text_view arguments,
                                      buffer *out) {
    (void)c;
    (void)index;
    if (!a->streaming)
        return AVO_OK;
    return arguments_event(a, "function_call_arguments.delta", "delta", arguments, out);
}

static avo_status response_call_end(answer *a, choice *c, size_t index, const tool_call *call,
                                    buffer *out) {
    c->entries[0].size = 0; /* they were the call's, which tells none */
    if (!a->streaming)
        return AVO_OK;
    AVO_TRY(arguments_event(a, "function_call_arguments.done", "arguments", call->arguments, out));
    AVO_TRY(item_event(a, a->call_segment, "output_item.done", out));
    AVO_TRY(write_call_item(a, a->call_segment, index, call, false, out));
    return event_close(out);
}

static avo_status response_finish(answer *a, choice *c, buffer *out) {
    if (a->segment_count == 0)
        AVO_TRY(open_text(a, 0, out));
    if (a->text_open && c->entries[0].size > 0) /* of tokens without a text, at the end */
        AVO_TRY(response_piece(a, c, (text_view){"", 0}, out));
    return close_text(a, item_status(c), out);
}

static avo_status response_end(answer *a, buffer *out) {
    const char *status = item_status(&a->choices[0]);
    return write_state(a, status, status, NULL, out);
}

static avo_status response_error(answer *a, const api_fault *fault, buffer *out) {
    return write_state(a, "failed", "failed", fault, out);
}

static const answer_writer response_writer = {.id_prefix = "resp_",
                                              .in_order = true,
                                              .begin = response_begin,
                                              .token = response_token,
                                              .piece = response_piece,
                                              .call_begin = response_call_begin,
                                              .call_piece = response_call_piece,
                                              .call_end = response_call_end,
                                              .finish = response_finish,
                                              .end = response_end,
                                              .error = response_error,
                                              .whole = response_whole};

static void answer_response(api *api, exchange *exchange) {
    const exchange_request *asked = exchange_asked(exchange);
    api_request *r = NULL;
    api_fault fault = {0};
    if (api_request_read(api, BODY_RESPONSE, asked->key, asked->body, &r, &fault))
        answer_start(api, exchange, r, &response_writer);
    else
        api_fail(exchange, &fault);
}

void endpoint_response(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_response);
}
