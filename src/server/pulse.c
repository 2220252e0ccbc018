/* Is the decode loop alive, and does its device work? A thread asks the scheduler now and then how
 * many steps it has done and whether the device failed the last requests, and keeps what it said
 * for /health and /ready, which ask nobody. It is a thread of its own
 * because a scheduler that hangs may hang whoever asks it: then its silence is the answer.
 *
 * Without requests there is nothing to ask: the thread sleeps until the next exchange, and the loop
 * counts as alive meanwhile. */
#include "server/server_int.h"

#include "base/clock.h"

#include <time.h>

#define PULSE_NS 100000000 /* figures are no older than that */

/* Until the figures are old; while the server is idle, until the next request. False: the end. The
 * count of exchanges is read under the lock that pulse_wake takes after raising it, so that either
 * this thread sees the exchange or pulse_wake sees an idle thread. */
static bool wait_a_while(server *server, bool idle) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PULSE_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&server->pulse_lock);
    idle = idle && atomic_load(&server->open_exchanges) == 0;
    atomic_store(&server->pulse_idle, idle);
    if (server->pulse_runs && !idle)
        pthread_cond_timedwait(&server->pulse_cond, &server->pulse_lock, &until);
    while (server->pulse_runs && atomic_load(&server->pulse_idle))
        pthread_cond_wait(&server->pulse_cond, &server->pulse_lock);
    bool runs = server->pulse_runs;
    pthread_mutex_unlock(&server->pulse_lock);
    return runs;
}

static void *ask(void *context) {
    server *server = context;
    uint64_t steps = UINT64_MAX;
    bool idle;
    do {
        avo_scheduler_info info = AVO_SCHEDULER_INFO_INIT;
        avo_scheduler_describe(server->options.scheduler, &info);
        uint64_t now = clock_now_ns();
        idle = info.running == 0 && info.waiting == 0;
        if (info.steps != steps || idle)
            atomic_store(&server->pulse_moved_ns, now);
        steps = info.steps;
        atomic_store(&server->pulse_running, info.running);
        atomic_store(&server->pulse_waiting, info.waiting);
        atomic_store(&server->pulse_steps, info.steps);
        bool failed = info.device_failures > 0;
        bool changed = atomic_exchange(&server->pulse_failed, failed) != failed;
        atomic_store(&server->pulse_checked_ns, now);
        if (changed)
            server_changed(server);
    } while (wait_a_while(server, idle));
    return NULL;
}

void pulse_init(server *server) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->pulse_cond, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&server->pulse_lock, NULL);
}

avo_status pulse_begin(server *server, avo_error *error) {
    atomic_store(&server->pulse_checked_ns, clock_now_ns());
    atomic_store(&server->pulse_moved_ns, clock_now_ns());
    server->pulse_runs = true;
    if (pthread_create(&server->pulse, NULL, ask, server) != 0) {
        server->pulse_runs = false;
        return status_fail(error, AVO_ERROR_MEMORY, "cannot start the watchdog thread");
    }
    return AVO_OK;
}

void pulse_end(server *server) {
    pthread_mutex_lock(&server->pulse_lock);
    bool ran = server->pulse_runs;
    server->pulse_runs = false;
    pthread_cond_signal(&server->pulse_cond);
    pthread_mutex_unlock(&server->pulse_lock);
    if (ran)
        pthread_join(server->pulse, NULL);
    pthread_cond_destroy(&server->pulse_cond);
    pthread_mutex_destroy(&server->pulse_lock);
}

/* The times are set first: a thread that no longer sees an idle server sees them. */
void pulse_wake(server *server) {
    pthread_mutex_lock(&server->pulse_lock);
    if (atomic_load(&server->pulse_idle)) {
        uint64_t now = clock_now_ns();
        atomic_store(&server->pulse_moved_ns, now);
        atomic_store(&server->pulse_checked_ns, now);
        atomic_store(&server->pulse_idle, false);
        pthread_cond_signal(&server->pulse_cond);
    }
    pthread_mutex_unlock(&server->pulse_lock);
}

void server_figures(const server *server, uint32_t *running, uint32_t *waiting, uint64_t *steps) {
    *running = atomic_load(&server->pulse_running);
    *waiting = atomic_load(&server->pulse_waiting);
    *steps = atomic_load(&server->pulse_steps);
}

server_state server_health(const server *server, double *seconds) {
    bool idle = atomic_load(&server->pulse_idle);
    uint64_t now = clock_now_ns();
    uint64_t moved = atomic_load(&server->pulse_moved_ns);
    uint64_t checked = atomic_load(&server->pulse_checked_ns);
    uint64_t last = moved < checked ? moved : checked;
    double since = !idle && last < now ? clock_seconds(last, now) : 0.0;
    if (seconds != NULL)
        *seconds = since;
    if (since >= server->options.stall_seconds)
        return SERVER_STALLED;
    return atomic_load(&server->pulse_failed) ? SERVER_DEVICE_FAILED : SERVER_ALIVE;
}
