/* The scheduler under a virtual clock. core.c and memory/pages.c run as they are; in the sequence
 * of kernels there is a cost model with noise, in the sequence of K, V and logits a running sum of
 * the tokens: what a page holds is the sum up to its end, and the token that is drawn is a function
 * of the sum. A row that is computed twice, left out, or taken from a wrong page makes a wrong
 * token, and the client at the other end, who keeps the sum himself, notices at once.
 *
 * Everything is a function of the seed. Invariants are checked at every step; the first that does
 * not hold ends the run and says what and when.
 */
#ifndef AVO_SCHED_SIMULATE_H
#define AVO_SCHED_SIMULATE_H

#include "sched/core.h"
#include "sched/cores.h"

#define SIMULATE_REQUESTS_MAX 1000000
#define SIMULATE_WRONG_MAX    256
/* The last request comes within 31 years, and all are done within 126: the clock counts ns in 64
 * bits, and has room for a step, a deadline or a retry behind its end. */
#define SIMULATE_ARRIVAL_NS_MAX 1000000000000000000u
#define SIMULATE_CLOCK_NS_MAX   4000000000000000000u

/* ---- What comes ---- */

typedef struct simulate_item {
    uint64_t arrival_ns;
    uint32_t tenant, adapter;
    uint32_t adapters; /* that `adapter` stands for */
    uint32_t priority;
    float weight;
    uint32_t budget; /* pages that its tenant's running requests may need together; 0: no limit */
    uint32_t prompt_tokens;
    uint32_t prefix_group, prefix_tokens; /* leading tokens of the prompt shared by a group */
    uint32_t new_tokens_max;
    uint32_t answer_tokens;     /* after which it stops; ≥ new_tokens_max: never by itself */
    uint32_t fails_at;          /* the token with which it breaks; 0: never */
    uint32_t gone_at;           /* after this token the client is gone; 0: never */
    uint64_t cancel_ns;         /* after arrival; 0: never */
    uint64_t first_deadline_ns; /* after arrival; 0: none */
    uint64_t deadline_ns;
    bool no_answer; /* ends with its prompt; new_tokens_max is 0, and nothing is drawn */
    bool scored;    /* every row of its prompt has logits: none may be reused before it had */
} simulate_item;

typedef enum simulate_end {
    SIMULATE_FINISHED = SCHED_FINISHED,
    SIMULATE_CANCELLED = SCHED_CANCELLED,
    SIMULATE_EXPIRED = SCHED_EXPIRED,
    SIMULATE_REFUSED = SCHED_REFUSED, /* by a plan */
    SIMULATE_FAILED = SCHED_FAILED,
    SIMULATE_NOT_TAKEN, /* by submission: a deadline, or it never fits */
    SIMULATE_FULL,      /* the queue was full, and the client does not try again */
    SIMULATE_PENDING    /* has not ended */
} simulate_end;

typedef struct simulate_outcome {
    simulate_end end;
    uint32_t tokens; /* delivered */
    uint32_t preemptions;
    uint32_t retries;
    uint32_t reused_tokens;
    uint64_t begin_ns, first_ns, end_ns; /* absolute; 0: never */
    uint64_t gap_ns_max;                 /* the longest time between two tokens */
} simulate_outcome;

/* ---- The machine ---- */

typedef struct simulate_machine {
    step_cost cost;   /* of mixed steps on all cores; a step's weights are read at memory's speed,
                          the rest is arithmetic */
    double noise;     /* 0.1: a step takes 0.9 to 1.1 of its cost */
    double stall;     /* probability that it takes ten times as long */
    cores_mode split; /* decoding and prompts on cores of their own; the scheduler's own rules */
    uint32_t cores, decode_cores; /* decode_cores: where static */
    double core_bandwidth;        /* one core's part of what all cores together read */
} simulate_machine;

typedef struct simulate_options {
    sched_options sched;
    simulate_machine machine;
    uint64_t seed;
    bool check;      /* every invariant at every step: O(everything) */
    bool fair;       /* all requests have priority 0: shares are checked, too */
    bool learn;      /* the scheduler's own cost model learns */
    bool retry;      /* clients come again when a full queue tells them to */
    bool beyond;     /* as the driver does it: sched.pages and sched.context_max are one more than
                        there are, as the last token of an answer takes no sequence */
    double shortage; /* probability, per step, that somebody else takes pages for a while */
    double accept;   /* probability that a draft token is right; how many there are is drawn */
} simulate_options;

/* ---- What came of it ---- */

/* A gap between two tokens: of which request, how long. */
typedef void (*simulate_gap)(void *context, uint32_t item, uint64_t nanoseconds);

typedef struct simulate_result {
    char wrong[SIMULATE_WRONG_MAX]; /* "" or the invariant that did not hold */
    uint64_t steps;
    uint64_t end_ns; /* when the last request ended */
    uint64_t busy_ns;
    sched_counts counts;
    double share_bound_used; /* the largest part of the fairness bound that was seen */
} simulate_result;

/* `outcomes`: [count]. `items` in order of arrival. AVO_OK also when result->wrong says something;
 * an error means that the simulation itself could not be. */
AVO_MUST_USE avo_status simulate_run(const simulate_options *options, const simulate_item *items,
                                     uint32_t count, const avo_allocator *allocator,
                                     simulate_gap gap, void *gap_context,
                                     simulate_outcome *outcomes, simulate_result *result,
                                     avo_error *error);

/* ---- Workloads ---- */

#define SIMULATE_SEED_REQUESTS_MAX 256

/* A small world full of trouble: options and requests of a seed. Returns how many. */
uint32_t simulate_seed(uint64_t seed, simulate_options *options,
                       simulate_item items[SIMULATE_SEED_REQUESTS_MAX]);

/* Requests as many users of many adapters send them. */
typedef struct simulate_zipf {
    double exponent;   /* adapter k of N has the weight 1 / k^exponent */
    uint32_t adapters; /* 0: none */
    uint32_t tenants;
    double rate; /* a second, Poisson */
    uint32_t prompt_mean, answer_mean;
    uint32_t context_max;
    uint64_t seed;
} simulate_zipf;
/* Refuses what would last longer than SIMULATE_ARRIVAL_NS_MAX. */
AVO_MUST_USE avo_status simulate_zipf_fill(const simulate_zipf *zipf, simulate_item *items,
                                           uint32_t count, avo_error *error);
/* When request `index` comes, from a time in ns that may be too large for the clock. */
AVO_MUST_USE avo_status simulate_arrival(double time_ns, uint32_t index, simulate_item *item,
                                         avo_error *error);

#endif
