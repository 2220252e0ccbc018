/* One connection of ZeroMQ's wire protocol, ZMTP 3.0 (rfc.zeromq.org/spec/23), as PUB or ROUTER,
 * with the NULL mechanism: bytes in, bytes out, no I/O. kv_publish.c owns the sockets.
 *
 * Why not libzmq: it starts threads and opens sockets of its own while it runs, which the sandbox
 * forbids, and its queues are counted in messages, not in bytes. Of the protocol only this is
 * needed.
 */
#ifndef AVO_SERVER_ZMTP_H
#define AVO_SERVER_ZMTP_H

#include "base/buffer.h"

#define ZMTP_FRAME_MAX         1024u /* bytes of a frame that a peer sends */
#define ZMTP_SUBSCRIPTIONS_MAX 16u
#define ZMTP_TOPIC_MAX         255u
#define ZMTP_UNREAD_MAX        ((size_t)4 << 20) /* bytes that wait for a slow peer */

typedef enum zmtp_role { ZMTP_PUB, ZMTP_ROUTER } zmtp_role;

typedef struct zmtp_subscription {
    uint8_t size;
    char topic[ZMTP_TOPIC_MAX];
} zmtp_subscription;

typedef struct zmtp_peer {
    zmtp_role role;
    enum { ZMTP_GREETING, ZMTP_HANDSHAKE, ZMTP_OPEN } state;
    uint8_t in[ZMTP_FRAME_MAX + 16];
    size_t in_size;
    buffer out;    /* what the peer has not read yet … */
    size_t out_at; /* … from here on */
    zmtp_subscription subscriptions[ZMTP_SUBSCRIPTIONS_MAX];
    uint32_t subscription_count;
    /* ROUTER: frames of the message that is being received, and the newest complete one. */
    uint32_t frames;
    bool empty_first;    /* it begins with an empty frame, as those of REQ do: so do its answers */
    bool asked;          /* a message has come that nobody has answered yet */
    uint64_t asked_from; /* its last frame: 8 bytes, big-endian */
} zmtp_peer;

/* A connection that was accepted; its greeting waits in `out`. AVO_ERROR_MEMORY. */
AVO_MUST_USE avo_status zmtp_open(zmtp_peer *peer, zmtp_role role);
void zmtp_close(zmtp_peer *peer);
/* Room for what is read next: never 0 bytes. zmtp_received then says how many came. */
uint8_t *zmtp_room(zmtp_peer *peer, size_t *bytes);
/* False: the peer does not speak the protocol, or asks for too much; close it. `why` says which. */
bool zmtp_received(zmtp_peer *peer, size_t bytes, const char **why);
/* Whether the peer has subscribed to the topic. */
bool zmtp_wants(const zmtp_peer *peer, bytes_view topic);
/* A message of some frames; false: dropped, since the peer has not read what waits for it. */
bool zmtp_send(zmtp_peer *peer, const bytes_view *frames, uint32_t count);

#endif
