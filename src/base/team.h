/* A team of threads that walk together: the caller is worker 0, the others wait for the next task.
 * Work is cut statically (team_share); where what is written cannot depend on who writes it, those
 * who are done early take over parts of the others' shares (team_work). */
#ifndef AVO_BASE_TEAM_H
#define AVO_BASE_TEAM_H

#include "base/status.h"

#define TEAM_THREADS_MAX 256

typedef struct team team;

typedef void (*team_task)(void *context, uint32_t worker, uint32_t workers);

typedef enum team_pin {
    TEAM_PIN_NONE, /* the scheduler decides */
    TEAM_PIN_CORE, /* each to one processor: all physical cores first, then their siblings */
    TEAM_PIN_NODE  /* each to the processors of one NUMA node: neighbours share a node */
} team_pin;

typedef struct team_options {
    uint32_t threads; /* 1…TEAM_THREADS_MAX; 1 starts no thread */
    team_pin pin;     /* the caller's own thread only while a task runs; then it is as before */
    /* Workers take their places from the last of all on: the team shares processors with another
     * one of as many places, and both together run no more workers than there are places. */
    uint32_t places; /* 0: as many as threads, from the first on */
} team_options;

AVO_MUST_USE avo_status team_open_with(const avo_allocator *allocator, const team_options *options,
                                       team **out, avo_error *error);
/* The same, nothing pinned. */
AVO_MUST_USE avo_status team_open(const avo_allocator *allocator, uint32_t threads, team **out,
                                  avo_error *error);
void team_close(team *team);
/* Workers that take part in a task. */
uint32_t team_size(const team *team);
/* From the next task on `workers` of the team's threads take part; the others sleep. By the thread
 * that runs the tasks, between two of them. */
void team_resize(team *team, uint32_t workers);

/* Runs `task` on every worker and returns when all are done. Not reentrant. */
void team_run(team *team, team_task task, void *context);

/* Inside a task: waits until every worker of the team has come here. What was written before it is
 * seen by all behind it. */
void team_barrier(team *team, uint32_t worker);

/* The same in two halves, with work between them that needs nobody: team_signal says that this
 * worker has come so far, team_await waits until all the others have said so as often as it has.
 * Between a signal and the next lies a barrier; not everybody need await. */
void team_signal(team *team, uint32_t worker);
void team_await(team *team, uint32_t worker);

/* From now on the time that workers wait is counted, for each of them since the team was opened.
 * Before the first task that shall count. A wait that ends at the first look counts nothing. */
void team_count_waits(team *team);
/* Asked by the worker itself. */
uint64_t team_waited_ns(const team *team, uint32_t worker);

/* The part of [0, count) that belongs to a worker: contiguous, sizes differ by one at most. */
static inline void team_share(size_t count, uint32_t worker, uint32_t workers, size_t *begin,
                              size_t *end) {
    size_t base = count / workers;
    size_t rest = count % workers;
    *begin = worker * base + (worker < rest ? worker : rest);
    *end = *begin + base + (worker < rest ? 1 : 0);
}

/* ---- Work that anybody may do ---- */

/* Items [0, count): every worker takes those of its own share one after another, then what the
 * others have not taken of theirs. For items whose results depend on nothing but the item; a slow
 * or interrupted processor then delays the team by an item, not by its share. */
typedef struct team_work {
    team *team;
    size_t count;
    size_t begin; /* of the share that items are being taken from */
    size_t end;
    uint32_t workers;
    uint32_t worker;
    uint32_t helped; /* shares that are known to be empty, its own first */
    uint32_t bank;
} team_work;

/* Every worker begins the same works in the same order, with a barrier or the end of a task between
 * two of them. */
void team_work_begin(team *team, uint32_t worker, size_t count, team_work *out);
/* The next item for this worker; false: all have been taken (not: all are done). */
bool team_work_next(team_work *work, size_t *item);

#endif
