/* Sends the events of the prefix cache to gateways, as vLLM's publisher does: ZeroMQ PUB with
 * messages of three frames (topic, sequence number of 8 bytes big-endian, batch: kv_format.h), and
 * on an endpoint of its own a ROUTER that sends batches again: a request is a sequence number, the
 * answer all batches from there on that are still kept, then number −1 and an empty batch.
 *
 * A thread of its own sends; the engine's thread only writes into the log (memory/kv_events.h). A
 * subscriber that does not read misses messages once 4 MiB wait for it, and sees that from their
 * numbers. Nobody needs a key: batches contain the tokens of prompts, so the endpoint is for
 * gateways alone.
 */
#ifndef AVO_SERVER_KV_PUBLISH_H
#define AVO_SERVER_KV_PUBLISH_H

#include "server/server.h"

#define KV_PEERS_MAX        32u /* connections of both endpoints together */
#define KV_BATCH_EVENTS     512u
#define KV_KEPT_BATCHES     4096u               /* for replay */
#define KV_KEPT_BYTES       ((uint64_t)3 << 20) /* with its frames, less than ZMTP_UNREAD_MAX */
#define KV_HANDSHAKE_MILLIS 15000

typedef struct kv_publish kv_publish;

typedef struct kv_publish_say {
    void (*say)(const void *context, const char *line); /* to the operator */
    const void *context;
} kv_publish_say;

/* "tcp://ADDRESS:PORT", ADDRESS "*" for all of this machine, "[…]" around one of IPv6. */
#define KV_ADDRESS_MAX 256u
AVO_MUST_USE avo_status kv_endpoint_read(const char *option, const char *text,
                                         char address[static KV_ADDRESS_MAX], uint16_t *port,
                                         avo_error *error);

/* Binds both endpoints, once; server_unbind closes them. */
AVO_MUST_USE avo_status kv_publish_bind(server_options *options, avo_error *error);
/* `options` has the bound endpoints and the engine, whose log it reads. */
AVO_MUST_USE avo_status kv_publish_open(const server_options *options, kv_publish_say say,
                                        kv_publish **out, avo_error *error);
/* NULL is ignored. */
void kv_publish_close(kv_publish *publish);
/* Where it listens; 0: not there. */
uint16_t kv_publish_port(const kv_publish *publish, bool replay);

#endif
