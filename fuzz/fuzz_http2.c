/* A connection of HTTP/2 on any bytes: requests reach a handler or do not, answers go out, and at
 * the end no exchange, no body and no memory is left. The first byte says in what pieces the rest
 * comes; what every connection begins with is put in front. */
#include "server/transport/nghttp2/nghttp2_int.h"

#include <stdlib.h>

static struct server served;
static exchange *held;

static void drop_held(void) {
    if (held == NULL)
        return;
    exchange_send(held, 200, "text/plain", TEXT_LITERAL("late"));
    exchange_release(held);
    held = NULL;
}

static void handle(void *context, exchange *exchange) {
    (void)context;
    const exchange_request *asked = exchange_asked(exchange);
    if (asked->body.size > (size_t)16 << 20 || asked->path[0] == '\0')
        abort();
    if (asked->body.size % 5 == 4) { /* answered when the next one comes */
        drop_held();
        held = exchange_share(exchange);
        return;
    }
    if (asked->body.size % 5 == 3) {
        exchange_fail(exchange, 404, NULL, "not_found", "no such path: %s", asked->path);
        return;
    }
    exchange_stream(exchange, 200, "application/grpc");
    (void)exchange_write(exchange, asked->body);
    exchange_end(exchange);
}

static void allowed(void *context, const char *path, char *text, size_t capacity) {
    (void)context;
    text[0] = path[0] != '\0' || capacity > 0 ? '\0' : 'x';
}

/* Every other path converses. */
static unsigned call(void *context, const char *path) {
    (void)context;
    return strlen(path) % 2 == 0 ? SERVER_CALL_CONVERSES : 0;
}

static void open_once(void) {
    static bool opened;
    if (opened)
        return;
    opened = true;
    served.options = (server_options){.address = "127.0.0.1",
                                      .body_bytes_max = 1 << 20,
                                      .connections_max = 64,
                                      .header_seconds = 1e6,
                                      .idle_seconds = 1e6,
                                      .unread_bytes_max = 1 << 16};
    served.handler = (server_handler){.handle = handle, .allowed = allowed, .call = call};
    pthread_mutex_init(&served.live_lock, NULL);
    pthread_cond_init(&served.live_cond, NULL);
    pthread_mutex_init(&served.table_lock, NULL);
    pulse_init(&served);
}

static void drain(h2_loop *loop, h2_connection *connection) {
    do {
        h2_loop_work(loop);
        connection->out.size = 0;
        h2_connection_fill(connection);
        for (h2_stream *stream = connection->streams, *next; stream != NULL; stream = next) {
            next = stream->next;
            h2_stream_next(stream);
        }
    } while (connection->out.size > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char begin[] = NGHTTP2_CLIENT_MAGIC "\0\0\0\4\0\0\0\0";
    open_once();
    if (size == 0)
        return 0;
    h2_loop *loop = h2_loop_alone(&served);
    h2_connection *connection = h2_connection_open(loop, -1);
    if (connection == NULL)
        abort();
    bool good = h2_session_receive(connection, begin, sizeof(begin));
    size_t step = data[0] == 0 ? size : data[0];
    for (size_t at = 1; at < size && good && !connection->ends; at += step) {
        size_t part = step < size - at ? step : size - at;
        good = h2_session_receive(connection, (const char *)data + at, part);
        drain(loop, connection);
    }
    drain(loop, connection);
    drop_held();
    h2_loop_alone_close(loop);
    if (served.live_exchanges != 0 || atomic_load(&served.open_exchanges) != 0 ||
        atomic_load(&served.body_bytes) != 0)
        abort();
    return 0;
}
