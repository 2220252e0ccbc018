/* A client of HTTP/2 that keeps what it is told: nghttp2's, fed by hand. */
#ifndef AVO_TESTS_SERVER_HTTP2_CLIENT_H
#define AVO_TESTS_SERVER_HTTP2_CLIENT_H

#include "support/support.h"

#include "base/buffer.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>

#define STREAMS_MAX 1024u

typedef struct reply {
    int32_t id;
    char status[8], grpc[8], message[200], type[64];
    bool closed, bare; /* bare: ended by its only head */
    uint32_t code;
    buffer data;
    buffer body; /* to be sent */
    size_t body_at;
    bool body_goes_on;
} reply;

static struct {
    nghttp2_session *session;
    reply replies[STREAMS_MAX];
    unsigned count;
    uint32_t goaway; /* its code + 1 */
} client;

static inline reply *reply_of(int32_t id) {
    for (unsigned i = 0; i < client.count; i++)
        if (client.replies[i].id == id)
            return &client.replies[i];
    return NULL;
}

static inline void keep(char *place, size_t capacity, const uint8_t *value, size_t size) {
    snprintf(place, capacity, "%.*s", (int)size, (const char *)value);
}

static inline int see_header(nghttp2_session *session, const nghttp2_frame *frame,
                             const uint8_t *name, size_t name_size, const uint8_t *value,
                             size_t size, uint8_t flags, void *context) {
    (void)session;
    (void)flags;
    (void)context;
    reply *reply = reply_of(frame->hd.stream_id);
    text_view key = {(const char *)name, name_size};
    if (text_is(key, ":status"))
        keep(reply->status, sizeof(reply->status), value, size);
    else if (text_is(key, "grpc-status"))
        keep(reply->grpc, sizeof(reply->grpc), value, size);
    else if (text_is(key, "grpc-message"))
        keep(reply->message, sizeof(reply->message), value, size);
    else if (text_is(key, "content-type"))
        keep(reply->type, sizeof(reply->type), value, size);
    return 0;
}

static inline int see_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
    (void)session;
    (void)context;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_RESPONSE)
        reply_of(frame->hd.stream_id)->bare = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    return 0;
}

static inline int see_data(nghttp2_session *session, uint8_t flags, int32_t id,
                           const uint8_t *bytes, size_t size, void *context) {
    (void)session;
    (void)flags;
    (void)context;
    assert_ok(buffer_append(&reply_of(id)->data, bytes, size));
    return 0;
}

static inline int see_close(nghttp2_session *session, int32_t id, uint32_t code, void *context) {
    (void)session;
    (void)context;
    reply *reply = reply_of(id);
    if (reply != NULL) {
        reply->closed = true;
        reply->code = code;
    }
    return 0;
}

static inline ssize_t give_body(nghttp2_session *session, int32_t id, uint8_t *bytes,
                                size_t maximum, uint32_t *flags, nghttp2_data_source *source,
                                void *context) {
    (void)session;
    (void)id;
    (void)context;
    reply *reply = source->ptr;
    size_t left = reply->body.size - reply->body_at, got = left < maximum ? left : maximum;
    if (got > 0)
        memcpy(bytes, reply->body.data + reply->body_at, got);
    reply->body_at += got;
    if (got == 0 && reply->body_goes_on)
        return NGHTTP2_ERR_DEFERRED;
    if (reply->body_at == reply->body.size && !reply->body_goes_on)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)got;
}

static inline void client_begin(uint32_t window) {
    nghttp2_session_callbacks *calls;
    memset(&client, 0, sizeof(client));
    nghttp2_session_callbacks_new(&calls);
    nghttp2_session_callbacks_set_on_header_callback(calls, see_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, see_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, see_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, see_close);
    nghttp2_option *option;
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, window != 0);
    assert_int_equal(nghttp2_session_client_new2(&client.session, calls, NULL, option), 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(calls);
    nghttp2_settings_entry setting = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
    nghttp2_submit_settings(client.session, 0, &setting, window != 0);
}

static inline void client_end(void) {
    nghttp2_session_del(client.session);
    for (unsigned i = 0; i < client.count; i++) {
        buffer_free(&client.replies[i].data);
        buffer_free(&client.replies[i].body);
    }
}

/* What the server says last, whatever the client makes of the frames before it. */
static inline void look_for_goaway(text_view frames) {
    while (frames.size >= 9) {
        const unsigned char *b = (const unsigned char *)frames.data;
        size_t size = (size_t)b[0] << 16 | (size_t)b[1] << 8 | b[2];
        assert_true(frames.size >= 9 + size);
        if (b[3] == NGHTTP2_GOAWAY && size >= 8)
            client.goaway =
                ((uint32_t)b[13] << 24 | (uint32_t)b[14] << 16 | (uint32_t)b[15] << 8 | b[16]) + 1;
        frames.data += 9 + size;
        frames.size -= 9 + size;
    }
    assert_int_equal(frames.size, 0);
}

#define FIELD(name, value)                                                                         \
    { (uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), strlen(name), strlen(value), 0 }

static inline reply *request(const char *method, const char *path, const char *type, text_view body,
                             bool goes_on) {
    const nghttp2_nv fields[] = {FIELD(":method", method), FIELD(":scheme", "http"),
                                 FIELD(":path", path), FIELD(":authority", "localhost"),
                                 FIELD("content-type", type)};
    assert_true(client.count < STREAMS_MAX);
    reply *reply = &client.replies[client.count++];
    buffer_init(&reply->data, NULL, SIZE_MAX);
    buffer_init(&reply->body, NULL, SIZE_MAX);
    assert_ok(buffer_append(&reply->body, body.data, body.size));
    reply->body_goes_on = goes_on;
    nghttp2_data_provider provider = {.source.ptr = reply, .read_callback = give_body};
    bool has_body = body.size > 0 || goes_on;
    reply->id =
        nghttp2_submit_request(client.session, NULL, fields, 5, has_body ? &provider : NULL, NULL);
    assert_true(reply->id > 0);
    return reply;
}

static inline reply *grpc(const char *path, text_view body, bool goes_on) {
    return request("POST", path, "application/grpc", body, goes_on);
}

static inline void go_on(reply *reply, text_view body, bool goes_on) {
    assert_ok(buffer_append(&reply->body, body.data, body.size));
    reply->body_goes_on = goes_on;
    nghttp2_session_resume_data(client.session, reply->id);
}

#endif
