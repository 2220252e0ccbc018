/* A carrier: what parses HTTP on connections that the watcher has accepted, and sends answers. It
 * has threads of its own. There is one, for HTTP/1.1 with and without TLS, by libmicrohttpd; its
 * headers and types stay in transport/microhttpd/. */
#ifndef AVO_SERVER_CARRIER_H
#define AVO_SERVER_CARRIER_H

#include "base/status.h"

#include <sys/socket.h>

typedef struct carrier carrier;
typedef struct server server;

AVO_MUST_USE avo_status carrier_open(server *server, carrier **out, avo_error *error);
/* Ends all connections. No exchange is suspended any more. */
void carrier_close(carrier *carrier);
/* Takes a client's socket; false: it could not, and has closed it. */
bool carrier_add(carrier *carrier, int descriptor, const struct sockaddr *address, socklen_t bytes);
/* "Not Found" */
const char *carrier_reason(unsigned status);

#endif
