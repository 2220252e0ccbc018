/* HTTP/1.1: libmicrohttpd's threads, TLS and limits; first bytes and refusals. */
#include "server/transport/microhttpd/microhttpd_int.h"

#include "base/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libmicrohttpd's own part of a connection's memory, all of which it touches: 64 bytes for each of
 * HEAD_FIELDS_MAX fields, and the head of the answer. */
#define POOL_SLACK_BYTES (HEAD_FIELDS_MAX * 64u + 4096u)
#define TLS_HANDSHAKE    0x16
#define CERTIFICATE_MAX  ((size_t)1 << 20)

typedef struct mhd_carrier {
    carrier base; /* first: one is a pointer to the other */
    struct MHD_Daemon *daemon;
    char *certificate, *certificate_key; /* contents */
} mhd_carrier;

static avo_status read_text(const char *path, char **out, avo_error *error) {
    file_map map = {0};
    AVO_TRY(file_map_open(path, &map, error));
    char *text = map.bytes.size > CERTIFICATE_MAX ? NULL : calloc(1, map.bytes.size + 1);
    if (text != NULL && map.bytes.size > 0)
        memcpy(text, map.bytes.data, map.bytes.size);
    size_t size = map.bytes.size;
    file_map_close(&map);
    if (text == NULL)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: %zu bytes is too large for a PEM file",
                           path, size);
    *out = text;
    return AVO_OK;
}

static void on_connection(void *context, struct MHD_Connection *connection, void **own,
                          enum MHD_ConnectionNotificationCode what) {
    (void)own;
    if (what != MHD_CONNECTION_NOTIFY_CLOSED)
        return;
    const union MHD_ConnectionInfo *socket =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    watch_closed(context, socket->connect_fd);
}

/* Broken requests and clients that leave are no news; anything it cannot do is. */
static void on_library_text(void *context, const char *format, va_list arguments) {
    char text[512];
    vsnprintf(text, sizeof(text), format, arguments);
    text[strcspn(text, "\n")] = '\0';
    if (strstr(text, "ailed to start") != NULL || strstr(text, "ertificate") != NULL ||
        strstr(text, "out of memory") != NULL)
        server_say(context, "libmicrohttpd: %s", text);
}

static avo_status start_daemon(server *server, mhd_carrier *carrier, avo_error *error) {
    const server_options *options = &server->options;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG;
    struct MHD_OptionItem items[4] = {{MHD_OPTION_END, 0, NULL}};
    size_t count = 0;
    if (options->certificate != NULL) {
        if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
            return status_fail(error, AVO_ERROR_UNSUPPORTED,
                               "this libmicrohttpd was built without TLS");
        AVO_TRY(read_text(options->certificate, &carrier->certificate, error));
        AVO_TRY(read_text(options->certificate_key, &carrier->certificate_key, error));
        flags |= MHD_USE_TLS;
        items[count++] =
            (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, carrier->certificate};
        items[count++] =
            (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, carrier->certificate_key};
        items[count] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    }
    carrier->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, request_handle, server, MHD_OPTION_EXTERNAL_LOGGER, on_library_text,
        server, MHD_OPTION_ARRAY, items, MHD_OPTION_NOTIFY_COMPLETED, request_completed, server,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_THREAD_POOL_SIZE,
        options->threads > 1 ? options->threads : 0u, MHD_OPTION_CONNECTION_LIMIT,
        server->connection_count, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)options->header_bytes_max + POOL_SLACK_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(options->idle_seconds + 0.999), MHD_OPTION_THREAD_STACK_SIZE, SERVER_STACK_BYTES,
        MHD_OPTION_URI_LOG_CALLBACK, request_named, server, MHD_OPTION_END);
    if (carrier->daemon == NULL)
        return status_fail(error, AVO_ERROR_IO, "cannot start the HTTP threads%s",
                           options->certificate != NULL ? "; do the certificate and the key match?"
                                                        : "");
    return AVO_OK;
}

static void close_carrier(carrier *closed) {
    mhd_carrier *own = (mhd_carrier *)(void *)closed;
    if (own->daemon != NULL)
        MHD_stop_daemon(own->daemon);
    free(own->certificate);
    free(own->certificate_key);
    free(own);
}

static avo_status open_carrier(server *server, carrier **out, avo_error *error) {
    mhd_carrier *own = calloc(1, sizeof(*own));
    if (own == NULL)
        return status_no_memory(error, "the HTTP threads", sizeof(*own));
    own->base.driver = &carrier_http1;
    avo_status status = start_daemon(server, own, error);
    if (status != AVO_OK) {
        close_carrier(&own->base);
        return status;
    }
    *out = &own->base;
    return AVO_OK;
}

static bool add_connection(carrier *carrier, int descriptor, const struct sockaddr *address,
                           socklen_t bytes) {
    const mhd_carrier *own = (const mhd_carrier *)(void *)carrier;
    return MHD_add_connection(own->daemon, descriptor, address, bytes) == MHD_YES;
}

/* ---- First bytes ---- */

/* What has come so far, for a server that speaks TLS. */
static head check_tls(text_view bytes) {
    head seen = {.state = HEAD_GOOD};
    if (bytes.size > 0 && bytes.data[0] != TLS_HANDSHAKE)
        seen = (head){.state = HEAD_BAD,
                      .status = 400,
                      .code = "tls",
                      .text = "this port uses TLS; connect with https://"};
    return seen;
}

static head look_at(const server *server, text_view bytes) {
    if (server->options.certificate != NULL)
        return check_tls(bytes);
    head seen = head_check(bytes, server->options.header_bytes_max);
    /* Of a head that may be longer the kernel need not keep more. */
    if (seen.state == HEAD_PARTIAL && bytes.size == SERVER_GATE_BYTES)
        seen.state = HEAD_GOOD;
    return seen;
}

/* ---- Refusals, written past libmicrohttpd ---- */

static size_t turn_away(int descriptor, const carrier_refusal *answer, char *id) {
    if (answer->id != NULL)
        snprintf(id, EXCHANGE_ID_MAX + 1, "%s", answer->id);
    else
        carried_make_id(id);
    exchange_request asked = {.path = answer->path, .id = id};
    buffer body, out;
    buffer_init(&body, NULL, 4096);
    buffer_init(&out, NULL, 8192);
    bool written =
        exchange_write_error(&body, &asked, answer->status, NULL, answer->code, answer->text) ==
            AVO_OK &&
        buffer_format(&out,
                      "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n%s"
                      "Connection: close\r\nX-Request-Id: %s\r\n"
                      "X-Content-Type-Options: nosniff\r\nContent-Length: %zu\r\n\r\n",
                      answer->status, MHD_get_reason_phrase_for(answer->status),
                      answer->retry ? "Retry-After: 1\r\n" : "", id, body.size) == AVO_OK &&
        buffer_append(&out, body.data, body.size) == AVO_OK;
    size_t sent = 0;
    if (written &&
        send(descriptor, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)out.size)
        sent = body.size;
    buffer_free(&body);
    buffer_free(&out);
    return sent;
}

/* Nothing can be said past TLS. */
static size_t refuse(carried *exchange, unsigned status, const char *code, const char *text) {
    char id[EXCHANGE_ID_MAX + 1];
    carrier_refusal answer = {status, code, text, exchange->id, exchange->base.asked.path, false};
    return exchange->descriptor < 0 || exchange->server->options.certificate != NULL
               ? 0
               : turn_away(exchange->descriptor, &answer, id);
}

const carrier_driver carrier_http1 = {.open = open_carrier,
                                      .close = close_carrier,
                                      .look = look_at,
                                      .add = add_connection,
                                      .turn_away = turn_away,
                                      .refuse = refuse,
                                      .wake = mhd_exchange_wake,
                                      .cut = mhd_exchange_cut,
                                      .free = mhd_exchange_free};
