/* Inside the simulation: its state.
 *
 *   simulate.c          the clock, events, steps
 *   simulate_memory.c   pages and what is in them
 *   simulate_check.c    what must hold
 *   workload.c          what comes
 */
#ifndef AVO_SCHED_SIMULATE_INT_H
#define AVO_SCHED_SIMULATE_INT_H

#include "base/arena.h"
#include "memory/pages.h"
#include "sched/heap.h"
#include "sched/simulate.h"

#include <stdio.h>

#define CLASSES SCHED_PRIORITIES

typedef enum user_state {
    USER_COMING,
    USER_WAITING,
    USER_RUNNING,
    USER_PREEMPTED,
    USER_OVER
} user_state;

/* The client of an item, and what is known of it without asking the scheduler. */
typedef struct user {
    user_state state;
    bool cancelled;
    uint32_t pair; /* number of its (tenant, adapter) */
    uint32_t tokens;
    uint32_t charged;   /* positions paid for */
    bool begun;         /* its answer is promised */
    uint32_t unserved;  /* steps in a row in which it could have decoded and did not */
    bool was_in_flight; /* until after the last plan, which so could not end it */
    uint32_t reusable;  /* of the prompt, cached when it was submitted */
    uint32_t looked;    /* leading rows of a scored prompt that had logits */
    uint64_t sum;       /* of everything that he has: prompt and tokens */
    uint64_t event_ns;  /* arrival, next try, or cancellation */
    uint64_t last_ns;   /* when the last token came */
    uint64_t arrived;   /* as the scheduler knows it */
    uint64_t submitted; /* order */
} user;

typedef struct sequence {
    uint32_t item;  /* UINT32_MAX: empty */
    bool begun;     /* in the plan that is being made */
    bool in_flight; /* is computed beside others */
    uint32_t computed, known;
    uint64_t served;            /* the last plan that gave it rows */
    uint64_t since;             /* the plan in which it began */
    uint64_t sum;               /* of the first `computed` tokens */
    uint32_t wished;            /* drafts that were announced for the plan that is being made */
    float survival[DRAFTS_MAX]; /* of these */
    int32_t *tokens;            /* [context_max] */
    uint64_t *ends;             /* [pages of a context] sums at the ends of full pages */
    kv_table table;
    prefix_root root;
} sequence;

/* A step in the making: of both sides or of decoding, or of prompts beside others. */
typedef struct step {
    sched_result *results; /* [running_max] */
    sched_plan plan;
    uint64_t planned_ns, end_ns;
} step;

/* What happened to memory while a plan was made: who was begun, in order. */
typedef struct attempt {
    uint32_t item, sequence;
    bool kept;
} attempt;

/* A (tenant, adapter) pair as the checks see it. */
typedef struct shares {
    uint32_t tenant, live, waiting;
    double weight;
    double service;              /* weighted tokens */
    double price_max;            /* of a token, when all the tenant's pairs have work */
    uint64_t promised;           /* new tokens of its begun requests */
    uint32_t queue[CLASSES];     /* who waits, by class */
    uint64_t served_ns[CLASSES]; /* as in core_int.h */
} shares;

typedef struct simulation {
    const simulate_options *options;
    const simulate_item *items;
    uint32_t count;
    simulate_outcome *outcomes;
    simulate_result *result;
    simulate_gap gap;
    void *gap_context;
    arena arena;
    sched *sched;
    uint64_t now, clock; /* clock: the latest time that the scheduler was told */
    uint64_t draws;      /* of random numbers */
    uint64_t last_plan;
    bool planned_once;
    uint32_t over, submissions;

    user *users;
    heap events; /* users by event_ns */

    kv_pages *pages;
    uint64_t *content;   /* [pages] sum up to the page's end */
    sequence *sequences; /* [running_max] */
    int32_t *probe;      /* [context_max] a prompt that is looked for */
    attempt *attempts;   /* [running_max + 1] */
    uint32_t attempt_count;
    kv_table hog;
    uint64_t hog_until;

    shares *pairs; /* [pair_count] */
    uint32_t pair_count;
    uint32_t *tenant_pairs; /* [tenants] pairs with work */
    uint64_t *tenant_pages; /* [tenants] that requests which have begun may need together */
    double *low, *high;     /* [pair_count²] of the difference of services; NaN: not both wait */
    double share_bound;     /* the most that anybody could have been ahead */
    uint32_t prefill_pause; /* steps in a row without rows of prompts */
    uint32_t cancelled;     /* and not yet over */
    uint32_t preempted;     /* requests that were, and have not come back */
    uint32_t prompt_max;
    uint64_t plans;
    cores cores;
    step step, prefill; /* prefill: while it is in flight, beside `step` */
    bool prefill_in_flight;
} simulation;

/* The first thing that is wrong stays. */
void wrong(simulation *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool is_wrong(const simulation *s) {
    return s->result->wrong[0] != '\0';
}
double draw_uniform(simulation *s);
/* Of a step on so many cores; on fewer than all, others read beside them. */
step_cost simulate_cost(const simulate_machine *machine, uint32_t cores);

static inline uint64_t sum_add(uint64_t sum, int32_t token) {
    uint64_t x = (sum ^ (uint32_t)token) * 0x9E3779B97F4A7C15ull;
    return x ^ x >> 29;
}
/* The token behind everything that went into the sum. */
static inline int32_t sum_draw(uint64_t sum) {
    return (int32_t)((sum * 0xBF58476D1CE4E5B9ull) >> 40);
}
static inline uint64_t sum_begin(const simulate_item *item) {
    return ((uint64_t)item->adapter << 32 | item->tenant) * 0x94D049BB133111EBull + 1;
}
int32_t prompt_token(const simulate_item *item, uint32_t index, uint32_t position);

/* What there really is: of the pool, and of a context. */
static inline uint32_t real_pages(const simulation *s) {
    return s->options->sched.pages - s->options->beyond;
}
static inline uint32_t real_context(const simulation *s) {
    return s->options->sched.context_max - s->options->beyond;
}

/* ---- simulate_memory.c ---- */
bool memory_open(simulation *s);
sched_memory memory_functions(simulation *s);
/* Tokens of an item's prompt that are cached now. */
uint32_t memory_cached(simulation *s, uint32_t item);
/* Computes an entry's rows, drafts included, which lie behind the known tokens. */
void sequence_compute(simulation *s, const sched_entry *entry);
/* The sum behind the first `length` tokens, of which those before the entry's rows are computed. */
uint64_t sequence_sum(const simulation *s, const sched_entry *entry, uint32_t length);
/* The timeline is computed up to `length` and no further: pages of drafts that were not accepted
 * are given back, and those that are full can be found by others. */
void sequence_settle(simulation *s, const sched_entry *entry, uint32_t length);

/* ---- simulate_check.c ---- */
bool checks_open(simulation *s);
void check_submitted(simulation *s, uint32_t item);
void check_not_taken(simulation *s, uint32_t item, avo_status status);
void check_stops_waiting(simulation *s, uint32_t item, bool begun);
void check_over(simulation *s, uint32_t item);
/* After a plan: ends, preemptions and beginnings, in this order; then the rows. */
void check_end(simulation *s, uint32_t item, sched_outcome outcome, bool by_plan);
void check_victim(simulation *s, uint32_t item);
void check_begins(simulation *s);
void check_plan(simulation *s, const sched_plan *plan);
/* A step has come: its pair pays for what was accepted. */
void check_accepted(simulation *s, const sched_entry *entry, uint32_t accepted);
/* Rows of an entry are computed: of a scored prompt none is left out. */
void check_scored(simulation *s, const sched_entry *entry);
void check_state(simulation *s);
void check_shares(simulation *s);

#endif
