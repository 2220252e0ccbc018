/* A team of threads that computes programs: lists of phases, each a number of items that any worker
 * may compute in any order. A phase ends when its items are done, not when all workers have come:
 * a worker that the kernel has taken off its processor delays the others only if it was stopped
 * inside an item. The caller of a program is worker 0.
 *
 * Items are divided statically into shares, one per worker, for the sake of caches and NUMA. A
 * worker takes the items of its own share first, then what is left of the others'. */
#ifndef AVO_BASE_TEAM_H
#define AVO_BASE_TEAM_H

#include "base/status.h"

#define TEAM_THREADS_MAX 256
#define TEAM_ITEMS_MAX   ((uint32_t)1 << 22) /* of one phase */

typedef struct team team;

typedef enum team_pin {
    TEAM_PIN_NONE, /* the scheduler decides */
    TEAM_PIN_CORE, /* each to one processor: all physical cores first, then their siblings */
    TEAM_PIN_NODE  /* each to the processors of one NUMA node: neighbours share a node */
} team_pin;

typedef struct team_options {
    uint32_t threads; /* 1…TEAM_THREADS_MAX; 1 starts no thread */
    team_pin pin;     /* the caller's own thread only while a program runs; then it is as before */
    /* Workers take their places from the last of all on: the team shares processors with another
     * one of as many places, and both together run no more workers than there are places. */
    uint32_t places; /* 0: as many as threads, from the first on */
    uint32_t phases; /* the longest program; 0: TEAM_PHASES_DEFAULT */
} team_options;
#define TEAM_PHASES_DEFAULT 16

AVO_MUST_USE avo_status team_open_with(const avo_allocator *allocator, const team_options *options,
                                       team **out, avo_error *error);
/* The same, nothing pinned. */
AVO_MUST_USE avo_status team_open(const avo_allocator *allocator, uint32_t threads, team **out,
                                  avo_error *error);
void team_close(team *team);
/* Workers that take part in a program. */
uint32_t team_size(const team *team);
/* Whether it was opened with so many threads, and for programs of so many phases. */
bool team_can_run(const team *team, uint32_t threads, uint32_t phases);
/* From the next program on `workers` of the team's threads take part; the others sleep. By the
 * thread that runs the programs, between two of them. */
void team_resize(team *team, uint32_t workers);

/* ---- Programs ---- */

/* What a worker has taken of the phase at hand. */
typedef struct team_items {
    team *team;
    uint64_t phase;           /* serial number */
    uint32_t worker, workers; /* who takes, and of how many */
    uint32_t count;           /* of the phase */
    uint32_t begin, end;      /* of the share that items are being taken from */
    uint32_t helped;          /* shares that are known to be empty, its own first */
    uint32_t taken;           /* by this worker */
    uint32_t first;           /* taken, but not given yet */
    bool pending;             /* `first` is */
    bool own;                 /* only its own share */
} team_items;

/* Computes items of a phase: those that team_take gives, until it gives none. It is called only for
 * workers that have one, so what an item needs (buffers, a normed row) can be made before the loop.
 * What was written in earlier phases is visible. */
typedef void (*team_compute)(const void *context, uint32_t argument, team_items *items);

typedef struct team_phase {
    team_compute compute;
    uint32_t argument; /* such as the layer */
    uint32_t items;    /* at most TEAM_ITEMS_MAX; 0: nothing to do */
    bool own;          /* nobody takes items of another's share */
} team_phase;

/* Runs the phases one after another and returns when the last is done. Not reentrant. The context
 * is not touched afterwards, even by a worker that was late for all of it. */
void team_run(team *team, const team_phase *phases, uint32_t count, const void *context);

/* The next item for this worker; false: none is left (not: all are done). */
bool team_take(team_items *items, uint32_t *item);

/* Runs `task` once on every worker, whatever the load, and returns when all are done. */
typedef void (*team_task)(void *context, uint32_t worker, uint32_t workers);
void team_each(team *team, team_task task, void *context);
/* Inside such a task: waits until every worker has come here. What was written before it is seen by
 * all behind it. */
void team_barrier(team *team, uint32_t worker);

/* ---- Figures ---- */

/* From now on the time that workers wait is counted, for each of them since the team was opened.
 * Before the first program that shall count. A wait that ends at the first look counts nothing. */
void team_count_waits(team *team);
/* Asked by the worker itself. */
uint64_t team_waited_ns(const team *team, uint32_t worker);
/* Workers that took no item of the last program, for lack of a processor or of items. By the thread
 * that ran it. */
uint32_t team_absent(const team *team);

/* ---- Shares ---- */

/* The part of [0, count) that belongs to a worker: contiguous, sizes differ by one at most. */
static inline void team_share(size_t count, uint32_t worker, uint32_t workers, size_t *begin,
                              size_t *end) {
    size_t base = count / workers;
    size_t rest = count % workers;
    *begin = worker * base + (worker < rest ? worker : rest);
    *end = *begin + base + (worker < rest ? 1 : 0);
}

#endif
