/* Frames of one connection become requests. nghttp2 checks their form and order (RFC 9113); this
 * file bounds what they cost: heads, bodies, streams, resets and frames that carry nothing. */
#include "server/transport/nghttp2/nghttp2_int.h"

#include "base/clock.h"

#include <stdlib.h>
#include <strings.h>

/* ---- Floods ---- */

/* Takes one of the budget; false: it is used up. */
static bool spend(h2_budget *budget, uint64_t burst, uint64_t rate) {
    uint64_t now = clock_now_ns();
    uint64_t earned = (now - budget->since_ns) / (1000000000u / rate);
    if (earned > 0) {
        budget->left = budget->left + earned > burst ? burst : budget->left + earned;
        budget->since_ns = now;
    }
    if (budget->left == 0)
        return false;
    budget->left--;
    return true;
}

static void end_flood(h2_connection *connection, const char *what) {
    if (connection->ends)
        return;
    connection->ends = true;
    char id[25], peer[sizeof(((carried *)NULL)->peer)] = "";
    carried_make_id(id);
    carried introduced = {0};
    watch_introduce(connection->server, connection->descriptor, &introduced);
    memcpy(peer, introduced.peer, sizeof(peer));
    access_log_refusal(connection->server, &(access_refusal){.id = id,
                                                             .peer = peer,
                                                             .path = text_from(what),
                                                             .status = 429,
                                                             .begun_ns = connection->begun_ns});
    nghttp2_session_terminate_session(connection->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void count_reset(h2_connection *connection) {
    if (!spend(&connection->resets, H2_RESETS_BURST, H2_RESETS_RATE))
        end_flood(connection, "reset flood");
}

static void count_control(h2_connection *connection) {
    if (!spend(&connection->control, H2_CONTROL_BURST, H2_CONTROL_RATE))
        end_flood(connection, "control frame flood");
}

/* ---- Streams ---- */

void h2_stream_reset(h2_stream *stream, uint32_t code) {
    if (stream->reset)
        return;
    stream->reset = true;
    nghttp2_submit_rst_stream(stream->connection->session, NGHTTP2_FLAG_NONE, stream->id, code);
    h2_dirty(stream->connection);
}

void h2_stream_drop(h2_stream *stream) {
    h2_exchange *own = stream->exchange;
    if (own == NULL)
        return;
    stream->exchange = NULL;
    stream->handled = false;
    pthread_mutex_lock(&own->http.lock);
    own->stream = NULL;
    pthread_mutex_unlock(&own->http.lock);
    carried_over(&own->http);
    if (own->http.counted)
        atomic_fetch_sub(&own->http.server->open_exchanges, 1);
    exchange_release(&own->http.base);
}

static h2_stream *stream_open(h2_connection *connection, int32_t id) {
    h2_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return NULL;
    stream->connection = connection;
    stream->id = id;
    stream->deadline_ns = UINT64_MAX;
    arena_init(&stream->texts, NULL, 4 * H2_HEAD_BYTES_MAX);
    buffer_init(&stream->backlog, NULL, H2_WINDOW_BYTES);
    stream->next = connection->streams;
    if (stream->next != NULL)
        stream->next->previous = stream;
    connection->streams = stream;
    connection->stream_count++;
    return stream;
}

static void stream_close(h2_stream *stream) {
    h2_connection *connection = stream->connection;
    h2_stream_drop(stream);
    if (stream->previous != NULL)
        stream->previous->next = stream->next;
    else
        connection->streams = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
    connection->stream_count--;
    h2_dirty(connection); /* while the server drains, the last one ends the connection */
    connection->moved_ns = clock_now_ns();
    h2_expect_by(connection->loop,
                 connection->moved_ns + (uint64_t)(connection->server->options.idle_seconds * 1e9));
    buffer_free(&stream->backlog);
    arena_free(&stream->texts);
    free(stream);
}

/* ---- Requests ---- */

static int digit_of(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Percent-encoded text of a target, decoded in place; false: it hides a zero byte. */
static bool unescape(char *text, bool query) {
    char *to = text;
    for (const char *at = text; *at != '\0'; at++) {
        int high = at[0] == '%' ? digit_of(at[1]) : -1;
        int low = high >= 0 ? digit_of(at[2]) : -1;
        char c = query && *at == '+' ? ' ' : *at;
        if (low >= 0) {
            c = (char)(high << 4 | low);
            at += 2;
        }
        if (c == '\0')
            return false;
        *to++ = c;
    }
    *to = '\0';
    return true;
}

/* "a=1&b=2" into the exchange's queries. */
static bool add_queries(carried *exchange, const char *query) {
    while (*query != '\0') {
        size_t size = strcspn(query, "&");
        char *name = arena_copy_text(&exchange->arena, query, size);
        if (name == NULL)
            return false;
        char *value = strchr(name, '=');
        if (value != NULL)
            *value++ = '\0';
        if (!unescape(name, true) || (value != NULL && !unescape(value, true)))
            return false;
        headers_add(exchange, &exchange->queries, name, value);
        query += size + (query[size] == '&');
    }
    return true;
}

static bool is_grpc(const char *type) {
    static const char name[] = "application/grpc";
    if (type == NULL || strncasecmp(type, name, sizeof(name) - 1) != 0)
        return false;
    const char *rest = type + sizeof(name) - 1;
    return rest[0] == '\0' || rest[0] == ';' || strcasecmp(rest, "+proto") == 0;
}

static uint64_t announced_bytes(const h2_stream *stream) {
    const char *text = headers_find(&stream->headers, "content-length");
    uint64_t bytes = 0;
    if (text == NULL)
        return UINT64_MAX;
    for (; *text >= '0' && *text <= '9'; text++) /* nghttp2 has refused what is no number */
        if (__builtin_mul_overflow(bytes, 10u, &bytes) ||
            __builtin_add_overflow(bytes, (uint64_t)(*text - '0'), &bytes))
            return UINT64_MAX - 1;
    return bytes;
}

/* Head and target into a fresh exchange. */
static bool fill_exchange(h2_stream *stream, carried *exchange) {
    for (const header_item *item = stream->headers.first; item != NULL; item = item->next)
        headers_add(exchange, &exchange->headers, item->name, item->value);
    if (stream->authority != NULL && headers_find(&exchange->headers, "Host") == NULL)
        headers_add(exchange, &exchange->headers, "Host", stream->authority);
    const char *query = strchr(stream->target, '?');
    char *path = arena_copy_text(&exchange->arena, stream->target, strcspn(stream->target, "?"));
    if (path == NULL || !unescape(path, false) ||
        (query != NULL && !add_queries(exchange, query + 1)))
        return false;
    bool reads = stream->grpc && (stream->call & SERVER_CALL_READS) != 0;
    return carried_begin(exchange, path, reads ? "GET" : stream->method);
}

/* The exchange of the next message, or of the whole body, admitted or answered already. False: the
 * stream was reset. */
static bool exchange_open(h2_stream *stream) {
    h2_connection *connection = stream->connection;
    server *server = connection->server;
    h2_exchange *own = calloc(1, sizeof(*own));
    carried *exchange = own == NULL ? NULL : &own->http;
    if (own == NULL || !carried_open(exchange, &carrier_http2, server, stream->target)) {
        free(own);
        h2_stream_reset(stream, NGHTTP2_INTERNAL_ERROR);
        return false;
    }
    own->stream = stream;
    own->loop = connection->loop;
    exchange->descriptor = connection->descriptor;
    exchange->base.asked.grpc = stream->grpc;
    exchange->is_open = (stream->call & SERVER_CALL_OPEN) != 0;
    exchange->watches = (stream->call & SERVER_CALL_WATCHES) != 0;
    stream->exchange = own;
    stream->handled = false;
    watch_introduce(server, connection->descriptor, exchange);
    if (!fill_exchange(stream, exchange)) {
        h2_stream_reset(stream, NGHTTP2_PROTOCOL_ERROR);
        return false;
    }
    pthread_mutex_lock(&server->live_lock);
    bool crowded = server->live_exchanges > server->options.connections_max;
    pthread_mutex_unlock(&server->live_lock);
    if (stream->head_too_large)
        exchange_fail(&exchange->base, 431, NULL, "head_too_large",
                      "the header is larger than %zu bytes", H2_HEAD_BYTES_MAX);
    else if (crowded)
        exchange_refuse(&exchange->base, 503, 1.0, "too many streams");
    else if (stream->grpc && strcmp(stream->method, "POST") != 0)
        exchange_fail(&exchange->base, 405, NULL, "method_not_allowed",
                      "gRPC calls are POST requests, found %.40s", stream->method);
    else
        admission_check(exchange, announced_bytes(stream));
    return true;
}

/* Answered, perhaps before all of it has come. */
static bool is_answered(h2_stream *stream) {
    stream->discards = stream->discards || carried_answered(&stream->exchange->http);
    return stream->discards;
}

static void handle(h2_stream *stream) {
    stream->handled = true;
    stream->deadline_ns = UINT64_MAX;
    if (carried_take(&stream->exchange->http))
        body_complete(&stream->exchange->http);
}

/* Bodies come at SERVER_BODY_RATE at least, as on connections of HTTP/1.1. */
static void expect_more(h2_stream *stream, size_t bytes) {
    const server_options *options = &stream->connection->server->options;
    uint64_t now = clock_now_ns();
    if (stream->deadline_ns == UINT64_MAX)
        stream->deadline_ns = now + (uint64_t)(options->header_seconds * 1e9);
    uint64_t most = now + (uint64_t)(options->idle_seconds * 1e9);
    stream->deadline_ns += (uint64_t)bytes * (1000000000u / SERVER_BODY_RATE);
    if (stream->deadline_ns > most)
        stream->deadline_ns = most;
    h2_expect_by(stream->connection->loop, stream->deadline_ns);
}

/* How many more bytes of the message in the body are to come; its prefix comes first. False: it is
 * too large, and was refused. */
static bool message_left(h2_stream *stream, size_t *left) {
    carried *exchange = &stream->exchange->http;
    size_t have = exchange->body.size;
    *left = have < GRPC_PREFIX_BYTES ? GRPC_PREFIX_BYTES - have : 0;
    if (*left > 0)
        return true;
    grpc_prefix prefix = grpc_prefix_read(exchange->body.data);
    if (prefix.size > GRPC_MESSAGE_BYTES_MAX) {
        exchange_fail(&exchange->base, 413, NULL, "body_too_large",
                      "the message has %zu bytes, must have at most %zu", prefix.size,
                      GRPC_MESSAGE_BYTES_MAX);
        return false;
    }
    *left = GRPC_PREFIX_BYTES + prefix.size > have ? GRPC_PREFIX_BYTES + prefix.size - have : 0;
    return true;
}

/* One piece of a message of gRPC: how much of it was taken. */
static size_t take_message(h2_stream *stream, const char *bytes, size_t size) {
    carried *exchange = &stream->exchange->http;
    size_t left = 0;
    if (!message_left(stream, &left))
        return size;
    bool converses = (stream->call & SERVER_CALL_CONVERSES) != 0;
    if (left == 0 && !converses) { /* behind the only message */
        exchange_fail(&exchange->base, 400, NULL, "bad_request",
                      "this method takes one message, found more");
        return size;
    }
    size_t taken = size < left ? size : left;
    if (taken > 0 && !body_take(exchange, bytes, taken))
        return size;
    if (message_left(stream, &left) && left == 0 && converses)
        handle(stream);
    return taken;
}

/* More of the request, from the wire or the backlog. The answer is the stream's window again. */
static void feed(h2_stream *stream, const char *bytes, size_t size) {
    while (size > 0 && !stream->reset) {
        if (stream->exchange == NULL && !exchange_open(stream))
            return;
        if (!stream->handled && is_answered(stream))
            return;
        size_t taken = size;
        if (stream->handled) { /* the client goes on before it was answered */
            if (buffer_append(&stream->backlog, bytes, size) != AVO_OK)
                h2_stream_reset(stream, NGHTTP2_FLOW_CONTROL_ERROR);
            return;
        }
        if (stream->grpc)
            taken = take_message(stream, bytes, size);
        else if (!body_take(&stream->exchange->http, bytes, size))
            return;
        expect_more(stream, taken);
        if (stream->handled)
            stream->deadline_ns = UINT64_MAX;
        bytes += taken;
        size -= taken;
    }
}

/* The client has said everything. */
static void complete(h2_stream *stream) {
    stream->ended = true;
    stream->deadline_ns = UINT64_MAX;
    h2_dirty(stream->connection);
    if (stream->exchange == NULL) { /* a conversation's last answer was sent */
        nghttp2_session_resume_data(stream->connection->session, stream->id);
        return;
    }
    if (stream->handled || is_answered(stream))
        return;
    carried *exchange = &stream->exchange->http;
    size_t left = 0;
    if (stream->grpc && exchange->body.size > 0 && (!message_left(stream, &left) || left > 0)) {
        if (!is_answered(stream))
            exchange_fail(&exchange->base, 400, NULL, "bad_request",
                          "the request ends inside a message: %zu more bytes were announced", left);
    } else if (exchange->body.size == 0 && (stream->call & SERVER_CALL_CONVERSES) != 0) {
        exchange_send(&exchange->base, 200, "application/grpc", (text_view){"", 0});
    } else {
        handle(stream);
    }
}

void h2_stream_next(h2_stream *stream) {
    buffer *backlog = &stream->backlog;
    if (backlog->size == 0 || stream->reset || stream->exchange != NULL)
        return;
    buffer waiting = *backlog;
    buffer_init(backlog, NULL, H2_WINDOW_BYTES);
    feed(stream, waiting.data, waiting.size); /* what is left over is the backlog again */
    size_t used = waiting.size - backlog->size;
    buffer_free(&waiting);
    nghttp2_session_consume_stream(stream->connection->session, stream->id, used);
    if (stream->ended)
        complete(stream);
    h2_dirty(stream->connection);
}

static void begin(h2_stream *stream, bool ended) {
    const server_handler *handler = &stream->connection->server->handler;
    if (stream->no_memory || stream->method == NULL || stream->target == NULL) {
        h2_stream_reset(stream, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    stream->grpc = is_grpc(headers_find(&stream->headers, "content-type"));
    if (stream->grpc && handler->call != NULL)
        stream->call = handler->call(handler->context, stream->target);
    if (!exchange_open(stream))
        return;
    if (!is_answered(stream) && !ended && (stream->call & SERVER_CALL_CONVERSES) == 0)
        expect_more(stream, 0);
    if (ended)
        complete(stream);
}

/* ---- nghttp2's calls ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    h2_stream *stream = stream_open(context, frame->hd.stream_id);
    if (stream == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    return 0;
}

static h2_stream *stream_of(nghttp2_session *session, int32_t id) {
    return nghttp2_session_get_stream_user_data(session, id);
}

static void add_header(h2_stream *stream, text_view name, text_view value) {
    char *copied_name = arena_copy_text(&stream->texts, name.data, name.size);
    char *copied = arena_copy_text(&stream->texts, value.data, value.size);
    header_item *item = arena_take(&stream->texts, sizeof(*item));
    if (copied_name == NULL || copied == NULL || item == NULL) {
        stream->no_memory = true;
        return;
    }
    if (text_is(name, ":method"))
        stream->method = copied;
    else if (text_is(name, ":path"))
        stream->target = copied;
    else if (text_is(name, ":authority"))
        stream->authority = copied;
    if (name.size == 0 || name.data[0] == ':')
        return;
    *item = (header_item){copied_name, copied, NULL};
    if (stream->headers.last != NULL)
        stream->headers.last->next = item;
    else
        stream->headers.first = item;
    stream->headers.last = item;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *context) {
    (void)flags;
    (void)context;
    h2_stream *stream = stream_of(session, frame->hd.stream_id);
    if (stream == NULL || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0; /* trailers of a request say nothing here */
    stream->head_bytes += name_size + value_size + 32;
    stream->head_too_large = stream->head_too_large || stream->head_bytes > H2_HEAD_BYTES_MAX;
    bool pseudo = name_size > 0 && name[0] == ':';
    /* Of a head that is too large its target is kept where it fits, for the log. */
    if (!stream->head_too_large || (pseudo && value_size < 1024))
        add_header(stream, (text_view){(const char *)name, name_size},
                   (text_view){(const char *)value, value_size});
    else if (pseudo)
        add_header(stream, (text_view){(const char *)name, name_size}, TEXT_LITERAL("/"));
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
    h2_connection *connection = context;
    bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    h2_stream *stream = NULL;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        stream = stream_of(session, frame->hd.stream_id);
        if (stream != NULL && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            begin(stream, ends);
        else if (stream != NULL && ends)
            complete(stream);
        break;
    case NGHTTP2_DATA:
        stream = stream_of(session, frame->hd.stream_id);
        if (frame->hd.length == 0 && !ends)
            count_control(connection);
        if (stream != NULL && ends)
            complete(stream);
        break;
    case NGHTTP2_SETTINGS:
    case NGHTTP2_PING:
    case NGHTTP2_PRIORITY:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0)
            count_control(connection);
        break;
    default:
        break;
    }
    return 0;
}

/* Whoever was answered before its request's end need not send the rest. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context) {
    (void)context;
    bool answer = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (!answer || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0)
        return 0;
    h2_stream *stream = stream_of(session, frame->hd.stream_id);
    if (stream != NULL && !stream->ended)
        h2_stream_reset(stream, NGHTTP2_NO_ERROR);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t size, void *context) {
    (void)flags;
    (void)context;
    h2_stream *stream = stream_of(session, id);
    size_t kept = 0;
    if (stream != NULL && !stream->reset && !(stream->discards && !stream->handled)) {
        size_t before = stream->backlog.size;
        feed(stream, (const char *)bytes, size);
        kept = stream->backlog.size - before;
    }
    nghttp2_session_consume_connection(session, size);
    if (size > kept)
        nghttp2_session_consume_stream(session, id, size - kept);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *context) {
    h2_connection *connection = context;
    h2_stream *stream = stream_of(session, id);
    if (code != NGHTTP2_NO_ERROR) /* whoever reset it: clients can make us do it */
        count_reset(connection);
    if (stream == NULL)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    stream_close(stream);
    return 0;
}

static int on_invalid(nghttp2_session *session, const nghttp2_frame *frame, int code,
                      void *context) {
    (void)session;
    (void)frame;
    (void)code;
    count_control(context);
    return 0;
}

/* ---- Sessions ---- */

static bool make_session(h2_connection *connection, nghttp2_session_callbacks *calls,
                         nghttp2_option *option) {
    nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(calls, on_sent);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_stream_close);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(calls, on_invalid);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_settings(option, 32);
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)H2_HEAD_BYTES_MAX}};
    return nghttp2_session_server_new2(&connection->session, calls, connection, option) == 0 &&
           nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof(settings) / sizeof(settings[0])) == 0 &&
           nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0,
                                                 H2_CONNECTION_BYTES) == 0;
}

bool h2_session_open(h2_connection *connection) {
    nghttp2_session_callbacks *calls = NULL;
    nghttp2_option *option = NULL;
    connection->resets = (h2_budget){H2_RESETS_BURST, connection->begun_ns};
    connection->control = (h2_budget){H2_CONTROL_BURST, connection->begun_ns};
    bool good = nghttp2_session_callbacks_new(&calls) == 0 && nghttp2_option_new(&option) == 0 &&
                make_session(connection, calls, option);
    nghttp2_session_callbacks_del(calls);
    nghttp2_option_del(option);
    return good;
}

void h2_session_close(h2_connection *connection) {
    while (connection->streams != NULL)
        stream_close(connection->streams);
    nghttp2_session_del(connection->session);
    connection->session = NULL;
}

bool h2_session_receive(h2_connection *connection, const char *bytes, size_t size) {
    connection->moved_ns = clock_now_ns();
    ssize_t taken = nghttp2_session_mem_recv(connection->session, (const uint8_t *)bytes, size);
    h2_dirty(connection);
    return taken >= 0 && (size_t)taken == size;
}
