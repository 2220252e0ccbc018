/* Inside the gRPC services. */
#ifndef AVO_SERVER_GRPC_INT_H
#define AVO_SERVER_GRPC_INT_H

#include "server/api/api_int.h"
#include "server/api/grpc/grpc.h"
#include "server/api/grpc/message.h"
#include "server/transport/grpc_frame.h"

/* Of a message as a tree, and of the request made of it: as the bodies of the REST API have. */
#define GRPC_TREE_BYTES_FIXED ((size_t)64 << 20)
#define GRPC_TREE_BYTES_EACH  16
#define GRPC_TIMEOUT_MAX      1e9 /* seconds; longer ones are none */

typedef struct grpc_call grpc_call;
typedef struct infer_call infer_call;

typedef struct grpc_entry {
    const char *path;
    unsigned kind; /* server_call */
    /* Answers the message. */
    void (*answer)(grpc_call *call, json_value *message);
    /* Of methods that an endpoint answers: its request; what its members are called there. */
    const char *http_method, *http_path;
    bool generates; /* grpc-timeout is its deadline */
} grpc_entry;

/* One message that is being answered. */
struct grpc_call {
    exchange inner;  /* first: what endpoints see */
    exchange *outer; /* the client's */
    atomic_uint references;
    api *api;
    const grpc_entry *entry;
    const proto_method *method;
    arena texts;  /* the message's tree */
    arena parts;  /* of answers: one at a time */
    buffer plain; /* the message, where it came compressed */
    bool gzip;    /* so are answers */
    buffer body;  /* of the endpoint's request */
    buffer out;
    bool streaming; /* the outer answer has begun */
    bool broken;    /* it failed; nothing more is told */
    double timeout; /* of grpc-timeout, in seconds; 0: none */
    /* An answer of the endpoint as the method's message; false: nothing is told of it. NULL: it is
     * one already. */
    avo_status (*convert)(grpc_call *call, const json_value *answer, json_value *message,
                          bool *told);
    infer_call *infer; /* infer.c */
};

/* ---- call.c ---- */
/* NULL without memory. */
grpc_call *grpc_call_open(api *api, exchange *outer, const grpc_entry *entry,
                          const proto_method *method);
void grpc_call_release(grpc_call *call);
/* The message becomes the endpoint's request (its members are `message`'s), and the endpoint
 * answers. */
void grpc_call_forward(grpc_call *call, const json_value *message);
/* The only message of an answer. */
void grpc_call_tell(grpc_call *call, const json_value *message);
void grpc_call_fail(grpc_call *call, unsigned status, const char *text);
/* A message into the answer, which begins with the first. False: the client has gone. */
bool grpc_call_write(grpc_call *call, const json_value *message);
void grpc_call_end(grpc_call *call);

/* ---- Methods ---- */
void method_forward(grpc_call *call, json_value *message);
void method_tokens(grpc_call *call, json_value *message); /* ids in the place of texts */
void method_embed(grpc_call *call, json_value *message);  /* and vectors as they are */
void method_health(grpc_call *call, json_value *message);
void method_watch(grpc_call *call, json_value *message);
void method_reflect(grpc_call *call, json_value *message);
void method_live(grpc_call *call, json_value *message);
void method_ready(grpc_call *call, json_value *message);
void method_server(grpc_call *call, json_value *message);
void method_model_ready(grpc_call *call, json_value *message);
void method_model(grpc_call *call, json_value *message);
void method_infer(grpc_call *call, json_value *message);
bool grpc_is_ready(const api *api);
/* How the call tells an error where its method has messages for that (ModelStreamInfer). */
void infer_fail(grpc_call *call, const char *text);
void infer_close(infer_call *infer);

#endif
