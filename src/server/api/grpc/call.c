/* One call of gRPC as a request of the REST API. The endpoint sees an exchange of ours (`inner`):
 * it reads JSON from it and says JSON into it, whole or as events, and every answer and event
 * becomes a message of the client's. Everything else, the client's going among it, is the outer
 * exchange's. Calls come in the order in which the endpoint makes them, one at a time. */
#include "server/api/grpc/grpc_int.h"

#include "base/clock.h"
#include "server/api/grpc/gzip.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static grpc_call *call_of(exchange *inner) {
    return (grpc_call *)(void *)inner;
}

/* ---- Messages to the client ---- */

/* The newest message in `out`, whose prefix is at `at`, in its compressed form if that is shorter.
 */
static avo_status compress(grpc_call *call, size_t at) {
    char *message = call->out.data + at + GRPC_PREFIX_BYTES;
    size_t size = call->out.size - at - GRPC_PREFIX_BYTES;
    buffer packed;
    buffer_init(&packed, NULL, size);
    avo_status status = gzip_deflate((bytes_view){(const uint8_t *)message, size}, &packed);
    if (status == AVO_OK) {
        memcpy(message, packed.data, packed.size);
        grpc_prefix_write(call->out.data + at, packed.size);
        call->out.data[at] = 1;
        call->out.size = at + GRPC_PREFIX_BYTES + packed.size;
    }
    buffer_free(&packed);
    return status == AVO_ERROR_LIMIT ? AVO_OK : status; /* not shorter */
}

/* Behind what is in `out` already. */
static avo_status append_message(grpc_call *call, const json_value *message, avo_error *error) {
    char prefix[GRPC_PREFIX_BYTES] = {0};
    size_t at = call->out.size;
    AVO_TRY(buffer_append(&call->out, prefix, sizeof(prefix)));
    AVO_TRY(proto_write(call->method->output, message, &call->out, error));
    size_t size = call->out.size - at - sizeof(prefix);
    if (size > UINT32_MAX)
        return AVO_ERROR_LIMIT;
    grpc_prefix_write(call->out.data + at, size);
    return call->gzip && size >= GRPC_GZIP_BYTES_MIN ? compress(call, at) : AVO_OK;
}

static void begin_stream(grpc_call *call) {
    if (call->streaming)
        return;
    call->streaming = true;
    if (call->gzip)
        exchange_set_header(call->outer, "grpc-encoding", "gzip");
    exchange_stream(call->outer, 200, "application/grpc");
}

static bool write_out(grpc_call *call) {
    begin_stream(call);
    bool works = call->out.size == 0 || exchange_write(call->outer, buffer_text(&call->out));
    call->out.size = 0;
    return works;
}

/* An answer could not be told: that is our fault, or there was no memory. */
static void break_call(grpc_call *call, avo_status status, const char *text) {
    call->broken = true;
    if (status == AVO_ERROR_FORMAT)
        grpc_call_fail(call, 500, text);
    else
        grpc_call_fail(call, 503, "out of memory");
}

bool grpc_call_write(grpc_call *call, const json_value *message) {
    avo_error error = {0};
    avo_status status = append_message(call, message, &error);
    if (status == AVO_OK)
        return write_out(call);
    call->out.size = 0;
    break_call(call, status, error.text);
    return false;
}

void grpc_call_end(grpc_call *call) {
    begin_stream(call);
    exchange_end(call->outer);
}

void grpc_call_tell(grpc_call *call, const json_value *message) {
    (void)grpc_call_write(call, message);
    if (!call->broken)
        grpc_call_end(call);
}

void grpc_call_fail(grpc_call *call, unsigned status, const char *text) {
    if (!call->broken && call->infer != NULL && (call->entry->kind & SERVER_CALL_CONVERSES) != 0) {
        infer_fail(call, text); /* the stream goes on */
        return;
    }
    exchange_set_failed(call->outer, status, text);
    if (call->streaming)
        exchange_end(call->outer);
    else
        exchange_send(call->outer, status, "application/grpc", (text_view){"", 0});
}

/* ---- Answers of the endpoint ---- */

/* One object of JSON as a message into `out`. */
static avo_status append_answer(grpc_call *call, text_view json, avo_error *error) {
    json_value answer, message;
    bool told = true;
    arena_reset(&call->parts);
    AVO_TRY(json_parse(&call->parts, json, &answer, error));
    message = answer;
    if (call->convert != NULL)
        AVO_TRY(call->convert(call, &answer, &message, &told));
    return told ? append_message(call, &message, error) : AVO_OK;
}

/* The client's deadline counts, even where the answer came to an end by it. */
static bool is_late(const grpc_call *call) {
    uint64_t arrived = exchange_asked(call->outer)->arrived_ns;
    return call->timeout > 0.0 && clock_seconds(arrived, clock_now_ns()) >= call->timeout;
}

#define TOO_LATE "the deadline passed before the answer was complete"

static void inner_send(exchange *inner, unsigned status, const char *type, text_view body) {
    grpc_call *call = call_of(inner);
    avo_error error = {0};
    if (status >= 300) /* exchange_fail has told the text */
        return;
    if (is_late(call)) {
        grpc_call_fail(call, 504, TOO_LATE);
        return;
    }
    avo_status told;
    if (strncmp(type, "application/json", 16) == 0) {
        told = append_answer(call, body, &error);
    } else {
        json_member text = {TEXT_LITERAL("message"), tree_text(body)};
        json_value message = tree_object(&text, 1);
        told = append_message(call, &message, &error);
    }
    if (told != AVO_OK) {
        call->out.size = 0;
        break_call(call, told, error.text);
        return;
    }
    (void)write_out(call);
    grpc_call_end(call);
}

/* exchange_fail: the text comes first, then a status with nothing behind it; in a stream an event
 * and the end, which say no more. */
static void inner_set_failed(exchange *inner, unsigned status, const char *text) {
    grpc_call *call = call_of(inner);
    if (call->broken)
        return;
    grpc_call_fail(call, status, text);
    call->broken = true;
}

static void inner_stream(exchange *inner, unsigned status, const char *type) {
    (void)status;
    (void)type;
    begin_stream(call_of(inner));
}

/* Whole events, as the writers of the API make them. */
static avo_status append_events(grpc_call *call, text_view events, avo_error *error) {
    while (events.size > 0) {
        const char *end = memmem(events.data, events.size, "\n\n", 2);
        size_t size = end == NULL ? events.size : (size_t)(end - events.data);
        text_view event = {events.data, size};
        if (text_take(&event, "data: ") && !text_is(event, "[DONE]"))
            AVO_TRY(append_answer(call, event, error));
        size += end == NULL ? 0 : 2;
        events.data += size;
        events.size -= size;
    }
    return AVO_OK;
}

static bool inner_write(exchange *inner, text_view bytes) {
    grpc_call *call = call_of(inner);
    avo_error error = {0};
    if (call->broken)
        return false;
    avo_status status = append_events(call, bytes, &error);
    if (status == AVO_OK)
        return write_out(call);
    call->out.size = 0;
    break_call(call, status, error.text);
    return false;
}

static void inner_end(exchange *inner) {
    grpc_call *call = call_of(inner);
    if (call->broken)
        return;
    if (is_late(call))
        grpc_call_fail(call, 504, TOO_LATE);
    else
        grpc_call_end(call);
}

static const char *inner_header(exchange *inner, const char *name) {
    return exchange_header(call_of(inner)->outer, name);
}

static const char *inner_query(exchange *inner, const char *name) {
    (void)inner;
    (void)name;
    return NULL;
}

static void inner_share(exchange *inner) {
    atomic_fetch_add_explicit(&call_of(inner)->references, 1, memory_order_relaxed);
}

static void inner_release(exchange *inner) {
    grpc_call *call = call_of(inner);
    if (atomic_fetch_sub_explicit(&call->references, 1, memory_order_acq_rel) != 1)
        return;
    infer_close(call->infer);
    buffer_free(&call->plain);
    buffer_free(&call->body);
    buffer_free(&call->out);
    arena_free(&call->texts);
    arena_free(&call->parts);
    exchange_release(call->outer);
    free(call);
}

/* What concerns HTTP's caches and proxies is not for clients of gRPC. */
static void inner_set_header(exchange *inner, const char *name, const char *value) {
    if (strcasecmp(name, "Retry-After") == 0 && !call_of(inner)->streaming &&
        (call_of(inner)->entry->kind & SERVER_CALL_CONVERSES) == 0)
        exchange_set_header(call_of(inner)->outer, name, value);
}

static void inner_on_gone(exchange *inner, exchange_gone_function gone, void *context) {
    exchange_on_gone(call_of(inner)->outer, gone, context);
}

static bool inner_gone(exchange *inner) {
    return exchange_gone(call_of(inner)->outer);
}

static void inner_set_usage(exchange *inner, const exchange_usage *usage) {
    exchange_set_usage(call_of(inner)->outer, usage);
}

static void inner_set_prompt(exchange *inner, text_view prompt) {
    exchange_set_prompt(call_of(inner)->outer, prompt);
}

static const exchange_methods methods = {.header = inner_header,
                                         .query = inner_query,
                                         .share = inner_share,
                                         .release = inner_release,
                                         .set_header = inner_set_header,
                                         .send = inner_send,
                                         .stream = inner_stream,
                                         .write = inner_write,
                                         .end = inner_end,
                                         .on_gone = inner_on_gone,
                                         .gone = inner_gone,
                                         .set_usage = inner_set_usage,
                                         .set_failed = inner_set_failed,
                                         .set_prompt = inner_set_prompt};

/* ---- Calls ---- */

grpc_call *grpc_call_open(api *api, exchange *outer, const grpc_entry *entry,
                          const proto_method *method) {
    grpc_call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return NULL;
    call->inner.methods = &methods;
    call->inner.asked = *exchange_asked(outer);
    call->outer = exchange_share(outer);
    call->api = api;
    call->entry = entry;
    call->method = method;
    atomic_init(&call->references, 1);
    arena_init(&call->texts, NULL, GRPC_TREE_BYTES_FIXED);
    arena_init(&call->parts, NULL, API_ANSWER_BYTES_MAX);
    buffer_init(&call->body, NULL, API_TEXT_BYTES_MAX);
    buffer_init(&call->out, NULL, API_ANSWER_BYTES_MAX);
    return call;
}

void grpc_call_release(grpc_call *call) {
    inner_release(&call->inner);
}

/* The shorter of the message's deadline and the call's. */
static double deadline_of(const grpc_call *call, const json_value *message) {
    const json_value *own = json_find(message, "deadline_ms");
    double left = call->timeout * 1e3;
    double given = own == NULL                 ? 0.0
                   : own->kind == JSON_INTEGER ? (double)own->integer
                                               : own->number;
    return given > 0.0 && given < left ? given : left;
}

static avo_status write_body(grpc_call *call, const json_value *message) {
    bool timed = call->timeout > 0.0 && call->entry->generates;
    json_writer w = json_writer_of(&call->body);
    json_object_begin(&w);
    for (size_t i = 0; i < message->object.count; i++) {
        const json_member *member = &message->object.members[i];
        if (timed && text_is(member->key, "deadline_ms"))
            continue;
        json_key_text(&w, member->key);
        json_tree(&w, &member->value);
    }
    if (timed)
        json_member_number(&w, "deadline_ms", deadline_of(call, message));
    json_end(&w);
    return json_writer_status(&w);
}

void grpc_call_forward(grpc_call *call, const json_value *message) {
    if (write_body(call, message) != AVO_OK || buffer_terminate(&call->body) != AVO_OK) {
        grpc_call_fail(call, 503, "out of memory");
        return;
    }
    exchange_request *asked = &call->inner.asked;
    asked->method = call->entry->http_method;
    asked->path = call->entry->http_path;
    asked->body = buffer_text(&call->body);
    api_answer_route(call->api, &call->inner);
}
