/* gRPC services over the endpoints of server/api/: what answers an exchange whose client speaks
 * gRPC.
 *
 *   wire.h      protobuf's wire format          message.h   messages as JSON trees
 *   service.c   methods; messages out of bodies and into answers
 *   call.c      one call: a request of the REST API, whose answer becomes messages
 *   infer.c     Open Inference Protocol and Triton's stream
 *   health.c, reflection.c
 *
 * There is one path for requests: a method that an endpoint has becomes that endpoint's request, as
 * JSON, and the endpoint's answer, whole or in events, becomes messages. Fields, limits, errors,
 * adapters, keys and deadlines therefore mean what they mean over REST. */
#ifndef AVO_SERVER_GRPC_H
#define AVO_SERVER_GRPC_H

#include "server/transport/exchange.h"

struct api;

/* server_handler.handle for exchanges of gRPC, and server_handler.call. */
void grpc_handle(struct api *api, exchange *exchange);
unsigned grpc_call_of(const char *path);
/* The state of health may have changed. */
void grpc_changed(struct api *api);

#endif
