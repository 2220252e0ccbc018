/* The thread team. Whoever waits does so on a 32-bit word: it spins for a while, then sleeps in the
 * kernel (futex). A word holds a counter, shifted by one, and in its lowest bit whether somebody
 * sleeps on it, so that one exchange both raises the counter and says whether anyone must be woken:
 * while all are awake no system call is made.
 *
 * The barrier has two forms, each the faster one where it is used (bench/team.c). Two to four
 * workers: dissemination, ⌈log2 n⌉ rounds in which everybody writes to one other's mailbox and
 * waits for its own; one line of the cache travels per round. More: worker 0 gathers everybody's
 * mailbox, the lines of which travel side by side, and then raises the one word that all wait for.
 * A counter that all of them raise, for comparison, costs twice as much on 2 and on 16 processors.
 */
#include "base/team.h"

#include "base/allocator.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/float_mode.h"
#include "base/topology.h"

#include <assert.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE_BYTES        64
#define DISSEMINATION_MAX 4 /* workers; more gather */
#define ROUNDS_MAX        2 /* log2 of that */
/* Barriers after which sleepers take part in one, so that their words are never so far behind that
 * they seem to be ahead. */
#define ROLL_CALL_BARRIERS ((uint32_t)1 << 28)

/* How long to spin before sleeping. A wait that outlasts it halves the worker's next spin, one that
 * does not doubles it: a team that is waited with by others, or waits for work all day, soon spins
 * little; one that is busy bridges the gaps between two steps. */
#define SPIN_NS_MAX 400000u
#define SPIN_NS_MIN 4000u
#define SPIN_EAGER  64 /* looks before the first pause: most waits end here */
#define SPIN_LOOKS  32 /* looks between two looks at the clock */

/* A word on a line of its own. */
typedef struct team_word {
    _Alignas(LINE_BYTES) atomic_uint value; /* counter · 2 + 1 where somebody sleeps */
} team_word;

/* Items taken of a worker's share, by anybody. */
typedef struct team_taken {
    _Alignas(LINE_BYTES) atomic_size_t items;
} team_taken;

typedef struct team_worker {
    team_word called;                /* raised once per task that it takes part in */
    team_word mailbox[ROUNDS_MAX];   /* gathering: [0], written by the worker, read by worker 0 */
    team_word signal;                /* raised by the worker itself */
    team_taken taken[2];             /* of the work at hand, and of the next */
    _Alignas(LINE_BYTES) team *team; /* from here on its own */
    uint32_t index;
    uint32_t crossing; /* barriers crossed so far */
    uint32_t signals;  /* given so far */
    uint32_t works;    /* begun so far */
    uint32_t spin_ns;  /* 0: never */
    bool counts;       /* how long it waits */
    uint64_t waited_ns;
    pthread_t thread;
} team_worker;

/* Whoever sleeps through tasks has missed barriers and works: a task begins with everybody at the
 * counts of worker 0. */
struct team {
    const avo_allocator *allocator;
    uint32_t threads;
    uint32_t active;  /* of these, who take part in tasks */
    uint32_t started; /* threads that run, without the caller */
    team_pin pin;
    uint32_t places;   /* of both teams where they share processors, else 0 */
    topology topology; /* where pinned: of the process when the team was opened */
    team_task task;
    void *context;
    bool stop;
    uint32_t crossing; /* barriers crossed, works begun before the task at hand */
    uint32_t works;
    uint32_t signals;    /* the same of signals */
    uint32_t called_all; /* `crossing` at the last roll call */
    team_word crossed;   /* gathering: raised when all have come */
    team_worker workers[];
};

static size_t team_bytes(uint32_t threads) {
    return sizeof(team) + threads * sizeof(team_worker);
}

/* ---- Words ---- */

static inline void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Whether the word's counter has come to `count`. It is never more than a few ahead. */
static inline bool word_reached(unsigned value, unsigned count) {
    return ((value - count * 2) & 0x80000000u) == 0;
}

static inline bool word_look(team_word *word, unsigned count) {
    return word_reached(atomic_load_explicit(&word->value, memory_order_acquire), count);
}

static void word_raise(team_word *word, unsigned count) {
    if (atomic_exchange_explicit(&word->value, count * 2, memory_order_acq_rel) & 1)
        syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static bool word_spin(team_word *word, unsigned count, uint32_t spin_ns) {
    for (int look = 0; look < SPIN_EAGER; look++)
        if (word_look(word, count))
            return true;
    uint64_t end = clock_now_ns() + spin_ns;
    do {
        for (int look = 0; look < SPIN_LOOKS; look++) {
            if (word_look(word, count))
                return true;
            spin_pause();
        }
    } while (clock_now_ns() < end);
    return false;
}

static void word_sleep(team_word *word, unsigned count) {
    for (;;) {
        unsigned value = atomic_load_explicit(&word->value, memory_order_acquire);
        if (word_reached(value, count))
            return;
        if ((value & 1) == 0 &&
            !atomic_compare_exchange_weak_explicit(&word->value, &value, value | 1,
                                                   memory_order_relaxed, memory_order_relaxed))
            continue;
        syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, value | 1, NULL, NULL, 0);
    }
}

static void word_stay(team_worker *worker, team_word *word, unsigned count) {
    if (worker->spin_ns > 0) {
        if (word_spin(word, count, worker->spin_ns)) {
            if (worker->spin_ns < SPIN_NS_MAX)
                worker->spin_ns *= 2;
            return;
        }
        if (worker->spin_ns > SPIN_NS_MIN)
            worker->spin_ns /= 2;
    }
    word_sleep(word, count);
}

static inline void word_wait(team_worker *worker, team_word *word, unsigned count) {
    if (word_look(word, count))
        return;
    if (!worker->counts) {
        word_stay(worker, word, count);
        return;
    }
    uint64_t begin = clock_now_ns();
    word_stay(worker, word, count);
    worker->waited_ns += clock_now_ns() - begin;
}

/* ---- The barrier ---- */

/* `workers`: worker 0 may be on to a task of another size while the last one still leaves. */
static void cross_disseminating(team *team, team_worker *self, unsigned count, uint32_t workers) {
    uint32_t distance = 1;
    for (uint32_t round = 0; distance < workers; round++, distance *= 2) {
        uint32_t to = self->index + distance;
        to = to < workers ? to : to - workers;
        word_raise(&team->workers[to].mailbox[round], count);
        word_wait(self, &self->mailbox[round], count);
    }
}

static void cross_gathering(team *team, team_worker *self, unsigned count, uint32_t workers) {
    if (self->index > 0) {
        word_raise(&self->mailbox[0], count);
        word_wait(self, &team->crossed, count);
        return;
    }
    for (uint32_t i = 1; i < workers; i++)
        word_wait(self, &team->workers[i].mailbox[0], count);
    word_raise(&team->crossed, count);
}

void team_barrier(team *team, uint32_t worker) {
    uint32_t workers = team->active;
    if (workers == 1)
        return;
    team_worker *self = &team->workers[worker];
    unsigned count = ++self->crossing;
    if (workers <= DISSEMINATION_MAX)
        cross_disseminating(team, self, count, workers);
    else
        cross_gathering(team, self, count, workers);
}

void team_signal(team *team, uint32_t worker) {
    team_worker *self = &team->workers[worker];
    if (team->active > 1)
        word_raise(&self->signal, ++self->signals);
}

void team_await(team *team, uint32_t worker) {
    team_worker *self = &team->workers[worker];
    for (uint32_t i = 0; i < team->active; i++)
        if (i != worker)
            word_wait(self, &team->workers[i].signal, self->signals);
}

/* ---- Work that anybody may do ---- */

/* Clears the counter of the next work. Nobody looks at it: the work that used it before this one
 * lies behind a barrier, the one that will use it lies before the next. */
void team_work_begin(team *team, uint32_t worker, size_t count, team_work *out) {
    team_worker *self = &team->workers[worker];
    uint32_t bank = self->works++ & 1;
    atomic_store_explicit(&self->taken[!bank].items, 0, memory_order_relaxed);
    *out = (team_work){
        .team = team, .count = count, .workers = team->active, .worker = worker, .bank = bank};
    team_share(count, worker, team->active, &out->begin, &out->end);
}

bool team_work_next(team_work *work, size_t *item) {
    while (work->helped < work->workers) {
        uint32_t owner = work->worker + work->helped;
        owner = owner < work->workers ? owner : owner - work->workers;
        atomic_size_t *taken = &work->team->workers[owner].taken[work->bank].items;
        size_t items = work->end - work->begin;
        /* A look first: shares that are done are not written to by all who pass. */
        if (atomic_load_explicit(taken, memory_order_relaxed) < items) {
            size_t mine = atomic_fetch_add_explicit(taken, 1, memory_order_relaxed);
            if (mine < items) {
                *item = work->begin + mine;
                return true;
            }
        }
        if (++work->helped == work->workers)
            break;
        owner = owner + 1 < work->workers ? owner + 1 : 0;
        team_share(work->count, owner, work->workers, &work->begin, &work->end);
    }
    return false;
}

/* ---- Workers ---- */

/* The processors that a worker is to stay on. */
static void worker_place(const team *team, uint32_t index, cpu_set_t *set) {
    const topology *topology = &team->topology;
    uint32_t places = team->places > 0 ? team->places : team->threads;
    uint32_t place = team->places > 0 ? places - 1 - index : index;
    CPU_ZERO(set);
    if (team->pin == TEAM_PIN_CORE)
        CPU_SET(topology->order[place % topology->processors], set);
    else
        topology_node_set(topology, (uint32_t)((uint64_t)place * topology->nodes / places), set);
}

static void pin_worker(const team *team, uint32_t index) {
    cpu_set_t set;
    worker_place(team, index, &set);
    (void)sched_setaffinity(0, sizeof(set), &set); /* a wish: it computes the same elsewhere */
}

/* The caller's thread is the host's: it is kept in its place for the length of a task, and never
 * outside of what its owner allows it. False: there is nothing to give back. */
static bool pin_caller(const team *team, cpu_set_t *before) {
    cpu_set_t own;
    if (team->pin == TEAM_PIN_NONE || sched_getaffinity(0, sizeof(*before), before) != 0)
        return false;
    worker_place(team, 0, &own);
    CPU_AND(&own, &own, before);
    return CPU_COUNT(&own) > 0 && !CPU_EQUAL(&own, before) &&
           sched_setaffinity(0, sizeof(own), &own) == 0;
}

static void *team_worker_main(void *argument) {
    team_worker *worker = argument;
    team *team = worker->team;
    /* The mode was inherited from whoever opened the team; this thread does nothing else. */
    float_mode ignored;
    float_mode_enter(&ignored);
    if (team->pin != TEAM_PIN_NONE)
        pin_worker(team, worker->index);
    for (unsigned call = 1;; call++) {
        word_wait(worker, &worker->called, call);
        if (team->stop)
            return NULL;
        worker->crossing = team->crossing;
        worker->works = team->works;
        worker->signals = team->signals;
        team->task(team->context, worker->index, team->active);
        team_barrier(team, worker->index);
    }
}

/* Only worker 0 raises these words, so it need not look at what it raises. Each worker has its own:
 * those who do not take part sleep on. */
static void team_call(team *team, uint32_t workers) {
    for (uint32_t i = 1; i < workers; i++) {
        team_word *called = &team->workers[i].called;
        word_raise(called, atomic_load_explicit(&called->value, memory_order_relaxed) / 2 + 1);
    }
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
        if (pthread_create(&worker->thread, NULL, team_worker_main, worker) != 0)
            failed = i;
        else
            team->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

avo_status team_open_with(const avo_allocator *allocator, const team_options *options, team **out,
                          avo_error *error) {
    *out = NULL;
    uint32_t threads = options->threads;
    if (threads == 0 || threads > TEAM_THREADS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "threads is %u, must be 1 to %u", threads,
                           (unsigned)TEAM_THREADS_MAX);
    size_t bytes = team_bytes(threads);
    team *team = allocator_take_array(allocator, 1, bytes);
    if (team == NULL)
        return status_no_memory(error, "the thread team", bytes);
    team->allocator = allocator;
    team->threads = team->active = threads;
    team->pin = options->pin;
    team->places = options->places;
    if (team->pin != TEAM_PIN_NONE)
        topology_detect(&team->topology);
    /* With more threads than processors, spinning would only keep those from running that are
     * waited for. */
    uint32_t places = options->places > threads ? options->places : threads;
    uint32_t spin_ns = places <= cpu_usable_threads() ? SPIN_NS_MAX : 0;
    for (uint32_t i = 0; i < threads; i++) {
        team->workers[i].team = team;
        team->workers[i].index = i;
        team->workers[i].spin_ns = spin_ns;
    }
    uint32_t failed = team_start(team);
    if (failed != 0) {
        team_close(team);
        return status_fail(error, AVO_ERROR_MEMORY, "cannot start thread %u of %u", failed + 1,
                           threads);
    }
    *out = team;
    return AVO_OK;
}

avo_status team_open(const avo_allocator *allocator, uint32_t threads, team **out,
                     avo_error *error) {
    team_options options = {.threads = threads};
    return team_open_with(allocator, &options, out, error);
}

void team_close(team *team) {
    if (team == NULL)
        return;
    team->stop = true;
    team_call(team, team->started + 1);
    for (uint32_t i = 1; i <= team->started; i++)
        pthread_join(team->workers[i].thread, NULL);
    allocator_give(team->allocator, team, team_bytes(team->threads));
}

/* A task of its own: workers read theirs while they wait for the next one. */
static void count_from_now(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    team *team = context;
    team->workers[worker].counts = true;
}

void team_count_waits(team *team) {
    team_run(team, count_from_now, team);
}

uint64_t team_waited_ns(const team *team, uint32_t worker) {
    return team->workers[worker].waited_ns;
}

uint32_t team_size(const team *team) {
    return team->active;
}

/* Nobody is inside a task, so nobody takes items. Words are left alone: one who is slow to leave
 * the last barrier may still sleep on his. */
void team_resize(team *team, uint32_t workers) {
    assert(workers > 0 && workers <= team->threads);
    if (workers == team->active)
        return;
    team->active = workers;
    for (uint32_t i = 0; i < workers; i++)
        for (uint32_t bank = 0; bank < 2; bank++)
            atomic_store_explicit(&team->workers[i].taken[bank].items, 0, memory_order_relaxed);
}

static void run_task(team *team, team_task task, void *context) {
    team->task = task;
    team->context = context;
    team->crossing = team->workers[0].crossing;
    team->works = team->workers[0].works;
    team->signals = team->workers[0].signals;
    team_call(team, team->active);
    task(context, 0, team->active);
    team_barrier(team, 0);
}

static void report(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    team_signal(context, worker);
}

/* Both forms of the barrier: each has words of its own. */
static void roll_call(team *team) {
    uint32_t active = team->active;
    team_resize(team, team->threads);
    run_task(team, report, team);
    team_resize(team, team->threads < DISSEMINATION_MAX ? team->threads : DISSEMINATION_MAX);
    run_task(team, report, team);
    team_resize(team, active);
    team->called_all = team->workers[0].crossing;
}

void team_run(team *team, team_task task, void *context) {
    cpu_set_t before;
    bool pinned = pin_caller(team, &before);
    if (team->active < team->threads &&
        team->workers[0].crossing - team->called_all > ROLL_CALL_BARRIERS)
        roll_call(team);
    run_task(team, task, context);
    if (pinned)
        (void)sched_setaffinity(0, sizeof(before), &before);
}
