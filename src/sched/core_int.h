/* Inside the scheduler: its state and the parts of core.c's work.
 *
 *   core.c       opening, submission, cancellation, ends
 *   queue.c      who waits, in which order
 *   fairness.c   pairs, tenants, counters
 *   deadline.c   when a request must have begun, when it must have ended, when to try again
 *   running.c    running sequences, groups of them by adapter, preemption
 *   plan.c       the step
 *   cost.c       what a step costs
 *   check.c      all invariants
 */
#ifndef AVO_SCHED_CORE_INT_H
#define AVO_SCHED_CORE_INT_H

#include "sched/core.h"
#include "sched/heap.h"
#include "sched/keys.h"

#define NONE           UINT32_MAX
#define NEVER          UINT64_MAX
#define IDLE_PAIRS_MAX 1024 /* whose counters are remembered though nothing of theirs is here */

typedef enum request_state {
    REQUEST_FREE,
    REQUEST_WAITING,   /* in the queue of its pair and class */
    REQUEST_PREEMPTED, /* in the heap of those that will be computed again */
    REQUEST_RUNNING,   /* is one of the running sequences */
    REQUEST_ENDING     /* cancelled while it waited; the next plan says so */
} request_state;

typedef struct request {
    sched_request given;
    request_state state;
    bool cancelled;          /* in the list of endings */
    uint64_t number;         /* order of submission */
    uint64_t rank_ns;        /* arrival + priority × ageing */
    uint32_t rank_class;     /* before it: the priority where nothing ages, else 0 */
    uint64_t due_ns;         /* key of the heap of deadlines */
    uint32_t pair, sequence; /* sequence: only of running ones */
    uint32_t next, previous; /* in a queue, in the list of endings, in the list of free ones */
    uint32_t generated;
    uint32_t computed; /* leading positions that are in memory */
    uint32_t seen;     /* positions that were computed or reused at least once */
    bool late;         /* a deadline passed while it was in flight: not in the heap of deadlines */
    uint64_t pages;    /* of its tenant's budget; 0: it has not begun */
    uint32_t charged;  /* positions that its pair has paid for: the prompt when it begins, then row
                          by  row; nothing twice */
} request;

/* Requests of one pair and one priority class: first come first served. */
typedef struct queue {
    uint32_t head, tail;
    uint32_t class_now; /* raised by ageing */
    uint64_t served_ns; /* when one of it was last begun, or when it was last empty */
    uint64_t raise_ns;  /* when it next rises; NEVER in class 0 */
    bool parked;        /* its tenant is held: it is in no heap, but in the tenant's list */
    uint32_t next_parked;
} queue;

typedef struct pair {
    uint64_t adapter;
    uint32_t tenant;         /* index; NONE: this pair is free */
    uint32_t live;           /* requests of any state */
    uint32_t waiting;        /* of these, in queues */
    uint32_t classes;        /* bit c: queue c has somebody */
    uint32_t next, previous; /* among idle pairs, oldest first; next: among free ones */
    double counter;          /* weighted tokens */
    queue queue[SCHED_PRIORITIES];
} pair;

typedef struct tenant {
    uint64_t name;
    double weight;
    uint32_t pairs;            /* known */
    uint32_t active;           /* of these, with requests */
    uint64_t pages_max, pages; /* that its running requests may need together (0: no limit), need */
    uint32_t held_for;         /* the waiting request that the rest is not enough for; NONE */
    uint32_t parked;           /* list of its queues that are in no heap meanwhile */
    uint32_t next;             /* among free ones */
} tenant;

/* Running sequences of one adapter. Groups are listed in the order in which they were last served,
 * the one that has waited longest first. */
typedef struct group {
    uint64_t adapter;
    uint32_t units;          /* adapters that it is */
    uint32_t sequences;      /* 0: this group is free */
    uint32_t first;          /* sequence; the others by `next` */
    uint32_t next, previous; /* in that list; next: among free ones */
    uint64_t chosen_step;    /* the last step it was chosen for */
    uint64_t served_step;    /* the last step in which it had a row */
} group;

typedef struct sequence {
    uint32_t request; /* NONE: free */
    uint32_t group;
    uint32_t next, previous; /* in the group; next: among free ones */
    uint32_t rows;           /* of the step that is planned */
    uint32_t drafts;         /* of these */
    bool in_flight;          /* it is in a plan of prompts that is being computed */
} sequence;

struct sched {
    const avo_allocator *allocator;
    arena arena;
    sched_options options;
    sched_memory memory;
    sched_counts counts;
    uint64_t now_ns;
    uint64_t step;
    uint64_t numbers;       /* given so far */
    bool in_step;           /* a plan of both sides or of decoding is being computed */
    bool prefill_in_flight; /* one of prompts is */
    bool prefill_blocked; /* no prefill plan may start: a decoding sequence waits for a page of one
                             that is in flight, or was */
    step_cost cost[SCHED_SIDES];

    request *request; /* [request_count] */
    uint32_t request_count, request_free;
    keys ids;
    uint32_t ending; /* list of requests that were cancelled */

    pair *pair; /* [pair_count] */
    uint32_t pair_count, pair_free;
    uint32_t idle_first, idle_last;
    keys pairs;
    tenant *tenant; /* [pair_count] */
    uint32_t tenant_free;
    keys tenants;
    heap by_counter;     /* pairs that wait */
    double counter_sum;  /* of these */
    double left_counter; /* of forgotten ones that had been last_left, the largest */
    uint32_t last_left;  /* the pair that last stopped waiting; NONE */

    heap by_precedence; /* queues, numbered pair × SCHED_PRIORITIES + class */
    heap by_raise;      /* queues that ageing will raise */
    heap preempted;     /* requests */
    heap by_due;        /* requests with deadlines */

    sequence *sequence; /* [running_max] */
    uint32_t sequence_free;
    uint32_t *running; /* [running_max] sequences by rank */
    uint32_t running_count;
    group *group; /* [running_max] */
    uint32_t group_free, group_first, group_last;

    /* Admission that failed for want of pages: not tried again before there are more. */
    uint64_t blocked_number;
    uint32_t blocked_available;
    uint32_t prefill_skips;
    sched_pace pace;         /* of admissions */
    uint32_t steps_done;     /* up to trust_steps */
    uint32_t refused_lately; /* for their deadlines, since the last step */

    sched_entry *entries;     /* [running_max] */
    sched_wish *wishes;       /* [running_max] drafts of the plan that is being made, */
    choose_item *choices;     /* [running_max] and how many of them are verified */
    sched_entry *prompts;     /* [running_max] of the prefill plan in flight */
    sched_end *plan_ends;     /* [request_count] */
    sched_end *done_ends;     /* [running_max] */
    uint64_t *preempted_list; /* [running_max] */
    uint32_t plan_end_count, preempted_count;
};

static inline uint32_t request_known(const request *request) {
    return request->given.prompt_tokens + request->generated;
}
static inline uint64_t request_tokens(const request *request) {
    return (uint64_t)request->given.prompt_tokens + request->given.new_tokens_max;
}
/* Rows of its timeline that are not in memory: 1 while it decodes. */
static inline uint32_t request_pending(const request *request) {
    return request_known(request) - request->computed;
}
/* In a plan of prompts that is being computed. */
static inline bool request_in_flight(const sched *sched, const request *request) {
    return request->state == REQUEST_RUNNING && sched->sequence[request->sequence].in_flight;
}
static inline bool rank_before(const request *a, const request *b) {
    if (a->rank_class != b->rank_class)
        return a->rank_class < b->rank_class;
    return a->rank_ns != b->rank_ns ? a->rank_ns < b->rank_ns : a->number < b->number;
}

/* ---- core.c ---- */

/* Whatever state it is in, it ends: everything it holds is given back, its record is free. */
void request_end(sched *sched, uint32_t index, sched_outcome outcome);
/* The same, told by the plan that is being made. */
void plan_end(sched *sched, uint32_t index, sched_outcome outcome);

/* ---- fairness.c ---- */

bool fairness_order(const void *sched, uint32_t a, uint32_t b);
/* Finds or makes the pair of a request; NONE: too many have work. */
uint32_t fairness_pair(sched *sched, const sched_request *given);
void fairness_enter(sched *sched, uint32_t pair); /* one more request of it lives */
void fairness_leave(sched *sched, uint32_t pair);
void fairness_waits(sched *sched, uint32_t pair); /* its first request waits */
void fairness_stops(sched *sched, uint32_t pair); /* none of it waits any more */
void fairness_charge(sched *sched, uint32_t pair, uint32_t tokens);
/* What one token adds to the pair's counter. */
double fairness_price(const sched *sched, const pair *pair);

/* ---- queue.c ---- */

bool queue_order(const void *sched, uint32_t a, uint32_t b);
bool queue_raise_order(const void *sched, uint32_t a, uint32_t b);
void queue_append(sched *sched, uint32_t index);
/* `begun`: it is admitted, which makes its queue young again. */
void queue_remove(sched *sched, uint32_t index, bool begun);
/* Before and after the pair's counter changes. */
void queue_moving(sched *sched, uint32_t pair);
void queue_moved(sched *sched, uint32_t pair);
uint32_t queue_number(const request *request);
/* Its class by now, and when that changes next; it is in the heaps afterwards. */
void queue_date(sched *sched, uint32_t number);
void queue_raise(sched *sched); /* everybody whose time has come */
/* The next to be admitted, waiting or preempted; NONE. */
uint32_t queue_best(const sched *sched);
uint32_t class_of(const sched *sched, uint64_t rank_ns);

/* ---- deadline.c ---- */

/* The deadline that applies now; 0: none. */
uint64_t deadline_of(const request *request);
/* The shortest time in which `rows` rows of a prompt can be computed. */
double deadline_prefill_ns(const sched *sched, const sched_request *given, uint32_t rows);
/* After its state has changed. */
void deadline_watch(sched *sched, uint32_t index);
void deadline_expire(sched *sched); /* ends everybody whose time is over */
/* Whether what the cost model says may refuse a request. */
bool deadline_believed(const sched *sched);
uint64_t deadline_retry_ns(const sched *sched, const sched_request *request);

/* ---- budget.c ---- */

/* Whether a request, the next one to begin, must wait for its tenant's budget; its queue is out of
 * the way then. */
bool budget_holds(sched *sched, uint32_t index);
void budget_take(sched *sched, uint32_t index); /* a request begins for the first time */
void budget_give(sched *sched, uint32_t index); /* one that has begun ends */
/* A waiting request leaves its queue. */
void budget_leave(sched *sched, uint32_t index);
/* The tenant's budget may have become larger. */
void budget_look(sched *sched, uint32_t tenant);
void budget_unpark(sched *sched, uint32_t tenant);

/* ---- running.c ---- */

/* Lets it run if its whole timeline has pages. */
bool running_admit(sched *sched, uint32_t index);
/* It runs no more; its number and its pages are free afterwards. */
void running_leave(sched *sched, uint32_t index);
typedef enum reservation {
    RESERVED,
    PREEMPTED, /* it was itself the lowest */
    LATER      /* the lowest is in flight: the first decode plan after that is done will do */
} reservation;
/* Pages for `rows` more rows of it; takes them from those of lower rank. */
reservation running_reserve(sched *sched, uint32_t index, uint32_t rows);
/* The group was served: it is served again after all others. */
void group_served(sched *sched, uint32_t group);

#endif
