/* libmicrohttpd's threads: TLS, limits, opening and closing. */
#include "server/transport/microhttpd/microhttpd_int.h"

#include "base/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libmicrohttpd's own part of a connection's memory, all of which it touches: 64 bytes for each of
 * HEAD_FIELDS_MAX fields, and the head of the answer. */
#define POOL_SLACK_BYTES (HEAD_FIELDS_MAX * 64u + 4096u)
#define CERTIFICATE_MAX  ((size_t)1 << 20)

struct carrier {
    struct MHD_Daemon *daemon;
    char *certificate, *certificate_key; /* contents */
};

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

static avo_status start_daemon(server *server, carrier *carrier, avo_error *error) {
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

avo_status carrier_open(server *server, carrier **out, avo_error *error) {
    carrier *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_no_memory(error, "the HTTP threads", sizeof(*opened));
    avo_status status = start_daemon(server, opened, error);
    if (status != AVO_OK) {
        carrier_close(opened);
        return status;
    }
    *out = opened;
    return AVO_OK;
}

void carrier_close(carrier *carrier) {
    if (carrier == NULL)
        return;
    if (carrier->daemon != NULL)
        MHD_stop_daemon(carrier->daemon);
    free(carrier->certificate);
    free(carrier->certificate_key);
    free(carrier);
}

bool carrier_add(carrier *carrier, int descriptor, const struct sockaddr *address,
                 socklen_t bytes) {
    return MHD_add_connection(carrier->daemon, descriptor, address, bytes) == MHD_YES;
}

const char *carrier_reason(unsigned status) {
    return MHD_get_reason_phrase_for(status);
}
