/* The API half as the HTTP half sees it: what answers a request once it is read and admitted. */
#ifndef AVO_SERVER_API_H
#define AVO_SERVER_API_H

#include "server/exchange.h"
#include "server/server.h"

/* State of the endpoints; opened once, before the first request, and closed after the last exchange
 * was released. server_api gives it back. */
typedef struct api api;

AVO_MUST_USE avo_status api_open(server *server, api **out, avo_error *error);
void api_close(api *api);

/* The methods that a path takes, as Allow says them, OPTIONS among them; of a path that is not
 * there all that any takes. */
void api_allowed(const api *api, const char *path, char *text, size_t capacity);

/* Answers now, or shares the exchange and answers later. Called on one of the HTTP threads, for
 * several exchanges at once. */
void api_handle(exchange *exchange);

#endif
