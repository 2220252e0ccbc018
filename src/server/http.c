/* The server as a whole: opening, draining, closing. */
#include "server/server_int.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* libmicrohttpd's own part of a connection's memory, all of which it touches: 64 bytes for each of
 * HEAD_FIELDS_MAX fields, and the head of the answer. */
#define POOL_SLACK_BYTES (HEAD_FIELDS_MAX * 64u + 4096u)
#define CERTIFICATE_MAX  ((size_t)1 << 20)

/* ---- Settings ---- */

static void set_defaults(server_options *options) {
#define DEFAULT(field, value)                                                                      \
    if (options->field == 0)                                                                       \
    options->field = value
    DEFAULT(threads, SERVER_THREADS);
    DEFAULT(connections_max, SERVER_CONNECTIONS);
    DEFAULT(body_bytes_max, SERVER_BODY_BYTES);
    DEFAULT(header_bytes_max, SERVER_HEADER_BYTES);
    DEFAULT(idle_seconds, SERVER_IDLE_SECONDS);
    DEFAULT(header_seconds, SERVER_HEADER_SECONDS);
    DEFAULT(stall_seconds, SERVER_STALL_SECONDS);
    DEFAULT(drain_seconds, SERVER_DRAIN_SECONDS);
    DEFAULT(unread_bytes_max, SERVER_UNREAD_BYTES);
    DEFAULT(choices_max, SERVER_CHOICES);
    DEFAULT(address, "127.0.0.1");
#undef DEFAULT
}

void server_say(const server *server, const char *format, ...) {
    if (server->options.log == NULL)
        return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    server->options.log(server->options.log_context, text);
}

/* As many descriptors as connections want, where the hard limit allows; the table has one entry for
 * each. */
static avo_status make_table(server *server, avo_error *error) {
    struct rlimit limit = {0};
    uint64_t wanted = (uint64_t)server->options.connections_max + SERVER_LINGERING_MAX + 256;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        (void)!setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    uint64_t count =
        limit.rlim_cur < SERVER_DESCRIPTORS_MAX ? limit.rlim_cur : SERVER_DESCRIPTORS_MAX;
    if (count < wanted)
        server_say(server, "only %llu descriptors may be open: fewer than %u connections fit",
                   (unsigned long long)count, server->options.connections_max);
    count = count < wanted ? count : wanted;
    server->connections = calloc(count, sizeof(*server->connections));
    server->connection_count = (uint32_t)count;
    server->addresses = addresses_open(server->options.connections_max);
    server->gate_bytes = malloc(SERVER_GATE_BYTES);
    if (server->connections == NULL || server->addresses == NULL || server->gate_bytes == NULL)
        return status_no_memory(error, "the connections", count * sizeof(connection));
    return AVO_OK;
}

/* ---- libmicrohttpd ---- */

static avo_status read_text(const char *path, char **out, avo_error *error) {
    file_map map = {0};
    AVO_TRY(file_map_open(path, &map, error));
    char *text = map.bytes.size > CERTIFICATE_MAX ? NULL : calloc(1, map.bytes.size + 1);
    if (text != NULL && map.bytes.size > 0)
        memcpy(text, map.bytes.data, map.bytes.size);
    size_t size = map.bytes.size;
    file_map_close(&map);
    if (text == NULL)
        return status_fail(error, AVO_ERROR_LIMIT, "%s: has %zu bytes, which is no PEM file", path,
                           size);
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

static avo_status start_daemon(server *server, avo_error *error) {
    const server_options *options = &server->options;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG;
    struct MHD_OptionItem items[4] = {{MHD_OPTION_END, 0, NULL}};
    size_t count = 0;
    if (options->certificate != NULL) {
        if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
            return status_fail(error, AVO_ERROR_UNSUPPORTED,
                               "this libmicrohttpd was built without TLS");
        AVO_TRY(read_text(options->certificate, &server->certificate, error));
        AVO_TRY(read_text(options->certificate_key, &server->certificate_key, error));
        flags |= MHD_USE_TLS;
        items[count++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, server->certificate};
        items[count++] =
            (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, server->certificate_key};
        items[count] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    }
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, request_handle, server, MHD_OPTION_EXTERNAL_LOGGER, on_library_text,
        server, MHD_OPTION_ARRAY, items, MHD_OPTION_NOTIFY_COMPLETED, request_completed, server,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_THREAD_POOL_SIZE,
        options->threads > 1 ? options->threads : 0u, MHD_OPTION_CONNECTION_LIMIT,
        server->connection_count, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)options->header_bytes_max + POOL_SLACK_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(options->idle_seconds + 0.999), MHD_OPTION_THREAD_STACK_SIZE, SERVER_STACK_BYTES,
        MHD_OPTION_URI_LOG_CALLBACK, request_named, server, MHD_OPTION_END);
    if (server->daemon == NULL)
        return status_fail(error, AVO_ERROR_IO, "cannot start the HTTP threads%s",
                           options->certificate != NULL ? ": do certificate and key fit each other?"
                                                        : "");
    return AVO_OK;
}

/* ---- Opening and closing ---- */

static avo_status open_parts(server *server, avo_error *error) {
    server_options *options = &server->options;
    if ((options->certificate == NULL) != (options->certificate_key == NULL))
        return status_fail(error, AVO_ERROR_ARGUMENT, "--tls-cert and --tls-key go together");
    AVO_TRY(make_table(server, error));
    if (options->keys_path != NULL)
        AVO_TRY(server_keys_read(options->keys_path, NULL, &server->keys, error));
    if (options->access_log != NULL)
        AVO_TRY(log_open(options->access_log, &server->log, error));
    AVO_TRY(server_bind(options, error));
    AVO_TRY(listen_begin(server, error));
    listen_describe(server);
    AVO_TRY(api_open(server, &server->api, error));
    AVO_TRY(pulse_begin(server, error));
    AVO_TRY(start_daemon(server, error));
    return watch_begin(server, error);
}

avo_status server_open(const server_options *options, server **out, avo_error *error) {
    server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return status_no_memory(error, "the server", sizeof(*server));
    server->options = *options;
    server->begun_ns = clock_now_ns();
    server->epoll = server->wake = server->spare = -1;
    set_defaults(&server->options);
    pthread_mutex_init(&server->keys_lock, NULL);
    pthread_mutex_init(&server->table_lock, NULL);
    pthread_mutex_init(&server->live_lock, NULL);
    pthread_cond_init(&server->live_cond, NULL);
    pulse_init(server);
    avo_status status = open_parts(server, error);
    if (status != AVO_OK) {
        server_close(server);
        return status;
    }
    *out = server;
    return AVO_OK;
}

static void close_descriptors(server *server) {
    const int own[] = {server->epoll, server->wake, server->spare};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (own[i] >= 0)
            close(own[i]);
    server_unbind(&server->options);
}

void server_close(server *server) {
    if (server == NULL)
        return;
    atomic_store(&server->draining, true);
    atomic_store(&server->closing, true); /* from here on nothing is suspended */
    watch_end(server);
    watch_tell_all(server, exchange_lose);
    if (server->daemon != NULL)
        MHD_stop_daemon(server->daemon);
    /* Whoever still answers was told that the clients are gone, and lets go within a step. */
    pthread_mutex_lock(&server->live_lock);
    while (server->live_exchanges > 0)
        pthread_cond_wait(&server->live_cond, &server->live_lock);
    pthread_mutex_unlock(&server->live_lock);
    pulse_end(server);
    api_close(server->api);
    log_close(server->log);
    close_descriptors(server);
    server_keys_release(server->keys);
    addresses_close(server->addresses);
    free(server->connections);
    free(server->gate_bytes);
    free(server->certificate);
    free(server->certificate_key);
    pthread_cond_destroy(&server->live_cond);
    pthread_mutex_destroy(&server->live_lock);
    pthread_mutex_destroy(&server->table_lock);
    pthread_mutex_destroy(&server->keys_lock);
    free(server);
}

/* ---- What it is asked ---- */

uint16_t server_port(const server *server) {
    return server->port;
}

const char *server_url(const server *server) {
    return server->url;
}

const server_options *server_settings(const server *server) {
    return &server->options;
}

double server_uptime(const server *server) {
    return clock_seconds(server->begun_ns, clock_now_ns());
}

void server_drain(server *server) {
    atomic_store(&server->draining, true);
}

uint32_t server_call_off(server *server, double seconds) {
    uint32_t left = atomic_load(&server->open_exchanges);
    const struct timespec tick = {0, 10 * 1000 * 1000};
    for (uint64_t begin = clock_now_ns();
         left > 0 && clock_seconds(begin, clock_now_ns()) < seconds;
         left = atomic_load(&server->open_exchanges)) {
        watch_tell_all(server, exchange_call_off); /* again: one may just have been submitted */
        nanosleep(&tick, NULL);
    }
    return left;
}

bool server_draining(const server *server) {
    return atomic_load(&server->draining);
}

uint32_t server_open_exchanges(server *server) {
    return atomic_load(&server->open_exchanges);
}

avo_status server_reload_keys(server *server, avo_error *error) {
    if (server->options.keys_path == NULL)
        return AVO_OK;
    server_keys *fresh = NULL;
    AVO_TRY(server_keys_read(server->options.keys_path, server->keys, &fresh, error));
    pthread_mutex_lock(&server->keys_lock);
    server_keys *old = server->keys;
    server->keys = fresh;
    pthread_mutex_unlock(&server->keys_lock);
    server_keys_release(old);
    return AVO_OK;
}

void server_reopen_log(server *server) {
    log_reopen(server->log);
}
