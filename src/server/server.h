/* The HTTP server over one scheduler: what `avocet serve` starts. It reads requests, submits them
 * through the public interface and writes answers; it knows no kernels.
 *
 *   transport/    connections, bodies, time-outs, admission; exchange.h is what endpoints see of it
 *   transport/microhttpd/  HTTP/1.1 and TLS by libmicrohttpd, which no other folder knows
 *   transport/nghttp2/     HTTP/2 by nghttp2, the same; TLS by OpenSSL
 *   api/grpc/     gRPC services over the endpoints
 *   api/          endpoints: routes, requests in JSON to avo_request, events to JSON
 *   page/         the web page
 *   keys.h        who may ask, how much, which adapters
 *   ledger.h      what every key has used, across restarts
 *   log.h         the access log
 *   audit.h       the audit log
 *   activation.h  systemd: sockets it hands over, READY and WATCHDOG
 *   sandbox.h     seccomp and Landlock
 */
#ifndef AVO_SERVER_SERVER_H
#define AVO_SERVER_SERVER_H

#include "base/status.h"

#include <stdint.h>

typedef struct server server;
struct exchange; /* transport/exchange.h */

/* What answers requests that were read and admitted. */
typedef struct server_handler {
    void *context;
    /* Answers now, or shares the exchange and answers later. Called on one of the transport's
     * threads, for several exchanges at once. */
    void (*handle)(void *context, struct exchange *exchange);
    /* The methods that a path takes, as Allow says them, OPTIONS among them; of a path that is not
     * there all that any takes. */
    void (*allowed)(void *context, const char *path, char *text, size_t capacity);
    /* What a gRPC method is: server_call, together. NULL: there are none. */
    unsigned (*call)(void *context, const char *path);
    /* The server began to drain, or its device failed or works again. NULL: nobody wants to know.
     */
    void (*changed)(void *context);
} server_handler;

typedef enum server_call {
    SERVER_CALL_READS = 1 << 0,     /* costs and changes nothing: admitted as GET is */
    SERVER_CALL_OPEN = 1 << 1,      /* needs no key */
    SERVER_CALL_CONVERSES = 1 << 2, /* the client sends several messages: each is an exchange */
    SERVER_CALL_WATCHES = 1 << 3    /* has no end: nobody waits for it */
} server_call;

#define SERVER_SOCKETS_MAX 8

typedef struct server_options {
    /* What it serves; all outlive the server. */
    const avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
    avo_registry *registry;   /* NULL: no adapters */
    avo_telemetry *telemetry; /* NULL: no /metrics */
    const char *model_name;   /* what clients call the base model */
    const char *model_path;
    /* Adapters as the operator named them, loaded already: llama.cpp's clients number them so. */
    const char *const *adapter_names;
    size_t adapter_name_count;
    uint32_t sessions; /* requests that can run at once */
    uint32_t context;  /* tokens of one request, prompt and answer; 0: the model's own */

    /* Where it listens. */
    const char *address;     /* NULL: 127.0.0.1 */
    uint16_t port;           /* 0: any free one; server_port says which */
    const char *unix_socket; /* a path instead of address and port; NULL: none */
    /* Bound already: what server_bind gave, or systemd (socket activation). They are the server's
     * from server_open on. 0 of them: server_open binds. */
    int listen_sockets[SERVER_SOCKETS_MAX];
    uint32_t listen_count;
    bool grpc;               /* gRPC, too */
    uint16_t grpc_port;      /* at this address; 0: any free one; `port`: there, without TLS */
    uint32_t grpc_listen;    /* which of the sockets is gRPC's own, from 1 on; 0: none */
    const char *certificate; /* PEM files: TLS; NULL: plain */
    const char *certificate_key;

    /* Limits; 0: the default of server.c, which /version and the log say. */
    uint32_t threads;
    uint32_t connections_max, connections_per_address_max;
    uint64_t body_bytes_max;
    uint32_t header_bytes_max;
    double idle_seconds;       /* a connection that neither sends nor reads */
    double header_seconds;     /* a request's head must be complete within; its body at 8 KiB/s */
    double stall_seconds;      /* a decode loop without a step for so long is not alive */
    double drain_seconds;      /* SIGTERM: what runs may finish within */
    uint64_t unread_bytes_max; /* answer waiting for a slow reader */
    uint32_t choices_max;      /* `n` */

    const char *training;      /* folder with runs of `avocet train` for /training; NULL: none */
    const char *keys_path;     /* JSON file of keys; NULL: everybody may */
    const char *state;         /* folder for what outlives the process; NULL: nothing does */
    uint64_t state_bytes_max;  /* of files and batches there */
    uint32_t batch_lines;      /* requests of batches computed at once */
    const char *audit_log;     /* JSON lines about administration; NULL: none */
    const char *otlp;          /* URL of a collector for traces; NULL: none */
    const char *kv_events;     /* endpoints for gateways, "tcp://ADDRESS:PORT"; NULL: none. The */
    const char *kv_replay;     /* engine has a log then (engine_kv_events_open) */
    const char *kv_topic;      /* of their messages; NULL: "" */
    int kv_listen[2];          /* their sockets, bound by server_bind; as listen_sockets */
    uint32_t kv_listen_count;  /* 0: not yet */
    uint32_t metric_keys;      /* keys with metrics of their own */
    uint32_t key_requests_max; /* at once, of a key that says nothing itself; 0: no limit */
    const char *adapter_root;  /* of the registry; NULL: none */
    const char *cors_origin;   /* "*" or one origin; NULL: off */
    /* Without keys: names in Host besides addresses, localhost, `address` and that of cors_origin.
     */
    const char *const *allowed_hosts; /* "*": any; NULL: none */
    size_t allowed_host_count;
    const char *access_log;     /* JSON lines; "-": stderr; NULL: none */
    bool log_prompts;           /* texts of requests into the access log, too */
    bool allow_adapter_loading; /* without keys: who asks from this machine may load adapters */
    bool no_page;               /* no web page */
    avo_log_function log;       /* what the operator should know */
    void *log_context;
} server_options;

/* Binds what `options` ask for, without listening yet, and leaves the sockets there: before a model
 * is loaded for minutes one knows whether the port is free. */
AVO_MUST_USE avo_status server_bind(server_options *options, avo_error *error);
#define SERVER_URL_MAX 200
/* "http://127.0.0.1:8080" of the first of the sockets, which are bound: server_url of the server
 * that will listen there. */
void server_bound_url(const server_options *options, char url[SERVER_URL_MAX]);
/* Closes sockets that no server_open took. */
void server_unbind(server_options *options);

AVO_MUST_USE avo_status server_open(const server_options *options, server **out, avo_error *error);
/* The same with another handler than the endpoints; NULL: the endpoints. */
AVO_MUST_USE avo_status server_open_with(const server_options *options,
                                         const server_handler *handler, server **out,
                                         avo_error *error);
uint16_t server_port(const server *server);
/* 0: there is no gRPC. */
uint16_t server_grpc_port(const server *server);
/* Ports of KV events and of their replay; 0: there are none. */
uint16_t server_kv_port(const server *server, bool replay);
/* The options with every default filled in; for /version, the banner and endpoints. */
const server_options *server_settings(const server *server);
/* "http://127.0.0.1:8080", "unix:PATH"; lives as long as the server. */
const char *server_url(const server *server);

/* Whether other machines can reach it: one of its sockets is neither a unix socket nor bound to
 * loopback. */
bool server_exposed(const server *server);
/* The same of the sockets of KV events. */
bool server_kv_exposed(const server *server);

/* No new work: /ready says 503, requests are refused, what runs goes on. */
void server_drain(server *server);
bool server_draining(const server *server);
/* What still runs comes to an end now: streams get a last event that says why, other requests 503.
 * Waits so long at most until all is sent; how many were not. */
uint32_t server_call_off(server *server, double seconds);
typedef enum server_state {
    SERVER_ALIVE,        /* the decode loop has nothing to do, or has moved within stall_seconds */
    SERVER_STALLED,      /* it has not */
    SERVER_DEVICE_FAILED /* requests failed with the device, and no step has succeeded since */
} server_state;
/* `seconds` (may be NULL): since the decode loop last moved while it had work. */
server_state server_health(const server *server, double *seconds);
/* Requests and steps as the scheduler said within the last tenth of a second, or, where it hangs,
 * before that: never waits for it. */
void server_figures(const server *server, uint32_t *running, uint32_t *waiting, uint64_t *steps);

/* Exchanges not yet answered. */
uint32_t server_open_exchanges(server *server);
/* Reads the keys again, for a signal; on failure the old ones stay. */
AVO_MUST_USE avo_status server_reload_keys(server *server, avo_error *error);
/* The access log and the audit log are opened anew: after their files were renamed. */
void server_reopen_log(server *server);
/* A line to the operator: what the `log` of the options gets. */
void server_say(const server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Ends connections, waits for the last exchange and frees. The scheduler still runs meanwhile. */
void server_close(server *server);

#endif
