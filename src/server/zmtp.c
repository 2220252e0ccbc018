/* ZMTP 3.0.
 *
 *   greeting   64 bytes: FF, 8 bytes, 7F; version 3 and its minor number; mechanism, 20 bytes; one
 *              byte that matters to other mechanisms; 31 zeros
 *   frame      flags (1: more frames follow, 2: the size has 8 bytes, 4: a command), size, body
 *   command    size of its name, name, data; READY has properties: size of the name, name, size of
 *              the value (4 bytes), value
 *
 * Sizes are big-endian. A subscriber of 3.0 sends messages of 1 or 0 and a topic; one of 3.1 may
 * send commands SUBSCRIBE and CANCEL; both are understood. */
#include "server/zmtp.h"

#define GREETING_BYTES 64u
#define FLAG_MORE      1u
#define FLAG_LONG      2u
#define FLAG_COMMAND   4u
#define FRAMES_MAX     4u /* of a message that a peer sends */

static const uint8_t greeting[GREETING_BYTES] = {0xff, 0,    0, 0, 0,   0,   0,   0,
                                                 1,    0x7f, 3, 0, 'N', 'U', 'L', 'L'};

/* ---- Writing ---- */

static size_t frame_head(uint8_t head[static 9], uint8_t flags, uint64_t size) {
    if (size < 256) {
        head[0] = flags;
        head[1] = (uint8_t)size;
        return 2;
    }
    head[0] = flags | FLAG_LONG;
    for (int i = 0; i < 8; i++)
        head[1 + i] = (uint8_t)(size >> (56 - 8 * i));
    return 9;
}

static avo_status write_frame(zmtp_peer *peer, uint8_t flags, bytes_view body) {
    uint8_t head[9];
    AVO_TRY(buffer_append(&peer->out, head, frame_head(head, flags, body.size)));
    return body.size == 0 ? AVO_OK : buffer_append(&peer->out, body.data, body.size);
}

static bool write_ready(zmtp_peer *peer) {
    static const uint8_t pub[] = "\5READY\13Socket-Type\0\0\0\3PUB";
    static const uint8_t router[] = "\5READY\13Socket-Type\0\0\0\6ROUTER";
    bytes_view body = peer->role == ZMTP_PUB ? (bytes_view){pub, sizeof(pub) - 1}
                                             : (bytes_view){router, sizeof(router) - 1};
    return write_frame(peer, FLAG_COMMAND, body) == AVO_OK;
}

bool zmtp_send(zmtp_peer *peer, const bytes_view *frames, uint32_t count) {
    if (peer->out_at > 0) { /* what was read makes room */
        memmove(peer->out.data, peer->out.data + peer->out_at, peer->out.size - peer->out_at);
        peer->out.size -= peer->out_at;
        peer->out_at = 0;
    }
    size_t before = peer->out.size;
    for (uint32_t i = 0; i < count; i++) {
        if (write_frame(peer, i + 1 < count ? FLAG_MORE : 0, frames[i]) != AVO_OK) {
            peer->out.size = before; /* whole messages or none */
            return false;
        }
    }
    return true;
}

/* ---- Opening ---- */

avo_status zmtp_open(zmtp_peer *peer, zmtp_role role) {
    *peer = (zmtp_peer){.role = role};
    buffer_init(&peer->out, NULL, ZMTP_UNREAD_MAX);
    return buffer_append(&peer->out, greeting, sizeof(greeting));
}

void zmtp_close(zmtp_peer *peer) {
    buffer_free(&peer->out);
}

/* ---- Reading ---- */

static bool refuse(const char **why, const char *text) {
    *why = text;
    return false;
}

static bool take_greeting(zmtp_peer *peer, const uint8_t *in, const char **why) {
    if (in[0] != 0xff || (in[9] & 1) == 0)
        return refuse(why, "it does not speak ZMTP");
    if (in[10] < 3)
        return refuse(why, "it speaks an older ZMTP, 3.0 or later is needed");
    if (memcmp(in + 12, greeting + 12, 20) != 0)
        return refuse(why, "it wants another mechanism than NULL");
    peer->state = ZMTP_HANDSHAKE;
    return write_ready(peer) || refuse(why, "no memory");
}

static bool take_size(cursor *cursor, size_t bytes, uint64_t *size) {
    const uint8_t *data;
    *size = 0;
    if (!cursor_take(cursor, bytes, &data))
        return false;
    for (size_t i = 0; i < bytes; i++)
        *size = *size << 8 | data[i];
    return true;
}

/* A name with its size in front. */
static bool take_name(cursor *cursor, bytes_view *name) {
    uint64_t size;
    if (!take_size(cursor, 1, &size) || !cursor_take(cursor, size, &name->data))
        return false;
    name->size = size;
    return true;
}

static bool is_text(bytes_view bytes, const char *text) {
    return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0;
}

static bool fits_role(zmtp_role role, bytes_view type) {
    if (role == ZMTP_PUB)
        return is_text(type, "SUB") || is_text(type, "XSUB");
    return is_text(type, "REQ") || is_text(type, "DEALER") || is_text(type, "ROUTER");
}

static bool take_ready(zmtp_peer *peer, cursor *cursor, const char **why) {
    bool fits = false;
    while (cursor_left(cursor) > 0) {
        bytes_view name, value;
        uint64_t size;
        if (!take_name(cursor, &name) || !take_size(cursor, 4, &size) ||
            !cursor_take(cursor, size, &value.data))
            return refuse(why, "its READY is broken");
        value.size = size;
        if (is_text(name, "Socket-Type"))
            fits = fits_role(peer->role, value);
    }
    if (!fits)
        return refuse(why, peer->role == ZMTP_PUB ? "its socket is neither SUB nor XSUB"
                                                  : "its socket is neither REQ nor DEALER");
    peer->state = ZMTP_OPEN;
    return true;
}

static bool subscribe(zmtp_peer *peer, bytes_view topic, const char **why) {
    if (peer->subscription_count == ZMTP_SUBSCRIPTIONS_MAX || topic.size > ZMTP_TOPIC_MAX)
        return refuse(why, "it has too many subscriptions, or too long ones");
    zmtp_subscription *own = &peer->subscriptions[peer->subscription_count++];
    own->size = (uint8_t)topic.size;
    memcpy(own->topic, topic.data, topic.size);
    return true;
}

static void cancel(zmtp_peer *peer, bytes_view topic) {
    for (uint32_t i = 0; i < peer->subscription_count; i++) {
        zmtp_subscription *own = &peer->subscriptions[i];
        if (own->size == topic.size && memcmp(own->topic, topic.data, topic.size) == 0) {
            *own = peer->subscriptions[--peer->subscription_count];
            return;
        }
    }
}

static bool take_command(zmtp_peer *peer, bytes_view body, const char **why) {
    cursor cursor = cursor_over(body);
    bytes_view name, rest;
    if (!take_name(&cursor, &name))
        return refuse(why, "a command of it is broken");
    rest = (bytes_view){cursor.data + cursor.at, cursor_left(&cursor)};
    if (peer->state == ZMTP_HANDSHAKE)
        return is_text(name, "READY") ? take_ready(peer, &cursor, why)
                                      : refuse(why, "it does not begin with READY");
    if (is_text(name, "SUBSCRIBE") && peer->role == ZMTP_PUB)
        return subscribe(peer, rest, why);
    if (is_text(name, "CANCEL") && peer->role == ZMTP_PUB)
        cancel(peer, rest);
    else if (is_text(name, "PING") && rest.size >= 2) {
        uint8_t pong[5 + 16] = "\4PONG";
        size_t context = rest.size - 2 < 16 ? rest.size - 2 : 16; /* as long as the RFC allows */
        memcpy(pong + 5, rest.data + 2, context);
        return write_frame(peer, FLAG_COMMAND, (bytes_view){pong, 5 + context}) == AVO_OK ||
               refuse(why, "it sends PING and reads nothing");
    }
    return true; /* others may be new */
}

static bool take_message(zmtp_peer *peer, bytes_view body, bool more, const char **why) {
    if (peer->state != ZMTP_OPEN)
        return refuse(why, "it does not begin with READY");
    if (peer->role == ZMTP_PUB) {
        bytes_view topic = {body.data + 1, body.size - 1};
        if (body.size == 0 || body.data[0] > 1 || more)
            return refuse(why, "a subscription of it is broken");
        if (body.data[0] == 1)
            return subscribe(peer, topic, why);
        cancel(peer, topic);
        return true;
    }
    if (peer->frames++ == 0)
        peer->empty_first = more && body.size == 0;
    if (more)
        return peer->frames < FRAMES_MAX || refuse(why, "a message of it has too many frames");
    peer->frames = 0;
    cursor cursor = cursor_over(body);
    if (body.size != 8 || !take_size(&cursor, 8, &peer->asked_from))
        return refuse(why, "its message is not a sequence number of 8 bytes");
    peer->asked = true;
    return true;
}

/* One frame from the front of `in`: the bytes that it took, 0: it is not complete, −1: refused. */
static long take_frame(zmtp_peer *peer, const uint8_t *in, size_t size, const char **why) {
    cursor cursor = cursor_over((bytes_view){in, size});
    uint64_t flags, bytes;
    bytes_view body;
    if (!take_size(&cursor, 1, &flags))
        return 0;
    bool command = (flags & FLAG_COMMAND) != 0, more = (flags & FLAG_MORE) != 0;
    if (flags > 7 || (command && more)) {
        *why = "a frame of it has unknown flags";
        return -1;
    }
    if (!take_size(&cursor, (flags & FLAG_LONG) != 0 ? 8 : 1, &bytes))
        return 0;
    if (bytes > ZMTP_FRAME_MAX) {
        *why = "a frame of it is too long";
        return -1;
    }
    if (!cursor_take(&cursor, bytes, &body.data))
        return 0;
    body.size = bytes;
    bool good = command ? take_command(peer, body, why) : take_message(peer, body, more, why);
    return good ? (long)cursor.at : -1;
}

uint8_t *zmtp_room(zmtp_peer *peer, size_t *bytes) {
    *bytes = sizeof(peer->in) - peer->in_size;
    return peer->in + peer->in_size;
}

bool zmtp_received(zmtp_peer *peer, size_t bytes, const char **why) {
    size_t at = 0;
    peer->in_size += bytes;
    for (long took = 1; took > 0; at += (size_t)took) {
        const uint8_t *in = peer->in + at;
        size_t left = peer->in_size - at;
        if (peer->state == ZMTP_GREETING) {
            took = left < GREETING_BYTES ? 0 : (long)GREETING_BYTES;
            if (took > 0 && !take_greeting(peer, in, why))
                return false;
        } else {
            took = take_frame(peer, in, left, why);
            if (took < 0)
                return false;
        }
    }
    memmove(peer->in, peer->in + at, peer->in_size - at);
    peer->in_size -= at;
    return true;
}

bool zmtp_wants(const zmtp_peer *peer, bytes_view topic) {
    for (uint32_t i = 0; peer->state == ZMTP_OPEN && i < peer->subscription_count; i++) {
        const zmtp_subscription *own = &peer->subscriptions[i];
        if (own->size <= topic.size && memcmp(own->topic, topic.data, own->size) == 0)
            return true;
    }
    return false;
}
