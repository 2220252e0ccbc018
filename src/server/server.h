/* The HTTP server over one scheduler: what `avocet serve` starts. Faces only: it reads requests,
 * submits them through the public interface and writes answers; it knows no kernels.
 *
 *   http*.c       connections, bodies, time-outs, TLS, sockets (libmicrohttpd)
 *   exchange.h    one request and its answer, the border between both halves
 *   keys.h        who may ask, how much, which adapters
 *   api*.c        endpoints: routes, requests in JSON to avo_request, events to JSON
 *   sandbox.c     seccomp and Landlock
 */
#ifndef AVO_SERVER_SERVER_H
#define AVO_SERVER_SERVER_H

#include "base/status.h"

typedef struct server server;

typedef struct server_options {
    /* What it serves; all outlive the server. */
    const avo_model *model;
    avo_engine *engine;
    avo_scheduler *scheduler;
    avo_registry *registry;   /* NULL: no adapters */
    avo_telemetry *telemetry; /* NULL: no /metrics */
    const char *model_name;   /* what clients call the base model */
    const char *model_path;

    /* Where it listens. */
    const char *address;     /* NULL: 127.0.0.1 */
    uint16_t port;           /* 0: any free one; server_port says which */
    const char *unix_socket; /* a path instead of address and port; NULL: none */
    int listen_socket;       /* already bound and listening (socket activation); −1: none */
    const char *certificate; /* PEM files: TLS; NULL: plain */
    const char *certificate_key;

    /* Limits; 0: the default of server.c, which /version and the log say. */
    uint32_t threads;
    uint32_t connections_max, connections_per_address_max;
    uint64_t body_bytes_max;
    uint32_t header_bytes_max;
    double idle_seconds;       /* a connection that neither sends nor reads */
    double drain_seconds;      /* SIGTERM: what runs may finish within */
    uint64_t unread_bytes_max; /* answer waiting for a slow reader */
    uint32_t choices_max;      /* `n` */

    const char *keys_path;   /* JSON file of keys; NULL: everybody may */
    const char *cors_origin; /* "*" or one origin; NULL: off */
    const char *access_log;  /* JSON lines; "-": stderr; NULL: none */
    bool log_prompts;        /* texts of requests into the access log, too */
    bool no_page;            /* no web page */
    avo_log_function log;    /* what the operator should know */
    void *log_context;
} server_options;

AVO_MUST_USE avo_status server_open(const server_options *options, server **out, avo_error *error);
uint16_t server_port(const server *server);
/* No new work: /ready says 503, requests are refused, what runs goes on. */
void server_drain(server *server);
/* Exchanges not yet answered. */
uint32_t server_open_exchanges(server *server);
/* Reads the keys again; on failure the old ones stay. */
AVO_MUST_USE avo_status server_reload_keys(server *server, avo_error *error);
void server_close(server *server);

#endif
