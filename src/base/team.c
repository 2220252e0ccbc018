/* The thread team: a generation counter that workers wait for, briefly spinning, then sleeping. */
#include "base/team.h"

#include "base/allocator.h"
#include "base/cpu.h"
#include "base/float_mode.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#define TEAM_SPINS 2000 /* about 20 µs: longer than the gap between two phases */

typedef struct team_worker {
    team *team;
    uint32_t index;
    pthread_t thread;
} team_worker;

struct team {
    const avo_allocator *allocator;
    uint32_t threads;
    uint32_t started; /* threads that run, without the caller */
    int spins;        /* 0 where there are more threads than processors: spinning would only keep
                         those from running that are waited for */
    team_task task;
    void *context;
    atomic_uint generation; /* raised once per task */
    atomic_uint pending;    /* workers not yet done with this task */
    atomic_uint arrived;    /* workers at the barrier */
    atomic_uint crossing;   /* raised when all have come */
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t work;
    pthread_cond_t done;
    pthread_cond_t crossed;
    team_worker workers[];
};

static size_t team_bytes(uint32_t threads) {
    return sizeof(team) + threads * sizeof(team_worker);
}

static inline void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static unsigned team_wait(team *team, unsigned seen) {
    for (int spin = 0; spin < team->spins; spin++) {
        unsigned now = atomic_load_explicit(&team->generation, memory_order_acquire);
        if (now != seen)
            return now;
        spin_pause();
    }
    pthread_mutex_lock(&team->mutex);
    unsigned now;
    while ((now = atomic_load_explicit(&team->generation, memory_order_acquire)) == seen)
        pthread_cond_wait(&team->work, &team->mutex);
    pthread_mutex_unlock(&team->mutex);
    return now;
}

static void *team_worker_main(void *argument) {
    team_worker *worker = argument;
    team *team = worker->team;
    unsigned seen = 0;
    /* The mode was inherited from whoever opened the team; this thread does nothing else. */
    float_mode ignored;
    float_mode_enter(&ignored);
    for (;;) {
        seen = team_wait(team, seen);
        if (atomic_load_explicit(&team->stop, memory_order_acquire))
            return NULL;
        team->task(team->context, worker->index, team->threads);
        if (atomic_fetch_sub_explicit(&team->pending, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&team->mutex);
            pthread_cond_signal(&team->done);
            pthread_mutex_unlock(&team->mutex);
        }
    }
}

static void team_release(team *team) {
    pthread_mutex_lock(&team->mutex);
    atomic_fetch_add_explicit(&team->generation, 1, memory_order_release);
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->mutex);
}

/* Starts the workers with every signal blocked: the host's signals are the host's business. Returns
 * the index of the one that could not be started, 0 when all run. */
static uint32_t team_start(team *team) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    uint32_t failed = 0;
    for (uint32_t i = 1; i < team->threads && failed == 0; i++) {
        team_worker *worker = &team->workers[i];
        *worker = (team_worker){.team = team, .index = i};
        if (pthread_create(&worker->thread, NULL, team_worker_main, worker) != 0)
            failed = i;
        else
            team->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

avo_status team_open(const avo_allocator *allocator, uint32_t threads, team **out,
                     avo_error *error) {
    *out = NULL;
    if (threads == 0 || threads > TEAM_THREADS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "threads: %u is not in 1…%u", threads,
                           (unsigned)TEAM_THREADS_MAX);
    size_t bytes = team_bytes(threads);
    team *team = allocator_take_array(allocator, 1, bytes);
    if (team == NULL)
        return status_no_memory(error, "the thread team", bytes);
    team->allocator = allocator;
    team->threads = threads;
    team->spins = threads <= cpu_usable_threads() ? TEAM_SPINS : 0;
    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->work, NULL);
    pthread_cond_init(&team->done, NULL);
    pthread_cond_init(&team->crossed, NULL);
    uint32_t failed = team_start(team);
    if (failed != 0) {
        team_close(team);
        return status_fail(error, AVO_ERROR_MEMORY, "cannot start thread %u of %u", failed + 1,
                           threads);
    }
    *out = team;
    return AVO_OK;
}

void team_close(team *team) {
    if (team == NULL)
        return;
    atomic_store_explicit(&team->stop, true, memory_order_release);
    team_release(team);
    for (uint32_t i = 1; i <= team->started; i++)
        pthread_join(team->workers[i].thread, NULL);
    pthread_cond_destroy(&team->crossed);
    pthread_cond_destroy(&team->done);
    pthread_cond_destroy(&team->work);
    pthread_mutex_destroy(&team->mutex);
    allocator_give(team->allocator, team, team_bytes(team->threads));
}

uint32_t team_size(const team *team) {
    return team->threads;
}

void team_run(team *team, team_task task, void *context) {
    if (team->threads == 1) {
        task(context, 0, 1);
        return;
    }
    team->task = task;
    team->context = context;
    atomic_store_explicit(&team->pending, team->threads - 1, memory_order_relaxed);
    team_release(team);
    task(context, 0, team->threads);
    for (int spin = 0; spin < team->spins; spin++) {
        if (atomic_load_explicit(&team->pending, memory_order_acquire) == 0)
            return;
        spin_pause();
    }
    pthread_mutex_lock(&team->mutex);
    while (atomic_load_explicit(&team->pending, memory_order_acquire) != 0)
        pthread_cond_wait(&team->done, &team->mutex);
    pthread_mutex_unlock(&team->mutex);
}

void team_barrier(team *team) {
    if (team->threads == 1)
        return;
    unsigned crossing = atomic_load_explicit(&team->crossing, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->threads) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        pthread_mutex_lock(&team->mutex);
        atomic_store_explicit(&team->crossing, crossing + 1, memory_order_release);
        pthread_cond_broadcast(&team->crossed);
        pthread_mutex_unlock(&team->mutex);
        return;
    }
    for (int spin = 0; spin < team->spins; spin++) {
        if (atomic_load_explicit(&team->crossing, memory_order_acquire) != crossing)
            return;
        spin_pause();
    }
    pthread_mutex_lock(&team->mutex);
    while (atomic_load_explicit(&team->crossing, memory_order_acquire) == crossing)
        pthread_cond_wait(&team->crossed, &team->mutex);
    pthread_mutex_unlock(&team->mutex);
}
