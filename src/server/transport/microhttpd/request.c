/* Requests as libmicrohttpd brings them: heads, bodies, answers, ends. */
#include "server/transport/microhttpd/microhttpd_int.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STREAM_BLOCK_BYTES 8192

static mhd_exchange *mhd_of(carried *exchange) {
    return (mhd_exchange *)(void *)exchange;
}

static const char *header(const carried *exchange, const char *name) {
    return headers_find(&exchange->headers, name);
}

/* ---- For the exchange ---- */

void mhd_exchange_wake(carried *exchange) {
    mhd_exchange *own = mhd_of(exchange);
    if (!own->suspended || own->connection == NULL)
        return;
    own->suspended = false;
    MHD_resume_connection(own->connection);
}

void mhd_exchange_cut(carried *exchange) {
    if (exchange->descriptor >= 0)
        shutdown(exchange->descriptor, SHUT_RDWR);
}

void mhd_exchange_free(carried *exchange) {
    free(exchange);
}

/* ---- Answers ---- */

/* Bytes for libmicrohttpd; where there are none yet, the connection sleeps until there are. */
static ssize_t read_stream(void *context, uint64_t position, char *bytes, size_t maximum) {
    (void)position;
    carried *exchange = context;
    size_t got = 0;
    pthread_mutex_lock(&exchange->lock);
    carried_more more = carried_read(exchange, bytes, maximum, &got);
    if (more == CARRIED_LATER) {
        mhd_of(exchange)->suspended = true;
        MHD_suspend_connection(mhd_of(exchange)->connection);
    }
    pthread_mutex_unlock(&exchange->lock);
    return more == CARRIED_ERROR ? MHD_CONTENT_READER_END_WITH_ERROR
           : more == CARRIED_END ? MHD_CONTENT_READER_END_OF_STREAM
                                 : (ssize_t)got;
}

static void release_stream(void *context) {
    exchange_release(context);
}

static void add_header(void *context, const char *name, const char *value) {
    MHD_add_response_header(context, name, value);
}

/* Of an answer that has begun, whose status and headers stay as they are. libmicrohttpd locks a
 * response while it asks for bytes of a stream, so it is never touched with the exchange's lock
 * held. A whole body stays in the exchange, which lives until the request is completed. */
static struct MHD_Response *make_response(carried *exchange) {
    struct MHD_Response *response;
    text_view whole = buffer_text(&exchange->whole);
    if (exchange->streams) {
        exchange_share(&exchange->base);
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES,
                                                     read_stream, exchange, release_stream);
        if (response == NULL)
            exchange_release(&exchange->base);
    } else {
        response = MHD_create_response_from_buffer(whole.size, (void *)(uintptr_t)whole.data,
                                                   MHD_RESPMEM_PERSISTENT);
    }
    if (response == NULL)
        return NULL;
    carried_each_header(exchange, add_header, response);
    if (atomic_load(&exchange->server->draining))
        add_header(response, "Connection", "close");
    return response;
}

/* Hands the answer to libmicrohttpd, or suspends the connection until there is one. */
static enum MHD_Result answer(mhd_exchange *own) {
    carried *exchange = &own->http;
    enum MHD_Result result = MHD_YES;
    bool hung_up = watch_hung_up(exchange->server, exchange->descriptor);
    bool begins = false;
    pthread_mutex_lock(&exchange->lock);
    if (own->queued) {
        result = MHD_YES;
    } else if (exchange->phase != CARRIED_WAITING && !exchange->cut && !exchange->broken) {
        begins = own->queued = true;
    } else if (exchange->gone || exchange->cut || atomic_load(&exchange->server->closing)) {
        result = MHD_NO;
    } else {
        own->suspended = true;
        MHD_suspend_connection(own->connection);
    }
    bool waits = own->suspended;
    pthread_mutex_unlock(&exchange->lock);
    if (begins) {
        struct MHD_Response *response = make_response(exchange);
        result = response == NULL ? MHD_NO
                                  : MHD_queue_response(own->connection, exchange->status, response);
        if (response != NULL)
            MHD_destroy_response(response); /* libmicrohttpd has its own reference */
    }
    /* The watcher's only word may have come before there was an exchange to tell. */
    if (waits && hung_up)
        carried_lose(exchange);
    return result;
}

/* ---- Heads ---- */

/* The body's length as announced; UINT64_MAX: in chunks. libmicrohttpd has refused nonsense. */
static uint64_t announced_bytes(const carried *exchange) {
    const char *length = header(exchange, "Content-Length");
    if (header(exchange, "Transfer-Encoding") != NULL)
        return UINT64_MAX;
    uint64_t bytes = 0;
    for (; length != NULL && *length >= '0' && *length <= '9'; length++)
        if (__builtin_mul_overflow(bytes, 10u, &bytes) ||
            __builtin_add_overflow(bytes, (uint64_t)(*length - '0'), &bytes))
            return UINT64_MAX - 1;
    return bytes;
}

static unsigned count(const carried *exchange, const char *name) {
    unsigned found = 0;
    for (const header_item *item = exchange->headers.first; item != NULL; item = item->next)
        found += strcasecmp(item->name, name) == 0;
    return found;
}

static void refuse_form(carried *exchange, unsigned status, const char *code, const char *text) {
    exchange_set_header(&exchange->base, "Connection", "close");
    exchange_fail(&exchange->base, status, NULL, code, "%s", text);
}

/* What makes it doubtful where this request ends or to whom it goes: whoever stands in front of
 * this server may have read it otherwise, and what is the end of this body here would be a request
 * of its own there. Nothing behind it is read. libmicrohttpd takes all of it, and the gate sees the
 * first head of a connection only. */
static void check_form(mhd_exchange *own, const char *version) {
    carried *exchange = &own->http;
    const char *coding = header(exchange, "Transfer-Encoding");
    unsigned lengths = count(exchange, "Content-Length"), hosts = count(exchange, "Host");
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(own->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    for (const header_item *item = exchange->headers.first; item != NULL; item = item->next)
        if (!head_name_good(text_from(item->name))) {
            refuse_form(exchange, 400, "bad_header",
                        "a header line must be a name, a colon and a value");
            return;
        }
    if (own->hides)
        refuse_form(exchange, 400, "bad_target", "the path contains a zero byte");
    else if (size != NULL && size->header_size > exchange->server->options.header_bytes_max)
        refuse_form(exchange, 431, "head_too_large",
                    "the header is longer than --max-header allows");
    else if (lengths > 1 || (lengths > 0 && coding != NULL))
        refuse_form(exchange, 400, "ambiguous_length",
                    "the request must have one Content-Length or be chunked, not both");
    else if (coding != NULL &&
             (strcasecmp(coding, "chunked") != 0 || count(exchange, "Transfer-Encoding") > 1))
        refuse_form(exchange, 501, "transfer_coding",
                    "the only supported transfer coding is chunked");
    else if (coding != NULL && strcmp(version, "HTTP/1.0") == 0)
        refuse_form(exchange, 400, "transfer_coding", "HTTP/1.0 does not support chunked bodies");
    else if (hosts > 1 || (strcmp(version, "HTTP/1.0") != 0 &&
                           (hosts == 0 || header(exchange, "Host")[0] == '\0')))
        refuse_form(exchange, 400, "host", "the request must have one Host header with a name");
}

/* The first call of a request: its head is complete. */
static enum MHD_Result begin(mhd_exchange *own, const char *version) {
    carried *exchange = &own->http;
    uint64_t announced = announced_bytes(exchange);
    const char *expect = header(exchange, "Expect");
    check_form(own, version);
    bool doubtful = carried_answered(exchange);
    if (!doubtful)
        admission_check(exchange, announced);
    if (!carried_answered(exchange)) {
        watch_state(exchange->server, exchange->descriptor, CONNECTION_BODY);
        return MHD_YES;
    }
    /* A small body is read to its end, so that the connection can be used again: libmicrohttpd ends
     * a connection that is answered before that. */
    if (announced <= SERVER_DISCARD_BYTES && expect == NULL && !doubtful) {
        own->discarding = true;
        watch_state(exchange->server, exchange->descriptor, CONNECTION_BODY);
        return MHD_YES;
    }
    watch_linger(exchange->server, exchange->descriptor);
    watch_state(exchange->server, exchange->descriptor, CONNECTION_BUSY);
    own->taken = true;
    return carried_take(exchange) ? answer(own) : MHD_NO;
}

static enum MHD_Result copy_header(void *context, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
    carried *exchange = context;
    headers_add(exchange, kind == MHD_HEADER_KIND ? &exchange->headers : &exchange->queries, name,
                value);
    return MHD_YES;
}

static enum MHD_Result take_head(mhd_exchange *own, const char *url, const char *method,
                                 const char *version) {
    own->begun = true;
    MHD_get_connection_values(own->connection, MHD_HEADER_KIND, copy_header, &own->http);
    MHD_get_connection_values(own->connection, MHD_GET_ARGUMENT_KIND, copy_header, &own->http);
    return carried_begin(&own->http, url, method) ? begin(own, version) : MHD_NO;
}

/* ---- Bodies ---- */

static enum MHD_Result take_body(mhd_exchange *own, const char *bytes, size_t size) {
    carried *exchange = &own->http;
    watch_body(exchange->server, exchange->descriptor, size);
    if (own->discarding) {
        /* libmicrohttpd takes answers before the body or after it only; a body without end has
         * had its chance. */
        own->discarded += size;
        return own->discarded <= exchange->server->options.body_bytes_max * 4 ? MHD_YES : MHD_NO;
    }
    own->discarding = !body_take(exchange, bytes, size);
    return MHD_YES;
}

static enum MHD_Result complete(mhd_exchange *own) {
    carried *exchange = &own->http;
    own->taken = true;
    if (!carried_take(exchange))
        return MHD_NO;
    watch_state(exchange->server, exchange->descriptor, CONNECTION_BUSY);
    if (!own->discarding)
        body_complete(exchange);
    return answer(own);
}

/* ---- libmicrohttpd's calls ---- */

void *request_named(void *context, const char *uri, struct MHD_Connection *connection) {
    mhd_exchange *own = calloc(1, sizeof(*own));
    if (own == NULL)
        return NULL;
    carried *exchange = &own->http;
    if (!carried_open(exchange, &carrier_http1, context, uri == NULL ? "" : uri)) {
        free(own);
        return NULL;
    }
    const union MHD_ConnectionInfo *socket =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    own->connection = connection;
    own->hides = strstr(exchange->base.asked.path, "%00") != NULL;
    exchange->descriptor = socket->connect_fd;
    watch_exchange(exchange->server, exchange->descriptor, exchange);
    return own;
}

enum MHD_Result request_handle(void *context, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **kept) {
    (void)context;
    (void)connection;
    mhd_exchange *own = *kept;
    if (own == NULL) /* no memory */
        return MHD_NO;
    if (!own->begun)
        return take_head(own, url, method, version);
    if (*upload_bytes > 0) {
        size_t size = *upload_bytes;
        *upload_bytes = 0;
        return take_body(own, upload, size);
    }
    return own->taken ? answer(own) : complete(own);
}

/* libmicrohttpd has answered by itself: a head or a chunk that it could not read. */
static void take_refusal(mhd_exchange *own, struct MHD_Connection *connection) {
    carried *exchange = &own->http;
    const union MHD_ConnectionInfo *status =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_HTTP_STATUS);
    if (own->queued || status == NULL || status->http_status == 0)
        return;
    watch_linger(exchange->server, exchange->descriptor);
    pthread_mutex_lock(&exchange->lock);
    exchange->refused = true;
    exchange->status = status->http_status;
    pthread_mutex_unlock(&exchange->lock);
}

void request_completed(void *context, struct MHD_Connection *connection, void **kept,
                       enum MHD_RequestTerminationCode code) {
    (void)context;
    (void)code;
    mhd_exchange *own = *kept;
    if (own == NULL)
        return;
    *kept = NULL;
    carried *exchange = &own->http;
    take_refusal(own, connection);
    watch_exchange(exchange->server, exchange->descriptor, NULL);
    watch_state(exchange->server, exchange->descriptor, CONNECTION_HEAD);
    pthread_mutex_lock(&exchange->lock);
    own->connection = NULL;
    own->suspended = false;
    pthread_mutex_unlock(&exchange->lock);
    carried_over(exchange);
    if (exchange->counted)
        atomic_fetch_sub(&exchange->server->open_exchanges, 1);
    exchange_release(&exchange->base);
}
