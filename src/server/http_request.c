/* A request from its first line to the endpoint: who asks, whether it may, and its body. */
#include "server/server_int.h"

#include "base/clock.h"

#include <stdio.h>
#include <strings.h>

static const char *header(const exchange *exchange, const char *name) {
    return exchange_list_find(&exchange->headers, name);
}

/* ---- The head ---- */

/* What everybody may see: whether it lives, and the page, which asks for a key itself. */
static bool is_open_path(const exchange_request *asked) {
    static const char *const paths[] = {"/", "/health", "/ready", "/openapi.json"};
    static const char *const suffixes[] = {".html", ".css", ".js",    ".svg",
                                           ".png",  ".ico", ".woff2", ".webmanifest"};
    if (strcmp(asked->method, "GET") != 0 || asked->path[0] != '/')
        return false;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (strcmp(asked->path, paths[i]) == 0)
            return true;
    bool top = strchr(asked->path + 1, '/') == NULL;
    for (size_t i = 0; top && i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
        if (text_ends(text_from(asked->path), text_from(suffixes[i])))
            return true;
    return false;
}

static text_view given_key(const exchange *exchange) {
    const char *bearer = header(exchange, "Authorization");
    const char *key = header(exchange, "x-api-key");
    if (bearer != NULL && strncasecmp(bearer, "Bearer ", 7) == 0)
        key = bearer + 7 + strspn(bearer + 7, " ");
    return text_from(key);
}

static void check_key(exchange *exchange) {
    server *server = exchange->server;
    if (server->options.keys_path == NULL)
        return;
    pthread_mutex_lock(&server->keys_lock);
    exchange->keys = server_keys_share(server->keys);
    pthread_mutex_unlock(&server->keys_lock);
    text_view given = given_key(exchange);
    exchange->asked.key = server_keys_find(exchange->keys, given);
    if (exchange->asked.key == NULL && !is_open_path(&exchange->asked)) {
        exchange_set_header(exchange, "WWW-Authenticate", "Bearer");
        exchange_fail(exchange, 401, NULL, "invalid_api_key",
                      given.size > 0 ? "this key is not known here"
                                     : "a key is needed: Authorization: Bearer KEY or x-api-key");
        return;
    }
    if (exchange->asked.key == NULL)
        return;
    exchange->payer = address_of_name(server_key_name(exchange->asked.key));
    exchange->pays = true;
    if (strcmp(exchange->asked.method, "GET") == 0)
        return;
    double retry = 0.0;
    const char *what = NULL;
    if (!server_key_admit(exchange->asked.key, clock_now_ns(), &retry, &what))
        exchange_refuse(exchange, 429, retry, what);
}

/* Pages of other sites can make browsers send requests here, without reading the answers. Those
 * that change or cost something are refused unless the page is ours or allowed. */
static void check_origin(exchange *exchange) {
    const char *origin = header(exchange, "Origin");
    const char *allowed = exchange->server->options.cors_origin;
    if (origin == NULL || strcmp(exchange->asked.method, "GET") == 0)
        return;
    if (allowed != NULL && (strcmp(allowed, "*") == 0 || strcmp(allowed, origin) == 0))
        return;
    const char *host = header(exchange, "Host");
    const char *site = strstr(origin, "://");
    if (host == NULL || site == NULL || strcasecmp(site + 3, host) != 0)
        exchange_fail(exchange, 403, NULL, "origin",
                      "pages of %.200s may not ask here; --cors allows an origin", origin);
}

static void answer_options(exchange *exchange) {
    char allowed[64];
    api_allowed(exchange->server->api, exchange->asked.path, allowed, sizeof(allowed));
    exchange_set_header(exchange, "Allow", allowed);
    if (exchange->server->options.cors_origin != NULL) {
        exchange_set_header(exchange, "Access-Control-Allow-Methods", allowed);
        exchange_set_header(exchange, "Access-Control-Allow-Headers",
                            "Authorization, Content-Type, X-Api-Key, X-Request-Id, "
                            "Anthropic-Version, Anthropic-Beta");
        exchange_set_header(exchange, "Access-Control-Max-Age", "600");
    }
    exchange_send(exchange, 204, NULL, (text_view){"", 0});
}

static bool is_method_known(const char *method) {
    static const char *const methods[] = {"GET", "POST", "DELETE", "PUT", "PATCH"};
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (strcmp(method, methods[i]) == 0)
            return true;
    return false;
}

/* The body's length as announced; UINT64_MAX: in chunks. libmicrohttpd has refused nonsense. */
static uint64_t announced_bytes(const exchange *exchange) {
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

static unsigned count(const exchange *exchange, const char *name) {
    unsigned found = 0;
    for (const exchange_header_item *item = exchange->headers.first; item != NULL;
         item = item->next)
        found += strcasecmp(item->name, name) == 0;
    return found;
}

static void refuse_form(exchange *exchange, unsigned status, const char *code, const char *text) {
    exchange_set_header(exchange, "Connection", "close");
    exchange_fail(exchange, status, NULL, code, "%s", text);
}

/* What makes it doubtful where this request ends or to whom it goes: whoever stands in front of
 * this server may have read it otherwise, and what is the end of this body here would be a request
 * of its own there. Nothing behind it is read. libmicrohttpd takes all of it, and the gate sees the
 * first head of a connection only. */
static void check_form(exchange *exchange, const char *version) {
    const char *coding = header(exchange, "Transfer-Encoding");
    unsigned lengths = count(exchange, "Content-Length"), hosts = count(exchange, "Host");
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    for (const exchange_header_item *item = exchange->headers.first; item != NULL;
         item = item->next)
        if (!head_name_good(text_from(item->name))) {
            refuse_form(exchange, 400, "bad_header",
                        "a line of the head is no name, colon and value");
            return;
        }
    if (exchange->hides)
        refuse_form(exchange, 400, "bad_target", "the path has a zero byte");
    else if (size != NULL && size->header_size > exchange->server->options.header_bytes_max)
        refuse_form(exchange, 431, "head_too_large", "the head is longer than --max-header allows");
    else if (lengths > 1 || (lengths > 0 && coding != NULL))
        refuse_form(exchange, 400, "ambiguous_length",
                    "the body has one Content-Length, or comes in chunks");
    else if (coding != NULL &&
             (strcasecmp(coding, "chunked") != 0 || count(exchange, "Transfer-Encoding") > 1))
        refuse_form(exchange, 501, "transfer_coding",
                    "the only transfer coding known here is chunked");
    else if (coding != NULL && strcmp(version, "HTTP/1.0") == 0)
        refuse_form(exchange, 400, "transfer_coding", "HTTP/1.0 knows no chunks");
    else if (hosts > 1 || (strcmp(version, "HTTP/1.0") != 0 &&
                           (hosts == 0 || header(exchange, "Host")[0] == '\0')))
        refuse_form(exchange, 400, "host", "a request has one Host, with a name");
}

static void refuse_body(exchange *exchange) {
    exchange_fail(exchange, 413, NULL, "body_too_large",
                  "the body has more than %llu bytes, the most that is read here",
                  (unsigned long long)exchange->server->options.body_bytes_max);
}

/* Bodies that are being read share a maximum, of which one key, or without keys one address, has a
 * part only while others want it. What has come is counted, not what was announced: saying that
 * much will come costs nothing, and so must take nothing from others. False, and nothing is
 * claimed, where it is full. */
static bool claim_body(exchange *exchange, uint64_t bytes) {
    server *server = exchange->server;
    uint64_t largest = server->options.body_bytes_max, all = largest * SERVER_BODY_SHARE;
    uint64_t sum = atomic_fetch_add(&server->body_bytes, bytes) + bytes;
    uint64_t own = sum > all / 2 ? largest * SERVER_BODY_OWN : UINT64_MAX;
    if (sum > all ||
        (exchange->pays && !addresses_take_bytes(server->addresses, exchange->payer, bytes, own))) {
        atomic_fetch_sub(&server->body_bytes, bytes);
        return false;
    }
    exchange->body_counted += bytes;
    return true;
}

void exchange_give_back_body(exchange *exchange) {
    server *server = exchange->server;
    atomic_fetch_sub(&server->body_bytes, exchange->body_counted);
    if (exchange->pays && exchange->body_counted > 0)
        addresses_give_bytes(server->addresses, exchange->payer, exchange->body_counted);
    exchange->body_counted = 0;
}

static void check_length(exchange *exchange, uint64_t announced) {
    if (announced != UINT64_MAX && announced > exchange->server->options.body_bytes_max)
        refuse_body(exchange);
}

static void check_head(exchange *exchange, uint64_t announced) {
    const char *method = exchange->asked.method;
    host_check(exchange);
    if (exchange_answered(exchange))
        return;
    if (strcmp(method, "OPTIONS") == 0) {
        answer_options(exchange);
        return;
    }
    if (!is_method_known(method)) {
        exchange_set_header(exchange, "Allow", "GET, HEAD, POST, OPTIONS");
        exchange_fail(exchange, 405, NULL, "method_not_allowed",
                      "the method %.40s is not known here", method);
        return;
    }
    if (atomic_load(&exchange->server->draining) && strcmp(method, "GET") != 0) {
        exchange_set_header(exchange, "Retry-After", "5");
        exchange_fail(exchange, 503, NULL, "shutting_down", "the server is shutting down");
        return;
    }
    check_origin(exchange);
    if (!exchange_answered(exchange))
        check_key(exchange);
    const char *coding = header(exchange, "Content-Encoding");
    if (!exchange_answered(exchange) && coding != NULL && strcasecmp(coding, "identity") != 0)
        exchange_fail(exchange, 415, NULL, "content_encoding",
                      "the body comes as %.40s, which is not known here: send it as it is", coding);
    if (!exchange_answered(exchange))
        check_length(exchange, announced);
}

/* The first call of a request: its head is complete. */
static enum MHD_Result begin(exchange *exchange, const char *version) {
    uint64_t announced = announced_bytes(exchange);
    const char *expect = header(exchange, "Expect");
    check_form(exchange, version);
    bool doubtful = exchange_answered(exchange);
    if (!doubtful)
        check_head(exchange, announced);
    if (!exchange_answered(exchange)) {
        watch_state(exchange->server, exchange->descriptor, CONNECTION_BODY);
        return MHD_YES;
    }
    /* A small body is read to its end, so that the connection can be used again: libmicrohttpd ends
     * a connection that is answered before that. */
    if (announced <= SERVER_DISCARD_BYTES && expect == NULL && !doubtful) {
        exchange->discarding = true;
        watch_state(exchange->server, exchange->descriptor, CONNECTION_BODY);
        return MHD_YES;
    }
    watch_linger(exchange->server, exchange->descriptor);
    watch_state(exchange->server, exchange->descriptor, CONNECTION_BUSY);
    exchange->taken = true;
    return exchange_take(exchange) ? exchange_queue(exchange) : MHD_NO;
}

/* ---- The body ---- */

/* What is thrown away takes no memory, and so nothing of what bodies share: clients that are
 * refused cannot use it up. */
static void discard_body(exchange *exchange) {
    buffer_free(&exchange->body);
    exchange_give_back_body(exchange);
    exchange->discarding = true;
}

static enum MHD_Result take_body(exchange *exchange, const char *bytes, size_t size) {
    watch_body(exchange->server, exchange->descriptor, size);
    if (exchange->discarding) {
        /* libmicrohttpd takes answers before the body or after it only; a body without end has
         * had its chance. */
        exchange->discarded += size;
        return exchange->discarded <= exchange->server->options.body_bytes_max * 4 ? MHD_YES
                                                                                   : MHD_NO;
    }
    if (!claim_body(exchange, size)) {
        exchange_refuse(exchange, 503, 1.0, "too many large requests are being read");
        discard_body(exchange);
        return MHD_YES;
    }
    avo_status status = buffer_append(&exchange->body, bytes, size);
    if (status == AVO_OK)
        return MHD_YES;
    discard_body(exchange);
    if (status == AVO_ERROR_LIMIT)
        refuse_body(exchange);
    else
        exchange_refuse(exchange, 503, 1.0, "no memory for the body");
    return MHD_YES;
}

static void complete(exchange *exchange) {
    server *server = exchange->server;
    watch_state(server, exchange->descriptor, CONNECTION_BUSY);
    if (exchange->discarding)
        return;
    if (buffer_terminate(&exchange->body) != AVO_OK) {
        exchange_refuse(exchange, 503, 1.0, "no memory for the body");
        return;
    }
    exchange->asked.body = buffer_text(&exchange->body);
    exchange->asked.arrived_ns = clock_now_ns();
    exchange->counted = true;
    atomic_fetch_add(&server->open_exchanges, 1);
    api_handle(exchange);
}

/* ---- libmicrohttpd's calls ---- */

void *request_named(void *context, const char *uri, struct MHD_Connection *connection) {
    exchange *exchange = exchange_open(context, connection, uri == NULL ? "" : uri);
    if (exchange == NULL)
        return NULL;
    const union MHD_ConnectionInfo *socket =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    exchange->descriptor = socket->connect_fd;
    watch_exchange(exchange->server, exchange->descriptor, exchange);
    return exchange;
}

enum MHD_Result request_handle(void *context, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **own) {
    (void)context;
    (void)connection;
    exchange *exchange = *own;
    if (exchange == NULL) /* no memory */
        return MHD_NO;
    if (!exchange->begun)
        return exchange_begin(exchange, url, method) ? begin(exchange, version) : MHD_NO;
    if (*upload_bytes > 0) {
        size_t size = *upload_bytes;
        *upload_bytes = 0;
        return take_body(exchange, upload, size);
    }
    if (!exchange->taken) {
        exchange->taken = true;
        if (!exchange_take(exchange))
            return MHD_NO;
        complete(exchange);
    }
    return exchange_queue(exchange);
}

/* libmicrohttpd has answered by itself: a head or a chunk that it could not read. */
static void take_refusal(exchange *exchange, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *status =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_HTTP_STATUS);
    if (exchange->queued || status == NULL || status->http_status == 0)
        return;
    watch_linger(exchange->server, exchange->descriptor);
    pthread_mutex_lock(&exchange->lock);
    exchange->refused = true;
    exchange->status = status->http_status;
    pthread_mutex_unlock(&exchange->lock);
}

void request_completed(void *context, struct MHD_Connection *connection, void **own,
                       enum MHD_RequestTerminationCode code) {
    (void)context;
    (void)code;
    exchange *exchange = *own;
    if (exchange == NULL)
        return;
    *own = NULL;
    take_refusal(exchange, connection);
    watch_exchange(exchange->server, exchange->descriptor, NULL);
    watch_state(exchange->server, exchange->descriptor, CONNECTION_HEAD);
    exchange_over(exchange);
    if (exchange->counted)
        atomic_fetch_sub(&exchange->server->open_exchanges, 1);
    exchange_release(exchange);
}
