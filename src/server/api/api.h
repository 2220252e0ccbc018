/* The endpoints, as the server sees them: what answers a request once it is read and admitted. */
#ifndef AVO_SERVER_API_H
#define AVO_SERVER_API_H

#include "server/audit.h"
#include "server/keys.h"
#include "server/server.h"
#include "server/transport/exchange.h"

/* State of the endpoints; opened once, before the first request, and closed after the last exchange
 * was released. */
typedef struct api api;

/* What endpoints ask of the server around them. */
typedef struct api_host {
    const void *context;
    bool (*draining)(const void *context);
    server_state (*health)(const void *context, double *seconds); /* as server_health */
    void (*figures)(const void *context, uint32_t *running, uint32_t *waiting, uint64_t *steps);
    void (*say)(const void *context, const char *line); /* to the operator */
    /* A reference to the keys as they are now; NULL: the server has none. */
    server_keys *(*keys)(const void *context);
    /* A line of the audit log, where there is one. */
    void (*audit)(const void *context, const audit_entry *entry);
    ledger *ledger; /* of the keys; NULL: there are none */
} api_host;

/* `options` have every default filled in and outlive the API. */
AVO_MUST_USE avo_status api_open(const server_options *options, const api_host *host, api **out,
                                 avo_error *error);
void api_close(api *api);
server_handler api_handler(api *api);

#endif
