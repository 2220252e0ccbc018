/* The threads of HTTP/2: each waits for its connections' sockets and for exchanges that were woken.
 * All work on a connection happens in its thread: what has come is parsed, what exchanges say is
 * submitted, and at the end of a round everything is sent that the sockets take. A connection is
 * closed at that point alone. */
#include "server/transport/nghttp2/nghttp2_int.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define WOKEN_MAX  256        /* exchanges between two sendings */
#define TICK_NS    250000000u /* between two looks at all deadlines, at least */

typedef struct incoming {
    int descriptor;
    struct incoming *next;
} incoming;

struct h2_loop {
    server *server;
    h2_tls_settings *tls; /* NULL: plain */
    int epoll, wake;
    pthread_t thread;
    bool runs;
    h2_connection *connections, *dirty_first;
    uint64_t due_ns; /* no deadline is earlier */

    pthread_mutex_t lock; /* of what other threads leave here: */
    bool signalled;       /* the thread will look */
    bool ends, drains;
    void (*tell)(carried *exchange);
    incoming *arrived;
    h2_exchange *woken_first, *woken_last;
};

struct h2_loops {
    h2_loop *loops;
    uint32_t count;
    atomic_uint next; /* whose turn it is to take a connection */
    h2_tls_settings *tls;
};

/* ---- For other threads ---- */

/* The lock is held. */
static void signal_loop(h2_loop *loop) {
    const uint64_t one = 1;
    if (loop->signalled || loop->wake < 0)
        return;
    loop->signalled = true;
    (void)!write(loop->wake, &one, sizeof(one));
}

/* The exchange's lock is held. */
void h2_wake(carried *exchange) {
    h2_exchange *own = (h2_exchange *)(void *)exchange;
    h2_loop *loop = own->loop;
    if (own->stream == NULL)
        return;
    pthread_mutex_lock(&loop->lock);
    if (!own->woken) {
        own->woken = true;
        own->woken_next = NULL;
        exchange_share(&exchange->base);
        if (loop->woken_last != NULL)
            loop->woken_last->woken_next = own;
        else
            loop->woken_first = own;
        loop->woken_last = own;
        signal_loop(loop);
    }
    pthread_mutex_unlock(&loop->lock);
}

/* ---- Connections ---- */

void h2_dirty(h2_connection *connection) {
    if (connection->dirty)
        return;
    connection->dirty = true;
    connection->dirty_next = connection->loop->dirty_first;
    connection->loop->dirty_first = connection;
}

void h2_expect_by(h2_loop *loop, uint64_t deadline_ns) {
    if (deadline_ns < loop->due_ns)
        loop->due_ns = deadline_ns;
}

static void close_socket(h2_loop *loop, int descriptor) {
    if (descriptor < 0)
        return;
    /* Lingering keeps the socket open by another descriptor; its events are not ours any more. */
    (void)epoll_ctl(loop->epoll, EPOLL_CTL_DEL, descriptor, NULL);
    watch_closed(loop->server, descriptor);
    close(descriptor);
}

h2_connection *h2_connection_open(h2_loop *loop, int descriptor) {
    h2_connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL) {
        close_socket(loop, descriptor);
        return NULL;
    }
    connection->server = loop->server;
    connection->loop = loop;
    connection->descriptor = descriptor;
    connection->begun_ns = connection->moved_ns = clock_now_ns();
    buffer_init(&connection->out, NULL, H2_OUT_BYTES);
    connection->tls = loop->tls == NULL ? NULL : h2_tls_open(loop->tls);
    connection->next = loop->connections;
    if (connection->next != NULL)
        connection->next->previous = connection;
    loop->connections = connection;
    if ((loop->tls == NULL || connection->tls != NULL) && h2_session_open(connection)) {
        h2_expect_by(loop,
                     connection->begun_ns + (uint64_t)(loop->server->options.header_seconds * 1e9));
        h2_dirty(connection);
        return connection;
    }
    h2_connection_close(connection);
    return NULL;
}

void h2_connection_close(h2_connection *connection) {
    h2_loop *loop = connection->loop;
    h2_session_close(connection);
    h2_tls_close(connection->tls);
    buffer_free(&connection->out);
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        loop->connections = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    for (h2_connection **at = &loop->dirty_first; *at != NULL; at = &(*at)->dirty_next)
        if (*at == connection) {
            *at = connection->dirty_next;
            break;
        }
    close_socket(loop, connection->descriptor);
    free(connection);
}

/* ---- Input ---- */

static bool receive_tls(h2_connection *connection, const char *bytes, size_t size) {
    char plain[H2_READ_BYTES];
    size_t got = 0;
    bool was_ready = h2_tls_ready(connection->tls);
    if (!h2_tls_receive(connection->tls, bytes, size))
        return false;
    if (!was_ready)
        h2_dirty(connection);
    do {
        if (!h2_tls_read(connection->tls, plain, sizeof(plain), &got) ||
            (got > 0 && !h2_session_receive(connection, plain, got)))
            return false;
    } while (got > 0);
    return true;
}

/* What the socket has, a piece a round: others want their turn, too. While answers wait to be sent
 * nothing is read. */
static void read_socket(h2_connection *connection) {
    char bytes[H2_READ_BYTES];
    if (connection->wants_out || connection->ends)
        return;
    ssize_t got = recv(connection->descriptor, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    bool good =
        got > 0 && (connection->tls != NULL ? receive_tls(connection, bytes, (size_t)got)
                                            : h2_session_receive(connection, bytes, (size_t)got));
    if (!good) {
        /* What nghttp2 has to say of an error is still sent, as far as the socket takes it. */
        connection->ends = true;
        connection->broken = got <= 0;
        h2_dirty(connection);
    }
}

/* ---- Output ---- */

/* What TLS has for the socket. */
static void take_encrypted(h2_connection *connection) {
    buffer *out = &connection->out;
    if (connection->tls != NULL)
        out->size += h2_tls_take(connection->tls, out->data + out->size, out->limit - out->size);
}

void h2_connection_fill(h2_connection *connection) {
    buffer *out = &connection->out;
    if (buffer_reserve(out, H2_OUT_BYTES - out->size) != AVO_OK) {
        connection->broken = true;
        return;
    }
    take_encrypted(connection);
    if (connection->tls != NULL && !h2_tls_ready(connection->tls))
        return;
    /* A frame has 16 KiB and a head at most, encrypted some bytes more. */
    while (!connection->broken && out->size < H2_OUT_BYTES / 2) {
        const uint8_t *bytes = NULL;
        ssize_t size = nghttp2_session_mem_send(connection->session, &bytes);
        if (size < 0)
            connection->broken = true;
        if (size <= 0)
            break;
        if (connection->tls == NULL)
            connection->broken = buffer_append(out, bytes, (size_t)size) != AVO_OK;
        else
            connection->broken = !h2_tls_write(connection->tls, (const char *)bytes, (size_t)size);
        take_encrypted(connection);
    }
}

static void wait_for_room(h2_connection *connection, bool wants) {
    if (connection->wants_out == wants)
        return;
    connection->wants_out = wants;
    struct epoll_event event = {.events = (wants ? EPOLLOUT : EPOLLIN) | EPOLLRDHUP,
                                .data.ptr = connection};
    if (epoll_ctl(connection->loop->epoll, EPOLL_CTL_MOD, connection->descriptor, &event) != 0)
        connection->broken = true;
}

static void send_all(h2_connection *connection) {
    buffer *out = &connection->out;
    while (!connection->broken) {
        if (connection->out_at == out->size) {
            connection->out_at = out->size = 0;
            h2_connection_fill(connection);
        }
        if (out->size == 0)
            break;
        ssize_t sent = send(connection->descriptor, out->data + connection->out_at,
                            out->size - connection->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN) {
            wait_for_room(connection, true);
            return;
        }
        if (sent < 0)
            connection->broken = true;
        else
            connection->out_at += (size_t)sent;
        connection->moved_ns = clock_now_ns();
    }
    wait_for_room(connection, false);
}

/* Messages of conversations that have come while another was answered. */
static void go_on(h2_connection *connection) {
    for (h2_stream *stream = connection->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        h2_stream_next(stream);
    }
}

static void notify(h2_connection *connection) {
    if (!atomic_load(&connection->server->draining) || connection->notified)
        return;
    connection->notified = true;
    nghttp2_submit_shutdown_notice(connection->session);
}

/* The end of a round; closes the connection where it is at its end. */
static void settle(h2_connection *connection) {
    notify(connection);
    if (connection->notified && connection->streams == NULL && !connection->ends) {
        connection->ends = true;
        nghttp2_session_terminate_session(connection->session, NGHTTP2_NO_ERROR);
    }
    if (connection->descriptor < 0)
        return;
    send_all(connection);
    go_on(connection);
    bool sent = connection->out.size == connection->out_at;
    bool over = connection->ends || (nghttp2_session_want_read(connection->session) == 0 &&
                                     nghttp2_session_want_write(connection->session) == 0);
    bool ended = over && sent && !connection->dirty;
    /* The last word, GOAWAY, would be lost with what the client has still sent. */
    if (ended && !connection->broken)
        watch_linger(connection->server, connection->descriptor);
    if (ended || connection->broken)
        h2_connection_close(connection);
    else if (sent && connection->streams == NULL)
        buffer_free(&connection->out); /* an idle connection costs little */
    else if (!sent)
        h2_expect_by(connection->loop,
                     connection->moved_ns +
                         (uint64_t)(connection->server->options.idle_seconds * 1e9));
}

/* The next exchange that was woken; from here on it may be woken again. */
static h2_exchange *take_woken(h2_loop *loop) {
    pthread_mutex_lock(&loop->lock);
    h2_exchange *own = loop->woken_first;
    if (own != NULL) {
        loop->woken_first = own->woken_next;
        if (own->woken_next == NULL)
            loop->woken_last = NULL;
        own->woken = false;
    }
    pthread_mutex_unlock(&loop->lock);
    return own;
}

void h2_loop_work(h2_loop *loop) {
    for (bool worked = true; worked;) {
        worked = loop->dirty_first != NULL;
        h2_exchange *own = NULL;
        /* In rounds: what was said is sent even while others go on speaking. */
        for (unsigned i = 0; i < WOKEN_MAX && (own = take_woken(loop)) != NULL; i++) {
            worked = true;
            if (own->stream != NULL)
                h2_answer(own->stream);
            exchange_release(&own->http.base);
        }
        while (loop->dirty_first != NULL) {
            h2_connection *connection = loop->dirty_first;
            loop->dirty_first = connection->dirty_next;
            connection->dirty = false;
            settle(connection);
        }
    }
}

/* ---- Deadlines ---- */

static uint64_t check_stream(h2_stream *stream, uint64_t now, uint64_t idle_ns) {
    if (now > stream->deadline_ns && stream->exchange != NULL) {
        stream->deadline_ns = UINT64_MAX;
        carried_expire(&stream->exchange->http);
    }
    /* The client's window is closed, and stays so. */
    bool waits =
        stream->begun && !stream->reset &&
        nghttp2_session_get_stream_remote_window_size(stream->connection->session, stream->id) <= 0;
    if (!waits)
        return stream->deadline_ns;
    uint64_t due = stream->moved_ns + idle_ns;
    if (now > due)
        h2_stream_reset(stream, NGHTTP2_ENHANCE_YOUR_CALM);
    return due < stream->deadline_ns ? due : stream->deadline_ns;
}

/* When it is to be looked at again. */
static uint64_t check_connection(h2_connection *connection, uint64_t now) {
    const server_options *options = &connection->server->options;
    uint64_t idle_ns = (uint64_t)(options->idle_seconds * 1e9);
    uint64_t due = UINT64_MAX;
    if (connection->tls != NULL && !h2_tls_ready(connection->tls)) {
        due = connection->begun_ns + (uint64_t)(options->header_seconds * 1e9);
        connection->broken = connection->broken || now > due;
    } else if (connection->out_at < connection->out.size) {
        due = connection->moved_ns + idle_ns;
        connection->broken = connection->broken || now > due;
    } else if (connection->streams == NULL) {
        due = connection->moved_ns + idle_ns;
        if (now > due && !connection->ends) {
            connection->ends = true;
            nghttp2_session_terminate_session(connection->session, NGHTTP2_NO_ERROR);
        }
    }
    if (now > due)
        h2_dirty(connection);
    for (h2_stream *stream = connection->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        uint64_t own = check_stream(stream, now, idle_ns);
        due = own < due ? own : due;
    }
    /* A window that closes later is found within this time. */
    if (connection->streams != NULL && now + idle_ns < due)
        due = now + idle_ns;
    return due;
}

static void keep_deadlines(h2_loop *loop, uint64_t now) {
    loop->due_ns = UINT64_MAX;
    for (h2_connection *connection = loop->connections; connection != NULL;
         connection = connection->next)
        h2_expect_by(loop, check_connection(connection, now));
}

/* ---- The thread ---- */

static void take_arrived(h2_loop *loop, incoming *arrived) {
    while (arrived != NULL) {
        incoming *one = arrived;
        arrived = one->next;
        h2_connection *connection = h2_connection_open(loop, one->descriptor);
        struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = connection};
        if (connection != NULL &&
            epoll_ctl(loop->epoll, EPOLL_CTL_ADD, one->descriptor, &event) != 0)
            connection->broken = true;
        free(one);
    }
}

static void tell_exchanges(h2_loop *loop, void (*tell)(carried *exchange)) {
    for (h2_connection *connection = loop->connections; connection != NULL;
         connection = connection->next)
        for (h2_stream *stream = connection->streams; stream != NULL; stream = stream->next)
            if (stream->exchange != NULL)
                tell(&stream->exchange->http);
}

/* What other threads have left. False: the end. */
static bool take_messages(h2_loop *loop) {
    pthread_mutex_lock(&loop->lock);
    loop->signalled = false;
    bool ends = loop->ends, drains = loop->drains;
    incoming *arrived = loop->arrived;
    void (*tell)(carried * exchange) = loop->tell;
    loop->arrived = NULL;
    loop->tell = NULL;
    loop->drains = false;
    pthread_mutex_unlock(&loop->lock);
    take_arrived(loop, arrived);
    if (tell != NULL)
        tell_exchanges(loop, tell);
    for (h2_connection *connection = loop->connections; drains && connection != NULL;
         connection = connection->next)
        h2_dirty(connection);
    return !ends;
}

static int milliseconds_left(const h2_loop *loop, uint64_t ticked) {
    if (loop->due_ns == UINT64_MAX)
        return -1;
    uint64_t now = clock_now_ns();
    uint64_t due = loop->due_ns > ticked + TICK_NS ? loop->due_ns : ticked + TICK_NS;
    uint64_t left = due > now ? (due - now) / 1000000u + 1 : 0;
    return left < 60000 ? (int)left : 60000;
}

static void see_event(const struct epoll_event *event) {
    h2_connection *connection = event->data.ptr;
    if (event->events & (EPOLLERR | EPOLLHUP))
        connection->broken = true;
    else if (event->events & EPOLLIN)
        read_socket(connection);
    else if (event->events & EPOLLRDHUP) /* while it takes nothing of what it asked for */
        connection->broken = true;
    h2_dirty(connection);
}

static void *loop_main(void *context) {
    h2_loop *loop = context;
    uint64_t ticked = clock_now_ns();
    bool runs = true;
    while (runs) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(loop->epoll, events, EVENTS_MAX, milliseconds_left(loop, ticked));
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr == NULL)
                (void)!read(loop->wake, &(uint64_t){0}, sizeof(uint64_t));
        runs = take_messages(loop);
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr != NULL)
                see_event(&events[i]);
        uint64_t now = clock_now_ns();
        if (now > loop->due_ns && now > ticked + TICK_NS) {
            ticked = now;
            keep_deadlines(loop, now);
        }
        h2_loop_work(loop);
    }
    while (loop->connections != NULL)
        h2_connection_close(loop->connections);
    h2_loop_work(loop); /* references of what was woken */
    return NULL;
}

/* ---- Opening and closing ---- */

static bool loop_init(h2_loop *loop, server *server, h2_tls_settings *tls) {
    *loop = (h2_loop){.server = server, .tls = tls, .epoll = -1, .wake = -1, .due_ns = UINT64_MAX};
    pthread_mutex_init(&loop->lock, NULL);
    return true;
}

static bool loop_start(h2_loop *loop) {
    struct epoll_event event = {.events = EPOLLIN};
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->epoll < 0 || loop->wake < 0 ||
        epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->wake, &event) != 0)
        return false;
    loop->runs = pthread_create(&loop->thread, NULL, loop_main, loop) == 0;
    return loop->runs;
}

static void loop_end(h2_loop *loop) {
    if (loop->runs) {
        pthread_mutex_lock(&loop->lock);
        loop->ends = true;
        signal_loop(loop);
        pthread_mutex_unlock(&loop->lock);
        pthread_join(loop->thread, NULL);
    }
    for (incoming *one = loop->arrived, *next; one != NULL; one = next) {
        next = one->next;
        close_socket(loop, one->descriptor);
        free(one);
    }
    if (loop->epoll >= 0)
        close(loop->epoll);
    if (loop->wake >= 0)
        close(loop->wake);
    pthread_mutex_destroy(&loop->lock);
}

void h2_loops_close(h2_loops *loops) {
    for (uint32_t i = 0; i < loops->count; i++)
        loop_end(&loops->loops[i]);
    h2_tls_settings_close(loops->tls);
    free(loops->loops);
    free(loops);
}

avo_status h2_loops_open(server *server, uint32_t count, h2_loops **out, avo_error *error) {
    const server_options *options = &server->options;
    h2_loops *loops = calloc(1, sizeof(*loops));
    if (loops == NULL)
        return status_no_memory(error, "the HTTP/2 threads", sizeof(*loops));
    loops->loops = calloc(count, sizeof(*loops->loops));
    avo_status status = loops->loops == NULL
                            ? status_no_memory(error, "the HTTP/2 threads", sizeof(*loops))
                            : AVO_OK;
    if (status == AVO_OK && options->certificate != NULL)
        status = h2_tls_settings_open(options->certificate, options->certificate_key, &loops->tls,
                                      error);
    for (uint32_t i = 0; status == AVO_OK && i < count; i++) {
        loop_init(&loops->loops[i], server, loops->tls);
        loops->count++;
        if (!loop_start(&loops->loops[i]))
            status = status_fail(error, AVO_ERROR_MEMORY, "cannot start the HTTP/2 threads");
    }
    if (status != AVO_OK) {
        h2_loops_close(loops);
        return status;
    }
    *out = loops;
    return AVO_OK;
}

bool h2_loops_add(h2_loops *loops, int descriptor) {
    h2_loop *loop = &loops->loops[atomic_fetch_add(&loops->next, 1) % loops->count];
    incoming *one = malloc(sizeof(*one));
    if (one == NULL)
        return false;
    pthread_mutex_lock(&loop->lock);
    *one = (incoming){descriptor, loop->arrived};
    loop->arrived = one;
    signal_loop(loop);
    pthread_mutex_unlock(&loop->lock);
    return true;
}

void h2_loops_tell_all(h2_loops *loops, void (*tell)(carried *exchange)) {
    for (uint32_t i = 0; i < loops->count; i++) {
        h2_loop *loop = &loops->loops[i];
        pthread_mutex_lock(&loop->lock);
        loop->tell = tell;
        signal_loop(loop);
        pthread_mutex_unlock(&loop->lock);
    }
}

void h2_loops_drain(h2_loops *loops) {
    for (uint32_t i = 0; i < loops->count; i++) {
        h2_loop *loop = &loops->loops[i];
        pthread_mutex_lock(&loop->lock);
        loop->drains = true;
        signal_loop(loop);
        pthread_mutex_unlock(&loop->lock);
    }
}

h2_loop *h2_loop_alone(server *server) {
    h2_loop *loop = calloc(1, sizeof(*loop));
    if (loop != NULL)
        loop_init(loop, server, NULL);
    return loop;
}

void h2_loop_alone_close(h2_loop *loop) {
    while (loop->connections != NULL)
        h2_connection_close(loop->connections);
    h2_loop_work(loop);
    loop_end(loop);
    free(loop);
}
