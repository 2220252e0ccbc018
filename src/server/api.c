/* Endpoints: which path is answered by what. */
#include "server/api.h"

#include <stdlib.h>
#include <string.h>

struct api {
    server *server;
};

avo_status api_open(server *server, api **out, avo_error *error) {
    api *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return status_no_memory(error, "the endpoints", sizeof(*opened));
    opened->server = server;
    *out = opened;
    return AVO_OK;
}

void api_close(api *api) {
    free(api);
}

void api_handle(exchange *exchange) {
    const exchange_request *asked = exchange_asked(exchange);
    if (strcmp(asked->path, "/health") == 0 && strcmp(asked->method, "GET") == 0)
        exchange_send(exchange, 200, "application/json", TEXT_LITERAL("{\"status\":\"ok\"}"));
    else
        exchange_fail(exchange, 404, NULL, "not_found", "there is no %s %s", asked->method,
                      asked->path);
}
