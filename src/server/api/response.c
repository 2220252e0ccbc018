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

static void write_logprobs(json_writer *w, text_view entries) {
    json_member_array_begin(w, "logprobs");
    json_raw_items(w, entries);
    json_end(w);
}

static void write_part(json_writer *w, text_view text, text_view entries) {
    json_object_begin(w);
    json_member_string(w, "type", "output_text");
    json_member_text(w, "text", text);
    json_member_array_begin(w, "annotations");
    json_end(w);
    write_logprobs(w, entries);
    json_end(w);
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

static void write_text_item(json_writer *w, const answer *a, uint32_t index, const char *status) {
    char id[96];
    item_id(a, index, "msg_", id, sizeof(id));
    json_object_begin(w);
    json_member_string(w, "type", "message");
    json_member_string(w, "id", id);
    json_member_string(w, "status", status);
    json_member_string(w, "role", "assistant");
    json_member_array_begin(w, "content");
    if (strcmp(status, "in_progress") != 0)
        write_part(w, segment_text(a, index), segment_entries(a, index));
    json_end(w);
    json_end(w);
}

static void write_call_item(json_writer *w, const answer *a, uint32_t index, size_t call_index,
                            const tool_call *call, bool open) {
    char id[96], call_id[64];
    item_id(a, index, "fc_", id, sizeof(id));
    choice_call_id(&a->choices[0], call_index, "call_", call_id, sizeof(call_id));
    json_object_begin(w);
    json_member_string(w, "type", "function_call");
    json_member_string(w, "id", id);
    json_member_string(w, "call_id", call_id);
    json_member_string(w, "status", open ? "in_progress" : call->cut ? "incomplete" : "completed");
    json_member_text(w, "name", call->name);
    json_member_text(w, "arguments", open ? (text_view){"", 0} : call->arguments);
    json_end(w);
}

static const char *item_status(const choice *c) {
    return strcmp(finish_name(c), "length") == 0 ? "incomplete" : "completed";
}

static void write_output(json_writer *w, const answer *a) {
    const choice *c = &a->choices[0];
    for (uint32_t i = 0; i < a->segment_count; i++) {
        const segment *segment = &a->segments[i];
        bool last = i + 1 == a->segment_count;
        if (segment->is_call)
            write_call_item(w, a, i, segment->begin, choice_call(c, segment->begin), false);
        else
            write_text_item(w, a, i, last ? item_status(c) : "completed");
    }
}

/* ---- The response ---- */

/* What the request has said, as JSON; false: nothing, and the value is still to be written. */
static bool write_said(json_writer *w, const char *name, const char *json) {
    json_key(w, name);
    if (json != NULL)
        json_raw(w, text_from(json));
    return json != NULL;
}

/* The format of a request that asks for none. */
static void write_text_format(json_writer *w) {
    json_object_begin(w);
    json_member_object_begin(w, "format");
    json_member_string(w, "type", "text");
    json_end(w);
    json_end(w);
}

static void write_settings(json_writer *w, const answer *a) {
    const api_request *r = a->request;
    json_member_string(w, "instructions", r->instructions);
    if (!write_said(w, "tools", r->tools_json)) {
        json_array_begin(w);
        json_end(w);
    }
    if (!write_said(w, "tool_choice", r->tool_choice_json))
        json_string(w, "auto");
    if (!write_said(w, "metadata", r->metadata_json)) {
        json_object_begin(w);
        json_end(w);
    }
    if (!write_said(w, "text", r->format_json))
        write_text_format(w);
    json_member_boolean(w, "parallel_tool_calls", r->parallel_calls);
    json_member_float(w, "temperature", r->sampling.temperature);
    json_member_float(w, "top_p", r->sampling.top_p);
    if (r->submit.max_new_tokens > 0)
        json_member_u64(w, "max_output_tokens", r->submit.max_new_tokens);
    else
        json_member_null(w, "max_output_tokens");
    json_member_i64(w, "seed", (int64_t)r->sampling.seed);
    json_member_null(w, "previous_response_id");
    json_member_boolean(w, "store", false);
    json_member_string(w, "truncation", "disabled");
    json_member_boolean(w, "background", false);
}

static void write_response_usage(json_writer *w, const answer *a) {
    answer_usage usage = usage_of(a);
    json_member_object_begin(w, "usage");
    json_member_u64(w, "input_tokens", usage.prompt_tokens);
    json_member_object_begin(w, "input_tokens_details");
    json_member_u64(w, "cached_tokens", usage.cached_tokens);
    json_end(w);
    json_member_u64(w, "output_tokens", usage.new_tokens);
    json_member_object_begin(w, "output_tokens_details");
    json_member_u64(w, "reasoning_tokens", 0);
    write_drafts(w, &usage);
    json_end(w);
    json_member_u64(w, "total_tokens", usage.prompt_tokens + usage.new_tokens);
    write_timings(w, &usage);
    json_end(w);
}

static void write_failure(json_writer *w, const api_fault *fault) {
    if (fault == NULL) {
        json_member_null(w, "error");
        return;
    }
    json_member_object_begin(w, "error");
    json_member_string(w, "code", "server_error");
    json_member_string(w, "message", fault->text);
    json_end(w);
}

static void write_response(json_writer *w, const answer *a, const char *status,
                           const api_fault *fault) {
    bool told = strcmp(status, "in_progress") != 0 && fault == NULL;
    json_object_begin(w);
    json_member_string(w, "id", a->id);
    json_member_string(w, "object", "response");
    json_member_i64(w, "created_at", a->created);
    json_member_string(w, "status", status);
    json_member_string(w, "model", a->request->model);
    write_failure(w, fault);
    if (strcmp(status, "incomplete") == 0) {
        json_member_object_begin(w, "incomplete_details");
        json_member_string(w, "reason", "max_output_tokens");
        json_end(w);
    } else {
        json_member_null(w, "incomplete_details");
    }
    json_member_array_begin(w, "output");
    if (told)
        write_output(w, a);
    json_end(w);
    write_settings(w, a);
    if (told)
        write_response_usage(w, a);
    else
        json_member_null(w, "usage");
    json_end(w);
}

static avo_status response_whole(answer *a, buffer *out) {
    json_writer w = json_writer_of(out);
    write_response(&w, a, item_status(&a->choices[0]), NULL);
    return json_writer_status(&w);
}

/* ---- Streams ----
 * Of a whole answer the same functions keep its items, and say nothing. */

/* With its type and number; other members are to come. */
static json_writer begin(answer *a, const char *name, buffer *out) {
    char type[64];
    snprintf(type, sizeof(type), "response.%s", name);
    avo_status status = event_begin(out, type);
    json_writer w = json_writer_of(out);
    json_writer_note(&w, status);
    json_object_begin(&w);
    json_member_string(&w, "type", type);
    json_member_u64(&w, "sequence_number", a->sequence++);
    return w;
}

static avo_status end(json_writer *w) {
    json_end(w);
    return event_end(w);
}

static avo_status write_state(answer *a, const char *name, const char *status,
                              const api_fault *fault, buffer *out) {
    json_writer w = begin(a, name, out);
    json_key(&w, "response");
    write_response(&w, a, status, fault);
    return end(&w);
}

static avo_status response_begin(answer *a, buffer *out) {
    AVO_TRY(write_state(a, "created", "in_progress", NULL, out));
    return write_state(a, "in_progress", "in_progress", NULL, out);
}

static avo_status response_token(answer *a, choice *c, const avo_token_event *token) {
    return write_logprob_entry(a, token, &c->entries[0]);
}

/* An event about the text of the item that is open. */
static json_writer text_event(answer *a, const char *name, buffer *out) {
    char id[96];
    uint32_t index = a->segment_count - 1;
    item_id(a, index, "msg_", id, sizeof(id));
    json_writer w = begin(a, name, out);
    json_member_string(&w, "item_id", id);
    json_member_u64(&w, "output_index", index);
    json_member_u64(&w, "content_index", 0);
    return w;
}

/* The item itself follows. */
static json_writer item_event(answer *a, uint32_t index, const char *name, buffer *out) {
    json_writer w = begin(a, name, out);
    json_member_u64(&w, "output_index", index);
    json_key(&w, "item");
    return w;
}

static avo_status part_event(answer *a, const char *name, text_view text, text_view entries,
                             buffer *out) {
    json_writer w = text_event(a, name, out);
    json_key(&w, "part");
    write_part(&w, text, entries);
    return end(&w);
}

static avo_status open_text(answer *a, size_t begins, buffer *out) {
    size_t entry = a->entries.size;
    a->segments[a->segment_count++] = (segment){false, begins, begins, entry, entry};
    a->text_open = true;
    if (!a->streaming)
        return AVO_OK;
    json_writer w = item_event(a, a->segment_count - 1, "output_item.added", out);
    write_text_item(&w, a, a->segment_count - 1, "in_progress");
    AVO_TRY(end(&w));
    return part_event(a, "content_part.added", (text_view){"", 0}, (text_view){"", 0}, out);
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
    json_writer w = text_event(a, "output_text.delta", out);
    json_member_text(&w, "delta", text);
    write_logprobs(&w, buffer_text(&c->entries[0]));
    return end(&w);
}

static avo_status close_text(answer *a, const char *status, buffer *out) {
    if (!a->text_open)
        return AVO_OK;
    uint32_t index = a->segment_count - 1;
    text_view text = segment_text(a, index), entries = segment_entries(a, index);
    a->text_open = false;
    if (!a->streaming)
        return AVO_OK;
    json_writer w = text_event(a, "output_text.done", out);
    json_member_text(&w, "text", text);
    write_logprobs(&w, entries);
    AVO_TRY(end(&w));
    AVO_TRY(part_event(a, "content_part.done", text, entries, out));
    w = item_event(a, index, "output_item.done", out);
    write_text_item(&w, a, index, status);
    return end(&w);
}

static avo_status arguments_event(answer *a, const char *name, const char *member, text_view text,
                                  buffer *out) {
    char id[96];
    item_id(a, a->call_segment, "fc_", id, sizeof(id));
    json_writer w = begin(a, name, out);
    json_member_string(&w, "item_id", id);
    json_member_u64(&w, "output_index", a->call_segment);
    json_member_text(&w, member, text);
    return end(&w);
}

static avo_status call_event(answer *a, const char *name, size_t index, const tool_call *call,
                             bool open, buffer *out) {
    json_writer w = item_event(a, a->call_segment, name, out);
    write_call_item(&w, a, a->call_segment, index, call, open);
    return end(&w);
}

static avo_status response_call_begin(answer *a, choice *c, size_t index, const tool_call *call,
                                      buffer *out) {
    (void)c;
    AVO_TRY(close_text(a, "completed", out));
    if (a->segment_count >= SEGMENTS_MAX)
        return AVO_OK;
    a->call_segment = a->segment_count++;
    a->segments[a->call_segment] = (segment){.is_call = true, .begin = index};
    return a->streaming ? call_event(a, "output_item.added", index, call, true, out) : AVO_OK;
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
    return call_event(a, "output_item.done", index, call, false, out);
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
    answer_body(api, exchange, BODY_RESPONSE, &response_writer);
}

void endpoint_response(api *api, exchange *exchange) {
    helper_answer(api, exchange, answer_response);
}
