/* Answers: headers, bytes as the client's windows have room, trailers of gRPC. An answer of gRPC
 * has the status 200 whatever it says; what HTTP would have said is in its trailers, translated. */
#include "server/transport/nghttp2/nghttp2_int.h"

#include <ctype.h>
#include <stdio.h>

#define FIELDS_MAX 32u

/* ---- Headers ---- */

/* Names must be small letters, and values live until nghttp2 has copied them. */
typedef struct field_list {
    nghttp2_nv items[FIELDS_MAX];
    size_t count;
    buffer names;
    bool good;
} field_list;

static void add_field(void *context, const char *name, const char *value) {
    field_list *list = context;
    size_t at = list->names.size, length = strlen(name);
    if (list->count == FIELDS_MAX || buffer_reserve(&list->names, length) != AVO_OK) {
        list->good = false;
        return;
    }
    for (size_t i = 0; i < length; i++)
        list->names.data[at + i] = (char)tolower((unsigned char)name[i]);
    list->names.size += length;
    /* The name's place is filled in when all names are there: the buffer moves as it grows. */
    list->items[list->count++] = (nghttp2_nv){.name = NULL,
                                              .value = (uint8_t *)(uintptr_t)value,
                                              .namelen = length,
                                              .valuelen = strlen(value),
                                              .flags = NGHTTP2_NV_FLAG_NONE};
}

static void place_names(field_list *list) {
    size_t at = 0;
    for (size_t i = 0; i < list->count; i++) {
        list->items[i].name = (uint8_t *)list->names.data + at;
        at += list->items[i].namelen;
    }
}

static void list_init(field_list *list) {
    list->count = 0;
    list->good = true;
    buffer_init(&list->names, NULL, 4096);
}

/* ---- The end ---- */

typedef struct ending {
    char status[16];
    buffer text;
} ending;

/* grpc-status and grpc-message. */
static void add_status(field_list *list, const carried *exchange, ending *end) {
    unsigned http = exchange == NULL               ? 200
                    : exchange->failed_status != 0 ? exchange->failed_status
                                                   : exchange->status;
    snprintf(end->status, sizeof(end->status), "%u", grpc_status_of(http));
    add_field(list, "grpc-status", end->status);
    const char *text = exchange == NULL ? NULL : exchange->failed_text;
    if (text != NULL && grpc_text_write(text, &end->text) == AVO_OK &&
        buffer_terminate(&end->text) == AVO_OK)
        add_field(list, "grpc-message", end->text.data == NULL ? "" : end->text.data);
}

static int submit_trailers(h2_stream *stream, const carried *exchange) {
    field_list list;
    ending end;
    list_init(&list);
    buffer_init(&end.text, NULL, 4 * GRPC_TEXT_BYTES_MAX);
    add_status(&list, exchange, &end);
    place_names(&list);
    int result =
        nghttp2_submit_trailer(stream->connection->session, stream->id, list.items, list.count);
    buffer_free(&list.names);
    buffer_free(&end.text);
    return result;
}

/* ---- Bytes ---- */

typedef struct piece {
    size_t got;
    bool last, broken, later;
} piece;

/* The lock is held. */
static piece take(h2_exchange *own, char *bytes, size_t maximum) {
    carried *exchange = &own->http;
    piece taken = {0};
    if (exchange->streams) {
        carried_more more = carried_read(exchange, bytes, maximum, &taken.got);
        taken.broken = more == CARRIED_ERROR;
        taken.later = more == CARRIED_LATER;
        taken.last =
            more == CARRIED_END || (exchange->phase == CARRIED_DONE && exchange->pending.size == 0);
        return taken;
    }
    size_t left = exchange->whole.size - own->whole_at;
    taken.got = left < maximum ? left : maximum;
    if (taken.got > 0)
        memcpy(bytes, exchange->whole.data + own->whole_at, taken.got);
    own->whole_at += taken.got;
    taken.last = taken.got == left;
    return taken;
}

static bool goes_on(const h2_stream *stream, const carried *exchange) {
    return (stream->call & SERVER_CALL_CONVERSES) != 0 && exchange->failed_status == 0 &&
           exchange->status < 300;
}

static ssize_t finish(h2_stream *stream, const carried *exchange, size_t got, uint32_t *flags) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    stream->finished = true;
    if (!stream->grpc)
        return (ssize_t)got;
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return submit_trailers(stream, exchange) == 0 ? (ssize_t)got
                                                  : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *bytes, size_t maximum,
                           uint32_t *flags, nghttp2_data_source *source, void *context) {
    (void)session;
    (void)id;
    h2_stream *stream = source->ptr;
    h2_exchange *own = stream->exchange;
    h2_connection *connection = context;
    if (own == NULL) /* between two messages of a conversation */
        return stream->ended && stream->backlog.size == 0 ? finish(stream, NULL, 0, flags)
                                                          : NGHTTP2_ERR_DEFERRED;
    carried *exchange = &own->http;
    pthread_mutex_lock(&exchange->lock);
    piece taken = take(own, (char *)bytes, maximum);
    pthread_mutex_unlock(&exchange->lock);
    if (taken.got > 0)
        stream->moved_ns = connection->moved_ns;
    if (taken.broken)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (!taken.last)
        return taken.later ? NGHTTP2_ERR_DEFERRED : (ssize_t)taken.got;
    /* The answer is complete: nobody changes the exchange any more. */
    if (!goes_on(stream, exchange))
        return finish(stream, exchange, taken.got, flags);
    if (taken.got > 0)
        return (ssize_t)taken.got; /* asked once more, there is nothing left */
    stream->answered++;
    h2_stream_drop(stream);
    if (stream->ended && stream->backlog.size == 0)
        return finish(stream, NULL, 0, flags);
    h2_dirty(stream->connection);
    return NGHTTP2_ERR_DEFERRED;
}

/* ---- Beginnings ---- */

/* An error, or a conversation without a message: nothing but headers. */
static bool is_bare(const h2_stream *stream, const carried *exchange) {
    return exchange->keep_head || (!exchange->streams && exchange->whole.size == 0 &&
                                   !(stream->grpc && goes_on(stream, exchange) && !stream->ended));
}

static void submit(h2_stream *stream, carried *exchange) {
    field_list list;
    ending end;
    char status[16];
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_answer};
    bool bare = is_bare(stream, exchange);
    list_init(&list);
    buffer_init(&end.text, NULL, 4 * GRPC_TEXT_BYTES_MAX);
    snprintf(status, sizeof(status), "%u", stream->grpc ? 200 : exchange->status);
    add_field(&list, ":status", status);
    carried_each_header(exchange, add_field, &list);
    if (stream->grpc)
        add_field(&list, "grpc-accept-encoding", "identity,gzip");
    if (stream->grpc && bare)
        add_status(&list, exchange, &end);
    place_names(&list);
    stream->begun = true;
    stream->finished = bare;
    stream->moved_ns = stream->connection->moved_ns;
    if (!list.good || nghttp2_submit_response(stream->connection->session, stream->id, list.items,
                                              list.count, bare ? NULL : &provider) != 0)
        h2_stream_reset(stream, NGHTTP2_INTERNAL_ERROR);
    buffer_free(&list.names);
    buffer_free(&end.text);
}

void h2_answer(h2_stream *stream) {
    h2_exchange *own = stream->exchange;
    if (own == NULL || stream->reset)
        return;
    carried *exchange = &own->http;
    pthread_mutex_lock(&exchange->lock);
    bool speaks = exchange->phase != CARRIED_WAITING;
    bool ends = exchange->cut || exchange->broken || exchange->late ||
                (exchange->gone && exchange->phase != CARRIED_DONE);
    uint32_t code = exchange->cut    ? NGHTTP2_ENHANCE_YOUR_CALM
                    : exchange->late ? NGHTTP2_CANCEL
                                     : NGHTTP2_INTERNAL_ERROR;
    pthread_mutex_unlock(&exchange->lock);
    if (ends) {
        h2_stream_reset(stream, code);
    } else if (speaks && !stream->begun) {
        submit(stream, exchange);
    } else if (speaks) {
        nghttp2_session_resume_data(stream->connection->session, stream->id);
    }
    h2_dirty(stream->connection);
}
