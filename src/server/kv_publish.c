/* The thread that sends KV events: one loop over poll() for the log's wake-up, two listening
 * sockets and all connections. It sleeps while there is nothing to send; a timer runs only for
 * connections that have not shaken hands yet. */
#include "server/kv_publish.h"

#include "base/clock.h"
#include "engine/engine.h"
#include "server/kv_format.h"
#include "server/server_int.h"
#include "server/zmtp.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FD_WAKE, FD_PUB, FD_REPLAY, FD_PEERS }; /* in the list for poll */

typedef struct kept_batch {
    char *data;
    size_t size;
} kept_batch;

typedef struct connection_kv {
    int descriptor;  /* −1: free */
    uint64_t due_ns; /* for its handshake */
    zmtp_peer peer;
} connection_kv;

struct kv_publish {
    kv_events *log;
    kv_publish_say say;
    bytes_view topic;
    int listen[2]; /* PUB, ROUTER; −1: none */
    pthread_t thread;
    bool runs;
    atomic_bool ends;

    /* The thread's own. */
    kv_event *events; /* [KV_BATCH_EVENTS] */
    buffer batch;
    uint64_t sequence; /* of the next batch */
    kept_batch *kept;  /* [KV_KEPT_BATCHES] by sequence number; the newest kept_count */
    uint32_t kept_count;
    uint64_t kept_bytes;
    connection_kv *peers; /* [KV_PEERS_MAX] */
};

/* ---- Endpoints ---- */

avo_status kv_endpoint_read(const char *option, const char *text,
                            char address[static KV_ADDRESS_MAX], uint16_t *port, avo_error *error) {
    text_view rest = text_from(text);
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    bool good =
        text_take(&rest, "tcp://") && colon > rest.data && colon[1] >= '0' && colon[1] <= '9';
    unsigned long number = good ? strtoul(colon + 1, &end, 10) : 0;
    size_t size = good ? (size_t)(colon - rest.data) : 0;
    if (good && rest.data[0] == '[' && size > 2 && rest.data[size - 1] == ']') {
        rest.data++;
        size -= 2;
    }
    if (!good || *end != '\0' || number > 65535 || size >= KV_ADDRESS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT,
                           "%s is \"%.200s\", must be tcp://ADDRESS:PORT, such as "
                           "tcp://127.0.0.1:5557",
                           option, text);
    memcpy(address, rest.data, size);
    address[size] = '\0';
    if (strcmp(address, "*") == 0)
        memcpy(address, "0.0.0.0", sizeof("0.0.0.0"));
    *port = (uint16_t)number;
    return AVO_OK;
}

static avo_status bind_at(server_options *options, const char *option, const char *endpoint,
                          avo_error *error) {
    char address[KV_ADDRESS_MAX];
    uint16_t port;
    AVO_TRY(kv_endpoint_read(option, endpoint, address, &port, error));
    AVO_TRY(
        listen_bind(option, address, port, &options->kv_listen[options->kv_listen_count], error));
    options->kv_listen_count++;
    return AVO_OK;
}

avo_status kv_publish_bind(server_options *options, avo_error *error) {
    if (options->kv_listen_count > 0)
        return AVO_OK;
    AVO_TRY(bind_at(options, "--kv-events", options->kv_events, error));
    return options->kv_replay == NULL
               ? AVO_OK
               : bind_at(options, "--kv-events-replay", options->kv_replay, error);
}

uint16_t kv_publish_port(const kv_publish *publish, bool replay) {
    int descriptor = publish->listen[replay ? 1 : 0];
    return descriptor < 0 ? 0 : listen_port(descriptor);
}

/* ---- Batches ---- */

static void say(const kv_publish *publish, const char *text, uint64_t number) {
    char line[200];
    snprintf(line, sizeof(line), "--kv-events: %s (%llu so far)", text, (unsigned long long)number);
    publish->say.say(publish->say.context, line);
}

static void drop_oldest(kv_publish *publish) {
    kept_batch *oldest =
        &publish->kept[(publish->sequence - publish->kept_count) % KV_KEPT_BATCHES];
    publish->kept_bytes -= oldest->size;
    publish->kept_count--;
    free(oldest->data);
    *oldest = (kept_batch){0};
}

/* For replay; without memory the batch, and all before it, cannot be replayed. */
static void keep(kv_publish *publish, bytes_view batch) {
    while (publish->kept_count > 0 && (publish->kept_count == KV_KEPT_BATCHES ||
                                       publish->kept_bytes + batch.size > KV_KEPT_BYTES))
        drop_oldest(publish);
    char *copy = publish->listen[1] < 0 ? NULL : malloc(batch.size);
    if (copy == NULL) {
        while (publish->kept_count > 0)
            drop_oldest(publish);
    } else {
        memcpy(copy, batch.data, batch.size);
        publish->kept[publish->sequence % KV_KEPT_BATCHES] = (kept_batch){copy, batch.size};
        publish->kept_count++;
        publish->kept_bytes += batch.size;
    }
}

static void number_bytes(uint64_t number, uint8_t out[static 8]) {
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(number >> (56 - 8 * i));
}

static void send_batch(kv_publish *publish, const kv_event *events, uint32_t count) {
    struct timespec now;
    uint8_t number[8];
    clock_gettime(CLOCK_REALTIME, &now);
    publish->batch.size = 0;
    if (kv_format_batch(publish->log, events, count, (double)now.tv_sec + (double)now.tv_nsec / 1e9,
                        &publish->batch) != AVO_OK) {
        publish->sequence++; /* subscribers see the gap, and no replay fills it */
        while (publish->kept_count > 0)
            drop_oldest(publish);
        return;
    }
    bytes_view batch = {(const uint8_t *)publish->batch.data, publish->batch.size};
    number_bytes(publish->sequence, number);
    const bytes_view frames[] = {publish->topic, {number, sizeof(number)}, batch};
    for (uint32_t i = 0; i < KV_PEERS_MAX; i++) {
        connection_kv *own = &publish->peers[i];
        if (own->descriptor >= 0 && own->peer.role == ZMTP_PUB &&
            zmtp_wants(&own->peer, publish->topic))
            (void)zmtp_send(&own->peer, frames, 3);
    }
    keep(publish, batch);
    publish->sequence++;
}

static void send_events(kv_publish *publish) {
    uint32_t count;
    while ((count = kv_events_take(publish->log, publish->events, KV_BATCH_EVENTS)) > 0) {
        if (publish->events[count - 1].kind == KV_EVENT_CLEARED)
            say(publish, "events were dropped, subscribers were told to forget all blocks",
                kv_events_dropped(publish->log));
        send_batch(publish, publish->events, count);
    }
}

/* What is kept from `from` on, then the end's mark. A client that reads too slowly gets less, and
 * no mark. */
static void replay(kv_publish *publish, zmtp_peer *peer) {
    uint8_t number[8];
    uint32_t first = peer->empty_first ? 0 : 1; /* of the frames below */
    uint64_t oldest = publish->sequence - publish->kept_count;
    uint64_t at = peer->asked_from > oldest ? peer->asked_from : oldest;
    bool good = true;
    for (; at < publish->sequence && good; at++) {
        const kept_batch *kept = &publish->kept[at % KV_KEPT_BATCHES];
        number_bytes(at, number);
        const bytes_view frames[] = {
            {number, 0}, {number, sizeof(number)}, {(const uint8_t *)kept->data, kept->size}};
        good = zmtp_send(peer, frames + first, 3 - first);
    }
    number_bytes(UINT64_MAX, number);
    const bytes_view end[] = {{number, 0}, {number, sizeof(number)}, {number, 0}};
    if (good)
        (void)zmtp_send(peer, end + first, 3 - first);
    peer->asked = false;
}

/* ---- Connections ---- */

static void hang_up(connection_kv *own) {
    close(own->descriptor);
    own->descriptor = -1;
    zmtp_close(&own->peer);
}

static void accept_one(kv_publish *publish, int listening, zmtp_role role) {
    connection_kv *own = NULL;
    int on = 1, descriptor = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor < 0)
        return;
    for (uint32_t i = 0; i < KV_PEERS_MAX && own == NULL; i++)
        own = publish->peers[i].descriptor < 0 ? &publish->peers[i] : NULL;
    if (own == NULL || zmtp_open(&own->peer, role) != AVO_OK) {
        say(publish, "a connection was refused, there are too many", KV_PEERS_MAX);
        close(descriptor);
        return;
    }
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    own->descriptor = descriptor;
    own->due_ns = clock_now_ns() + (uint64_t)KV_HANDSHAKE_MILLIS * 1000000;
}

/* False: the connection is over. */
static bool read_some(kv_publish *publish, connection_kv *own) {
    const char *why = NULL;
    char line[200];
    size_t room;
    uint8_t *data = zmtp_room(&own->peer, &room);
    ssize_t got = recv(own->descriptor, data, room, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0)
        return false;
    if (!zmtp_received(&own->peer, (size_t)got, &why)) {
        snprintf(line, sizeof(line), "--kv-events: a client was refused: %s", why);
        publish->say.say(publish->say.context, line);
        return false;
    }
    if (own->peer.asked)
        replay(publish, &own->peer);
    return true;
}

static bool write_some(connection_kv *own) {
    zmtp_peer *peer = &own->peer;
    while (peer->out_at < peer->out.size) {
        ssize_t sent = send(own->descriptor, peer->out.data + peer->out_at,
                            peer->out.size - peer->out_at, MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        peer->out_at += (size_t)sent;
    }
    peer->out.size = peer->out_at = 0;
    return true;
}

static void serve_peer(kv_publish *publish, connection_kv *own, short happened) {
    bool good = (happened & (POLLIN | POLLHUP | POLLERR)) == 0 || read_some(publish, own);
    if (!good || !write_some(own) ||
        (own->peer.state != ZMTP_OPEN && clock_now_ns() >= own->due_ns))
        hang_up(own);
}

/* ---- The thread ---- */

/* What to wait for, and for how many milliseconds; −1: for ever. */
static int prepare(const kv_publish *publish, struct pollfd *list) {
    int wait = -1;
    list[FD_WAKE] = (struct pollfd){.fd = kv_events_descriptor(publish->log), .events = POLLIN};
    list[FD_PUB] = (struct pollfd){.fd = publish->listen[0], .events = POLLIN};
    list[FD_REPLAY] = (struct pollfd){.fd = publish->listen[1], .events = POLLIN};
    for (uint32_t i = 0; i < KV_PEERS_MAX; i++) {
        const connection_kv *own = &publish->peers[i];
        bool unread = own->descriptor >= 0 && own->peer.out_at < own->peer.out.size;
        list[FD_PEERS + i] = (struct pollfd){.fd = own->descriptor,
                                             .events = (short)(POLLIN | (unread ? POLLOUT : 0))};
        if (own->descriptor >= 0 && own->peer.state != ZMTP_OPEN)
            wait = 1000;
    }
    return wait;
}

static void *publish_main(void *context) {
    kv_publish *publish = context;
    struct pollfd list[FD_PEERS + KV_PEERS_MAX];
    kv_event begin = {.kind = KV_EVENT_CLEARED}; /* whatever was known of this address before */
    send_batch(publish, &begin, 1);
    while (!atomic_load(&publish->ends)) {
        int wait = prepare(publish, list);
        if (!kv_events_sleep(publish->log))
            wait = 0;
        if (poll(list, FD_PEERS + KV_PEERS_MAX, wait) < 0 && errno != EINTR)
            break;
        uint64_t ignored;
        (void)!read(list[FD_WAKE].fd, &ignored, sizeof(ignored));
        send_events(publish);
        if ((list[FD_PUB].revents & POLLIN) != 0)
            accept_one(publish, publish->listen[0], ZMTP_PUB);
        if ((list[FD_REPLAY].revents & POLLIN) != 0)
            accept_one(publish, publish->listen[1], ZMTP_ROUTER);
        for (uint32_t i = 0; i < KV_PEERS_MAX; i++)
            if (publish->peers[i].descriptor >= 0)
                serve_peer(publish, &publish->peers[i],
                           publish->peers[i].descriptor == list[FD_PEERS + i].fd
                               ? list[FD_PEERS + i].revents
                               : 0);
    }
    return NULL;
}

/* ---- Opening and closing ---- */

static avo_status open_parts(const server_options *options, kv_publish *publish, avo_error *error) {
    publish->events = calloc(KV_BATCH_EVENTS, sizeof(*publish->events));
    publish->kept = calloc(KV_KEPT_BATCHES, sizeof(*publish->kept));
    publish->peers = calloc(KV_PEERS_MAX, sizeof(*publish->peers));
    if (publish->events == NULL || publish->kept == NULL || publish->peers == NULL)
        return status_no_memory(error, "KV events", KV_PEERS_MAX * sizeof(connection_kv));
    for (uint32_t i = 0; i < KV_PEERS_MAX; i++)
        publish->peers[i].descriptor = -1;
    for (uint32_t i = 0; i < options->kv_listen_count; i++) {
        publish->listen[i] = options->kv_listen[i];
        if (listen(publish->listen[i], (int)KV_PEERS_MAX) != 0)
            return status_fail(error, AVO_ERROR_IO, "--kv-events: cannot listen: %s",
                               strerror(errno));
    }
    int fault = pthread_create(&publish->thread, NULL, publish_main, publish);
    if (fault != 0)
        return status_fail(error, AVO_ERROR_MEMORY, "--kv-events: cannot start a thread: %s",
                           strerror(fault));
    publish->runs = true;
    return AVO_OK;
}

avo_status kv_publish_open(const server_options *options, kv_publish_say say, kv_publish **out,
                           avo_error *error) {
    kv_events *log = engine_kv_events(options->engine);
    assert(log != NULL);
    kv_publish *publish = calloc(1, sizeof(*publish));
    if (publish == NULL)
        return status_no_memory(error, "KV events", sizeof(*publish));
    publish->log = log;
    publish->say = say;
    publish->listen[0] = publish->listen[1] = -1;
    text_view topic = text_from(options->kv_topic == NULL ? "" : options->kv_topic);
    publish->topic = (bytes_view){(const uint8_t *)(topic.data), topic.size};
    buffer_init(&publish->batch, NULL, ZMTP_UNREAD_MAX);
    avo_status status = open_parts(options, publish, error);
    if (status != AVO_OK) {
        kv_publish_close(publish);
        return status;
    }
    *out = publish;
    return AVO_OK;
}

void kv_publish_close(kv_publish *publish) {
    if (publish == NULL)
        return;
    if (publish->runs) {
        uint64_t one = 1;
        atomic_store(&publish->ends, true);
        (void)!write(kv_events_descriptor(publish->log), &one, sizeof(one));
        pthread_join(publish->thread, NULL);
    }
    for (uint32_t i = 0; publish->peers != NULL && i < KV_PEERS_MAX; i++)
        if (publish->peers[i].descriptor >= 0)
            hang_up(&publish->peers[i]);
    while (publish->kept_count > 0)
        drop_oldest(publish);
    buffer_free(&publish->batch);
    free(publish->events);
    free(publish->kept);
    free(publish->peers);
    free(publish);
}
