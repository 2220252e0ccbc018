/* The server as a whole: opening, draining, closing. */
#include "server/server_int.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

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
    DEFAULT(metric_keys, SERVER_METRIC_KEYS);
    DEFAULT(state_bytes_max, SERVER_STATE_BYTES);
    DEFAULT(batch_lines, SERVER_BATCH_LINES);
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
        server_say(server,
                   "the limit of open files (%llu) allows fewer than %u connections; raise it "
                   "(ulimit -n, LimitNOFILE=)",
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

/* ---- Opening and closing ---- */

static bool is_draining(const void *context) {
    return server_draining(context);
}

static server_state tell_health(const void *context, double *seconds) {
    return server_health(context, seconds);
}

static void tell_figures(const void *context, uint32_t *running, uint32_t *waiting,
                         uint64_t *steps) {
    server_figures(context, running, waiting, steps);
}

static void tell_operator(const void *context, const char *line) {
    server_say(context, "%s", line);
}

static server_keys *share_keys(const void *context) {
    server *server = (struct server *)context; /* its lock changes, and nothing else */
    pthread_mutex_lock(&server->keys_lock);
    server_keys *keys = server->keys == NULL ? NULL : server_keys_share(server->keys);
    pthread_mutex_unlock(&server->keys_lock);
    return keys;
}

static void write_audit(const void *context, const audit_entry *entry) {
    const server *server = context;
    if (!audit_write(server->audit, entry))
        server_say(server, "--audit-log %s: a line could not be written: %s %s by %s",
                   server->options.audit_log, entry->action,
                   entry->target == NULL ? "" : entry->target, entry->actor);
}

/* The endpoints answer. */
static avo_status open_api(server *server, avo_error *error) {
    api_host host = {.context = server,
                     .draining = is_draining,
                     .health = tell_health,
                     .figures = tell_figures,
                     .say = tell_operator,
                     .keys = share_keys,
                     .audit = write_audit,
                     .ledger = server->ledger};
    AVO_TRY(api_open(&server->options, &host, &server->api, error));
    server->handler = api_handler(server->api);
    return AVO_OK;
}

static avo_status open_carriers(server *server, avo_error *error) {
    const carrier_driver *drivers[CARRIERS_MAX];
    size_t count = 0;
#ifdef AVO_HTTP2
    if (server->options.grpc) /* first: a request of HTTP/1.1 never begins as one of HTTP/2 does */
        drivers[count++] = &carrier_http2;
#endif
    drivers[count++] = &carrier_http1;
    for (size_t i = 0; i < count; i++) {
        AVO_TRY(drivers[i]->open(server, &server->carriers[i], error));
        server->carrier_count++;
    }
    return AVO_OK;
}

/* One process at a time: two would overwrite each other's counts and answers. */
static avo_status take_state(server *server, avo_error *error) {
    char path[4096];
    AVO_TRY(file_make_folder(server->options.state, error));
    AVO_TRY(file_join(path, sizeof(path), server->options.state, "lock", error));
    server->state_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (server->state_lock < 0)
        return status_fail(error, AVO_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (flock(server->state_lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return status_fail(error, AVO_ERROR_IO,
                           "--state %s: another server uses it; give each server a folder of its "
                           "own",
                           server->options.state);
    return AVO_OK;
}

static avo_status open_keys(server *server, avo_error *error) {
    const server_options *options = &server->options;
    ledger_say say = {tell_operator, server};
    char path[4096];
    if (options->state != NULL)
        AVO_TRY(file_join(path, sizeof(path), options->state, "usage.log", error));
    AVO_TRY(ledger_open(options->state == NULL ? NULL : path, options->metric_keys, say,
                        &server->ledger, error));
    AVO_TRY(server_keys_read(options->keys_path, server->ledger, &server->keys, error));
    server_keys_share_out(server->keys, options->key_requests_max);
    return AVO_OK;
}

static avo_status check_options(const server_options *options, avo_error *error) {
    if ((options->certificate == NULL) != (options->certificate_key == NULL))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--tls-cert and --tls-key must be given together");
    if (options->kv_events == NULL && (options->kv_replay != NULL || options->kv_topic != NULL))
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "--kv-events-replay and --kv-events-topic belong to --kv-events, which "
                           "is missing");
    return AVO_OK;
}

static avo_status open_parts(server *server, avo_error *error) {
    server_options *options = &server->options;
    AVO_TRY(check_options(options, error));
    AVO_TRY(make_table(server, error));
    if (options->state != NULL)
        AVO_TRY(take_state(server, error));
    if (options->keys_path != NULL)
        AVO_TRY(open_keys(server, error));
    if (options->access_log != NULL)
        AVO_TRY(log_open(options->access_log, &server->log, error));
    if (options->audit_log != NULL)
        AVO_TRY(audit_open(options->audit_log, &server->audit, error));
    if (options->otlp != NULL)
        AVO_TRY(otlp_open(options->otlp, options->model_name, (otlp_say){tell_operator, server},
                          &server->otlp, error));
    AVO_TRY(server_bind(options, error));
    if (options->kv_events != NULL)
        AVO_TRY(
            kv_publish_open(options, (kv_publish_say){tell_operator, server}, &server->kv, error));
    AVO_TRY(listen_begin(server, error));
    listen_describe(server);
    if (server->handler.handle == NULL)
        AVO_TRY(open_api(server, error));
    AVO_TRY(pulse_begin(server, error));
    AVO_TRY(open_carriers(server, error));
    return watch_begin(server, error);
}

avo_status server_open(const server_options *options, server **out, avo_error *error) {
    return server_open_with(options, NULL, out, error);
}

avo_status server_open_with(const server_options *options, const server_handler *handler,
                            server **out, avo_error *error) {
    server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return status_no_memory(error, "the server", sizeof(*server));
    server->options = *options;
    if (handler != NULL)
        server->handler = *handler;
    server->epoll = server->wake = server->spare = server->state_lock = -1;
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
    watch_tell_all(server, carried_lose);
    while (server->carrier_count > 0) {
        carrier *last = server->carriers[--server->carrier_count];
        last->driver->close(last);
    }
    /* Whoever still answers was told that the clients are gone, and lets go within a step. */
    pthread_mutex_lock(&server->live_lock);
    while (server->live_exchanges > 0)
        pthread_cond_wait(&server->live_cond, &server->live_lock);
    pthread_mutex_unlock(&server->live_lock);
    pulse_end(server);
    api_close(server->api);
    log_close(server->log);
    audit_close(server->audit);
    otlp_close(server->otlp);
    kv_publish_close(server->kv);
    close_descriptors(server);
    server_keys_release(server->keys);
    ledger_close(server->ledger);
    if (server->state_lock >= 0) /* what it guards is closed */
        close(server->state_lock);
    addresses_close(server->addresses);
    free(server->connections);
    free(server->gate_bytes);
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

uint16_t server_grpc_port(const server *server) {
    return server->grpc_port;
}

uint16_t server_kv_port(const server *server, bool replay) {
    return server->kv == NULL ? 0 : kv_publish_port(server->kv, replay);
}

void server_changed(server *server) {
    if (server->handler.changed != NULL)
        server->handler.changed(server->handler.context);
}

void server_drain(server *server) {
    atomic_store(&server->draining, true);
    server_changed(server);
    for (size_t i = 0; i < server->carrier_count; i++)
        if (server->carriers[i]->driver->drain != NULL)
            server->carriers[i]->driver->drain(server->carriers[i]);
}

static void tell_all(server *server, void (*tell)(carried *exchange)) {
    watch_tell_all(server, tell);
    for (size_t i = 0; i < server->carrier_count; i++)
        if (server->carriers[i]->driver->tell_all != NULL)
            server->carriers[i]->driver->tell_all(server->carriers[i], tell);
}

uint32_t server_call_off(server *server, double seconds) {
    uint32_t left = atomic_load(&server->open_exchanges);
    const struct timespec tick = {0, 10 * 1000 * 1000};
    for (uint64_t begin = clock_now_ns();
         left > 0 && clock_seconds(begin, clock_now_ns()) < seconds;
         left = atomic_load(&server->open_exchanges)) {
        tell_all(server, carried_call_off); /* again: one may just have been submitted */
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

static void audit_change(void *context, const char *change, const char *name) {
    char action[32];
    snprintf(action, sizeof(action), "key_%s", change);
    write_audit(context, &(audit_entry){.actor = "signal", .action = action, .target = name});
}

avo_status server_reload_keys(server *server, avo_error *error) {
    audit_entry entry = {
        .actor = "signal", .action = "reload_keys", .target = server->options.keys_path};
    if (server->options.keys_path == NULL)
        return AVO_OK;
    server_keys *fresh = NULL;
    avo_status status = server_keys_read(server->options.keys_path, server->ledger, &fresh, error);
    if (status != AVO_OK) {
        entry.outcome = AUDIT_FAILED;
        entry.reason = error->text;
        write_audit(server, &entry);
        return status;
    }
    server_keys_share_out(fresh, server->options.key_requests_max);
    write_audit(server, &entry);
    server_keys_compare(server->keys, fresh, audit_change, server);
    pthread_mutex_lock(&server->keys_lock);
    server_keys *old = server->keys;
    server->keys = fresh;
    pthread_mutex_unlock(&server->keys_lock);
    server_keys_release(old);
    return AVO_OK;
}

void server_reopen_log(server *server) {
    log_reopen(server->log);
    audit_reopen(server->audit);
}
