/* The watcher: accepts, sees hang-ups, keeps deadlines, lingers. */
#include "server/server_int.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define TICK_NS    250000000u /* between two looks at all deadlines, at least */
/* What epoll carries: generation and descriptor of a client, or one of these. */
#define EVENT_LISTEN ((uint64_t)1 << 63)
#define EVENT_WAKE   ((uint64_t)1 << 62)
#define GENERATION   0x3FFFFFFFu

static uint64_t after(uint64_t now, double seconds) {
    return now + (uint64_t)(seconds * 1e9);
}

static connection *entry_of(server *server, int descriptor) {
    return descriptor >= 0 && (uint32_t)descriptor < server->connection_count
               ? &server->connections[descriptor]
               : NULL;
}

static carried *share(carried *exchange) {
    exchange_share(&exchange->base);
    return exchange;
}

/* ---- Deadlines ---- */

/* The watcher checks all deadlines at watch_due_ns. A deadline that moves later leaves it
 * unchanged: the watcher then wakes once for nothing. An earlier deadline lowers it. That costs a
 * system call only if the watcher sleeps past it: about once per header_seconds, however many
 * requests come. The caller holds the lock. */
static void expect_by(server *server, uint64_t deadline_ns) {
    const uint64_t one = 1;
    if (deadline_ns >= server->watch_due_ns)
        return;
    server->watch_due_ns = deadline_ns;
    if (server->watch_sleeps)
        (void)!write(server->wake, &one, sizeof(one));
    server->watch_sleeps = false;
}

static bool has_deadline(const connection *entry) {
    return entry->state != CONNECTION_NONE && entry->state != CONNECTION_BUSY;
}

/* ---- State of connections, told by the HTTP threads ---- */

void watch_state(server *server, int descriptor, connection_state state) {
    pthread_mutex_lock(&server->table_lock);
    connection *entry = entry_of(server, descriptor);
    if (entry != NULL && entry->state != CONNECTION_NONE) {
        uint64_t now = clock_now_ns();
        double seconds = server->options.header_seconds;
        if (state == CONNECTION_HEAD) /* the next request of this connection */
            seconds += server->options.idle_seconds;
        entry->state = state;
        entry->body_bytes = 0;
        entry->deadline_ns = after(now, seconds);
        if (has_deadline(entry))
            expect_by(server, entry->deadline_ns);
    }
    pthread_mutex_unlock(&server->table_lock);
}

void watch_body(server *server, int descriptor, size_t bytes) {
    pthread_mutex_lock(&server->table_lock);
    connection *entry = entry_of(server, descriptor);
    if (entry != NULL && entry->state == CONNECTION_BODY) {
        uint64_t most = after(clock_now_ns(), server->options.idle_seconds);
        entry->body_bytes += bytes;
        entry->deadline_ns += (uint64_t)bytes * (1000000000u / SERVER_BODY_RATE);
        if (entry->deadline_ns > most) /* however much has come: then nothing for so long */
            entry->deadline_ns = most;
        expect_by(server, entry->deadline_ns);
    }
    pthread_mutex_unlock(&server->table_lock);
}

/* The lock is held. */
static void introduce(const connection *entry, carried *exchange) {
    memcpy(exchange->peer, entry->peer, sizeof(exchange->peer));
    exchange->local = entry->local;
    exchange->payer = entry->address;
    exchange->pays = entry->counted;
}

void watch_introduce(server *server, int descriptor, carried *exchange) {
    pthread_mutex_lock(&server->table_lock);
    const connection *entry = entry_of(server, descriptor);
    if (entry != NULL)
        introduce(entry, exchange);
    pthread_mutex_unlock(&server->table_lock);
}

bool watch_exchange(server *server, int descriptor, carried *exchange) {
    pthread_mutex_lock(&server->table_lock);
    connection *entry = entry_of(server, descriptor);
    bool hung_up = false;
    if (entry != NULL) {
        entry->exchange = exchange;
        hung_up = entry->hung_up;
        if (exchange != NULL)
            introduce(entry, exchange);
    }
    pthread_mutex_unlock(&server->table_lock);
    return hung_up;
}

bool watch_hung_up(server *server, int descriptor) {
    pthread_mutex_lock(&server->table_lock);
    const connection *entry = entry_of(server, descriptor);
    bool hung_up = entry != NULL && entry->hung_up;
    pthread_mutex_unlock(&server->table_lock);
    return hung_up;
}

void watch_linger(server *server, int descriptor) {
    pthread_mutex_lock(&server->table_lock);
    connection *entry = entry_of(server, descriptor);
    if (entry != NULL)
        entry->linger = true;
    pthread_mutex_unlock(&server->table_lock);
}

/* ---- Lingering ---- */

void watch_take(server *server, int descriptor) {
    shutdown(descriptor, SHUT_WR);
    connection *entry = entry_of(server, descriptor);
    pthread_mutex_lock(&server->table_lock);
    bool room = entry != NULL && entry->state == CONNECTION_NONE &&
                server->lingering < SERVER_LINGERING_MAX && !atomic_load(&server->closing);
    if (room) {
        entry->generation = (entry->generation + 1) & GENERATION;
        entry->exchange = NULL;
        entry->body_bytes = 0;
        entry->deadline_ns = after(clock_now_ns(), SERVER_LINGER_SECONDS);
        uint64_t key = (uint64_t)entry->generation << 32 | (uint32_t)descriptor;
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = key};
        /* Under the lock: who sees the state closes the descriptor, and its number may be another
         * connection's right after. */
        room = epoll_ctl(server->epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
        entry->state = room ? CONNECTION_LINGER : CONNECTION_NONE;
        server->lingering += room;
        if (room)
            expect_by(server, entry->deadline_ns);
    }
    pthread_mutex_unlock(&server->table_lock);
    if (!room)
        close(descriptor);
}

static void linger_end(server *server, int descriptor) {
    pthread_mutex_lock(&server->table_lock);
    server->connections[descriptor].state = CONNECTION_NONE;
    server->lingering--;
    pthread_mutex_unlock(&server->table_lock);
    close(descriptor);
}

static void linger_read(server *server, int descriptor) {
    char thrown[16384];
    connection *entry = &server->connections[descriptor]; /* the watcher's alone while it lingers */
    for (;;) {
        ssize_t got = recv(descriptor, thrown, sizeof(thrown), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        entry->body_bytes += got > 0 ? (uint64_t)got : 0;
        if (got <= 0 || entry->body_bytes > SERVER_LINGER_BYTES) {
            linger_end(server, descriptor);
            return;
        }
    }
}

/* ---- Accepting ---- */

void watch_leave(server *server, connection *entry) {
    if (entry->counted)
        addresses_leave(server->addresses, entry->address);
    entry->counted = false;
    entry->state = CONNECTION_NONE;
    entry->exchange = NULL;
    server->connected--;
}

/* A connection is refused in one breath: it may not have said anything yet. */
static void refuse(server *server, int descriptor, const struct sockaddr *address, unsigned status,
                   const char *text) {
    char id[EXCHANGE_ID_MAX + 1], peer[64];
    carrier_refusal answer = {status, "connections", text, NULL, "", true};
    access_refusal line = {.id = id, .peer = peer, .status = status, .begun_ns = clock_now_ns()};
    listen_peer(descriptor, address, peer, sizeof(peer));
    if (server->options.certificate == NULL)
        line.bytes = server->carriers[0]->driver->turn_away(descriptor, &answer, id);
    else
        carried_make_id(id);
    access_log_refusal(server, &line);
    watch_take(server, descriptor);
}

static void set_socket(const server *server, int descriptor, int family) {
    int on = 1, idle = 30, interval = 10, count = 3;
    unsigned patience = (unsigned)(server->options.idle_seconds * 1e3);
    if (family == AF_UNIX)
        return;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    /* A client whose machine is gone sends no word: the kernel asks it. */
    setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
}

/* Puts it into the table and gives the event's number; false: full. */
static bool enter(server *server, int descriptor, const struct sockaddr *address, bool counted,
                  bool http2, uint64_t *key) {
    pthread_mutex_lock(&server->table_lock);
    connection *entry = entry_of(server, descriptor);
    bool room = entry != NULL && server->connected < server->options.connections_max;
    if (room) {
        /* One that the carrier could not take at all leaves no word. */
        if (entry->state != CONNECTION_NONE)
            watch_leave(server, entry);
        uint32_t generation = (entry->generation + 1) & GENERATION;
        *entry = (connection){.state = CONNECTION_GATE, .generation = generation};
        entry->counted = counted;
        entry->http2 = http2;
        entry->address = address_of(address);
        entry->local = address_is_loopback(address);
        entry->begun_ns = clock_now_ns();
        entry->deadline_ns = after(entry->begun_ns, server->options.header_seconds);
        expect_by(server, entry->deadline_ns);
        listen_peer(descriptor, address, entry->peer, sizeof(entry->peer));
        *key = (uint64_t)generation << 32 | (uint32_t)descriptor;
        server->connected++;
    }
    pthread_mutex_unlock(&server->table_lock);
    return room;
}

static void take_connection(server *server, int descriptor, const struct sockaddr *address,
                            bool http2) {
    const server_options *options = &server->options;
    uint32_t maximum = options->connections_per_address_max;
    bool counted = address->sa_family != AF_UNIX;
    if (maximum == 0) {
        counted = counted && !address_is_loopback(address);
        maximum = SERVER_PER_ADDRESS;
    }
    if (counted && !addresses_enter(server->addresses, address_of(address), maximum)) {
        refuse(server, descriptor, address, 429, "too many connections from this address");
        return;
    }
    uint64_t key = 0;
    if (!enter(server, descriptor, address, counted, http2, &key)) {
        if (counted)
            addresses_leave(server->addresses, address_of(address));
        refuse(server, descriptor, address, 503, "too many connections");
        return;
    }
    set_socket(server, descriptor, address->sa_family);
    gate_enter(server, descriptor, key);
}

/* No descriptor is left: the spare one is given up to say so to one client. */
static void refuse_without_descriptor(server *server, int listener) {
    close(server->spare);
    int descriptor = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor >= 0)
        close(descriptor);
    server->spare = fcntl(server->wake, F_DUPFD_CLOEXEC, 0);
}

static void accept_all(server *server, uint32_t index) {
    int listener = server->options.listen_sockets[index];
    bool http2 = server->options.grpc_listen == index + 1;
    for (int taken = 0; taken < EVENTS_MAX; taken++) { /* others want their turn, too */
        struct sockaddr_storage address = {0};
        socklen_t bytes = sizeof(address);
        int descriptor =
            accept4(listener, (struct sockaddr *)&address, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (descriptor >= 0)
            take_connection(server, descriptor, (const struct sockaddr *)&address, http2);
        else if (errno == EMFILE || errno == ENFILE)
            refuse_without_descriptor(server, listener);
        else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* ---- Hang-ups and deadlines ---- */

static void hang_up(server *server, uint64_t key, bool ended) {
    int descriptor = (int)(uint32_t)key;
    carried *answering = NULL;
    pthread_mutex_lock(&server->table_lock);
    connection *entry = entry_of(server, descriptor);
    bool current = entry != NULL && entry->state != CONNECTION_NONE &&
                   entry->generation == (uint32_t)(key >> 32);
    bool lingers = current && entry->state == CONNECTION_LINGER;
    bool waits = current && entry->state == CONNECTION_GATE;
    if (current && !lingers && !waits) {
        entry->hung_up = true;
        if (entry->exchange != NULL)
            answering = share(entry->exchange);
    }
    pthread_mutex_unlock(&server->table_lock);
    if (lingers)
        linger_read(server, descriptor);
    if (waits)
        gate_read(server, descriptor, ended);
    if (answering != NULL) {
        carried_lose(answering);
        exchange_release(&answering->base);
    }
}

/* Too slow: where a request has begun its client is told so, and the carrier sees the end. */
static void keep_deadline(server *server, int descriptor, uint64_t now) {
    connection *entry = &server->connections[descriptor];
    carried *answering = NULL;
    pthread_mutex_lock(&server->table_lock);
    connection_state state = now > entry->deadline_ns ? entry->state : CONNECTION_NONE;
    if (state == CONNECTION_HEAD || state == CONNECTION_BODY) {
        entry->deadline_ns = UINT64_MAX;
        if (entry->exchange != NULL)
            answering = share(entry->exchange);
        else
            shutdown(descriptor, SHUT_RDWR); /* under the lock: the descriptor is still its own */
    }
    if (state == CONNECTION_NONE && has_deadline(entry))
        expect_by(server, entry->deadline_ns);
    pthread_mutex_unlock(&server->table_lock);
    if (answering != NULL) {
        carried_expire(answering);
        exchange_release(&answering->base);
    } else if (state == CONNECTION_LINGER)
        linger_end(server, descriptor);
    else if (state == CONNECTION_GATE)
        gate_late(server, descriptor);
}

/* ---- The thread ---- */

static void handle(server *server, const struct epoll_event *event) {
    uint64_t key = event->data.u64;
    if ((key & EVENT_LISTEN) != 0)
        accept_all(server, (uint32_t)(key & ~EVENT_LISTEN));
    else if ((key & EVENT_WAKE) != 0)
        (void)!read(server->wake, &(uint64_t){0}, sizeof(uint64_t));
    else
        hang_up(server, key, (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
}

/* Milliseconds for epoll_wait, −1: there is no deadline. From here on an earlier one wakes it. */
static int sleep_begin(server *server, uint64_t ticked) {
    pthread_mutex_lock(&server->table_lock);
    uint64_t due = server->watch_due_ns;
    server->watch_sleeps = true;
    pthread_mutex_unlock(&server->table_lock);
    if (due == UINT64_MAX)
        return -1;
    uint64_t now = clock_now_ns();
    due = due > ticked + TICK_NS ? due : ticked + TICK_NS;
    uint64_t wait_ms = due > now ? (due - now) / 1000000u + 1 : 0;
    return wait_ms < INT_MAX ? (int)wait_ms : INT_MAX;
}

/* Whether deadlines are to be looked at. */
static bool sleep_end(server *server, uint64_t now, uint64_t ticked) {
    pthread_mutex_lock(&server->table_lock);
    server->watch_sleeps = false;
    bool due = now > server->watch_due_ns && now > ticked + TICK_NS;
    if (due)
        server->watch_due_ns = UINT64_MAX; /* keep_deadline finds the next one */
    pthread_mutex_unlock(&server->table_lock);
    return due;
}

static void *watch(void *context) {
    server *server = context;
    uint64_t ticked = clock_now_ns();
    while (!atomic_load(&server->closing)) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(server->epoll, events, EVENTS_MAX, sleep_begin(server, ticked));
        /* Hang-ups first: the descriptor of one who left may be the next one's. */
        for (int i = 0; i < count; i++)
            if ((events[i].data.u64 & EVENT_LISTEN) == 0)
                handle(server, &events[i]);
        for (int i = 0; i < count; i++)
            if ((events[i].data.u64 & EVENT_LISTEN) != 0)
                handle(server, &events[i]);
        uint64_t now = clock_now_ns();
        if (sleep_end(server, now, ticked)) {
            ticked = now;
            for (uint32_t i = 0; i < server->connection_count; i++)
                keep_deadline(server, (int)i, now);
        }
    }
    for (uint32_t i = 0; i < server->connection_count; i++) {
        pthread_mutex_lock(&server->table_lock);
        connection_state state = server->connections[i].state;
        pthread_mutex_unlock(&server->table_lock);
        if (state == CONNECTION_LINGER)
            linger_end(server, (int)i);
        else if (state == CONNECTION_GATE)
            gate_close(server, (int)i);
    }
    return NULL;
}

avo_status watch_begin(server *server, avo_error *error) {
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->watch_due_ns = UINT64_MAX;
    server->spare = server->wake < 0 ? -1 : fcntl(server->wake, F_DUPFD_CLOEXEC, 0);
    if (server->epoll < 0 || server->wake < 0 || server->spare < 0)
        return status_fail(error, AVO_ERROR_IO, "cannot create epoll and eventfd: %s",
                           strerror(errno));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = EVENT_WAKE};
    bool added = epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->wake, &event) == 0;
    for (uint32_t i = 0; added && i < server->options.listen_count; i++) {
        event.data.u64 = EVENT_LISTEN | i;
        added =
            epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->options.listen_sockets[i], &event) == 0;
    }
    if (!added)
        return status_fail(error, AVO_ERROR_IO, "cannot add a socket to epoll: %s",
                           strerror(errno));
    server->watcher_runs = pthread_create(&server->watcher, NULL, watch, server) == 0;
    return server->watcher_runs
               ? AVO_OK
               : status_fail(error, AVO_ERROR_MEMORY, "cannot start the watcher thread");
}

void watch_end(server *server) {
    uint64_t one = 1;
    if (server->watcher_runs) {
        (void)!write(server->wake, &one, sizeof(one));
        pthread_join(server->watcher, NULL);
    }
    server->watcher_runs = false;
}

void watch_closed(server *server, int descriptor) {
    pthread_mutex_lock(&server->table_lock);
    connection *entry = entry_of(server, descriptor);
    bool lingers = false;
    if (entry != NULL && entry->state != CONNECTION_NONE) {
        lingers = entry->linger && !entry->hung_up;
        watch_leave(server, entry);
        epoll_ctl(server->epoll, EPOLL_CTL_DEL, descriptor, NULL);
    }
    pthread_mutex_unlock(&server->table_lock);
    int copy = lingers ? fcntl(descriptor, F_DUPFD_CLOEXEC, 3) : -1;
    if (copy >= 0)
        watch_take(server, copy);
}

void watch_tell_all(server *server, void (*tell)(carried *exchange)) {
    for (uint32_t i = 0; i < server->connection_count; i++) {
        carried *answering = NULL;
        pthread_mutex_lock(&server->table_lock);
        if (server->connections[i].exchange != NULL)
            answering = share(server->connections[i].exchange);
        pthread_mutex_unlock(&server->table_lock);
        if (answering == NULL)
            continue;
        tell(answering);
        exchange_release(&answering->base);
    }
}
