/* The thread team. Workers walk through a program by themselves, nobody leads: each knows the
 * serial number of its phase, takes items while there are any, and goes on when all items are done.
 *
 * Two words for every worker, each on a cache line of its own, hold the whole state of a phase:
 *
 *   claim  {phase, items taken of this worker's share}, raised by whoever takes one
 *   done   {phase, items that this worker has computed}, written once when it finds none left
 *
 * A claim word of an earlier phase means "none taken", so that nothing needs to be reset, and one
 * of a later phase says that this phase is over. A phase is done when the counts of all done words
 * sum up to its items, or one of them is of a later phase. So a worker that was away finds out by
 * itself that its phase is over and catches up.
 *
 * Programs live in memory that their caller owns and may reuse as soon as the last phase is done. A
 * late worker may not touch it: before an item is taken it reads nothing but atomic words of the
 * team (item counts, checked against the serial number of the program), and whoever has taken an
 * item keeps the phase from ending.
 *
 * Waiting inside a program: everybody of a small team looks at the done words of all others; in a
 * larger one the gatherer does and raises one word for the others, or another worker in its place
 * if it is away. They spin first. Then they spin on and yield, because a processor that idles wakes
 * up late, above all in virtual machines; but where others want the processor they sleep: a yield
 * lasts for the other's whole time slice, while a sleeper is owed time and is put back at once.
 * Between programs workers sleep in the kernel (futex), after spinning for a time that follows the
 * gaps between programs. */
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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 64
#define SMALL_TEAM 4 /* workers that all look at one another; more have a gatherer */

/* Between programs: how long to spin before sleeping. A wait that outlasts it halves the worker's
 * next spin, one that does not doubles it: a team that waits for work all day soon spins little, a
 * busy one bridges the gaps between two steps. */
#define SPIN_NS_MAX 400000u
#define SPIN_NS_MIN 4000u
#define SPIN_EAGER  64 /* looks before the first pause: most waits end here */
#define SPIN_LOOKS  32 /* looks between two looks at the clock */

/* Inside a program. */
#define SPIN_NS     20000u   /* before the processor is offered to others */
#define SLEEP_NS    1000000u /* yielding before it sleeps, where nobody else wants the processor */
#define SHARED_FOR  256      /* programs for which a processor counts as shared */
#define NAP_NS      2000000u /* longest sleep before it looks again */
#define TAKEOVER_NS 5000u    /* after which another worker looks whether the phase is done */

#define COUNT_BITS 24
#define COUNT_MASK (((uint64_t)1 << COUNT_BITS) - 1)

/* A word on a line of its own, to sleep on. */
typedef struct team_word {
    _Alignas(LINE_BYTES) atomic_uint value; /* counter · 2 + 1 where somebody sleeps */
} team_word;

/* {phase, count} */
typedef struct team_pair {
    _Alignas(LINE_BYTES) _Atomic uint64_t value;
} team_pair;

typedef struct team_worker {
    team_word called; /* raised once per program that it takes part in */
    team_pair claim, done;
    _Alignas(LINE_BYTES) team *team; /* from here on its own */
    uint32_t index;
    uint32_t spin_ns; /* between programs; 0: never */
    bool counts;      /* how long it waits */
    long switches;    /* that it did not ask for: somebody else wanted its processor */
    uint32_t recent;  /* programs for which the last of them still counts */
    uint32_t shared;  /* programs for which its processor still counts as shared */
    uint64_t waited_ns;
    pthread_t thread, looked; /* of it, and that its switches are of */
} team_worker;

struct team {
    const avo_allocator *allocator;
    uint32_t threads;
    uint32_t active;  /* of these, who take part */
    uint32_t started; /* threads that run, without the caller */
    uint32_t phases_max;
    team_pin pin;
    bool crowded;      /* more threads than processors: nobody spins */
    uint32_t places;   /* of both teams where they share processors, else 0 */
    topology topology; /* where pinned: of the process when the team was opened */
    atomic_bool stop;
    /* The program at hand. What is not atomic is read by whoever has taken an item. */
    const team_phase *phases;
    const void *context;
    uint64_t next_phase; /* serial number of the next program's first phase */
    _Alignas(LINE_BYTES) _Atomic uint64_t program; /* its serial number; 0: it is being written */
    _Atomic uint64_t first_phase;
    atomic_uint phase_count, workers_now;
    team_pair reached;  /* {phase that is open, 0}, raised by the gatherer */
    team_pair gatherer; /* index */
    team_word crossed;  /* barriers of team_each: raised by the last who comes */
    team_pair arrived;  /* workers that have come to the next one */
    team_word alarm;    /* whoever sleeps inside a program sleeps on this */
    team_pair sleepers; /* inside a program */
    atomic_uint *items; /* [phases_max] of the program; bit 31: own */
    team_worker workers[];
};
#define OWN_BIT ((uint32_t)1 << 31)

static size_t team_bytes(uint32_t threads, uint32_t phases) {
    return sizeof(team) + threads * sizeof(team_worker) + phases * sizeof(atomic_uint);
}

/* ---- Words to sleep on ---- */

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
            cpu_pause();
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

/* Between programs. */
static void word_wait(team_worker *worker, team_word *word, unsigned count) {
    if (word_look(word, count))
        return;
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

/* ---- Pairs of a phase and a count ---- */

static inline uint64_t pair_of(uint64_t phase, uint64_t count) {
    return phase << COUNT_BITS | count;
}

static inline uint64_t pair_count(uint64_t pair) {
    return pair & COUNT_MASK;
}

/* < 0: the pair is of an earlier phase, > 0: of a later one. The number wraps after 2^40 phases. */
static inline int64_t pair_compare(uint64_t pair, uint64_t phase) {
    return (int64_t)((pair & ~COUNT_MASK) - (phase << COUNT_BITS));
}

/* ---- Taking items ---- */

typedef enum claim_result { CLAIM_TAKEN, CLAIM_EMPTY, CLAIM_OVER } claim_result;

/* The next item of a share of `items` in `phase`. */
static claim_result claim(team_pair *share, uint64_t phase, uint32_t items, uint32_t *item) {
    uint64_t value = atomic_load_explicit(&share->value, memory_order_relaxed);
    for (;;) {
        int64_t order = pair_compare(value, phase);
        uint64_t taken = order == 0 ? pair_count(value) : 0;
        if (order > 0)
            return CLAIM_OVER;
        if (taken >= items)
            return CLAIM_EMPTY;
        if (atomic_compare_exchange_weak_explicit(&share->value, &value, pair_of(phase, taken + 1),
                                                  memory_order_acquire, memory_order_relaxed)) {
            *item = (uint32_t)taken;
            return CLAIM_TAKEN;
        }
    }
}

static void share_of(team_items *items, uint32_t owner) {
    size_t begin, end;
    team_share(items->count, owner, items->workers, &begin, &end);
    items->begin = (uint32_t)begin;
    items->end = (uint32_t)end;
}

/* False: none is left, or the phase is over. */
static bool take_item(team_items *items, uint32_t *item) {
    team *team = items->team;
    uint32_t workers = items->workers;
    while (items->helped < workers) {
        uint32_t owner = items->worker + items->helped;
        owner = owner < workers ? owner : owner - workers;
        claim_result result =
            claim(&team->workers[owner].claim, items->phase, items->end - items->begin, item);
        if (result == CLAIM_TAKEN) {
            *item += items->begin;
            items->taken++;
            return true;
        }
        if (result == CLAIM_OVER || items->own || ++items->helped == workers)
            break;
        share_of(items, owner + 1 < workers ? owner + 1 : 0);
    }
    items->helped = workers;
    return false;
}

bool team_take(team_items *items, uint32_t *item) {
    if (items->pending) {
        items->pending = false;
        *item = items->first;
        return true;
    }
    if (items->team == NULL) { /* a team of one */
        *item = items->begin++;
        return *item < items->end;
    }
    return take_item(items, item);
}

/* ---- The end of a phase ---- */

/* What a worker knows of the program that it walks through. */
typedef struct walk {
    team *team;
    team_worker *self;
    uint64_t program;
    uint64_t first; /* serial number of its first phase */
    uint32_t count, workers;
} walk;

static bool all_done(const walk *walk, uint64_t phase, uint32_t items) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < walk->workers; i++) {
        uint64_t done = atomic_load(&walk->team->workers[i].done.value);
        int64_t order = pair_compare(done, phase);
        if (order > 0)
            return true;
        sum += order == 0 ? pair_count(done) : 0;
    }
    return sum == items;
}

static bool reached(const walk *walk, uint64_t phase) {
    return pair_compare(atomic_load_explicit(&walk->team->reached.value, memory_order_acquire),
                        phase) > 0;
}

/* Tells those who wait for it that a phase is over. */
static void raise_reached(const walk *walk, uint64_t phase) {
    _Atomic uint64_t *word = &walk->team->reached.value;
    uint64_t value = atomic_load_explicit(word, memory_order_relaxed);
    while (pair_compare(value, phase) <= 0 &&
           !atomic_compare_exchange_weak(word, &value, pair_of(phase + 1, 0)))
        ;
}

static void wake_sleepers(team *team) {
    if (atomic_load(&team->sleepers.value) == 0)
        return;
    atomic_fetch_add(&team->alarm.value, 1);
    syscall(SYS_futex, &team->alarm.value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* One look at whether a phase is over. `takes_over`: also where another worker should look. */
static bool look_done(const walk *walk, uint64_t phase, uint32_t items, bool takes_over) {
    if (walk->workers <= SMALL_TEAM)
        return all_done(walk, phase, items);
    _Atomic uint64_t *gatherer = &walk->team->gatherer.value;
    if (reached(walk, phase))
        return true;
    bool own = atomic_load_explicit(gatherer, memory_order_relaxed) == walk->self->index;
    if ((!own && !takes_over) || !all_done(walk, phase, items))
        return false;
    if (!own)
        atomic_store_explicit(gatherer, walk->self->index, memory_order_relaxed);
    raise_reached(walk, phase);
    wake_sleepers(walk->team);
    return true;
}

static void nap(const walk *walk, uint64_t phase, uint32_t items) {
    team *team = walk->team;
    unsigned seen = atomic_load(&team->alarm.value);
    atomic_fetch_add(&team->sleepers.value, 1);
    if (!look_done(walk, phase, items, true)) {
        struct timespec most = {.tv_nsec = NAP_NS};
        syscall(SYS_futex, &team->alarm.value, FUTEX_WAIT_PRIVATE, seen, &most, NULL, 0);
    }
    atomic_fetch_sub(&team->sleepers.value, 1);
}

/* A few looks, of which the first may be at all workers; one where nobody spins. */
static bool look_often(const walk *walk, uint64_t phase, uint32_t items, bool takes_over) {
    int looks = walk->team->crowded ? 1 : SPIN_LOOKS;
    for (int look = 0; look < looks; look++) {
        if (look_done(walk, phase, items, takes_over && look == 0))
            return true;
        cpu_pause();
    }
    return false;
}

static void wait_done(const walk *walk, uint64_t phase, uint32_t items) {
    for (int look = 0; look < SPIN_EAGER && !walk->team->crowded; look++)
        if (look_done(walk, phase, items, false))
            return;
    uint64_t begin = clock_now_ns(), now = begin;
    bool shared = walk->self->shared > 0;
    while (!look_often(walk, phase, items, now - begin > TAKEOVER_NS)) {
        now = clock_now_ns();
        if (now - begin > SLEEP_NS || (shared && now - begin > SPIN_NS))
            nap(walk, phase, items);
        else if (walk->team->crowded || now - begin > SPIN_NS)
            sched_yield();
    }
    if (walk->self->counts)
        walk->self->waited_ns += clock_now_ns() - begin;
}

/* ---- Walking ---- */

/* The items of a phase; false: the program is over. */
static bool items_of(const walk *walk, uint32_t at, uint32_t *items, bool *own) {
    uint32_t word = atomic_load_explicit(&walk->team->items[at], memory_order_acquire);
    *items = word & ~OWN_BIT;
    *own = (word & OWN_BIT) != 0;
    return atomic_load(&walk->team->program) == walk->program;
}

/* Takes what there is of a phase and says how much it was. */
static void compute_items(const walk *walk, uint32_t at, uint32_t count, bool own) {
    team *team = walk->team;
    team_worker *self = walk->self;
    team_items items = {.team = team,
                        .phase = walk->first + at,
                        .worker = self->index,
                        .workers = walk->workers,
                        .count = count,
                        .own = own};
    share_of(&items, self->index);
    if (!take_item(&items, &items.first))
        return;
    items.pending = true;
    const team_phase *phase = &team->phases[at];
    phase->compute(team->context, phase->argument, &items);
    assert(items.helped == walk->workers);
    atomic_exchange(&self->done.value, pair_of(items.phase, items.taken));
    wake_sleepers(team);
}

/* Whether others want this worker's processor: the kernel has taken it away twice lately. Once may
 * be chance. What happened to the thread before it led the team, or to another leader, does not
 * count. */
static void look_for_others(team_worker *self) {
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) != 0)
        return;
    bool taken = pthread_equal(self->looked, pthread_self()) && usage.ru_nivcsw != self->switches;
    bool again = taken && self->recent > 0;
    self->shared = again ? SHARED_FOR : self->shared - (self->shared > 0);
    self->recent = taken ? SHARED_FOR : self->recent - (self->recent > 0);
    self->switches = usage.ru_nivcsw;
    self->looked = pthread_self();
}

static void walk_program(const walk *walk) {
    look_for_others(walk->self);
    for (uint32_t at = 0; at < walk->count; at++) {
        uint32_t items;
        bool own;
        if (!items_of(walk, at, &items, &own))
            return;
        if (items == 0)
            continue;
        compute_items(walk, at, items, own);
        if (!look_done(walk, walk->first + at, items, false))
            wait_done(walk, walk->first + at, items);
    }
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

/* The caller's thread is the host's: it is kept in its place for the length of a program, and never
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

/* False: the program that it was called for is over, and another one is being written. */
static bool walk_begin(team_worker *worker, walk *walk) {
    team *team = worker->team;
    *walk = (struct walk){.team = team, .self = worker, .program = atomic_load(&team->program)};
    walk->first = atomic_load_explicit(&team->first_phase, memory_order_acquire);
    walk->count = atomic_load_explicit(&team->phase_count, memory_order_acquire);
    walk->workers = atomic_load_explicit(&team->workers_now, memory_order_acquire);
    return walk->program != 0 && atomic_load(&team->program) == walk->program &&
           worker->index < walk->workers;
}

static void *team_worker_main(void *argument) {
    team_worker *worker = argument;
    team *team = worker->team;
    /* The mode was inherited from whoever opened the team; this thread does nothing else. */
    float_mode ignored;
    float_mode_enter(&ignored);
    if (team->pin != TEAM_PIN_NONE)
        pin_worker(team, worker->index);
    for (unsigned calls = 0;;) {
        word_wait(worker, &worker->called, calls + 1);
        calls = atomic_load_explicit(&worker->called.value, memory_order_acquire) / 2;
        if (atomic_load(&team->stop))
            return NULL;
        walk walk;
        if (walk_begin(worker, &walk))
            walk_program(&walk);
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

static void team_init(team *team, const avo_allocator *allocator, const team_options *options,
                      uint32_t phases) {
    uint32_t threads = options->threads;
    team->allocator = allocator;
    team->threads = team->active = threads;
    team->phases_max = phases;
    team->items = (atomic_uint *)(void *)&team->workers[threads];
    team->next_phase = 1;
    team->pin = options->pin;
    team->places = options->places;
    if (team->pin != TEAM_PIN_NONE)
        topology_detect(&team->topology);
    uint32_t places = options->places > threads ? options->places : threads;
    team->crowded = places > cpu_usable_threads();
    for (uint32_t i = 0; i < threads; i++) {
        team->workers[i].team = team;
        team->workers[i].index = i;
        team->workers[i].spin_ns = team->crowded ? 0 : SPIN_NS_MAX;
    }
}

avo_status team_open_with(const avo_allocator *allocator, const team_options *options, team **out,
                          avo_error *error) {
    *out = NULL;
    uint32_t threads = options->threads;
    uint32_t phases = options->phases > 0 ? options->phases : TEAM_PHASES_DEFAULT;
    if (threads == 0 || threads > TEAM_THREADS_MAX)
        return status_fail(error, AVO_ERROR_ARGUMENT, "threads is %u, must be 1 to %u", threads,
                           (unsigned)TEAM_THREADS_MAX);
    size_t bytes = team_bytes(threads, phases);
    team *team = allocator_take_array(allocator, 1, bytes);
    if (team == NULL)
        return status_no_memory(error, "the thread team", bytes);
    team_init(team, allocator, options, phases);
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
    atomic_store(&team->stop, true);
    team_call(team, team->started + 1);
    for (uint32_t i = 1; i <= team->started; i++)
        pthread_join(team->workers[i].thread, NULL);
    allocator_give(team->allocator, team, team_bytes(team->threads, team->phases_max));
}

/* ---- Programs ---- */

bool team_can_run(const team *team, uint32_t threads, uint32_t phases) {
    return team->threads == threads && team->phases_max >= phases;
}
uint32_t team_size(const team *team) {
    return team->active;
}

/* Who joins may have been away for so long that its words seem to be ahead. Nobody looks at them
 * now: late workers look at those of their own program, which it was not part of. */
void team_resize(team *team, uint32_t workers) {
    assert(workers > 0 && workers <= team->threads);
    for (uint32_t i = team->active; i < workers; i++) {
        uint64_t before = pair_of(team->next_phase - 1, COUNT_MASK);
        atomic_store(&team->workers[i].claim.value, before);
        atomic_store(&team->workers[i].done.value, before & ~COUNT_MASK);
    }
    team->active = workers;
}

static void run_alone(const team_phase *phases, uint32_t count, const void *context) {
    for (uint32_t i = 0; i < count; i++) {
        team_items items = {.count = phases[i].items, .workers = 1, .end = phases[i].items};
        if (items.count > 0)
            phases[i].compute(context, phases[i].argument, &items);
    }
}

/* Workers that are still late for the last program learn from its serial number that it is over. */
static void publish(team *team, const team_phase *phases, uint32_t count, const void *context,
                    walk *walk) {
    assert(count <= team->phases_max);
    *walk = (struct walk){.team = team,
                          .self = &team->workers[0],
                          .program = team->next_phase,
                          .first = team->next_phase,
                          .count = count,
                          .workers = team->active};
    atomic_store(&team->program, 0);
    team->phases = phases;
    team->context = context;
    for (uint32_t i = 0; i < count; i++) {
        assert(phases[i].items <= TEAM_ITEMS_MAX);
        atomic_store_explicit(&team->items[i], phases[i].items | (phases[i].own ? OWN_BIT : 0),
                              memory_order_release);
    }
    atomic_store_explicit(&team->first_phase, walk->first, memory_order_release);
    atomic_store_explicit(&team->phase_count, count, memory_order_release);
    atomic_store_explicit(&team->workers_now, walk->workers, memory_order_release);
    atomic_store(&team->program, walk->program);
    team->next_phase += count;
}

void team_run(team *team, const team_phase *phases, uint32_t count, const void *context) {
    if (count == 0)
        return;
    cpu_set_t before;
    bool pinned = pin_caller(team, &before);
    if (team->active == 1) {
        run_alone(phases, count, context);
    } else {
        walk walk;
        publish(team, phases, count, context, &walk);
        team_call(team, team->active);
        walk_program(&walk);
    }
    if (pinned)
        (void)sched_setaffinity(0, sizeof(before), &before);
}

typedef struct each {
    team_task task;
    void *context;
} each;

static void compute_each(const void *context, uint32_t argument, team_items *items) {
    const each *each = context;
    uint32_t worker;
    (void)argument;
    while (team_take(items, &worker))
        each->task(each->context, worker, items->workers);
}

void team_each(team *team, team_task task, void *context) {
    each each = {task, context};
    team_phase phase = {.compute = compute_each, .items = team->active, .own = true};
    team_run(team, &phase, 1, &each);
}

void team_barrier(team *team, uint32_t worker) {
    if (team->active == 1)
        return;
    unsigned crossed = atomic_load_explicit(&team->crossed.value, memory_order_relaxed) / 2;
    if (atomic_fetch_add(&team->arrived.value, 1) + 1 == team->active) {
        atomic_store_explicit(&team->arrived.value, 0, memory_order_relaxed);
        word_raise(&team->crossed, crossed + 1);
    } else {
        word_wait(&team->workers[worker], &team->crossed, crossed + 1);
    }
}

/* ---- Figures ---- */

static void count_from_now(void *context, uint32_t worker, uint32_t workers) {
    (void)workers;
    team *team = context;
    team->workers[worker].counts = true;
}

void team_count_waits(team *team) {
    team_each(team, count_from_now, team);
}

uint64_t team_waited_ns(const team *team, uint32_t worker) {
    return team->workers[worker].waited_ns;
}

uint32_t team_absent(const team *team) {
    uint64_t first = atomic_load_explicit(&team->first_phase, memory_order_relaxed);
    uint32_t absent = 0;
    for (uint32_t i = 1; team->active > 1 && i < team->active; i++)
        absent += pair_compare(atomic_load(&team->workers[i].done.value), first) < 0;
    return absent;
}
